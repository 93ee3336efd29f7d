"""The built-in writer: what it proposes, changes, declines; traced in the real sandbox."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from mkevolve_core.builtin.writer import BuiltinWriter
from mkevolve_core.domain import (
    Candidate,
    Codebase,
    Draft,
    Outcome,
    Policy,
    Subproblem,
    TimingMode,
    Verdict,
)
from mkevolve_core.errors import AgentDeclined
from mkevolve_core.protocols import Judged, WriteTask
from tests.builtin.conversations import result
from tests.builtin.writer_references import ALL, reference
from verifier.judge import LocalJudge
from verifier.sandbox import LocalSandbox
from verifier.static import check_codebase

SAMPLES = Path(__file__).parents[2] / "mkevolve_core" / "problems"
ENCODER_LAYER = reference(
    "return self.layer(x)", "torch.randn(10, 2, 24)", "self.layer = nn.TransformerEncoderLayer(24, 4, 48)"
)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    with LocalSandbox("cpu") as opened:
        yield opened


@pytest.fixture
def writer(sandbox: LocalSandbox) -> BuiltinWriter:
    return BuiltinWriter(sandbox, seed=0)


def subproblem(text: str, name: str = "part") -> Subproblem:
    return Subproblem("1", name, "Part", text)


def judged(source: str, outcome: Outcome = Outcome.CORRECT, detail: str = "") -> Judged:
    candidate = Candidate("1#1", "1", "sha", None, 1, "built-in")
    return Judged(candidate, source, Verdict(outcome, detail))


def write(writer: BuiltinWriter, part: Subproblem, number: int, parent: Judged | None) -> Draft:
    """`number` counts from 0."""
    ordinal = number + 1
    return result(writer.write(WriteTask(part, f"1#{ordinal}", ordinal, parent)))


def tiles(source: str) -> dict[str, dict[str, int | str]]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TILES":
            return ast.literal_eval(node.value)
    raise AssertionError("no TILES")


def without_settings(source: str) -> str:
    """The code without TILES and the header that describes them."""
    body = ast.parse(source).body[1:]
    return "\n".join(ast.unparse(node) for node in body if "TILES =" not in ast.unparse(node))


FFN = subproblem(ALL["blocks/feed_forward_half"], "feed_forward")


def test_same_seed_and_ordinal_give_the_same_text(sandbox: LocalSandbox) -> None:
    drafts = [
        [write(BuiltinWriter(sandbox, 3), FFN, ordinal, None) for ordinal in range(12)] for _ in range(2)
    ]
    assert drafts[0] == drafts[1]


def test_first_candidates_are_all_different(writer: BuiltinWriter) -> None:
    sources = [write(writer, FFN, ordinal, None).source for ordinal in range(8)]
    assert len(set(sources)) == 8


def test_mutation_changes_tiles_alone_and_says_so(writer: BuiltinWriter) -> None:
    parent = write(writer, FFN, 0, None).source
    seen = set()
    for ordinal in range(1, 13):
        draft = write(writer, FFN, ordinal, judged(parent))
        assert draft.source != parent
        seen.add(draft.source)
        if "→" in draft.note and draft.note.startswith(("gemm", "row")):
            assert without_settings(draft.source) == without_settings(parent)
            changed = sum(
                tiles(draft.source)[name][key] != value
                for name, tile in tiles(parent).items()
                for key, value in tile.items()
            )
            assert changed == draft.note.count("→") <= 2
    assert len(seen) > 9


def test_another_seed_takes_other_steps(sandbox: LocalSandbox) -> None:
    parent = judged(write(BuiltinWriter(sandbox, 0), FFN, 0, None).source)
    notes = [
        [write(BuiltinWriter(sandbox, seed), FFN, o, parent).note for o in range(1, 6)] for seed in (0, 1)
    ]
    assert notes[0] != notes[1]


@pytest.mark.parametrize("outcome", [Outcome.COMPILE_ERROR, Outcome.OUT_OF_MEMORY])
def test_what_does_not_fit_gets_smaller(writer: BuiltinWriter, outcome: Outcome) -> None:
    parent = write(writer, FFN, 0, None).source
    detail = "kernel gemm_0 needs more shared memory than there is"
    smaller = tiles(write(writer, FFN, 1, judged(parent, outcome, detail)).source)
    before = tiles(parent)
    assert smaller["gemm_1"] == before["gemm_1"]
    blocks = [
        key
        for key in before["gemm_0"]
        if key.startswith("BLOCK") and smaller["gemm_0"][key] < before["gemm_0"][key]
    ]
    assert len(blocks) == 1


def test_wrong_result_goes_back_to_exact_products(writer: BuiltinWriter) -> None:
    part = subproblem(ALL["gemm/linear"])
    parent = next(d.source for o in range(6) if '"tf32x3"' in (d := write(writer, part, o, None)).source)
    draft = write(writer, part, 3, judged(parent, Outcome.WRONG_RESULT))
    assert "PRECISION tf32x3 → ieee" in draft.note


def test_precision_is_named_in_header_and_note(writer: BuiltinWriter) -> None:
    draft = next(
        d for o in range(6) if "tf32x3" in (d := write(writer, subproblem(ALL["gemm/linear"]), o, None)).note
    )
    assert "three TF32 products" in ast.get_docstring(ast.parse(draft.source))


def test_parent_by_hand_means_from_scratch(writer: BuiltinWriter) -> None:
    by_hand = judged("import torch\nclass ModelNew(torch.nn.Module): ...\n")
    assert write(writer, FFN, 0, by_hand) == write(writer, FFN, 0, None)


def test_whole_encoder_layer_is_beyond_the_capacity(writer: BuiltinWriter) -> None:
    with pytest.raises(AgentDeclined, match=r"needs \d kernels; the built-in writer stages at most 4"):
        write(writer, subproblem(ENCODER_LAYER), 0, None)


@pytest.mark.parametrize("name", ["attention/multihead", "blocks/feed_forward_half"])
def test_its_halves_are_not(writer: BuiltinWriter, name: str) -> None:
    for ordinal in range(8):
        source = write(writer, subproblem(ALL[name]), ordinal, None).source
        assert source.count("@triton.jit") <= 4


@pytest.mark.parametrize(
    ("forward", "named"),
    [
        ("return torch.cumsum(x, 1)", "cumsum"),
        ("return torch.sort(x).values", "sort"),
    ],
)
def test_unsupported_operation_is_named(writer: BuiltinWriter, forward: str, named: str) -> None:
    with pytest.raises(AgentDeclined, match=named):
        write(writer, subproblem(reference(forward, "torch.randn(3, 5)")), 0, None)


def test_reference_that_does_not_run_is_declined(writer: BuiltinWriter) -> None:
    with pytest.raises(AgentDeclined, match="cannot be traced"):
        write(writer, subproblem(reference("return self.missing(x)", "torch.randn(3)")), 0, None)


def test_instances_of_different_form_get_kernels_of_their_own(writer: BuiltinWriter) -> None:
    draft = write(writer, subproblem(ALL["instances/dimensions_differ"]), 0, None)
    assert set(tiles(draft.source)) == {"row_0", "row_0_form1"}


def test_instances_that_differ_in_numbers_share_one_kernel(writer: BuiltinWriter) -> None:
    draft = write(writer, subproblem(ALL["instances/linear_relu"]), 0, None)
    assert set(tiles(draft.source)) == {"gemm_0"}


@pytest.mark.parametrize(
    "name", ["mlp", "transformer_ffn", "gemm_scale_gelu_softmax", "causal_self_attention"]
)
def test_forward_of_a_sample_leaves_nothing_to_pytorch(writer: BuiltinWriter, name: str) -> None:
    draft = write(writer, subproblem((SAMPLES / f"{name}.py").read_text(), name), 0, None)
    report = check_codebase(Codebase.single(draft.source), ())
    assert report.refusal is None
    assert report.flags == ()


def test_the_judge_finds_a_subkernel_correct(sandbox: LocalSandbox, writer: BuiltinWriter) -> None:
    policy = Policy(cases=2, timing=TimingMode.OFF, device="cpu")
    with LocalJudge(sandbox) as judge:
        for ordinal in range(2):
            source = write(writer, FFN, ordinal, None).source
            verdict = judge.judge(FFN.reference, Codebase.single(source), policy)
            assert verdict.outcome is Outcome.CORRECT, verdict.detail
            assert verdict.weights == "by name"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", ["mlp", "transformer_ffn", "gemm_scale_gelu_softmax", "causal_self_attention"]
)
def test_the_judge_finds_the_samples_correct(sandbox: LocalSandbox, writer: BuiltinWriter, name: str) -> None:
    part = subproblem((SAMPLES / f"{name}.py").read_text(), name)
    with LocalJudge(sandbox) as judge:
        for ordinal in range(8):
            source = write(writer, part, ordinal, None).source
            verdict = judge.judge(part.reference, Codebase.single(source), Policy(device="cpu", cases=2))
            assert verdict.outcome is Outcome.CORRECT, (ordinal, verdict.detail)
