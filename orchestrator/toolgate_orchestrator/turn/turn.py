"""One turn: from the user's prompt to the answer, for every loop.

    execution:start ─▶ prompt:submit ─▶ ┌ provider:request ─▶ LLM ─▶ provider:response ┐
                                        └──── results stored ◀── the loop's run_calls ◀┘
                     ─▶ prompt:complete ─▶ orchestrator:complete ─▶ execution:end

The loops differ in one step: a request and its calls (`LoopBase.step`), and in what becomes of a
provider's error. Everything else is here, or in the parts it is made of: `hook_dispatch` (hooks),
`llm_request` (the LLM), `call_pipeline` (one call), `results` (one result for each call).
On every way out, execution:end and orchestrator:complete are emitted once, and no call is left
without a result.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from amplifier_core.events import (
    EXECUTION_END,
    EXECUTION_START,
    ORCHESTRATOR_COMPLETE,
    PROMPT_COMPLETE,
    PROMPT_SUBMIT,
)
from toolgate_bus.protocol.agents import LiveAgent
from toolgate_bus.telemetry import tracing
from toolgate_bus.telemetry.logging import about

from toolgate_orchestrator.gate.gate import Gate
from toolgate_orchestrator.gate.sessions import Presence
from toolgate_orchestrator.turn.call_pipeline import NOT_RUN, CallResult, Passage
from toolgate_orchestrator.turn.cancellation import Watch, despite_cancellation
from toolgate_orchestrator.turn.facts import FactWriter, span_of_turn
from toolgate_orchestrator.turn.hook_dispatch import Hooks
from toolgate_orchestrator.turn.injections import Injections
from toolgate_orchestrator.turn.llm_request import Llm, LlmFailure, RequestDenial, choose_provider
from toolgate_orchestrator.turn.messages import ToolCall, assistant_message, calls_in, text_of, tool_specs
from toolgate_orchestrator.turn.provider_stream import OnText
from toolgate_orchestrator.turn.results import Results
from toolgate_orchestrator.turn.selection import Selection
from toolgate_orchestrator.turn.session_tree import place_of
from toolgate_orchestrator.turn.tool_call import CallRefusal, ToolCalls

if TYPE_CHECKING:
    from toolgate_orchestrator.turn.loop import LoopBase

LIMIT_REMINDER = """\
<system-reminder source="orchestrator-loop-limit">
You have reached the maximum number of iterations for this turn.
Please provide a response to the user now, summarizing your progress
and noting what remains to be done. You can continue in the next turn
if needed.

DO NOT mention this iteration limit or reminder to the user explicitly.
Simply wrap up naturally.
</system-reminder>"""
"""What the LLM is told in the last request of a turn that reached max_iterations (seed loop-basic)."""

_PREVIEW = 200


RunCalls = Callable[["Turn", Sequence[ToolCall], Results], Awaitable[None]]
"""Runs the calls of one response and gives each its result."""


@dataclass(frozen=True, slots=True)
class _TurnEnd:
    """How a turn came out."""

    answer: str
    execution: Literal["completed", "cancelled", "error"] = "completed"
    status: Literal["success", "incomplete", "cancelled"] = "success"


_CANCELLED = _TurnEnd("", "cancelled", "cancelled")
_BROKEN = _TurnEnd("", "error", "incomplete")


class Turn:
    """One call of `execute`, from execution:start to execution:end; run it once."""

    def __init__(
        self,
        loop: "LoopBase[Any]",
        prompt: str,
        context: Any,
        providers: Mapping[str, Any],
        tools: Mapping[str, Any],
        hooks: Any,
        open_gate: Callable[[], Awaitable[Gate | None]],
        coordinator: Any | None = None,
        request_options: Mapping[str, Any] | None = None,
        on_text: OnText | None = None,
    ) -> None:
        self.loop = loop
        self.prompt = prompt
        self.context = context
        self.coordinator = coordinator
        self.injections = Injections()
        self.hooks = Hooks(hooks, coordinator, self.injections)
        asking = loop.settings.toolgate
        # A loop that nobody mounted is one that operators do not see.
        self._seen = loop.presence or Presence(LiveAgent(""), lambda now: None)
        self._facts = FactWriter(
            coordinator, asking.agent if asking is not None else "", tools, self._seen.add_cost
        )
        self.tools = ToolCalls(tools, self.hooks, self._facts.note)
        self._open_gate = open_gate
        self._started, self._span = time.monotonic(), tracing.NO_SPAN
        self._passage: Passage | None = None
        self._results = Results(context)
        self._llm: Llm | None = None
        self._providers = providers
        self._options = request_options or {}
        self._on_text = on_text
        self._token = getattr(coordinator, "cancellation", None)

    @property
    def cancelled(self) -> bool:
        """Whether the session asked this turn to end; running tools may finish first."""
        return self._token is not None and self._token.is_cancelled is True

    @property
    def is_stopping(self) -> bool:
        """Whether it is to end after the tools that run; what ends at once is ended from outside."""
        return self.cancelled and self._token is not None and self._token.is_immediate is not True

    @property
    def llm(self) -> Llm:
        """The provider of this turn."""
        if self._llm is None:
            settings = self.loop.settings
            name, provider = choose_provider(
                self._providers, settings.default_provider, self._options.get("provider")
            )
            self._llm = Llm(
                name,
                provider,
                self.context,
                self.hooks,
                thinking=settings.extended_thinking,
                streams=self.loop.streams,
                note=self._facts.note,
                on_text=self._on_text,
                stopping=lambda: self.is_stopping,
            )
        return self._llm

    # ------------------------------------------------------------------ what loops use

    async def select(self, call: ToolCall) -> ToolCall | CallRefusal:
        """Ask who is to be asked about a call: the one to run, or why none may."""
        self._seen.start_decision(call.id, call.name)
        selected = await self._way.select(call)
        if isinstance(selected, CallRefusal):
            self._seen.count_denial(call.id)
        return selected

    async def run(self, selected: ToolCall | CallRefusal) -> CallResult:
        """Run what was selected; raises nothing but a cancellation."""
        if isinstance(selected, ToolCall):
            self._seen.start_call(selected.id, selected.name, selected.arguments)
        decision = selected.decision if isinstance(selected, ToolCall) else None
        with about(decision=decision or None):
            ran = await self._way.run(selected)
        self._seen.end_call(ran.call.id)
        return ran

    async def request(self, run_calls: "RunCalls") -> str | None:
        """One request and its calls, in the usual way: the response is stored, then its calls are run."""
        reply = await self.llm.ask(tool_specs(self.tools.tools))
        if reply.stopped:
            await self._store_partial(text_of(reply.response))
            return None
        # One id tells that the calls of a response belong together.
        calls = calls_in(reply.calls, str(uuid.uuid4()), self.llm.iterations)
        message = assistant_message(reply.response, calls)
        if not calls:
            await self.context.add_message(message)
            return text_of(reply.response)
        async with self.collect_results(calls, message) as results:
            await run_calls(self, calls, results)
        return None

    @asynccontextmanager
    async def collect_results(
        self, calls: Sequence[ToolCall], message: dict[str, Any] | None = None
    ) -> AsyncIterator[Results]:
        """Calls that the conversation holds: each has one result before anything else is stored.

        `message` is the response that makes them, stored first; None where it is stored already.
        """
        results = self._results
        try:
            if message is None:
                results.expect(calls)
            else:
                await results.begin(message, calls)
            yield results
        except BaseException:
            await despite_cancellation(results.close("was not completed: the turn ended first"))
            raise
        await results.close(NOT_RUN)
        await self.injections.store(self.context, self.coordinator)

    async def conclude(self) -> str:
        """The usual end of a turn at its limit: without tools, and with a reminder that is not stored."""
        self.injections.remind(LIMIT_REMINDER)
        reply = await self.llm.ask(())
        if reply.stopped:
            await self._store_partial(text_of(reply.response))
        else:
            await self.context.add_message(assistant_message(reply.response, ()))
        return text_of(reply.response)

    # ------------------------------------------------------------------ from start to end

    async def execute(self) -> str:
        """Run the turn and give the answer; raises what the loop does not tell the user."""
        place = self._facts.place
        span_of = span_of_turn(self._facts.agent, place, self.loop.name)
        token, ended = self._token, _CANCELLED
        interruption = Watch(lambda: token is not None and token.is_immediate is True)
        with about(session=place.session), span_of as self._span, self._seen.turn():
            self._started = time.monotonic()
            if callable(reset := getattr(self.coordinator, "reset_turn", None)):
                reset()  # the kernel counts injections by turn, and leaves it to us to say when one begins
            try:
                cancelled_before = interruption.due()
                if cancelled_before:  # a turn that never begins has a beginning all the same
                    await self.hooks.emit(EXECUTION_START, {"prompt": self.prompt})
                with interruption:
                    if not cancelled_before:
                        await self.hooks.emit(EXECUTION_START, {"prompt": self.prompt})
                    self._facts.gate = await self._open_gate()
                    ended = await self._converse()
            except asyncio.CancelledError:
                await despite_cancellation(self._finish(_CANCELLED))
                raise
            except BaseException:
                await self._finish(_BROKEN)
                raise
            await self._finish(_CANCELLED if interruption.fired else ended)
            return ended.answer

    async def _converse(self) -> _TurnEnd:
        submitted = await self.hooks.consult(PROMPT_SUBMIT, {"prompt": self.prompt})
        if submitted.denied is not None:
            return _TurnEnd(f"Operation denied: {submitted.denied}", status="incomplete")
        await self.injections.store(self.context, self.coordinator)
        changed = submitted.data.get("prompt")
        prompt = changed if isinstance(changed, str) else self.prompt
        await self.context.add_message({"role": "user", "content": prompt})
        try:
            return await self._iterate()
        except RequestDenial as denied:
            return _TurnEnd(f"Operation denied: {denied}", status="incomplete")
        except LlmFailure as failed:
            await self._store_partial(self.llm.partial)
            if self.loop.raises_provider_errors:
                raise failed.error from None
            return _TurnEnd(str(failed), "error", "incomplete")

    async def _iterate(self) -> _TurnEnd:
        llm, limit = self.llm, self.loop.settings.max_iterations
        try:
            while not self.cancelled:
                if llm.iterations == limit:
                    last = _TurnEnd(await self.loop.wrap_up(self), status="incomplete")
                    return _CANCELLED if llm.stopped else last
                answer = await self.loop.step(self)
                if answer is not None:
                    return _TurnEnd(answer)
        except asyncio.CancelledError:
            await despite_cancellation(self._store_partial(llm.partial))
            raise
        return _CANCELLED

    async def _store_partial(self, text: str) -> None:
        """Text that was shown belongs to the conversation, also where the response broke off."""
        if text:
            await self.context.add_message(
                {"role": "assistant", "content": text, "metadata": {"incomplete": True}}
            )

    @property
    def _way(self) -> Passage:
        """The way of this turn's calls, made with its first one."""
        if self._passage is None:
            gate, note, config, selection = (
                self._facts.gate,
                self._facts.note,
                self.loop.settings.toolgate,
                None,
            )
            if gate is not None and config is not None:
                place = place_of(self.coordinator)
                selection = Selection(self.hooks, self.tools.tools, gate, config, note, place)
            self._passage = Passage(
                selection, self.tools, note, lambda: self.cancelled, lambda: self.is_stopping
            )
        return self._passage

    async def _finish(self, ended: _TurnEnd) -> None:
        """Report the end; a cancellation while a hook hears of it leaves none of the reports out."""
        try:
            if ended.execution == "completed" or ended.answer:
                await self.hooks.emit(PROMPT_COMPLETE, lambda: self._completion(ended.answer))
        finally:
            try:
                await self.hooks.emit(ORCHESTRATOR_COMPLETE, lambda: self._summary(ended))
            finally:
                self._tell(ended)
                response = ended.answer if ended.execution == "completed" else ""
                await self.hooks.emit(EXECUTION_END, {"response": response, "status": ended.execution})

    def _tell(self, ended: _TurnEnd) -> None:
        """How the turn ended, as a fact and on its span."""
        iterations = self._llm.iterations if self._llm else 0
        trace = tracing.headers().get("traceparent")
        self._facts.turn(self.loop.name, ended.execution, iterations, self._started, trace)
        self._span.set({"toolgate.status": ended.execution, "toolgate.iterations": iterations})
        if ended.execution == "error":
            self._span.fail("provider_error")  # an exception on its way out tells its own type

    def _summary(self, ended: _TurnEnd) -> dict[str, Any]:
        turns = self._llm.iterations if self._llm else 0
        return {
            "orchestrator": self.loop.name,
            "turn_count": turns,
            "iterations": turns,
            "tokens": self._llm.tokens if self._llm else 0,
            "status": ended.status,
        }

    def _completion(self, answer: str) -> dict[str, Any]:
        return {
            "prompt": self.prompt,
            "response": answer,
            "response_preview": answer[:_PREVIEW],
            "length": len(answer),
        }
