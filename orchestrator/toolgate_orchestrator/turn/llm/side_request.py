"""Requests to an LLM besides the conversation: no tools, nothing stored, nothing streamed to the user.

    host's model_role_resolver ─▶ configured preferences ─▶ the session's own provider

Hooks on provider:request get each request (iteration 0) and may refuse it; its cost becomes a fact like any
other. The first available choice of a model is kept for the whole run.
"""

import asyncio
import fnmatch
import logging
import re
import time
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from amplifier_core import ChatRequest, Message
from amplifier_core.events import PROVIDER_ERROR, PROVIDER_REQUEST
from toolgate_bus.protocol.fact_events import USAGE
from toolgate_bus.telemetry.logging import where
from toolgate_bus.transport.redis.tasks import is_cancel_requested

from toolgate_orchestrator.turn.facts import Note, counts_of, seconds_since
from toolgate_orchestrator.turn.goals.config import GoalPreference
from toolgate_orchestrator.turn.hooks.dispatch import Hooks
from toolgate_orchestrator.turn.llm.gate import GOAL, Admission, AnswerWithheld, LlmGate, LlmTarget
from toolgate_orchestrator.turn.llm.provider_stream import Reply, usage_of
from toolgate_orchestrator.turn.llm.request import choose_provider, model_of
from toolgate_orchestrator.turn.llm.ruled_answer import send_answer, use_ruling
from toolgate_orchestrator.turn.llm.ruled_error import RuleOnOutput, rule_on_error
from toolgate_orchestrator.turn.values.messages import text_of

logger = logging.getLogger(__name__)

MODEL_ROLE_RESOLVER: Final = "model_role_resolver"
"""Capability of a host that knows the model for each role."""
MAX_ANSWER_TOKENS: Final = 512

_DATE: Final = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8})$")
_DIGITS: Final = re.compile(r"(\d+)")


class SideModel(NamedTuple):
    """Provider and model that answer."""

    name: str
    provider: Any
    model: str | None = None
    """Name of the model; None means the provider's own."""
    options: Mapping[str, Any] = {}


class SideRequests:
    """The requests of one run; the first one chooses the model."""

    def __init__(
        self,
        coordinator: Any,
        providers: Mapping[str, Any],
        role: str,
        preferences: Sequence[GoalPreference],
        default_provider: str | None = None,
    ) -> None:
        self._coordinator, self._providers = coordinator, providers
        self._role, self._preferences, self._default = role, preferences, default_provider
        self._chosen: SideModel | None = None
        self._cause = ""
        """Reason that no model has the role."""

    async def ask(
        self,
        system: str,
        user: str,
        hooks: Hooks,
        note: Note,
        gate: LlmGate | None = None,
        rule_on_output: RuleOnOutput | None = None,
    ) -> str:
        """Return the answer's text. Raise the provider's errors as they may be seen, LlmDenial, or
        RuntimeError for a hook's refusal."""
        chosen = self._chosen = self._chosen or await self._choose()
        told = {"provider": chosen.name, "model": chosen.model or model_of(chosen.provider), "iteration": 0}
        consulted = await hooks.consult(PROVIDER_REQUEST, told)
        if consulted.denied is not None:
            raise RuntimeError(f"the request was denied by a hook: {consulted.denied}")
        request = ChatRequest(
            messages=[Message(role="system", content=system), Message(role="user", content=user)],
            model=chosen.model,
            metadata={"stream": False},
            max_output_tokens=MAX_ANSWER_TOKENS,
        )
        chosen, request, decision, asked = await self._admit(chosen, request, gate)
        model = chosen.model or model_of(chosen.provider)
        about = {"provider": chosen.name, "model": model, "iteration": 0}
        named = {key: value for key, value in {**about, **decision}.items() if value is not None}
        started, failed = time.monotonic(), None
        try:
            response = await self._complete(chosen, request)
        except Exception as error:  # noqa: BLE001 - whatever a provider raises, its request has failed
            failed = error
        if failed is not None:  # outside of the handler: no context bears what was hidden of it
            spent = seconds_since(started)

            def tell(told: dict[str, Any]) -> None:
                if decision:
                    note(PROVIDER_ERROR, {**told, **named, **spent})

            ruled = await rule_on_error(failed, tell, gate, asked, rule_on_output)
            await hooks.consult(PROVIDER_ERROR, {**about, **ruled.payload})
            raise ruled.error
        note(USAGE, {**counts_of(usage_of(response)), **named, **seconds_since(started)})
        text = text_of(response)
        return text if asked is None or gate is None else await _rule_on_answer(gate, asked, text)

    async def _admit(
        self, chosen: SideModel, request: ChatRequest, gate: LlmGate | None
    ) -> tuple[SideModel, ChatRequest, dict[str, str], Admission | None]:
        """Return the model that answers, the request to send, the fields of the decision if there is one, and
        the request as it was put to schedulers."""
        own = LlmTarget(chosen.name, chosen.provider, chosen.model)
        if gate is None or not gate.is_wanted:
            unasked = gate.describe(own, request, 0, GOAL) if gate and gate.rules_on_answers else None
            return chosen, request, {}, unasked
        admission = await gate.admit(own, request, 0, GOAL)
        if admission is None:
            raise RuntimeError("the session was cancelled")
        target = admission.target
        options = chosen.options if target.provider is chosen.provider else {}
        chosen = SideModel(target.name, target.provider, target.model, options)
        sent = request.model_copy(update={"model": target.model, **target.fields})
        return chosen, sent, {"decision_id": admission.decision}, admission

    async def _complete(self, chosen: SideModel, request: ChatRequest) -> Any:
        options = {**chosen.options, **({"model": chosen.model} if chosen.model else {})}
        options["extended_thinking"] = False
        try:
            return await chosen.provider.complete(request, **options)
        except asyncio.CancelledError:
            if is_cancel_requested():
                raise
            raise RuntimeError("the provider cancelled its own request") from None

    async def _choose(self) -> SideModel:
        try:
            found = await self._by_role()
        except Exception as error:  # noqa: BLE001 - a resolver of the host's may raise anything
            found, self._cause = None, f"{MODEL_ROLE_RESOLVER} failed: {where(error)}"
        found = found or await self._by_preference()
        if found is None:
            name, provider = choose_provider(self._providers, self._default)
            found = SideModel(name, provider)
            logger.warning(
                "role %s: %s; provider %s answers with its own model", self._role, self._cause, name
            )
        return found

    async def _by_role(self) -> SideModel | None:
        look_up = getattr(self._coordinator, "get_capability", None)
        resolver = look_up(MODEL_ROLE_RESOLVER) if callable(look_up) else None
        if resolver is None:
            self._cause = f"no {MODEL_ROLE_RESOLVER} capability is registered"
            return None
        resolved = await resolver.resolve(self._role)
        if not resolved:
            self._cause = f"{MODEL_ROLE_RESOLVER} resolved it to no candidates"
            return None
        mounted = _find(resolved[0].provider, self._providers)
        if mounted is None:
            self._cause = f"it is a model of {resolved[0].provider}, which is not mounted"
            return None
        return SideModel(*mounted, resolved[0].model, dict(resolved[0].config or {}))

    async def _by_preference(self) -> SideModel | None:
        for preference in self._preferences:
            mounted = _find(preference.provider, self._providers)
            if mounted is None:
                continue
            model: str | None = preference.model
            if any(mark in preference.model for mark in "*?["):
                model = await _newest(preference.model, mounted[1])
            if model is not None:
                return SideModel(*mounted, model, preference.config)
        return None


async def _rule_on_answer(gate: LlmGate, asked: Admission, text: str) -> str:
    """Return an answer's text as it may be seen. Raise LlmDenial if it is withheld."""
    if not gate.rules_on_answers:
        return text
    reply = Reply(SimpleNamespace(content=text), [])
    sent = send_answer(reply)
    given = await gate.give(asked, sent)
    if given.outcome == "withheld":
        raise AnswerWithheld(given)
    return text_of(use_ruling(reply, sent, given).response) if given.changed else text


def _find(wanted: str, providers: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Return a mounted provider by its name with or without `provider-`; None if there is none."""
    bare = str(wanted).removeprefix("provider-")
    return next(
        ((name, one) for name, one in providers.items() if name.removeprefix("provider-") == bare), None
    )


async def _newest(pattern: str, provider: Any) -> str | None:
    """Return the newest model of a pattern that a provider lists; None if there is none or it cannot list."""
    try:
        listed = await provider.list_models()
    except Exception as error:  # noqa: BLE001 - the provider's error; the next preference may work
        logger.info("models for %s could not be listed: %s", pattern, where(error))
        return None
    names = [each if isinstance(each, str) else str(getattr(each, "id", each)) for each in listed]
    return max(
        (name for name in names if fnmatch.fnmatch(name.lower(), pattern.lower())), key=_age, default=None
    )


def _age(name: str) -> tuple[list[tuple[int, int, str]], int]:
    """Return a sort key by version: 4-10 comes after 4-7, and an alias after its own dated snapshots."""
    parts = _DIGITS.split(_DATE.sub("", name))
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts], -len(name)
