"""The LLM splitter against the real checks: exactly two for each target, everything else as it was."""

import pytest

from mkevolve_core.agents.decomposer import LLMDecomposer
from mkevolve_core.agents.splitter import LLMSplitter
from mkevolve_core.errors import AgentDeclined
from mkevolve_core.llm.values import Expects, Role, Stop
from mkevolve_core.problem import sample_problems
from mkevolve_core.protocols import PartTime, ReviseTask
from tests.agents.decompositions import (
    FILES,
    PROBLEM,
    REPLIES,
    SCALED_LINEAR,
    changed,
    checker,
    files_reply,
    never_checked,
    next_request,
)
from tests.agents.tasks import HARDWARE, PROMPTS, answer, first_request, reply

TOP = "decomposed_problem.py"
VISION_TRANSFORMER = sample_problems()[0]

SPLIT_TOP = """
import torch.nn as nn

from subkernel_problems.gain import Model as Gain
from subkernel_problems.linear_relu import Model as LinearRelu
from subkernel_problems.linear_softmax import Model as LinearSoftmax


class ModelNew(nn.Module):
    def __init__(self, n, k):
        super().__init__()
        self.gain = Gain(n)
        self.linear_relu = LinearRelu(n, k)
        self.linear_softmax = LinearSoftmax(k, n)

    def forward(self, x):
        return self.linear_softmax(self.linear_relu(self.gain(x)))
"""
GAIN = '''
"""Gain for each feature."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(n))

    def forward(self, x):
        return x * self.gain


def get_inputs():
    return [torch.randn(4, 6)]


def get_init_inputs():
    return [6]
'''
LINEAR_RELU = (
    SCALED_LINEAR.replace("Scaled linear", "Linear")
    .replace("x * self.gain", "x")
    .replace("        self.gain = nn.Parameter(torch.randn(n))\n", "")
)
SPLIT = {
    TOP: SPLIT_TOP,
    "subkernel_problems/gain.py": GAIN,
    "subkernel_problems/linear_relu.py": LINEAR_RELU,
}
KEPT = ("subkernel_problems/linear_softmax.py",)


@pytest.fixture(scope="module")
def current(sandbox):
    (work,) = LLMDecomposer(PROMPTS, HARDWARE, sandbox, 1).workers(PROBLEM)
    return answer(work, first_request(work), files_reply())


@pytest.fixture
def splitter():
    return LLMSplitter(PROMPTS, HARDWARE)


def split_task(current, **more):
    return ReviseTask(PROBLEM, current, more.pop("targets", ("1",)), **more)


# ------------------------------------------------------------------------------------- asking


def test_the_prompt_holds_the_top_level_and_the_target_and_no_other_file(current, splitter):
    times = (
        PartTime("1", False, None, 0.25, 8, ("wrong_result: 3 of 5 cases are wrong", "timeout: 300 s")),
        PartTime("2", True, 1.5, 0.125, 6),
    )
    task = split_task(current, hint="the gain apart", number=4, times=times, refused=("1 into three: no",))
    request = first_request(splitter.split(task, never_checked))
    assert (request.slot, request.role, request.subproblem_id) == ("split 4 1.1", Role.SPLIT, "1")
    assert request.expects is Expects.FILES
    assert current.top_level.strip() in request.context
    assert current.subproblem("1").reference.strip() in request.context
    assert current.subproblem("2").reference.strip() not in request.prompt
    for said in (
        "has no correct subkernel after 8 kernel-writing calls",
        "wrong_result: 3 of 5 cases are wrong",
        "1.50 times the speed of its baseline",
        "0.2500 ms",
        "the gain apart",
        "1 into three: no",
    ):
        assert said in request.task


def test_splits_of_different_targets_have_slots_of_their_own(current, splitter):
    slots = {
        first_request(splitter.split(split_task(current, targets=targets), never_checked)).slot
        for targets in (("1",), ("2",), ("1", "2"))
    }
    assert slots == {"split 1 1.1", "split 1 2.1", "split 1 1+2.1"}


# ----------------------------------------------------------------------------- what comes of it


def test_two_new_subproblems_come_from_the_target_and_the_others_stay(sandbox, current, splitter):
    adopted = []
    work = splitter.split(split_task(current), checker(sandbox, PROBLEM, adopted))
    revision = answer(work, first_request(work), files_reply(SPLIT, KEPT))
    assert [(part.name, part.parents) for part in revision.subproblems] == [
        ("gain", ("1",)),
        ("linear_relu", ("1",)),
        ("linear_softmax", ()),
    ]
    assert revision.subproblems[2] is current.subproblem("2")
    assert [part.subproblem_id for part in revision.subproblems] == ["1a", "1b", "2"]
    assert revision.subproblems[0].title == "Gain for each feature"
    assert dict(adopted[0].weight_map)["gain.gain"] == "gain"


def test_an_untouched_file_that_is_repeated_stays_what_it_was(sandbox, current, splitter):
    repeated = {**SPLIT, KEPT[0]: FILES[KEPT[0]]}
    work = splitter.split(split_task(current), checker(sandbox, PROBLEM, []))
    revision = answer(work, first_request(work), files_reply(repeated))
    assert revision.subproblems[2] is current.subproblem("2")


def test_a_written_split_of_six_attentions_passes(sandbox):
    (work,) = LLMDecomposer(PROMPTS, HARDWARE, sandbox, 1).workers(VISION_TRANSFORMER)
    current = answer(work, first_request(work), (REPLIES / "vision_transformer.md").read_text())
    adopted = []
    task = ReviseTask(VISION_TRANSFORMER, current, ("3",))
    work = LLMSplitter(PROMPTS, HARDWARE).split(task, checker(sandbox, VISION_TRANSFORMER, adopted))
    answer(work, first_request(work), (REPLIES / "split_attention.md").read_text())
    (found,) = adopted
    assert found.ids == ("1", "2", "3a", "3b", "4", "5")
    assert [part.instances for part in found.subproblems] == [1, 1, 6, 6, 6, 1]
    assert [part.name for part in found.subproblems if part.parents == ("3",)] == [
        "packed_projection",
        "attend_norm",
    ]
    pairs = dict(found.weight_map)
    assert pairs["project_4.in_proj_weight"] == "transformer_layers.4.self_attn.in_proj_weight"


def test_two_targets_are_told_apart_by_their_splits_lines(sandbox, current, splitter):
    top = SPLIT_TOP.replace("linear_softmax import Model as LinearSoftmax", "linear import Model as Linear")
    top = top.replace(
        "self.linear_softmax = LinearSoftmax(k, n)",
        "self.linear = Linear(k, n)\n        self.softmax = Softmax()",
    )
    top = top.replace(
        "self.linear_softmax(self.linear_relu(self.gain(x)))",
        "self.softmax(self.linear(self.linear_relu(self.gain(x))))",
    )
    top = top.replace("\n\n\nclass", "\nfrom subkernel_problems.softmax import Model as Softmax\n\n\nclass")
    plain = FILES["subkernel_problems/linear_softmax.py"]
    linear = plain.replace("torch.softmax(self.second(x), dim=-1)", "self.second(x)")
    softmax = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(4, 6)]


def get_init_inputs():
    return []
"""
    texts = {
        "gain": (GAIN, "scaled_linear"),
        "linear_relu": (LINEAR_RELU, "1"),
        "linear": (linear, "linear_softmax"),
        "softmax": (softmax, "2"),
    }
    files = {TOP: top}
    for name, (text, origin) in texts.items():
        body = text.replace('"""Gain for each feature."""', "").replace('"""Linear layer with ReLU."""', "")
        files[f"subkernel_problems/{name}.py"] = f'"""{name}.\n\nsplits: {origin}\n"""\n{body}'
    work = splitter.split(split_task(current, targets=("1", "2")), checker(sandbox, PROBLEM, []))
    revision = answer(work, first_request(work), files_reply(files))
    assert [(part.name, part.parents) for part in revision.subproblems] == [
        ("gain", ("1",)),
        ("linear_relu", ("1",)),
        ("linear", ("2",)),
        ("softmax", ("2",)),
    ]


# --------------------------------------------------------------------------- what does not pass


def without(files, path):
    return {key: text for key, text in files.items() if key != path}


ONE_HALF = without(
    changed(
        changed(
            changed(SPLIT, TOP, "from subkernel_problems.gain import Model as Gain\n", ""),
            TOP,
            "        self.gain = Gain(n)\n",
            "",
        ),
        TOP,
        "self.linear_relu(self.gain(x))",
        "self.linear_relu(x)",
    ),
    "subkernel_problems/gain.py",
)


@pytest.mark.parametrize(
    ("files", "finding"),
    [
        (ONE_HALF, "scaled_linear must become exactly two new subproblems; there are 1: linear_relu."),
        (
            {**SPLIT, KEPT[0]: FILES[KEPT[0]].replace("torch.softmax", "torch.nn.functional.softmax")},
            "linear_softmax is not to be split, but its file is changed; leave it as it is.",
        ),
        (
            changed(
                SPLIT,
                TOP,
                "        self.gain = Gain(n)\n",
                "        self.gain = Gain(n)\n        self.old = Old(n, k)\n",
            )
            | {
                TOP: SPLIT_TOP.replace(
                    "\n\n\nclass", "\nfrom subkernel_problems.scaled_linear import Model as Old\n\n\nclass"
                )
            },
            "scaled_linear is to be split, but the top-level module still uses it",
        ),
    ],
)
def test_what_is_no_split_in_two_is_told_without_running_it(current, splitter, files, finding):
    work = splitter.split(split_task(current), never_checked)
    request = next_request(work, first_request(work), files_reply(files, KEPT))
    assert request.slot == "split 1 1.2"
    assert finding in request.task


def test_the_checks_findings_stand_in_the_next_prompt(sandbox, current, splitter):
    work = splitter.split(split_task(current), checker(sandbox, PROBLEM, []))
    wrong = changed(SPLIT, "subkernel_problems/gain.py", "torch.randn(4, 6)", "torch.randn(4, 6, 1)")
    request = next_request(work, first_request(work), files_reply(wrong, KEPT))
    assert "gain: the top-level module uses" in request.task
    revision = answer(work, request, files_reply(SPLIT, KEPT))
    assert len(revision.subproblems) == 3


def test_the_reason_given_for_no_split_is_the_agents(current, splitter):
    work = splitter.split(split_task(current), never_checked)
    request = first_request(work)
    with pytest.raises(AgentDeclined, match="^it is one matrix product$"):
        work.send(reply(request, "CANNOT_SPLIT: it is one matrix product"))


def test_after_the_last_attempt_it_declines(current, splitter):
    work = splitter.split(split_task(current), never_checked)
    request = first_request(work)
    for _ in range(2):
        request = next_request(work, request, "cut", stop=Stop.LENGTH)
    with pytest.raises(AgentDeclined, match="Scaled linear layer with ReLU could not be split: 3 attempts"):
        work.send(reply(request, files_reply(ONE_HALF, KEPT)))


def test_no_target_is_declined(current, splitter):
    with pytest.raises(AgentDeclined, match="No subproblem"):
        next(splitter.split(split_task(current, targets=()), never_checked))
