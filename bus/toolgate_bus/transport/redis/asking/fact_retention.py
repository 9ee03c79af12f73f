"""Keeps one orchestrator's facts findable on the server, and drops what is too old or too much.

Every ten seconds it adds to the fleet's count how many bytes it has written, and reads the count of all. So
every orchestrator drops its facts before the same moment. `transport/retention` finds that moment.
"""

from collections.abc import Sequence
from typing import Any, Final

from toolgate_bus.errors import ToolgateError
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Arg, Commands
from toolgate_bus.transport.redis.asking.fact_compressor import BASE_S
from toolgate_bus.transport.redis.storage.reads import flat
from toolgate_bus.transport.retention import (
    MINUTE_MS,
    FactUsage,
    Horizon,
    Retention,
    decode_retention,
    decode_written,
    find_horizon,
)

MARGIN_MS: Final = int(2 * BASE_S * 1000)
"""Milliseconds that entries are kept beyond their facts' time: later ones may build on them."""
AT_ONCE: Final = 64
"""Maximum number of dead orchestrators whose streams are emptied at once."""
_log = get_logger("toolgate.bus")


class FactRetention:
    """Retention of one orchestrator's facts."""

    __slots__ = ("_added", "_told", "_usage")

    def __init__(self) -> None:
        self._usage = FactUsage()
        self._added = 0
        """Bytes that were written and not yet counted on the server."""
        self._told = False

    @property
    def expiry_ms(self) -> int:
        """Milliseconds after which the stream of a dead orchestrator goes."""
        return self._usage.kept.seconds * 1000

    @property
    def has_added(self) -> bool:
        """True if something was written since the last `keep`."""
        return self._added > 0

    def add(self, size: int) -> None:
        """Count bytes that are written to the stream."""
        self._added += size

    async def keep(
        self, commands: Commands, keys: Keys, orchestrator: str, now_ms: int, read_ms: int = 0
    ) -> None:
        """Keep the facts findable, and drop those before the horizon. Raises TransportError.

        `read_ms` is the time up to which the slowest living reader has read; 0 without one.
        """
        horizon = find_horizon(self._usage, now_ms, read_ms)
        kept = keep_commands(keys, orchestrator, now_ms, self._usage.kept, horizon)
        added, self._added = self._added, 0
        try:
            replies = await commands.pipeline([*kept, *self._count(keys, now_ms, horizon, added)])
        except ToolgateError:
            self._added += added
            raise
        early = replies[len(kept) - 1]
        if horizon.is_early:
            if type(early) is int and early:
                metrics.FACTS_CUT.add((), early)
            await self._empty_dead(commands, keys, horizon)
        if horizon.is_early != self._told:
            self._told = horizon.is_early
            if self._told:
                _log.warning(
                    "facts take more bytes than are allowed: the oldest are dropped before their time "
                    "(toolgate decisions keep)",
                    allowed=self._usage.kept.bytes,
                )
        if isinstance(replies[-1], Exception) or isinstance(replies[-2], Exception):
            return  # a user of older rules may not see it: nothing is bounded then but the time
        self._usage = FactUsage(decode_retention(replies[-2]), decode_written(flat(replies[-1])))

    def _count(self, keys: Keys, now_ms: int, horizon: Horizon, added: int) -> list[Sequence[Arg]]:
        """Return commands that count what was added, forget old minutes, and read what is set and kept."""
        over = [one for one in self._usage.written if (one + 1) * MINUTE_MS <= horizon.oldest_ms]
        changes: list[Sequence[Arg]] = []
        if added:
            changes.append(("HINCRBY", keys.facts_bytes, now_ms // MINUTE_MS, added))
        if over:
            changes.append(("HDEL", keys.facts_bytes, *over))
        return [
            *changes,
            ("PEXPIRE", keys.facts_bytes, self.expiry_ms),
            ("GET", keys.facts_kept),
            ("HGETALL", keys.facts_bytes),
        ]

    async def _empty_dead(self, commands: Commands, keys: Keys, horizon: Horizon) -> None:
        """Empty the streams of some orchestrators that wrote nothing since the horizon: nobody else does."""
        until = f"({horizon.oldest_ms}"
        reply: Any = await commands.execute(
            "ZRANGE", keys.writers, "-inf", until, "BYSCORE", "LIMIT", 0, AT_ONCE
        )
        names = [one.decode("ascii", "replace") for one in reply]
        if not names:
            return
        trims = [("XTRIM", keys.facts(name), "MAXLEN", 0) for name in names]
        await commands.pipeline(trims)
        if len(names) < AT_ONCE:
            await commands.execute("ZREMRANGEBYSCORE", keys.writers, "-inf", until)


def keep_commands(
    keys: Keys,
    orchestrator: str,
    now_ms: int,
    kept: Retention = Retention(),  # noqa: B008 - it is a constant
    horizon: Horizon | None = None,
) -> list[Sequence[Arg]]:
    """Return commands that keep an orchestrator's facts findable; the last one drops those too old."""
    expiry, oldest = kept.seconds * 1000, now_ms - kept.seconds * 1000
    if horizon is not None:
        oldest = min(oldest, horizon.oldest_ms)
    return [
        ("ZADD", keys.writers, now_ms, orchestrator),
        ("ZREMRANGEBYSCORE", keys.writers, "-inf", oldest),
        ("PEXPIRE", keys.writers, expiry),
        ("PEXPIRE", keys.facts(orchestrator), expiry),
        (
            *("XTRIM", keys.facts(orchestrator), "MINID", "~"),
            f"{(horizon.oldest_ms if horizon else oldest) - MARGIN_MS}-0",
        ),
    ]
