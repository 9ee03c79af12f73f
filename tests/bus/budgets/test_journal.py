"""The ledger's journal is read in pages, each entry once, and what was trimmed unread is counted."""

import pytest
from toolgate_bus.budgets.journal import JournalPlace, is_entry, journal_key, read_entry, read_journal
from toolgate_bus.protocol.packing import pack
from toolgate_bus.transport.redis.connection import RedisCommands

ENTRY = {"kind": "settle", "id": "d1", "amount": 40, "accounts": [["team/label:team/red", 3]], "at": 1.5}


async def add(commands, namespace, *entries):
    key = journal_key(namespace, "budget")
    await commands.pipeline([("XADD", key, "*", "entry", pack(one)) for one in entries])


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
        assert (page.entries, page.place, page.missed) == ([], JournalPlace(), 0)
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
