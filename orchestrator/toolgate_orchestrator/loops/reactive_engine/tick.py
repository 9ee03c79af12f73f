"""Run one request and its calls, the inner loop. Calls start while the LLM still writes.

Two events wake the loop: a call came out of the stream, or a running call ended. Then every call with
nothing left to wait for starts in a task of its own. The loop ends when the stream is closed, no call
runs, and no further one can start.

When a call starts, its references are replaced and its arguments are checked by the tool's own schema.
Then it goes the way of every call: schedulers and hooks, a person if one is asked, the tool. Its output
is in the state before the loop looks at the next call.

`store` writes a request into the conversation once all its calls are done, all together: the response with
its calls, then one result each, successes first and Error Messages after them, both in stream order. Hooks
are told of the calls that were refused before any hook saw them.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from amplifier_core.events import TOOL_ERROR
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.decision.question.schema_check import Checker, Uncheckable
from toolgate_orchestrator.loops.reactive_engine.errors import (
    data_message,
    error_message,
    explain_unresolved,
    reason,
    text_for_llm,
)
from toolgate_orchestrator.loops.reactive_engine.output import FinalOutput
from toolgate_orchestrator.loops.reactive_engine.readiness import Needs, Readiness
from toolgate_orchestrator.loops.reactive_engine.references import (
    OUTPUT_PATH,
    BadOutputPath,
    BadReference,
    Path,
    has_marks,
    output_path,
    references_in,
    resolve,
)
from toolgate_orchestrator.loops.reactive_engine.schemas import OfferedTool
from toolgate_orchestrator.loops.reactive_engine.state import Data, OutputTooLarge, Reader
from toolgate_orchestrator.turn.calls.pipeline import NOT_RUN, CallResult
from toolgate_orchestrator.turn.calls.tool_call import CallRefusal, payload_of
from toolgate_orchestrator.turn.cancellation import despite_cancellation
from toolgate_orchestrator.turn.llm.provider_stream import Reply
from toolgate_orchestrator.turn.turn import Turn
from toolgate_orchestrator.turn.values.jsonable import almost_same_json, jsonable
from toolgate_orchestrator.turn.values.messages import ToolCall, assistant_message, calls_in, text_of
from toolgate_orchestrator.turn.values.raw_call import excess, plain_call

MAX_CALLS = 256
"""Maximum number of calls of one request; further ones are refused."""
MAX_REFERENCES = 256
"""Maximum number of references in one call."""
MAX_DEPTH = 48
MAX_NODES = 20_000
MAX_CHARS = 4_000_000

Error = dict[str, Any]


class Arrival(NamedTuple):
    """Call with the results of its checks."""

    call: ToolCall
    """Call as the LLM made it, without unreadable arguments."""
    arguments: dict[str, Any]
    """Arguments for the tool, with references not yet replaced."""
    needs: Needs
    error: Error | None = None
    """Reason that it cannot run."""
    raw: str | None = None
    """Text of unreadable arguments."""


def accept_call(
    raw: Any, taken: Mapping[str, Any], group: str, iteration: int
) -> tuple[ToolCall, str | None]:
    """Return a raw call in safe form, with an id that is not taken; and its arguments as text if they are
    unreadable."""
    plain = plain_call(raw)
    (call,) = calls_in([plain], group, iteration)
    if call.problem is None and (problem := excess(call.arguments, MAX_DEPTH, MAX_NODES, MAX_CHARS)):
        call = replace(call, arguments={}, problem=f"the arguments {problem}")
    number, wanted = 2, call.id
    while call.id in taken:
        call, number = replace(call, id=f"{wanted}_{number}"), number + 1
    return call, None if call.problem is None else plain["raw"]


def arrive(
    call: ToolCall, raw: str | None, count: int, offered: Mapping[str, OfferedTool], data: Data
) -> Arrival:
    """Check a call; `count` calls of the same request came before it."""
    tool = offered.get(call.name)
    arguments = dict(call.arguments)
    path: Path | None = None
    errors: list[Error] = []
    if call.problem:
        errors.append(reason("structural", "invalid_arguments", call.problem))
    elif count >= MAX_CALLS:
        what = f"at most {MAX_CALLS} calls run in one response: {count}"
        errors.append(reason("structural", "too_many_calls", what))
    if tool is None or tool.writes:
        try:
            path = output_path(arguments.pop(OUTPUT_PATH)) if OUTPUT_PATH in arguments else None
        except BadOutputPath as error:
            errors.append(reason("structural", "invalid_output_path", str(error)))
    if tool is None:
        names = ", ".join(offered)
        errors.append(
            reason("structural", "unknown_tool", f"there is no tool {call.name!r}; there are: {names}")
        )
    if errors or tool is None:
        return Arrival(call, arguments, Needs(call.id, (), path), errors[0], raw)
    return _with_references(call, arguments, path, tool, data)


def _with_references(
    call: ToolCall, arguments: dict[str, Any], path: Path | None, tool: OfferedTool, data: Data
) -> Arrival:
    try:
        reads = references_in(arguments)
    except BadReference as bad:
        error = reason("structural", "invalid_reference", str(bad))
        return Arrival(call, arguments, Needs(call.id, (), path), error)
    needs = Needs(call.id, reads, path, call.sequential)
    if len(reads) > MAX_REFERENCES:
        error = reason("structural", "invalid_reference", f"there are more than {MAX_REFERENCES} references")
        return Arrival(call, arguments, needs, error)
    absent = [str(each) for each in reads if each.kind == "input" and not data.has(each)]
    if absent:
        error = reason("structural", "invalid_reference", f"the input has no {', '.join(absent)}")
        return Arrival(call, arguments, needs, error)
    if has_marks(arguments):
        return Arrival(call, arguments, needs, misfit(tool.on_arrival, arguments))
    return Arrival(call, arguments, needs, misfit(tool.original, arguments))


def misfit(checker: Checker | None, arguments: Any) -> Error | None:
    """Return the reason that arguments do not fit a tool's schema; None also if the schema cannot be applied.

    Such a schema is the tool's own fault, and the tool will report it when it runs.
    """
    try:
        problems = checker.problems(arguments) if checker is not None else []
    except Uncheckable:
        return None
    return reason("structural", "schema_validation", "; ".join(problems)) if problems else None


logger = logging.getLogger(__name__)

Ask = Callable[[Callable[[Any], None]], Awaitable[Reply]]
"""Function that sends the request, and calls its argument with each raw call."""


class CallFeedback(NamedTuple):
    """Result of one call."""

    content: Any
    """Content for the LLM."""
    error: dict[str, Any] | None = None
    """Reason that it failed; None for a success."""


class Tick:
    """Request of a turn: run it once, then read the results of its calls."""

    def __init__(
        self, turn: Turn, offered: Mapping[str, OfferedTool], data: Data, output_tool: str = ""
    ) -> None:
        self.calls: list[ToolCall] = []
        """Calls in stream order, final outputs included."""
        self.finals: list[ToolCall] = []
        """Calls of the output tool, which are not run."""
        self.came: dict[str, CallFeedback] = {}
        """Results by id of the call; at the end each call except the final outputs has one."""
        self.readiness = Readiness(data.has)
        self.reply: Reply | None = None
        """Response, once it is whole."""
        self.offered = offered
        self._turn, self._data, self._output_tool = turn, data, output_tool
        self._group = str(uuid.uuid4())
        self._arrivals: dict[str, Arrival] = {}
        self._running: dict[asyncio.Task[bool], str] = {}
        self._wake = asyncio.Event()

    async def run(self, ask: Ask) -> Reply:
        """Send the request and run its calls until all are done; raise the errors of `ask`.

        After an error or a cancellation of the session no further call starts. Running calls may finish,
        unless this very task is cancelled.
        """
        reader = asyncio.ensure_future(self._read(ask))
        reader.add_done_callback(lambda _: self._wake.set())
        try:
            await self._until_drained(reader)
        except BaseException:
            tasks: set[asyncio.Future[Any]] = {reader, *self._running}
            for task in tasks:
                task.cancel("the turn was cancelled")
            await despite_cancellation(asyncio.wait(tasks))
            self._leave_off("it was cancelled, because the turn was")
            raise
        # Each call that never started gets its Error Message.
        if self._turn.cancelled:
            self._leave_off("it was not run: the session was cancelled")
        elif reader.cancelled() or reader.exception() is not None:
            self._leave_off("it was not run: the response broke off")
        else:
            for blocked in self.readiness.leftover():
                self._record_failure(
                    self._arrivals[blocked.id], explain_unresolved(blocked.missing, blocked.blocked_by)
                )
        return reader.result()

    @property
    def is_interrupted(self) -> bool:
        """True if a cancellation of the session kept calls from running."""
        return self._turn.cancelled and any(
            came.error is not None and came.error["phase"] == "cancelled" for came in self.came.values()
        )

    def replace_output(self, value: Any) -> None:
        """Put another output in the place of the one that the LLM gave, also in the calls that gave it."""
        for call in self.finals:
            place = self.calls.index(call)
            given = value if call is self.finals[-1] else None
            self.calls[place] = replace(call, arguments={"output": given}, problem=None)
            self.came[call.id] = CallFeedback(text_for_llm(data_message(given)))

    # ------------------------------------------------------------------ the two events

    async def _read(self, ask: Ask) -> Reply:
        self.reply = reply = await ask(self._on_call)
        for raw in reply.calls[len(self.calls) :]:  # calls that only the finished response shows
            self._on_call(raw)
        return reply

    def _on_call(self, raw: Any) -> None:
        taken = {call.id: call for call in self.calls}
        call, text = accept_call(raw, taken, self._group, self._turn.llm.iterations)
        self.calls.append(call)
        if call.name == self._output_tool:
            self.finals.append(call)
            return
        arrival = arrive(call, text, len(self._arrivals), self.offered, self._data)
        self._arrivals[call.id] = arrival
        self.readiness.add_call(arrival.needs, failed=arrival.error is not None)
        if arrival.error is not None:
            self._record_failure(arrival, arrival.error)
        self._wake.set()

    def _on_task_done(self, task: asyncio.Task[bool]) -> None:
        call_id = self._running.pop(task)
        self.readiness.finish_call(
            call_id, not task.cancelled() and task.exception() is None and task.result()
        )
        self._wake.set()

    # ------------------------------------------------------------------ the loop

    async def _until_drained(self, reader: "asyncio.Task[Reply]") -> None:
        while True:
            self._wake.clear()
            if not self._must_stop(reader):
                self._start_ready()
            if reader.done() and not self._running:
                return
            await self._wake.wait()

    def _must_stop(self, reader: "asyncio.Task[Reply]") -> bool:
        """Return whether no further call may start."""
        if self._turn.cancelled or self._turn.llm.broken:
            return True
        return reader.done() and (reader.cancelled() or reader.exception() is not None)

    def _start_ready(self) -> None:
        for call_id in self.readiness.ready():
            arrival = self._arrivals[call_id]
            try:
                arguments = resolve(arrival.arguments, Reader(self._data))
            except OutputTooLarge as much:
                self._record_failure(arrival, reason("structural", "invalid_reference", str(much)))
                self.readiness.finish_call(call_id, ok=False)
                self._wake.set()
                continue
            task = asyncio.ensure_future(self._run(arrival, arguments))
            task.set_name(f"toolgate-{call_id}")
            self._running[task] = call_id
            task.add_done_callback(self._on_task_done)

    # ------------------------------------------------------------------ one call

    async def _run(self, arrival: Arrival, arguments: dict[str, Any]) -> bool:
        """Run a call; return whether it succeeded. Its result is in the state by then."""
        tool = self.offered[arrival.call.name]
        if error := misfit(tool.original, arguments):
            return self._record_failure(arrival, error)
        kept_at = arrival.needs.writes
        sent = replace(
            arrival.call, arguments=arguments, output_path=f"†state.{'.'.join(kept_at)}" if kept_at else None
        )
        try:
            selected = await self._turn.select(sent)
            ran = await self._turn.run(self._strip_output_path(selected))
        except Exception as fault:  # noqa: BLE001 - a fault of the engine ends one call, not the turn
            logger.error("call %s broke: %s", arrival.call.name, where(fault))
            return self._record_failure(arrival, reason("runtime", type(fault).__name__, str(fault)))
        return self._record(arrival, sent, ran)

    def _record(self, arrival: Arrival, sent: ToolCall, ran: CallResult) -> bool:
        arguments, given = jsonable(ran.call.arguments), jsonable(sent.arguments)
        corrected = None if ran.call.name == sent.name and almost_same_json(arguments, given) else ran.call
        if ran.refused == NOT_RUN:
            return self._record_failure(arrival, reason("cancelled", "cancelled", NOT_RUN))
        if ran.refused is not None:
            return self._record_failure(arrival, reason("denied", "denied", ran.refused))
        if ran.error is not None:
            return self._record_failure(arrival, reason("runtime", *ran.error), corrected)
        output, path = jsonable(ran.output), arrival.needs.writes
        if path is not None:
            self._data.write(path, output, arrival.call.id)
        if path is None and corrected is None:  # the LLM needs only the result
            self.came[arrival.call.id] = CallFeedback(ran.content)
            return True
        content: Any = text_for_llm(data_message(output, arrival.call if path else None, corrected))
        if isinstance(ran.content, list):  # pictures or the like that the tool gave
            content = [{"type": "text", "text": content}, *ran.content[1:]]
        self.came[arrival.call.id] = CallFeedback(content)
        return True

    def _strip_output_path(self, selected: ToolCall | CallRefusal) -> ToolCall | CallRefusal:
        """Drop `_outputPath` from a correction: other calls wait for the first path."""
        if isinstance(selected, CallRefusal) or OUTPUT_PATH not in selected.arguments:
            return selected
        tool = self.offered.get(selected.name)
        if tool is not None and not tool.writes:
            return selected
        kept = {key: value for key, value in selected.arguments.items() if key != OUTPUT_PATH}
        return replace(selected, arguments=kept)

    def _record_failure(
        self, arrival: Arrival, error: dict[str, Any], corrected: ToolCall | None = None
    ) -> bool:
        message = error_message(arrival.call, error, arrival.raw)
        if corrected is not None:
            message["corrected"] = {"_tool": corrected.name, **corrected.arguments}
        self.came[arrival.call.id] = CallFeedback(text_for_llm(message), error)
        return False

    # ------------------------------------------------------------------ the end

    def _leave_off(self, message: str) -> None:
        for call_id, arrival in self._arrivals.items():
            if call_id not in self.came:
                self._record_failure(arrival, reason("cancelled", "cancelled", message))


def settle(tick: Tick, output: FinalOutput, broken: str = "") -> None:
    """Give the calls of the output tool their results; `broken` is the reason that they were not read."""
    for call in tick.finals:
        error = (
            reason("cancelled", "cancelled", f"it was not looked at: {broken}") if broken else output.error
        )
        if not broken and call is not tick.finals[-1]:
            message = data_message(None) | {"note": "a later output in the same response replaced this one"}
            tick.came[call.id] = CallFeedback(text_for_llm(message))
        elif error is not None:
            tick.came[call.id] = CallFeedback(text_for_llm(error_message(call, error)), error)
        else:
            tick.came[call.id] = CallFeedback(text_for_llm(data_message(output.value)))


async def store(turn: Turn, tick: Tick, reply: Reply | None) -> None:
    """Write the response and the results of its calls to the conversation; None if the response broke off."""
    calls = tick.calls
    if reply is None and not calls:
        return
    message = assistant_message(reply.response if reply else None, calls)
    if reply is not None and reply.stopped:
        message["metadata"] = {**message.get("metadata", {}), "incomplete": True}
    if calls:
        failed = [call for call in tick.calls if tick.came[call.id].error is not None]
        ordered = [call for call in tick.calls if tick.came[call.id].error is None] + failed
        async with turn.collect_results(ordered, message) as results:
            for call in ordered:
                await results.give(call, tick.came[call.id].content)
            for call in failed:
                error = tick.came[call.id].error or {}
                if error.get("phase") != "structural":
                    continue  # hooks know already of calls that ran or were denied
                told = payload_of(call) | {"error": {"type": error["type"], "msg": error["message"]}}
                await turn.hooks.consult(TOOL_ERROR, told, call.name)
    elif reply is not None and (text_of(reply.response) or not reply.stopped):
        await turn.context.add_message(message)
