"""A fuse makes one subproblem of neighbours, in all of their instances."""

import pytest

from mkevolve_core.domain import Cause
from mkevolve_core.errors import AgentDeclined

BRANCHES = """
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(n, n), nn.Linear(n, 2 * n), nn.Linear(2 * n, n)

    def forward(self, x):
        y = torch.relu(self.a(x))
        z = torch.softmax(self.b(y), -1)
        return torch.tanh(self.c(z)) + y
"""


@pytest.fixture(scope="module")
def halves(decompose, split, adopt, vision_transformer):
    return adopt(vision_transformer, split(vision_transformer, decompose(vision_transformer), ("4",)))


def test_the_halves_of_a_block_become_the_block_again(decompose, fuse, adopt, vision_transformer, halves):
    revision = fuse(vision_transformer, halves, ("4a", "4b"))
    after = adopt(vision_transformer, revision, Cause.FUSE)
    block = after.subproblem("4c")
    assert (block.name, block.instances, block.parents) == ("transformer_block", 6, ("4a", "4b"))
    before = decompose(vision_transformer)
    assert sorted(after.weight_map) == sorted(before.weight_map)
    assert after.top_level == before.top_level


def test_the_order_of_the_targets_does_not_matter(fuse, vision_transformer, halves):
    one = fuse(vision_transformer, halves, ("4a", "4b"))
    other = fuse(vision_transformer, halves, ("4b", "4a"))
    assert one.top_level == other.top_level
    assert [part.reference for part in one.subproblems] == [part.reference for part in other.subproblems]


def test_without_targets_the_largest_tensor_goes_and_halves_stay(fuse, adopt, vision_transformer, halves):
    after = adopt(vision_transformer, fuse(vision_transformer, halves, ()), Cause.FUSE)
    assert after.ids == ("1a", "3", "4a", "4b", "5")
    assert after.subproblem("1a").parents == ("1", "2")


def test_three_neighbours_become_one(decompose, fuse, adopt, vision_transformer):
    revision = fuse(vision_transformer, decompose(vision_transformer), ("1", "2", "3"))
    after = adopt(vision_transformer, revision, Cause.FUSE)
    assert after.subproblems[0].parents == ("1", "2", "3")
    assert len(after.subproblems) == 3


def test_a_value_that_others_read_is_given_out(decompose, fuse, adopt, problem):
    small = problem(BRANCHES, init="[6]")
    found = decompose(small)
    assert len(found.subproblems) == 4
    after = adopt(small, fuse(small, found, found.ids[:2]), Cause.FUSE)
    fused = after.subproblems[0]
    assert "return" in fused.reference
    assert ", y" in after.top_level or "x, y" in after.top_level


def test_what_has_something_between_is_declined(decompose, fuse, problem):
    small = problem(BRANCHES, init="[6]")
    found = decompose(small)
    with pytest.raises(AgentDeclined, match="would need each other"):
        fuse(small, found, (found.ids[0], found.ids[3]))


@pytest.mark.parametrize("targets", [("3", "4"), ("4", "5"), ("1", "5")])
def test_no_neighbours_in_all_instances_is_declined(decompose, fuse, vision_transformer, targets):
    with pytest.raises(AgentDeclined, match="no neighbours in all of their instances"):
        fuse(vision_transformer, decompose(vision_transformer), targets)


def test_one_target_is_declined(decompose, fuse, vision_transformer):
    with pytest.raises(AgentDeclined, match="at least two"):
        fuse(vision_transformer, decompose(vision_transformer), ("1",))


def test_a_lone_subproblem_is_declined(decompose, fuse, problem):
    source = "class Model(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)"
    small = problem(source)
    with pytest.raises(AgentDeclined, match="only one subproblem"):
        fuse(small, decompose(small), ())
