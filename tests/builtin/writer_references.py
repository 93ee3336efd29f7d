"""Small references for the built-in writer: one for each thing that a scheme does, at odd sizes."""

from __future__ import annotations

from textwrap import dedent, indent

_HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"


def reference(forward: str, inputs: str, init: str = "", arguments: str = "x") -> str:
    """A problem file from the bodies of its constructor and forward, and an expression of its inputs."""
    body = indent(dedent(init).strip(), "        ")
    steps = indent(dedent(forward).strip(), "        ")
    return (
        f"{_HEAD}class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n{body}\n\n"
        f"    def forward(self, {arguments}):\n{steps}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )


def _chain(expression: str, size: str = "7, 33") -> str:
    return reference(f"return {expression}", f"torch.randn({size}) * 3")


POINTWISE = {
    "relu": _chain("F.relu(x)"),
    "gelu": _chain("F.gelu(x)"),
    "gelu_tanh": _chain("F.gelu(x, approximate='tanh')"),
    "silu": _chain("F.silu(x)"),
    "mish": _chain("F.mish(x)"),
    "hardswish": _chain("F.hardswish(x)"),
    "hardsigmoid": _chain("F.hardsigmoid(x)"),
    "hardtanh": _chain("F.hardtanh(x, -0.5, 0.7)"),
    "relu6": _chain("F.relu6(x * 4)"),
    "leaky_relu": _chain("F.leaky_relu(x, 0.2)"),
    "elu": _chain("F.elu(x, 1.3)"),
    "celu": _chain("F.celu(x, 1.3)"),
    "selu": _chain("F.selu(x)"),
    "softplus": _chain("F.softplus(x * 10)"),
    "softsign": _chain("F.softsign(x)"),
    "tanhshrink": _chain("F.tanhshrink(x)"),
    "hardshrink": _chain("F.hardshrink(x, 0.4)"),
    "softshrink": _chain("F.softshrink(x, 0.4)"),
    "threshold": _chain("F.threshold(x, 0.1, -2.0)"),
    "glu": _chain("F.glu(x, dim=-1)", "5, 34"),
    "tanh": _chain("torch.tanh(x)"),
    "sigmoid": _chain("torch.sigmoid(x)"),
    "exp_log": _chain("torch.log(torch.exp(x) + 1)"),
    "sqrt": _chain("torch.sqrt(x.abs() + 0.5) + torch.rsqrt(x * x + 1)"),
    "powers": _chain("x ** 2 + x ** 3 - x ** 5 + (x.abs() + 1) ** 0.5 + 1 / (x ** 2 + 2)"),
    "clamp": _chain("x.clamp(-1, 1) + torch.clamp(x, min=0.3) + x.clamp(max=0.1)"),
    "where": _chain("torch.where(x > 0.5, x * 2, -x) + (x > 0).float()"),
    "masked_fill": _chain("x.masked_fill(x < 0, float('-inf')).exp()"),
    "scalars": _chain("(3 - x) / 2 + 2 / (x.abs() + 1) * 0.25 - 7"),
    "sines": _chain("torch.sin(x) * torch.cos(x) + x.floor() + torch.ceil(x)"),
    "maximum": reference(
        "return torch.maximum(x, y) - torch.min(x, y)", "torch.randn(9, 5), torch.randn(5)", "", "x, y"
    ),
    "broadcast": reference(
        "return x * self.scale + y + self.bias",
        "torch.randn(3, 5, 7), torch.randn(3, 1, 7)",
        "self.scale = nn.Parameter(torch.randn(5, 1))\nself.bias = nn.Parameter(torch.randn(7))",
        "x, y",
    ),
    "batch_norm": reference(
        "return F.relu(self.bn(x))", "torch.randn(3, 5, 4, 6)", "self.bn = nn.BatchNorm2d(5)"
    ),
    "prelu": reference("return self.act(x)", "torch.randn(3, 5, 7)", "self.act = nn.PReLU(5)"),
    "lerp": reference("return torch.lerp(x, y, 0.3)", "torch.randn(9, 5), torch.randn(9, 5)", "", "x, y"),
    "nan_stays": reference("return F.relu(x / x)", "torch.tensor([0.0, 1.0, -2.0])"),
}

GEMM = {
    "linear": reference("return self.fc(x)", "torch.randn(19, 37)", "self.fc = nn.Linear(37, 53)"),
    "linear_row": reference("return self.fc(x)", "torch.randn(1, 37)", "self.fc = nn.Linear(37, 53)"),
    "linear_column": reference("return self.fc(x)", "torch.randn(19, 37)", "self.fc = nn.Linear(37, 1)"),
    "linear_vector": reference("return self.fc(x)", "torch.randn(37)", "self.fc = nn.Linear(37, 5)"),
    "linear_without_bias": reference(
        "return F.gelu(self.fc(x)) * 2", "torch.randn(2, 5, 37)", "self.fc = nn.Linear(37, 21, bias=False)"
    ),
    "linear_residual": reference(
        "return x + F.silu(self.fc(F.relu(x)))", "torch.randn(3, 7, 33)", "self.fc = nn.Linear(33, 33)"
    ),
    "linear_large_rows": reference(
        "return self.fc(x).clamp(min=0)", "torch.randn(300, 40)", "self.fc = nn.Linear(40, 200)"
    ),
    "matmul": reference("return x @ y", "torch.randn(18, 35), torch.randn(35, 20)", "", "x, y"),
    "matmul_transposed": reference(
        "return torch.matmul(x.t(), y.transpose(0, 1)) * 0.5",
        "torch.randn(35, 18), torch.randn(20, 35)",
        "",
        "x, y",
    ),
    "bmm": reference(
        "return torch.bmm(x, y) + 1", "torch.randn(3, 17, 9), torch.randn(3, 9, 21)", "", "x, y"
    ),
    "batched_broadcast": reference(
        "return torch.matmul(x, y)", "torch.randn(2, 3, 17, 9), torch.randn(3, 9, 5)", "", "x, y"
    ),
    "addmm": reference(
        "return torch.addmm(b, x, y, beta=0.5, alpha=2)",
        "torch.randn(5), torch.randn(18, 35), torch.randn(35, 5)",
        "",
        "b, x, y",
    ),
    "two_products": reference(
        "return self.b(torch.tanh(self.a(x)))",
        "torch.randn(6, 20)",
        "self.a = nn.Linear(20, 30)\nself.b = nn.Linear(30, 10)",
    ),
    "shared_input": reference(
        "return self.a(x) * torch.sigmoid(self.b(x))",
        "torch.randn(6, 20)",
        "self.a = nn.Linear(20, 30)\nself.b = nn.Linear(20, 30)",
    ),
    "numbered": reference(
        "return self.net(x)",
        "torch.randn(6, 20)",
        "self.net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 10))",
    ),
    "skinny": reference("return F.relu(self.fc(x))", "torch.randn(3, 2048)", "self.fc = nn.Linear(2048, 24)"),
    "symmetric_sum": reference("y = x @ x.t()\nreturn y + y.t()", "torch.randn(17, 9)"),
    "both_outputs": reference("y = x @ x.t()\nreturn y, F.relu(y), y[0]", "torch.randn(17, 9)"),
}

ROWS = {
    "softmax": reference("return torch.softmax(x, dim=-1)", "torch.randn(5, 37)"),
    "softmax_first": reference("return torch.softmax(x, dim=0)", "torch.randn(5, 37)"),
    "log_softmax": reference("return F.log_softmax(x, dim=1)", "torch.randn(5, 37, 3)"),
    "layer_norm": reference("return self.norm(x)", "torch.randn(3, 5, 37)", "self.norm = nn.LayerNorm(37)"),
    "layer_norm_two_dims": reference(
        "return self.norm(x)", "torch.randn(3, 5, 7)", "self.norm = nn.LayerNorm([5, 7])"
    ),
    "add_layer_norm": reference(
        "return self.norm(x + y)",
        "torch.randn(3, 37), torch.randn(3, 37)",
        "self.norm = nn.LayerNorm(37)",
        "x, y",
    ),
    "add_norm_both": reference(
        "h = x + y\nreturn self.norm(h), h * 2",
        "torch.randn(3, 37), torch.randn(3, 37)",
        "self.norm = nn.LayerNorm(37)",
        "x, y",
    ),
    "rms_norm": reference(
        "return F.rms_norm(x, (37,), self.weight)",
        "torch.randn(3, 37)",
        "self.weight = nn.Parameter(torch.rand(37))",
    ),
    "group_norm": reference(
        "return self.norm(x)", "torch.randn(3, 6, 4, 5)", "self.norm = nn.GroupNorm(2, 6)"
    ),
    "instance_norm": reference(
        "return self.norm(x)", "torch.randn(3, 6, 4, 5)", "self.norm = nn.InstanceNorm2d(6, affine=True)"
    ),
    "sum_last": reference("return x.sum(-1)", "torch.randn(5, 37)"),
    "sum_middle_kept": reference("return x.sum(1, keepdim=True) * 2", "torch.randn(5, 7, 3)"),
    "mean_all": reference("return x.mean()", "torch.randn(5, 37)"),
    "mean_places": reference("return x.mean(dim=(2, 3))", "torch.randn(2, 3, 5, 7)"),
    "max_values": reference("return x.max(dim=1)[0] - x.amin(dim=1)", "torch.randn(5, 37)"),
    "max_all": reference("return x.max() + x.min()", "torch.randn(5, 37)"),
    "logsumexp": reference("return torch.logsumexp(x, dim=1, keepdim=True)", "torch.randn(5, 37)"),
    "variance": reference("return x.var(dim=-1) + x.std(dim=-1, unbiased=False)", "torch.randn(5, 37)"),
    "normalize": reference("return F.normalize(x, dim=1)", "torch.randn(5, 37)"),
    "norm": reference("return x / x.norm(dim=1, keepdim=True)", "torch.randn(5, 37)"),
    "chained": reference(
        "return torch.softmax(x - x.mean(-1, keepdim=True), -1).sum(-1)", "torch.randn(5, 37)"
    ),
    "size_one_chain": reference(
        "return x.sum(1, keepdim=True).max(1, keepdim=True)[0].mean(1)", "torch.randn(5, 37)"
    ),
    "whole_numbers": reference("return (x > 0).sum(-1)", "torch.randn(5, 37)"),
    "one_row": reference("return torch.softmax(x, -1)", "torch.randn(1, 37)"),
}

ATTENTION = {
    "sdpa": reference(
        "return F.scaled_dot_product_attention(q, k, v)",
        "torch.randn(2, 3, 19, 12), torch.randn(2, 3, 23, 12), torch.randn(2, 3, 23, 7)",
        "",
        "q, k, v",
    ),
    "causal": reference(
        "return F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        "torch.randn(2, 3, 37, 16), torch.randn(2, 3, 37, 16), torch.randn(2, 3, 37, 16)",
        "",
        "q, k, v",
    ),
    "bool_mask": reference(
        "return F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
        "torch.randn(2, 3, 9, 16), torch.randn(2, 3, 11, 16), torch.randn(2, 3, 11, 16), torch.rand(9, 11) > 0.3",
        "",
        "q, k, v, m",
    ),
    "added_mask": reference(
        "return F.scaled_dot_product_attention(q, k, v, attn_mask=m, scale=0.5)",
        "torch.randn(2, 3, 9, 16), torch.randn(2, 3, 11, 16), torch.randn(2, 3, 11, 16), torch.randn(9, 11)",
        "",
        "q, k, v, m",
    ),
    "two_tokens": reference(
        "return F.scaled_dot_product_attention(x, x, x).transpose(1, 2).reshape(3, 2, 32)",
        "torch.randn(3, 4, 2, 8)",
    ),
    "one_token": reference("return F.scaled_dot_product_attention(x, x, x)", "torch.randn(3, 4, 1, 8)"),
    "written_out": reference(
        """
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=2)
        q, k, v = (y.view(b, t, 3, c // 3).transpose(1, 2) for y in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / 3.0)
        att = att.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        y = torch.softmax(att, dim=-1) @ v
        return self.proj(y.transpose(1, 2).contiguous().view(b, t, c))
        """,
        "torch.randn(2, 13, 27)",
        """
        self.qkv = nn.Linear(27, 81)
        self.proj = nn.Linear(27, 27)
        self.register_buffer("mask", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))
        """,
    ),
    "multihead": reference(
        "return self.norm(x + self.attn(x, x, x)[0])",
        "torch.randn(5, 3, 24)",
        "self.attn = nn.MultiheadAttention(24, 4)\nself.norm = nn.LayerNorm(24)",
    ),
    "multihead_batch_first": reference(
        "return self.attn(x, x, x, need_weights=False)[0]",
        "torch.randn(5, 3, 24)",
        "self.attn = nn.MultiheadAttention(24, 4, batch_first=True)",
    ),
    "relu_attention": reference(
        "return torch.relu(q @ k.transpose(-2, -1) * 0.3) @ v",
        "torch.randn(2, 3, 9, 16), torch.randn(2, 3, 11, 16), torch.randn(2, 3, 11, 16)",
        "",
        "q, k, v",
    ),
    "weights_returned": reference(
        "a = torch.softmax(q @ k.transpose(-2, -1), -1)\nreturn a @ v, a",
        "torch.randn(2, 3, 9, 16), torch.randn(2, 3, 11, 16), torch.randn(2, 3, 11, 16)",
        "",
        "q, k, v",
    ),
}

CONVOLUTION = {
    "patches": reference(
        "return self.conv(x).flatten(2).transpose(1, 2)",
        "torch.randn(2, 3, 16, 12)",
        "self.conv = nn.Conv2d(3, 20, 4, stride=4)",
    ),
    "padded": reference(
        "return F.relu(self.conv(x) + 1)",
        "torch.randn(2, 3, 9, 11)",
        "self.conv = nn.Conv2d(3, 20, 3, stride=2, padding=1)",
    ),
    "dilated": reference(
        "return self.conv(x)",
        "torch.randn(2, 3, 9, 11)",
        "self.conv = nn.Conv2d(3, 5, 3, padding=2, dilation=2)",
    ),
    "grouped": reference(
        "return self.conv(x)",
        "torch.randn(2, 4, 9, 5)",
        "self.conv = nn.Conv2d(4, 6, (3, 2), groups=2, bias=False)",
    ),
    "depthwise": reference(
        "return self.conv(x)",
        "torch.randn(2, 4, 9, 5)",
        "self.conv = nn.Conv2d(4, 8, 3, padding=1, groups=4)",
    ),
    "one_dimension": reference(
        "return self.conv(x)", "torch.randn(2, 4, 19)", "self.conv = nn.Conv1d(4, 6, 5, padding=2)"
    ),
    "three_dimensions": reference(
        "return self.conv(x)", "torch.randn(1, 2, 5, 6, 4)", "self.conv = nn.Conv3d(2, 3, 3, padding=1)"
    ),
    "norm_relu": reference(
        "return F.relu(self.bn(self.conv(x)) + x)",
        "torch.randn(2, 4, 6, 5)",
        "self.conv = nn.Conv2d(4, 4, 3, padding=1, bias=False)\nself.bn = nn.BatchNorm2d(4)",
    ),
    "same": reference(
        "return self.conv(x)", "torch.randn(2, 4, 6, 5)", "self.conv = nn.Conv2d(4, 3, 4, padding='same')"
    ),
    "max_pool": reference("return F.max_pool2d(x, 3, 2, 1)", "torch.randn(2, 3, 9, 7)"),
    "avg_pool": reference("return F.avg_pool2d(x, 2)", "torch.randn(2, 3, 8, 7)"),
    "adaptive": reference("return F.adaptive_avg_pool2d(x, 1).flatten(1)", "torch.randn(2, 3, 8, 7)"),
    "conv_then_pool": reference(
        "return F.max_pool2d(F.relu(self.conv(x)), 2)",
        "torch.randn(2, 3, 8, 8)",
        "self.conv = nn.Conv2d(3, 5, 3)",
    ),
}

MOVES = {
    "cat": reference(
        "return torch.cat([x, y, x], dim=1)", "torch.randn(3, 5, 2), torch.randn(3, 4, 2)", "", "x, y"
    ),
    "class_token": reference(
        "return torch.cat((self.token.expand(x.size(0), -1, -1), x.unsqueeze(1)), dim=1) + self.place",
        "torch.randn(5, 12)",
        "self.token = nn.Parameter(torch.randn(1, 1, 12))\nself.place = nn.Parameter(torch.randn(1, 2, 12))",
    ),
    "cat_then_linear": reference(
        "return self.fc(torch.cat([x, y], dim=-1))",
        "torch.randn(3, 5), torch.randn(3, 4)",
        "self.fc = nn.Linear(9, 11)",
        "x, y",
    ),
    "stack": reference("return torch.stack([x, x * 2], dim=1)", "torch.randn(3, 5)"),
    "slices": reference("return x[:, 0] + x[:, -1] * x[:, 2]", "torch.randn(3, 5, 7)"),
    "strided": reference("return x[..., ::2] - x[:, None, 1:3, :4].sum(2)", "torch.randn(4, 5, 7)"),
    "permuted": reference(
        "return x.permute(2, 0, 1).reshape(14, 15) * 2", "torch.randn(5, 6, 7)[:, :6].contiguous()"
    ),
    "chunked": reference("a, b, c = x.chunk(3, dim=-1)\nreturn a * b + c", "torch.randn(4, 15)"),
    "unflattened": reference(
        "return x.unflatten(1, (3, 5)).transpose(1, 2).flatten(1)", "torch.randn(4, 15)"
    ),
    "padded": reference("return F.pad(x, (1, 2, 0, 1), value=0.5) * 2", "torch.randn(4, 5)"),
    "flipped": reference("return x.flip(1) + torch.roll(x, 2, dims=1)", "torch.randn(4, 5)"),
    "repeated": reference("return x.repeat(2, 3) * 2", "torch.randn(4, 5)"),
    "triangle": reference("return torch.tril(x) - torch.triu(x, 1)", "torch.randn(6, 6)"),
    "expanded": reference(
        "return x.unsqueeze(1).expand(-1, 3, -1) * y", "torch.randn(4, 5), torch.randn(3, 1)", "", "x, y"
    ),
    "transposed_only": reference("return x.transpose(0, 1)", "torch.randn(4, 5)"),
    "transposed_input": reference("return x * 2", "torch.randn(4, 5).t()"),
    "number_input": reference("return x.view(n, -1) * n", "torch.randn(12, 2), 4", "", "x, n"),
    "two_outputs": reference("return x * 2, (x + 1).sum(-1)", "torch.randn(4, 5)"),
}

BLOCKS = {
    "feed_forward_half": reference(
        "return self.norm(x + self.down(F.relu(self.up(x))))",
        "torch.randn(5, 3, 24)",
        "self.up = nn.Linear(24, 50)\nself.down = nn.Linear(50, 24)\nself.norm = nn.LayerNorm(24)",
    ),
    "pre_norm": reference(
        "return x + self.down(F.gelu(self.up(self.norm(x))))",
        "torch.randn(5, 3, 24)",
        "self.up = nn.Linear(24, 50)\nself.down = nn.Linear(50, 24)\nself.norm = nn.LayerNorm(24)",
    ),
    "gemm_scale_softmax": reference(
        "return torch.softmax(F.gelu(self.fc(x) * 1.5), dim=1)",
        "torch.randn(6, 20)",
        "self.fc = nn.Linear(20, 35)",
    ),
    "gemm_group_norm": reference(
        "return F.leaky_relu(self.norm(self.fc(x))) * 2",
        "torch.randn(6, 20)",
        "self.fc = nn.Linear(20, 36)\nself.norm = nn.GroupNorm(4, 36)",
    ),
    "gemm_logsumexp": reference(
        "y = torch.logsumexp(self.fc(x), dim=1, keepdim=True)\nreturn F.mish(y) * y",
        "torch.randn(6, 20)",
        "self.fc = nn.Linear(20, 36)",
    ),
    "gemm_row_sum": reference(
        "return self.fc(x).sum(dim=1, keepdim=True) / 2", "torch.randn(6, 20)", "self.fc = nn.Linear(20, 36)"
    ),
}


def instances(init: str, arguments: str, forward: str, configs: list[tuple[str, str]]) -> str:
    """A problem file for several instances: (constructor arguments, input) of each."""
    body = indent(dedent(init).strip() or "pass", "        ")
    listed = "\n".join(
        f'        {{"get_init_inputs": lambda: [{given}], "get_inputs": lambda: [{x}]}},'
        for given, x in configs
    )
    return (
        f"{_HEAD}class Model(nn.Module):\n    def __init__(self, {arguments}):\n        super().__init__()\n{body}\n\n"
        f"    def forward(self, x):\n{indent(forward, '        ')}\n\n\n"
        f"def get_input_configs():\n    return [\n{listed}\n    ]\n"
    )


INSTANCES = {
    "linear_relu": instances(
        "self.fc = nn.Linear(in_features, out_features)",
        "in_features, out_features",
        "return F.relu(self.fc(x))",
        [
            ("37, 50", "torch.randn(19, 37)"),
            ("50, 20", "torch.randn(19, 50)"),
            ("20, 20", "torch.randn(19, 20)"),
        ],
    ),
    "identical": instances(
        "self.fc = nn.Linear(width, 2 * width)",
        "width",
        "return F.gelu(self.fc(x))",
        [("20", "torch.randn(6, 20)")] * 3,
    ),
    "strides_differ": instances(
        "self.conv = nn.Conv2d(inner, outer, 3, stride=stride, padding=1)\nself.bn = nn.BatchNorm2d(outer)",
        "inner, outer, stride",
        "return F.relu(self.bn(self.conv(x)))",
        [
            ("3, 8, 1", "torch.randn(2, 3, 9, 9)"),
            ("8, 12, 2", "torch.randn(2, 8, 9, 9)"),
            ("8, 6, 1", "torch.randn(2, 8, 7, 7)"),
        ],
    ),
    "dimensions_differ": instances(
        "self.dim = dim",
        "dim",
        "return torch.softmax(x, self.dim)",
        [("0", "torch.randn(3, 4, 5)"), ("2", "torch.randn(3, 4, 5)")],
    ),
    "no_arguments": instances(
        "",
        "*ignored",
        "return F.softmax(x * 2, dim=-1)",
        [("", "torch.randn(3, 20)"), ("", "torch.randn(5, 7, 33)")][:1] + [("", "torch.randn(4, 33)")],
    ),
    "layer_norm": instances(
        "self.norm = nn.LayerNorm(width)",
        "width",
        "return self.norm(x)",
        [("20", "torch.randn(3, 20)"), ("70", "torch.randn(5, 70)")],
    ),
    "attention": instances(
        "self.heads = heads\nself.qkv = nn.Linear(width, 3 * width)",
        "width, heads",
        """b, t, c = x.shape
q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=-1))
return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c)""",
        [("24, 2", "torch.randn(2, 9, 24)"), ("40, 4", "torch.randn(2, 5, 40)")],
    ),
}

ALL = {
    f"{kind}/{name}": text
    for kind, group in (
        ("pointwise", POINTWISE),
        ("gemm", GEMM),
        ("rows", ROWS),
        ("attention", ATTENTION),
        ("convolution", CONVOLUTION),
        ("moves", MOVES),
        ("blocks", BLOCKS),
        ("instances", INSTANCES),
    )
    for name, text in group.items()
}
