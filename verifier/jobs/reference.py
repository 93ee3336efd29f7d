"""Run a problem's reference for the judge: inputs, weights and outputs in fp32 and fp64, as sealed memory.

Payload: source, device, cases, seed, init_seed, atol, rtol, keep_weights (as constructed, for the match by
creation order), variants (inputs of other distributions). Answers {"configs": [...], "notes": [...]} with
two memfds: what a candidate may see (inputs, weights) and what it may not (expected outputs).
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from mkevolve_core.protocols import JobFailed
from verifier import opcount
from verifier.loading import (
    InputConfig,
    LoadedProblem,
    load_problem,
    split_init,
    split_inputs,
    use_device,
)
from verifier.runner import hostile
from verifier.tensors import MemoryWriter, Tree, UnknownValue, encode, map_tensors, tensors_of

_PROBE = (
    0.25  # a changed distribution is used where the reference's own error stays below this part of the bound
)
_MAX_THREADS = 8


@dataclass(frozen=True, slots=True)
class _Variant:
    """How a case's inputs differ from what the file gives: shapes and dtypes never do."""

    name: str
    change: Callable[[torch.Tensor], torch.Tensor]
    same_buffers: bool = False  # handed over in the memory of the case before


def _as_given(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _mixed_and_larger(tensor: torch.Tensor) -> torch.Tensor:
    signs = torch.randint(0, 2, tensor.shape) * 2 - 1
    return tensor * signs.to(tensor.dtype) * 8


def _shifted(tensor: torch.Tensor) -> torch.Tensor:
    return tensor - 2 * tensor.abs().mean() if tensor.numel() else tensor


_GIVEN = _Variant("as given", _as_given)
_VARIANTS = (
    _GIVEN,
    _Variant("negated", torch.neg, same_buffers=True),
    _GIVEN,
    _Variant("shifted", _shifted, same_buffers=True),
    _Variant("mixed signs, 8 times larger", _mixed_and_larger),
)


def run_with_memory(payload: dict[str, Any], _memory: list[int]) -> tuple[dict[str, Any], list[int]]:
    use_device(payload["device"])
    torch.set_num_threads(min(_MAX_THREADS, os.cpu_count() or 1))
    problem = load_problem(payload["source"])
    shown, hidden = MemoryWriter("inputs"), MemoryWriter("expected")
    job = _Job(problem, payload, shown, hidden)
    with torch.no_grad():
        configs = job.run()
    answer = {"configs": configs, "stochastic": job.stochastic, "notes": sorted(job.notes)}
    return answer, [shown.seal(), hidden.seal()]


class _Job:
    def __init__(
        self, problem: LoadedProblem, payload: dict[str, Any], shown: MemoryWriter, hidden: MemoryWriter
    ) -> None:
        self._problem = problem
        self._payload = payload
        self._shown = shown
        self._hidden = hidden
        self._device = payload["device"]
        self.stochastic: float | None = None  # how far two runs on one input lie apart
        self.notes: set[str] = set()

    def run(self) -> list[dict[str, Any]]:
        """One entry for each distinct input configuration."""
        groups = distinct_configs(self._problem)
        cases = self._payload["cases"]
        share = cases if len(groups) == 1 else max(2, -(-cases // len(groups)))
        return [self._config(number, *group, share) for number, group in enumerate(groups)]

    def _config(self, number: int, config: InputConfig, instances: int, cases: int) -> dict[str, Any]:
        with hostile("raise"):
            args, kwargs = split_init(self._problem.model_class, config.get_init_inputs())
            torch.manual_seed(self._payload["init_seed"])
            model = self._problem.model_class(*args, **kwargs).eval()
        if not self._payload["keep_weights"]:
            _replace_constants(model)
        pair = _Pair(model, self._device)
        if self.stochastic is None:
            self.stochastic = self._difference_of_two_runs(pair, config)
        return {
            "instances": instances,
            "init": {"args": self._encode(args), "kwargs": self._encode(kwargs)},
            "weights": self._weights(model),
            "cases": [self._case(pair, config, number, case) for case in range(cases)],
            "operations": self._operations(pair, config),
        }

    def _encode(self, value: Any) -> Tree:
        try:
            return encode(value, self._shown.add)
        except UnknownValue as unknown:
            raise JobFailed(
                "raise", f"its inputs hold {unknown}, which cannot be handed to a candidate"
            ) from None

    def _weights(self, model: torch.nn.Module) -> list[dict[str, Any]]:
        """A candidate must have the parameters and the running statistics; other buffers it may rebuild."""
        parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        rows = []
        for name, tensor in model.state_dict().items():
            required = name in parameters or name.rpartition(".")[2].startswith("running_")
            row = {"name": name, "parameter": name in parameters, "required": required}
            rows.append({**row, "spec": self._shown.add(tensor)})
        return rows

    def _seed(self, number: int, case: int) -> None:
        torch.manual_seed(self._payload["seed"] + 1000 * number + case)

    def _case(self, pair: _Pair, config: InputConfig, number: int, case: int) -> dict[str, Any]:
        variant = _VARIANTS[case] if self._payload["variants"] and case < len(_VARIANTS) else _GIVEN
        self._seed(number, case)
        given = draw(config)
        changed = map_tensors(given, lambda tensor: _change(tensor, variant))
        outputs = None if variant.change is _as_given else self._probe(pair, changed)
        inputs = given if outputs is None else changed
        exact = outputs or pair.run(inputs)
        self.notes |= {exact.note} if exact.note else set()
        name = variant.name if outputs is not None else _GIVEN.name
        return {
            "name": f"{name}, same buffers" if variant.same_buffers else name,
            "as_given": outputs is None,
            "same_buffers": variant.same_buffers,
            "inputs": self._encode(inputs),
            "expected": self._expected(exact.plain),
            "exact": self._expected(exact.doubled),
        }

    def _probe(self, pair: _Pair, inputs: tuple[Any, ...]) -> _Outputs | None:
        """Outputs on changed inputs, where the reference copes with them and stays accurate."""
        try:
            outputs = pair.run(inputs)
        except JobFailed:
            return None
        return outputs if outputs.are_accurate(self._payload["atol"], self._payload["rtol"]) else None

    def _expected(self, outputs: Any) -> Tree:
        try:
            return encode(outputs, self._hidden.add)
        except UnknownValue as unknown:
            raise JobFailed("raise", f"its output holds {unknown}, which cannot be compared") from None

    def _difference_of_two_runs(self, pair: _Pair, config: InputConfig) -> float:
        """Relative to the largest output; 0.0 for a reference that draws nothing at random."""
        self._seed(0, 0)
        inputs = draw(config)
        first, second = (tensors_of(pair.run_plain(inputs)) for _ in range(2))
        differences = [_relative_difference(a, b) for a, b in zip(first, second, strict=True)]
        return max(differences, default=0.0)

    def _operations(self, pair: _Pair, config: InputConfig) -> list[dict[str, Any]]:
        """What one forward's torch operations move and compute; needs no GPU."""
        with opcount.OpCounter() as counter:
            pair.run_plain(draw(config))
        return counter.snapshot()


def distinct_configs(problem: LoadedProblem) -> list[tuple[InputConfig, int]]:
    """Configurations that differ in what is constructed or in shapes, each with how often it occurs."""
    counts: dict[str, tuple[InputConfig, int]] = {}
    for config in problem.configs:
        with hostile("raise"):
            key = json.dumps([_shape_of(config.get_init_inputs()), _shape_of(config.get_inputs())])
        first, count = counts.get(key, (config, 0))
        counts[key] = (first, count + 1)
    return list(counts.values())


def draw(config: InputConfig) -> tuple[Any, ...]:
    with hostile("raise"):
        return split_inputs(config.get_inputs())


def _shape_of(value: Any) -> Any:
    """Tensors by shape and dtype, everything else by value: configurations with equal ones are the same."""
    try:
        return encode(value, lambda tensor: {"shape": list(tensor.shape), "dtype": str(tensor.dtype)})
    except UnknownValue as unknown:
        raise JobFailed(
            "raise", f"its inputs hold {unknown}, which cannot be handed to a candidate"
        ) from None


def _change(tensor: torch.Tensor, variant: _Variant) -> torch.Tensor:
    return variant.change(tensor) if tensor.is_floating_point() else tensor


def _relative_difference(left: torch.Tensor, right: torch.Tensor) -> float:
    if left.shape != right.shape:
        return 1.0
    if not left.is_floating_point():
        return float(not torch.equal(left, right))
    difference = (left.double() - right.double()).abs().nan_to_num(0.0)
    scale = right.double().abs().nan_to_num(0.0)
    return float(difference.max() / scale.max().clamp_min(1e-30)) if difference.numel() else 0.0


def _replace_constants(model: torch.nn.Module) -> None:
    """Parameters that start constant, and running statistics, hide missing terms: random values show them."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        statistic = name.rpartition(".")[2] in ("running_mean", "running_var")
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        if not tensor.is_floating_point() or not (statistic or is_parameter) or tensor.numel() == 0:
            continue
        value = float(tensor.flatten()[0])
        if not bool((tensor == value).all()):
            continue
        drawn = torch.rand(tensor.shape) + 0.5 if value else torch.randn(tensor.shape) * 0.1
        tensor.data.copy_(drawn * value if value else drawn)


class _Pair:
    """The reference as it is, and in double precision: what every error is measured against."""

    def __init__(self, model: torch.nn.Module, device: str) -> None:
        self._device = device
        with hostile("raise"):
            self._plain = _converted(copy.deepcopy(model), device, None)
            self._double = _converted(copy.deepcopy(model), device, torch.float64)

    def run(self, inputs: tuple[Any, ...]) -> _Outputs:
        plain = self.run_plain(inputs)
        try:
            doubled = self._run_double(inputs)
        except JobFailed as failed:
            note = f"compared in single precision: the reference fails in double ({failed.detail})"
            return _Outputs(plain, map_tensors(plain, _as_double), note)
        return _Outputs(plain, map_tensors(doubled, _as_double))

    def run_plain(self, inputs: tuple[Any, ...]) -> Any:
        with hostile("raise"):
            return self._plain(*map_tensors(inputs, lambda tensor: tensor.detach().clone().to(self._device)))

    def _run_double(self, inputs: tuple[Any, ...]) -> Any:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with hostile("raise"):
                return self._double(
                    *map_tensors(inputs, lambda t: _as_double(t.detach().clone()).to(self._device))
                )
        finally:
            torch.set_default_dtype(before)


def _as_double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _converted(model: torch.nn.Module, device: str, dtype: torch.dtype | None) -> torch.nn.Module:
    """Parameters and buffers, and tensors that are plain attributes, which `Module.to` leaves behind."""
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor):
                is_changed = dtype is not None and value.is_floating_point()
                setattr(module, name, value.to(device, dtype) if is_changed else value.to(device))
    return model.to(device) if dtype is None else model.to(device, dtype)


@dataclass(frozen=True, slots=True)
class _Outputs:
    plain: Any
    doubled: Any
    note: str = ""

    def are_accurate(self, atol: float, rtol: float) -> bool:
        """Finite, and the plain run's error far below the bound."""
        pairs = zip(tensors_of(self.plain), tensors_of(self.doubled), strict=True)
        return all(_is_accurate(plain, doubled, atol, rtol) for plain, doubled in pairs)


def _is_accurate(plain: torch.Tensor, doubled: torch.Tensor, atol: float, rtol: float) -> bool:
    if not plain.is_floating_point() or not plain.numel():
        return True
    bound = _PROBE * (atol + rtol * doubled.abs())
    return bool(torch.isfinite(doubled).all()) and bool(((plain.double() - doubled).abs() <= bound).all())
