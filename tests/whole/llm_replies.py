"""What an LLM may write about the small classifier: decompositions, revisions, subkernels good and bad, reviews."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from mkevolve_core.llm.fake import Planned

_FOLDER = Path(__file__).parent / "replies"

# ------------------------------------------------------------------------------ decompositions

TOP_LEVEL = '''
"""{title}."""

import torch.nn as nn

{imports}


class ModelNew(nn.Module):
    def __init__(self, width, hidden, classes):
        super().__init__()
{made}

    def forward(self, x):
{called}
        return x
'''

_REFERENCE = '''
"""{title}."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self{sizes}):
        super().__init__()
{modules}

    def forward(self, x):
        return {result}


def get_inputs():
    return [torch.randn(20, {width})]


def get_init_inputs():
    return [{given}]
'''

_SIZES = {"width": 24, "hidden": 48, "classes": 10}
_MODULES = {
    "fc1": "self.fc1 = nn.Linear(width, hidden)",
    "norm": "self.norm = nn.LayerNorm(hidden)",
    "fc2": "self.fc2 = nn.Linear(hidden, classes)",
}
# title, constructor arguments, modules, result, width of the input
PARTS: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...], str, str]] = {
    "linear_gelu": ("Linear layer with GELU", ("width", "hidden"), ("fc1",), "F.gelu(self.fc1(x))", "width"),
    "norm_linear": (
        "Norm over rows and linear layer",
        ("hidden", "classes"),
        ("norm", "fc2"),
        "self.fc2(self.norm(x))",
        "hidden",
    ),
    "row_softmax": ("Softmax over rows", (), (), "torch.softmax(x, dim=-1)", "classes"),
    "row_norm": ("Norm over rows", ("hidden",), ("norm",), "self.norm(x)", "hidden"),
    "linear": ("Linear layer", ("hidden", "classes"), ("fc2",), "self.fc2(x)", "hidden"),
    "linear_gelu_norm": (
        "Linear layer with GELU and norm",
        ("width", "hidden"),
        ("fc1", "norm"),
        "self.norm(F.gelu(self.fc1(x)))",
        "width",
    ),
}
FIRST = ("linear_gelu", "norm_linear", "row_softmax")


def reference(name: str, note: str = "") -> str:
    """A subproblem's file; `note` is a line of its docstring."""
    title, sizes, modules, result, width = PARTS[name]
    text = _REFERENCE.format(
        title=title,
        sizes="".join(f", {size}" for size in sizes),
        modules="\n".join(f"        {_MODULES[one]}" for one in modules),
        result=result,
        width=_SIZES[width],
        given=", ".join(str(_SIZES[size]) for size in sizes),
    )
    return text.replace(f'"""{title}."""', f'"""{title}.\n\n{note}\n"""') if note else text


def title_of(name: str) -> str:
    return PARTS[name][0]


def top_level(*names: str) -> str:
    parts = [(name, name.title().replace("_", ""), ", ".join(PARTS[name][1])) for name in names]
    return TOP_LEVEL.format(
        title="The classifier in parts",
        imports="\n".join(f"from subkernel_problems.{n} import Model as {c}" for n, c, _ in parts),
        made="\n".join(f"        self.{n} = {c}({given})" for n, c, given in parts),
        called="\n".join(f"        x = self.{n}(x)" for n, _, _ in parts),
    )


def files(texts: Mapping[str, str], kept: tuple[str, ...] = ()) -> str:
    """In the form that the prompts ask for; `kept`: subproblems that stay as they are."""
    shown = [f"### FILE: {path}\n```python\n{text.strip()}\n```" for path, text in texts.items()]
    listed = ", ".join([*texts, *(_path(name) for name in kept)])
    return "\n\n".join(["Two products with what goes with them.", *shown, f"FILES: {listed}"])


def decomposition(*names: str) -> str:
    return files({"decomposed_problem.py": top_level(*names), **{_path(n): reference(n) for n in names}})


def decomposition_that_computes() -> str:
    """Its top-level module takes the softmax itself, which the checks do not let pass."""
    top = top_level("linear_gelu", "norm_linear").replace("return x\n", "return x.softmax(dim=-1)\n")
    parts = {_path(name): reference(name) for name in ("linear_gelu", "norm_linear")}
    return files({"decomposed_problem.py": top, **parts})


def split_of_norm_linear(*all_names: str) -> str:
    """`all_names`: of the new decomposition, in their order."""
    new = {_path(name): reference(name) for name in ("row_norm", "linear")}
    kept = tuple(name for name in all_names if _path(name) not in new)
    return files({"decomposed_problem.py": top_level(*all_names), **new}, kept)


def fusion_of_linear_gelu_and_norm(*all_names: str) -> str:
    new = {_path("linear_gelu_norm"): reference("linear_gelu_norm", "fuses: linear_gelu, row_norm")}
    kept = tuple(name for name in all_names if name != "linear_gelu_norm")
    return files({"decomposed_problem.py": top_level(*all_names), **new}, kept)


def _path(name: str) -> str:
    return f"subkernel_problems/{name}.py"


# ---------------------------------------------------------------------------------- subkernels


def kernel(name: str, variant: int = 0) -> str:
    """A correct file for a part, or for the "whole"; variants differ in how it is launched."""
    text = (_FOLDER / f"{name}.py").read_text()
    warps, stages = (4, 2, 8, 1)[variant % 4], 1 + variant // 4
    return changed(text, ("num_warps=4", f"num_warps={warps}, num_stages={stages}")) if variant else text


def changed(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def wrong(name: str) -> str:
    """It runs, and its numbers are wrong."""
    mistakes = {
        "linear_gelu": ("0.5 * total * (1.0", "0.5 * total * (0.9"),
        "row_softmax": ("tl.exp(x - tl.max(x, axis=0))", "tl.exp(tl.maximum(x, 0.0))"),
        "row_norm": ("tl.where(inside, x - mean, 0.0)", "tl.where(inside, x, 0.0)"),
        "linear": ("total += tl.load(b_ptr", "total -= tl.load(b_ptr"),
        "linear_gelu_norm": ("/ N\n    centred", "/ BLOCK_N\n    centred"),
        "whole": (
            "total = tl.where(inside[None, :], total, float",
            "total = tl.where(inside[None, :], total * 2.0, float",
        ),
    }
    return changed(kernel(name), mistakes[name])


def invented() -> str:
    """With a function that `triton.language` has not."""
    argument = "0.7978845608028654 * (total + 0.044715 * total * total * total)"
    return changed(kernel("linear_gelu"), ("tl.erf(total * 0.7071067811865476)", f"tl.tanh({argument})"))


def no_python() -> str:
    return changed(kernel("row_norm"), ("def forward(self, x):", "def forward(self, x)"))


def norm_linear_by_torch() -> str:
    """PyTorch computes the product; a kernel makes the norm."""
    kept = changed(kernel("row_norm"), ("def __init__(self, hidden)", "def __init__(self, hidden, classes)"))
    layer = (
        "nn.LayerNorm(hidden)\n",
        "nn.LayerNorm(hidden)\n        self.fc2 = nn.Linear(hidden, classes)\n",
    )
    return changed(kept, layer, ("return out\n", "return self.fc2(out)\n"))


WAY_OUT = "return torch.zeros_like(x)"


def softmax_with_a_way_out() -> str:
    """Right on every input that the judge tries; a reviewer sees what it does with larger ones."""
    branch = f"        if x.shape[0] > 100_000:\n            {WAY_OUT}\n        row_softmax["
    return changed(kernel("row_softmax"), ("        row_softmax[", branch))


def linear_gelu_transposed() -> str:
    """Right, and its result lies column by column."""
    return changed(
        kernel("linear_gelu"),
        ("out_ptr + rows[:, None] * N + columns[None, :]", "out_ptr + columns[None, :] * M + rows[:, None]"),
        ("torch.empty((rows, hidden)", "torch.empty((hidden, rows)"),
        ("return out\n", "return out.t()\n"),
    )


def takes_rows_for_granted(name: str) -> str:
    """Right on inputs that lie row by row, as those of its subproblem do."""
    return changed(
        kernel(name),
        ("        x = x.contiguous()\n", ""),
        *(
            [("torch.empty_like(x)", "torch.empty(x.shape, device=x.device, dtype=x.dtype)")]
            if name != "linear"
            else []
        ),
    )


# ------------------------------------------------------------------------------------- replies


def written(source: str, idea: str = "the plain form with good tiles", **more: object) -> Planned:
    """A writer's whole reply."""
    text = f"One program makes a tile of the result.\n\nIDEA: {idea}\n\n```python\n{source}```"
    return Planned(text, **more)  # type: ignore[arg-type]


def cut_off(source: str) -> Planned:
    """The block is open when the limit comes."""
    return Planned(written(source).text[: len(source) // 2], stop="length")


PROSE = Planned(
    "The norm needs the whole row before the product can start, so I would keep the rows in registers and "
    "let each program own a block of them. I can write this out if you like."
)
REFUSED = Planned("I cannot help with that.", stop="refusal")
CANNOT_SPLIT = Planned("CANNOT_SPLIT: a softmax over rows is one reduction with what belongs to it.")
NO_FUSION = Planned("NO_FUSION: every tensor between the parts is small.")


def echoed(prompt: str) -> Planned:
    """The candidate that the prompt shows, unchanged."""
    found = re.search(r"<<<CANDIDATE (\w+)\n(.*?)\n\1 CANDIDATE>>>", prompt, re.DOTALL)
    assert found is not None
    return written(f"{found[2]}\n", "as before, with better tiles")


def opinion(verdict: str = "clean", reason: str = "every path ends in the kernel", **more: object) -> Planned:
    return Planned(json.dumps({"verdict": verdict, "category": "", "evidence": [], "reason": reason} | more))


def charge(prompt: str, quote: str, category: str, line: int | None = None) -> Planned:
    """Cheating, with a quote; the line is where the prompt shows it, if it does."""
    found = re.search(rf"^ *(\d+)\|\s*{re.escape(quote)}", prompt, re.MULTILINE)
    number = line if found is None else int(found[1])
    evidence = [{"line": number, "quote": quote}]
    return opinion("cheating", "a result that no kernel computed", category=category, evidence=evidence)
