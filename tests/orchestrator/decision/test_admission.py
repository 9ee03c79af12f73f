"""The last round: who gives what is scarce is asked about the call that will run, one after another."""

import asyncio

import pytest
from gate_world import growth
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Hold, Modify
from toolgate_bus.protocol.pauses import Pause, StandingPauses
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.recorder import tell

pytestmark = pytest.mark.pure

TOOLS = ["bash", "search", "write"]
LAST = ("admit",)


class SpanNotes(dict):
    """A span, as far as it is told attributes."""

    set = dict.update


class Giver:
    """Gives out something, and remembers to whom and in which phase; `answers` come one after another."""

    def __init__(self, *answers):
        self.answers = list(answers) or [Continue()]
        self.asked, self.given_back = [], []
        self.is_told = asyncio.Event()

    async def decide(self, call):
        self.asked.append((call.phase, call.tool_name, dict(call.tool_input)))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    async def withdraw(self, decision, phase):
        self.given_back.append((decision, phase))
        self.is_told.set()

    async def start(self, world, name, **fields):
        await world.scheduler(name, self.decide, phases=LAST, withdraw=self.withdraw, **fields)
        return self


async def test_it_is_asked_about_the_call_that_will_run_and_about_no_other(world):
    giver = await Giver().start(world, "slots")
    await world.scheduler("router", lambda call: Modify(tool="write", arguments={"n": 1}))
    decision = await (await world.gate()).decide(Call("search", {"q": 1}, TOOLS))
    assert (decision.outcome, decision.tool_name) == ("modify", "write")
    assert giver.asked == [("admit", "write", {"n": 1})]


async def test_where_nobody_else_is_asked_its_word_alone_counts(world):
    await Giver(Continue(fence=7), Deny(reason="none left")).start(world, "slots")
    gate = await world.gate()
    assert gate.wanted("search")
    admitted, denied = [await gate.decide(Call("search", {}, TOOLS)) for _ in range(2)]
    assert (admitted.outcome, admitted.why, admitted.grants) == ("continue", "agreed", {"slots": 7})
    assert (denied.outcome, denied.why, denied.reason) == ("deny", "denied", "none left")


@pytest.mark.parametrize("how", ["denies", "person refuses"])
async def test_a_call_that_others_stop_is_never_asked_about(world, how):
    giver = await Giver().start(world, "slots")
    await world.scheduler("police", Deny(reason="no") if how == "denies" else AskUser(prompt="May it?"))

    async def refuse(asked, question):
        return "refuse"

    decision = await (await world.gate(ask=refuse)).decide(Call("search", {}, TOOLS))
    assert decision.outcome == "deny"
    assert giver.asked == []


async def test_the_highest_priority_gives_first_and_a_later_denial_gives_it_back(world):
    first = await Giver(Continue(fence=1)).start(world, "slots", priority=5)
    second = await Giver(Deny(reason="too dear")).start(world, "money", priority=1)
    decision = await (await world.gate()).decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.scheduler) == ("deny", "money")
    await asyncio.wait_for(first.is_told.wait(), 5)
    assert first.given_back == [(decision.id, "admit")]
    assert second.given_back == []


async def test_who_is_denied_first_asks_nobody_after(world):
    await Giver(Deny(reason="full")).start(world, "slots", priority=5)
    second = await Giver().start(world, "money", priority=1)
    assert (await (await world.gate()).decide(Call("search", {}, TOOLS))).reason == "full"
    assert second.asked == []


async def test_a_call_that_is_cancelled_while_it_waits_gives_back_what_it_has(world):
    first = await Giver(Continue(fence=1)).start(world, "slots", priority=5)
    waits = asyncio.Event()
    second = Giver()

    async def hold(call):
        waits.set()
        yield Hold(seconds=60)
        await asyncio.Event().wait()

    await world.scheduler("money", hold, phases=LAST, streams=True, withdraw=second.withdraw)
    gate = await world.gate()
    held = asyncio.Event()
    deciding = asyncio.create_task(gate.decide(Call("search", {}, TOOLS), on_hold=lambda one: held.set()))
    await asyncio.wait_for(held.wait(), 5)
    deciding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deciding
    await asyncio.wait_for(asyncio.gather(first.is_told.wait(), second.is_told.wait()), 5)
    assert waits.is_set()


async def test_a_wait_there_is_bounded_by_its_giver_and_counts_as_no_latency(world):
    async def queue(call):
        yield Hold(seconds=30)
        await asyncio.sleep(0.2)
        yield Continue(fence=3)

    await world.scheduler("slots", queue, phases=LAST, streams=True)
    took = growth("toolgate_decision_seconds_sum")
    waited = growth("toolgate_admission_seconds_sum", scheduler="slots")
    decision = await (await world.gate(max_hold_s=0.1)).decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.grants) == ("continue", {"slots": 3})
    assert decision.waited >= 0.2
    assert decision.seconds >= decision.waited
    assert waited() >= 0.2
    assert decision.latency == decision.seconds - decision.waited
    assert took() == pytest.approx(decision.latency)
    span = SpanNotes()
    tell(span, decision)
    assert span["toolgate.waited_s"] == decision.waited


async def test_a_hold_that_is_heard_after_its_own_answer_gives_nothing_back(world, monkeypatch):
    """One replica keeps the hold, another answers it, and is heard first."""
    giver = Giver()

    async def queue(call):
        yield Hold(seconds=30)
        yield Continue(fence=3)

    await world.scheduler("slots", queue, phases=LAST, streams=True, withdraw=giver.withdraw)
    gate = await world.gate()
    listener, kept = gate._client, []
    hear, told = listener.on_verdicts, asyncio.Event()

    def hear_in_reverse(frames):
        if not kept:
            kept.extend(frames)
            return
        hear(frames)
        hear(kept)
        told.set()

    monkeypatch.setattr(listener, "on_verdicts", hear_in_reverse)
    late = growth("toolgate_late_verdicts_total", scheduler="slots")
    decision = await gate.decide(Call("search", {}, TOOLS))
    await asyncio.wait_for(told.wait(), 5)
    assert (decision.outcome, decision.grants, late()) == ("continue", {"slots": 3}, 1)
    assert (await gate.decide(Call("search", {}, TOOLS))).allowed  # whatever was sent is there by now
    assert giver.given_back == []


@pytest.mark.parametrize("meanwhile", ["a person is asked", "a slot is waited for"])
async def test_a_denial_that_comes_after_its_round_and_before_the_decision_denies(world, meanwhile):
    """An optional one that is not waited for any longer; nobody has run anything yet."""
    given = asyncio.Event()

    async def object_late(call):
        if call.phase == "select":
            await asyncio.sleep(0.15)
            given.set()
            return Deny(reason="not so")
        return Continue()

    await world.scheduler("slow", object_late)
    giver = await Giver().start(world, "slots", priority=9)
    if meanwhile == "a person is asked":
        await world.scheduler("asks", AskUser(prompt="May it?"))
    else:

        async def queue(call):
            yield Hold(seconds=30)
            await given.wait()
            await asyncio.sleep(0.1)
            yield Continue()

        await world.scheduler("queue", queue, phases=LAST, streams=True)

    async def allow(asked, question):
        await given.wait()
        await asyncio.sleep(0.1)
        return "allow"

    late = growth("toolgate_late_verdicts_total", scheduler="slow")
    denied = growth("toolgate_verdicts_total", scheduler="slow", action="deny", tool="search", agent="")
    decision = await (await world.gate(ask=allow, patience_ms=100)).decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.scheduler, decision.reason) == ("deny", "slow", "not so")
    assert (late(), denied()) == (0, 1)
    if giver.asked:
        await asyncio.wait_for(giver.is_told.wait(), 5)
        assert giver.given_back == [(decision.id, "admit")]


@pytest.mark.parametrize("meanwhile", ["a person is asked", "a replacement is verified", "it is paused"])
async def test_a_denial_by_another_replica_of_who_had_agreed_denies_until_the_decision(world, meanwhile):
    """It was taken over, or asked twice: of one scheduler the strictest word counts."""
    gate, ids = None, []
    pause = StandingPauses(1, 0, (Pause("p", everyone=True),))

    async def agree(call):
        ids.append(bytes.fromhex(call.id))
        return Continue()

    def object_by_replica():
        denial = packing.item(ids[0], 0, codec.verdict_body(Deny(reason="not so")))
        gate._client.on_verdicts([("calm", packing.frame([denial]))])

    async def router(call):
        if call.phase == "select":
            return Modify(tool="write", arguments={})
        object_by_replica()
        return Continue()

    async def other(call):
        if call.phase == "verify":
            object_by_replica()
        return Continue()

    async def allow(asked, question):
        object_by_replica()
        return "allow"

    await world.scheduler("calm", agree)
    if meanwhile == "a replacement is verified":
        await world.scheduler("router", router)
        await world.scheduler("other", other)
    elif meanwhile == "a person is asked":
        await world.scheduler("asks", AskUser(prompt="May it?"))
    gate = await world.gate(ask=allow)
    repeated = growth("toolgate_repeated_verdicts_total", scheduler="calm")
    if meanwhile == "it is paused":
        deciding = asyncio.create_task(gate.decide(Call("search", {}, TOOLS)))
        while not ids:
            await asyncio.sleep(0)
        gate._client.on_pauses(pause)
        while not gate._client.table.goes_on((ids[0], 0)):
            await asyncio.sleep(0)
        object_by_replica()
        gate._client.on_pauses(StandingPauses(2, ()))
        decision = await deciding
    else:
        decision = await gate.decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.scheduler, decision.reason) == ("deny", "calm", "not so")
    assert repeated() == 0
    assert gate._client.table.goes_on((ids[0], 0)) is None
    object_by_replica()
    assert repeated() == 1


@pytest.mark.parametrize("phase", ["verify", "admit"])
async def test_a_bus_that_goes_away_between_two_rounds_is_waited_for(world, monkeypatch, phase):
    gates = []

    async def select(call):
        if call.phase == "select":
            gates[0]._client.on_connection(False)
            asyncio.get_running_loop().call_later(0.1, gates[0]._client.on_connection, True)
            return Modify(tool="write") if phase == "verify" else Continue()
        return Continue()

    await world.scheduler("router", select)
    await Giver().start(world, "slots")
    gates.append(await world.gate(required=["slots", "router"]))
    client = gates[0]._client
    write = client.ask

    def ask(schedulers, decision, item, event="tool:selecting"):
        if client.up:
            write(schedulers, decision, item, event)
        else:
            for one in schedulers:
                client.on_refusal(one, [decision], "bus_down")

    monkeypatch.setattr(client, "ask", ask)
    decision = await gates[0].decide(Call("search", {}, TOOLS))
    assert (decision.allowed, decision.silent) == (True, ())


@pytest.mark.parametrize("answer", [Modify(tool="write"), AskUser(prompt="May it?")])
async def test_a_required_one_that_replaces_or_asks_there_has_not_admitted(world, answer):
    await Giver(answer).start(world, "slots")
    decision = await (await world.gate(required=["slots"])).decide(Call("search", {}, TOOLS))
    assert decision.outcome == "deny"


async def test_a_required_one_that_is_silent_there_denies_and_an_optional_one_does_not(world):
    async def never(call):
        await asyncio.Event().wait()

    await world.scheduler("slots", never, phases=LAST)
    for required, outcome, why in ((["slots"], "deny", "silent"), ([], "continue", "failed_open")):
        decision = await (await world.gate(required=required, patience_ms=100)).decide(
            Call("search", {}, TOOLS)
        )
        assert (decision.outcome, decision.why) == (outcome, why)


async def test_a_required_one_without_a_signed_word_is_asked_before_as_well_and_lets_pass(world):
    giver = await Giver(Continue(fence=1)).start(world, "slots")
    decision = await (await world.gate(required=["slots"])).decide(Call("search", {}, TOOLS))
    assert (decision.outcome, [heard.phase for heard in decision.verdicts]) == (
        "continue",
        ["select", "admit"],
    )
    assert giver.asked == [("admit", "search", {})]


async def test_who_rules_in_all_phases_is_asked_in_all(world):
    asked = []

    async def note(call):
        asked.append(call.phase)
        return Continue()

    await world.scheduler("cost", note, phases=("select", "verify", "admit"))
    await world.scheduler("router", lambda call: Modify(tool="write"))
    await (await world.gate()).decide(Call("search", {}, TOOLS))
    assert asked == ["select", "verify", "admit"]


@pytest.mark.parametrize("who", ["a queue", "an operator", "a person"])
async def test_a_call_that_waits_long_says_so_now_and_then_until_it_is_decided(world, monkeypatch, who):
    """What was reserved for it is not given up meanwhile: the keeper of budgets hears of it."""
    monkeypatch.setattr("toolgate_orchestrator.decision.round.wait_reports.TELL_S", 0.01)
    goes_on, told, enough = asyncio.Event(), [], asyncio.Event()

    async def queue(call):
        yield Hold(seconds=60)
        await goes_on.wait()
        yield Continue(fence=1)

    async def person(asked, question):
        await goes_on.wait()
        return "allow"

    if who == "a queue":
        await world.scheduler("slots", queue, phases=LAST, streams=True)
    elif who == "a person":
        await world.scheduler("police", AskUser(prompt="May it?"))
    gate = await world.gate(ask=person)
    if who == "an operator":
        gate._client.on_pauses(StandingPauses(1, 0, (Pause("p", everyone=True),)))

    def note(event, data):
        if event == "tool:waits":
            told.append(data)
            if len(told) == 3:
                enough.set()

    monkeypatch.setattr(gate._recorder, "note", note)
    deciding = asyncio.ensure_future(gate.decide(Call("search", {}, TOOLS, Caller("s"), id="c")))
    await asyncio.wait_for(enough.wait(), 10)
    goes_on.set()
    gate._client.on_pauses(StandingPauses(2, 0, ()))
    decision = await deciding
    assert decision.allowed
    whose = {"session": "s", "root_session": "s", "agent": "", "tool": "search", "tool_call_id": "c"}
    assert told[0] == {**whose, "decision_id": decision.id}
    so_far = len(told)
    await asyncio.sleep(0.05)
    assert len(told) == so_far
