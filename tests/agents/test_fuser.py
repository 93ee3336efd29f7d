"""The LLM fuser against the real checks: groups become one subproblem each, everything else stays."""

import pytest

from mkevolve_core.agents.decomposer import LLMDecomposer
from mkevolve_core.agents.fuser import LLMFuser
from mkevolve_core.errors import AgentDeclined
from mkevolve_core.llm.values import Role
from mkevolve_core.problem import sample_problems
from mkevolve_core.protocols import PartTime, ReviseTask
from tests.agents.decompositions import REPLIES, checker, never_checked, next_request
from tests.agents.tasks import HARDWARE, PROMPTS, answer, first_request, reply

VISION_TRANSFORMER = sample_problems()[0]
TWO_GROUPS = (REPLIES / "fuse_two_groups.md").read_text()


@pytest.fixture(scope="module")
def current(sandbox):
    (work,) = LLMDecomposer(PROMPTS, HARDWARE, sandbox, 1).workers(VISION_TRANSFORMER)
    return answer(work, first_request(work), (REPLIES / "vision_transformer.md").read_text())


@pytest.fixture
def fuser():
    return LLMFuser(PROMPTS, HARDWARE)


def fuse_task(current, targets=(), **more):
    return ReviseTask(VISION_TRANSFORMER, current, targets, **more)


def names_and_parents(revision):
    return {part.name: part.parents for part in revision.subproblems}


# ------------------------------------------------------------------------------------- asking


def test_with_a_free_choice_the_prompt_holds_every_file(current, fuser):
    times = (PartTime("3", True, 2.0, 0.5, 8),)
    request = first_request(fuser.fuse(fuse_task(current, number=6, times=times), never_checked))
    assert (request.slot, request.role) == ("fuse 6.1", Role.FUSE)
    assert all(part.reference.strip() in request.context for part in current.subproblems)
    assert "3 attention_norm: has a correct subkernel, 2.00 times" in request.task
    assert "3 -> 4" in request.context


def test_with_targets_the_prompt_holds_theirs_alone(current, fuser):
    request = first_request(fuser.fuse(fuse_task(current, ("3", "4")), never_checked))
    assert request.slot == "fuse 1 3+4.1"
    assert current.subproblem("4").reference.strip() in request.context
    assert current.subproblem("5").reference.strip() not in request.prompt
    assert "Fuse attention_norm, feed_forward_norm into one subproblem" in request.task


# ----------------------------------------------------------------------------- what comes of it


def test_two_groups_are_fused_in_one_reply_in_all_their_instances(sandbox, current, fuser):
    adopted = []
    work = fuser.fuse(fuse_task(current), checker(sandbox, VISION_TRANSFORMER, adopted))
    revision = answer(work, first_request(work), TWO_GROUPS)
    assert names_and_parents(revision) == {
        "image_tokens": ("1", "2"),
        "encoder_layer": ("3", "4"),
        "classifier": (),
    }
    assert revision.subproblems[-1] is current.subproblem("5")
    assert [part.instances for part in adopted[0].subproblems] == [1, 6, 1]
    assert adopted[0].ids == ("1a", "3a", "5")


def one_group(text=TWO_GROUPS):
    """Only the encoder layers are fused, and their file does not say of what."""
    begin, end = (
        text.index("### FILE: subkernel_problems/image_tokens.py"),
        text.index("### FILE: subkernel_problems/encoder"),
    )
    text = text[:begin] + text[end:]
    text = text.replace("fuses: attention_norm, feed_forward_norm", "Attention, then feed-forward.")
    text = text.replace(
        "from subkernel_problems.image_tokens import Model as ImageTokens",
        "from subkernel_problems.patch_conv import Model as PatchConv\nfrom subkernel_problems.tokens import Model as Tokens",
    )
    text = text.replace(
        "self.image_tokens = ImageTokens(in_channels, embed_dim, patch_size, patches)",
        "self.patch_conv = PatchConv(in_channels, embed_dim, patch_size)\n        self.tokens = Tokens(embed_dim * patches, embed_dim)",
    )
    text = text.replace("self.image_tokens(x)", "self.tokens(self.patch_conv(x))")
    return text.replace(
        "subkernel_problems/image_tokens.py", "subkernel_problems/patch_conv.py, subkernel_problems/tokens.py"
    )


def test_a_lone_new_file_is_fused_of_what_is_gone(sandbox, current, fuser):
    work = fuser.fuse(fuse_task(current, ("4", "3")), checker(sandbox, VISION_TRANSFORMER, []))
    revision = answer(work, first_request(work), one_group())
    assert names_and_parents(revision)["encoder_layer"] == ("3", "4")
    assert [part.subproblem_id for part in revision.subproblems] == ["1", "2", "3a", "5"]


# --------------------------------------------------------------------------- what does not pass


@pytest.mark.parametrize(
    ("text", "targets", "finding"),
    [
        (
            TWO_GROUPS.replace("fuses: patch_conv, tokens", "Both."),
            (),
            "It is unclear what image_tokens is fused of: its docstring needs a line 'fuses: <name>, <name>'.",
        ),
        (
            TWO_GROUPS.replace("fuses: patch_conv, tokens", "fuses: patch_conv, tokens, attention_norm"),
            (),
            "attention_norm is fused into 2 new subproblems",
        ),
        (
            TWO_GROUPS.replace("fuses: patch_conv, tokens", "fuses: tokens"),
            (),
            "image_tokens is fused of tokens alone",
        ),
        (
            TWO_GROUPS.replace("fuses: patch_conv, tokens", "fuses: patch_conv, tokens, classifier"),
            (),
            "classifier is fused, but still used by the top-level module",
        ),
        (
            TWO_GROUPS.replace("fuses: patch_conv, tokens", "fuses: patches, tokens"),
            (),
            "image_tokens says that it fuses patches, which the decomposition has not.",
        ),
        (
            TWO_GROUPS,
            ("3", "4"),
            "Only attention_norm, feed_forward_norm are to be fused, all of them into one new subproblem.",
        ),
    ],
)
def test_what_is_no_fusion_is_told_without_running_it(current, fuser, text, targets, finding):
    work = fuser.fuse(fuse_task(current, targets), never_checked)
    request = next_request(work, first_request(work), text)
    assert finding in request.task


def test_a_changed_file_that_is_not_fused_is_told(current, fuser):
    classifier = current.subproblem("5").reference.replace("x[:, 0]", "x.select(1, 0)")
    text = f"### FILE: subkernel_problems/classifier.py\n```python\n{classifier}```\n\n### FILE: decomposed_problem.py"
    work = fuser.fuse(fuse_task(current), never_checked)
    request = next_request(
        work, first_request(work), TWO_GROUPS.replace("### FILE: decomposed_problem.py", text, 1)
    )
    assert "classifier is not fused, but its file is changed" in request.task


def test_the_same_decomposition_again_is_no_fusion(current, fuser):
    text = (REPLIES / "vision_transformer.md").read_text()
    work = fuser.fuse(fuse_task(current), never_checked)
    request = next_request(work, first_request(work), text)
    assert "The reply holds no new subproblem" in request.task


def test_the_checks_findings_stand_in_the_next_prompt(sandbox, current, fuser):
    work = fuser.fuse(fuse_task(current), checker(sandbox, VISION_TRANSFORMER, []))
    wrong = TWO_GROUPS.replace("torch.relu(self.linear1(x))", "self.linear1(x)")
    request = next_request(work, first_request(work), wrong)
    assert "On the sample inputs the decomposition differs from the problem" in request.task
    assert len(answer(work, request, TWO_GROUPS).subproblems) == 3


def test_the_reason_given_for_no_fusion_is_the_agents(current, fuser):
    work = fuser.fuse(fuse_task(current), never_checked)
    request = first_request(work)
    with pytest.raises(AgentDeclined, match="^all products are heavy$"):
        work.send(reply(request, "Everything is fine.\n\nNO_FUSION: all products are heavy"))


def test_after_the_last_attempt_it_declines(current, fuser):
    work = fuser.fuse(fuse_task(current), never_checked)
    request = first_request(work)
    for _ in range(2):
        request = next_request(work, request, "no files")
    with pytest.raises(AgentDeclined, match="no fused decomposition was found: 3 attempts did not pass"):
        work.send(reply(request, "no files"))


@pytest.mark.parametrize("targets", [("3",), ("3", "3")])
def test_one_target_is_declined(current, fuser, targets):
    with pytest.raises(AgentDeclined, match="at least two"):
        next(fuser.fuse(fuse_task(current, targets), never_checked))
