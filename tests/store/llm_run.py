"""The sample run as language models would write it: calls, missed writings, a reviewer, post-fusion.

python -m tests.store.llm_run RUNS_DIR [--name NAME] [--until SEQ] [--measured] [--mailbox]
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from mkevolve_core import events as ev
from mkevolve_core.config import RunConfig, build_config
from mkevolve_core.domain import Outcome, Problem, Review, RunPhase
from mkevolve_core.llm.settings import Limits, LLMSettings, ProviderSettings, RoleSettings
from mkevolve_core.llm.values import Role
from store.artifacts import FileArtifacts
from store.journal import FileJournal
from store.run_folder import RunFolder
from tests.store.sample_run import MS, PROBLEM, PacedClock, Writer, source_of, story

MODEL, CHEAP = "claude-opus-5-5", "gpt-oss-120b"
HOSTILE = (
    "I wrote <b>bold</b> <img src=x onerror=alert(1)> <script>alert(2)</script> [link](javascript:alert(3)) "
    "$x^2$ **not bold** `tick` ~~~ NUL \x00 ANSI \x1b[31m lone \ud800 turned \u202eyas :smile:"
)
SETTINGS = LLMSettings(
    (
        ProviderSettings("anthropic", "anthropic", key_env="ANTHROPIC_API_KEY"),
        ProviderSettings("local", "openai_chat", "http://127.0.0.1:8000/v1", price="free"),
    ),
    tuple(
        RoleSettings(role, *(("local", CHEAP) if role is Role.REVIEW else ("anthropic", MODEL)))
        for role in Role
    ),
    Limits(usd=12.0, calls=400),
)


class LLMWriter(Writer):
    """Every candidate comes of a call; of the second call for each subproblem comes none."""

    author = MODEL
    mailbox = False

    def call(self, role: Role, slot: str, subproblem_id: str | None, reply: str, **more: object) -> ev.Event:
        """A call with its texts kept; through a mailbox nobody tells tokens, and nothing has a price."""
        number = self.count["calls"] = self.count.get("calls", 0) + 1
        prompt = f"You write Triton kernels.\n\nDevice: NVIDIA H200.\n\nThe task of {slot}: {role}, <b>{number}</b>."
        paid = {"tokens_in": 6_000 + 10 * number, "tokens_cached": 4_100, "tokens_out": 1_500, "cost": 0.0391}
        unknown = {"tokens_in": 0, "tokens_out": 0, "cost": None, "tokens_known": False}
        facts = {
            "agent": role,
            "model": "by hand" if self.mailbox else CHEAP if role is Role.REVIEW else MODEL,
            "provider": "mailbox" if self.mailbox else "local" if role is Role.REVIEW else "anthropic",
            "subproblem_id": subproblem_id,
            "seconds": 20.0 + number % 7,
            "first_token": None if self.mailbox else 1.5,
            "prompt_sha": self.artifacts.put(prompt),
            "reply_sha": self.artifacts.put(reply),
            "slot": slot,
            "template": f"{role}.j2 1f3a9c02",
            **paid,
            **more,
            **(unknown if self.mailbox else {}),
        }
        return ev.LLMCalled(**facts)

    def candidate(self, one: str, iteration: int, ratio: float, note: str) -> Iterator[ev.Event]:
        name = f"{one}#{self.count.get(one, 0) + 1}"
        parent = self.seen.get(one)
        yield ev.StepPlanned(one, iteration, ((name, parent),))
        role = Role.REFINE if parent else Role.DEBUG if self.names.get(one) else Role.GENERATE
        if name.endswith("#2"):
            self.count[one] = 2
            yield self.call(role, name, one, "I will now wr", stop="length", tokens_out=32_000)
            yield ev.WritingFailed(
                one, name, "truncated", f"The reply was cut off at its limit <b>{name}</b>"
            )
            return
        reply = f"{HOSTILE}\n\n```python\n{source_of('kernel', 64)}```\n"
        yield self.call(role, name, one, reply)
        if name.endswith("#3"):
            yield self.call(role, f"{name}~1", one, "```python\npass\n```", reask=1)
        yield from super().candidate(one, iteration, ratio, note)


def llm_story(run_id: str, config: RunConfig, writer: LLMWriter) -> Iterator[ev.Event]:
    """The sample run's events, each agent's calls before what came of them."""
    for event in story(run_id, config, writer):
        yield from _asked_before(event, writer)
        yield _as_a_model_would(event)


def _as_a_model_would(event: ev.Event) -> ev.Event:
    if isinstance(event, ev.RunStarted):
        return replace(event, llm=SETTINGS)
    if isinstance(event, ev.DecompositionProposed):
        return replace(event, author=MODEL)
    if isinstance(event, ev.CandidateReviewed):
        return replace(event, review=replace(event.review, by=CHEAP))
    return event


def _asked_before(event: ev.Event, writer: LLMWriter) -> Iterator[ev.Event]:
    if isinstance(event, ev.DecompositionProposed):
        cause = {"initial": Role.DECOMPOSE, "split": Role.SPLIT, "fuse": Role.FUSE}[event.decomposition.cause]
        yield writer.call(cause, f"{cause} 1.1", None, f"{HOSTILE}\n\n### FILE: decomposed_problem.py")
    if isinstance(event, ev.CandidateReviewed):
        name = event.candidate_id
        yield writer.call(Role.REVIEW, f"review {name} 2", name.partition("#")[0], '{"verdict": "clean"}')
    if isinstance(event, ev.ErrorRaised):
        reason = "429: rate limited <b>again</b>"
        yield ev.LLMFailed("generate", MODEL, "4a", reason, "4a#99", "anthropic", "rate_limit", attempts=5)
    if isinstance(event, ev.StateChanged) and event.phase is RunPhase.STOPPING:
        yield from post_fusion(writer)


def post_fusion(writer: LLMWriter) -> Iterator[ev.Event]:
    """Three tries: no draft, one that the reviewer objects to, a correct one."""
    yield writer.call(Role.POSTFUSE, "postfuse 1", None, "I cannot.", stop="refusal")
    yield ev.PostFuseJudged(1, None, None, "the model refused <b>so</b>")
    for number, review in (
        (2, Review(Outcome.CHEAT, "returns cached <b>outputs</b>")),
        (3, Review(Outcome.CORRECT)),
    ):
        yield writer.call(Role.POSTFUSE, f"postfuse {number}", None, "```python\n```")
        sha = writer.artifacts.put(source_of("whole", 32 * number))
        yield ev.PostFuseJudged(number, sha, writer.verdict(MS["4c"], 1.4), "one file", review)


def write_llm_run(
    runs_dir: Path,
    name: str = "261119-101010-convvit",
    *,
    until: int | None = None,
    measured: bool = False,
    mailbox: bool = False,
    live: bool = False,
) -> RunFolder:
    """A run folder with the story's first `until` entries (all by default)."""
    changes = {"calls": 8, "fuse": True, "agents": "mailbox" if mailbox else "llm", "postfuse": 3}
    config = build_config("paper", changes)
    folder = RunFolder.create(runs_dir, Problem("convolutional_vision_transformer", PROBLEM), config, name)
    clock = PacedClock(live)
    journal = FileJournal(folder.journal_path, clock)
    writer = LLMWriter(journal, FileArtifacts(folder.path / "artifacts"), measured)
    writer.mailbox = mailbox
    for event in llm_story(name, config, writer):
        entry = journal.append(event, next_by=clock.now + 60.0)
        if until is not None and entry.seq >= until:
            break
    journal.close()
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs_dir", type=Path)
    parser.add_argument("--name", default="261119-101010-convvit")
    parser.add_argument("--until", type=int)
    parser.add_argument("--measured", action="store_true")
    parser.add_argument("--mailbox", action="store_true")
    given = parser.parse_args()
    print(
        write_llm_run(
            given.runs_dir, given.name, until=given.until, measured=given.measured, mailbox=given.mailbox
        ).path
    )


if __name__ == "__main__":
    main()
