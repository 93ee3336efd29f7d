"""Commands of the command line around language models: answer a mailbox, serve a fake LLM."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from mkevolve_core.config import answerer_environment, environment
from mkevolve_core.errors import ConfigError
from mkevolve_core.llm.configuration import read_llm
from mkevolve_core.llm.doctor import findings
from mkevolve_core.llm.mailbox.answer import (
    describe,
    engine_line,
    find_request,
    open_requests,
    read_answer,
    submit,
    user_name,
)
from mkevolve_core.llm.mailbox.answerer import Answerer, answer_by_command
from mkevolve_core.llm.mailbox.marker import Marker
from mkevolve_core.llm.prices import read_prices
from mkevolve_core.terminal import out

RunsDir = Annotated[Path | None, typer.Option("--runs-dir", help="Where runs are kept [./runs].")]


def add(cli: typer.Typer, mailbox_of: Callable[[str, Path | None], Path]) -> None:
    """`mailbox_of`: a run's name and the runs folder → its mailbox."""

    @cli.command()
    def answer(
        run: Annotated[str, typer.Argument(help="A run's id, a part that fits one only, or its folder.")],
        request: Annotated[str | None, typer.Argument(help="An open request's id, or a part of it.")] = None,
        file: Annotated[Path | None, typer.Argument(help="The answer: a text file, or a folder.")] = None,
        command: Annotated[str | None, typer.Option(help="Prompt on stdin, answer on stdout.")] = None,
        who: Annotated[str, typer.Option(help="Who answers [the user's name].")] = "",
        model: Annotated[str, typer.Option(help="The language model that wrote it, if one did.")] = "",
        once: Annotated[bool, typer.Option(help="With --command: one request, then stop.")] = False,
        follow: Annotated[bool, typer.Option(help="With --command: wait for new requests.")] = False,
        runs_dir: RunsDir = None,
    ) -> None:
        """List a run's open requests, print one, hand in an answer, or let a command answer them all."""
        mailbox, who = mailbox_of(run, runs_dir), who or user_name()
        if command:
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the command too
            answerer = Answerer(command, answerer_environment(), who, model)
            count = answer_by_command(mailbox, answerer, out, once=once, follow=follow)
            out(f"{count} answered")
        elif request is None:
            _list(mailbox)
        elif file is None:
            out(find_request(mailbox, request).prompt_and_feedback())
        else:
            submit(find_request(mailbox, request), read_answer(file), Marker(who, model))
            out(f"handed in; {engine_line(mailbox, time.time())}")

    @cli.command("fake-llm")
    def fake_llm(
        port: Annotated[int, typer.Option(help="Where it listens, on this machine only.")] = 8400,
        script: Annotated[Path | None, typer.Option(help="Rules for its replies, TOML or JSON.")] = None,
    ) -> None:
        """Serve three vendors' dialects without a model behind them, to try a set-up at no cost."""
        from mkevolve_core.llm.fake.server import serve  # a web server that no other command needs

        serve(port, script, out)


def language_models() -> dict[str, str]:
    """Doctor's findings on what mkevolve.toml sets."""
    try:
        return findings(read_llm(None, environment()), environment(), read_prices(environment()))
    except ConfigError as trouble:  # built-in agents and the mailbox need no settings
        return {"language models": str(trouble)}


def _list(mailbox: Path) -> None:
    requests = open_requests(mailbox)
    for line in describe(requests, time.time()):
        out(line)
    if not requests:
        out("no open request")
    out(engine_line(mailbox, time.time()))
