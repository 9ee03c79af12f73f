"""What processes leave on the server that kill -9 ended: an hour later nothing but what is to last.

Time is moved, not waited for: every key comes an hour nearer to its end, and sweeps find their clocks ahead.
"""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
from toolgate_bus.ledger.money.settlement import SettlementWorker
from toolgate_bus.protocol.events import Continue
from toolgate_bus.state.shared import connect_shared_state
from toolgate_bus.transport.redis.answering import consumer_group
from toolgate_bus.transport.redis.answering.scheduler import RedisSchedulerBus
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_schedulers.author.scheduler import Scheduler
from toolgate_schedulers.worker.worker import Worker

pytestmark = [pytest.mark.system, pytest.mark.acceptance]

HERE = Path(__file__).parent
WIRE = HERE.parents[2] / "docs/reference/wire.md"
HOUR_MS = 3_600_000
NS = "short"
SCHEDULERS = int(os.environ.get("TOOLGATE_LIVES", "150"))
AGENTS = SCHEDULERS // 4
KIND = re.compile(r"tg:\{.+?\}:(\w+)")


def lasting():
    """The keys that may last, as the documents list them."""
    table = WIRE.read_text().partition("### Keys that last")[2].partition("\n## ")[0]
    names = [
        name
        for row in re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
        for name in re.findall("`(.+?)`", row)
    ]
    assert len(names) > 5
    return [
        re.compile(re.escape(name.replace("NS", NS)).replace("\\*", ".*").replace("BOOK", "budget(-[a-z]+)?"))
        for name in names
    ]


async def keys_without_expiry(commands):
    keys = [key.decode() for key in await commands.execute("KEYS", "*")]
    left = await commands.pipeline([("PTTL", key) for key in keys])
    return {key for key, ms in zip(keys, left, strict=True) if ms == -1}


async def move_an_hour(commands):
    keys = await commands.execute("KEYS", "*")
    left = await commands.pipeline([("PTTL", key) for key in keys])
    await commands.pipeline(
        [("PEXPIRE", key, max(0, ms - HOUR_MS)) for key, ms in zip(keys, left, strict=True) if ms >= 0]
        or [("PING",)]
    )


def unlisted(keys):
    return sorted(key for key in keys if not any(one.fullmatch(key) for one in lasting()))


async def rule_for_a_moment(url, commands, wait_until, monkeypatch):
    """A replica that lives, and finds that ten minutes have passed."""
    monkeypatch.setattr(consumer_group, "DEAD_MS", 0)
    monkeypatch.setattr(consumer_group, "KEEP_SECONDS", 0)
    bus = RedisSchedulerBus(url, NS)

    async def decide(call):
        return Continue()

    shared = connect_shared_state(url, bus.commands, NS)
    worker = Worker(Scheduler(name="police", decide=decide), bus, shared=shared)
    await worker.start()
    inbox = bus.inbox

    async def are_gone():
        return len(await commands.execute("XINFO", "CONSUMERS", inbox, "police")) <= 1

    await wait_until(are_gone)
    await worker.drain()


async def settle(url, commands):
    """The keeper of the books, an hour on."""
    now = [0.0]
    shared = connect_shared_state(url, commands, NS)
    keeper = SettlementWorker(
        shared.ledger, shared.facts, shared.store, book=shared.book, replica="r", clock=lambda: now[0]
    )
    for _ in range(3):
        await keeper.step()
        now[0] += 3600.0
    await move_an_hour(commands)
    await keeper.step()
    await shared.aclose()


@pytest.fixture
async def commands(own_server):
    """To look at the server with."""
    commands = RedisCommands(own_server.url, "test")
    yield commands
    await commands.aclose()


@pytest.mark.timeout(600)
async def test_an_hour_after_processes_were_killed_no_key_lasts_but_those_listed(
    own_server, commands, wait_until, monkeypatch
):
    words = (HERE / "short_lives.py", own_server.url, NS, str(AGENTS), str(SCHEDULERS))
    child = await asyncio.create_subprocess_exec(sys.executable, *words)
    assert await child.wait() == 0
    keys = await commands.execute("KEYS", "*")
    kinds = {KIND.match(key.decode())[1] for key in keys}
    assert kinds >= {"facts", "in", "out", "wake", "roster", "budget"}
    await rule_for_a_moment(own_server.url, commands, wait_until, monkeypatch)
    assert await commands.execute("SCARD", f"tg:{{{NS}:ledger}}:budget:accounts") > 1
    await settle(own_server.url, commands)
    await move_an_hour(commands)
    kept = {key.decode() for key in await commands.execute("KEYS", "*")}
    assert kept == await keys_without_expiry(commands)
    assert unlisted(kept) == []
