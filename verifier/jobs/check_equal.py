"""Does a decomposition give what the problem gives, on inputs that are not only the sample's?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from mkevolve_core.protocols import JobFailed
from verifier.jobs.check_watch import Watch, watching_forward
from verifier.jobs.check_weights import Pairs, map_tensors, move_weights, perturb
from verifier.loading import InputConfig, split_inputs
from verifier.runner import hostile

TOLERANCE = 1e-4  # absolute, for outputs up to 1; relative to the largest element beyond


@dataclass(slots=True)
class Comparison:
    findings: list[str] = field(default_factory=list)
    max_error: float | None = None


def compare(
    config: InputConfig, problem: nn.Module, model: nn.Module, pairs: Pairs, watch: Watch
) -> Comparison:
    """First with the weights as constructed, then with changed ones. Raises JobFailed if `model` fails."""
    comparison = Comparison()
    move_weights(pairs, model, problem)
    first = True
    for name, inputs in _cases(config):
        if name == "other inputs":
            perturb(problem, seed=1)
            move_weights(pairs, model, problem)
        _compare_case(comparison, name, inputs, problem, model, watch if first else None)
        first = False
    return comparison


def _cases(config: InputConfig) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Sign-flipped inputs show a branch that the sample inputs never take."""
    yield "the sample inputs", _drawn(config, 0)
    others = _drawn(config, 1)
    yield "other inputs", others
    yield "inputs of the opposite sign", map_tensors(others, _negated)


def _drawn(config: InputConfig, seed: int) -> tuple[Any, ...]:
    torch.manual_seed(seed)
    with hostile("raise"):
        return split_inputs(config.get_inputs())


def _negated(tensor: torch.Tensor) -> torch.Tensor:
    return -tensor if tensor.is_floating_point() else tensor


def _compare_case(
    comparison: Comparison,
    name: str,
    inputs: tuple[Any, ...],
    problem: nn.Module,
    model: nn.Module,
    watch: Watch | None,
) -> None:
    try:
        expected = _output(problem, _copied(inputs))
    except JobFailed:
        if name != "inputs of the opposite sign":
            raise
        return  # the problem does not take such inputs
    copies = _copied(inputs)
    with watching_forward(watch) if watch else nullcontext():
        got = _output(model, copies)
    error, finding = _difference(expected, got, "output")
    if finding:
        comparison.findings.append(f"On {name} the decomposition differs from the problem: {finding}.")
    if error is not None:
        comparison.max_error = max(error, comparison.max_error or 0.0)


def _output(model: nn.Module, inputs: tuple[Any, ...]) -> Any:
    torch.manual_seed(2)
    with hostile("raise"), torch.no_grad():
        return model(*inputs)


def _copied(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Inputs that a forward pass may write into."""
    copies: tuple[Any, ...] = map_tensors(inputs, torch.Tensor.clone)
    return copies


def _difference(expected: Any, got: Any, where: str) -> tuple[float | None, str]:
    """(largest error, what differs); the text is empty where nothing does."""
    if isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor):
        return _tensor_difference(expected, got, where)
    if type(expected) is not type(got):
        return None, f"{where} is {type(got).__name__}, not {type(expected).__name__}"
    if isinstance(expected, dict):
        if list(expected) != list(got):
            return None, f"{where} has the keys {list(got)}, not {list(expected)}"
        return _of_items(list(expected.values()), list(got.values()), where)
    if isinstance(expected, list | tuple):
        if len(expected) != len(got):
            return None, f"{where} has {len(got)} items, not {len(expected)}"
        return _of_items(list(expected), list(got), where)
    return None, "" if expected == got else f"{where} is {got!r}, not {expected!r}"


def _of_items(expected: list[Any], got: list[Any], where: str) -> tuple[float | None, str]:
    found = [
        _difference(one, other, f"{where}[{i}]")
        for i, (one, other) in enumerate(zip(expected, got, strict=True))
    ]
    errors = [error for error, _ in found if error is not None]
    return max(errors, default=None), next((text for _, text in found if text), "")


def _tensor_difference(expected: torch.Tensor, got: torch.Tensor, where: str) -> tuple[float | None, str]:
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return None, f"{where} is {_kind(got)}, not {_kind(expected)}"
    if expected.numel() == 0:
        return 0.0, ""
    one, other = expected.double(), got.double()
    both_odd = (one == other) | (one.isnan() & other.isnan())
    errors = torch.where(both_odd, 0.0, (one - other).abs())
    largest = float(errors.nan_to_num(nan=torch.inf).max())
    finite = one[one.isfinite()]
    scale = max(1.0, float(finite.abs().max())) if finite.numel() else 1.0
    if largest <= TOLERANCE * scale:
        return largest, ""
    shown = largest if largest != torch.inf else None
    return shown, f"{where} is off by up to {largest:.3g}"


def _kind(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
