"""Strands Agents: a plugin that has a guard rule on the tool calls of an agent.

    agent = Agent(tools=[…], plugins=[ToolgateLayer(guard)])

It is the innermost layer around a tool, also behind hooks and middleware that an agent gets later. Strands'
interrupts carry questions to a person: the response `allow` lets the call run, any other refuses it. Another
process may resume the run if a session manager keeps the agent's state. A sub-agent needs the plugin, too;
agents of a swarm are one session within `guard.turn(…)`. Tools that the model's provider runs never reach it.
"""

import secrets
from collections.abc import AsyncIterator, Callable
from contextvars import copy_context
from typing import Any, Final
from weakref import WeakKeyDictionary

from strands import Agent
from strands.hooks import AfterModelCallEvent
from strands.interrupt import InterruptException
from strands.middleware.stages import ExecuteToolContext, ExecuteToolStage
from strands.plugins import Plugin
from strands.types._events import ToolInterruptEvent, ToolResultEvent
from toolgate_bus.errors import ConfigError, TurnStop

from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.decision.question.canonical import call_key
from toolgate_orchestrator.decision.results.given_result import show_error
from toolgate_orchestrator.guard.callers import enter_tool, turn_place
from toolgate_orchestrator.guard.gathered_pieces import run_in
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.guard.results import EndReport, raise_alone
from toolgate_orchestrator.guard.ruling import Ruling


async def report(events: AsyncIterator[Any], ruling: Ruling) -> AsyncIterator[Any]:
    """Yield the tool's events and report its result. If another call ran, the result bears a notice.

    Where a scheduler rules on results of the tool, events that come before its result wait for the ruling.
    """
    last, held, is_ruled_on = None, list[Any](), ruling.is_ruled_on
    with enter_tool(ruling.at):
        context = copy_context()  # the tool runs in this context, the reader in its own
    try:
        while True:
            event = await run_in(context, anext(events, None))
            if event is None:
                break
            if isinstance(event, ToolInterruptEvent):  # the tool asks a person, then runs again
                ruling.release()
            elif isinstance(event, ToolResultEvent):
                last = event
                continue
            if is_ruled_on and not isinstance(event, ToolInterruptEvent):
                held.append(event)
            else:
                yield event
    except InterruptException:
        ruling.release()
        raise
    except BaseException as error:  # noqa: BLE001 - raised below, as it may be seen
        ended = ruling.fail(error)
    else:
        if last is not None:
            result = await give(last, ruling)
            for event in held if result is last else ():
                yield event
            if ruling.notice:
                result.tool_result["content"].insert(0, {"text": ruling.notice})
            yield result
        ruling.report(None)
        return
    raise_alone(await ended)


async def give(event: ToolResultEvent, ruling: Ruling) -> ToolResultEvent:
    """Report a tool's result, and return it as it may be seen; the very same event if nothing was hidden."""
    result, error, is_ruled_on = event.tool_result, event.exception, ruling.is_ruled_on
    content = result["content"]
    if error is not None:
        told = ruling.fail(error)
    else:
        ruling.report(content, is_ruled_on=is_ruled_on)
        is_text = len(content) == 1 and content[0].keys() == {"text"}
        value, success = content[0]["text"] if is_text else content, result.get("status") != "error"
        told = EndReport(ruling if is_ruled_on else None, value, success=success)
    given = await told.given()
    if not given.changed:
        return event
    if error is not None:
        error = show_error(error, given)
        given = given._replace(value=f"Error: {error}")
    return ToolResultEvent({**result, "content": as_content(given.value)}, exception=error)


def as_content(value: Any) -> list[Any]:
    """Return a result as Strands' blocks."""
    if isinstance(value, list) and all(isinstance(one, dict) and len(one) == 1 for one in value):
        return value
    return [{"text": value} if isinstance(value, str) else {"json": value}]


def replace_call(context: ExecuteToolContext, ruling: Ruling) -> ExecuteToolContext:
    """Return the context with the call that was ruled on instead of the model's call."""
    use, tools = context.tool_use, tools_of(context.agent)
    tool = tools[ruling.tool] if ruling.tool != use["name"] else context.tool
    given = use["input"] if isinstance(use["input"], dict) else {}
    hidden = {name: value for name, value in given.items() if value is context.agent}
    use = {**use, "name": ruling.tool, "input": {**ruling.arguments, **hidden}}
    return context.replace(tool=tool, tool_use=use)


def arguments_of(context: ExecuteToolContext) -> dict[str, Any]:
    """Return the arguments without the agent itself, which a tool that a program calls gets as one of
    them."""
    given = context.tool_use["input"]
    given = given if isinstance(given, dict) else {"input": given}
    return {name: value for name, value in given.items() if value is not context.agent}


def tools_of(agent: Any) -> dict[str, Any]:
    """Return the agent's tools by name."""
    return {**agent.tool_registry.registry, **agent.tool_registry.dynamic_tools}


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
