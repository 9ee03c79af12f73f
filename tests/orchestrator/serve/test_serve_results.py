"""Results at a sidecar: ruled on before anybody uses them, once a call; nothing hidden gets out."""

import asyncio
import json

import pytest
from toolgate_bus.protocol.events import Continue, Deny, Hold, Mask, MaskedPart, Replace
from toolgate_orchestrator.commands.serve import result_handler
from toolgate_orchestrator.commands.serve.result_handler import KEPT_S

pytestmark = pytest.mark.pure

SECRET = "key-abc123"
RESULT = {"phases": ("result",)}
WITHHELD = "The tool ran, but its result is withheld: not yours"


async def bring(sidecar, ruling, result=SECRET, **more):
    answered = await sidecar.ask("/v1/result", {"id": ruling["id"], "result": result, **more})
    assert answered.status == 200, answered.raw
    return answered.body


def said(outcome, result, why, **more):
    return {"outcome": outcome, "why": why, "result": result, "reason": None, "scheduler": None, **more}


async def test_a_result_that_nobody_rules_on_is_released_and_the_ruling_says_that_nobody_does(sidecar, world):
    await world.scheduler("policy", Continue())
    asked = await sidecar()
    ruling = await asked.decide()
    assert "rules_on_result" not in ruling
    assert await bring(asked, ruling, {"a": [1, None]}) == said("released", {"a": [1, None]}, "unasked")


async def test_each_ruling_is_answered_and_the_call_is_reported_after_it(sidecar, world):
    answers = {}

    async def decide(call):
        return Continue() if call.again else answers["now"]

    await world.scheduler("policy", decide, **RESULT)
    asked = await sidecar()
    by = {"scheduler": "policy"}
    for verdict, wanted in (
        (Continue(), said("released", SECRET, "agreed")),
        (Deny(reason="not yours"), said("withheld", WITHHELD, "denied", reason="not yours", **by)),
        (
            Mask(parts=(MaskedPart("", 4, 10, "rest"),)),
            said("masked", "key-[withheld: rest]", "masked", **by),
        ),
        (Replace(result=[1]), said("replaced", [1], "replaced", **by)),
    ):
        answers["now"] = verdict
        ruling = await asked.decide()
        assert ruling["rules_on_result"] is True
        assert await bring(asked, ruling) == wanted
        told = await asked.ask("/v1/report", {"id": ruling["id"], "outcome": "succeed"})
        assert told.body == {"recorded": True}
        again = await asked.ask("/v1/result", {"id": ruling["id"], "result": SECRET})
        assert again.status == 404
        assert "before the report" in again.body["detail"]
    assert len(asked.told("tool:result")) == len(asked.told("tool:post")) == 4
    assert SECRET not in json.dumps(asked.facts, default=str)
    assert len(asked.service.results) == 0


async def test_the_same_result_is_ruled_on_once_and_a_call_has_one(sidecar, world):
    heard = []

    async def decide(call):
        heard.append(call.result)
        return Deny(reason="not yours")

    await world.scheduler("policy", decide, **RESULT)
    asked = await sidecar()
    ruling = await asked.decide()
    first = await bring(asked, ruling)
    assert await bring(asked, ruling) == first
    both = await asyncio.gather(*(bring(asked, ruling) for _ in range(3)))
    assert both == [first] * 3
    assert heard == [SECRET]
    for other in ({"result": "other"}, {"result": SECRET, "success": False}):
        refused = await asked.ask("/v1/result", {"id": ruling["id"], **other})
        assert (refused.status, len(heard)) == (409, 1)
    asked.now += KEPT_S + 1
    asked.service.sweep_once(asked.now)
    assert await bring(asked, ruling) == first
    assert heard == [SECRET] * 2
    assert (await asked.ask("/v1/result", {"id": ruling["id"], "result": "other"})).status == 409


async def test_two_who_bring_the_same_result_at_once_share_one_question(sidecar, world):
    heard, go = [], asyncio.Event()

    async def decide(call):
        heard.append(call.result)
        await go.wait()
        return Continue()

    await world.scheduler("policy", decide, **RESULT)
    asked = await sidecar()
    ruling = await asked.decide()
    waiting = [asyncio.create_task(bring(asked, ruling)) for _ in range(2)]
    while not heard:
        await asyncio.sleep(0)
    go.set()
    assert await asyncio.gather(*waiting) == [said("released", SECRET, "agreed")] * 2
    assert heard == [SECRET]


@pytest.fixture
async def released(world):
    """An event: a scheduler holds each result until then."""
    event = asyncio.Event()

    async def hold(call):
        yield Hold(seconds=60)
        await event.wait()
        yield Continue()

    await world.scheduler("approval", hold, streams=True, **RESULT)
    return event


async def test_a_held_result_is_pending_for_who_can_wait_and_withheld_for_others(sidecar, released):
    asked = await sidecar()
    first, second = await asked.decide(), await asked.decide()
    late = await bring(asked, second, timeout_ms=50)
    assert (late["outcome"], late["why"]) == ("withheld", "expired")
    assert SECRET not in json.dumps(late)
    assert await bring(asked, second, timeout_ms=50) == late
    pending = await bring(asked, first, timeout_ms=50, can=["wait"])
    assert pending == said("pending", None, "held")
    released.set()
    assert await bring(asked, first, can=["wait"]) == said("released", SECRET, "agreed")


async def test_who_does_not_come_back_gives_a_held_result_up(sidecar, released):
    asked = await sidecar()
    ruling = await asked.decide()
    assert (await bring(asked, ruling, timeout_ms=50, can=["wait"]))["outcome"] == "pending"
    asked.now += KEPT_S + 1
    asked.service.sweep_once(asked.now)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [fact["outcome"] for fact in asked.told("tool:result")] == ["cancelled"]


async def test_a_caller_that_leaves_withdraws_the_question_and_its_call_stays_open(sidecar, released):
    asked = await sidecar()
    ruling = await asked.decide()
    asking = asked.begin("/v1/result", {"id": ruling["id"], "result": SECRET})
    await asyncio.sleep(0.1)
    asking.leave()
    assert await asking.answer() is None
    assert asked.told("tool:unused") == []
    told = await asked.ask("/v1/report", {"id": ruling["id"], "outcome": "succeed"})
    assert told.body == {"recorded": True}


async def test_a_required_scheduler_that_is_silent_withholds(sidecar, world):
    async def never(call):
        await asyncio.Event().wait()

    await world.scheduler("policy", never, **RESULT)
    asked = await sidecar(required=["policy"], patience_ms=100)
    given = await bring(asked, await asked.decide(), {"a": SECRET})
    assert (given["outcome"], given["why"]) == ("withheld", "silent")
    assert SECRET not in json.dumps(given)


async def test_rulings_that_are_kept_have_a_bound(sidecar, world, monkeypatch):
    monkeypatch.setattr(result_handler, "MAX_KEPT_BYTES", 100)
    heard = []

    async def decide(call):
        heard.append(call.result)
        return Deny(reason="not yours")

    await world.scheduler("policy", decide, **RESULT)
    asked = await sidecar()
    first, second = await asked.decide(), await asked.decide()
    await bring(asked, first, "x" * 60)
    await bring(asked, second, "y" * 60)
    await bring(asked, second, "y" * 60)
    assert len(heard) == 2
    assert (await bring(asked, first, "x" * 60))["outcome"] == "withheld"
    assert len(heard) == 3


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"result": "x"}, "id"),
        ({"id": "ab" * 16}, "result"),
        ({"id": "AB", "result": 1}, "id"),
        ({"id": "ab" * 16, "result": 1, "success": "yes"}, "success"),
        ({"id": "ab" * 16, "result": 1, "can": ["fly"]}, "can"),
    ],
)
async def test_a_wrong_body_is_refused_by_the_name_of_its_field(sidecar, body, words):
    answered = await (await sidecar()).ask("/v1/result", body)
    assert answered.status == 400
    assert words in answered.body["detail"]


async def test_points_of_a_turn_are_ruled_on_by_who_names_them_and_leave_nothing_open(sidecar, world):
    async def decide(call):
        return Deny(reason="not that") if "forbidden" in call.tool_input["text"] else Continue()

    await world.scheduler("words", decide, tools=("turn:input",))
    asked = await sidecar(required=["words"])
    allowed = await asked.decide("turn:input", arguments={"text": "hello"})
    denied = await asked.decide("turn:input", arguments={"text": "forbidden"})
    assert (allowed["outcome"], denied["outcome"], denied["reason"]) == ("continue", "deny", "not that")
    assert len(asked.service.calls) == 0
    assert [fact["tool"] for fact in asked.told("tool:post")] == ["turn:input"]
    unnamed = await asked.decide("turn:output", arguments={"text": "forbidden"})
    assert unnamed["outcome"] == "continue"


async def test_a_caller_of_authzen_learns_that_the_result_is_ruled_on_and_brings_it(sidecar, world):
    await world.scheduler("policy", Deny(reason="not yours"), **RESULT)
    asked = await sidecar()
    question = {
        "subject": {"type": "user", "id": "ann"},
        "action": {"name": "read"},
        "resource": {"type": "file", "id": "a"},
    }
    answered = (await asked.ask("/access/v1/evaluation", question)).body
    assert (answered["decision"], answered["context"]["rules_on_result"]) == (True, True)
    assert (await bring(asked, answered["context"]))["result"] == WITHHELD
