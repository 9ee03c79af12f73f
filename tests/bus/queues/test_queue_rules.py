"""Whose turn it is for a slot: tenants by weight, classes, places that are told, and nobody left waiting."""

from collections import Counter

import pytest
from slot_histories import play_fleet
from toolgate_bus.ledger.slots.queue import Need, Request
from toolgate_bus.ledger.slots.rules import QueueRules

pytestmark = pytest.mark.pure
LEASE_S = 10.0
WEIGHTS = {"bronze": 1.0, "silver": 2.0, "gold": 5.0}


class Fleet:
    """Tenants that always have more to do: each asks anew when a call of its has ended."""

    def __init__(self, *, limit: int, waiting: int, takes: dict[str, float]) -> None:
        self.rules, self.now, self.number, self.takes = QueueRules(), 0.0, 0, takes
        self.limit, self.used, self.served = limit, Counter[str](), list[str]()
        self.ends: dict[str, float] = {}
        for _ in range(waiting):
            for tenant in takes:
                self.ask(tenant)

    def ask(self, tenant: str, *, level: int = 0) -> str:
        self.number += 1
        id_ = f"{tenant}-{self.number}"
        need = Need("pool", self.limit)
        self.rules.ask(Request(id_, (need,), "o", tenant, WEIGHTS.get(tenant, 1.0), level), LEASE_S, self.now)
        self.look_for_new()
        return id_

    def look_for_new(self) -> None:
        for id_ in self.rules.held.keys() - self.ends.keys():
            tenant = id_.partition("-")[0]
            self.ends[id_] = self.now + self.takes.get(tenant, 1.0)
            self.used[tenant] += self.takes.get(tenant, 1.0)
            self.served.append(id_)

    def run(self, *, seconds: float, again: bool = True) -> None:
        until = self.now + seconds
        while self.ends and (first := min(self.ends, key=lambda id_: (self.ends[id_], id_))):
            self.now = self.ends[first]
            if self.now > until:
                break
            del self.ends[first]
            self.rules.end([first], LEASE_S, self.now)
            self.look_for_new()
            if again:
                self.ask(first.partition("-")[0])

    def share(self, tenant: str) -> float:
        return self.used[tenant] / self.used.total()


@pytest.mark.parametrize(
    "takes",
    [
        {"bronze": 1.0, "silver": 1.0, "gold": 1.0},
        {"bronze": 5.0, "silver": 1.0, "gold": 0.1},
        {"bronze": 0.1, "silver": 1.0, "gold": 5.0},
    ],
    ids=["the same", "the small long", "the great long"],
)
def test_slot_time_goes_by_weight_whatever_calls_take(takes):
    fleet = Fleet(limit=4, waiting=20, takes=takes)
    fleet.run(seconds=800)
    for tenant, weight in WEIGHTS.items():
        assert fleet.share(tenant) == pytest.approx(weight / 8, abs=0.02)


def test_a_tenants_calls_run_in_the_order_in_which_they_came():
    fleet = Fleet(limit=2, waiting=30, takes={"bronze": 0.1, "silver": 1.0, "gold": 3.0})
    fleet.run(seconds=60)
    for tenant in WEIGHTS:
        numbers = [int(id_.partition("-")[2]) for id_ in fleet.served if id_.startswith(tenant)]
        assert len(numbers) > 5
        assert numbers == sorted(numbers)


def test_what_is_withdrawn_brings_nobody_forward_and_costs_nothing():
    fleet = Fleet(limit=1, waiting=20, takes={"silver": 1.0, "gold": 1.0})
    asked = [fleet.ask("silver") for _ in range(20)]
    fleet.rules.end(asked, LEASE_S, fleet.now)
    late = fleet.ask("silver")
    line = fleet.rules.list_waiting("pool", fleet.now)
    assert line.index(late) == max(place for place, id_ in enumerate(line) if id_.startswith("silver"))
    fleet.run(seconds=40, again=False)
    assert [id_ for id_ in fleet.served if id_.startswith("silver")][-1] == late


def test_who_comes_back_saved_nothing_up_and_waits_behind_nobodys_work():
    fleet = Fleet(limit=1, waiting=50, takes={"bronze": 1.0})
    fleet.run(seconds=100)
    asked = [fleet.ask("silver") for _ in range(8)]
    line = fleet.rules.list_waiting("pool", fleet.now)
    assert line.index(asked[0]) <= 1
    assert sum(id_.startswith("silver") for id_ in line[:9]) == 6  # two turns of three, and no more


def test_agents_that_are_tenants_of_their_own_are_served_as_they_came():
    fleet = Fleet(limit=1, waiting=0, takes={})
    asked = [fleet.ask(tenant) for tenant in ("zoe", "ann", "max", "bob")]
    fleet.run(seconds=10, again=False)
    assert fleet.served == asked


def test_the_higher_class_passes_those_who_have_not_waited_a_step_longer():
    fleet = Fleet(limit=1, waiting=0, takes={})
    fleet.ask("ann")
    low = fleet.ask("ann")
    fleet.now = 20.0
    soon = fleet.ask("bob", level=1)
    fleet.now = 31.0  # a step is 30 s
    late = fleet.ask("bob", level=1)
    assert fleet.rules.list_waiting("pool", fleet.now) == [soon, low, late]


def test_the_place_that_is_told_is_the_one_in_which_a_call_is_served():
    fleet = Fleet(limit=1, waiting=12, takes=dict.fromkeys(WEIGHTS, 1.0))
    fleet.run(seconds=30)
    fleet.ask("gold", level=3)
    line = fleet.rules.list_waiting("pool", fleet.now)
    assert len(line) > 30
    places = [fleet.rules.look(id_, fleet.now).place for id_ in line]
    assert places[:3] == [1, 2, 3]
    assert all(abs(told - place) <= 2 for place, told in enumerate(places, 1))  # others may be level with it


def test_a_call_that_is_moved_before_another_is_served_in_that_ones_turn_and_its_own_tenant_pays():
    fleet = Fleet(limit=1, waiting=6, takes=dict.fromkeys(WEIGHTS, 1.0))
    fleet.run(seconds=10)
    last = fleet.ask("bronze")
    gold = [id_ for id_ in fleet.rules.list_waiting("pool", fleet.now) if id_.startswith("gold")]
    assert fleet.rules.move_before(last, gold[2]) == "moved"
    line = fleet.rules.list_waiting("pool", fleet.now)
    assert line[line.index(last) + 1] == gold[2]
    turns, before = fleet.rules.pools["pool"].levels[0].turns, {}
    while last not in fleet.rules.held:
        before = {tenant: turns[tenant].tag for tenant in WEIGHTS}
        fleet.run(seconds=1.0, again=False)
    assert turns["bronze"].tag == pytest.approx(before["bronze"] + 1.0)
    assert turns["gold"].tag == pytest.approx(before["gold"])
    fleet.run(seconds=30, again=False)
    assert fleet.served[fleet.served.index(last) + 1] == gold[2]


@pytest.mark.parametrize("ageing", [False, True], ids=["by turns", "by age"])
def test_it_stays_before_that_one_whatever_turns_classes_and_waiting_become(ageing):
    for seed in range(40):
        fleet = Fleet(limit=1, waiting=5, takes={"bronze": 0.3, "silver": 2.0, "gold": 1.0})
        fleet.run(seconds=seed / 2)
        if ageing:
            fleet.now += 100.0
            fleet.ends = {id_: end + 100.0 for id_, end in fleet.ends.items()}
        first, *_, goal = fleet.rules.list_waiting("pool", fleet.now)
        late = [fleet.ask("silver", level=seed % 3), fleet.ask("gold", level=3)]
        assert [fleet.rules.move_before(id_, goal) for id_ in late] == ["moved", "moved"]
        assert fleet.rules.move_before(first, goal) == "moved"
        for _ in range(3):
            fleet.ask("silver", level=1)
        fleet.run(seconds=80, again=False)
        served = sorted([*late, first, goal], key=fleet.served.index)
        assert served[-1] == goal, seed
        assert ageing or served == [*late, first, goal], seed


def test_who_is_moved_before_another_needs_something_in_common_with_it_and_both_wait():
    rules, a, b = QueueRules(), Need("a", 1), Need("b", 1)
    for id_, needs in (("runs", (a, b)), ("one", (a,)), ("both", (a, b)), ("other", (b,))):
        rules.ask(Request(id_, needs, "o"), LEASE_S, 0.0)
    assert rules.move_before("runs", "one") == "gone"
    assert rules.move_before("one", "runs") == rules.move_before("one", "one") == "absent"
    assert rules.move_before("other", "one") == "apart"
    assert rules.move_before("both", "one") == "moved"
    assert rules.list_waiting("a", 0.0) == ["both", "one"]
    assert rules.move_before("other", "both") == "moved"
    assert rules.list_waiting("b", 0.0) == ["other", "both"]
    assert rules.move("both", 0)
    assert rules.list_waiting("a", 0.0) == ["one", "both"]  # as it came


def test_where_a_seat_can_be_halved_no_more_it_is_said_and_nobody_is_moved():
    rules = QueueRules()
    for number in range(80):
        rules.ask(Request(f"r{number}", (Need("a", 1),), "o"), LEASE_S, 0.0)
    moves = [rules.move_before(f"r{number}", "r2") for number in range(79, 2, -1)]
    assert moves[:40] == ["moved"] * 40
    assert moves[-1] == "full"
    before = rules.list_waiting("a", 0.0)
    assert rules.move_before("r3", "r2") == "full"
    assert rules.list_waiting("a", 0.0) == before


def test_nobody_waits_for_what_is_free():
    for seed in range(300):
        steps, rules = play_fleet(seed)
        first = {name: next(iter(rules.list_waiting(name, steps[-1].now)), None) for name in rules.pools}
        for id_ in filter(None, first.values()):
            needs = rules.waiting[id_].request.needs
            if all(first[need.pool] == id_ for need in needs):
                assert not all(rules.pools[need.pool].has_room(need) for need in needs), (seed, id_)


def test_who_stood_behind_a_call_of_several_pools_is_served_with_it():
    rules, a, b = QueueRules(), Need("a", 1), Need("b", 2)
    rules.ask(Request("first", (a,), "o"), LEASE_S, 0.0)
    rules.ask(Request("both", (a, b), "o", ageing_s=5.0), LEASE_S, 1.0)
    rules.ask(Request("behind", (b,), "o"), LEASE_S, 7.0)
    assert rules.list_waiting("b", 7.0) == ["both", "behind"]  # who has waited so long is not passed
    assert rules.end(["first"], LEASE_S, 8.0) == ["both", "behind"]
