"""What the recorder sees of a forward pass, and what it refuses."""

import pytest

from mkevolve_core.builtin.graph import Ref, graph_from_plain
from mkevolve_core.protocols import JobFailed

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"


def problem(forward, init="pass", inputs="torch.randn(3, 8)", body=""):
    """A problem file from the statements of its methods."""

    def indented(text):
        return "\n".join(f"        {line}" for line in text.splitlines())

    return (
        f"{HEAD}{body}\n\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"{indented(init)}\n\n    def forward(self, x):\n{indented(forward)}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )


@pytest.fixture
def trace(sandbox):
    def run(*args, **kwargs):
        source = problem(*args, **kwargs)
        return graph_from_plain(sandbox.run("trace", {"source": source, "config": None}))

    return run


def ops(graph):
    return [node.op for node in graph.nodes]


def test_a_module_is_a_functional_node_with_its_parameters(trace):
    graph = trace("return self.fc(x)", "self.fc = nn.Linear(8, 5)")
    (node,) = graph.nodes
    assert (node.op, node.call, node.scope) == ("linear", "F.linear", "fc")
    assert node.args == (Ref("x"), Ref("fc.weight"), Ref("fc.bias"))
    assert graph.units["fc"].args == (8, 5)
    assert graph.output == Ref(node.outputs[0])
    assert graph.values["fc.weight"].shape == (5, 8)


@pytest.mark.parametrize("extra", ["", "bias=False", "batch_first=True"])
def test_attention_is_opened_into_its_products(trace, extra):
    init = f"self.attn = nn.MultiheadAttention(8, 2, {extra})"
    graph = trace("return self.attn(x, x, x, need_weights=False)[0]", init, inputs="torch.randn(4, 3, 8)")
    work = [op for op in ops(graph) if op in ("linear", "scaled_dot_product_attention")]
    assert work == ["linear", "scaled_dot_product_attention", "linear"]
    (call,) = graph.calls
    assert (call.path, call.cls, call.inputs) == ("attn", "torch.nn.MultiheadAttention", ("x",) * 3)


def test_the_encoder_layers_fast_path_hides_nothing(trace):
    init = "self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)"
    graph = trace("return self.layer(x)", init, inputs="torch.randn(4, 3, 8)")
    assert ops(graph).count("linear") == 4
    assert ops(graph).count("layer_norm") == 2
    assert "dropout" not in ops(graph)


def test_clones_have_the_arguments_of_their_prototype(trace):
    init = "layer = nn.TransformerEncoderLayer(8, 2, 16)\nself.stack = nn.TransformerEncoder(layer, 2)"
    graph = trace("return self.stack(x)", init, inputs="torch.randn(4, 3, 8)")
    assert graph.units["stack.layers.1.linear1"].args == (8, 16)


def test_in_place_calls_become_single_assignment(trace):
    graph = trace("y = x + 1\ny.mul_(2)\nreturn F.relu(y, inplace=True)")
    assert [(n.op, n.call) for n in graph.nodes] == [
        ("add", "operator:add"),
        ("mul", "operator:mul"),
        ("relu", "F.relu"),
    ]
    assert graph.nodes[1].inputs == graph.nodes[0].outputs


def test_a_reflected_operator_keeps_its_order(trace):
    (node,) = trace("return 1 - x").nodes
    assert (node.call, node.args) == ("operator:sub", (1, Ref("x")))


def test_shape_queries_and_dead_code_are_no_nodes(trace):
    graph = trace("unused = x.exp()\nreturn x.reshape(x.shape[0], -1) if x.dim() > 1 else x")
    assert ops(graph) == ["reshape"]


def test_states_are_in_the_order_of_creation(trace):
    init = (
        "self.fc = nn.Linear(8, 8)\nself.token = nn.Parameter(torch.zeros(8))\n"
        "self.register_buffer('mask', torch.tril(torch.ones(8, 8)), persistent=False)\nself.out = nn.Linear(8, 8)"
    )
    graph = trace("return self.out((self.fc(x) + self.token) @ self.mask)", init)
    assert list(graph.states) == ["fc.weight", "fc.bias", "token", "mask", "out.weight", "out.bias"]
    assert graph.states["token"].constant == 0.0
    mask = graph.states["mask"]
    assert (mask.kind, mask.persistent, mask.recipe) == ("buffer", False, "torch.tril(torch.ones(8, 8))")


def test_a_value_keeps_its_strides_and_range(trace):
    graph = trace("return x.t().abs() + 1")
    first = graph.values[graph.nodes[0].outputs[0]]
    assert (first.shape, first.stride) == ((8, 3), (1, 8))
    assert graph.values[graph.nodes[1].outputs[0]].low >= 0.0


def test_infinity_survives_the_journey(trace):
    graph = trace("return x.masked_fill(x > 0, float('-inf'))")
    assert graph.nodes[1].args[2] == float("-inf")


def test_every_config_is_traced_on_request(sandbox):
    source = problem("return x + 1").replace(
        "def get_inputs():\n    return [torch.randn(3, 8)]\n\n\ndef get_init_inputs():\n    return []\n",
        "def get_input_configs():\n    return [\n"
        "        {'get_init_inputs': list, 'get_inputs': lambda n=n: [torch.randn(n)]} for n in (2, 5)\n    ]\n",
    )
    graphs = [
        graph_from_plain(g) for g in sandbox.run("trace", {"source": source, "config": "all"})["graphs"]
    ]
    assert [graph.values["x"].shape for graph in graphs] == [(2,), (5,)]
    one = sandbox.run("trace", {"source": source, "config": 1})
    assert graph_from_plain(one).values["x"].shape == (5,)


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        ("return x if x.mean() > 0 else -x", "depends on the data"),
        ("return x * x.sum().item()", "reads a tensor's elements with item"),
        ("return x * float(x.sum())", "reads a tensor's elements"),
        ("y = x * 2\nz = y[:, :4]\nz.mul_(2)\nreturn y", "writes into a view"),
        ("y = x * 2\ny[0] = 1.0\nreturn y", "writes into a tensor with __setitem__"),
        ("return x + OUTSIDE", "neither an input nor part of the module"),
    ],
)
def test_what_is_no_graph_is_refused_in_words(trace, forward, reason):
    with pytest.raises(JobFailed, match=reason) as failed:
        trace(forward, body="OUTSIDE = torch.ones(8)")
    assert failed.value.kind == "raise"


def test_a_forward_that_raises_is_the_sources_failure(trace):
    with pytest.raises(JobFailed, match="nothing works") as failed:
        trace("raise RuntimeError('nothing works')")
    assert failed.value.kind == "raise"
