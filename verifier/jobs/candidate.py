"""Run a candidate for the judge: import, construct, give weights, call on every case, hand out the bytes.

Payload: files, entry, configs, device, torch_parts, weight_map, timing; two memfds: inputs and weights to
read, outputs to fill. There is no expected output, tolerance or seed of the reference in this process.
Everything in the answer but the bytes is the candidate's own word.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from triton import knobs

from mkevolve_core.protocols import JobFailed
from verifier import counting, evidence, hosting
from verifier.loading import use_device
from verifier.runner import hostile
from verifier.tensors import MemoryFiller, MemoryReader, Spec, decode, same_bytes
from verifier.timing import PartClock, Samples, Stopwatch

_PART_PASSES = 20

_wait_for_device = torch.cuda.synchronize
_release = torch.cuda.empty_cache


def run_with_memory(payload: dict[str, Any], memory: list[int]) -> tuple[dict[str, Any], list[int]]:
    use_device(payload["device"])
    session = _Session(payload, MemoryReader(memory[0]), MemoryFiller(memory[1]))
    with torch.no_grad():
        try:
            session.run()
        except JobFailed as failed:
            session.answer["failure"] = {"kind": failed.kind, "detail": failed.detail}
    session.conclude()
    return session.answer, []


class _Session:
    def __init__(self, payload: dict[str, Any], reader: MemoryReader, filler: MemoryFiller) -> None:
        self._payload = payload
        self._reader = reader
        self._filler = filler
        self._device: str = payload["device"]
        self._on_gpu = self._device != "cpu"
        self._launches = evidence.LaunchLog(hosting.folder())
        self._launches.install()
        self._compute = evidence.ComputeLog(self._launches, frozenset(payload["torch_parts"]))
        self._counter = counting.install() if knobs.runtime.interpret else None
        self._stopwatch = Stopwatch(self._device) if self._on_gpu and payload["timing"] else None
        self._watched = evidence.watched_functions()
        self.answer: dict[str, Any] = {"cases": [], "configs": [], "failure": None, "flags": []}

    def run(self) -> None:
        """Raises JobFailed where the candidate fails; what was done until then stays in the answer."""
        model_class = hosting.import_candidate(self._payload["files"], self._payload["entry"])
        hosts = []
        for config in self._payload["configs"]:
            host = _Host(self, config, self._construct(model_class, config))
            if "mismatch" in self.answer:
                return
            host.run_cases()
            hosts.append(host)
        self._launches.remove()
        for host in hosts if self._stopwatch else []:
            host.time(self._payload["timing"])

    def _construct(self, model_class: type[torch.nn.Module], config: dict[str, Any]) -> torch.nn.Module:
        if config["init_seed"] is not None:
            torch.manual_seed(config["init_seed"])
        model = hosting.construct(model_class, config["init"], self._reader)
        if config["weights"] is not None:
            names = dict(self._payload["weight_map"])
            mismatch = hosting.load_weights(model, config["weights"], names, self._reader)
            if mismatch is not None:
                self.answer["mismatch"] = mismatch.as_plain()
        with hostile("raise"):
            return model.to(self._device)

    def conclude(self) -> None:
        """What was seen on the side."""
        self.answer["launches"] = self._launches.completed
        self.answer["failed_launches"] = self._launches.failed
        self.answer["operations"] = [
            {"name": name, "times": times, "where": where}
            for name, (times, where) in self._compute.operations.items()
        ]
        self.answer["flags"] += evidence.tampered(self._watched, evidence.watched_functions())
        self.answer["resources"] = self._launches.resources() if self._on_gpu else None


class _Host:
    """One constructed candidate and the cases that it must answer."""

    def __init__(self, session: _Session, config: dict[str, Any], model: torch.nn.Module) -> None:
        self._session = session
        self._config = config
        self._model = model
        self._inputs: tuple[Any, ...] = ()
        self._tree: dict[str, Any] = {"list": []}
        self._parts = hosting.find_parts(model, session._payload["entry"])
        self._calls: dict[str, int] = {}
        self._report: dict[str, Any] = {"entries": [], "calls": self._calls, "timing": None, "parts_ms": {}}
        session.answer["configs"].append(self._report)

    # ------------------------------------------------------------------------------ correctness

    def run_cases(self) -> None:
        for number, case in enumerate(self._config["cases"]):
            self._hand_over(case)
            if number == 0:
                hosting.check_call(self._model, self._inputs)
            outputs = self._call_watched(is_first=number == 0)
            self._give(outputs, case["outputs"])
            modified = self._modified(case["inputs"])
            self._session.answer["cases"].append({"modified": modified})

    def _hand_over(self, case: dict[str, Any]) -> None:
        """The case's inputs, in the memory of the case before where it says so and shapes allow."""
        reader, device = self._session._reader, self._session._device
        specs = list(_specs(case["inputs"]))
        held = list(_specs_with_tensors(self._tree, self._inputs))
        if case["same_buffers"] and [_form(spec) for spec in specs] == [_form(spec) for spec, _ in held]:
            for spec, (_, tensor) in zip(specs, held, strict=True):
                reader.refresh(tensor, spec)
        else:
            self._inputs = decode(case["inputs"], lambda spec: reader.read(spec, device))
        self._tree = case["inputs"]

    def _call_watched(self, is_first: bool) -> Any:
        """One forward with all evidence taken; the first one is counted for the estimate, too."""
        session = self._session
        counter = session._counter
        counts = counter.part("ModelNew") if counter and is_first else nullcontext()
        pause = counter.paused() if counter and not is_first else nullcontext()
        hooks = self._hook_parts(counter) if is_first else nullcontext()
        with hostile("raise"), session._compute, pause, hooks, counts:
            outputs = self._model(*self._inputs)
            if session._on_gpu:
                _wait_for_device()
        if counter and is_first:
            self._report["entries"] = counter.snapshot()
            counter.reset()
        return outputs

    @contextmanager
    def _hook_parts(self, clock: Any) -> Iterator[None]:
        """`clock.enter(part)` and `clock.leave()` around each part; parts inside a part belong to it."""
        handles = []
        for part, modules in self._parts.items():
            for module in modules:
                handles.append(module.register_forward_pre_hook(_entering(part, clock, self._calls)))
                handles.append(module.register_forward_hook(_leaving(clock), always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _give(self, outputs: Any, expected: dict[str, Any]) -> None:
        for tensor, spec in hosting.match_outputs(outputs, expected, self._session._device):
            self._session._filler.write(tensor, spec)

    def _modified(self, tree: dict[str, Any]) -> bool:
        reader, device = self._session._reader, self._session._device
        pairs = _specs_with_tensors(tree, self._inputs)
        return not all(same_bytes(tensor, reader.read(spec, device)) for spec, tensor in pairs)

    # ------------------------------------------------------------------------------------- time

    def time(self, timing: dict[str, int]) -> None:
        """Timed calls on changing values in one set of buffers; one call's output is handed out."""
        stopwatch = self._session._stopwatch
        assert stopwatch is not None
        cases = [case for case in self._config["cases"] if case["timed"]]
        self._hand_over(cases[0])
        chosen = timing["warmup"] + random.SystemRandom().randrange(timing["repeats"])
        recheck = self._config["recheck"]

        def before(number: int) -> None:
            self._hand_over({**cases[number % len(cases)], "same_buffers": True})

        def after(number: int, outputs: Any) -> None:
            if number == chosen:
                self._give(outputs, recheck)

        with hostile("raise"):
            samples: Samples = stopwatch.time_calls(
                lambda: self._model(*self._inputs), before, after, timing["warmup"], timing["repeats"]
            )
        self._report["timing"] = samples.as_plain()
        self._report["rechecked"] = self._config["cases"].index(cases[chosen % len(cases)])
        self._report["parts_ms"] = self._time_parts()

    def _time_parts(self) -> dict[str, float]:
        """The median time of each part in one forward, from a pass of its own."""
        if not self._parts:
            return {}
        clock = PartClock(self._session._device)
        self._calls.clear()
        taken: list[dict[str, float]] = []
        with hostile("raise"), self._hook_parts(clock):
            for _ in range(_PART_PASSES):
                self._model(*self._inputs)
                taken.append(clock.take_ms())
        for part in self._calls:
            self._calls[part] //= _PART_PASSES
        return {part: _median([times.get(part, 0.0) for times in taken]) for part in self._parts}


def _entering(part: str, clock: Any, calls: dict[str, int]) -> Any:
    def hook(_module: torch.nn.Module, _inputs: Any) -> None:
        calls[part] = calls.get(part, 0) + 1
        if clock is not None:
            clock.enter(part)

    return hook


def _leaving(clock: Any) -> Any:
    def hook(_module: torch.nn.Module, _inputs: Any, _outputs: Any) -> None:
        if clock is not None:
            clock.leave()

    return hook


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _specs(tree: dict[str, Any]) -> Iterator[Spec]:
    """A tree's tensors, in order."""
    kind, content = next(iter(tree.items()))
    if kind == "tensor":
        yield content
    elif kind == "dict":
        for _, item in content:
            yield from _specs(item)
    elif kind in ("list", "tuple"):
        for item in content:
            yield from _specs(item)


def _specs_with_tensors(tree: dict[str, Any], values: Any) -> Iterator[tuple[Spec, torch.Tensor]]:
    tensors: list[torch.Tensor] = []
    _collect(values, tensors)
    return zip(_specs(tree), tensors, strict=True)


def _collect(value: Any, into: list[torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        into.append(value)
    elif isinstance(value, dict):
        _collect(list(value.values()), into)
    elif isinstance(value, list | tuple):
        for item in value:
            _collect(item, into)


def _form(spec: Spec) -> tuple[Any, ...]:
    return spec["dtype"], tuple(spec["shape"]), tuple(spec["stride"])
