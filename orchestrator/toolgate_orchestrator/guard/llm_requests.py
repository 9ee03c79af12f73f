"""A program's requests to LLMs: ruled on before they are sent, and reported when they are answered."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from toolgate_bus.protocol.fact_events import USAGE
from toolgate_bus.protocol.llm import LLM_REQUEST, available, schema_of_request

from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.guard.answer import AskHow
from toolgate_orchestrator.guard.callers import Callers, current_turn
from toolgate_orchestrator.guard.reports import Cost, money_text
from toolgate_orchestrator.guard.ruling import Decider, Ruling

if TYPE_CHECKING:
    from toolgate_orchestrator.decision.round.decision_state import OnHold

_NEVER: Final[Mapping[str, Any]] = {"not": {}}
"""Schema for tools that are only listed: no call may name them."""


class LlmRequests(ABC):
    """The methods of a `Guard` for requests to LLMs."""

    _places: Callers

    async def rule_request(self, provider: str, model: str = "", **about: Any) -> Ruling:
        """Rule on a request to an LLM. Use `provider`, `model` and `max_output_tokens` of `ruling.arguments`.

        `about` may hold `input_tokens` (an estimate), `max_output_tokens`, `purpose`, and `models` (what
        could be asked instead: model by provider). It may also hold `at`, `id`, `iteration`, `can`, `answer`
        and `ask`, as for a `Call`. Report by `usage(…, ruling=)`, `ruling.fail` or `ruling.release`.
        """
        return await self._rule(*_request(provider, model, **about), None)

    def rule_request_sync(self, provider: str, model: str = "", **about: Any) -> Ruling:
        """Rule as `rule_request` does, for code that is not async."""
        return self._rule_sync(*_request(provider, model, **about), None)

    def usage(
        self,
        at: Caller | None = None,
        *,
        provider: str,
        model: str = "",
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost_usd: Cost | None = None,
        seconds: float = 0.0,
        iteration: int = 0,
        ruling: Ruling | None = None,
        **tokens: int,
    ) -> None:
        """Report that a request to an LLM was answered, and what it used.

        `at` is the caller (default: the turn or tool that runs here). `cost_usd` settles budgets; without it,
        tokens do. `seconds` is the time that it took, `iteration` its number in the turn. `ruling` is the
        ruling that let it through. `tokens` may be `cache_read_tokens`, `cache_write_tokens` and
        `reasoning_tokens`. Raises CostError for a cost that is no amount, ToolgateError for a tool's ruling.
        """
        told: dict[str, Any] = {
            "provider": provider,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
        }
        told |= {
            "total_tokens": input_tokens + output_tokens,
            "seconds": seconds,
            "iteration": iteration,
            **tokens,
        }
        told |= {"model": model} if model else {}
        told |= {"cost_usd": money_text(cost_usd)} if cost_usd is not None else {}
        if (turn := current_turn()) is not None:
            turn.iterations += 1
        if ruling is not None:
            ruling.settle(told)
        else:
            self._now().reports.tell(USAGE, at or self._places.here(), told)

    @abstractmethod
    def _now(self, *, lend: bool = False) -> Decider: ...

    @abstractmethod
    async def _rule(self, call: Call, ask: AskHow, on_hold: "OnHold | None") -> Ruling: ...

    @abstractmethod
    def _rule_sync(self, call: Call, ask: AskHow, on_hold: "OnHold | None") -> Ruling: ...


def _request(
    provider: str,
    model: str,
    *,
    input_tokens: int = 0,
    max_output_tokens: int | None = None,
    purpose: str = "answer",
    models: Mapping[str, str | None] | None = None,
    ask: AskHow = None,
    **call: Any,
) -> tuple[Call, AskHow]:
    asked = {
        "provider": provider,
        "model": model,
        "input_tokens": input_tokens,
        "max_output_tokens": max_output_tokens,
        "purpose": purpose,
    }
    models = models or {provider: model or None}
    tools = {LLM_REQUEST: schema_of_request(list(models)), **dict.fromkeys(available(models), _NEVER)}
    call["id"] = call.get("id") or f"llm-{uuid.uuid4().hex}"
    return Call(LLM_REQUEST, asked, tools, is_request=True, **call), ask
