"""In which order a call and its equivalents are to be preferred.

    score = cost_weight x cost / dearest + latency_weight x latency / slowest        (lower is better)

over the candidates of one call: the dearest counts 1 for cost, the slowest 1 for latency, so that
neither the currency nor the unit of time matters, only how the candidates compare. Where all of them
cost nothing, or take no time, that part is 0 for all.

With a weight above 0 the score decides, also while there is money: the best comes first, and of equals
the LLM's own choice. With both weights 0 the LLM's own choice comes first, and the others, for when it
is not affordable, from the cheapest to the dearest.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from toolgate_schedulers.shipped.cost_aware.estimates import Estimate

__all__ = ["Candidate", "preferred", "scores"]


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

    @property
    def name(self) -> str:
        """What it is called, unlike all other candidates of its call."""
        return self.tool if self.agent is None else f"{self.tool} to {self.agent}"


def scores(candidates: Sequence[Candidate], cost_weight: float, latency_weight: float) -> list[float]:
    """The score of each, from 0 to the sum of the weights."""
    dearest = max((one.estimate.cost for one in candidates), default=0)
    slowest = max((one.estimate.latency_s for one in candidates), default=0.0)
    return [
        cost_weight * _part(one.estimate.cost, dearest)
        + latency_weight * _part(one.estimate.latency_s, slowest)
        for one in candidates
    ]


def preferred(candidates: Sequence[Candidate], cost_weight: float, latency_weight: float) -> list[Candidate]:
    """The candidates, best first."""
    if not (cost_weight or latency_weight):
        return sorted(candidates, key=lambda one: (not one.own, one.estimate.most))
    rated = zip(scores(candidates, cost_weight, latency_weight), candidates, strict=True)
    return [one for _, one in sorted(rated, key=lambda pair: (pair[0], not pair[1].own))]


def _part(value: float, most: float) -> float:
    return value / most if most else 0.0
