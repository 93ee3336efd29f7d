"""Where candidates are judged: a GPU, or Triton's interpreter. The parent never imports torch to find out."""

from __future__ import annotations

from dataclasses import dataclass

from mkevolve_core.errors import ConfigError
from mkevolve_core.protocols import JobFailed
from verifier.sandbox import LocalSandbox, default_mode

INTERPRETER = "Triton interpreter"


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
