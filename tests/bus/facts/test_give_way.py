"""Once a server is back, those rule first for whom calls wait; who keeps the record reads on behind them."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from toolgate_bus.commands.decisions.archive_disk import ArchiveDisk
from toolgate_bus.commands.decisions.archive_store import ArchiveStore
from toolgate_bus.commands.decisions.archiver import _Archiver
from toolgate_bus.commands.exporter.checkpoint import CheckpointStore
from toolgate_bus.commands.exporter.service import Exporter
from toolgate_bus.errors import BusDown
from toolgate_bus.facts.reader import GIVE_WAY_S, FactsReader
from toolgate_bus.ledger.money.settlement import TICK_S, SettlementWorker
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.transport.redis.client.connection import RedisCommands

MAX_BYTES = 1 << 20


class Reader(FactsReader):
    """Its first read finds no server, its second is its last; `seen` is what it was asked for."""

    seen: list[str]

    async def next(self, wait_ms: int | None = None) -> Any:
        """Fail, then end."""
        self.seen.append("read")
        raise BusDown("away") if self.seen == ["read"] else asyncio.CancelledError

    async def give_way(self) -> None:
        """Only say so."""
        self.seen.append("gave way")


@pytest.mark.parametrize("role", ["archiver", "exporter"])
async def test_the_record_is_read_on_behind_rulings(
    commands: RedisCommands, namespace: str, tmp_path: Path, role: Any
) -> None:
    reader = Reader(commands, namespace, role)
    reader.seen = []
    if role == "archiver":
        store = ArchiveStore(ArchiveDisk(tmp_path), namespace, compress=False, max_bytes=MAX_BYTES)
        work = _Archiver(commands, namespace, reader, store).run()
    else:
        work = Exporter(reader, CheckpointStore(commands, namespace, "one"), cast("Any", None)).run()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert reader.seen == ["read", "gave way", "read"]


async def test_giving_way_ends_a_little_after_the_server_answers(
    commands: RedisCommands, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("toolgate_bus.facts.reader.anyio.sleep", sleep)
    await FactsReader(commands, namespace).give_way()
    assert slept == [GIVE_WAY_S]
    nobody = RedisCommands("redis://127.0.0.1:1", "test")
    with pytest.raises(BusDown):
        await FactsReader(nobody, namespace).give_way()
    await nobody.aclose()
    assert slept == [GIVE_WAY_S]


async def test_books_are_kept_on_behind_rulings(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, seen = make_shared_state(), list[Any]()
    get = shared.store.get

    async def get_or_fail(key: str) -> bytes | None:
        if "read" in seen and seen.count("away") < 2:
            seen.append("away")
            raise BusDown("away")
        return await get(key)

    async def read(wait_ms: int | None = None) -> Any:
        seen.append("read")
        raise BusDown("away") if seen == ["read"] else asyncio.CancelledError

    async def sleep(seconds: float) -> None:
        seen.append(seconds)

    monkeypatch.setattr(shared.store, "get", get_or_fail)
    monkeypatch.setattr(shared.facts, "next", read)
    monkeypatch.setattr("toolgate_bus.ledger.money.settlement.asyncio.sleep", sleep)
    keeper = SettlementWorker(shared.ledger, shared.facts, shared.store, book="budget", replica="r")
    with pytest.raises(asyncio.CancelledError):
        await keeper.run()
    assert seen == ["read", "away", TICK_S, "away", TICK_S, TICK_S, "read"]
