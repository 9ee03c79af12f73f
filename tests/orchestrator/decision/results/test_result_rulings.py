"""What becomes of a result: withheld, masked, replaced or given, and what the record says of it."""

import asyncio
import json
from functools import partial

import pytest
from gate_world import growth, never
from toolgate_bus.facts import record
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import (
    AskUser,
    Continue,
    Deny,
    Hold,
    Mask,
    MaskedPart,
    Modify,
    ReceivedVerdict,
    Replace,
)
from toolgate_bus.protocol.names import MAX_REASON
from toolgate_bus.ruling.results import path_to
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.inheritance import inherit_config
from toolgate_orchestrator.decision.link.recipients import RecipientCache
from toolgate_orchestrator.decision.link.scheduler_info import SchedulerInfo
from toolgate_orchestrator.decision.question.redact import HIDDEN
from toolgate_orchestrator.decision.results.given_result import cut_mark

pytestmark = pytest.mark.pure

RESULTS = {"phases": ("result",)}
KEY = "sk-1234567890"
TEXT = f"the key is {KEY}, keep it"


def hide(text=KEY, name="key"):
    """A decide that hides a text where it is in the result, if that is a text."""

    def answer(call):
        at = call.result.find(text) if isinstance(call.result, str) else -1
        return Continue() if at < 0 else Mask(parts=[MaskedPart("", at, at + len(text), name)])

    return answer


def in_turn(*answers):
    """A decide that gives one answer after the other; the last again and again."""
    left = list(answers)

    def answer(call):
        one = left.pop(0) if len(left) > 1 else left[0]
        return one(call) if callable(one) else one

    return answer


async def given(gate, result=TEXT, decision=None, **more):
    return await gate.rule_on_result(Call("read", {}, ["read"], id="c1"), decision, result, **more)


async def many_steps():
    """Let all tasks of this loop go on that can."""
    for _ in range(200):
        await asyncio.sleep(0)


def facts(world, event="tool:result"):
    found = [record.read_facts(packing.items(packing.frame([raw]))[0])[0] for raw in world.hub.facts]
    return [one for one in found if one["event"] == event]


# ------------------------------------------------------------------ nobody rules


async def test_with_nobody_announced_the_very_same_object_is_given_and_nothing_is_sent(world):
    await world.scheduler("calls", Deny(reason="no"))
    gate = await world.gate()
    result = {"a": [1, object()]}
    made = await given(gate, result)
    assert made.value is result
    assert (made.outcome, made.why) == ("released", "unasked")
    assert not gate.rules_on_result("read")
    assert facts(world) == []


async def test_a_result_that_all_let_pass_is_given_as_the_very_same_object(world):
    await world.scheduler("a", Continue(), **RESULTS)
    gate, result = await world.gate(), {"a": [1, {"b": None}]}
    made = await given(gate, result)
    assert made.value is result
    assert (made.outcome, made.why, made.changed) == ("released", "agreed", False)
    assert gate.rules_on_result("read")


async def test_who_rules_on_results_alone_is_not_asked_about_calls_and_its_globs_count(world):
    asked = []

    def note(call):
        asked.append((call.phase, call.tool_name, call.result, call.success))
        return Continue()

    await world.scheduler("a", note, tools=("read",), **RESULTS)
    gate = await world.gate()
    decision = await gate.decide(Call("read", {}, ["read"]))
    assert asked == []
    await given(gate, "r", decision, success=False)
    assert asked == [("result", "read", "r", False)]
    made = await gate.rule_on_result(Call("other", {}, ["other"]), None, "x")
    assert made.why == "unasked"


async def test_a_result_is_asked_about_under_the_decision_with_the_call_that_ran(world):
    asked = []

    def note(call):
        asked.append((call.phase, call.id, call.tool_name, call.tool_input))
        if call.phase == "select":
            return Modify(tool="write", arguments={"b": 2})
        return Continue()

    await world.scheduler("a", note, phases=("select", "verify", "result"))
    gate = await world.gate()
    call = Call("read", {"a": 1}, ["read", "write"])
    decision = await gate.decide(call)
    await gate.rule_on_result(call, decision, "r")
    assert asked[0][:2] == ("select", decision.id)
    assert asked[-1] == ("result", decision.id, "write", {"b": 2})


async def test_results_of_one_decision_that_come_at_once_are_ruled_on_one_after_the_other(world):
    def mask(call):
        return Mask(parts=[MaskedPart("", None, None, "number")]) if call.result == "1" else Continue()

    await world.scheduler("a", mask, **RESULTS)
    gate = await world.gate()
    decision = await gate.decide(Call("read", {}, ["read"]))
    made = await asyncio.gather(*(given(gate, str(number), decision) for number in range(3)))
    assert [one.value for one in made] == ["0", "[withheld: number]", "2"]
    assert not gate._judging


# ------------------------------------------------------------------ withheld


async def test_a_denial_withholds_the_result_and_says_why(world):
    await world.scheduler("a", Deny(reason="it holds a key"), **RESULTS)
    await world.scheduler("b", Continue(), **RESULTS)
    made = await given(await world.gate())
    assert made.value == "The tool ran, but its result is withheld: it holds a key"
    assert (made.outcome, made.why, made.scheduler) == ("withheld", "denied", "a")
    assert made.clean("a copy") is None


async def test_silence_of_a_required_scheduler_withholds_and_of_an_optional_one_does_not(world):
    await world.scheduler("a", never, **RESULTS)
    made = await given(await world.gate(required=["a"], patience_ms=50))
    assert (made.outcome, made.why, made.scheduler) == ("withheld", "silent", "a")
    made = await given(await world.gate(patience_ms=50))
    assert (made.value, made.why) == (TEXT, "failed_open")
    assert facts(world)[-1]["failed_open"] == {"a": "silent"}


async def test_a_required_scheduler_that_fails_withholds(world):
    await world.scheduler("a", RuntimeError("broken"), **RESULTS)
    made = await given(await world.gate(required=["a"]))
    assert (made.outcome, made.why) == ("withheld", "silent")


async def test_a_hold_that_ends_in_no_answer_withholds(world):
    async def hold(call):
        yield Hold(seconds=0.05)
        await asyncio.Event().wait()

    await world.scheduler("a", hold, streams=True, **RESULTS)
    made = await given(await world.gate())
    assert (made.outcome, made.why, made.scheduler) == ("withheld", "expired", "a")


async def test_a_hold_that_ends_in_a_mask_masks_and_nobody_is_told_its_reason(world):
    async def hold(call):
        yield Hold(seconds=5, reason=f"is {KEY} known?")
        yield hide()(call)

    await world.scheduler("a", hold, streams=True, **RESULTS)
    held = []
    made = await given(await world.gate(), on_hold=held.append)
    assert made.value == "the key is [withheld: key], keep it"
    assert [(one.scheduler, one.reason) for one in held] == [("a", None)]
    assert KEY.encode() not in b"".join(world.hub.facts)


@pytest.mark.parametrize(
    ("answer", "outcome", "why"),
    [
        ("allow", "released", "agreed"),
        ("refuse", "withheld", "refused"),
        ("expired", "withheld", "expired"),
        ("no_approver", "withheld", "no_approver"),
    ],
)
async def test_a_person_who_is_asked_releases_or_keeps_the_result(world, answer, outcome, why):
    await world.scheduler("a", AskUser(prompt="show it?"), **RESULTS)

    async def ask(asked, question):
        return answer

    made = await given(await world.gate(), ask=ask)
    assert (made.outcome, made.why) == (outcome, why)
    assert (made.value == TEXT) == (outcome == "released")


async def test_without_anybody_to_ask_it_is_withheld_and_masks_of_others_hold_after_a_release(world):
    await world.scheduler("a", AskUser(prompt="show it?"), **RESULTS)
    await world.scheduler("b", hide(), **RESULTS)
    gate = await world.gate()
    assert (await given(gate)).why == "no_approver"

    async def ask(asked, question):
        return "allow"

    made = await given(gate, ask=ask)
    assert made.value == "the key is [withheld: key], keep it"


@pytest.mark.parametrize("other", ["short", {"a": "short"}], ids=["a text", "a value"])
async def test_of_a_result_that_was_cut_and_then_replaced_the_cut_is_told(world, other):
    await world.scheduler("a", in_turn(Replace(result=other), Continue()), **RESULTS)
    made = await given(await world.gate(result_bytes=1024), "x" * 3000)
    assert made.value == f"{other if isinstance(other, str) else json.dumps(other)}{cut_mark(1976)}"
    assert (made.outcome, made.is_cut) == ("replaced", True)


async def test_a_person_sees_the_result_as_schedulers_do_without_what_any_of_them_hid(world):
    await world.scheduler("a", AskUser(prompt=f"show {KEY}?", reason=f"of {KEY}"), **RESULTS)
    await world.scheduler("b", hide(), **RESULTS)
    seen = []

    async def ask(asked, question):
        seen.append((asked.prompt, asked.reason, question.phase, question.result))
        return "allow"

    gate = await world.gate(redact={"patterns": ["token-[0-9]+"]})
    made = await given(gate, f"{TEXT}, token-7", ask=ask)
    ((prompt, reason, phase, result),) = seen
    assert (prompt, reason, phase) == ("show [withheld]?", "of [withheld]", "result")
    assert result.text == f"the key is [withheld: key], keep it, {HIDDEN}"
    assert made.value == "the key is [withheld: key], keep it, token-7"
    assert "keep it" not in str(facts(world))
    await given(gate, {"a": [KEY], "token": "token-8"}, ask=ask)
    assert seen[-1][-1].text == f'{{"a":["{KEY}"],"token":"{HIDDEN}"}}'
    await world.scheduler("c", in_turn(Replace(result=f"other {KEY}"), Continue()), **RESULTS)
    await given(gate, ask=ask)
    assert seen[-1][-1].text == "other [withheld]"


async def test_what_cannot_be_followed_withholds(world):
    async def ruled(answer):
        await world.scheduler("a", answer, **RESULTS)
        return await given(await world.gate())

    made = await ruled(
        in_turn(Mask(parts=[("/x", None, None, "")]), Mask(parts=[("", 0, 999, "")]), Modify(tool="read"))
    )
    assert (made.outcome, made.why) == ("withheld", "denied")
    assert "cannot be followed: it hides a part that the result does not have." in made.reason
    gate = await world.gate()
    assert (await given(gate)).outcome == "withheld"
    assert "the call had run already" in (await given(gate)).reason


async def test_a_part_below_a_mark_was_not_sent_and_cannot_be_masked(world):
    await world.scheduler("a", Mask(parts=[("/user/name", None, None, "")]), **RESULTS)
    await world.scheduler("b", AskUser(prompt="show it?"), **RESULTS)
    made = await given(await world.gate(redact={"fields": ["user"]}), {"user": {"name": "ann"}})
    assert (made.outcome, made.why) == ("withheld", "denied")
    assert "a part that the result does not have" in made.reason


async def test_masks_and_replacements_of_calls_deny_them(world):
    await world.scheduler("a", in_turn(Mask(parts=[("", None, None, "")]), Replace(result="x")))
    gate = await world.gate()
    for _ in range(2):
        decision = await gate.decide(Call("read", {}, ["read"]))
        assert decision.outcome == "deny"
        assert "there was no result yet" in decision.reason


async def test_a_fault_of_the_gate_withholds(world, monkeypatch):
    await world.scheduler("a", Continue(), **RESULTS)
    gate = await world.gate()
    monkeypatch.setattr(
        "toolgate_orchestrator.decision.results.result_ruler.send_result", lambda *_, **__: 1 / 0
    )
    made = await given(gate)
    assert (made.outcome, made.why) == ("withheld", "gate_failed")


@pytest.mark.parametrize("result", [["fine"], {"a": ("fine",)}], ids=["JSON", "not JSON"])
async def test_a_result_that_is_changed_while_it_is_ruled_on_is_withheld(world, result):
    def change(call):
        if isinstance(result, list):
            result.append(KEY)
        else:
            result["b"] = KEY
        return Continue()

    await world.scheduler("a", change, **RESULTS)
    made = await given(await world.gate(), result)
    assert (made.outcome, made.why) == ("withheld", "gate_failed")
    assert KEY not in str(made)


async def test_a_result_that_no_rule_can_read_is_withheld(world):
    class Mute:
        def __str__(self):
            raise RuntimeError("no")

    await world.scheduler("a", Continue(), **RESULTS)
    made = await given(await world.gate(), {"text": TEXT, "more": Mute()})
    assert (made.outcome, made.why) == ("withheld", "gate_failed")
    assert "it holds a Mute that has no text" in made.value
    assert KEY not in made.value


async def test_arguments_that_no_rule_can_read_withhold_where_somebody_is_required(world):
    await world.scheduler("a", Continue(), **RESULTS)
    gate = await world.gate(required=["a"])
    made = await gate.rule_on_result(Call("read", {"a": "\ud83d"}, ["read"]), None, "r")
    assert (made.outcome, made.why) == ("withheld", "gate_failed")


# ------------------------------------------------------------------ masked


@pytest.mark.parametrize(
    ("late", "outcome"),
    [
        (Mask(parts=[MaskedPart("", TEXT.index(KEY), TEXT.index(KEY) + len(KEY), "key")]), "masked"),
        (Deny(reason="no"), "withheld"),
    ],
)
async def test_an_objection_that_comes_when_all_have_agreed_still_counts(world, monkeypatch, late, outcome):
    await world.scheduler("a", Continue(), **RESULTS)
    gate = await world.gate()
    dispatch = gate._dispatcher.dispatch

    async def ask_and_hear_more(call, *asked):
        closed = await dispatch(call, *asked)
        heard = ReceivedVerdict("a", late, 0, "result", 0.0)
        assert call.mask_late(heard, call.result) if isinstance(late, Mask) else call.object_to(heard)
        return closed

    monkeypatch.setattr(gate._dispatcher, "dispatch", ask_and_hear_more)
    made = await given(gate)
    assert made.outcome == outcome
    assert KEY not in str(made.value)


async def test_masks_of_several_schedulers_are_joined(world):
    await world.scheduler("a", hide("key is"), **RESULTS)
    await world.scheduler("b", hide(f"is {KEY}"), priority=5, **RESULTS)
    made = await given(await world.gate())
    assert made.value == "the [withheld: key], keep it"
    assert (made.outcome, made.why, made.scheduler) == ("masked", "masked", "b")
    assert made.clean(f"an artifact: the key is {KEY}.") == "an artifact: the [withheld]."


async def test_a_masked_part_is_masked_in_every_copy_of_the_result(world):
    await world.scheduler("a", Mask(parts=[("/content/0/text", None, None, "card")]), **RESULTS)
    result = {"content": [{"type": "text", "text": KEY}], "structuredContent": {"key": KEY, KEY: 1}}
    made = await given(await world.gate(), result)
    assert made.value["content"][0]["text"] == "[withheld: card]"
    assert KEY not in json.dumps(made.value)
    assert result["structuredContent"]["key"] == KEY
    assert made.clean(ValueError(f"row {KEY}")) == "ValueError: row [withheld]"


async def test_a_mask_of_what_redact_had_hidden_hides_it_in_the_result(world):
    seen = []

    def answer(call):
        seen.append(call.result)
        at = call.result.find("⟦")
        return Mask(parts=[MaskedPart("", at + 1, at + 2, "key")])

    await world.scheduler("a", answer, **RESULTS)
    gate = await world.gate(redact={"patterns": ["sk-[0-9]+"]})
    made = await given(gate)
    assert KEY not in seen[0]
    assert made.value == "the key is [withheld: key], keep it"


async def test_a_mask_that_comes_while_a_person_is_asked_still_hides(world):
    arrived = asyncio.Event()

    async def slow(call):
        await arrived.wait()
        return hide()(call)

    await world.scheduler("a", AskUser(prompt="show it?"), **RESULTS)
    await world.scheduler("slow", slow, **RESULTS)
    gate = await world.gate(patience_ms=50)

    async def ask(asked, question):
        arrived.set()
        await many_steps()
        return "allow"

    made = await given(gate, ask=ask)
    assert made.value == "the key is [withheld: key], keep it"
    assert [one["scheduler"] for one in facts(world)[0]["verdicts"]] == ["a", "slow"]


async def test_a_denial_that_comes_while_a_person_is_asked_withholds(world):
    arrived = asyncio.Event()

    async def slow(call):
        await arrived.wait()
        return Deny(reason="late, but no")

    await world.scheduler("a", AskUser(prompt="show it?"), **RESULTS)
    await world.scheduler("slow", slow, **RESULTS)
    gate = await world.gate(patience_ms=50)
    counted = growth("toolgate_result_verdicts_total", scheduler="slow", action="deny")

    async def ask(asked, question):
        arrived.set()
        await many_steps()
        return "allow"

    made = await given(gate, ask=ask)
    assert (made.outcome, made.reason, made.scheduler) == ("withheld", "late, but no", "slow")
    assert counted() == 1


@pytest.mark.parametrize(
    "broken", ["all", [["", 0, 1, ""]] * 2000, b"bytes", {1: 2}], ids=lambda one: type(one)
)
@pytest.mark.parametrize("action", ["mask", "replace", "deny", "hold", "ask_user"])
async def test_unreadable_objections_to_a_result_withhold_it(world, action, broken):
    async def rogue(call):
        body = packing.pack({"parts": broken, "action": action, "seconds": "x", "priority": "high"})
        item = packing.item(bytes.fromhex(call.id), packing.NUMBERS["result", False], body, None, 2)
        bus.answer(gate._client.bus.orchestrator, item)
        await never(call)

    bus = await world.scheduler("a", rogue, **RESULTS)
    gate = await world.gate(patience_ms=5_000)
    made = await given(gate)
    assert made.outcome == "withheld"
    assert "objected to its result in words that cannot be read" in made.reason


# ------------------------------------------------------------------ replaced


async def test_a_replacement_goes_round_to_all_its_author_too_and_is_given(world):
    asked = []

    def author(call):
        asked.append(("author", call.again, call.result))
        return Replace(result={"rows": 3}, reason="rows are counted")

    def other(call):
        asked.append(("other", call.again, call.result))
        return Continue()

    await world.scheduler("author", author, **RESULTS)
    await world.scheduler("other", other, **RESULTS)
    made = await given(await world.gate())
    assert made.value == {"rows": 3}
    assert (made.outcome, made.why, made.scheduler) == ("replaced", "replaced", "author")
    assert made.reason == "rows are counted"
    assert sorted(asked[2:], key=lambda one: one[0]) == [
        ("author", True, {"rows": 3}),
        ("other", True, {"rows": 3}),
    ]


@pytest.mark.parametrize("second", [Continue(), hide(), never])
async def test_a_redaction_is_not_lost_to_a_replacement(world, second):
    async def masker(call):
        answer = second if call.again else hide()
        if answer is never:
            return await never(call)
        return answer(call) if callable(answer) else answer

    await world.scheduler("masker", masker, **RESULTS)
    await world.scheduler("author", Replace(result=f"in short: {KEY}"), **RESULTS)
    made = await given(await world.gate(patience_ms=100))
    assert KEY not in str(made)
    assert made.value.startswith("in short: [withheld")
    assert made.outcome == "replaced"
    assert made.hidden == {KEY}


async def test_of_two_replacements_the_higher_priority_counts_and_a_further_one_withholds(world):
    await world.scheduler("high", Replace(result="high"), priority=2, **RESULTS)
    await world.scheduler("low", in_turn(Replace(result="low"), Continue()), **RESULTS)
    gate = await world.gate()
    assert (await given(gate)).value == "high"
    await world.scheduler("third", in_turn(Continue(), Replace(result="third")), **RESULTS)
    made = await given(gate)
    assert (made.outcome, made.scheduler) == ("withheld", "third")
    assert "another result than the one that others had chosen" in made.reason


async def test_masks_of_the_replacement_apply_to_it_and_a_denial_of_it_withholds(world):
    await world.scheduler("author", Replace(result="short: abcdef"), **RESULTS)
    await world.scheduler("masker", in_turn(Continue(), hide("abcdef")), **RESULTS)
    gate = await world.gate()
    assert (await given(gate)).value == "short: [withheld: key]"
    await world.scheduler("judge", in_turn(Continue(), Deny(reason="not that")), **RESULTS)
    assert (await given(gate)).reason == "not that"


# ------------------------------------------------------------------ who is asked, and who must answer


def results_audience(config, *announced, ever=()):
    cache = RecipientCache(parse(config), None)
    return cache.of_results("read", {one.name: one for one in announced}, 1, frozenset(ever))


def test_required_at_results_is_who_announced_it_once_or_whom_the_plan_names():
    info = SchedulerInfo("a", 0, ("*",), False, 2, ("result",))
    required = {"required": ["a"]}
    assert results_audience(required, info).required == {"a": True}
    assert results_audience(required).names == ()
    assert results_audience(required, ever=["a"]).required == {"a": True}
    assert results_audience({}, ever=["a"]).names == ()
    named = required | {"schedulers": {"a": {"results": True}}}
    assert results_audience(named).required == {"a": True}
    refused = required | {"schedulers": {"a": {"results": False}}}
    assert results_audience(refused, info, ever=["a"]).names == ()


def test_whom_the_plan_names_cannot_be_excused_by_not_ruling_on_results():
    calls_only = SchedulerInfo("a", 0, ("*",), False, 2, ("select", "verify"))
    named = {"required": ["a"], "schedulers": {"a": {"results": True}}}
    found = results_audience(named, calls_only)
    assert found.unasked["result"]["a"].words == "a does not rule on results"
    assert results_audience({"required": ["a"]}, calls_only, ever=["a"]).unasked == {}


async def test_a_required_scheduler_that_the_plan_names_and_that_rules_on_calls_alone_withholds(world):
    await world.scheduler("a", Continue())
    made = await given(await world.gate(required=["a"], schedulers={"a": {"results": True}}))
    assert (made.outcome, made.why) == ("withheld", "silent")
    assert made.reason == "the required scheduler cannot rule: a does not rule on results."


async def test_a_scheduler_that_rules_on_results_and_is_gone_withholds_if_it_is_required(world):
    bus = await world.scheduler("a", Continue(), **RESULTS)
    gate = await world.gate(required=["a"], patience_ms=50)
    assert (await given(gate)).outcome == "released"
    bus.die()
    assert (await given(gate)).outcome == "withheld"


async def test_without_a_bus_a_required_scheduler_of_results_withholds():
    plan = {"required": ["a"], "schedulers": {"a": {"results": True}}}
    made = await given(Gate(parse(plan), None))
    assert (made.outcome, made.why) == ("withheld", "bus_down")
    assert (await given(Gate(parse({"required": ["a"]}), None))).value is TEXT


def test_a_childs_plan_cannot_loosen_rulings_on_results():
    parent = parse({"schedulers": {"a": {"results": True}, "b": {"results": False}}, "result_bytes": 2048})
    child = inherit_config(parent, parse({"schedulers": {"a": {"results": False}, "b": {"results": True}}}))
    assert (child.schedulers["a"].results, child.schedulers["b"].results) == (True, True)
    assert child.result_bytes == 2048
    assert inherit_config(parent, parse({})).schedulers["a"].results is True


async def test_star_does_not_mean_the_points_of_a_turn(world):
    asked = []

    def note(call):
        asked.append(call.tool_name)
        return Deny(reason="no") if call.tool_name == "turn:input" else Continue()

    await world.scheduler("all", note)
    await world.scheduler("words", note, tools=("turn:input",))
    gate = await world.gate()
    point = Call("turn:input", {"text": "hello"}, ["turn:input"], is_point=True)
    assert (await gate.rule(point)).outcome == "deny"
    assert asked == ["turn:input"]
    point = Call("turn:output", {"text": "bye"}, ["turn:output"], is_point=True)
    assert await gate.rule(point) is None
    assert (await gate.decide(Call("turn:input", {}, ["turn:input"]))).outcome == "deny"
    assert asked == ["turn:input"]


# ------------------------------------------------------------------ too long


async def test_a_result_that_is_too_long_is_cut_with_a_mark_for_the_llm_too(world):
    seen = []

    def note(call):
        seen.append((len(call.result), call.result_cut))
        return Continue()

    await world.scheduler("a", note, **RESULTS)
    made = await given(await world.gate(result_bytes=1024), "x" * 2000)
    assert seen == [(1024, True)]
    assert made.value == "x" * 1024 + "\n[cut off here: 976 more bytes, which no rule has seen]"
    assert (made.outcome, made.is_cut) == ("masked", True)
    assert made.clean("x" * 2000) is None
    (fact,) = facts(world)
    assert (fact["size"], fact["cut"]) == (2000, 976)


# ------------------------------------------------------------------ the record


async def test_the_record_has_who_masked_what_where_and_no_text_of_the_result(world):
    def masker(call):
        return Mask(parts=[MaskedPart(f"/{KEY}", None, None, KEY)], reason=f"found {KEY}")

    await world.scheduler("a", masker, **RESULTS)
    await world.scheduler("b", Replace(result=f"never {KEY}", reason="shorter"), **RESULTS)
    gate = await world.gate()
    counts = [
        growth("toolgate_results_total", outcome="withheld", tool="read", agent=""),
        growth("toolgate_result_verdicts_total", scheduler="a", action="mask"),
        growth("toolgate_result_verdicts_total", scheduler="b", action="replace"),
    ]
    made = await given(gate, {KEY: KEY, "other": "words of the result"})
    assert made.outcome == "withheld"  # the second time that part is not there
    assert KEY not in str(made)
    raw = b"".join(world.hub.facts)
    assert KEY.encode() not in raw
    assert b"words of" not in raw
    (fact,) = facts(world)
    assert (fact["outcome"], fact["tool"], fact["tool_call_id"]) == ("withheld", "read", "c1")
    mask, replaced = fact["verdicts"][:2]
    assert mask["masks"] == [["/[withheld]", None, None, "[withheld]"]]
    assert mask["reason"] == "found [withheld]"
    assert (replaced["action"], replaced["replaced"]) == ("replace", True)
    assert [record.read_verdict(one).verdict.action for one in fact["verdicts"][:2]] == ["mask", "replace"]
    assert [count() for count in counts] == [1, 1, 1]


async def test_no_path_in_the_record_has_a_hidden_key(world):
    url = "https://ann:pw@h/~x"

    def mask(call):
        return Mask(parts=[("/url", None, None, ""), (path_to("/by", url), None, None, "")])

    await world.scheduler("a", mask, **RESULTS)
    made = await given(await world.gate(), {"url": url, "by": {url: "secret"}})
    assert made.value == {"url": "[withheld]", "by": {"[withheld]": "[withheld]"}}
    assert facts(world)[0]["verdicts"][0]["masks"][1][0] == "/by/[withheld]"


@pytest.mark.parametrize(
    "odd", [{}, {"agent": "\u27e6redacted:"}, {"session": "\ud83d"}, {"agent": "a" * 9000}]
)
async def test_the_short_record_of_a_result_that_all_let_pass_says_what_the_long_one_says(
    world, monkeypatch, odd
):
    for name in ("a", "b"):
        await world.scheduler(name, Continue(), **RESULTS)
    gate, counted, noted = await world.gate(), [], []
    at = Caller(session="s", root="r", parent="p", lineage=["up", "me"])._replace(**odd)
    labels = {"outcome": "released", "tool": "read", "agent": odd.get("agent", "")[:128]}
    counts = [
        growth("toolgate_results_total", **labels),
        growth("toolgate_result_verdicts_total", scheduler="b", action="continue"),
        growth("toolgate_result_seconds_count"),
    ]
    short = gate._recorder.note_released
    for record_it in (short, lambda call, fact: gate._recorder.note("tool:result", fact)):
        monkeypatch.setattr(gate._recorder, "note_released", record_it)
        made = await gate.rule_on_result(Call("read", {}, ["read"], at, id="c1"), None, TEXT)
        assert (made.value, made.why) == (TEXT, "agreed")
        counted.append([count() for count in counts])
        noted.append(facts(world)[-1])
    monkeypatch.setattr(gate._recorder, "note_released", short)
    assert counted == [[1, 1, 1], [2, 2, 2]]
    differ = {"seq", "at", "seconds", "decision_id", "verdicts"}
    one, other = [{name: value for name, value in fact.items() if name not in differ} for fact in noted]
    assert one == other
    assert [{**told, "seconds": 0} for told in noted[0]["verdicts"]] == [
        {**told, "seconds": 0} for told in noted[1]["verdicts"]
    ]


@pytest.mark.parametrize("first", ["mask", "denial"])
async def test_who_denies_and_quotes_what_another_hides_tells_nobody(world, first):
    others = asyncio.Event()

    async def answer(call, one):
        if one != first:
            await others.wait()
            await many_steps()
        others.set()
        return hide()(call) if one == "mask" else Deny(reason=f"it has {KEY} in it")

    async def mask(call):
        return await answer(call, "mask")

    async def deny(call):
        return await answer(call, "denial")

    await world.scheduler("a", mask, **RESULTS)
    await world.scheduler("b", deny, **RESULTS)
    made = await given(await world.gate())
    assert made.value == "The tool ran, but its result is withheld: it has [withheld] in it"
    assert KEY.encode() not in b"".join(world.hub.facts)


@pytest.mark.parametrize("quote", [str, repr, json.dumps, lambda text: json.dumps(repr(text))])
@pytest.mark.parametrize("kept", [6, 12, 13, 14, 15, 16, 17, 40])
@pytest.mark.parametrize("says", [Deny, partial(Mask, parts=[MaskedPart("", 0, 3)], priority=1)])
async def test_the_beginning_of_what_another_hides_is_not_left_at_the_end_of_a_reason_that_was_cut(
    world, says, kept, quote
):
    secret = "sk-12345\n\u00e967890"
    reason = "x" * (MAX_REASON - 1 - kept) + quote(secret) + " and more"
    await world.scheduler("a", hide(secret), **RESULTS)
    await world.scheduler("b", says(reason=reason), **RESULTS)
    made = await given(await world.gate(), f"the key is {secret}, keep it")
    told = [made.reason or "", str(made.value), *(str(one) for one in facts(world))]
    assert "x" * 900 in " ".join(told)
    assert [one for one in told if secret[:4] in one] == []


@pytest.mark.parametrize(
    "secret", ["4111\u00a01111\u00a01111\u00a01111", 'it\'s "here" 12345', "\x1b[1mkey\x1b"]
)
async def test_a_reason_that_quotes_what_another_hides_as_python_writes_it_tells_nobody(world, secret):
    await world.scheduler("a", hide(secret), **RESULTS)
    await world.scheduler("b", Deny(reason=f"found {secret!r} and {secret!a}"), **RESULTS)
    made = await given(await world.gate(), f"it is {secret}.")
    assert made.reason == "found '[withheld]' and '[withheld]'"


@pytest.mark.parametrize(
    ("answer", "disagrees"),
    [
        (Deny(reason="no"), True),
        (hide(), True),
        (Replace(result="other"), True),
        (AskUser(prompt="?"), True),
        (Continue(), False),
        (hide("not there"), False),
    ],
)
@pytest.mark.parametrize("first", ["judge", "trial"])
async def test_a_shadow_that_would_have_changed_what_was_given_is_counted_once_and_named(
    world, answer, disagrees, first
):
    heard = asyncio.Event()

    async def judge(call):
        if first == "trial":
            await heard.wait()
            await many_steps()
        return Continue()

    def trial(call):
        heard.set()
        return answer(call) if callable(answer) else answer

    await world.scheduler("judge", judge, **RESULTS)
    await world.scheduler("trial", trial, shadow=True, **RESULTS)
    counted = growth("toolgate_shadow_disagreements_total", scheduler="trial")
    made = await given(await world.gate())
    await many_steps()
    assert made.value is TEXT
    told = (*facts(world), *facts(world, "verdict"))
    assert [name for one in told for name in one.get("disagreeing", ())] == ["trial"] * disagrees
    assert counted() == (1 if disagrees else 0)
    assert KEY.encode() not in b"".join(world.hub.facts)


async def test_a_shadow_that_quotes_what_another_hides_before_that_is_known_tells_the_record_nothing(world):
    await world.scheduler("judge", hide(), **RESULTS)
    await world.scheduler("trial", Deny(reason=f"it has {KEY}"), shadow=True, **RESULTS)
    gate, heard = await world.gate(), []
    gate.subscribe_late(lambda *told: heard.append(told))
    made = await given(gate)
    await many_steps()
    assert (made.outcome, heard) == ("masked", [])
    told = [*(one for fact in facts(world) for one in fact["verdicts"]), *facts(world, "verdict")]
    assert [one["reason"] for one in told if one["scheduler"] == "trial"] == ["it has [withheld]"]
    assert KEY.encode() not in b"".join(world.hub.facts)


async def test_a_shadow_that_hides_what_another_hides_does_not_disagree(world):
    await world.scheduler("judge", hide(), **RESULTS)
    await world.scheduler("trial", hide("1234567890"), shadow=True, **RESULTS)
    counted = growth("toolgate_shadow_disagreements_total", scheduler="trial")
    await given(await world.gate())
    await many_steps()
    assert counted() == 0


async def test_subscribers_are_told_what_is_given_and_cannot_change_it(world):
    await world.scheduler("a", hide(), **RESULTS)
    gate, told = await world.gate(), []
    gate.subscribe_results(lambda *_: 1 / 0)
    gate.subscribe_results(lambda decision, result: told.append((decision, result)))
    made = await given(gate)
    assert [result for _, result in told] == [made]
    assert told[0][0] == facts(world)[0]["decision_id"]


async def test_a_ruling_that_is_cancelled_is_recorded_and_withdrawn(world):
    withdrawn = asyncio.Event()

    async def hold(call):
        try:
            yield Hold(seconds=60)
            await asyncio.Event().wait()
        finally:
            withdrawn.set()

    await world.scheduler("a", hold, streams=True, **RESULTS)
    held = asyncio.Event()
    task = asyncio.create_task(given(await world.gate(), on_hold=lambda _: held.set()))
    await held.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await withdrawn.wait()
    (fact,) = facts(world)
    assert (fact["outcome"], fact["why"]) == ("cancelled", "cancelled")
