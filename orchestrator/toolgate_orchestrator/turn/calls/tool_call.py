"""One tool call on its way: tool:pre, the tool itself, rulings on its result, tool:post or tool:error.

    before(call)  ─▶  the call, perhaps changed by a hook  |  Refusal
    run(call)     ─▶  Outcome: the content of its one result, whatever happens

What a tool gave, or raised, is ruled on before a hook, a fact, a trace or the LLM has any of it. Only its
success, its cost and the signals for slots are read before. Where nobody rules on results, nothing is copied.

Nothing here raises for what a tool, a hook or the LLM did; only a cancellation passes. The decision whether a
call runs (`tool:selecting`) comes before, storing the result comes after.
"""

import asyncio
import inspect
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from amplifier_core import ToolResult
from amplifier_core.events import POLICY_VIOLATION, TOOL_ERROR, TOOL_POST, TOOL_PRE
from toolgate_bus.protocol.events import Decision
from toolgate_bus.transport.redis.tasks import is_cancel_requested

from toolgate_orchestrator.calls.open_call import Outcome, open_call
from toolgate_orchestrator.calls.refusal import refuse_tool
from toolgate_orchestrator.decision.question.call import Call
from toolgate_orchestrator.decision.results.given_result import GivenResult
from toolgate_orchestrator.turn.calls.ruled_output import clean_fact, clean_failure, send_output, use_ruling
from toolgate_orchestrator.turn.calls.tool_output import (
    as_tool_result,
    find_replacement,
    read_result,
    result_for_hooks,
)
from toolgate_orchestrator.turn.facts import Note, span_of_tool
from toolgate_orchestrator.turn.hooks.dispatch import Hooks
from toolgate_orchestrator.turn.values.foreign_code import name_of, theirs, words_of
from toolgate_orchestrator.turn.values.jsonable import find_change, jsonable
from toolgate_orchestrator.turn.values.messages import ToolCall
from toolgate_orchestrator.turn.values.tool_signals import signals_of

_CONTEXTS: Final = "_tool_dispatch_contexts"
_DELEGATE: Final = "delegate"
_MAX_NAME: Final = 200


@contextmanager
def show_running(coordinator: Any | None, call: ToolCall) -> Iterator[None]:
    """Show the host, within the block, that this task runs this call."""
    token, task = getattr(coordinator, "cancellation", None), asyncio.current_task()
    contexts = _contexts_of(coordinator)
    if token is not None:
        token.register_tool_start(call.id, _shown_name(call))
    contexts[task] = {"tool_call_id": call.id, "parallel_group_id": call.group or None}
    try:
        yield
    finally:
        contexts.pop(task, None)
        if token is not None:
            token.register_tool_complete(call.id)


def _contexts_of(coordinator: Any | None) -> dict[Any, dict[str, Any]]:
    """Return the coordinator's contexts, or a dict that nobody sees if it has none and takes none."""
    known = getattr(coordinator, _CONTEXTS, None)
    if isinstance(known, dict):
        return known
    made: dict[Any, dict[str, Any]] = {}
    if coordinator is not None:
        with suppress(AttributeError, TypeError):
            setattr(coordinator, _CONTEXTS, made)
    return made


def _shown_name(call: ToolCall) -> str:
    agent = call.arguments.get("agent") if call.name == _DELEGATE else None
    return agent[:_MAX_NAME] if isinstance(agent, str) and agent else call.name


logger = logging.getLogger(__name__)

_CURRENT: ContextVar[ToolCall | None] = ContextVar("toolgate_current_call", default=None)

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class CallRefusal:
    """A call that must not run, with the reason for the LLM."""

    reason: str
    call: ToolCall
    decision: Decision | None = None
    """Decision on the call, if there is one."""

    def __str__(self) -> str:
        return refuse_tool(self.reason)


class ToolOutcome(NamedTuple):
    """The result of running a tool."""

    content: Any
    """Result for the LLM."""
    output: Any = None
    """`ToolResult.output`, unchanged unless a hook on tool:post changed it."""
    error: tuple[str, str] | None = None
    """Type and message, if the tool raised or reported that it failed."""
    withheld: str | None = None
    """Reason why the LLM does not get the result: by a ruling, or by a hook on tool:post."""


class OutputRuler(Protocol):
    """Rules on what calls gave."""

    def rules_on_result(self, tool: str) -> bool:
        """Return whether anybody rules on results of a tool."""

    async def give(self, call: ToolCall, result: Any, *, success: bool) -> GivenResult:
        """Return what a call gave as it may be seen."""


class _Failure(NamedTuple):
    """What is told of a call that gave no result."""

    kind: str
    message: str
    said: Mapping[str, Any] = _NOTHING
    """Fields for its fact."""
    ran: bool = True


class _ToolFailure(Exception):  # noqa: N818 - control flow of this module
    """A tool could not be run; it carries the error type for tool:error."""

    def __init__(self, kind: str, message: str, *, ran: bool = False) -> None:
        super().__init__(message)
        self.kind, self.ran = kind, ran


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """The mounted tools, as one turn calls them."""

    tools: Mapping[str, Any]
    _hooks: Hooks
    _note: Note | None = None
    _posts_errors: bool = False
    """True if tool:post follows tool:error after a tool ran, as hosts of loop-streaming expect."""

    async def before(self, call: ToolCall) -> ToolCall | CallRefusal:
        """Ask the hooks on tool:pre. A modify changes the tool or its arguments."""
        if call.problem:
            return call
        consulted = await self._hooks.consult(TOOL_PRE, lambda: payload_of(call), call.name)
        if consulted.denied is not None:
            told = payload_of(call) | {"reason": consulted.denied}
            await self._hooks.emit(POLICY_VIOLATION, told)
            return CallRefusal(consulted.denied, call)
        spellings = ("arguments", "tool_input", "input")
        arguments = find_change(consulted.data, spellings, dict, jsonable(call.arguments))
        name = find_change(consulted.data, ("tool", "tool_name"), str, call.name)
        if name is None and arguments is None:
            return call
        arguments = call.arguments if arguments is None else arguments
        other = call.name if name is None else name
        return replace(call, name=other, arguments=arguments, opened=None, asked=None, ruling=None)

    async def run(self, call: ToolCall, ruler: OutputRuler | None = None) -> ToolOutcome:
        """Run the tool and report its outcome, as the ruler lets it be seen."""
        with span_of_tool(call, mounted=call.name in self.tools) as span:
            outcome = await self._run(call, ruler)
            if outcome.error is not None:
                span.fail(outcome.error[0])
            return outcome

    async def _run(self, call: ToolCall, ruler: OutputRuler | None) -> ToolOutcome:
        started = time.monotonic()
        result: ToolResult | _Failure
        try:
            result = await self._execute(call)
        except _ToolFailure as failure:
            result = _Failure(failure.kind, str(failure), ran=failure.ran)
        except asyncio.CancelledError:
            self._fact("fail", call, {"error": "CancelledError"}, time.monotonic() - started)
            raise
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is its result
            result = _Failure(name_of(error), words_of(error), signals_of(error))
        spent = time.monotonic() - started
        if isinstance(result, _Failure):  # outside of the handler: no context bears what is hidden of it
            return await self._rule_on_failure(call, ruler, result, spent)
        return await self._record_result(call, ruler, result, spent)

    async def _execute(self, call: ToolCall) -> ToolResult:
        if call.problem:
            raise _ToolFailure("InvalidToolCall", call.problem)
        tool = self.tools.get(call.name)
        if tool is None:
            raise _ToolFailure(
                "UnknownTool", f"there is no tool {call.name!r}; there are: {', '.join(self.tools)}"
            )
        try:
            with show_running(self._hooks.coordinator, call), enter_call(call):
                given = tool.execute(call.arguments)
                return as_tool_result(await given if inspect.isawaitable(given) else given)
        except Exception:
            raise
        except BaseException as error:
            if not theirs(error):
                raise
            if not is_cancel_requested():
                words = words_of(error)
                raised = f"raised {name_of(error)}{f': {words}' if words else ''}"
                came = "cancelled itself" if isinstance(error, asyncio.CancelledError) else raised
                raise _ToolFailure(name_of(error), f"the tool {came}", ran=True) from None
        raise asyncio.CancelledError  # it was cancelled, and reports that in another way

    async def _record_result(
        self, call: ToolCall, ruler: OutputRuler | None, result: ToolResult, spent: float
    ) -> ToolOutcome:
        is_ruled = ruler is not None and ruler.rules_on_result(_tool_of(call))
        heard, unreadable = self._hooks.has_listeners(TOOL_POST), None
        try:
            told = read_result(result)
            sent = send_output(result, told) if is_ruled else None
            shown = result_for_hooks(result) if heard else None
        except BaseException as error:
            if not theirs(error):
                raise
            words = f"the tool ran, but its result cannot be read: {name_of(error)}: {words_of(error)}"
            unreadable = _Failure("UnreadableResult", words)
        if unreadable is not None:
            return await self._rule_on_failure(call, ruler, unreadable, spent)
        output = told.output if sent is None else sent.output  # the tool may change its own meanwhile
        outcome, said = ToolOutcome(told.content, output, told.error), told.signals
        cost = {} if told.cost is None else {"cost": told.cost}
        if ruler is not None and sent is not None:
            try:
                given = await ruler.give(call, sent.value, success=told.success)
            except BaseException:  # it is cancelled; the tool has run, and is paid for
                self._fact("succeed", call, {"success": told.success, **cost}, spent)
                raise
            if given.outcome == "withheld":
                outcome = ToolOutcome(given.value, given.value, withheld=str(given.value))
                shown = {"success": told.success, "output": given.value, "error": None}
            elif given.changed:
                seen = use_ruling(given, sent, told)
                outcome, shown = ToolOutcome(seen.content, seen.output, seen.error), seen.shown
            said = clean_fact(given, said)
        self._fact("succeed", call, {"success": told.success, **cost, **said}, spent)
        return await self._after(call, shown, outcome) if heard else outcome

    async def _after(self, call: ToolCall, shown: Any, outcome: ToolOutcome) -> ToolOutcome:
        """Tell the hooks on tool:post, which may withhold the result or replace it."""
        payload = payload_of(call) | {"result": shown, "tool_result": shown}
        consulted = await self._hooks.consult(TOOL_POST, payload, call.name)
        if consulted.denied is not None:
            return ToolOutcome(
                f"The result was withheld: {consulted.denied}", error=outcome.error, withheld=consulted.denied
            )
        changed = find_replacement(shown, consulted.data)
        if changed is None:
            return outcome
        return ToolOutcome(changed.content, changed.output, outcome.error, outcome.withheld)

    async def _rule_on_failure(
        self, call: ToolCall, ruler: OutputRuler | None, failed: _Failure, spent: float
    ) -> ToolOutcome:
        """Report what a tool raised: it is a result like any other, and ruled on."""
        kind, message, said, ran = failed
        told = {"error": kind, **said}
        outcome = ToolOutcome(f"Error: {kind}: {message}", error=(kind, message))
        if not ran or ruler is None or not ruler.rules_on_result(_tool_of(call)):
            return await self._report_failure(call, outcome, told, spent, ran=ran)
        try:
            given = await ruler.give(call, f"{kind}: {message}", success=False)
        except BaseException:
            self._fact("fail", call, {"error": kind}, spent)
            raise
        if given.changed:
            told = clean_fact(given, told)
            shown_kind, shown, content = clean_failure(given, kind)
            withheld = content if given.outcome == "withheld" else None
            outcome = ToolOutcome(content, error=(shown_kind, shown), withheld=withheld)
        return await self._report_failure(call, outcome, told, spent)

    async def _report_failure(
        self, call: ToolCall, outcome: ToolOutcome, told: dict[str, Any], spent: float, *, ran: bool = True
    ) -> ToolOutcome:
        kind, message = outcome.error or ("", "")
        self._fact("fail" if ran else "release", call, told, spent)
        logger.info("tool %s failed: %s", call.name, kind)  # the message may repeat arguments
        payload = payload_of(call) | {"error": {"type": kind, "msg": message}}
        await self._hooks.consult(TOOL_ERROR, payload, call.name)
        if not (ran and self._posts_errors) or not self._hooks.has_listeners(TOOL_POST):
            return outcome
        error = {"type": kind, "message": message}
        return await self._after(call, {"success": False, "output": None, "error": error}, outcome)

    def _fact(self, outcome: Outcome, call: ToolCall, told: dict[str, Any], spent: float) -> None:
        """Record the end of a call that took `spent` seconds."""
        if self._note is None:
            return
        opened = call.opened
        if opened is None:  # nobody was asked
            asked = Call(call.name, call.arguments, id=call.id, group=call.group, iteration=call.iteration)
            opened = open_call(asked, None, _NOTHING, _NOTHING, "", time.monotonic() - spent)
        self._note(*opened.ended(outcome, spent, told))


def _tool_of(call: ToolCall) -> str:
    """Return the tool by which schedulers are asked about the result: the one that was let through."""
    return call.name if call.ruling is None else call.ruling.tool_name


def payload_of(call: ToolCall) -> dict[str, Any]:
    """Return the fields that every event about a call has."""
    return {
        "tool_name": call.name,
        "tool_input": call.arguments,
        "input": call.arguments,
        "tool_call_id": call.id,
        "parallel_group_id": call.group,
        "iteration": call.iteration,
    }


def current_call() -> ToolCall | None:
    """Return the call that this tool is executed for: the kernel gives a tool only its arguments.

    Return None outside of one of our loops. Each call runs in its own context, also concurrently.
    """
    return _CURRENT.get()


@contextmanager
def enter_call(call: ToolCall) -> Iterator[None]:
    """Make `current_call` return this call within the block."""
    token = _CURRENT.set(call)
    try:
        yield
    finally:
        _CURRENT.reset(token)
