"""A stop stands at every door of a sidecar: `/v1/decide`, AuthZEN, turns, and the hooks of coding agents."""

import asyncio
import json

import jsonschema
import pytest
from client_schemas import SCHEMAS
from hook_fixtures import FILES, load
from toolgate_bus.protocol.events import Continue
from toolgate_bus.protocol.pauses import Pause
from toolgate_orchestrator.coding_agents.translation import CLIENTS, read_event
from toolgate_orchestrator.commands.serve.hook_handler import HookHandler

pytestmark = pytest.mark.pure

BEFORE = {
    path.parent.name: load(path)["event"]
    for path in FILES
    if "answers" in load(path) and "modify" in load(path)["answers"]
}
SAID = "An operator stopped this agent (by ops)"
ORDER = {"now": False, "by": "ops"}


def stop(*names, **fields):
    return Pause("s1", names, names, by="ops", stop=True, **fields)


@pytest.fixture
async def asked(sidecar, world):
    await world.scheduler("watcher", Continue())
    return await sidecar(required=["watcher"])


async def stays():
    await asyncio.Event().wait()


async def turn(asked, do, session="s", **fields):
    return (await asked.ask("/v1/turn", {"session": session, "do": do, **fields})).body


async def test_calls_of_whoever_works_for_a_stopped_session_are_denied_and_told_to_end(asked, world):
    world.hub.stand(stop("root"))
    for place in (
        {"session": "root"},
        {"session": "a", "root_session": "root"},
        {"session": "b", "parent": "root"},
        {"session": "c", "parent": "b"},
        {"session": "d", "parent": "x", "root_session": "root"},
    ):
        ruling = await asked.decide(**place)
        assert (ruling["outcome"], ruling["scheduler"], ruling["stop"]) == ("deny", "operator", ORDER)
        assert SAID in ruling["refusal"]
        assert ruling["id"]  # it is in the record
    for place in ({"session": "other"}, {}, {"session": "y", "parent": "other"}):
        ruling = await asked.decide(**place)
        assert (ruling["outcome"], ruling.get("stop")) == ("continue", None)
    world.hub.stand()
    assert (await asked.decide(session="root"))["outcome"] == "continue"


async def test_authzen_denies_them_as_well(asked, world):
    world.hub.stand(stop("s"))
    for session, decision in (("s", False), ("other", True)):
        body = {
            "subject": {"type": "user", "id": "ann"},
            "action": {"name": "run"},
            "resource": {"type": "file", "id": "x"},
            "context": {"session": session},
        }
        said = (await asked.ask("/access/v1/evaluation", body)).body
        assert said["decision"] is decision
        assert said["context"].get("stop") == (None if decision else ORDER)


async def test_a_turn_of_a_stopped_session_meets_the_stop_and_goes_on_once_it_is_lifted(asked, world):
    world.hub.stand(stop("s"))
    assert (await turn(asked, "begin"))["stop"] == ORDER
    assert (await turn(asked, "watch"))["stop"] == ORDER
    assert SAID in (await asked.decide(session="s"))["refusal"]
    world.hub.stand()
    assert (await turn(asked, "watch", timeout_ms=50))["stop"] is None
    assert (await asked.decide(session="s"))["outcome"] == "continue"
    watching = asked.begin("/v1/turn", {"session": "s", "do": "watch"})
    await asyncio.sleep(0)
    world.hub.stand(stop("s", now=True))
    assert (await watching.answer()).body["stop"] == {**ORDER, "now": True}


async def answer(desk, client, event):
    """What a client is told; whether it takes that for a denial."""
    body = await desk.answer(client, json.dumps(event).encode(), 5.0, stays)
    if body:
        jsonschema.validate(json.loads(body), SCHEMAS[client])
    return b'"deny"' in body and SAID.encode() in body


def session_of(client, event):
    """Where an event names its conversation, and that."""
    session = read_event(client, json.dumps(event).encode()).session
    return next(key for key, value in event.items() if value == session), session


@pytest.mark.parametrize("client", CLIENTS)
async def test_hooks_of_a_stopped_conversation_are_denied_however_long_it_was_quiet(client, asked, world):
    desk, event = HookHandler(asked.service, denies=lambda: True, clock=lambda: asked.now), BEFORE[client]
    key, session = session_of(client, event)
    assert not await answer(desk, client, event)
    world.hub.stand(stop(session))
    for _ in range(3):
        assert await answer(desk, client, event)
        asked.now += 3600
        asked.service.sweep_once(asked.now)
    other = {**event, key: f"{session}-2"}
    assert not await answer(desk, client, other)
    world.hub.stand()
    assert not await answer(desk, client, event)


async def test_sub_agents_of_a_stopped_conversation_are_denied_by_hooks_too(asked, world):
    desk = HookHandler(asked.service, denies=lambda: True, clock=lambda: asked.now)
    event = {**BEFORE["claude"], "session_id": "talk", "agent_id": "a1", "agent_type": "Explore"}
    world.hub.stand(stop("talk"))
    assert await answer(desk, "claude", event)
    assert await answer(desk, "claude", {**event, "agent_id": "a2"})
    world.hub.stand(stop("talk/a1"))
    assert await answer(desk, "claude", event)
    assert not await answer(desk, "claude", {**event, "agent_id": "a2"})


async def test_a_sub_agent_stays_stopped_where_its_event_leaves_out_who_started_it(asked, world):
    desk, bare = HookHandler(asked.service, denies=lambda: True, clock=lambda: asked.now), BEFORE["copilot"]
    first = {**bare, "sessionId": "a1", "agentId": "a1", "parentAgentId": "talk"}
    second = {**bare, "sessionId": "a2", "agentId": "a2", "parentAgentId": "a1"}
    assert [await answer(desk, "copilot", one) for one in (first, second)] == [False, False]
    world.hub.stand(stop("talk"))
    for told in ({"sessionId": "a2"}, {"sessionId": "a2", "agentId": "a2", "parentAgentId": "a2"}):
        assert await answer(desk, "copilot", {**bare, **told})
    assert not await answer(desk, "copilot", {**bare, "sessionId": "another"})


async def test_a_call_that_was_let_through_just_before_the_stop_is_given_back_by_the_hook(asked, world):
    """The client is told to end: it will not run it, and no event will tell of it."""
    desk, inner = (
        HookHandler(asked.service, denies=lambda: True, clock=lambda: asked.now),
        asked.service.decide,
    )

    async def decide(call, gone):
        return {**await inner(call, gone), "stop": ORDER}

    asked.service.decide = decide
    event = {**BEFORE["claude"], "session_id": "talk"}
    body = await desk.answer("claude", json.dumps(event).encode(), 5.0, stays)
    assert b'"deny"' in body
    (unused,) = asked.told("tool:unused")
    assert unused["decision_id"]
    assert desk.is_idle
