"""The LLM writer: which template it asks with, and what it makes of every kind of reply."""

import pytest

from mkevolve_core.agents.writer import LLMWriter, idea
from mkevolve_core.domain import Outcome, Review, Verdict
from mkevolve_core.errors import NoDraft
from mkevolve_core.llm.values import Expects, FailureKind, Role, Stop
from tests.agents.tasks import (
    BASELINES,
    CORRECT,
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
    write_task,
)

OTHER = SUBKERNEL.replace("BLOCK_M=64", "BLOCK_M=128")
LOWERED = Review(Outcome.CHEAT, "line 12: torch.relu(x)", "some-model")


def writer(**more) -> LLMWriter:
    return LLMWriter(PROMPTS, HARDWARE, 7, **more)


@pytest.mark.parametrize(
    ("parent", "role", "template"),
    [
        (None, Role.GENERATE, "generate.j2"),
        (judged(WRONG), Role.DEBUG, "debug.j2"),
        (judged(CORRECT), Role.REFINE, "refine.j2"),
        (judged(CORRECT, review=LOWERED), Role.DEBUG, "debug.j2"),
        (judged(CORRECT, review=Review(Outcome.CORRECT)), Role.REFINE, "refine.j2"),
    ],
)
def test_the_parent_decides_the_template(parent, role, template):
    request = first_request(writer().write(write_task(parent)))
    assert request.role is role
    assert request.template.startswith(f"{template} ")
    assert (request.slot, request.subproblem_id, request.expects) == ("4a#17", "4a", Expects.KERNEL)


def test_an_alternative_writer_asks_in_its_own_role():
    request = first_request(writer(role=Role.ALTERNATIVE).write(write_task(judged(CORRECT))))
    assert request.role is Role.ALTERNATIVE
    assert request.template.startswith("refine.j2 ")


def test_a_good_reply_becomes_a_draft_of_the_model_that_gave_it():
    work = writer().write(write_task())
    draft = answer(work, first_request(work), block(SUBKERNEL, "two tiled products"))
    assert (draft.source, draft.author, draft.note) == (SUBKERNEL, "some-model", "two tiled products")


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import triton\n\nclass ModelNew(:\n    pass\n", "not Python"),
        ("import torch\n\nclass ModelNew(torch.nn.Module):\n    pass\n", "no kernel"),
    ],
)
def test_code_that_breaks_the_rules_is_left_to_the_judge(source, what):
    work = writer().write(write_task())
    assert "class ModelNew" in answer(work, first_request(work), block(source)).source, what


@pytest.mark.parametrize(
    ("text", "stop", "outcome", "words"),
    [
        ("I would tile it.", Stop.END, "nocode", "no Python block"),
        ("", Stop.END, "empty", "no answer"),
        ("<think>hm</think>", Stop.END, "empty", "no answer"),
        ("```python\nimport triton\n@triton.jit\ndef k(", Stop.LENGTH, "truncated", "shorter answer"),
        (block(SUBKERNEL), Stop.END, "no_change", "unchanged"),
    ],
)
def test_a_reply_without_a_draft_is_asked_for_again_and_told_what_was_wrong(text, stop, outcome, words):
    work = writer().write(write_task(judged(CORRECT)))
    first = first_request(work)
    second = work.send(reply(first, text, stop))
    assert (second.slot, second.reask) == ("4a#17~1", 1)
    assert words in second.task
    third = work.send(reply(second, text, stop))
    assert (third.slot, third.reask) == ("4a#17~2", 2)
    with pytest.raises(NoDraft) as raised:
        work.send(reply(third, text, stop))
    assert raised.value.outcome == outcome


def test_a_re_ask_only_adds_to_the_end_of_the_prompt():
    work = writer().write(write_task(judged(WRONG)))
    first = first_request(work)
    second = work.send(reply(first, "no code"))
    assert second.prompt.startswith(first.prompt)
    assert (second.role, second.template, second.expects) == (first.role, first.template, first.expects)


def test_the_re_ask_may_bring_the_draft():
    work = writer().write(write_task(judged(CORRECT)))
    again = work.send(reply(first_request(work), block(SUBKERNEL)))
    assert answer(work, again, block(OTHER, "larger tiles")).source == OTHER


def test_the_reference_given_back_is_no_draft():
    renamed = SUBKERNEL + "\n"
    work = writer().write(write_task(judged(CORRECT, source=renamed)))
    assert work.send(reply(first_request(work), block(FFN))).slot == "4a#17~1"


@pytest.mark.parametrize(
    ("stop", "failure", "outcome"),
    [
        (Stop.REFUSAL, None, "refusal"),
        (Stop.CONTEXT, None, "context"),
        (Stop.END, FailureKind.DEADLINE, "failed"),
        (Stop.END, FailureKind.CONTEXT, "context"),
    ],
)
def test_what_another_try_would_not_change_is_not_asked_again(stop, failure, outcome):
    work = writer().write(write_task())
    with pytest.raises(NoDraft) as raised:
        work.send(reply(first_request(work), "I can't.", stop, failure))
    assert raised.value.outcome == outcome
    assert str(raised.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("IDEA: one kernel", "one kernel"),
        ("Some words.\n\n**IDEA:** one *fast* kernel\n```python\n# IDEA: not this\n```", "one *fast* kernel"),
        ("- Idea - one kernel", "one kernel"),
        ("> idea: one kernel", "one kernel"),
        ("<think>IDEA: not this</think>\nIDEA: this", "this"),
        ("IDEA: first\nIDEA: last", "last"),
        ("The idea is good.", ""),
        ("```python\n# IDEA: in a comment\n```", ""),
        ("IDEA: " + "x" * 300, "x" * 197 + "..."),
    ],
)
def test_the_idea_is_read_however_it_is_dressed(text, found):
    assert idea(text) == found


# ------------------------------------------------------------------------------ what it is told


def test_neighbouring_candidates_look_from_different_angles():
    tasks = [write_task(), write_task()]
    object.__setattr__(tasks[1], "ordinal", 18)
    prompts = {first_request(writer().write(task)).task for task in tasks}
    assert len(prompts) == 2


def test_the_same_task_gives_the_same_prompt_and_another_seed_another_one():
    def prompt(seed):
        return first_request(LLMWriter(PROMPTS, HARDWARE, seed).write(write_task())).prompt

    assert prompt(7) == prompt(7)
    assert len({prompt(seed) for seed in range(6)}) > 1


def test_a_first_version_is_told_the_times_to_beat_and_the_engineers_hints():
    task = write_task(baselines=BASELINES, hints=("fold the norm into the first product",))
    told = first_request(writer().write(task)).task
    assert "torch.compile of the reference: 1 ms" in told
    assert "fold the norm into the first product" in told


def test_debugging_shows_the_file_the_message_and_what_was_tried():
    before = judged(Verdict(Outcome.COMPILE_ERROR, "x"), "4a#3", "one kernel for all")
    task = write_task(judged(WRONG, note="two kernels"), lineage=(before,))
    told = first_request(writer().write(task)).task
    assert SUBKERNEL.strip() in told
    assert "[3, 17]: got 0.5, expected -0.7" in told
    assert "two kernels -> wrong result: 1 of 2 cases" in told
    assert "one kernel for all -> compile error: x" in told
    assert "smallest change" in told


def test_failing_twice_in_one_way_asks_for_another_form():
    task = write_task(judged(WRONG), lineage=(judged(WRONG, "4a#3"),))
    assert "write it differently" in first_request(writer().write(task)).task


def test_refining_shows_times_resources_siblings_and_what_was_tried():
    sibling = judged(CORRECT, "4a#9", "persistent programs")
    task = write_task(judged(CORRECT, note="grouped order"), siblings=(sibling,))
    told = first_request(writer().write(task)).task
    assert "time of one forward: 0.8 ms" in told
    assert "speedup over torch.compile: 1.25x" in told
    assert "registers a thread, most of all kernels: 134" in told
    assert "persistent programs -> correct, 1.25x" in told
    assert "grouped order -> correct, 1.25x" in told


def test_a_reviewers_objection_is_shown_where_the_judge_had_none():
    told = first_request(writer().write(write_task(judged(CORRECT, review=LOWERED)))).task
    assert "refused as cheating" in told
    assert "line 12: torch.relu(x)" in told
