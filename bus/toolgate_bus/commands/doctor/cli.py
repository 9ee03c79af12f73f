"""`toolgate doctor`: turn options into a context, and findings into lines and an exit code."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from toolgate_bus.commands.doctor.check import Bus, Check, Context, load_checks
from toolgate_bus.commands.doctor.runner import RightsQuery, run_checks
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import (
    JsonOption,
    KeysOption,
    NamespaceOption,
    RedisOption,
    bus_settings,
    console,
    run_async,
)
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ConfigError, NoServer
from toolgate_bus.fleet.finding import Finding, error, group_by_subject, notice, summary
from toolgate_bus.installation import how_to_install
from toolgate_bus.server.embedded import join_server
from toolgate_bus.transport.redis.client.rights import ROLES

MARKS: Final = {"error": "bold red", "warning": "yellow", "notice": "cyan", "ok": "green"}
INDENT: Final = 11
NARROWEST: Final = 40


def doctor(
    ctx: typer.Context,
    plan: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Check this mount plan too, and its schedulers on the bus."),
    ] = None,
    bundle: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URI", help="Say which loop this Amplifier bundle would mount and why, and check it."
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE", help="Check a scheduler's config file, as `scheduler run NAME` reads it."
        ),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(
            metavar="ROLE",
            help=f"Check whether the server lets the user do this role's work: {', '.join(ROLES)}; "
            "scheduler:NAME is the scheduler of that name.",
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Server user whose rights --role checks. Default: your own."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings, too.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="List the checks that are fine, too.")] = False,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    json_: JsonOption = False,
) -> None:
    """Find what is wrong with a bus, a plan, a bundle or a config, and say what to change.

    It changes and starts nothing. Without --redis, it checks the server that the plan
    names, else the embedded one, if that runs.

    \b
      toolgate doctor                                 server, roster, budgets
      toolgate doctor --plan plan.yaml                and a plan
      toolgate doctor --bundle bundle.md              and a bundle
      toolgate doctor --config policy=policy.yaml     and a file of rules
      toolgate doctor --role orchestrator             and your rights
      toolgate doctor --role scheduler:policy --user scheduler-policy
      toolgate doctor --json --strict                 for scripts

    An error means that something does not work, a warning that it may stop working.
    A notice may be intended.

    Exit codes: 0 no errors, 1 errors (with --strict warnings), 2 an option is wrong.
    """
    asked = _parse_role(role, user)
    configs = [_config(one) for one in config or ()]
    given = Context(plan=plan, configs=configs, keys=keys, bundle=bundle)
    checks, findings = load_checks()
    with ExitStack() as stay:
        source = ctx.get_parameter_source("namespace")
        # An option that nobody gave yields to the plan's value.
        explicit = namespace if source is not None and source.name != "DEFAULT" else None
        context, about_bus = _on_bus(given, redis, explicit, checks, stay)
        findings += about_bus
        findings += run_async(lambda: run_checks(context, checks, asked))
    # Options that no check here can handle.
    able = {need for check in checks for need in check.needs}
    findings += [
        error(
            need,
            f"{need}-unchecked",
            f"no installed package can check a {need}",
            f"run `{how_to_install('orchestrator')}`; a finding above may say why its checks were not loaded",
        )
        for need in ("plan", "bundle", "config")
        if need in context.available_needs and need not in able
    ]
    _show(findings, json_=json_, verbose=verbose)
    bad = {"error", "warning"} if strict else {"error"}
    raise typer.Exit(1 if any(one.level in bad for one in findings) else 0)


def _parse_role(role: str | None, user: str | None) -> RightsQuery | None:
    if role is None:
        if user is not None:
            raise typer.BadParameter("needs the option --role", param_hint="--user")
        return None
    kind, _, name = role.partition(":")
    if kind not in ROLES or (name and kind != "scheduler"):
        raise typer.BadParameter(f"must be one of {', '.join(ROLES)}, or scheduler:NAME", param_hint="--role")
    return RightsQuery(kind, name, user)


def _config(given: str) -> tuple[str, Path]:
    name, equals, file = given.partition("=")
    if not (name and equals and file):
        raise typer.BadParameter("must be NAME=FILE, as in policy=policy.yaml", param_hint="--config")
    return name, Path(file)


def _on_bus(
    given: Context, redis: str | None, namespace: str | None, checks: Iterable[Check], stay: ExitStack
) -> tuple[Context, list[Finding]]:
    """Return the context with a server, if there is one to check, and findings on why there is none."""
    # The bus on which the plan's agents would meet schedulers.
    named = [
        check.bus(given) for check in checks if check.bus is not None and check.needs <= given.available_needs
    ]
    own = next((bus for bus in named if bus.redis or bus.namespace), Bus())
    context, found = _resolve_settings(given, redis or own.redis, namespace or own.namespace)
    if found or context.redis is not None:
        return context, found
    try:
        server = stay.enter_context(join_server())
    except NoServer:
        what = "no bus was checked: no server is named, and no embedded server runs for this user"
        change = (
            "name a server (--redis URL or TOOLGATE_REDIS_URL), or run doctor while a command such as "
            "`toolgate scheduler run` runs"
        )
        return context, [notice("server", "server-none", what, change)]
    except ConfigError as raised:
        return context, [error("server", "server-embedded", str(raised), "do what the message says")]
    return _with(context, redis=server.url, embedded=True), []


def _resolve_settings(
    given: Context, redis: str | None, namespace: str | None
) -> tuple[Context, list[Finding]]:
    try:
        settings = bus_settings(redis, namespace, given.keys)
    except ConfigError as raised:
        change = (
            "correct --redis, --namespace or --keys, or TOOLGATE_REDIS_URL, TOOLGATE_NAMESPACE, TOOLGATE_KEYS"
        )
        return given, [error("server", "server-settings", str(raised), change)]
    return _with(given, settings.namespace, settings.redis, settings.keys), []


def _with(
    context: Context,
    namespace: str | None = None,
    redis: str | None = None,
    keys: Path | None = None,
    *,
    embedded: bool = False,
) -> Context:
    return replace(
        context,
        namespace=namespace or context.namespace,
        keys=keys or context.keys,
        redis=redis,
        embedded=embedded,
    )


def _show(findings: Sequence[Finding], *, json_: bool, verbose: bool) -> None:
    if json_:
        for one in findings:
            if verbose or one.level != "ok":
                print_json(one.as_json())
        return
    width = console.width if console.is_terminal else None  # piped output is searched by line
    for line in lines_of(findings, verbose=verbose, width=width):
        console.print(line, soft_wrap=True)


def lines_of(findings: Iterable[Finding], *, verbose: bool, width: int | None = None) -> Iterator[str]:
    """Give lines of markup. `verbose` adds what is fine. `width` None leaves every sentence on one line."""
    found = list(findings)
    for subject, own in group_by_subject(found):
        shown = [one for one in own if verbose or one.level != "ok"]
        if shown:
            yield f"[bold]{escape(subject)}[/]"
        for one in shown:
            mark = f"  [{MARKS[one.level]}]{one.level}[/]{' ' * (INDENT - 2 - len(one.level))}"
            for number, line in enumerate(_wrap(one.what, width)):
                yield f"{mark if number == 0 else ' ' * INDENT}{escape(line)}"
            for number, line in enumerate(_wrap(f"change: {one.change}", width) if one.change else ()):
                told = escape(line)
                yield " " * INDENT + (
                    told.replace("change:", "[green]change:[/]", 1) if number == 0 else told
                )
    yield f"[bold]{summary(found)}[/]"


def _wrap(text: str, width: int | None) -> list[str]:
    room = None if width is None else max(NARROWEST, width) - INDENT
    lines = text.splitlines() or [""]
    if room is None:
        return lines
    return [
        part
        for line in lines
        for part in textwrap.wrap(line, room, break_long_words=False, break_on_hyphens=False) or [""]
    ]
