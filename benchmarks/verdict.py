"""What forking from a warm zygote saves: a verdict from one sandbox against a fresh sandbox for each.

    python benchmarks/verdict.py [REPEATS]

Both sides judge the same honest candidate, one after the other in turn; printed are medians and their ratio.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mkevolve_core.domain import Codebase, Policy  # noqa: E402
from tests.verifier.samples import HONEST, SCALE_SHIFT  # noqa: E402
from verifier.judge import LocalJudge  # noqa: E402
from verifier.sandbox import LocalSandbox  # noqa: E402


def judge_once(sandbox: LocalSandbox) -> None:
    verdict = LocalJudge(sandbox).judge(SCALE_SHIFT, Codebase.single(HONEST), Policy())
    assert verdict.is_correct, verdict.detail


def judge_in_a_fresh_sandbox() -> None:
    with LocalSandbox() as sandbox:
        judge_once(sandbox)


def seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main(repeats: int) -> None:
    with LocalSandbox() as warm:
        judge_once(warm)
        pairs = [
            (seconds(lambda: judge_once(warm)), seconds(judge_in_a_fresh_sandbox)) for _ in range(repeats)
        ]
    forked, fresh = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    print(f"forked {forked:.2f} s, fresh {fresh:.2f} s a verdict: {ratio:.1f} times less ({repeats} pairs)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
