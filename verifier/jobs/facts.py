"""What this machine's Python offers to jobs: versions, and the GPU if there is one that works."""

from __future__ import annotations

import platform
from typing import Any

import torch
import triton
import triton.language

from verifier.runner import hostile


def run(_payload: dict[str, Any]) -> dict[str, Any]:
    """`gpus` is empty where CUDA is not there; an installed but broken one raises JobFailed."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "functions": _functions(),
        "gpus": _gpus(),
    }


def _functions() -> list[str]:
    """What kernels may call in `triton.language`: neither its types nor its modules."""
    language = triton.language
    named = {name: getattr(language, name) for name in dir(language) if not name.startswith("_")}
    plain = [name for name, value in named.items() if callable(value) and not isinstance(value, type)]
    return sorted({*plain, *(name for name in ("range", "static_range") if name in named)})


def _gpus() -> list[dict[str, Any]]:
    if not torch.cuda.is_available():
        return []
    with hostile("raise"):
        torch.zeros(1, device="cuda").add_(1).item()  # a driver may list a device that cannot compute
    return [_gpu(index) for index in range(torch.cuda.device_count())]


def _gpu(index: int) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(index)
    return {
        "name": properties.name,
        "capability": [properties.major, properties.minor],
        "memory_mb": properties.total_memory >> 20,
        "shared_limit": getattr(properties, "shared_memory_per_block_optin", None),
        "multiprocessors": properties.multi_processor_count,
        "shared_memory": getattr(properties, "shared_memory_per_multiprocessor", None),
        "registers": getattr(properties, "regs_per_multiprocessor", None),
        "l2": getattr(properties, "L2_cache_size", None),
        "bandwidth": _bandwidth(properties),
    }


def _bandwidth(properties: Any) -> int | None:
    """Bytes a second that its memory could give at best: two transfers a clock."""
    kilohertz = getattr(properties, "memory_clock_rate", None)
    bits = getattr(properties, "memory_bus_width", None)
    return 2 * kilohertz * 1000 * bits // 8 if kilohertz and bits else None
