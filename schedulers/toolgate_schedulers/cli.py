"""`toolgate scheduler new`, `run` and `list`: the edge where options meet the worker.

Everything that can be wrong with a call is found before a server is started or joined. SIGTERM and
SIGINT finish what is in hand and end with 0; a second one ends at once. SIGHUP reads the
configuration again (`serving`).
"""

import os
import shlex
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from toolgate_bus import tracing
from toolgate_bus.cli_options import (
    METRICS_PORT,
    JsonOption,
    KeysOption,
    MetricsAddressOption,
    MetricsPortOption,
    NamespaceOption,
    RedisOption,
    bus_settings,
    console,
    err_console,
    joined_bus,
    metrics_served,
    run_async,
    started_bus,
)
from toolgate_bus.disagreements import ShadowTotals, shadow_totals
from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.facts_reader import FactsReader
from toolgate_bus.gathered import gathered
from toolgate_bus.redis_link import RedisCommands
from toolgate_bus.roster import Roster, RosterView
from toolgate_bus.settings import BusSettings, read_keys
from toolgate_bus.signing import Keyring
from toolgate_bus.terminal import escape, print_json, print_text

from toolgate_schedulers.api import Scheduler
from toolgate_schedulers.hangup import hangups
from toolgate_schedulers.listing import as_json, lines_of, readers_line, table_of
from toolgate_schedulers.loading import load
from toolgate_schedulers.scaffold import contents, names_of, write
from toolgate_schedulers.serving import Job, bus_url, no_bus, notice, serve, tell_refused
from toolgate_schedulers.supervise import Reloads, die_with_parent, supervise
from toolgate_schedulers.worker import CONCURRENCY

__all__ = ["app"]

THREAD_SECONDS = 1.0
MOST_PORT = 65535
NEW_IS_FOR = "Denies the calls of forbidden tools."

OVERVIEW = """
Write schedulers, run them, list the living ones.

\b
  toolgate scheduler new my-guard                           a package of your own
  toolgate scheduler run my_rules:rule                      a function in my_rules.py
  toolgate scheduler run policy --config policy.yaml        one that is installed
  toolgate scheduler list                                   who is alive

Installed with Toolgate are approval, cost-aware, heuristic, loop-guard, policy,
rate-limit and router.
"""

app = typer.Typer(name="scheduler", help=OVERVIEW, no_args_is_help=True)


@app.command()
def run(
    ctx: typer.Context,
    spec: Annotated[
        str,
        typer.Argument(
            metavar="NAME_OR_MODULE:ATTR", help="An installed scheduler (policy, router …) or yours."
        ),
    ],
    name: Annotated[str | None, typer.Option(help="Run it under another name.")] = None,
    priority: Annotated[int | None, typer.Option(help="Priority of its verdicts; the higher wins.")] = None,
    tools: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Only rule on these tools; may be repeated.")
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Its configuration, in YAML.")] = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Record and compare its verdicts; never act on them.")
    ] = False,
    replicas: Annotated[int, typer.Option(min=1, max=256, help="Processes that share its questions.")] = 1,
    revision: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="What you call this configuration: verdicts and lists name it."),
    ] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, max=10_000, help="Questions that one process decides at a time.")
    ] = CONCURRENCY,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    metrics_port: MetricsPortOption = None,
    metrics_address: MetricsAddressOption = "127.0.0.1",
    json_: JsonOption = False,
) -> None:
    """Run a scheduler: from now on it is asked about every tool call that it names.

    \b
      toolgate scheduler run my_rules:rule
      toolgate scheduler run policy --config policy.yaml --shadow    rehearse
      toolgate scheduler run cost-aware --config cost.yaml --replicas 3
      toolgate scheduler run approval --name treasury --tools 'pay_*' --config a.yaml

    Ctrl-C and SIGTERM finish what is in hand; SIGHUP reads the configuration again.
    Optional unless an agent's plan names it under `toolgate: required:`.
    With --metrics-port and --replicas each replica has a port of its own: PORT, PORT+1, …

    Exit codes: 0 ended in good order, 1 the bus cannot be reached or it broke,
    2 an option or the configuration is wrong (nothing was joined).
    """
    die_with_parent()

    def loaded() -> Scheduler:
        options: dict[str, Any] = {"name": name, "priority": priority, "tools": tools}
        return load(spec, **options, shadow=shadow or None, config=config, revision=revision)

    def again() -> Scheduler:
        if config is None:
            raise ConfigError("It was started without --config: there is nothing to read again")
        return loaded()

    scheduler = loaded()
    keyring = _keyring(bus_settings(redis, namespace, keys), scheduler)
    job = Job(scheduler, again, keyring, concurrency, json_)
    with tracing.configure("toolgate-scheduler"), started_bus(redis, namespace, keys) as settings:
        if replicas > 1:
            given = {"name": name, "priority": priority, "tools": tools, "config": config, "shadow": shadow}
            given |= {"revision": revision, "concurrency": concurrency, "json": json_}
            command = _replica_command(spec, given)
            env = _replica_env(settings, ctx.find_root().params)
            own = _own_ports(metrics_port, metrics_address, replicas)
            raise typer.Exit(run_async(lambda: _supervise(command, [env | one for one in own], job)))
        with metrics_served(metrics_port, metrics_address, "scheduler") as url:
            run_async(lambda: serve(replace(job, metrics=url), settings))
    _abandon_threads()


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="What the scheduler is to be called, such as my-guard.")],
    directory: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write it; a folder of its name otherwise.")
    ] = None,
    description: Annotated[str, typer.Option(help="What it is for, in one line.")] = NEW_IS_FOR,
) -> None:
    """Write a package with a scheduler of your own, its configuration and its test: it runs at once.

    \b
      toolgate scheduler new my-guard && cd my-guard
      toolgate scheduler run my_guard:MyGuard --config config.yaml
      toolgate run "Tidy up" --plan agent.yaml           in another terminal
    """
    names = names_of(name)
    folder = Path(name) if directory is None else directory
    texts = contents(names, description)
    write(texts, folder)
    console.print(escape(f"Wrote {folder}: {', '.join(texts)}."), soft_wrap=True)
    console.print("Start it:")
    start = f"toolgate scheduler run {names.module}:{names.cls} --config config.yaml"
    print_text(f"  cd {shlex.quote(str(folder))} && {start}")
    print_text(f"{folder / 'README.md'} goes on from there.")


@app.command("list")
def list_(
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    json_: JsonOption = False,
) -> None:
    """Show who is alive: replicas, priority, tools, answered, late, last seen.

    Beside shadows: how many decisions they would have changed, out of those that
    they were heard on in the newest part of the record. `toolgate decisions
    --shadow` shows which, and why.

    \b
      toolgate scheduler list
      toolgate scheduler list --json --namespace staging
    """
    with joined_bus(redis, namespace, keys) as settings:
        view, totals, reach_s = run_async(lambda: _living(settings))
    lines = lines_of(view.members, totals, view.wires)
    if json_:
        for line in lines:
            print_json(as_json(line))
    elif lines:
        console.print(table_of(lines))
        if any(line.shadow_totals for line in lines):
            minutes = max(1, round(reach_s / 60))
            err_console.print(f"What shadows would have changed: of the decisions of the last {minutes} min")
    else:
        err_console.print(
            f"No scheduler is alive in namespace {namespace}. "
            "Start one: toolgate scheduler run policy --config rules.yaml"
        )
    if not json_ and (readers := readers_line(view.readers_by_role())):
        err_console.print(readers)


def _abandon_threads() -> None:
    """End now, with 0, if a plain function of the author's still hangs: Python would wait for its thread."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(THREAD_SECONDS)
            if thread.is_alive():
                notice(f"left {thread.name} behind: it did not return")
                sys.stdout.flush()
                os._exit(0)


def _keyring(settings: BusSettings, scheduler: Scheduler) -> Keyring | None:
    if settings.keys is None:
        return None
    keyring = Keyring(read_keys(settings.keys))
    if not keyring.knows(scheduler.name):
        raise ConfigError(
            f"keys: {settings.keys} has no key for {scheduler.name}: add `{scheduler.name}: <hex>`"
        )
    return keyring


def _own_ports(first: int | None, address: str, replicas: int) -> list[dict[str, str]]:
    """Where each replica serves its metrics, as an environment: on PORT, PORT+1, … or any free one."""
    if first is None:
        return [{} for _ in range(replicas)]
    if first and first + replicas - 1 > MOST_PORT:
        raise ConfigError(f"metrics port: {replicas} replicas from {first} on go beyond {MOST_PORT}")
    ports = range(first, first + replicas) if first else [0] * replicas
    return [{METRICS_PORT: str(port), "TOOLGATE_METRICS_ADDRESS": address} for port in ports]


async def _supervise(command: Sequence[str], envs: Sequence[dict[str, str]], job: Job) -> int:
    """Keep the replicas; a SIGHUP is passed on to each once the configuration was found right."""

    def refused(error: ConfigError) -> None:
        tell_refused(str(error), job)

    with hangups() as asked:
        return await supervise(command, envs, notice, Reloads(asked.each(), job.load, refused))


async def _living(settings: BusSettings) -> tuple[RosterView, dict[str, ShadowTotals], float]:
    """Who is alive, what shadows disagreed on lately, and how many seconds back that is known."""
    commands = RedisCommands(bus_url(settings), "toolgate-list", connections=1)
    try:
        view = await Roster(commands, settings.namespace).read(ages=True)
        facts, reach_s = await FactsReader(commands, settings.namespace).newest()
        return view, shadow_totals(gathered(facts)), reach_s
    except ConfigError:
        raise
    except TransportError as error:
        raise no_bus(settings, error) from None
    finally:
        await commands.aclose()


def _replica_command(spec: str, given: Mapping[str, Any]) -> list[str]:
    """The command of one replica: the options that were given, no others: a reload may change the rest."""
    options: list[str] = []
    for option, value in given.items():
        if value is True:
            options.append(f"--{option}")
        elif value is not None and value is not False:
            options += [f"--{option}={one}" for one in (value if isinstance(value, list) else [value])]
    return [sys.executable, "-m", "toolgate_bus.cli", "scheduler", "run", *options, "--", spec]


FRAME_OPTIONS: Final = ("log_level", "log_format")


def _replica_env(settings: BusSettings, frame: Mapping[str, Any]) -> dict[str, str]:
    """Where the bus is goes by the environment: a URL may hold a password, and `ps` shows commands.

    The frame's own options go the same way.
    """
    where = {"TOOLGATE_REDIS_URL": bus_url(settings), "TOOLGATE_NAMESPACE": settings.namespace}
    keys = {} if settings.keys is None else {"TOOLGATE_KEYS": str(settings.keys)}
    logs = {f"TOOLGATE_{name.upper()}": str(frame[name]) for name in FRAME_OPTIONS if frame.get(name)}
    return {**os.environ, **where, **keys, **logs}
