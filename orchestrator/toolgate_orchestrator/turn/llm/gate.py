"""Asks the gate about a request to the LLM before it is sent: the call `llm:request`.

    request ─▶ who wants to see it? nobody ─▶ send
                      │ schedulers on the bus, a person
                      ▼
               gate.decide ─▶ send │ send to that provider and model │ LlmDenial: the turn ends

A question holds no words of the conversation. Hooks on tool:selecting are not asked, as they rule on tools; a
denial reaches them as policy:violation. The facts of the request (`usage`, `provider:error`) name the
decision, and settle what was let through.
"""

import json
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from amplifier_core import ChatRequest
from amplifier_core.events import POLICY_VIOLATION
from toolgate_bus.protocol.events import Decision
from toolgate_bus.protocol.llm import LLM_REQUEST, available, schema_of_request

from toolgate_orchestrator.calls.call_session import CallSession
from toolgate_orchestrator.calls.refusal import reason_of, refuse_request
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.turn.calls.decision_record import describe_decision
from toolgate_orchestrator.turn.calls.pipeline import HEARD_S
from toolgate_orchestrator.turn.cancellation import CancellationWatch
from toolgate_orchestrator.turn.facts import Note
from toolgate_orchestrator.turn.hooks.approvals import Approvals
from toolgate_orchestrator.turn.hooks.dispatch import Hooks
from toolgate_orchestrator.turn.hooks.hold_reports import HoldReporter
from toolgate_orchestrator.turn.llm.request_budget import CHARACTERS_PER_TOKEN, estimate_tokens
from toolgate_orchestrator.turn.values.jsonable import jsonable

ANSWER: Final = "answer"
WRAP_UP: Final = "wrap_up"
GOAL: Final = "goal"
_NEVER: Final[Mapping[str, Any]] = {"not": {}}
"""Schema for tools that are only listed: no call may name them."""


class LlmDenial(Exception):  # noqa: N818 - control flow inside the turn engine, caught by it
    """A scheduler, or a person, denied a request. The text is fit for the user."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(refuse_request(reason_of(decision)))
        self.decision = decision


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

    async def admit(
        self, target: LlmTarget, request: ChatRequest, iteration: int, purpose: str, tokens: int | None = None
    ) -> Admission | None:
        """Return the admission of a request; None if the session was cancelled meanwhile. Raise LlmDenial.

        `tokens` is the length of the request as its provider counts it.
        """
        asked: dict[str, Any] = {
            "provider": target.name,
            "model": target.model or self._model_of(target.provider) or "",
            "input_tokens": estimate_request(request) if tokens is None else tokens,
            "max_output_tokens": request.max_output_tokens or _output_limit(target.provider),
            "purpose": purpose,
        }
        call_id, decision = f"llm-{uuid.uuid4().hex}", None
        call = self._make_call(asked, call_id, iteration)
        with CancellationWatch(self._over()):
            decision = await self._session.decide(
                call, ask=self._approvals, on_hold=self._holds.report_for(call_id)
            )
        if decision is None:
            return None
        if not decision.allowed:
            await self._tell(decision, call_id)
            raise LlmDenial(decision)
        if self._stopping():
            self._session.give_back(call, decision)
            return None
        return Admission(decision.id, self._target(target, asked, decision.tool_input), asked["input_tokens"])

    def _make_call(self, asked: Mapping[str, Any], call_id: str, iteration: int) -> Call:
        listed = available({name: self._model_of(one) for name, one in self._providers.items()})
        tools = {LLM_REQUEST: schema_of_request(list(self._providers)), **dict.fromkeys(listed, _NEVER)}
        return Call(LLM_REQUEST, asked, tools, self._place, call_id, iteration=iteration, is_request=True)

    def _over(self) -> Callable[[], bool]:
        """Return a function that tells whether the wait for a ruling is over; a person may say no before."""
        since: list[float] = []

        def over() -> bool:
            if not self._stopping():
                since.clear()
                return False
            if not since:
                since.append(time.monotonic())
            return not self._approvals.open or time.monotonic() - since[0] >= HEARD_S

        return over

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
