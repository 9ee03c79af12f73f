"""What was ruled on is what runs, whoever changes the arguments meanwhile."""

import collections
import dataclasses
import pathlib

import pytest
from toolgate_bus.protocol.events import AskUser, Continue, Modify
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.question.shown_call import shown_call

pytestmark = pytest.mark.pure

TOOLS = ["pay", "spend"]
ASK = AskUser(prompt="pay?")


@dataclasses.dataclass
class Payment:
    amount: int


def in_a_map():
    held = {"amount": 1}
    return {"payment": held}, lambda: held.update(amount=5000)


def in_a_list():
    held = [1]
    return {"payment": [held]}, lambda: held.append(5000)


def in_a_tuple():
    held = {"amount": 1}
    return {"payment": (("amount", held),)}, lambda: held.update(amount=5000)


def in_a_set():
    held = {1}
    return {"payment": held}, lambda: held.add(5000)


def on_the_outside():
    held = {"amount": 1}
    return held, lambda: held.update(amount=5000)


PLAIN = [in_a_map, in_a_list, in_a_tuple, in_a_set, on_the_outside]


def in_an_object():
    held = Payment(1)
    return {"payment": held}, lambda: setattr(held, "amount", 5000)


def in_an_object_of_a_list():
    held = Payment([1])
    return {"payment": [held]}, lambda: held.amount.append(5000)


def in_a_default_dict():
    held = collections.defaultdict(int, amount=1)
    return {"payment": held}, lambda: held.update(amount=5000)


OBJECTS = [in_an_object, in_an_object_of_a_list, in_a_default_dict]


def shown(arguments):
    return shown_call("pay", arguments)


@pytest.mark.parametrize("make", PLAIN)
async def test_plain_arguments_run_as_the_person_saw_them(world, make):
    await world.scheduler("asks", ASK)
    arguments, change = make()
    saw = []

    async def ask(_asked, call):
        saw.append(shown(call.tool_input))
        change()
        return "allow"

    before = shown(arguments)
    decision = await (await world.gate(ask)).decide(Call("pay", arguments, TOOLS))
    assert decision.allowed
    assert [shown(decision.tool_input), *saw] == [before, before]
    change()
    assert shown(decision.tool_input) == before


@pytest.mark.parametrize("make", OBJECTS)
async def test_an_object_that_was_changed_after_it_was_ruled_on_does_not_run(world, make):
    await world.scheduler("asks", ASK)
    arguments, change = make()

    async def ask(_asked, _call):
        change()
        return "allow"

    decision = await (await world.gate(ask)).decide(Call("pay", arguments, TOOLS))
    assert (decision.outcome, decision.why) == ("deny", "gate_failed")
    assert "arguments were changed" in decision.reason


@pytest.mark.parametrize("make", OBJECTS)
async def test_nobody_is_asked_about_an_object_that_was_changed_while_schedulers_ruled(world, make):
    arguments, change = make()
    asked = []

    def rules(_call):
        change()
        return ASK

    async def ask(asking, _call):
        asked.append(asking)
        return "allow"

    await world.scheduler("asks", rules)
    decision = await (await world.gate(ask)).decide(Call("pay", arguments, TOOLS))
    assert (decision.outcome, asked) == ("deny", [])
    deferred = await (await world.gate("defer")).decide(Call("pay", make()[0], TOOLS))
    assert deferred.outcome == "ask"


@pytest.mark.parametrize("make", OBJECTS)
async def test_an_object_in_a_replacement_is_looked_at_as_well(world, make):
    arguments, change = make()

    def watch(call):
        if call.phase == "verify":
            change()
        return Continue()

    await world.scheduler(
        "changes", lambda call: Modify(tool="pay", arguments={**call.tool_input, "limit": 1})
    )
    await world.scheduler("watches", watch)
    decision = await (await world.gate()).decide(Call("pay", arguments, TOOLS))
    assert decision.outcome == "deny"


async def test_who_asks_or_hooks_cannot_change_what_runs_by_the_question(world):
    async def ask(_asked, call):
        call.tool_input["amount"] = 5000
        call.tool_input["more"].append(5000)
        return "allow"

    async def hook(call):
        await ask(None, call)
        return [Continue()]

    await world.scheduler("asks", ASK)
    gate = await world.gate(ask)
    decision = await gate.decide(Call("pay", {"amount": 1, "more": []}, TOOLS), local=hook)
    assert (decision.outcome, decision.tool_input) == ("continue", {"amount": 1, "more": []})


async def test_a_modify_leaves_the_tool_the_objects_that_it_did_not_change(world):
    path, payment, pair = pathlib.Path("a.txt"), Payment(1), ("x", pathlib.Path("b.txt"))
    own = {"path": path, "payment": payment, "pair": pair, "list": [path, 1], "limit": 100, "raw": b"raw"}

    def limit(call):
        given = call.tool_input
        return Modify(tool="pay", arguments={**given, "limit": 10, "list": [given["list"][0], 2]})

    await world.scheduler("limiter", limit)
    await world.scheduler("watches", Continue())
    schemas = {"pay": {"type": "object", "properties": {"path": {"type": "string"}}}}
    decision = await (await world.gate()).decide(Call("pay", own, schemas))
    assert (decision.outcome, decision.tool_input) == ("modify", {**own, "limit": 10, "list": [path, 2]})
    assert decision.tool_input["payment"] is payment
    assert decision.tool_input["raw"] is own["raw"]


async def test_a_replacement_by_another_tool_has_the_plain_values(world):
    def other(call):
        return Modify(tool="spend", arguments={"path": call.tool_input["path"]})

    await world.scheduler("router", other)
    decision = await (await world.gate()).decide(Call("pay", {"path": pathlib.Path("a.txt")}, TOOLS))
    assert (decision.tool_name, decision.tool_input) == ("spend", {"path": "a.txt"})


async def test_a_deferred_call_with_objects_goes_on_as_the_same_call_only(world):
    def limit(call):
        return Modify(tool="pay", arguments={**call.tool_input, "limit": 10})

    await world.scheduler("asks", ASK)
    await world.scheduler("limiter", limit)
    gate = await world.gate("defer")

    def arguments(amount):
        return {"path": pathlib.Path("a.txt"), "payment": Payment(amount), "limit": 100}

    asked = await gate.decide(Call("pay", arguments(1), TOOLS))
    assert asked.outcome == "ask"
    other = await gate.decide(Call("pay", arguments(5000), TOOLS, answer=PersonAnswer(asked.token, "allow")))
    assert (other.outcome, other.why) == ("deny", "void")
    decision = await gate.decide(Call("pay", arguments(1), TOOLS, answer=PersonAnswer(asked.token, "allow")))
    assert (decision.outcome, decision.tool_input) == ("modify", {**arguments(1), "limit": 10})
