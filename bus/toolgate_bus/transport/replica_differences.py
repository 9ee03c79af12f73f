"""Finds differences between the replicas of one scheduler: configurations, and versions of the wire. Pure.

Any replica may take a question about a call. While replicas rule by different configurations, the same call
may be denied once and allowed the next time.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from toolgate_bus.transport.ports import Member

UNNAMED: Final = "unnamed"
"""Name for the configuration of a replica that reports none."""


def revisions(members: Sequence[Member]) -> tuple[str, ...]:
    """Return a scheduler's different configurations, oldest start first; none if no replica reports one."""
    ordered = sorted(members, key=lambda member: (member.started, member.replica))
    told = dict.fromkeys(member.revision.text for member in ordered)
    return tuple(text or UNNAMED for text in told) if any(told) else ()


def revisions_alive(members: Sequence[Member]) -> str | None:
    """Return a text about replicas that rule by different configurations; None if there are none."""
    different = revisions(members)
    return f"{len(different)} revisions alive: {', '.join(different)}" if len(different) > 1 else None


def strangers(members: Sequence[Member], wires: Mapping[str, Collection[int]]) -> tuple[str, ...]:
    """Return the orchestrators that share no version of the wire with all of one scheduler's replicas."""
    common = set.intersection(*(set(member.wire) for member in members)) if members else set()
    return tuple(sorted(name for name, wire in wires.items() if not common & set(wire)))


def who_cannot_ask(members: Sequence[Member], wires: Mapping[str, Collection[int]]) -> str | None:
    """Return a text about agents that cannot ask a scheduler's replicas; None if all can."""
    many = len(strangers(members, wires))
    if not many:
        return None
    wire = sorted({version for member in members for version in member.wire})
    speaks = " and ".join(map(str, wire)) or "none that is known"
    who = "agent speaks" if many == 1 else "agents speak"
    return f"incompatible: {many} {who} no version of its wire ({speaks})"
