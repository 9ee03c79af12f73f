"""`toolgate scheduler new`, `try`, `run` and `list`: read the options and start the work.

All options are checked before a server is started or joined. SIGTERM and SIGINT finish the open questions
and end with 0; a second signal ends at once. SIGHUP reads the configuration again (`worker.process`).
"""

import shlex
from pathlib import Path
from typing import Annotated

import typer
from toolgate_bus.commands.completion import complete_installed
from toolgate_bus.commands.main import own_entry_points
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import (
    JsonOption,
    KeysOption,
    MetricsAddressOption,
    MetricsPortOption,
    NamespaceOption,
    RedisOption,
    console,
    err_console,
    join_bus,
    run_async,
)
from toolgate_bus.commands.terminal import print_json, print_text

from toolgate_schedulers.commands.scheduler_rules import check, diff, history, push, rollout, status, undo
from toolgate_schedulers.commands.scheduler_search import search
from toolgate_schedulers.worker.task_pool import CONCURRENCY

NEW_IS_FOR = "Denies the calls of forbidden tools."

OVERVIEW = """
Write schedulers, try them on a call, run them, list the living ones.

\b
  toolgate scheduler new my-guard                           your own package
  toolgate scheduler run my_rules:rule                      your own function
  toolgate scheduler run policy --config policy.yaml        a shipped one
  toolgate scheduler try policy --config policy.yaml --call '{"tool": "rm"}'
  toolgate scheduler list                                   who is alive

Installed with Toolgate are {}.
"""


def _overview() -> str:
    *names, last = sorted(own_entry_points("toolgate.schedulers")) or ["none"]
    return OVERVIEW.replace("{}.", f"{', '.join(names)} and {last}." if names else f"{last}.")


def complete_spec(incomplete: str) -> list[str]:
    """Complete schedulers that can be run by name, also under another name (`treasury=approval`)."""
    own, equals, begun = incomplete.rpartition("=")
    return [f"{own}{equals}{name}" for name in complete_installed(begun)]


app = typer.Typer(name="scheduler", help=_overview(), no_args_is_help=True)

SpecArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME_OR_MODULE:ATTR",
        help="An installed scheduler (policy, router …) or yours.",
        autocompletion=complete_installed,
    ),
]
SpecsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="[NAME=]NAME_OR_MODULE:ATTR...",
        help="Installed schedulers (policy, router …) or yours, all in one process; "
        "with NAME= it runs under that name.",
        autocompletion=complete_spec,
    ),
]
ConfigOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Its configuration, in YAML.")]


@app.command()
def run(
    ctx: typer.Context,
    specs: SpecsArgument,
    name: Annotated[str | None, typer.Option(help="Run it under another name.")] = None,
    priority: Annotated[int | None, typer.Option(help="Priority of its verdicts; the higher wins.")] = None,
    tools: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Only rule on these tools; may be repeated.")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FILE",
            help="Its configuration, in YAML. With several schedulers: NAME=FILE for each.",
        ),
    ] = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Record and compare its verdicts; never act on them.")
    ] = False,
    replicas: Annotated[int, typer.Option(min=1, max=256, help="Processes that share its questions.")] = 1,
    revision: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="Your label for this configuration. Verdicts and lists name it."),
    ] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, max=10_000, help="Maximum number of questions that each decides at once.")
    ] = CONCURRENCY,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    metrics_port: MetricsPortOption = None,
    metrics_address: MetricsAddressOption = "127.0.0.1",
    json_: JsonOption = False,
) -> None:
    """Run schedulers. Each is asked about every call of the tools that it names.

    \b
      toolgate scheduler run my_rules:rule
      toolgate scheduler run policy --config policy.yaml --shadow    rehearse
      toolgate scheduler run cost-aware --config cost.yaml --replicas 3
      toolgate scheduler run approval --name treasury --config a.yaml
      toolgate scheduler run policy own=approval \\
        --config policy=p.yaml --config own=a.yaml         in one process

    Several schedulers in one process cost less than a process each. Each has its own
    name and verdicts. While one awaits something the others go on, but code that
    blocks the event loop stops all of them.

    Ctrl-C and SIGTERM finish the open questions. SIGHUP reads the configurations
    again and takes all of them, or none.
    A scheduler is optional unless an agent requires it: `required` in its plan, its Guard or its hook.
    With --metrics-port and --replicas each replica has its own port: PORT, PORT+1, …

    Exit codes: 0 ended normally, 1 the bus cannot be reached or has failed,
    2 an option or the configuration is wrong (nothing was started).
    """
    from toolgate_schedulers.commands.scheduler_run import (  # here: `list` and the help do without all of it
        RunOptions,
        launch,
    )

    asked = RunOptions(specs, name, priority, tools, config, shadow, revision, concurrency, json_)
    launch(asked, redis, namespace, keys, replicas, metrics_port, metrics_address, ctx.find_root().params)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the scheduler, such as my-guard.")],
    directory: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to write to. Default: a folder with its name.")
    ] = None,
    description: Annotated[str, typer.Option(help="Purpose of the scheduler, in one line.")] = NEW_IS_FOR,
) -> None:
    """Write a package with a scheduler of your own, its configuration and its test, ready to run.

    \b
      toolgate scheduler new my-guard && cd my-guard
      toolgate scheduler run my_guard:MyGuard --config config.yaml
      toolgate run "Tidy up" --plan agent.yaml           in another terminal
    """
    from toolgate_bus.commands.new_files import write_new_files  # here: as above

    from toolgate_schedulers.commands.scheduler_new import contents, names_of

    names = names_of(name)
    folder = Path(name) if directory is None else directory
    texts = contents(names, description)
    write_new_files(folder, texts)
    console.print(escape(f"Wrote {folder}: {', '.join(texts)}."), soft_wrap=True)
    console.print("Start it:")
    start = f"toolgate scheduler run {names.module}:{names.cls} --config config.yaml"
    print_text(f"  cd {shlex.quote(str(folder))} && {start}")
    print_text(f"{folder / 'README.md'} goes on from there.")


@app.command("try")
def try_(
    spec: SpecArgument,
    call: Annotated[
        list[str],
        typer.Option(
            metavar="JSON",
            help="The call: tool, arguments, and as needed agent, session, labels, available_tools …; "
            "may be repeated.",
        ),
    ],
    config: ConfigOption = None,
    timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.01, max=3600, help="Longest wait for an answer, in seconds."),
    ] = 5.0,
    json_: JsonOption = False,
) -> None:
    """Ask a scheduler about a call, without a bus: show the verdict, the reason, and ways to allow the call.

    \b
      toolgate scheduler try policy --config rules.yaml \\
        --call '{"tool": "delete_file", "arguments": {"path": "a.txt"}}'
      toolgate scheduler try my_rules:rule --call '{"tool": "bash"}'
      toolgate scheduler try loop-guard --config g.yaml --call "$A" --call "$B"

    For a shipped scheduler it shows the rule that decided, whether that rule saw
    all its arguments, and changes that would allow the call.

    Several calls are asked about one after the other, on the same state.
    `toolgate policy test` checks a policy against a file of expectations.

    Exit codes: 0 the scheduler ruled (with any verdict), or is not asked about that
    tool; 1 it failed or gave no answer; 2 the call or its configuration is wrong.
    """
    from toolgate_bus.config.document import read_document
    from toolgate_bus.protocol.events import Failure  # here: as above

    from toolgate_schedulers.commands.scheduler_try import ReasonFinder, as_json, parse_call, show, try_calls
    from toolgate_schedulers.worker.loading import load

    document = None if config is None else read_document(config)
    scheduler = load(spec, config=document)
    reasons = ReasonFinder(spec, document)
    calls = [parse_call(one) for one in call]
    tried = run_async(lambda: try_calls(scheduler, calls, timeout))
    for one in tried:
        told = (one, scheduler.name, reasons)
        print_json(as_json(*told)) if json_ else show(*told)
    if any(one.asked and isinstance(one.answer, Failure | None) for one in tried):
        raise typer.Exit(1)


@app.command("list")
def list_(
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    json_: JsonOption = False,
) -> None:
    """Show the living schedulers: replicas, priority, tools, answered, late, last seen.

    For a shadow it also shows the number of decisions that the shadow would have
    changed, out of those it ruled on in the newest part of the record. `toolgate
    decisions --shadow` shows these decisions with the reasons.

    \b
      toolgate scheduler list
      toolgate scheduler list --json --namespace staging
    """
    from toolgate_schedulers.commands.scheduler_list import (  # here: as above
        as_json,
        lines_of,
        read_roster,
        readers_line,
        table_of,
    )

    with join_bus(redis, namespace, keys) as settings:
        view, totals, reach_s = run_async(lambda: read_roster(settings))
    lines = lines_of(view.members, totals, view.wires)
    if json_:
        for line in lines:
            print_json(as_json(line))
    elif lines:
        console.print(table_of(lines))
        if any(line.shadow_totals for line in lines):
            minutes = max(1, round(reach_s / 60))
            err_console.print(f"Shadows: what they would have changed in the last {minutes} min")
    else:
        err_console.print(
            f"No scheduler is alive in namespace {namespace}. "
            "Start one: toolgate scheduler run policy --config rules.yaml",
            soft_wrap=True,
        )
    if not json_ and (readers := readers_line(view.readers_by_role())):
        err_console.print(readers)


for _command in (push, history, diff, undo, rollout, status, check, search):
    app.command()(_command)
