"""Where there is a GPU: times, resources and shares, from the candidate's own process."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mkevolve_core.domain import Baseline, Policy, Resources, Share, Verdict
from mkevolve_core.protocols import JobFailed
from verifier.answers import CandidateAnswer
from verifier.device import Place
from verifier.measured import read_timing
from verifier.plan import Plan


@dataclass(frozen=True, slots=True)
class Speed:
    place: Place
    policy: Policy
    plan: Plan
    answer: CandidateAnswer

    def add_resources(self, verdict: Verdict) -> Verdict:
        gpu, found = self.place.gpu, self.answer.resources
        if gpu is None or found is None:
            return verdict
        major, minor = gpu.capability
        resources = Resources(
            target=f"cuda:{major}{minor} ({gpu.name})",
            registers=found.get("registers"),
            spills=found.get("spills"),
            shared_bytes=found.get("shared_bytes"),
            shared_limit=gpu.shared_limit,
        )
        return replace(verdict, resources=resources, advisory=(*verdict.advisory, "resources"))

    def add_times(self, verdict: Verdict, baselines: tuple[Baseline, ...]) -> Verdict:
        """Raises JobFailed where the candidate's process gave no times."""
        pairs = zip(self.plan.configs, self.answer.configs, strict=True)
        try:
            measured = read_timing([(config.instances, answer.timing or {}) for config, answer in pairs])
        except (KeyError, TypeError, ValueError) as error:
            raise JobFailed("crash", f"it gave no times: {error!r}") from None
        return replace(
            verdict,
            measured=measured.timing,
            baselines=baselines,
            shares=self._shares(),
            flags=(*verdict.flags, *measured.flags),
            advisory=(*verdict.advisory, "measured", "shares"),
        )

    def _shares(self) -> tuple[Share, ...]:
        """Each part's time in one forward, weighted over the configurations as the whole's is."""
        total = sum(config.instances for config in self.plan.configs)
        times: dict[str, float] = {}
        calls: dict[str, int] = {}
        for config, answer in zip(self.plan.configs, self.answer.configs, strict=True):
            for part, milliseconds in answer.parts_ms.items():
                times[part] = times.get(part, 0.0) + milliseconds * config.instances / total
                calls[part] = calls.get(part, 0) + answer.calls.get(part, 0)
        return tuple(Share(part, times[part], calls[part]) for part in times)
