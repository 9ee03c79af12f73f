"""Check the config files of schedulers, and held calls, for `toolgate doctor`. Changes nothing.

A file is read as `toolgate scheduler run NAME --config FILE` reads it. The entry-point group
`toolgate.checks` names these checks.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from toolgate_bus.commands.doctor.check import Check, Context
from toolgate_bus.errors import BusDown, ConfigError, ToolgateError
from toolgate_bus.fleet.finding import Finding, error, fine, how_many, notice, warning
from toolgate_bus.state.notifications import MemoryNotices
from toolgate_bus.transport.redis.client.readonly import is_refusal
from toolgate_bus.transport.redis.storage.store import RedisStore

from toolgate_schedulers.shipped.approval.queue import ApprovalQueue
from toolgate_schedulers.worker.loading import load

HELD: Final = "held calls"
LONG_S: Final = 300.0
"""Seconds after which a held call has waited long; half of its time if that is less."""


async def _configs(context: Context) -> Sequence[Finding]:
    return [one for name, file in context.configs for one in _config(name, file)]


def _config(name: str, file: Path) -> list[Finding]:
    try:
        made = load(name, config=file)
    except ConfigError as wrong:
        change = f"correct {file} (docs/schedulers has every setting), then reload: kill -HUP its process"
        return [error("config", "config-wrong", str(wrong), change)]
    told = f"{file}: valid for {made.name} (priority {made.priority}, tools {' '.join(made.tools)})"
    return [fine("config", "config-read", told)]


async def _check_holds(context: Context) -> Sequence[Finding]:
    if context.commands is None:
        raise BusDown("there is no server to check")
    store = RedisStore(context.commands, context.namespace)
    by_scheduler = Counter(key.split(":")[1] for key in await store.keys("hold:"))
    alive = {member.name for member in context.view.members}
    found = [
        _report_abandoned(name, by_scheduler[name]) for name in sorted(by_scheduler) if name not in alive
    ]

    async def list_orchestrators() -> Collection[str]:
        return context.view.orchestrators

    found += await _check_waiting(ApprovalQueue(store, MemoryNotices(), list_orchestrators))
    total = how_many(sum(by_scheduler.values()), "call")
    return found or [fine(HELD, "held", f"{total} held" if by_scheduler else "no call is held")]


def _report_abandoned(name: str, many: int) -> Finding:
    what = (
        f"{name} holds {how_many(many, 'call')}, and no replica of it is alive: they are denied when they "
        "expire"
    )
    return error(
        HELD, "held-abandoned", what, f"toolgate scheduler run {name}: any replica gives the answers"
    )


async def _check_waiting(desk: ApprovalQueue) -> list[Finding]:
    try:
        waiting = await desk.list_waiting()
    except ToolgateError as raised:
        if not is_refusal(raised):
            raise
        what = "the waiting times of held calls were not checked: this user may not read approvals"
        return [notice(HELD, "held-not-shown", what, "check as the user operator, or as an administrator")]
    long = []
    for one in waiting:
        allowed = one.approval.expires_s  # 0: its record is gone
        if allowed > 0 and allowed - one.seconds_left >= min(LONG_S, allowed / 2):
            long.append(one)
    if not long:
        return []
    first = min(long, key=lambda one: one.seconds_left)
    waited = first.approval.expires_s - first.seconds_left
    what = (
        f"{how_many(len(long), 'held call')} have waited long for a person, the first "
        f"({first.approval.question.tool_name}, "
        f"{first.approval.id[:8]}) for {waited:.0f} s; it is denied in {first.seconds_left:.0f} s"
    )
    change = "toolgate approvals list, then approve or deny; or raise `expires_s` in the approval's config"
    return [warning(HELD, "held-long", what, change)]


CHECKS = (Check("configs", "config", _configs, frozenset({"config"})), Check("held", HELD, _check_holds))
