"""Where candidates are judged on this machine, and what it is called."""

import re
from pathlib import Path

import pytest

from mkevolve_core.errors import ConfigError
from verifier.device import DeviceFacts, Gpu, device_facts, find_place, hardware

PROMPTS = Path(__file__).parents[2] / "prompts"
ONE = (Gpu("Some GPU", (9, 0), 80_000, 232_448),)


def test_the_facts_of_a_sandbox_on_the_cpu(sandbox):
    facts = device_facts(sandbox)
    assert facts.name == "Triton interpreter"
    assert set(facts.versions) == {"python", "torch", "triton"}
    assert facts.isolation == sandbox.isolation
    assert facts.trouble == ""
    assert {"load", "dot", "range", "sigmoid"} <= set(facts.functions)
    assert not {"float32", "extra", "tanh"} & set(facts.functions)


@pytest.mark.parametrize(
    ("gpus", "wanted", "device"),
    [
        ((), "auto", "cpu"),
        ((), "cpu", "cpu"),
        (ONE, "auto", "cuda:0"),
        (ONE, "cuda", "cuda:0"),
        (ONE, "cuda:0", "cuda:0"),
        (ONE, "cpu", "cpu"),
    ],
)
def test_a_device_is_found(gpus, wanted, device):
    place = find_place(gpus, wanted)
    assert place.device == device
    assert (place.gpu is None) == (device == "cpu")
    assert place.mode == ("interpret" if device == "cpu" else "gpu")


@pytest.mark.parametrize(
    ("gpus", "wanted", "words"),
    [
        ((), "cuda:0", "no GPU found"),
        (ONE, "cuda:1", "1 found"),
        (ONE, "tpu", "Unknown device"),
        (ONE, "cuda:x", "Unknown device"),
    ],
)
def test_a_device_that_is_not_there_is_named(gpus, wanted, words):
    with pytest.raises(ConfigError, match=words):
        find_place(gpus, wanted)


def test_prompts_recommend_only_functions_that_exist(sandbox):
    known = set(device_facts(sandbox).functions)
    types = {"constexpr", "float32", "int32", "int64"}
    rules, failure = (PROMPTS / name for name in ("_kernel_rules.j2", "_failure.j2"))
    named = set(re.findall(r"\btl\.(\w+)", rules.read_text() + failure.read_text()))
    assert named - known - types == {"tanh"}  # named as one that does not exist
    invented = re.findall(r'^  "(\w+)": "', failure.read_text().partition("set instead")[2], re.MULTILINE)
    assert len(invented) > 10
    assert not known & set(invented)


VERSIONS = {"python": "3.12.3", "torch": "2.11.0", "triton": "3.6.0"}
H200 = Gpu("NVIDIA H200", (9, 0), 143_156, 232_448, 132, 233_472, 65_536, 62_914_560, 4_917_504_000_000)


def test_a_gpu_in_words():
    facts = DeviceFacts("NVIDIA H200", VERSIONS, "weak", (H200,), functions=("dot", "load"))
    assert hardware(facts) == {
        "GPU": "NVIDIA H200",
        "compute capability": "9.0",
        "multiprocessors": "132",
        "shared memory for one program": "227 KiB",
        "shared memory of a multiprocessor": "228 KiB",
        "registers of a multiprocessor": "65536 of 32 bits",
        "L2 cache": "60 MiB",
        "memory": "139.8 GiB",
        "memory bandwidth": "4.92 TB/s at best",
        "Triton": "3.6.0",
        "PyTorch": "2.11.0",
        "Python": "3.12.3",
        "triton.language": "dot load",
    }


def test_what_a_driver_does_not_say_is_left_out():
    facts = DeviceFacts("Some GPU", VERSIONS, "weak", ONE)
    assert "L2 cache" not in hardware(facts)
    assert "None" not in " ".join(hardware(facts).values())


@pytest.mark.parametrize("gpus", [(), ONE])
def test_the_interpreter_stands_for_a_target(gpus):
    """Also where there is a GPU that the run does not use."""
    found = hardware(DeviceFacts("Triton interpreter", VERSIONS, "weak", gpus), "cuda:80")
    assert found["compiled for"] == "cuda:80 (A100)"
    assert (found["multiprocessors"], found["compute capability"]) == ("108", "8.0")
    assert "not measured" in found["time"]
    assert "GPU" not in found


def test_an_unknown_target_is_named():
    with pytest.raises(ConfigError, match="cuda:77"):
        hardware(DeviceFacts("Triton interpreter", VERSIONS, "weak"), "cuda:77")
