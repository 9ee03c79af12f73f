"""A report adds up what the ledger paid and what facts tell, each once, in whatever order they come."""

import csv
import io
import json
import random
from collections import Counter
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from toolgate_bus.commands.decisions.archive_disk import ArchiveDisk
from toolgate_bus.commands.decisions.archive_store import ArchiveStore
from toolgate_bus.commands.main import app as frame
from toolgate_bus.commands.report.accounting import ReportBuilder
from toolgate_bus.commands.report.figures import parse_by, total_of
from toolgate_bus.commands.report.period import Period, day_of, month_of
from toolgate_bus.commands.report.sources import ReportNotes
from toolgate_bus.commands.report.view import print_report
from toolgate_bus.errors import ConfigError, ToolgateError
from toolgate_bus.ledger.money.limits import BudgetDescription
from toolgate_bus.state.ejections import EjectionNote, sum_up
from typer.testing import CliRunner

pytestmark = pytest.mark.pure

NOON = 1_795_262_400  # 2026-11-21T12:00Z
DAY = 86_400
TOOLS = {"search": 400_000, "cheap": 90_000, "notes": 0}


def fact(event, number, at=NOON, **fields):
    entry = f"{int(at * 1000)}-0"
    return {"event": event, "orchestrator": "o", "seq": number, "entry": entry, "at": at, **fields}


def decision(number, id_, at=NOON, **fields):
    told = {"id": id_, "outcome": "continue", "why": "agreed", "tool_name": "search", "tool_input": {}}
    return fact("decision", number, at, **{**told, "verdicts": [], "seconds": 0.1, **fields})


def post(number, id_, tool="search", cost=400_000, at=NOON, **fields):
    return fact("tool:post", number, at, decision_id=id_, tool=tool, cost=cost, success=True, **fields)


def entry(number, id_, amount, at=NOON, accounts=(), **fields):
    told = {"kind": "settle", "reserved": amount, "accounts": [list(one) for one in accounts], **fields}
    made = {"event": "ledger", "book": "budget", "entry": f"{int(at * 1000)}-{number}", "at": at}
    return {**made, "id": id_, "amount": amount, **told}


def reported(lines, by=(), period=None, budget=None):
    accounting = ReportBuilder(parse_by(by), period or Period(None, None), budget=budget)
    for line in lines:
        accounting.take(line)
    accounting.finish()
    return accounting.rows


def test_what_budgets_counted_of_another_unit_is_no_money_and_has_its_own_sum():
    calls = {"accounts": [["often/fleet", 0]], "unit": "calls"}
    money = {"accounts": [["daily/fleet", 0]], "kind": "settle"}
    built = reported(
        [
            entry(1, "a", 400, **money),
            entry(2, "a", 1, **calls, kind="part", of="settle"),
            entry(3, "b", 1, **calls, kind="settle"),
            entry(4, "c", 1, accounts=[["often/agent/x", 0]], unit="calls", kind="part"),
        ]
    )
    (figures,) = built.values()
    assert (figures.spent, figures.units) == (400, {"calls": 2})


def total(lines, **options):
    return total_of(reported(lines, **options).values())


def test_what_a_budget_paid_is_counted_once_whichever_comes_first():
    paid, told = entry(1, "d1", 400_000), post(2, "d1")
    for lines in ([paid, told], [told, paid], [told, paid, post(3, "d1")]):
        found = total(lines)
        assert (found.spent, found.outside) == (400_000, 0)


def test_what_no_budget_paid_is_outside():
    found = total([post(1, "d1", cost=7), fact("usage", 2, cost_usd="0.25"), entry(1, "d2", 5)])
    assert (found.spent, found.outside, found.calls, found.requests) == (5, 250_007, 1, 1)


def test_an_llm_request_is_found_by_its_decision_or_by_its_charge():
    asked = fact("usage", 3, cost_usd="0.25", decision_id="d1")
    for paid in (entry(1, "d1", 250_000), entry(1, "usage-o-3", 250_000, kind="charge")):
        found = total([asked, paid])
        assert (found.spent, found.outside, found.requests) == (250_000, 0, 1)


def test_a_request_that_nobody_was_asked_about_is_known_by_its_charge_also_where_it_told_no_cost():
    asked = fact("usage", 3, session="s-1", input_tokens=9)
    for lines in ([asked, entry(1, "usage-o-3", 27, kind="charge")], [entry(1, "usage-o-3", 27), asked]):
        ((row, figures),) = reported(lines, by=("session",)).items()
        assert ("s-1" in str(row), figures.spent, figures.outside) == (True, 27, 0)


def test_an_orphan_that_is_corrected_leaves_what_it_really_cost():
    lines = [entry(1, "d1", 400_000, kind="orphan"), post(2, "d1", cost=90_000), entry(2, "d1", -310_000)]
    found = total(lines)
    assert (found.spent, found.orphans, found.outside) == (90_000, 1, 0)


def test_a_call_that_cost_more_than_was_reserved_is_an_overrun():
    assert total([entry(1, "d1", 5, reserved=4), entry(2, "d2", 4)]).overruns == 1


def test_who_denied_held_and_replaced_is_told():
    held = [{"scheduler": "approval", "action": "hold", "seconds": 60}]
    lines = [
        decision(1, "d1", outcome="deny", scheduler="policy"),
        decision(2, "d2", verdicts=held, seconds=12.5),
        decision(3, "d3", outcome="modify", scheduler="router", final_tool="cheap"),
        decision(4, "d4"),
    ]
    rows = reported(lines, by=["scheduler"])
    assert rows[("policy",)].denied == 1
    assert (rows[("approval",)].held, rows[("approval",)].held_s) == (1, 12.5)
    assert rows[("router",)].replaced == 1


def test_results_that_were_ruled_on_are_told_by_what_became_of_them_and_by_whom():
    def ruled(number, outcome, scheduler=""):
        fields = {"decision_id": f"d{number}", "tool": "read", "verdicts": [], "scheduler": scheduler}
        return fact("tool:result", number, outcome=outcome, why="x", agent="anna", **fields)

    lines = [
        ruled(1, "released"),
        ruled(2, "masked", "pii"),
        ruled(3, "replaced", "pii"),
        ruled(4, "withheld", "policy"),
        ruled(5, "cancelled"),
    ]
    total = total_of(reported(lines).values())
    assert (total.results, total.masked, total.withheld, total.calls) == (5, 2, 1, 0)
    by = reported(lines, ["scheduler", "agent", "tool"])
    figures = by["pii", "anna", "read"]
    assert (figures.results, figures.masked, figures.withheld) == (2, 2, 0)


def test_decisions_that_local_tables_alone_gave_are_counted():
    by_table = {"scheduler": "policy", "action": "continue", "revision": "v1@3f2a local"}
    asked = {"scheduler": "router", "action": "continue", "revision": "v1"}
    shadow = {**asked, "shadow": True}
    lines = [
        decision(1, "d1", verdicts=[by_table]),
        decision(2, "d2", verdicts=[by_table, shadow]),
        decision(3, "d3", verdicts=[by_table, asked]),
        decision(4, "d4"),
    ]
    assert total(lines).local == 2


def test_a_replacement_saves_what_the_llms_own_choice_costs_on_the_average():
    lines = [
        entry(1, "d1", 300_000, tool="search"),
        entry(2, "d2", 500_000, tool="search"),
        decision(1, "d3", outcome="modify", scheduler="router", final_tool="cheap"),
        entry(3, "d3", 90_000, tool="cheap"),
        decision(2, "d4", tool_name="unknown", outcome="modify", scheduler="router", final_tool="cheap"),
        entry(4, "d4", 90_000, tool="cheap"),
    ]
    rows = reported(lines, by=["scheduler", "tool"])
    assert rows[("router", "cheap")].saved == 310_000  # of `unknown` nobody knows what it costs


def test_what_a_success_cost_counts_what_failures_cost_too():
    lines = [
        *(entry(number, f"d{number}", 100, tool="search") for number in range(4)),
        *(
            fact("tool:post", number, decision_id=f"d{number}", tool="search", cost=100, success=number > 1)
            for number in range(3)
        ),
        fact("tool:error", 3, decision_id="d3", tool="search", cost=100),
        fact("usage", 4, decision_id="d4", provider="p", model="m", cost_usd="0.0003"),
        fact("usage", 5, decision_id="d5", provider="p", model="m", cost_usd="0.0001", partial=True),
    ]
    rows = reported(lines, by=["tool", "model"])
    one = rows[("search", "-")]
    assert (one.calls, one.succeeded, one.per_success) == (4, 1, 400)
    assert (rows[("llm:request", "m")].succeeded, rows[("llm:request", "m")].per_success) == (1, 400)
    assert total(lines[:4]).per_success is None


def test_a_replaced_model_saves_too():
    wanted = {"provider": "big", "model": "m"}
    lines = [
        entry(1, "d1", 800_000, tool="llm:request", provider="big", model="m"),
        decision(
            1,
            "d2",
            tool_name="llm:request",
            tool_input=wanted,
            final_tool="llm:request",
            final_input={"provider": "small", "model": "s"},
            outcome="modify",
            scheduler="router",
        ),
        entry(2, "d2", 50_000, tool="llm:request", provider="small", model="s"),
    ]
    assert reported(lines, by=["model"])[("s",)].saved == 750_000


def test_a_call_is_put_down_to_the_labels_of_its_session():
    lines = [
        decision(1, "d1", session="s1", labels={"team": "red"}),
        post(2, "d1", session="s1", cost=3),
        entry(1, "d1", 3, session="s1"),
        entry(2, "d9", 4, labels={"team": "blue"}),
        entry(3, "d8", 5),
    ]
    rows = reported(lines, by=["team"])
    assert {row[0]: one.spent for row, one in rows.items()} == {"red": 3, "blue": 4, "-": 5}


def test_it_does_not_matter_whether_the_call_or_what_was_paid_for_it_is_read_first():
    made, paid = decision(1, "d1", session="s1", agent="anna", labels={"team": "red"}), entry(1, "d1", 3)
    for lines in ([made, paid], [paid, made], [paid, post(2, "d1", session="s1"), made]):
        assert reported(lines, by=["team", "agent"])["red", "anna"].spent == 3


def test_a_forged_entry_is_no_money():
    assert total([{**entry(1, "d1", 5), "orchestrator": "evil", "seq": 9}]).spent == 0


def test_a_month_is_of_the_calendar_of_its_zone():
    here = ZoneInfo("Europe/Berlin")
    period = month_of("2026-03", "Europe/Berlin", 0)
    assert datetime.fromtimestamp(period.since, here).isoformat() == "2026-03-01T00:00:00+01:00"
    assert datetime.fromtimestamp(period.until, here).isoformat() == "2026-04-01T00:00:00+02:00"
    assert (
        day_of("2026-10-25", "Europe/Berlin").until - day_of("2026-10-25", "Europe/Berlin").since == 25 * 3600
    )
    december = month_of("2026-12", "UTC", 0)
    assert december.until == datetime(2027, 1, 1, tzinfo=UTC).timestamp()
    assert month_of(None, "UTC", NOON).name == "2026-11"


@pytest.mark.parametrize("month", ["2026-13", "26-11", "2026", "2026-00"])
def test_what_is_no_month_is_refused(month):
    with pytest.raises(ConfigError, match="2026-11"):
        month_of(month, "UTC", 0)


def test_what_was_reserved_in_a_window_counts_in_it_as_in_the_ledger():
    budgets = {"daily": BudgetDescription("daily", "fleet", None, DAY, "USD")}
    turn = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
    november = int(turn // DAY) - 1
    late = entry(1, "d1", 7, at=turn + 5, accounts=[("daily/fleet", november)])
    for name, spent in (("2026-11", 7), ("2026-12", 0)):
        period = Period(*_ends(name), "UTC", name, budgets)
        assert total([late], period=period).spent == spent
    assert (
        total([late], period=Period(*_ends("2026-12"))).spent == 7
    )  # by the clock, where budgets are unknown
    shifted = Period(turn + 1, turn + 9, budgets=budgets)  # no window of a day ends there
    assert total([late], period=shifted).spent == 7


def _ends(month):
    period = month_of(month, "UTC", 0)
    return period.since, period.until


@pytest.mark.parametrize("seed", range(8))
def test_sums_by_any_dimension_are_those_of_what_was_spent_whatever_the_order(seed):
    chance = random.Random(seed)
    begin, end = _ends("2026-11")
    lines, spent, outside, accounts = [], Counter(), Counter(), Counter()
    for number in range(1, 400):
        id_, team, tool = f"d{number}", chance.choice(["red", "blue"]), chance.choice(list(TOOLS))
        at = chance.uniform(end - 5 * DAY, end + 2 * DAY)
        amount, own = (
            chance.randrange(1, 10**6),
            {"session": f"{team}-1", "labels": {"team": team}, "tool": tool},
        )
        inside = at < end
        told = post(2 * number, id_, cost=amount, at=at, **own)
        lines += [
            decision(2 * number - 1, id_, at=at, tool_name=tool, session=own["session"], labels=own["labels"])
        ]
        lines.append(told)
        if chance.random() < 0.2:
            outside[team] += amount * inside
            continue
        window = int(at // DAY)
        account = (f"daily/label:team/{team}", window)
        made = [entry(number, id_, amount, at, [account], **own)]
        if chance.random() < 0.3:
            guess = chance.randrange(10**6)
            made = [
                entry(number, id_, guess, at, [account], **{**own, "kind": "orphan"}),
                entry(number, id_, amount - guess, at + 1, [account], **own),
            ]
        lines += made
        accounts[account] += amount
        spent[team] += amount * inside
    chance.shuffle(lines)
    budgets = {"daily": BudgetDescription("daily", "label:team", None, DAY, "USD")}
    period = Period(begin, end, budgets=budgets)
    accounting = ReportBuilder(parse_by(["team"]), period)
    for line in lines:
        accounting.take(line)
    accounting.finish()
    assert {row[0]: one.spent for row, one in accounting.rows.items()} == dict(spent)
    assert {row[0]: one.outside for row, one in accounting.rows.items()} == dict(outside)
    assert accounting.accounts == dict(accounts)
    for by in (["agent"], ["tool", "session"], ["label:team,tool,model"]):
        assert total(lines, by=by, period=period).spent == sum(spent.values())


# ---------------------------------------------------------------------- the command on an archive


def kept(directory, lines):
    """An archive with these lines."""
    store = ArchiveStore(ArchiveDisk(directory), "default")
    store.standing.begin([])
    store.append(lines, NOON * 1000)
    return directory


@pytest.fixture(name="archive")
def _archive(tmp_path):
    lines = [
        decision(1, "a1", session="s1", labels={"team": "=cmd()"}),
        post(2, "a1", session="s1"),
        entry(1, "a1", 400_000, session="s1", tool="search"),
        post(3, "a2", session="s2", cost=5),
    ]
    return kept(tmp_path / "archive", lines)


def report(*words, code=0):
    result = CliRunner().invoke(frame, ["report", *map(str, words)])
    if isinstance(result.exception, ToolgateError):
        return str(result.exception)
    assert result.exit_code == code, result.output
    return result.stdout


def test_the_table_has_a_total_and_says_what_it_read_and_cannot_know(archive):
    text = report("--by", "team", "--month", "2026-11", "--archive", archive)
    assert "Report of 2026-11 (UTC)" in text
    assert "0.400005" not in text  # what is outside stands apart
    assert "Outside budgets: 0.000005" in text
    (line,) = (one for one in text.splitlines() if one.startswith("total"))
    assert "0.40" in line.split()
    assert f"From: archive {archive}" in "".join(text.splitlines()) or "From: archive" in text
    assert "Not known: the archive begins at 2026-11-21T12:00:00+00:00" in text


def test_json_is_exact_and_its_last_line_is_the_total(archive):
    *rows, last = map(
        json.loads, report("--by", "team", "--month", "2026-11", "--json", "--archive", archive).splitlines()
    )
    assert {one["by"]["label:team"]: one["spent"] for one in rows} == {"=cmd()": 400_000, "-": 0}
    assert (last["total"]["spent"], last["total"]["outside"]) == (400_000, 5)
    assert last["period"]["name"] == "2026-11"
    assert last["unknown"]


def test_csv_is_exact_and_no_word_of_others_is_a_formula(archive):
    lines = list(
        csv.DictReader(
            io.StringIO(report("--by", "team", "--month", "2026-11", "--csv", "--archive", archive))
        )
    )
    assert [one["line"] for one in lines] == ["row", "row", "total"]
    assert lines[0]["label:team"] == "'=cmd()"
    assert lines[-1]["spent"] == "400000"


def test_what_observing_rules_would_have_done_is_told_with_the_calls(tmp_path):
    observed = [
        {"scheduler": "policy", "action": "continue", "phase": "select", "priority": 0, "seconds": 0.0}
    ]
    observed[0]["reason"] = "no deletes would have denied"
    lines = [
        decision(
            1, "a1", agent="clerk", tool_name="delete_file", tool_input={"path": "\x1b[2J"}, verdicts=observed
        ),
        decision(2, "a2", agent="clerk", tool_name="delete_file", verdicts=observed),
        decision(3, "a3", at=NOON - 40 * DAY, tool_name="delete_file", verdicts=observed),
    ]
    words = ("--month", "2026-11", "--archive", kept(tmp_path / "archive", lines))
    text = report(*words)
    assert "Would have denied 2, asked about 0" in text
    assert "policy: no deletes" in text
    assert "\x1b" not in text
    told = json.loads(report(*words, "--json").splitlines()[-1])["observed"]
    assert (told["denied"], told["asked"], told["left_out"]) == (2, 0, 0)
    (line,) = told["calls"]
    assert (line["would"], line["tool"], line["agent"], line["count"]) == ("deny", "delete_file", "clerk", 2)
    assert (line["scheduler"], line["rule"], line["decision"]) == ("policy", "no deletes", "a1")


def test_what_a_success_cost_is_shown_by_tool_and_not_as_a_mean_of_all(archive):
    shown = report("--by", "tool", "--month", "2026-11", "--archive", archive)
    assert "per success" in shown
    assert "per success" not in report("--by", "team", "--month", "2026-11", "--archive", archive)
    last = json.loads(report("--json", "--month", "2026-11", "--archive", archive).splitlines()[-1])
    assert (last["total"]["succeeded"], last["total"]["per_success"]) == (2, 200_002)
    assert last["ejections"] is None  # an archive has none: that is not the same as nobody was left alone


def test_who_was_left_alone_is_told_with_why(capsys):
    note = EjectionNote(NOON, "cost-aware", "cheap", "failures", "5 failures running", 10.0)
    accounting = ReportBuilder((), Period(None, None))
    accounting.finish()
    accounting.ejections = sum_up([note, note._replace(at=NOON + 60, seconds=20.0)], None, None)
    print_report(accounting, ReportNotes(), "table")
    told = "Ejected: cheap by cost-aware, 2 times, 30 s without calls; last 2026-11-21T12:01:00+00:00: 5 fail"
    assert told in capsys.readouterr().out
    print_report(accounting, ReportNotes(), "json")
    (one,) = json.loads(capsys.readouterr().out)["ejections"]
    assert (one["of"], one["times"], one["last"]["why"]) == ("cheap", 2, "failures")


def test_who_must_know_all_is_told_by_the_exit_code(archive):
    report("--month", "2026-11", "--strict", "--archive", archive, code=1)
    report("--since", "2026-11-21T12:00Z", "--strict", "--archive", archive)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--by", "colour"), "choose one of: team"),
        (("--month", "11"), "2026-11"),
        (("--day", "yesterday"), "2026-11-21"),
        (("--month", "2026-11", "--day", "2026-11-21"), "cannot be combined"),
        (("--time-zone", "Mars"), "Europe/Berlin"),
        (("--csv", "--json"), "cannot be combined"),
        (("--since", "soon"), "not a time"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_allowed(archive, words, told):
    assert told in report(*words, "--archive", archive)
