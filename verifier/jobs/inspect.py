"""Run a problem once: what goes in, what comes out, and what is odd about it.

Payload {"source": str}; answers with the fields of `ProblemFacts`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from mkevolve_core.protocols import JobFailed
from verifier.loading import InputConfig, LoadedProblem, load_problem, split_init, split_inputs
from verifier.runner import hostile

_LAUNCH_BOUND_ELEMENTS = 100_000


def run(payload: dict[str, Any]) -> dict[str, Any]:
    """Raises JobFailed, in words for the person whose file it is."""
    problem = load_problem(payload["source"])
    torch.manual_seed(0)
    model, inputs = _build(problem, problem.configs[0])
    with torch.no_grad():
        start = time.perf_counter()
        with hostile("raise"):
            outputs = model(*inputs)
        seconds = time.perf_counter() - start
        notes = [*_config_notes(problem), *_notes(problem, model, inputs, outputs)]
    return {
        "inputs": [_spec(tensor) for tensor in _tensors(inputs)],
        "outputs": [_spec(tensor) for tensor in _output_tensors(outputs)],
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "seconds": seconds,
        "notes": notes,
    }


def _build(problem: LoadedProblem, config: InputConfig) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    with hostile("raise"):
        args, kwargs = split_init(problem.model_class, config.get_init_inputs())
        model = problem.model_class(*args, **kwargs).eval()
        return model, split_inputs(config.get_inputs())


def _output_tensors(outputs: Any) -> list[torch.Tensor]:
    tensors = list(_tensors(outputs))
    if not tensors:
        raise JobFailed("raise", f"forward returns {type(outputs).__name__}, which holds no tensor")
    return tensors


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _spec(tensor: torch.Tensor) -> dict[str, Any]:
    return {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}


def _config_notes(problem: LoadedProblem) -> list[str]:
    count = len(problem.configs)
    return [f"It has {count} input configurations; the first is described."] if count > 1 else []


def _notes(
    problem: LoadedProblem, model: torch.nn.Module, inputs: tuple[Any, ...], outputs: Any
) -> list[str]:
    """Each a sentence. The model runs twice more."""
    first = _output_tensors(outputs)
    with hostile("raise"):
        again = _output_tensors(model(*inputs))
        fresh = _output_tensors(model(*split_inputs(problem.configs[0].get_inputs())))
    notes = []
    if not all(_is_finite(tensor) for tensor in first):
        notes.append("Its output holds values that are not finite.")
    if not _same(first, again):
        notes.append("Two runs on the same input differ: the reference is stochastic.")
    elif list(_tensors(inputs)) and _same(first, fresh):
        notes.append(
            "Fresh inputs give the same output: it does not depend on its input, or its inputs are fixed."
        )
    if sum(tensor.numel() for tensor in [*_tensors(inputs), *first]) < _LAUNCH_BOUND_ELEMENTS:
        notes.append("It is so small that launches dominate its time.")
    return notes


def _is_finite(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def _same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return len(left) == len(right) and all(
        a.shape == b.shape and torch.equal(a, b) for a, b in zip(left, right, strict=True)
    )
