"""Judge the facts streams: the memory they take, and whether old facts are trimmed. Pure."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from toolgate_bus.fleet.finding import Finding, fine, how_many, warning
from toolgate_bus.transport.retention import WARN_AT, FactUsage

SUBJECT: Final = "facts"
SLACK_S: Final = 900.0
"""Seconds that facts may be older than that: they are trimmed at heartbeats, by whole blocks."""
SHARE: Final = 0.5


class FactStreamState(NamedTuple):
    """One orchestrator's facts stream."""

    orchestrator: str
    alive: bool
    oldest_s: float
    """Age of its first entry, in seconds."""
    size: int | None = None
    """Bytes in the server's memory; None if this user may not ask."""


def facts_findings(
    streams: Sequence[FactStreamState], maxmemory: int = 0, usage: FactUsage | None = None
) -> list[Finding]:
    """Return all findings about the facts. `maxmemory` is in bytes, 0 if there is no limit.

    `usage` is None if this user may not see it.
    """
    kept = (usage or FactUsage()).kept
    sizes = [one.size for one in streams if one.size is not None]
    size = f", {sum(sizes) / 2**20:.1f} MiB" if sizes else ""
    found = []
    if maxmemory and sum(sizes) >= SHARE * maxmemory:
        what = (
            f"facts use {sum(sizes) // 2**20} of the server's {maxmemory // 2**20} MiB: they are kept for "
            f"{kept.seconds // 60} min"
        )
        change = (
            "CONFIG SET maxmemory to more, put busy fleets on servers of their own, or keep facts for a "
            "shorter time: toolgate decisions keep"
        )
        found.append(warning(SUBJECT, "facts-memory", what, change))
    if usage is not None and usage.bytes >= WARN_AT * kept.bytes:
        what = (
            f"facts take {usage.bytes // 2**20} MiB of the {kept.bytes // 2**20} MiB that they may: beyond "
            f"that the oldest are dropped before their {kept.seconds // 60} min are over, even if a reader "
            "needs them"
        )
        change = "toolgate decisions keep --size MB for more, or --seconds for a shorter time"
        found.append(warning(SUBJECT, "facts-bytes", what, change))
    old = [one for one in streams if one.alive and one.oldest_s >= kept.seconds + SLACK_S]
    if old:
        worst = max(old, key=lambda one: one.oldest_s)
        what = (
            f"facts of {how_many(len(old), 'live orchestrator')} are not trimmed: those of "
            f"{worst.orchestrator} "
            f"go back {worst.oldest_s / 60:.0f} min instead of {kept.seconds // 60}"
        )
        change = (
            "see which reader of facts is behind (toolgate_exporter_lag_seconds), or give its user +xtrim on "
            "tg:{NAMESPACE:[0-9a-f]}:facts:* (deploy/redis/roles, agent)"
        )
        found.append(warning(SUBJECT, "facts-retention", what, change))
    return found or [fine(SUBJECT, "facts", f"facts of {how_many(len(streams), 'orchestrator')} kept{size}")]
