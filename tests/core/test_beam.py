from mkevolve_core.beam import parents, survivors
from mkevolve_core.domain import Candidate, Outcome, Review, Verdict
from mkevolve_core.state import CandidateState
from tests.core.fakes import verdict_of


def one(name: str, verdict: Verdict | None, sha: str | None = None, **more) -> CandidateState:
    return CandidateState(Candidate(name, "1", sha or name, None, 1, "built-in"), verdict, **more)


def test_faster_first_then_nearer_to_correct():
    found = survivors(
        [
            one("compile", Verdict(Outcome.COMPILE_ERROR)),
            one("slow", verdict_of(2.0)),
            one("wrong", verdict_of(None)),
            one("fast", verdict_of(0.5)),
        ],
        4,
    )
    assert found == ("fast", "slow", "wrong", "compile")


def test_the_same_source_takes_one_place():
    found = survivors([one("a", verdict_of(1.0), "s"), one("b", verdict_of(1.0), "s"), one("c", None)], 4)
    assert found == ("b",)


def test_what_the_reviewer_objects_to_ranks_below_every_honest_failure():
    cheat = one("cheat", verdict_of(0.1), review=Review(Outcome.CHEAT, "line 3"))
    assert survivors([cheat, one("wrong", verdict_of(None))], 2) == ("wrong", "cheat")


def test_what_the_engineer_struck_out_is_gone():
    assert survivors([one("a", verdict_of(1.0), rejected="no")], 2) == ()


def test_an_empty_beam_starts_with_its_width_and_a_full_one_expands_each_member():
    assert parents((), 4, 1, 10) == (None,) * 4
    assert parents(("a", "b"), 4, 2, 3) == ("a", "a", "b")
