"""Tables of all commands: whole in a pipe; on a terminal of 80 columns no main column and no word is lost."""

import io

import pytest
from rich.text import Text
from toolgate_bus.commands import agents, budget, pauses, queue, shards
from toolgate_bus.commands.decisions.listing import print_decision, print_totals
from toolgate_bus.commands.table import CUT, Table
from toolgate_bus.commands.terminal import Terminal
from toolgate_bus.facts.shadow_report import ShadowTotals
from toolgate_bus.ledger.slots.view import QueuedCall, QueuedPool
from toolgate_bus.protocol.agents import LiveAgent
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.protocol.pauses import Pause, StandingPauses
from toolgate_bus.transport.ports import Member
from toolgate_orchestrator.commands.bench.cli import table_of as bench_table
from toolgate_orchestrator.commands.hook.cli import HookRow
from toolgate_orchestrator.commands.hook.cli import _show as hook_table
from toolgate_orchestrator.commands.replay.tables import table_of as replay_table
from toolgate_schedulers.commands import policy_status, scheduler_catalog, scheduler_list
from toolgate_schedulers.commands.approvals import view
from toolgate_schedulers.shipped.approval.queue import WaitingCall
from toolgate_schedulers.shipped.approval.records import Approval

pytestmark = pytest.mark.pure

AGENT = "research-assistant-for-the-quarterly-reports"
SESSION = "sess-3987ece7-d800-4a49-b964-4c4d7ad7b2e8"
REASON = "it waits until another call of the same pool has ended, and for its turn after that"


def approvals() -> Table:
    call = ToolSelecting(
        id="d" * 32, tool_name="pay_bill", tool_input={"to": "ACME of Delaware"}, agent=AGENT, session=SESSION
    )
    approval = Approval(id="59182f6a", scheduler="approval", digest="d", question=call, rule=REASON)
    return view.table([WaitingCall(approval, 60.0)])


def waiting_pool() -> Table:
    call = QueuedCall("7c5c646b", "browse_page", AGENT, SESSION, AGENT, 1, 0, 79, place=1, why=REASON)
    return queue._table(QueuedPool(f"browser/{SESSION}", 4, 2, None, 1.0, (call,), (call,)))


def accounts() -> Table:
    money = {"limit": 25_000_000_000, "spent": 10_000_000, "reserved": 0, "left": 15_000_000}
    row = {
        "budget": "daily",
        "whose": f"own-session/{SESSION}",
        "window": "month",
        "currency": "USD",
        **money,
    }
    return budget._table([{**row, "limit_set": True, "overruns": 3, "orphans": 2}])


def sides() -> Table:
    side = {"median_us": 12_345.0, "p99_us": 123_456.0, "per_second": 12_345, "cpu_us": 1234.0}
    parts = {"gate": 100.0, "server": 200.0, "schedulers": 300.0}
    ratio = {"median": 1.234, "rate": 12.3, "cpu": 123.4}
    return bench_table({"toolgate": {**side, "ratio": ratio, "cpu_by_kind_us": parts}})


def figures() -> Table:
    columns = (
        "scheduler",
        "continue",
        "deny",
        "modify",
        "run",
        "vetoed",
        "rerouted",
        "late",
        "median",
        "p99",
    )
    table = replay_table("By scheduler", columns)
    table.add_row(AGENT, *(["12345.6"] * 9))
    return table


MEMBER = Member("policy-of-the-team", "r", tools=("web_search", "delete_*", "email_*", "pay_*"), answered=123)
STATE = policy_status.TableState(
    "policy-of-the-team", ("c0b0e79e24fb local", "affefd88ce5b"), "", 3, 4, ("o-1",)
)
INSTALLED = scheduler_catalog.InstalledScheduler
HOOK = HookRow(
    "codex", "user", f"/home/ann/{SESSION}/.codex/hooks.json", True, ["policy"], "denied", REASON, 9, []
)
TABLES = {
    "agents": lambda: agents._table(
        [LiveAgent("s1", "s1", agent=AGENT), LiveAgent(SESSION, "s1", "s1", "writer", doing=REASON)]
    ),
    "agents pauses": lambda: pauses.make_table(
        StandingPauses(1, 2, (Pause("4f2a9c01", sessions=(SESSION, AGENT), by=AGENT),)), []
    ),
    "approvals list": approvals,
    "bench": sides,
    "budget list": accounts,
    "hook status": lambda: hook_table([HOOK]),
    "policy status": lambda: policy_status._table([STATE]),
    "queue": waiting_pool,
    "replay": figures,
    "scheduler list": lambda: scheduler_list.table_of(scheduler_list.lines_of([MEMBER], wires={"o": [9]})),
    "shards": lambda: shards._table([shards.ShardState(3, 120, tuple(f"scheduler-{n}" for n in range(20)))]),
}


def printed(table: object, *, terminal: bool, width: int = 80) -> list[str]:
    console = Terminal(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    console.print(table)
    return console.file.getvalue().splitlines()


def cells_of(table: Table) -> list[list[str]]:
    return [[Text.from_markup(cell).plain for cell in cells] for cells, _ in table._rows]


@pytest.mark.parametrize("name", TABLES)
def test_in_a_pipe_a_row_is_one_line_with_every_cell_whole(name: str) -> None:
    table = TABLES[name]()
    lines = printed(table, terminal=False)
    assert len(lines) == len(table._rows) + 1 + bool(table.title)
    for cells, line in zip(reversed(cells_of(table)), reversed(lines), strict=False):
        assert all(cell in line for cell in cells)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("name", TABLES)
def test_on_a_terminal_nothing_is_broken_and_the_main_column_stays(name: str, width: int) -> None:
    table = TABLES[name]()
    lines, cells = printed(table, terminal=True, width=width), cells_of(table)
    given = {word for row in cells for cell in row for word in cell.split()}
    known = given | {
        word for head in (*table.columns, Text.from_markup(table.title).plain) for word in head.split()
    }
    longest = max(map(len, known))
    assert all(len(line) <= max(width, longest + max(map(len, table.columns)) + 2) for line in lines)
    shown = "\n".join(lines).partition("\nThis terminal")[0]
    for word in set(shown.split()) - known:
        begin, cut, end = word.partition(CUT)
        assert cut, word
        assert any(begin in one for one in given), word
        assert any(end in one for one in given), word
    for row in cells:
        assert any(row[0][:8].strip() in line for line in lines)
    if width >= 80:
        assert table.columns[0].split()[0] in " ".join(lines) if table.columns[0] else True


def test_columns_that_are_left_out_are_named() -> None:
    table = Table(("name", "a", "b", "c", "empty"), cut={"name"}, spare=("empty", "c", "b"))
    table.add_row("x" * 60, "1" * 20, "2" * 20, "3" * 20, "")
    head, row, note = printed(table, terminal=True)
    assert head.split() == ["name", "a", "b"]
    assert row.startswith("xxxxxxxx")
    assert CUT in row
    assert note == "This terminal is too narrow for: c."


def test_a_row_that_fits_nowhere_is_a_block() -> None:
    table = Table(("name", "figure"))
    table.add_row("x" * 30, "1" * 20)
    assert printed(table, terminal=True, width=40) == [f"name    {'x' * 30}", f"figure  {'1' * 20}"]


def test_totals_of_shadows_are_a_table_like_any() -> None:
    console = Terminal(file=io.StringIO(), width=80, force_terminal=False)
    print_totals(console, {AGENT * 3: ShadowTotals()})
    assert AGENT * 3 in console.file.getvalue().splitlines()[1]


def test_a_decision_names_its_agent_and_the_beginning_of_its_session() -> None:
    console = Terminal(file=io.StringIO(), width=200, force_terminal=False)
    decision = {
        "outcome": "continue",
        "at": 0.0,
        "seconds": 0.002,
        "id": "e6874d27" * 4,
        "verdicts": [],
        "silent": [],
    }
    call = {"tool_name": "search", "tool_input": {}, "reason": None, "why": "agreed", "scheduler": None}
    for agent, session, words in ((AGENT, SESSION, [f"{AGENT[:39]}{CUT}", "sess-398"]), ("", "s-1", ["s-1"])):
        console.file.truncate(0)
        print_decision(console, {**decision, **call, "agent": agent, "session": session})
        assert console.file.getvalue().split()[3:] == ["{}", "2.0", "ms", "e6874d27", *words]
