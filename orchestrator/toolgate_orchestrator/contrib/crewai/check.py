"""Finds tools of a CrewAI crew or agent that no gate rules on."""

from collections.abc import Iterator
from typing import Any, Final

from crewai import Crew
from crewai.agents.agent_adapters.base_agent_adapter import BaseAgentAdapter
from crewai.agents.agent_builder.base_agent import BaseAgent
from crewai.lite_agent import LiteAgent

from toolgate_orchestrator.contrib.crewai.adapter import is_gated
from toolgate_orchestrator.contrib.gap import Gap

TAKES: Final = (Crew, BaseAgent, LiteAgent)
NO_GATE: Final = "there is no gate in this process: call gate(guard) before the first kickoff"
ELSEWHERE: Final = "another framework or machine runs this agent and its tools: add the gate there"
HOSTED: Final = "the model's provider runs it: remove it, or replace it by a tool of your own"


def find_gaps(found: Any) -> Iterator[Gap]:
    """Yield the gaps in an agent, or in all agents and tasks of a crew."""
    if not isinstance(found, Crew):
        yield from _of_agent(found)
        return
    agents = {id(one): one for one in (*found.agents, found.manager_agent) if one is not None}
    for task in found.tasks:
        if task.agent is not None:
            agents.setdefault(id(task.agent), task.agent)
        if not is_gated():
            own = {id(tool) for tool in getattr(task.agent, "tools", None) or ()}
            who = _name(task.agent) if task.agent is not None else "crew"
            yield from (Gap(who, tool.name, NO_GATE) for tool in task.tools or () if id(tool) not in own)
    for agent in agents.values():
        yield from _of_agent(agent)


def _of_agent(agent: Any) -> Iterator[Gap]:
    tools = [tool.name for tool in agent.tools or ()]
    if isinstance(agent, BaseAgentAdapter) or getattr(agent, "a2a", None):
        yield Gap(_name(agent), "*", ELSEWHERE)
    elif not is_gated():
        yield from (Gap(_name(agent), tool, NO_GATE) for tool in tools or ("*",))
    hosted = getattr(getattr(agent, "llm", None), "builtin_tools", None) or ()
    yield from (Gap(_name(agent), str(tool), HOSTED) for tool in hosted)


def _name(agent: Any) -> str:
    return " ".join(str(agent.role).split())
