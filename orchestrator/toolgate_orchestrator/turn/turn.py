"""One turn of any loop, from the user's prompt to the answer.

    execution:start ─▶ prompt:submit ─▶ ┌ provider:request ─▶ LLM ─▶ provider:response ┐
                                        └──── results stored ◀── the loop's run_calls ◀┘
                     ─▶ prompt:complete ─▶ orchestrator:complete ─▶ execution:end

The loops differ in one step, a request and its calls (`LoopBase.step`), and in the handling of a provider's
error. All the rest is here, or in its parts: `hooks.dispatch`, `llm.request`, `calls.pipeline` (one call),
`values.results` (one result for each call).

On every way out, execution:end and orchestrator:complete are emitted once, and no call is left without a
result.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from amplifier_core import ToolSpec
from amplifier_core.events import (
    EXECUTION_END,
    EXECUTION_START,
    ORCHESTRATOR_COMPLETE,
    PROMPT_SUBMIT,
)
from toolgate_bus.protocol.agents import LiveAgent
from toolgate_bus.telemetry import tracing
from toolgate_bus.telemetry.logging import about

from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.live_session import LiveSession
from toolgate_orchestrator.decision.link.pauses import describe_stop
from toolgate_orchestrator.turn.calls.pipeline import NOT_RUN, CallPipeline, CallResult
from toolgate_orchestrator.turn.calls.selection import Selection
from toolgate_orchestrator.turn.calls.tool_call import CallRefusal, ToolCalls
from toolgate_orchestrator.turn.cancellation import CancellationWatch, despite_cancellation
from toolgate_orchestrator.turn.facts import FactWriter, Note, span_of_turn
from toolgate_orchestrator.turn.goals.pursuit import NO_GOAL, GoalPursuit
from toolgate_orchestrator.turn.hooks.completion import describe_answer
from toolgate_orchestrator.turn.hooks.dispatch import Hooks
from toolgate_orchestrator.turn.hooks.injections import Injections
from toolgate_orchestrator.turn.hooks.instructions import store_words
from toolgate_orchestrator.turn.leg_budget import LIMIT_REMINDER, LegBudget
from toolgate_orchestrator.turn.llm.gate import WRAP_UP, LlmDenial, LlmGate
from toolgate_orchestrator.turn.llm.pace import slow_down
from toolgate_orchestrator.turn.llm.provider_stream import OnText
from toolgate_orchestrator.turn.llm.request import (
    Llm,
    RequestDenial,
    Rulers,
    choose_provider,
    model_of,
)
from toolgate_orchestrator.turn.llm.ruled_error import LlmFailure
from toolgate_orchestrator.turn.points import PointGate, PointRuling
from toolgate_orchestrator.turn.session_tree import place_of
from toolgate_orchestrator.turn.turn_end import (
    CANCELLED,
    CANCELLED_TURN,
    FAILED,
    TurnEnd,
    announce_cancellation,
    close_conversation,
)
from toolgate_orchestrator.turn.values.messages import (
    ToolCall,
    assistant_message,
    calls_in,
    text_of,
    tool_specs,
)
from toolgate_orchestrator.turn.values.results import Results

if TYPE_CHECKING:
    from toolgate_orchestrator.turn.loop import LoopBase
import inspect
import logging
from typing import Final

from toolgate_bus.errors import ToolgateError

logger = logging.getLogger(__name__)

CHECKPOINT: Final = "session.durable_checkpoint"
"""Capability of the host: a function without arguments, synchronous or not."""


class CheckpointFailure(ToolgateError, RuntimeError):  # noqa: N818 - named by what happened
    """The host could not save the conversation; the turn ends before another request."""


async def save_checkpoint(coordinator: Any) -> None:
    """Have the host save the conversation, if it can. Raise CheckpointFailure."""
    look_up = getattr(coordinator, "get_capability", None)
    save = look_up(CHECKPOINT) if callable(look_up) else None
    if save is None:
        return
    try:
        if not callable(save):
            raise TypeError(f"{CHECKPOINT} is not a function")
        done = save()
        if inspect.isawaitable(done):
            done = await done
        if done is False:
            raise RuntimeError("the host reported that it did not save")
    except Exception as error:
        raise CheckpointFailure(f"Durable session checkpoint failed: {error}") from error


RunCalls = Callable[["Turn", Sequence[ToolCall], Results], Awaitable[None]]
"""Runs the calls of one response, and gives each its result."""


class Turn:
    """One call of `execute`, from execution:start to execution:end. Run it once."""

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
        self.injections = Injections(loop.settings.ephemeral_injection_mode != "tail")
        self.hooks = Hooks(hooks, coordinator, self.injections)
        asking = loop.settings.toolgate
        # Operators do not see a loop that was not mounted.
        self._seen = loop.presence or LiveSession(LiveAgent(""), lambda now: None)
        self._facts = FactWriter(
            coordinator, asking.agent if asking is not None else "", tools, self._seen.add_cost
        )
        self.tools = ToolCalls(tools, self.hooks, self._facts.note, loop.posts_errors)
        self._open_gate = open_gate
        self._started, self._span = time.monotonic(), tracing.NO_SPAN
        self._pipeline: CallPipeline | None = None
        self._results = Results(context)
        self._prompted = False
        self._llm: Llm | None = None
        self._points: PointGate | None = None
        self._providers = providers
        self._options = request_options or {}
        self._on_text = slow_down(on_text, loop.settings.stream_delay)
        self._budget = LegBudget(
            loop.settings.max_iterations,
            loop.settings.budget_warn_ratio,
            is_delegated=bool(getattr(coordinator, "parent_id", None)),
        )
        self.pursuit: GoalPursuit | None = None
        """Pursuit of the goal that this turn serves; None without a goal."""
        self.user_request: str | None = None
        """The user's request, if the prompt is a judge's words; None: the prompt is the user's."""
        self._steered: list[str] = []
        self.tool_runs = 0
        """Number of calls that ran so far."""
        self._token = getattr(coordinator, "cancellation", None)

    @property
    def cancelled(self) -> bool:
        """True if the session, or an operator, asked this turn to end; running tools may finish first."""
        is_cancelled = self._token is not None and self._token.is_cancelled is True
        return is_cancelled or self._seen.stopped is not None

    @property
    def is_stopping(self) -> bool:
        """True if the turn must end after its running tools. An immediate end comes from outside."""
        return self.cancelled and self._token is not None and self._token.is_immediate is not True

    @property
    def asked(self) -> str:
        """What the user asked for, with their texts to the working agent."""
        began = self.prompt if self.user_request is None else self.user_request
        return "\n".join([began, *self._steered])

    @property
    def note(self) -> Note:
        """Function that records a fact about this turn."""
        return self._facts.note

    @property
    def llm(self) -> Llm:
        """The provider of this turn."""
        if self._llm is None:
            settings = self.loop.settings
            pinned = self.loop.pin.current() if self.loop.pin is not None else None
            name, provider = choose_provider(
                self._providers, settings.default_provider, self._options.get("provider"), pinned
            )
            self._llm = Llm(
                name,
                provider,
                self.context,
                self.hooks,
                settings,
                streams=self.loop.streams,
                note=self._facts.note,
                on_text=self._on_text,
                stopping=lambda: self.is_stopping,
                rulers=Rulers(self.llm_gate, self.points, self.loop.tell_gathering),
            )
        return self._llm

    @property
    def llm_gate(self) -> LlmGate | None:
        """Gate for requests to the LLM; None without a gate."""
        if (gate := self._facts.gate) is None:
            return None
        stopping = lambda: self.is_stopping  # noqa: E731
        return LlmGate(gate, self.hooks, self._providers, self._facts.place, self.note, model_of, stopping)

    @property
    def points(self) -> PointGate | None:
        """Gate for the points of this turn; None without a gate."""
        if self._points is None and (gate := self._facts.gate) is not None:
            stopping = lambda: self.is_stopping  # noqa: E731
            place, asked = self._facts.place, lambda: self.asked
            self._points = PointGate(gate, self.hooks, place, self.note, stopping, asked)
        return self._points

    # ------------------------------------------------------------------ what loops use

    async def select(self, call: ToolCall) -> ToolCall | CallRefusal:
        """Ask the schedulers about a call; return the call to run, or the refusal."""
        self._seen.start_decision(call.id, call.name)
        selected = await self._way.select(call)
        if isinstance(selected, CallRefusal):
            self._seen.count_denial(call.id)
        return selected

    async def run(self, selected: ToolCall | CallRefusal) -> CallResult:
        """Run a selected call. Raise nothing but a cancellation."""
        if isinstance(selected, ToolCall):
            self._seen.start_call(selected.id, selected.name, selected.arguments)
        decision = selected.decision if isinstance(selected, ToolCall) else None
        with about(decision=decision or None):
            ran = await self._way.run(selected)
        self._seen.end_call(ran.call.id)
        self.tool_runs += ran.refused is None
        return ran if ran.error is None or ran.refused is not None else self._note_failure(ran)

    def _note_failure(self, ran: CallResult) -> CallResult:
        """Return a failed call's result, with a note if it keeps failing in the same way."""
        kind, message = ran.error or ("", "")
        note = self.loop.failures.note(ran.call, (kind, message))
        if not note:
            return ran
        content: Any = ran.content
        blocks = [*content, {"type": "text", "text": note.strip()}] if isinstance(content, list) else None
        told = f"{content}{note}" if blocks is None else blocks
        return ran._replace(content=told, error=(kind, f"{message}{note}"))

    async def request(self, run_calls: "RunCalls") -> str | None:
        """Make one request and run its calls in the usual way: store the response, then run its calls."""
        reply = await self.llm.ask(await self.offer(tool_specs(self.tools.tools)))
        if reply.stopped:
            await self._store_partial(text_of(reply.response))
            return None
        # The calls of a response share one id.
        calls = calls_in(reply.calls, str(uuid.uuid4()), self.llm.iterations)
        message = assistant_message(reply.response, calls)
        if not calls:
            await self.context.add_message(message)
            return text_of(reply.response)
        async with self.collect_results(calls, message) as results:
            await run_calls(self, calls, results)
        return None

    async def offer(self, specs: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        """Return these tools without those of which a local table denies every call.

        If it denies every tool, all are offered: some servers insist on tools if the conversation has calls.
        """
        gate = self._facts.gate
        if gate is None:
            return specs
        denied = await gate.find_denied((one.name for one in specs), self._facts.place)
        return [one for one in specs if one.name not in denied] or specs

    @asynccontextmanager
    async def collect_results(
        self, calls: Sequence[ToolCall], message: dict[str, Any] | None = None
    ) -> AsyncIterator[Results]:
        """Collect the results of calls: each has one before anything else is stored.

        `message` is the response with these calls, which is stored first; None if it is stored already.
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
        await save_checkpoint(self.coordinator)

    async def rule_on_output(self, text: str) -> PointRuling:
        """Return a text that is no text of the LLM's, as it may be given to the user."""
        return PointRuling(text) if self.points is None else await self.points.rule_on_output(text)

    async def conclude(self, specs: Sequence[ToolSpec] = ()) -> str:
        """End a turn at its limit in the usual way: no tool may be called, and a reminder is sent but not
        stored.

        The tools are still sent (`specs`, if they were offered in another form). Some servers insist on them
        if the conversation has calls, and the prompt cache begins with them.
        """
        self.injections.remind(LIMIT_REMINDER)
        offered = await self.offer(specs or tool_specs(self.tools.tools))
        reply = await self.llm.ask(offered, tool_choice="none", purpose=WRAP_UP)
        if reply.stopped:
            await self._store_partial(text_of(reply.response))
        else:
            await self.context.add_message(assistant_message(reply.response, ()))
        return text_of(reply.response)

    # ------------------------------------------------------------------ from start to end

    async def execute(self) -> str:
        """Run the turn and return the answer. Raise errors that the loop does not report to the user."""
        place = self._facts.place
        span_of = span_of_turn(self._facts.agent, place, self.loop.name)
        token, ended = self._token, CANCELLED_TURN
        interruption = CancellationWatch(lambda: token is not None and token.is_immediate is True)
        with about(session=place.session), span_of as self._span, self._seen.turn():
            self._started = time.monotonic()
            self.loop.completion.begin_turn()
            if callable(reset := getattr(self.coordinator, "reset_turn", None)):
                reset()  # the kernel counts injections by turn, and the loop must tell when one begins
            try:
                cancelled_before = interruption.due()
                if cancelled_before:  # a turn that is cancelled before it begins still emits its start
                    await self.hooks.emit(EXECUTION_START, {"prompt": self.prompt})
                with interruption:
                    if not cancelled_before:
                        await self.hooks.emit(EXECUTION_START, {"prompt": self.prompt})
                    self._facts.gate = await self._open_gate()
                    ended = await self._converse()
                    await self._review(ended)
            except asyncio.CancelledError:
                if self.pursuit is not None:
                    await despite_cancellation(self.pursuit.announce(self.hooks))
                await despite_cancellation(self._finish(CANCELLED_TURN))
                raise
            except BaseException:
                await self._finish(TurnEnd("", "error", self.loop.error_status))
                raise
            await self._finish(CANCELLED_TURN if interruption.fired else ended)
            return ended.answer

    async def _review(self, ended: TurnEnd) -> None:
        """Have the goal's judge look at the turn. A provider's failure is not the goal's: it stays set."""
        if self.pursuit is None:
            return
        if ended.execution == "error":
            self.pursuit.leave()
            return
        is_answer = ended.execution == "completed" and self._llm is not None
        await self.pursuit.review(self, None if is_answer else ended.answer)
        await self.pursuit.announce(self.hooks)

    async def _converse(self) -> TurnEnd:
        if (stop := self._seen.stopped) is not None:  # the stop was ordered before this turn began
            return TurnEnd(f"Operation denied: {describe_stop(stop)}", "cancelled", "cancelled")
        if (refused := await self._start_session()) is not None:
            return self._deny(refused)
        submitted = await self.hooks.consult(PROMPT_SUBMIT, {"prompt": self.prompt})
        if submitted.denied is not None:
            return self._deny(submitted.denied)
        changed = submitted.data.get("prompt")
        prompt = changed if isinstance(changed, str) else self.prompt
        if self.points is not None:
            ruled = await self.points.rule_on_input(prompt)
            if ruled.denied is not None:
                self.prompt = ""
                return self._deny(ruled.denied)
            if ruled.text != prompt:
                self.prompt = prompt = ruled.text
        await self.injections.store(self.context, self.coordinator)
        try:
            if self.loop.settings.reminder_placement == "pre_user":
                await self.llm.begin_turn(tool_specs(self.tools.tools))
            self._prompted = True
            await store_words(self.context, prompt, is_prompt=True)
            return await self._iterate()
        except RequestDenial as denied:
            return TurnEnd(f"Operation denied: {denied}", status="incomplete")
        except LlmDenial as denied:
            return TurnEnd(str(denied), status="incomplete")
        except LlmFailure as failed:
            await self._store_partial(self.llm.partial)
            if self.loop.raises_provider_errors:
                raise failed.error from None
            return TurnEnd(str(failed), "error", self.loop.error_status)

    def _deny(self, reason: str) -> TurnEnd:
        """Return the end of a turn that may not begin."""
        return (
            CANCELLED_TURN if self.cancelled else TurnEnd(f"Operation denied: {reason}", status="incomplete")
        )

    async def _start_session(self) -> str | None:
        """Ask once whether this session may begin; return the reason why it may not."""
        loop, points = self.loop, self.points
        if points is None or loop.has_started:
            return loop.refused_start
        ruled = await points.start_session(list(self.tools.tools))
        loop.has_started = ruled.denied is None or ruled.stands
        loop.refused_start = ruled.denied if ruled.stands else None
        return ruled.denied

    async def _rule_on_steering(self, text: str) -> str | None:
        """Return a text of the user to the working agent, as it may be used; None if it may not."""
        ruled = PointRuling(text) if self.points is None else await self.points.rule_on_input(text)
        if ruled.denied is not None:
            logger.warning("a text to the working agent was denied: %s", ruled.denied)
            return None
        self._steered.append(ruled.text)
        return ruled.text

    async def _iterate(self) -> TurnEnd:
        llm, steering, said = self.llm, self.loop.steering, list[str]()
        try:
            while not self.cancelled:
                following = llm.iterations + 1
                rule = self._rule_on_steering
                await steering.inject(self.context, self.hooks, self.loop.name, following, rule)
                if llm.iterations == self._budget.limit:
                    status = self._budget.exhaust()
                    last = await self._wrap_up()
                    said += [last] if said[-1:] != [last] else []
                    return CANCELLED_TURN if llm.stopped else TurnEnd("\n".join(said), status=status)
                await self._budget.warn(self.context, self.hooks, self.loop.name, following)
                answer = await self.loop.step(self)
                if answer is not None:
                    said.append(answer)
                    if not steering.has_pending:
                        is_answered = any(said) and not llm.withheld
                        return TurnEnd("\n".join(said), status="success" if is_answered else "incomplete")
        except asyncio.CancelledError:
            await despite_cancellation(self._store_partial(llm.partial))
            raise
        return CANCELLED_TURN

    async def _wrap_up(self) -> str:
        """Return the answer of the last request; if that fails, the text so far."""
        try:
            return await self.loop.wrap_up(self)
        except LlmDenial as denied:
            return "\n".join(filter(None, [self.llm.said, str(denied)]))
        except LlmFailure as failed:
            answer = self.llm.partial or self.llm.said or str(failed)
            await self._store_partial(answer)
            return answer

    async def _store_partial(self, text: str) -> None:
        """Store text that was shown, also if the response broke off: it belongs to the conversation."""
        if text:
            await self.context.add_message(
                {"role": "assistant", "content": text, "metadata": {"incomplete": True}}
            )

    @property
    def _way(self) -> CallPipeline:
        """Pipeline of this turn's calls, made with the first one."""
        if self._pipeline is None:
            gate, note, config = self._facts.gate, self._facts.note, self.loop.settings.toolgate
            selection = None
            if gate is not None and config is not None:
                place = place_of(self.coordinator)
                selection = Selection(
                    self.hooks, self.tools.tools, gate, config, note, place, lambda: self.asked
                )
            self._pipeline = CallPipeline(
                selection, self.tools, note, lambda: self.cancelled, lambda: self.is_stopping
            )
        return self._pipeline

    async def _finish(self, ended: TurnEnd) -> None:
        """Report the end. A cancellation during a hook leaves none of the reports out."""
        try:
            if ended.status != "success":
                await despite_cancellation(self._leave(ended))
            if ended.execution == "completed" or ended.answer:
                await self.loop.completion.tell(
                    self.hooks, lambda: describe_answer(self.prompt, ended.answer)
                )
        finally:
            try:
                await self.hooks.emit(ORCHESTRATOR_COMPLETE, lambda: self._summary(ended))
            finally:
                self._tell(ended)
                response = ended.answer if ended.execution == "completed" else ""
                await self.hooks.emit(EXECUTION_END, {"response": response, "status": ended.execution})

    async def _leave(self, ended: TurnEnd) -> None:
        """Close a turn without an answer, so that the next turn finds the conversation in order."""
        try:
            if ended.execution == "cancelled":
                turns = self._llm.iterations if self._llm else 0
                await announce_cancellation(self.hooks, self._token, self.loop.name, turns)
        finally:
            if self._prompted:
                said = ended.answer or (CANCELLED if ended.execution == "cancelled" else FAILED)
                await close_conversation(self.context, said)

    def _tell(self, ended: TurnEnd) -> None:
        """Record the end of the turn, as a fact and on its span."""
        iterations = self._llm.iterations if self._llm else 0
        trace = tracing.headers().get("traceparent")
        self._facts.turn(self.loop.name, ended.execution, iterations, self._started, trace)
        self._span.set({"toolgate.status": ended.execution, "toolgate.iterations": iterations})
        if ended.execution == "error":
            self._span.fail("provider_error")  # a raised exception reports its own type

    def _summary(self, ended: TurnEnd) -> dict[str, Any]:
        turns = self._llm.iterations if self._llm else 0
        return {
            "orchestrator": self.loop.name,
            "turn_count": turns,
            "iterations": turns,
            "tokens": self._llm.tokens if self._llm else 0,
            "status": ended.status,
            **(NO_GOAL if self.pursuit is None else self.pursuit.describe_turn()),
            "metadata": self._budget.report(turns, resumable=ended.execution != "error"),
        }
