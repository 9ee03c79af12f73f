"""Run the checks: first whether the server answers, then everything else. Each has a time limit.

A server that is away or hangs is one finding; plan and config are checked even so. A check that takes
too long, may not look or breaks is a finding too.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final, NamedTuple

from toolgate_bus.commands.doctor.check import Check, Context
from toolgate_bus.commands.doctor.rights import try_rights
from toolgate_bus.errors import BusDown, ConfigError, ToolgateError
from toolgate_bus.fleet.books import budget_findings
from toolgate_bus.fleet.cluster import check_cluster
from toolgate_bus.fleet.fact_streams import facts_findings
from toolgate_bus.fleet.finding import Finding, error, fine, notice, warning
from toolgate_bus.fleet.inboxes import inbox_findings
from toolgate_bus.fleet.reader import (
    read_fact_streams,
    read_inboxes,
    read_kept_books,
    read_server,
    read_server_info,
)
from toolgate_bus.fleet.replication import read_state, replication_findings
from toolgate_bus.fleet.roster import roster_findings
from toolgate_bus.fleet.sentinels import check_sentinels
from toolgate_bus.fleet.server import server_findings
from toolgate_bus.fleet.shards import shards_findings
from toolgate_bus.installation import EXTRAS, how_to_install
from toolgate_bus.protocol.cluster_url import is_cluster_url
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.sentinel_url import is_sentinel_url
from toolgate_bus.server.settings import read_keys, redact_url
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.client.diagnosis import diagnose
from toolgate_bus.transport.redis.client.readonly import ReadOnlyCommands, is_refusal
from toolgate_bus.transport.redis.roster.roster import Roster, RosterView
from toolgate_bus.transport.redis.roster.shards import find_count
from toolgate_bus.transport.redis.storage.reads import ping, read_time
from toolgate_bus.transport.redis.storage.retention import read_usage

ANSWER_S: Final = 6.0
"""Seconds that a server has for its first answer. This is longer than the client's own wait."""
CHECK_S: Final = 12.0
CONNECTIONS: Final = 4
SUBJECT: Final = "server"


class RightsQuery(NamedTuple):
    """Role and user whose rights are checked."""

    role: str
    scheduler: str = ""
    user: str | None = None


async def run_checks(
    context: Context, checks: Iterable[Check], asked: RightsQuery | None = None
) -> list[Finding]:
    """Run all checks and return what they find. `context` has no commands yet; its `redis` may be None."""
    checks = [KEYS, *checks]
    if context.redis is None:
        return await _run(context, checks)
    try:
        commands = RedisCommands(context.redis, "toolgate-doctor", connections=CONNECTIONS)
    except ToolgateError as raised:
        return [explain_failure(context.redis, raised), *await _run(context, checks)]
    async with aclosing(commands):
        return await _with_server(context, context.redis, commands, checks, asked)


async def _with_server(
    context: Context, url: str, commands: RedisCommands, checks: list[Check], asked: RightsQuery | None
) -> list[Finding]:
    try:
        async with asyncio.timeout(ANSWER_S):
            await ping(commands)
    except (ToolgateError, TimeoutError) as raised:
        return [explain_failure(url, raised), *await _run(context, checks)]
    context = replace(context, commands=ReadOnlyCommands(commands))
    reached = fine(SUBJECT, "server-reached", f"{redact_url(url)} answers")
    found = [reached, *await _one(SERVER, context)]
    if is_sentinel_url(url):
        found += await _one(Check("sentinels", "sentinels", lambda _: check_sentinels(url)), context)
    if is_cluster_url(url):
        namespace = context.namespace
        looked = Check("cluster", "cluster", lambda one: check_cluster(url, namespace, _commands(one)))
        found += await _one(looked, context)
    context, of_roster = await _with_roster(context)
    if asked is not None:
        rights = Check("rights", "rights", lambda one: try_rights(commands, url, one.namespace, *asked))
        found += await _one(rights, context)
    return [*found, *of_roster, *await _run(context, [*OWN, *checks])]


def explain_failure(url: str, raised: ToolgateError | TimeoutError) -> Finding:
    """Return the finding for the error of the first contact with a server: why it cannot be used."""
    said = "timed out" if isinstance(raised, TimeoutError) else str(raised.__cause__ or raised)
    trouble = diagnose(url, said, refused=isinstance(raised, ConfigError))
    return error(SUBJECT, f"server-{trouble.name}", f"{redact_url(url)} {trouble.what}", trouble.change)


async def _with_roster(context: Context) -> tuple[Context, list[Finding]]:
    """Return the context with the roster, and findings if it could not be read."""
    views: list[RosterView] = []

    async def read(context: Context) -> Sequence[Finding]:
        if context.commands is not None:
            views.append(await Roster(context.commands, context.namespace).read())
        return ()

    found = await _one(Check("roster", "roster", read), context)
    return replace(context, view=views[0]) if views else context, found


async def _run(context: Context, checks: Iterable[Check]) -> list[Finding]:
    """Run all checks whose needs are met, at once. Return their findings in the order of the checks."""
    there = [check for check in checks if check.needs <= context.available_needs]
    return [one for found in await asyncio.gather(*(_one(each, context) for each in there)) for one in found]


async def _one(check: Check, context: Context) -> list[Finding]:
    try:
        async with asyncio.timeout(CHECK_S):
            return list(await check.run(context))
    except TimeoutError:
        what = f"this check did not finish within {CHECK_S:.0f} s"
        change = "run doctor again; if it stays, check the server's load (`redis-cli --latency`, SLOWLOG GET)"
        return [warning(check.subject, f"{check.name}-slow", what, change)]
    except ToolgateError as raised:
        if isinstance(raised, ConfigError) and is_refusal(raised):
            what = f"this was not checked: {str(raised).partition(': ')[2] or raised}"
            change = "run doctor as a user that may: `doctor` of deploy/redis/roles, or an administrator"
            return [notice(check.subject, f"{check.name}-not-shown", what, change)]
        what = f"this could not be checked: {raised}"
        return [error(check.subject, f"{check.name}-failed", what, "look at the server; run doctor again")]
    except Exception as raised:  # noqa: BLE001 - a check may be another package's: told, and the others go on
        return [_broken(check, raised)]


def _broken(check: Check, raised: Exception) -> Finding:
    module = (raised.name or "").partition(".")[0] if isinstance(raised, ModuleNotFoundError) else ""
    if module in EXTRAS:
        what = f"this was not checked: {module} is not installed"
        return error(
            check.subject, f"{check.name}-not-installed", what, f"run `{how_to_install(EXTRAS[module])}`"
        )
    what = f"the check {check.name} itself failed: {type(raised).__name__}: {raised}"
    return error(check.subject, f"{check.name}-broken", what, "report this to the authors of that check")


# ---------------------------------------------------------------------- the bus's own checks


def _commands(context: Context) -> Commands:
    if context.commands is None:
        raise BusDown("there is no server to check")
    return context.commands


async def _server(context: Context) -> Sequence[Finding]:
    clustered = context.redis is not None and is_cluster_url(context.redis)
    return server_findings(
        await read_server(_commands(context), embedded=context.embedded, clustered=clustered)
    )


async def _keys(context: Context) -> Sequence[Finding]:
    """Check the keys file of the command. If there is a plan, its own check says more about the file."""
    if context.keys is None or context.plan is not None:
        return ()
    try:
        keys = read_keys(context.keys)
    except ConfigError as wrong:
        change = "write one `name: key` per line; make a key with `openssl rand -hex 32`"
        return [error("keys", "keys-wrong", str(wrong), change)]
    without = sorted({member.name for member in context.view.members} - set(keys))
    if without:
        what = f"{context.keys} has no key for {', '.join(without)}: agents that use it do not ask these"
        return [warning("keys", "keys-missing", what, f"add `{without[0]}: KEY`, here and at the scheduler")]
    return [fine("keys", "keys", f"{context.keys} has {len(keys)} keys")]


async def _roster(context: Context) -> Sequence[Finding]:
    return roster_findings(context.view)


async def _shards(context: Context) -> Sequence[Finding]:
    return shards_findings(await find_count(_commands(context), Keys(context.namespace)), context.view)


async def _inboxes(context: Context) -> Sequence[Finding]:
    return inbox_findings(await read_inboxes(_commands(context), context.namespace, context.view))


async def _budgets(context: Context) -> Sequence[Finding]:
    commands = _commands(context)
    archived = bool(context.view.readers_by_role()["archiver"])
    found, now = await asyncio.gather(
        read_kept_books(commands, context.namespace, archived=archived), read_time(commands)
    )
    return budget_findings(found, now)


async def _replicas(context: Context) -> Sequence[Finding]:
    return replication_findings(await read_state(_commands(context), context.namespace, context.view.members))


async def _facts(context: Context) -> Sequence[Finding]:
    commands = _commands(context)
    streams = await read_fact_streams(commands, context.namespace, context.view)
    most = (await read_server_info(commands)).get("maxmemory", "0")
    usage = await read_usage(commands, context.namespace)
    return facts_findings(streams, int(most) if most.isdecimal() else 0, usage)


KEYS = Check("keys", "keys", _keys, frozenset())
SERVER = Check("server", "server", _server)
"""Check of the server. It runs alone, before all others, since it measures round trips."""
OWN = (
    Check("roster", "roster", _roster),
    Check("replicas", "replicas", _replicas),
    Check("shards", "shards", _shards),
    Check("inboxes", "inboxes", _inboxes),
    Check("budgets", "budgets", _budgets),
    Check("facts", "facts", _facts),
)
