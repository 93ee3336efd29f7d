"""A split gives exactly two subproblems that together do what the one did."""

import pytest

from mkevolve_core.domain import Cause, Decomposition, Subproblem
from mkevolve_core.errors import AgentDeclined
from mkevolve_core.whole import whole_top_level


@pytest.fixture(scope="module")
def halves(decompose, split, adopt, vision_transformer):
    revision = split(vision_transformer, decompose(vision_transformer), ("4",))
    return adopt(vision_transformer, revision)


def test_a_transformer_block_becomes_attention_and_feed_forward(halves):
    assert halves.ids == ("1", "2", "3", "4a", "4b", "5")
    one, other = halves.subproblem("4a"), halves.subproblem("4b")
    assert (one.name, one.instances, one.parents) == ("transformer_block_attention", 6, ("4",))
    assert (other.name, other.instances, other.parents) == ("transformer_block_feedforward", 6, ("4",))
    assert "self.norm1(x + y)" in one.reference
    assert "linear1" not in one.reference
    assert "self.norm2(x + self.linear2(y))" in other.reference
    assert ("4a", "4b") in halves.flow


def test_every_weight_is_carried_along(decompose, vision_transformer, halves):
    before, after = dict(decompose(vision_transformer).weight_map), dict(halves.weight_map)
    assert sorted(before.values()) == sorted(after.values())
    assert after["transformer_block_feedforward_3.linear1.bias"] == "transformer_layers.2.linear1.bias"


def test_attention_can_be_split_once_more(split, adopt, vision_transformer, halves):
    revision = split(vision_transformer, halves, ("4a",))
    again = adopt(vision_transformer, revision)
    assert [part.instances for part in again.subproblems if part.parents == ("4a",)] == [6, 6]


def test_a_chain_is_cut_where_an_epilogue_ends(decompose, split, adopt, problem):
    source = """
class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.up, self.down = nn.Linear(n, 4 * n), nn.Linear(4 * n, n)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.blocks = nn.ModuleList([Block(n), Block(n)])

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x
"""
    small = problem(source, init="[6]")
    found = decompose(small)
    (block,) = found.subproblems if len(found.subproblems) == 1 else found.subproblems[:1]
    after = adopt(small, split(small, found, (block.subproblem_id,)))
    first = next(part for part in after.subproblems if part.parents)
    assert "F.gelu(self.up(x))" in first.reference


def test_several_targets_are_split_in_one_revision(decompose, split, adopt, samples):
    problem = samples["transformer_ffn"]
    after = adopt(problem, split(problem, decompose(problem), ("2", "3")))
    assert after.ids == ("1", "2a", "2b", "3a", "3b")


def test_the_whole_problem_can_be_split(split, adopt, vision_transformer):
    whole = Subproblem("0", vision_transformer.name, "The whole problem", vision_transformer.source)
    top = whole_top_level(vision_transformer.name)
    pairs = tuple((f"whole.{n}", n) for n in ("cls_token", "conv1.weight", "conv1.bias"))
    total = Decomposition("d3", Cause.TOTAL_FUSE, (whole,), top, pairs)
    names = adopt(vision_transformer, _without_map(split(vision_transformer, total, ("0",))))
    assert names.ids == ("0a", "0b")


def _without_map(revision):
    """The check finds the partners by itself."""
    from dataclasses import replace

    return replace(revision, weight_map=())


@pytest.mark.parametrize(
    ("target", "reason"), [("2", "it is a single operation"), ("5", "it is a single operation")]
)
def test_a_single_operation_is_declined(decompose, split, vision_transformer, target, reason):
    with pytest.raises(AgentDeclined, match=reason):
        split(vision_transformer, decompose(vision_transformer), (target,))


def test_what_shares_its_weights_is_declined(decompose, split, problem):
    source = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        return self.fc(F.relu(self.fc(x)))
"""
    small = problem(source)
    with pytest.raises(AgentDeclined, match="share weights"):
        split(small, decompose(small), ("1",))


def test_no_target_is_declined(decompose, split, vision_transformer):
    with pytest.raises(AgentDeclined, match="No subproblem"):
        split(vision_transformer, decompose(vision_transformer), ())
