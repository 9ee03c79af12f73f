"""The loop of a service: it outlasts the server's absence, reports it once, and gives way to calls."""

import asyncio
import time
from typing import Any

import pytest
from toolgate_bus.errors import BusDown, ConfigError, Refusal
from toolgate_bus.facts.service import GIVE_WAY_S, FactsService
from toolgate_bus.state.shared import MemoryFacts

pytestmark = pytest.mark.pure

REST_S = 0.25


class Service(FactsService):
    """Its steps are a script of errors to raise, or whether it leads; it logs into `did`."""

    def __init__(self, *script: Any, **options: bool) -> None:
        super().__init__(MemoryFacts(), self, **options)
        self.script, self.did = list(script), list[Any]()

    async def step(self) -> bool:
        self.did.append("step")
        act = self.script.pop(0) if self.script else asyncio.CancelledError()
        if isinstance(act, BaseException):
            raise act
        return bool(act)

    async def give_up(self) -> None:
        self.did.append("gave up")

    async def leave(self) -> None:
        self.did.append("left")

    def warning(self, words: str, error: str) -> None:
        self.did.append(f"warned: {error}")

    def info(self, words: str, error: str) -> None:
        self.did.append(f"mentioned: {error}")


async def run(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what it did and how long it slept."""

    async def sleep(seconds: float) -> None:
        service.did.append(seconds)

    monkeypatch.setattr("toolgate_bus.facts.service.REST_S", REST_S)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await service.run()
    assert service.did.pop() == "left"
    return service.did


async def test_an_outage_is_reported_once_and_calls_come_first_when_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = Service(True, BusDown("a"), BusDown("b"), True, BusDown("c"), is_command=True)
    first = ["step", "step", "warned: a", "gave up", REST_S]
    second = [GIVE_WAY_S, "step", "gave up", REST_S, GIVE_WAY_S, "step", "step", "warned: c", "gave up"]
    assert await run(service, monkeypatch) == [*first, *second, REST_S, GIVE_WAY_S, "step"]


async def test_while_the_server_is_away_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    service, away = Service(BusDown("a"), True), [BusDown("b"), BusDown("b")]

    async def now_ms() -> int:
        if away:
            raise away.pop()
        return 0

    monkeypatch.setattr(service._facts, "now_ms", now_ms)
    rests = ["gave up", REST_S] * 3
    assert await run(service, monkeypatch) == ["step", "mentioned: a", *rests, GIVE_WAY_S, "step", "step"]


async def test_who_stands_by_asks_again_after_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await run(Service(False, True), monkeypatch) == ["step", REST_S, "step", "step"]


async def test_a_service_on_which_calls_wait_reads_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(BusDown("a"), gives_way=False)
    assert await run(service, monkeypatch) == ["step", "mentioned: a", "gave up", REST_S, "step"]


async def test_a_refusal_ends_a_command_and_no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refusal):
        await Service(Refusal("NOPERM"), is_command=True).run()
    with pytest.raises(ConfigError):
        await Service(ConfigError("no such thing")).run()
    assert "mentioned: NOPERM" in await run(Service(Refusal("NOPERM")), monkeypatch)


async def test_health_is_told_in_a_sentence() -> None:
    service = Service(True)
    away = (False, "the bus cannot be reached; waiting for it")
    assert service.health() == away
    service.is_connected = True
    assert service.health() == (False, "stands by: another process leads")
    service.leads = True
    assert service.health() == (False, "has read no facts for 10 s")
    service.worked_at = time.monotonic()
    assert service.health() == (True, "reads facts")
    await service.on_disconnect(BusDown("away"))
    assert service.health() == away
