"""The check job: is a decomposition the problem that it came from, and is it in the paper's form?"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from mkevolve_core.protocols import JobFailed
from verifier.jobs import check_coverage, check_static, check_watch, check_weights
from verifier.jobs.check_equal import Comparison, compare
from verifier.jobs.check_static import PARTS
from verifier.jobs.check_watch import Watch
from verifier.jobs.recorder_modules import State, recording_construction, states_of
from verifier.loading import LoadedProblem, input_configs, load_problem, module_class, split_init
from verifier.runner import hostile

SEED = 17


@dataclass(slots=True)
class _Report:
    findings: list[str] = field(default_factory=list)
    weight_map: list[tuple[str, str]] = field(default_factory=list)
    flow: list[tuple[str, str]] = field(default_factory=list)
    instances: dict[str, int] = field(default_factory=dict)
    max_error: float | None = None
    same_random_state: bool = False

    def as_plain(self) -> dict[str, Any]:
        return {
            "findings": list(dict.fromkeys(self.findings)),
            "weight_map": [list(pair) for pair in self.weight_map],
            "flow": [list(edge) for edge in self.flow],
            "instances": self.instances,
            "max_error": self.max_error,
            "same_random_state": self.same_random_state,
        }


@dataclass(frozen=True, slots=True)
class _Built:
    """A model, its weights in creation order, and the random state after its construction."""

    model: nn.Module
    states: list[State]
    random_state: torch.Tensor


def run(payload: dict[str, Any]) -> dict[str, Any]:
    """`{"problem", "top_level", "subproblems": [{"name", "source"}], "weight_map": [[ours, theirs]]}`.

    Answers `findings` (sentences; none means that it passes), `weight_map`, `flow`, `instances`, `max_error`,
    `same_random_state`. Raises JobFailed where the problem itself fails.
    """
    report = _Report()
    names = [part["name"] for part in payload["subproblems"]]
    report.findings += check_static.static_findings(payload["top_level"], names)
    problem = load_problem(payload["problem"])
    try:
        _check(report, problem, payload)
    except JobFailed as failed:
        report.findings.append(failed.detail)
    return report.as_plain()


def _check(report: _Report, problem: LoadedProblem, payload: dict[str, Any]) -> None:
    _write(payload)
    names = [part["name"] for part in payload["subproblems"]]
    parts = {name: _imported(f"{PARTS}.{name}", name) for name in names}
    classes = {name: module_class(module, "Model") for name, module in parts.items()}
    top = _imported("decomposed_problem", "the top-level module")
    watch = Watch()
    original, ours = _construct(problem, module_class(top, "ModelNew"), classes, watch)
    report.same_random_state = torch.equal(original.random_state, ours.random_state)
    report.instances = dict(Counter(one.name for one in watch.instances))
    report.findings += _form_findings(watch, ours.model)
    given = [(a, b) for a, b in payload.get("weight_map") or ()]
    report.weight_map = given or check_weights.match_weights(ours.states, original.states)
    wrong = check_weights.map_findings(report.weight_map, ours.states, ours.model, original.model)
    report.findings += wrong
    if wrong:
        return  # nothing could be compared, and uses are seen while comparing
    _compare(report, problem, original.model, ours, watch)
    for name, module in parts.items():
        report.findings += _part_findings(name, module, classes[name], watch)


def _write(payload: dict[str, Any]) -> None:
    folder = Path.cwd() / "source" / "decomposition"
    parts = folder / PARTS
    parts.mkdir(parents=True, exist_ok=True)
    (parts / "__init__.py").write_text("")
    for part in payload["subproblems"]:
        (parts / f"{part['name']}.py").write_text(part["source"])
    (folder / "decomposed_problem.py").write_text(payload["top_level"])
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()


def _imported(module: str, name: str) -> ModuleType:
    try:
        with hostile("import"):
            return importlib.import_module(module)
    except JobFailed as failed:
        raise JobFailed("import", f"{name} cannot be imported: {failed.detail}") from None


def _construct(
    problem: LoadedProblem, model_new: type[nn.Module], classes: dict[str, type[nn.Module]], watch: Watch
) -> tuple[_Built, _Built]:
    """The problem and the decomposition from the same seed and the same arguments."""
    with hostile("raise"):
        args, kwargs = split_init(problem.model_class, problem.configs[0].get_init_inputs())
        original = _built(problem.model_class, args, kwargs)
    try:
        with hostile("raise"), check_watch.watching_construction(classes, watch):
            return original, _built(model_new, args, kwargs)
    except JobFailed as failed:
        raise JobFailed("raise", f"The top-level module cannot be constructed: {failed.detail}") from None


def _built(model_class: type[nn.Module], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Built:
    torch.manual_seed(SEED)
    with recording_construction() as log:
        model = model_class(*args, **kwargs).eval()
    return _Built(model, states_of(model, log), torch.get_rng_state())


def _form_findings(watch: Watch, model: nn.Module) -> Iterator[str]:
    for name in dict.fromkeys(watch.strays):
        yield f"The top-level module constructs {name} itself; only modules of {PARTS} may be."
    for name in dict.fromkeys(watch.passed_modules):
        yield f"{name} is given a module as an argument; only Sequential, ModuleList and ModuleDict may be."
    for name in [*model._parameters, *model._buffers]:
        yield f"The top-level module has a tensor of its own, {name}; it belongs in a subproblem."


def _compare(
    report: _Report, problem: LoadedProblem, original: nn.Module, ours: _Built, watch: Watch
) -> None:
    try:
        comparison: Comparison = compare(problem.configs[0], original, ours.model, report.weight_map, watch)
    except JobFailed as failed:
        raise JobFailed("raise", f"The top-level module does not run: {failed.detail}") from None
    report.findings += comparison.findings
    report.max_error = comparison.max_error
    report.flow = watch.flow
    if watch.outside_ops:
        ops = ", ".join(dict.fromkeys(watch.outside_ops))
        report.findings.append(f"The top-level module computes by itself: {ops}.")


def _part_findings(
    name: str, module: ModuleType, model_class: type[nn.Module], watch: Watch
) -> Iterator[str]:
    configs = input_configs(module)
    uses, failures = check_coverage.declared_uses(name, model_class, configs)
    yield from failures
    instances = [one for one in watch.instances if one.name == name]
    if not failures:
        has_configs = hasattr(module, "get_input_configs")
        yield from check_coverage.coverage_findings(name, instances, uses, has_configs)
    ops = watch.part_ops.get(name, set())
    if any(one.calls for one in instances) and ops <= check_watch.TRIVIAL_OPS:
        yield f"{name} is trivial: it only reshapes, views or copies."
