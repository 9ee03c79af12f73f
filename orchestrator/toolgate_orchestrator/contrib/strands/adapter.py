"""Strands Agents: a plugin that has a guard rule on the tool calls of an agent.

    agent = Agent(tools=[…], plugins=[ToolgateLayer(guard)])

It is the innermost layer around a tool, also behind hooks and middleware that an agent gets later. Strands'
interrupts carry questions to a person: the response `allow` lets the call run, any other refuses it. Another
process may resume the run if a session manager keeps the agent's state. A sub-agent needs the plugin, too;
agents of a swarm are one session within `guard.turn(…)`. Tools that the model's provider runs never reach it.
"""

import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from strands import Agent
from strands.hooks import AfterModelCallEvent
from strands.middleware.stages import ExecuteToolContext, ExecuteToolStage
from strands.plugins import Plugin
from strands.types._events import ToolResultEvent
from toolgate_bus.errors import ConfigError, TurnStop

from toolgate_orchestrator.contrib.strands.tools import arguments_of, replace_call, report, tools_of
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.decision.question.canonical import call_key
from toolgate_orchestrator.guard.callers import turn_place
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.guard.ruling import Ruling

NAME: Final = "toolgate"
"""Name of the plugin and of its interrupts, and key of its open questions in an agent's state."""
HANDOFF: Final = "handoff_to_agent"
"""Name of the tool by which agents of a swarm hand over."""
Tool = Callable[[ExecuteToolContext], AsyncIterator[Any]]


class ToolgateLayer(Plugin):  # type: ignore[misc] # Any where Strands is not installed
    """Plugin that has a guard rule on tool calls and reports requests to the LLM to it.

    Any number of agents can share one. The session is that of the session manager, else that of the
    surrounding turn, else one for each agent.
    """

    name = NAME

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self.guard = guard
        self._sessions: WeakKeyDictionary[Agent, str] = WeakKeyDictionary()

    def init_agent(self, agent: Agent) -> None:
        """Put the gate around the agent's tools. Raise ConfigError for a release of Strands that it does not
        know."""
        registry: Any = getattr(agent, "_middleware_registry", None)
        if not hasattr(registry, "compose"):
            raise ConfigError("this release of Strands runs tools in a way that the adapter does not know")
        compose = registry.compose

        def compose_gated(stage: Any, terminal: Any) -> Any:
            return compose(stage, self._gate(terminal) if stage is ExecuteToolStage else terminal)

        registry.compose, registry.gate = compose_gated, self
        agent.add_hook(self._tell_usage, AfterModelCallEvent)

    def _gate(self, run: Tool) -> Tool:
        async def rule_and_run(context: ExecuteToolContext) -> AsyncIterator[Any]:
            if context.tool is None:  # Strands itself reports the missing tool
                events = run(context)
            elif not (ruling := await self._rule(context)).allowed:
                told = {"toolUseId": context.tool_use["toolUseId"], "content": [{"text": ruling.refusal}]}
                yield ToolResultEvent({**told, "status": "error"})
                return
            else:
                events = report(run(replace_call(context, ruling)), ruling)
            async for event in events:
                yield event
            if context.tool and ruling.tool == HANDOFF:
                self.guard.hand_over(ruling.at, str(ruling.arguments.get("agent_name")))

        return rule_and_run

    async def _rule(self, context: ExecuteToolContext) -> Ruling:
        agent, use, tools = context.agent, context.tool_use, tools_of(context.agent)
        schemas = {name: tool.tool_spec["inputSchema"].get("json") for name, tool in tools.items()}
        schemas.setdefault(use["name"], None)
        group = str(context.invocation_state.get("event_loop_cycle_id") or "")
        call = Call(
            use["name"], arguments_of(context), schemas, self._place(agent), str(use["toolUseId"]), group
        )
        kept, at = agent.state.get(NAME) or {}, call.at
        key = call_key(at.session if at else "", agent.name, call.tool, call.id, arguments=call.arguments)
        if (question := kept.pop(key, None)) is not None:
            said = context.interrupt(NAME, reason=question).response  # raises if there is no answer yet
            agent.state.set(NAME, kept)
            answer = PersonAnswer(question["token"], "allow" if said == "allow" else "refuse")
            call = call._replace(answer=answer)
        try:
            ruling = await self.guard.rule(call, ask=None if self.guard.asks else "defer")
        except TurnStop:  # Strands would report it to the model and continue
            agent.cancel()
            raise
        if ruling.pending:
            question = {"tool": ruling.tool, "arguments": ruling.arguments, "token": ruling.token}
            question["prompt"] = ruling.prompt.prompt if ruling.prompt else ""
            agent.state.set(NAME, {**(agent.state.get(NAME) or {}), key: question})
            context.interrupt(NAME, reason=question)
        return ruling

    def _place(self, agent: Agent) -> Caller:
        session = getattr(getattr(agent, "_session_manager", None), "session_id", None)
        if not session and (here := turn_place()) is not None:
            session = here.session
        own = self._sessions.setdefault(agent, f"strands-{secrets.token_hex(8)}")
        return self.guard.at(session or own, agent.name)

    def _tell_usage(self, event: AfterModelCallEvent) -> None:
        message: Any = event.stop_response.message if event.stop_response else {}
        if used := (message.get("metadata") or {}).get("usage"):
            model = event.agent.model
            self.guard.usage(
                self._place(event.agent),
                provider=type(model).__name__.removesuffix("Model").lower(),
                model=str((model.get_config() or {}).get("model_id") or ""),
                input_tokens=used["inputTokens"],
                output_tokens=used["outputTokens"],
            )
