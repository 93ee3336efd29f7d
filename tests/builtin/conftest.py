"""One sandbox for the session, and the built-in agents over it."""

import pytest

from mkevolve_core.builtin.decomposer import BuiltinDecomposer
from mkevolve_core.builtin.fuser import BuiltinFuser
from mkevolve_core.builtin.splitter import BuiltinSplitter
from mkevolve_core.checks import check, with_report
from mkevolve_core.domain import Cause, Decomposition, Problem
from mkevolve_core.problem import sample_problems
from mkevolve_core.protocols import ReviseTask
from tests.builtin.conversations import decomposed_by, result, unchecked
from verifier.sandbox import LocalSandbox


@pytest.fixture(scope="session")
def sandbox():
    with LocalSandbox(device="cpu") as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def decompose(sandbox):
    """A problem's decomposition, computed once for each problem."""
    known = {}

    def decomposed(problem):
        if problem.source not in known:
            known[problem.source] = decomposed_by(BuiltinDecomposer(sandbox), problem)
        return known[problem.source]

    return decomposed


@pytest.fixture(scope="session")
def adopt(sandbox):
    """A revision as a decomposition that passed every check."""

    def adopted(problem, revision, cause=Cause.SPLIT):
        proposal = Decomposition("d2", cause, revision.subproblems, revision.top_level, revision.weight_map)
        report = check(sandbox, problem, proposal)
        assert report.findings == ()
        return with_report(proposal, report)

    return adopted


@pytest.fixture(scope="session")
def split(sandbox):
    def revised(problem, current, targets):
        return result(BuiltinSplitter(sandbox).split(ReviseTask(problem, current, targets), unchecked))

    return revised


@pytest.fixture(scope="session")
def fuse(sandbox):
    def revised(problem, current, targets):
        return result(BuiltinFuser(sandbox).fuse(ReviseTask(problem, current, targets), unchecked))

    return revised


@pytest.fixture(scope="session")
def samples():
    return {problem.name: problem for problem in sample_problems()}


@pytest.fixture(scope="session")
def vision_transformer(samples):
    return samples["convolutional_vision_transformer"]


@pytest.fixture(scope="session")
def problem():
    """A problem from the text of its class (and what it needs above it) and its generators."""

    def made(source, inputs="[torch.randn(4, 6)]", init="[]", name="small"):
        head = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
        tail = (
            f"\n\n\ndef get_inputs():\n    return {inputs}\n\n\ndef get_init_inputs():\n    return {init}\n"
        )
        return Problem(name, head + source.strip() + tail)

    return made
