"""Where candidates are judged: a GPU, or Triton's interpreter. The parent never imports torch to find out."""

from __future__ import annotations

from dataclasses import dataclass

from mkevolve_core.errors import ConfigError
from mkevolve_core.protocols import JobFailed
from verifier.roofline import target_facts
from verifier.sandbox import LocalSandbox, default_mode

INTERPRETER = "Triton interpreter"
_KIB, _MIB = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True)
class Gpu:
    name: str
    capability: tuple[int, int]
    memory_mb: int
    shared_limit: int | None  # bytes for one program
    multiprocessors: int | None = None
    shared_memory: int | None = None  # bytes of one multiprocessor
    registers: int | None = None  # 32-bit ones of one multiprocessor
    l2: int | None = None  # bytes
    bandwidth: int | None = None  # bytes a second, the memory's best


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What `mkevolve doctor` shows. `trouble` says why a GPU that seems to be there cannot be used."""

    name: str  # where the sandbox's device setting judges: "NVIDIA H200", "Triton interpreter"
    versions: dict[str, str]
    isolation: str
    gpus: tuple[Gpu, ...] = ()
    trouble: str = ""
    functions: tuple[str, ...] = ()  # names in triton.language


@dataclass(frozen=True, slots=True)
class Place:
    """How one policy's candidates run here."""

    device: str  # torch's spelling: "cpu", "cuda:0"
    mode: str  # of the sandbox: "interpret", "gpu"
    name: str  # for verdicts: "NVIDIA H200", "Triton interpreter"
    gpu: Gpu | None


def device_facts(sandbox: LocalSandbox) -> DeviceFacts:
    """Asked in a job of its own. Raises SandboxError, ConfigError for a device that is not there."""
    mode, trouble = default_mode(sandbox.device), ""
    try:
        plain = sandbox.execute("facts", {}, seconds=120.0, mode=mode).value
    except JobFailed as failed:
        trouble = failed.detail
        plain = sandbox.execute("facts", {}, seconds=120.0, mode="interpret").value
    gpus = tuple(_read_gpu(gpu) for gpu in plain["gpus"])
    versions = {name: str(plain[name]) for name in ("python", "torch", "triton")}
    name = find_place(gpus, sandbox.device).name
    functions = tuple(str(name) for name in plain["functions"])
    return DeviceFacts(name, versions, sandbox.isolation, gpus, trouble, functions)


def _read_gpu(plain: dict[str, object]) -> Gpu:
    capability = plain["capability"]
    assert isinstance(capability, list)
    known = ("shared_limit", "multiprocessors", "shared_memory", "registers", "l2", "bandwidth")
    numbers = {name: value if isinstance(value := plain.get(name), int) else None for name in known}
    return Gpu(
        name=str(plain["name"]),
        capability=(int(capability[0]), int(capability[1])),
        memory_mb=int(str(plain["memory_mb"])),
        **numbers,
    )


def find_place(gpus: tuple[Gpu, ...], wanted: str) -> Place:
    """For a policy's device: "auto", "cpu", "cuda", "cuda:1". Raises ConfigError where it is not there."""
    if wanted == "cpu" or (wanted == "auto" and not gpus):
        return Place("cpu", "interpret", INTERPRETER, None)
    number = 0 if wanted in ("auto", "cuda") else _number(wanted)
    if number >= len(gpus):
        found = f"{len(gpus)} found" if gpus else "no GPU found"
        raise ConfigError(f"Device '{wanted}' is not on this machine ({found}): use auto or cpu.")
    return Place(f"cuda:{number}", "gpu", gpus[number].name, gpus[number])


def _number(wanted: str) -> int:
    kind, _, number = wanted.partition(":")
    if kind != "cuda" or not number.isdigit():
        raise ConfigError(f"Unknown device '{wanted}': use auto, cpu or cuda:0.")
    return int(number)


# ------------------------------------------------------------------------------------ in words


def hardware(facts: DeviceFacts, target: str = "cuda:90") -> dict[str, str]:
    """Fact to value, in the order to be read; `target` is what is compiled for where there is no GPU.

    The last one, "triton.language", is the names of its functions. Raises ConfigError for the target.
    """
    gpu = next((gpu for gpu in facts.gpus if gpu.name == facts.name), None)
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
