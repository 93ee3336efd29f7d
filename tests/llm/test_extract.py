"""Replies as files, in many models' styles: each must come out as its sidecar says."""

from __future__ import annotations

import ast
import json
import random
import time
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from mkevolve_core.llm.extract import (
    Outcome,
    extract_files,
    extract_json,
    extract_kernel,
    why_unusable,
)
from mkevolve_core.llm.fences import Scanner
from mkevolve_core.llm.json_reply import objects
from mkevolve_core.llm.values import Expects, Stop
from mkevolve_core.llm.visible import visible

REPLIES = Path(__file__).parent / "replies"
FUNCTIONS = {"kernel": extract_kernel, "files": extract_files, "json": extract_json}
KEYS = {"function", "stop", "outcome", "block", "blocks", "contains", "lacks", "detail", "unlike", "known"}
KEYS |= {"files", "warnings", "declined", "value"}


@dataclass(frozen=True)
class Case:
    name: str
    text: str
    expected: dict[str, Any]

    @property
    def stop(self) -> Stop:
        return Stop(self.expected["stop"])

    def extracted(self) -> Any:
        kind = self.expected["function"]
        if kind == "kernel":
            given = (REPLIES / "given" / name for name in self.expected.get("unlike", []))
            return extract_kernel(self.text, self.stop, tuple(path.read_text() for path in given))
        if kind == "files":
            return extract_files(self.text, self.stop, frozenset(self.expected.get("known", [])))
        return extract_json(self.text, self.stop)


def read_case(path: Path) -> Case:
    expected = tomllib.loads(path.with_suffix(".toml").read_text(encoding="utf-8"))
    assert expected.keys() <= KEYS, f"{path.stem}: {expected.keys() - KEYS}"
    return Case(path.stem, path.read_bytes().decode("utf-8"), expected)


CASES = [read_case(path) for path in sorted(REPLIES.glob("*.txt"))]


def of(kind: str) -> list[Any]:
    return [pytest.param(case, id=case.name) for case in CASES if case.expected["function"] == kind]


@pytest.mark.parametrize("case", of("kernel"))
def test_a_reply_gives_its_kernel(case: Case) -> None:
    found = case.extracted()
    assert found.outcome == case.expected["outcome"], found
    if "block" in case.expected:
        assert found.block == case.expected["block"]
    if "blocks" in case.expected:
        assert found.blocks == case.expected["blocks"]
    check_texts(case, found.code, found.detail)
    if found.outcome is Outcome.OK:
        ast.parse(found.code)
        assert "class ModelNew" in found.code
    elif found.outcome not in (Outcome.SYNTAX, Outcome.CONTRACT):
        assert found.code == ""


@pytest.mark.parametrize("case", of("files"))
def test_a_reply_gives_its_files(case: Case) -> None:
    found = case.extracted()
    assert found.outcome == case.expected["outcome"], found
    assert [path for path, _ in found.files] == case.expected.get("files", [])
    assert found.declined == case.expected.get("declined", "")
    check_texts(case, "\n".join(text for _, text in found.files), found.detail or found.declined)
    for _, text in found.files:
        ast.parse(text)
    wanted = case.expected.get("warnings")
    if wanted is not None:
        assert len(found.warnings) == len(wanted), found.warnings
        assert all(any(mark in warning for warning in found.warnings) for mark in wanted), found.warnings


@pytest.mark.parametrize("case", of("json"))
def test_a_reply_gives_its_object(case: Case) -> None:
    found = case.extracted()
    assert found.outcome == case.expected["outcome"], found
    assert found.value == case.expected.get("value")
    check_texts(case, "", found.detail)


def check_texts(case: Case, code: str, detail: str) -> None:
    for mark in case.expected.get("contains", []):
        assert mark in code
    for mark in case.expected.get("lacks", []):
        assert mark not in code
    for mark in case.expected.get("detail", []):
        assert mark in detail
    if case.expected["outcome"] != "ok":
        assert detail.strip() and "\n" not in detail


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_a_reply_cut_anywhere_is_used_only_where_its_answer_is_whole(case: Case) -> None:
    check = {"kernel": check_cut_kernel, "files": check_cut_files, "json": check_cut_object}[
        case.expected["function"]
    ]
    for end in range(0, len(case.text), 37):
        check(case, case.text[:end])


def check_cut_kernel(case: Case, cut: str) -> None:
    """It is a block of the whole reply, letter by letter, and the last one so far."""
    found = extract_kernel(cut, Stop.LENGTH)
    assert found.outcome in (Outcome.OK, Outcome.TRUNCATED)
    if found.outcome is Outcome.OK:
        assert found.block is not None
        assert all(block.foreign for block in Scanner(visible(cut)).blocks()[found.block :])
        # A draft counts until the end of the thinking is seen, where its beginning was never sent.
        wholes = [
            *Scanner(visible(case.text)).blocks(),
            *Scanner(visible(case.text.replace("</think>", ""))).blocks(),
        ]
        assert found.code in {block.text.strip("\n") + "\n" for block in wholes}


def check_cut_files(case: Case, cut: str) -> None:
    found = extract_files(cut, Stop.LENGTH)
    assert found.outcome in (Outcome.OK, Outcome.TRUNCATED)
    if found.outcome is Outcome.OK and case.name != "files_listed_but_not_given":
        assert found.files == extract_files(case.text, Stop.END).files


def check_cut_object(case: Case, cut: str) -> None:
    found = extract_json(cut, Stop.LENGTH)
    assert found.outcome in (Outcome.OK, Outcome.TRUNCATED)
    if found.outcome is Outcome.OK:
        assert json.dumps(found.value) in {json.dumps(value) for value, _ in objects(visible(cut))}


@pytest.mark.parametrize("seed", range(60))
def test_nothing_in_a_reply_raises(seed: int) -> None:
    chance = random.Random(seed)
    text = SOUPS[seed % len(SOUPS)](chance)
    for function in FUNCTIONS.values():
        for stop in Stop:
            assert isinstance(function(text, stop).outcome, Outcome)
    for expects in Expects:
        why = why_unusable(expects, text)
        assert why is None or why.strip()


PIECES = (
    [
        "```",
        "```python",
        "~~~",
        "````",
        "<think>",
        "</think>",
        "class ModelNew:",
        "\n",
        "\n",
        "    ",
        '"""',
        "'",
        "\\",
    ]
    + [
        "{",
        "}",
        '"',
        "import triton",
        "@triton.jit",
        "def f(x):",
        "### FILE: a.py",
        "FILES: a.py",
        "<<<FILE ../x.py",
    ]
    + [
        "FILE>>>",
        "<file path='b.py'>",
        "<|channel|>final<|message|>",
        "&lt;",
        "\u00a0",
        "\x00",
        "\ud800",
        "- ",
        "> ",
    ]
)
SOUPS = [
    lambda chance: chance.randbytes(chance.randrange(3000)).decode("latin-1"),
    lambda chance: chance.randbytes(chance.randrange(3000)).decode("utf-8", "surrogateescape"),
    lambda chance: "".join(chr(chance.randrange(0x3000)) for _ in range(chance.randrange(2000))),
    lambda chance: "".join(chance.choice(PIECES) for _ in range(chance.randrange(400))),
    lambda chance: "\n".join(chance.choice(PIECES) for _ in range(chance.randrange(400))),
    lambda chance: shuffled_lines(chance),
]


def shuffled_lines(chance: random.Random) -> str:
    lines = chance.choice(CASES).text.split("\n") + chance.choice(CASES).text.split("\n")
    chance.shuffle(lines)
    return "\n".join(lines)


LONG = {
    "alternating fences": "```\n```python\n" * 14_000,
    "fences of two lengths": "````\n```\n" * 22_000,
    "texts that never close": '```python\nx = \\"""\n```\n' * 9_000,
    "unclosed blocks": '```python\n"""\n' * 14_000,
    "classes": "class ModelNew:\n @jit\n```\n" * 8_000,
    "file headings": "### FILE: a.py\n```python\n" * 8_000,
    "file headings without fences": "### FILE: a.py\nx = 1\n" * 9_000,
    "file marks": "<<<FILE a.py\n" * 15_000,
    "open thinking": "<think>" * 28_000,
    "closed thinking": "</think>\n" * 22_000,
    "channels": "<|channel|>final<|message|>" * 7_500,
    "braces": "{" * 200_000,
    "objects": '{"a":' * 40_000,
    "small objects": '{"a":1}' * 28_000,
    "parentheses": "```python\nclass ModelNew: # jit\n  a = " + "(" * 200_000,
    "minus signs": "```python\nclass ModelNew: # jit\n  a = " + "-" * 200_000 + "1",
    "one long word": "a" * 200_000,
    "one long path": "### FILE: " + "a/" * 100_000 + "x.py\n```python\n```",
    "quotes": "> " * 100_000 + "```",
    "bullets": "- " * 100_000 + "```",
    "blank lines": "\n" * 200_000,
    "white space": " " * 200_000,
    "declining": "CANNOT_SPLIT " * 15_000,
    "a real kernel, long": "```python\nimport triton\n\n@triton.jit\ndef k(x):\n    pass\n\nclass ModelNew:\n    def forward(self, x):\n"
    + "        x = k[(1,)](x, 1 < 2)\n" * 6_500
    + "```\n",
}


@pytest.mark.parametrize("kind", LONG)
def test_a_long_hostile_reply_is_read_within_a_second(kind: str) -> None:
    text = LONG[kind][:200_000]
    for function in FUNCTIONS.values():
        for stop in (Stop.END, Stop.LENGTH):
            # Twice where it took long once: other processes' work on the caches counts as ours.
            assert seconds(function, text, stop) < 1.0 or seconds(function, text, stop) < 1.0, (
                function,
                stop,
            )


def seconds(function: Any, text: str, stop: Stop) -> float:
    started = time.process_time()
    function(text, stop)
    return time.process_time() - started


NESTED = {
    "sum": "1" + "+1" * 20_000,
    "attributes": "a" + ".b" * 20_000,
    "calls": "f" + "()" * 20_000,
    "not": "not " * 20_000 + "1",
    "lambda": "lambda: " * 20_000 + "1",
    "brackets": "[" * 190 + "]" * 190,
    "formatted": "f'{" * 100 + "1" + "}'" * 100,
    "decimal number": "1" * 20_000,
    "hexadecimal number": "0x" + "f" * 20_000,
    "odd escapes": "'\\d \\N{no}'",
    "null": "'\x00'",
}


@pytest.mark.parametrize("kind", NESTED)
def test_code_that_the_parser_chokes_on_is_compared_and_never_raises(kind: str) -> None:
    code = f"import triton\n\n@triton.jit\ndef k(x):\n    pass\n\nclass ModelNew:\n    a = {NESTED[kind]}\n"
    reply = f"```python\n{code}```\n"
    first = extract_kernel(reply, Stop.END)
    assert first.outcome in (Outcome.OK, Outcome.SYNTAX)
    again = extract_kernel(reply, Stop.END, unlike=(code.replace("\x00", ""),))
    assert again.outcome is Outcome.NO_CHANGE


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_other_line_ends_and_white_space_around_change_nothing(case: Case) -> None:
    plain = case.extracted()
    text = case.text.replace("\r\n", "\n").replace("\r", "\n")
    for variant in (
        text.replace("\n", "\r\n"),
        "\ufeff" + text,
        text.replace("    ", "\u00a0   "),
        "\n\n" + text,
    ):
        other = Case(case.name, variant, case.expected).extracted()
        assert replace(other, detail="") == replace(plain, detail="")


def test_a_person_is_told_what_is_wrong_with_an_answer() -> None:
    by_name = {case.name: case.text for case in CASES}
    assert why_unusable(Expects.KERNEL, by_name["a18_reply_three_blocks"]) is None
    assert why_unusable(Expects.KERNEL, by_name["no_fence_at_all"]) is None
    assert "not Python" in (why_unusable(Expects.KERNEL, by_name["syntax_error"]) or "")
    assert "@triton.jit" in (why_unusable(Expects.KERNEL, by_name["no_triton_kernel"]) or "")
    assert why_unusable(Expects.FILES, by_name["files_as_asked"]) is None
    assert why_unusable(Expects.FILES, by_name["declined_split"]) is None
    assert "feed_forward" in (why_unusable(Expects.FILES, by_name["files_missing_subproblem"]) or "")
    without = by_name["files_untouched_not_repeated"]
    assert why_unusable(Expects.FILES, without, frozenset(["feed_forward"])) is None
    assert "not allowed" in (why_unusable(Expects.FILES, by_name["files_traversal"]) or "")
    assert why_unusable(Expects.JSON, by_name["json_in_fence"]) is None
    assert why_unusable(Expects.JSON, by_name["json_prose_only"])


def test_the_corpus_is_large_and_each_outcome_occurs_in_it() -> None:
    assert len(CASES) >= 60
    assert {case.expected["outcome"] for case in CASES} == {outcome.value for outcome in Outcome}
    assert {path.stem for path in REPLIES.glob("*.toml")} == {case.name for case in CASES}


def test_no_file_of_a_reply_ever_leaves_its_folder() -> None:
    top = "from subkernel_problems.a import Model as A\nclass ModelNew: pass\n"
    part = "class Model: pass\ndef get_inputs(): pass\ndef get_init_inputs(): pass\n"
    for path in HOSTILE_PATHS:
        text = f"### FILE: decomposed_problem.py\n```python\n{top}```\n### FILE: a.py\n```python\n{part}```\n"
        text += f"### FILE: {path}\n```python\n{part}```\nFILES: decomposed_problem.py\n"
        found = extract_files(text, Stop.END)
        assert {given for given, _ in found.files} <= {"decomposed_problem.py", "subkernel_problems/a.py"}, (
            path
        )


HOSTILE_PATHS = [
    "../a.py",
    "subkernel_problems/../a.py",
    "subkernel_problems/x/../../../a.py",
    "/a.py",
    "//host/share/a.py",
    "C:\\a.py",
    "c:a.py",
    "..\\a.py",
    "~root/a.py",
    "file:///etc/a.py",
    "subkernel_problems/a.py/../../b.py",
    "subkernel_problems/a.py.",
    "subkernel_problems/\u0430.py",
    "subkernel_problems/a\u200b/../../../b.py",
    "subkernel_problems/" + "a" * 80 + ".py",
    "subkernel_problems/a.py\x00.txt",
    "%2e%2e/a.py",
    "subkernel_problems/.a.py",
    "-rf.py",
]
