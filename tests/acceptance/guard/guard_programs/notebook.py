"""Cells of a notebook: each has an event loop of its own, and all have one guard."""

import asyncio

from common import COUNT, call, denied, execute_later, guard, say


async def cell(numbers):
    """Many calls at once."""
    many = asyncio.Semaphore(32)

    async def one(number):
        async with many:
            await guard.run(call(number), execute_later, denied=denied)

    await asyncio.gather(*map(one, numbers))


asyncio.run(cell(range(0, COUNT, 2)))
asyncio.run(cell(range(1, COUNT, 2)))
say()
