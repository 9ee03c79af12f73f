"""Estimate the cost of tools and agents, from the configuration and from earlier results.

The last 31 costs of each tool are kept. The *expected* cost of a call is their median. The *reserved* cost is
the declared cost or the ninth decile of the reported costs, whichever is greater. So a few outliers move
neither, and the reservation soon follows a tool that has become dearer. A tool is known after five reported
values; until then the configuration holds. The same is true for agents, except that an agent's own calls pay
for its work (`delegations`): nothing is reserved for it, but as much must be left.

How calls go, and how long they take, is remembered by `score.outcomes`.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.protocol.llm import LLM
from toolgate_bus.protocol.money import MAX_AMOUNT, UNIT, is_amount, micro
from toolgate_bus.protocol.names import MAX_NAME
from toolgate_bus.protocol.packing import pack, unpack
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.transport.ports import MAX_VALUE

from toolgate_schedulers.shipped.cost_aware.config import CostAwareConfig, Price
from toolgate_schedulers.shipped.cost_aware.llm_prices import (
    MAX_TOKENS,
    LlmConfig,
    count_tokens,
    name_of_model,
    price_of,
)
from toolgate_schedulers.shipped.score.outcomes import Outcomes, agent_key
from toolgate_schedulers.shipped.score.score import Option, Rating, rank_keys

WINDOW: Final = 31
ENOUGH: Final = 5
MAX_TOOLS: Final = 256
MAX_RATIO: Final = 100_000
_MAX_S: Final = 366 * 86_400
_NUMBER: Final = re.compile(r"[0-9]{1,16}")

Values = tuple[int, ...]


class Estimate(NamedTuple):
    """Estimate for one call of a tool."""

    cost: int
    """Usual cost in micro-units."""
    reserve: int
    """Highest cost in micro-units: this much is reserved."""
    latency_s: float
    """Declared latency in seconds; 0 if there is none."""
    beyond: int = 0
    """Highest cost of the asked agent's own calls, in micro-units: not reserved, but it must be left."""

    @property
    def most(self) -> int:
        """Money that must be left for it to run, in micro-units."""
        return min(self.reserve + self.beyond, MAX_AMOUNT)


def quantile(values: Values, share: float) -> int:
    """Return the smallest value that at least this share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


@dataclass(slots=True)
class CostHistory:
    """Reported costs in micro-units, numbers of tokens, and durations, the newest last."""

    costs: dict[str, Values] = field(default_factory=dict)
    agent_costs: dict[str, Values] = field(default_factory=dict)
    answers: dict[str, Values] = field(default_factory=dict)
    """Numbers of tokens of a model's answers."""
    ratios: dict[str, Values] = field(default_factory=dict)
    """Real tokens of requests to a model, per thousand estimated tokens."""
    durations: dict[str, Values] = field(default_factory=dict)
    """Durations of calls that succeeded, in microseconds: what budgets of seconds reserve."""

    def hear(self, fact: Mapping[str, Any]) -> bool:
        """Learn from a fact `tool:post` or `usage`; False if it teaches nothing. Facts may hold anything."""
        if fact.get("event") == "usage":
            return self._hear_usage(fact)
        tool = fact.get("tool")
        if fact.get("event") != "tool:post" or not isinstance(tool, str) or not 0 < len(tool) <= MAX_NAME:
            return False
        cost, us = fact.get("cost"), microseconds(fact.get("seconds"))
        if is_amount(cost):
            _keep(self.costs, tool, cost)
        # A call that failed may have ended at once: its duration says nothing about the tool.
        is_duration = us is not None and fact.get("success") is True
        if us is not None and is_duration:
            _keep(self.durations, tool, us)
        return is_amount(cost) or is_duration

    def _hear_usage(self, fact: Mapping[str, Any]) -> bool:
        model, cost = name_of_model(fact), micro(fact.get("cost_usd"))
        answer, sent, guess = (
            fact.get(name) for name in ("output_tokens", "input_tokens", "estimated_tokens")
        )
        if len(model) > MAX_NAME or fact.get("partial"):
            return False
        if cost is not None:
            _keep(self.costs, f"{LLM}{model}", cost)
        if type(answer) is int and 0 <= answer <= MAX_TOKENS:
            _keep(self.answers, model, answer)
        cached = [fact.get(name) for name in ("cache_read_tokens", "cache_write_tokens")]
        told = [count for count in (sent, *cached) if type(count) is int and 0 <= count <= MAX_TOKENS]
        if told and type(guess) is int and 0 < guess <= MAX_TOKENS:
            _keep(self.ratios, model, min(sum(told) * 1000 // guess, MAX_RATIO))
        return True

    def record_delegation(self, agent: str, cost: int) -> None:
        """Learn the cost of a delegation to an agent, in micro-units."""
        if 0 < len(agent) <= MAX_NAME and 0 <= cost <= MAX_AMOUNT:
            _keep(self.agent_costs, agent, cost)

    def to_bytes(self) -> bytes:
        """Encode for the store."""
        kinds = {"costs": self.costs, "agent_costs": self.agent_costs}
        kinds |= {"answers": self.answers, "ratios": self.ratios, "durations": self.durations}
        texts = {
            kind: {tool: " ".join(map(str, values)) for tool, values in of.items()}
            for kind, of in kinds.items()
        }
        return pack(texts)

    @classmethod
    def from_bytes(cls, raw: bytes | None) -> "CostHistory":
        """Decode from the store; bytes of another form give an empty history."""
        try:
            found = unpack(raw, MAX_VALUE) if raw else {}
        except CodecError:
            found = {}
        if not isinstance(found, dict):
            return cls()
        return cls(
            _values(found.get("costs"), MAX_AMOUNT),
            _values(found.get("agent_costs"), MAX_AMOUNT),
            _values(found.get("answers"), MAX_TOKENS),
            _values(found.get("ratios"), MAX_RATIO),
            _values(found.get("durations"), _MAX_S * UNIT),
        )


def estimate_of_request(
    config: LlmConfig, learned: CostHistory, asked: Mapping[str, Any], learn: bool = True
) -> Estimate:
    """Return the usual and the highest cost of a request to an LLM."""
    model = name_of_model(asked)
    price = price_of(config, model)
    if price is None:
        costs = learned.costs.get(f"{LLM}{model}", ()) if learn else ()
        known = len(costs) >= ENOUGH
        return Estimate(quantile(costs, 0.5), quantile(costs, 0.9), 0.0) if known else Estimate(0, 0, 0.0)
    sent, usual, most = tokens_of_request(config, learned, asked, learn)
    dearest = max(price.input, price.cache_write or 0)
    reserve = min(-(-(sent * dearest + most * price.output) // UNIT), MAX_AMOUNT)
    cost = min(-(-(sent * price.input + usual * price.output) // UNIT), reserve)
    return Estimate(cost, reserve, 0.0)


def microseconds(seconds: Any) -> int | None:
    """Return a duration that a fact tells in microseconds; None if it is malformed."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= _MAX_S:
        return None
    return round(seconds * UNIT)


def tokens_of_request(
    config: LlmConfig, learned: CostHistory, asked: Mapping[str, Any], learn: bool
) -> tuple[int, int, int]:
    """Return the tokens of a request, of its usual answer, and of its longest answer."""
    model = name_of_model(asked)
    most = count_tokens(asked, "max_output_tokens") or config.max_output_tokens
    sent, usual = count_tokens(asked, "input_tokens"), most
    answers = learned.answers.get(model, ()) if learn else ()
    ratios = learned.ratios.get(model, ()) if learn else ()
    if len(answers) >= ENOUGH:
        usual, most = min(most, quantile(answers, 0.5)), min(most, quantile(answers, 0.9))
    if len(ratios) >= ENOUGH:
        sent = min(math.ceil(sent * quantile(ratios, 0.9) / 1000), MAX_TOKENS)
    return sent, usual, most


def estimate_of_agent(
    config: CostAwareConfig, learned: CostHistory, tool: str, agent: str, given: int | None = None
) -> Estimate:
    """Estimate a tool that delegates to an agent; `given` is the most that the agent's work may cost."""
    own, price = estimate(config, learned, tool), config.agents.get(agent, Price())
    cost = beyond = price.cost or 0
    latency = own.latency_s if price.latency_s is None else price.latency_s
    if config.learn:
        costs = learned.agent_costs.get(agent, ())
        if len(costs) >= ENOUGH:
            cost, beyond = quantile(costs, 0.5), max(quantile(costs, 0.9), beyond)
    if given is not None:
        cost, beyond = min(cost, given), min(beyond, given)
    return Estimate(own.cost + cost, own.reserve, latency, beyond)


def estimate(config: CostAwareConfig, learned: CostHistory, tool: str) -> Estimate:
    """Estimate a tool; a name in letters that mean the same costs the same."""
    if not tool.isascii() and tool not in config.tools:
        tool = globs.plain(tool)
    price = config.tools.get(tool, Price())
    declared = config.default.cost if price.cost is None else price.cost
    cost = reserve = declared or 0
    latency = config.default.latency_s if price.latency_s is None else price.latency_s
    if config.learn:
        costs = learned.costs.get(tool, ())
        if len(costs) >= ENOUGH:
            cost, reserve = quantile(costs, 0.5), quantile(costs, 0.9)
            # A cost that is configured for this very tool is the least that is reserved.
            reserve = max(reserve, price.cost or 0)
    return Estimate(cost, reserve, latency or 0.0)


def _keep(kept: dict[str, Values], tool: str, value: int) -> None:
    values = kept.pop(tool, ())  # pop it, so that the least recent tool comes first
    kept[tool] = (*values, value)[-WINDOW:]
    if len(kept) > MAX_TOOLS:
        del kept[next(iter(kept))]


def _values(found: Any, most: int) -> dict[str, Values]:
    """Read the values of each tool from a text of at most `WINDOW` numbers; skip texts of any other form."""
    read: dict[str, Values] = {}
    for tool, text in found.items() if isinstance(found, dict) else ():
        words = text.split(" ", WINDOW) if isinstance(text, str) and isinstance(tool, str) else []
        if words and all(_NUMBER.fullmatch(word) for word in words):
            values = tuple(map(int, words))
            if max(values) <= most:
                read[tool] = values
    return read


class Candidate(NamedTuple):
    """Call that could run."""

    tool: str
    arguments: dict[str, Any] | None
    """Arguments; None keeps those of the call."""
    estimate: Estimate
    own: bool
    """True if it is the call itself."""
    agent: str | None = None
    """Agent that a delegation asks."""
    model: str | None = None
    """Provider and model of a request to an LLM."""
    rating: Rating | None = None
    """Rating among the call's candidates; None if nothing rates them."""

    @property
    def key(self) -> str:
        """Key of its outcomes."""
        if self.model is not None:
            return f"{LLM}{self.model}"
        return self.tool if self.agent is None else agent_key(self.agent)

    @property
    def name(self) -> str:
        """Name that the LLM is told; it differs from all other candidates of the call."""
        if self.model is not None:
            return f"a request to {self.model}"
        return self.tool if self.agent is None else f"{self.tool} to {self.agent}"

    @property
    def offer(self) -> str:
        """Name in the ledger; its first word is the tool."""
        return self.name if self.model is None else f"{self.tool} to {self.model}"


def rank_candidates(
    candidates: Sequence[Candidate],
    config: CostAwareConfig,
    outcomes: Outcomes | None = None,
    now: float = 0.0,
    call: ToolSelecting | None = None,
) -> list[Candidate]:
    """Return the candidates, best first; among near equals the LLM's own choice comes first.

    With a weight above 0 the score decides, even while there is money. With both weights 0 the LLM's own
    choice comes first; the others follow from the cheapest to the dearest, in case it is not affordable.
    """
    if not (config.cost_weight or config.latency_weight):
        return sorted(candidates, key=lambda one: (not one.own, one.estimate.most))
    if len(candidates) == 1:
        return list(candidates)
    options = [Option(one.key, one.estimate.cost, one.estimate.latency_s, one.own) for one in candidates]
    by_key = {one.key: one for one in candidates}
    ranked = rank_keys(options, outcomes, now, config.cost_weight, config.latency_weight, call)
    return [by_key[one.option.key]._replace(rating=one) for one in ranked]
