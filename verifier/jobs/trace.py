"""The trace job: a problem's forward pass as plain data (see `mkevolve_core/builtin/graph.py`)."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch
from torch import nn

from verifier.jobs.recorder import Recorder, encode_literal, plain_paths
from verifier.jobs.recorder_modules import (
    Construction,
    State,
    class_name,
    is_unit,
    own_tensors,
    recording_construction,
    states_of,
    wrapped_forwards,
)
from verifier.jobs.recorder_ops import Unrecordable, meaningful, tensors_in
from verifier.jobs.recorder_recipes import RecipeRecorder
from verifier.loading import InputConfig, load_problem, split_init, split_inputs
from verifier.runner import hostile

SEED = 0


def run(payload: dict[str, Any]) -> dict[str, Any]:
    """`{"source", "config": int | None}` → one graph; `"config": "all"` → `{"graphs": [...]}`.

    Raises JobFailed where the source fails or the forward pass is no graph.
    """
    problem = load_problem(payload["source"])
    wanted = payload.get("config")
    if wanted == "all":
        return {"graphs": [trace(problem.model_class, config) for config in problem.configs]}
    return trace(problem.model_class, problem.configs[wanted or 0])


def trace(model_class: type[nn.Module], config: InputConfig) -> dict[str, Any]:
    """One construction and one forward pass in eval mode, recorded."""
    recipes, recorder = RecipeRecorder(), Recorder()
    with hostile("raise"):
        torch.manual_seed(SEED)
        args, kwargs = split_init(model_class, config.get_init_inputs())
        inputs = split_inputs(config.get_inputs())
        torch.manual_seed(SEED)
        with recording_construction() as construction, recipes:
            model = model_class(*args, **kwargs).eval()
    states = states_of(model, construction)
    for state in states:
        recorder.name(state.tensor, state.name)
    with hostile("raise"):
        torch.manual_seed(SEED)
        forward = _forward(model, inputs, recorder)
    facts = [_state_facts(state, recipes.recipe(state.tensor)) for state in states]
    units = _units(model, construction, states)
    return {**forward, "states": facts, "units": units, "init": _arguments(model_class, args, kwargs)}


def _arguments(model_class: type[nn.Module], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The constructor's arguments by name, defaults too; None for what is no plain data."""
    bound = inspect.signature(model_class).bind(*args, **kwargs)
    bound.apply_defaults()
    return {name: _plain_or_none(value) for name, value in bound.arguments.items()}


def _plain_or_none(value: Any) -> Any:
    try:
        return encode_literal(value)
    except Unrecordable:
        return None


def _forward(model: nn.Module, inputs: tuple[Any, ...], recorder: Recorder) -> dict[str, Any]:
    names = _argument_names(model, len(inputs))
    literals = {}
    for name, value in zip(names, inputs, strict=True):
        if isinstance(value, torch.Tensor):
            recorder.name(value, name)
        else:
            literals[name] = _literal_input(name, value)
    around = functools.partial(_scoped, recorder)
    with torch.no_grad(), plain_paths(), wrapped_forwards(dict(model.named_modules()), around), recorder:
        output = model(*inputs)
    return {"inputs": names, "literals": literals, **_alive(recorder, recorder.encode(output))}


def _literal_input(name: str, value: Any) -> Any:
    if tensors_in(value):
        raise Unrecordable(f"its input {name!r} holds several tensors")
    return encode_literal(value)


def _argument_names(model: nn.Module, count: int) -> list[str]:
    """Names of forward's first arguments, as its author wrote them."""
    code = type(model).forward.__code__
    names = list(code.co_varnames[1 : code.co_argcount])
    return [names[i] if i < len(names) else f"input_{i}" for i in range(count)]


def _scoped(
    recorder: Recorder, path: str, module: nn.Module, forward: Callable[..., Any]
) -> Callable[..., Any]:
    """`forward` that says in which module the calls inside it happen."""
    listed = path != "" and not (is_unit(module) and not isinstance(module, nn.MultiheadAttention))

    def scoped(*args: Any, **kwargs: Any) -> Any:
        given = [recorder.ref(t) for t in tensors_in([args, kwargs]) if listed and recorder.knows(t)]
        first = len(recorder.recording.nodes)
        recorder.scopes.append(path)
        try:
            output = forward(*args, **kwargs)
        finally:
            recorder.scopes.pop()
        if listed:
            made = [recorder.ref(t) for t in tensors_in(output) if recorder.knows(t)]
            last = len(recorder.recording.nodes)
            call = {"path": path, "cls": class_name(module), "first": first, "last": last}
            recorder.recording.calls.append({**call, "inputs": given, "outputs": made})
        return output

    return scoped


def _state_facts(state: State, recipe: str | None) -> dict[str, Any]:
    flat = state.tensor.detach().flatten()
    uniform = flat.numel() > 0 and not flat.is_complex() and bool((flat == flat[0]).all())
    spread = flat.is_floating_point() and flat.numel() > 1
    return {
        "name": state.name,
        "kind": state.kind,
        "persistent": state.persistent,
        "constant": _finite(flat[0]) if uniform else None,
        "std": _finite(flat.float().std()) if spread else None,
        "recipe": recipe,
    }


def _finite(value: torch.Tensor) -> float | None:
    return float(value) if math.isfinite(value) else None


def _units(model: nn.Module, log: Construction, states: list[State]) -> list[dict[str, Any]]:
    names = {id(state.tensor): state.name for state in states}
    found = []
    for path, module in model.named_modules():
        if is_unit(module) and id(module) in log.arguments:
            args, kwargs = log.arguments[id(module)]
            words = meaningful(type(module).__init__, "", kwargs)
            unit = {
                "path": path,
                "cls": class_name(module),
                "args": [encode_literal(item) for item in args],
                "kwargs": {key: encode_literal(item) for key, item in words.items()},
                "states": [names[id(tensor)] for _, _, tensor in own_tensors(module)],
            }
            found.append((log.module_order[id(module)], unit))
    return [unit for _, unit in sorted(found, key=lambda item: item[0])]


def _alive(recorder: Recorder, output: Any) -> dict[str, Any]:
    """What the output depends on: dead nodes go, and calls count the living ones."""
    recording = recorder.recording
    needed, kept = set(_refs(output)), []
    for node in reversed(recording.nodes):
        if needed.intersection(node["outputs"]):
            needed.update(_refs([node["args"], list(node["kwargs"].values())]))
            kept.append(node)
    alive = {node["name"] for node in kept}
    position = list(accumulate((node["name"] in alive for node in recording.nodes), initial=0))
    calls = [{**c, "first": position[c["first"]], "last": position[c["last"]]} for c in recording.calls]
    return {
        "values": list(recording.values.values()),
        "calls": [call for call in calls if call["first"] < call["last"]],
        "nodes": kept[::-1],
        "output": output,
    }


def _refs(plain: Any) -> list[str]:
    if isinstance(plain, list):
        return [name for item in plain for name in _refs(item)]
    if isinstance(plain, dict):
        ((kind, content),) = plain.items()
        return [content] if kind == "ref" else _refs(content)
    return []
