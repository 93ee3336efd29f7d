"""What can go wrong on our side or at an edge, as one tree.

MKEvolveError
├── ProblemError      the user's problem file cannot be used (exit 2)
├── ConfigError       an option, preset or folder is wrong (exit 2)
├── CommandError      a request of the engineer cannot be carried out
├── DecompositionError  an agent found no decomposition that passes the checks
├── AgentDeclined     an agent has nothing to propose, and says why
├── NoDraft           one call of a writer came to nothing; no candidate, no verdict
├── LLMBlocked        the provider would refuse every call (key, bill, model): the run parks
├── BudgetExhausted   a limit on money, calls, tokens or minutes is reached: the run ends, resumable
├── ReplayError       a replay has left its recording
├── JournalError      a journal cannot be read or written (exit 3)
└── SandboxError      our own process failed: retried, never a verdict, never in a prompt (exit 3)

A candidate's failure is none of these: it is a `Verdict`.
"""

from __future__ import annotations


class MKEvolveError(Exception):
    """One clear sentence: what, where, what to do."""


class ProblemError(MKEvolveError):
    pass


class ConfigError(MKEvolveError):
    pass


class CommandError(MKEvolveError):
    pass


class DecompositionError(MKEvolveError):
    pass


class AgentDeclined(MKEvolveError):
    pass


class NoDraft(MKEvolveError):
    """`outcome`: "truncated", "refusal", "context", "empty", "nocode", "failed", ...: see `llm.extract`."""

    def __init__(self, sentence: str, outcome: str = "failed") -> None:
        super().__init__(sentence)
        self.outcome = outcome


class LLMBlocked(MKEvolveError):
    pass


class BudgetExhausted(MKEvolveError):
    pass


class ReplayError(MKEvolveError):
    pass


class JournalError(MKEvolveError):
    pass


class SandboxError(MKEvolveError):
    pass
