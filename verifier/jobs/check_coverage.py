"""Do the subproblems' input generators cover what the top-level module does with them, and nothing else?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from mkevolve_core.protocols import JobFailed
from verifier.jobs.check_watch import Instance, arguments
from verifier.loading import InputConfig, split_init, split_inputs
from verifier.runner import hostile


@dataclass(frozen=True, slots=True)
class Use:
    """One way in which a subproblem is constructed and called, in words."""

    init: str
    forward: str

    def __str__(self) -> str:
        return f"Model({self.init}) with forward({self.forward})"


def run_alone(model_class: type[nn.Module], config: InputConfig, seed: int) -> Use:
    """Construct and call a subproblem as one of its configs says. Raises JobFailed."""
    with hostile("raise"):
        torch.manual_seed(seed)
        args, kwargs = split_init(model_class, config.get_init_inputs())
        inputs = split_inputs(config.get_inputs())
        model = model_class(*args, **kwargs).eval()
        init = arguments(model_class.__init__, (model, *args), kwargs)
        forward = arguments(model.forward, inputs, {})
        with torch.no_grad():
            model(*inputs)
    return Use(init, forward)


def declared_uses(
    name: str, model_class: type[nn.Module], configs: Sequence[InputConfig]
) -> tuple[list[Use], list[str]]:
    """What the generators cover, and a finding for each that does not run alone."""
    uses, findings = [], []
    for number, config in enumerate(configs):
        try:
            uses.append(run_alone(model_class, config, seed=number))
        except JobFailed as failed:
            which = f" with config {number}" if len(configs) > 1 else ""
            findings.append(f"{name} does not run alone{which}: {failed.detail}")
    return uses, findings


def coverage_findings(
    name: str, instances: Sequence[Instance], declared: Sequence[Use], has_configs: bool
) -> Iterator[str]:
    """Sentences on what is used but not covered, covered but not used, or declared in the wrong number."""
    if not instances:
        yield f"{name} is never constructed by the top-level module."
        return
    seen = dict.fromkeys(Use(one.init, call) for one in instances for call in one.calls)
    if any(not one.calls for one in instances):
        yield f"{name} is constructed but its forward is never called."
    for use in seen:
        if use not in declared:
            yield f"{name}: the top-level module uses {use}, which its input generators do not cover."
    for use in dict.fromkeys(declared):
        if use not in seen:
            yield f"{name}: its input generators give {use}, which the top-level module never does."
    yield from _count_findings(name, instances, len(declared), has_configs)


def _count_findings(
    name: str, instances: Sequence[Instance], declared: int, has_configs: bool
) -> Iterator[str]:
    """N instances need N configs; an instance called with k kinds of inputs counts k times."""
    wanted = sum(max(1, len(set(one.calls))) for one in instances)
    if wanted == 1 and has_configs:
        yield f"{name} has one use, so it must define get_inputs and get_init_inputs, not get_input_configs."
    elif wanted > 1 and not has_configs:
        yield f"{name} has {wanted} uses, so it must define get_input_configs with exactly {wanted} entries."
    elif wanted != declared:
        yield f"{name} has {wanted} uses, but its get_input_configs gives {declared} entries."
