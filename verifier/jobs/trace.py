"""The trace job: a problem's forward pass as plain data (see `mkevolve_core/builtin/graph.py`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from verifier.jobs.problem_source import Inputs, declared_inputs, load_source, tensors_in
from verifier.jobs.recorder import Recorder, encode_literal, plain_paths
from verifier.jobs.recorder_modules import (
    Construction,
    class_name,
    is_unit,
    recording_construction,
    wrapped_forwards,
)
from verifier.jobs.recorder_ops import Unrecordable, meaningful
from verifier.jobs.recorder_recipes import RecipeRecorder

SEED = 0


def run(payload: dict[str, Any]) -> dict[str, Any]:
    """`{"source", "config": int | None}` → one graph; `"config": "all"` → `{"graphs": [...]}`.

    Raises Unrecordable where the forward pass is no graph, and whatever the source raises.
    """
    module = load_source(payload["source"], "traced_problem")
    declared = declared_inputs(module)
    if payload.get("config") == "all":
        return {"graphs": [trace(module.Model, inputs) for inputs in declared]}
    return trace(module.Model, declared[payload.get("config") or 0])


def trace(model_class: type[nn.Module], inputs: Inputs) -> dict[str, Any]:
    """One construction and one forward pass in eval mode, recorded."""
    torch.manual_seed(SEED)
    recipes = RecipeRecorder()
    args, kwargs = inputs.for_init(model_class)
    with recording_construction() as construction, recipes:
        model = model_class(*args, **kwargs)
    model.eval()
    states = _states(model, construction)
    facts = [_state_facts(name, kind, t, keep, recipes) for name, kind, t, keep in states]
    recorder = Recorder()
    for name, _, tensor, _ in states:
        recorder.name(tensor, name)
    torch.manual_seed(SEED)
    names, literals, output = _forward(model, inputs.for_forward(), recorder)
    return _assemble(recorder, names, literals, output, facts, _units(model, construction, states))


def _forward(
    model: nn.Module, inputs: tuple[Any, ...], recorder: Recorder
) -> tuple[list[str], dict[str, Any], Any]:
    names = _argument_names(model, len(inputs))
    literals = {}
    for name, value in zip(names, inputs, strict=True):
        if isinstance(value, torch.Tensor):
            recorder.name(value, name)
        else:
            literals[name] = _literal_input(name, value)
    modules = dict(model.named_modules())
    around = functools.partial(_scoped, recorder)
    with torch.no_grad(), plain_paths(), wrapped_forwards(modules, around), recorder:
        output = model(*inputs)
    return names, literals, recorder.encode(output)


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


def _states(model: nn.Module, log: Construction) -> list[tuple[str, str, torch.Tensor, bool]]:
    """(name, kind, tensor, in the state_dict) in creation order; a shared tensor once, by its first name."""
    kept = set(model.state_dict(keep_vars=True))
    found: list[tuple[int, str, str, torch.Tensor, bool]] = []
    seen: set[int] = set()
    for path, module in model.named_modules():
        for kind, name, tensor in _own_tensors(module):
            if id(tensor) in seen:
                continue
            seen.add(id(tensor))
            made_with = log.module_order.get(id(module), log.next())  # a clone's states, a plain attribute
            order = log.state_order.get((id(module), name), made_with)
            full = f"{path}.{name}" if path else name
            found.append((order, full, kind, tensor, full in kept))
    found.sort(key=lambda item: item[0])
    return [item[1:] for item in found]


def _own_tensors(module: nn.Module) -> list[tuple[str, str, torch.Tensor]]:
    parameters = [("parameter", n, t) for n, t in module._parameters.items() if t is not None]
    buffers = [("buffer", n, t) for n, t in module._buffers.items() if t is not None]
    attributes = [("attribute", n, t) for n, t in vars(module).items() if isinstance(t, torch.Tensor)]
    return parameters + buffers + attributes


def _state_facts(
    name: str, kind: str, tensor: torch.Tensor, persistent: bool, recipes: RecipeRecorder
) -> dict[str, Any]:
    value = tensor.detach()
    flat = value.flatten()
    uniform = flat.numel() > 0 and bool((flat == flat[0]).all())
    spread = value.is_floating_point() and flat.numel() > 1
    return {
        "name": name,
        "kind": kind,
        "persistent": persistent,
        "constant": float(flat[0]) if uniform and not value.is_complex() else None,
        "std": float(value.float().std()) if spread else None,
        "recipe": recipes.recipe(tensor),
    }


def _units(
    model: nn.Module, log: Construction, states: list[tuple[str, str, torch.Tensor, bool]]
) -> list[dict[str, Any]]:
    names = {id(tensor): name for name, _, tensor, _ in states}
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
                "states": [names[id(tensor)] for _, _, tensor in _own_tensors(module)],
            }
            found.append((log.module_order[id(module)], unit))
    return [unit for _, unit in sorted(found, key=lambda item: item[0])]


def _assemble(
    recorder: Recorder,
    inputs: list[str],
    literals: dict[str, Any],
    output: Any,
    states: list[dict[str, Any]],
    units: list[dict[str, Any]],
) -> dict[str, Any]:
    recording = recorder.recording
    nodes, position = _alive(recording.nodes, set(_refs(output)))
    calls = []
    for call in recording.calls:
        first, last = position[call["first"]], position[call["last"]]
        if first < last:
            calls.append({**call, "first": first, "last": last})
    return {
        "inputs": inputs,
        "literals": literals,
        "values": list(recording.values.values()),
        "states": states,
        "units": units,
        "calls": calls,
        "nodes": nodes,
        "output": output,
    }


def _alive(nodes: list[dict[str, Any]], needed: set[str]) -> tuple[list[dict[str, Any]], list[int]]:
    """Nodes that the output depends on, and how many of them come before each recorded index."""
    kept = []
    for node in reversed(nodes):
        if needed.intersection(node["outputs"]):
            needed.update(_refs([node["args"], list(node["kwargs"].values())]))
            kept.append(node)
    kept.reverse()
    alive = {node["name"] for node in kept}
    position = [0]
    for node in nodes:
        position.append(position[-1] + (node["name"] in alive))
    return kept, position


def _refs(plain: Any) -> list[str]:
    if isinstance(plain, list):
        return [name for item in plain for name in _refs(item)]
    if isinstance(plain, dict):
        ((kind, content),) = plain.items()
        return [content] if kind == "ref" else _refs(content)
    return []
