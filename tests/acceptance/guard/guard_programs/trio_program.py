"""A program of trio's."""

import trio
from common import COUNT, call, denied, execute_later, guard, say


async def main():
    many = trio.CapacityLimiter(32)

    async def one(number):
        async with many:
            await guard.run(call(number), execute_later, denied=denied)

    async with trio.open_nursery() as nursery:
        for number in range(COUNT):
            nursery.start_soon(one, number)


trio.run(main)
say()
