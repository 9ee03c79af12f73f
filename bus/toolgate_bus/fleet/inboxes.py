"""Judge the questions that wait: for whom, how long, and which replicas took questions and hang. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from toolgate_bus.fleet.finding import Finding, error, fine, how_many, warning

SUBJECT: Final = "inboxes"
SLOW_S: Final = 1.0
"""Seconds from which a question waits too long: twice the default patience, so its gate gave up."""
STILL_S: Final = 3.0
"""Seconds of silence after which a replica counts as stuck. A healthy replica reads every second."""


class InboxConsumer(NamedTuple):
    """One replica as a reader of its inbox."""

    replica: str
    has: int
    """Number of entries that it was given and has not answered."""
    idle_s: float
    """Seconds since it last asked for more."""


class InboxState(NamedTuple):
    """One scheduler's inbox in one shard."""

    scheduler: str
    replicas: int
    """Number of live replicas that read it."""
    waiting: int
    """Number of entries that no replica was given yet."""
    lag_s: float
    """Age of the oldest of those, in seconds."""
    readings: Sequence[InboxConsumer] = ()
    shard: int = 0

    @property
    def where(self) -> str:
        """Shard, in words; empty for the first."""
        return f" in shard {self.shard}" if self.shard else ""


def inbox_findings(inboxes: Iterable[InboxState]) -> list[Finding]:
    """Return all findings about backlogs."""
    found = [one for inbox in inboxes for one in (*_check_backlog(inbox), *_find_stuck_replicas(inbox))]
    return found or [fine(SUBJECT, "inboxes", "no question waits")]


def _check_backlog(inbox: InboxState) -> list[Finding]:
    name, many = inbox.scheduler, how_many(inbox.waiting, "question") + inbox.where
    if inbox.waiting and not inbox.replicas:
        what = f"{many} for {name} unanswered, the oldest for {inbox.lag_s:.0f} s: no replica of it is alive"
        change = f"toolgate scheduler run {name}; if a replica should be running, look at its process and log"
        return [error(SUBJECT, "inbox-nobody", what, change)]
    if inbox.waiting and inbox.lag_s >= SLOW_S:
        replicas = how_many(inbox.replicas, "replica")
        what = (
            f"{many} for {name} not read yet, the oldest for {inbox.lag_s:.1f} s: its {replicas} cannot "
            "keep up"
        )
        change = f"start more replicas of {name} (--replicas), or raise its --concurrency"
        return [warning(SUBJECT, "inbox-backlog", what, change)]
    return []


def _find_stuck_replicas(inbox: InboxState) -> list[Finding]:
    found = []
    for one in inbox.readings:
        if one.has and one.idle_s >= STILL_S:
            host, _, pid = one.replica.rpartition("-")[0].rpartition("-")
            who = f"pid {pid} on {host}" if host and pid.isdecimal() else f"its name is {one.replica}"
            what = (
                f"the replica {one.replica} of {inbox.scheduler} took {how_many(one.has, 'question')}"
                f"{inbox.where} "
                f"and has been silent for {one.idle_s:.0f} s: it is stopped, hangs or died"
            )
            change = (
                f"look at its process ({who}): resume it (kill -CONT), or end it: then another takes over"
            )
            found.append(warning(SUBJECT, "inbox-stuck", what, change))
    return found
