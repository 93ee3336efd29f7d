"""Problems become decompositions that pass every check, or the whole problem with the reason why."""

import ast

import pytest

from mkevolve_core.builtin.decomposer import BuiltinDecomposer
from mkevolve_core.checks import check
from mkevolve_core.errors import ProblemError
from mkevolve_core.problem import sample_problems
from tests.builtin.conversations import decomposed_by


def shape_of(decomposition):
    return {part.name: part.instances for part in decomposition.subproblems}


@pytest.mark.parametrize("sample", sample_problems(), ids=lambda sample: sample.name)
def test_every_sample_decomposes_without_findings(sandbox, decompose, sample):
    decomposition = decompose(sample)
    assert decomposition.fallback is None
    assert len(decomposition.subproblems) > 1
    report = check(sandbox, sample, decomposition)
    assert report.findings == ()
    assert report.max_error == 0.0
    assert report.same_random_state


def test_the_vision_transformer_is_cut_as_in_figure_1(decompose, vision_transformer):
    decomposition = decompose(vision_transformer)
    assert shape_of(decomposition) == {
        "conv_patch_embedding": 1,
        "linear_proj": 1,
        "cls_token_concat": 1,
        "transformer_block": 6,
        "classification_head": 1,
    }
    assert decomposition.ids == ("1", "2", "3", "4", "5")
    assert decomposition.flow == (("1", "2"), ("2", "3"), ("3", "4"), ("4", "5"))
    block = decomposition.subproblem("4")
    assert "self.self_attn = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)" in block.reference
    assert "self.transformer_block_6 = TransformerBlock(128, 4, 512)" in decomposition.top_level
    assert "x = self.transformer_block_6(x)" in decomposition.top_level


def test_the_top_level_takes_the_problems_own_arguments(decompose, vision_transformer):
    top = ast.parse(decompose(vision_transformer).top_level)
    init = next(n for n in ast.walk(top) if isinstance(n, ast.FunctionDef) and n.name == "__init__")
    assert [argument.arg for argument in init.args.args[:3]] == ["self", "num_classes", "embed_dim"]
    assert len(init.args.defaults) == 7


def test_the_weight_map_names_every_weight_once(decompose, vision_transformer):
    pairs = decompose(vision_transformer).weight_map
    assert len(pairs) == 79
    assert len({ours for ours, _ in pairs}) == len({theirs for _, theirs in pairs}) == 79
    assert ("transformer_block_2.norm1.weight", "transformer_layers.1.norm1.weight") in pairs


def test_layers_of_one_pattern_are_one_file(decompose, samples):
    decomposition = decompose(samples["mlp"])
    assert shape_of(decomposition) == {"linear_relu": 3, "linear": 1}
    assert decomposition.subproblem("1").reference.count('"get_init_inputs"') == 3


def test_the_same_problem_gives_the_same_text(sandbox, decompose, samples):
    again = decomposed_by(BuiltinDecomposer(sandbox), samples["causal_self_attention"])
    assert again == decompose(samples["causal_self_attention"])


def test_a_product_of_activations_with_softmax_between_is_one_attention(decompose, problem):
    source = """
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(n, n), nn.Linear(n, n), nn.Linear(n, n)
        self.register_buffer("mask", torch.tril(torch.ones(5, 5)).view(1, 5, 5))

    def forward(self, x):
        scores = self.q(x) @ self.k(x).transpose(-2, -1) * 0.5
        scores = scores.masked_fill(self.mask == 0, float("-inf"))
        return F.softmax(scores, dim=-1) @ self.v(x)
"""
    found = decompose(problem(source, "[torch.randn(2, 5, 6)]", "[6]"))
    assert found.fallback is None
    assert shape_of(found) == {"linear": 3, "attention": 1}


def test_buffers_outside_of_the_state_dict_are_made_again(decompose, problem):
    source = """
class Rotate(nn.Module):
    def forward(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Model(nn.Module):
    def __init__(self, dim, length):
        super().__init__()
        angle = torch.outer(torch.arange(length).float(), 100.0 ** -torch.linspace(0, 1, dim // 2))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin(), persistent=False)
        self.q = nn.Linear(dim, dim)
        self.turns = nn.ModuleList([Rotate(), Rotate()])

    def forward(self, x):
        h = self.q(x)
        for turn in self.turns:
            h = turn(h, self.cos[: x.shape[1]], self.sin[: x.shape[1]])
        return h
"""
    found = decompose(problem(source, "[torch.randn(2, 5, 8)]", "[8, 16]"))
    assert found.fallback is None
    assert any("persistent=False" in part.reference for part in found.subproblems)


def test_a_weight_read_twice_has_one_owner(decompose, problem):
    source = """
class Model(nn.Module):
    def __init__(self, n, k):
        super().__init__()
        self.encoder = nn.Linear(n, k)
        self.bias = nn.Parameter(torch.zeros(n))

    def forward(self, x):
        code = torch.tanh(self.encoder(x))
        return torch.softmax(F.linear(code, self.encoder.weight.t(), self.bias), -1)
"""
    found = decompose(problem(source, init="[6, 3]"))
    assert found.fallback is None
    owners = {ours.partition(".")[0] for ours, _ in found.weight_map}
    assert len(owners) == 1


def test_cloned_encoder_layers_are_instances_of_one_block(decompose, problem):
    source = """
class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        layer = nn.TransformerEncoderLayer(dim, 2, 2 * dim, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(dim, 5)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))
"""
    found = decompose(problem(source, "[torch.randn(3, 7, 8)]", "[8]"))
    assert shape_of(found)["transformer_block"] == 2


def test_state_pairs_of_recurrent_layers_cross_whole(decompose, problem):
    source = """
class Model(nn.Module):
    def __init__(self, n, k):
        super().__init__()
        self.encoder = nn.LSTM(n, k, num_layers=2, batch_first=True)
        self.decoder = nn.LSTM(k, k, num_layers=2, batch_first=True)
        self.out = nn.Linear(k, n)

    def forward(self, x):
        y, state = self.encoder(x)
        z, (h, _) = self.decoder(y.flip(1), state)
        return self.out(z), h[-1]
"""
    found = decompose(problem(source, "[torch.randn(3, 5, 6)]", "[6, 4]"))
    assert found.fallback is None
    assert len(found.subproblems) >= 3


def test_a_transposed_border_is_verified_with_its_strides(decompose, problem):
    source = """
class Model(nn.Module):
    def __init__(self, n, k):
        super().__init__()
        self.conv = nn.Conv1d(n, k, 1)
        self.norm = nn.LayerNorm(k)
        self.fc = nn.Linear(k, k)

    def forward(self, x):
        y = self.conv(x).transpose(1, 2)
        return self.fc(self.norm(y)) + y
"""
    found = decompose(problem(source, "[torch.randn(4, 6, 9)]", "[6, 5]"))
    assert found.fallback is None
    assert any(".permute(0, 2, 1)" in part.reference for part in found.subproblems)


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        ("return self.fc(x) if x.mean() > 0 else -self.fc(x)", "depends on the data"),
        ("return self.fc(x)", "one group of operations"),
        ("return self.fc(x) + OUTSIDE", "neither an input nor part of the module"),
    ],
)
def test_what_cannot_be_cut_is_the_whole_problem_with_the_reason(decompose, problem, forward, reason):
    source = f"""
OUTSIDE = torch.ones(6)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        {forward}
"""
    small = problem(source)
    found = decompose(small)
    assert reason in found.fallback
    (part,) = found.subproblems
    assert part.reference == small.source
    assert found.weight_map == (("small.fc.weight", "fc.weight"), ("small.fc.bias", "fc.bias"))


def test_a_problem_that_does_not_run_is_refused(decompose, problem):
    source = """
class Model(nn.Module):
    def forward(self, x):
        raise RuntimeError("nothing works")
"""
    with pytest.raises(ProblemError, match="small cannot be run: .*nothing works"):
        decompose(problem(source))


def test_equal_words_for_file_and_attribute_do_not_clash(decompose, problem):
    """Two instances of one pattern are numbered, and so would be a second pattern of the same operation."""
    source = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 6, 3, padding=1)
        self.c = nn.Conv2d(3, 2, 1)

    def forward(self, x):
        return torch.cat([self.a(x), self.b(x), self.c(x)], 1)
"""
    found = decompose(problem(source, "[torch.randn(2, 3, 8, 8)]"))
    assert found.fallback is None
    assert shape_of(found)["conv2d"] == 2


def test_keyword_constructor_arguments_are_taken(decompose, problem):
    source = """
class Model(nn.Module):
    def __init__(self, *, channels, expand=2):
        super().__init__()
        self.up = nn.Conv2d(channels, channels * expand, 1)
        self.down = nn.Conv2d(channels * expand, channels, 1)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))
"""
    found = decompose(problem(source, "[torch.randn(2, 4, 5, 5)]", "[[], {'channels': 4}]"))
    assert shape_of(found) == {"conv2d_gelu": 1, "conv2d_add": 1}
