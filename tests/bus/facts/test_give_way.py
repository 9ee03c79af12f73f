"""Once a server is back, those rule first for whom calls wait; who keeps the record reads on behind them."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from toolgate_bus.commands.decisions.archive_disk import ArchiveDisk
from toolgate_bus.commands.decisions.archive_store import ArchiveStore
from toolgate_bus.commands.decisions.archiver import _Archiver
from toolgate_bus.commands.exporter.service import Exporter
from toolgate_bus.errors import BusDown
from toolgate_bus.facts.lease import Lease
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.facts.service import GIVE_WAY_S, REST_S, FactsService
from toolgate_bus.ledger.money.settlement import SettlementWorker
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


@pytest.mark.parametrize("role", ["archiver", "exporter"])
async def test_the_record_is_read_on_behind_rulings(
    commands: RedisCommands, namespace: str, tmp_path: Path, role: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(commands, namespace, role)
    reader.seen = []

    async def give_way(_service: FactsService) -> None:
        reader.seen.append("gave way")

    monkeypatch.setattr(FactsService, "give_way", give_way)
    if role == "archiver":
        store = ArchiveStore(ArchiveDisk(tmp_path), namespace, compress=False, max_bytes=MAX_BYTES)
        work = _Archiver(commands, namespace, reader, store).run()
    else:
        lease = Lease(commands, namespace, "exporter", 3.0)
        work = Exporter(reader, lease, cast("Any", None)).run()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert reader.seen == ["read", "gave way", "read"]


async def test_giving_way_takes_until_the_server_answers(
    commands: RedisCommands, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolgate_bus.facts.service.GIVE_WAY_S", 0.0)
    lease, nobody = Lease(commands, namespace, "exporter", 3.0), RedisCommands("redis://127.0.0.1:1", "test")
    here, away = (
        Exporter(FactsReader(one, namespace), lease, cast("Any", None)) for one in (commands, nobody)
    )
    await here.give_way()
    with pytest.raises(BusDown):
        await away.give_way()
    await nobody.aclose()


async def test_books_are_kept_on_behind_rulings(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, seen = make_shared_state(), list[Any]()
    now_ms = shared.facts.now_ms

    async def now_or_fail() -> int:
        if seen.count("away") < 2:
            seen.append("away")
            raise BusDown("away")
        return await now_ms()

    async def read(wait_ms: int | None = None) -> Any:
        seen.append("read")
        raise BusDown("away") if seen == ["read"] else asyncio.CancelledError

    async def sleep(seconds: float) -> None:
        seen.append(seconds)

    monkeypatch.setattr(shared.facts, "now_ms", now_or_fail)
    monkeypatch.setattr(shared.facts, "next", read)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    keeper = SettlementWorker(shared.ledger, shared.facts, shared.store, book="budget", replica="r")
    with pytest.raises(asyncio.CancelledError):
        await keeper.run()
    assert seen == ["read", REST_S, "away", REST_S, "away", REST_S, GIVE_WAY_S, "read"]
