"""A replica looks rarely for what is pushed while it is asked nothing."""

import asyncio
from types import SimpleNamespace

import pytest
from toolgate_bus.state.config_record import StoredConfig, digest_of, push
from toolgate_bus.state.config_store import ConfigStore
from toolgate_bus.state.notifications import RedisNotices
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_schedulers.worker import config_follower
from toolgate_schedulers.worker.config_follower import ConfigFollower, PushedConfig

TEXT = b"default: allow\n"
LONG = 600.0


class Own:
    """A replica that takes whatever comes."""

    def __init__(self):
        self.taken = []

    async def take(self, scheduler, name):
        self.taken.append(name)

    async def end_trial(self):
        """Nothing is on trial here."""


@pytest.fixture
async def followed(server_url, namespace, monkeypatch):
    """A follower of a replica that is asked, where nothing has changed for long."""
    monkeypatch.setattr(config_follower, "QUIET_S", 0.0)
    monkeypatch.setattr(config_follower, "RARE_POLL_S", LONG)
    monkeypatch.setattr(config_follower, "QUIET_POLL_S", 0.02)
    commands = RedisCommands(server_url, "test")
    store, looks = ConfigStore(commands, namespace, "policy"), []
    read = store.read

    async def look():
        looks.append(1)
        return await read()

    monkeypatch.setattr(store, "read", look)
    made = SimpleNamespace(
        store=ConfigStore(commands, namespace, "policy"),
        own=Own(),
        looks=looks,
    )
    inboxes = SimpleNamespace(is_watching=False)
    notices = RedisNotices(commands, commands, namespace)
    follower = ConfigFollower(
        store, notices, "r1", "policy", made.own, lambda *_: SimpleNamespace(), PushedConfig(), inboxes
    )
    task = asyncio.create_task(follower.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await commands.aclose()


async def pushed(store):
    new = StoredConfig(digest_of(TEXT), "v1", "me", await store.now(), len(TEXT), "policy")
    await store.put_text(new.digest, TEXT)
    await store.change(lambda record: push(record, new, stage=False))


async def test_a_replica_that_is_asked_takes_up_soon_what_is_pushed(followed, wait_until):
    await wait_until(lambda: len(followed.looks) > 2)
    await pushed(followed.store)
    (name,) = await wait_until(lambda: followed.own.taken)
    assert name.startswith("v1@")
