"""Run with TRITON_INTERPRET=1: prints what `counting` and `opcount` report about small launches, as JSON."""

import json
import sys

import torch
import torch.nn as nn
import triton
import triton.language as tl

from verifier import counting
from verifier.opcount import OpCounter

counter = counting.install()


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets * stride, mask=offsets < n)
    tl.store(out_ptr + offsets, x * 2.0, mask=offsets < n)


@triton.jit
def rows_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n_cols + cols)
    tl.store(out_ptr + tl.program_id(0), tl.sum(x, axis=0))


@triton.jit
def product_kernel(a_ptr, b_ptr, out_ptr, K, SIDE: tl.constexpr, PRECISION: tl.constexpr):
    rows = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    cols = tl.program_id(1) * SIDE + tl.arange(0, SIDE)
    acc = tl.zeros((SIDE, SIDE), dtype=tl.float32)
    for start in range(0, tl.cdiv(K, SIDE)):
        ks = start * SIDE + tl.arange(0, SIDE)
        a = tl.load(a_ptr + rows[:, None] * K + ks[None, :])
        b = tl.load(b_ptr + cols[None, :] * K + ks[:, None])
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    n_cols = tl.num_programs(1) * SIDE
    tl.store(out_ptr + rows[:, None] * n_cols + cols[None, :], acc)


@triton.jit
def add_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + offsets * 0, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}, num_warps=8), triton.Config({"BLOCK": 128}, num_stages=2)],
    key=["n"],
)
@triton.jit
def tuned_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def generic_kernel(
    x_ptr, n, eps, flag, missing, DTYPE: tl.constexpr, SHAPE: tl.constexpr, BLOCK: tl.constexpr
):
    if flag:
        tl.store(x_ptr + tl.arange(0, BLOCK), tl.full((BLOCK,), 1.0, DTYPE))


def entries_of(run):
    counter.reset()
    run()
    return counter.snapshot()


def failed(run):
    try:
        run()
    except Exception as error:  # noqa: BLE001
        return {"error": repr(error), "entries": counter.snapshot()}
    return {"error": None}


def copies(stride):
    x = torch.arange(1000.0 * stride)
    out = torch.empty(1000)
    copy_kernel[(4,)](x, out, 1000, stride, BLOCK=256, num_warps=2)
    assert torch.equal(out, 2 * x[::stride])


def products(precision):
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    out = torch.empty(64, 64)
    product_kernel[(2, 2)](a, b, out, 64, SIDE=32, PRECISION=precision, num_stages=4)
    return float((out - a.double() @ b.double().t()).abs().max())


def tuned_result():
    out = torch.zeros(256)
    tuned_kernel[lambda meta: (triton.cdiv(256, meta["BLOCK"]),)](torch.ones(256), out, 256)
    first = float(out[0])
    tuned_kernel[lambda meta: (triton.cdiv(256, meta["BLOCK"]),)](torch.ones(256), out, 256)
    return first, float(out[0])


def parts():
    with counter.part("ModelNew"):
        torch.ones(4).t().contiguous()
        with counter.part("first"):
            copies(1)
        with counter.paused():
            copies(1)
        copies(1)
    torch.ones(3)


def operations(run):
    with torch.no_grad(), OpCounter() as operations:
        run()
    return operations.snapshot()


def main():
    torch.manual_seed(0)
    x = torch.randn(8, 16)
    encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    tokens, image = torch.randn(2, 4, 16), torch.randn(1, 3, 8, 8)
    layer, convolution, table = nn.Linear(16, 4), nn.Conv2d(3, 5, 3), nn.Embedding(1000, 8)
    report = {
        "near": entries_of(lambda: copies(1)),
        "far": entries_of(lambda: copies(8)),
        "sums": entries_of(lambda: rows_kernel[(8,)](x, torch.empty(8), 16, BLOCK=16)),
        "atomics": entries_of(lambda: add_kernel[(1,)](torch.ones(100), torch.zeros(1), 100, BLOCK=128)),
        "errors": {name: products(name) for name in ("ieee", "tf32", "tf32x3")},
        "product": entries_of(lambda: products("ieee")),
        "default_product": entries_of(lambda: products(None)),
        "tuned": tuned_result(),
        "tuned_entries": entries_of(tuned_result),
        "parts": entries_of(parts),
        "generic": entries_of(
            lambda: generic_kernel[(1,)](
                torch.empty(32), 1, 0.5, True, None, DTYPE=tl.float32, SHAPE=(2, 3), BLOCK=32, num_ctas=1
            )
        ),
        "outside": failed(lambda: copy_kernel[(4,)](x, torch.empty(1000), 1000, 1, BLOCK=256)),
        "operations": {
            "linear": operations(lambda: layer(x)),
            "convolution": operations(lambda: convolution(image)),
            "views": operations(lambda: x.t().reshape(-1)[:4].unsqueeze(0).expand(5, 4).detach()),
            "fill": operations(lambda: torch.zeros_like(x)),
            "expanded": operations(lambda: x[:1].expand(8, 16) + x),
            "embedding": operations(lambda: table(torch.tensor([1, 2]))),
            "encoder": operations(lambda: encoder(tokens)),
        },
    }
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
