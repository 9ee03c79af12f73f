"""The keeper: what really happened reaches the ledger, whoever dies in between."""

import pytest
from epoch_world import MemoryWorld
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.errors import BusDown
from toolgate_bus.facts.lease import Checkpoint
from toolgate_bus.ledger.money.ledger import Account, FallbackAccounts, Offer, Step
from toolgate_bus.ledger.money.memory import MemoryLedger
from toolgate_bus.ledger.money.settlement import (
    AT_ONCE,
    GRACE_S,
    LEASE_S,
    MAX_SECONDS,
    SettlementWorker,
    request_again,
    step_of,
)
from toolgate_bus.state.shared import make_shared_state

pytestmark = pytest.mark.pure

FLEET = Account("all/fleet", 100)


class World:
    """A ledger, facts, and keepers on them; time stands still unless it is moved."""

    def __init__(self):
        self.shared, self.now = make_shared_state(), 0.0

    def keeper(self, replica="r1", ledger=None, **options):
        shared = self.shared
        return SettlementWorker(
            ledger or shared.ledger,
            shared.facts,
            shared.store,
            book="budget",
            replica=replica,
            clock=lambda: self.now,
            **options,
        )

    async def reserve(self, decision, amount=40, owner="o"):
        answer = await self.shared.ledger.reserve(decision, 0, [Offer("t", amount)], [FLEET], owner)
        assert answer.status == "reserved"

    @property
    def money(self):
        (account,) = self.shared.ledger.book.balances()
        return account.spent, account.reserved, account.orphans


@pytest.fixture
def world():
    return World()


@pytest.mark.parametrize(
    ("event", "fields", "money"),
    [
        ("tool:post", {"decision_id": "d", "cost": 25}, (25, 0, 0)),
        ("tool:post", {"decision_id": "d"}, (40, 0, 0)),
        ("tool:error", {"decision_id": "d", "error": "CancelledError"}, (40, 0, 0)),
        ("tool:unused", {"decision_id": "d"}, (0, 0, 0)),
        ("tool:selected", {"decision_id": "d"}, (0, 40, 0)),
        ("decision", {"id": "d", "outcome": "deny"}, (0, 0, 0)),
        ("decision", {"id": "d", "outcome": "cancelled"}, (0, 0, 0)),
        ("decision", {"id": "d", "outcome": "continue"}, (0, 40, 0)),
        ("decision", {"id": "d", "outcome": "modify"}, (0, 40, 0)),
        ("usage", {"total_tokens": 4}, (0, 40, 0)),
    ],
)
async def test_each_fact_moves_the_money_that_it_should(world, event, fields, money):
    await world.reserve("d")
    world.shared.facts.tell(event, **fields)
    assert await world.keeper().step()
    assert world.money == money


async def test_what_began_and_ended_since_the_last_look_is_one_step_of_its_owner(world):
    taken = []

    class Watched(MemoryLedger):
        async def take(self, steps):
            taken.extend((one.what, one.decision, one.by) for one in steps)
            return await MemoryLedger.take(self, steps)

    for id_ in ("ended", "unused", "runs"):
        await world.reserve(id_, 30)
    for event, id_, by in (
        ("tool:waits", "ended", "o"),
        ("tool:selected", "ended", "o"),
        ("tool:selected", "runs", "o"),
        ("tool:selected", "ended", "rogue"),
        ("tool:post", "ended", "o"),
        ("tool:selected", "unused", "o"),
        ("tool:unused", "unused", "o"),
        ("tool:post", "runs", "rogue"),
    ):
        world.shared.facts.tell(event, decision_id=id_, orchestrator=by)
    await world.keeper(ledger=Watched(world.shared.ledger.book)).step()
    assert taken == [
        ("executing", "runs", "o"),
        ("executing", "ended", "rogue"),
        ("settle", "ended", "o"),
        ("release", "unused", "o"),
        ("settle", "runs", "rogue"),
    ]
    assert world.money == (30, 30, 0)
    assert [(one.decision, one.executing) for one in world.shared.ledger.book.open(0.0)] == [("runs", True)]


async def test_facts_wait_until_what_a_failover_forgot_of_others_is_written_again(world):
    book = MemoryWorld()
    mine, theirs = await book.join(), await book.join()
    await mine.reserve("first", 0, [Offer("t", 1)], [FLEET], "o")
    kept = await book.copy()
    await theirs.reserve("d", 0, [Offer("t", 40)], [FLEET], "o")
    await mine.look()
    await book.put_back(kept)
    world.shared.facts.tell("tool:post", decision_id="d", cost=25)
    keeper = world.keeper(ledger=mine, otherwise=lambda _: FallbackAccounts(0, (FLEET,)))
    assert await keeper.step()
    assert mine.book.balances()[0].spent == 0
    await theirs.look()
    assert await keeper.step()
    (account,) = mine.book.balances()
    assert (account.spent, account.reserved) == (25, 1)
    assert await mine.astray() == {}


@pytest.mark.parametrize(
    "fact",
    [
        ("decision", {"id": "d", "outcome": "deny"}),
        ("tool:post", {"decision_id": "d", "cost": 0}),
        ("tool:unused", {"decision_id": "d"}),
    ],
)
async def test_a_fact_of_another_orchestrator_moves_no_money(world, fact):
    await world.reserve("d", owner="mine")
    world.shared.facts.tell(fact[0], orchestrator="rogue", **fact[1])
    await world.keeper().step()
    assert world.money == (0, 40, 0)
    assert await world.shared.ledger.astray() == {"foreign": 1}


async def test_what_ran_without_a_reservation_is_paid_by_who_is_named(world):
    world.shared.facts.tell("tool:post", decision_id="lost", cost=25)
    world.shared.facts.tell("tool:post", decision_id="untold")
    await world.keeper(otherwise=lambda _fact: FallbackAccounts(7, (FLEET,))).step()
    assert world.money == (32, 0, 0)


async def test_a_fact_that_the_listener_cannot_bear_is_passed_over(world):
    await world.reserve("d")
    heard = []

    def also(fact):
        heard.append(fact["event"])
        if fact["event"] == "usage":
            raise RecursionError

    world.shared.facts.tell("usage")
    world.shared.facts.tell("tool:post", decision_id="d", cost=3)
    assert await world.keeper(also=also).step()
    assert (heard, world.money) == (["usage", "tool:post"], (3, 0, 0))


@given(
    st.dictionaries(st.sampled_from(["event", "decision_id", "id", "outcome", "cost"]), st.from_type(object))
)
def test_whatever_a_fact_holds_it_is_read_or_passed_over(fact):
    step = step_of(fact)
    assert step is None or isinstance(step, Step)


@pytest.mark.parametrize("cost", [-1, 1.5, "7", True, 2**60, None])
def test_a_cost_that_cannot_be_counted_is_the_estimate(cost):
    fact = {"event": "tool:post", "decision_id": "d", "cost": cost, "orchestrator": "o"}
    assert step_of(fact) == Step("settle", "d", by="o")


async def test_only_one_keeper_works_and_another_takes_over_where_it_had_come_to(world):
    first, second = world.keeper("r1"), world.keeper("r2")
    await world.reserve("a", 10)
    await world.reserve("b", 10)
    world.shared.facts.tell("tool:post", decision_id="a", cost=3)
    assert await first.step()
    assert not await second.step()
    world.shared.facts.tell("tool:post", decision_id="b", cost=4)
    await world.shared.store.delete("budget:keeper")  # its lease ran out
    world.shared.facts.resume({"told": "0"})  # a process of its own would begin here
    assert await second.step()
    assert world.money == (7, 0, 0)
    assert not await first.step()


async def test_a_keeper_that_leads_again_goes_on_from_where_the_other_one_had_come_to(world):
    first, second = world.keeper("r1"), world.keeper("r2")
    resumed = []
    world.shared.facts.resume = lambda *places: resumed.append(places)
    for keeper in (first, second, first):
        world.shared.facts.tell("usage")
        assert await keeper.step()
        assert await keeper.step()
        await world.shared.store.delete("budget:keeper")  # its lease ran out
    assert [positions.get("told") for positions, _ in resumed] == [None, "1", "2"]


async def test_a_keeper_that_died_before_it_noted_what_it_did_does_no_harm(world):
    await world.reserve("a", 10)
    world.shared.facts.tell("tool:post", decision_id="a", cost=3)
    await world.keeper("r1").step()
    await world.shared.store.delete("budget:keeper")
    await world.shared.store.delete("budget:read")
    world.shared.facts.resume({"told": "0"})
    await world.keeper("r2").step()
    assert world.money == (3, 0, 0)


@pytest.mark.parametrize("during", ["get", "put"])
async def test_who_asks_for_all_facts_again_gets_them_whatever_the_keeper_does_at_that_moment(during, world):
    keeper, store = world.keeper(), world.shared.store
    world.shared.facts.tell("tool:post", decision_id="a", cost=3)
    await keeper.step()
    act, asked = getattr(store, during), []

    async def ask_meanwhile(key, *rest):
        if key == "budget:keeper" and not asked:
            asked.append(b"")
            asked[0] = await request_again(store, "budget")
        return await act(key, *rest)

    setattr(store, during, ask_meanwhile)
    resumed = []
    world.shared.facts.resume = lambda *places: resumed.append(places)
    for _ in range(3):
        world.shared.facts.tell("tool:post", decision_id="b", cost=3)
        await keeper.step()
    assert resumed == [({}, {})]
    assert Checkpoint.from_bytes(await store.get("budget:read")).again == asked[0]


async def test_a_keeper_that_takes_over_reads_all_again_unless_that_was_done(world):
    first, second = world.keeper("r1"), world.keeper("r2")
    resumed = []
    world.shared.facts.resume = lambda *places: resumed.append(places)
    await request_again(world.shared.store, "budget")
    world.shared.facts.tell("tool:post", decision_id="a", cost=3)
    await first.step()
    await world.shared.store.delete("budget:keeper")
    await second.step()
    assert resumed == [({}, {}), (world.shared.facts.positions, world.shared.facts.numbers)]


async def test_what_a_dead_orchestrator_held_is_paid_at_its_estimate(world):
    keeper = world.keeper()
    await world.reserve("a", owner="gone")
    await world.reserve("b", owner="here")
    world.shared.facts.living = {"here"}
    for world.now, orphans in ((0.0, 0), (GRACE_S - 0.1, 0), (GRACE_S, 1), (GRACE_S + 1, 1)):
        await keeper.step()
        assert world.money == ((40, 40, 1) if orphans else (0, 80, 0))


async def test_an_orchestrator_that_was_missing_for_a_moment_loses_nothing(world):
    keeper = world.keeper()
    await world.reserve("a", owner="here")
    for world.now, world.shared.facts.living in ((0.0, set()), (4.0, {"here"}), (6.0, set()), (10.0, set())):
        await keeper.step()
    assert world.money == (0, 40, 0)


async def test_its_last_facts_are_read_before_it_is_given_up(world):
    keeper = world.keeper()
    await world.reserve("a", owner="gone")
    await keeper.step()
    world.now = 60.0
    world.shared.facts.tell("tool:post", orchestrator="gone", decision_id="a", cost=1)
    world.shared.facts.living = set()
    await keeper.step()
    await keeper.step()
    assert world.money == (1, 0, 0)


async def test_a_reservation_of_which_nothing_is_ever_heard_does_not_stay(world, monkeypatch):
    monkeypatch.setattr("toolgate_bus.ledger.money.memory.time.time", lambda: 1000.0)
    await world.reserve("a", owner="here")
    world.shared.facts.living = {"here"}
    monkeypatch.setattr("toolgate_bus.ledger.money.memory.time.time", lambda: 1000.0 + MAX_SECONDS)
    await world.keeper().step()
    assert world.money == (40, 0, 1)


async def test_a_call_that_says_it_still_waits_keeps_what_is_reserved_and_no_longer(world, monkeypatch):
    keeper = world.keeper()
    world.shared.facts.living = {"here"}

    async def look_at(seconds):
        world.now = seconds
        monkeypatch.setattr("toolgate_bus.ledger.money.memory.time.time", lambda: 1000.0 + seconds)
        await keeper.step()
        await keeper.step()
        return world.money

    monkeypatch.setattr("toolgate_bus.ledger.money.memory.time.time", lambda: 1000.0)
    await world.reserve("a", owner="here")
    for seconds in range(1, 5):
        world.shared.facts.tell("tool:waits", orchestrator="here", decision_id="a")
        assert await look_at(seconds * (MAX_SECONDS - 1)) == (0, 40, 0)
    world.shared.facts.tell("tool:waits", orchestrator="somebody", decision_id="a")
    assert await look_at(4 * (MAX_SECONDS - 1) + MAX_SECONDS) == (40, 0, 1)


async def test_who_wants_to_hears_of_every_fact(world):
    heard = []
    world.shared.facts.tell("usage", total_tokens=3)
    world.shared.facts.tell("tool:post", decision_id="x")
    await world.keeper(also=lambda fact: heard.append(fact["event"])).step()
    assert heard == ["usage", "tool:post"]


async def test_the_dead_are_found_although_others_never_stop_telling(world):
    keeper = world.keeper()
    await world.reserve("a", owner="gone")
    for world.now in (1.0, 3.0, GRACE_S + 1):
        world.shared.facts.tell("usage", orchestrator="here")
        await keeper.step()
    assert world.money == (40, 0, 1)


async def test_who_died_but_still_has_something_to_tell_is_heard_first(world):
    keeper = world.keeper()
    await world.reserve("a", owner="gone")
    for world.now in (1.0, 3.0, GRACE_S + 1):
        world.shared.facts.tell("usage", orchestrator="gone")
        world.shared.facts.living = set()
        await keeper.step()
    assert world.money == (0, 40, 0)


async def test_facts_that_could_not_be_applied_are_read_again(world):
    take, faults = world.shared.ledger.take, [BusDown("away")]

    async def faulty(steps):
        if faults:
            raise faults.pop()
        return await take(steps)

    world.shared.ledger.take = faulty
    keeper = world.keeper()
    await world.reserve("a")
    world.shared.facts.tell("tool:post", decision_id="a", cost=3)
    with pytest.raises(BusDown):
        await keeper.step()
    await keeper.give_up()  # as `run` does
    world.shared.facts.resume({"told": "0"})
    await keeper.step()
    assert world.money == (3, 0, 0)


async def test_the_lease_is_renewed_within_a_long_backlog(world):
    renewed, put, take = [], world.shared.store.put, world.shared.ledger.take

    async def counted(key, value, ttl_s=None):
        renewed.append(key)
        await put(key, value, ttl_s)

    async def slow(steps):
        world.now += LEASE_S / 2
        return await take(steps)

    world.shared.store.put, world.shared.ledger.take = counted, slow
    for number in range(3 * AT_ONCE):
        world.shared.facts.tell("tool:unused", decision_id=f"d{number}")
    await world.keeper().step()
    assert renewed.count("budget:keeper") == 3  # taken once, renewed twice


async def test_a_keeper_with_much_to_look_at_spends_a_tenth_of_its_time_on_it(world):
    looked, find = [], world.shared.ledger.open

    async def slow():
        looked.append(world.now)
        world.now += 2
        return await find()

    world.shared.ledger.open = slow
    keeper = world.keeper()
    while world.now < 100:
        world.shared.facts.tell("tool:selected", decision_id="a")
        await keeper.step()
        world.now += 0.5
    assert len(looked) == 5
