"""Asks the gate about a request to the LLM before it is sent, and about its answer: the call `llm:request`.

    request ─▶ who wants to see it? nobody ─▶ send
                      │ schedulers on the bus, a person
                      ▼
               gate.decide ─▶ send │ send to that provider and model │ LlmDenial: the turn ends

A question holds no words of the conversation; one about an answer holds its text and its calls. Hooks on
tool:selecting are not asked, as they rule on tools; a denial reaches them as policy:violation. The facts of
the request (`usage`, `provider:error`) name the decision, and settle what was let through.
"""

import json
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from amplifier_core import ChatRequest
from amplifier_core.events import POLICY_VIOLATION
from toolgate_bus.protocol.events import Decision
from toolgate_bus.protocol.llm import LLM_REQUEST, available, schema_of_request
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.calls.call_session import CallSession
from toolgate_orchestrator.calls.refusal import reason_of, refuse_request, withhold_answer
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.decision.results.given_result import GivenResult, withhold
from toolgate_orchestrator.turn.calls.decision_record import describe_decision
from toolgate_orchestrator.turn.calls.pipeline import NOT_RULED
from toolgate_orchestrator.turn.cancellation import CancellationWatch
from toolgate_orchestrator.turn.facts import Note
from toolgate_orchestrator.turn.hooks.approvals import Approvals
from toolgate_orchestrator.turn.hooks.dispatch import Hooks
from toolgate_orchestrator.turn.hooks.hold_reports import HoldReporter
from toolgate_orchestrator.turn.llm.request_budget import CHARACTERS_PER_TOKEN, estimate_tokens
from toolgate_orchestrator.turn.points import wait_while
from toolgate_orchestrator.turn.values.jsonable import jsonable

logger = logging.getLogger(__name__)

ANSWER: Final = "answer"
WRAP_UP: Final = "wrap_up"
GOAL: Final = "goal"
_NEVER: Final[Mapping[str, Any]] = {"not": {}}
"""Schema for tools that are only listed: no call may name them."""


class LlmDenial(Exception):  # noqa: N818 - control flow inside the turn engine, caught by it
    """A scheduler, or a person, denied a request. The text is fit for the user."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(refuse_request(reason_of(decision)))


class AnswerWithheld(LlmDenial):
    """A scheduler, or a person, withheld an answer. The text is fit for the user."""

    def __init__(self, given: GivenResult) -> None:
        Exception.__init__(self, withhold_answer(given.reason or given.why))


class LlmTarget(NamedTuple):
    """The provider and model that are to answer a request."""

    name: str
    """Mount name of the provider."""
    provider: Any
    model: str | None = None
    """Name of the model; None: the provider's own."""
    max_output_tokens: int | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of the request that a scheduler has set."""
        wanted = {"model": self.model, "max_output_tokens": self.max_output_tokens}
        return {name: value for name, value in wanted.items() if value is not None}


class Admission(NamedTuple):
    """A request that may be sent."""

    decision: str
    """Id of the decision."""
    target: LlmTarget
    input_tokens: int
    """Estimated length of the request, in tokens."""
    call: Call
    """The request as it was put to schedulers."""
    ruling: Decision | None = None
    """Decision that let it through; None if nobody was asked."""


class LlmGate:
    """The questions of one turn about its requests. It needs a gate."""

    def __init__(
        self,
        gate: Gate,
        hooks: Hooks,
        providers: Mapping[str, Any],
        place: Caller,
        note: Note,
        model_of: Callable[[Any], str | None],
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._gate, self._hooks, self._providers, self._place = gate, hooks, providers, place
        self._session = CallSession(gate, note=note)
        self._model_of, self._stopping = model_of, stopping
        self._approvals = Approvals(hooks)
        self._holds = HoldReporter(hooks)

    @property
    def is_wanted(self) -> bool:
        """True if a scheduler rules on requests to an LLM."""
        return self._gate.wanted(LLM_REQUEST, is_request=True)

    @property
    def rules_on_answers(self) -> bool:
        """True if a scheduler rules on answers of an LLM."""
        return self._gate.rules_on_result(LLM_REQUEST)

    async def admit(
        self, target: LlmTarget, request: ChatRequest, iteration: int, purpose: str, tokens: int | None = None
    ) -> Admission | None:
        """Return the admission of a request; None if the session was cancelled meanwhile. Raise LlmDenial.

        `tokens` is the length of the request as its provider counts it.
        """
        unasked = self.describe(target, request, iteration, purpose, tokens)
        call, decision = unasked.call, None
        with CancellationWatch(wait_while(self._stopping, self._approvals)):
            decision = await self._session.decide(
                call, ask=self._approvals, on_hold=self._holds.report_for(call.id)
            )
        if decision is None:
            return None
        if not decision.allowed:
            await self._tell(decision, call.id)
            raise LlmDenial(decision)
        if self._stopping():
            self._session.give_back(call, decision)
            return None
        chosen = self._target(target, call.arguments, decision.tool_input)
        return unasked._replace(decision=decision.id, target=chosen, ruling=decision)

    def describe(
        self, target: LlmTarget, request: ChatRequest, iteration: int, purpose: str, tokens: int | None = None
    ) -> Admission:
        """Return the admission of a request that nobody is asked about; its answer may be ruled on."""
        asked: dict[str, Any] = {
            "provider": target.name,
            "model": target.model or self._model_of(target.provider) or "",
            "input_tokens": estimate_request(request) if tokens is None else tokens,
            "max_output_tokens": request.max_output_tokens or _output_limit(target.provider),
            "purpose": purpose,
        }
        call = self._make_call(asked, f"llm-{uuid.uuid4().hex}", iteration)
        return Admission("", target, asked["input_tokens"], call)

    async def give(self, admission: Admission, answer: Any, *, success: bool = True) -> GivenResult:
        """Return an answer, or an error, as it may be seen. A fault of the gate, or a cancellation, withholds
        it."""
        given: GivenResult | None = None
        try:
            with CancellationWatch(wait_while(self._stopping, self._approvals)):
                on_hold = self._holds.report_for(admission.call.id)
                given = await self._session.give(
                    admission.call,
                    admission.ruling,
                    answer,
                    success=success,
                    ask=self._approvals,
                    on_hold=on_hold,
                )
        except Exception as error:  # noqa: BLE001 - a fault of the gate must not show what it should rule on
            logger.error("the gate failed on an answer of the language model: %s", where(error))
            return withhold("gate_failed", f"it could not be ruled on: {type(error).__name__}.")
        return given or withhold("gate_failed", NOT_RULED)

    def _make_call(self, asked: Mapping[str, Any], call_id: str, iteration: int) -> Call:
        listed = available({name: self._model_of(one) for name, one in self._providers.items()})
        tools = {LLM_REQUEST: schema_of_request(list(self._providers)), **dict.fromkeys(listed, _NEVER)}
        return Call(LLM_REQUEST, asked, tools, self._place, call_id, iteration=iteration, is_request=True)

    def _target(self, target: LlmTarget, asked: Mapping[str, Any], ruled: Mapping[str, Any]) -> LlmTarget:
        name, most = str(ruled.get("provider")), ruled.get("max_output_tokens")
        model = str(ruled.get("model") or "") or None
        return LlmTarget(
            name,
            self._providers.get(name, target.provider),
            target.model if name == target.name and model == (asked["model"] or None) else model,
            most if type(most) is int and most != asked["max_output_tokens"] else None,
        )

    async def _tell(self, decision: Decision, call_id: str) -> None:
        await self._hooks.emit(
            POLICY_VIOLATION,
            lambda: {
                "tool_name": LLM_REQUEST,
                "tool_input": decision.original_input,
                "tool_call_id": call_id,
                **describe_decision(decision),
            },
        )


def estimate_request(request: ChatRequest) -> int:
    """Return roughly how many tokens a request takes: its messages, and the tools that it offers."""
    tools = sum(len(json.dumps(jsonable(one.model_dump(exclude_none=True)))) for one in request.tools or ())
    return estimate_tokens(request) + tools // CHARACTERS_PER_TOKEN


def _output_limit(provider: Any) -> int | None:
    """Return the longest answer that a provider is set to give, in tokens; None if it does not say."""
    try:
        defaults = provider.get_info().defaults or {}
    except Exception:  # noqa: BLE001 - the provider's fault: then the limit is unknown
        return None
    told = (defaults.get(name) for name in ("max_output_tokens", "max_tokens"))
    return next((most for most in told if type(most) is int and most > 0), None)
