"""What a session told once of those above it holds for all its calls, whatever it leaves out later."""

import asyncio

import pytest
from questions import decide
from toolgate_bus.protocol.events import Continue
from toolgate_bus.protocol.pauses import Pause
from toolgate_orchestrator.commands.serve.routes import ROUTES
from toolgate_orchestrator.commands.serve.service import SidecarService
from toolgate_orchestrator.decision.link import ancestry

pytestmark = pytest.mark.pure

ONCE = {
    "parent": {"parent": "top"},
    "parent and root": {"parent": "top", "root_session": "top"},
    "root": {"root_session": "top"},
    "in the middle": {"parent": "mid", "root_session": "top"},
    "parent of a parent": {"parent": "mid"},
}
LATER = {
    "nothing": {},
    "itself": {"parent": "kid"},
    "itself as the root": {"root_session": "kid"},
    "somebody else": {"parent": "other"},
    "another root": {"root_session": "other"},
    "whoever works for it": {"parent": "grandkid"},
}


async def stays():
    await asyncio.Event().wait()


@pytest.fixture
async def asked(world):
    found = []

    def note(call):
        found.append(call)
        return Continue()

    await world.scheduler("police", note)
    return found


def stop(name):
    return Pause("s1", (name,), (name,), stop=True)


async def outcome(gate, session, **place):
    return (await decide(gate, "pay", {}, ["pay"], session=session, **place)).outcome


@pytest.mark.parametrize("later", LATER.values(), ids=LATER)
@pytest.mark.parametrize("once", ONCE.values(), ids=ONCE)
async def test_a_stop_means_who_ever_said_that_it_works_for_the_stopped(world, asked, once, later):
    gate = await world.gate()
    await outcome(gate, "mid", parent="top")
    await outcome(gate, "kid", **once)
    await outcome(gate, "grandkid", parent="kid")
    world.hub.stand(stop("top"))
    assert await outcome(gate, "kid", **later) == "deny"
    assert await outcome(gate, "grandkid") == "deny"
    assert await outcome(gate, "stranger") == "continue"


async def test_a_pause_means_it_too(world, asked):
    gate = await world.gate()
    await outcome(gate, "kid", parent="top")
    world.hub.stand(Pause("p1", ("top",), ("top",)))
    waiting = asyncio.ensure_future(outcome(gate, "kid"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    world.hub.stand()
    assert await waiting == "continue"


async def test_calls_of_a_turn_are_below_whom_the_turn_named(world, asked):
    service = SidecarService(await world.gate())
    begun = {"session": "kid", "parent": "top", "lineage": ["boss", "clerk"], "agent": "clerk", "do": "begin"}
    await ROUTES["/v1/turn"].handle(service, begun, stays)
    call = {"tool": "pay", "session": "kid", "agent": "clerk"}
    assert (await ROUTES["/v1/decide"].handle(service, call, stays))["outcome"] == "continue"
    assert (asked[0].root_session, asked[0].parent, list(asked[0].lineage)) == (
        "top",
        "top",
        ["boss", "clerk"],
    )
    world.hub.stand(stop("top"))
    assert (await ROUTES["/v1/decide"].handle(service, call, stays))["outcome"] == "deny"
    await ROUTES["/v1/turn"].handle(service, {"session": "kid", "do": "end"}, stays)
    assert (await ROUTES["/v1/decide"].handle(service, call, stays))["outcome"] == "deny"
    service.turns.close()


async def test_questions_name_those_above_as_they_were_told_before(world, asked):
    gate = await world.gate()
    await outcome(gate, "mid", parent="top", agent="clerk", lineage=("boss", "clerk"))
    await outcome(gate, "kid", parent="mid", agent="scout")
    await outcome(gate, "kid", agent="scout")
    await outcome(gate, "mid", agent="clerk")
    told = [(one.root_session, one.parent, list(one.lineage)) for one in asked]
    kid = ("top", "mid", ["boss", "clerk", "scout"])
    mid = ("top", "top", ["boss", "clerk"])
    assert told == [mid, kid, kid, mid]


async def test_a_tree_with_many_sessions_pushes_out_its_own(world, asked, monkeypatch):
    monkeypatch.setattr(ancestry, "MAX_TOLD", 8)
    gate = await world.gate()
    await outcome(gate, "kid", parent="top")
    for number in range(50):
        await outcome(gate, f"flood-{number}", parent="flood")
    world.hub.stand(stop("top"))
    assert await outcome(gate, "kid") == "deny"


async def test_a_lineage_that_was_told_once_holds_where_nobody_is_named_above(world, asked):
    gate = await world.gate()
    await outcome(gate, "kid", agent="scout", lineage=("boss", "scout"))
    await outcome(gate, "kid", agent="scout")
    assert [(one.root_session, one.parent, list(one.lineage)) for one in asked] == [
        ("kid", None, ["boss", "scout"])
    ] * 2
