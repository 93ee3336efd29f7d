"""Which agents a run has, by its setting `agents`; everything they need is handed in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
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
from mkevolve_core.config import parse_changes
from mkevolve_core.errors import ConfigError
from mkevolve_core.llm.assemble import check_settings
from mkevolve_core.llm.configuration import change_limits, mailbox_settings, read_llm
from mkevolve_core.llm.prices import read_prices
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
        LLMDecomposer(prompts, hardware, sandbox, config.workers),
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


def llm_settings(
    agents: str, path: Path | None, prompts: Path | None, limits: list[str], environment: Mapping[str, str]
) -> LLMSettings | None:
    """For a new run: None for built-in agents. Raises ConfigError before anything is made or asked."""
    if agents == BUILT_IN:
        if limits:
            raise ConfigError("--limit holds for --agents llm or mailbox: built-in agents cost nothing.")
        return None
    settings = mailbox_settings() if agents == "mailbox" else read_llm(path, environment)
    folder = str(prompts.absolute()) if prompts else settings.prompts_dir
    if folder and not Path(folder).is_dir():
        raise ConfigError(f"--prompts: there is no folder {folder}.")
    hard_stops = change_limits(settings.limits, parse_changes(limits))
    settings = dataclasses.replace(settings, limits=hard_stops, prompts_dir=folder)
    check_settings(settings, environment, read_prices(environment))
    return settings
