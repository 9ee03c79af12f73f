"""One request to the LLM: built from the context, announced, ruled on, sent, its answer announced.

    provider:request ─▶ llm_gate ─▶ LLM ─▶ content_block:start, :delta, :end … ─▶ provider:response

Where schedulers rule on answers, or on what the user gets (`turn:output`), an answer is gathered and ruled on
before any of it is announced, and no part of one that broke off is used.

`Llm` is the provider of one turn; a scheduler may send one of its requests to another. If the loop wants a
stream and the provider has one, `Llm` reads it, else it asks for the whole answer. An exception of the
provider becomes provider:error and `LlmFailure`, which the loop handles. `Llm` stores nothing in the context.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from amplifier_core import ChatRequest, ToolSpec
from amplifier_core.events import PROVIDER_ERROR, PROVIDER_REQUEST, PROVIDER_RESPONSE
from amplifier_core.llm_errors import ContextLengthError
from pydantic import BaseModel
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.fact_events import USAGE
from toolgate_bus.transport.redis.tasks import is_cancel_requested

from toolgate_orchestrator.decision.results.given_result import CHANGED, withhold
from toolgate_orchestrator.turn.facts import Note, counts_of, seconds_since, span_of_request, tell_usage
from toolgate_orchestrator.turn.hooks.dispatch import Hooks
from toolgate_orchestrator.turn.hooks.injections import Overlay, ephemeral_note
from toolgate_orchestrator.turn.hooks.instructions import InstructedContext
from toolgate_orchestrator.turn.hooks.reminders import ReminderPolicy
from toolgate_orchestrator.turn.llm.gate import (
    ANSWER,
    Admission,
    AnswerWithheld,
    LlmDenial,
    LlmGate,
    LlmTarget,
)
from toolgate_orchestrator.turn.llm.pace import RequestPace
from toolgate_orchestrator.turn.llm.provider_stream import (
    ContentBlocks,
    OnCall,
    OnText,
    Reply,
    ResponseReader,
    usage_of,
)
from toolgate_orchestrator.turn.llm.request_budget import CHARACTERS_PER_TOKEN, Build, RequestFitter
from toolgate_orchestrator.turn.llm.ruled_answer import replace_text, send_answer, use_ruling
from toolgate_orchestrator.turn.llm.ruled_error import LlmFailure, rule_on_error
from toolgate_orchestrator.turn.loop_config import LoopConfig
from toolgate_orchestrator.turn.points import TURN_OUTPUT, PointGate
from toolgate_orchestrator.turn.values.messages import chat_request, text_of
from toolgate_orchestrator.turn.values.result_images import lift_images

REQUEST_RETENTION: Final = "context.request_retention"
"""Capability of a context: a function that keeps named reminders whole in a request's view."""
TURN_START: Final = "turn_start"
"""`phase` of provider:request if it is emitted before the user's prompt is stored."""
_UNRANKED = float("inf")
_UNKNOWN: Final = ChatRequest(messages=[])
"""A request that failed before it was made."""


class RequestDenial(Exception):  # noqa: N818 - control flow inside the turn engine, caught by it
    """A hook on provider:request refused the request."""


class Rulers(NamedTuple):
    """The gates of a turn that the LLM's requests and answers pass."""

    gate: LlmGate | None = None
    points: PointGate | None = None
    on_gather: Callable[[], None] = lambda: None
    """Called before an answer that is ruled on before it is shown."""


class Llm:
    """The provider that answers one turn, and its use so far."""

    def __init__(
        self,
        name: str,
        provider: Any,
        context: Any,
        hooks: Hooks,
        settings: LoopConfig,
        *,
        streams: bool = False,
        note: Note | None = None,
        on_text: OnText | None = None,
        stopping: Callable[[], bool] = lambda: False,
        rulers: "Rulers | None" = None,
    ) -> None:
        self._own = LlmTarget(name, provider)
        self._target = self._own
        """Target of the present request."""
        self._gate, self._points, self._on_gather = rulers or Rulers()
        self._decision = ""
        """Id of the decision on the present request; empty if no scheduler was asked."""
        self._admission: Admission | None = None
        """The present request as it was put to schedulers; None if nobody rules on it or its answer."""
        self._rules_on_answer = self._gathers = False
        """True if the present answer is ruled on; `_gathers`: or if its text is, before the user has it."""
        self.withheld = False
        """True if the text of the latest answer may not be given to the user."""
        self._sent: int | None = None
        """Estimated tokens of the admitted request that is being answered; None without one."""
        self.iterations = 0
        """Number of requests sent in this turn."""
        self.tokens = 0
        self.said = ""
        """Latest text of a whole response."""
        self.broken = False
        """True if the provider has failed; a text that it had begun is not continued."""
        self.stopped = False
        """True if the session was cancelled during an answer."""
        self._reading: ResponseReader | None = None
        """Reader of the response that is coming in, or that broke off; None otherwise."""
        self._context = context
        self._hooks = hooks
        self._options: dict[str, Any] = {"extended_thinking": True} if settings.extended_thinking else {}
        self._note, self._on_text, self._stopping = note, on_text, stopping
        self._spoken = self._apart = False
        self._streams, self._effort = streams, settings.reasoning_effort
        self._pace = RequestPace(settings.min_delay_between_calls_ms, hooks, stopping)
        self._reminders = ReminderPolicy(
            settings.ephemeral_injection_mode, settings.reminder_placement, settings.extended_thinking
        )
        self._overlay: Overlay | None = None
        """Additions to the present request that are not stored."""
        self._is_announced = False
        """True if hooks know of the first request already."""
        self._fitter = RequestFitter(provider, hooks, self._options)

    @property
    def name(self) -> str:
        """Mount name of the provider that answers."""
        return self._target.name

    @property
    def provider(self) -> Any:
        """The provider that answers."""
        return self._target.provider

    @property
    def model(self) -> str | None:
        """The model that answers; None if it is unknown."""
        return self._target.model or model_of(self._target.provider)

    @property
    def partial(self) -> str:
        """Text of a response that broke off. It was shown, and is not in the conversation."""
        return "" if self._gathers else self._begun

    @property
    def _begun(self) -> str:
        return self._reading.text if self._reading is not None else ""

    async def ask(
        self,
        specs: Sequence[ToolSpec],
        *,
        on_call: OnCall | None = None,
        notes: Sequence[Mapping[str, Any]] = (),
        tool_choice: str | None = None,
        purpose: str = ANSWER,
    ) -> Reply:
        """Return the response to the conversation. Raise LlmFailure, RequestDenial or LlmDenial.

        `notes` are messages for this request only. `on_call` gets each call as soon as it is complete; in a
        stream that is before the response ends.
        """
        self.iterations += 1
        self._target, self._decision, self._sent = self._own, "", None
        self._admission, self.withheld = None, False
        self._apart = self._spoken
        build = self._builder(*await self._announce(specs, notes), specs, tool_choice)
        started, failed = time.monotonic(), None
        try:
            fit = await self._fitter.fit(build)
            await self._pace.wait(self.iterations)
            request = await self._admit(fit, build, purpose)
            if request is None:
                self.stopped = True
                return Reply(SimpleNamespace(content=""), [], stopped=True)
            self._look_for_rulers(request, purpose)
            started = time.monotonic()
            with span_of_request(self.name, self.model, self.iterations) as span:
                reply = await self._answer(request, build, None if self._rules_on_answer else on_call)
                tell_usage(span, usage_of(reply.response))
        except LlmDenial:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a provider raises, its request has failed
            failed = error
        except asyncio.CancelledError:
            if self._sent is not None:
                told = {"partial": True, **self._guess_usage(self._begun)}
                self._fact(USAGE, told, seconds_since(started))
            raise
        if failed is not None:  # outside of the handler: no context bears what was hidden of it
            raise await self._fail(failed, purpose, started)
        self._pace.note_answer()
        response, usage = reply.response, usage_of(reply.response)
        total = (usage or {}).get("total_tokens")
        self.tokens += total if isinstance(total, int) else 0
        guess = {"partial": True, **self._guess_usage(text_of(response))} if reply.stopped else {}
        self._fact(USAGE, counts_of(usage) or guess, seconds_since(started))
        if self._gathers:
            reply = await self._release(reply)
            response, usage = reply.response, usage_of(reply.response)
        self.said = text_of(response) or self.said
        if not reply.stopped and self._overlay is not None:
            await self._reminders.keep(self._overlay, self._context, getattr(response, "content", None))
        await self._hooks.consult(
            PROVIDER_RESPONSE, lambda: self._describe_response(response, usage, bool(reply.calls))
        )
        return reply

    def _look_for_rulers(self, request: ChatRequest, purpose: str) -> None:
        """Find out whether anybody rules on the answer to a request."""
        gate, points = self._gate, self._points
        self._rules_on_answer = gate is not None and gate.rules_on_answers
        self._gathers = self._rules_on_answer or (points is not None and points.is_wanted(TURN_OUTPUT))
        if self._gathers:
            self._on_gather()
        if self._rules_on_answer and self._admission is None and gate is not None:
            tokens = self._fitter.estimated
            self._admission = gate.describe(self._target, request, self.iterations, purpose, tokens)

    async def _release(self, reply: Reply) -> Reply:
        """Return a gathered answer as it may be seen, and announce it. Raise LlmDenial if it is withheld."""
        if not reply.stopped:
            reply = await self._rule_on(reply)
        if reply.stopped or self._stopping():  # nobody saw any of it, and nobody waits for rulings
            self.stopped = True
            return Reply(SimpleNamespace(content=""), [], stopped=True)
        await self._make_blocks().announce(reply.response, reply.calls)
        return reply

    async def _rule_on(self, reply: Reply) -> Reply:
        if self._rules_on_answer and self._gate is not None and self._admission is not None:
            sent = send_answer(reply)
            given = await self._gate.give(self._admission, sent)
            if not given.changed and send_answer(reply) != sent:
                given = withhold("gate_failed", CHANGED)
            if given.outcome == "withheld" and not self._stopping():
                raise AnswerWithheld(given)
            reply = use_ruling(reply, sent, given) if given.changed else reply
        if self._points is not None:
            text = text_of(reply.response)
            ruled = await self._points.rule_on_output(text)
            self.withheld = ruled.denied is not None
            if ruled.text != text:
                reply = replace_text(reply, ruled.text, denied=self.withheld)
        return reply

    def _make_blocks(self, *, is_silent: bool = False) -> ContentBlocks:
        tell = self._tell if self._on_text is not None and not is_silent else None
        return ContentBlocks(self._hooks, self.name, self.iterations, tell, is_silent=is_silent)

    async def begin_turn(self, specs: Sequence[ToolSpec]) -> None:
        """Announce the first request before the user's prompt is stored, if reminders go before it.

        Raise RequestDenial.
        """
        if self._reminders.precedes_prompt(1) and not isinstance(self._context, InstructedContext):
            await self._prepare(specs, (), 1, {"phase": TURN_START})
            self._is_announced = True

    async def _announce(
        self, specs: Sequence[ToolSpec], notes: Sequence[Mapping[str, Any]]
    ) -> tuple[list[dict[str, Any]], Sequence[Mapping[str, Any]]]:
        """Return the messages of the next request, with the additions of hooks, and the notes that are not
        stored. Raise RequestDenial."""
        is_announced, self._is_announced = self._is_announced, False
        return await self._prepare(specs, notes, self.iterations, None if is_announced else {})

    async def _prepare(
        self,
        specs: Sequence[ToolSpec],
        notes: Sequence[Mapping[str, Any]],
        iteration: int,
        told: Mapping[str, Any] | None,
    ) -> tuple[list[dict[str, Any]], Sequence[Mapping[str, Any]]]:
        """Ask the hooks, unless `told` is None, and store what is to stay in the conversation."""
        if isinstance(self._context, InstructedContext):
            return await self._prepare_instructed(self._context, specs, notes), ()
        required = self._reminders.required if told is None else []  # those of the turn's start
        self._reminders.required = []
        messages, injections = await self._messages(), self._hooks.injections
        if told is not None:
            consulted = await self._hooks.consult(
                PROVIDER_REQUEST, lambda: {**self._describe_request(messages, specs, iteration), **told}
            )
            if consulted.denied is not None:
                raise RequestDenial(consulted.denied)
        if injections.has_pending:
            await injections.store(self._context, self._hooks.coordinator)
            messages = await self._messages()
        stays = self._reminders.must_stay(messages)
        changed = await self._reminders.persist(
            injections, self._context, messages, iteration, notes, stays=stays
        )
        self._reminders.required = [*required, *self._reminders.required]
        is_needed = changed or (self._reminders.required and self._retaining is not None)
        if is_needed and not (told and told.get("phase") == TURN_START):
            messages = await self._retained_messages()
        return messages, () if stays else notes

    async def _prepare_instructed(
        self, context: InstructedContext, specs: Sequence[ToolSpec], notes: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Ask the hooks within the scope of a request; what they inject is instructions of this request."""
        await context.begin_request(self.provider)
        messages, injections = list(await context.get_messages()), self._hooks.injections
        consulted = await self._hooks.consult(
            PROVIDER_REQUEST, lambda: self._describe_request(messages, specs, self.iterations)
        )
        if consulted.denied is not None:
            raise RequestDenial(consulted.denied)
        if injections.has_pending:
            await injections.store(context, self._hooks.coordinator)
        said = [(one.role, one.content) for one in injections.take_all()]
        context.stage([*said, *((note["role"], note["content"]) for note in notes)])
        return await self._messages()

    @property
    def _retaining(self) -> Callable[..., Awaitable[Any]] | None:
        """Capability of the context that keeps named reminders in a request's view; None without one."""
        look_up = getattr(self._hooks.coordinator, "get_capability", None)
        found = look_up(REQUEST_RETENTION) if callable(look_up) else None
        return found if callable(found) else None

    async def _retained_messages(self) -> list[dict[str, Any]]:
        try:
            return await self._messages()
        except ContextLengthError as error:
            failed = error
        raise await self._fail(failed, ANSWER, time.monotonic())

    def _builder(
        self,
        messages: list[dict[str, Any]],
        notes: Sequence[Mapping[str, Any]],
        specs: Sequence[ToolSpec],
        tool_choice: str | None,
    ) -> Build:
        """Return a function that makes requests. It keeps no copy of the conversation during the LLM's long
        answer."""
        overlay = self._overlay = self._hooks.injections.overlay(
            before_prompt=self._reminders.precedes_prompt(self.iterations),
            notes=list(map(ephemeral_note, notes)),
        )
        first = [messages]

        async def build(token_budget: int | None) -> ChatRequest:
            sent = first.pop() if first and token_budget is None else await self._messages(token_budget)
            shown = [*lift_images(overlay.lay_over(sent))]
            request = chat_request(shown, list(specs), tool_choice)
            request.reasoning_effort = self._effort
            return request

        return build

    async def _admit(self, request: ChatRequest, build: Build, purpose: str) -> ChatRequest | None:
        """Ask schedulers about the request; return the one to send, or None if the session was cancelled."""
        gate = self._gate
        if gate is None or not gate.is_wanted:
            return request
        own = self._own
        admission = await gate.admit(own, request, self.iterations, purpose, self._fitter.estimated)
        if admission is None:
            return None
        self._admission, self._decision, self._target = admission, admission.decision, admission.target
        if self.provider is not own.provider:
            request = await RequestFitter(self.provider, self._hooks, self._options).fit(build)
        self._sent = admission.input_tokens
        return request.model_copy(update=self._target.fields)

    def _guess_usage(self, said: str) -> dict[str, int]:
        """Return the estimated usage of an answer that broke off after this text."""
        if self._sent is None:
            return {}
        return {"input_tokens": self._sent, "output_tokens": len(said) // CHARACTERS_PER_TOKEN}

    async def _answer(self, request: ChatRequest, build: Build, on_call: OnCall | None) -> Reply:
        """Return the answer to a request, or to a shorter one if the first was refused as too long."""
        try:
            return await self._reply(request, on_call)
        except ContextLengthError as error:
            if self._reading is not None and self._reading.has_begun:
                raise
            failed = error
        shorter = await self._fitter.recover(failed, request, build)  # outside of the handler, as in `ask`
        self._pace.note_answer()
        await self._pace.wait(self.iterations)
        if shorter is None or self._stopping():
            raise failed
        return await self._reply(shorter, on_call)

    async def _reply(self, request: Any, on_call: OnCall | None) -> Reply:
        blocks = self._make_blocks(is_silent=self._gathers)
        self._reading = ResponseReader(self.provider, blocks, on_call, self._stopping)
        model = self._target.model
        options = {**self._options, "model": model} if model else self._options
        try:
            reply = await self._reading.read(request, options, stream=self._streams)
        except asyncio.CancelledError:
            if is_cancel_requested():
                raise
            raise RuntimeError("the provider cancelled its own request") from None
        self._reading = None
        self.stopped = reply.stopped
        return reply

    async def _tell(self, text: str) -> None:
        """Pass text on; a second response begins a new line."""
        if self._on_text is not None:
            await self._on_text(f"\n{text}" if self._apart else text)
        self._apart, self._spoken = False, True

    async def _messages(self, token_budget: int | None = None) -> list[dict[str, Any]]:
        asked: dict[str, Any] = {} if token_budget is None else {"token_budget": token_budget}
        required, retaining = self._reminders.required, self._retaining
        if required and retaining is not None:
            return list(await retaining(provider=self.provider, retain_contents=list(required), **asked))
        return list(await self._context.get_messages_for_request(provider=self.provider, **asked))

    def _describe_request(
        self, messages: list[dict[str, Any]], specs: Sequence[ToolSpec], iteration: int
    ) -> dict[str, Any]:
        return {
            "provider": self.name,
            "model": self.model,
            "iteration": iteration,
            "messages": messages,
            "message_count": len(messages),
            "tools": [spec.name for spec in specs],
        }

    def _fact(self, event: str, data: Mapping[str, Any], spent: Mapping[str, float]) -> None:
        if self._note is not None:
            model, decision = self.model, self._decision
            told = {**data, "provider": self.name, "iteration": self.iterations, **spent}
            told |= {"decision_id": decision, "estimated_tokens": self._sent} if decision else {}
            self._note(event, told | ({"model": model} if model else {}))

    def _describe_response(self, response: Any, usage: dict[str, Any] | None, calls: bool) -> dict[str, Any]:
        return {
            "provider": self.name,
            "model": self.model,
            "iteration": self.iterations,
            "response": response if isinstance(response, BaseModel) else {"content": text_of(response)},
            "usage": usage,
            "tool_calls": calls,
        }

    async def _fail(self, error: Exception, purpose: str, started: float) -> LlmFailure:
        """Rule on a provider's error, announce it, and return the failure for the loop."""
        self.broken = True
        begun = self._reading is not None and self._reading.has_begun
        used, spent = self._guess_usage(self._begun) if begun else {}, seconds_since(started)
        gate, points, asked = self._gate, self._points, self._admission
        if asked is None and gate is not None:
            asked = gate.describe(self._target, _UNKNOWN, self.iterations, purpose)
        ruled = await rule_on_error(
            error,
            lambda told: self._fact(PROVIDER_ERROR, used | told, spent),
            gate,
            asked,
            None if points is None else points.rule_on_output,
        )
        about = {"provider": self.name, "model": self.model, "iteration": self.iterations}
        await self._hooks.consult(PROVIDER_ERROR, {**about, **ruled.payload})
        return LlmFailure(ruled)


def choose_provider(
    providers: Mapping[str, Any],
    default: str | None = None,
    wanted: str | None = None,
    pinned: str | None = None,
) -> tuple[str, Any]:
    """Return the mount name and provider.

    The order is: the named one, the pinned one, the default, the lowest priority number, the first. Raise
    ConfigError that lists the mounted ones.
    """
    if not providers:
        raise ConfigError("no provider is mounted: add one under `providers:` in the mount plan")
    named = wanted or pinned or default
    if named:
        pin = "the pin (conversation.provider_pin; unpin() takes it off)"
        who = "the request" if wanted else pin if pinned else "default_provider"
        for name in (named, named.removeprefix("provider-")):
            if name in providers:
                return name, providers[name]
        raise ConfigError(
            f"{who} names provider {named!r}, which is not mounted; mounted: {', '.join(providers)}"
        )
    name = min(providers, key=lambda each: _priority(providers[each]))
    return name, providers[name]


def model_of(provider: Any) -> str | None:
    """Return the model that a provider would use; None if it does not tell."""
    for attribute in ("model", "default_model"):
        model = getattr(provider, attribute, None)
        if isinstance(model, str) and model:
            return model
    return None


def _priority(provider: Any) -> float:
    """Return a provider's priority, from its attribute, else from its config; infinity if neither is a
    number."""
    config = getattr(provider, "config", None)
    configured = config.get("priority") if isinstance(config, Mapping) else None
    for value in (getattr(provider, "priority", None), configured):
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return _UNRANKED
