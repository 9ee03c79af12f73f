"""What is written to a ledger again: what it lacks, and of the rest nothing is touched."""

import random
from collections.abc import Sequence
from itertools import product

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_bus.ledger.money.ledger import Account, Offer, Step
from toolgate_bus.ledger.money.recovery import LedgerRecovery
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.ledger.money.scripts import EPOCH, GIVING, RESTORING, commands_again
from toolgate_bus.ledger.money.words import Charge, ReservationEnd, Restoration
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.packing import pack
from toolgate_bus.transport.redis.client.connection import RedisCommands

FLEET = Account("all/fleet", 100)
OWNERS = ("o", "p")
DECISIONS = ("a", "b")
HELD = pack([0, "t", "10", "o", [f"{FLEET.key}:0", "100", 0]])
Change = Restoration | Charge | ReservationEnd


def ends(decision: str, owner: str) -> list[Change]:
    steps = [Step(what, decision, 10, owner) for what in ("settle", "release")]
    return [ReservationEnd(step, HELD) for step in (*steps, decision)]


ALL: list[Change] = [
    *(
        Restoration(name, phase, Offer("t", 10), (FLEET,), owner)
        for name, phase, owner in product(DECISIONS, (0, 1), OWNERS)
    ),
    *(one for name, owner in product(DECISIONS, OWNERS) for one in ends(name, owner)),
    *(Charge(event, 5, (FLEET,)) for event in DECISIONS),
]


class Book:
    """A ledger on a server, as it stands there."""

    def __init__(self, commands: RedisCommands, namespace: str) -> None:
        self.commands, self.ledger = commands, RedisLedger(commands, namespace)
        self.prefix = Keys(namespace).store_key("budget")
        self.recovery = LedgerRecovery(commands, self.prefix, "", "w")

    async def state(self) -> list[object]:
        """Every key but the epoch's, with when it expires."""
        keys = sorted(await self.commands.execute("KEYS", f"{self.prefix}:*"))
        keys.remove(f"{self.prefix}:epoch".encode())
        asks = [(word, key) for key in keys for word in ("DUMP", "PEXPIRETIME")]
        return [*keys, *await self.commands.pipeline(asks)]

    async def do_anything(self, chance: random.Random) -> None:
        """One change of the ledger, by anybody."""
        name, owner = chance.choice(DECISIONS), chance.choice(OWNERS)
        match chance.choice(("reserve", "settle", "release", "orphan", "charge", "deny")):
            case "reserve":
                await self.ledger.reserve(name, chance.randrange(2), [Offer("t", 10)], [FLEET], owner)
            case "deny":
                await self.ledger.reserve(name, chance.randrange(2), [Offer("t", 1000)], [FLEET], owner)
            case "orphan":
                await self.ledger.orphan(name)
            case "charge":
                await self.ledger.charge(name, 5, [FLEET])
            case what:
                await self.ledger.take([Step(what, name, 10, owner)])

    async def find_lacking(self, changes: Sequence[Change]) -> list[Change]:
        """Those of these that it says it lacks."""
        found = await self.recovery._find_lacking(changes)
        assert found is not None
        return found


@pytest.fixture
async def book(commands: RedisCommands, namespace: str) -> Book:
    made = Book(commands, namespace)
    await commands.execute("HSET", f"{made.prefix}:epoch", "since", 1)
    for script in (EPOCH, GIVING, RESTORING):
        await script.load(commands)
    return made


@pytest.mark.parametrize("seed", range(40))
async def test_what_a_ledger_has_changes_nothing_when_it_is_made_again(book: Book, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(12):
        await book.do_anything(chance)
        before, lacking = await book.state(), await book.find_lacking(ALL)
        for change in (one for one in ALL if one not in lacking):
            replies = await book.commands.pipeline(list(commands_again(book.prefix, change, "")))
            assert [one for one in replies if isinstance(one, Exception)] == []
            assert await book.state() == before, change


async def test_an_empty_ledger_lacks_all_and_one_that_has_them_none(book: Book) -> None:
    reserved, settled = ALL[0], ReservationEnd(Step("settle", "b", 10, "o"), HELD)
    asked = [reserved, settled, ALL[-1]]
    assert await book.find_lacking(asked) == asked
    await book.ledger.reserve("a", 0, [Offer("t", 10)], [FLEET], "o")
    await book.ledger.reserve("b", 0, [Offer("t", 10)], [FLEET], "o")
    assert await book.find_lacking(asked) == asked[1:]
    await book.ledger.settle("b", 10)
    await book.ledger.charge("b", 5, [FLEET])
    assert await book.find_lacking(asked) == []


async def test_what_somebody_wrote_over_is_lacking(book: Book) -> None:
    for key in ("r:a", "u:b"):
        await book.commands.execute("SET", f"{book.prefix}:{key}", "nothing of ours")
    assert await book.find_lacking([ALL[0]]) == [ALL[0]]


async def test_another_ledger_is_asked_nothing(book: Book) -> None:
    book.recovery = LedgerRecovery(book.commands, book.prefix, "another", "w")
    assert await book.recovery._find_lacking(ALL) is None
    assert await book.recovery.write_again(ALL, 1) == 0
    assert await book.ledger.open() == []


async def test_a_server_that_may_not_be_asked_says_so(book: Book) -> None:
    await book.commands.execute("SET", f"{book.prefix}:epoch", "nothing of ours")
    with pytest.raises(ConfigError):
        await book.recovery.write_again(ALL, 1)
