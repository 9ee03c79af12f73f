"""`toolgate shards`: show or set the number of shards that agents spread over, and who reads each."""

import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, Final

import anyio
import typer

from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import (
    JsonOption,
    NamespaceOption,
    RedisOption,
    console,
    err_console,
    join_bus,
    run_async,
)
from toolgate_bus.commands.table import Table
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.protocol.keys import MAX_SHARDS, Keys, shard_of
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster, RosterView
from toolgate_bus.transport.redis.roster.shards import read_count, write_count

LOOK_S: Final = 0.1
_COLUMNS: Final = ("shard", "processes of agents", "not read by")


@dataclass(frozen=True, slots=True)
class ShardState:
    """One shard, as the roster shows it."""

    number: int
    orchestrators: int
    """Number of agents' processes in it."""
    unread: tuple[str, ...]
    """Live schedulers that have a replica which does not read it."""


def describe_shards(count: int, view: RosterView) -> list[ShardState]:
    """Return the shards that new orchestrators may draw, and those that older orchestrators still use."""
    lying = [shard_of(name) for name in view.orchestrators]
    return [
        ShardState(
            shard,
            lying.count(shard),
            tuple(sorted({member.name for member in view.members if shard not in member.shards})),
        )
        for shard in sorted({*range(count), *lying})
    ]


def shards(
    count: Annotated[
        int | None,
        typer.Argument(min=1, max=MAX_SHARDS, metavar="[N]", help="Number of shards for new agents."),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="Longest wait until all schedulers read them."),
    ] = 10.0,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show or set the number of shards that agents spread over: toolgate shards 3

    In a cluster the streams of a namespace lie in one slot, on one node. With N shards they lie in N
    slots. A process of agents draws a shard when it starts, out of those that every live scheduler
    reads, and stays there. A lower number is for processes that start; others stay in their shard.

    Exit codes: 0 shown or set, 1 some scheduler does not read them all after --wait seconds (new
    agents use only those that all read), or the bus is away, 2 an option is wrong, or no server was
    found.
    """
    with join_bus(redis, namespace, None) as settings:
        url, where = str(settings.redis), settings.namespace
        set_to, found = run_async(lambda: _show_or_set(url, where, count, wait))
    unread = sorted({name for one in found if one.number < set_to for name in one.unread})
    if as_json:
        print_json(_as_json(set_to, found, unread))
    else:
        console.print(f"New agents spread over {set_to} {'shard' if set_to == 1 else 'shards'}.")
        console.print(_table(found))
        for name in unread:
            err_console.print(
                f"[yellow]{escape(name)} does not read all of them[/]: new agents use only those that it "
                "reads. An older version reads only the first."
            )
    if unread and count is not None:
        raise typer.Exit(1)


async def _show_or_set(
    url: str, namespace: str, count: int | None, wait_s: float
) -> tuple[int, list[ShardState]]:
    async with aclosing(RedisCommands(url, "toolgate-shards", connections=1)) as commands:
        keys, roster = Keys(namespace), Roster(commands, namespace)
        if count is None:
            return await _look(commands, keys, roster)
        await write_count(commands, keys, count)
        until = time.monotonic() + wait_s
        while True:
            now, found = await _look(commands, keys, roster)
            is_read = not any(one.unread for one in found if one.number < now)
            if is_read or time.monotonic() >= until:
                return now, found
            await anyio.sleep(LOOK_S)


async def _look(commands: Commands, keys: Keys, roster: Roster) -> tuple[int, list[ShardState]]:
    count = await read_count(commands, keys)
    return count, describe_shards(count, await roster.read())


def _as_json(count: int, found: list[ShardState], unread: list[str]) -> dict[str, Any]:
    return {
        "shards": count,
        "each": [
            {"shard": one.number, "orchestrators": one.orchestrators, "not_read_by": list(one.unread)}
            for one in found
        ],
        "not_read_by": unread,
    }


def _table(found: list[ShardState]) -> Table:
    table = Table(_COLUMNS, right=_COLUMNS[:2], wrap=_COLUMNS[2:])
    for one in found:
        table.add_row(str(one.number), str(one.orchestrators), escape(", ".join(one.unread) or "·"))
    return table
