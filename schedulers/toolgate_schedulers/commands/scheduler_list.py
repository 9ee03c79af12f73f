"""List the living schedulers for `toolgate scheduler list`: the replicas of one name on one line.

A shadow's line has the number of decisions that it would have changed, out of those with its verdict in
the newest part of the record. There is no such count for all orchestrators and all time.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.table import Table
from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.ports import Commands, Member
from toolgate_bus.transport.redis.client.local_commands import open_commands
from toolgate_bus.transport.redis.roster.roster import Roster, RosterView
from toolgate_bus.transport.replica_differences import UNNAMED, revisions_alive, who_cannot_ask

from toolgate_schedulers.worker.bus_address import bus_url, no_bus

if TYPE_CHECKING:
    from toolgate_bus.facts.shadow_report import ShadowTotals

_COLUMNS = ("scheduler", "replicas", "priority", "tools", "answered", "late", "last seen", "notes")
_RIGHT = ("replicas", "priority", "answered", "late", "last seen")


@dataclass(frozen=True, slots=True)
class Line:
    """Scheduler with its living replicas; priority, tools and shadow are those of the replica started
    last."""

    name: str
    members: tuple[Member, ...]
    newest: Member
    """Replica that counts if they disagree."""
    disagree: bool
    """True if replicas differ in priority, tools or shadow: an update is under way, or stuck."""
    answer_count: int
    """Number of questions that the living replicas have answered since their start."""
    late: int
    """Number of these that were answered too late."""
    age: float
    """Seconds since the last heartbeat of any replica."""
    incompatible: str | None = None
    """Note on agents that cannot ask it; None if all can."""
    shadow_totals: "ShadowTotals | None" = None
    """Decisions that it would have changed; None if it had no verdicts as a shadow."""


def lines_of(
    members: Iterable[Member],
    totals: "Mapping[str, ShadowTotals] | None" = None,
    wires: Mapping[str, Collection[int]] | None = None,
) -> list[Line]:
    """Return one line for each name, highest priority first; `totals` are those of the shadows.

    `wires` are the versions of the wire that each living orchestrator speaks.
    """
    told = totals or {}
    ordered = sorted(members, key=lambda member: (member.name, member.started, member.replica))
    lines = []
    for name, group in groupby(ordered, key=lambda member: member.name):
        own = tuple(group)
        lines.append(
            Line(
                name,
                own,
                newest=max(own, key=lambda member: member.started),
                disagree=len({(one.priority, one.tools, one.shadow) for one in own}) > 1,
                answer_count=sum(one.answered for one in own),
                late=sum(one.late for one in own),
                age=min(one.age for one in own),
                incompatible=who_cannot_ask(own, wires or {}),
                shadow_totals=told.get(name),
            )
        )
    return sorted(lines, key=lambda line: (-line.newest.priority, line.name))


def table_of(lines: Sequence[Line]) -> Table:
    """Return the table for people."""
    table = Table(
        _COLUMNS,
        right=_RIGHT,
        cut={"scheduler"},
        wrap={"tools", "notes"},
        spare=("late", "answered", "last seen", "priority"),
    )
    for line in lines:
        notes = ["shadow"] if line.newest.shadow else []
        if told := line.shadow_totals:
            notes.append(f"would have changed {told.disagreement_count} of {told.heard}")
        notes += ["replicas disagree: the newest start counts"] if line.disagree else []
        notes += [told for told in (line.incompatible, revisions_alive(line.members)) if told]
        table.add_row(
            escape(line.name),
            str(len(line.members)),
            str(line.newest.priority),
            escape(" ".join(line.newest.tools)),
            str(line.answer_count),
            str(line.late),
            f"{line.age:.1f} s ago",
            ", ".join(notes),
        )
    return table


def readers_line(by_role: Mapping[str, int]) -> str | None:
    """Return a line about the other readers of facts; None if there are none."""
    told = [f"{count} {role}{'s' if count > 1 else ''}" for role, count in by_role.items() if count]
    return f"Facts are read by {', '.join(told)}." if told else None


def as_json(line: Line) -> dict[str, Any]:
    """Return the object for scripts, with its replicas."""
    return {
        "name": line.name,
        "replicas": len(line.members),
        "priority": line.newest.priority,
        "tools": list(line.newest.tools),
        "shadow": line.newest.shadow,
        "shadow_totals": line.shadow_totals.as_json() if line.shadow_totals else None,
        "answered": line.answer_count,
        "late": line.late,
        "last_seen_s": round(line.age, 3),
        "disagree": line.disagree,
        "incompatible": line.incompatible,
        "revisions": dict(Counter(member.revision.text or UNNAMED for member in line.members)),
        "members": [
            {
                "replica": member.replica,
                "revision": member.revision.text,
                "build": member.build,
                "wire": list(member.wire),
                "pid": member.pid,
                "host": member.host,
                "answered": member.answered,
                "late": member.late,
                "last_seen_s": round(member.age, 3),
            }
            for member in line.members
        ],
    }


async def read_roster(settings: BusSettings) -> "tuple[RosterView, dict[str, ShadowTotals], float]":
    """Read the roster, the recent disagreements of living shadows, and the seconds that these reach back."""
    try:
        async with open_commands(bus_url(settings), "toolgate-list") as commands:
            view = await Roster(commands, settings.namespace).read(ages=True)
            if not any(member.shadow for member in view.members):
                return view, {}, 0.0
            return view, *await _count_disagreements(commands, settings.namespace)
    except ConfigError:
        raise
    except TransportError as error:
        raise no_bus(settings, error) from None


async def _count_disagreements(commands: Commands, namespace: str) -> "tuple[dict[str, ShadowTotals], float]":
    # Import here: these modules take longer to load than the rest of this command.
    from toolgate_bus.facts.join import join_decisions
    from toolgate_bus.facts.reader import FactsReader
    from toolgate_bus.facts.shadow_report import shadow_totals

    facts, reach_s = await FactsReader(commands, namespace).newest()
    return shadow_totals(join_decisions(facts)), reach_s
