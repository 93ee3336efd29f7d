"""Records how the tensors of a module come about in its constructor, as expressions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from verifier.jobs import recorder_ops as ops
from verifier.jobs.recorder import encode_literal
from verifier.jobs.recorder_modules import swapped
from verifier.jobs.recorder_ops import Unrecordable, tensors_in

LONGEST = 400  # characters: beyond it nobody reads an expression
_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**", "matmul": "@", "floordiv": "//"}


class RecipeRecorder(TorchFunctionMode):  # type: ignore[misc]
    """Keeps an expression for each tensor that was made by spellable calls from literals alone."""

    def __init__(self) -> None:
        super().__init__()
        self._recipes: dict[int, str] = {}
        self._kept: list[torch.Tensor] = []
        self._parameters = ExitStack()

    def __enter__(self) -> Self:
        self._parameters.enter_context(swapped(nn.Parameter, "__new__", self._noted(nn.Parameter.__new__)))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._parameters.close()

    def _noted(self, new: Callable[..., Any]) -> Callable[..., Any]:
        """A parameter is a tensor of its own, with the recipe of what it was made from."""

        def noted(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
            made = new(cls, data, requires_grad)
            self._kept.append(made)
            if id(data) in self._recipes:
                self._recipes[id(made)] = self._recipes[id(data)]
            return made

        return noted

    def recipe(self, tensor: torch.Tensor) -> str | None:
        return self._recipes.get(id(tensor))

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        if isinstance(output, torch.Tensor):
            self._note(output, func, args, kwargs or {})
        elif len(tensors_in(output)) > 1:
            for tensor in tensors_in(output):
                self._recipes.pop(id(tensor), None)
        return output

    def _note(
        self, output: torch.Tensor, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._kept.append(output)
        try:
            text = self._expression(func, args, kwargs)
        except Unrecordable:
            text = None
        if text is None or len(text) > LONGEST:
            self._recipes.pop(id(output), None)
        else:
            self._recipes[id(output)] = text

    def _expression(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str | None:
        getter = ops.getter_name(func)
        if getter == "data" or getattr(func, "__name__", "") in ops.ALIASES:
            return self._recipes.get(id(args[0]))
        if getter is not None:
            return None
        spelling = ops.spell(func, args, kwargs)
        if spelling.in_place or getattr(func, "__name__", "") in ops.REFUSED_IN_PLACE:
            raise Unrecordable("it is written into")
        texts = [self._text(item) for item in args]
        words = ops.meaningful(func, spelling.op, kwargs).items()
        keywords = [f"{key}={self._text(item)}" for key, item in words if item is not None]
        return render(spelling.call, texts[::-1] if spelling.swapped else texts, keywords)

    def _text(self, value: Any) -> str:
        if isinstance(value, torch.Tensor):
            if id(value) not in self._recipes:
                raise Unrecordable("it depends on a tensor without a recipe")
            return self._recipes[id(value)]
        return literal_text(encode_literal(value))


def render(call: str, args: list[str], keywords: list[str]) -> str:
    """One call as Python."""
    kind, _, name = call.partition(":")
    if kind == "operator" and name in _SYMBOLS and len(args) == 2:
        return f"({args[0]} {_SYMBOLS[name]} {args[1]})"
    if kind == "operator" and name == "neg":
        return f"(-{args[0]})"
    if kind == "operator" and name == "getitem":
        return f"{args[0]}[{args[1]}]"
    if kind == "method":
        return f"{args[0]}.{name}({', '.join([*args[1:], *keywords])})"
    if kind == "operator":
        raise Unrecordable(f"no symbol for {name}")
    return f"{call}({', '.join([*args, *keywords])})"


def literal_text(plain: Any) -> str:
    """A literal of the graph's JSON as Python."""
    if isinstance(plain, list):
        inner = ", ".join(literal_text(item) for item in plain)
        return f"({inner},)" if len(plain) == 1 else f"({inner})"
    if isinstance(plain, dict):
        ((kind, content),) = plain.items()
        if kind == "float":
            return f'float("{content}")'
        if kind == "ellipsis":
            return "..."
        return f'"{content}"' if kind == "device" else f"torch.{content}"
    return repr(plain)
