"""Calls that operators have paused wait in the gate: before anybody is asked, and before they run."""

import asyncio
import time

import pytest
from questions import decide as decide_on
from toolgate_bus.protocol.agents import LiveAgent
from toolgate_bus.protocol.events import Continue, Deny, Hold
from toolgate_bus.protocol.pauses import Pause, StandingPauses
from toolgate_bus.telemetry import metrics
from toolgate_orchestrator.decision.link.live_session import LiveSession

pytestmark = pytest.mark.pure

NOW = 1_000_000
PATIENCE_S = 0.2
TOOLS = ["bash", "search"]


class Fleet:
    """A gate, and what operators say to its process."""

    def __init__(self, gate):
        self.gate, self.client = gate, gate._client
        self._mark = 0

    def stand(self, *pauses):
        """From now on these stand."""
        self._mark += 1
        return self.client.on_pauses(StandingPauses(self._mark, NOW, pauses))

    def call(self, **fields):
        """A call on its way."""
        return asyncio.ensure_future(decide_on(self.gate, "bash", {}, TOOLS, **fields))

    def paused(self):
        return metrics.value("toolgate_paused_calls")


def everyone(id_="p1", **fields):
    return Pause(id_, everyone=True, by="ops", since_ms=NOW, **fields)


@pytest.fixture
async def asked(world):
    """Which calls a scheduler was asked about."""
    seen = []

    def answer(call):
        seen.append(call.session_id if hasattr(call, "session_id") else call.tool_name)
        return Continue()

    await world.scheduler("watcher", answer)
    return seen


@pytest.fixture
async def fleet(world, asked):
    return Fleet(await world.gate(patience_ms=PATIENCE_S * 1000, required=["watcher"]))


async def settle():
    """Let everything happen that can happen now."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_nobody_is_asked_about_a_paused_call_and_none_of_its_time_counts(fleet, asked):
    fleet.stand(everyone())
    before, began = fleet.paused(), time.monotonic()
    call = fleet.call()
    await asyncio.sleep(2 * PATIENCE_S)
    assert (asked, call.done(), fleet.paused() - before) == ([], False, 1)
    fleet.stand()
    decision = await call
    assert (decision.outcome, decision.why, len(asked)) == ("continue", "agreed", 1)
    assert decision.seconds <= time.monotonic() - began - 2 * PATIENCE_S
    assert fleet.paused() == before


async def test_a_call_that_is_ruled_on_while_the_pause_comes_waits_before_it_runs(world, wait_until):
    go = asyncio.Event()

    async def decide(call):
        await go.wait()
        return Continue()

    await world.scheduler("slow", decide)
    fleet = Fleet(await world.gate())
    call = fleet.call()
    await wait_until(lambda: fleet.client.table.open)
    fleet.stand(everyone())
    go.set()
    await wait_until(lambda: not fleet.client.table.open)
    await settle()
    assert not call.done()
    fleet.stand()
    assert (await call).outcome == "continue"


async def test_a_denial_need_not_wait(world, wait_until):
    go = asyncio.Event()

    async def decide(call):
        await go.wait()
        return Deny(reason="no")

    await world.scheduler("slow", decide)
    fleet = Fleet(await world.gate())
    call = fleet.call()
    await wait_until(lambda: fleet.client.table.open)
    fleet.stand(everyone())
    go.set()
    assert (await asyncio.wait_for(call, 30)).outcome == "deny"


async def test_a_held_call_can_be_answered_while_it_is_paused_and_runs_afterwards(world, wait_until):
    async def decide(call):
        yield Hold(seconds=30)
        await go.wait()
        yield Continue()

    go = asyncio.Event()
    await world.scheduler("person", decide, streams=True)
    fleet = Fleet(await world.gate())
    held = []
    call = fleet.call(on_hold=held.append)
    await wait_until(lambda: held)
    fleet.stand(everyone())
    go.set()
    await wait_until(lambda: len(held) == 2)
    assert [(one.scheduler, one.paused) for one in held] == [("person", False), ("operator", True)]
    fleet.stand()
    assert (await call).allowed


@pytest.mark.parametrize(
    ("pause", "meant"),
    [
        (Pause("p", sessions=("mid",)), {"mid", "leaf"}),
        (Pause("p", roots=("top",)), {"top", "mid", "leaf"}),
        (Pause("p", labels=(("team", "blue"),)), {"leaf"}),
        (Pause("p", labels=(("job", "x"), ("team", "blue"))), set()),
        (Pause("p", everyone=True), {"top", "mid", "leaf", "other"}),
        (Pause("p"), set()),
    ],
)
async def test_a_pause_means_a_session_with_all_that_work_for_it(fleet, pause, meant):
    parents = {"top": None, "mid": "top", "leaf": "mid", "other": None}
    roots = {"top": "top", "mid": "top", "leaf": "top", "other": "other"}
    for session, parent in parents.items():
        fleet.gate.enter(LiveSession(LiveAgent(session, roots[session], parent), lambda now: None))
    fleet.stand(pause)
    told = {session for session, one in fleet.client.present.items() if one.pause is not None}
    calls = {}
    for session, parent in parents.items():
        labels = {"team": "blue"} if session == "leaf" else None
        calls[session] = fleet.call(
            session=session, parent=parent, root_session=roots[session], labels=labels
        )
    if free := [one for session, one in calls.items() if session not in meant]:
        await asyncio.wait(free, timeout=30)
    await settle()
    assert {session for session, one in calls.items() if not one.done()} == meant
    assert told == (meant if not pause.labels else set())  # labels of a call are not its session's
    fleet.stand()
    assert all(one.allowed for one in await asyncio.gather(*calls.values()))


async def test_a_pause_ends_by_itself_by_our_own_clock(fleet, wait_until):
    live = LiveSession(LiveAgent("a", "a"), lambda now: None)
    fleet.gate.enter(live)
    told = []
    fleet.stand(everyone(until_ms=NOW + 1000))
    call = fleet.call(on_hold=told.append)
    await settle()
    assert (call.done(), live.tell().paused) == (False, "p1")
    assert (await asyncio.wait_for(call, 30)).allowed
    assert 0 < told[0].seconds <= 1
    assert (live.tell().paused, fleet.client.pauses.standing) == ("", ())


async def test_one_pause_of_several_that_ends_frees_nobody(fleet):
    fleet.stand(everyone("p1"), everyone("p2"))
    told = []
    call = fleet.call(on_hold=told.append)
    await settle()
    fleet.stand(everyone("p2"))
    await settle()
    assert not call.done()
    assert [one.reason for one in told] == [
        f"paused by ops: toolgate agents resume {one}" for one in ("p1", "p2")
    ]
    fleet.stand()
    assert (await call).allowed


async def test_a_paused_call_that_is_cancelled_is_recorded_as_that_and_asked_about_by_nobody(fleet, asked):
    decided = []
    fleet.gate.subscribe(decided.append)
    fleet.stand(everyone())
    before, call = fleet.paused(), fleet.call()
    await settle()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert ([one.outcome for one in decided], asked, fleet.paused()) == (["cancelled"], [], before)


async def test_what_is_known_to_be_paused_waits_while_the_bus_is_away(fleet):
    fleet.stand(everyone())
    fleet.client.on_connection(False)
    call = fleet.call()
    await asyncio.sleep(2 * PATIENCE_S)
    assert not call.done()
    fleet.client.on_connection(True)
    fleet.stand()
    assert (await call).allowed


async def test_a_call_that_nobody_would_rule_on_is_paused_all_the_same(world):
    gate = await world.gate()
    fleet = Fleet(gate)
    assert not gate.wanted("bash")
    fleet.stand(everyone())
    assert gate.wanted("bash")
    call = fleet.call()
    await settle()
    assert not call.done()
    fleet.stand()
    assert ((await call).why, gate.wanted("bash")) == ("unasked", False)


async def test_the_record_tells_who_paused_whom_and_for_how_long(world, asked):
    world.hub.is_read = True
    gate = await world.gate()
    noted = []
    gate._recorder.note = lambda event, data: noted.append((event, dict(data)))
    fleet = Fleet(gate)
    leave = gate.enter(LiveSession(LiveAgent("a", "a", None, "ada"), lambda now: None))
    fleet.stand(everyone())
    call = fleet.call(session="a", agent="ada", tool_call_id="c1")
    await settle()
    fleet.stand()
    decision = await call
    pause, waited, resume = (dict(noted).get(one) for one in ("agent:pause", "tool:paused", "agent:resume"))
    who = {"session": "a", "root_session": "a", "agent": "ada", "by": "ops", "pause": "p1"}
    assert pause == who
    assert {**resume, "seconds": 0} == {**who, "seconds": 0}
    ended = {"tool": "bash", "tool_call_id": "c1", "decision_id": decision.id, "status": "resumed"}
    assert {**waited, "seconds": 0} == {**who, **ended, "seconds": 0}
    leave()


async def test_agents_that_leave_while_they_are_paused_are_counted_no_longer(fleet):
    before = metrics.value("toolgate_paused_agents")
    leave = fleet.gate.enter(LiveSession(LiveAgent("a", "a"), lambda now: None))
    fleet.stand(everyone())
    assert metrics.value("toolgate_paused_agents") - before == 1
    leave()
    assert metrics.value("toolgate_paused_agents") == before
    leave = fleet.gate.enter(
        LiveSession(LiveAgent("b", "b"), lambda now: None)
    )  # who comes later is paused too
    assert metrics.value("toolgate_paused_agents") - before == 1
    leave()
