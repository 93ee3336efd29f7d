"""What this machine's Python offers to jobs: versions, and the GPU if there is one that works."""

from __future__ import annotations

import platform
from typing import Any

import torch
import triton

from verifier.runner import hostile


def run(_payload: dict[str, Any]) -> dict[str, Any]:
    """`gpus` is empty where CUDA is not there; an installed but broken one raises JobFailed."""
    python = platform.python_version()
    return {"python": python, "torch": torch.__version__, "triton": triton.__version__, "gpus": _gpus()}


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
    }
