"""`toolgate agents pause`, `resume` and `pauses`: agents' next calls wait until an operator resumes them.

Stops stand like pauses, and are listed and lifted here, too.

What these commands write stays on the server even if they are interrupted. They wait until every agent
knows, but only to report it.
"""

import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import anyio
import typer

from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import (
    JsonOption,
    NamespaceOption,
    RedisOption,
    console,
    err_console,
    find_user,
    join_bus,
    parse_span,
    run_async,
)
from toolgate_bus.commands.table import Table
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.protocol.agents import LiveAgent
from toolgate_bus.protocol.pauses import Pause, StandingPauses, find_named, list_paused, pause_of
from toolgate_bus.telemetry.printable import format_duration, visible
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.agent_directory import AgentDirectory
from toolgate_bus.transport.redis.storage.pauses import PauseBoard

Result = TypeVar("Result")
_LOOK_S: Final = 0.05
_SAY_AGAIN_S: Final = 1.0
_COLUMNS: Final = ("id", "order", "whom", "by", "for", "left", "agents")
MAX_FOR_S: Final = 366 * 86_400.0
LabelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--label", metavar="NAME=VALUE", help="With this label (`toolgate: {labels: …}`); several: with all."
    ),
]
WaitOption = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="Longest wait until every agent knows.")
]


class PauseChange(NamedTuple):
    """Result of a command that makes or ends pauses."""

    pauses: tuple[Pause, ...]
    """Pauses and stops that were made or ended."""
    agents: tuple[LiveAgent, ...] = ()
    """Live agents that these pauses and stops affect."""
    deaf: tuple[str, ...] = ()
    """Live orchestrators that have not confirmed the change."""
    stops: tuple[Pause, ...] = ()
    """Stops that still stand, although somebody may believe that all agents were resumed."""


def pause(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Sessions, or beginnings of ids. A root means its tree."),
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="Every agent of the namespace.")] = False,
    label: LabelOption = None,
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="End the pause after 90s, 10m, 2h or 1d."),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Take ids literally, even of sessions that are not alive (yet)."),
    ] = False,
    wait: WaitOption = 10.0,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Let the next calls of agents wait, on every machine: toolgate agents pause --all --for 10m

    Running calls finish. No scheduler is asked about new calls, and nothing is reserved for them. No call
    is denied for having waited. A pause holds for agents that start later, too. It survives restarts of
    agents, and of a server that keeps its data, until `toolgate agents resume`.

    Exit codes: 0 every agent knows, 1 the pause stands and some have not confirmed it, or the bus is
    away, 2 an id matches no agent or several, or no server was found.
    """
    labels = _labels(label)
    if sum((everyone, bool(ids), bool(labels))) != 1:
        raise ConfigError("give one of: sessions (`toolgate agents` lists them), --label NAME=VALUE, --all")
    for_s = None if for_ is None else parse_span(for_, "--for")
    if for_s is not None and not 0 < for_s <= MAX_FOR_S:
        raise ConfigError(f"--for {for_}: must be more than 0, and at most 366d")

    async def change(board: PauseBoard, fleet: AgentDirectory) -> PauseChange:
        by, id_ = find_user(), secrets.token_hex(4)
        made = await fleet.address(
            lambda living: pause_of(living, ids or (), labels, exact=exact, id=id_, by=by)
        )
        stands, mark = await board.add(made, for_s)
        agents, deaf = await _until_known(board, fleet, mark, wait)
        return PauseChange((stands,), tuple(list_paused([stands], agents)), deaf)

    with join_bus(redis, namespace, None) as settings:
        done = run_async(lambda: _run(str(settings.redis), settings.namespace, change))
    _tell("paused", done, as_json=as_json)


def resume(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID]...", help="Pauses, stops, or sessions that they name; beginnings of ids suffice."
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every pause of the namespace. Stops remain.")
    ] = False,
    label: LabelOption = None,
    wait: WaitOption = 10.0,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Let paused and stopped agents go on: toolgate agents resume 3f2a

    Without an argument it lists the pauses and stops that stand. Each ends as a whole: a pause of all agents
    is ended by its id, and not for one agent alone. A stop is lifted by its id, or by a session it names.

    Exit codes: 0 every agent knows, or nothing was meant, 1 some have not confirmed it, or the bus is away,
    2 an id matches no pause or stop, or several, and none was ended, or no server was found.
    """
    labels = _labels(label)
    if not (everything or ids or labels):
        pauses(redis, namespace, as_json)
        return
    if sum((everything, bool(ids), bool(labels))) != 1:
        raise ConfigError("give one of: ids of pauses and stops, --label, --all")

    async def change(board: PauseBoard, fleet: AgentDirectory) -> PauseChange:
        found, living = await board.read(), await fleet.agents()
        ended = _choose_ended(found, living, ids or (), labels, everything=everything)
        meant = [one for one in living if one.paused] if everything else list_paused(ended, living)
        left = tuple(one for one in found.pauses if one.stop and one not in ended)
        if not (everything or ended):
            return PauseChange(())
        _, deaf = await _until_known(board, fleet, await board.remove([one.id for one in ended]), wait)
        return PauseChange(tuple(ended), tuple(meant), deaf, left if everything else ())

    with join_bus(redis, namespace, None) as settings:
        done = run_async(lambda: _run(str(settings.redis), settings.namespace, change))
    _tell("resumed", done, as_json=as_json)


def pauses(
    redis: RedisOption = None, namespace: NamespaceOption = "default", as_json: JsonOption = False
) -> None:
    """Show what is paused or stopped, by whom, and for how much longer: toolgate agents pauses"""

    async def read(board: PauseBoard, fleet: AgentDirectory) -> tuple[StandingPauses, list[LiveAgent]]:
        return await board.read(), await fleet.agents()

    with join_bus(redis, namespace, None) as settings:
        found, living = run_async(lambda: _run(str(settings.redis), settings.namespace, read))
    if as_json:
        for one in found.pauses:
            print_json(_describe(one, found.now_ms, living))
    elif found.pauses:
        console.print(make_table(found, living))
    else:
        console.print("No agent is paused or stopped.")


def make_table(found: StandingPauses, living: Sequence[LiveAgent]) -> Table:
    """Return a table of the pauses and stops that stand, a line each."""
    table = Table(_COLUMNS, right=_COLUMNS[4:], cut={"whom", "by"}, spare=("agents", "by"))
    for one in found.pauses:
        left = one.seconds_left(found.now_ms)
        cells = (
            one.id,
            "stop" if one.stop else "pause",
            one.target,
            one.by,
            format_duration(max(0, found.now_ms - one.since_ms) / 1000),
            "·" if left is None else format_duration(left),
            len(list_paused([one], living)),
        )
        table.add_row(*map(escape, cells))
    return table


async def _run(
    url: str, namespace: str, do: Callable[[PauseBoard, AgentDirectory], Awaitable[Result]]
) -> Result:
    async with aclosing(RedisCommands(url, "toolgate-agents", connections=1)) as commands:
        return await do(PauseBoard(commands, namespace), AgentDirectory(commands, namespace))


async def _until_known(
    board: PauseBoard, fleet: AgentDirectory, mark: int, wait_s: float
) -> tuple[Sequence[LiveAgent], tuple[str, ...]]:
    """Wait until all orchestrators know of a change. Return the agents, and the orchestrators that do not."""
    order, until, said = secrets.token_hex(8), time.monotonic() + wait_s, float("-inf")
    told: Collection[str] = ()
    while True:
        try:
            if time.monotonic() - said >= _SAY_AGAIN_S:
                told, said = await board.tell(order, mark), time.monotonic()
            look = await fleet.look(order, told)
            deaf = tuple(sorted(set(told) - look.obeyed.keys()))
            if not deaf or time.monotonic() >= until:
                return look.agents, deaf
        except ConfigError:
            raise
        except TransportError:
            if time.monotonic() >= until:
                raise
        await anyio.sleep(_LOOK_S)


def _choose_ended(
    found: StandingPauses,
    living: Sequence[LiveAgent],
    ids: Collection[str],
    labels: Mapping[str, str],
    *,
    everything: bool,
) -> list[Pause]:
    """Return the pauses and stops to end. If a wider one covers an id, raise ConfigError that names it."""
    if everything or labels:
        standing = [one for one in found.pauses if not one.stop]
        return [one for one in standing if everything or dict(one.labels) == labels]
    ended = {one.id: one for id_ in ids for one in find_named(found.pauses, id_)}
    for id_ in ids:
        if not find_named(found.pauses, id_):
            meant = [one for one in living if one.session.startswith(id_) or one.root.startswith(id_)]
            by = {order for one in meant for order in (one.paused, one.stopped)}
            wider = [one for one in found.pauses if one.id in by]
            if wider:
                which = ", ".join(f"{one.id} of {visible(one.target)}" for one in wider)
                raise ConfigError(f"{id_!r} is not paused or stopped by itself, but by {which}: resume that")
            raise ConfigError(f"no pause or stop matches {id_!r}; `toolgate agents resume` lists them")
    return list(ended.values())


def _labels(told: Sequence[str] | None) -> dict[str, str]:
    """Return the labels that the options give. Raise ConfigError."""
    labels: dict[str, str] = {}
    for one in told or ():
        name, equals, value = one.partition("=")
        if not name or not equals or name in labels:
            raise ConfigError(f"--label {one}: write NAME=VALUE, each name once")
        labels[name] = value
    return labels


def _tell(word: str, done: PauseChange, *, as_json: bool) -> None:
    if as_json:
        told = [one.as_json() for one in done.pauses]
        agents = sorted(one.session for one in done.agents)
        print_json({word: told, "agents": agents, "deaf": list(done.deaf)})
    else:
        for one in done.pauses:
            what = "lifted the stop of" if one.stop else word
            console.print(f"{what} {escape(one.target)} ({one.id})")
        if done.agents:
            console.print(f"{len(done.agents)} live agents: {escape(' '.join(_names(done.agents)))}")
        if not done.pauses and not done.agents:
            console.print("Nothing was paused.")
        for one in done.stops:
            console.print(f"The stop of {escape(one.target)} still stands: toolgate agents resume {one.id}")
        if done.deaf:
            err_console.print(
                f"[yellow]{len(done.deaf)} processes with agents have not confirmed this.[/] They may "
                "run an earlier version, lack a right (`toolgate doctor --role orchestrator`), or be "
                "cut off from the server; then they follow once they are back."
            )
    if done.deaf:
        raise typer.Exit(1)


def _names(agents: Collection[LiveAgent]) -> list[str]:
    return sorted(one.agent or one.session[:8] for one in agents)


def _describe(one: Pause, now_ms: int, living: Sequence[LiveAgent]) -> dict[str, Any]:
    agents = sorted(each.session for each in list_paused([one], living))
    return {**one.as_json(), "target": one.target, "seconds_left": one.seconds_left(now_ms), "agents": agents}
