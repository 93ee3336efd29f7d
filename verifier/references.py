"""The judge's memory of references: run once in the sandbox, used for a number of candidates, then drawn
anew."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

from mkevolve_core.domain import Policy
from mkevolve_core.protocols import JobFailed
from verifier.compare import ignores_inputs, zeros_would_pass
from verifier.device import Place
from verifier.plan import Plan, read_plan
from verifier.sandbox import LocalSandbox

_KEPT = 8  # plans
_KEPT_BYTES = 4 << 30
_SECONDS = 300.0
_CONSTANT = "the reference gives the same output for all inputs"
_ZEROS = "an output of zeros would pass: it lies below the tolerance"


@dataclass(slots=True)
class _Kept:
    plan: Plan
    uses: int


class References:
    def __init__(self, sandbox: LocalSandbox, reuse: int) -> None:
        self._sandbox = sandbox
        self._reuse = reuse
        self._kept: OrderedDict[tuple[Any, ...], _Kept] = OrderedDict()

    def get(self, reference: str, policy: Policy, place: Place, by_name: bool = True) -> Plan:
        """A plan that stays open until the next call. Raises JobFailed where the reference fails."""
        sha = hashlib.sha256(reference.encode()).hexdigest()
        key = (sha, policy.cases, policy.atol, policy.rtol, place.device, by_name)
        kept = self._kept.get(key)
        if kept is None or kept.uses >= self._reuse:
            self._forget(key)
            kept = self._kept[key] = _Kept(self._draw(reference, policy, place, by_name), 0)
        kept.uses += 1
        self._kept.move_to_end(key)
        self._shrink()
        return kept.plan

    def close(self) -> None:
        for key in list(self._kept):
            self._forget(key)

    def _forget(self, key: tuple[Any, ...]) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            kept.plan.close()

    def _shrink(self) -> None:
        """The one in use is the last."""
        while len(self._kept) > 1 and (len(self._kept) > _KEPT or self._bytes() > _KEPT_BYTES):
            self._forget(next(iter(self._kept)))

    def _bytes(self) -> int:
        return sum(kept.plan.inputs.size + kept.plan.expected.size for kept in self._kept.values())

    def _draw(self, reference: str, policy: Policy, place: Place, by_name: bool) -> Plan:
        """On a GPU a changed distribution may trip an assertion that ends the process: then without."""
        payload: dict[str, Any] = {
            "source": reference,
            "device": place.device,
            "cases": policy.cases,
            "seed": secrets.randbits(48),
            "init_seed": secrets.randbits(48),
            "atol": policy.atol,
            "rtol": policy.rtol,
            "keep_weights": not by_name,
            "variants": True,
        }
        init_seed = None if by_name else payload["init_seed"]
        try:
            return self._run(payload, policy, place, init_seed)
        except JobFailed:
            if place.gpu is None:
                raise
            return self._run({**payload, "variants": False}, policy, place, init_seed)

    def _run(self, payload: dict[str, Any], policy: Policy, place: Place, init_seed: int | None) -> Plan:
        memory_mb = 4 * policy.memory_mb  # it holds both precisions and all cases
        answer = self._sandbox.execute(
            "reference", payload, seconds=_SECONDS, mode=place.mode, memory_mb=memory_mb
        )
        plan = read_plan(answer, init_seed)
        zeros = (_ZEROS,) if zeros_would_pass(plan, policy) else ()
        constant = (_CONSTANT,) if ignores_inputs(plan) else ()
        return replace(plan, notes=(*plan.notes, *zeros, *constant))
