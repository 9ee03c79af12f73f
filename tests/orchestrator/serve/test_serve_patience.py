"""How long a request is waited for."""

import asyncio

import pytest
from toolgate_orchestrator.commands.serve.patience import wait_at_most


async def test_what_takes_too_long_is_given_up_and_what_is_there_is_given():
    async def ready():
        return "there"

    assert await wait_at_most(ready(), 0.01) == "there"
    with pytest.raises(TimeoutError):  # and not cancelled by what is left of the first
        await wait_at_most(asyncio.Event().wait(), 0.02)


async def test_who_is_cancelled_while_it_waits_is_not_taken_to_be_late():
    async def wait(seconds):
        await wait_at_most(asyncio.Event().wait(), seconds)

    waiting = asyncio.create_task(wait(20))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
