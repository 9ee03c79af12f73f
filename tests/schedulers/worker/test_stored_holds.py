"""A stored hold is answered once, and by nothing that goes wrong in between is its answer lost."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from toolgate_bus.errors import BusDown, ConfigError, OutcomeUnknown, TransportError
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import Continue, Deny, Hold, ToolSelecting
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.transport.memory import MemoryHub, MemoryStore
from toolgate_schedulers.testing import trial
from toolgate_schedulers.worker.holds import ReplyTo, StoredHolds

pytestmark = pytest.mark.pure

ID = "0" * 31 + "7"
YES = Continue(reason="a person said yes")


def asked(phase=0):
    call = ToolSelecting(id=ID, phase=("select", "verify")[phase], tool_name="transfer")
    body = packing.pack(call.model_dump(exclude={"id"}))
    return ReplyTo("orch", packing.Item(bytes.fromhex(ID), phase, body, None))


class World:
    """A store and a bus that do wrong what `faults` holds, one after the other, and then go on."""

    def __init__(self):
        self.sent, self.faults, inner = [], {}, MemoryStore()
        done = {name: self.troubled(name, getattr(inner, name)) for name in ("put", "lease", "get", "delete")}
        self.store = SimpleNamespace(keys=inner.keys, read_many=inner.read_many, **done)
        self.send = self.troubled("send", self.sends)

    def troubled(self, name, act):
        async def acts(*arguments):
            await asyncio.sleep(0)  # others may come in between, as on a server
            faults = self.faults.get(name, [])
            fault = faults.pop(0) if faults else None
            if isinstance(fault, BusDown):
                raise fault  # it was not done
            done = await act(*arguments)
            if fault == "hangs":
                await asyncio.Event().wait()
            if fault is not None:
                raise fault  # it was done, and nobody was told
            return done

        return acts

    async def sends(self, asked, verdict):
        self.sent.append((asked.item.phase, verdict))

    def replica(self):
        return StoredHolds(self.store, "approval", self.send)

    async def held(self):
        return [one.question.phase for one in await self.replica().open()]


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Nobody wants to sit through the real times."""
    for name, seconds in (("LEASE", 0.2), ("ANSWER", 0.4), ("FORGET", 0.2)):
        monkeypatch.setattr(f"toolgate_schedulers.worker.holds.{name}_SECONDS", seconds)


@pytest.fixture
async def world():
    made = World()
    await made.replica().keep(asked(), Hold(seconds=30))
    return made


async def test_the_answer_is_on_the_bus_before_the_hold_is_deleted(world):
    seen = []

    async def look(asked, verdict):
        seen.append(await world.held())

    assert await StoredHolds(world.store, "approval", look).answer(ID, YES)
    assert seen == [["select"]]
    assert await world.held() == []


async def test_what_died_before_it_had_written_the_answer_leaves_the_hold_to_a_peer(world):
    async def dies(asked, verdict):
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await StoredHolds(world.store, "approval", dies).answer(ID, YES)
    assert await world.replica().answer(ID, YES)
    assert world.sent == [(0, YES)]
    assert await world.replica().answer(ID, YES) is False


async def test_of_many_that_answer_at_once_one_does(world):
    verdicts = [Deny(reason=str(n)) for n in range(20)]
    done = await asyncio.gather(*(world.replica().answer(ID, verdict) for verdict in verdicts))
    assert sum(done) == len(world.sent) == 1
    assert world.sent == [(0, verdicts[done.index(True)])]


@pytest.mark.parametrize("name", ["lease", "get", "send", "delete"])
@pytest.mark.parametrize("fault", [BusDown("away"), OutcomeUnknown("perhaps"), "hangs"])
@pytest.mark.parametrize("before", [0, 1])
async def test_an_answer_is_given_over_every_fault_and_the_caller_is_told_so(world, name, fault, before):
    world.faults[name] = [None] * before + [fault]
    assert await world.replica().answer(ID, YES)
    assert {verdict for _, verdict in world.sent} == {YES}
    assert await world.held() == []


async def test_an_answer_that_could_not_be_given_is_said_so_and_may_be_given_again(world):
    world.faults["send"] = [BusDown("away")] * 1000
    with pytest.raises(BusDown):
        await world.replica().answer(ID, YES)
    assert (world.sent, await world.held()) == ([], ["select"])
    world.faults.clear()
    assert await world.replica().answer(ID, YES)
    assert world.sent == [(0, YES)]


async def test_while_another_replica_answers_nobody_is_told_that_the_hold_is_gone(world):
    await world.store.put(f"answering:hold:approval:{ID}:0", b"another", 30)
    with pytest.raises(TransportError, match="another replica is answering"):
        await world.replica().answer(ID, YES)
    assert world.sent == []
    await world.store.put(f"answering:hold:approval:{ID}:0", b"another", 0.1)
    assert await world.replica().answer(ID, YES)


async def test_who_answers_before_the_hold_is_stored_takes_no_lease_that_would_keep_others_off(monkeypatch):
    monkeypatch.setattr("toolgate_schedulers.worker.holds.LEASE_SECONDS", 60)
    world = World()
    assert not await world.replica().answer(ID, YES, "select")
    await world.replica().keep(asked(), Hold(seconds=30))
    assert await world.replica().answer(ID, YES, "select")
    assert world.sent == [(0, YES)]


async def test_an_answer_goes_to_the_phase_that_it_names_or_else_to_the_replacement(world):
    await world.replica().keep(asked(1), Hold(seconds=30))
    assert await world.replica().answer(ID, YES, "select")
    assert await world.replica().answer(ID, YES, "select") is False
    await world.replica().keep(asked(0), Hold(seconds=30))
    assert await world.replica().answer(ID, YES)
    assert [phase for phase, _ in world.sent] == [0, 1]
    assert await world.held() == ["select"]


async def test_those_of_one_decision_are_found_without_looking_through_all(world):
    await world.replica().keep(asked(1), Hold(seconds=30))
    del world.store.keys
    assert [one.question.phase for one in await world.replica().open(ID)] == ["select", "verify"]
    assert await world.replica().open("f" * 32) == []


# ---------------------------------------------------------------------- keeping


@pytest.mark.parametrize("fault", [BusDown("away"), OutcomeUnknown("perhaps"), "hangs"])
async def test_a_hold_is_kept_over_faults_while_there_is_time(fault):
    world = World()
    world.faults["put"] = [fault, fault]
    await world.replica().keep(asked(), Hold(seconds=30), time.monotonic() + 2)
    assert await world.held() == ["select"]


@pytest.mark.parametrize("fault", [BusDown("away"), "hangs"])
async def test_it_is_not_tried_for_longer_than_there_is_time(fault):
    world = World()
    world.faults["put"] = [fault] * 1000
    began = time.monotonic()
    with pytest.raises(TransportError):
        await world.replica().keep(asked(), Hold(seconds=30), began + 0.2)
    assert time.monotonic() - began > 0.15


async def test_what_no_trying_will_mend_is_not_tried_again():
    world = World()
    world.faults["put"] = [ConfigError("no permission")]
    with pytest.raises(ConfigError):
        await world.replica().keep(asked(), Hold(seconds=30), time.monotonic() + 30)


# ---------------------------------------------------------------------- in a worker


async def test_one_that_holds_and_thinks_is_heard_though_the_bus_is_away_for_a_moment(monkeypatch):
    said, hear = [], MemoryHub._hear

    async def think(call):
        yield Hold(seconds=5)
        yield Deny(reason="thought about it")

    def sometimes(hub, orchestrator, scheduler, items):
        if [codec.verdict(packing.items(packing.frame(items))[0].body).action] == ["deny"]:
            said.append(1)
            if len(said) < 3:
                raise BusDown("away")
        hear(hub, orchestrator, scheduler, items)

    monkeypatch.setattr(MemoryHub, "_hear", sometimes)
    async with trial(think) as trying:
        assert await trying.pose("x").final() == Deny(reason="thought about it")
        assert len(said) == 3


class ThinkingWorld:
    """A scheduler that holds and thinks, and a store that writes keys of one kind late."""

    def __init__(self, late):
        self.shared, self.late = make_shared_state(), late
        self.decided, self.writes, self.go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.shared.store.put = self.put

    async def think(self, call):
        yield Hold(seconds=30)
        await self.decided.wait()
        yield Deny(reason="thought about it")

    async def put(self, key, *arguments):
        if key.startswith(self.late):
            self.writes.set()
            await self.go_on.wait()
        await MemoryStore.put(self.shared.store, key, *arguments)

    async def pass_on(self):
        for _ in range(20):  # what does not wait for the other is done by now
            await asyncio.sleep(0)
        self.go_on.set()


async def test_an_answer_waits_for_its_hold_that_is_being_stored_anew():
    """The server forgot it, and the question came again: one that nobody answers would last to its end."""
    world = ThinkingWorld("hold:")
    async with trial(world.think, shared=world.shared) as trying:
        first = trying.pose("x", timeout_s=5)
        world.go_on.set()
        assert (await first.next()).action == "hold"
        (kept,) = await world.shared.store.keys("hold:")
        await world.shared.store.delete(kept)
        world.writes.clear()
        world.go_on.clear()
        again = trying.pose("x", id=first.id, timeout_s=5)
        await world.writes.wait()
        world.decided.set()
        await world.pass_on()
        assert await again.final() == Deny(reason="thought about it")
    assert await world.shared.store.keys("hold:") == []


async def test_a_hold_whose_answer_is_being_given_is_not_stored_anew():
    """It would be shown to people, and wait for nobody."""
    world = ThinkingWorld("answering:")
    async with trial(world.think, shared=world.shared) as trying:
        first = trying.pose("x", timeout_s=5)
        assert (await first.next()).action == "hold"
        world.decided.set()
        await world.writes.wait()
        again = trying.pose("x", id=first.id, timeout_s=5)
        await world.pass_on()
        assert await again.final() == Deny(reason="thought about it")
    assert await world.shared.store.keys("hold:") == []


async def test_what_fails_behind_the_answer_to_a_hold_is_told_to_nobody():
    async def think(call):
        try:
            yield Hold(seconds=30)
            yield Deny(reason="thought about it")
        finally:
            raise RuntimeError("cannot tidy up")

    async with trial(think) as trying:
        asked = trying.pose("x")
        assert await asked.final() == Deny(reason="thought about it")
    assert [one.action for one in asked.answers] == ["hold", "deny"]


async def test_a_replica_that_holds_after_its_own_end_says_nothing_more():
    async with trial(Holding()) as trying:
        question = trying.pose("x")
        assert (await question.next()).action == "hold"
        killed = trying.scheduler
        holds = Holding.holds
        await trying.restart(Holding(), kill=True)
        assert killed is not trying.scheduler
        with pytest.raises(BusDown):
            await asyncio.wait_for(holds.answer(question.id, YES), 10)
        assert len(question.answers) == 1
        assert await Holding.holds.answer(question.id, YES)
        assert await question.final() == YES


class Holding:
    """Holds every call; `holds` are those of the replica that was started last."""

    name = "holding"

    async def start(self, context):
        type(self).holds = context.holds

    async def decide(self, call):
        return Hold(seconds=30)
