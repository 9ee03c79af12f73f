"""One request and its calls: the inner loop. Calls start while the LLM still speaks.

Two things happen, and each wakes the loop: a call came out of the stream, or a running one ended.
Whenever it wakes, every call that has nothing left to wait for is started in a task of its own. It
ends when the stream is closed, nothing runs, and nothing more can start.

A call that starts has its references replaced at that moment, fits its tool's own schema, and then
goes the way of every call: schedulers and hooks, a person where one is asked, the tool. What it put
out is in the state before the next one is looked at.

`store` writes a request into the conversation once all its calls are done: nothing before, all together. The
response with its calls; then one result each, successes first, Error Messages after them, both in stream
order. Hooks are told of the calls that were refused before any hook saw them.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from amplifier_core.events import TOOL_ERROR
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.loops.reactive_engine.arrival import Arrival, accept_call, arrive, misfit
from toolgate_orchestrator.loops.reactive_engine.errors import (
    data_message,
    error_message,
    explain_unresolved,
    reason,
    text_for_llm,
)
from toolgate_orchestrator.loops.reactive_engine.output import FinalOutput
from toolgate_orchestrator.loops.reactive_engine.readiness import Readiness
from toolgate_orchestrator.loops.reactive_engine.references import OUTPUT_PATH, resolve
from toolgate_orchestrator.loops.reactive_engine.schemas import OfferedTool
from toolgate_orchestrator.loops.reactive_engine.state import Data, Reader, TooMuch
from toolgate_orchestrator.turn.calls.pipeline import NOT_RUN, CallResult
from toolgate_orchestrator.turn.calls.tool_call import CallRefusal, payload_of
from toolgate_orchestrator.turn.cancellation import despite_cancellation
from toolgate_orchestrator.turn.llm.provider_stream import Reply
from toolgate_orchestrator.turn.turn import Turn
from toolgate_orchestrator.turn.values.jsonable import almost_same_json, jsonable
from toolgate_orchestrator.turn.values.messages import ToolCall, assistant_message, text_of

logger = logging.getLogger(__name__)

Ask = Callable[[Callable[[Any], None]], Awaitable[Reply]]
"""Sends the request; tells the function that it is given of each raw call."""


class CallFeedback(NamedTuple):
    """What came of one call."""

    content: Any
    """For the LLM."""
    error: dict[str, Any] | None = None
    """Why it failed; None for a success."""


class Tick:
    """One request of a turn; run it once, then read what came of its calls."""

    def __init__(
        self, turn: Turn, offered: Mapping[str, OfferedTool], data: Data, output_tool: str = ""
    ) -> None:
        self.calls: list[ToolCall] = []
        """In stream order, final outputs included."""
        self.finals: list[ToolCall] = []
        """The calls of the output tool; they are no calls to run."""
        self.came: dict[str, CallFeedback] = {}
        """By id of the call; each call but the final outputs has one at the end."""
        self.readiness = Readiness(data.has)
        self.reply: Reply | None = None
        """The response, once it is whole."""
        self.offered = offered
        self._turn, self._data, self._output_tool = turn, data, output_tool
        self._group = str(uuid.uuid4())
        self._arrivals: dict[str, Arrival] = {}
        self._running: dict[asyncio.Task[bool], str] = {}
        self._wake = asyncio.Event()

    async def run(self, ask: Ask) -> Reply:
        """Send the request and run its calls until all are drained; raises what `ask` raises.

        Where that is an error, or the session is cancelled, nothing more is started; what runs may
        finish, unless this very task is cancelled.
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
        """Whether a cancellation of the session kept calls from running."""
        return self._turn.cancelled and any(
            came.error is not None and came.error["phase"] == "cancelled" for came in self.came.values()
        )

    # ------------------------------------------------------------------ the two events

    async def _read(self, ask: Ask) -> Reply:
        self.reply = reply = await ask(self._on_call)
        for raw in reply.calls[len(self.calls) :]:  # those that only the finished response shows
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
        """Whether nothing may be started any more."""
        if self._turn.cancelled or self._turn.llm.broken:
            return True
        return reader.done() and (reader.cancelled() or reader.exception() is not None)

    def _start_ready(self) -> None:
        for call_id in self.readiness.ready():
            arrival = self._arrivals[call_id]
            try:
                arguments = resolve(arrival.arguments, Reader(self._data))
            except TooMuch as much:
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
        """Whether it succeeded; its result is in the state by then."""
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
        except Exception as fault:  # noqa: BLE001 - of the engine's: it ends one call, not the turn
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
        if path is None and corrected is None:  # nothing to tell but the result
            self.came[arrival.call.id] = CallFeedback(ran.content)
            return True
        content: Any = text_for_llm(data_message(output, arrival.call if path else None, corrected))
        if isinstance(ran.content, list):  # pictures or the like that the tool gave
            content = [{"type": "text", "text": content}, *ran.content[1:]]
        self.came[arrival.call.id] = CallFeedback(content)
        return True

    def _strip_output_path(self, selected: ToolCall | CallRefusal) -> ToolCall | CallRefusal:
        """A correction does not move the result: those who wait for it wait for the first path."""
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
    """Give the calls of the output tool their results; `broken` says why they were not looked at."""
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
    """Write the response, and what came of each of its calls; None for a response that broke off."""
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
                    continue  # what ran, or was denied, has been told already
                told = payload_of(call) | {"error": {"type": error["type"], "msg": error["message"]}}
                await turn.hooks.consult(TOOL_ERROR, told, call.name)
    elif reply is not None and (text_of(reply.response) or not reply.stopped):
        await turn.context.add_message(message)
