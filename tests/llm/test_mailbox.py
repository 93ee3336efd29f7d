import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time

import pytest

from mkevolve_core.llm.mailbox.layout import posting
from mkevolve_core.llm.values import CallFailed, Expects, FailureKind, Role, Usage
from tests.llm.mailboxes import (
    KERNEL,
    ROLE,
    asked,
    closing,
    facts,
    folder_of,
    provider,
    request,
    serving,
    until,
)


def run_async(body):
    return asyncio.run(asyncio.wait_for(body, 30))


def mark(folder, **given):
    (folder / "answer.json").write_text(json.dumps(given))


def test_a_request_says_all_that_an_answerer_needs(tmp_path):
    async def body():
        async with serving(tmp_path) as mailbox:
            what = request(subproblem_id="4a")
            _, folder = await asked(mailbox, what)
            assert sorted(one.name for one in folder.iterdir()) == ["prompt.md", "request.json"]
            assert (folder / "prompt.md").read_text() == what.prompt
            told = facts(folder)
            assert folder.name == told["id"] == f"generate-4a_17-{told['prompt_sha256'][:12]}"
            assert (told["protocol"], told["role"], told["slot"], told["subproblem"]) == (
                1,
                "generate",
                "4a#17",
                "4a",
            )
            assert (told["expects"], told["max_bytes"], told["deadline"]) == ("kernel", 1 << 20, None)
            assert "ModelNew" in told["expected"]
            modes = {
                one: one.stat().st_mode & 0o777
                for one in (tmp_path / "mailbox", folder, folder / "prompt.md")
            }
            assert list(modes.values()) == [0o700, 0o700, 0o600]
            readme = (tmp_path / "mailbox" / "README.md").read_text()
            assert readme.count("\n") <= 40 and "answer.json" in readme

    run_async(body())


@pytest.mark.parametrize(
    ("slot", "role", "stem"),
    [
        ("4a#17", Role.GENERATE, "generate-4a_17"),
        ("decompose 1.2", Role.DECOMPOSE, "decompose-1.2"),
        ("review 4a#17 1~1", Role.REVIEW, "review-4a_17-1+1"),
    ],
)
def test_an_id_is_the_same_each_time_and_can_be_read(slot, role, stem):
    made = [posting(request(slot, role=role), "run", now).request_id for now in (1.0, 2.0)]
    assert made[0] == made[1] and made[0].rsplit("-", 1)[0] == stem


def test_no_slot_leads_out_of_the_folder_or_meets_another():
    slots = [
        "../../x",
        "a/b",
        "a b",
        "a-b",
        "A b",
        "a..b",
        ".",
        "",
        "x" * 300,
        "x" * 301,
        "ä#1",
        "a\n",
        "4#1",
        "4~1",
    ]
    ids = [posting(request(slot), "run", 0.0).request_id for slot in slots]
    assert all(set(one) <= set("abcdefghijklmnopqrstuvwxyz0123456789._+-") and ".." not in one for one in ids)
    assert all(len(one) < 120 for one in ids)
    assert len({one.lower() for one in ids}) == len(slots) - 1  # "a b" and "a-b" are spelled alike


def test_a_plain_answer_is_taken_once_it_rests(tmp_path):
    async def body():
        async with serving(tmp_path, settle=0.8) as mailbox:
            task, folder = await asked(mailbox)
            began = time.monotonic()
            with (folder / "answer.md").open("w") as file:
                for piece in (KERNEL[:100], KERNEL[100:300], KERNEL[300:]):
                    file.write(piece)
                    file.flush()
                    await asyncio.sleep(0.3)
                    assert not task.done()
            answer = await task
            assert time.monotonic() - began >= 0.6 + 0.8
            assert (answer.text, answer.model, answer.usage.known) == (KERNEL, "unnamed", False)
            assert closing(tmp_path)[folder.name]["outcome"] == "answered"
            assert (tmp_path / "mailbox" / "closed" / folder.name / "accepted.md").read_text() == KERNEL
            assert not folder.exists()

    run_async(body())


def test_an_answer_older_than_that_is_taken_at_first_sight(tmp_path):
    async def body():
        async with serving(tmp_path, settle=60.0) as mailbox:
            task, folder = await asked(mailbox)
            ready = tmp_path / "ready.md"
            ready.write_text(KERNEL)
            os.utime(ready, (time.time() - 100, time.time() - 100))
            ready.rename(folder / "answer.md")
            assert (await asyncio.wait_for(task, 5)).text == KERNEL

    run_async(body())


def test_a_marked_answer_is_taken_at_once_with_name_and_usage(tmp_path):
    async def body():
        async with serving(tmp_path, settle=60.0) as mailbox:
            task, folder = await asked(mailbox)
            (folder / "answer.md").write_text(KERNEL)
            mark(
                folder, who="anna", model="some-model", usage={"input": 1200, "output": 800, "cache_read": -1}
            )
            answer = await asyncio.wait_for(task, 5)
            assert answer.model == "some-model"
            usage = answer.usage
            assert (usage.input, usage.output, usage.cache_read, usage.known) == (1200, 800, 0, True)
            assert closing(tmp_path)[folder.name]["by"] == "some-model"

    run_async(body())


@pytest.mark.parametrize(
    ("marker", "name"),
    [
        ({"who": "anna"}, "anna"),
        ({}, "unnamed"),
        ({"who": 7, "model": ["x"], "usage": {"input": "many", "output": 1}}, "unnamed"),
        (
            {"who": "a\x1b[31m\nb" + "c" * 500, "usage": {"input": True, "output": 1}},
            ("a[31mb" + "c" * 500)[:100],
        ),
        ({"usage": {"input": 10**30, "output": 1}}, "unnamed"),
    ],
)
def test_a_marker_is_not_believed_blindly(tmp_path, marker, name):
    async def body():
        async with serving(tmp_path, settle=60.0) as mailbox:
            task, folder = await asked(mailbox)
            (folder / "answer.md").write_text(KERNEL)
            mark(folder, **marker)
            answer = await asyncio.wait_for(task, 5)
            assert (answer.model, answer.usage) == (name, Usage())

    run_async(body())


def test_a_marker_of_another_text_or_from_before_does_not_speed_an_answer_up(tmp_path):
    async def body():
        async with serving(tmp_path, settle=60.0) as mailbox:
            task, folder = await asked(mailbox)
            mark(folder, who="anna", sha256="0" * 64)
            (folder / "answer.md").write_text(KERNEL)
            other, folder2 = await asked(mailbox, request("5#1"))
            mark(folder2, who="anna")
            os.utime(folder2 / "answer.json", (time.time() - 9, time.time() - 9))
            (folder2 / "answer.md").write_text(KERNEL)
            await asyncio.sleep(0.3)
            assert not task.done() and not other.done()
            assert not mailbox.is_waiting("4a#17")  # something has arrived

    run_async(body())


def test_an_unusable_answer_is_told_why_and_the_next_one_counts(tmp_path):
    async def body():
        async with serving(tmp_path, settle=60.0) as mailbox:
            task, folder = await asked(mailbox)
            (folder / "answer.md").write_text("I would rather not.\n")
            mark(folder, usage={"input": 5, "output": 7})
            await until((folder / "feedback-1.md").exists)
            assert "Answer 1 of at most 3 could not be used: " in (folder / "feedback-1.md").read_text()
            assert (folder / "answer.rejected-1.md").read_text() == "I would rather not.\n"
            assert not (folder / "answer.md").exists() and not (folder / "answer.json").exists()
            await until(lambda: mailbox.is_waiting("4a#17"))
            (folder / "answer.md").write_text(KERNEL)
            mark(folder, usage={"input": 50, "output": 70})
            usage = (await task).usage
            assert (usage.input, usage.output, usage.known) == (55, 77, True)  # both are paid

    run_async(body())


def test_the_third_unusable_answer_fails_the_call(tmp_path):
    async def body():
        async with serving(tmp_path, settle=60.0) as mailbox:
            task, folder = await asked(mailbox)
            for number in (1, 2, 3):
                (folder / "answer.md").write_text(f"No {number}.")
                mark(folder, usage={"input": 1, "output": 2})
                if number < 3:
                    await until((folder / f"feedback-{number}.md").exists)
            with pytest.raises(CallFailed) as failed:
                await task
            assert failed.value.kind is FailureKind.REJECTED
            assert "3 answers could not be used" in failed.value.detail
            assert (failed.value.usage.input, failed.value.usage.output) == (3, 6)
            assert closing(tmp_path)[folder.name]["outcome"] == "rejected"
            kept = {one.name for one in (tmp_path / "mailbox" / "closed" / folder.name).iterdir()}
            assert {"answer.rejected-3.md", "feedback-3.md"} <= kept
            again, anew = await asked(mailbox)  # asked for once more, it is a request like any other
            assert anew == folder and not again.done() and not (anew / "feedback-1.md").exists()

    run_async(body())


def link_away(path):
    path.symlink_to("/etc/passwd")


def dangle(path):
    path.symlink_to("nowhere")


def make_folder(path):
    path.mkdir()


def make_pipe(path):
    os.mkfifo(path)


HOSTILE = {
    "link": (link_away, "is a link"),
    "dangling link": (dangle, "is a link"),
    "folder": (make_folder, "no regular file"),
    "pipe": (make_pipe, "no regular file"),
    "oversize": (lambda path: path.write_bytes(b"x" * ((1 << 20) + 1)), "more than 1048576"),
    "binary": (lambda path: path.write_bytes(b"\x7fELF\xff\xfe"), "is not UTF-8 text"),
    "utf-16": (lambda path: path.write_text(KERNEL, "utf-16"), "is not UTF-8 text"),
    "nul": (lambda path: path.write_bytes(b"a\0b"), "NUL"),
    "blank": (lambda path: path.write_text(" \n\n"), "is empty"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_text_is_rejected_and_never_followed(tmp_path, case):
    put, why = HOSTILE[case]

    async def body():
        async with serving(tmp_path) as mailbox:
            task, folder = await asked(mailbox)
            put(folder / "answer.md")
            await until((folder / "feedback-1.md").exists)
            assert why in (folder / "feedback-1.md").read_text()
            (folder / "answer.md").write_text(KERNEL)
            assert (await task).text == KERNEL

    run_async(body())


def test_an_empty_file_is_waited_for(tmp_path):
    async def body():
        async with serving(tmp_path, settle=0.05) as mailbox:
            task, folder = await asked(mailbox)
            (folder / "answer.md").touch()
            await asyncio.sleep(0.3)
            assert not task.done() and mailbox.is_waiting("4a#17")
            assert not (folder / "feedback-1.md").exists()
            (folder / "answer.md").write_text(KERNEL)
            assert (await task).text == KERNEL

    run_async(body())


FILES = {
    "decomposed_problem.py": """import torch
from subkernel_problems.scale import Model as Scale


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = Scale()

    def forward(self, x):
        return self.scale(x)
""",
    "subkernel_problems/scale.py": '''"""Scale by two, ```not a fence```."""
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return 2 * x


def get_inputs():
    return [torch.rand(4)]


def get_init_inputs():
    return []
''',
}


def put_files(folder, files=FILES):
    for name, text in files.items():
        path = folder / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_several_files_are_taken_as_one_reply_once_they_are_marked(tmp_path):
    from mkevolve_core.llm.extract import extract_files
    from mkevolve_core.llm.values import Stop

    async def body():
        async with serving(tmp_path, settle=0.05) as mailbox:
            task, folder = await asked(mailbox, request("decompose 1.1", Expects.FILES, Role.DECOMPOSE))
            put_files(folder)
            await asyncio.sleep(0.3)
            assert not task.done()  # nobody said that these are all
            mark(folder, who="anna")
            assert dict(extract_files((await task).text, Stop.END).files) == FILES

    run_async(body())


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda files: (files / "link.py").symlink_to("/etc/passwd"), "files/link.py: link.py is a link"),
        (lambda files: (files / "deep" / "er").mkdir(parents=True), "no regular file"),
        (lambda files: (files / "a b.py").write_text("x"), "no name of a file that we take"),
        (lambda files: (files / "big.txt").write_text("x" * (1 << 20)), "more than 1048576 bytes"),
        (lambda files: [(files / f"f{n}").write_text("x") for n in range(99)], "more than 64 files"),
        (lambda files: (files / "decomposed_problem.py").unlink(), "decomposed_problem.py is missing"),
        (lambda files: (files.rename(files.parent / "f"), files.symlink_to("f")), "is no folder"),
    ],
)
def test_files_that_lead_elsewhere_or_are_too_many_are_rejected(tmp_path, spoil, why):
    async def body():
        async with serving(tmp_path) as mailbox:
            what = request("decompose 1.1", Expects.FILES, Role.DECOMPOSE)
            task, folder = await asked(mailbox, what)
            put_files(folder)
            spoil(folder / "files")
            mark(folder)
            await until((folder / "feedback-1.md").exists)
            assert why in (folder / "feedback-1.md").read_text()
            assert not (folder / "files").exists() and not task.done()

    run_async(body())


def test_a_marker_that_is_no_json_is_rejected_with_its_files(tmp_path):
    async def body():
        async with serving(tmp_path) as mailbox:
            _, folder = await asked(mailbox, request("decompose 1.1", Expects.FILES, Role.DECOMPOSE))
            put_files(folder)
            (folder / "answer.json").write_text("done!")
            await until((folder / "feedback-1.md").exists)
            assert "answer.json is no JSON object" in (folder / "feedback-1.md").read_text()
            assert (folder / "files.rejected-1").is_dir()

    run_async(body())


def test_a_call_that_is_not_wanted_any_more_is_closed_as_cancelled(tmp_path):
    async def body():
        async with serving(tmp_path) as mailbox:
            task, folder = await asked(mailbox)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: not folder.exists())
            assert closing(tmp_path)[folder.name]["outcome"] == "cancelled"
            assert not mailbox.is_waiting("4a#17")

    run_async(body())


def test_a_call_cancelled_at_once_leaves_nothing_open(tmp_path):
    async def body():
        async with serving(tmp_path) as mailbox:
            for steps in range(12):
                task = asyncio.create_task(mailbox.once(request(f"4a#{steps}"), ROLE, lambda text: None))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
            await asyncio.sleep(0.3)
            assert list((tmp_path / "mailbox" / "open").iterdir()) == []

    run_async(body())


def test_a_run_that_parks_leaves_its_requests_open_and_adopts_them(tmp_path):
    async def park():
        async with serving(tmp_path) as mailbox:
            task, folder = await asked(mailbox)
            await mailbox.close()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(CallFailed):
                await mailbox.once(request("9#9"), ROLE, lambda text: None)
        return folder

    async def resume(folder, before):
        async with serving(tmp_path, settle=60.0) as mailbox:
            answer = await asyncio.wait_for(mailbox.once(request(), ROLE, lambda text: None), 5)
            assert answer.text == KERNEL
            closed = tmp_path / "mailbox" / "closed" / folder.name
            assert (closed / "request.json").read_bytes() == before  # adopted, not published again

    folder = run_async(park())
    assert json.loads((tmp_path / "mailbox" / "runner.json").read_text())["running"] is False
    before = (folder / "request.json").read_bytes()
    (folder / "answer.md").write_text(KERNEL)  # nobody is there
    os.utime(folder / "answer.md", (time.time() - 100, time.time() - 100))
    run_async(resume(folder, before))


def test_an_event_loop_that_ends_leaves_requests_open(tmp_path):
    async def body():
        _, folder = await asked(provider(tmp_path))
        return folder

    assert run_async(body()).is_dir()


KILLED = """
import asyncio, os, sys
from pathlib import Path
from tests.llm.mailboxes import asked, provider
async def body():
    await asked(provider(Path(sys.argv[1])))
    os.kill(os.getpid(), 9)
asyncio.run(body())
"""


def test_a_killed_engine_leaves_requests_open_and_its_resumption_takes_the_answer(tmp_path):
    ended = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    assert ended.returncode == -9

    async def body():
        async with serving(tmp_path) as mailbox:
            (folder,) = (tmp_path / "mailbox" / "open").iterdir()
            (folder / "answer.md").write_text(KERNEL)
            assert (await mailbox.once(request(), ROLE, lambda text: None)).text == KERNEL

    run_async(body())


def test_an_answer_that_was_accepted_before_the_engine_died_is_not_asked_for_again(tmp_path):
    async def body():
        async with serving(tmp_path, settle=60.0) as mailbox:
            task, folder = await asked(mailbox)
            (folder / "answer.md").write_text(KERNEL)
            mark(folder, model="some-model", usage={"input": 3, "output": 4})
            first = await task
        async with serving(tmp_path, settle=60.0) as mailbox:
            again = await mailbox.once(request(), ROLE, lambda text: None)
            assert again == first
            assert list((tmp_path / "mailbox" / "open").iterdir()) == []
        (tmp_path / "mailbox" / "closed" / folder.name / "accepted.md").write_text("tampered")
        async with serving(tmp_path, settle=60.0) as mailbox:
            await asked(mailbox)  # what is kept is not what was accepted

    run_async(body())


def test_an_engine_killed_while_it_closed_a_request_goes_on_from_there(tmp_path):
    async def body():
        async with serving(tmp_path, settle=60.0) as mailbox:
            task, folder = await asked(mailbox)
            (folder / "answer.md").write_text(KERNEL)
            mark(folder)
            await task
        (tmp_path / "mailbox" / "closed" / folder.name).rename(folder)  # as if it had died before the move
        async with serving(tmp_path, settle=60.0) as mailbox:
            assert (await mailbox.once(request(), ROLE, lambda text: None)).text == KERNEL
            assert not folder.exists()

    run_async(body())


def test_an_engine_killed_while_it_rejected_an_answer_still_says_so(tmp_path):
    async def body():
        async with serving(tmp_path) as mailbox:
            _, folder = await asked(mailbox)
        (folder / "answer.rejected-1.md").write_text("x")
        async with serving(tmp_path) as mailbox:
            await asked(mailbox)
            assert "Answer 1 of at most 3" in (folder / "feedback-1.md").read_text()

    run_async(body())


async def asked_and_cancelled(mailbox):
    task, folder = await asked(mailbox)
    task.cancel()
    await until(lambda: not folder.exists())
    return folder


def test_one_that_is_asked_again_after_it_was_cancelled_is_open_again(tmp_path):
    async def body():
        async with serving(tmp_path) as mailbox:
            folder = [await asked_and_cancelled(mailbox) for _ in range(3)][0]
            assert sorted(closing(tmp_path)) == [folder.name, f"{folder.name}.2", f"{folder.name}.3"]
            _, again = await asked(mailbox)
            assert again == folder

    run_async(body())


def test_a_folder_that_somebody_removed_is_published_again(tmp_path):
    async def body():
        async with serving(tmp_path) as mailbox:
            task, folder = await asked(mailbox)
            (folder / "prompt.md").unlink()
            (folder / "request.json").unlink()
            folder.rmdir()
            await until(lambda: (folder / "request.json").exists())
            (folder / "answer.md").write_text(KERNEL)
            assert (await task).text == KERNEL

    run_async(body())


def test_a_damaged_request_is_put_away_and_published_anew(tmp_path):
    async def body():
        async with serving(tmp_path) as mailbox:
            _, folder = await asked(mailbox)
        (folder / "request.json").write_text("{")
        async with serving(tmp_path) as mailbox:
            await asked(mailbox)
            assert facts(folder_of(mailbox, request()))["slot"] == "4a#17"

    run_async(body())


def test_a_text_written_between_the_look_and_the_reject_is_not_thrown_away(tmp_path, monkeypatch):
    from mkevolve_core.llm.mailbox import posted

    async def body():
        async with serving(tmp_path) as mailbox:
            task, folder = await asked(mailbox)
            (folder / "answer.md").write_text("rubbish")
            real = posted.complaint

            def slow(expects, prompt, text):
                if text == "rubbish":
                    (folder / "new.md").write_text(KERNEL)
                    (folder / "new.md").rename(folder / "answer.md")
                return real(expects, prompt, text)

            monkeypatch.setattr(posted, "complaint", slow)
            assert (await task).text == KERNEL
            assert not (tmp_path / "mailbox" / "closed" / folder.name / "feedback-1.md").exists()

    run_async(body())


def test_whoever_took_the_lock_and_died_does_not_block_a_request(tmp_path):
    async def body():
        async with serving(tmp_path) as mailbox:
            _, folder = await asked(mailbox)
            lock = folder / "answer.lock"
            lock.touch()
            await asyncio.sleep(0.2)
            assert lock.exists()
            os.utime(lock, (time.time() - 61, time.time() - 61))
            await until(lambda: not lock.exists())

    run_async(body())


def test_many_open_calls_share_one_poller(tmp_path):
    async def body():
        async with serving(tmp_path, settle=60.0) as mailbox:
            calls = [await asked(mailbox, request(f"4a#{number}")) for number in range(40)]
            pollers = [
                task for task in asyncio.all_tasks() if "MailboxProvider._poll" in repr(task.get_coro())
            ]
            assert len(pollers) == 1
            for _, folder in reversed(calls):
                (folder / "answer.md").write_text(KERNEL)
                mark(folder, who=folder.name)
            answers = await asyncio.gather(*(task for task, _ in calls))
            assert [answer.model for answer in answers] == [folder.name for _, folder in calls]

    run_async(body())


def test_a_disk_that_fails_for_long_fails_the_call_and_not_the_poller(tmp_path, monkeypatch):
    from mkevolve_core.llm.providers import mailbox as module

    monkeypatch.setattr(module, "_PATIENCE_S", 0.2)

    async def body():
        (tmp_path / "mailbox").write_text("a file")
        async with serving(tmp_path) as mailbox:
            with pytest.raises(CallFailed) as failed:
                await mailbox.once(request(), ROLE, lambda text: None)
            assert failed.value.kind is FailureKind.CONNECTION
            (tmp_path / "mailbox").unlink()
            task, folder = await asked(mailbox)
            assert folder.is_dir()
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    run_async(body())


def test_a_bug_in_the_poller_ends_the_calls_that_wait_for_it(tmp_path, monkeypatch):
    from mkevolve_core.llm.mailbox import posted

    async def body():
        async with serving(tmp_path) as mailbox:
            task, folder = await asked(mailbox)
            monkeypatch.setattr(posted, "complaint", lambda *given: 1 / 0)
            (folder / "answer.md").write_text(KERNEL)
            with pytest.raises(ZeroDivisionError):
                await task

    run_async(body())
