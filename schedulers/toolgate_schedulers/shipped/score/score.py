"""Rank alternatives by cost per success and time to success under today's load. Pure.

    score = (cost_weight x cost / dearest + latency_weight x seconds / slowest + failures) / chance of success

`cost` is the expected cost of one call, whether it succeeds or not. `seconds` is the usual duration with the
wait for a slot, or the time that the calls under way let expect, if that is longer. `dearest` and `slowest`
are the highest plain values among the alternatives, so neither the currency nor the unit of time matters. A
failed call costs the LLM a further request: it counts as much as a call of the dearest and slowest
alternative. A request to an LLM that failed is only sent again. With all of them sure and idle, the score is
the plain weighted sum of cost and latency.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.protocol.llm import LLM
from toolgate_bus.protocol.money import format_amount

from toolgate_schedulers.shipped.score.exploration import MARK
from toolgate_schedulers.shipped.score.outcomes import FAR_BELOW_PART, UNKNOWN, Outcomes, Performance
from toolgate_schedulers.shipped.score.sums import CROWD

RETRY: Final = 1.0
"""Cost of a failure, as a part of the dearest and slowest alternative: that of a request to an LLM."""
STAY: Final = 0.05
"""Part by which a score must be better for a call to leave its own choice: near equals do not flap."""
STICK: Final = 0.3
"""The same for a call to leave the place of those that it belongs together with, which may have a warm cache
there."""
PRIOR_CALLS: Final = 2.0
"""Number of calls that a declared duration counts for."""
AGES: Final = 1.5
"""Duration as a multiple of the mean age of the calls under way: twice that if all took the same time."""
_LEAST: Final = 0.01
"""Least chance of success that is reckoned with."""


class Option(NamedTuple):
    """Alternative for a call."""

    key: str
    """Key of its outcomes."""
    cost: float
    """Cost of a successful call in micro-units."""
    seconds: float
    """Declared duration; 0 if there is none."""
    own: bool
    """True if the call stays as it is."""
    performance: Performance = UNKNOWN


class Rating(NamedTuple):
    """Option with what is expected of it, and its score."""

    option: Option
    score: float
    """Score; the lowest is the best."""
    cost: float
    """Expected cost of one call in micro-units."""
    seconds: float
    """Expected duration of one call that begins now."""
    explored: bool = False
    """True if it comes first to learn more of it."""


def rate_options(options: Sequence[Option], cost_weight: float, latency_weight: float) -> list[Rating]:
    """Return the rating of each option, in the given order."""
    known = [plain for one in options if (plain := _plain_s(one)) > 0]
    dearest = max((one.cost for one in options), default=0.0)
    slowest, fastest = max(known, default=0.0), min(known, default=0.0)
    rated = []
    for one in options:
        chance = max(one.performance.success, _LEAST)
        failed = one.cost if one.performance.failure_cost is None else one.performance.failure_cost
        cost, seconds = chance * one.cost + (1 - chance) * failed, _expected_s(one, fastest)
        retry = 0.0 if one.key.startswith(LLM) else RETRY
        value = (
            cost_weight * _part(cost, dearest)
            + latency_weight * _part(seconds, slowest)
            + (cost_weight + latency_weight) * retry * (1 - chance)
        )
        rated.append(Rating(one, value / chance, cost, seconds))
    return rated


def rank_keys(
    given: Sequence[Option],
    outcomes: Outcomes | None,
    now: float,
    cost_weight: float,
    latency_weight: float,
    call: ToolSelecting | None = None,
) -> list[Rating]:
    """Return the ratings by what is known now, best first; eject what fails far more than the best one.

    `call` sticks to the place of those that it belongs together with, if that is configured.
    """

    def options(asked: ToolSelecting | None = None) -> list[Option]:
        if outcomes is None:
            return list(given)
        return [one._replace(performance=outcomes.performance(one.key, now, asked)) for one in given]

    found = options()  # all calls of an alternative say whether it is ejected
    failing = find_failing(found)
    if failing and outcomes is not None:
        best = max(one.performance.success for one in found)
        for one in found:
            if one.key in failing:
                known = one.performance
                told = (
                    f"{round(known.success * 100)} % of {round(known.calls)} calls succeed, "
                    f"{round(best * 100)} % of the best one's"
                )
                outcomes.eject(one.key, now, told)
    found = options(call)
    place = None
    if outcomes is not None and call is not None:
        place = outcomes.find_place((one.key for one in found), call)
    ranked = rank_options(found, cost_weight, latency_weight, place)
    if outcomes is None or call is None or not outcomes.explores(call):
        return ranked
    tried = choose_unknown(ranked)
    if tried is None or not outcomes.explorer.allows(tried.option.key, tried.cost, now):
        return ranked
    return [tried._replace(explored=True), *(one for one in ranked if one is not tried)]


def choose_unknown(ranked: Sequence[Rating]) -> Rating | None:
    """Return the alternative to the best one of which least is known; None if none may get calls now."""
    others = [one for one in ranked[1:] if one.option.performance.is_usable]
    return min(others, key=lambda one: one.option.performance.calls, default=None)


def rank_options(
    options: Sequence[Option], cost_weight: float, latency_weight: float, place: str | None = None
) -> list[Rating]:
    """Return the ratings, best first: ejected ones last, the call's own choice first among near equals.

    The option with the key `place` comes first unless another one is clearly better.
    """
    out = ejected(options)
    rated = rate_options(options, cost_weight, latency_weight)
    return sorted(
        rated,
        key=lambda one: (
            one.option.key in out,
            one.score * (1 - (STICK if one.option.key == place else STAY if one.option.own else 0)),
            not one.option.own,
        ),
    )


def ejected(options: Sequence[Option]) -> frozenset[str]:
    """Return the keys of the options that get no calls now: at most half of them, the worst first."""
    out = [one for one in options if not one.performance.is_usable]
    out.sort(key=lambda one: (one.performance.success, one.key))
    return frozenset(one.key for one in out[: len(options) // 2])


def find_failing(options: Sequence[Option]) -> list[str]:
    """Return the keys of the options whose success is far below the best one's."""
    best = max((one.performance.success for one in options), default=0.0)
    return [
        one.key
        for one in options
        if one.performance.is_sure and one.performance.success < FAR_BELOW_PART * best
    ]


def describe(name: str, rating: Rating, currency: str | None = None) -> str:
    """Return an option in words: `quick_search: 0.02 USD, 0.4 s, 97 % of 210`; no cost without a currency."""
    known = rating.option.performance
    told = [] if currency is None else [format_amount(round(rating.cost), currency)]
    told.append(f"{rating.seconds:.2g} s")
    if round(known.calls):
        told.append(
            f"{round(known.success * 100)} % of {round(known.calls)}"
            + (f" for {known.of}" if known.of else "")
        )
    return f"{MARK if rating.explored else ''}{name}: {', '.join(told)}"


def _plain_s(one: Option) -> float:
    """Return the duration without a crowd: declared, else the median; 0 if not known."""
    return one.seconds or one.performance.median_s


def _expected_s(one: Option, fastest: float) -> float:
    """Return the duration of a call that begins now: the usual one, or that of the crowd that is there.

    What is known counts by the number of calls that it is known from.
    """
    known, prior = one.performance, one.seconds or fastest
    sure = known.weight / (known.weight + PRIOR_CALLS)
    usual = sure * known.usual_s + (1 - sure) * prior
    place = sure * known.place_s + (1 - sure) * prior / CROWD
    crowd = known.under_way + 1
    queues = crowd > CROWD or known.wait_s > 0
    return max(usual + known.wait_s, place * crowd if queues else 0.0, _aged_s(known))


def _aged_s(known: Performance) -> float:
    """Return the duration that the age of the calls under way lets expect.

    They count as far as they are many beside the durations that are known: one call that takes long, or whose
    end was lost, says little; many say that the alternative hangs.
    """
    aged = AGES * known.age_s
    if aged <= known.usual_s or not known.usual_s:
        return aged
    share = known.under_way / (known.under_way + known.weight + PRIOR_CALLS)
    return known.usual_s * math.exp(share * math.log(aged / known.usual_s))


def _part(value: float, most: float) -> float:
    return value / most if most else 0.0
