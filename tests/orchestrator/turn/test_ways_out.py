"""Every way out of a turn, under every loop: reported once, every call answered, nothing left behind.

The ways are in `ways_out.py`. What must hold at the end is the same for all of them.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from amplifier_core import HookResult
from four_loops import LOOPS
from transcript_rules import breaks
from turn_world import BOUND_S, World
from ways_out import AT_THE_END, PROVIDER_ERRORS, UNTIL_THE_ANSWER, WAYS, Way

pytestmark = pytest.mark.pure
SAME_ENGINE = ("loop-basic", "loop-streaming")
"""Loops with the engine of `loop-events`: they are tried in the system stage."""
EACH_LOOP = [pytest.param(one, marks=pytest.mark.system if one in SAME_ENGINE else ()) for one in LOOPS]


def failing(_: dict[str, Any]) -> str:
    raise ValueError("no such file")


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("loop", EACH_LOOP)
async def test_every_way_out_is_reported_once_and_leaves_nothing_behind(
    loop: str, name: str, agent: Any, tool: Any, llm: Any, says: Any, wants: Any
) -> None:
    way = WAYS[name]
    tools = [tool("a"), tool("bad", failing)]
    async with agent(loop=loop, llm=llm(), config={"toolgate": {}}, tools=tools) as a:
        w = World(a, loop, a.session.coordinator.get("providers")["llm"], says, wants)
        closed = streams_at_the_end(w)
        before = asyncio.all_tasks()
        await way.run(w)
        answer = await outcome(w, way, loop_tells=loop == "loop-events" and name in PROVIDER_ERRORS)
        told_once(a, way, answer, loop)
        assert w.broken is None or w.broken.is_set()
        assert closed == [True]
        await nothing_left(before)
        each_call_answered(await a.messages())
        assert breaks(await a.messages()) == []
        told_of_the_cancellation(a, way)
        assert a.session.coordinator.cancellation.running_tools == set()
        await one_more_turn(w)


async def outcome(w: World, way: Way, *, loop_tells: bool) -> str:
    """The answer, and none where the turn raises what it has to raise."""
    done, _ = await asyncio.wait({w.turn}, timeout=BOUND_S)
    assert done, "the turn did not end"
    if way.raises is not None and not loop_tells:
        with pytest.raises(way.raises):
            w.turn.result()
        return ""
    answer: str = w.turn.result()
    assert bool(answer) is (way.answered or loop_tells)
    return answer


def told_once(a: Any, way: Way, answer: str, loop: str) -> None:
    """Each end is reported once, in the documented order, with what came of the turn."""
    answered = way.answered or bool(answer)
    ends = ["prompt:complete"] * answered + ["orchestrator:complete", "execution:end"]
    assert a.names("prompt:complete", "orchestrator:complete", "execution:end") == ends
    (end,), (complete,) = a.told("execution:end"), a.told("orchestrator:complete")
    status = "error" if way.execution == "error" and loop == "loop-streaming" else way.complete
    assert (end["status"], complete["status"]) == (way.execution, status)
    assert complete["orchestrator"] == loop
    if way.raises is None:
        assert end["response"] == (answer if way.answered else "")
    if answer:
        assert a.told("prompt:complete")[0]["response"] == answer
    assert a.names("execution:start") == ["execution:start"]


def told_of_the_cancellation(a: Any, way: Way) -> None:
    """Hooks hear of a cancellation before the turn's end is reported, and of none that was not."""
    heard = [event for event, _ in a.events if event in ("cancel:requested", "orchestrator:complete")]
    assert heard == ["cancel:requested"] * (way.execution == "cancelled") + ["orchestrator:complete"]


def streams_at_the_end(w: World) -> list[bool]:
    """At execution:end: whether each stream was read to its end or closed. (loop-basic reads none.)"""
    closed: list[bool] = []

    def look(_: dict[str, Any]) -> HookResult:
        closed.append(w.llm.closed == (0 if w.loop == "loop-basic" else len(w.llm.requests)))
        return HookResult()

    w.a.on("execution:end", look)
    return closed


async def nothing_left(before: set[asyncio.Task[Any]]) -> None:
    """No task runs on; a hook that was abandoned ends as soon as the kernel has told it."""
    left = asyncio.all_tasks() - before
    if left:
        _, left = await asyncio.wait(left, timeout=BOUND_S / 4)
    assert left == set()


def each_call_answered(messages: Sequence[Any]) -> None:
    """Behind each message with calls there is one result for each, and no other result anywhere."""
    waiting: list[str] = []
    for message in messages:
        role, calls = message["role"], message.get("tool_calls") or []
        if role == "tool":
            assert message["tool_call_id"] in waiting, "a result without its call"
            waiting.remove(message["tool_call_id"])
            continue
        assert waiting == [], f"{role} stands between a call and its result"
        waiting = [call["id"] for call in calls]
        blocks = message["content"] if isinstance(message["content"], list) else []
        assert [block["id"] for block in blocks if block["type"] == "tool_call"] in ([], waiting)
    assert waiting == []


async def one_more_turn(w: World) -> None:
    """The session goes on: the same parts, the way's own obstacles taken away."""
    w.heal()
    w.a.events.clear()
    w.llm_answers(w.calls("a"), [w.says("again")])
    assert await asyncio.wait_for(w.a.ask("go on"), BOUND_S) == "again"
    assert [data["status"] for data in w.a.told("execution:end")] == ["completed"]
    assert [data["status"] for data in w.a.told("orchestrator:complete")] == ["success"]
    each_call_answered(await w.a.messages())
    for request in w.llm.requests:
        each_call_answered([message.model_dump() for message in request.messages])


class Raising:
    """A registry that, unlike the kernel's, lets a hook's exception through."""

    def __init__(self, event: str) -> None:
        self.event = event
        self.emitted: list[str] = []

    async def emit(self, event: str, data: dict[str, Any]) -> HookResult:
        self.emitted.append(event)
        if event == self.event:
            raise ValueError("the hook is broken")
        return HookResult()


@pytest.mark.parametrize("event", [*UNTIL_THE_ANSWER, *AT_THE_END])
@pytest.mark.parametrize("loop", EACH_LOOP)
async def test_a_registry_that_raises_ends_the_turn_once_and_leaves_no_call_open(
    loop: str, event: str, agent: Any, tool: Any, calls: Any
) -> None:
    tools, hooks = [tool("a"), tool("bad", failing)], Raising(event)
    turns = [calls("a", "bad", text="so"), {"text": "done"}]
    async with agent(turns, loop=loop, config={"toolgate": {}}, tools=tools) as a:
        get, before = a.session.coordinator.get, asyncio.all_tasks()
        parts = (get("context"), get("providers"), get("tools"))
        turn = asyncio.ensure_future(get("orchestrator").execute("hello", *parts, hooks))
        done, _ = await asyncio.wait({turn}, timeout=BOUND_S)
        assert done
        assert turn.exception() is None or "the hook is broken" in str(turn.exception())
        assert event in hooks.emitted
        assert [hooks.emitted.count(end) for end in ("orchestrator:complete", "execution:end")] == [1, 1]
        await nothing_left(before)
        each_call_answered(await a.messages())
