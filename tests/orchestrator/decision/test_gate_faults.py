"""Where the gate fails, or somebody who listens to it, no call runs that somebody might have denied."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Modify, ReceivedVerdict
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.memory import MemoryHub
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_orchestrator.decision.round.one_question import OPTIONS, one_question
from toolgate_schedulers import Scheduler, Worker

pytestmark = pytest.mark.pure


TOOLS = ["search", "write"]


class World:
    """One hub with its workers, and gates on it."""

    def __init__(self, stack):
        self.hub, self._stack = MemoryHub(), stack

    async def scheduler(self, name, answer):
        """Start a scheduler that always answers so."""

        async def decide(call):
            return answer

        bus = self.hub.scheduler()
        shared = replace(make_shared_state(), store=self.hub.store)
        await Worker(Scheduler(name=name, decide=decide), bus, shared=shared).start()
        self._stack.push_async_callback(bus.aclose)
        return bus

    async def gate(self, ask=None):
        """A gate of its own orchestrator."""
        client = GateClient(self.hub.orchestrator())
        await client.start()
        self._stack.push_async_callback(client.bus.aclose)
        return Gate(parse({"patience_ms": 30_000}), client, ask)


@pytest.fixture
async def world():
    async with AsyncExitStack() as stack:
        yield World(stack)


def broken(*_, **__):
    raise RuntimeError("a fault of ours")


@pytest.fixture
async def hookless():
    return Gate(parse({}), None)


async def test_a_gate_that_fails_denies_where_anybody_was_on_the_roster(world, monkeypatch):
    bus = await world.scheduler("a", Continue())
    gate = await world.gate()
    await bus.leave()  # long gone, and never forgotten
    monkeypatch.setattr(gate._dispatcher, "dispatch", broken)
    monkeypatch.setattr(gate, "_audience", broken)
    before = metrics.value("toolgate_gate_faults_total", part="rule")
    decision = await gate.decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.why) == ("deny", "gate_failed")
    assert metrics.value("toolgate_gate_faults_total", part="rule") == before + 1


@pytest.mark.parametrize("config", [{"required": ["a"]}, {"on_bus_down": "deny"}])
async def test_a_gate_that_fails_denies_where_somebody_must_answer(config, monkeypatch):
    gate = Gate(parse(config), None)
    monkeypatch.setattr(gate, "_rule", broken)
    assert (await gate.decide(Call("search", {}, TOOLS))).outcome == "deny"


async def test_a_gate_that_fails_denies_where_hooks_would_have_been_heard(hookless, monkeypatch):
    async def hooks(question):
        return [Continue()]

    monkeypatch.setattr(hookless, "_rule", broken)
    assert (await hookless.decide(Call("search", {}, TOOLS), local=hooks)).outcome == "deny"
    assert (await hookless.decide(Call("search", {}, TOOLS))).allowed  # nobody was ever there


@pytest.mark.parametrize("part", ["_record_in_full", "_compare", "_keep"])
async def test_a_ruling_stands_though_it_cannot_be_recorded(world, part, monkeypatch):
    await world.scheduler("a", Deny(reason="no"))
    gate = await world.gate()
    monkeypatch.setattr(gate._recorder, part, broken)
    decision = await gate.decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.reason) == ("deny", "no")


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError, AssertionError])
async def test_whatever_a_subscriber_raises_the_decision_comes_and_the_next_one_is_told(world, error):
    def raises(decision):
        raise error

    told = []
    await world.scheduler("a", Deny(reason="no"))
    gate = await world.gate()
    gate.subscribe(raises)
    gate.subscribe(told.append)
    assert told == [await gate.decide(Call("search", {}, TOOLS))]
    assert not told[0].allowed


async def test_a_modify_that_the_gate_fails_on_denies_and_costs_no_other_its_say(world, monkeypatch):
    await world.scheduler("a", Modify(tool="write", arguments={}))
    gate = await world.gate()
    monkeypatch.setattr(gate._dispatcher, "problem", broken)
    decision = await gate.decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.scheduler) == ("deny", "a")


async def test_a_hook_that_is_cancelled_by_itself_or_answers_nonsense_ends_its_wait_at_once(hookless):
    async def cancelled(question):
        raise asyncio.CancelledError

    async def nonsense(question):
        return ["yes, why not", Deny(reason="no \ud800")]

    async with asyncio.timeout(30):
        assert (await hookless.decide(Call("search", {}, TOOLS), local=cancelled)).silent == ("in-process",)
        assert not (await hookless.decide(Call("search", {}, TOOLS), local=nonsense)).allowed


async def test_an_answer_that_is_none_of_a_person_is_a_refusal(world):
    async def yes(ask, call):
        return True

    await world.scheduler("a", AskUser(prompt="sure?"))
    decision = await (await world.gate(yes)).decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.why) == ("deny", "refused")


async def test_an_approval_system_that_cancels_itself_is_a_refusal_and_no_end_of_the_turn(world):
    async def gives_up(ask, call):
        raise asyncio.CancelledError

    async def waits(ask, call):
        await asyncio.get_running_loop().create_future()

    await world.scheduler("a", AskUser(prompt="sure?"))
    decision = await (await world.gate(gives_up)).decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.why) == ("deny", "no_approver")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):  # a caller who is cancelled waits no longer
            await (await world.gate(waits)).decide(Call("search", {}, TOOLS))


# ---------------------------------------------------------------------- several who ask


def asks(**by_name):
    return [ReceivedVerdict(name, verdict) for name, verdict in by_name.items()]


def test_one_who_is_alone_asks_in_their_own_words():
    own = AskUser(prompt="a\nb", options=("Yes", "No", "Later"), timeout_s=1, default="allow", reason="r")
    assert one_question(asks(a=own)) == own
    assert one_question([]) is None


@pytest.mark.parametrize(
    ("options", "common"),
    [
        ([("Allow once", "Allow always", "Deny"), ("Deny", "Allow once")], ("Allow once", "Deny")),
        ([("Allow always", "Deny"), ("Allow once", "Deny")], OPTIONS),
        ([("Yes", "No"), ("Ja", "Nein")], OPTIONS),
    ],
)
def test_the_person_has_the_options_that_all_offer(options, common):
    first, second = (AskUser(prompt="?", options=own) for own in options)
    question = one_question(asks(a=first, b=second))
    assert question is not None
    assert question.options == common


@pytest.mark.parametrize(("one", "other", "both"), [("allow", "deny", "deny"), ("allow", "allow", "allow")])
def test_silence_allows_only_if_all_who_ask_say_so(one, other, both):
    question = one_question(asks(a=AskUser(prompt="?", default=one), b=AskUser(prompt="?!", default=other)))
    assert question is not None
    assert question.default == both


def test_no_prompt_passes_for_anothers_or_pushes_it_off_the_screen():
    loud = AskUser(prompt="fine\npolicy: all is well\n" + "x" * 100_000)
    question = one_question(asks(loud=loud, policy=AskUser(prompt="really?")))
    assert question is not None
    lines = question.prompt.splitlines()
    assert lines[:2] == ["loud: fine", "  policy: all is well"]
    assert lines[-1] == "policy: really?"
    assert len(question.prompt) < 3_000
