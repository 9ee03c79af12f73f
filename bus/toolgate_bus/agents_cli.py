"""`toolgate agents`: the live trees of agents, and one hand on the stop."""

import getpass
import json
import time
from collections.abc import Collection, Sequence
from typing import Annotated, Any, Final

import anyio
import typer
from rich.markup import escape
from rich.table import Table

from toolgate_bus.cli_options import (
    JsonOption,
    NamespaceOption,
    RedisOption,
    console,
    err_console,
    joined_bus,
    run_async,
)
from toolgate_bus.errors import ConfigError
from toolgate_bus.fleet import Fleet
from toolgate_bus.live_agents import LiveAgent, Stop, forest
from toolgate_bus.money import shown
from toolgate_bus.redis_link import RedisCommands

__all__ = ["app"]

app = typer.Typer(
    name="agents", help="See the agents that are alive, and stop them.", invoke_without_command=True
)

_LOOK_S: Final = 0.1
_SAY_AGAIN_S: Final = 1.0
_COLUMNS: Final = ("agent", "session", "now", "turns", "calls", "vetoes", "spent", "age")
WaitOption = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="How long to wait until they have ended.")
]


@app.callback()
def agents(
    ctx: typer.Context,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show the live agents as trees: what each does now, its turns, calls, vetoes and spend.

    A session is there from its start to its end; `spent` is what its tools and its LLM told of costs.
    With --json, one object an agent.
    """
    if ctx.invoked_subcommand is not None:
        return
    with joined_bus(redis, namespace, None) as settings:
        found = run_async(lambda: _living(str(settings.redis), settings.namespace))
    if as_json:
        for _, one in forest(found):
            typer.echo(json.dumps(one.as_json(), ensure_ascii=False))
    elif found:
        console.print(_table(found))
    else:
        err_console.print("No agent is alive. `toolgate run` and `toolgate chat` start some.")


@app.command()
def stop(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Sessions, or their first letters. A root means its tree."),
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="Every agent of the namespace.")] = False,
    now: Annotated[bool, typer.Option("--now", help="At once; else the tools that run may finish.")] = False,
    wait: WaitOption = 10.0,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Stop an agent with all that work for it, wherever they run: toolgate agents stop 4f2a --now

    Their turns end as cancelled: every call has a result, what was reserved is given back. Ends
    with 1 where some still ran after --wait seconds.
    """
    if everyone == bool(ids):
        raise ConfigError("say whom: one or more sessions (`toolgate agents` lists them), or --all")
    with joined_bus(redis, namespace, None) as settings:
        url, where = str(settings.redis), settings.namespace
        meant, left = run_async(lambda: _stop(url, where, tuple(ids or ()), now=now, wait_s=wait))
    told = {"stopped": sorted(meant - left), "running": sorted(left)}
    if as_json:
        typer.echo(json.dumps(told))
    else:
        for session in told["stopped"]:
            console.print(f"stopped {escape(session)}")
        for session in told["running"]:
            err_console.print(f"[yellow]still running[/] {escape(session)} (--now ends it at once)")
        if not meant:
            console.print("Nothing was running.")
    if left:
        raise typer.Exit(1)


async def _living(url: str, namespace: str) -> list[LiveAgent]:
    commands = RedisCommands(url, "toolgate-agents", connections=1)
    try:
        return await Fleet(commands, namespace).agents()
    finally:
        await commands.aclose()


async def _stop(
    url: str, namespace: str, ids: Sequence[str], *, now: bool, wait_s: float
) -> tuple[set[str], set[str]]:
    """Who was meant and ran, and who of them still runs; says it again to those that came meanwhile."""
    commands = RedisCommands(url, "toolgate-agents", connections=1)
    fleet = Fleet(commands, namespace)
    try:
        order = _order(ids, await fleet.agents(), now=now)
        meant: set[str] = set()
        until, said = time.monotonic() + wait_s, float("-inf")
        while True:
            running = {one.session for one in await fleet.agents() if _is_meant(order, one) and _busy(one)}
            meant |= running
            if time.monotonic() - said >= _SAY_AGAIN_S and (running or said < 0):
                await fleet.stop(order)
                said = time.monotonic()
            elif not running or time.monotonic() >= until:
                return meant, running
            await anyio.sleep(_LOOK_S)
    finally:
        await commands.aclose()


def _order(ids: Sequence[str], living: Collection[LiveAgent], *, now: bool) -> Stop:
    """The order for the sessions that the ids mean; raises ConfigError for one that means none or several."""
    sessions: list[str] = []
    roots: list[str] = []
    for id_ in ids:
        found = sorted({one.session for one in living if one.session.startswith(id_)})
        exact = [one for one in found if one == id_] or found
        if len(exact) != 1:
            several = f"means several: {', '.join(found[:8])}" if found else "is no live session"
            raise ConfigError(f"{id_!r} {several}; `toolgate agents` lists them")
        (roots if any(one.root == exact[0] for one in living) else sessions).append(exact[0])
    return Stop(tuple(sessions), tuple(roots), not ids, now, getpass.getuser())


def _is_meant(order: Stop, one: LiveAgent) -> bool:
    return order.means(one.session, one.root)


def _busy(one: LiveAgent) -> bool:
    return one.doing != "idle"


def _table(agents: Collection[LiveAgent]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in _COLUMNS:
        figure = name in ("turns", "calls", "vetoes", "spent", "age")
        table.add_column(name, justify="right" if figure else "left", no_wrap=name != "now")
    for depth, one in forest(agents):
        table.add_row(*map(escape, _row(depth, one)))
    return table


def _row(depth: int, one: LiveAgent) -> list[str]:
    figures: list[Any] = [one.turns, one.calls, one.vetoes or "·", shown(one.cost) if one.cost else "·"]
    name = one.agent or "(no name)"
    return [f"{'  ' * depth}{name}", one.session[:8], one.doing, *map(str, figures), _age(one.age)]


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
