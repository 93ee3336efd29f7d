"""One run in which everything happens: what the scripted LLM says where, and how the run is set."""

from __future__ import annotations

from mkevolve_core.llm.fake import Fault, Planned, Seen
from tests.whole import llm_replies as say
from tests.whole.llm_script import Answer, Author

SETTINGS = {"calls": 9, "width": 2, "postfuse": 2, "swap": True, "swap_below": 3.5, "swap_calls": 2}
# How a reply fits no opinion, whatever the reader's patience.
_CHAT = Planned("Looks fine to me, although I would rather have seen it run on a GPU.")


def _echo(seen: Seen) -> Planned:
    return say.echoed(seen.prompt)


def _cut(seen: Seen) -> Planned:
    return say.cut_off(say.kernel("linear_gelu_norm"))


def _charged(seen: Seen) -> Planned:
    return say.charge(seen.prompt, say.WAY_OUT, "fallback")


def _charged_without_proof(seen: Seen) -> Planned:
    return say.charge(seen.prompt, "return torch.layer_norm(x, x.shape)", "torch_compute", line=31)


BY_SLOT: dict[str, Answer] = {
    # The first worker corrects itself; the second would pass too, and is too slow.
    "decompose 1.1": Planned(say.decomposition_that_computes()),
    "decompose 2.1": Planned(say.decomposition("linear_gelu_norm", "linear", "row_softmax"), drip=100.0),
    # Part 1 has a subkernel after a re-ask.
    "1#1": say.written(say.invented(), "the cheaper form of GELU"),
    "1#2": say.cut_off(say.kernel("linear_gelu")),
    "1#3": _echo,
    "1#3~1": _echo,
    "1#3~2": _echo,
    # Part 2 has none, and is split.
    "2#1": say.written(say.norm_linear_by_torch()),
    "2#2": say.written(say.no_python()),
    "2#3": say.PROSE,
    "2#3~1": say.PROSE,
    "2#3~2": say.PROSE,
    # Part 3 has none either, and cannot be split.
    "3#1": say.written(say.wrong("row_softmax")),
    "3#2": say.written(say.softmax_with_a_way_out()),
    "review 3#2 1": _charged,
    "3#3": say.REFUSED,
    # The second iteration: reviewers of all kinds.
    "review 2a#1 1": _charged_without_proof,
    "review 2b#1 1": _CHAT,
    "review 2b#1 1~1": _CHAT,
    "2b#2": say.written(say.wrong("linear")),
    "review 3#4 1": say.opinion("unsure", "whether a row may be longer than a block"),
    # The third: 1 and 2a are fused.
    "1a#2": say.written(say.wrong("linear_gelu_norm")),
    "1a#3": _cut,
    "1a#3~1": _cut,
    "1a#3~2": _cut,
    "1a#5": Planned(fault=Fault(400, "prompt is too long: 250000 tokens > 200000 maximum")),
    "1a#6": say.written(say.kernel("linear_gelu_norm", 4)),  # the same text as 1a#4
    "1a#7": say.written(say.kernel("linear_gelu_norm", 1)),  # and as 1a#1
    "1a#8": say.REFUSED,
    "1a#9": say.written(say.kernel("linear_gelu_norm", 4)),
    # The end: another model does better in one part than in the other; the first whole file is wrong.
    "2b#5": say.written(say.wrong("linear")),
    "3#8": say.REFUSED,
    "3#9": say.written(say.wrong("row_softmax")),
    "postfuse 1": say.written(say.wrong("whole")),
}

AUTHOR = Author(BY_SLOT)
