"""Where a candidate's host code lets PyTorch compute: calls, operators and modules, never kernels' bodies."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from verifier.bans import Finding
from verifier.syntax import Place, Program, Unit, is_self, last_name


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# torch.NAME that allocates, views, or asks; whatever else is called on torch computes.
_FREE = _words("""
    empty empty_like empty_strided empty_permuted zeros zeros_like ones ones_like full full_like
    tensor as_tensor scalar_tensor arange device dtype Size Tensor Generator finfo iinfo
    is_tensor is_floating_point is_complex is_contiguous numel no_grad inference_mode
    enable_grad set_grad_enabled is_grad_enabled promote_types result_type get_default_dtype
    manual_seed from_numpy typename memory_format reshape permute transpose t squeeze unsqueeze
    flatten unflatten movedim moveaxis swapaxes swapdims narrow chunk split tensor_split unbind
    select as_strided broadcast_shapes broadcast_tensors broadcast_to view_as_real
    view_as_complex detach expand_copy atleast_1d atleast_2d atleast_3d hsplit vsplit dsplit
    ravel adjoint diagonal real imag contiguous_format channels_last preserve_format strided
""")
_FREE_AREAS = (
    "torch.cuda",
    "torch.version",
    "torch.backends",
    "torch.autograd.Function",
    "torch.nn.Parameter",
)
_FREE_MODULES = frozenset(
    ["Module", "ModuleList", "ModuleDict", "Sequential", "Parameter", "ParameterList", "ParameterDict"]
    + ["Buffer", "Identity", "init"]
)
# Moving data: real work for the GPU, but no arithmetic.
_MOVES = frozenset(["cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "clone"])

# Products and convolutions: where these are PyTorch's, the kernels beside them are a fig leaf.
HEAVY = _words("""
    matmul mm bmm addmm addbmm baddbmm mv dot vdot inner outer einsum tensordot chain_matmul
    multi_dot linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d convolution scaled_dot_product_attention multi_head_attention_forward
    Linear Bilinear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d
    MultiheadAttention TransformerEncoderLayer TransformerEncoder TransformerDecoderLayer
    TransformerDecoder Transformer LSTM GRU RNN LSTMCell GRUCell RNNCell compile
""")
# Methods that only a tensor has, whatever it is called.
_METHODS = HEAVY - {"compile", "linear", "dot", "outer", "inner"} | _words("""
    softmax log_softmax relu relu_ sigmoid sigmoid_ tanh tanh_ exp exp_ exp2 log log2 log1p
    expm1 sqrt rsqrt square erf gelu silu abs pow sum mean var std norm prod amax amin argmax
    argmin max min cumsum cumprod logsumexp logcumsumexp clamp clamp_ clip maximum minimum add_
    mul_ sub_ div_ addcmul addcdiv lerp masked_fill masked_fill_ gather scatter scatter_add
    scatter_ index_select index_add triu tril sin cos floor ceil round where topk dot outer
    inner addmm_ baddbmm_ cross layer_norm batch_norm median nansum
""")
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.FloorDiv, ast.Mod)


def torch_computes(program: Program, exempt: frozenset[str], places: list[Place]) -> list[Finding]:
    """What PyTorch computes in the given functions, but those of exempt files (by stem), once a line."""
    found: dict[tuple[str, int, str], Finding] = {}
    for place in places:
        if place.unit.path.rsplit("/", 1)[-1].removesuffix(".py") in exempt:
            continue
        for kind, line, text in _in_function(program, place):
            found.setdefault((place.unit.path, line, text), Finding(kind, place.unit.path, line, text))
    return sorted(found.values(), key=lambda finding: (finding.path, finding.line))


def _in_function(program: Program, place: Place) -> Iterator[tuple[str, int, str]]:
    tensors = _tensor_names(place)
    for node in ast.walk(place.node):
        if isinstance(node, ast.Call):
            yield from _in_call(program, place, node)
        elif isinstance(node, ast.BinOp | ast.AugAssign):
            yield from _in_operator(program, node, tensors)


def _in_call(program: Program, place: Place, call: ast.Call) -> Iterator[tuple[str, int, str]]:
    origin = place.unit.origin(call.func)
    if origin and origin.startswith("torch."):
        kind = _kind_of(origin)
        if kind:
            yield kind, call.lineno, f"{origin} runs in PyTorch"
    elif origin is None:
        yield from _in_method(program, place, call)
    for argument in call.args:  # functools.partial(torch.matmul, ...), map(torch.relu, ...)
        passed = place.unit.origin(argument) or ""
        if passed.startswith("torch.") and last_name(argument) in HEAVY:
            yield "heavy", call.lineno, f"{passed} runs in PyTorch"


def _kind_of(origin: str) -> str | None:
    name = origin.rpartition(".")[2]
    if origin.startswith("torch.nn.") and name in _FREE_MODULES or origin.startswith(_FREE_AREAS):
        return None
    if name in HEAVY or origin.startswith(("torch.ops.", "torch._C", "torch._inductor", "torch.jit.")):
        return "heavy"
    if name in _MOVES:
        return "move"
    area = origin.rpartition(".")[0]
    return None if area in ("torch", "torch.Tensor") and name in _FREE else "compute"


def _in_method(program: Program, place: Place, call: ast.Call) -> Iterator[tuple[str, int, str]]:
    function = call.func
    if isinstance(function, ast.Call):  # nn.Linear(8, 8)(x)
        made = place.unit.origin(function.func) or ""
        if made.startswith("torch.nn.") and _kind_of(made):
            yield _kind_of(made) or "compute", call.lineno, f"{made} runs in PyTorch"
    if not isinstance(function, ast.Attribute):
        return
    held = _held_module(program, function)
    if held:
        yield _kind_of(held) or "compute", call.lineno, f"{held} (self.{function.attr}) runs in PyTorch"
    elif function.attr in _METHODS and function.attr not in program.functions:
        kind = "heavy" if function.attr in HEAVY else "compute"
        yield kind, call.lineno, f"the tensor method {function.attr} runs in PyTorch"
    elif function.attr == "forward" and _is_super(function.value) and _torch_base(place):
        yield "heavy", call.lineno, f"super().forward of {_torch_base(place)} runs in PyTorch"


def _held_module(program: Program, function: ast.Attribute) -> str | None:
    """torch's class in `self.fc = nn.Linear(...)` for the call `self.fc(x)`."""
    if not is_self(function.value):
        return None
    for unit, value in program.attributes.get(function.attr, []):
        for node in ast.walk(value):
            origin = unit.origin(node.func) if isinstance(node, ast.Call) else None
            if origin and origin.startswith("torch.nn.") and _kind_of(origin):
                return origin
    return None


def _is_super(expression: ast.AST) -> bool:
    return isinstance(expression, ast.Call) and last_name(expression.func) == "super"


def _torch_base(place: Place) -> str | None:
    return torch_base(place.unit, place.owner) if place.owner else None


def torch_base(unit: Unit, node: ast.ClassDef) -> str | None:
    """A torch.nn class with a forward of its own that the class inherits from."""
    for base in node.bases:
        origin = unit.origin(base) or ""
        if origin.startswith("torch.nn.") and origin.rpartition(".")[2] not in _FREE_MODULES:
            return origin
    return None


def _tensor_names(place: Place) -> frozenset[str]:
    """Parameters of a `forward` that are not annotated as plain numbers."""
    if place.node.name != "forward":
        return frozenset()
    arguments = place.node.args
    plain = ("int", "float", "bool", "str")
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return frozenset(a.arg for a in named if last_name(a.annotation or a) not in plain) - {"self", "ctx"}


def _in_operator(
    program: Program, node: ast.BinOp | ast.AugAssign, tensors: frozenset[str]
) -> Iterator[tuple[str, int, str]]:
    operands = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
    if isinstance(node.op, ast.MatMult):
        yield "heavy", node.lineno, "the operator @ runs in PyTorch"
    elif isinstance(node.op, _ARITHMETIC) and any(_is_tensor(program, o, tensors) for o in operands):
        yield "compute", node.lineno, "arithmetic on a tensor runs in PyTorch"


def _is_tensor(program: Program, operand: ast.AST, tensors: frozenset[str]) -> bool:
    if isinstance(operand, ast.Name):
        return operand.id in tensors
    if not isinstance(operand, ast.Attribute) or not is_self(operand.value):
        return False
    values = program.attributes.get(operand.attr, [])
    return any(
        isinstance(value, ast.Call) and unit.origin(value.func) == "torch.nn.Parameter"
        for unit, value in values
    )
