"""A worker's scheduler is swapped while questions come: none is lost, each is decided by one of them."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.events import Continue, Deny, Hold
from toolgate_bus.protocol.revision import Revision
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.transport.memory import MemoryHub
from toolgate_bus.transport.ports import Member
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_schedulers import Scheduler, Worker
from toolgate_schedulers.author.forms import as_scheduler
from toolgate_schedulers.worker.config_follower import PushedConfig
from toolgate_schedulers.worker.process import WorkerSpec, _tell_ready
from toolgate_schedulers.worker.trial import TrialTally

pytestmark = pytest.mark.pure

TOOLS = ["bash", "search"]


class Marked:
    """Denies with its mark, after a while; notes when it is started and stopped."""

    name = "marked"

    def __init__(self, mark, notes, gate=None):
        self.mark, self.notes, self.gate = mark, notes, gate

    async def start(self, context):
        self.holds = context.holds
        self.notes.append(f"start {self.mark}")

    async def decide(self, call):
        if call.tool_name == "search":
            return Hold(seconds=5)
        await (self.gate.wait() if self.gate else asyncio.sleep(0.01))
        return Deny(reason=self.mark)

    async def stop(self):
        self.notes.append(f"stop {self.mark}")


class World:
    def __init__(self, gate, worker, shared, bus):
        self.gate, self.worker, self.shared, self.bus = gate, worker, shared, bus

    async def swap(self, written):
        return await self.worker.swap(as_scheduler(written), self.shared)


@pytest.fixture
async def world():
    async with AsyncExitStack() as stack:

        async def start(written, **config):
            hub, shared = MemoryHub(), make_shared_state()
            bus = hub.scheduler()
            worker = Worker(as_scheduler(written), bus, shared=shared)
            await worker.start()
            stack.push_async_callback(worker.drain)
            client = GateClient(hub.orchestrator())
            await client.start()
            stack.push_async_callback(client.bus.aclose)
            return World(Gate(parse({"patience_ms": 5000, **config}), client), worker, shared, bus)

        yield start


async def test_hundreds_of_decisions_over_many_reloads_are_each_decided_by_exactly_one(world):
    notes = []
    here = await world(Marked("0", notes))
    marks = [str(number) for number in range(10)]
    asked = []
    for mark in marks[1:]:
        asked += [asyncio.create_task(here.gate.decide(Call("bash", {}, TOOLS))) for _ in range(50)]
        await asyncio.sleep(0.003)
        await here.swap(Marked(mark, notes))
    decisions = await asyncio.gather(*asked)
    assert {(one.outcome, len(one.verdicts), one.silent) for one in decisions} == {("deny", 1, ())}
    by = Counter(one.reason for one in decisions)
    assert set(by) <= set(marks)
    assert len(by) > 1
    assert (await here.gate.decide(Call("bash", {}, TOOLS))).reason == "9"


async def test_what_has_begun_is_finished_by_the_old_one_which_is_stopped_after_it(world, wait_until):
    notes, gate = [], asyncio.Event()
    here = await world(Marked("old", notes, gate))
    begun = [asyncio.create_task(here.gate.decide(Call("bash", {}, TOOLS))) for _ in range(20)]
    await wait_until(lambda: here.worker._deciding == 20)
    await here.swap(Marked("new", notes))
    assert (await here.gate.decide(Call("bash", {}, TOOLS))).reason == "new"
    assert notes == ["start old", "start new"]
    gate.set()
    assert {one.reason for one in await asyncio.gather(*begun)} == {"old"}
    await wait_until(lambda: notes == ["start old", "start new", "stop old"])


async def test_both_are_stopped_when_the_worker_ends(world):
    notes = []
    here = await world(Marked("old", notes))
    await here.swap(Marked("new", notes))
    await here.worker.drain()
    assert sorted(notes[2:]) == ["stop new", "stop old"]


async def test_orchestrators_learn_of_other_tools_and_another_priority(world):
    here = await world(Scheduler(name="marked", decide=decide_deny, tools=("search",), priority=1))
    assert (await here.gate.decide(Call("bash", {}, TOOLS))).why == "unasked"
    told = await here.swap(Scheduler(name="marked", decide=decide_deny, tools=("bash",), priority=9))
    assert (told.priority, told.tools) == (9, ("bash",))
    denied = await here.gate.decide(Call("bash", {}, TOOLS))
    assert (denied.outcome, denied.verdicts[0].priority) == ("deny", 9)
    assert (await here.gate.decide(Call("search", {}, TOOLS))).why == "unasked"


async def test_a_question_about_a_tool_that_the_new_one_does_not_name_is_let_through(world, wait_until):
    gate = asyncio.Event()
    here = await world(Marked("old", [], gate))
    here.worker._concurrency = 1
    here.worker._lanes._limit = 1
    first = asyncio.create_task(here.gate.decide(Call("bash", {}, TOOLS)))
    await wait_until(lambda: here.worker._deciding == 1)
    waits = asyncio.create_task(here.gate.decide(Call("search", {}, TOOLS)))
    await wait_until(lambda: here.bus._hub._inboxes["marked"])
    await here.swap(Scheduler(name="marked", decide=decide_deny, tools=("bash",)))
    gate.set()
    assert (await first).reason == "old"
    assert ((await waits).outcome, (await waits).why) == ("continue", "agreed")


@pytest.mark.parametrize("field", ["name", "shadow"])
async def test_what_cannot_change_while_it_runs_is_refused_by_name(world, field):
    notes = []
    here = await world(Marked("old", notes))
    other = Marked("new", notes)
    setattr(other, field, {"name": "other", "shadow": True}[field])
    with pytest.raises(ConfigError, match=f"^{field}: cannot change"):
        await here.swap(other)
    assert notes == ["start old"]
    assert (await here.gate.decide(Call("bash", {}, TOOLS))).reason == "old"


async def test_one_that_cannot_start_leaves_all_as_it_was(world):
    class Broken(Marked):
        async def start(self, context):
            raise OSError("no licence")

    notes = []
    here = await world(Marked("old", notes))
    with pytest.raises(OSError, match="no licence"):
        await here.swap(Broken("new", notes))
    assert (await here.gate.decide(Call("bash", {}, TOOLS))).reason == "old"
    assert notes == ["start old"]


async def test_one_that_cannot_be_stopped_costs_nothing(world):
    class Broken(Marked):
        async def stop(self):
            raise OSError("no licence")

    here = await world(Broken("old", []))
    await here.swap(Marked("new", []))
    assert (await here.gate.decide(Call("bash", {}, TOOLS))).reason == "new"


async def test_what_the_old_one_holds_is_answered_through_the_new_one(world, wait_until):
    here = await world(Marked("old", []))
    held = asyncio.create_task(here.gate.decide(Call("search", {}, TOOLS)))
    new = Marked("new", [])
    await wait_until(lambda: here.worker._answered == 1)
    await here.swap(new)
    (question,) = await new.holds.open()
    assert await new.holds.answer(question.decision_id, Continue(reason="looked at"))
    assert (await held).outcome == "continue"


async def test_one_that_holds_and_thinks_on_gives_its_own_final_answer(world, wait_until):
    go = asyncio.Event()

    async def hold_then_deny(call):
        yield Hold(seconds=5)
        await go.wait()
        yield Deny(reason="old")

    here = await world(Scheduler(name="marked", decide=hold_then_deny, streams=True))
    held = asyncio.create_task(here.gate.decide(Call("bash", {}, TOOLS)))
    await wait_until(lambda: here.worker._working and here.worker._lanes._lent)
    await here.swap(Marked("new", []))
    assert (await here.gate.decide(Call("bash", {}, TOOLS))).reason == "new"
    go.set()
    assert (await held).reason == "old"


async def decide_deny(call):
    return Deny(reason="no")


async def test_one_that_rules_in_other_phases_is_not_tried_on_a_share_of_the_sessions(world):
    at = await world(Marked("old", []))
    last = replace(as_scheduler(Marked("new", [])), phases=("select", "verify", "admit"))
    with pytest.raises(ConfigError, match="it rules in other phases than the one in force"):
        await at.worker.try_beside(last, make_shared_state(), "r", 50, TrialTally())
    assert (await at.gate.decide(Call("bash", {}, TOOLS))).reason == "old"


def test_a_start_says_first_that_a_pushed_configuration_rules_and_how_to_take_it_back(capsys):
    made = replace(as_scheduler(Marked("new", [])), revision=Revision("v7", "d18163fd8d9e"))
    job, member = WorkerSpec(made, None, None, 1, as_json=False), Member("marked", "r")
    _tell_ready(member, "redis://h", job, PushedConfig(made))
    first, ready = capsys.readouterr().err.splitlines()
    assert first == (
        "marked does not rule by its own file: v7@d18163fd8d9e was pushed, and stays in force in every "
        "replica. To rule by the file: toolgate scheduler undo marked --to file"
    )
    assert ready.endswith("rules on * at redis://h")
    _tell_ready(member, "redis://h", job, PushedConfig())
    assert capsys.readouterr().err.splitlines() == [ready]
