"""What a candidate's kernels really moved and computed, counted while Triton's interpreter runs them.

Runs in the runner child, with TRITON_INTERPRET=1 set before triton is imported, before the candidate is imported:

    counter = counting.install()
    with counter.part("ModelNew"):         # the outermost part: a forward; torch operations count only inside
        with counter.part("layers.0"):     # innermost name wins; nest as forward hooks do (enter/leave also exist)
            ...
    entries = counter.snapshot()           # plain JSON, in the order in which things ran
    counter.reset()                        # forget what was counted
    with counter.paused(): ...             # run without counting (launches still happen)

One entry of `snapshot()` for a kernel launch:

    {"kind": "launch", "name": "affine", "file": "<path of the defining file>", "part": "layers.0" or null,
     "completed": true,                    # false: it raised; everything below is what was done until then
     "grid": [15, 1, 1], "programs": 15, "num_warps": 4, "num_stages": 3,
     "options": {"num_ctas": 1},           # further launch options, where given
     "signature": {"x": "*fp32", "n": "i32", "B": "constexpr"},   # in the order of the kernel's parameters
     "constants": {"B": 256},              # JSON values, or {"dtype": "fp32"}, {"function": "name"}, {"tuple": [...]}
     "aligned": ["x", "n"],                # divisible by 16, as the compiler would specialize
     "loaded": 0, "stored": 0,             # bytes of masked-in elements
     "atomics": 0,                         # masked-in elements of atomic operations
     "traffic": 0,                         # bytes of 32-byte sectors requested from L2, loads, stores and atomics
     "read": 0, "written": 0,              # footprint: bytes of distinct sectors of the tensors, as DRAM sees them
     "flops": 0,                           # elementwise and reductions, in fp32 operations
     "dots": {"ieee": 0}}                  # 2MNK by input precision: ieee, tf32, tf32x3, fp16, ...

One entry for a torch operation that the candidate's forward ran (see `opcount`; the reference's have the same form):

    {"kind": "operation", "name": "aten.clone.default", "part": null, "compute": false, "programs": 4,
     "traffic": 0, "read": 0, "written": 0, "flops": 0, "dots": {"library": 0}}

`compute` is false for copies, fills and casts. The numbers come from the candidate's own process: advisory.
"""
