"""Which weight of a decomposition is which of the problem's, where values alone do not tell."""

import pytest
import torch

from verifier.jobs.check_weights import match_weights
from verifier.jobs.recorder_modules import State


def states(*names):
    """In creation order: a number is a seed to draw from, "ones" and "zeros" are constants."""
    made = []
    for order, (name, value) in enumerate(names):
        if isinstance(value, int):
            tensor = torch.randn(4, generator=torch.Generator().manual_seed(value))
        else:
            tensor = torch.ones(4) if value == "ones" else torch.zeros(4)
        made.append(State(name, "parameter", tensor, True, order))
    return made


def layers(*names, seeds):
    """A drawn weight and a norm for each layer."""
    return [
        one
        for name, seed in zip(names, seeds, strict=True)
        for one in ((f"{name}.fc.weight", seed), (f"{name}.norm.weight", "ones"))
    ]


THEIRS = states(*layers("layers.0", "layers.1", "layers.2", seeds=(1, 2, 3)), ("norm.weight", "ones"))


def test_equal_constants_go_by_their_place_where_the_same_numbers_are_drawn():
    """`a_1.norm.weight` ends like the last `norm.weight`, and comes right after a known weight."""
    ours = states(*layers("a_1", "a_2", "a_3", seeds=(1, 2, 3)), ("last.scale", "ones"))
    pairs = dict(match_weights(ours, THEIRS))
    assert pairs["a_1.norm.weight"] == "layers.0.norm.weight"
    assert pairs["a_3.norm.weight"] == "layers.2.norm.weight"
    assert pairs["last.scale"] == "norm.weight"


def test_equal_constants_without_a_common_name_go_by_their_place():
    ours = states(("one.fc.weight", 1), ("one.n", "ones"), ("one.fc_2.weight", 2), ("one.n_2", "ones"))
    pairs = dict(match_weights(ours, THEIRS))
    assert pairs == {
        "one.fc.weight": "layers.0.fc.weight",
        "one.n": "layers.0.norm.weight",
        "one.fc_2.weight": "layers.1.fc.weight",
        "one.n_2": "layers.1.norm.weight",
    }


def test_parts_created_out_of_order_keep_their_constants():
    """All is drawn as in the problem, but the third layer is created first and the first last."""
    ours = states(*layers("c", "b", "a", seeds=(3, 2, 1)))
    pairs = dict(match_weights(ours, THEIRS))
    assert [pairs[f"{name}.norm.weight"] for name in "abc"] == [f"layers.{i}.norm.weight" for i in (0, 1, 2)]


@pytest.mark.parametrize("seeds", [(7, 8), (8, 7)])
def test_where_other_numbers_are_drawn_the_end_of_the_name_decides(seeds):
    theirs = states(
        ("x.up.weight", 1), ("x.up.bias", "zeros"), ("x.down.weight", 2), ("x.down.bias", "zeros")
    )
    ours = states(
        ("b.down.weight", seeds[0]),
        ("b.down.bias", "zeros"),
        ("a.up.weight", seeds[1]),
        ("a.up.bias", "zeros"),
    )
    assert dict(match_weights(ours, theirs)) == {
        "b.down.weight": "x.down.weight",
        "b.down.bias": "x.down.bias",
        "a.up.weight": "x.up.weight",
        "a.up.bias": "x.up.bias",
    }
