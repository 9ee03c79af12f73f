"""Requests to the LLM are ruled on as calls are: by who names them, under every loop, and by nobody else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from amplifier_core import HookResult
from toolgate_bus.facts import record
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Hold, Modify
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.transport.memory import MemoryHub
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_orchestrator.loops.basic import LoopBasic
from toolgate_orchestrator.loops.events import LoopEvents
from toolgate_orchestrator.loops.reactive import LoopReactive
from toolgate_orchestrator.loops.streaming import LoopStreaming
from toolgate_schedulers import Scheduler, Worker

pytestmark = pytest.mark.pure

CLASSES = {loop.name: loop for loop in (LoopBasic, LoopStreaming, LoopEvents, LoopReactive)}
LOOPS = tuple(CLASSES)
ASKED = {"agent": "clerk", "patience_ms": 30_000}
LLM_TOO = ("*", "llm:*")


class Bus:
    """A bus in memory, schedulers on it, and sessions whose loop asks them."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.hub, self._stack = MemoryHub(), stack
        self.hub.is_read = True
        self.seen: list[Any] = []

    async def scheduler(self, *answers: Any, tools: tuple[str, ...] = LLM_TOO, name: str = "judge") -> Any:
        """One that gives these answers to requests, one after the other, the last for ever."""
        left = list(answers)

        async def decide(call: Any) -> Any:
            self.seen.append(call)
            if not call.tool_name.startswith("llm:"):
                return Continue()
            answer = left.pop(0) if len(left) > 1 else left[0]
            return answer(call) if callable(answer) else answer

        bus = self.hub.scheduler()
        shared = replace(make_shared_state(), store=self.hub.store)
        worker = Worker(Scheduler(name=name, decide=decide, tools=tools), bus, shared=shared)
        await worker.start()
        self._stack.push_async_callback(bus.aclose)
        return worker

    async def listens(self, a: Any, loop: str, *, required: tuple[str, ...] = (), **config: Any) -> Gate:
        """This session's turns are those of a loop with a gate on this bus."""
        client = GateClient(self.hub.orchestrator())
        await client.start()
        self._stack.push_async_callback(client.bus.aclose)
        asked = {**ASKED, "required": required}
        gate = Gate(parse(asked), client)
        coordinator = a.session.coordinator
        await coordinator.unmount("orchestrator")
        await coordinator.mount("orchestrator", CLASSES[loop]({"toolgate": asked, **config}, gate))
        return gate

    @property
    def requests(self) -> list[Any]:
        """The questions about requests to an LLM."""
        return [call for call in self.seen if call.tool_name == "llm:request"]

    def facts(self, *events: str) -> list[dict[str, Any]]:
        told = [record.read_facts(packing.items(packing.frame([raw]))[0])[0] for raw in self.hub.facts]
        return [fact for fact in told if fact["event"] in events]


@pytest.fixture
async def bus() -> AsyncIterator[Bus]:
    async with AsyncExitStack() as stack:
        yield Bus(stack)


class Other:
    """A second provider to mount beside the first."""

    def __init__(self, llm: Any, says: Any, text: str = "from the other") -> None:
        self.llm = llm([says(text)], [says(text)])
        self.llm.name, self.llm.model = "other", "other-1"

    async def mount(self, a: Any) -> Any:
        await a.session.coordinator.mount("providers", self.llm, name="other")
        return self.llm


@pytest.mark.parametrize("loop", LOOPS)
async def test_who_does_not_name_requests_is_not_asked_about_them(
    agent: Any, llm: Any, says: Any, bus: Bus, loop: str
) -> None:
    await bus.scheduler(Deny(reason="no"), tools=("*",))
    async with agent(llm=llm([says("fine")])) as a:
        await bus.listens(a, loop, required=("judge",))
        assert await a.ask() == "fine"
    assert bus.requests == []
    assert not any("decision_id" in fact for fact in bus.facts("usage"))


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_request_is_asked_about_with_what_it_costs_and_without_a_word_of_it(
    agent: Any, llm: Any, says: Any, bus: Bus, loop: str
) -> None:
    await bus.scheduler(Continue())
    async with agent(llm=llm([says("fine")])) as a:
        await bus.listens(a, loop)
        assert await a.ask("a word that is nobody's business") == "fine"
    (call,) = bus.requests
    assert call.tool_input["provider"] == "llm"
    assert call.tool_input["model"] == "llm-1"
    assert call.tool_input["purpose"] == "answer"
    assert call.tool_input["input_tokens"] > 0
    assert set(call.available_tools) >= {"llm:request", "llm/llm-1"}
    assert "business" not in call.model_dump_json()
    (usage,), (decision,) = bus.facts("usage"), bus.facts("decision")
    assert usage["decision_id"] == decision["id"] == call.id


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_denied_request_is_not_sent_and_the_turn_says_why(
    agent: Any, llm: Any, says: Any, bus: Bus, loop: str
) -> None:
    await bus.scheduler(Deny(reason="Over budget: nothing is left."))
    model = llm([says("fine")])
    async with agent(llm=model) as a:
        await bus.listens(a, loop)
        assert "Over budget: nothing is left." in await a.ask()
        assert a.names("execution:end") == ["execution:end"]
        assert a.told("orchestrator:complete")[-1]["status"] == "incomplete"
        (violation,) = a.told("policy:violation")
        assert violation["tool_name"] == "llm:request"
        assert [one["role"] for one in await a.messages()] == ["user", "assistant"]
    assert model.requests == []


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_denial_after_calls_leaves_each_its_result_and_ends_the_turn(
    agent: Any, llm: Any, says: Any, wants: Any, tool: Any, bus: Bus, loop: str
) -> None:
    await bus.scheduler(Continue(), Deny(reason="enough"))
    model = llm([wants("c1", "add", {"x": 1})], [says("fine")])
    async with agent(llm=model, tools=[tool("add")]) as a:
        await bus.listens(a, loop)
        assert "enough" in await a.ask()
        kinds = [one["role"] for one in await a.messages()]
    assert kinds == ["user", "assistant", "tool", "assistant"]
    assert len(model.requests) == 1


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_wrap_up_is_asked_about_too_and_a_denied_one_leaves_what_was_said(
    agent: Any, llm: Any, says: Any, wants: Any, tool: Any, bus: Bus, loop: str
) -> None:
    await bus.scheduler(lambda call: Deny(reason="no more") if call.iteration == 2 else Continue())
    model = llm([says("I shall add. "), wants("c1", "add", {"x": 1})], [says("wrapped up")])
    async with agent(llm=model, tools=[tool("add")]) as a:
        await bus.listens(a, loop, max_iterations=1)
        answer = await a.ask()
    assert [call.tool_input["purpose"] for call in bus.requests] == ["answer", "wrap_up"]
    assert "no more" in answer
    assert len(model.requests) == 1


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_request_goes_to_the_provider_and_model_that_a_scheduler_names(
    agent: Any, llm: Any, says: Any, bus: Bus, loop: str
) -> None:
    to = {"provider": "other", "model": "other-2", "max_output_tokens": 100}
    await bus.scheduler(Modify(tool="llm:request", arguments=to))
    own = llm([says("from its own")])
    async with agent(llm=own) as a:
        other = await Other(llm, says).mount(a)
        await bus.listens(a, loop)
        assert await a.ask() == "from the other"
    assert own.requests == []
    (request,), (options,) = other.requests, other.options
    assert (request.model, request.max_output_tokens, options["model"]) == ("other-2", 100, "other-2")
    (usage,) = bus.facts("usage")
    assert (usage["provider"], usage["model"]) == ("other", "other-2")


async def test_another_provider_without_a_model_answers_with_its_own(
    agent: Any, llm: Any, says: Any, bus: Bus
) -> None:
    await bus.scheduler(Modify(tool="llm:request", arguments={"provider": "other"}))
    async with agent(llm=llm([says("from its own")])) as a:
        other = await Other(llm, says).mount(a)
        await bus.listens(a, "loop-streaming")
        assert await a.ask() == "from the other"
    assert other.requests[0].model is None
    assert "model" not in other.options[0]


async def test_a_replacement_is_judged_by_the_others_with_its_length_and_purpose(
    agent: Any, llm: Any, says: Any, bus: Bus
) -> None:
    await bus.scheduler(Modify(tool="llm:request", arguments={"model": "dear", "input_tokens": 1}))
    judged: list[Any] = []

    def judge(call: Any) -> Any:
        judged.append(call)
        return Deny(reason="too dear") if call.tool_input["model"] == "dear" else Continue()

    await bus.scheduler(judge, name="second")
    model = llm([says("fine")])
    async with agent(llm=model) as a:
        await bus.listens(a, "loop-basic")
        assert "too dear" in await a.ask()
    asked, replaced = (call for call in judged)
    assert replaced.phase == "verify"
    assert replaced.tool_input["input_tokens"] == asked.tool_input["input_tokens"] > 1
    assert replaced.tool_input["purpose"] == "answer"
    assert model.requests == []


@pytest.mark.parametrize(
    "to",
    [
        {"provider": "nobody"},
        {"provider": "llm", "max_output_tokens": 0},
        {"provider": "llm", "prompt": "say something else"},
        {"provider": "llm", "model": 7},
    ],
)
async def test_a_replacement_that_makes_no_sense_is_set_aside(
    agent: Any, llm: Any, says: Any, bus: Bus, to: dict[str, Any]
) -> None:
    await bus.scheduler(Modify(tool="llm:request", arguments=to))
    async with agent(llm=llm([says("fine")])) as a:
        await bus.listens(a, "loop-streaming")
        assert await a.ask() == "fine"


@pytest.mark.parametrize("tool_name", ["llm/llm-1", "add"])
async def test_a_request_cannot_become_a_tool(
    agent: Any, llm: Any, says: Any, tool: Any, bus: Bus, tool_name: str
) -> None:
    await bus.scheduler(Modify(tool=tool_name, arguments={}))
    async with agent(llm=llm([says("fine")]), tools=[tool("add")]) as a:
        await bus.listens(a, "loop-streaming")
        assert await a.ask() == "fine"
        assert a.told("tool:pre") == []


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_tool_cannot_be_called_by_a_name_of_requests(
    agent: Any, llm: Any, says: Any, wants: Any, tool: Any, bus: Bus, loop: str
) -> None:
    model = llm([wants("c1", "llm:tool", {})], [says("fine")])
    async with agent(llm=model, tools=[tool("llm:tool")]) as a:
        await bus.listens(a, loop)
        assert await a.ask() == "fine"
        assert a.told("tool:pre") == []
    assert "llm:" in str(model.requests[1].messages)


async def test_a_required_scheduler_that_rules_on_requests_is_missed_when_it_is_gone(
    agent: Any, llm: Any, says: Any, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ASKED, "patience_ms", 3000)
    worker = await bus.scheduler(Continue())
    model = llm([says("one")], [says("two")])
    async with agent(llm=model) as a:
        await bus.listens(a, "loop-events", required=("judge",))
        assert await a.ask() == "one"
        await worker.drain()
        assert "judge" in await a.ask()
    assert len(model.requests) == 1


async def test_a_required_scheduler_that_the_plan_names_for_requests_is_missed_from_the_start(
    agent: Any, llm: Any, says: Any, bus: Bus
) -> None:
    model = llm([says("one")])
    async with agent(llm=model) as a:
        gate = await bus.listens(a, "loop-events")
        await gate.aclose()
    narrowed = {"required": ("judge",), "schedulers": {"judge": {"tools": ("*", "llm:*")}}}
    for config, wanted in (({"required": ("judge",)}, False), (narrowed, True)):
        client = GateClient(bus.hub.orchestrator())
        await client.start()
        gate = Gate(parse({**ASKED, "patience_ms": 50, **config}), client)
        assert gate.wanted("llm:request", is_request=True) is wanted
        assert gate.wanted("add") is True
        await client.bus.aclose()
        assert Gate(parse({**ASKED, **config}), None).wanted("llm:request", is_request=True) is wanted


async def test_a_person_is_asked_about_a_request(agent: Any, llm: Any, says: Any, bus: Bus) -> None:
    class Says:
        asked: ClassVar[list[str]] = []

        async def request_approval(self, prompt: str, options: Any, timeout: float, default: str) -> str:
            self.asked.append(prompt)
            return "Deny"

    await bus.scheduler(AskUser(prompt="May it think?"))
    model = llm([says("fine")])
    async with agent(llm=model, approvals=Says()) as a:
        await bus.listens(a, "loop-streaming")
        assert "The language model was not asked" in await a.ask()
    assert "May it think?" in Says.asked[0]
    assert model.requests == []


async def test_a_request_that_is_held_waits_and_hooks_hear_of_it(
    agent: Any, llm: Any, says: Any, bus: Bus
) -> None:
    answered: list[str] = []

    async def decide(call: Any) -> Any:
        yield Hold(seconds=30, reason="one at a time")
        answered.append(call.id)
        yield Continue()

    side = bus.hub.scheduler()
    judge = Scheduler(name="judge", decide=decide, tools=("llm:*",), streams=True)
    await Worker(judge, side, shared=replace(make_shared_state(), store=bus.hub.store)).start()
    async with agent(llm=llm([says("fine")])) as a:
        held: list[Any] = []

        async def note(event: str, data: dict[str, Any]) -> HookResult:
            held.append(data)
            return HookResult()

        a.hooks.register("tool:held", note)
        await bus.listens(a, "loop-streaming")
        assert await a.ask() == "fine"
    assert answered
    assert held[0]["tool_name"] == "llm:request"
    await side.aclose()


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_provider_that_fails_says_so_of_the_decision(
    agent: Any, llm: Any, bus: Bus, loop: str
) -> None:
    await bus.scheduler(Continue())
    async with agent(llm=llm([RuntimeError("down")])) as a:
        await bus.listens(a, loop)
        with suppress(RuntimeError):  # some loops raise it
            await a.ask()
    (error,) = bus.facts("provider:error")
    assert error["decision_id"] == bus.requests[0].id


@pytest.mark.parametrize("loop", ["loop-streaming", "loop-reactive"])
@pytest.mark.parametrize("order", ["request_graceful", "request_immediate"])
async def test_a_stream_that_is_cut_short_tells_what_it_will_have_cost(
    agent: Any, llm: Any, says: Any, bus: Bus, loop: str, order: str
) -> None:
    await bus.scheduler(Continue())
    going, never = asyncio.Event(), asyncio.Event()

    def tell(event: dict[str, Any]) -> HookResult:
        going.set()
        return HookResult()

    async with agent(llm=llm([says("as far as this"), never])) as a:
        a.on("content_block:delta", tell)
        await bus.listens(a, loop)
        turn = asyncio.ensure_future(a.ask())
        await asyncio.wait_for(going.wait(), 10)
        getattr(a.session.coordinator.cancellation, order)()
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(turn, 10)
    (usage,) = bus.facts("usage")
    assert usage["decision_id"] == bus.requests[0].id
    assert usage["partial"] is True
    assert usage["input_tokens"] == bus.requests[0].tool_input["input_tokens"]
    assert usage["output_tokens"] == len("as far as this") // 4
    assert bus.facts("provider:error") == []


async def test_a_turn_that_is_cancelled_while_it_is_ruled_on_asks_no_llm(
    agent: Any, llm: Any, says: Any, bus: Bus
) -> None:
    asked = asyncio.Event()

    async def never(call: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    side = bus.hub.scheduler()
    judge = Scheduler(name="judge", decide=never, tools=("llm:*",))
    worker = Worker(judge, side, shared=replace(make_shared_state(), store=bus.hub.store))
    await worker.start()
    model = llm([says("fine")])
    async with agent(llm=model) as a:
        await bus.listens(a, "loop-events")
        turn = asyncio.ensure_future(a.ask())
        await asyncio.wait_for(asked.wait(), 10)
        a.session.coordinator.cancellation.request_graceful()
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(turn, 10)
        assert a.told("execution:end")[-1]["status"] == "cancelled"
    assert model.requests == []
    (decision,) = bus.facts("decision")
    assert decision["outcome"] == "cancelled"
    await side.aclose()
