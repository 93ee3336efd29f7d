"""What recorded runs cost in tokens, side by side.

    python benchmarks/token_cost.py [RUN...] [--tokenizer FILE]

RUN is a shipped recording's name or a packed run; all shipped ones if none is given. Tokens are those that
the provider reported. Where it reported none (a mailbox), they are counted with Mistral's Tekken tokenizer
if `mistral-common` is installed, with the `tokenizers` file that --tokenizer names, or else estimated at four
characters a token; the last line says which. Cacheable is the share of a prompt's tokens that begin an
earlier prompt of the same role, word for word: what a provider's cache can give.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mkevolve_core import events as ev  # noqa: E402
from mkevolve_core.folding import fold  # noqa: E402
from mkevolve_core.recordings import recordings  # noqa: E402
from mkevolve_core.state import RunState  # noqa: E402
from store.pack import unpack  # noqa: E402
from store.run_folder import find_run  # noqa: E402

Count = Callable[[str], int]


@dataclass
class Tally:
    """One role's calls."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    shares: list[float] = field(default_factory=list)  # cacheable, of every call but the first
    prompts: list[str] = field(default_factory=list)

    def add(self, prompt: str, tokens_in: int, tokens_out: int, count: Count) -> None:
        if self.prompts:
            prefix = max((os.path.commonprefix([prompt, old]) for old in self.prompts), key=len)
            self.shares.append(count(prefix) / max(1, count(prompt)))
        self.prompts.append(prompt)
        self.calls += 1
        self.tokens_in += tokens_in
        self.tokens_out += tokens_out


def counter(file: str | None) -> tuple[Count, str]:
    if file:
        from tokenizers import Tokenizer

        found = Tokenizer.from_file(file)
        return lambda text: len(found.encode(text).ids), f"counted with {Path(file).name}"
    try:
        from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
    except ImportError:
        return lambda text: len(text) // 4, "estimated at 4 characters a token"
    tekken = MistralTokenizer.v3(is_tekken=True).instruct_tokenizer.tokenizer
    return lambda text: len(tekken.encode(text, bos=False, eos=False)), "counted with Mistral's Tekken (v3)"


def read(name: str, count: Count) -> tuple[RunState, dict[str, Tally], bool, int]:
    """State, tallies by role, whether any call was counted here, and how many subkernels were accepted."""
    packed = next((one.path for one in recordings() if one.name == name), Path(name))
    with tempfile.TemporaryDirectory() as place:
        folder = find_run(Path(place), unpack(packed, Path(place)))
        entries, texts = list(folder.journal().read()), folder.artifacts()
        tallies, counted = dict[str, Tally](), False
        for entry in entries:
            event = entry.event
            if isinstance(event, ev.LLMCalled):
                prompt, reply = texts.get(event.prompt_sha), texts.get(event.reply_sha)
                counted |= not event.tokens_known
                tokens = (event.tokens_in, event.tokens_out)
                known = tokens if event.tokens_known else (count(prompt), count(reply))
                tallies.setdefault(event.agent, Tally()).add(prompt, *known, count)
        accepted = {e.event.candidate_id for e in entries if isinstance(e.event, ev.SubkernelAccepted)}
    return fold(entries), tallies, counted, len(accepted)


def row(name: str, cells: tuple[object, ...]) -> str:
    return f"{name:26}" + "".join(f"{cell!s:>12}" for cell in cells)


def show(name: str, state: RunState, tallies: dict[str, Tally], accepted: int) -> int:
    print(row(name, ("calls", "tokens in", "tokens out", "2nd call", "later")))
    for role, tally in tallies.items():
        second = f"{tally.shares[0]:.0%}" if tally.shares else "-"
        later = f"{sum(tally.shares) / len(tally.shares):.0%}" if tally.shares else "-"
        print(row(f"  {role}", (tally.calls, tally.tokens_in, tally.tokens_out, second, later)))
    total = sum(tally.tokens_in + tally.tokens_out for tally in tallies.values())
    best = state.best
    number = f"{best.speedup:.2f}x" if best and best.speedup else "-"
    each = total // accepted if accepted else 0
    print(f"  {total} tokens, {state.spent.calls} kernel-writing calls, {accepted} subkernels accepted,")
    print(f"  {each} tokens each; end to end {number} against torch.compile on {state.device}\n")
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="*")
    parser.add_argument("--tokenizer")
    given = parser.parse_args()
    count, how = counter(given.tokenizer)
    names = given.runs or [one.name for one in recordings()]
    totals, counted = {}, False
    for name in names:
        state, tallies, some, accepted = read(name, count)
        totals[name] = show(name, state, tallies, accepted)
        counted |= some
    if len(totals) == 2:
        (first, a), (second, b) = totals.items()
        print(f"{first} took {a / max(1, b):.2f} times the tokens of {second}")
    print(f"tokens {how}" if counted else "tokens as the providers reported them")


if __name__ == "__main__":
    main()
