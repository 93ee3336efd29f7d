"""The short list of things that no candidate may do: each finding refuses it, whatever it computes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from verifier.syntax import Unit, folded_text, is_self

_DYNAMIC = frozenset(f"builtins.{name}" for name in ("exec", "eval", "compile", "__import__", "__builtins__"))

# Outside names by their first dotted parts, and what using them is called in the refusal.
_BANNED = {
    "importlib": "imports code dynamically",
    "runpy": "imports code dynamically",
    "builtins": "reaches the builtins module",
    "types.FunctionType": "makes code objects",
    "types.CodeType": "makes code objects",
    "marshal": "makes code objects",
    "ctypes": "calls native code",
    "cffi": "calls native code",
    "torch.utils.cpp_extension": "calls native code",
    "sys._getframe": "reads frames",
    "sys._current_frames": "reads frames",
    "sys.settrace": "reads frames",
    "sys.setprofile": "reads frames",
    "inspect.stack": "reads frames",
    "inspect.currentframe": "reads frames",
    "inspect.trace": "reads frames",
    "inspect.getouterframes": "reads frames",
    "inspect.getinnerframes": "reads frames",
    "gc.get_objects": "searches the process's objects",
    "gc.get_referrers": "searches the process's objects",
    "gc.get_referents": "searches the process's objects",
    "unittest.mock": "patches other modules",
    "subprocess": "starts processes",
    "multiprocessing": "starts processes",
    "torch.multiprocessing": "starts processes",
    "pty": "starts processes",
    "os.fork": "starts processes",
    "os.forkpty": "starts processes",
    "os.system": "starts processes",
    "os.popen": "starts processes",
    "os._exit": "ends the process",
    "os.abort": "ends the process",
    "os.kill": "signals processes",
    "os.killpg": "signals processes",
    "socket": "opens sockets",
    "threading": "starts threads",
    "_thread": "starts threads",
    "concurrent.futures": "starts threads or processes",
}
_BANNED_STARTS = ("os.exec", "os.spawn", "os.posix_spawn")
_HARMLESS = ("importlib.metadata", "importlib.resources", "builtins.type()")
_HIDDEN_LOOKUP = frozenset(["os", "sys", "gc", "inspect", "builtins"])  # getattr(os, <anything>) on these

_FRAME_ATTRIBUTES = frozenset(
    ["f_back", "f_globals", "f_locals", "f_builtins", "tb_frame", "gi_frame", "cr_frame", "ag_frame"]
    + ["__globals__", "__builtins__", "__subclasses__", "__code__", "__closure__", "__import__"]
)
# Switches of these are settings, not code: a flag, no refusal.
_SETTINGS = ("torch.backends.", "triton.knobs.", "torch._dynamo.config.", "torch._inductor.config.")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a rule saw, and the line it is on. `kind` is one word for programs."""

    kind: str
    path: str
    line: int
    text: str


def find_bans(unit: Unit) -> Iterator[Finding]:
    """Everything in one file that refuses the candidate, in the order of its lines."""
    found = {(at, text) for rule in _RULES for at, text in rule(unit)}
    for at, text in sorted(found):
        yield Finding("ban", unit.path, at, text)


def _banned_names(unit: Unit) -> Iterator[tuple[int, str]]:
    for node in unit.nodes:
        if isinstance(node, ast.Name | ast.Attribute | ast.Call):
            origin = unit.origin(node)
            reason = _reason(origin) if origin else None
            if reason:
                yield node.lineno, f"{reason} ({origin})"


def _reason(origin: str) -> str | None:
    if origin in _DYNAMIC:
        return "runs code from text"
    if origin.startswith(_HARMLESS) or origin.startswith("builtins.") and origin.count(".") == 1:
        return None
    if origin.startswith(_BANNED_STARTS):
        return "starts processes"
    module, _, name = origin.rpartition(".")
    if name == "?" and module in _HIDDEN_LOOKUP:
        return "looks up a hidden name"
    return next((why for start, why in _BANNED.items() if f"{origin}.".startswith(f"{start}.")), None)


def _banned_imports(unit: Unit) -> Iterator[tuple[int, str]]:
    for node in unit.nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            reason = _reason(name) if name.split(".")[0] not in unit.own_modules else None
            if reason or name == "builtins":
                yield node.lineno, f"{reason or 'reaches the builtins module'} ({name})"


def _frames(unit: Unit) -> Iterator[tuple[int, str]]:
    for node in unit.nodes:
        name = node.attr if isinstance(node, ast.Attribute) else _looked_up(unit, node)
        if name in _FRAME_ATTRIBUTES and isinstance(node, ast.expr):
            yield node.lineno, f"reaches into frames or functions ({name})"


def _looked_up(unit: Unit, node: ast.AST) -> str | None:
    """The name in `getattr(x, "name")` and `x["name"]`."""
    if isinstance(node, ast.Call) and unit.origin(node.func) == "builtins.getattr" and len(node.args) > 1:
        return folded_text(node.args[1])
    return folded_text(node.slice) if isinstance(node, ast.Subscript) else None


def _patches(unit: Unit) -> Iterator[tuple[int, str]]:
    for node in unit.nodes:
        target = _patched(unit, node)
        if target and not target.startswith(_SETTINGS) and isinstance(node, ast.expr):
            yield node.lineno, f"alters {target}"


def _patched(unit: Unit, node: ast.AST) -> str | None:
    """The outside object whose attribute is set or deleted: "torch.cuda.Event.elapsed_time"."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
        return unit.origin(node)
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return _patched_table(unit, node.value)
    if isinstance(node, ast.Call) and len(node.args) >= 2:
        return _patched_by_call(unit, node)
    return None


def _patched_table(unit: Unit, table: ast.AST) -> str | None:
    origin = unit.origin(table) or ""
    is_vars = isinstance(table, ast.Call) and unit.origin(table.func) == "builtins.vars"
    return origin if is_vars or origin.endswith(".__dict__") or origin == "sys.modules" else None


def _patched_by_call(unit: Unit, call: ast.Call) -> str | None:
    is_setter = unit.origin(call.func) in ("builtins.setattr", "builtins.delattr")
    is_raw = isinstance(call.func, ast.Attribute) and call.func.attr in ("__setattr__", "__delattr__")
    owner = unit.origin(call.args[0])
    if not (is_setter or is_raw) or owner is None or is_self(call.args[0]):
        return None
    return f"{owner}.{folded_text(call.args[1]) or '?'}"


def settings_changed(unit: Unit) -> Iterator[Finding]:
    """Switches of torch or triton that the file sets: no refusal, but worth a flag."""
    for node in unit.nodes:
        target = _patched(unit, node)
        if target and target.startswith(_SETTINGS) and isinstance(node, ast.expr):
            yield Finding("setting", unit.path, node.lineno, f"sets {target}")


_RULES: tuple[Callable[[Unit], Iterator[tuple[int, str]]], ...] = (
    _banned_names,
    _banned_imports,
    _frames,
    _patches,
)
