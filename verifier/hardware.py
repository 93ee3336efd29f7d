"""The device in words, for prompts: the GPU that judges, or the interpreter and the GPU that it stands for."""

from __future__ import annotations

from verifier.device import DeviceFacts, Gpu, find_place
from verifier.roofline import target_facts

_KIB, _MIB = 1024, 1024 * 1024


def hardware(facts: DeviceFacts, device: str = "auto", target: str = "cuda:90") -> dict[str, str]:
    """Fact to value, in the order to be read; `device` and `target` are a policy's.

    The last one, "triton.language", is the names of its functions. Raises ConfigError.
    """
    gpu = find_place(facts.gpus, device).gpu
    lines = _of_gpu(gpu) if gpu else _of_interpreter(target)
    versions = {"Triton": "triton", "PyTorch": "torch", "Python": "python"}
    lines |= {name: facts.versions[key] for name, key in versions.items()}
    return {**{k: v for k, v in lines.items() if v}, "triton.language": " ".join(facts.functions)}


def _of_gpu(gpu: Gpu) -> dict[str, str]:
    major, minor = gpu.capability
    return {
        "GPU": gpu.name,
        "compute capability": f"{major}.{minor}",
        "multiprocessors": str(gpu.multiprocessors or ""),
        "shared memory for one program": _size(gpu.shared_limit, _KIB, "KiB"),
        "shared memory of a multiprocessor": _size(gpu.shared_memory, _KIB, "KiB"),
        "registers of a multiprocessor": f"{gpu.registers} of 32 bits" if gpu.registers else "",
        "L2 cache": _size(gpu.l2, _MIB, "MiB"),
        "memory": _size(gpu.memory_mb, 1024, "GiB"),
        "memory bandwidth": f"{gpu.bandwidth / 1e12:.3g} TB/s at best" if gpu.bandwidth else "",
    }


def _of_interpreter(target: str) -> dict[str, str]:
    """The target's numbers are its datasheet's."""
    gpu = target_facts(target)
    return {
        "judged by": "Triton's interpreter on the CPU, since this machine has no GPU: no inline assembly, "
        "no libdevice, and an autotuned kernel runs with its first configuration",
        "compiled for": gpu.name,
        "time": f"estimated for {gpu.name} by a roofline model, not measured",
        "compute capability": f"{gpu.capability // 10}.{gpu.capability % 10}",
        "multiprocessors": str(gpu.multiprocessors),
        "shared memory for one program": _size(gpu.shared_limit, _KIB, "KiB"),
        "registers of a multiprocessor": "65536 of 32 bits",
        "memory bandwidth": f"{gpu.dram / 1e12:.3g} TB/s",
        "fp32 peak": f"{gpu.fp32 / 1e12:.3g} TFLOP/s",
    }


def _size(count: int | None, unit: int, name: str) -> str:
    return f"{count / unit:.4g} {name}" if count else ""
