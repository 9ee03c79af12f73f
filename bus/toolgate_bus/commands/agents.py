"""`toolgate agents`: show the live trees of agents, and stop agents. Pauses are in `pauses`."""

import secrets
import time
from collections.abc import Collection, Sequence
from contextlib import aclosing
from typing import Annotated, Final, NamedTuple

import anyio
import typer
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
from toolgate_bus.commands.pauses import pause, pauses, resume
from toolgate_bus.commands.session_labels import labels, unlabel
from toolgate_bus.commands.table import Table
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.protocol.agents import LiveAgent, Stop, forest, name_session, select_targets, stop_of
from toolgate_bus.protocol.money import format_amount
from toolgate_bus.protocol.pauses import Pause
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import BEAT_SECONDS, EXPIRY_SECONDS
from toolgate_bus.transport.redis.storage.agent_directory import AgentDirectory
from toolgate_bus.transport.redis.storage.pauses import PauseBoard

OVERVIEW = """
See the agents that are alive, stop them, and pause them.

\b
  toolgate agents                   trees of agents, and what each does now
  toolgate agents --watch           the same, until Ctrl-C
  toolgate agents stop 4f2a         stop an agent and all that work for it
  toolgate agents stop 4f2a --now   the same, without a wait for running tools
  toolgate agents stop --all        stop every agent of the namespace
  toolgate agents resume            list the stops and pauses that stand
  toolgate agents resume 4f2a       lift a stop or a pause
  toolgate agents pause --all       let the next calls of all agents wait
  toolgate agents resume --all      end all pauses
  toolgate agents pauses            what is paused, by whom, for how long
  toolgate agents labels            labels that verdicts gave to sessions
  toolgate agents unlabel 4f2a source=untrusted
                                    take a label from a session and its tree

`spent` is the cost that an agent's tools and LLM reported; with --json, in
millionths. Exit codes: 0 shown, 1 the bus is away, 2 an option is wrong, or
no server was found.
"""

app = typer.Typer(name="agents", help=OVERVIEW, invoke_without_command=True)
for _command in (pause, resume, pauses, labels, unlabel):
    app.command()(_command)

_LOOK_S: Final = 0.05
_SAY_AGAIN_S: Final = 1.0
_REFRESH_S: Final = 0.5
_COLUMNS: Final = ("agent", "session", "now", "turns", "calls", "vetoes", "spent", "age")
_NOBODY: Final = (
    "No agent is alive. One is listed during a turn: of `toolgate run` or `chat`, or in `guard.turn(…)`."
)
WaitOption = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="Longest wait until they have ended.")
]
WatchOption = Annotated[bool, typer.Option("--watch", help="Keep showing them, until Ctrl-C.")]


@app.callback(help=OVERVIEW)
def agents(
    ctx: typer.Context,
    watch: WatchOption = False,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show the live agents as trees."""
    if ctx.invoked_subcommand is not None:
        refuse_options_before(ctx)
        return
    if watch and as_json:
        raise ConfigError("--watch: cannot be combined with --json; run the command repeatedly instead")
    with join_bus(redis, namespace, None) as settings:
        url, where = str(settings.redis), settings.namespace
        found = run_async(lambda: _fetch_agents(url, where, watch=watch))
    if as_json:
        for _, one in forest(found):
            print_json(one.as_json())
    elif found:
        console.print(_table(found))
    else:
        err_console.print(_NOBODY)


@app.command()
def stop(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Sessions, or beginnings of ids. A root means its tree."),
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="Every agent of the namespace.")] = False,
    now: Annotated[bool, typer.Option("--now", help="End at once; else running tools may finish.")] = False,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Take ids literally, even of sessions that are not alive (yet)."),
    ] = False,
    wait: WaitOption = 10.0,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Stop an agent and all agents that work for it, on every machine: toolgate agents stop 4f2a --now

    Their turns end as cancelled: every call has a result, and reservations are given back. The stop stands
    until somebody lifts it by `toolgate agents resume ID`. It survives restarts of agents, and of a server
    that keeps its data. Until then new turns of these sessions end at once. Their calls are denied, and so
    are the calls of agents that begin to work for them.

    Exit codes: 0 they have ended, 1 some still ran after --wait seconds, or the bus is away; 2 an id
    matches no agent or several, too many stops stand, or no server was found.
    """
    if everyone == bool(ids):
        raise ConfigError("name one or more sessions (`toolgate agents` lists them), or give --all")
    with join_bus(redis, namespace, None) as settings:
        url, where = str(settings.redis), settings.namespace
        done = run_async(lambda: _stop(url, where, tuple(ids or ()), now=now, exact=exact, wait_s=wait))
    told = {"stopped": sorted(done.ran - done.left), "running": sorted(done.left)}
    if as_json:
        print_json({**told, "stop": done.stop.as_json()})
    else:
        for session in told["stopped"]:
            console.print(f"stopped {escape(session)}")
        for session in told["running"]:
            err_console.print(f"[yellow]still running[/] {escape(session)} (--now ends it at once)")
        if not done.ran:
            console.print("Nothing was running.")
        lift = f"toolgate agents resume {done.stop.id}"
        console.print(
            f"The stop of {escape(done.stop.target)} stands, for new turns and agents too. Lift it: {lift}",
            soft_wrap=True,
        )
    if done.left:
        raise typer.Exit(1)


async def _fetch_agents(url: str, namespace: str, *, watch: bool) -> list[LiveAgent]:
    """Return the live agents. With `watch`, show them repeatedly until cancelled."""
    async with aclosing(RedisCommands(url, "toolgate-agents", connections=1)) as commands:
        fleet = AgentDirectory(commands, namespace)
        if not watch:
            return await fleet.agents()
        with Live(console=console, auto_refresh=False) as live:
            while True:
                found = await fleet.agents()
                live.update(_table(found) if found else _NOBODY, refresh=True)
                await anyio.sleep(_REFRESH_S)


class StopResult(NamedTuple):
    """Result of a stop."""

    ran: set[str]
    """Targeted sessions that had a turn."""
    left: set[str]
    """Targeted sessions whose turn still runs."""
    stop: Pause
    """The stop as the server has it. It stands until somebody lifts it."""


async def _stop(
    url: str, namespace: str, ids: Sequence[str], *, now: bool, exact: bool = False, wait_s: float
) -> StopResult:
    """Set a stop, and wait until the turns that it ends have ended.

    It is announced repeatedly, for processes that start meanwhile and after an outage of the server. The
    processes report which sessions they ended: a session that began after its process's last heartbeat may
    have ended, and the process too, before the next heartbeat.
    """
    async with aclosing(RedisCommands(url, "toolgate-agents", connections=1)) as commands:
        fleet, board = AgentDirectory(commands, namespace), PauseBoard(commands, namespace)
        by, id_ = find_user(), secrets.token_hex(8)
        names = tuple(map(name_session, ids)) if exact else ()
        order = Stop(names, names, now=now, by=by, id=id_)
        if not names:
            order = await fleet.address(lambda living: stop_of(living, ids, now=now, by=by, order=id_))
        stop, mark = await board.stop(order)
        ran, running, told = set[str](), set[str](), set[str]()
        until, said, unseen = time.monotonic() + wait_s, float("-inf"), float("-inf")
        while True:
            try:
                look = await fleet.look(order.id, told)
                running = {one.session for one in select_targets(order, look.agents) if one.doing != "idle"}
                ran |= running.union(*look.obeyed.values())
                if time.monotonic() - said >= _SAY_AGAIN_S and (running or said < 0):
                    if not mark:  # the server may have come back without it
                        stop, mark = await board.stop(order)
                    told |= await board.tell(order.id, mark)
                    if said < 0:
                        # A process that has just begun appears with its next heartbeat. If there is none at
                        # all, the server may have just come back, and the processes reconnect a little later.
                        unseen = time.monotonic() + (BEAT_SECONDS if told else EXPIRY_SECONDS)
                    said = time.monotonic()
                elif (
                    not running
                    and time.monotonic() >= unseen
                    and (
                        # A process that was killed never reports, nor does one of an earlier version.
                        told <= look.obeyed.keys() or time.monotonic() >= said + EXPIRY_SECONDS
                    )
                ):
                    return StopResult(ran, running, stop)
            except ConfigError:
                raise
            except TransportError:
                if time.monotonic() >= until:
                    raise
                # Until then a live process may not have sent a heartbeat.
                mark, unseen = 0, time.monotonic() + EXPIRY_SECONDS
            if running and time.monotonic() >= until:
                return StopResult(ran, running, stop)
            await anyio.sleep(_LOOK_S)


def _describe_state(one: LiveAgent) -> str:
    if one.stopped and not one.doing.startswith("stopping"):
        return f"stopped: {one.doing}"
    return f"paused: {one.doing}" if one.paused and not one.stopped else one.doing


def _table(agents: Collection[LiveAgent]) -> Table:
    spare = ("turns", "calls", "age", "vetoes", "spent")
    table = Table(_COLUMNS, right=_COLUMNS[3:], cut={"agent"}, wrap={"now"}, spare=spare)
    for depth, one in forest(agents):
        age = f"{one.age / 60:.0f} min" if one.age < 7200 else f"{one.age / 3600:.1f} h"
        cells = (
            f"{'  ' * depth}{one.agent or '(no name)'}",
            one.session[:8],
            _describe_state(one),
            one.turns,
            one.calls,
            one.vetoes or "·",
            format_amount(one.cost) if one.cost else "·",
            f"{one.age:.0f} s" if one.age < 120 else age,
        )
        table.add_row(*map(escape, cells))
    return table
