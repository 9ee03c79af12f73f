"""The world of a gate's tests, for its rulings on results."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from gate_world import World


@pytest.fixture
async def world():
    before = asyncio.all_tasks()
    async with AsyncExitStack() as stack:
        yield World(stack)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.1)
