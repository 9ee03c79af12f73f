"""`toolgate approvals`: show the calls that wait for a person, and answer them.

This module reads the options; `answer` does the work, `correction` reads corrections, and `view` prints.
Exit codes: 0 done, 1 not done (another person was first, too late, changed, set aside), 2 a wrong option.
"""

import socket
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Literal

import typer
from toolgate_bus.commands.markup import escape, escape_lines
from toolgate_bus.commands.options import (
    JsonOption,
    NamespaceOption,
    RedisOption,
    console,
    err_console,
    find_user,
    join_bus,
    run_async,
)
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ConfigError, ToolgateError
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.telemetry.printable import format_duration, visible

from toolgate_schedulers.commands.approvals import correction as edits
from toolgate_schedulers.commands.approvals.answer import (
    Person,
    answer,
    build_standing_rule,
    describe_answer,
    describe_outcome,
    explain_failure,
    find,
    outcome,
    past,
    resolve_outcome,
)
from toolgate_schedulers.commands.approvals.editor import (
    DeskSession,
    decisions_from_now,
    find_past_decision,
    in_editor,
    open_approvals,
)
from toolgate_schedulers.commands.approvals.view import (
    always_table,
    as_fields,
    full,
    one_line,
    short,
    table,
)
from toolgate_schedulers.shipped.approval.queue import ApprovalQueue, WaitingCall
from toolgate_schedulers.shipped.approval.records import Approval, StandingApproval

FOLLOW_S = 2.0
OVERVIEW = """
Answer the calls that wait for a person.

A scheduler `approval` holds them. You can answer from anywhere on the same bus.

\b
  toolgate approvals list --follow               what waits
  toolgate approvals show 1f2e                   the whole call
  toolgate approvals approve 1f2e                exactly this call runs
  toolgate approvals deny 1f2e --reason "unknown payee"
  toolgate approvals edit 1f2e --arguments '{"to": "bob", "amount": 9}'
"""
app = typer.Typer(name="approvals", help=OVERVIEW, no_args_is_help=True)

IdArgument = Annotated[
    str,
    typer.Argument(metavar="ID", help="Id that `list` shows, or its first four or more digits, if unique."),
]
AsOption = Annotated[
    str | None, typer.Option("--as", metavar="NAME", help="Name to answer under (default: the user's name).")
]
ReasonOption = Annotated[str | None, typer.Option(max=1000, help="Reason, told to the agent and kept.")]
WaitOption = Annotated[
    float, typer.Option(min=0, max=60, metavar="SECONDS", help="Longest wait for the outcome, in seconds.")
]


@app.command("list")
def list_(
    follow: Annotated[
        bool, typer.Option("--follow", "--watch", "-f", help="Keep running; show calls that come and go.")
    ] = False,
    always: Annotated[
        bool, typer.Option("--always", help="Show what passes without asking instead (`approve --always`).")
    ] = False,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show the calls that wait for a person, the first to expire first.

    \b
      toolgate approvals list --follow
      toolgate approvals list --always      what passes without asking
    """
    if follow and always:
        raise ConfigError("--follow and --always cannot be combined")
    do = _list_always if always else _follow if follow else _list
    _with(redis, namespace, lambda opened: do(opened.desk, as_json))


@app.command()
def show(
    id_: IdArgument,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show one call in full: tool, arguments, caller, and the seconds that it still waits.

    \b
      toolgate approvals show 1f2e
    """
    _with(redis, namespace, lambda opened: _show(opened.desk, id_, as_json))


@app.command()
def approve(
    id_: IdArgument,
    always: Annotated[
        bool,
        typer.Option("--always", help="Also let later calls of this tool pass, in this session, for a day."),
    ] = False,
    exactly: Annotated[
        bool, typer.Option("--exactly", help="With --always: only calls with the same arguments.")
    ] = False,
    reason: ReasonOption = None,
    as_: AsOption = None,
    wait: WaitOption = 3.0,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Let exactly this call run.

    \b
      toolgate approvals approve 1f2e
      toolgate approvals approve 1f2e --always --reason 'only files'
    """
    if exactly and not always:
        raise ConfigError("--exactly: give --always as well")

    async def do(opened: DeskSession) -> None:
        one, who = await find(opened.desk, id_), _person(as_)
        rule = build_standing_rule(one.approval, who, reason, exactly=exactly) if always else None
        await _answer(opened, one, wait, as_json, who, "approve", reason, rule=rule)

    _with(redis, namespace, do)


@app.command()
def deny(
    id_: IdArgument,
    reason: ReasonOption = None,
    as_: AsOption = None,
    wait: WaitOption = 3.0,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Deny this call. The agent is told the reason.

    \b
      toolgate approvals deny 1f2e --reason 'we do not know the payee'
    """

    async def do(opened: DeskSession) -> None:
        one, who = await find(opened.desk, id_), _person(as_)
        await _answer(opened, one, wait, as_json, who, "deny", reason)

    _with(redis, namespace, do)


@app.command()
def edit(
    id_: IdArgument,
    arguments: Annotated[
        str | None,
        typer.Option(metavar="JSON|@FILE", help="All arguments of the call that is to run instead."),
    ] = None,
    tool: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another tool, with these arguments.")
    ] = None,
    reason: ReasonOption = None,
    as_: AsOption = None,
    wait: WaitOption = 3.0,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Correct this call, and run exactly the corrected call. Without options, $EDITOR opens.

    \b
      toolgate approvals edit 1f2e
      toolgate approvals edit 1f2e --arguments '{"amount": 9}'
      toolgate approvals edit 1f2e --arguments @call.json --tool pay_small
    """
    given = None if arguments is None else edits.read(arguments)

    async def do(opened: DeskSession) -> None:
        one, who = await find(opened.desk, id_), _person(as_)
        approval = one.approval
        if given is None and tool is None:
            corrected = edits.from_text(await in_editor(edits.as_text(approval)))
        else:
            kept = approval.question.tool_input if given is None else given
            corrected = (tool or approval.question.tool_name, kept)
        edits.check(approval, *corrected)
        await _answer(opened, one, wait, as_json, who, "edit", reason, corrected)

    _with(redis, namespace, do)


@app.command()
def revoke(
    id_: IdArgument,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """End an `approve --always`, by its id in `list --always`. People are asked about its calls again.

    \b
      toolgate approvals revoke 77ab
    """
    _with(redis, namespace, lambda opened: _revoke(opened.desk, id_, as_json))


# ---------------------------------------------------------------------- what they do


def _with(redis: str | None, namespace: str, do: Callable[[DeskSession], Coroutine[Any, Any, None]]) -> None:
    async def main(settings: BusSettings) -> None:
        async with open_approvals(settings) as opened:
            await do(opened)

    with join_bus(redis, namespace, None) as settings:
        run_async(lambda: main(settings))


async def _list(desk: ApprovalQueue, as_json: bool) -> None:
    held = await desk.list_held()
    waiting = [one for one in held if not one.gone]
    if as_json:
        for one in waiting:
            print_json(as_fields(one.approval, one.seconds_left))
    elif waiting:
        console.print(table(waiting))
    else:
        err_console.print("No call waits for a person. `toolgate approvals list --follow` waits for one.")
    if gone := len(held) - len(waiting):
        calls = "call is" if gone == 1 else "calls are"
        err_console.print(f"[dim]{gone} more {calls} held for agents that are gone: nobody waits.[/]")


async def _list_always(desk: ApprovalQueue, as_json: bool) -> None:
    found = await desk.list_standing()
    if as_json:
        for one, left in found:
            print_json({**one.model_dump(), "seconds_left": left})
    elif found:
        console.print(always_table(found))
    else:
        err_console.print("Nothing passes without asking.")


async def _follow(desk: ApprovalQueue, as_json: bool) -> None:
    known: dict[str, WaitingCall] = {}
    after = "0-0"
    while True:
        now = {one.approval.id: one for one in await desk.list_waiting()}
        for id_ in known.keys() - now.keys():
            await _say_gone(desk, known[id_].approval, as_json)
        for id_ in [id_ for id_ in now if id_ not in known]:
            _say_waiting(now[id_], as_json)
        known = now
        for notice in await desk.news(after, FOLLOW_S):
            after = notice.id


def _say_waiting(one: WaitingCall, as_json: bool) -> None:
    if as_json:
        print_json({"event": "waiting", **as_fields(one.approval, one.seconds_left)})
        return
    left = f"[dim]{format_duration(one.seconds_left)} left[/]"
    console.print(
        f"{escape(short(one.approval.id))} [yellow]waits[/] {escape(one_line(one.approval.question))} {left}",
        soft_wrap=True,
    )


async def _say_gone(desk: ApprovalQueue, approval: Approval, as_json: bool) -> None:
    given = await desk.answer_to(approval.id)
    if as_json:
        print_json({"event": "over", **as_fields(approval, None, given)})
        return
    words = describe_answer(given) if given is not None else "waits no longer"
    console.print(escape(f"{short(approval.id)} {words}"), soft_wrap=True)


async def _show(desk: ApprovalQueue, id_: str, as_json: bool) -> None:
    try:
        one = await find(desk, id_)
        approval, left = one.approval, one.seconds_left
    except ConfigError:
        raise
    except ToolgateError as over:
        approval, left = await past(desk, id_), None
        err_console.print(escape_lines(str(over)), style="yellow", soft_wrap=True)
    given = await desk.answer_to(approval.id)
    if as_json:
        print_json(as_fields(approval, left, given))
        return
    for line in full(approval, left, given):
        console.print(escape(line), soft_wrap=True)


async def _revoke(desk: ApprovalQueue, id_: str, as_json: bool) -> None:
    meant = [one for one, _ in await desk.list_standing() if one.id.startswith(id_.strip().lower())]
    if len(meant) != 1 or len(id_.strip()) < 4:
        count = len(meant) if len(id_.strip()) >= 4 else 0
        raise ToolgateError(
            f"{count} standing approvals begin with {visible(id_)}; "
            "`toolgate approvals list --always` shows them"
        )
    await desk.revoke(meant[0].id)
    if as_json:
        print_json({"event": "revoked", **meant[0].model_dump()})
    else:
        console.print(
            escape(f"Calls of {meant[0].tool} in session {meant[0].session} are asked about again.")
        )


async def _answer(
    opened: DeskSession,
    one: WaitingCall,
    wait: float,
    as_json: bool,
    who: Person,
    action: Literal["approve", "deny", "edit"],
    reason: str | None,
    corrected: tuple[str, dict[str, Any]] | None = None,
    rule: StandingApproval | None = None,
) -> None:
    """Give the answer, then print the outcome; raise ToolgateError if it is not the wanted one."""
    decided = await decisions_from_now(opened)
    given = await answer(opened.desk, one.approval, who, action, reason, corrected, rule)
    came = await outcome(opened.desk, one.approval, decided, wait)
    came = await resolve_outcome(opened.desk, one, came, lambda id_: find_past_decision(opened, id_))
    wrong = explain_failure(one.approval, given, came)
    if as_json:
        decision = came.decision or {}
        fields = {
            "event": "answered",
            **as_fields(one.approval, None, given),
            "became": came.became,
            "outcome": decision.get("outcome"),
            "why": decision.get("why"),
            "final_tool": decision.get("final_tool"),
            "final_input": decision.get("final_input"),
            "instead": came.instead.approval.id if came.instead is not None else None,
            "always_id": rule.id if rule is not None else None,
            "error": wrong,
        }
        print_json(fields)
    elif wrong is None:
        console.print(escape_lines(describe_outcome(one.approval, given, came)), soft_wrap=True)
        if rule is not None:
            console.print(
                escape(f"Later calls pass. To end that: `toolgate approvals revoke {short(rule.id)}`.")
            )
    if wrong is not None:
        raise ToolgateError(wrong)


def _person(name: str | None) -> Person:
    if name is not None and not 0 < len(name) <= 64:
        raise ConfigError("--as: must have 1 to 64 characters")
    return Person(name or find_user(), socket.gethostname()[:64])
