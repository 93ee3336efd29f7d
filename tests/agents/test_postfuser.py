"""The LLM post-fuser: the composed files in, one file out."""

import pytest

from mkevolve_core.agents.postfuser import LLMPostFuser
from mkevolve_core.domain import Codebase, Outcome, Problem, Review, SourceFile
from mkevolve_core.errors import NoDraft
from mkevolve_core.llm.values import Expects, Role
from mkevolve_core.protocols import PostFuseTask
from tests.agents.tasks import (
    CORRECT,
    ESTIMATED,
    FFN,
    HARDWARE,
    PROMPTS,
    SUBKERNEL,
    WRONG,
    answer,
    block,
    first_request,
    judged,
    reply,
)

TOP = "from .subkernel_implementations.transformer_ffn import ModelNew as Ffn\n"
COMPOSED = Codebase(
    "decomposed_solution.py",
    (
        SourceFile("__init__.py", "from .decomposed_solution import ModelNew as ModelNew\n"),
        SourceFile("decomposed_solution.py", TOP),
        SourceFile("subkernel_implementations/__init__.py", ""),
        SourceFile("subkernel_implementations/transformer_ffn.py", SUBKERNEL),
    ),
)
EARLIER = SUBKERNEL.replace("BLOCK_M=64", "BLOCK_M=32")


def postfuse(ordinal=1, previous=None, whole=CORRECT):
    task = PostFuseTask(Problem("ffn", FFN), COMPOSED, whole, ordinal, previous)
    return LLMPostFuser(PROMPTS, HARDWARE).postfuse(task)


def test_the_first_try_sees_the_problem_all_files_and_their_time():
    request = first_request(postfuse())
    assert (request.slot, request.role, request.expects) == ("postfuse 1", Role.POSTFUSE, Expects.KERNEL)
    assert request.subproblem_id is None
    for text in (FFN, TOP, SUBKERNEL):
        assert text.strip() in request.context
    assert "time of one forward: 0.8 ms" in request.context
    assert "__init__.py" not in request.context
    assert "Write one file" in request.task


def test_the_next_try_goes_on_from_a_correct_one():
    request = first_request(postfuse(2, judged(CORRECT, source=EARLIER)))
    assert request.slot == "postfuse 2"
    assert "which is correct" in request.task
    assert EARLIER.strip() in request.task
    assert "speedup over torch.compile: 1.25x" in request.task


@pytest.mark.parametrize(
    ("verdict", "review", "words"),
    [
        (WRONG, None, "[3, 17]: got 0.5, expected -0.7"),
        (CORRECT, Review(Outcome.CHEAT, "line 12: torch.relu(x)"), "line 12: torch.relu(x)"),
    ],
)
def test_the_next_try_mends_one_that_does_not_count(verdict, review, words):
    task = first_request(postfuse(2, judged(verdict, source=EARLIER, review=review))).task
    assert "which failed" in task
    assert words in task


def test_what_is_sent_first_is_the_same_for_every_try():
    first, second = (first_request(postfuse(n, p)) for n, p in ((1, None), (2, judged(WRONG))))
    assert (first.system, first.context) == (second.system, second.context)
    assert first.task != second.task


def test_without_a_gpu_the_wholes_time_is_an_estimate():
    context = first_request(postfuse(whole=ESTIMATED)).context
    assert "estimates of a roofline model, not measurements" in context


def test_a_reply_becomes_a_draft():
    work = postfuse(2, judged(CORRECT, source=EARLIER))
    draft = answer(work, first_request(work), block(SUBKERNEL, "norm within the product"))
    assert (draft.source, draft.author, draft.note) == (SUBKERNEL, "some-model", "norm within the product")


def test_the_earlier_file_again_is_asked_for_again_and_then_given_up():
    work = postfuse(2, judged(CORRECT, source=EARLIER))
    request = first_request(work)
    for number in (1, 2):
        request = work.send(reply(request, block(EARLIER)))
        assert request.slot == f"postfuse 2~{number}"
    with pytest.raises(NoDraft) as raised:
        work.send(reply(request, block(EARLIER)))
    assert raised.value.outcome == "no_change"
