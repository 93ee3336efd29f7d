"""What lies where in a mailbox, and what a request looks like in it.

mailbox/README.md  runner.json                  how to answer; the engine's sign of life
mailbox/open/<id>/request.json  prompt.md       one call that waits
                  claim-1.json                  somebody is at it
                  answer.md | files/  answer.json
                  answer.rejected-1.md  feedback-1.md
mailbox/closed/<id>/  …  accepted.md  closed.json
"""

from __future__ import annotations

import hashlib
import itertools
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mkevolve_core.llm.mailbox.files import (
    MAX_ANSWER,
    as_json,
    beside,
    is_folder,
    read_object,
    sync_folder,
    write_new,
    write_whole,
)
from mkevolve_core.llm.values import Expects, Request

FOLDER = "mailbox"  # within a run's folder
PROTOCOL = 1
_ID = re.compile(r"[a-z0-9][a-z0-9._+-]{0,120}")
_SLUG = re.compile(r"[a-z0-9][a-z0-9._+-]{0,59}")
_SPELLED = str.maketrans("#~ ", "_+-")

EXPECTED = {
    Expects.KERNEL: "One ```python block with the whole file; it defines class ModelNew.",
    Expects.FILES: "Whole files, one after the other, marked as the prompt says.",
    Expects.JSON: "One JSON object.",
}

_README = """# Mailbox

Each folder in `open/` is one question of the engine to a language model. You may answer it, by hand or
with any program. An answer is data: it goes through the same checks and the same sandbox as any other.

    mkevolve answer RUN                      list the open requests
    mkevolve answer RUN ID                   print the prompt
    mkevolve answer RUN ID answer.md         check an answer and hand it in
    mkevolve answer RUN --command 'CMD'      pipe each prompt to CMD, hand in what it prints; --follow stays

Without the command:

1. Read `open/<id>/prompt.md`. `request.json` says what is expected (`expects`: kernel, files or json).
   If there is a `feedback-<n>.md`, it says what was wrong with answer number n.
2. Write your answer to `open/<id>/answer.md`, in the format that the prompt asks for. Best under another
   name in the same folder, then `mv`; an answer written in place is taken 2 s after its last change.
3. If you want it taken at once, or want to be named, write `answer.json` after it:
   {"who": "anna", "model": "some-model", "usage": {"input": 1200, "output": 800}}
   All keys may be missing. The usage is in tokens; without it the cost counts as unknown.
4. Several files may be given as `files/<path>` instead of one answer.md; then answer.json is a must.

If others answer too, claim a request first: create `claim-<n>.json`, n one more than the highest there,
{"who": "anna", "expires": <seconds since 1970, at most 10 minutes from now>}. Leave a request alone while
its highest claim has not expired. Claims are a courtesy: the first answer counts.

Answers: regular files, UTF-8, at most 1 MiB, no links. The first usable one closes the request, and the
folder moves to `closed/`. An unusable one is renamed to `answer.rejected-<n>.md`; after 3 the call fails.
`runner.json` says whether the engine runs. If it does not, answer all the same: it looks when it resumes.
"""


@dataclass(frozen=True, slots=True)
class Mailbox:
    """The folders of one mailbox."""

    path: Path

    @property
    def open(self) -> Path:
        return self.path / "open"

    @property
    def closed(self) -> Path:
        return self.path / "closed"

    @property
    def runner(self) -> Path:
        return self.path / "runner.json"

    def is_there(self) -> bool:
        return is_folder(self.open) and is_folder(self.closed)

    def prepare(self) -> None:
        """Make it, for its owner alone, and drop what a killed engine left half made. Raises OSError."""
        for folder in (self.path, self.open, self.closed):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)
        for left in self.path.glob(".tmp-*"):
            shutil.rmtree(left, ignore_errors=True)
        readme = _README.replace("RUN", self.path.absolute().parent.name)
        write_whole(self.path / "README.md", readme.encode())

    def closed_before(self, request_id: str) -> list[Path]:
        """Closed requests of this id, oldest first: "<id>", "<id>.2", …"""
        return list(itertools.takewhile(is_folder, self._places(request_id)))

    def free_place(self, request_id: str) -> Path:
        """Where a request goes when it is closed."""
        return next(path for path in self._places(request_id) if not is_folder(path))

    def _places(self, request_id: str) -> Iterator[Path]:
        yield self.closed / request_id
        yield from (self.closed / f"{request_id}.{number}" for number in itertools.count(2))


@dataclass(frozen=True, slots=True)
class Posting:
    """A request as it is published."""

    request_id: str
    prompt: bytes
    facts: dict[str, Any]  # request.json

    def publish(self, mailbox: Mailbox) -> None:
        """All of it or nothing becomes visible. Raises OSError; FileExistsError if it is there already."""
        temporary = mailbox.path / f".tmp-{self.request_id}{beside(Path('x')).suffix}"
        temporary.mkdir(mode=0o700)
        try:
            write_new(temporary / "prompt.md", self.prompt)
            write_new(temporary / "request.json", as_json(self.facts))
            sync_folder(temporary)
            temporary.rename(mailbox.open / self.request_id)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        sync_folder(mailbox.open)

    def is_at(self, folder: Path) -> bool:
        """The same question of the same place in the run."""
        facts = read_object(folder / "request.json") or {}
        return all(facts.get(key) == self.facts[key] for key in ("protocol", "slot", "prompt_sha256"))


def posting(request: Request, run_id: str, now: float) -> Posting:
    prompt = request.prompt.encode("utf-8", "backslashreplace")
    sha = hashlib.sha256(request.prompt.encode("utf-8", "surrogatepass")).hexdigest()  # as in the ledger
    request_id = f"{_stem(request)}-{sha[:12]}"
    facts = {
        "protocol": PROTOCOL,
        "id": request_id,
        "run": run_id,
        "role": request.role.value,
        "slot": request.slot,
        "subproblem": request.subproblem_id,
        "reask": request.reask,
        "template": request.template,
        "created": now,
        "deadline": None,
        "prompt_sha256": sha,
        "expects": request.expects.value,
        "expected": EXPECTED[request.expects],
        "max_bytes": MAX_ANSWER,
    }
    return Posting(request_id, prompt, facts)


def is_request_id(text: str) -> bool:
    return bool(_ID.fullmatch(text)) and ".." not in text


def write_runner(mailbox: Mailbox, pid: int, host: str, open_calls: int, *, running: bool) -> float:
    """The sign of life; returns by how many seconds the file system's clock is ahead of ours."""
    facts = {"pid": pid, "host": host, "t": time.time(), "open": open_calls, "running": running}
    write_whole(mailbox.runner, as_json(facts))
    return mailbox.runner.stat().st_mtime - time.time()


def _stem(request: Request) -> str:
    """`<role>-<slot>`, the role once. Different slots stay different."""
    slug = request.slot.translate(_SPELLED)
    if not _SLUG.fullmatch(slug) or ".." in slug:
        told_apart = hashlib.sha256(request.slot.encode("utf-8", "surrogatepass")).hexdigest()[:6]
        slug = f"{re.sub(r'[^a-z0-9]+', '-', slug.lower())[:50].strip('-') or 'slot'}-{told_apart}"
    return slug if slug.startswith(f"{request.role}-") else f"{request.role}-{slug}"
