"""One request to the LLM: built from the context, announced, ruled on, sent, its answer announced.

    provider:request ─▶ llm_gate ─▶ LLM ─▶ content_block:start, :delta, :end … ─▶ provider:response

`Llm` is the provider of one turn; a scheduler may send one of its requests to another. If the loop wants a
stream and the provider has one, `Llm` reads it, else it asks for the whole answer. An exception of the
provider becomes provider:error and `LlmFailure`, which the loop handles. `Llm` stores nothing in the context.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from amplifier_core import ChatRequest, ToolSpec
from amplifier_core.events import PROVIDER_ERROR, PROVIDER_REQUEST, PROVIDER_RESPONSE
from amplifier_core.llm_errors import ContextLengthError
from pydantic import BaseModel
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.fact_events import USAGE
from toolgate_bus.transport.redis.tasks import is_cancel_requested

from toolgate_orchestrator.turn.facts import Note, seconds_since, span_of_request, tell_usage
from toolgate_orchestrator.turn.hooks.dispatch import Hooks
from toolgate_orchestrator.turn.hooks.injections import ephemeral_message
from toolgate_orchestrator.turn.hooks.reminders import ReminderPolicy
from toolgate_orchestrator.turn.llm.gate import ANSWER, LlmDenial, LlmGate, LlmTarget
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
from toolgate_orchestrator.turn.loop_config import LoopConfig
from toolgate_orchestrator.turn.values.messages import chat_request, text_of
from toolgate_orchestrator.turn.values.result_images import lift_images
from toolgate_orchestrator.turn.values.tool_signals import signals_of

_UNRANKED = float("inf")


class LlmFailure(Exception):  # noqa: N818 - control flow inside the turn engine, caught by it
    """The provider could not answer; the text is fit for the user."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"The language model could not answer: {type(error).__name__}: {error}")
        self.error = error


class RequestDenial(Exception):  # noqa: N818 - as above
    """A hook on provider:request refused the request."""


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
        gate: LlmGate | None = None,
    ) -> None:
        self._own = LlmTarget(name, provider)
        self._target = self._own
        """Target of the present request."""
        self._gate = gate
        self._decision = ""
        """Id of the decision on the present request; empty if no scheduler was asked."""
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
        self._reminders = ReminderPolicy(settings.ephemeral_injection_mode, settings.reminder_placement)
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
        self._apart = self._spoken
        build = self._builder(await self._announce(specs), specs, notes, tool_choice)
        started = time.monotonic()
        try:
            fit = await self._fitter.fit(build)
            await self._pace.wait(self.iterations)
            request = await self._admit(fit, build, purpose)
            if request is None:
                self.stopped = True
                return Reply(SimpleNamespace(content=""), [], stopped=True)
            started = time.monotonic()
            with span_of_request(self.name, self.model, self.iterations) as span:
                reply = await self._answer(request, build, on_call)
                tell_usage(span, usage_of(reply.response))
        except LlmDenial:
            raise
        except Exception as error:
            self.broken = True
            begun = self._reading is not None and self._reading.has_begun
            used = self._guess_usage(self.partial) if begun else {}
            told = {"error": type(error).__name__, **used, **signals_of(error)}
            self._fact(PROVIDER_ERROR, told, started)
            await self._on_error(error)
            raise LlmFailure(error) from error
        except asyncio.CancelledError:
            if self._sent is not None:
                self._fact(USAGE, {"partial": True, **self._guess_usage(self.partial)}, started)
            raise
        self._pace.note_answer()
        response, usage = reply.response, usage_of(reply.response)
        total = (usage or {}).get("total_tokens")
        self.tokens += total if isinstance(total, int) else 0
        self.said = text_of(response) or self.said
        guess = {"partial": True, **self._guess_usage(text_of(response))} if reply.stopped else {}
        self._fact(USAGE, usage or guess, started)
        await self._hooks.consult(
            PROVIDER_RESPONSE, lambda: self._describe_response(response, usage, bool(reply.calls))
        )
        return reply

    async def _announce(self, specs: Sequence[ToolSpec]) -> list[dict[str, Any]]:
        """Return the messages of the next request, with the additions of hooks. Raise RequestDenial."""
        messages = await self._messages()
        consulted = await self._hooks.consult(
            PROVIDER_REQUEST, lambda: self._describe_request(messages, specs)
        )
        if consulted.denied is not None:
            raise RequestDenial(consulted.denied)
        injections = self._hooks.injections
        if injections.has_pending:
            await injections.store(self._context, self._hooks.coordinator)
            messages = await self._messages()
        if await self._reminders.persist(injections, self._context, messages, self.iterations):
            messages = await self._messages()
        return messages

    def _builder(
        self,
        messages: list[dict[str, Any]],
        specs: Sequence[ToolSpec],
        notes: Sequence[Mapping[str, Any]],
        tool_choice: str | None,
    ) -> Build:
        """Return a function that makes requests. It keeps no copy of the conversation during the LLM's long
        answer."""
        last = [ephemeral_message(note["role"], note["content"]) for note in notes]
        overlay = self._hooks.injections.overlay(
            before_prompt=self._reminders.precedes_prompt(self.iterations)
        )
        first = [messages]

        async def build(token_budget: int | None) -> ChatRequest:
            sent = first.pop() if first and token_budget is None else await self._messages(token_budget)
            shown = [*lift_images([*overlay(sent), *last])]
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
        self._decision, self._target = admission.decision, admission.target
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
            shorter = await self._fitter.recover(error, request, build)
            self._pace.note_answer()
            await self._pace.wait(self.iterations)
            if shorter is None or self._stopping():
                raise
            return await self._reply(shorter, on_call)

    async def _reply(self, request: Any, on_call: OnCall | None) -> Reply:
        tell = self._tell if self._on_text is not None else None
        blocks = ContentBlocks(self._hooks, self.name, self.iterations, tell)
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
        asked = {} if token_budget is None else {"token_budget": token_budget}
        return list(await self._context.get_messages_for_request(provider=self.provider, **asked))

    def _describe_request(self, messages: list[dict[str, Any]], specs: Sequence[ToolSpec]) -> dict[str, Any]:
        return {
            "provider": self.name,
            "model": self.model,
            "iteration": self.iterations,
            "messages": messages,
            "message_count": len(messages),
            "tools": [spec.name for spec in specs],
        }

    def _fact(self, event: str, data: Mapping[str, Any], started: float) -> None:
        if self._note is not None:
            model, decision = self.model, self._decision
            told = {**data, "provider": self.name, "iteration": self.iterations, **seconds_since(started)}
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

    async def _on_error(self, error: Exception) -> None:
        retryable = getattr(error, "retryable", False)
        await self._hooks.consult(
            PROVIDER_ERROR,
            {
                "provider": self.name,
                "model": self.model,
                "iteration": self.iterations,
                "error": {"type": type(error).__name__, "msg": str(error)},
                "retryable": retryable is True,
                "status_code": getattr(error, "status_code", None),
            },
        )


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
