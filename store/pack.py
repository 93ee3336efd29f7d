"""One file of a run, to go on with it on another machine, and back. Archives are hostile until checked."""

from __future__ import annotations

import hashlib
import io
import os
import re
import secrets
import shutil
import stat
import tarfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from mkevolve_core.atomic import renamed_at_end
from mkevolve_core.errors import ConfigError
from store.liveness import liveness
from store.run_folder import RunFolder, state_of

_LEDGER, _JOURNAL = "calls.jsonl", "journal.jsonl"  # a line each; the last may be half written
_FILES = ("config.toml", "problem.py", "engine.log", _LEDGER, _JOURNAL)  # the journal last: it makes the run
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")
_MAIL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,120}")  # requests, and what answers are made of
_MAX_MAIL_DEPTH = 6  # mailbox/open/<id>/files/subkernel_problems/<name>
_SHA = re.compile(r"[0-9a-f]{64}")
_MAX_FILE = 1 << 30  # bytes
_MAX_MAIL = 1 << 24
_MAX_TOTAL = 8 << 30
_MAX_MEMBERS = 2_000_000
_AT_WORK = ("starting", "running", "pausing", "stopping", "stalled")


def pack(run: RunFolder, out: Path, *, force: bool = False) -> Path:
    """Write a .tar.gz of the run without its lock and heartbeat, and return its path.

    Raises ConfigError while an engine is at work, unless forced, and JournalError for a damaged journal.
    """
    state = run.state()
    if state.seq == 0:
        raise ConfigError(f"Run {run.run_id} has no event yet: there is nothing to pack.")
    live = liveness(run.path, state, time.time())
    if live.word in _AT_WORK and not force:
        raise ConfigError(f"Run {run.run_id} is {live.word}: pause or park it first, or use --force.")
    try:
        with (
            renamed_at_end(out) as temporary,
            tarfile.open(temporary, "w:gz", format=tarfile.PAX_FORMAT) as archive,
        ):
            for path in _packed(run):
                _add(archive, path, f"{run.run_id}/{path.relative_to(run.path).as_posix()}")
    except OSError as error:
        raise ConfigError(f"Cannot write {out}: {(error.strerror or str(error)).lower()}.") from error
    return out


def unpack(file: Path, runs_dir: Path) -> str:
    """Lay a packed run out in a runs folder and return its id.

    A run that is there already goes on with the packed journal if that continues its own. Raises ConfigError
    for anything else: another history, a living engine, or a file that is no packed run.
    """
    folder = runs_dir / f".unpack-{secrets.token_hex(6)}"
    try:
        folder.mkdir(parents=True)
        run_id = _extract(file, folder)
        _settle(folder, RunFolder(runs_dir / run_id))
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ConfigError(f"{file} is no packed run, or is cut off: {error}.") from error
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ConfigError(f"Cannot unpack {file} to {runs_dir}: {why}.") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return run_id


def _packed(run: RunFolder) -> Iterator[Path]:
    for name in _FILES:
        if (run.path / name).is_file():
            yield run.path / name
    for pattern in ("artifacts/*", "commands/*.json"):
        yield from (p for p in sorted(run.path.glob(pattern)) if p.is_file() and not p.name.startswith("."))
    yield from _mail(run.path)


def _mail(run: Path) -> Iterator[Path]:
    """Requests and answers. Anybody writes there: what is no regular file of a fair size stays here."""
    for folder, _, names in os.walk(run / "mailbox"):
        for path in sorted(Path(folder, name) for name in names):
            status = path.lstat()
            fair = stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_MAIL
            if fair and _known(PurePosixPath(path.relative_to(run).as_posix())):
                yield path


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """The file as it is now; a journal or ledger that grows meanwhile is cut at its last whole line."""
    content = path.read_bytes()
    if path.name in (_JOURNAL, _LEDGER):
        content = content[: content.rfind(b"\n") + 1]
    member = tarfile.TarInfo(name)
    member.size, member.mtime = len(content), path.stat().st_mtime
    archive.addfile(member, io.BytesIO(content))


def _extract(file: Path, folder: Path) -> str:
    """Only the files a run has, by name; nothing else about the archive is believed."""
    run_id, total, seen = "", 0, set[str]()
    with tarfile.open(file, "r:gz") as archive:
        for member in archive:
            total += member.size
            if member.isdir():
                continue
            owner, inside = _place(member, seen)
            seen.add(str(inside))
            if run_id not in ("", owner) or total > _MAX_TOTAL or len(seen) > _MAX_MEMBERS:
                raise ConfigError(f"{file} is refused: it holds more than one run, or too much.")
            run_id = owner
            _write(archive, member, folder / inside)
    if not {_JOURNAL, "config.toml", "problem.py"} <= seen:
        raise ConfigError(f"{file} is no packed run: it lacks a journal, settings or a problem.")
    return run_id


def _place(member: tarfile.TarInfo, seen: set[str]) -> tuple[str, Path]:
    """(run id, path below the run's folder). Raises ConfigError for a member that no run has."""
    name = PurePosixPath(member.name)
    inside = PurePosixPath(*name.parts[1:])
    refusal = f"The archive is refused: '{member.name}' "
    if not member.isreg():
        raise ConfigError(f"{refusal}is a link or a device.")
    if member.size > (_MAX_MAIL if inside.parts[:1] == ("mailbox",) else _MAX_FILE) or member.size < 0:
        raise ConfigError(f"{refusal}has {member.size} bytes.")
    if name.is_absolute() or len(name.parts) < 2 or not _NAME.fullmatch(name.parts[0]) or not _known(inside):
        raise ConfigError(f"{refusal}is no file of a run.")
    if str(inside) in seen:
        raise ConfigError(f"{refusal}is there twice.")
    return name.parts[0], Path(inside)


def _known(inside: PurePosixPath) -> bool:
    parts = inside.parts
    if len(parts) == 1:
        return parts[0] in _FILES
    if parts[0] == "mailbox":
        return _is_mail(parts)
    if len(parts) != 2:
        return False
    is_artifact = parts[0] == "artifacts" and bool(_SHA.fullmatch(parts[1]))
    is_command = parts[0] == "commands" and bool(_NAME.fullmatch(parts[1])) and parts[1].endswith(".json")
    return is_artifact or is_command


def _is_mail(parts: tuple[str, ...]) -> bool:
    if parts == ("mailbox", "README.md"):
        return True
    deep_enough = len(parts) == 4 or (4 < len(parts) <= _MAX_MAIL_DEPTH and parts[3].startswith("files"))
    return deep_enough and parts[1] in ("open", "closed") and all(map(_MAIL_NAME.fullmatch, parts[2:]))


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    source = archive.extractfile(member)
    assert source is not None  # a regular file has content
    content = source.read()
    if len(content) != member.size:
        raise EOFError(f"{member.name} ends too early")
    if path.parent.name == "artifacts" and hashlib.sha256(content).hexdigest() != path.name:
        raise ConfigError(f"The archive is refused: artifact {path.name} holds another text.")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if path.name == _LEDGER:
        path.chmod(0o600)


def _settle(folder: Path, run: RunFolder) -> None:
    """Make the extracted folder the run, or bring the run that is there up to it."""
    state_of(folder / _JOURNAL)  # a damaged journal is no run
    if not run.path.exists():
        folder.rename(run.path)
        return
    with run.lock():
        if not _continues(run.journal_path, folder / _JOURNAL):
            raise ConfigError(
                f"Run {run.run_id} is here already with another history: move {run.path} away first."
            )
        _keep_calls(run.path / _LEDGER, folder / _LEDGER)
        for path in sorted(folder.rglob("*"), key=lambda one: one.name == _JOURNAL):
            if path.is_file():
                target = run.path / path.relative_to(folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)
        (run.path / "engine.json").unlink(missing_ok=True)


def _keep_calls(old: Path, new: Path) -> None:
    """Calls that only the old ledger has were paid for here: they are added to the new one."""
    if old.exists():
        lines = new.read_bytes().splitlines(keepends=True) if new.exists() else []
        known = set(lines)
        paid = [line for line in old.read_bytes().splitlines(keepends=True) if line not in known]
        new.write_bytes(b"".join(lines + [line for line in paid if line.endswith(b"\n")]))
        new.chmod(0o600)


def _continues(old: Path, new: Path) -> bool:
    """The old journal is a beginning of the new one (its half-written last line apart)."""
    before = old.read_bytes() if old.exists() else b""
    before = before[: before.rfind(b"\n") + 1]
    return new.read_bytes().startswith(before)
