from mkevolve_core.ids import fresh_ids, letters


def test_a_split_takes_the_first_free_letters():
    assert fresh_ids(("4",), {"1", "4"}, 2) == ("4a", "4b")


def test_a_fuse_goes_on_under_the_smallest_number():
    assert fresh_ids(("4a", "4b"), {"4a", "4b"}, 1) == ("4c",)
    assert fresh_ids(("10", "2"), {"2", "10"}, 1) == ("2a",)


def test_letters_go_on_after_z():
    assert [letters(n) for n in (0, 25, 26, 27)] == ["a", "z", "aa", "ab"]
