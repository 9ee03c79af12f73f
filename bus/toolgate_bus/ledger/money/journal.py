"""The ledger's journal as others read it: one entry for each change of money spent, in their order.

The ledger writes an entry in the same script as the change (`lua/`): a journal and its accounts never differ.
A journal is a bounded stream. The number of entries ever added shows how many were trimmed before a read.
Entries come off a wire: malformed ones are counted and skipped. Nothing is written here.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.money import MAX_AMOUNT
from toolgate_bus.protocol.packing import unpack
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.clock import entry_order
from toolgate_bus.transport.redis.storage.reads import read_first, read_stream_size

Entry = dict[str, Any]

LEDGER: Final = "ledger"
"""Name of the event that an entry is."""
MAX_ENTRIES: Final = 100_000
"""Approximate number of entries that are kept (the same as in `lua/ledger.lua`)."""
PAGE: Final = 1000
MAX_ENTRY: Final = 16 * 1024
"""Maximum size of an entry in bytes. It holds names and labels, and no arguments."""
MAX_ACCOUNTS: Final = 1024
_LATEST: Final = 253_402_300_800
"""Latest time of an entry, in seconds since the epoch: the year 10000."""
_TEXTS: Final = ("kind", "id", "tool", "agent", "session", "provider", "model", "scheduler", "unit", "of")
_FACT: Final = ("orchestrator", "seq")
"""Fields that only facts have. An entry has none, so no orchestrator can write a fact that reads as one."""
_ID: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
_log = get_logger("toolgate.journal")


class JournalCursor(NamedTuple):
    """Position up to which a journal was read."""

    last: str = "0-0"
    """Id of the last entry that was read."""
    number: int = 0
    """Number of entries written up to that one, read or not."""


class JournalPage(NamedTuple):
    """Result of one read of a journal."""

    entries: list[Entry]
    place: JournalCursor
    missed: int = 0
    """Number of entries that were written since the last read and trimmed before this one."""
    whole: bool = True
    """True if the page reaches the end of the journal."""
    refused: str = ""
    """Reason why the server refuses the read; empty if it does not."""


def journal_key(namespace: str, book: str) -> str:
    """Return the key of the stream of one book."""
    return Keys(namespace).store_key(f"{book}:journal")


def read_entry(entry: bytes, fields: Sequence[bytes], book: str) -> Entry | None:
    """Return an entry of the stream as plain values, with `book` and `entry`; None if it is malformed."""
    try:
        made = {**_map_of(fields), "event": LEDGER, "book": book, "entry": entry.decode("ascii")}
        for name in _FACT:
            made.pop(name, None)
    except (CodecError, TypeError, ValueError):
        return None
    return made if is_entry(made) else None


def _map_of(fields: Sequence[bytes]) -> Entry:
    found = unpack(fields[-1], MAX_ENTRY) if fields else None
    if not isinstance(found, dict):
        raise CodecError("malformed", "an entry is a map")
    return found


def is_entry(entry: Mapping[str, Any]) -> bool:
    """Return whether this is an entry of the ledger whose values are of the right type and within bounds."""
    if entry.get("event") != LEDGER or any(name in entry for name in _FACT):
        return False
    amount, at, labels = entry.get("amount"), entry.get("at"), entry.get("labels")
    accounts = entry.get("accounts")
    return (
        type(entry.get("book")) is str
        and _ID.fullmatch(str(entry.get("entry"))) is not None
        and type(amount) is int
        and -MAX_AMOUNT <= amount <= MAX_AMOUNT
        and isinstance(at, int | float)
        and type(at) is not bool
        and 0 <= at <= _LATEST
        and all(entry.get(name) is None or type(entry[name]) is str for name in _TEXTS)
        and type(entry.get("id")) is str
        and (labels is None or (type(labels) is dict and all(type(one) is str for one in labels.values())))
        and type(accounts) is list
        and len(accounts) <= MAX_ACCOUNTS
        and all(type(one) is list and list(map(type, one)) == [str, int] for one in accounts)
    )


async def read_journal(
    commands: Commands, namespace: str, book: str, place: JournalCursor | None
) -> JournalPage:
    """Return a page of the entries beyond a place. None is the beginning of what is kept.

    `missed` is only known once all is read, so it comes with a page that is `whole`. Raises TransportError.
    """
    key = journal_key(namespace, book)
    if place is None:
        size = await read_stream_size(commands, key)
        place = JournalCursor("0-0", size.added - size.length if size is not None else 0)
    (page,) = await read_first(commands, [(key, f"({place.last}")], PAGE)
    if isinstance(page, Exception):
        return JournalPage([], place, refused=str(page))
    found = [read_entry(entry, fields, book) for entry, fields in page]
    if bad := found.count(None):
        metrics.count(metrics.BAD_MESSAGES, "ledger", "malformed")
        _log.warning("entries of the ledger's journal cannot be read", book=book, entries=bad)
    last = page[-1][0].decode("ascii", "replace") if page else place.last
    number = place.number + len(page)
    missed, whole = 0, len(page) < PAGE
    if whole:
        size = await read_stream_size(commands, key)
        # (a lower id than ours: the server lost entries)
        if size is not None and entry_order(size.last) <= entry_order(last):
            missed, number = max(0, size.added - number), size.added
    return JournalPage([one for one in found if one is not None], JournalCursor(last, number), missed, whole)
