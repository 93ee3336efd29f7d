"""What a reference's torch operations move and compute: the eager baseline of the estimate.

    with OpCounter() as counter:
        model(*inputs)
    entries = counter.snapshot()

Views, metadata and allocations are free. One entry for each operation that would launch a kernel:

    {"kind": "operation", "name": "aten.addmm.default", "part": null, "compute": true, "programs": 16,
     "traffic": 0, "read": 0, "written": 0, "flops": 0, "dots": {"library": 0}}

`read` and `written` are bytes of the distinct tensors in and out (an expanded tensor counts its storage), `traffic`
their sum, `dots` the FLOPs of matrix products and convolutions, `flops` those of everything else, `programs` how many
blocks a library kernel of usual tile size would launch. `compute` is false for copies, fills and casts.
"""
