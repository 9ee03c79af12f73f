"""A pool's limit follows its tool's errors: halved once a burst, raised by one, never beyond its bounds."""

import heapq
import itertools

import pytest
from toolgate_bus.ledger.slots.caps import MemoryCaps, read_cap, write_cap
from toolgate_bus.ledger.slots.queue import Cap, Need, Request
from toolgate_bus.ledger.slots.rules import QueueRules
from toolgate_schedulers.shipped.slots.adapt import (
    MAX_RETRY_S,
    CallEnd,
    age,
    clamp,
    climb,
    cut,
    is_signal,
    outcome_of,
)
from toolgate_schedulers.shipped.slots.cap_keeper import CapKeeper
from toolgate_schedulers.shipped.slots.config import Adaptive, PoolConfig

pytestmark = pytest.mark.pure
RULE = Adaptive()
LEASE_S = 10.0
NO_PAUSE = CallEnd(False, ("RuntimeError",), 0.0)


def failed(**fields):
    return {"event": "tool:error", "decision_id": "a", "error": "RuntimeError", **fields}


# ---------------------------------------------------------------------- what decides


def test_a_signal_halves_what_is_in_use_and_never_goes_below_the_least():
    assert cut(RULE, 64, None, 64, 7, 0, 100.0) == Cap(32, 0.0, 105.0)
    assert cut(RULE, 64, None, 12, 7, 0, 100.0).most == 6  # who has 64 and uses 12 had too many with 12
    assert cut(RULE, 64, Cap(8, cut=6), 20, 7, 0, 100.0).most == 4
    assert cut(Adaptive(min=3), 64, Cap(4, cut=6), 4, 7, 0, 100.0).most == 3
    assert cut(RULE, 1, None, 1, 7, 0, 100.0).most == 1


def test_calls_that_ran_when_the_last_cut_was_made_cut_no_more():
    assert cut(RULE, 64, Cap(32, cut=64), 63, 64, 0, 100.0) is None
    assert cut(RULE, 64, Cap(32, cut=64), 63, 65, 0, 100.0).most == 16


def test_a_retry_after_pauses_within_caps_and_one_more_of_the_same_burst_lengthens_it():
    assert cut(RULE, 8, None, 8, 1, 2.0, 100.0) == Cap(4, 102.0, 105.0)
    assert cut(RULE, 8, None, 8, 1, 600.0, 100.0) == Cap(4, 130.0, 700.0)
    assert cut(Adaptive(pause_s=0), 8, None, 8, 1, 60.0, 100.0) == Cap(4, 0.0, 160.0)
    paused = Cap(4, 102.0, 105.0, cut=9)
    assert cut(RULE, 8, paused, 8, 9, 20.0, 100.1) == Cap(4, 120.1, 120.1, cut=9)
    assert cut(RULE, 8, paused, 8, 9, 2.1, 100.1) is None  # hardly later: not worth a word
    assert outcome_of(failed(retry_after=10**300)) == CallEnd(False, ("RuntimeError",), MAX_RETRY_S)
    assert outcome_of(failed(retry_after=10**400)) == outcome_of(failed(retry_after="nan")) == NO_PAUSE


def test_it_climbs_by_one_after_as_many_good_calls_as_it_allows_and_not_too_soon():
    cap = Cap(4, 0.0, 105.0, 7)
    assert climb(RULE, cap, 3, 200.0) is None
    assert climb(RULE, cap, 4, 104.9) is None
    assert climb(RULE, cap._replace(open_at=201.0), 4, 200.0) is None
    assert climb(RULE, cap, 4, 105.0) == Cap(5, 0.0, 110.0, 7)
    assert climb(Adaptive(min=8), cap, 4, 105.0).most == 8  # it was configured since


def test_pauses_end_and_what_is_old_is_forgotten():
    cap = Cap(4, 102.0, 105.0, 7)
    assert age(cap, 101.0) == cap
    assert age(cap, 102.0) == cap._replace(open_at=0.0)
    assert age(cap._replace(open_at=0.0), 105.0 + 3601) is None


def test_a_pause_that_another_clock_has_set_is_not_longer_than_one_of_ours():
    assert clamp(RULE, Cap(4, 1e9, 1e9, 7), 100.0) == Cap(4, 130.0, 3700.0, 7)


@pytest.mark.parametrize(
    ("fact", "signals", "is_one"),
    [
        (failed(signal="429"), {"429"}, True),
        (failed(signal="500"), {"429"}, False),
        (failed(error="RateLimitError"), {"RateLimitError"}, True),
        (failed(retry_after=1), {"429"}, True),
        (failed(signal="timeout"), {"timeout"}, True),
        (failed(signal=429), {"429"}, True),
        (failed(retry_after="2"), {"429"}, True),
        (failed(signal=["429"], retry_after="soon"), {"429"}, False),
        ({"event": "tool:post", "success": False, "signal": "429"}, {"429"}, True),
        ({"event": "provider:error", "signal": "429"}, {"429"}, True),
    ],
)
def test_what_a_failed_call_says_is_a_signal_if_the_pool_names_it(fact, signals, is_one):
    assert is_signal(outcome_of(fact), signals) is is_one


def test_what_ended_well_is_no_signal_and_what_was_cancelled_says_nothing():
    assert outcome_of({"event": "tool:post", "signal": "429"}) == CallEnd(well=True)
    assert not is_signal(CallEnd(True, ("429",), 5), {"429"})
    assert outcome_of(failed(error="CancelledError")) is None
    assert outcome_of({"event": "tool:unused", "signal": "429"}) is None


def test_a_cap_is_read_as_it_was_written_and_nonsense_is_none():
    cap = Cap(4, 102.125, 105.5, 7)
    assert read_cap(write_cap(cap).encode(), b"7") == cap
    for text in (b"", b"4", b"x 1 2", b"4 inf 2", b"-1 0 0", b"1e9 0 0", None):
        assert read_cap(text, b"7") is None
    with pytest.raises(ValueError, match="min is 3"):
        PoolConfig(name="few", tools=("x",), limit=2, adaptive=Adaptive(min=3))


# ---------------------------------------------------------------------- who acts on it


class Fleet:
    """Agents that want a pool all the time, and a tool that answers 429 above so many; time is virtual."""

    def __init__(self, pools, *, agents=40, room=5, retry_after=None):
        self.rules, self.now, self.room, self.retry_after = QueueRules(), 0.0, room, retry_after
        self.caps = MemoryCaps(self.rules)
        self.pools, self.agents = pools, agents
        self.keepers = [self.new_keeper()]
        self.running, self.log = {}, []
        self._ends, self._ids = [], itertools.count()

    def new_keeper(self):
        return CapKeeper(self.caps, self.pools, lambda: round(self.now, 3))

    def ask(self, pool="few"):
        limit = next(one for one in self.pools if one.name == pool.partition("/")[0]).most
        id_ = f"{next(self._ids)}"
        self.rules.ask(Request(id_, (Need(pool, limit),), "owner", wait_s=1e9), LEASE_S, self.now)

    def begin(self):
        """Whoever was given a slot calls the tool, which refuses quickly what is too much."""
        for id_ in self.rules.held.keys() - self.running.keys():
            is_over = len(self.running) - sum(self.running.values()) >= self.room
            self.running[id_] = is_over
            heapq.heappush(self._ends, (self.now + (0.01 if is_over else 0.1), id_))

    async def run(self, seconds):
        """Let time pass; each fact reaches the keepers with those of the same 5 ms, and each tick ages."""
        until = self.now + seconds
        while self.now < until:
            while len(self.rules.held) + len(self.rules.waiting) < self.agents:
                self.ask()
            self.begin()
            self.now = round(self.now + 0.005, 3)
            facts = []
            while self._ends and self._ends[0][0] <= self.now:
                id_ = heapq.heappop(self._ends)[1]
                self.log.append((self.now, self.running.pop(id_)))
                fact = {"event": "tool:post", "decision_id": id_}
                if self.log[-1][1]:
                    fact = failed(decision_id=id_, signal="429", retry_after=self.retry_after)
                facts.append(fact)
            for keeper in self.keepers:
                await keeper.hear(facts)
                await keeper.tick()
            self.rules.end([one["decision_id"] for one in facts], LEASE_S, self.now)
            self.rules.lapse({"owner"}, LEASE_S, self.now)

    def errors(self, since):
        ends = [was_error for at, was_error in self.log if at > since]
        return sum(ends) / len(ends)

    @property
    def most(self):
        return self.rules.pools["few"].most


def pool(limit=40, **options):
    adaptive = Adaptive(**options) if options else Adaptive(climb_s=0.5)
    return PoolConfig(name="few", tools=("x",), limit=limit, adaptive=adaptive)


async def test_a_tool_that_refuses_above_five_is_held_near_five_within_two_seconds():
    fleet = Fleet((PoolConfig(name="few", tools=("x",), limit=40),))
    await fleet.run(1)
    before = fleet.errors(0.5)
    fleet = Fleet((pool(),))
    await fleet.run(2)
    limits = []
    for _ in range(40):
        await fleet.run(0.2)
        limits.append(fleet.most)
    assert before > 0.8
    assert fleet.errors(2) < 0.05
    assert {3, 4, 5} <= set(limits) <= {3, 4, 5, 6}


async def test_a_burst_of_errors_halves_once():
    fleet = Fleet((pool(),))
    await fleet.run(0.015)
    assert sum(error for _, error in fleet.log) == 35
    assert fleet.most == 20


async def test_two_that_hear_the_same_errors_halve_once():
    fleet = Fleet((pool(),))
    fleet.keepers.append(fleet.new_keeper())
    await fleet.run(0.015)
    assert fleet.most == 20


async def test_the_next_keeper_goes_on_from_where_the_last_one_was():
    fleet = Fleet((pool(climb_s=1000.0),))
    await fleet.run(2)
    cap = fleet.most
    assert 2 <= cap <= 5
    fleet.keepers = [fleet.new_keeper()]
    await fleet.keepers[0].start()
    await fleet.run(1)
    assert fleet.most == cap


async def test_it_climbs_back_to_the_limit_when_the_tool_is_well_again_and_then_nothing_is_left():
    fleet = Fleet((pool(12),))
    await fleet.run(3)
    assert fleet.most <= 6
    fleet.room = 100
    await fleet.run(10)
    assert fleet.most == 12
    assert await fleet.caps.read() == {}


async def test_nothing_climbs_while_few_want_it():
    fleet = Fleet((pool(),))
    await fleet.run(3)
    fleet.rules.end(list(fleet.rules.waiting), LEASE_S, fleet.now)
    cap, fleet.agents, fleet.room = fleet.most, 2, 100
    await fleet.run(10)
    assert fleet.most == cap


async def test_nothing_is_given_until_a_retry_after():
    fleet = Fleet((pool(climb_s=0.5),), retry_after=3)
    await fleet.run(1)
    assert fleet.most == 0
    assert all(at < 0.2 for at, _ in fleet.log)  # what ran has ended, and nothing was begun
    await fleet.run(2.5)
    assert [error for at, error in fleet.log if at > 2].count(True) <= 15


async def test_an_operators_limit_stands_beside_it():
    fleet = Fleet((pool(),))
    await fleet.run(3)
    adapted = fleet.most
    fleet.rules.limit("few", 1, LEASE_S, fleet.now)
    await fleet.run(3)
    assert fleet.most == 1  # nobody tries more, so that nothing climbs
    fleet.rules.limit("few", 30, LEASE_S, fleet.now)
    assert fleet.most == adapted


async def test_each_key_has_a_cap_of_its_own_and_a_pool_that_is_adaptive_no_more_has_none():
    fleet = Fleet((pool(),), agents=0)
    for id_, key in (("0", "few/a"), ("1", "few/b")):
        fleet.ask(key)
        assert id_ in fleet.rules.held
    await fleet.keepers[0].hear([failed(decision_id="0", signal="429")])
    assert (await fleet.caps.read()).keys() == {"few/a"}
    fleet.pools = (PoolConfig(name="few", tools=("x",), limit=40),)
    await fleet.new_keeper().start()
    assert await fleet.caps.read() == {}
    assert fleet.rules.pools["few/a"].most == 40


async def test_one_of_too_many_caps_is_forgotten_the_oldest_first(monkeypatch):
    monkeypatch.setattr("toolgate_schedulers.shipped.slots.cap_keeper.MAX_CAPS", 2)
    fleet = Fleet((pool(),), agents=0)
    for number in range(4):
        fleet.ask(f"few/{number}")
        await fleet.keepers[0].hear([failed(decision_id=f"{number}", signal="429")])
    assert (await fleet.caps.read()).keys() == {"few/2", "few/3"}
