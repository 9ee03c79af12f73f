"""A wait ends with its session, and what was answered before that is still taken. Pure."""

import asyncio

import pytest
from toolgate_orchestrator.turn.cancellation import CancellationWatch

pytestmark = pytest.mark.pure


async def test_an_answer_that_comes_in_the_step_of_the_cancellation_is_taken() -> None:
    over, watches = list[bool](), list[CancellationWatch]()
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def wait() -> str | None:
        with CancellationWatch(lambda: bool(over)) as watch:
            watches.append(watch)
            return await answer
        return None

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    over.append(True)
    answer.set_result("denied")
    watches[0].look()  # as the clock may do in this very step
    assert await waiting == "denied"


async def test_a_wait_that_nobody_answers_ends_with_its_session() -> None:
    over = list[bool]()
    asyncio.get_running_loop().call_soon(over.append, True)
    with CancellationWatch(lambda: bool(over)) as watch:
        await asyncio.Event().wait()
    assert watch.fired
