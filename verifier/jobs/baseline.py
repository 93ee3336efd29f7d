"""Time a problem's reference on the GPU, in a process of its own: "eager" or "torch.compile".

Payload: source, device, name, seed, warmup, repeats. Answers {"configs": [{"instances", "timing"}]}.
"""

from __future__ import annotations

from typing import Any

import torch

from verifier.jobs.reference import distinct_configs, draw
from verifier.loading import InputConfig, load_problem, split_init, use_device
from verifier.runner import hostile
from verifier.tensors import map_tensors, tensors_of
from verifier.timing import Stopwatch

_DRAWS = 5


def run(payload: dict[str, Any]) -> dict[str, Any]:
    """Raises JobFailed, also where `torch.compile` cannot compile it."""
    use_device(payload["device"])
    problem = load_problem(payload["source"])
    torch.manual_seed(payload["seed"])
    with torch.no_grad():
        return {
            "configs": [
                {"instances": instances, "timing": _time(problem.model_class, config, payload)}
                for config, instances in distinct_configs(problem)
            ]
        }


def _time(model_class: type[torch.nn.Module], config: InputConfig, payload: dict[str, Any]) -> dict[str, Any]:
    device = payload["device"]
    with hostile("raise"):
        args, kwargs = split_init(model_class, config.get_init_inputs())
        model: Any = model_class(*args, **kwargs).eval().to(device)
        if payload["name"] == "torch.compile":
            model = torch.compile(model)
    draws = [map_tensors(draw(config), lambda tensor: tensor.to(device)) for _ in range(_DRAWS)]
    inputs = map_tensors(draws[0], torch.clone)
    with hostile("raise"):
        model(*inputs)  # compiles, before anything is timed

    def refresh(number: int) -> None:
        for tensor, fresh in zip(tensors_of(inputs), tensors_of(draws[number % _DRAWS]), strict=True):
            tensor.copy_(fresh)

    with hostile("raise"):
        samples = Stopwatch(device).time_calls(
            lambda: model(*inputs),
            refresh,
            lambda _number, _outputs: None,
            payload["warmup"],
            payload["repeats"],
        )
    return samples.as_plain()
