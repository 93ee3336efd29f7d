"""The LLM decomposer against the real checks: what it asks, what it makes of replies, when it gives up."""

import pytest

from mkevolve_core.agents.decomposer import LLMDecomposer
from mkevolve_core.domain import Problem
from mkevolve_core.errors import DecompositionError, SandboxError
from mkevolve_core.llm.values import Expects, FailureKind, Role, Stop
from mkevolve_core.problem import sample_problems
from tests.agents.decompositions import FILES, PROBLEM, REPLIES, changed, files_reply, next_request
from tests.agents.tasks import HARDWARE, PROMPTS, answer, first_request, reply

TOP = "decomposed_problem.py"
LINEAR = "subkernel_problems/linear_softmax.py"
VISION_TRANSFORMER = sample_problems()[0]
ARITHMETIC = changed(FILES, TOP, "self.scaled_linear(x))", "self.scaled_linear(x * 1.0))")
WRONG_SHAPE = changed(FILES, LINEAR, "torch.randn(4, 10)", "torch.randn(5, 10)")


@pytest.fixture
def decomposer(sandbox):
    return LLMDecomposer(PROMPTS, HARDWARE, sandbox, workers=3)


@pytest.fixture
def worker(decomposer):
    return decomposer.workers(PROBLEM)[0]


def gives_up(work, request, text="", **more):
    with pytest.raises(DecompositionError) as raised:
        work.send(reply(request, text, **more))
    return str(raised.value)


# ------------------------------------------------------------------------------------- asking


def test_workers_differ_in_their_emphasis_alone(decomposer):
    requests = [first_request(work) for work in decomposer.workers(PROBLEM)]
    assert [request.slot for request in requests] == ["decompose 1.1", "decompose 2.1", "decompose 3.1"]
    assert len({request.task for request in requests}) == 3
    assert len({(request.system, request.context) for request in requests}) == 1


def test_the_prompt_holds_problem_and_device_and_asks_for_files(worker):
    request = first_request(worker)
    assert PROBLEM.source.strip() in request.context
    assert "NVIDIA H200" in request.context
    assert PROBLEM.source.strip() not in request.system + request.task
    assert (request.role, request.expects) == (Role.DECOMPOSE, Expects.FILES)
    assert request.template.startswith("decompose.j2 ")


def test_the_example_in_the_prompt_passes_every_check(sandbox):
    source = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)
        self.temperature = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return torch.softmax(self.temperature * torch.relu(self.fc2(torch.relu(self.fc1(x)))), dim=-1)


def get_inputs():
    return [torch.randn(8, 64)]


def get_init_inputs():
    return [64, 256]
"""
    (work,) = LLMDecomposer(PROMPTS, HARDWARE, sandbox, 1).workers(Problem("example", source))
    request = first_request(work)
    found = answer(work, request, request.system[request.system.index("### FILE:") :])
    assert [(part.name, part.instances) for part in found.subproblems] == [
        ("linear_relu", 2),
        ("scaled_softmax", 1),
    ]


# ----------------------------------------------------------------------------- what comes of it


def test_a_good_reply_is_a_decomposition_with_weights_flow_and_titles(worker):
    found = answer(worker, first_request(worker), files_reply())
    assert found.ids == ("1", "2")
    assert [part.name for part in found.subproblems] == ["scaled_linear", "linear_softmax"]
    assert [part.title for part in found.subproblems] == ["Scaled linear layer with ReLU", "Linear softmax"]
    assert found.flow == (("1", "2"),)
    assert dict(found.weight_map)["scaled_linear.gain"] == "gain"
    assert found.fallback is None


def test_a_written_decomposition_of_the_vision_transformer_passes(sandbox):
    (work,) = LLMDecomposer(PROMPTS, HARDWARE, sandbox, 1).workers(VISION_TRANSFORMER)
    found = answer(work, first_request(work), (REPLIES / "vision_transformer.md").read_text())
    assert {part.name: part.instances for part in found.subproblems} == {
        "patch_conv": 1,
        "tokens": 1,
        "attention_norm": 6,
        "feed_forward_norm": 6,
        "classifier": 1,
    }
    pairs = dict(found.weight_map)
    assert pairs["tokens.cls_token"] == "cls_token"
    assert pairs["attention_3.self_attn.in_proj_weight"] == "transformer_layers.3.self_attn.in_proj_weight"
    assert len(pairs) == 3 + 2 + 6 * 12 + 2


def test_norms_made_in_loops_of_their_own_find_their_weights(sandbox):
    """Constants are alike in all layers, and the random numbers come in another order."""
    text = (REPLIES / "vision_transformer.md").read_text()
    made_first = "            attention = AttentionNorm(embed_dim, num_heads)\n"
    kept = '            setattr(self, f"attention_{i}", attention)\n'
    text = text.replace(kept, "")
    text = text.replace(made_first, made_first + kept + "        for i in range(num_layers):\n")
    text = text.replace("            self.attentions.append(attention)\n", "")
    text = text.replace(kept, kept + "            self.attentions.append(attention)\n")
    (work,) = LLMDecomposer(PROMPTS, HARDWARE, sandbox, 1).workers(VISION_TRANSFORMER)
    pairs = dict(answer(work, first_request(work), text).weight_map)
    assert pairs["attention_5.norm1.weight"] == "transformer_layers.5.norm1.weight"


# --------------------------------------------------------------------------- what does not pass


@pytest.mark.parametrize(
    ("files", "finding"),
    [
        (ARITHMETIC, "decomposed_problem.py, line 16: 'x * 1.0' is arithmetic"),
        (WRONG_SHAPE, "linear_softmax: the top-level module uses"),
        (changed(FILES, LINEAR, "dim=-1", "dim=0"), "On the sample inputs the decomposition differs"),
        (changed(FILES, LINEAR, "self.second(x)", "self.third(x)"), "has no attribute 'third'"),
        (
            changed(
                FILES,
                LINEAR,
                "import torch\n",
                "import torch\nfrom subkernel_problems import scaled_linear\n",
            ),
            "each must stand alone",
        ),
    ],
)
def test_findings_and_the_proposal_stand_in_the_next_prompt(worker, files, finding):
    request = next_request(worker, first_request(worker), files_reply(files))
    assert request.slot == "decompose 1.2"
    assert finding in request.task
    assert files[TOP].strip() in request.task
    found = answer(worker, request, files_reply())
    assert found.ids == ("1", "2")


def test_a_broken_decomposition_of_the_vision_transformer_says_what_is_wrong(sandbox):
    text = (REPLIES / "vision_transformer.md").read_text()
    text = text.replace("for _ in range(6)]", "for _ in range(5)]", 1)
    text = text.replace("return self.classifier(x)", "return self.classifier(x[:, :1])")
    (work,) = LLMDecomposer(PROMPTS, HARDWARE, sandbox, 1).workers(VISION_TRANSFORMER)
    request = next_request(work, first_request(work), text)
    assert "The top-level module computes by itself: slice." in request.task
    assert "attention_norm has 6 uses, but its get_input_configs gives 5 entries." in request.task


def test_other_random_numbers_are_told(worker):
    files = changed(FILES, "subkernel_problems/scaled_linear.py", "torch.randn(n)", "torch.ones(n)")
    files = changed(files, LINEAR, "dim=-1", "dim=0")
    request = next_request(worker, first_request(worker), files_reply(files))
    assert "the random state differed from the original's" in request.task


def test_after_the_last_attempt_it_gives_up_with_the_last_findings(worker):
    request = first_request(worker)
    for number in (2, 3):
        request = next_request(worker, request, files_reply(ARITHMETIC))
        assert request.slot == f"decompose 1.{number}"
    reason = gives_up(worker, request, files_reply(WRONG_SHAPE))
    assert reason.startswith("3 attempts did not pass; the last: linear_softmax: the top-level module uses")


# ------------------------------------------------------------------------- replies without files


def test_a_cut_off_reply_counts_as_an_attempt_and_is_told_as_such(worker):
    first = first_request(worker)
    request = next_request(worker, first, files_reply()[:300], stop=Stop.LENGTH)
    assert request.slot == "decompose 1.2"
    assert "cut off by its length limit" in request.task
    assert "The checks found" not in request.task


def test_a_reply_that_breaks_the_form_is_shown_with_what_is_wrong(worker):
    files = changed(FILES, TOP, "import Model as ScaledLinear", "import Model as ScaledLinear, get_inputs")
    request = next_request(worker, first_request(worker), files_reply(files))
    assert "Line 6 of decomposed_problem.py must read" in request.task
    assert files_reply(files) in request.task
    assert "The checks found" not in request.task


def test_findings_outlive_a_reply_that_cannot_be_read(worker):
    request = next_request(worker, first_request(worker), files_reply(ARITHMETIC))
    request = next_request(worker, request, "I would rather talk about it.")
    assert "holds no file" in request.task
    assert "'x * 1.0' is arithmetic" in request.task


@pytest.mark.parametrize(
    "more",
    [
        {"failure": FailureKind.DEADLINE},
        {"text": "No.", "stop": Stop.REFUSAL},
        {"text": "", "stop": Stop.END},
    ],
)
def test_no_prompt_speaks_of_a_reply_that_never_came(worker, more):
    first = first_request(worker)
    second = next_request(worker, first, **more)
    assert (second.prompt, second.slot) == (first.prompt, "decompose 1.2")


def test_the_reason_says_that_there_was_no_reply(worker):
    request = first_request(worker)
    for _ in range(2):
        request = next_request(worker, request, failure=FailureKind.DEADLINE)
    reason = gives_up(worker, request, failure=FailureKind.DEADLINE)
    assert reason == "3 attempts did not pass; the last: there was no reply (deadline). the server is gone"


def test_declining_is_no_decomposition(worker):
    reason = gives_up(worker, first_request(worker), "CANNOT_DECOMPOSE: it is one matrix product")
    assert reason == "the LLM declined: it is one matrix product"


def test_a_failing_sandbox_is_no_finding(worker):
    class Broken:
        def run(self, job, payload, seconds=120.0):
            raise SandboxError("the zygote is gone")

    (work,) = LLMDecomposer(PROMPTS, HARDWARE, Broken(), 1).workers(PROBLEM)
    with pytest.raises(SandboxError, match="the zygote is gone"):
        work.send(reply(first_request(work), files_reply()))


def test_the_fallback_is_the_whole_problem_with_the_reason(decomposer):
    found = decomposer.whole(PROBLEM, "3 attempts did not pass")
    assert [(part.name, part.reference) for part in found.subproblems] == [("gated", PROBLEM.source)]
    assert found.fallback == "3 attempts did not pass"
    assert dict(found.weight_map)["gated.gain"] == "gain"
