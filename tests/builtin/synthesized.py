"""Run as a script: synthesize candidates and check them: interpreted, on a GPU, or compiled for sm_90.

Reads `{"mode": "interpret" | "gpu" | "compile", "jobs": [{"name", "reference", "structure", "shrink"}]}` from
stdin and prints one JSON object a job: {"name", "error", "kernels"}.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def main() -> None:
    order = json.loads(sys.stdin.read())
    check = {"interpret": computed, "gpu": on_gpu, "compile": compiled}[order["mode"]]
    for number, job in enumerate(order["jobs"]):
        print(json.dumps({"name": job["name"], **check(job, f"candidate_{number}")}), flush=True)


def synthesized(job: dict[str, Any]) -> tuple[Any, str, list[str]]:
    """(loaded problem, candidate's source, names of its kernels)."""
    from mkevolve_core.builtin.graph import graph_from_plain
    from mkevolve_core.builtin.synth.rewrite import Structure
    from mkevolve_core.builtin.synth.synthesis import blueprint
    from verifier.jobs.trace import trace
    from verifier.loading import load_problem

    problem = load_problem(job["reference"])
    graphs = [graph_from_plain(trace(problem.model_class, config)) for config in problem.configs]
    plan = blueprint(job["name"], job["reference"], graphs, Structure(**job["structure"]))
    tiles = plan.default_tiles(job["shrink"])
    return problem, plan.source(tiles), [kernel.name for kernel in plan.kernels]


def loaded(source: str, name: str) -> ModuleType:
    path = Path.cwd() / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def models(problem: Any, config: Any, module: ModuleType) -> tuple[Any, Any, tuple[Any, ...]]:
    """The reference with weights that matter, the candidate with the same by name, and inputs."""
    import torch

    from verifier.loading import split_init, split_inputs

    torch.manual_seed(0)
    args, kwargs = split_init(problem.model_class, config.get_init_inputs())
    reference = problem.model_class(*args, **kwargs).eval()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
        for name, buffer in reference.named_buffers():
            if "running" in name:
                buffer.add_(torch.rand_like(buffer))
    candidate = module.ModelNew(*args, **kwargs).eval()
    candidate.load_state_dict(reference.state_dict())
    return reference, candidate, split_inputs(config.get_inputs())


def on_gpu(job: dict[str, Any], name: str) -> dict[str, Any]:
    import torch

    torch.backends.cudnn.allow_tf32 = False
    return computed(job, name, "cuda", 1e-4)


def computed(job: dict[str, Any], name: str, device: str = "cpu", tolerance: float = 2e-5) -> dict[str, Any]:
    import torch

    problem, source, kernels = synthesized(job)
    module = loaded(source, name)
    for config in problem.configs:
        reference, candidate, inputs = models(problem, config, module)
        reference, candidate = reference.to(device), candidate.to(device)
        inputs = tuple(x.to(device) if hasattr(x, "to") else x for x in inputs)
        before = [x.clone() if hasattr(x, "clone") else x for x in inputs]
        with torch.no_grad():
            expected, got = reference(*before), candidate(*inputs)
        try:
            torch.testing.assert_close(got, expected, atol=tolerance, rtol=tolerance, equal_nan=True)
            torch.testing.assert_close(list(inputs), before, equal_nan=True)
        except (AssertionError, TypeError) as error:
            return {"error": str(error), "kernels": kernels}
    return {"error": None, "kernels": kernels}


def compiled(job: dict[str, Any], name: str) -> dict[str, Any]:
    """Every launch is recorded instead of run, then compiled ahead of time."""
    import torch
    from triton.compiler.errors import CompilationError

    problem, source, kernels = synthesized(job)
    module = loaded(source, name)
    launches: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
    for kernel in kernels:
        setattr(module, kernel, Recorder(getattr(module, kernel), launches))
    for config in problem.configs:
        _, candidate, inputs = models(problem, config, module)
        with torch.no_grad():
            candidate(*inputs)
    for function, args, kwargs in launches:
        try:
            compile_for_gpu(function, args, kwargs)
        except (CompilationError, RuntimeError, TypeError, ValueError) as error:
            return {"error": f"{function.__name__}: {error!r}", "kernels": kernels}
    return {"error": None, "kernels": kernels}


class Recorder:
    def __init__(self, function: Any, launches: list[Any]) -> None:
        self.function = function
        self.launches = launches

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: self.launches.append((self.function, args, kwargs))


def compile_for_gpu(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    options = {key: kwargs[key] for key in ("num_warps", "num_stages") if key in kwargs}
    constants = {key: value for key, value in kwargs.items() if key not in options}
    kinds = {"float32": "*fp32", "bool": "*i1", "int64": "*i64", "int32": "*i32"}
    signature = {
        name: kinds[str(tensor.dtype).removeprefix("torch.")]
        for name, tensor in zip(function.arg_names, args, strict=False)
    }
    signature |= dict.fromkeys(constants, "constexpr")
    aligned = {(at,): [["tt.divisibility", 16]] for at in range(len(args))}
    source = ASTSource(function, signature, constants, aligned)
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


if __name__ == "__main__":
    main()
