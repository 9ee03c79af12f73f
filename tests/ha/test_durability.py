"""`durability`: what a scheduler let pass is on every replica, or was denied and given back.

A real primary and two replicas. A link between them that is cut is a replica that was told to follow
somebody who is not there: it keeps what it has, and hears nothing more.
"""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from approval_calls import ID
from approval_calls import call as held_call
from approval_calls import config as approval_config
from cost_aware_calls import call, config
from replicated_world import Replicated
from sentinel_world import until
from toolgate_bus.errors import ConfigError, Refusal, TooFewReplicas, TransportError
from toolgate_bus.ledger.money.ledger import Account, Offer
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import Continue, Deny, Hold
from toolgate_bus.state.shared import connect_shared_state
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.ports import Durability
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_schedulers.author.scheduler import SchedulerContext
from toolgate_schedulers.shipped.approval.queue import ApprovalQueue
from toolgate_schedulers.shipped.approval.records import ApprovalAnswer
from toolgate_schedulers.shipped.approval.scheduler import ApprovalScheduler
from toolgate_schedulers.shipped.cost_aware.scheduler import CostAware
from toolgate_schedulers.worker.holds import ReplyTo, StoredHolds

pytestmark = pytest.mark.system

FLEET = Account("all/fleet", 1000)
BOTH = Durability(2, 300)


@pytest.fixture
def world() -> Iterator[Replicated]:
    directory = Path(tempfile.mkdtemp(prefix="tg-du-"))
    made = Replicated(directory)
    nodes = (made.primary, *made.replicas)
    try:
        made.start()
        yield made
    finally:
        for node in nodes:
            node.kill()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
async def commands(world):
    made = RedisCommands(world.url, "test")
    yield made
    await made.aclose()


def durable(commands, durability=BOTH):
    ledger = RedisLedger(commands, "n")
    ledger.require_replicas(durability)
    return ledger


def reserve(ledger, number, amount=10):
    return ledger.reserve(f"{number:032x}", 0, [Offer("tool", amount)], [FLEET], "o")


async def reserved(ledger):
    return sum(one.reserved for one in await ledger.balances())


def short_writes(what):
    return metrics.value("toolgate_short_writes_total", what=what)


# ---------------------------------------------------------------- money


async def test_what_too_few_replicas_have_is_denied_in_time_and_given_back(world, commands):
    ledger = durable(commands)
    assert (await reserve(ledger, 1)).status == "reserved"
    before = short_writes("ledger")
    world.replicas[0].stand_still()
    began = time.monotonic()
    with pytest.raises(TooFewReplicas, match="1 of 2 replicas had it within 300 ms"):
        await reserve(ledger, 2)
    assert time.monotonic() - began >= 0.3
    assert short_writes("ledger") == before + 1
    assert await reserved(ledger) == 10
    world.replicas[0].go_on()
    until(world.has_all, 15)
    assert (await reserve(ledger, 2)).status == "closed"
    assert (await reserve(ledger, 3)).status == "reserved"
    assert await reserved(ledger) == 20


async def test_who_asks_for_a_decision_again_waits_for_the_replicas_too(world, commands):
    """It writes nothing, over a connection of its own: what the first one wrote is what counts."""
    world.replicas[0].stand_still()
    assert (await reserve(RedisLedger(commands, "n"), 1)).status == "reserved"
    other = RedisCommands(world.url, "other")
    with pytest.raises(TooFewReplicas):
        await reserve(durable(other), 1)
    await other.aclose()
    world.replicas[0].go_on()


async def test_many_reservations_wait_once(world, commands):
    ledger = durable(commands)
    await reserve(ledger, 0)
    world.primary.answer("CONFIG", "RESETSTAT")
    await asyncio.gather(*(reserve(ledger, number, 1) for number in range(1, 101)))
    assert await reserved(ledger) == 110
    waits = world.primary.answer("INFO", "commandstats")["cmdstat_wait"]["calls"]
    assert waits <= 3


async def open_decisions(world):
    commands = RedisCommands(world.url, "after")
    found = {one.decision for one in await RedisLedger(commands, "n").open()}
    await commands.aclose()
    return found


@pytest.mark.parametrize("again", range(5))
async def test_what_was_acknowledged_outlives_kill_9_of_the_primary(world, commands, again):
    ledger = durable(commands)
    kept: set[str] = set()

    async def spend(agent):
        for number in range(1000):
            answer = await reserve(ledger, agent * 1000 + number, 0)
            if answer.status == "reserved":
                kept.add(f"{agent * 1000 + number:032x}")

    spending = [asyncio.create_task(spend(agent)) for agent in range(8)]
    while len(kept) < 100 * (again + 1):
        await asyncio.sleep(0.005)
    await asyncio.to_thread(world.fail_over)
    said = await asyncio.gather(*spending, return_exceptions=True)
    assert all(isinstance(one, TransportError) for one in said)
    assert kept <= await open_decisions(world)


async def test_what_reached_no_replica_is_forgotten_and_with_durability_was_never_let_pass(world, commands):
    ledger = RedisLedger(commands, "n")
    world.cut()
    assert (await reserve(ledger, 1)).status == "reserved"
    with pytest.raises(TooFewReplicas, match="0 of 2"):
        await reserve(durable(commands), 2)
    await asyncio.to_thread(world.fail_over)
    assert await open_decisions(world) == set()


async def test_a_call_is_denied_in_words_where_replicas_are_missing_or_the_server_takes_no_writes(
    world, commands
):
    shared = connect_shared_state(world.url, commands, "n")
    scheduler = CostAware(
        config(
            default={"cost": 1},
            budgets=[{"name": "all", "limit": 100}],
            durability={"replicas": 2, "timeout_ms": 120},
        )
    )
    scheduler.use(shared)
    assert isinstance(await scheduler.decide(call()), Continue)
    world.primary.answer("CONFIG", "SET", "min-replicas-to-write", "3")
    before = short_writes("ledger")
    denied = await scheduler.decide(call().model_copy(update={"id": "1" * 32}))
    assert isinstance(denied, Deny)
    assert "min-replicas-to-write" in (denied.reason or "")
    assert short_writes("ledger") == before + 1
    world.primary.answer("CONFIG", "SET", "min-replicas-to-write", "0")
    world.cut()
    denied = await scheduler.decide(call().model_copy(update={"id": "2" * 32}))
    assert isinstance(denied, Deny)
    assert denied.rule_name == "durability"
    assert "0 of 2 replicas had it within 120 ms" in (denied.reason or "")
    assert await open_decisions(world) == {"0" * 32}
    await shared.aclose()


async def test_who_may_not_wait_for_replicas_is_told_what_to_allow(world, commands):
    await commands.execute("ACL", "SETUSER", "bare", "on", ">p", "~*", "+@all", "-wait")
    bare = RedisCommands(world.url.replace("//", "//bare:p@"), "bare")
    ledger = durable(bare)
    with pytest.raises(Refusal, match=r"\+wait, see deploy/redis/roles"):
        await reserve(ledger, 1)
    assert await reserved(ledger) == 0
    shared = connect_shared_state(world.url, bare, "n")
    scheduler = CostAware(config(budgets=[{"name": "all", "limit": 1}], durability={"replicas": 1}))
    with pytest.raises(ConfigError, match="WAIT"):
        await scheduler.start(SchedulerContext(shared, None, "n", "r", "cost-aware"))
    await shared.aclose()
    await bare.aclose()


# ---------------------------------------------------------------- people


class ApprovalFleet:
    """A replica of `approval` on the world, and what it said at last."""

    def __init__(self, url, commands):
        self.shared = connect_shared_state(url, commands, "n")
        self.said = []
        self.holds = StoredHolds(self.shared.store, "approval", self.send)
        text = "rules: [{tools: transfer}]\ndurability: {replicas: 2, timeout_ms: 120}\n"
        self.scheduler = ApprovalScheduler(approval_config(text))
        self.scheduler.use(SchedulerContext(self.shared, self.holds, "n", "r-1", "approval"))

    async def send(self, asked, verdict):
        self.said.append(verdict)

    async def ask(self):
        question = held_call().model_copy(update={"ttl_ms": 5000})
        verdict = await self.scheduler.decide(question)
        if isinstance(verdict, Hold):
            body = packing.pack(question.model_dump(exclude={"id"}))
            await self.holds.keep(ReplyTo("orch", packing.Item(bytes.fromhex(ID), 0, body, None)), verdict)
        return verdict


async def test_a_person_is_asked_and_counts_only_where_the_replicas_have_it(world, commands):
    fleet = ApprovalFleet(world.url, commands)
    world.replicas[1].stand_still()
    denied = await fleet.ask()
    assert isinstance(denied, Deny)
    assert "1 of 2 replicas had it within 120 ms" in (denied.reason or "")
    world.replicas[1].go_on()
    until(world.has_all, 15)
    assert isinstance(await fleet.ask(), Hold)
    desk = ApprovalQueue(fleet.shared.store, fleet.shared.notices)
    (waiting,) = await desk.list_waiting()
    world.replicas[1].stand_still()
    answer = ApprovalAnswer(action="approve", decision=ID, digest=waiting.approval.digest, by="anna")
    await desk.answer(waiting.approval, answer)
    assert await fleet.scheduler.give(waiting.approval.id) is not None
    assert fleet.said == []
    world.replicas[1].go_on()
    until(world.has_all, 15)
    assert await fleet.scheduler.give(waiting.approval.id) is None
    assert fleet.said == [Continue(reason="approved by anna")]
    await fleet.shared.aclose()
