"""Where candidates are judged on this machine, and what it is called."""

import pytest

from mkevolve_core.errors import ConfigError
from verifier.device import Gpu, device_facts, find_place

ONE = (Gpu("Some GPU", (9, 0), 80_000, 232_448),)


def test_the_facts_of_a_sandbox_on_the_cpu(sandbox):
    facts = device_facts(sandbox)
    assert facts.name == "Triton interpreter"
    assert set(facts.versions) == {"python", "torch", "triton"}
    assert facts.isolation == sandbox.isolation
    assert facts.trouble == ""


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
