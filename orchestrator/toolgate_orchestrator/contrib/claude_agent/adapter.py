"""Claude Agent SDK: options that have a guard rule on every tool call of a session and its sub-agents.

    options = gate(ClaudeAgentOptions(…), guard)

The tools run in the CLI. It calls a `PreToolUse` callback before each tool, and another callback with the
result. So a call can run with other arguments, but no other tool can run instead. The options' own
`can_use_tool`, if set, asks a person. The messages tell the cost of a turn, and that a session was broken
off: `async for message in watch(query(…, options=options), options)` reports both to the guard.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import anyio
import claude_agent_sdk as sdk
from toolgate_bus.errors import TurnStop
from toolgate_bus.protocol.json_values import same_json

from toolgate_orchestrator.coding_agents import claude
from toolgate_orchestrator.coding_agents.call_memory import CallMemory
from toolgate_orchestrator.coding_agents.claude_output import make_output
from toolgate_orchestrator.coding_agents.event import HookEvent
from toolgate_orchestrator.coding_agents.given_text import text_of_given
from toolgate_orchestrator.contrib.claude_agent.messages import DENIED, deny_changes, usage_of
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.decision.question.plain_values import copy_arguments
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.guard.reports import UNREPORTED
from toolgate_orchestrator.guard.ruling import Ruling

MAX_OPEN: Final = 4096
"""Maximum number of open calls of one session. Beyond it the oldest counts as failed."""


class SessionCall(NamedTuple):
    """A call that may run, or about which a person is asked."""

    event: HookEvent
    call: Call
    ruling: Ruling

    def is_with(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether the call was made with these arguments, or would run with them."""
        own = (dict(self.event.arguments), self.ruling.arguments)
        return any(same_json(dict(arguments), one) for one in own)


class SessionCalls:
    """The open calls of one session's options."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._memory = CallMemory[SessionCall](MAX_OPEN)

    def meet(self, event: HookEvent) -> None:
        """Note a call that is about to be ruled on."""
        self._memory.meet(event)

    def keep(self, one: SessionCall) -> None:
        """Keep a call until it is taken. The call that has to make room is reported as failed."""
        for gone in self._memory.keep(one.event, one, one.ruling.arguments):
            gone.ruling.fail(UNREPORTED)

    def take(self, event: HookEvent) -> SessionCall | None:
        """Return the call whose end the event tells, and forget it; None if the call is unknown."""
        return self._memory.take(event)

    def take_asked(self, id_: str | None, tool: str, arguments: Mapping[str, Any]) -> SessionCall | None:
        """Return the call that a person is asked about, and forget it; None unless exactly one call fits."""
        found = [one for one in self._memory if (one.event.call_id, one.event.tool) == (id_, tool)]
        if len(found) > 1:
            found = [one for one in found if one.is_with(arguments)]
        if len(found) != 1:
            return None
        self._memory.remove(found[0])
        return found[0]

    async def answer(self, one: SessionCall, said: Literal["allow", "refuse"]) -> SessionCall:
        """Apply a person's answer to a call. A pending decision is resumed with it."""
        if one.ruling.pending:
            call = one.call._replace(answer=PersonAnswer(one.ruling.token, said, by="can_use_tool"))
            return one._replace(ruling=await self._guard.rule(call))
        if said == "refuse":
            one.ruling.release()
        return one

    def end(self, session: str | None = None, agent_id: str = "") -> None:
        """Report all open calls, or those of one agent, as failed. They may have run, but no report will
        come."""
        for one in self._memory:
            if session is None or (one.event.session, one.event.agent_id) == (session, agent_id):
                self._memory.remove(one)
                one.ruling.fail(UNREPORTED)


AGENT: Final = "claude"  # the agent's name if the guard has none
UNSEEN: Final = "the gate was not asked about it before (hooks may be switched off)"
Options: TypeAlias = sdk.ClaudeAgentOptions
Fields = Any  # input of a callback, which `coding_agents.claude` reads


def _end_turn(words: str) -> dict[str, Any]:
    """Return the answer that ends the turn before the LLM is asked."""
    return {"continue_": False, "stopReason": words}


def gate(options: Options, guard: Guard, *, timeout_s: float = 3600.0) -> Options:
    """Return a gated copy of the options, for a query or a client of the SDK.

    A call without a ruling after `timeout_s` seconds is denied. If a callback fails, the CLI blocks the call.
    """
    desk = _CallbackDesk(guard, options.can_use_tool, timeout_s)
    hooks: dict[Any, list[Any]] = {name: list(found) for name, found in (options.hooks or {}).items()}
    beside = [replace(one, hooks=list(map(deny_changes, one.hooks))) for one in hooks.get(claude.BEFORE, ())]
    mine = sdk.HookMatcher(hooks=[desk.rule], timeout=timeout_s + 30, on_failure="block")
    hooks[claude.BEFORE] = [*beside, mine]
    for name in claude.AFTER:
        hooks[name] = [*hooks.get(name, ()), sdk.HookMatcher(hooks=[desk.report], timeout=timeout_s + 30)]
    for name in ("Stop", "SubagentStop"):
        hooks[name] = [*hooks.get(name, ()), sdk.HookMatcher(hooks=[desk.end])]
    return replace(options, hooks=hooks, can_use_tool=desk.ask if options.can_use_tool else None)


def desk_of(options: Options) -> "_CallbackDesk | None":
    """Return the callbacks that rule on calls of these options; None if the options are not gated."""
    hooks = [hook for one in (options.hooks or {}).get(claude.BEFORE, ()) for hook in one.hooks]
    found = [getattr(hook, "__self__", None) for hook in hooks]
    return next((one for one in found if isinstance(one, _CallbackDesk)), None)


async def watch(messages: AsyncIterator[Any], options: Options) -> AsyncIterator[Any]:
    """Pass on the messages of `query` or a client, and report to the guard.

    Each result message reports its usage. At the end, calls that are still open are reported as failed.
    """
    desk, before = desk_of(options), 0.0
    try:
        async for message in messages:
            if desk is not None and isinstance(message, sdk.ResultMessage):
                desk.guard.usage(desk.place(message.session_id), **usage_of(message, before))
                before = message.total_cost_usd or before
            yield message
    finally:
        if desk is not None:
            desk.calls.end()


class _CallbackDesk:
    """The callbacks of one session's options."""

    def __init__(self, guard: Guard, can_use_tool: Any, timeout_s: float) -> None:
        self.guard, self._person, self._timeout_s = guard, can_use_tool, timeout_s
        self._by_sdk = can_use_tool is not None and not guard.asks
        self.calls = SessionCalls(guard)

    async def rule(self, fields: Fields, id_: str | None, context: Any) -> dict[str, Any]:
        """Rule on a call, for the PreToolUse hook."""
        try:
            event = claude.read(fields)
            self.calls.meet(event)
            can = event.can if self._by_sdk or self.guard.asks else event.can - {"ask"}
            at = self.place(event.session, event.agent_id, event.agent_type)
            call = Call(event.tool, event.arguments, (), at, event.call_id, event.group, can=can)
            with anyio.fail_after(self._timeout_s):
                ruling = await self.guard.rule(call, ask="defer" if self._by_sdk else None)
        except TurnStop as stop:
            return {**claude.deny(None, DENIED.format(stop)), "continue_": False, "stopReason": str(stop)}
        except TimeoutError:
            return claude.deny(None, DENIED.format(f"it was not ruled on in {self._timeout_s:g} s"))
        except Exception as error:  # noqa: BLE001 - a call without a ruling never runs, whatever the error
            return claude.deny(None, DENIED.format(error))
        if not ruling.allowed and not ruling.pending:
            return claude.deny(event, ruling.refusal)
        self.calls.keep(SessionCall(event, call, ruling))
        others = None if same_json(ruling.arguments, dict(event.arguments)) else ruling.arguments
        if ruling.pending:
            return claude.ask(event, others, ruling.prompt.prompt if ruling.prompt else ruling.refusal)
        return {} if others is None else claude.change(event, others, ruling.reason or "")

    async def ask(self, tool: str, arguments: dict[str, Any], context: Any) -> Any:
        """Ask the person behind `can_use_tool` about the call that would run.

        If the person changes the arguments, the guard rules on the changed call.
        """
        one = self.calls.take_asked(context.tool_use_id, tool, arguments)
        if one is None:
            return sdk.PermissionResultDeny(message=DENIED.format(UNSEEN))
        would = one.ruling.arguments
        try:
            said = await self._person(tool, copy_arguments(would), context)
        except BaseException:
            await self.calls.answer(one, "refuse")
            raise
        allows = isinstance(said, sdk.PermissionResultAllow)
        changed = said.updated_input if allows else None
        if changed is not None and same_json(changed, would):
            changed = None
        one = await self.calls.answer(one, "allow" if allows and changed is None else "refuse")
        if not allows:
            return said
        if changed is not None:
            call = one.call._replace(arguments=changed, can=("arguments",))
            one = one._replace(call=call, ruling=await self.guard.rule(call))
        if not one.ruling.allowed:
            return sdk.PermissionResultDeny(message=one.ruling.refusal)
        self.calls.keep(one)
        return replace(said, updated_input=one.ruling.arguments)

    async def report(self, fields: Fields, id_: str | None, context: Any) -> dict[str, Any]:
        """Report the result of a call, for the PostToolUse and PostToolUseFailure hooks."""
        event = claude.read(fields)
        if (one := self.calls.take(event)) is None:
            return {}
        ruling = (
            await self.calls.answer(one, "allow")
        ).ruling  # if the CLI asked a person, the run itself means "allow"
        if event.outcome == "fail":
            if not ruling.report_failure(event.error):
                return {}
            given = await ruling.give(str(fields.get("error") or event.error), success=False)
            return _end_turn(text_of_given(given)) if given.changed else {}
        output = fields.get("tool_response")
        given = await ruling.succeed(output).given()
        told = {"hookEventName": event.name}
        if ruling.notice:
            told["additionalContext"] = ruling.notice
        made = make_output(event.tool, output, given) if given.changed else None
        if made is not None:
            told["updatedToolOutput"] = made.value
        answer = {"hookSpecificOutput": told} if len(told) > 1 else {}
        return answer if made is None or made.is_sure else {**_end_turn(text_of_given(given)), **answer}

    async def end(self, fields: Fields, id_: str | None, context: Any) -> dict[str, Any]:
        """Report open calls as failed, for the Stop and SubagentStop hooks.

        Such a call was interrupted, or the CLI's own rules forbade it.
        """
        self.calls.end(fields.get("session_id"), fields.get("agent_id") or "")
        return {}

    def place(self, session: str, agent_id: str = "", agent_type: str = "") -> Caller:
        """Return the caller. A sub-agent has a session of its own, below that of the conversation."""
        at = self.guard.at(session, self.guard.config.agent or AGENT)
        below = f"{session}/{agent_id}"
        return self.guard.at(below, agent_type or agent_id, parent=at) if agent_id else at
