"""What a session holds in memory: little before its first turn, and nothing twice while the LLM thinks."""

import asyncio
import gc
import tracemalloc
import weakref
from typing import Any

import pytest
from amplifier_core import AmplifierSession
from four_loops import LOOPS

pytestmark = pytest.mark.system

SESSIONS = 50
MAX_KIB = 21
"""Of a session that is set up and asks on a bus, all told. It is 19, and 23 where each has a copy of its
own of what all are given, such as the models that may judge a goal."""


class Kept(dict[str, Any]):
    """A message that tells whether somebody still holds it."""


def mount_plan(url: str, namespace: str) -> dict[str, Any]:
    toolgate = {"redis": url, "namespace": namespace, "agent": "many"}
    return {
        "session": {
            "orchestrator": {"module": "loop-events", "config": {"toolgate": toolgate}},
            "context": "context-simple",
        },
        "providers": [{"module": "provider-scripted"}],
        "tools": [{"module": "tool-calculator"}],
    }


async def test_a_session_that_is_set_up_takes_a_few_pages_of_memory(server_url: str, namespace: str) -> None:
    sessions: list[AmplifierSession] = []

    async def add(count: int) -> None:
        for _ in range(count):
            session = AmplifierSession(mount_plan(server_url, namespace))
            await session.initialize()
            sessions.append(session)

    async def held_by(count: int) -> float:
        await add(count)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / 1024

    await add(2)  # what they load is no other's
    gc.collect()
    tracemalloc.start()
    try:
        first = await held_by(SESSIONS)  # and what they find once for all, such as entry points
        held = (await held_by(SESSIONS) - first) / SESSIONS
    finally:
        tracemalloc.stop()
        for session in sessions:
            await session.cleanup()
    assert 0 < held < MAX_KIB, f"{held:.1f} KiB a session"


@pytest.mark.parametrize("loop", LOOPS)
async def test_while_the_llm_thinks_nobody_keeps_what_its_request_was_made_from(
    agent: Any, llm: Any, says: Any, loop: str
) -> None:
    made: list[weakref.ref[Kept]] = []
    held: list[int] = []

    class Watched(llm):  # type: ignore[misc]
        async def complete(self, request: Any, **options: Any) -> Any:
            gc.collect()
            held.append(sum(each() is not None for each in made))
            return await super().complete(request, **options)

    async with agent(loop=loop, llm=Watched([says("ok")], whole=True)) as a:
        context = a.session.coordinator.get("context")
        give = context.get_messages_for_request

        async def watch(**asked: Any) -> list[Kept]:
            messages = [Kept(message) for message in await give(**asked)]
            made.extend(map(weakref.ref, messages))
            return messages

        context.get_messages_for_request = watch
        assert await asyncio.wait_for(a.ask(), 10) == "ok"
    assert made
    assert held == [0]
