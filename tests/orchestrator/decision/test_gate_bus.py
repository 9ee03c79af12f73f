"""Where a gate finds its bus: what its configuration does not say, the environment says."""

from contextlib import asynccontextmanager

from toolgate_bus.protocol.events import Deny
from toolgate_bus.state.shared import connect_shared_state
from toolgate_bus.transport.redis.answering.scheduler import RedisSchedulerBus
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate
from toolgate_schedulers import Worker, scheduler


@scheduler(name="police")
async def police(call):
    return Deny(reason="not here")


@asynccontextmanager
async def ruled(url, namespace):
    bus = RedisSchedulerBus(url, namespace)
    worker = Worker(police, bus, shared=connect_shared_state(url, bus.commands, namespace))
    await worker.start()
    try:
        yield
    finally:
        await worker.drain()


async def outcome(**fields):
    async with Gate.open(**fields) as gate:
        return (await gate.decide(Call("bash", {}, ["bash"]))).outcome


async def test_a_gate_that_is_told_nothing_is_where_the_environment_says(server_url, namespace, monkeypatch):
    monkeypatch.setenv("TOOLGATE_REDIS_URL", server_url)
    monkeypatch.setenv("TOOLGATE_NAMESPACE", namespace)
    async with ruled(server_url, namespace):
        assert await outcome() == "deny"
        assert await outcome(namespace=f"{namespace}-other") == "continue"
        monkeypatch.setenv("TOOLGATE_NAMESPACE", f"{namespace}-other")
        assert await outcome() == "continue"
        assert await outcome(namespace=namespace) == "deny"


async def test_keys_of_the_environment_hold_for_a_gate_that_is_told_none(
    server_url, namespace, monkeypatch, tmp_path
):
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"police: {'ab' * 32}\n")
    keys.chmod(0o600)
    async with ruled(server_url, namespace):  # it signs nothing
        where = {"redis": server_url, "namespace": namespace}
        assert await outcome(**where) == "deny"
        monkeypatch.setenv("TOOLGATE_KEYS", str(keys))
        assert await outcome(**where) == "continue"
