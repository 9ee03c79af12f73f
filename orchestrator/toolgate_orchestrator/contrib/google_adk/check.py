"""Finds tools of a Google ADK app, runner or agent that no gate rules on."""

from collections.abc import Iterator
from typing import Any, Final

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.llm_agent import LlmAgent
from google.adk.apps.app import App
from google.adk.runners import Runner
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool

from toolgate_orchestrator.contrib.gap import Gap
from toolgate_orchestrator.contrib.google_adk.adapter import ToolgatePlugin

TAKES: Final = (App, Runner, BaseAgent)
NO_PLUGIN: Final = "there is no gate: App(…, plugins=[ToolgatePlugin(guard)])"
ALONE: Final = "an agent alone has no plugins: check the App or Runner that it runs in"
HOSTED: Final = "the model's provider runs it: remove it, or replace it by a tool of your own"
BARE: Final = "its agent runs without the plugins: leave include_plugins=False out"
ELSEWHERE: Final = "this agent and its tools run elsewhere: add the gate there"
CODE: Final = "code that the model writes runs without a tool call: remove code_executor, or make it a tool"


def find_gaps(found: App | Runner | BaseAgent) -> Iterator[Gap]:
    """Yield the gaps in an app or runner. A lone agent is one gap, because only apps and runners have
    plugins."""
    app = found.app if isinstance(found, Runner) else found
    if isinstance(app, BaseAgent):
        yield Gap(app.name, "*", ALONE)
        return
    plugins = found.plugin_manager.plugins if isinstance(found, Runner) else app.plugins
    if not any(isinstance(one, ToolgatePlugin) for one in plugins):
        yield Gap(getattr(app.root_agent, "name", app.name), "*", NO_PLUGIN)
        return
    yield from _below(app.root_agent, set())


def _below(agent: Any, seen: set[int]) -> Iterator[Gap]:
    if agent is None or id(agent) in seen:
        return
    seen.add(id(agent))
    if isinstance(agent, LlmAgent):
        yield from _of_agent(agent, seen)
    elif type(agent).__name__ in ("RemoteA2aAgent", "ManagedAgent"):
        yield Gap(agent.name, "*", ELSEWHERE)
    for one in getattr(agent, "sub_agents", ()):
        yield from _below(one, seen)


def _of_agent(agent: LlmAgent, seen: set[int]) -> Iterator[Gap]:
    if agent.code_executor is not None:
        yield Gap(agent.name, "code_executor", CODE)
    for config in (agent.generate_content_config,):
        for _ in (config and config.tools) or ():
            yield Gap(agent.name, "generate_content_config.tools", HOSTED)
    for tool in agent.tools:
        if isinstance(tool, AgentTool):
            if not tool.include_plugins:
                yield from (Gap(tool.agent.name, name, BARE) for name in _names(tool.agent))
            else:
                yield from _below(tool.agent, seen)
        elif isinstance(tool, BaseTool) and type(tool).run_async is BaseTool.run_async:
            yield Gap(agent.name, tool.name, HOSTED)


def _names(agent: Any) -> list[str]:
    tools = getattr(agent, "tools", None) or ()
    return [getattr(one, "name", "") or getattr(one, "__name__", type(one).__name__) for one in tools] or [
        "*"
    ]
