"""`toolgate decisions`: list, explain, export and archive the record, from a server or an archive."""

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import typer

from toolgate_bus.commands.completion import (
    complete_outcome,
    complete_result,
    complete_scheduler,
    complete_why,
)
from toolgate_bus.commands.decisions.archive_reader import ArchiveReport, check
from toolgate_bus.commands.decisions.archive_store import line_of
from toolgate_bus.commands.decisions.archiver import archive
from toolgate_bus.commands.decisions.filters import Filters, parse_filters, parse_id_prefix, time_of
from toolgate_bus.commands.decisions.keep import keep
from toolgate_bus.commands.decisions.listing import DecisionListView, follow, show, show_kept
from toolgate_bus.commands.decisions.source import (
    ArchiveSource,
    ServerSource,
    Source,
    decisions_in,
    facts_for,
    open_source,
)
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import (
    JsonOption,
    NamespaceOption,
    RedisOption,
    console,
    err_console,
    join_bus,
    refuse_options_before,
    run_async,
)
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ConfigError
from toolgate_bus.telemetry.printable import visible_json

Fact = dict[str, Any]

TOLD_EVERY: Final = 10_000
"""Number of lines between two progress messages."""


async def export(source: Source, filters: Filters, file: str, *, facts: bool) -> int:
    """Write the chosen facts to a file, or to stdout (`-`). Return the number of lines. Raise ConfigError."""
    count = 0
    decisions = (one async for one in decisions_in(facts_for(source, filters)) if filters.match(one))
    chosen = _facts(source, filters) if facts else decisions
    with _open_output(file) as out:
        async for one in chosen:
            out.write(visible_json(line_of(one).decode()).encode())
            count += 1
            if count % TOLD_EVERY == 0:
                err_console.print(f"{count} lines so far")
        out.flush()
    what = "facts" if facts else "decisions"
    where = "" if file == "-" else f" to {escape(file)}"
    err_console.print(f"Exported {count} {what}{where}.")
    return count


async def _facts(source: Source, filters: Filters) -> AsyncIterator[Fact]:
    async for fact in source.facts(filters.since):
        at = time_of(fact)
        after = filters.since is None or at >= filters.since
        if after and (filters.until is None or at <= filters.until):
            yield fact


@contextlib.contextmanager
def _open_output(file: str) -> Iterator[BinaryIO]:
    """Open the output. A file gets its name when it is complete."""
    if file == "-":
        yield sys.stdout.buffer
        return
    path = Path(file)
    try:
        descriptor, beside = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        Path(beside).replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            Path(beside).unlink()
        if isinstance(error, OSError):
            raise ConfigError(f"{file}: cannot be written: {error.strerror}") from None
        raise


app = typer.Typer(name="decisions", invoke_without_command=True)

_WHICH: Final = "Which decisions"
_MEGABYTE: Final = 2**20


def _which(*names: str, metavar: str, help_: str, complete: Callable[..., list[str]] | None = None) -> Any:
    return typer.Option(*names, metavar=metavar, help=help_, rich_help_panel=_WHICH, autocompletion=complete)


ToolOption = Annotated[
    list[str] | None,
    _which("--tool", metavar="GLOB", help_="Only of this tool, chosen by the LLM or to be run in the end."),
]
SchedulerOption = Annotated[
    str | None,
    _which(
        "--scheduler",
        metavar="NAME",
        help_="Only those that this scheduler was asked about (--shadow: would change).",
        complete=complete_scheduler,
    ),
]
OutcomeOption = Annotated[
    list[str] | None,
    _which(
        "--outcome",
        metavar="OUTCOME",
        help_="continue, modify, deny or cancelled.",
        complete=complete_outcome,
    ),
]
WhyOption = Annotated[
    list[str] | None,
    _which(
        "--why",
        metavar="WHY",
        help_="agreed, modified, denied, silent, expired, failed_open …",
        complete=complete_why,
    ),
]
ResultOption = Annotated[
    list[str] | None,
    _which(
        "--result",
        metavar="RESULT",
        help_="Only those whose result was released, masked, replaced or withheld.",
        complete=complete_result,
    ),
]
SessionOption = Annotated[
    str | None, _which("--session", metavar="ID", help_="Only of this session; its beginning is enough.")
]
AgentOption = Annotated[str | None, _which("--agent", metavar="NAME", help_="Only of this agent.")]
LabelOption = Annotated[
    list[str] | None, _which("--label", metavar="KEY=VALUE", help_="Only with this label; several: with all.")
]
SinceOption = Annotated[
    str | None,
    _which("--since", metavar="TIME", help_="Only from this time on: 10m or 2h (ago), or 2026-11-21T10:30Z."),
]
UntilOption = Annotated[
    str | None, _which("--until", metavar="TIME", help_="Only up to this time, written as for --since.")
]
IdOption = Annotated[str | None, _which("--id", metavar="ID", help_="Only those whose id begins like this.")]
FromOption = Annotated[
    Path | None,
    typer.Option("--from", metavar="DIR", help="Read this archive, not the server.", rich_help_panel="Bus"),
]


def _on_record(
    redis: str | None, namespace: str, archive: Path | None, do: Callable[[Source], Coroutine[Any, Any, None]]
) -> None:
    """Call `do` with the record of an archive or a server."""
    if archive is not None:
        source = ArchiveSource(archive)
        run_async(lambda: do(source))
        return
    with join_bus(redis, namespace, None) as settings:

        async def with_server() -> None:
            async with open_source(settings) as source:
                await do(source)

        run_async(with_server)


@app.callback()
def decisions(
    context: typer.Context,
    follow_: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new decisions.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Only the newest N (0: all; with --follow: 10).")] = 0,
    shadow: Annotated[
        bool,
        typer.Option(
            "--shadow", help="Only those that a shadow would have changed, with its changes and totals."
        ),
    ] = False,
    tool: ToolOption = None,
    scheduler: SchedulerOption = None,
    outcome: OutcomeOption = None,
    why: WhyOption = None,
    result: ResultOption = None,
    session: SessionOption = None,
    agent: AgentOption = None,
    label: LabelOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    id_: IdOption = None,
    from_: FromOption = None,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show what was decided, with every verdict.

    \b
      toolgate decisions --limit 20
      toolgate decisions --outcome deny --tool 'web_*' --since 10m
      toolgate decisions --follow --scheduler policy
      toolgate decisions --result withheld --result masked
      toolgate decisions --shadow        what rehearsing schedulers would change
      toolgate decisions show 3f2a       explain that one

    Oldest first. Arguments stand as they left the agent's process: redacted
    values are placeholders. The record keeps one hour; an archive (`archive`,
    `--from`) as long as you like. With --json, one object a line. A decision
    must match all filters that you give. If you give --tool, --outcome, --why or
    --result several times, one of its values is enough. Times are by the server's
    clock. Below a decision stands what schedulers ruled on the result of its call.

    --shadow compares each decision with the decision that would have been made
    if the shadow had counted. The shadow would veto, reroute, have a person
    asked (ask), hold without a final answer, or allow a call that was denied. A
    replacement that the other schedulers were not asked about is marked: one of
    them might still have denied it. With --json each decision has its
    `disagreements`. The last line has the `totals` of each shadow over all
    decisions that match (not with --follow).
    """
    if context.invoked_subcommand:
        refuse_options_before(context)
        return
    if follow_ and (until is not None or from_ is not None):
        raise ConfigError("--follow: shows new decisions, so it cannot be combined with --until or --from")
    named = None if shadow else scheduler  # a shadow is not among those asked: see below
    others = (tool or (), named, outcome or (), why or (), session, agent, label or ())
    which = partial(parse_filters, *others, since, until, id_, result=result or ())
    which(now=time.time())  # a wrong option needs no server

    async def do(source: Source) -> None:
        listing = DecisionListView(which(now=await source.now()), shadow and (scheduler or True), as_json)
        if follow_ and isinstance(source, ServerSource):
            await follow(listing, source, limit)
        else:
            await show_kept(listing, source, limit)

    _on_record(redis, namespace, from_, do)


@app.command("show")
def show_(
    id_: Annotated[
        str, typer.Argument(metavar="ID", help="Id of a decision. Its beginning is enough if it is unique.")
    ],
    from_: FromOption = None,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Explain one decision in words.

    \b
      toolgate decisions show 3f2a
      toolgate decisions show 3f2a --from /srv/record

    The explanation covers the agent's call, each scheduler's verdict and its
    time, the rule that decided, the reason that the agent was told, the tool
    that ran and its cost. It also covers late verdicts, and the changes that
    shadows would have made. With --json one object: the `decision`, the facts
    `after` it, and the words (`explained`).
    """
    prefix = parse_id_prefix("ID", id_)
    _on_record(redis, namespace, from_, lambda source: show(source, prefix, as_json=as_json))


@app.command("export")
def export_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to write. `-` means stdout.")],
    facts: Annotated[
        bool, typer.Option("--facts", help="All facts (tools that ran, usage …). Only times filter them.")
    ] = False,
    tool: ToolOption = None,
    scheduler: SchedulerOption = None,
    outcome: OutcomeOption = None,
    why: WhyOption = None,
    session: SessionOption = None,
    agent: AgentOption = None,
    label: LabelOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    from_: FromOption = None,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
) -> None:
    """Write decisions as JSON Lines, as --json prints them.

    \b
      toolgate decisions export denied.jsonl --outcome deny
      toolgate decisions export - --since 10m | jq .why
      toolgate decisions export all.jsonl --facts

    The file gets its name when it is complete, and replaces one that was there.
    Progress goes to stderr.
    """
    others = (tool or (), scheduler, outcome or (), why or (), session, agent, label or ())
    if facts and any(others):
        raise ConfigError("--facts: only --since and --until filter facts; other filters are for decisions")
    which = partial(parse_filters, *others, since, until)
    which(now=time.time())

    async def do(source: Source) -> None:
        await export(source, which(now=await source.now()), file, facts=facts)

    _on_record(redis, namespace, from_, do)


app.command("keep")(keep)


@app.command("archive")
def archive_(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory of the archive. It is made if it is missing.")
    ],
    once: Annotated[
        bool, typer.Option("--once", help="Archive what the server has now, then exit; for cron.")
    ] = False,
    check_: Annotated[
        bool, typer.Option("--check", help="Only read all of it, and exit with 1 if anything is missing.")
    ] = False,
    compress: Annotated[bool, typer.Option(help="Compress complete files (gzip).")] = True,
    size: Annotated[
        int, typer.Option(min=1, metavar="MB", help="Size from which a new file begins within the hour.")
    ] = 256,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: Annotated[bool, typer.Option("--json", help="With --check: print one JSON object.")] = False,
) -> None:
    """Archive facts in files, which keep them for longer than an hour.

    \b
      toolgate decisions archive /srv/record
      toolgate decisions archive /srv/record --once
      toolgate decisions archive /srv/record --check
      toolgate decisions --from /srv/record --outcome deny --since 7d

    Files are JSON Lines, one for each hour (UTC) or more. Each fact is there
    once, even if this process or its machine dies: the next run goes on where
    it ended. It waits for a server that is away. Only one archiver writes to a
    directory. Facts that were trimmed or lost before they were read are reported on
    stderr and by a line in the archive (`archive:gap`). The ledgers' journals
    are archived beside the facts: `toolgate report --archive` adds them up.

    The server keeps facts for an hour: run it all the time, or --once every
    half hour. Without it orchestrators write facts only while a scheduler is
    alive.
    """
    if check_:
        if once:
            raise ConfigError("--check: only reads, so it cannot be combined with --once")
        found = check(directory)
        _tell(directory, found, as_json)
        raise typer.Exit(0 if found.whole else 1)
    if as_json:
        raise ConfigError("--json: needs --check")
    with join_bus(redis, namespace, None) as settings:
        err_console.print(f"Archiving namespace {settings.namespace} to {escape(directory)}", soft_wrap=True)
        taken = run_async(
            lambda: archive(settings, directory, once=once, compress=compress, max_bytes=size * _MEGABYTE)
        )
        err_console.print(f"Archived {taken} facts.")


def _tell(directory: Path, found: ArchiveReport, as_json: bool) -> None:
    """Print the result of a check."""
    if as_json:
        print_json(found.as_json())
        return
    for line in found.words():
        console.print(line, soft_wrap=True, markup=False)
    verdict = "Nothing is missing." if found.whole else f"Wrong or missing: {len(found.words())}."
    paid = f", {found.entries} entries of the ledger" if found.entries else ""
    told = f"{found.facts} facts ({found.decisions} of them decisions){paid}; files: {found.files}."
    console.print(f"{directory}: {told} {verdict}", soft_wrap=True, markup=False)
