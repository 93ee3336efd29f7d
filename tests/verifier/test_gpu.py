"""What only a GPU can show: times, streams, faults, resources. The isolation holds there, too."""

from dataclasses import replace

import pytest

from mkevolve_core.domain import Codebase, Outcome, Policy, TimingMode
from tests.verifier.samples import HONEST, SCALE_SHIFT, TWO_STEPS, changed, composed, with_forward
from verifier.device import device_facts, hardware
from verifier.judge import LocalJudge
from verifier.measured import DISAGREE
from verifier.sandbox import LocalSandbox

pytestmark = pytest.mark.gpu

POLICY = Policy(device="cuda:0", seconds=120.0)
UNTIMED = replace(POLICY, timing=TimingMode.OFF)

LARGE = SCALE_SHIFT.replace("torch.randn(6, 40)", "torch.randn(8192, 4096)").replace("[40]", "[4096]")
FAST = changed(("BLOCK=64", "BLOCK=1024"), ("x.numel(), 64)", "x.numel(), 1024)"))


@pytest.fixture(scope="module")
def gpu_sandbox():
    with LocalSandbox() as sandbox:
        assert device_facts(sandbox).gpus, device_facts(sandbox).trouble
        yield sandbox


@pytest.fixture(scope="module")
def judge(gpu_sandbox):
    with LocalJudge(gpu_sandbox) as judge:
        yield judge


def test_the_gpu_is_named_and_the_isolation_is_strong(gpu_sandbox):
    facts = device_facts(gpu_sandbox)
    assert facts.name == facts.gpus[0].name
    assert facts.gpus[0].shared_limit is None or facts.gpus[0].shared_limit > 40_000
    assert not facts.isolation.startswith("weak")


def test_the_gpu_is_put_into_words_for_prompts(gpu_sandbox):
    told = hardware(device_facts(gpu_sandbox))
    assert told["GPU"] == device_facts(gpu_sandbox).name
    assert int(told["multiprocessors"]) > 0
    assert {"L2 cache", "memory", "registers of a multiprocessor", "compute capability"} <= told.keys()
    assert "dot" in told["triton.language"].split()


def test_an_honest_kernel_is_correct_and_timed_against_both_baselines(judge):
    verdict = judge.judge(LARGE, FAST, POLICY)
    assert (verdict.outcome, verdict.detail) == (Outcome.CORRECT, "")
    assert verdict.measured is not None
    assert verdict.measured.samples == 100
    assert 0.02 < verdict.measured.median_ms < 5.0
    assert verdict.measured.low_ms <= verdict.measured.median_ms <= verdict.measured.high_ms
    assert {baseline.name for baseline in verdict.baselines if baseline.timing} == {"torch.compile", "eager"}
    assert verdict.speedup is not None
    assert 0.3 < verdict.speedup < 3.0
    assert DISAGREE not in verdict.flags
    assert verdict.estimate is None
    assert verdict.resources is not None
    assert verdict.resources.registers is not None
    assert verdict.resources.shared_bytes is not None
    assert "measured" in verdict.advisory
    assert "inside the timed loop" in {case.name for case in verdict.cases}


def test_a_warm_verdict_is_quick(judge):
    judge.judge(SCALE_SHIFT, Codebase.single(HONEST), UNTIMED)
    assert judge.judge(SCALE_SHIFT, Codebase.single(HONEST), UNTIMED).seconds < 5.0


def test_work_on_a_stream_of_its_own_is_scored_by_the_wall_clock(judge):
    """Ten passes over the data that the timed stream does not see."""
    body = """
    if not LANE:
        LANE.append(torch.cuda.Stream())
    with torch.cuda.stream(LANE[0]):
        for _ in range(10):
            o = self.compute(x)
    return o
    """
    hidden = with_forward(body, before="LANE = []")
    hidden = Codebase.single(
        hidden.files[0].text.replace("BLOCK=64", "BLOCK=1024").replace(", 64)", ", 1024)")
    )
    plain = judge.judge(LARGE, FAST, POLICY)
    verdict = judge.judge(LARGE, hidden, POLICY)
    assert verdict.outcome is Outcome.CORRECT
    assert DISAGREE in verdict.flags
    assert verdict.measured.median_ms > 4 * plain.measured.median_ms


def test_results_remembered_by_address_are_wrong(judge):
    body = """
    key = x.data_ptr()
    if key not in SEEN:
        SEEN[key] = self.compute(x)
    return SEEN[key]
    """
    assert (
        judge.judge(SCALE_SHIFT, with_forward(body, before="SEEN = {}"), POLICY).outcome
        is Outcome.WRONG_RESULT
    )


def test_pytorch_beside_the_kernel_is_cheating(judge):
    candidate = with_forward("o = self.compute(x)\nreturn getattr(torch, 're' + 'lu')(o)")
    verdict = judge.judge(SCALE_SHIFT, candidate, UNTIMED)
    assert verdict.outcome is Outcome.CHEAT
    assert "aten::relu" in verdict.detail


def test_an_illegal_access_does_not_touch_the_next_candidate(judge):
    wild = changed(
        ("tl.load(x_ptr + offsets, mask=mask", "tl.load(x_ptr + offsets.to(tl.int64) * (1 << 34), mask=mask")
    )
    verdict = judge.judge(SCALE_SHIFT, wild, UNTIMED)
    assert verdict.outcome is Outcome.RUNTIME_ERROR
    assert judge.judge(SCALE_SHIFT, Codebase.single(HONEST), UNTIMED).is_correct


def test_an_endless_kernel_is_ended(judge):
    endless = changed(
        (
            "    x = tl.load",
            "    k = tl.load(x_ptr, volatile=True)\n    while k > -1e30:\n"
            "        k = tl.load(x_ptr, volatile=True)\n    x = tl.load",
        )
    )
    verdict = judge.judge(SCALE_SHIFT, endless, replace(UNTIMED, seconds=10.0))
    assert verdict.outcome is Outcome.TIMEOUT
    assert judge.judge(SCALE_SHIFT, Codebase.single(HONEST), UNTIMED).is_correct


def test_too_much_shared_memory_is_a_compile_error(judge):
    greedy = changed(
        (
            "    x = tl.load",
            "    tile = tl.arange(0, 256)\n    a = tl.load(x_ptr + tile[:, None] * 0 + tile[None, :] * 0)\n"
            "    product = tl.dot(a, a, input_precision='ieee')\n    x = tl.sum(tl.sum(product, 1), 0) * 0 + tl.load",
        ),
    )
    verdict = judge.judge(SCALE_SHIFT, greedy, replace(UNTIMED, seconds=200.0))
    assert verdict.outcome in (Outcome.COMPILE_ERROR, Outcome.TIMEOUT)


def test_the_parts_of_a_whole_are_timed(judge):
    verdict = judge.judge(TWO_STEPS, composed(), POLICY)
    assert verdict.outcome is Outcome.CORRECT
    assert {(share.name, share.calls) for share in verdict.shares} == {("opening", 1), ("closing", 1)}
    assert all(share.time_ms > 0 for share in verdict.shares)


def test_a_quick_timing_takes_fewer_runs(judge):
    verdict = judge.judge(SCALE_SHIFT, Codebase.single(HONEST), replace(POLICY, timing=TimingMode.QUICK))
    assert verdict.measured.samples == 20
    assert verdict.speedup is not None
