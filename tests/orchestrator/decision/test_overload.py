"""An overloaded scheduler is asked no more than it answers in time; the rest is denied, or runs, at once."""

import asyncio
import heapq
from collections import deque

import pytest
from gate_world import growth, never
from toolgate_bus.protocol.events import Continue
from toolgate_bus.ruling.breaker import Breaker
from toolgate_orchestrator import Call
from toolgate_orchestrator.commands.bench.measure import quantile
from toolgate_orchestrator.decision.round.overload import CALM_S, MIN_IN_FLIGHT, MIN_SILENCES, Overload

pytestmark = pytest.mark.pure

TOOLS = {"search": {"type": "object"}}
PATIENCE = 0.5


def offer(times, *, rate=400, places=4, seconds=10.0):
    """Offer so many times the load that a queue answers. Return waits of answers, silences, and what is shed.

    A question that is too old when its turn comes is dropped, as workers do.
    """
    overload, waiting, now = Overload(), deque(), 0.0
    events = [(number / (rate * times), number, "asked") for number in range(int(rate * times * seconds))]
    asked, working, open_, answered, silent, shed = {}, 0, set(), [], 0, 0
    while events:
        now, number, what = heapq.heappop(events)
        if what == "asked":
            if overload.find_full(("slow",), now):
                shed += 1
                continue
            overload.begin(number, ("slow",))
            asked[number] = now
            open_.add(number)
            waiting.append(number)
            heapq.heappush(events, (now + PATIENCE, number, "silent"))
        elif what == "done":
            working -= 1
        if number in open_ and what in ("done", "silent"):
            open_.discard(number)
            took = {"slow": now - asked[number]} if what == "done" else {}
            overload.end(number, ("slow",), took, PATIENCE, now)
            if what == "done":
                answered.append(now - asked[number])
            else:
                silent += 1
                overload.record_silence("slow", PATIENCE, now, len(open_), lambda _: set(open_))
        while waiting and working < places:
            next_one = waiting.popleft()
            if now - asked[next_one] <= PATIENCE:
                working += 1
                heapq.heappush(events, (now + places / rate, next_one, "done"))
    return sorted(answered), silent, shed


@pytest.mark.parametrize("times", [2, 10])
def test_of_many_times_the_load_as_much_is_answered_as_can_be_and_in_time(times):
    seconds, rate = 10.0, 400
    answered, silent, shed = offer(times, seconds=seconds, rate=rate)
    assert len(answered) >= 0.9 * rate * seconds
    assert quantile(answered, 0.5) <= PATIENCE * 0.75
    assert quantile(answered, 0.999) <= PATIENCE
    assert silent <= 1.5 * rate * times * PATIENCE  # those of the first moment
    assert shed >= rate * times * seconds - 1.1 * rate * seconds - silent


def test_nothing_is_shed_of_a_load_that_can_be_answered():
    answered, silent, shed = offer(0.9)
    assert (silent, shed) == (0, 0)
    assert len(answered) == 400 * 0.9 * 10


def test_a_few_silences_are_no_overload_and_it_ends_once_nothing_is_above_the_bound():
    overload = Overload()
    many = frozenset((b"", number) for number in range(20))
    for number in range(MIN_SILENCES - 1):
        assert not overload.record_silence("slow", PATIENCE, number / 100, len(many), lambda _: set(many))
    assert not overload.record_silence(
        "slow", PATIENCE, 10.0, len(many), lambda _: set(many)
    )  # long after the others
    assert overload.limits == {}
    told = [
        overload.record_silence("slow", PATIENCE, 20.0, len(many), lambda _: set(many)) for _ in range(10)
    ]
    assert told.count(True) == 1
    assert overload.find_full(("slow", "other"), 20.0).keys() == {"slow"}
    for key in many:
        overload.release(key, "slow")
    assert overload.find_full(("slow",), 20.0) == {}
    overload.begin((b"x", 0), ("slow",))
    assert overload.end((b"x", 0), ("slow",), {"slow": 0.1}, PATIENCE, 20.0 + CALM_S + 1) == ["slow"]
    assert overload.limits == {}


async def ask_many(gate, count):
    return await asyncio.gather(
        *(gate.decide(Call("search", {"n": number}, TOOLS)) for number in range(count))
    )


async def test_a_required_scheduler_that_is_overloaded_denies_at_once_what_it_cannot_answer(world):
    shed = growth("toolgate_shed_questions_total", scheduler="slow")
    await world.scheduler("slow", never)
    gate = await world.gate(required=["slow"], patience_ms=20)
    await ask_many(gate, 2 * MIN_IN_FLIGHT)
    decided = await ask_many(gate, 2 * MIN_IN_FLIGHT)
    assert {(one.outcome, one.why) for one in decided} == {("deny", "silent")}
    told = [one for one in decided if "slow is overloaded" in one.reason]
    assert len(told) == shed() == MIN_IN_FLIGHT


async def test_calls_run_without_an_optional_scheduler_that_is_overloaded(world, monkeypatch):
    failed = growth("toolgate_failed_open_total", scheduler="slow", reason="overloaded")
    await world.scheduler("slow", never)
    await world.scheduler("fast", Continue())
    gate = await world.gate(required=["fast"], patience_ms=20)
    monkeypatch.setattr(Breaker, "passes_over", lambda *_: False)  # it would be waited for no more
    await ask_many(gate, 2 * MIN_IN_FLIGHT)
    decided = await ask_many(gate, 2 * MIN_IN_FLIGHT)
    assert {one.outcome for one in decided} == {"continue"}
    assert failed() == MIN_IN_FLIGHT
