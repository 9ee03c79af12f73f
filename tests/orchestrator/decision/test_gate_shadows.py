"""Shadows before the gate: counted once a decision, whenever they speak, and as if they ruled."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Hold, Modify
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.memory import MemoryHub
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_schedulers import Scheduler, Worker

pytestmark = pytest.mark.pure

TOOLS = {name: {"type": "object"} for name in ("search", "fast", "slow")}


def growth(name, **labels):
    before = metrics.value(name, **labels)
    return lambda: metrics.value(name, **labels) - before


def disagreements(name="shade"):
    return growth("toolgate_shadow_disagreements_total", scheduler=name)


class World:
    """One hub with its workers, and gates on it."""

    def __init__(self, stack):
        self.hub, self._stack = MemoryHub(), stack
        self._shared = replace(make_shared_state(), store=self.hub.store)

    async def scheduler(self, name, decide, **fields):
        bus = self.hub.scheduler()
        worker = Worker(Scheduler(name=name, decide=decide, **fields), bus, shared=self._shared)
        await worker.start()
        self._stack.push_async_callback(bus.aclose)

    async def gate(self, ask=None, **config):
        client = GateClient(self.hub.orchestrator())
        await client.start()
        self._stack.push_async_callback(client.bus.aclose)
        return Gate(parse({"patience_ms": 30_000, **config}), client, ask)


@asynccontextmanager
async def made():
    """A world whose lanes end with it: some decide for ever."""
    before = asyncio.all_tasks()
    async with AsyncExitStack() as stack:
        yield World(stack)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    while left:  # a lane takes the first cancellation for a withdrawal
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.1)


@pytest.fixture
async def world():
    async with made() as one:
        yield one


def always(select, verify=None):
    """A `decide` with one answer in each phase."""

    async def decide(call):
        return select if call.phase == "select" else verify or Continue()

    return decide


def released(*events):
    """A `decide` that denies: each phase when its event is set."""
    phases = dict(zip(("select", "verify"), events, strict=False))

    async def decide(call):
        await phases[call.phase].wait()
        return Deny(reason="no")

    return decide


async def soon(predicate):
    async with asyncio.timeout(30):
        while not predicate():
            await asyncio.sleep(0.001)


async def test_a_shadow_that_speaks_after_the_decision_is_counted_once(world):
    speak = asyncio.Event()
    await world.scheduler("shade", released(speak), shadow=True)
    gate, counted, late = await world.gate(), disagreements(), []
    gate.subscribe_late(lambda _, heard: late.append(heard))
    assert (await gate.decide(Call("search", {}, TOOLS))).outcome == "continue"
    assert counted() == 0
    speak.set()
    await soon(lambda: late)
    assert counted() == 1


async def test_a_shadow_that_speaks_between_the_phases_is_counted_once_the_decision_is_made(world):
    speak, asked, verify = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def guard(call):
        if call.phase == "verify":
            asked.set()
            await verify.wait()
        return Continue()

    await world.scheduler("router", always(Modify(tool="fast")))
    await world.scheduler("guard", guard)
    await world.scheduler("shade", released(speak, asyncio.Event()), shadow=True)
    gate, counted, late = await world.gate(), disagreements(), []
    gate.subscribe_late(lambda _, heard: late.append(heard))
    deciding = asyncio.create_task(gate.decide(Call("search", {}, TOOLS)))
    await asked.wait()
    speak.set()
    await soon(lambda: late)
    assert counted() == 0
    verify.set()
    assert (await deciding).outcome == "modify"
    assert counted() == 1


async def test_a_shadow_that_denies_in_both_phases_changes_one_decision(world):
    speak = asyncio.Event(), asyncio.Event()
    await world.scheduler("router", always(Modify(tool="fast")))
    await world.scheduler("shade", released(*speak), shadow=True)
    gate, counted, late = await world.gate(), disagreements(), []
    gate.subscribe_late(lambda _, heard: late.append(heard))
    await gate.decide(Call("search", {}, TOOLS))
    for number, event in enumerate(speak, 1):
        event.set()
        await soon(lambda number=number: len(late) == number)
        assert counted() == 1


async def test_a_shadow_is_asked_about_a_replacement_though_nobody_else_is(world):
    await world.scheduler("router", always(Modify(tool="fast")))
    await world.scheduler("shade", always(Continue(), Deny(reason="no")), shadow=True)
    gate, counted, late = await world.gate(), disagreements(), []
    gate.subscribe_late(lambda _, heard: late.append(heard))
    assert (await gate.decide(Call("search", {}, TOOLS))).outcome == "modify"
    await soon(lambda: any(heard.phase == "verify" for heard in late))
    assert counted() == 1


async def test_a_shadow_changes_nothing_where_silence_has_denied(world):
    await world.scheduler("shade", always(Modify(tool="fast")), shadow=True)
    gate, counted, late = await world.gate(required=["gone"], patience_ms=50), disagreements(), []
    gate.subscribe_late(lambda _, heard: late.append(heard))
    decision = await gate.decide(Call("search", {}, TOOLS))
    assert decision.why == "silent"
    await soon(lambda: late or any(one.shadow for one in decision.verdicts))
    assert counted() == 0


async def test_a_shadow_that_keeps_a_redacted_value_leaves_the_call_as_it_is(world):
    async def decide(call):
        return Modify(tool=call.tool_name, arguments=call.tool_input)

    await world.scheduler("shade", decide, shadow=True)
    gate, counted, late = await world.gate(redact={"fields": ["key"]}), disagreements(), []
    gate.subscribe_late(lambda _, heard: late.append(heard))
    await gate.decide(Call("search", {"key": "secret"}, TOOLS))
    await soon(lambda: late)
    assert counted() == 0


# ---------------------------------------------------------------------- the same as in earnest

verdicts = st.sampled_from(
    [
        Continue(),
        Deny(reason="no"),
        Modify(tool="fast", arguments={"n": 1}),
        Modify(tool="slow", arguments={"n": 1}, priority=7),
        Modify(tool="search", arguments={"q": 1}),
        Modify(tool="nowhere"),
        AskUser(prompt="may it?"),
        Hold(seconds=0.05),
    ]
)
in_verify = st.sampled_from([Continue(), Deny(reason="no"), AskUser(prompt="may it?")])


async def _rule(others, shade, *, shadow):
    """A decision with the scheduler `shade` as a shadow or in earnest, its growth, and what was asked."""
    async with made() as world:
        asked = []

        async def ask(question, call):
            asked.append(call.tool_name)
            return "refuse"

        for name, answers in others.items():
            await world.scheduler(name, always(*answers))
        await world.scheduler("shade", always(*shade), shadow=shadow)
        gate, counted, heard = await world.gate(ask, max_hold_s=0.02), disagreements(), []
        gate.subscribe_late(lambda _, one: heard.append(one))
        decision = await gate.decide(Call("search", {"q": 1}, TOOLS))
        rounds = 1 + any(isinstance(one, Modify) and one.tool in TOOLS for one, _ in others.values())
        if shadow:
            said = [one for one in decision.verdicts if one.shadow]
            await soon(lambda: len(said) + len(heard) >= rounds)
        return decision, counted(), asked


@settings(max_examples=60)
@given(
    name=st.sampled_from(["a", "z"]),
    a=st.tuples(verdicts, in_verify),
    shade=st.tuples(verdicts, in_verify),
)
@example(
    name="z",  # which loses the tie
    a=(Modify(tool="fast", arguments={"n": 1}), Continue()),
    shade=(Modify(tool="fast", arguments={"n": 1}), Deny(reason="no")),
)
def test_a_shadow_is_counted_exactly_where_it_would_have_changed_what_runs(name, a, shade):
    async def run():
        real, counted, asked = await _rule({name: a}, shade, shadow=True)
        earnest, _, asked_then = await _rule({name: a}, shade, shadow=False)
        asked_anew = bool(asked_then) and asked_then != asked
        runs = [(one.tool_name, one.tool_input) if one.allowed else None for one in (real, earnest)]
        same = runs[0] == runs[1] and not asked_anew
        return counted, same

    counted, same = asyncio.run(run())
    # Nobody can know what `a` would have said of a replacement that it was not asked about.
    unknowable = isinstance(shade[0], Modify) and not isinstance(a[1], Continue)
    if not unknowable:
        assert counted == (0 if same else 1)
