"""What a sidecar does with calls: who waits, who comes back, who has gone; reports, turns, stops, its end."""

import asyncio
import re

import pytest
from toolgate_bus.protocol.events import Continue, Deny, Hold, Modify
from toolgate_bus.telemetry.definitions import MAX_SERIES
from toolgate_orchestrator.commands.serve import held_calls, turns
from toolgate_orchestrator.commands.serve import service as service_module
from toolgate_orchestrator.commands.serve.held_calls import PENDING_S

pytestmark = pytest.mark.pure

HELD = {"required": ["holder"], "patience_ms": 5000, "max_hold_s": 600}


async def holds(world, release=None, tell=None):
    """A scheduler that holds every call until `release` is set."""

    async def decide(call):
        yield Hold(seconds=500, reason="for a person")
        if tell is not None:
            tell.set()
        await (release or asyncio.Event()).wait()
        yield Continue()

    await world.scheduler("holder", decide, streams=True)


async def test_a_call_is_ruled_on_run_and_reported(sidecar, world):
    await world.scheduler(
        "policy", lambda call: Deny(reason="no rm") if call.tool_name == "rm" else Continue()
    )
    asked = await sidecar(agent="sidecar", labels={"team": "a"})
    ruling = await asked.decide("run", arguments={"a": 1}, session="s", call_id="c1", labels={"team": "b"})
    assert (ruling["outcome"], ruling["tool"], ruling["arguments"]) == ("continue", "run", {"a": 1})
    assert asked.told("tool:selected")[0]["agent"] == "sidecar"
    asked.now += 2
    told = {"id": ruling["id"], "outcome": "succeed", "cost_usd": "0.02"}
    assert (await asked.ask("/v1/report", told)).body == {"recorded": True}
    assert (await asked.ask("/v1/report", told)).body == {"recorded": False}
    assert (await asked.ask("/v1/report", {**told, "outcome": "fail"})).status == 409
    (fact,) = asked.told("tool:post")
    assert (fact["cost"], fact["seconds"], fact["decision_id"], fact["session"]) == (
        20_000,
        2.0,
        ruling["id"],
        "s",
    )
    denied = await asked.decide("rm")
    assert (denied["outcome"], denied["scheduler"]) == ("deny", "policy")
    assert denied["refusal"] == "The tool call was denied: no rm"
    assert (await asked.ask("/v1/report", {"id": denied["id"], "outcome": "succeed"})).status == 404


async def test_whom_a_call_hands_work_to_is_ruled_on_said_or_named_by_its_arguments(sidecar, world):
    await world.scheduler(
        "policy",
        lambda call: (
            Deny(reason="no") if call.agent_target == "intern" else Modify(tool="run", agent_target="b")
        ),
    )
    asked = await sidecar()
    agents = {"available_agents": ["intern", "a", "b"]}
    for fields in ({"arguments": {"agent": "intern"}}, {"agent_target": "intern"}):
        assert (await asked.decide(**fields, **agents))["outcome"] == "deny"
    moved = await asked.decide(arguments={"agent": "a", "n": 1}, **agents)
    assert (moved["agent_target"], moved["arguments"]) == ("b", {"agent": "b", "n": 1})


@pytest.mark.parametrize(
    ("modify", "can", "tools", "outcome"),
    [
        (Modify(tool="other"), ["tool", "arguments"], ["run", "other"], "modify"),
        (Modify(tool="other"), ["arguments"], ["run", "other"], "deny"),
        (Modify(tool="other"), ["tool", "arguments"], None, "deny"),
        (Modify(tool="run", arguments={"b": 2}), ["arguments"], None, "modify"),
        (Modify(tool="run", arguments={"b": 2}), ["tool"], ["run"], "deny"),
        (Modify(tool="run", arguments={"b": 2}), [], None, "deny"),
    ],
)
async def test_what_its_caller_cannot_do_is_a_denial_and_never_the_call_unchanged(
    sidecar, world, modify, can, tools, outcome
):
    await world.scheduler("router", modify)
    ruling = await (await sidecar()).decide(
        "run", arguments={"a": 1}, can=can, **({"tools": tools} if tools else {})
    )
    assert ruling["outcome"] == outcome


async def test_a_call_that_is_held_is_denied_before_its_caller_gives_up(sidecar, world):
    told = asyncio.Event()
    await holds(world, tell=told)
    asked = await sidecar(**HELD)
    ruling = await asked.decide("run", timeout_ms=300)
    assert (ruling["outcome"], ruling["why"], ruling["id"]) == ("deny", "expired", "")
    assert "held by holder, and not answered in time" in ruling["reason"]
    assert asked.service.is_idle


async def test_who_can_wait_comes_back_for_a_held_call(sidecar, world):
    release = asyncio.Event()
    await holds(world, release)
    asked = await sidecar(**HELD)
    ruling = await asked.decide("run", timeout_ms=200, can=["wait"])
    assert (ruling["outcome"], ruling["reason"]) == ("pending", "held by holder")
    again = (await asked.ask("/v1/wait", {"token": ruling["token"], "timeout_ms": 100})).body
    assert (again["outcome"], again["token"]) == ("pending", ruling["token"])
    waiting = asked.begin("/v1/wait", {"token": ruling["token"]})
    await asyncio.sleep(0)
    release.set()
    answered = (await waiting.answer()).body
    assert (answered["outcome"], len(answered["id"])) == ("continue", 32)
    assert (await asked.ask("/v1/report", {"id": answered["id"], "outcome": "succeed"})).status == 200
    assert (await asked.ask("/v1/wait", {"token": ruling["token"]})).status == 404


async def test_who_does_not_come_back_has_withdrawn_its_call(sidecar, world, wait_until):
    release = asyncio.Event()
    await holds(world, release)
    asked = await sidecar(**HELD)
    first = await asked.decide("run", timeout_ms=100, can=["wait"])
    asked.service.sweep_once(asked.now + PENDING_S - 1)
    assert not asked.service.is_idle
    asked.service.sweep_once(asked.now + PENDING_S + 1)
    assert asked.service.is_idle
    assert (await asked.ask("/v1/wait", {"token": first["token"]})).status == 404
    await asked.decide("run", timeout_ms=100, can=["wait"])
    release.set()
    (held,) = asked.service._pending._calls.values()
    await wait_until(held.task.done)
    asked.service.sweep_once(asked.now + PENDING_S + 1)
    assert [fact["decision_id"] for fact in asked.told("tool:unused")] == [held.task.result().id]


async def test_a_caller_that_has_gone_withdraws_its_question(sidecar, world, wait_until):
    told = asyncio.Event()
    await holds(world, tell=told)
    asked = await sidecar(**HELD)
    outcomes = []
    asked.gate.subscribe(lambda decision: outcomes.append(decision.outcome))
    asking = asked.begin("/v1/decide", {"tool": "run"})
    await told.wait()
    asking.leave()
    assert await asking.answer() is None
    assert outcomes == ["cancelled"]
    assert asked.facts == []


# ---------------------------------------------------------------------- turns


async def turn(asked, do, session="s", **fields):
    answered = await asked.ask("/v1/turn", {"session": session, "do": do, **fields})
    assert answered.status == 200, answered.raw
    return answered.body


async def test_a_turn_is_seen_by_operators_with_what_it_does(sidecar, world):
    asked = await sidecar(agent="clerk")
    assert (await turn(asked, "begin", parent="p", root_session="r", lineage=["boss", "clerk"]))[
        "busy"
    ] is True
    presence = asked.gate._client.present["s"]
    assert presence.tell().doing == "llm"
    ruling = await asked.decide("run", session="s")
    seen = presence.tell()
    assert (seen.doing, seen.calls, seen.agent, seen.lineage, seen.root) == (
        "tool run",
        1,
        "clerk",
        ("boss", "clerk"),
        "r",
    )
    await asked.ask("/v1/report", {"id": ruling["id"], "outcome": "succeed", "cost": 5})
    assert (presence.tell().doing, presence.tell().cost) == ("llm", 5)
    assert (await turn(asked, "end", iterations=3))["busy"] is False
    assert "s" not in asked.gate._client.present
    (fact,) = asked.told("turn")
    assert (fact["status"], fact["iterations"], fact["parent"], fact["loop"]) == (
        "completed",
        3,
        "p",
        "serve",
    )


async def test_an_operators_stop_ends_what_is_asked_and_denies_what_comes(sidecar, world, wait_until):
    told = asyncio.Event()
    await holds(world, tell=told)
    asked = await sidecar(**HELD)
    await turn(asked, "begin")
    asking, watching = asked.begin("/v1/decide", {"tool": "run", "session": "s"}), None
    watching = asked.begin("/v1/turn", {"session": "s", "do": "watch"})
    await told.wait()
    asked.gate._client.present["s"].stop(now=True, by="anna")
    stop = {"now": True, "by": "anna"}
    ruling = (await asking.answer()).body
    assert (ruling["outcome"], ruling["why"], ruling["stop"]) == ("deny", "cancelled", stop)
    assert (await watching.answer()).body["stop"] == stop
    assert (await asked.decide("run", session="s"))["stop"] == stop
    assert (await turn(asked, "end", status="cancelled"))["stop"] is None
    await turn(asked, "begin")
    assert (await turn(asked, "watch", timeout_ms=50))["stop"] is None


async def test_a_turn_goes_on_after_a_call_that_was_held_for_too_long_and_an_operator_can_stop_it(
    sidecar, world
):
    await holds(world)
    asked = await sidecar(**HELD)
    await turn(asked, "begin")
    assert (await asked.decide("run", session="s", timeout_ms=100))["outcome"] == "deny"
    presence = asked.gate._client.present["s"]
    assert (presence.tell().doing, presence.vetoes) == ("llm", 1)
    watching = asked.begin("/v1/turn", {"session": "s", "do": "watch", "timeout_ms": 20_000})
    await asyncio.sleep(0)
    presence.stop(now=True, by="anna")
    assert (await watching.answer()).body["stop"] == {"now": True, "by": "anna"}


async def test_a_turn_of_which_nothing_is_heard_is_over(sidecar):
    asked = await sidecar()
    await turn(asked, "begin", lease_s=60)
    asked.now += 59
    await asked.decide("run", session="s")
    asked.service.sweep_once(asked.now + 59)
    assert not asked.service.is_idle
    asked.service.sweep_once(asked.now + 61)
    assert asked.service.is_idle
    assert asked.told("turn")[0]["status"] == "incomplete"


async def test_made_up_names_of_tools_and_agents_lock_nobody_out(sidecar):
    """Names are labels of metrics, which are kept: beyond their bound the label is `other`, and calls run."""
    asked = await sidecar()
    del asked.gate.note, asked.gate._recorder.note  # facts are counted
    for number in range(MAX_SERIES + 50):
        await asked.decide(f"made-up-{number}", agent=f"agent-{number}")
    assert (await asked.decide("honest", agent="honest"))["outcome"] == "continue"
    usage = {"provider": "x", "input_tokens": 1}
    for number in range(MAX_SERIES + 50):
        told = await asked.ask("/v1/usage", {**usage, "provider": f"p-{number}", "agent": f"a-{number}"})
        assert told.status == 200
    page = (await asked.ask("/metrics", method="GET")).raw.decode()
    for name in ("toolgate_decisions_total{", "toolgate_provider_requests_total{", "toolgate_tokens_total{"):
        made_up = [
            line
            for line in page.splitlines()
            if line.startswith(name) and re.search(r'"(a|p)-|made-up', line)
        ]
        assert 0 < len(made_up) <= MAX_SERIES, name


async def test_who_has_as_many_requests_as_one_may_is_refused_alone(sidecar, world, monkeypatch):
    monkeypatch.setattr(service_module, "MAX_WAITING", 2)
    release, told = asyncio.Event(), asyncio.Event()
    await holds(world, release, told)
    asked = await sidecar(**HELD)
    first = [asked.begin("/v1/decide", {"tool": "run", "session": "flood"}) for _ in range(2)]
    await told.wait()
    refused = await asked.ask("/v1/decide", {"tool": "run", "session": "flood"})
    assert (refused.status, "of this caller" in refused.body["detail"]) == (503, True)
    other = asked.begin("/v1/decide", {"tool": "run", "session": "honest"})
    release.set()
    assert [(await one.answer()).body["outcome"] for one in (*first, other)] == ["continue"] * 3
    again = await asked.ask("/v1/decide", {"tool": "run", "session": "flood"})
    assert again.status == 200


async def test_who_leaves_as_many_calls_held_as_one_may_is_refused_alone(sidecar, world, monkeypatch):
    monkeypatch.setattr(held_calls, "MAX_EACH", 1)
    release, told = asyncio.Event(), asyncio.Event()
    await holds(world, release, told)
    asked = await sidecar(**HELD)
    waiting = {"tool": "run", "can": ["wait"], "timeout_ms": 50}
    first = await asked.decide(**waiting, session="flood")
    assert first["outcome"] == "pending"
    refused = await asked.ask("/v1/decide", {**waiting, "session": "flood"})
    assert (refused.status, "this caller has" in refused.body["detail"]) == (503, True)
    assert (await asked.decide(**waiting, session="honest"))["outcome"] == "pending"
    release.set()
    done = await asked.ask("/v1/wait", {"token": first["token"]})
    assert done.body["outcome"] == "continue"
    assert (await asked.decide(**waiting, session="flood"))["outcome"] == "continue"


async def test_the_turns_of_one_root_leave_room_for_others(sidecar, monkeypatch):
    monkeypatch.setattr(turns, "MAX_TURNS", 8)
    monkeypatch.setattr(turns, "MAX_EACH", 2)
    asked = await sidecar()
    for number in range(4):
        assert (await begin(asked, f"flood-{number}", "flood")).status == 200
    assert (await begin(asked, "flood-9", "flood")).status == 429
    assert (await begin(asked, "honest", "honest")).status == 200


async def test_turns_of_made_up_roots_leave_room_for_others(sidecar, monkeypatch):
    monkeypatch.setattr(turns, "MAX_TURNS", 8)
    asked = await sidecar()
    assert (await begin(asked, "heard", "heard")).status == 200
    for number in range(30):
        asked.now += 1
        assert (await begin(asked, f"flood-{number}", f"flood-{number}")).status == 200
        await asked.decide(session="heard")
    assert (await begin(asked, "honest", "honest")).status == 200
    assert len(asked.service.turns) == 8
    assert asked.service.turns.get("heard") is not None
    assert len(asked.told("turn")) == 24


async def begin(asked, session, root):
    """Begin a turn of a session below another."""
    return await asked.ask("/v1/turn", {"session": session, "root_session": root, "do": "begin"})


# ---------------------------------------------------------------------- its end


async def test_its_end_takes_nothing_new_waits_for_what_is_open_and_then_denies_it(sidecar, world):
    release, told = asyncio.Event(), asyncio.Event()
    await holds(world, release, told)
    asked = await sidecar(**HELD)
    asked.service._clock = asyncio.get_running_loop().time
    open_one = asked.begin("/v1/decide", {"tool": "run"})
    await told.wait()
    ending = asyncio.create_task(asked.service.end(0.1))
    await asyncio.sleep(0)
    refused = await asked.ask("/v1/decide", {"tool": "run"})
    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    assert (await asked.ask("/readyz", method="GET")).status == 503
    await ending
    assert (await open_one.answer()).body["why"] == "gate_failed"
