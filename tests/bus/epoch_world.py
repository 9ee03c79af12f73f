"""A ledger that several replicas share, in memory and on a server, and that may be emptied or put back."""

import copy

from toolgate_bus.ledger.money.ledger import Account, Offer, Step
from toolgate_bus.ledger.money.memory import MemoryLedger
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.ledger.money.rules import LedgerRules

FLEET = Account("daily/fleet", 1000)


class MemoryWorld:
    """A book that several replicas share, and that may be replaced."""

    def __init__(self):
        self.ledgers = []

    async def join(self):
        """One more replica, which watches."""
        ledger = MemoryLedger(self.ledgers[0].book) if self.ledgers else MemoryLedger()
        self.ledgers.append(ledger)
        await ledger.watch()
        return ledger

    def _put(self, book):
        for one in self.ledgers:
            one.book = book

    async def empty(self):
        self._put(LedgerRules())

    async def copy(self):
        return copy.deepcopy(self.ledgers[0].book)

    async def put_back(self, book):
        self._put(copy.deepcopy(book))


class ServerWorld:
    """A real server."""

    def __init__(self, url, commands):
        self.url, self.commands = url, commands

    async def join(self):
        ledger = RedisLedger(self.commands, "default")
        await ledger.watch()
        return ledger

    async def empty(self):
        await self.commands.execute("FLUSHALL")

    async def copy(self):
        keys = await self.commands.execute("KEYS", "*")
        return [(key, await self.commands.execute("DUMP", key)) for key in keys]

    async def put_back(self, copied):
        await self.empty()
        for key, dumped in copied:
            await self.commands.execute("RESTORE", key, 0, dumped)


async def spend(ledger, decision, amount=10, accounts=(FLEET,)):
    """Reserve, and settle; what came of the first."""
    answer = await ledger.reserve(decision, 0, [Offer("tool", amount)], list(accounts), "o")
    if answer.status == "reserved":
        await ledger.take([Step("settle", decision, amount, "o")])
    return answer.status


async def spent(ledger):
    return sum(one.spent for one in await ledger.balances())
