"""Conversations of the built-in agents, carried to their end: they ask nothing."""

from mkevolve_core.errors import DecompositionError


def result(conversation):
    """What it returns or raises."""
    try:
        asked = next(conversation)
    except StopIteration as end:
        return end.value
    raise AssertionError(f"a built-in agent asks an LLM: {asked.slot}")


def decomposed_by(decomposer, problem):
    """As the engine has it: the only worker's, or the whole problem with the worker's reason."""
    (worker,) = decomposer.workers(problem)
    try:
        return result(worker)
    except DecompositionError as error:
        return decomposer.whole(problem, str(error))


def unchecked(revision):
    raise AssertionError("a built-in agent leaves the check to whoever asked")
