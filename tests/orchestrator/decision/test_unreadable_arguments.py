"""Arguments that no rule can read: half a character, or too deep. Who might object denies by it."""

import pytest
from toolgate_bus.facts.record import read_facts
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import Continue, Deny, Modify
from toolgate_orchestrator import Call

pytestmark = pytest.mark.pure

LEVELS = 28


def nest(levels):
    return [nest(levels - 1)] if levels else 1


ENDLESS = {}
ENDLESS["again"] = ENDLESS
UNREADABLE = {
    "half a character": ({"a": "\ud83d"}, "half a character"),
    "in a key": ({"a": {"\ud83d": 1}}, "half a character"),
    "as a name": ({"\ud83d": 1}, "half a character"),
    "in a long text": ({"a": "x" * 70_000 + "\ud83d"}, "half a character"),
    "in a secret": ({"secret": {"b": ["\ud83d"]}}, "half a character"),
    "among many": ({"a": [f"{number}\ud83d" for number in range(1_001)]}, "half a character"),
    "in a path": ({"a": ("\ud83d",)}, "half a character"),
    "too deep": ({"a": nest(LEVELS + 1)}, f"nested more than {LEVELS} levels deep"),
    "a secret that is too deep": ({"secret": nest(LEVELS + 1)}, f"nested more than {LEVELS} levels deep"),
    "without end": (ENDLESS, f"nested more than {LEVELS} levels deep"),
}
EACH = pytest.mark.parametrize(("arguments", "words"), UNREADABLE.values(), ids=UNREADABLE)
REDACTS = pytest.mark.parametrize(
    "redact", [{}, {"fields": ["secret"], "patterns": ["sk-[a-z]+"]}], ids=["nothing secret", "some secret"]
)


def same(one, other):
    """Whether two values are equal; of those without end, whether they have the same keys."""
    return one.keys() == other.keys() if other is ENDLESS else one == other


def facts_of(world):
    return [fact for item in packing.items(packing.frame(world.hub.facts)) for fact in read_facts(item)]


@EACH
@REDACTS
async def test_they_are_denied_with_a_clear_reason_before_anybody_is_asked(world, arguments, words, redact):
    seen = []
    world.hub.is_read = True
    await world.scheduler("policy", lambda call: seen.append(call) or Continue())
    gate = await world.gate(redact=redact)
    decision = await gate.decide(Call("write", arguments, ["write"]))
    assert (decision.outcome, decision.verdicts, seen) == ("deny", (), [])
    assert decision.reason.startswith("This call was not run, as nobody could be asked about it: ")
    assert words in decision.reason
    assert same(decision.original_input, arguments)
    (fact,) = [one for one in facts_of(world) if one["event"] == "decision"]
    assert (fact["outcome"], fact["verdicts"]) == ("deny", [])
    assert (await gate.decide(Call("write", {"a": "whole \U0001f600"}, ["write"]))).allowed


@EACH
async def test_they_run_where_nobody_rules_on_the_tool(world, arguments, words):
    gate = await world.gate()
    assert same((await gate.decide(Call("write", arguments, ["write"]))).tool_input, arguments)
    await world.scheduler("reader", Deny(reason="no"), tools=("read",))
    gate = await world.gate()
    decision = await gate.decide(Call("write", arguments, ["write"]))
    assert decision.outcome == "continue"
    assert same(decision.tool_input, arguments)


@EACH
async def test_they_are_told_to_a_shadow_as_placeholders_and_run(world, wait_until, arguments, words):
    seen = []
    await world.scheduler("watcher", lambda call: seen.append(call.truncated) or Continue(), shadow=True)
    decision = await (await world.gate()).decide(Call("write", arguments, ["write"]))
    assert decision.allowed
    await wait_until(lambda: seen == [True])


@EACH
@pytest.mark.parametrize("answer", [Deny(reason="mine"), Continue()])
async def test_a_scheduler_in_this_process_sees_them_and_rules(world, arguments, words, answer):
    seen = []

    async def local(question):
        seen.append(question.tool_input)
        return [answer]

    decision = await (await world.gate()).decide(Call("write", arguments, ["write"]), local=local)
    assert decision.allowed is isinstance(answer, Continue)
    assert [same(one, arguments) for one in seen] == [True]


@EACH
async def test_a_replacement_with_them_that_this_process_made_is_denied(world, arguments, words):
    await world.scheduler("policy", Continue())

    async def local(question):
        return [Modify(tool="write", arguments=arguments)]

    gate = await world.gate()
    decision = await gate.decide(Call("write", {"a": 1}, ["write"]), local=local)
    assert decision.outcome == "deny"


@REDACTS
async def test_what_is_just_not_too_deep_is_ruled_on_as_it_is(world, redact):
    seen = []
    await world.scheduler("policy", lambda call: seen.append(call.tool_input) or Continue())
    gate = await world.gate(redact=redact)
    arguments = {"a": nest(LEVELS), "b": {"c": "whole \U0001f600"}}
    assert (await gate.decide(Call("write", arguments, ["write"]))).allowed
    assert seen == [arguments]
