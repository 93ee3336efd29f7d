"""Triton's interpreter, repaired where it differs from a GPU and hooked where `counting` looks.

Repairs: an autotuned kernel runs without a driver (one trial of its first configuration, then that one, so
a kernel that accumulates over trials is as wrong as on a GPU); a TF32 product rounds its operands as tensor
cores do; an access outside the launch's tensors raises instead of killing the process or silently reading
what lies there; a boolean may be passed at run time; Triton 3.6 takes the loop bound `tl.cdiv(K, BK)` from
NumPy 2.4 on.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import autotuner, interpreter
from triton.runtime.jit import TensorWrapper, mangle_type

from verifier.counting import DEFAULT_STAGES, DEFAULT_WARPS, Counter
from verifier.footprint import Footprint, Span

_OPTIONS = ("num_ctas", "maxnreg", "enable_fp_fusion", "cluster_dims", "allowed_dot_input_precisions")
_TRANSCENDENTAL = 8  # fp32 operations that one exp, log, sin, ... counts for
_ERF = 20


def repair(counter: Counter) -> None:
    autotuner.Autotuner._bench = _trial_runner(counter)
    _accept_indices()
    _accept_booleans()


def hook(counter: Counter) -> None:
    _hook_launches(counter)
    _hook_memory(counter)
    _hook_arithmetic(counter)
    _hook_reductions(counter)


# Repairs -----------------------------------------------------------------------------------------


def _trial_runner(counter: Counter) -> Callable[..., list[float]]:
    """In place of timing: earlier configurations are 'faster', and the first is run once, uncounted."""

    def bench(tuner: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
        place = float(tuner.configs.index(config)) if config in tuner.configs else 0.0
        if getattr(tuner, "_tried_for", None) is not tuner.nargs:
            tuner._tried_for = tuner.nargs
            with counter.paused():
                _try_once(tuner, args, config, meta)
            place = -1.0
        return [place, place, place]

    return bench


def _try_once(tuner: Any, args: tuple[Any, ...], config: Any, meta: dict[str, Any]) -> None:
    current = {**meta, **config.all_kwargs()}
    named = {**tuner.nargs, **current}
    if config.pre_hook:
        config.pre_hook(named)
    tuner.pre_hook(named)
    tuner.fn.run(*args, **current)
    tuner.post_hook(named, exception=None)


def _accept_indices() -> None:
    original = interpreter._patch_lang_tensor

    def patch(tensor: Any, *scope: Any) -> None:
        original(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.squeeze())

    interpreter._patch_lang_tensor = patch


def _accept_booleans() -> None:
    """A `True` passed at run time, which the interpreter would store as a 32 bit integer and then refuse."""
    original = interpreter._implicit_cvt

    def convert(argument: Any) -> Any:
        if isinstance(argument, bool):
            handle = interpreter.TensorHandle(np.array([argument], dtype=np.bool_), tl.int1)
            return tl.tensor(handle, tl.int1)
        return original(argument)

    interpreter._implicit_cvt = convert


def round_to_tf32(values: Any) -> Any:
    """fp32 numbers with the 10 fraction bits that TF32 keeps, rounded to nearest."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


# Launches ----------------------------------------------------------------------------------------


def _hook_launches(counter: Counter) -> None:
    run, set_grid = interpreter.GridExecutor.__call__, interpreter.InterpreterBuilder.set_grid_dim

    def counted_run(executor: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = _bind(executor, args, kwargs)
        footprint = Footprint(list(_spans(arguments)), marks=counter.counts)
        with counter.launching(_describe(executor, arguments, kwargs), footprint):
            return run(executor, *args, **kwargs)

    def noted_grid(builder: Any, *sides: int) -> None:
        set_grid(builder, *sides)
        if counter.launch:
            counter.launch.set_grid((int(sides[0]), int(sides[1]), int(sides[2])))

    interpreter.GridExecutor.__call__ = counted_run
    interpreter.InterpreterBuilder.set_grid_dim = noted_grid


def _bind(executor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = inspect.getfullargspec(executor.fn).args
    return inspect.getcallargs(executor.fn, *args, **{k: v for k, v in kwargs.items() if k in names})


def _spans(arguments: dict[str, Any]) -> Iterator[Span]:
    """The storage behind every tensor among the arguments, once."""
    seen: set[int] = set()
    for name, value in arguments.items():
        for tensor in _tensors(value):
            storage = tensor.untyped_storage()
            if storage.nbytes() and storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                yield Span(name, storage.data_ptr(), storage.nbytes())


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, TensorWrapper):
        yield value.base
    elif hasattr(value, "untyped_storage"):
        yield value
    elif hasattr(value, "block_shape") and hasattr(value, "base"):  # a tensor descriptor
        yield from _tensors(value.base)


def _describe(executor: Any, arguments: dict[str, Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    signature, constants, aligned = _signature(arguments, set(executor.constexprs))
    return {
        "kind": "launch",
        "name": executor.fn.__name__,
        "file": executor.fn.__code__.co_filename,
        "part": None,
        "completed": False,
        "grid": [0, 0, 0],
        "programs": 0,
        "num_warps": int(kwargs.get("num_warps") or DEFAULT_WARPS),
        "num_stages": int(DEFAULT_STAGES if kwargs.get("num_stages") is None else kwargs["num_stages"]),
        "options": {name: plain_constant(kwargs[name]) for name in _OPTIONS if kwargs.get(name) is not None},
        "signature": signature,
        "constants": constants,
        "aligned": aligned,
        **{key: 0 for key in ("loaded", "stored", "atomics", "traffic", "read", "written", "flops")},
        "dots": {},
    }


def _signature(
    arguments: dict[str, Any], constexprs: set[str]
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Types, constants and 16-divisible arguments, as the compiler would specialize this call."""
    signature, constants, aligned = {}, {}, []
    for name, value in arguments.items():
        is_one = type(value) is int and value == 1
        if name in constexprs or value is None or is_one or callable(value):
            signature[name], constants[name] = "constexpr", plain_constant(value)
            continue
        signature[name] = plain_type(value)
        if (type(value) is int and value % 16 == 0) or _is_aligned_tensor(value):
            aligned.append(name)
    return signature, constants, aligned


def _is_aligned_tensor(value: Any) -> bool:
    return hasattr(value, "data_ptr") and value.data_ptr() % 16 == 0


def plain_type(value: Any) -> Any:
    kind = mangle_type(value)
    return [plain_type(item) for item in value] if isinstance(value, tuple) else str(kind)


def plain_constant(value: Any) -> Any:
    if isinstance(value, tl.constexpr):
        return plain_constant(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tl.dtype):
        return {"dtype": str(value)}
    if isinstance(value, tuple | list):
        return {"tuple": [plain_constant(item) for item in value]}
    return {"function": getattr(value, "__name__", repr(value))}


# What a program does -----------------------------------------------------------------------------


def _hook_memory(counter: Counter) -> None:
    builder = interpreter.InterpreterBuilder
    for name, key in (("create_masked_load", "loaded"), ("create_masked_store", "stored")):
        setattr(builder, name, _counted_access(counter, getattr(builder, name), key, mask_at=_mask_at(name)))
    builder.create_atomic_rmw = _counted_rmw(counter, builder.create_atomic_rmw)
    builder.create_atomic_cas = _counted_cas(counter, builder.create_atomic_cas)
    builder.create_int_to_ptr = _noted_cast(counter, builder.create_int_to_ptr)


def _mask_at(name: str) -> int:
    return 1 if name == "create_masked_load" else 2


def _counted_access(counter: Counter, original: Any, key: str, mask_at: int) -> Any:
    names = ("ptrs", "mask") if mask_at == 1 else ("ptrs", "value", "mask")

    def access(builder: Any, *args: Any, **kwargs: Any) -> Any:
        if counter.launch:
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            _note_access(counter, given["ptrs"], given["mask"], key)
        return original(builder, *args, **kwargs)

    return access


def _note_access(counter: Counter, pointers: Any, mask: Any, key: str) -> None:
    assert counter.launch is not None
    itemsize = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
    live = mask if isinstance(mask, np.ndarray) else mask.data
    counter.launch.access(pointers.data, np.broadcast_to(live, pointers.data.shape), itemsize, key)


def _counted_rmw(counter: Counter, original: Any) -> Any:
    def atomic(builder: Any, operation: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        if counter.launch:
            _note_access(counter, pointers, mask, "atomics")
        return original(builder, operation, pointers, value, mask, *rest)

    return atomic


def _counted_cas(counter: Counter, original: Any) -> Any:
    def atomic(builder: Any, pointers: Any, *rest: Any) -> Any:
        if counter.launch:
            _note_access(counter, pointers, np.ones(pointers.data.shape, dtype=np.bool_), "atomics")
        return original(builder, pointers, *rest)

    return atomic


def _noted_cast(counter: Counter, original: Any) -> Any:
    """Pointers made of numbers may lead to any live tensor, so the launch's bounds no longer bind."""

    def cast(builder: Any, *args: Any) -> Any:
        if counter.launch:
            counter.launch.footprint.strict = False
        return original(builder, *args)

    return cast


def _hook_arithmetic(counter: Counter) -> None:
    builder = interpreter.InterpreterBuilder
    builder.create_dot = _counted_dot(counter, builder.create_dot)
    for name in ("binary_op", "ternary_op"):
        setattr(builder, name, _weighed(counter, getattr(builder, name), 1))
    builder.unary_op = _weighed(counter, builder.unary_op, _TRANSCENDENTAL)
    builder.create_fma = _weighed(counter, builder.create_fma, 2)
    builder.create_rsqrt = _weighed(counter, builder.create_rsqrt, 2)
    builder.create_erf = _weighed(counter, builder.create_erf, _ERF)


def _weighed(counter: Counter, original: Any, weight: int) -> Any:
    def operation(builder: Any, first: Any, *rest: Any) -> Any:
        result = original(builder, first, *rest)
        if counter.launch and result.data.dtype.kind == "f":
            counter.launch.flops += weight * result.data.size
        return result

    return operation


def _counted_dot(counter: Counter, original: Any) -> Any:
    def dot(builder: Any, a: Any, b: Any, acc: Any, precision: Any, *rest: Any) -> Any:
        kind = str(precision).rsplit(".", 1)[-1].lower()
        if a.data.dtype == np.float32 and kind == "tf32":
            a = interpreter.TensorHandle(round_to_tf32(a.data), a.dtype)
            b = interpreter.TensorHandle(round_to_tf32(b.data), b.dtype)
        if counter.launch:
            flops = 2 * a.data.size * b.data.shape[-1]
            counter.launch.dot(kind if a.data.dtype == np.float32 else str(a.dtype.scalar), flops)
        return original(builder, a, b, acc, precision, *rest)

    return dot


def _hook_reductions(counter: Counter) -> None:
    """A reduction costs one operation an element; its own combine function is not counted on top."""
    for kind in (interpreter.ReduceOps, interpreter.ScanOps):
        kind.apply_impl = _counted_reduction(counter, kind.apply_impl)


def _counted_reduction(counter: Counter, original: Any) -> Any:
    def apply(operation: Any, inputs: Any) -> Any:
        launch = counter.launch
        before = launch.flops if launch else 0
        result = original(operation, inputs)
        if launch:
            launch.flops = before + inputs[0].handle.data.size
        return result

    return apply
