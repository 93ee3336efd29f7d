"""Every cheat is caught and every honest candidate passes, by judge and reviewer together."""

from dataclasses import replace

import pytest

from mkevolve_core.domain import Codebase, Outcome, Policy, TimingMode
from tests.verifier.corpus import Fixture, load_fixtures
from verifier.judge import LocalJudge
from verifier.reviewer import review
from verifier.sandbox import LocalSandbox

POLICY = Policy(timing=TimingMode.OFF, seconds=60.0, device="cpu")
ON_GPU = replace(POLICY, device="cuda:0")

HONEST = load_fixtures("honest")
CHEATS = load_fixtures("cheats")
# What only the source can show is tested in test_static; these are the ones that must run.
MUST_RUN = [cheat for cheat in CHEATS if cheat.expected != {"cheat"}]
SAMPLE = ("affine", "autotuned_matmul", "two_kernels", "renamed_weights", "tuned_total")
CHEAT_SAMPLE = (
    (
        "ghost_kernel",
        "falls_back",
        "identity_cache",
        "lazy_tensor",
        "not_a_number",
        "padding_wins",
        "one_shape",
    )
    + (
        "wild_pointer",
        "endless_loop",
        "compiles_nowhere",
        "too_much_shared",
        "lower_precision",
        "counts_calls",
    )
    + ("half_of_the_outputs", "tuning_accumulates", "leaves_on_import", "mutates_input")
)


@pytest.fixture(scope="module")
def judge():
    with LocalSandbox() as sandbox, LocalJudge(sandbox) as judge:
        yield judge


def sampled(fixtures, names):
    """The rest only in `make test-all`."""
    return [
        pytest.param(one, id=one.name, marks=() if one.name in names else pytest.mark.slow)
        for one in fixtures
    ]


def outcome_of(judge: LocalJudge, fixture: Fixture, policy: Policy = POLICY):
    if fixture.name == "endless_loop":
        policy = replace(policy, seconds=4.0 if policy.device == "cpu" else 20.0)
    verdict = judge.judge(fixture.problem, Codebase.single(fixture.source), policy)
    if not verdict.is_correct:
        return verdict.outcome, verdict.detail
    found = review(fixture.source, verdict)
    return found.outcome, review.quote


@pytest.mark.parametrize("fixture", sampled(HONEST, SAMPLE))
def test_honest_candidates_are_correct(judge, fixture):
    verdict = judge.judge(fixture.problem, Codebase.single(fixture.source), POLICY)
    assert (verdict.outcome, verdict.detail) == (Outcome.CORRECT, "")
    assert review(fixture.source, verdict).outcome is Outcome.CORRECT


@pytest.mark.parametrize("fixture", sampled(MUST_RUN, CHEAT_SAMPLE))
def test_cheats_are_caught_with_a_reason(judge, fixture):
    outcome, reason = outcome_of(judge, fixture)
    assert outcome.value in fixture.expected, reason
    assert reason


@pytest.mark.gpu
@pytest.mark.parametrize("fixture", HONEST, ids=lambda one: one.name)
def test_honest_candidates_are_correct_on_a_gpu(judge, fixture):
    verdict = judge.judge(fixture.problem, Codebase.single(fixture.source), ON_GPU)
    assert (verdict.outcome, verdict.detail) == (Outcome.CORRECT, "")


@pytest.mark.gpu
@pytest.mark.parametrize("fixture", MUST_RUN, ids=lambda one: one.name)
def test_cheats_are_caught_on_a_gpu(judge, fixture):
    if fixture.name == "unmasked_tail":
        pytest.skip("a GPU does not notice accesses just past the end: only the interpreter checks bounds")
    outcome, reason = outcome_of(judge, fixture, ON_GPU)
    assert outcome.value in fixture.expected, reason


def test_an_estimate_and_resources_come_with_a_correct_verdict_where_there_is_no_gpu(judge):
    honest = next(one for one in HONEST if one.name == "two_kernels")
    verdict = judge.judge(honest.problem, Codebase.single(honest.source), POLICY)
    assert verdict.estimate is not None
    assert verdict.estimate.launches == 2
    assert verdict.estimate.ratio > 0
    assert verdict.resources is not None
    assert verdict.speedup is None
