"""`toolgate policy status`: which rules are in force at each living gate.

A gate answers for a scheduler by the local table that it announces. After a change of rules a gate may use
the old table until it has noticed: for milliseconds as a rule, for 3 seconds at most.
"""

import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
import typer
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import (
    JsonOption,
    NamespaceOption,
    RedisOption,
    console,
    join_bus,
    run_async,
)
from toolgate_bus.commands.table import Table
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster, RosterView
from toolgate_bus.transport.replica_differences import UNNAMED

LOOK_S = 0.1
_COLUMNS = ("scheduler", "revision", "gates by table", "gates that ask", "old table at", "state")


@dataclass(frozen=True, slots=True)
class TableState:
    """The local table of one scheduler, and the living gates that answer by it."""

    name: str
    revisions: tuple[str, ...]
    digest: str
    """Digest of the table; empty without one, or while replicas differ."""
    by_table: int
    """Number of gates that have it, and answer by it."""
    asking: int
    """Number of gates that ask the scheduler."""
    old: tuple[str, ...]
    """Gates that may answer by an older table."""

    @property
    def is_everywhere(self) -> bool:
        """True if every call is decided by the rules that the scheduler announces."""
        return not self.old and len(self.revisions) == 1


def describe_tables(view: RosterView) -> list[TableState]:
    """Return the state of each living scheduler that is no shadow."""
    found = []
    for name in sorted({one.name for one in view.members if not one.shadow}):
        own = [one for one in view.members if one.name == name]
        digests = {one.table for one in own}
        digest = digests.pop() if len(digests) == 1 else ""
        # A gate that has not seen this scheduler yet may still use an older table of it.
        seen = {gate: told.get(name) for gate, told in view.tables.items() if told is not None}
        current = {
            gate for gate, one in seen.items() if one is not None and one == digest[: len(one) or None]
        }
        revisions = tuple(sorted({one.revision.text or UNNAMED for one in own}))
        by_table = len(current) if digest else 0
        old = tuple(sorted(seen.keys() - current))
        asking = len(view.tables) - by_table - len(old)
        found.append(TableState(name, revisions, digest, by_table, asking, old))
    return found


def status(
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Longest wait until all gates have the rules.")
    ] = 0.0,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show which rules are in force at each living gate: toolgate policy status --wait 5

    A gate answers by a scheduler's local table where its rules are certain, and asks about the rest.
    A scheduler without a table is asked about each call.

    Exit codes: 0 the rules that each scheduler announces are in force everywhere; 1 some gate still
    uses older rules, replicas differ, or no scheduler is alive; 2 an option is wrong, or no server was found.
    """
    with join_bus(redis, namespace, None) as settings:
        url, where = str(settings.redis), settings.namespace
        found = run_async(lambda: _look(url, where, wait))
    if as_json:
        for one in found:
            print_json(_as_json(one))
    elif found:
        console.print(_table(found))
    else:
        console.print("No scheduler is alive here. Start one: toolgate scheduler run policy --config FILE")
    if not found or not all(one.is_everywhere for one in found):
        raise typer.Exit(1)


async def _look(url: str, namespace: str, wait_s: float) -> list[TableState]:
    until = time.monotonic() + wait_s
    async with aclosing(RedisCommands(url, "toolgate-policy-status", connections=1)) as commands:
        roster = Roster(commands, namespace)
        while True:
            found = describe_tables(await roster.read())
            if (found and all(one.is_everywhere for one in found)) or time.monotonic() >= until:
                return found
            await anyio.sleep(LOOK_S)


def _as_json(one: TableState) -> dict[str, Any]:
    return {
        "scheduler": one.name,
        "revisions": list(one.revisions),
        "table": one.digest,
        "gates_by_table": one.by_table,
        "gates_that_ask": one.asking,
        "old_table_at": list(one.old),
        "in_force_everywhere": one.is_everywhere,
    }


def _table(found: list[TableState]) -> Table:
    table = Table(
        _COLUMNS,
        right=_COLUMNS[2:4],
        cut={"scheduler", "revision"},
        wrap={"old table at"},
        spare=_COLUMNS[2:4],
    )
    for one in found:
        table.add_row(
            escape(one.name),
            escape(", ".join(one.revisions)),
            str(one.by_table) if one.digest else "no table",
            str(one.asking),
            escape(", ".join(one.old)) or "·",
            "in force" if one.is_everywhere else "[yellow]not yet everywhere[/]",
        )
    return table
