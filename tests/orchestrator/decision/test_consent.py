"""Who must answer has agreed to the call that runs, as it runs: how a replacement is changed."""

import asyncio
import itertools

import pytest
from gate_world import growth
from toolgate_bus.facts import record
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.codec import CONTINUE_BODY
from toolgate_bus.protocol.events import AskUser, Continue, Hold, Modify
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer

pytestmark = pytest.mark.pure

TOOLS = ["search", "fast_search", "write"]
CALL = {"text": "SSN 1", "limit": 500}
BOTH = ("limiter", "masker")


def limiter(call):
    """Have it run with a limit of ten at most."""
    if call.tool_input["limit"] <= 10:
        return Continue()
    return Modify(tool=call.tool_name, arguments={**call.tool_input, "limit": 10}, reason="too many")


def masker(call):
    """Have it run without what is secret."""
    if "SSN" not in call.tool_input["text"]:
        return Continue()
    masked = call.tool_input["text"].replace("SSN", "***")
    return Modify(tool=call.tool_name, arguments={**call.tool_input, "text": masked}, reason="secret")


def router(call):
    """Have the fast tool run; it says nothing more of a replacement."""
    if call.phase == "verify" or call.tool_name == "fast_search":
        return Continue()
    return Modify(tool="fast_search")


def sets(**arguments):
    """Have these arguments in it, whatever it is."""

    def answer(call):
        return Modify(tool=call.tool_name, arguments={**call.tool_input, **arguments})

    return answer


def wants(tool):
    """Have another tool run in the place of whatever stands in for the call."""
    return lambda call: Modify(tool=tool) if call.phase == "verify" else Continue()


async def consult(world, schedulers, arguments=CALL, *, required=BOTH, ask=None, **config):
    """The decision on a search, with these schedulers; those named first have the higher priority."""
    for place, (name, answer) in enumerate(schedulers.items()):
        await world.scheduler(name, answer, priority=len(schedulers) - place)
    gate = await world.gate(ask, required=[name for name in required if name in schedulers], **config)
    return await gate.decide(Call("search", arguments, TOOLS))


# ---------------------------------------------------------------------- the same tool


@pytest.mark.parametrize("order", [*itertools.permutations((*BOTH, "router"))], ids="-".join)
async def test_what_runs_has_the_changes_of_both_who_are_required_and_the_tool_of_a_router(world, order):
    answers = {"limiter": limiter, "masker": masker, "router": router}
    decision = await consult(world, {name: answers[name] for name in order})
    assert (decision.outcome, decision.scheduler) == ("modify", order[0])
    assert decision.tool_input == {"text": "*** 1", "limit": 10}
    assert decision.tool_name == ("fast_search" if order[0] == "router" else "search")


async def test_everyone_is_asked_again_about_a_changed_replacement_its_first_author_too(world):
    seen = []

    def watching(name, answer):
        def decide(call):
            seen.append((name, call.phase, call.again, dict(call.tool_input)))
            return answer(call)

        return decide

    answers = {"limiter": watching("limiter", limiter), "masker": watching("masker", masker)}
    decision = await consult(world, answers)
    final = {"text": "*** 1", "limit": 10}
    assert (decision.scheduler, decision.reason) == ("limiter", "too many; secret")
    assert [one for one in seen if one[1] == "verify"] == [
        ("masker", "verify", False, {**CALL, "limit": 10}),
        *sorted(one for one in seen if one[2]),
    ]
    assert sorted(one for one in seen if one[2]) == [(name, "verify", True, final) for name in BOTH]
    assert [(heard.scheduler, heard.again) for heard in decision.verdicts if heard.phase == "verify"] == [
        ("masker", False),
        *[(heard.scheduler, True) for heard in decision.verdicts if heard.again],
    ]


async def test_nobody_is_asked_a_third_time_where_nobody_changes_the_replacement(world):
    asked = []

    def agrees(call):
        asked.append(call.phase)
        return sets()(call) if call.phase == "verify" else Continue()

    decision = await consult(world, {"limiter": limiter, "agrees": agrees}, required=("limiter", "agrees"))
    assert (decision.outcome, decision.tool_input) == ("modify", {**CALL, "limit": 10})
    assert asked == ["select", "verify"]
    assert decision.overruled == ()


async def test_all_changes_of_one_round_are_laid_over_the_replacement(world):
    answers = {"limiter": limiter, "masker": masker, "dater": sets(since=2020)}
    decision = await consult(world, answers, required=(*BOTH, "dater"))
    assert decision.tool_input == {"text": "*** 1", "limit": 10, "since": 2020}


async def test_who_does_not_agree_after_three_rounds_denies_and_all_are_named(world):
    answers = {"first": sets(n=1), "second": sets(n=2), "third": sets(n=3)}
    decision = await consult(world, answers, required=tuple(answers))
    assert (decision.outcome, decision.why) == ("deny", "denied")
    assert "first and third do not agree to it" in decision.reason


async def test_an_optional_scheduler_that_still_wants_a_change_is_overruled_and_counted(world):
    overruled = growth("toolgate_overruled_total", scheduler="stubborn")

    def counting(call):
        n = call.tool_input.get("n", 0)
        return Modify(tool=call.tool_name, arguments={**call.tool_input, "n": n + 1})

    decision = await consult(world, {"limiter": limiter, "stubborn": counting, "masker": masker})
    assert decision.tool_input == {"text": "*** 1", "limit": 10, "n": 1}
    assert (decision.overruled, overruled()) == (("stubborn",), 1)


async def test_an_optional_scheduler_does_not_reset_what_a_higher_priority_has_set(world):
    decision = await consult(world, {"high": sets(limit=7), "low": sets(limit=9)})
    assert (decision.tool_input["limit"], decision.overruled) == (7, ("low",))
    assert {heard.again for heard in decision.verdicts} == {False}


async def test_a_required_scheduler_resets_what_another_has_set_and_that_one_must_agree(world):
    await world.scheduler("first", sets(limit=50), priority=9)
    await world.scheduler("limiter", limiter)
    decision = await (await world.gate(required=["limiter"])).decide(Call("search", CALL, TOOLS))
    assert (decision.tool_input["limit"], decision.overruled) == (10, ("first",))
    decision = await (await world.gate(required=["limiter", "first"])).decide(Call("search", CALL, TOOLS))
    assert decision.outcome == "deny"
    assert "first does not agree to it" in decision.reason


async def test_what_a_shadow_would_change_of_a_replacement_does_not_count(world):
    await world.scheduler("limiter", limiter)
    await world.scheduler("masker", masker, shadow=True)
    decision = await (await world.gate(required=["limiter"])).decide(Call("search", CALL, TOOLS))
    assert (decision.tool_input, decision.overruled) == ({**CALL, "limit": 10}, ())


async def test_a_change_that_fits_no_schema_denies_by_a_required_scheduler_and_is_set_aside_otherwise(world):
    invalid = growth("toolgate_invalid_modifies_total", scheduler="wrong", reason="schema")
    tools = {"search": {"properties": {"limit": {"type": "integer"}}}}

    def wrong(call):
        return sets(limit="few")(call) if call.phase == "verify" else Continue()

    await world.scheduler("limiter", limiter)
    await world.scheduler("wrong", wrong)
    decision = await (await world.gate(required=["limiter"])).decide(Call("search", CALL, tools))
    assert (decision.tool_input["limit"], invalid()) == (10, 1)
    decision = await (await world.gate(required=["limiter", "wrong"])).decide(Call("search", CALL, tools))
    assert (decision.outcome, decision.why, decision.scheduler) == ("deny", "silent", "wrong")


async def test_two_changes_that_fit_the_schema_only_alone_are_not_both_made(world):
    schema = {"properties": {"limit": {"type": "integer"}}, "not": {"required": ["a", "b"]}}
    await world.scheduler("limiter", limiter, priority=9)
    await world.scheduler("a", sets(a=1), priority=2)
    await world.scheduler("b", sets(b=1), priority=1)
    decision = await (await world.gate()).decide(Call("search", CALL, {"search": schema}))
    assert decision.tool_input == {**CALL, "limit": 10, "a": 1}


# ---------------------------------------------------------------------- another tool


async def test_another_tool_in_place_of_a_replacement_denies_by_a_required_scheduler(world):
    answers = {"limiter": limiter, "other": wants("write")}
    decision = await consult(world, answers, required=("limiter", "other"))
    assert (decision.outcome, decision.why, decision.scheduler) == ("deny", "denied", "other")
    assert "other wanted write to run in place of search" in decision.reason
    said = next(heard.said for heard in decision.verdicts if heard.verdict.action == "deny")
    assert said == Modify(tool="write")


async def test_another_tool_in_place_of_a_replacement_is_overruled_for_an_optional_scheduler(world):
    overruled = growth("toolgate_overruled_total", scheduler="other")
    decision = await consult(world, {"limiter": limiter, "other": wants("write")})
    assert (decision.outcome, decision.tool_name) == ("modify", "search")
    assert (decision.overruled, overruled()) == (("other",), 1)


# ---------------------------------------------------------------------- what is told of it


async def test_the_record_says_who_was_overruled_and_in_which_round_each_was_asked(world):
    answers = {"limiter": limiter, "masker": masker, "other": wants("write")}
    facts = []
    for place, (name, answer) in enumerate(answers.items()):
        await world.scheduler(name, answer, priority=-place)
    gate = await world.gate(required=["masker"])
    gate._client.fact = facts.append
    decision = await gate.decide(Call("search", CALL, TOOLS))
    [make] = facts
    item = packing.items(packing.frame([make()]))[0]
    [fact] = record.read_facts(item)
    assert fact["overruled"] == ["other"]
    assert fact["final_input"] == {"text": "*** 1", "limit": 10}
    assert sum(one.get("again", False) for one in fact["verdicts"]) == 3
    read = [record.read_verdict(one) for one in fact["verdicts"]]
    assert [one.again for one in read] == [one.again for one in decision.verdicts]


# ---------------------------------------------------------------------- verdicts on what it was before


async def test_a_verdict_on_the_replacement_as_it_was_is_no_agreement_to_what_it_is_now(world):
    """A second answer to the second round, by another replica, comes in the third."""

    async def masked_late(call):
        if call.again:  # this replica answers nothing; what comes is another's word on the round before
            before = packing.item(bytes.fromhex(call.id), packing.PHASE_NUMBERS["verify"], CONTINUE_BODY)
            client.on_verdicts([("masker", packing.frame([before]))])
            await asyncio.Event().wait()
        return masker(call)

    await world.scheduler("limiter", limiter, priority=9)
    await world.scheduler("masker", masked_late)
    gate = await world.gate(required=list(BOTH), patience_ms=3000)
    client = gate._client
    decision = await gate.decide(Call("search", CALL, TOOLS))
    assert (decision.outcome, decision.why, decision.scheduler) == ("deny", "silent", "masker")


# ---------------------------------------------------------------------- a person, and who is asked last


async def test_a_person_is_asked_about_the_call_as_all_have_changed_it(world):
    shown = []

    async def ask(asked, question):
        shown.append((question.tool_name, question.tool_input))
        return "allow"

    answers = {"limiter": limiter, "masker": masker, "asker": AskUser(prompt="May it?")}
    decision = await consult(world, answers, ask=ask)
    assert shown == [("search", decision.tool_input)] == [("search", {"text": "*** 1", "limit": 10})]


async def test_what_is_corrected_after_a_hold_is_verified_and_changed_as_any_replacement(world):
    async def corrects(call):
        if call.phase == "verify":
            yield Continue()
            return
        yield Hold(seconds=60)
        yield Modify(tool="search", arguments={"text": "SSN 2", "limit": 900})

    await world.scheduler("approval", corrects, streams=True, priority=99)
    await world.scheduler("limiter", limiter)
    await world.scheduler("masker", masker)
    decision = await (await world.gate(required=list(BOTH))).decide(
        Call("search", {"text": "", "limit": 1}, TOOLS)
    )
    assert (decision.scheduler, decision.tool_input) == ("approval", {"text": "*** 2", "limit": 10})


async def test_who_is_asked_last_is_asked_about_the_call_as_it_was_agreed_to(world):
    seen = []

    def giver(call):
        seen.append((call.tool_input, call.again))
        return Continue(fence=1)

    await world.scheduler("giver", giver, phases=("admit",))
    decision = await consult(world, {"limiter": limiter, "masker": masker})
    assert seen == [(decision.tool_input, False)] == [({"text": "*** 1", "limit": 10}, False)]


@pytest.mark.parametrize("phase", ["verify", "again"])
async def test_a_hold_in_each_round_is_waited_for_and_answered_for_that_round_alone(world, phase):
    async def holds(call):
        if (call.phase == "verify" and not call.again) if phase == "verify" else call.again:
            yield Hold(seconds=60)
        yield masker(call)

    await world.scheduler("limiter", limiter, priority=9)
    await world.scheduler("masker", holds, streams=True)
    decision = await (await world.gate(required=list(BOTH))).decide(Call("search", CALL, TOOLS))
    assert decision.tool_input == {"text": "*** 1", "limit": 10}


async def test_who_is_required_where_a_deferred_call_goes_on_must_have_agreed_to_it(world):
    await world.scheduler("asker", AskUser(prompt="May it?"))
    await world.scheduler("limiter", limiter)
    waits = await (await world.gate()).decide(Call("search", CALL, TOOLS), ask="defer")
    elsewhere = await world.gate(required=["limiter", "guard"])
    answer = PersonAnswer(waits.token, "allow", by="ann")
    decision = await elsewhere.decide(Call("search", CALL, TOOLS, answer=answer))
    assert (decision.outcome, decision.why, decision.scheduler) == ("deny", "silent", "guard")
    assert "guard is required here" in decision.reason
    waits = await (await world.gate()).decide(Call("search", CALL, TOOLS), ask="defer")
    elsewhere = await world.gate(required=["limiter"])
    answer = PersonAnswer(waits.token, "allow", by="ann")
    decision = await elsewhere.decide(Call("search", CALL, TOOLS, answer=answer))
    assert (decision.outcome, decision.tool_input) == ("modify", {**CALL, "limit": 10})
