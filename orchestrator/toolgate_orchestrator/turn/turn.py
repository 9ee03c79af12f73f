"""One turn: from the user's prompt to the answer, for every loop.

    execution:start ─▶ prompt:submit ─▶ ┌ provider:request ─▶ LLM ─▶ provider:response ┐
                                        └──── results stored ◀── the loop's run_calls ◀┘
                     ─▶ prompt:complete ─▶ orchestrator:complete ─▶ execution:end

The loops differ in how they run the calls of one response (`Loop.run_calls`) and in what becomes of
a provider's error. Everything else is here, or in the parts it is made of: `consult` (hooks),
`request` (the LLM), `tool_call` (one call), `results` (one result for each call).
On every way out, execution:end and orchestrator:complete are emitted once, and no call is left
without a result.
"""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from amplifier_core.events import (
    EXECUTION_END,
    EXECUTION_START,
    ORCHESTRATOR_COMPLETE,
    PROMPT_COMPLETE,
    PROMPT_SUBMIT,
)

from toolgate_orchestrator.gate.gate import Gate
from toolgate_orchestrator.turn.consult import Hooks
from toolgate_orchestrator.turn.injections import Injections
from toolgate_orchestrator.turn.interruption import Interruption, despite_cancellation
from toolgate_orchestrator.turn.lineage import root_of
from toolgate_orchestrator.turn.loop_config import LoopConfig
from toolgate_orchestrator.turn.messages import Call, assistant_message, calls_in, text_of
from toolgate_orchestrator.turn.provider_choice import choose_provider
from toolgate_orchestrator.turn.request import Llm, LlmFailed, RequestDenied
from toolgate_orchestrator.turn.results import Results
from toolgate_orchestrator.turn.selection import Selection
from toolgate_orchestrator.turn.tool_call import ToolCalls

__all__ = ["LIMIT_REMINDER", "Loop", "Turn"]

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


class Loop(Protocol):
    """What makes one loop different from the others."""

    @property
    def name(self) -> str:
        """The module's id."""

    @property
    def raises_provider_errors(self) -> bool:
        """False: the user is told the error as the answer. True: `execute` raises it."""

    @property
    def settings(self) -> LoopConfig:
        """The part of the config that all loops share."""

    async def run_calls(self, turn: "Turn", calls: Sequence[Call]) -> None:
        """Run the calls of one response and give each its result by `turn.results.give`."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a turn came out."""

    answer: str
    execution: Literal["completed", "cancelled", "error"] = "completed"
    status: Literal["success", "incomplete", "cancelled"] = "success"


_CANCELLED = _Ended("", "cancelled", "cancelled")
_BROKEN = _Ended("", "error", "incomplete")


class Turn:
    """One call of `execute`, from execution:start to execution:end; run it once."""

    def __init__(
        self,
        loop: Loop,
        prompt: str,
        context: Any,
        providers: Mapping[str, Any],
        tools: Mapping[str, Any],
        hooks: Any,
        gate: Gate,
        coordinator: Any | None = None,
        request_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.loop = loop
        self.prompt = prompt
        self.context = context
        self.coordinator = coordinator
        self.injections = Injections()
        self.hooks = Hooks(hooks, coordinator, self.injections)
        self.tools = ToolCalls(tools, self.hooks, gate.note)
        self.selection = Selection(self.hooks, tools, gate, loop.settings.toolgate, root_of(coordinator))
        self.results = Results(context)
        self.llm: Llm | None = None
        self._providers = providers
        self._options = request_options or {}
        self._note = gate.note
        self._token = getattr(coordinator, "cancellation", None)

    @property
    def cancelled(self) -> bool:
        """Whether the session asked this turn to end; running tools may finish first."""
        return self._token is not None and self._token.is_cancelled is True

    async def run(self) -> str:
        """Run the turn and give the answer; raises what the loop does not tell the user."""
        interruption = Interruption(self._token)
        ended = _CANCELLED
        if callable(reset := getattr(self.coordinator, "reset_turn", None)):
            reset()  # the kernel counts injections by turn, and leaves it to us to say when one begins
        try:
            await self.hooks.emit(EXECUTION_START, {"prompt": self.prompt})
            with interruption:
                ended = await self._converse()
        except asyncio.CancelledError:
            await despite_cancellation(self._finish(_CANCELLED))
            raise
        except BaseException:
            await self._finish(_BROKEN)
            raise
        await self._finish(_CANCELLED if interruption.fired else ended)
        return ended.answer

    async def _converse(self) -> _Ended:
        submitted = await self.hooks.consult(PROMPT_SUBMIT, {"prompt": self.prompt})
        if submitted.denied is not None:
            return _Ended(f"Operation denied: {submitted.denied}", status="incomplete")
        await self.injections.store(self.context, self.coordinator)
        changed = submitted.data.get("prompt")
        prompt = changed if isinstance(changed, str) else self.prompt
        await self.context.add_message({"role": "user", "content": prompt})
        try:
            return await self._iterate()
        except RequestDenied as denied:
            return _Ended(f"Operation denied: {denied}", status="incomplete")
        except LlmFailed as failed:
            if self.loop.raises_provider_errors:
                raise failed.error from None
            return _Ended(str(failed), "error", "incomplete")

    async def _iterate(self) -> _Ended:
        self.llm = llm = self._choose_llm()
        while not self.cancelled:
            if llm.iterations == self.loop.settings.max_iterations:
                return await self._wrap_up(llm)
            response, raw_calls = await llm.ask(self.tools.tools)
            calls = calls_in(raw_calls, str(uuid.uuid4()), llm.iterations)
            await self.context.add_message(assistant_message(response, calls))
            if not calls:
                return _Ended(text_of(response))
            await self._run_calls(calls)
        return _CANCELLED

    async def _run_calls(self, calls: Sequence[Call]) -> None:
        """Let the loop run them; each call has one result before anything else is stored."""
        self.results.expect(calls)
        try:
            await self.loop.run_calls(self, calls)
        except BaseException:
            await despite_cancellation(self.results.close("was not completed: the turn ended first"))
            raise
        await self.results.close("was not run: the session was cancelled")
        await self.injections.store(self.context, self.coordinator)

    async def _wrap_up(self, llm: Llm) -> _Ended:
        """The last request of a turn at its limit: no tools, and a reminder that is not stored."""
        self.injections.remind(LIMIT_REMINDER)
        response, _ = await llm.ask({})
        await self.context.add_message(assistant_message(response, ()))
        return _Ended(text_of(response), status="incomplete")

    def _choose_llm(self) -> Llm:
        settings = self.loop.settings
        name, provider = choose_provider(
            self._providers, settings.default_provider, self._options.get("provider")
        )
        return Llm(
            name, provider, self.context, self.hooks, thinking=settings.extended_thinking, note=self._note
        )

    async def _finish(self, ended: _Ended) -> None:
        try:
            if ended.execution == "completed" or ended.answer:
                await self.hooks.emit(PROMPT_COMPLETE, lambda: self._completion(ended.answer))
            turns = self.llm.iterations if self.llm else 0
            await self.hooks.emit(
                ORCHESTRATOR_COMPLETE,
                {
                    "orchestrator": self.loop.name,
                    "turn_count": turns,
                    "iterations": turns,
                    "tokens": self.llm.tokens if self.llm else 0,
                    "status": ended.status,
                },
            )
        finally:
            response = ended.answer if ended.execution == "completed" else ""
            await self.hooks.emit(EXECUTION_END, {"response": response, "status": ended.execution})

    def _completion(self, answer: str) -> dict[str, Any]:
        return {
            "prompt": self.prompt,
            "response": answer,
            "response_preview": answer[:_PREVIEW],
            "length": len(answer),
        }
