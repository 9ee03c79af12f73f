"""`toolgate policy suggest`: write the least rules that fit what ran."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from toolgate_bus.commands.decisions.archive_progress import ArchiveProgress
from toolgate_bus.commands.decisions.archive_reader import open_archive
from toolgate_bus.commands.decisions.filters import moment, time_of
from toolgate_bus.commands.decisions.source import ServerSource, open_source
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.new_files import write_new_files
from toolgate_bus.commands.options import (
    JsonOption,
    NamespaceOption,
    QuietOption,
    RedisOption,
    err_console,
    join_bus,
    run_async,
)
from toolgate_bus.commands.table import Table
from toolgate_bus.commands.terminal import print_json, print_text
from toolgate_bus.errors import ConfigError, NoServer, ToolgateError
from toolgate_bus.facts.recording_file import load
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.redis.clock import entry_order

from toolgate_schedulers.commands.ran_calls import RanCalls, calls_of_runs
from toolgate_schedulers.shipped.policy.suggestions.suggested_file import format_policy, format_value
from toolgate_schedulers.shipped.policy.suggestions.suggestions import SuggestedRule, Suggestions

MAX_TOOLS_SHOWN: Final = 3


def suggest_rules(
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Only calls from this time on: 30m or 1d (ago), or 2026-11-21T10:30Z."
        ),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Read recorded runs, as `toolgate replay` does, not the record."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the rules to this file. It must not exist. Default: stdout."
        ),
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Read this archive, and what the server has beyond it.", rich_help_panel="Bus"
        ),
    ] = None,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    quiet: QuietOption = False,
    json_: JsonOption = False,
) -> None:
    """Write the least rules that fit what ran, for you to read.

    \b
      toolgate policy suggest > rules.yaml
      toolgate policy suggest --since 1d --archive /srv/record --out rules.yaml
      toolgate policy suggest --runs runs.jsonl

    Each tool that ran gets a rule that allows it, with its number of calls and
    up to three of them as comments. An argument gets a condition where enough
    was seen: a few values, a range, a folder, a mail domain, the form of an id.
    The comments say where evidence is thin. Denied and failed calls are left
    out, hidden values are never written.

    The last rule asks a person about every other call. It has `mode: observe`,
    so the file changes nothing at first: `toolgate decisions` tells which calls
    it would have asked about. Remove that line to have the rules rule.

    A table of tools, calls and rules goes to stderr (not with --quiet). With
    --json, stdout gets one rule a line, and a summary. Without --archive the
    record has one hour.

    Exit codes: 0 written; 1 no call ran, or the server cannot be read; 2 an
    option or a file is wrong, or there is no server.
    """
    if out is not None and out.exists():
        raise ConfigError(f"--out: {out} exists already: name another file")
    others = [name for name, one in (("--since", since), ("--archive", archive)) if one is not None]
    if runs is not None and others:
        raise ConfigError(f"{others[0]}: is for the record, and cannot be combined with --runs")
    moment("--since", since, time.time())  # a wrong option needs no server
    suggestions = Suggestions()
    if runs is not None:
        left_out = Counter[str]()
        for call in calls_of_runs(load(runs), left_out):
            suggestions.add(call)
        about = [f"Suggested from recorded runs, {runs}."]
    else:
        ran = RanCalls()
        about = _read_record(suggestions, ran, since, archive, redis, namespace)
        left_out = ran.left_out
        if ran.unended:
            about.append(f"{_calls(ran.unended)} let through, no end reported: count as ran.")
    if not suggestions.calls:
        what = ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items()))
        raise ToolgateError(
            f"no call ran{f' ({what})' if what else ''}, so there is nothing to suggest. Let agents run "
            "first, take an earlier --since, or read an archive (--archive DIR)"
        )
    rules = suggestions.rules()
    left_out += suggestions.left_out
    if left_out:
        told = ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items()))
        about.append(f"Left out of {suggestions.calls + left_out.total()} calls: {told}.")
    about.append("Read each rule before it rules. As written, the file denies nothing and asks nobody.")
    if json_:
        for one in rules:
            print_json(_record_of(one))
        print_json({"calls": suggestions.calls, "rules": len(rules), "left_out": left_out, "about": about})
    if out is not None:
        write_new_files(out.parent, {out.name: format_policy(rules, about)})
    elif not json_:
        print_text(format_policy(rules, about).rstrip("\n"))
    if not quiet:
        _show(rules, out)


def _read_record(
    suggestions: Suggestions,
    ran: RanCalls,
    since: str | None,
    archive: Path | None,
    redis: str | None,
    namespace: str,
) -> list[str]:
    """Take the calls of the server and the archive, or of the archive alone. Return words for both."""
    try:
        with join_bus(redis, namespace, None) as settings:
            return run_async(lambda: _take_record(suggestions, ran, since, archive, settings, namespace))
    except NoServer:
        if archive is None:
            raise
    err_console.print("No server is named, and none runs here: only the archive is read.")
    return run_async(lambda: _take_record(suggestions, ran, since, archive, None, namespace))


async def _take_record(
    suggestions: Suggestions,
    ran: RanCalls,
    since: str | None,
    archive: Path | None,
    settings: BusSettings | None,
    namespace: str,
) -> list[str]:
    async with AsyncExitStack() as stack:
        source = None if settings is None else await stack.enter_async_context(open_source(settings))
        now = time.time() if source is None else await source.now()
        begin = moment("--since", since, now)
        async for fact in _facts(source, archive, namespace, begin):
            if begin is not None and time_of(fact) < begin:
                continue
            if (call := ran.take(fact)) is not None:
                suggestions.add(call)
    for call in ran.finish():
        suggestions.add(call)
    places = [f"the archive {archive}"] if archive is not None else []
    places += [f"the server, namespace {namespace}"] if source is not None else []
    period = "" if since is None else f", since {since}"
    told = [f"Suggested from what ran by {' and '.join(places)}{period}."]
    if archive is None and (begin is None or begin < now - 3600):
        told.append(ServerSource.keeps.replace("--from DIR", "--archive DIR"))
    return told


async def _facts(
    source: ServerSource | None, archive: Path | None, namespace: str, begin: float | None
) -> AsyncIterator[Mapping[str, Any]]:
    """Give the facts of the archive, then those that the server has beyond it."""
    standing = ArchiveProgress()
    if archive is not None:
        opened = open_archive(archive)
        if opened.committed is not None:
            standing = opened.committed.standing
            if opened.committed.namespace != namespace:
                raise ConfigError(
                    f"{archive}: the archive is of namespace {opened.committed.namespace}: give --namespace"
                )
        for fact in opened.facts(begin):
            yield fact
    if source is not None:
        source.reader.resume({}, standing.numbers)
        async for fact in source.facts(begin):
            writer = str(fact.get("orchestrator"))
            if entry_order(fact["entry"]) > entry_order(standing.places.get(writer, "0-0")):
                yield fact


def _show(rules: Sequence[SuggestedRule], out: Path | None) -> None:
    """Show the rules as a table for people."""
    table = Table(["tool", "calls", "rule"], right=["calls"], wrap={"tool", "rule"})
    for one in rules:
        tools = list(one.calls)
        more = f", and {len(tools) - MAX_TOOLS_SHOWN} more" if len(tools) > MAX_TOOLS_SHOWN else ""
        named = f"{', '.join(tools[:MAX_TOOLS_SHOWN])}{more}" if tools else "any other"
        count = str(sum(one.calls.values())) if tools else ""
        table.add_row(escape(named), count, escape(_words(one)))
    err_console.print(table)
    if out is not None:
        name = escape(out)
        after = f"Read it, then: toolgate scheduler run policy --config {name}"
        err_console.print(f"{name} is written. {after}", soft_wrap=True)


def _words(one: SuggestedRule) -> str:
    """Return a rule in a few words."""
    if not one.calls:
        return "ask a person (observed)"
    rule = one.rule
    conditions = [f"{path}: {format_value(condition)}" for path, condition in rule.get("when", {}).items()]
    properties = rule.get("schema", {}).get("properties", {})
    conditions += [f"{name}, if given: {format_value(fragment)}" for name, fragment in properties.items()]
    if conditions:
        return "; ".join(conditions)
    return "any arguments (thin evidence)" if one.is_thin else "any values"


def _record_of(one: SuggestedRule) -> dict[str, Any]:
    return {
        "rule": one.rule,
        "calls": one.calls,
        "sessions": one.sessions,
        "reasons": one.reasons,
        "any_value": one.free,
        "examples": one.examples,
        "thin": one.is_thin,
    }


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count} calls"
