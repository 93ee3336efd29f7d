from store.layout import Change, DrawnEdge, Lanes, drawn_edges


def placed(*steps):
    lanes = Lanes()
    for ids, edges in steps:
        lanes = lanes.place(ids.split(), edges)
    return lanes


def numbers(lanes, ids):
    return [lanes.number(name) for name in ids.split()]


FIGURE_1 = (
    ("1 2 3 4 5", ()),
    ("1 2 3 4a 4b 5", (("4", "4a"), ("4", "4b"))),
    ("1 2 3 4c 5", (("4a", "4c"), ("4b", "4c"))),
)


def test_figure_1_keeps_every_lane_for_life():
    lanes = placed(*FIGURE_1)
    assert numbers(lanes, "1 2 3 4 5") == [0, 1, 2, 3, 5]
    assert numbers(lanes, "1 2 3 4a 4b 5") == [0, 1, 2, 3, 4, 5]
    assert numbers(lanes, "1 2 3 4c 5") == [0, 1, 2, 3, 5]


def test_a_second_split_uses_the_lane_that_the_fuse_left_empty():
    lanes = placed(*FIGURE_1, ("1 2 3 4d 4e 5", (("4c", "4d"), ("4c", "4e"))))
    assert numbers(lanes, "1 2 3 4d 4e 5") == [0, 1, 2, 3, 4, 5]


def test_two_splits_at_once_leave_each_parent_its_lane():
    lanes = placed(("1 2", ()), ("1a 1b 2a 2b", (("1", "1a"), ("1", "1b"), ("2", "2a"), ("2", "2b"))))
    assert numbers(lanes, "1a 1b 2a 2b") == [0, 1, 2, 3]
    assert numbers(lanes, "1 2") == [0, 2]


def test_a_total_fuse_takes_the_topmost_lane_and_a_revert_brings_all_back():
    everything = tuple((name, "0") for name in "12345")
    lanes = placed(FIGURE_1[0], ("0", everything), ("1 2 3 4 5", ()))
    assert numbers(lanes, "0") == [0]
    assert numbers(lanes, "1 2 3 4 5") == [0, 1, 2, 3, 4]


def test_no_two_of_one_decomposition_share_a_lane():
    steps = (
        *FIGURE_1,
        ("1 2a 4d 4e 5", (("2", "2a"), ("3", "2a"), ("4c", "4d"), ("4c", "4e"))),
        ("1 9 5", ()),
    )
    for count in range(1, len(steps) + 1):
        lanes = placed(*steps[:count])
        for ids, _ in steps[:count]:
            assert len(set(numbers(lanes, ids))) == len(ids.split())


def test_an_id_without_parents_lies_below_its_predecessor():
    assert numbers(placed(("1 2", ()), ("1 x 2", ())), "1 x 2") == [0, 1, 2]
    assert numbers(placed(("1 2", ()), ("x 1 2", ())), "x 1 2") == [0, 1, 2]


def test_edges_join_neighbouring_iterations():
    columns = {1: ("1", "4"), 2: ("1", "4a", "4b"), 3: ("1", "4a", "4b"), 4: ("1", "4c")}
    changes = (
        Change(1, "initial", ()),
        Change(2, "split", (("4", "4a"), ("4", "4b"))),
        Change(4, "fuse", (("4a", "4c"), ("4b", "4c"))),
    )
    assert drawn_edges(columns, changes) == (
        DrawnEdge(1, "4", 2, "4a", "split"),
        DrawnEdge(1, "4", 2, "4b", "split"),
        DrawnEdge(3, "4a", 4, "4c", "fuse"),
        DrawnEdge(3, "4b", 4, "4c", "fuse"),
    )


def test_two_changes_in_one_iteration_are_drawn_as_one():
    changes = (Change(2, "split", (("4", "4a"), ("4", "4b"))), Change(2, "fuse", (("4b", "4c"), ("5", "4c"))))
    drawn = drawn_edges({1: ("4", "5"), 2: ("4a", "4c")}, changes)
    assert {(edge.from_id, edge.to_id, edge.cause) for edge in drawn} == {
        ("4", "4a", "split"),
        ("4", "4c", "fuse"),
        ("5", "4c", "fuse"),
    }


def test_a_change_within_the_first_iteration_has_no_column_to_come_from():
    changes = (Change(1, "initial", ()), Change(1, "split", (("4", "4a"), ("4", "4b"))))
    assert drawn_edges({1: ("4a", "4b")}, changes) == ()
