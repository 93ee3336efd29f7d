"""Verdicts on candidates that are right, wrong, broken, late, or dishonest. On the CPU, by the interpreter."""

from dataclasses import replace

import pytest

from mkevolve_core.domain import Codebase, Outcome, SourceFile
from mkevolve_core.errors import ConfigError
from tests.verifier.samples import (
    HONEST,
    POLICY,
    PYTORCH_PART,
    SCALE_SHIFT,
    TWO_STEPS,
    changed,
    composed,
    with_forward,
)
from verifier.judge import LocalJudge


def outcome_of(judge, candidate, reference=SCALE_SHIFT, policy=POLICY):
    verdict = judge.judge(reference, candidate, policy)
    return verdict.outcome, verdict.detail


def assert_honest_is_correct(judge) -> None:
    verdict = judge.judge(SCALE_SHIFT, Codebase.single(HONEST), POLICY)
    assert (verdict.outcome, verdict.detail) == (Outcome.CORRECT, "")


# ------------------------------------------------------------------------------------- correct


def test_an_honest_kernel_is_correct_with_all_that_is_known_about_it(judge):
    verdict = judge.judge(SCALE_SHIFT, Codebase.single(HONEST), POLICY)
    assert (verdict.outcome, verdict.detail, verdict.flags) == (Outcome.CORRECT, "", ())
    assert len(verdict.cases) == 5
    assert all(case.passed for case in verdict.cases)
    assert verdict.max_error is not None
    assert verdict.max_error < 1e-5
    assert verdict.kernelbench_rule is True
    assert verdict.weights == "by name"
    assert verdict.device == "Triton interpreter"
    assert "limits" in verdict.isolation
    assert verdict.measured is None
    assert verdict.speedup is None
    assert verdict.estimate is not None
    assert verdict.resources is not None
    assert verdict.reward == verdict.estimate.ratio


def test_a_warm_verdict_is_quick(judge):
    assert_honest_is_correct(judge)
    assert judge.judge(SCALE_SHIFT, with_forward("return x"), POLICY).seconds < 2.0


def test_inputs_are_drawn_anew_after_a_number_of_candidates(sandbox):
    wrong = with_forward("self.compute(x)\nreturn torch.zeros_like(x)")
    with LocalJudge(sandbox, reuse=2) as judge:
        errors = [judge.judge(SCALE_SHIFT, wrong, POLICY).max_error for _ in range(3)]
    assert errors[0] == errors[1] != errors[2]


# --------------------------------------------------------------------------------------- wrong


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x * scale + shift", "x * scale"),  # the reference's shift starts at zero
        ("x * scale + shift", "x + shift"),
        ("offsets < n", "offsets < n - 3"),
        ("tl.maximum(x * scale + shift, 0.0)", "x * scale + shift"),
    ],
)
def test_a_wrong_kernel_is_told_where(judge, old, new):
    outcome, detail = outcome_of(judge, changed((old, new)))
    assert outcome is Outcome.WRONG_RESULT
    assert "got" in detail
    assert "expected" in detail


def test_the_box_of_wrong_elements_names_the_tail(judge):
    _, detail = outcome_of(judge, changed(("offsets < n", "offsets < n - 3")))
    assert "all wrong ones lie in [5:6, 37:40]" in detail


def test_memory_that_a_kernel_leaves_out_is_poisoned(judge):
    verdict = judge.judge(SCALE_SHIFT, changed(("offsets < n", "offsets < n - 3")), POLICY)
    assert verdict.max_error is None
    assert all("got nan" in case.where for case in verdict.cases)


def test_not_a_number_is_wrong(judge):
    outcome, _ = outcome_of(
        judge, changed(("x * scale + shift, 0.0)", "x * scale + shift, 0.0) + float('nan')"))
    )
    assert outcome is Outcome.WRONG_RESULT


def test_a_changed_input_is_wrong(judge):
    outcome, detail = outcome_of(judge, with_forward("o = self.compute(x)\nx.zero_()\nreturn o"))
    assert outcome is Outcome.WRONG_RESULT
    assert "modifies its input" in detail


def test_results_remembered_by_address_are_wrong(judge):
    candidate = with_forward(
        """
        key = x.data_ptr()
        if key not in SEEN:
            SEEN[key] = self.compute(x)
        return SEEN[key]
        """,
        before="SEEN = {}",
    )
    outcome, detail = outcome_of(judge, candidate)
    assert outcome is Outcome.WRONG_RESULT
    assert "same buffers" in detail


def test_right_on_positive_inputs_only_is_wrong(judge):
    reference = SCALE_SHIFT.replace("torch.randn(6, 40)", "torch.rand(6, 40)")
    outcome, _ = outcome_of(
        judge,
        changed(("x = tl.load", "x = tl.abs(tl.load"), ("other=0.0)\n    scale", "other=0.0))\n    scale")),
        reference,
    )
    assert outcome is Outcome.WRONG_RESULT


# ----------------------------------------------------------------------------------- interface


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return self.compute(x)[:, :39]", "has shape (6, 39), expected (6, 40)"),
        ("return self.compute(x).to(torch.float64)", "is float64, expected float32"),
        ("return self.compute(x), x", "of type tuple, expected a plain torch.Tensor"),
        ("self.compute(x)", "of type NoneType"),
        ("return nn.Parameter(self.compute(x))", "of type Parameter, expected a plain torch.Tensor"),
    ],
)
def test_an_output_of_another_form_is_an_interface_error(judge, body, words):
    outcome, detail = outcome_of(judge, with_forward(body))
    assert outcome is Outcome.INTERFACE_ERROR
    assert words in detail.replace("a tuple of 2", "of type tuple")


def test_a_subclass_of_tensor_is_no_output(judge):
    body = "return self.compute(x).as_subclass(Lazy)"
    outcome, detail = outcome_of(
        judge, with_forward(body, before="import torch\n\n\nclass Lazy(torch.Tensor):\n    pass\n")
    )
    assert outcome in (Outcome.INTERFACE_ERROR, Outcome.CHEAT)
    assert "Lazy" in detail or "subclass" in detail.lower()


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ((("class ModelNew", "class Model"),), "no class ModelNew"),
        ((("def __init__(self, width)", "def __init__(self)"), ("(width)", "(40)")), "constructor arguments"),
        ((("def forward(self, x)", "def forward(self, x, y)"),), "forward"),
    ],
)
def test_another_signature_is_an_interface_error(judge, pairs, words):
    outcome, detail = outcome_of(judge, changed(*pairs))
    assert (outcome, words in detail) == (Outcome.INTERFACE_ERROR, True)


# ------------------------------------------------------------------------------------- weights


def test_weights_go_by_name_whatever_the_order_of_construction(judge):
    swapped = changed(
        ("        self.scale = nn.Parameter(torch.ones(width))\n", ""),
        (
            "        self.shift = nn.Parameter(torch.zeros(width))\n",
            "        self.shift = nn.Parameter(torch.randn(width))\n        self.scale = nn.Parameter(torch.randn(width))\n",
        ),
    )
    verdict = judge.judge(SCALE_SHIFT, swapped, POLICY)
    assert (verdict.outcome, verdict.weights) == (Outcome.CORRECT, "by name")


def test_renamed_weights_are_matched_by_creation_order_and_flagged(judge):
    reference = SCALE_SHIFT.replace("torch.ones", "torch.randn").replace("torch.zeros", "torch.randn")
    renamed = changed(
        ("self.scale", "self.gain"), ("torch.ones", "torch.randn"), ("torch.zeros", "torch.randn")
    )
    verdict = judge.judge(reference, renamed, POLICY)
    assert (verdict.outcome, verdict.weights) == (Outcome.CORRECT, "by creation order")
    assert "weights matched by creation order" in verdict.flags


def test_renamed_weights_are_found_through_a_map(judge):
    policy = replace(POLICY, weight_map=(("gain", "scale"),))
    verdict = judge.judge(SCALE_SHIFT, changed(("self.scale", "self.gain")), policy)
    assert (verdict.outcome, verdict.weights) == (Outcome.CORRECT, "by name")


def test_a_missing_weight_is_named(judge):
    pairs = (("        self.shift = nn.Parameter(torch.zeros(width))\n", ""), ("self.shift", "self.scale"))
    outcome, detail = outcome_of(judge, changed(*pairs))
    assert outcome is Outcome.INTERFACE_ERROR
    assert "lacks shift" in detail


def test_a_weight_of_another_shape_is_named(judge):
    outcome, detail = outcome_of(judge, changed(("torch.zeros(width)", "torch.zeros(1, width)")))
    assert outcome is Outcome.INTERFACE_ERROR
    assert "shift is (1, 40), Model's is (40)" in detail


# -------------------------------------------------------------------------------------- broken


def test_an_invented_function_is_a_compile_error_with_its_line(judge):
    outcome, detail = outcome_of(judge, changed(("tl.maximum(x", "tl.largest(x")))
    assert outcome is Outcome.COMPILE_ERROR
    assert "has no attribute 'largest' (candidate.py, line 16: tl.store" in detail


def test_what_does_not_parse_is_a_compile_error(judge):
    assert (
        outcome_of(judge, changed(("def forward(self, x):", "def forward(self, x)")))[0]
        is Outcome.COMPILE_ERROR
    )


def test_an_exception_names_its_line(judge):
    outcome, detail = outcome_of(judge, with_forward("o = self.compute(x)\nraise ValueError('not today')"))
    assert outcome is Outcome.RUNTIME_ERROR
    assert "ValueError: not today (candidate.py, line" in detail


def test_an_import_that_is_not_there_is_a_runtime_error(judge):
    outcome, detail = outcome_of(
        judge, changed(("import triton\n", "import triton\nimport surely_not_installed\n"))
    )
    assert outcome is Outcome.RUNTIME_ERROR
    assert "surely_not_installed" in detail


def test_an_endless_loop_is_a_timeout(judge):
    policy = replace(POLICY, seconds=2.0)
    outcome, detail = outcome_of(judge, with_forward("while True:\n    self.compute(x)"), policy=policy)
    assert outcome is Outcome.TIMEOUT
    assert "longer than 2 s (in candidate.py, line" in detail


def test_too_much_memory_is_said(judge):
    policy = replace(POLICY, memory_mb=512)
    body = "huge = torch.empty(1 << 30)\nhuge.zero_()\nreturn self.compute(x)"
    assert outcome_of(judge, with_forward(body), policy=policy)[0] is Outcome.OUT_OF_MEMORY


def test_a_crash_is_a_verdict_and_the_next_candidate_is_unaffected(judge):
    body = "self.compute(x)\nfaulthandler._read_null()\nreturn x"
    outcome, detail = outcome_of(judge, with_forward(body, before="import faulthandler"))
    assert outcome is Outcome.RUNTIME_ERROR
    assert "SIGSEGV" in detail
    assert_honest_is_correct(judge)


@pytest.mark.parametrize("code", ["os._exit(0)", "print('correct')\n        os._exit(0)"])
def test_leaving_early_is_no_success(judge, code):
    before = "import os\n"
    outcome, _ = outcome_of(
        judge, with_forward(f"self.compute(x)\n{code.replace('        ', '')}", before=before)
    )
    assert outcome is not Outcome.CORRECT


def test_a_path_that_leaves_the_folder_is_refused(judge):
    evil = Codebase("../x.py", (SourceFile("../x.py", HONEST),))
    assert outcome_of(judge, evil)[0] is Outcome.INTERFACE_ERROR


# ----------------------------------------------------------------------------------- dishonest


def test_no_launch_of_its_own_is_cheating(judge):
    outcome, detail = outcome_of(judge, with_forward("return torch.empty_like(x)"))
    assert outcome is Outcome.CHEAT
    assert "launch" in detail


def test_pytorch_beside_the_kernel_is_cheating_with_its_line(judge):
    outcome, detail = outcome_of(
        judge, with_forward("o = self.compute(x)\nreturn getattr(torch, 're' + 'lu')(o)")
    )
    assert outcome is Outcome.CHEAT
    assert "relu" in detail
    assert "line" in detail


def test_a_fallback_that_always_falls_back_is_cheating(judge):
    body = "try:\n    scale_shift[(4,)](x)\nexcept TypeError:\n    return (x * self.scale + self.shift).clamp_min(0)"
    outcome, detail = outcome_of(judge, with_forward(body))
    assert outcome is Outcome.CHEAT
    assert "aten::mul" in detail or "launch" in detail


def test_a_forged_answer_brings_no_bytes(judge):
    """The candidate finds the socket to the judge and answers in the runner's place."""
    before = """
import json
import os
import struct


def forge():
    cases = [{"modified": False}] * 5
    configs = [{"entries": [], "calls": {}, "parts_ms": {}, "timing": None}]
    answer = {"cases": cases, "configs": configs, "flags": [], "launches": 5, "failed_launches": 0, "operations": []}
    data = json.dumps({"ok": answer}).encode()
    for fd in range(3, 64):
        try:
            os.write(fd, struct.pack("<I", len(data)) + data)
        except OSError:
            continue
    os._exit(0)
"""
    verdict = judge.judge(
        SCALE_SHIFT, with_forward("self.compute(x)\nforge()\nreturn x", before=before), POLICY
    )
    assert verdict.outcome is not Outcome.CORRECT
    assert_honest_is_correct(judge)


# ------------------------------------------------------------------------------------ composed


def test_a_codebase_of_several_files_is_judged_as_a_whole(judge):
    weight_map = tuple(
        (f"{part}.{name}", f"{part}.{name}") for part in ("first", "second") for name in ("scale", "shift")
    )
    verdict = judge.judge(TWO_STEPS, composed(), replace(POLICY, weight_map=weight_map))
    assert (verdict.outcome, verdict.detail, verdict.weights) == (Outcome.CORRECT, "", "by name")
    assert {(share.name, share.calls) for share in verdict.shares} == {("opening", 1), ("closing", 1)}
    assert all(share.time_ms > 0 for share in verdict.shares)


def test_a_part_in_pytorch_is_cheating_unless_the_policy_names_it(judge):
    candidate = composed(closing=PYTORCH_PART)
    outcome, detail = outcome_of(judge, candidate, TWO_STEPS)
    assert outcome is Outcome.CHEAT
    assert "closing.py" in detail
    policy = replace(POLICY, torch_parts=("closing",))
    assert outcome_of(judge, candidate, TWO_STEPS, policy) == (Outcome.CORRECT, "")


def test_a_whole_of_pytorch_parts_is_correct_where_all_are_named(judge):
    policy = replace(POLICY, torch_parts=("opening", "closing"))
    candidate = composed(PYTORCH_PART, PYTORCH_PART)
    assert outcome_of(judge, candidate, TWO_STEPS, policy) == (Outcome.CORRECT, "")


def test_equal_names_in_two_candidates_do_not_mix(judge):
    assert_honest_is_correct(judge)
    assert outcome_of(judge, changed(("x * scale + shift", "x * scale - shift")))[0] is Outcome.WRONG_RESULT
    assert_honest_is_correct(judge)


# ---------------------------------------------------------------------------------- references


def test_every_configuration_of_inputs_is_judged(judge):
    configs = """

def get_input_configs():
    small = {"get_inputs": lambda: [torch.randn(6, 40)], "get_init_inputs": lambda: [40]}
    large = {"get_inputs": lambda: [torch.randn(3, 72)], "get_init_inputs": lambda: [72]}
    return [small, small, large]
"""
    verdict = judge.judge(SCALE_SHIFT + configs, Codebase.single(HONEST), POLICY)
    assert verdict.is_correct
    assert [case.name.split(",")[0] for case in verdict.cases] == ["configuration 1"] * 3 + [
        "configuration 2"
    ] * 3
    assert verdict.estimate is not None
    assert verdict.estimate.launches == 3
    one_shape = changed(("n_cols, n, BLOCK", "n_cols, n, BLOCK"), ("offsets % n_cols", "offsets % 40"))
    outcome, detail = outcome_of(judge, one_shape, SCALE_SHIFT + configs)
    assert outcome is Outcome.WRONG_RESULT
    assert "configuration 2" in detail


def test_keyword_arguments_reach_the_candidate(judge):
    def by_keyword(text):
        return text.replace("self, width", "self, *, width")

    reference = by_keyword(SCALE_SHIFT).replace("return [40]", "return [[], {'width': 40}]")
    assert outcome_of(judge, Codebase.single(by_keyword(HONEST)), reference) == (Outcome.CORRECT, "")


def test_a_strided_input_arrives_with_its_strides(judge):
    reference = SCALE_SHIFT.replace("torch.randn(6, 40)", "torch.randn(40, 6).t()")
    assert outcome_of(judge, Codebase.single(HONEST), reference)[0] is Outcome.WRONG_RESULT
    careful = with_forward("x = x.contiguous()\nreturn self.compute(x)")
    assert outcome_of(judge, careful, reference) == (Outcome.CORRECT, "")


def test_a_nested_output_keeps_its_form(judge):
    reference = SCALE_SHIFT.replace(
        "return torch.relu(x * self.scale + self.shift)",
        "y = torch.relu(x * self.scale + self.shift)\n        return y, {'again': [y]}",
    )
    honest = with_forward("y = self.compute(x)\nreturn y, {'again': [y]}")
    assert outcome_of(judge, honest, reference) == (Outcome.CORRECT, "")
    outcome, detail = outcome_of(
        judge, with_forward("y = self.compute(x)\nreturn y, {'again': y}"), reference
    )
    assert outcome is Outcome.INTERFACE_ERROR
    assert "its output[1]['again']" in detail.replace("Its", "its")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("import torch\n", "import torch\nimport surely_not_installed\n"), "surely_not_installed"),
        (("x * self.scale", "x * torch.rand(40)"), "draws at random"),
        (("x * self.scale", "x @ self.scale.nothing"), "nothing"),
    ],
)
def test_a_reference_that_cannot_be_used_is_unjudgeable(judge, change, words):
    outcome, detail = outcome_of(judge, Codebase.single(HONEST), SCALE_SHIFT.replace(*change))
    assert outcome is Outcome.UNJUDGEABLE
    assert words in detail


def test_a_reference_below_the_tolerance_is_flagged(judge):
    reference = SCALE_SHIFT.replace("self.shift)", "self.shift) * 1e-7")
    candidate = changed(("shift, 0.0)", "shift, 0.0) * 1e-7"))
    verdict = judge.judge(reference, candidate, POLICY)
    assert verdict.is_correct
    assert any("zeros would pass" in flag for flag in verdict.flags)


def test_a_reference_that_ignores_its_input_is_flagged(judge):
    reference = SCALE_SHIFT.replace("x * self.scale", "x * 0")
    verdict = judge.judge(reference, changed(("x * scale + shift", "x * 0.0 + shift")), POLICY)
    assert verdict.is_correct
    assert verdict.flags == ("the reference gives the same output for all inputs",)


def test_a_device_that_is_not_there_is_an_error_of_the_caller(judge):
    with pytest.raises(ConfigError, match="cuda:7"):
        judge.judge(SCALE_SHIFT, Codebase.single(HONEST), replace(POLICY, device="cuda:7"))
