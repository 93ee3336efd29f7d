"""A finished kernel: its text and how it is launched."""

from __future__ import annotations

from dataclasses import dataclass

from mkevolve_core.builtin.synth.body import Body


@dataclass(frozen=True, slots=True)
class Emitted:
    name: str
    summary: str  # one line for the kernel's docstring
    pointers: tuple[tuple[str, str], ...]  # (parameter, value), stores last
    stores: tuple[str, ...]  # values that it writes
    sizes: tuple[tuple[str, int], ...]  # constexpr parameters that the problem fixes
    tiles: tuple[str, ...]  # constexpr parameters that TILES fixes
    programs: str  # number of programs: an expression over sizes and `t`, the kernel's TILES entry
    lines: tuple[str, ...]

    def text(self) -> str:
        """The `@triton.jit` function."""
        parameters = [name for name, _ in self.pointers]
        parameters += [f"{name}: tl.constexpr" for name, _ in self.sizes]
        parameters += [f"{name}: tl.constexpr" for name in self.tiles]
        head = ["@triton.jit", f"def {self.name}("]
        head += [f"    {parameter}," for parameter in parameters]
        return "\n".join([*head, "):", f'    """{self.summary}"""', *self.lines]) + "\n"


def emitted(
    body: Body, summary: str, sizes: dict[str, int], tiles: tuple[str, ...], programs: str
) -> Emitted:
    stores = body.kernel.stores
    loads = [(text, name) for name, text in body.pointers.items() if name not in stores]
    writes = [(body.pointers[name], name) for name in stores]
    pointers = (*loads, *writes)
    return Emitted(
        body.kernel.name, summary, pointers, stores, tuple(sizes.items()), tiles, programs, tuple(body.lines)
    )


def epilogue(body: Body) -> str:
    """What a kernel computes beside its anchor, for its docstring: ", then add, gelu"."""
    members = (body.plan.program.ops[name] for name in body.kernel.members)
    names = [op.attr[0] for op in members if op.kind in ("point", "reduce")]
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f", then {shown}" if names else ""
