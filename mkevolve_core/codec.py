"""Frozen dataclasses to JSON and back: unknown fields are ignored, missing ones must have a default."""

from __future__ import annotations

import dataclasses
import json
import types
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Dataclasses become dicts, tuples lists, enums their values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    return value


def from_plain(kind: type[T], plain: Any) -> T:
    """The inverse of `to_plain`. Raises TypeError or ValueError where the data does not fit."""
    return _decode(kind, plain)  # type: ignore[no-any-return]


def dumps(value: Any) -> str:
    """One line of JSON; NaN and infinity are refused, since None means absent."""
    return json.dumps(to_plain(value), ensure_ascii=True, separators=(",", ":"), allow_nan=False)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _decode(kind: Any, plain: Any) -> Any:
    origin = get_origin(kind)
    if kind is Any:
        return plain
    if origin in (Union, types.UnionType):
        return _decode_union(get_args(kind), plain)
    if origin is tuple:
        return _decode_tuple(get_args(kind), plain)
    if origin is dict:
        key, item = get_args(kind)
        return {_decode(key, k): _decode(item, v) for k, v in plain.items()}
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, plain)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(plain)
    return _decode_scalar(kind, plain)


def _decode_union(options: tuple[Any, ...], plain: Any) -> Any:
    if plain is None:
        return None
    rest = [option for option in options if option is not type(None)]
    return _decode(rest[0], plain) if len(rest) == 1 else plain


def _decode_tuple(items: tuple[Any, ...], plain: Any) -> Any:
    if len(items) == 2 and items[1] is Ellipsis:
        return tuple(_decode(items[0], item) for item in plain)
    return tuple(_decode(kind, item) for kind, item in zip(items, plain, strict=True))


def _decode_dataclass(kind: Any, plain: Any) -> Any:
    if not isinstance(plain, dict):
        raise TypeError(f"{kind.__name__} needs an object, got {type(plain).__name__}")
    hints = _hints(kind)
    names = [f.name for f in dataclasses.fields(kind) if f.init]
    return kind(**{name: _decode(hints[name], plain[name]) for name in names if name in plain})


def _decode_scalar(kind: Any, plain: Any) -> Any:
    if kind is float and isinstance(plain, int) and not isinstance(plain, bool):
        return float(plain)
    if kind in (int, float, str, bool) and type(plain) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {plain!r}")
    return plain
