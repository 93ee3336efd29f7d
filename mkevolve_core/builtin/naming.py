"""What a subproblem is called: by its module's class, by what it does, or by its operations."""

from __future__ import annotations

import re
from collections.abc import Collection

from mkevolve_core.builtin.graph import Node
from mkevolve_core.builtin.kinds import ANCHORS, FREE, Kind, kind_of
from mkevolve_core.builtin.pieces import Piece, output_names
from mkevolve_core.builtin.toplevel import instance_names

_BLOCK_NAMES = {
    "TransformerEncoderLayer": "transformer_block",
    "TransformerDecoderLayer": "transformer_decoder_block",
    "MultiheadAttention": "multihead_attention",
}
_OP_NAMES = {"sub": "subtract", "div": "divide", "mul": "multiply", "amax": "max", "amin": "min"}
_TITLE_WORDS = {
    "cls": "class",
    "conv": "convolution",
    "ffn": "feed-forward",
    "feedforward": "feed-forward",
    "gelu": "GELU",
    "mlp": "MLP",
    "norm": "normalization",
    "proj": "projection",
    "relu": "ReLU",
    "silu": "SiLU",
}
_GENERIC = re.compile(r"(fc|linear|lin|layer|conv|net|l|dense|gemm|matmul|proj|\d)*_?\d*")
_WORD_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_MOST_WORDS = 4


def piece_name(piece: Piece, among_blocks: bool) -> str:
    """A file stem. `among_blocks`: the decomposition follows module calls, so attribute names speak."""
    if piece.block is not None and among_blocks:
        return block_name(piece.block.cls)
    return _role_name(piece) if among_blocks else operations_name(piece)


def block_name(cls: str) -> str:
    """ "torch.nn.TransformerEncoderLayer" → "transformer_block", "CausalAttention" → "causal_attention"."""
    bare = cls.rpartition(".")[2]
    return (
        _BLOCK_NAMES.get(bare)
        or re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", bare).lower()
    )


def operations_name(piece: Piece) -> str:
    """ "linear_gelu", "attention", "softmax": the operations that do work, in order."""
    nodes = _working(piece)
    if any(kind_of(n) is Kind.ATTENTION for n in nodes) or _is_spelled_attention(nodes):
        words = ["attention"]
    else:
        words = list(dict.fromkeys(_word(node) for node in nodes))
    return "_".join(words[:_MOST_WORDS]) or "views"


def _word(node: Node) -> str:
    if node.op in ("mul", "div") and len(node.inputs) == 1:
        return "scale"
    return _OP_NAMES.get(node.op, node.op)


def half_name(piece: Piece) -> str | None:
    """What a half of a block is, where it is one of the two that every block has."""
    nodes = _working(piece)
    if any(kind_of(n) is Kind.ATTENTION for n in nodes) or _is_spelled_attention(nodes):
        return "attention"
    if sum(kind_of(n) is Kind.GEMM for n in nodes) >= 2:
        return "feedforward"
    return None


def unique_name(wanted: str, taken: Collection[str], instances: int = 1) -> str:
    """A name that is free for a file and for each of its instances' attributes."""
    name, number = wanted, 1
    while {name, *instance_names(name, instances)} & set(taken):
        number += 1
        name = f"{wanted}_{number}"
    return name


def title_of(name: str) -> str:
    """For people: "cls_token_concat" → "Class token concat"."""
    text = " ".join(_TITLE_WORDS.get(word, word) for word in name.split("_"))
    return text[:1].upper() + text[1:]


def _working(piece: Piece) -> list[Node]:
    return [node for node in piece.nodes if kind_of(node) not in FREE]


def _is_spelled_attention(nodes: list[Node]) -> bool:
    ops = [node.op for node in nodes]
    products = [at for at, op in enumerate(ops) if op in ("matmul", "bmm", "baddbmm")]
    return "softmax" in ops and len(products) == 2 and products[0] < ops.index("softmax") < products[1]


def _role_name(piece: Piece) -> str:
    nodes = _working(piece)
    anchors = [node for node in nodes if kind_of(node) in ANCHORS]
    if len(anchors) == 1:
        return _single_name(piece, anchors[0])
    return operations_name(piece)


def _single_name(piece: Piece, anchor: Node) -> str:
    if kind_of(anchor) is Kind.CONV and _is_patches(piece, anchor):
        return "conv_patch_embedding"
    if anchor.op in ("cat", "concat"):
        return _concat_name(piece)
    if _working(piece) == [anchor] and anchor.op == "linear" and piece.outputs == output_names(piece.graph):
        rank = len(piece.graph.values[piece.outputs[0]].shape)
        return "classification_head" if rank == 2 else "output_head"
    attribute = anchor.scope.rpartition(".")[2]
    if anchor.op == "linear" and not _GENERIC.fullmatch(attribute):
        return attribute.lower()
    return operations_name(piece)


def _is_patches(piece: Piece, conv: Node) -> bool:
    """Does the convolution read every element once, in tiles?"""
    if conv.op.startswith("conv_transpose"):
        return False
    kernel = piece.graph.values[conv.inputs[1]].shape[2:]
    stride = conv.args[3] if len(conv.args) > 3 else dict(conv.kwargs).get("stride", 1)
    square = kernel[0] if len(set(kernel)) == 1 else kernel
    return max(kernel) > 1 and stride in (kernel, square)


def _concat_name(piece: Piece) -> str:
    states = [name.rpartition(".")[2] for name in piece.states]
    return f"{states[0].lower()}_concat" if len(states) == 1 else "concat"
