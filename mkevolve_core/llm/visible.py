"""What of a reply was meant to be read: without thinking, channel marks and odd white space."""

from __future__ import annotations

import re

_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_INVISIBLE = re.compile("[\ufeff\u200b\u200c\u200d\u2060\x00]")
_NAMES = "(?:think|thinking|thought|reasoning)"
_OPEN = re.compile(rf"^[ \t]*<{_NAMES}>", re.IGNORECASE | re.MULTILINE)
_CLOSE = re.compile(rf"(?<![`'\"])</{_NAMES}>", re.IGNORECASE)  # not one that is only spoken of
_MESSAGE = re.compile(r"<\|channel\|>\s*(\w+)(?:[^<\n]|<\|constrain\|>)*<\|message\|>")
_MESSAGE_END = re.compile(r"<\|(?:end|return|call|start|channel)\|>")
_SPECIAL = re.compile(r"<\|(?:im_end|eot_id|endoftext|end_of_text|end|return)\|>|</s>\s*\Z")
_BARE_FINAL = "assistantfinal"


def visible(text: str) -> str:
    """The answer itself, with "\\n" as the only line end; "" where all of it is thinking."""
    text = text.encode("utf-8", "replace").decode("utf-8")  # lone surrogates can be neither parsed nor kept
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _INVISIBLE.sub("", _SPACES.sub(" ", text))
    return _without_thinking(_SPECIAL.sub("", _final_channel(text)))


def _final_channel(text: str) -> str:
    """Harmony: the last message on the channel `final`; other texts pass unchanged."""
    marks = list(_MESSAGE.finditer(text))
    if not marks:
        bare = re.match(r"\s*analysis(?=[A-Z\s])", text) and _BARE_FINAL in text
        return text[text.rindex(_BARE_FINAL) + len(_BARE_FINAL) :] if bare else text
    finals = [mark for mark in marks if mark[1] == "final"]
    if not finals:
        return ""
    begin = finals[-1].end()
    end = _MESSAGE_END.search(text, begin)
    return text[begin : end.start() if end else len(text)]


def _without_thinking(text: str) -> str:
    text = _without_pairs(text)
    closes = list(_CLOSE.finditer(text))
    if closes:
        text = text[closes[-1].end() :]
    unclosed = _OPEN.search(text)
    return text[: unclosed.start()] if unclosed else text


def _without_pairs(text: str) -> str:
    """In one pass: a search for pairs by one pattern would be quadratic where none closes."""
    kept, position = [], 0
    while opened := _OPEN.search(text, position):
        closed = _CLOSE.search(text, opened.end())
        if closed is None:
            break
        kept.append(text[position : opened.start()])
        position = closed.end()
    kept.append(text[position:])
    return "".join(kept)
