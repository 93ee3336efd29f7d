"""How long references take: measured once for each reference, device and amount of timing."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from mkevolve_core.domain import Baseline, Policy
from mkevolve_core.protocols import JobFailed
from verifier.device import Place
from verifier.measured import read_timing
from verifier.sandbox import LocalSandbox

_SECONDS = 600.0  # torch.compile takes its time


class Baselines:
    def __init__(self, sandbox: LocalSandbox) -> None:
        self._sandbox = sandbox
        self._known: dict[tuple[Any, ...], Baseline] = {}

    def get(self, reference: str, policy: Policy, place: Place) -> tuple[Baseline, ...]:
        """One for each name in the policy; without a timing where it could not be measured. GPU only."""
        sha = hashlib.sha256(reference.encode()).hexdigest()
        found = []
        for name in policy.baselines:
            key = (sha, name, place.device, policy.warmup, policy.repeats)
            if key not in self._known:
                self._known[key] = self._measure(reference, name, policy, place)
            found.append(self._known[key])
        return tuple(found)

    def _measure(self, reference: str, name: str, policy: Policy, place: Place) -> Baseline:
        payload = {
            "source": reference,
            "device": place.device,
            "name": name,
            "seed": secrets.randbits(48),
            "warmup": policy.warmup,
            "repeats": policy.repeats,
        }
        try:
            memory_mb = 4 * policy.memory_mb
            answer = self._sandbox.execute(
                "baseline", payload, seconds=_SECONDS, mode=place.mode, memory_mb=memory_mb
            )
            rows = [(int(row["instances"]), row["timing"]) for row in answer.value["configs"]]
            measured = read_timing(rows)
        except JobFailed as failed:
            return Baseline(name, None, failed.detail)
        except (KeyError, TypeError, ValueError) as error:
            return Baseline(name, None, f"its answer has no known form: {error}")
        return Baseline(name, measured.timing, ", ".join(measured.flags))
