"""A small problem, replies that decompose it, and what goes on between an agent and the checks."""

from __future__ import annotations

from pathlib import Path

from mkevolve_core.checks import check, with_report
from mkevolve_core.domain import Cause, Decomposition, Problem
from mkevolve_core.llm.values import Conversation, Request, Stop
from tests.agents.tasks import reply

REPLIES = Path(__file__).parent / "replies"

PROBLEM = Problem(
    "gated",
    """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n, k):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(n))
        self.first = nn.Linear(n, k)
        self.second = nn.Linear(k, n)

    def forward(self, x):
        return torch.softmax(self.second(F.relu(self.first(x * self.gain))), dim=-1)


def get_inputs():
    return [torch.randn(4, 6)]


def get_init_inputs():
    return [6, 10]
""",
)

TOP_LEVEL = '''
"""Gain, two layers, softmax."""

import torch.nn as nn

from subkernel_problems.linear_softmax import Model as LinearSoftmax
from subkernel_problems.scaled_linear import Model as ScaledLinear


class ModelNew(nn.Module):
    def __init__(self, n, k):
        super().__init__()
        self.scaled_linear = ScaledLinear(n, k)
        self.linear_softmax = LinearSoftmax(k, n)

    def forward(self, x):
        return self.linear_softmax(self.scaled_linear(x))
'''

SCALED_LINEAR = '''
"""Scaled linear layer with ReLU."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n, k):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(n))
        self.first = nn.Linear(n, k)

    def forward(self, x):
        return F.relu(self.first(x * self.gain))


def get_inputs():
    return [torch.randn(4, 6)]


def get_init_inputs():
    return [6, 10]
'''

LINEAR_SOFTMAX = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n, k):
        super().__init__()
        self.second = nn.Linear(n, k)

    def forward(self, x):
        return torch.softmax(self.second(x), dim=-1)


def get_inputs():
    return [torch.randn(4, 10)]


def get_init_inputs():
    return [10, 6]
"""

FILES = {
    "decomposed_problem.py": TOP_LEVEL,
    "subkernel_problems/scaled_linear.py": SCALED_LINEAR,
    "subkernel_problems/linear_softmax.py": LINEAR_SOFTMAX,
}


def files_reply(files: dict[str, str] | None = None, listed: tuple[str, ...] = ()) -> str:
    """In the form that the prompts ask for; `listed`: files that stay as they are."""
    files = FILES if files is None else files
    shown = [f"### FILE: {path}\n```python\n{text.strip()}\n```" for path, text in files.items()]
    return "\n\n".join(["Two products.", *shown, f"FILES: {', '.join([*files, *listed])}"])


def changed(files: dict[str, str], path: str, old: str, new: str) -> dict[str, str]:
    assert old in files[path]
    return {**files, path: files[path].replace(old, new)}


def next_request(
    work: Conversation, request: Request, text: str = "", stop: Stop = Stop.END, **more
) -> Request:
    """What it asks after this reply; an end is an error."""
    return work.send(reply(request, text, stop, **more))


def checker(sandbox, problem: Problem, adopted: list[Decomposition]):
    """What the engine hands to splitter and fuser; decompositions that pass go into the list."""

    def findings(revision):
        proposal = Decomposition(
            "d2", Cause.SPLIT, revision.subproblems, revision.top_level, revision.weight_map
        )
        report = check(sandbox, problem, proposal)
        if not report.findings:
            adopted.append(with_report(proposal, report))
        return report.findings

    return findings


def never_checked(revision):
    raise AssertionError("its form alone is wrong, so there is nothing to check")
