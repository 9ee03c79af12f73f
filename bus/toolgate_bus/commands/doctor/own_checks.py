"""The bus's own checks of a server that answers: each reads (`collected`), then judges."""

import asyncio
from collections.abc import Sequence

from toolgate_bus.commands.doctor.budgets import budget_findings
from toolgate_bus.commands.doctor.check import Check, Context
from toolgate_bus.commands.doctor.collected import books, inboxes, info_of, kept_facts, server_state
from toolgate_bus.commands.doctor.facts import facts_findings
from toolgate_bus.commands.doctor.finding import Finding, error, fine, warning
from toolgate_bus.commands.doctor.inboxes import inbox_findings
from toolgate_bus.commands.doctor.roster import roster_findings
from toolgate_bus.commands.doctor.server import server_findings
from toolgate_bus.errors import BusDown, ConfigError
from toolgate_bus.server.settings import read_keys
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.reads import read_time

__all__ = ["KEYS", "OWN", "SERVER"]


def _commands(context: Context) -> Commands:
    if context.commands is None:
        raise BusDown("there is no server to look at")
    return context.commands


async def _server(context: Context) -> Sequence[Finding]:
    return server_findings(await server_state(_commands(context), embedded=context.embedded))


async def _keys(context: Context) -> Sequence[Finding]:
    """The keys file of the command; with a plan, the plan's check tells more of it."""
    if context.keys is None or context.plan is not None:
        return ()
    try:
        keys = read_keys(context.keys)
    except ConfigError as wrong:
        change = "write one `name: key` a line; a key is made by `openssl rand -hex 32`"
        return [error("keys", "keys-wrong", str(wrong), change)]
    without = sorted({member.name for member in context.view.members} - set(keys))
    if without:
        what = f"{context.keys} has no key for {', '.join(without)}: agents with it do not ask these"
        return [warning("keys", "keys-missing", what, f"add `{without[0]}: KEY` to it, here and there")]
    return [fine("keys", "keys", f"{context.keys} has {len(keys)} keys")]


async def _roster(context: Context) -> Sequence[Finding]:
    return roster_findings(context.view)


async def _inboxes(context: Context) -> Sequence[Finding]:
    return inbox_findings(await inboxes(_commands(context), context.namespace, context.view))


async def _budgets(context: Context) -> Sequence[Finding]:
    commands = _commands(context)
    found, now = await asyncio.gather(books(commands, context.namespace), read_time(commands))
    return budget_findings(found, now)


async def _facts(context: Context) -> Sequence[Finding]:
    commands = _commands(context)
    streams = await kept_facts(commands, context.namespace, context.view)
    most = (await info_of(commands)).get("maxmemory", "0")
    return facts_findings(streams, int(most) if most.isdecimal() else 0)


KEYS = Check("keys", "keys", _keys, frozenset())
SERVER = Check("server", "server", _server)
"""Alone, before all others: it measures round trips."""
OWN = (
    Check("roster", "roster", _roster),
    Check("inboxes", "inboxes", _inboxes),
    Check("budgets", "budgets", _budgets),
    Check("facts", "facts", _facts),
)
