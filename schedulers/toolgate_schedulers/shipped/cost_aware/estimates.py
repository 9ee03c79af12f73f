"""What tools and agents cost and how long they take: configured, and learned from what they tell.

Of each tool the last 31 costs and latencies are kept. What is *expected* of a call is their median;
what is *reserved* for it is the greater of the declared cost and the ninth decile of the costs told.
So a few outliers move neither, and a tool that has become dearer is soon reserved for at its new price.
A tool is known once it has told five values; until then the configuration holds. Of an agent it is the
same, but that what its work cost (`delegations`) is paid by the calls that it makes: nothing
is reserved for it; as much has to be left.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import CodecError
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

WINDOW: Final = 31
ENOUGH: Final = 5
MAX_TOOLS: Final = 256
MAX_RATIO: Final = 100_000
_US: Final = 1_000_000
_MAX_MICROSECONDS: Final = 86_400 * _US

_NUMBER: Final = re.compile(r"[0-9]{1,16}")

Values = tuple[int, ...]


class Estimate(NamedTuple):
    """What is to be expected of one call of a tool."""

    cost: int
    """Micro-units, as a rule."""
    reserve: int
    """Micro-units, at most: what is held for it."""
    latency_s: float
    """Seconds, as a rule."""
    beyond: int = 0
    """Micro-units, at most, that the agent asked will spend by calls of its own; not held, but to be left."""

    @property
    def most(self) -> int:
        """What must be left for it to run, in micro-units."""
        return min(self.reserve + self.beyond, MAX_AMOUNT)


def quantile(values: Values, share: float) -> int:
    """The smallest of the values that at least this share of them does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


@dataclass(slots=True)
class CostHistory:
    """What tools told, the newest last; costs in micro-units, latencies in microseconds."""

    costs: dict[str, Values] = field(default_factory=dict)
    latencies: dict[str, Values] = field(default_factory=dict)
    agent_costs: dict[str, Values] = field(default_factory=dict)
    agent_latencies: dict[str, Values] = field(default_factory=dict)
    answers: dict[str, Values] = field(default_factory=dict)
    """Tokens of a model's answers."""
    ratios: dict[str, Values] = field(default_factory=dict)
    """Tokens of requests to a model, by the thousand that were estimated."""

    def hear(self, fact: Mapping[str, Any]) -> bool:
        """Learn from a fact `tool:post` or `usage`; False if it teaches nothing. It may hold anything."""
        if fact.get("event") == "usage":
            return self._hear_usage(fact)
        tool = fact.get("tool")
        if fact.get("event") != "tool:post" or not isinstance(tool, str) or not 0 < len(tool) <= MAX_NAME:
            return False
        cost, us = fact.get("cost"), _microseconds(fact.get("seconds"))
        heard = False
        if is_amount(cost):
            heard = True
            _keep(self.costs, tool, cost)
        # A call that failed may have ended at once: that is not how long the tool takes.
        if us is not None and fact.get("success") is True:
            heard = True
            _keep(self.latencies, tool, us)
        return heard

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

    def record_delegation(self, agent: str, cost: int, seconds: float) -> None:
        """Learn what a delegation to an agent has cost, in micro-units, and how long it took."""
        us = _microseconds(seconds)
        if 0 < len(agent) <= MAX_NAME and 0 <= cost <= MAX_AMOUNT and us is not None:
            _keep(self.agent_costs, agent, cost)
            _keep(self.agent_latencies, agent, us)

    def to_bytes(self) -> bytes:
        """As bytes for the store."""
        kinds = {"costs": self.costs, "latencies": self.latencies}
        kinds |= {"agent_costs": self.agent_costs, "agent_latencies": self.agent_latencies}
        kinds |= {"answers": self.answers, "ratios": self.ratios}
        texts = {
            kind: {tool: " ".join(map(str, values)) for tool, values in of.items()}
            for kind, of in kinds.items()
        }
        return pack(texts)

    @classmethod
    def from_bytes(cls, raw: bytes | None) -> "CostHistory":
        """Out of the store; nothing out of what is none."""
        try:
            found = unpack(raw, MAX_VALUE) if raw else {}
        except CodecError:
            found = {}
        if not isinstance(found, dict):
            return cls()
        return cls(
            _values(found.get("costs"), MAX_AMOUNT),
            _values(found.get("latencies"), _MAX_MICROSECONDS),
            _values(found.get("agent_costs"), MAX_AMOUNT),
            _values(found.get("agent_latencies"), _MAX_MICROSECONDS),
            _values(found.get("answers"), MAX_TOKENS),
            _values(found.get("ratios"), MAX_RATIO),
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
    most = count_tokens(asked, "max_output_tokens") or config.max_output_tokens
    sent, usual = count_tokens(asked, "input_tokens"), most
    answers = learned.answers.get(model, ()) if learn else ()
    ratios = learned.ratios.get(model, ()) if learn else ()
    if len(answers) >= ENOUGH:
        usual, most = min(most, quantile(answers, 0.5)), min(most, quantile(answers, 0.9))
    if len(ratios) >= ENOUGH:
        sent = min(math.ceil(sent * quantile(ratios, 0.9) / 1000), MAX_TOKENS)
    dearest = max(price.input, price.cache_write or 0)
    reserve = min(-(-(sent * dearest + most * price.output) // UNIT), MAX_AMOUNT)
    cost = min(-(-(sent * price.input + usual * price.output) // UNIT), reserve)
    return Estimate(cost, reserve, 0.0)


def estimate_of_agent(
    config: CostAwareConfig, learned: CostHistory, tool: str, agent: str, given: int | None = None
) -> Estimate:
    """What to expect of a tool that delegates to an agent; `given` is what the work may cost at most."""
    own, price = estimate(config, learned, tool), config.agents.get(agent, Price())
    cost = beyond = price.cost or 0
    latency = own.latency_s if price.latency_s is None else price.latency_s
    if config.learn:
        costs, latencies = learned.agent_costs.get(agent, ()), learned.agent_latencies.get(agent, ())
        if len(costs) >= ENOUGH:
            cost, beyond = quantile(costs, 0.5), max(quantile(costs, 0.9), beyond)
        if len(latencies) >= ENOUGH:
            latency = quantile(latencies, 0.5) / _US
    if given is not None:
        cost, beyond = min(cost, given), min(beyond, given)
    return Estimate(own.cost + cost, own.reserve, latency, beyond)


def estimate(config: CostAwareConfig, learned: CostHistory, tool: str) -> Estimate:
    """What to expect of a tool; one in letters that mean the same costs the same."""
    if not tool.isascii() and tool not in config.tools:
        tool = globs.plain(tool)
    price = config.tools.get(tool, Price())
    declared = config.default.cost if price.cost is None else price.cost
    cost = reserve = declared or 0
    latency = config.default.latency_s if price.latency_s is None else price.latency_s
    if config.learn:
        costs, latencies = learned.costs.get(tool, ()), learned.latencies.get(tool, ())
        if len(costs) >= ENOUGH:
            cost, reserve = quantile(costs, 0.5), quantile(costs, 0.9)
            # What somebody wrote down for this tool is a promise to hold at least so much.
            reserve = max(reserve, price.cost or 0)
        if len(latencies) >= ENOUGH:
            latency = quantile(latencies, 0.5) / _US
    return Estimate(cost, reserve, latency or 0.0)


def _microseconds(seconds: Any) -> int | None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    return round(seconds * _US) if 0 <= seconds <= _MAX_MICROSECONDS / _US else None


def _keep(kept: dict[str, Values], tool: str, value: int) -> None:
    values = kept.pop(tool, ())  # popped, so that the tool that was silent for longest comes first
    kept[tool] = (*values, value)[-WINDOW:]
    if len(kept) > MAX_TOOLS:
        del kept[next(iter(kept))]


def _values(found: Any, most: int) -> dict[str, Values]:
    """The values of each tool, in a text of at most so many numbers; of any other text none."""
    read: dict[str, Values] = {}
    for tool, text in found.items() if isinstance(found, dict) else ():
        words = text.split(" ", WINDOW) if isinstance(text, str) and isinstance(tool, str) else []
        if words and all(_NUMBER.fullmatch(word) for word in words):
            values = tuple(map(int, words))
            if max(values) <= most:
                read[tool] = values
    return read


class Candidate(NamedTuple):
    """A call that could run."""

    tool: str
    arguments: dict[str, Any] | None
    """None keeps those of the call."""
    estimate: Estimate
    own: bool
    """Whether it is the call itself."""
    agent: str | None = None
    """Whom a delegation asks."""
    model: str | None = None
    """Of a request to an LLM, its provider and model."""

    @property
    def name(self) -> str:
        """What it is called to the LLM, unlike all other candidates of its call."""
        if self.model is not None:
            return f"a request to {self.model}"
        return self.tool if self.agent is None else f"{self.tool} to {self.agent}"

    @property
    def offer(self) -> str:
        """What the ledger knows it by, whose first word is the tool."""
        return self.name if self.model is None else f"{self.tool} to {self.model}"


def scores(candidates: Sequence[Candidate], cost_weight: float, latency_weight: float) -> list[float]:
    """The score of each, from 0 to the sum of the weights; lower is better.

    cost_weight x cost / dearest + latency_weight x latency / slowest: neither the currency nor the unit of
    time matters. Where all of them cost nothing, or take no time, that part is 0 for all.
    """
    dearest = max((one.estimate.cost for one in candidates), default=0)
    slowest = max((one.estimate.latency_s for one in candidates), default=0.0)
    return [
        cost_weight * _part(one.estimate.cost, dearest)
        + latency_weight * _part(one.estimate.latency_s, slowest)
        for one in candidates
    ]


def rank_candidates(
    candidates: Sequence[Candidate], cost_weight: float, latency_weight: float
) -> list[Candidate]:
    """The candidates, best first; of equals the LLM's own choice.

    With a weight above 0 the score decides, also while there is money. With both weights 0 the LLM's own
    choice comes first, and the others, for when it is not affordable, from the cheapest to the dearest.
    """
    if not (cost_weight or latency_weight):
        return sorted(candidates, key=lambda one: (not one.own, one.estimate.most))
    rated = zip(scores(candidates, cost_weight, latency_weight), candidates, strict=True)
    return [one for _, one in sorted(rated, key=lambda pair: (pair[0], not pair[1].own))]


def _part(value: float, most: float) -> float:
    return value / most if most else 0.0
