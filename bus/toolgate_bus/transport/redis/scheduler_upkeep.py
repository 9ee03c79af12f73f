"""What a process does for its schedulers' inboxes while they are read: renew, take over, trim, make again.

It goes on by ordinary commands, beside the questions (`scheduler_host`); each is one round trip for all.
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
from toolgate_bus.transport.redis.consumer_group import RENEW_SECONDS
from toolgate_bus.transport.redis.roster import BEAT_SECONDS
from toolgate_bus.transport.redis.tasks import Backoff

if TYPE_CHECKING:
    from toolgate_bus.transport.redis.scheduler import RedisSchedulerBus
    from toolgate_bus.transport.redis.scheduler_host import SchedulerHost

QUIET_TIDY_S: Final = 5.0
"""Seconds between two looks at an inbox from which nothing comes."""
RETENTION_MS: Final = 10_000
_log = get_logger("toolgate.bus")


async def keep_tidy(host: "SchedulerHost") -> None:
    """Until cancelled, trim inboxes and the streams written to, and let those expire."""
    tidied = float("-inf")  # when all inboxes were looked at
    while True:
        await anyio.sleep(BEAT_SECONDS)
        host.heart.note_progress()
        if not host.is_connected:
            continue
        now = time.monotonic()
        everyone = now - tidied >= QUIET_TIDY_S
        seats = [seat for seat in host.joined.values() if seat.take_activity() or everyone]
        if everyone:
            tidied = now
        with contextlib.suppress(ToolgateError):
            await _tidy(host, seats)
            for seat in list(host.joined.values()):
                await seat.group.keep(now)


async def _tidy(host: "SchedulerHost", seats: "Sequence[RedisSchedulerBus]") -> None:
    if not seats:
        return
    oldest = host.clock.entry_before(time.monotonic(), RETENTION_MS)
    commands: list[Sequence[Arg]] = [command for seat in seats for command in seat.group.look()]
    for seat in seats:
        commands += seat.tidy_commands(oldest)
    replies = await host.commands.pipeline(commands)
    if oldest is not None:
        for number, seat in enumerate(seats):
            await seat.group.trim(oldest, replies[2 * number], replies[2 * number + 1])


async def keep_healing(host: "SchedulerHost") -> None:
    """Until cancelled, make groups and streams again whenever the host asks for it."""
    backoff = Backoff()
    while True:
        await host.heal.wait()
        host.heal.clear()
        for seat in list(host.joined.values()):
            try:
                await seat.group.make()
            except ToolgateError as error:
                backoff.note(_log, "the inbox cannot be read", error)
                seat.is_paused = True
                host.heal.set()
            else:
                seat.is_paused = False
        host.heart.name_again()
        if not host.heal.is_set():
            metrics.count(metrics.RECREATED, "group")
            backoff.reset()
        host.soon()
        await backoff.wait()


async def keep_renewing(host: "SchedulerHost") -> None:
    """Until cancelled, say what is being decided here, and take over what the dead were deciding."""
    while True:
        await anyio.sleep(RENEW_SECONDS)
        if not host.is_connected:
            continue
        for seat in host.joined.values():
            seat.out.write_acks()
        with contextlib.suppress(ToolgateError):
            await _renew(host)


async def _renew(host: "SchedulerHost") -> None:
    seats = list(host.joined.values())
    renewals = [command for seat in seats for command in seat.group.renew(seat.held)]
    now = time.monotonic()
    looking = [seat for seat in seats if seat.room > 0 and seat.group.is_due(now)]
    looks = [seat.group.look_for_dead(now) for seat in looking]
    if not renewals and not looks:
        return
    replies = await host.commands.pipeline([*renewals, *looks])
    for seat, reply in zip(looking, replies[len(renewals) :], strict=True):
        for entry, times in await seat.group.take_over(reply, seat.held, seat.room, now):
            metrics.count(metrics.CLAIMED, seat.name)
            seat.deliver([entry], times)
