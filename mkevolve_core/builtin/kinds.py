"""What kind of work a traced node is: what grouping and splitting go by (paper, Appendix I.1)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from mkevolve_core.builtin.graph import Graph, Node


class Kind(StrEnum):
    GEMM = "gemm"
    CONV = "conv"
    ATTENTION = "attention"
    REDUCE = "reduce"  # normalisation and softmax too: a row is needed before its elements go on
    POOL = "pool"
    RNN = "rnn"
    GATHER = "gather"
    MOVE = "move"  # writes elements elsewhere without computing
    POINTWISE = "pointwise"
    VIEW = "view"
    CREATE = "create"


_OPS = {
    Kind.GEMM: "linear matmul bmm mm addmm baddbmm einsum bilinear mv dot",
    Kind.CONV: "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
    Kind.ATTENTION: "scaled_dot_product_attention",
    Kind.REDUCE: "softmax log_softmax softmin layer_norm group_norm instance_norm rms_norm sum mean amax "
    "amin logsumexp norm var std cumsum cumprod prod normalize argmax argmin topk sort cosine_similarity",
    Kind.POOL: "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d "
    "adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d",
    Kind.RNN: "lstm gru rnn_tanh rnn_relu",
    Kind.GATHER: "embedding index_select gather",
    Kind.MOVE: "cat concat stack repeat_interleave interpolate pixel_shuffle",
    Kind.VIEW: "view reshape flatten unflatten unsqueeze squeeze transpose permute t expand expand_as chunk "
    "split split_with_sizes unbind getitem select narrow contiguous movedim swapaxes view_as reshape_as pad "
    "flip roll repeat",
    Kind.CREATE: "zeros ones full arange empty eye linspace zeros_like ones_like full_like rand randn tensor "
    "rand_like randn_like new_zeros new_ones",
}
_KIND_OF = {op: kind for kind, ops in _OPS.items() for op in ops.split()}
_ROW_WISE = frozenset({"max", "min"})  # over a dimension; elementwise with two tensors
FREE = frozenset({Kind.VIEW, Kind.CREATE})
ANCHORS = frozenset(Kind) - FREE - {Kind.POINTWISE}


def kind_of(node: Node) -> Kind:
    """Unknown operations count as elementwise."""
    if node.op in _ROW_WISE and len(node.inputs) == 1:
        return Kind.REDUCE
    return _KIND_OF.get(node.op, Kind.POINTWISE)


def is_free(nodes: Iterable[Node]) -> bool:
    """Nothing but views and constants: no subproblem for itself."""
    return all(kind_of(node) in FREE for node in nodes)


def work(graph: Graph, node: Node) -> int:
    """Multiplications and element visits, roughly: enough to balance two halves."""
    kind = kind_of(node)
    if kind in FREE:
        return 0
    elements = sum(graph.values[name].numel for name in node.outputs)
    if kind in (Kind.GEMM, Kind.CONV):
        return elements * _terms(graph, node)
    if kind is Kind.ATTENTION:
        key = graph.values[node.inputs[1]]
        return 2 * elements * key.shape[-2]
    return elements


def _terms(graph: Graph, node: Node) -> int:
    """How many products make one element: the weight's size over its number of outputs."""
    second = graph.values[node.inputs[1]]
    if node.op in ("linear", "matmul", "mm", "bmm"):
        last = graph.values[node.inputs[0]].shape
        return last[-1] if last else 1
    return max(1, second.numel // max(1, second.shape[0] if second.shape else 1))
