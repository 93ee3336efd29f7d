"""Which agents a run has, by its setting `agents`; everything they need is handed in."""

from __future__ import annotations

from pathlib import Path

from mkevolve_core.agents.decomposer import LLMDecomposer
from mkevolve_core.agents.fuser import LLMFuser
from mkevolve_core.agents.postfuser import LLMPostFuser
from mkevolve_core.agents.prompts import Prompts
from mkevolve_core.agents.reviewer import LLMReviewer
from mkevolve_core.agents.splitter import LLMSplitter
from mkevolve_core.agents.writer import LLMWriter
from mkevolve_core.builtin.decomposer import BuiltinDecomposer
from mkevolve_core.builtin.fuser import BuiltinFuser
from mkevolve_core.builtin.splitter import BuiltinSplitter
from mkevolve_core.builtin.writer import BuiltinWriter
from mkevolve_core.errors import ConfigError
from mkevolve_core.llm.settings import STATIC, LLMSettings
from mkevolve_core.llm.values import Role
from mkevolve_core.protocols import Agents, ReviewerAgent, Sandbox
from mkevolve_core.state import RunState

BUILT_IN = "built-in"


def agents_for(state: RunState, sandbox: Sandbox, static: ReviewerAgent) -> Agents:
    """`static`: the reviewer that needs no LLM. Raises ConfigError for templates that cannot be used."""
    if state.config.agents == BUILT_IN:
        return Agents(
            BuiltinDecomposer(sandbox),
            BuiltinSplitter(sandbox),
            BuiltinFuser(sandbox),
            BuiltinWriter(sandbox, state.config.seed),
            static,
        )
    return _llm_agents(state, sandbox, static)


def _llm_agents(state: RunState, sandbox: Sandbox, static: ReviewerAgent) -> Agents:
    if state.llm is None:
        raise ConfigError(f"Run {state.run_id} has no LLM settings: start it again with --agents llm.")
    folder = Path(state.llm.prompts_dir) if state.llm.prompts_dir else None
    prompts, hardware, config = Prompts(folder), state.hardware, state.config
    return Agents(
        LLMDecomposer(prompts, hardware, sandbox, config.workers, name=model_of(state.llm, Role.DECOMPOSE)),
        LLMSplitter(prompts, hardware),
        LLMFuser(prompts, hardware),
        LLMWriter(prompts, hardware, config.seed, model_of(state.llm, Role.GENERATE)),
        static if state.llm.role(Role.REVIEW).provider == STATIC else LLMReviewer(prompts, static),
        LLMPostFuser(prompts, hardware),
        LLMWriter(
            prompts, hardware, config.seed, model_of(state.llm, Role.ALTERNATIVE), role=Role.ALTERNATIVE
        ),
    )


def model_of(settings: LLMSettings, role: Role) -> str:
    return settings.role(role).model
