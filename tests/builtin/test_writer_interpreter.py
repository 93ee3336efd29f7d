"""Synthesized candidates against their references: interpreted, on a GPU, compiled for sm_90."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.builtin.writer_references import ALL

ROOT = Path(__file__).parents[2]
FUSED = {"fuse_norm": True}
LOOPED = {"fuse_norm": False, "split_k": 8, "looped": True}
CHANGES_WITH_STRUCTURE = ("gemm/", "rows/", "blocks/", "instances/")
JOBS = [
    {"name": f"{name} fused", "reference": text, "structure": FUSED, "shrink": 0}
    for name, text in ALL.items()
]
JOBS += [
    {"name": f"{name} looped", "reference": text, "structure": LOOPED, "shrink": -1}
    for name, text in ALL.items()
    if name.startswith(CHANGES_WITH_STRUCTURE)
]


def checked(mode: str, folder: Path) -> dict[str, Any]:
    """All jobs in one process: importing torch costs more than most of them."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(folder / "cache")}
    environment["OMP_NUM_THREADS"] = "1"
    environment.pop("TRITON_INTERPRET", None)
    if mode == "interpret":
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, str(Path(__file__).parent / "synthesized.py")]
    order = json.dumps({"mode": mode, "jobs": JOBS})
    done = subprocess.run(
        command,
        input=order,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=900,
        check=False,
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(JOBS), f"stopped after {len(results)} jobs: {done.stderr[-2000:]}"
    return {result["name"]: result for result in results}


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return checked("interpret", tmp_path_factory.mktemp("interpreted"))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return checked("compile", tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="module")
def on_gpu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return checked("gpu", tmp_path_factory.mktemp("on_gpu"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [job["name"] for job in JOBS])
def test_candidate_computes_what_its_reference_computes(name: str, interpreted: dict[str, Any]) -> None:
    assert interpreted[name]["error"] is None


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [job["name"] for job in JOBS])
def test_candidate_computes_the_same_on_a_gpu(name: str, on_gpu: dict[str, Any]) -> None:
    assert on_gpu[name]["error"] is None


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [job["name"] for job in JOBS])
def test_kernels_compile_for_sm_90(name: str, compiled: dict[str, Any]) -> None:
    assert compiled[name]["error"] is None


EXPECTED_KERNELS = {
    "attention/multihead fused": ["gemm_0", "attention_1", "gemm_2"],
    "attention/written_out fused": ["gemm_0", "attention_1", "gemm_2"],
    "blocks/feed_forward_half fused": ["gemm_0", "gemm_1"],
    "blocks/feed_forward_half looped": ["gemm_0", "gemm_1", "row_2"],
    "blocks/gemm_scale_softmax fused": ["gemm_0"],
    "blocks/pre_norm fused": ["row_0", "gemm_1", "gemm_2"],
    "convolution/patches fused": ["conv_0"],
    "convolution/norm_relu fused": ["conv_0"],
    "gemm/skinny looped": ["gemm_0", "row_1"],
    "moves/class_token fused": ["pointwise_0"],
    "moves/cat_then_linear fused": ["gemm_0"],
    "rows/chained fused": ["row_0"],
}


@pytest.mark.parametrize("name", EXPECTED_KERNELS)
def test_elementwise_work_and_views_get_no_kernels_of_their_own(
    name: str, interpreted: dict[str, Any]
) -> None:
    assert interpreted[name]["kernels"] == EXPECTED_KERNELS[name]
