"""The gate's rules on the in-memory bus, with real workers."""

import asyncio
import gc
from pathlib import Path

import pytest
from gate_world import growth, never
from questions import decide as decide_on
from toolgate_bus.facts.entries import read_entry
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Hold, Modify
from toolgate_bus.ruling import breaker
from toolgate_bus.transport.memory import MemoryOrchestratorBus
from toolgate_bus.transport.redis.asking.fact_buffer import FactBuffer
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.round.decision_state import DecisionState

pytestmark = pytest.mark.pure

TOOLS = ["bash", "search", "write"]


# ---------------------------------------------------------------------- the order of the rules


async def test_deny_wins_over_modify_whatever_the_priorities(world):
    await world.scheduler("a", Deny(reason="no"), priority=-5)
    await world.scheduler("b", Modify(tool="write"), priority=99)
    decision = await (await world.gate()).decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.why, decision.scheduler, decision.reason) == (
        "deny",
        "denied",
        "a",
        "no",
    )


@pytest.mark.parametrize("high", ["a", "b"])
async def test_of_two_modifies_the_higher_priority_wins_with_its_arguments(world, high):
    for name in ("a", "b"):
        answer = Modify(tool="write", arguments={"by": name})
        await world.scheduler(name, answer, priority=2 if name == high else 1)
    decision = await (await world.gate()).decide(Call("search", {"q": 1}, TOOLS))
    assert (decision.outcome, decision.tool_name, decision.tool_input) == ("modify", "write", {"by": high})
    assert (decision.original_tool, decision.original_input) == ("search", {"q": 1})


async def test_a_verdicts_own_priority_counts_before_its_schedulers(world):
    await world.scheduler("a", Modify(tool="write", arguments={"by": "a"}, priority=50), priority=1)
    await world.scheduler("b", Modify(tool="write", arguments={"by": "b"}), priority=10)
    decision = await (await world.gate()).decide(Call("search", {}, TOOLS))
    assert decision.scheduler == "a"


async def test_the_replacement_is_verified_by_all_but_its_author(world):
    seen = []

    def watch(call):
        seen.append((call.phase, call.tool_name, call.tool_input))
        return Deny(reason="no writing") if call.tool_name == "write" else Continue()

    asked_author = []

    def author(call):
        asked_author.append(call.phase)
        return Modify(tool="write", arguments={"p": 1})

    await world.scheduler("author", author)
    await world.scheduler("watch", watch)
    decision = await (await world.gate()).decide(Call("search", {"q": 1}, TOOLS))
    assert (decision.outcome, decision.scheduler) == ("deny", "watch")
    assert seen == [("select", "search", {"q": 1}), ("verify", "write", {"p": 1})]
    assert asked_author == ["select"]


async def test_rules_see_what_a_tool_takes_for_an_argument_that_is_left_out_and_the_tool_still_gets_none(
    world,
):
    seen = []

    def watch(call):
        seen.append((call.tool_name, call.tool_input))
        return Continue()

    properties = {"amount": {"default": 5000}, "note": {"default": None}, "to": {"default": "x"}}
    tools = {"pay": {"type": "object", "properties": properties}, "search": None}
    await world.scheduler("watch", watch)
    gate = await world.gate()
    decision = await gate.decide(Call("pay", {"to": "anna"}, tools))
    assert (decision.outcome, decision.tool_input) == ("continue", {"to": "anna"})
    await world.scheduler("router", lambda call: Modify(tool="pay", arguments={}))
    decision = await gate.decide(Call("search", {"q": 1}, tools))
    assert (decision.outcome, decision.tool_name, decision.tool_input) == ("modify", "pay", {})
    assert seen == [
        ("pay", {"to": "anna", "amount": 5000}),
        ("search", {"q": 1}),
        ("pay", {"amount": 5000, "to": "x"}),
    ]


@pytest.mark.parametrize(
    ("schema", "given", "seen"),
    [
        ({"allOf": [{"properties": {"a": {"default": 5}}}]}, {}, {"a": 5}),
        (
            {"properties": {"o": {"properties": {"a": {"default": 5}}}}},
            {"o": {"b": 1}},
            {"o": {"b": 1, "a": 5}},
        ),
        ({"properties": {"o": {"default": {}, "properties": {"a": {"default": 5}}}}}, {}, {"o": {"a": 5}}),
        (
            {"properties": {"l": {"items": {"properties": {"a": {"default": 5}}}}}},
            {"l": [{}, {"a": 1}]},
            {"l": [{"a": 5}, {"a": 1}]},
        ),
        ({"properties": {"a": {"default": 5}}}, {"a": None}, {"a": None}),
        ({"$ref": "#/$defs/O", "$defs": {"O": {"properties": {"a": {"default": 5}}}}}, {}, {"a": 5}),
        (
            {
                "properties": {"o": {"$ref": "#/$defs/a~1b"}},
                "$defs": {"a/b": {"properties": {"a": {"default": 5}}}},
            },
            {"o": {}},
            {"o": {"a": 5}},
        ),
        (
            {
                "properties": {"o": {"anyOf": [{"$ref": "#/$defs/O"}, {"type": "null"}], "default": {}}},
                "$defs": {"O": {"properties": {"a": {"$ref": "#/$defs/A"}}}, "A": {"default": 5}},
            },
            {},
            {"o": {"a": 5}},
        ),
        (
            {
                "properties": {"l": {"items": {"$ref": "#/$defs/O"}}},
                "$defs": {"O": {"additionalProperties": {"properties": {"a": {"default": 5}}}}},
            },
            {"l": [{"x": {}}]},
            {"l": [{"x": {"a": 5}}]},
        ),
        (
            {"properties": {"o": {"$ref": "#"}, "a": {"default": 5}}},
            {"o": {"o": {"o": {"o": {"o": {"o": {"o": {"o": {"o": {"a": 1}}}}}}}}}, "a": 1},
            {
                "o": {
                    "o": {
                        "o": {
                            "o": {
                                "o": {"o": {"o": {"o": {"o": {"a": 1}, "a": 5}, "a": 5}, "a": 5}, "a": 5},
                                "a": 5,
                            },
                            "a": 5,
                        },
                        "a": 5,
                    },
                    "a": 5,
                },
                "a": 1,
            },
        ),
        (
            {"$ref": "#", "anyOf": 3, "properties": {"a": {"$ref": "#/x/y"}, "b": {"$ref": 7}}},
            {"a": 1},
            {"a": 1},
        ),
        ({"properties": [], "allOf": 7}, {"a": 1}, {"a": 1}),
        ({"properties": {"a": 1, "l": {"items": 3}}}, {"l": [1]}, {"l": [1]}),
    ],
)
async def test_defaults_are_seen_wherever_they_stand_in_a_schema(world, schema, given, seen):
    told = []
    await world.scheduler("watch", lambda call: told.append(call.tool_input) or Continue())
    decision = await (await world.gate()).decide(Call("pay", given, {"pay": schema}))
    assert (told, decision.tool_input) == ([seen], given)


async def test_a_default_beside_a_value_of_python_is_no_change_of_the_call(world):
    await world.scheduler("watch", Continue())
    tools = {"write": {"type": "object", "properties": {"mode": {"default": "w"}, "path": {}}}}
    asked = {"path": Path("x/.env")}
    decision = await (await world.gate()).decide(Call("write", asked, tools))
    assert (decision.outcome, decision.tool_input) == ("continue", asked)


@pytest.mark.parametrize(
    ("modify", "problem"),
    [
        (Modify(tool="rocket"), "unavailable_tool"),
        (Modify(tool="bash"), "not_allowed"),
        (Modify(tool="write", arguments={"path": 1}), "schema"),
        (Modify(tool="write", arguments={}, agent_target="nobody"), "agent"),
    ],
)
async def test_an_invalid_modify_is_set_aside_and_the_next_one_wins(world, modify, problem):
    await world.scheduler("bad", lambda call: modify if call.phase == "select" else Continue(), priority=9)
    await world.scheduler("good", Modify(tool="write", arguments={"path": "a"}), priority=1)
    tools = {"bash": {}, "search": {}, "write": {"properties": {"path": {"type": "string"}}}}
    invalid = growth("toolgate_invalid_modifies_total", scheduler="bad", reason=problem)
    gate = await world.gate(schedulers={"bad": {"can_modify": ["write", "rocket"]}})
    decision = await gate.decide(Call("search", {}, tools))
    assert (decision.scheduler, decision.tool_input) == ("good", {"path": "a"})
    assert invalid() == 1


async def test_a_required_scheduler_whose_only_answer_is_an_invalid_modify_denies(world):
    await world.scheduler("bad", Modify(tool="rocket"))
    decision = await (await world.gate(required=["bad"])).decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.why) == ("deny", "silent")


async def test_priorities_are_capped_and_counted(world):
    await world.scheduler("loud", Modify(tool="write", arguments={"by": "loud"}, priority=1000))
    await world.scheduler("quiet", Modify(tool="write", arguments={"by": "quiet"}, priority=6))
    capped = growth("toolgate_priority_capped_total", scheduler="loud")
    gate = await world.gate(schedulers={"loud": {"max_priority": 5}}, verify=False)
    decision = await gate.decide(Call("search", {}, TOOLS))
    assert decision.tool_input == {"by": "quiet"}
    assert capped() == 1


# ---------------------------------------------------------------------- a person


def person(answer, shown):
    async def ask(question, call):
        shown.append((question.prompt, call.tool_name, call.tool_input))
        return answer

    return ask


async def test_the_person_is_asked_about_the_call_that_would_run(world):
    await world.scheduler("careful", AskUser(prompt="sure?"))
    await world.scheduler("router", lambda call: Modify(tool="write", arguments={"p": 1}))
    shown = []
    gate = await world.gate(ask=person("allow", shown))
    decision = await gate.decide(Call("search", {"q": 1}, TOOLS))
    assert (decision.outcome, decision.tool_name) == ("modify", "write")
    assert shown == [("sure?", "write", {"p": 1})]


@pytest.mark.parametrize(
    ("answer", "why"), [("refuse", "refused"), ("expired", "expired"), ("no_approver", "no_approver")]
)
async def test_not_allowed_by_a_person_is_a_denial_that_says_how(world, answer, why):
    await world.scheduler("careful", AskUser(prompt="sure?"))
    decision = await (await world.gate(ask=person(answer, []))).decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.why, decision.scheduler) == ("deny", why, "careful")


async def test_with_nobody_to_ask_the_call_is_denied(world):
    await world.scheduler("careful", AskUser(prompt="sure?", default="allow"))
    decision = await (await world.gate()).decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.why) == ("deny", "no_approver")


# ---------------------------------------------------------------------- silence and holds


async def test_an_optional_schedulers_silence_is_passed_over_and_a_required_ones_denies(world):
    await world.scheduler("mute", never)
    for required, outcome, why in (([], "continue", "failed_open"), (["mute"], "deny", "silent")):
        gate = await world.gate(required=required, patience_ms=50)
        decision = await gate.decide(Call("search", {}, TOOLS))
        assert (decision.outcome, decision.why, decision.silent) == (outcome, why, ("mute",))
        assert decision.seconds > 0.04


async def test_a_required_scheduler_that_never_came_is_waited_for_and_denies(world):
    decision = await (await world.gate(required=["ghost"], patience_ms=50)).decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.why, decision.scheduler) == ("deny", "silent", "ghost")
    assert decision.seconds > 0.04


async def test_decisions_that_all_agreed_on_are_one_fact_by_what_was_said_alone(world):
    for name in ("a", "b"):
        await world.scheduler(name, Continue())
    gate = await world.gate()
    facts = []
    gate._client.fact = facts.append
    for tool in TOOLS:
        await gate.decide(Call(tool, {}, TOOLS))
    gate._client.breaker.silent("another", patience=1.0, asked=0.0, now=0.0)  # whom to ask is looked at anew
    await gate.decide(Call("bash", {}, TOOLS))
    (make,) = facts
    assert [item.facts for item in make()] == [len(TOOLS) + 1]


@pytest.mark.parametrize("may_interlock", [True, False])
async def test_other_facts_come_between_decisions_that_share_one_only_if_all_readers_know_that(
    world, may_interlock
):
    await world.scheduler("picky", lambda call: Deny(reason="no") if call.tool_name == "bash" else Continue())
    gate = await world.gate()
    gate._client.may_interlock = lambda: may_interlock
    facts = []
    gate._client.fact = facts.append
    for tool in ("search", "bash", "search"):
        await gate.decide(Call(tool, {}, TOOLS))
        gate.note("tool:post", {"decision_id": "0" * 32})
    buffer = FactBuffer()
    ((frame, held),) = buffer.add(facts)
    assert held == 6
    assert len(packing.items(frame)) == (5 if may_interlock else 6)
    found = read_entry(frame)
    assert [one["seq"] for one in found] == list(range(found[0]["seq"], found[0]["seq"] + 6))
    assert [one.get("outcome") for one in found] == ["continue", None, "deny", None, "continue", None]


async def test_three_silences_and_it_is_not_waited_for(world):
    await world.scheduler("mute", never)
    passed_over = growth("toolgate_passed_over_total", scheduler="mute")
    gate = await world.gate(patience_ms=200)  # of which a busy machine may take a quarter
    silences = 0  # one in which the own loop stood still is nobody's fault
    while not (decision := await gate.decide(Call("search", {}, TOOLS))).passed_over:
        assert decision.silent == ("mute",)
        silences += 1
    assert 3 <= silences < 20
    assert (decision.passed_over, decision.silent) == (("mute",), ())
    assert passed_over() == 1


async def test_who_is_probed_and_not_waited_for_has_not_agreed(world, monkeypatch):
    monkeypatch.setattr(breaker, "PROBE_EVERY", 0.0)
    for name in ("alto", "bass"):
        await world.scheduler(name, Continue())
    await world.scheduler("mute", never)
    gate = await world.gate(patience_ms=50)
    while not (decision := await gate.decide(Call("search", {}, TOOLS))).passed_over:
        assert decision.silent == ("mute",)
    passed_over, faults = (
        growth("toolgate_passed_over_total", scheduler="mute"),
        growth("toolgate_gate_faults_total", part="record"),
    )
    decision = await gate.decide(Call("search", {}, TOOLS))
    assert {one.scheduler for one in decision.verdicts} == {"alto", "bass"}
    assert (decision.passed_over, passed_over(), faults()) == (("mute",), 1, 0)


@pytest.mark.parametrize("fault", [RuntimeError("oops"), "nonsense", None])
async def test_a_scheduler_that_fails_is_counted_and_nobody_waits_for_it(world, fault):
    await world.scheduler("broken", fault)
    await world.scheduler("fine", Modify(tool="write"))
    failed = growth("toolgate_failed_open_total", scheduler="broken", reason="failed")
    gate = await world.gate(patience_ms=600_000, verify=False)
    decision = await gate.decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.silent) == ("modify", ("broken",))
    assert failed() == 1


async def test_a_question_that_takes_long_holds_up_no_other(world):
    async def slow_first(call):
        if call.tool_input.get("slow"):
            await asyncio.Event().wait()
        return Deny(reason="ruled")

    await world.scheduler("one", slow_first)
    gate = await world.gate(patience_ms=1000)
    waiting = asyncio.create_task(gate.decide(Call("search", {"slow": True}, TOOLS)))
    await asyncio.sleep(0)
    for _ in range(5):
        assert (await gate.decide(Call("search", {}, TOOLS))).reason == "ruled"
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def holds(seconds, then):
    async def decide(call):
        yield Hold(seconds=seconds)
        if then is None:
            await asyncio.Event().wait()
        await asyncio.sleep(0.1)
        yield then

    return decide


async def test_a_hold_moves_the_wait_until_the_final_answer(world):
    await world.scheduler("slow", holds(10, Deny(reason="thought about it")), streams=True)
    decision = await (await world.gate(patience_ms=50)).decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.reason) == ("deny", "thought about it")
    assert [one.verdict.action for one in decision.verdicts] == ["hold", "deny"]


@pytest.mark.parametrize("cap", [{}, {"max_hold_s": 0.15}])
async def test_a_hold_that_runs_out_denies(world, cap):
    await world.scheduler("slow", holds(60 if cap else 0.15, None), streams=True)
    decision = await (await world.gate(patience_ms=600_000, **cap)).decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.why, decision.scheduler) == ("deny", "expired", "slow")
    assert decision.seconds > 0.14


async def test_a_cancelled_decision_withdraws_its_hold_and_leaves_no_open_question(world, wait_until):
    await world.scheduler("slow", holds(60, None), streams=True)
    gate = await world.gate()
    withdrawn = growth("toolgate_withdrawn_questions_total", scheduler="slow")
    held = growth("toolgate_verdicts_total", scheduler="slow", action="hold", tool="search", agent="")
    deciding = asyncio.create_task(gate.decide(Call("search", {}, TOOLS)))
    await wait_until(held)
    deciding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deciding
    assert gate._client.table.open == {}
    await wait_until(lambda: withdrawn() == 1)

    async def forgotten():
        return await world.hub.store.keys("hold:") == []

    await wait_until(forgotten)


# ---------------------------------------------------------------------- shadows, selectors, strangers


async def test_a_shadow_is_recorded_and_never_merged(world):
    await world.scheduler("shade", Deny(reason="no"), shadow=True)
    await world.scheduler("named", Deny(reason="no"))
    await world.scheduler("real", lambda call: Continue())
    disagreed = growth("toolgate_shadow_disagreements_total", scheduler="named")
    decision = await (await world.gate(shadow=["named"])).decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.why) == ("continue", "agreed")
    shadows = {one.scheduler for one in decision.verdicts if one.shadow}
    assert {one.scheduler for one in decision.verdicts} - shadows == {"real"}
    assert disagreed() == (1 if "named" in shadows else 0)


async def test_only_those_who_named_the_tool_are_asked(world):
    await world.scheduler("web", Deny(reason="no web"), tools=("web_*",))
    gate = await world.gate()
    assert (await gate.decide(Call("bash", {}, ["bash", "web_x"]))).why == "unasked"
    assert (await gate.decide(Call("web_x", {}, ["bash", "web_x"]))).outcome == "deny"


async def test_an_answer_of_one_who_was_not_asked_is_refused(world):
    """It is alive, and somehow knows the question's id."""
    outsider = await world.scheduler("outsider", Continue(), tools=("other",))

    async def slow(call):
        item = packing.item(bytes.fromhex(call.id), 0, codec.verdict_body(Deny(reason="not my business")))
        outsider.answer(gate._client.bus.orchestrator, item)
        await asyncio.sleep(0.05)
        return Continue()

    await world.scheduler("asked", slow)
    refused = growth("toolgate_bad_messages_total", sender="outsider", reason="unsolicited")
    gate = await world.gate()
    decision = await gate.decide(Call("search", {}, TOOLS))
    assert decision.outcome == "continue"
    assert refused() == 1


async def test_what_is_asked_says_who_and_about_what(world):
    seen = []
    await world.scheduler("curious", lambda call: seen.append(call) or Continue())
    gate = await world.gate(agent="coder", labels={"team": "red"})
    await gate.decide(
        Call("search", {"q": 1}, TOOLS, Caller("s", parent="p", labels={"job": "7"}), id="c", iteration=3)
    )
    (call,) = seen
    assert (call.tool_name, call.tool_input, call.available_tools) == ("search", {"q": 1}, tuple(TOOLS))
    assert (call.agent, call.labels) == ("coder", {"team": "red", "job": "7"})
    assert (call.session, call.root_session, call.parent) == ("s", "p", "p")
    assert (call.tool_call_id, call.iteration, call.phase, len(call.id)) == ("c", 3, "select", 32)


async def test_with_nobody_there_nothing_is_asked_and_nothing_written(world):
    gate = await world.gate()
    assert not gate.wanted("search")
    decision = await gate.decide(Call("search", {"q": 1}, TOOLS))
    gate.note("tool:post", {"x": 1})
    assert (decision.outcome, decision.why, decision.tool_input) == ("continue", "unasked", {"q": 1})
    assert world.hub.facts == []


async def test_every_decision_is_told_to_subscribers_and_kept_as_a_fact(world):
    await world.scheduler("any", Continue())
    gate = await world.gate()
    told = []
    gate.subscribe(told.append)
    decision = await gate.decide(Call("search", {}, TOOLS))
    assert told == [decision]
    assert len(world.hub.facts) == 1


# ---------------------------------------------------------------------- in process


async def test_hooks_of_this_process_are_one_more_scheduler(world):
    await world.scheduler("remote", Modify(tool="write", priority=5))
    gate = await world.gate()

    async def local(call):
        return [Deny(reason="not here")] if call.tool_name == "write" else [Continue()]

    decision = await gate.decide(Call("search", {}, TOOLS), local=local)
    assert (decision.outcome, decision.scheduler, decision.reason) == ("deny", "in-process", "not here")


async def test_a_hook_that_raises_fails_alone(world):
    await world.scheduler("remote", Modify(tool="write"))

    async def local(call):
        raise RuntimeError("hook")

    decision = await (await world.gate()).decide(Call("search", {}, TOOLS), local=local)
    assert (decision.outcome, decision.silent) == ("modify", ("in-process",))


# ---------------------------------------------------------------------- in which turn of the loop


async def test_calls_that_come_together_are_asked_about_together(world):
    """One that leaves a turn later is written, answered and heard by itself from then on."""
    await world.scheduler("a", never)
    gate = await world.gate()
    calls = [asyncio.create_task(gate.decide(Call("search", {"n": n}, TOOLS))) for n in range(64)]
    await asyncio.sleep(0)
    assert len(gate._client.table.open) == 64
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_a_call_that_is_decided_is_freed_without_the_collector(world, wait_until):
    """What it has to look for costs every decision a tenth."""

    def count_states():
        return sum(type(one) is DecisionState for one in gc.get_objects())

    await world.scheduler("a", Continue())
    gate = await world.gate()
    gc.collect()
    gc.disable()
    try:
        of_other_tests = count_states()
        for number in range(10):
            await gate.decide(Call("search", {"n": number}, TOOLS))
        # The last may still be about to be let go.
        await wait_until(lambda: count_states() <= of_other_tests + 1)
    finally:
        gc.enable()


@pytest.fixture
def hurried(monkeypatch):
    """How often facts were to be written at once."""
    times = []
    monkeypatch.setattr(MemoryOrchestratorBus, "hurry_facts", lambda bus: times.append(bus))
    return times


async def test_an_end_that_another_call_of_its_response_may_wait_for_is_told_at_once(world, hurried):
    await world.scheduler("a", never, tools=("deploy",))
    gate = await world.gate()
    who = {"session": "s", "parallel_group_id": "g"}
    test = await decide_on(gate, "test", {}, ["test"], **who)
    end = {"decision_id": test.id, "tool": "test", "success": True}
    waits = asyncio.create_task(decide_on(gate, "deploy", {}, ["deploy"], **who))
    await asyncio.sleep(0)
    gate.note("tool:post", {**end, "session": "other"})
    gate.note("tool:selected", {**end, "session": "s"})
    assert len(hurried) == 0
    gate.note("tool:post", {**end, "session": "s"})
    gate.note("tool:post", end)  # whose it was is not told
    assert len(hurried) == 2
    waits.cancel()
    await asyncio.gather(waits, return_exceptions=True)
    gate.note("tool:post", end)
    assert len(hurried) == 2


async def test_an_end_is_told_at_once_when_a_call_comes_that_may_have_waited_for_it(world, hurried):
    await world.scheduler("a", Continue())
    gate = await world.gate()
    end = {"tool": "test", "success": True, "session": "s"}
    test = await gate.decide(Call("test", {}, ["test"], Caller("s"), group="g"))
    gate.note("tool:post", {**end, "decision_id": test.id})
    await gate.decide(Call("deploy", {}, ["deploy"], Caller("t"), group="g"))
    await gate.decide(Call("deploy", {}, ["deploy"], Caller("s")))
    assert len(hurried) == 0
    for _ in range(2):
        await gate.decide(Call("deploy", {}, ["deploy"], Caller("s"), group="g"))
    assert len(hurried) == 1


async def test_a_hold_has_all_told_that_may_end_it(world, hurried):
    async def hold(call):
        yield Hold(seconds=30)
        await asyncio.Event().wait()

    await world.scheduler("a", hold, streams=True)
    gate = await world.gate()
    held = asyncio.Event()
    waits = asyncio.create_task(gate.decide(Call("deploy", {}, TOOLS), on_hold=lambda _: held.set()))
    await held.wait()
    assert len(hurried) == 1
    waits.cancel()
    await asyncio.gather(waits, return_exceptions=True)
