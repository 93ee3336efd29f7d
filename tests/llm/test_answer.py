import asyncio
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from mkevolve_core.config import answerer_environment
from mkevolve_core.errors import CommandError
from mkevolve_core.llm.mailbox import claims
from mkevolve_core.llm.mailbox.answer import (
    describe,
    engine_line,
    find_request,
    open_requests,
    read_answer,
    submit,
)
from mkevolve_core.llm.mailbox.answerer import Answerer, answer_by_command
from mkevolve_core.llm.mailbox.layout import Mailbox, posting, write_runner
from mkevolve_core.llm.mailbox.marker import Marker
from mkevolve_core.llm.values import Expects, Role, Usage
from tests.llm.mailboxes import KERNEL, ROLE, request, serving

NOW = time.time()


@pytest.fixture
def mailbox(tmp_path):
    box = Mailbox(tmp_path / "mailbox")
    box.prepare()
    return box.path


def publish(mailbox, slot="4a#17", created=NOW, **given):
    """As an engine does that is gone since."""
    made = posting(request(slot, **given), "run", created)
    made.publish(Mailbox(mailbox))
    return mailbox / "open" / made.request_id


def resumed(mailbox, *requests):
    """The answers that a resumed engine takes."""

    async def body():
        async with serving(mailbox.parent, settle=60.0) as engine, asyncio.timeout(20):
            return [await engine.once(one, ROLE, lambda text: None) for one in requests]

    return asyncio.run(body())


def no_links(source, target):
    raise PermissionError(1, "Operation not permitted")


def test_open_requests_are_listed_oldest_first_with_who_is_at_them(mailbox):
    publish(mailbox, "5#1", NOW - 5 * 3600, role=Role.REFINE, subproblem_id="5")
    old = publish(mailbox, "4a#17", NOW - 720, subproblem_id="4a")
    new = publish(mailbox, "review 4a#3 1", NOW, role=Role.REVIEW, expects=Expects.JSON)
    claims.take(old, "anna")
    (new / "answer.rejected-1.md").write_text("x")
    publish(mailbox, "6#1", NOW + 1)
    (mailbox / "open" / find_request(mailbox, "6_1").request_id / "answer.md").write_text("x")
    lines = list(describe(open_requests(mailbox), NOW))
    assert [line.split()[1:] for line in lines] == [
        ["refine", "5", "5.0", "h"],
        ["generate", "4a", "12", "min", "claimed", "by", "anna"],
        ["review", "-", "0", "s", "1", "rejected"],
        ["generate", "-", "0", "s", "answered,", "waits", "for", "the", "engine"],
    ]
    assert [line.split()[0] for line in lines] == [one.request_id for one in open_requests(mailbox)]


def test_where_there_is_no_mailbox_nothing_is_open(tmp_path):
    assert open_requests(tmp_path / "mailbox") == ()


def test_whether_the_engine_runs_is_said(mailbox):
    write_runner(Mailbox(mailbox), 1, "host", 2, running=True)
    assert engine_line(mailbox, time.time()).startswith("The engine runs")
    assert "when the run is resumed" in engine_line(mailbox, time.time() + 60)
    write_runner(Mailbox(mailbox), 1, "host", 2, running=False)
    assert "when the run is resumed" in engine_line(mailbox, time.time())


def test_a_request_is_found_by_a_part_of_its_id(mailbox):
    folder = publish(mailbox, "4a#17")
    publish(mailbox, "4a#18")
    assert find_request(mailbox, "4a_17").folder == find_request(mailbox, folder.name).folder == folder
    with pytest.raises(CommandError, match="'4a' fits 2 open requests"):
        find_request(mailbox, "4a")
    with pytest.raises(CommandError, match="No open request 'x'"):
        find_request(mailbox, "x")


@pytest.mark.parametrize(
    "wanted", ["../../etc", "/etc/passwd", "..", ".", "", "a/b", "a\n\x1b[31m", "x" * 5000]
)
def test_no_id_leads_out_of_the_mailbox(mailbox, wanted):
    publish(mailbox)
    publish(mailbox, "5#1")
    (mailbox.parent / "x").mkdir()
    with pytest.raises(CommandError, match="No open request|fits 2 open"):
        find_request(mailbox, wanted)


def test_what_is_no_request_is_not_listed(mailbox):
    opened = mailbox / "open"
    (opened / "empty").mkdir()
    (opened / "link").symlink_to(publish(mailbox).parent)
    (opened / "A b").mkdir()
    (opened / "file").write_text("x")
    strange = publish(mailbox, "5#1")
    (strange / "request.json").write_text("[" * 100_000)
    strange = publish(mailbox, "6#1")
    (strange / "request.json").write_text(json.dumps({"expects": "poem"}))
    closing = publish(mailbox, "7#1")
    (closing / "closed.json").write_text("{}")
    assert [one.slot for one in open_requests(mailbox)] == ["4a#17"]


def test_a_request_that_was_closed_on_another_machine_is_open_here_no_more(mailbox):
    folder = publish(mailbox)
    closed = mailbox / "closed" / folder.name
    closed.mkdir()
    (closed / "request.json").write_bytes((folder / "request.json").read_bytes())
    assert open_requests(mailbox) == ()
    (closed / "request.json").write_text('{"created": 1}')  # an earlier publication, cancelled since
    assert len(open_requests(mailbox)) == 1


def test_an_answer_given_while_no_engine_runs_is_taken_when_it_resumes(mailbox):
    publish(mailbox)
    submit(
        find_request(mailbox, "4a"),
        KERNEL,
        Marker("anna", "some-model", Usage(input=5, output=6, known=True)),
    )
    assert open_requests(mailbox)[0].is_answered
    (answer,) = resumed(mailbox, request())
    assert (answer.text, answer.model) == (KERNEL, "some-model")
    assert (answer.usage.input, answer.usage.output, answer.usage.known) == (5, 6, True)
    with pytest.raises(CommandError, match=r"is closed \(answered\)"):
        find_request(
            mailbox,
            json.loads(next((mailbox / "closed").iterdir()).joinpath("request.json").read_text())["id"],
        )


@pytest.mark.parametrize("link", [os.link, no_links])
def test_the_first_answer_counts(mailbox, link):
    folder = publish(mailbox)
    submit(find_request(mailbox, "4a"), KERNEL, Marker("anna"), link)
    with pytest.raises(CommandError, match="has an answer already: the first one counts"):
        submit(find_request(mailbox, "4a"), KERNEL + "# 2\n", Marker("bert"), link)
    assert (folder / "answer.md").read_text() == KERNEL
    assert json.loads((folder / "answer.json").read_text())["who"] == "anna"
    assert not [one.name for one in folder.iterdir() if one.name.startswith(".")]
    assert resumed(mailbox, request())[0].model == "anna"


def test_a_lock_that_another_holds_is_respected_without_links(mailbox):
    folder = publish(mailbox)
    (folder / "answer.lock").touch()
    with pytest.raises(CommandError, match="has an answer already"):
        submit(find_request(mailbox, "4a"), KERNEL, Marker(), no_links)
    assert not (folder / "answer.md").exists()


def test_what_is_wrong_is_said_before_anything_is_handed_in(mailbox):
    folder = publish(mailbox)
    before = set(folder.iterdir())
    with pytest.raises(CommandError, match=r"^Not handed in: .*[^.]\.$"):
        submit(find_request(mailbox, "4a"), "```python\nclass Model: pass\n```\n", Marker())
    with pytest.raises(CommandError, match="more than 1048576 bytes"):
        submit(find_request(mailbox, "4a"), KERNEL + "#" * (1 << 20), Marker())
    assert set(folder.iterdir()) == before


def test_an_answer_to_a_request_that_is_gone_is_one_sentence(mailbox):
    folder = publish(mailbox)
    found = find_request(mailbox, "4a")
    folder.rename(mailbox / "closed" / folder.name)
    with pytest.raises(CommandError, match="was closed meanwhile"):
        submit(found, KERNEL, Marker())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b"\xff\xfe\x00", "is not UTF-8"),
        (b"a\0", "NUL"),
        (b"x" * ((1 << 20) + 1), "more than 1048576 bytes"),
        (None, "Cannot read"),
    ],
)
def test_a_file_that_is_no_answer_is_one_sentence(tmp_path, content, why):
    if content is not None:
        (tmp_path / "a.md").write_bytes(content)
    with pytest.raises(CommandError, match=why):
        read_answer(tmp_path / "a.md")


def test_a_folder_of_files_is_read_as_one_answer(tmp_path):
    (tmp_path / "subkernel_problems").mkdir()
    (tmp_path / "decomposed_problem.py").write_text("a = '''\n````\n'''\n")
    (tmp_path / "subkernel_problems" / "one.py").write_text("b = 1")
    assert read_answer(tmp_path).splitlines() == [
        "### FILE: decomposed_problem.py",
        "`````python",
        "a = '''",
        "````",
        "'''",
        "`````",
        "",
        "### FILE: subkernel_problems/one.py",
        "```python",
        "b = 1",
        "```",
        "",
        "FILES: decomposed_problem.py, subkernel_problems/one.py",
    ]


# Claims


@pytest.mark.parametrize("link", [os.link, no_links])
def test_a_claim_holds_until_it_expires_or_is_released(mailbox, link):
    folder = publish(mailbox)
    anna = claims.take(folder, "anna", 60, link)
    assert anna.number == 1 and claims.take(folder, "bert", 60, link) is None
    anna = claims.renew(folder, anna, 60, link)
    assert anna.number == 2 and claims.holder(folder, time.time()) == anna
    claims.release(folder, anna, link)
    bert = claims.take(folder, "bert", 0.01, link)
    assert bert.number == 4
    time.sleep(0.02)
    carl = claims.take(folder, "carl", 60, link)
    assert carl.who == "carl" and claims.renew(folder, bert, 60, link) is None


def test_a_reject_voids_claims(mailbox):
    folder = publish(mailbox)
    anna = claims.take(folder, "anna")
    (folder / "answer.rejected-1.md").write_text("x")
    assert claims.holder(folder, time.time()) is None and claims.renew(folder, anna) is None
    assert claims.take(folder, "bert").round == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"who": 3, "expires": "never"}',
        '{"who": "anna", "expires": 1e300}',
        '{"expires": Infinity}',
    ],
)
def test_a_claim_that_makes_no_sense_holds_for_one_lease_at_most(mailbox, text):
    folder = publish(mailbox)
    (folder / "claim-1.json").write_text(text)
    assert claims.take(folder, "bert") is None
    os.utime(folder / "claim-1.json", (NOW - 601, NOW - 601))
    assert claims.take(folder, "bert").number == 2


def test_a_claim_whose_writer_died_at_its_lock_holds_for_one_lease(mailbox):
    folder = publish(mailbox)
    (folder / "claim-1.lock").touch()
    assert claims.take(folder, "bert", link=no_links) is None
    os.utime(folder / "claim-1.lock", (NOW - 601, NOW - 601))
    assert claims.take(folder, "bert", link=no_links).number == 2


# A command as an answerer


@pytest.fixture
def answerer(tmp_path):
    (tmp_path / "kernel.md").write_text(KERNEL)

    def made(command, **given):
        return Answerer(command, {"PATH": os.environ["PATH"]}, "cat", **given)

    return made


def by_command(mailbox, answerer, **given):
    said = []
    count = answer_by_command(mailbox, answerer, said.append, poll_seconds=0.02, **given)
    return count, [line.split(": ", 1)[1] for line in said]


def test_a_command_gets_the_prompt_and_its_output_is_the_answer(mailbox, answerer, tmp_path):
    publish(mailbox)
    publish(mailbox, "5#1", NOW + 1, task="Another.")
    command = f"tee -a {tmp_path}/seen >/dev/null; cat {tmp_path}/kernel.md"
    assert by_command(mailbox, answerer(command, model="some-model")) == (2, ["claimed", "answered"] * 2)
    assert (tmp_path / "seen").read_text() == request().prompt + request(task="Another.").prompt
    answers = resumed(mailbox, request(), request("5#1", task="Another."))
    assert [(one.text, one.model) for one in answers] == [(KERNEL, "some-model")] * 2


def test_once_is_one_request(mailbox, answerer, tmp_path):
    publish(mailbox)
    publish(mailbox, "5#1", NOW + 1)
    assert by_command(mailbox, answerer(f"cat {tmp_path}/kernel.md"), once=True)[0] == 1
    assert [one.is_answered for one in open_requests(mailbox)] == [True, False]


def test_a_command_that_follows_takes_what_comes_later(mailbox, answerer, tmp_path):
    publish(mailbox)

    class Enough(Exception):
        pass

    def say(line):
        if "4a" in line and line.endswith("answered"):
            publish(mailbox, "5#1")
        if "5_1" in line and line.endswith("answered"):
            raise Enough

    with pytest.raises(Enough):
        answer_by_command(mailbox, answerer(f"cat {tmp_path}/kernel.md"), say, follow=True, poll_seconds=0.02)


def test_no_key_reaches_the_command(mailbox, tmp_path, monkeypatch):
    publish(mailbox)
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "SOME_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "canary-4711")
    answerer = Answerer(f"env > {tmp_path}/env; false", answerer_environment(), "env")
    assert by_command(mailbox, answerer) == (0, ["claimed", "the command ended with status 1"])
    seen = (tmp_path / "env").read_text()
    assert "canary" not in seen
    assert f"HOME={os.environ['HOME']}" in seen and "PATH=" in seen


def test_unusable_output_is_asked_for_once_more_with_what_was_wrong(mailbox, answerer, tmp_path):
    publish(mailbox)
    command = (
        f"if grep -q 'Your last answer could not be used'; then cat {tmp_path}/kernel.md; else echo no; fi"
    )
    assert by_command(mailbox, answerer(command)) == (1, ["claimed", "answered"])


def test_feedback_of_the_engine_reaches_the_command(mailbox, answerer, tmp_path):
    folder = publish(mailbox)
    (folder / "answer.rejected-1.md").write_text("x")
    (folder / "feedback-1.md").write_text("Answer 1 of at most 3 could not be used: hm.")
    command = f"grep -q 'Answer 1 of at most 3' && cat {tmp_path}/kernel.md"
    assert by_command(mailbox, answerer(command))[0] == 1


@pytest.mark.parametrize(
    ("command", "given", "why"),
    [
        ("echo no", {}, "no usable answer: "),
        ("true", {}, "stdout is empty."),
        ("exit 3", {}, "the command ended with status 3"),
        ("sleep 60 & sleep 60", {"limit": 0.3}, "the command took more than 0.3 s and was ended"),
        ("yes | head -c 3000000; sleep 60", {}, "the command printed more than 1048576 bytes and was ended"),
    ],
)
def test_a_command_that_gives_no_answer_frees_the_request_and_is_not_asked_again(
    mailbox, answerer, command, given, why
):
    folder = publish(mailbox)
    count, said = by_command(mailbox, answerer(command, **given))
    assert count == 0 and said[0] == "claimed" and said[1].startswith(why) and len(said) == 2
    assert claims.holder(folder, time.time()) is None
    assert not (folder / "answer.md").exists()


def test_a_command_whose_answer_is_not_wanted_any_more_is_ended(mailbox, answerer, tmp_path):
    folder = publish(mailbox)
    (tmp_path / "other.md").write_text(KERNEL)
    command = f"mv {tmp_path}/other.md {folder}/answer.md; sleep 60"
    count, said = by_command(mailbox, answerer(command))
    assert (count, said[1]) == (0, "answered by somebody else or closed meanwhile; the command was ended")


def test_a_lease_is_renewed_while_the_command_works(mailbox, answerer, tmp_path):
    folder = publish(mailbox)
    assert by_command(mailbox, answerer(f"sleep 1.2; cat {tmp_path}/kernel.md", lease=0.6))[0] == 1
    assert len(list(folder.glob("claim-*.json"))) >= 4  # taken, renewed twice or more, released


def test_a_command_that_lost_its_claim_is_ended(mailbox, answerer, tmp_path):
    folder = publish(mailbox)
    other = json.dumps({"who": "bert", "expires": time.time() + 0.8, "round": 1})
    command = f"echo '{other}' > {folder}/claim-2.json; sleep 60"
    count, said = by_command(mailbox, answerer(command, lease=0.2))
    assert (count, said[1]) == (0, "the claim is lost; the command was ended")


def test_what_others_have_claimed_is_waited_for(mailbox, answerer, tmp_path):
    folder = publish(mailbox)
    claims.take(folder, "bert", 0.3)
    began = time.monotonic()
    assert by_command(mailbox, answerer(f"cat {tmp_path}/kernel.md"))[0] == 1
    assert time.monotonic() - began > 0.2


ANSWERING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background ignores it
from pathlib import Path
from mkevolve_core.llm.mailbox.answerer import Answerer, answer_by_command
answer_by_command(Path(sys.argv[1]), Answerer(sys.argv[2], {"PATH": os.environ["PATH"]}, "cat"), print)
"""


def test_an_interrupted_answerer_ends_its_command_and_frees_the_request(mailbox, tmp_path):
    folder = publish(mailbox)
    command = f"trap '' TERM; sleep 60 & echo $! > {tmp_path}/pid; wait"
    process = subprocess.Popen([sys.executable, "-c", ANSWERING, mailbox, command], stderr=subprocess.PIPE)
    wait_for((tmp_path / "pid").exists)
    assert claims.holder(folder, time.time()) is not None
    process.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in process.communicate(timeout=60)[1]
    wait_for(lambda: not psutil.pid_exists(int((tmp_path / "pid").read_text())))
    assert claims.holder(folder, time.time()) is None


def wait_for(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
