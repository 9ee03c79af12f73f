"""A question to a person that is left, and gone on with by whoever has the answer."""

import asyncio

import pytest
from gate_world import growth
from questions import decide
from toolgate_bus.facts.join import join_decisions
from toolgate_bus.facts.record import read_facts
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Modify, ToolQuestion
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.deferral.record import make_token

pytestmark = pytest.mark.pure

TOOLS = ["bash", "search", "write"]
ASK = AskUser(prompt="May it?")


async def put_off(world, tool="search", arguments=None, **fields):
    """A call about which a person is to be asked, put off by a gate of its own."""
    gate = await world.gate(ask="defer", **fields)
    return await gate.decide(Call(tool, {"q": 1} if arguments is None else arguments, TOOLS, Caller("s")))


async def answer(world, decision, said="allow", *, by="ann", tool="search", arguments=None, **fields):
    """The same call with an answer, from another orchestrator."""
    options = {"session": "s", **fields}
    gate = await world.gate()
    given = PersonAnswer(decision.token, said, by)
    return await decide(
        gate, tool, {"q": 1} if arguments is None else arguments, TOOLS, answer=given, **options
    )


def facts_of(world):
    """The record so far."""
    found = packing.items(packing.frame(world.hub.facts))
    return [fact for item in found for fact in read_facts(item)]


async def test_it_comes_back_with_a_token_and_what_would_run_and_is_not_decided(world):
    world.hub.is_read = True
    await world.scheduler("police", lambda call: ASK if call.phase == "select" else Continue())
    await world.scheduler("router", Modify(tool="write", arguments={"n": 1}))
    decided = growth("toolgate_decisions_total")
    decision = await put_off(world)
    assert (decision.outcome, decision.why, decision.pending, decision.allowed) == (
        "ask",
        "pending",
        True,
        False,
    )
    assert (decision.tool_name, decision.tool_input) == ("write", {"n": 1})
    assert decision.prompt == ASK
    assert decision.token.startswith(f"{decision.id}.")
    assert decided() == 0


@pytest.mark.parametrize(
    ("said", "outcome", "why"),
    [("allow", "continue", "agreed"), ("refuse", "deny", "refused"), ("expired", "deny", "expired")],
)
async def test_an_answer_goes_on_with_that_very_decision(world, said, outcome, why):
    asked = []

    def police(call):
        asked.append(call.id)
        return ASK

    await world.scheduler("police", police)
    first = await put_off(world)
    second = await answer(world, first, said)
    assert (second.id, second.outcome, second.why, second.asked_user) == (first.id, outcome, why, True)
    assert asked == [first.id]
    assert [heard.verdict for heard in second.verdicts] == [ASK]


async def test_what_would_run_is_what_runs(world):
    await world.scheduler("police", lambda call: ASK if call.phase == "select" else Continue())
    await world.scheduler("router", Modify(tool="write", arguments={"n": 1}, reason="better"))
    second = await answer(world, await put_off(world))
    assert (second.outcome, second.tool_name, second.tool_input) == ("modify", "write", {"n": 1})
    assert (second.scheduler, second.reason) == ("router", "better")


async def test_who_cannot_run_what_would_run_does_not_go_on_with_it_and_others_still_can(world):
    await world.scheduler("police", lambda call: ASK if call.phase == "select" else Continue())
    await world.scheduler("router", Modify(tool="write", arguments={"n": 1}))
    first = await put_off(world)
    unable = await answer(world, first, can=("arguments",))
    assert (unable.outcome, unable.why) == ("deny", "denied")
    assert "router wanted another call to run in its place, which cannot be done here" in unable.reason
    assert (await answer(world, first)).tool_name == "write"


async def test_of_two_answers_at_once_one_counts_and_the_other_is_told(world):
    await world.scheduler("police", ASK)
    first = await put_off(world)
    both = await asyncio.gather(answer(world, first, by="ann"), answer(world, first, by="bob"))
    assert sorted(one.outcome for one in both) == ["continue", "deny"]
    late = next(one for one in both if one.outcome == "deny")
    assert late.why == "void"
    assert "allowed already by" in late.reason
    assert late.id != first.id


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arguments": {"q": 2}}, "not the call that a person was asked about"),
        ({"arguments": {"q": 1.0}}, "not the call that a person was asked about"),
        ({"tool": "bash"}, "not the call that a person was asked about"),
        ({"agent": "other"}, "not the call that a person was asked about"),
        ({"session": "t"}, "another session"),
    ],
)
async def test_a_changed_call_does_not_run_on_it_and_the_answer_stays_good_for_its_own(world, change, words):
    await world.scheduler("police", ASK)
    first = await put_off(world)
    void = await answer(world, first, **change)
    assert (void.outcome, void.why) == ("deny", "void")
    assert words in void.reason
    assert (await answer(world, first)).allowed


SHAPES = (
    {"to": ["a", ["b"]]},
    {"to": [["a", "b"]]},
    {"to": ["a", "b"]},
    {"to": [["a"], "b"]},
    {"to": [[], ["a", "b"]]},
    {"to": ["a"], "cc": ["b"]},
    {"to": [], "cc": ["a", "b"]},
    {"to": {"a": "b"}},
    {"y": {"b": 1}, "x": "a"},
    {"x": {"a": "y", "b": 1}},
    {"to": ["1", 1, 1.0, True]},
    {"to": ["1", 1, 1.0, "true"]},
)


@pytest.mark.parametrize("asked", SHAPES)
@pytest.mark.parametrize("other", SHAPES)
async def test_an_answer_is_good_for_the_shape_that_was_shown_and_for_no_other(world, asked, other):
    await world.scheduler("police", ASK)
    first = await put_off(world, arguments=asked)
    made = await answer(world, first, arguments=other)
    assert made.allowed is (asked is other)


def test_the_seal_on_what_is_kept_holds_in_its_namespace_only():
    who = ("a", {}, "s", "s", None, [], "", 0, "", None, None, {}, False)
    question = ToolQuestion("0" * 32, "pay", {"n": 1}, [], 500, *who)
    token = make_token(b"s" * 16, "fleet-1", b"kept", question)
    assert token.seals("fleet-1", b"kept", question)
    assert not token.seals("fleet-2", b"kept", question)
    assert not token.seals("fleet-1", b"kept!", question)


@pytest.mark.parametrize("token", ["", "x" * 97, 7, None, "a" * 10_000_000, "0" * 32 + "." + "A" * 64])
async def test_what_is_no_token_of_ours_denies(world, token):
    await world.scheduler("police", ASK)
    first = await put_off(world)
    void = await answer(world, first._replace(token=token))
    assert (void.outcome, void.why) == ("deny", "void")


async def test_a_token_with_another_secret_opens_nothing(world):
    await world.scheduler("police", ASK)
    first, other = await put_off(world), await put_off(world)
    forged = first.token[:33] + other.token[33:]
    void = await answer(world, first._replace(token=forged))
    assert (void.why, "no question gave" in void.reason) == ("void", True)


async def test_what_lies_in_the_store_may_be_changed_by_nobody(world):
    await world.scheduler("police", ASK)
    first = await put_off(world)
    key = f"deferred:{first.id}"
    kept = packing.unpack(await world.hub.store.get(key))
    body = packing.unpack(kept["body"])
    body["final_tool"] = "bash"
    kept["body"] = packing.pack(body)
    await world.hub.store.put(key, packing.pack(kept), 90_000)
    assert (await answer(world, first)).why == "void"


async def test_too_late_an_answer_ends_it(world):
    await world.scheduler("police", ASK)
    first = await put_off(world, defer_s=0.01)
    await asyncio.sleep(0.02)
    late = await answer(world, first)
    assert (late.id, late.outcome, late.why) == (first.id, "deny", "expired")


async def test_no_secret_is_kept_and_what_was_hidden_runs_all_the_same(world):
    await world.scheduler("police", lambda call: ASK if call.phase == "select" else Continue())
    await world.scheduler("router", lambda call: Modify(tool="search", arguments={**call.tool_input, "n": 1}))
    redact = {"fields": ["password"]}
    arguments = {"password": "hunter2", "q": ["a"]}
    first = await put_off(world, arguments=arguments, redact=redact)
    assert first.tool_input == {**arguments, "n": 1}
    kept = b"".join([await world.hub.store.get(key) for key in await world.hub.store.keys("")])
    assert b"hunter2" not in kept
    gate = await world.gate(redact=redact)
    second = await gate.decide(
        Call("search", arguments, TOOLS, Caller("s"), answer=PersonAnswer(first.token, "allow"))
    )
    assert (second.outcome, second.tool_input) == ("modify", {**arguments, "n": 1})


async def test_the_last_round_is_asked_once_by_who_goes_on(world):
    seen = []

    def last(call):
        seen.append(call.phase)
        return Continue(fence=3)

    await world.scheduler("police", ASK)
    await world.scheduler("slots", last, phases=("admit",))
    first = await put_off(world)
    assert seen == []
    second = await answer(world, first)
    assert (seen, second.grants) == (["admit"], {"slots": 3})


async def test_a_denial_that_comes_before_the_answer_counts(world):
    release = asyncio.Event()

    async def slow(call):
        await release.wait()
        return Deny(reason="no, after all")

    await world.scheduler("police", ASK)
    await world.scheduler("slow", slow)
    first = await put_off(world, patience_ms=50)
    assert first.pending
    release.set()
    void = None
    for _ in range(200):
        await asyncio.sleep(0.01)
        if await world.hub.store.get(f"deferred:{first.id}:answer"):
            void = await answer(world, first)
            break
    assert (void.outcome, void.why) == ("deny", "void")
    assert "a scheduler objected" in void.reason


def object_by_replica(gate, decision):
    """Another replica of one that had agreed denies, to the process that asked."""
    denial = packing.item(bytes.fromhex(decision.id), 0, codec.verdict_body(Deny(reason="not so")))
    gate._client.on_verdicts([("calm", packing.frame([denial]))])


async def test_who_had_agreed_may_still_deny_by_another_replica_while_it_waits(world, wait_until):
    await world.scheduler("police", ASK)
    await world.scheduler("calm", Continue())
    gate = await world.gate(ask="defer")
    first = await gate.decide(Call("search", {"q": 1}, TOOLS, Caller("s")))
    object_by_replica(gate, first)
    await wait_until(lambda: world.hub.store.get(f"deferred:{first.id}:answer"))
    assert "a scheduler objected" in (await answer(world, first)).reason
    assert gate._client.table.goes_on((bytes.fromhex(first.id), 0)) is None
    assert gate._client.deferred == {}


async def test_it_may_be_denied_while_what_is_scarce_is_waited_for_after_the_answer(world):
    """By who was asked before the answer: the decision is the same."""

    async def slots(call):
        object_by_replica(gate, first)
        return Continue(fence=3)

    await world.scheduler("police", ASK)
    await world.scheduler("calm", Continue())
    await world.scheduler("slots", slots, phases=("admit",))
    gate = await world.gate(ask="defer")
    first = await gate.decide(Call("search", {"q": 1}, TOOLS, Caller("s")))
    given = PersonAnswer(first.token, "allow")
    second = await gate.decide(Call("search", {"q": 1}, TOOLS, Caller("s"), answer=given))
    assert (second.id, second.outcome, second.scheduler) == (first.id, "deny", "calm")
    assert gate._client.table.goes_on((bytes.fromhex(first.id), 0)) is None


async def test_the_record_is_one_from_pending_to_who_allowed_it(world):
    world.hub.is_read = True
    await world.scheduler("police", ASK)
    first = await put_off(world)
    (pending,) = join_decisions(facts_of(world))
    assert (pending["outcome"], pending["why"], pending["prompt"]) == ("ask", "pending", "May it?")
    await answer(world, first)
    (decided,) = join_decisions(facts_of(world))
    assert (decided["id"], decided["outcome"]) == (first.id, "continue")
    assert (decided["answer"], decided["answered_by"]) == ("allow", "ann")
    assert [one["scheduler"] for one in decided["verdicts"]] == ["police"]
    counted = [fact for fact in facts_of(world) if fact["event"] == "decision"]
    assert len(counted) == 1


class Interrupt(Exception):  # noqa: N818 - a framework's own name for it
    """What a framework raises to leave."""


async def test_what_passes_is_raised_and_everything_withdrawn(world):
    world.hub.is_read = True
    await world.scheduler("police", ASK)

    async def leave(asked, question):
        raise Interrupt

    gate = await world.gate(ask=leave)
    with pytest.raises(Interrupt):
        await gate.decide(Call("search", {}, TOOLS), passes=(Interrupt,))
    assert [fact["outcome"] for fact in facts_of(world)] == ["cancelled"]
    denied = await gate.decide(Call("search", {}, TOOLS))
    assert (denied.outcome, denied.why) == ("deny", "no_approver")


@pytest.mark.parametrize(
    ("phase", "outcome"),
    [("select", "deny"), ("verify", "modify"), ("both", "modify")],
)
async def test_who_is_required_where_it_goes_on_has_agreed_to_what_runs_and_not_to_what_was_asked_first(
    world, phase, outcome
):
    def police(call):
        if phase in (call.phase, "both"):
            return Continue()
        raise RuntimeError("not now")

    change = Modify(tool="write", arguments={"n": 1})
    await world.scheduler("police", police)
    await world.scheduler("router", lambda call: change if call.phase == "select" else Continue())
    await world.scheduler("asker", lambda call: ASK if call.phase == "verify" else Continue())
    decision = await put_off(world)
    assert (decision.outcome, decision.tool_name) == ("ask", "write")
    gate = await world.gate(required=["police", "router"])
    given = PersonAnswer(decision.token, "allow", "ann")
    last = await gate.decide(Call("search", {"q": 1}, TOOLS, Caller("s"), answer=given))
    assert last.outcome == outcome
    assert outcome != "deny" or "police is required here, and has not agreed" in last.reason


@pytest.mark.parametrize("agrees", [True, False])
async def test_who_is_required_where_it_goes_on_has_agreed_to_it_as_others_changed_it(world, agrees):
    def police(call):
        if call.again and not agrees:
            raise RuntimeError("not now")
        return Continue()

    def masker(call):
        return (
            Modify(tool="write", arguments={**call.tool_input, "m": 1}) if call.tool_name == "write" else ASK
        )

    change = Modify(tool="write", arguments={"n": 1})
    await world.scheduler("police", police)
    await world.scheduler("router", lambda call: change if call.phase == "select" else Continue())
    await world.scheduler("masker", masker)
    decision = await put_off(world)
    assert (decision.outcome, decision.tool_input) == ("ask", {"n": 1, "m": 1})
    gate = await world.gate(required=["police"])
    given = PersonAnswer(decision.token, "allow", "ann")
    last = await gate.decide(Call("search", {"q": 1}, TOOLS, Caller("s"), answer=given))
    assert last.outcome == ("modify" if agrees else "deny")


async def test_it_goes_on_for_whom_it_was_asked_whatever_the_second_call_tells_of_that(world):
    admitted = []

    def admit(call):
        admitted.append((call.root_session, call.parent, call.lineage, call.labels))
        return Continue()

    await world.scheduler("police", ASK)
    await world.scheduler("slots", admit, phases=("admit",))
    gate = await world.gate(ask="defer", labels={"env": "x"})
    whose = {"root_session": "r", "parent": "p", "lineage": ["boss", "scout"], "labels": {"team": "a"}}
    decision = await decide(gate, "search", {"q": 1}, TOOLS, session="s", **whose)
    assert (await answer(world, decision, labels={"team": "b"}, parent="other")).allowed
    assert admitted == [("r", "p", ("boss", "scout"), {"env": "x", "team": "a"})]
