"""Every question and every cost tells for whom an agent works, also where callers tell but a part of it."""

import asyncio

import pytest
from questions import decide
from toolgate_bus.facts.record import read_facts
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import Continue, Deny
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.commands.serve.routes import ROUTES
from toolgate_orchestrator.commands.serve.service import SidecarService

pytestmark = pytest.mark.pure

BELOW = {"session": "child", "parent": "mid", "agent": "scout", "lineage": ["boss", "clerk", "scout"]}


async def stays():
    """A caller that waits for its answer."""
    await asyncio.Event().wait()


@pytest.fixture
async def asked(world):
    """The questions that were asked, as their session, root and parent."""
    found = []

    def note(call):
        found.append((call.session, call.root_session, call.parent))
        return Continue()

    await world.scheduler("police", note)
    return found


@pytest.mark.parametrize(
    ("told", "root"),
    [
        ({}, "child"),
        ({"parent": "top"}, "top"),
        ({"parent": ""}, "child"),
        ({"parent": "child"}, "child"),
        ({"parent": "top", "root_session": "other"}, "other"),
        ({"parent": ["top"]}, "child"),
    ],
)
async def test_a_session_whose_parent_alone_is_told_is_of_its_parents_tree(world, asked, told, root):
    gate = await world.gate()
    assert (await decide(gate, "pay", {}, ["pay"], session="child", **told)).allowed
    assert asked[0][:2] == ("child", root)


class Name(str):
    """A text of a program's own."""


@pytest.mark.parametrize("name", ["boss", Name("boss")])
async def test_one_name_above_is_one_agent_and_not_its_letters(world, name):
    await world.scheduler("police", lambda call: Deny(reason=" > ".join(call.lineage)))
    gate = await world.gate()
    assert (await gate.decide(Call("pay", {}, ["pay"], Caller("s", lineage=name)))).reason == "boss"


async def test_the_root_is_that_of_a_parent_whose_turn_runs(world, asked):
    service = SidecarService(await world.gate())
    for session, parent in (("mid", "top"), ("child", "mid")):
        begun = {"session": session, "parent": parent, "do": "begin"}
        await ROUTES["/v1/turn"].handle(service, begun, stays)
    await ROUTES["/v1/decide"].handle(service, {"tool": "pay", **BELOW}, stays)
    assert asked == [("child", "top", "mid")]
    service.turns.close()


async def test_what_an_llm_cost_a_sub_agent_is_told_with_those_who_pay_for_it(world, asked):
    world.hub.is_read = True
    service = SidecarService(await world.gate())
    used = {"provider": "p", "cost_usd": 1, **BELOW}
    await ROUTES["/v1/usage"].handle(service, used, stays)
    ruled = await ROUTES["/v1/decide"].handle(service, {"tool": "llm:request", **BELOW}, stays)
    await ROUTES["/v1/usage"].handle(service, {"provider": "p", "cost_usd": 1, "id": ruled["id"]}, stays)
    facts = [fact for item in packing.items(packing.frame(world.hub.facts)) for fact in read_facts(item)]
    costs = [fact for fact in facts if fact["event"] == "usage"]
    assert [(fact["root_session"], fact["lineage"]) for fact in costs] == [("mid", BELOW["lineage"])] * 2
