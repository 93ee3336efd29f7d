"""Kernels compiled for a GPU that is not here: what they need, and what cannot be compiled."""

import pytest

from mkevolve_core.domain import Codebase, SourceFile
from mkevolve_core.errors import ConfigError
from tests.verifier.corpus import load_fixture
from tests.verifier.entries import launch
from verifier.aot import compile_launches
from verifier.sandbox import LocalSandbox

AFFINE = launch(
    signature={
        **dict.fromkeys(["x_ptr", "scale_ptr", "shift_ptr", "out_ptr"], "*fp32"),
        **dict.fromkeys(["n_cols", "n_elements"], "i32"),
        "BLOCK": "constexpr",
    },
    constants={"BLOCK": 512},
    aligned=["x_ptr", "scale_ptr", "shift_ptr", "out_ptr", "n_cols"],
)


def linear(name="linear_kernel", side=32, depth=32, **changes):
    return launch(
        name,
        signature={
            **dict.fromkeys(["x_ptr", "w_ptr", "b_ptr", "out_ptr"], "*fp32"),
            **dict.fromkeys(["M", "N", "K"], "i32"),
            **dict.fromkeys(["BLOCK_M", "BLOCK_N", "BLOCK_K"], "constexpr"),
        },
        constants={"BLOCK_M": side, "BLOCK_N": side, "BLOCK_K": depth},
        aligned=["x_ptr", "w_ptr", "b_ptr", "out_ptr"],
        **changes,
    )


@pytest.fixture(scope="module")
def sandbox():
    with LocalSandbox() as sandbox:
        yield sandbox


def compiled(sandbox, folder, name, *launches, target="cuda:90", seconds=60.0):
    codebase = Codebase.single(load_fixture(folder, name).source)
    return compile_launches(sandbox, codebase, list(launches), target, seconds)


def test_registers_spills_and_shared_memory_are_known(sandbox):
    report = compiled(sandbox, "honest", "affine", AFFINE, AFFINE)
    assert report.error is None
    assert report.resources is not None
    assert report.resources.target == "cuda:90 (H200)"
    assert 8 <= (report.resources.registers or 0) <= 64
    assert (report.resources.spills, report.resources.shared_bytes) == (0, 0)
    assert report.resources.shared_limit == 232_448
    assert len(report.kernels) == 1


def test_an_autotuned_kernel_compiles_with_the_constants_that_it_ran_with(sandbox):
    report = compiled(
        sandbox, "honest", "autotuned_matmul", linear(num_warps=8, num_stages=2), target="cuda:80"
    )
    assert report.error is None
    assert report.resources is not None
    assert (report.resources.shared_bytes or 0) >= 2 * 32 * 32 * 4


def test_too_much_shared_memory_is_a_sentence_with_kernel_bytes_and_limit(sandbox):
    entry = linear(side=128, depth=64, num_stages=5, num_warps=8)
    report = compiled(sandbox, "cheats", "too_much_shared", entry)
    assert report.error is not None
    assert "linear_kernel needs" in report.error
    assert "232448" in report.error


def test_what_only_the_interpreter_accepts_is_an_error_with_its_line(sandbox):
    report = compiled(sandbox, "cheats", "compiles_nowhere", AFFINE)
    assert report.error is not None
    assert "affine_kernel does not compile" in report.error
    assert "break" in report.error


def test_each_error_belongs_to_its_kernel(sandbox):
    report = compiled(sandbox, "cheats", "invented_function", AFFINE)
    assert report.error is not None
    assert "relu" in report.error


def test_a_file_that_cannot_be_imported_is_the_candidates_failure(sandbox):
    codebase = Codebase.single("import torch\nraise RuntimeError('not today')\n")
    report = compile_launches(sandbox, codebase, [AFFINE], "cuda:90", 60.0)
    assert "not today" in (report.error or "")


def test_a_compiler_that_takes_too_long_is_said(sandbox):
    codebase = Codebase.single("import time\ntime.sleep(60)\n")
    report = compile_launches(sandbox, codebase, [AFFINE], "cuda:90", 1.0)
    assert "took longer than 1 s" in (report.error or "")


def test_kernels_of_several_files_are_found_in_theirs(sandbox):
    part = "from ..settings import NAME\n" + load_fixture("honest", "affine").source
    entry = "from .subkernel_implementations.part import ModelNew as Part\n\nModelNew = Part\n"
    files = (
        SourceFile("solution.py", entry),
        SourceFile("settings.py", "NAME = 1\n"),
        SourceFile("subkernel_implementations/part.py", part),
    )
    here = AFFINE | {"file": "/job/source/subkernel_implementations/part.py"}
    report = compile_launches(sandbox, Codebase("solution.py", files), [here], "cuda:90", 60.0)
    assert (report.error, len(report.kernels)) == (None, 1)


def test_a_kernel_that_cannot_be_found_is_a_note_and_no_failure(sandbox):
    source = load_fixture("honest", "affine").source.replace(
        "@triton.jit\ndef", "def made():\n    return 0\n\n\ndef"
    )
    hidden = compile_launches(sandbox, Codebase.single(source), [AFFINE], "cuda:90", 60.0)
    elsewhere = compiled(sandbox, "honest", "affine", AFFINE | {"file": "/usr/lib/kernels.py"})
    assert (hidden.error, hidden.resources) == (None, None)
    assert "not at the top of its file" in hidden.notes[0]
    assert "not defined in the candidate's files" in elsewhere.notes[0]


def test_nothing_launched_needs_no_compiler(sandbox):
    report = compile_launches(sandbox, Codebase.single("not even python ("), [], "cuda:90", 1.0)
    assert (report.error, report.resources) == (None, None)


def test_an_unknown_target_is_refused_before_anything_runs(sandbox):
    with pytest.raises(ConfigError, match="cuda:12"):
        compiled(sandbox, "honest", "affine", AFFINE, target="cuda:12")
