"""`toolgate queue`: show the calls that have slots and those that wait, and change their order or limits."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import Annotated, Final, TypeVar

import anyio
import typer
from rich.console import Group
from rich.live import Live

from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import (
    JsonOption,
    NamespaceOption,
    RedisOption,
    console,
    err_console,
    find_user,
    join_bus,
    refuse_options_before,
    run_async,
)
from toolgate_bus.commands.table import Table
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ConfigError
from toolgate_bus.ledger.slots.queue import MAX_ABOUT, MAX_LEVEL, MAX_LIMIT, as_configured
from toolgate_bus.ledger.slots.redis import QueueOperator
from toolgate_bus.ledger.slots.view import QueuedCall, QueuedPool, read_queue
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster

OVERVIEW = """
See which calls have slots of a scheduler `slots`, and which wait for one.

\b
  toolgate queue                        who has slots, and who waits
  toolgate queue --watch                the same, until Ctrl-C
  toolgate queue move 4f2a              serve a waiting call before all others
  toolgate queue move 4f2a --before 91  serve it just before another
  toolgate queue drop 4f2a              deny a waiting call
  toolgate queue limit browser 2        at most two at a time, from now on
  toolgate queue drain browser          give no new slots; calls go on
  toolgate queue limit browser          use the configured limit again

A pool with a `key` is one pool for each value: `browser/example.org`.
Exit codes: 0 done or shown, 1 the bus is away, 2 an option is wrong, a call
does not wait, or no server was found.
"""

app = typer.Typer(name="queue", help=OVERVIEW, invoke_without_command=True)
Result = TypeVar("Result")
SlotsOption = Annotated[
    str, typer.Option("--name", metavar="NAME", help="Scheduler whose queue this is, if there are several.")
]
CallArgument = Annotated[
    str, typer.Argument(metavar="CALL", help="Decision id of a waiting call, or its beginning.")
]
PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="A pool, or `POOL/KEY` if it has keys.")]
_REFRESH_S: Final = 0.5
_COLUMNS: Final = ("place", "call", "tool", "agent", "session", "tenant", "class", "since", "waits for")
_IDLE: Final = "Nobody has a slot or waits for one."


@app.callback(help=OVERVIEW)
def queue(
    ctx: typer.Context,
    name: SlotsOption = "slots",
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing it, until Ctrl-C.")] = False,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show which calls have slots and which wait."""
    if ctx.invoked_subcommand is not None:
        refuse_options_before(ctx)
        return
    if watch and as_json:
        raise ConfigError("--watch: cannot be combined with --json; run the command repeatedly instead")

    async def look(commands: RedisCommands, where: str) -> list[QueuedPool]:
        if not watch:
            return await read_queue(commands, where, name)
        with Live(console=console, auto_refresh=False) as live:
            while True:
                live.update(_show(await read_queue(commands, where, name)), refresh=True)
                await anyio.sleep(_REFRESH_S)

    found = _on_bus(redis, namespace, look)
    if as_json:
        for pool in found:
            print_json({**asdict(pool), "most": pool.most})
    elif found:
        console.print(_show(found))
    else:
        err_console.print(_IDLE)
        _on_bus(redis, namespace, lambda commands, where: _note_absent(commands, where, name))


@app.command()
def move(
    call: CallArgument,
    last: Annotated[bool, typer.Option("--last", help="Serve it after all others, not before.")] = False,
    to_class: Annotated[
        int | None,
        typer.Option(
            "--class",
            metavar="N",
            min=-MAX_LEVEL,
            max=MAX_LEVEL,
            help="Move it into this class, in its turn there (`priority` of the pool).",
        ),
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            "--before", metavar="CALL", help="Serve it right before this call of the same pool, in its class."
        ),
    ] = None,
    name: SlotsOption = "slots",
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Serve a waiting call before all others: toolgate queue move 4f2a

    It keeps its waiting time. Calls that have a slot keep it. With --before it is served when the
    turn of the other call's tenant comes, and stays before that call. Its slot counts as its own tenant's.
    """
    given = [
        option
        for option, is_given in (
            ("--last", last),
            ("--class", to_class is not None),
            ("--before", before is not None),
        )
        if is_given
    ]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)}: give only one of them")
    level = to_class if to_class is not None else -MAX_LEVEL if last else MAX_LEVEL

    async def change(queue: QueueOperator, id_: str, other: str) -> None:
        if other:
            await queue.move_before(id_, other)
        else:
            await queue.move(id_, level)

    moved = _change(call, name, redis, namespace, change, before)
    _tell("moved", moved, as_json=as_json)


@app.command()
def drop(
    call: CallArgument,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Reason that the LLM is told.")
    ] = "Do something else instead.",
    name: SlotsOption = "slots",
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Take a call out of the queue and deny it with a reason: toolgate queue drop 4f2a --reason "No."

    A call that has its slot is not touched: `toolgate agents stop` ends its agent.
    """
    if not reason.strip() or len(reason) > MAX_ABOUT:
        raise ConfigError(f"--reason: write a text of at most {MAX_ABOUT} characters")

    dropped = _change(call, name, redis, namespace, lambda queue, id_, _: queue.drop(id_, reason.strip()))
    _tell("dropped", dropped, as_json=as_json)


@app.command()
def drain(
    pool: PoolArgument,
    name: SlotsOption = "slots",
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Give no more slots of a pool. Running calls end, others go on waiting: toolgate queue drain browser

    `toolgate queue limit POOL` gives slots again. A wait still ends after the pool's `wait_s`.
    """
    _set_limit(pool, 0, name, redis, namespace, as_json=as_json)


@app.command()
def limit(
    pool: PoolArgument,
    most: Annotated[
        int | None,
        typer.Argument(
            metavar="[N]",
            min=0,
            max=MAX_LIMIT,
            help="Maximum number of concurrent calls. Default: as configured.",
        ),
    ] = None,
    name: SlotsOption = "slots",
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Give at most N slots of a pool at a time, until changed: toolgate queue limit browser 2

    Never more than configured. If the pool has keys, the limit is that of each key, or of POOL/KEY alone.
    Calls that have a slot keep it. The limit survives restarts of schedulers, and of a server that keeps
    its data.
    """
    _set_limit(pool, most, name, redis, namespace, as_json=as_json)


def _set_limit(
    pool: str, most: int | None, name: str, redis: str | None, namespace: str, *, as_json: bool
) -> None:
    if not pool or len(pool) > MAX_ABOUT:
        raise ConfigError("POOL: name a pool; `toolgate queue` lists them")

    async def change(commands: RedisCommands, where: str) -> None:
        known = {
            part
            for one in await read_queue(commands, where, name)
            for part in (one.name, as_configured(one.name))
        }
        await QueueOperator(commands, where, name).limit(pool, most)
        if pool not in known:
            err_console.print(
                f"[yellow]Nobody has needed a slot of {escape(pool)} yet:[/] the limit holds once a pool has "
                "this name. `toolgate queue` lists the pools in use."
            )
        await _note_absent(commands, where, name)

    _on_bus(redis, namespace, change)
    if as_json:
        print_json({"pool": pool, "limit": most})
    elif most is None:
        console.print(f"{escape(pool)}: uses the configured limit again")
    else:
        words = f"at most {most} at a time" if most else "no new slots are given"
        console.print(f"{escape(pool)}: {words}, until `toolgate queue limit {escape(pool)}`")


def _change(
    call: str,
    name: str,
    redis: str | None,
    namespace: str,
    act: Callable[[QueueOperator, str, str], Awaitable[None]],
    other: str | None = None,
) -> QueuedCall:
    """Change how a call waits, alone or relative to another call. Raise ConfigError if that is impossible."""

    async def change(commands: RedisCommands, where: str) -> QueuedCall:
        pools = await read_queue(commands, where, name)
        found = _find(pools, call)
        goal = _find(pools, other).id if other is not None else ""
        await act(QueueOperator(commands, where, name), found.id, goal)
        return found

    return _on_bus(redis, namespace, change)


def _on_bus(
    redis: str | None, namespace: str, act: Callable[[RedisCommands, str], Awaitable[Result]]
) -> Result:
    with join_bus(redis, namespace, None) as settings:

        async def run() -> Result:
            async with aclosing(
                RedisCommands(str(settings.redis), "toolgate-queue", connections=1)
            ) as commands:
                return await act(commands, settings.namespace)

        return run_async(run)


async def _note_absent(commands: RedisCommands, where: str, name: str) -> None:
    """Warn if no live scheduler keeps this queue. Raise TransportError."""
    if name not in {one.name for one in (await Roster(commands, where).read()).members}:
        err_console.print(
            f"[yellow]No scheduler {escape(name)} is alive on this bus[/] (namespace {escape(where)}): "
            "nobody gives slots. `toolgate scheduler list` shows who is alive. Name another with --name, or "
            "start this one: `toolgate scheduler run slots --config FILE`."
        )


def _find(pools: Sequence[QueuedPool], call: str) -> QueuedCall:
    """Return the waiting call with this beginning of its id. Raise ConfigError if none or several match."""
    found = {one.id: one for pool in pools for one in pool.waiting if call and one.id.startswith(call)}
    if len(found) != 1:
        raise ConfigError(
            f"{call!r}: {'several waiting calls match' if found else 'no waiting call matches'}; "
            "`toolgate queue` lists them"
        )
    return next(iter(found.values()))


def _tell(word: str, one: QueuedCall, *, as_json: bool) -> None:
    if as_json:
        print_json({word: one.id, "tool": one.tool, "agent": one.agent, "by": find_user()})
    else:
        console.print(f"{word} {escape(one.id[:8])} {escape(one.tool)} {escape(one.agent)}".rstrip())


def _show(pools: Sequence[QueuedPool]) -> Group | str:
    return Group(*map(_table, pools)) if pools else _IDLE


def _table(pool: QueuedPool) -> Table:
    usual = f" of {pool.limit}" if pool.most < pool.limit else ""
    kept = f", kept {_time(pool.average_s)} on average" if pool.average_s else ""
    title = (
        f"{pool.name}: {len(pool.held)} of {pool.most}{' now' if usual else ''}{usual} in use, "
        f"{len(pool.waiting)} wait{kept}"
    )
    table = Table(
        _COLUMNS,
        right=("place", "class", "since"),
        cut={"tool", "agent", "tenant"},
        wrap={"waits for"},
        spare=("class", "tenant", "session", "waits for"),
        title=f"[italic]{escape(title)}[/]",
    )
    for one in pool.held:
        table.add_row("has", *_cells(one), "")
    for one in pool.waiting:
        soon = f"; about {_time(one.expected_s)}" if one.expected_s is not None else ""
        table.add_row(str(one.place), *_cells(one), escape(f"{one.why}{soon}"))
    return table


def _cells(one: QueuedCall) -> list[str]:
    level = {MAX_LEVEL: "first", -MAX_LEVEL: "last"}.get(one.level, str(one.level))
    words = (one.id[:8], one.tool, one.agent, one.session[:8], one.tenant, level, _time(one.for_s))
    return [escape(str(word)) for word in words]


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
