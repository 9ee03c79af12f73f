"""The ledger's journal is read in pages, each entry once, and what was trimmed unread is counted."""

import random
from collections import Counter

import pytest
from toolgate_bus.ledger.money.journal import JournalCursor, is_entry, journal_key, read_entry, read_journal
from toolgate_bus.ledger.money.ledger import Account, FallbackAccounts, Offer, Step
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.protocol.packing import pack
from toolgate_bus.transport.redis.client.connection import RedisCommands

ENTRY = {"kind": "settle", "id": "d1", "amount": 40, "accounts": [["team/label:team/red", 3]], "at": 1.5}


async def add(commands, namespace, *entries):
    key = journal_key(namespace, "budget")
    await commands.pipeline([("XADD", key, "*", "entry", pack(one)) for one in entries])


KINDS = {"settle", "charge", "orphan", "release", "reset", "part"}


def amounts(page):
    return [one["amount"] for one in page.entries]


async def test_each_entry_is_read_once_and_what_was_trimmed_is_counted(server_url, namespace):
    commands = RedisCommands(server_url, "test-journal")
    try:
        await add(commands, namespace, *({**ENTRY, "amount": number} for number in range(5)))
        await commands.execute("XTRIM", journal_key(namespace, "budget"), "MAXLEN", 3)
        first = await read_journal(commands, namespace, "budget", None)
        assert (amounts(first), first.missed, first.whole) == ([2, 3, 4], 0, True)  # it begins here
        await add(commands, namespace, *({**ENTRY, "amount": number} for number in range(5, 9)))
        await commands.execute("XTRIM", journal_key(namespace, "budget"), "MAXLEN", 2)
        second = await read_journal(commands, namespace, "budget", first.place)
        assert (amounts(second), second.missed) == ([7, 8], 2)
        third = await read_journal(commands, namespace, "budget", second.place)
        assert (amounts(third), third.missed, third.place) == ([], 0, second.place)
    finally:
        await commands.aclose()


async def test_of_no_journal_there_is_nothing_to_read_or_to_miss(server_url, namespace):
    commands = RedisCommands(server_url, "test-journal")
    try:
        page = await read_journal(commands, namespace, "budget", None)
        assert (page.entries, page.place, page.missed) == ([], JournalCursor(), 0)
    finally:
        await commands.aclose()


async def test_where_no_journal_can_be_written_the_books_are_right_all_the_same(server_url, namespace):
    commands = RedisCommands(server_url, "test-journal")
    ledger, account = RedisLedger(commands, namespace), Account("all/fleet", None)
    try:
        await commands.execute("SET", journal_key(namespace, "budget"), "somebody's")
        await ledger.reserve("d1", 0, [Offer("search", 5)], [account], "o")
        assert (await ledger.settle("d1", 3)).outcome == "settled"
        assert await ledger.charge("c1", 4, [account])
        (balance,) = await ledger.balances()
        assert (balance.spent, balance.reserved) == (7, 0)
        assert (await read_journal(commands, namespace, "budget", None)).refused
    finally:
        await commands.aclose()


@pytest.mark.parametrize(
    "wrong",
    [
        {"amount": 1.0},
        {"amount": True},
        {"amount": 2**60},
        {"at": "now"},
        {"id": 7},
        {"labels": {"team": 1}},
        {"accounts": [["a"]]},
        {"accounts": "a"},
        {"tool": 1},
    ],
)
def test_what_is_no_entry_is_passed_over(wrong):
    assert read_entry(b"1-0", [b"entry", pack(ENTRY)], "budget") is not None
    assert read_entry(b"1-0", [b"entry", pack({**ENTRY, **wrong})], "budget") is None
    assert read_entry(b"1-0", [b"entry", b"\xc1"], "budget") is None


def test_no_orchestrator_can_write_a_fact_that_reads_as_the_ledgers():
    forged = {**ENTRY, "event": "ledger", "book": "budget", "entry": "1-0"}
    assert is_entry(forged)
    assert not is_entry({**forged, "orchestrator": "o"})


@pytest.mark.parametrize("seed", range(4))
async def test_the_journal_adds_up_to_the_accounts_whatever_becomes_of_a_call(server_url, namespace, seed):
    commands, chance = RedisCommands(server_url, "test-journal"), random.Random(seed)
    ledger = RedisLedger(commands, namespace)
    accounts = [Account("all/fleet", None), Account("hour/agent/a", None, 3600)]
    otherwise = FallbackAccounts(7, (accounts[0],))
    try:
        for number in range(60):
            id_ = f"d{number % 40}"  # some come again
            await ledger.reserve(id_, 0, [Offer("search", chance.randrange(1, 100))], accounts, "o")
            for _ in range(chance.randrange(4)):
                settling = Step("settle", id_, chance.choice([None, chance.randrange(200)]), "o", otherwise)
                do = chance.choice(
                    [ledger.orphan, ledger.release, lambda _, step=settling: ledger.take([step])]
                )
                await do(id_)
            await ledger.take([Step("settle", f"x{number}", chance.randrange(9), "o", otherwise)])
            await ledger.charge(f"c{number % 50}", chance.randrange(9), accounts)
            if chance.random() < 0.2:
                await ledger.reset(chance.choice(accounts).key, "ann")
                await ledger.release(id_)  # of an orphan: an account that is empty gives nothing back
        page = await read_journal(commands, namespace, "budget", None)
        found = Counter()
        for entry in page.entries:
            for key, window in entry["accounts"]:
                found[key, window] += entry["amount"]
        assert +found == {(one.key, one.window): one.spent for one in await ledger.balances()}
        assert KINDS - {"part"} <= {entry["kind"] for entry in page.entries} <= KINDS
        assert {entry["by"] for entry in page.entries if entry["kind"] == "reset"} == {"ann"}
    finally:
        await commands.aclose()
