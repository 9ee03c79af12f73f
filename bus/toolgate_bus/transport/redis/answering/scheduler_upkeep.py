"""Upkeep of the inboxes of one shard while they are read: renew, take over, trim, create again.

It uses ordinary commands, beside the questions (`lane`); each step is one round trip for all inboxes.
"""

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import anyio

from toolgate_bus.errors import ToolgateError
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Arg
from toolgate_bus.transport.redis.answering.consumer_group import RENEW_SECONDS
from toolgate_bus.transport.redis.roster.roster import BEAT_SECONDS
from toolgate_bus.transport.redis.tasks import Backoff

if TYPE_CHECKING:
    from toolgate_bus.transport.redis.answering.scheduler import InboxReader
    from toolgate_bus.transport.redis.answering.shard_connection import ShardConnection

QUIET_TIDY_S: Final = 5.0
"""Seconds between two looks at an inbox from which nothing comes any more."""
EMPTY_S: Final = 20.0
"""Seconds without an entry after which everything was trimmed, and the lane is idle."""
IDLE_LOOK_S: Final = 30.0
"""Seconds between two looks for entries to take over while the lane is only watched."""
EMPTY_TIDY_S: Final = 60.0
"""Seconds between two looks at an inbox from then on."""
RETENTION_MS: Final = 10_000
_log = get_logger("toolgate.bus")


async def keep_tidy(lane: "ShardConnection") -> None:
    """Trim inboxes and the streams written to, and set their expiry, until cancelled."""
    tidied = asked = float("-inf")  # when all inboxes were looked at, and when the time was asked for
    last_active = time.monotonic()
    while True:
        await anyio.sleep(BEAT_SECONDS)
        lane.host.heart.note_progress()
        if not lane.is_connected:
            continue
        now = time.monotonic()
        active = {id(reader) for reader in lane.joined.values() if reader.take_activity()}
        last_active = now if active else last_active
        lane.is_idle = is_empty = now - last_active >= EMPTY_S
        if now - asked >= QUIET_TIDY_S:
            asked = now
            lane.ask_time()
        everyone = now - tidied >= (EMPTY_TIDY_S if is_empty else QUIET_TIDY_S)
        readers = [reader for reader in lane.joined.values() if id(reader) in active or everyone]
        if everyone:
            tidied = now
        with contextlib.suppress(ToolgateError):
            await _tidy(lane, readers)
            for reader in list(lane.joined.values()):
                await reader.group.keep(now)


async def _tidy(lane: "ShardConnection", readers: "Sequence[InboxReader]") -> None:
    if not readers:
        return
    oldest = lane.clock.entry_before(time.monotonic(), RETENTION_MS)
    commands: list[Sequence[Arg]] = [command for reader in readers for command in reader.group.look()]
    for reader in readers:
        commands += reader.tidy_commands(oldest)
    replies = await lane.commands.pipeline(commands)
    if oldest is not None:
        for number, reader in enumerate(readers):
            await reader.group.trim(oldest, replies[2 * number], replies[2 * number + 1])


async def keep_healing(lane: "ShardConnection") -> None:
    """Create groups and streams again whenever the lane asks for it, until cancelled."""
    backoff = Backoff()
    while True:
        await lane.heal.wait()
        lane.heal.clear()
        for reader in list(lane.joined.values()):
            try:
                await reader.make_group()
            except ToolgateError as error:
                backoff.note(_log, "the inbox cannot be read", error)
                reader.is_paused = True
                lane.heal.set()
            else:
                reader.is_paused = False
        lane.host.heart.name_again()
        if not lane.heal.is_set():
            metrics.count(metrics.RECREATED, "group")
            backoff.reset()
        lane.soon()
        await backoff.wait()


async def keep_renewing(lane: "ShardConnection") -> None:
    """Mark what is being decided here, and take over what dead replicas were deciding, until cancelled."""
    looked = float("-inf")
    while True:
        await anyio.sleep(RENEW_SECONDS)
        if not lane.is_connected:
            continue
        for reader in lane.joined.values():
            reader.out.write_acks()
        now = time.monotonic()
        if lane.is_watching and now - looked < IDLE_LOOK_S:
            continue
        looked = now
        with contextlib.suppress(ToolgateError):
            await _renew(lane)


async def _renew(lane: "ShardConnection") -> None:
    readers = list(lane.joined.values())
    renewals = [command for reader in readers for command in reader.group.renew(reader.held)]
    now = time.monotonic()
    looking = [reader for reader in readers if reader.room > 0 and reader.group.is_due(now)]
    looks = [reader.group.look_for_dead(now) for reader in looking]
    if not renewals and not looks:
        return
    replies = await lane.commands.pipeline([*renewals, *looks])
    for reader, reply in zip(looking, replies[len(renewals) :], strict=True):
        if isinstance(reply, Exception):
            lane.wake()  # a read will tell what is wrong
        for entry, times in await reader.group.take_over(reply, reader.held, reader.room, now):
            metrics.count(metrics.CLAIMED, reader.name)
            reader.deliver([entry], times)
