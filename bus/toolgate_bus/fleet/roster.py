"""Judge the roster: replicas, orchestrators, readers of facts."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from toolgate_bus.fleet.finding import Finding, fine, how_many, notice, warning
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.roster.roster import RosterView
from toolgate_bus.transport.replica_differences import (
    UNNAMED,
    revisions,
    revisions_alive,
    strangers,
    who_cannot_ask,
)

SUBJECT: Final = "roster"
LATE: Final = 0.1
ENOUGH: Final = 20
"""Minimum number of answers for which the share of late ones is judged."""
MAX_NAMES: Final = 5


def count_revisions(view: RosterView) -> dict[str, int]:
    """Return the number of different configurations that the replicas of each scheduler rule by."""
    by_name = group_by_scheduler(view.members)
    return {name: len(revisions(members)) for name, members in sorted(by_name.items())}


def find_slot_givers(members: Iterable[Member]) -> set[str]:
    """Return the names of the schedulers that give slots."""
    return {one.name for one in members if "admit" in one.phases and not one.shadow}


def group_by_scheduler(members: Iterable[Member]) -> dict[str, list[Member]]:
    """Return the replicas of each scheduler."""
    by_name: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        by_name[member.name].append(member)
    return by_name


def roster_findings(view: RosterView) -> list[Finding]:
    """Return all findings about the roster."""
    by_name = group_by_scheduler(view.members)
    found = [one for name in sorted(by_name) for one in _scheduler(name, by_name[name], view)]
    return [*_nobody(view), *found, *_orchestrators(view, by_name), *_readers(view)]


def _nobody(view: RosterView) -> list[Finding]:
    """Return a finding if no scheduler is alive."""
    if view.members:
        return []
    what, change = "no scheduler is alive: nobody rules on calls", "toolgate scheduler run NAME --config FILE"
    if view.orchestrators:
        return [warning(SUBJECT, "roster-nobody", f"agents are running, but {what}", change)]
    return [notice(SUBJECT, "roster-nobody", what, change)]


def _scheduler(name: str, members: Sequence[Member], view: RosterView) -> list[Finding]:
    found = [
        *_strangers(name, members, view),
        *_signatures(name, members),
        *_disagreement(name, members),
        *_revisions(name, members),
        *_lateness(name, members),
    ]
    if len(members) == 1:
        what = f"{name} has one replica: while it restarts or hangs, {name} gives no answers"
        change = f"start another under the same name: `toolgate scheduler run … --name {name}`"
        found.append(notice(SUBJECT, "roster-one-replica", what, f"{change}, or --replicas 2"))
    return found or [
        fine(SUBJECT, "roster-scheduler", f"{name}: {how_many(len(members), 'replica')} that agree")
    ]


def _disagreement(name: str, members: Sequence[Member]) -> list[Finding]:
    """Return findings about replicas of one scheduler that announce different things."""
    ordered = sorted(members, key=lambda member: member.started)
    newest, told = ordered[-1], []
    for label, values in (
        ("priority", [str(member.priority) for member in ordered]),
        ("tools", [" ".join(member.tools) for member in ordered]),
        ("shadow", ["yes" if member.shadow else "no" for member in ordered]),
        ("phases", [" ".join(member.phases) for member in ordered]),
    ):
        if len(set(values)) > 1:
            told.append(f"{label} {' and '.join(dict.fromkeys(values))}")
    if not told:
        return []
    common = " Only phases that all of them have count." if told[-1].startswith("phases") else ""
    what = f"the replicas of {name} disagree: {'; '.join(told)}.{common}"
    what += f" The settings of the newest ({newest.replica}) count"
    terms = (newest.priority, newest.tools, newest.shadow, newest.phases)
    others = [one for one in ordered if (one.priority, one.tools, one.shadow, one.phases) != terms]
    old = _first([_whose(one) for one in others])
    change = (
        f"end the older ones ({old}), or start all with the same --priority, --tools, --shadow and config"
    )
    return [warning(SUBJECT, "roster-disagree", what, change)]


def _strangers(name: str, members: Sequence[Member], view: RosterView) -> list[Finding]:
    """Return a finding if some agents cannot ask a scheduler, as their versions of the wire differ."""
    told = who_cannot_ask(members, view.wires)
    if told is None:
        return []
    what = f"{name} is {told}: if they require it, their calls are denied, else they do not ask it"
    agents = _first(strangers(members, view.wires))
    change = f"upgrade {name} or those agents ({agents}), so that both speak one version"
    return [warning(SUBJECT, "roster-incompatible", what, change)]


def _signatures(name: str, members: Sequence[Member]) -> list[Finding]:
    """Return a finding if replicas sign in the way of another release."""
    older = [member for member in members if member.signs_otherwise]
    if not older:
        return []
    what = (
        f"{name} ({_first([_whose(one) for one in older])}) signs as another release of Toolgate does: "
        "agents of this release reject its messages, and it answers none of their questions"
    )
    change = "stop the whole fleet, bring it to one release, start it, and push its configurations again"
    return [warning(SUBJECT, "roster-signatures", what, change)]


def _revisions(name: str, members: Sequence[Member]) -> list[Finding]:
    """Return a finding if replicas of one scheduler rule by different configurations."""
    told = revisions_alive(members)
    if told is None:
        return []
    ordered = sorted(members, key=lambda member: member.started)
    newest = ordered[-1]
    old = _first([_whose(member) for member in ordered if member.revision != newest.revision])
    what = f"{name} has {told}: chance decides which of them rules on a call"
    right = newest.revision.text or UNNAMED
    change = f"end those that do not rule by {right} ({old}), or give all the same config"
    return [warning(SUBJECT, "roster-revisions", what, change)]


def _whose(member: Member) -> str:
    return f"pid {member.pid} on {member.host or 'its host'}"


def _lateness(name: str, members: Sequence[Member]) -> list[Finding]:
    """Return a finding if many answers of a scheduler come too late."""
    answered, late = sum(one.answered for one in members), sum(one.late for one in members)
    if answered < ENOUGH or late < LATE * answered:
        return []
    what = f"{late} of {answered} answers of {name} came too late, and counted as silence"
    change = "raise `patience_ms` in the plans, start more replicas, or make it faster"
    return [warning(SUBJECT, "roster-late", what, change)]


def _orchestrators(view: RosterView, alive: Mapping[str, object]) -> list[Finding]:
    found = [
        fine(SUBJECT, "roster-orchestrators", f"{how_many(len(view.orchestrators), 'orchestrator')} alive")
    ]
    missed = sorted({name for reads in view.orchestrators.values() for name in reads} - set(alive))
    if missed:
        names = _first(missed)
        what = f"agents wait for verdicts of {names}, but no such scheduler is alive"
        change = f"toolgate scheduler run {missed[0]}; or remove it from `required` in their plans"
        found.append(warning(SUBJECT, "roster-missed", what, change))
    return [*found, *_unrequired(view)]


def _unrequired(view: RosterView) -> list[Finding]:
    """Warn of schedulers that grant scarce resources and are not required: calls run without their limits."""
    rules = {one.name: one for one in sorted(view.members, key=lambda one: one.started)}
    found = []
    for name in sorted(name for name, one in rules.items() if "admit" in one.phases and not one.shadow):
        open_ = sorted(agents for agents, required in view.required.items() if name not in required)
        if open_:
            many = f"{len(open_)} of {how_many(len(view.orchestrators), 'orchestrator')}"
            what = (
                f"{name} grants scarce resources, but {many} ({_first(open_)}) do not require it: while no "
                "replica of it answers, calls from there run without its limits"
            )
            plan = f"orchestrator: {{config: {{toolgate: {{required: [{name}]}}}}}}"
            change = f"require it in their plans ({plan}), or in Gate.open(required=[{name!r}])"
            found.append(warning(SUBJECT, "roster-not-required", what, change))
    return found


def _readers(view: RosterView) -> list[Finding]:
    """Return findings about services that read facts: exporter, archiver and such."""
    roles = view.readers_by_role()
    found = []
    for role, lack, change in (
        ("exporter", "are no metrics of the fleet, and no alerts", "toolgate exporter"),
        ("archiver", "is no record beyond the last hour", "toolgate decisions archive DIR"),
    ):
        if roles[role]:
            found.append(fine(SUBJECT, f"roster-{role}", f"{how_many(roles[role], role)} alive"))
        else:
            what = f"no {role} is alive: there {lack}"
            found.append(notice(SUBJECT, f"roster-{role}", what, change))
    return found


def _first(names: Sequence[str]) -> str:
    rest = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")
