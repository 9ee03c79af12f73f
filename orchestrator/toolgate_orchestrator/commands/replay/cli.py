"""`toolgate replay`: puts recorded calls before real schedulers, or compares two sets of them.

A file of recorded runs goes through the real loop. The result tells what schedulers would have done to calls
that agents really made, and whether each call gets exactly one tool result, in order. `--against` compares
two sets on the same calls, from a file or from the record.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from toolgate_bus.commands.options import (
    KeysOption,
    NamespaceOption,
    QuietOption,
    RedisOption,
    bus_settings,
    console,
    join_bus,
    run_async,
    start_bus,
)
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ConfigError
from toolgate_bus.facts.recording_file import load
from toolgate_bus.ruling.counterfactual import CHANGES
from toolgate_bus.telemetry import tracing

from toolgate_orchestrator.commands.replay.result_comparison import RESULT_CHANGES
from toolgate_orchestrator.commands.replay.with_schedulers import specs_of

SERVICE = "toolgate-replay"
"""Service name of the command's traces."""
PATIENCE_MS = 2000
"""Default patience in milliseconds. It is longer than an agent's 500, so that a busy machine does not make a
scheduler look silent."""

_AGAINST = "Compare with --against"

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MAX_SECONDS: Final = 366 * 86_400


def replay(
    ctx: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE.jsonl",
            help="Recorded runs: one JSON object per line, with OpenAI chat messages under `traj`.",
        ),
    ] = None,
    loop: Annotated[str, typer.Option(metavar="NAME", help="Loop that plays the runs.")] = "loop-events",
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="NAME=config.yaml",
            help="Start this scheduler for the replay, in its own namespace (unless --namespace names one). "
            "It is required. May be repeated. Without --with, the living schedulers rule.",
        ),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Further tool to which calls may be sent, besides those in the file and those that the "
            "configs name under `to`, `target` or `targets`. May be repeated.",
        ),
    ] = None,
    patience_ms: Annotated[
        int,
        typer.Option(
            min=1,
            max=600_000,
            help="Longest wait for verdicts, in milliseconds. With --with or --against it also limits "
            "held calls, since nobody is there to answer them.",
        ),
    ] = PATIENCE_MS,
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Use the first N runs; with --since, the newest N decisions."),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=config.yaml",
            help="Scheduler of the other set: required, in its own namespace. May be repeated.",
            rich_help_panel=_AGAINST,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Use the record instead of a file: decisions of the last 30m, 24h … in --namespace.",
            rich_help_panel=_AGAINST,
        ),
    ] = None,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone",
            help="With --since: replay as if no other scheduler had ruled. Default: recorded verdicts stand, "
            "except those of schedulers with the same names.",
            rich_help_panel=_AGAINST,
        ),
    ] = False,
    fail_on_: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="CHANGE",
            help="Exit with 1 if there is such a change: veto, reroute, ask, hold or allow of a call; "
            "withhold, mask, replace or release of a result; or any. Separate several by commas.",
            rich_help_panel=_AGAINST,
        ),
    ] = None,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    quiet: QuietOption = False,
    json_: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: all figures, and every call.")
    ] = False,
) -> None:
    """Put recorded calls before schedulers, and see the outcome of each.

    [bold]toolgate replay runs.jsonl --with policy=rules.yaml[/]

    The recorded assistant messages stand for the LLM, and the recorded results for the tools. If a call is
    rerouted, it returns the result recorded for that tool and those arguments, from its own run or else from
    the file. If there is none, it returns the original's result, marked `unrecorded`. Schedulers that rule on
    results see the recorded results, and the report tells which they masked, replaced or withheld.

    [bold]toolgate replay runs.jsonl --with policy=old.yaml --against policy=new.yaml[/]

    Two sets of schedulers rule on the same calls, each in its own namespace. The result tells which calls the
    second set would veto, reroute, ask about, hold or allow, and which results it would withhold, mask,
    replace or release. If the configs tell what tools cost, it also tells the savings.

    [bold]toolgate replay --against policy=new.yaml --since 30m[/]

    Questions from the record go to the --against schedulers, never to the living ones, and their outcome is
    compared with the recorded one. The record has no text of results: they are counted as not
    compared. It has neither the
    tools' schemas nor the agents' limits on schedulers, so replacements are not checked by them. Rules that
    go by the clock (rate limits, windows) see the calls at the speed of the replay. Random choices (canaries
    without `sticky`, strategy `random`) are drawn again.

    --json of a plain replay has `totals`, `by_tool`, `by_scheduler`, `violations`, `contexts` (a digest of
    each run's final conversation, to compare loops by) and `calls`: the outcome of each call, and every
    verdict. With --against it has `before`, `after`, `totals`, `results`, `by_tool`, `by_scheduler`, `cost`,
    `limits` and `calls`: the `change` of each call, its outcome before and after, and that of its `result`.

    Exit codes: 0 all is well, with or without differences; 1 there is a change that --fail-on names, or a
    call did not get exactly one result in order or did not run as decided; 2 the file, a config or an option
    is wrong.
    """
    failing = fail_on(fail_on_ or ())
    check_together(
        file=file is not None,
        since=since is not None,
        with_=bool(with_),
        against=bool(against),
        only_against=[name for name, given in (("--since", since), ("--fail-on", failing)) if given],
        only_since=["--alone"] if alone else [],
        only_file=["--tool"] if tool else [],
    )
    # Late: amplifier_core takes a while to load, and --help should not.
    from toolgate_orchestrator.commands.replay import jobs

    stated = ctx.get_parameter_source("namespace")
    asked = jobs.ReplayRequest(
        loop=loop,
        before=specs_of(with_ or ()),
        after=specs_of(against or (), "--against"),
        tools=tool or (),
        patience_ms=patience_ms,
        limit=limit,
        # The schedulers of --with and the living ones must not rule on each other's calls, so they get a
        # namespace of their own unless the command line names one; the environment's does not count here.
        in_own_namespace=bool(with_) and not (stated and stated.name == "COMMANDLINE"),
        alone=alone,
        since_s=seconds_of(since) if since else 0,
        quiet=quiet,
    )
    bus_settings(redis, namespace, keys)
    if file is None:
        with tracing.configure(SERVICE), join_bus(redis, namespace, keys) as bus:
            comparison = run_async(lambda: jobs.against_record(asked, bus))
        _end(comparison, comparison.violations, json_, failed=bool(comparison.count_changed(failing)))
        return
    recording = load(file, limit)
    with tracing.configure(SERVICE), start_bus(redis, namespace, keys) as bus:
        if asked.after:
            comparison = run_async(lambda: jobs.against_runs(recording, asked, bus))
            _end(comparison, comparison.violations, json_, failed=bool(comparison.count_changed(failing)))
        else:
            report = run_async(lambda: jobs.play_runs(recording, asked, bus))
            _end(report, report.violations, json_, failed=False)


def _end(report: Any, violations: Sequence[str], as_json: bool, *, failed: bool) -> None:
    """Print the result, and exit with 1 if something is wrong."""
    if as_json:
        print_json(report.as_json())
    else:
        from toolgate_orchestrator.commands.replay.comparison import ReplayComparison
        from toolgate_orchestrator.commands.replay.view import comparison_view, view

        seen = comparison_view(report) if isinstance(report, ReplayComparison) else view(report)
        # Output to a file does not have to fit a screen.
        console.print(seen, soft_wrap=not console.is_terminal, crop=False)
    if violations or failed:
        raise typer.Exit(1)


def seconds_of(written: str) -> int:
    """Return a length of time such as `30m`, `24h` or `2d` in seconds. Raise ConfigError."""
    found = re.fullmatch(r"(\d{1,9})([smhd])", written.strip())
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < seconds <= _MAX_SECONDS:
        raise ConfigError(f"--since {written}: must be a length of time such as 90s, 30m, 24h or 7d")
    return seconds


def fail_on(written: Sequence[str]) -> frozenset[str]:
    """Return the changes that make the command exit with 1. Raise ConfigError for an unknown word."""
    kinds = {word.strip() for one in written for word in one.split(",") if word.strip()}
    known = (*CHANGES, *RESULT_CHANGES)
    for kind in sorted(kinds - {*known, "any"}):
        raise ConfigError(f"--fail-on {kind}: must be {', '.join(known)} or any")
    return frozenset(kinds)


def check_together(
    *,
    file: bool,
    since: bool,
    with_: bool,
    against: bool,
    only_against: Sequence[str],
    only_since: Sequence[str],
    only_file: Sequence[str],
) -> None:
    """Raise ConfigError, with advice, for options that do not go together.

    The last three parameters are the given options that need --against, --since, or a file.
    """
    if only_against and not against:
        raise ConfigError(f"{only_against[0]} needs something to compare with: --against NAME=config.yaml")
    if not file and not since:
        raise ConfigError("name a FILE.jsonl of recorded runs, or use the record by --against and --since 1h")
    if file and since:
        raise ConfigError("--since uses the record instead of a file: give --since or FILE.jsonl, not both")
    if since and with_:
        raise ConfigError("--with needs a FILE.jsonl: --since compares the recorded decisions with --against")
    if since and only_file:
        raise ConfigError(f"{only_file[0]} needs a FILE.jsonl of recorded runs; the record has its own tools")
    if only_since and not since:
        raise ConfigError(f"{only_since[0]} needs --since: with a FILE.jsonl, each set always rules alone")
