"""What is read is judged: trouble is named with how to mend it, and what is well is called so."""

import asyncio
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from toolgate_bus.commands.doctor import runner
from toolgate_bus.commands.doctor.check import Check, Context, load_checks
from toolgate_bus.commands.doctor.cli import lines_of
from toolgate_bus.commands.doctor.runner import explain_failure, redact_url, run_checks
from toolgate_bus.errors import BusDown, ConfigError, OutcomeUnknown, ToolgateError, TransportError
from toolgate_bus.fleet.books import Book, budget_findings
from toolgate_bus.fleet.cluster import ClusterState, cluster_findings
from toolgate_bus.fleet.fact_streams import FactStreamState, facts_findings
from toolgate_bus.fleet.finding import (
    error,
    fine,
    group_by_subject,
    notice,
    summary,
    warning,
)
from toolgate_bus.fleet.inboxes import InboxConsumer, InboxState, inbox_findings
from toolgate_bus.fleet.roster import roster_findings
from toolgate_bus.fleet.sentinels import sentinel_findings
from toolgate_bus.fleet.server import ServerState, parse_info, server_findings
from toolgate_bus.installation import how_to_install
from toolgate_bus.ledger.money import journal
from toolgate_bus.ledger.money.journal import MAX_ENTRIES
from toolgate_bus.ledger.money.ledger import Balance, OpenReservation
from toolgate_bus.ledger.money.limits import BudgetDescription
from toolgate_bus.protocol.revision import Revision
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.client.readonly import ReadOnlyCommands
from toolgate_bus.transport.redis.roster.roster import RosterView
from toolgate_bus.transport.retention import KEEP_BYTES, FactUsage
from toolgate_orchestrator.commands.host.checks import check_hidden_fields
from toolgate_orchestrator.decision.config import RedactConfig

pytestmark = pytest.mark.pure

INFO = {
    "redis_version": "7.2.4",
    "role": "master",
    "redis_mode": "standalone",
    "aof_enabled": "1",
    "maxmemory_policy": "noeviction",
    "maxmemory": str(512 * 2**20),
    "used_memory": str(2**20),
}
WELL = ServerState(info=INFO, config={"appendfsync": "everysec"}, pings_s=[0.001] * 5, budgets=True)


def level(findings, name):
    (found,) = [one for one in findings if one.name == name]
    assert found.what
    assert found.change or found.level in ("ok", "notice")
    return found.level


def server(**info):
    return server_findings(replace(WELL, info={**INFO, **info}))


# ---------------------------------------------------------------- the server


def test_a_server_as_the_documents_want_it_has_nothing_to_mend():
    assert {one.level for one in server_findings(WELL)} == {"ok"}


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"redis_version": "6.2.14"}, "error"),
        ({"redis_version": "7.0.0"}, "ok"),
        ({"server_name": "valkey", "valkey_version": "7.1.9"}, "error"),
        ({"server_name": "valkey", "valkey_version": "7.2.0"}, "ok"),
        ({"server_name": "valkey", "valkey_version": "9.1.2", "redis_version": "7.2.4"}, "ok"),
        ({"redis_version": "unstable"}, "notice"),
    ],
)
def test_a_server_that_is_too_old_is_an_error_that_names_the_oldest_that_will_do(info, expected):
    findings = server(**info)
    assert level(findings, "server-version") == expected
    if expected == "error":
        wanted = "Valkey 7.2" if "valkey_version" in info else "Redis 7.0"
        assert wanted in next(one.change for one in findings if one.name == "server-version")


@pytest.mark.parametrize(
    ("info", "name", "expected"),
    [
        ({"redis_mode": "sentinel"}, "server-sentinel", "error"),
        ({"redis_mode": "cluster", "cluster_enabled": "1"}, "server-cluster", "error"),
        ({"role": "slave", "master_host": "db1", "master_port": "6379"}, "server-replica", "error"),
        ({"connected_slaves": "1"}, "server-replicated", "notice"),
        ({"maxmemory_policy": "allkeys-lru"}, "server-eviction", "error"),
        ({"evicted_keys": "12"}, "server-eviction", "notice"),
        ({"maxmemory": "0"}, "server-memory", "notice"),
        ({"used_memory": str(500 * 2**20)}, "server-memory", "warning"),
        ({"aof_last_write_status": "err"}, "server-disk", "error"),
        ({"aof_enabled": "0"}, "server-persistence", "warning"),
    ],
)
def test_what_is_wrong_with_a_server_is_named(info, name, expected):
    assert level(server(**info), name) == expected


A, B = ("a", 6379), ("b", 6379)
S1, S2, S3 = ("s1", 26379), ("s2", 26379), ("s3", 26379)


@pytest.mark.parametrize(
    ("answers", "name", "expected"),
    [
        ({S1: A, S2: A, S3: A}, "sentinels", "ok"),
        ({S1: A, S2: A, S3: B}, "sentinels-differ", "warning"),
        ({S1: A, S2: A, S3: "timed out"}, "sentinels-differ", "warning"),
        ({S1: A, S2: B, S3: None}, "sentinels-disagree", "error"),
        ({S1: A}, "sentinels-few", "notice"),
    ],
)
def test_sentinels_that_do_not_agree_are_named(answers, name, expected):
    assert level(sentinel_findings("fleet", answers), name) == expected


N1, N2, N3 = ("n1", 6379), ("n2", 6379), ("n3", 6379)


def owned(*owners, slots=16384):
    """What a node says where these hosts own all slots: a master and the replicas behind it."""
    return dict.fromkeys(range(slots), owners)


@pytest.mark.parametrize(
    ("answers", "name", "expected"),
    [
        ({N1: owned(N1, N2), N2: owned(N1, N2)}, "cluster", "ok"),
        ({N1: owned(N1, N2), N2: owned(N1, N2)}, "cluster-ours", "ok"),
        ({N1: owned(N1, N2), N2: owned(N1, N2)}, "cluster-replicas", "ok"),
        ({N1: owned(N1, N2), N2: owned(N1, N2), N3: owned(N3, N2)}, "cluster-differs", "warning"),
        ({N1: owned(N1, N2), N2: "timed out"}, "cluster-away", "notice"),
        ({N1: owned(N1)}, "cluster-replicas", "warning"),
        ({N1: owned(N1, N2, slots=16383)}, "cluster-coverage", "error"),
        ({N1: owned(N1, N2, slots=100)}, "cluster-ours", "error"),
        ({N1: "timed out"}, "cluster-silent", "error"),
    ],
)
def test_what_is_wrong_with_a_cluster_is_named(answers, name, expected):
    assert level(cluster_findings(ClusterState(answers, {"streams": 866})), name) == expected


def test_a_server_that_keeps_nothing_matters_by_what_is_kept_there():
    forgetful = replace(WELL, info={**INFO, "aof_enabled": "0"})
    assert level(server_findings(replace(forgetful, budgets=False)), "server-persistence") == "notice"
    assert level(server_findings(replace(forgetful, embedded=True)), "server-persistence") == "notice"
    lazy = replace(WELL, config={"appendfsync": "no"})
    assert level(server_findings(lazy), "server-persistence") == "warning"


def test_slow_round_trips_and_clocks_that_differ_are_told():
    slow = server_findings(replace(WELL, pings_s=[0.001, 0.2, 0.3]))
    assert level(slow, "server-latency") == "warning"
    assert level(server_findings(replace(WELL, ahead_s=-7)), "server-clock") == "notice"
    off = server_findings(replace(WELL, ahead_s=3600))
    assert level(off, "server-clock") == "warning"
    assert "3600 s ahead" in next(one.what for one in off if one.name == "server-clock")
    assert level(server_findings(replace(WELL, lags_s=[0.5] * 3)), "machine-loop-lag") == "notice"


def test_a_server_that_this_user_may_not_look_at_is_told_as_such():
    findings = server_findings(replace(WELL, info={}))
    assert level(findings, "server-not-shown") == "notice"
    assert not [one for one in findings if one.name == "server-version"]


def test_info_is_read_as_the_server_writes_it():
    raw = b"# Server\r\nredis_version:7.0.15\r\nos:Linux 6.1: x\r\n\r\n# Memory\r\nmaxmemory:0\r\n"
    assert parse_info(raw) == {"redis_version": "7.0.15", "os": "Linux 6.1: x", "maxmemory": "0"}


@pytest.mark.parametrize(
    ("url", "raised", "name"),
    [
        ("redis://h:1/0", BusDown("Error 111 connecting to h:1. Connection refused."), "server-unreachable"),
        ("redis://h:1/0", TimeoutError(), "server-hangs"),
        ("redis://h:1/0", OutcomeUnknown("Connection closed by server."), "server-closed"),
        ("redis://h:1/0", TransportError("LOADING the dataset in memory"), "server-loading"),
        ("redis://h:1/0", ConfigError("the server refused the credentials: WRONGPASS"), "server-credentials"),
        ("rediss://h:1/0", BusDown("[SSL: WRONG_VERSION_NUMBER] wrong version"), "server-tls-not-spoken"),
        ("rediss://h:1/0", BusDown("certificate verify failed: self-signed"), "server-tls-authority"),
        ("rediss://h:1/0", BusDown("certificate verify failed: Hostname mismatch"), "server-tls-name"),
        ("rediss://h:1/0", BusDown("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED]"), "server-tls"),
    ],
)
def test_why_a_server_cannot_be_used_is_told_by_kind(url, raised, name):
    found = explain_failure(url, raised)
    assert (found.name, found.level) == (name, "error")
    assert found.change


def test_no_password_is_ever_shown():
    url = "rediss://me:s3cret@host:6380/0?ssl_password=s3cret"
    assert redact_url(url) == "rediss://host:6380/0"
    for raised in (BusDown("gone"), TimeoutError(), ConfigError("refused: no")):
        assert "s3cret" not in str(explain_failure(url, raised))


# ---------------------------------------------------------------- the fleet


def member(name="policy", replica="h-1-aa", **fields):
    return Member(name=name, replica=replica, **{"started": 1, "pid": 1, "host": "h", **fields})


def test_a_fleet_with_replicas_and_readers_has_nothing_to_mend():
    members = (member(), member(replica="h-2-bb", started=2))
    view = RosterView(members, {"o": frozenset({"policy"})}, 2, {"a": "exporter", "b": "archiver"})
    assert {one.level for one in roster_findings(view)} == {"ok"}


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("priority", 7, "priority 0 and 7"),
        ("tools", ("a*",), "tools * and a*"),
        ("shadow", True, "no and yes"),
        ("phases", ("admit",), "phases select verify and admit. Only phases that all of them have count"),
    ],
)
def test_replicas_that_disagree_are_named_with_the_older_to_end(field, value, told):
    members = (member(pid=11), member(replica="h-2-bb", started=2, **{field: value}))
    (found,) = [one for one in roster_findings(RosterView(members)) if one.name == "roster-disagree"]
    assert found.level == "warning"
    assert told in found.what
    assert "h-2-bb" in found.what
    assert "pid 11 on h" in found.change


def test_two_revisions_are_told_with_the_processes_of_the_older():
    old, new = Revision("v7", "ab"), Revision("v8", "cd")
    members = (member(pid=11, revision=old), member(replica="h-2-bb", started=2, revision=new))
    (found,) = [one for one in roster_findings(RosterView(members)) if one.name == "roster-revisions"]
    assert found.level == "warning"
    assert "2 revisions alive: v7@ab, v8@cd" in found.what
    assert "v8@cd (pid 11 on h)" in found.change


def test_agents_that_share_no_version_of_the_wire_with_a_scheduler_are_named():
    view = RosterView((member(wire=(3,)),), {"o1": frozenset()}, wires={"o1": (1, 2), "o2": (2, 3)})
    (found,) = [one for one in roster_findings(view) if one.name == "roster-incompatible"]
    assert found.level == "warning"
    assert "1 agent speaks no version of its wire (3)" in found.what
    assert "o1" in found.change
    assert "o2" not in found.change


def test_who_gives_what_is_scarce_and_is_not_required_is_told_with_who_does_not_require_it():
    slots, policy = member("slots", phases=("admit",)), member("policy")
    reads = {"o1": frozenset({"slots"}), "o2": frozenset({"slots"}), "o3": frozenset({"slots"})}
    required = {"o1": frozenset({"slots"}), "o2": frozenset({"policy"})}  # o3 is older, and does not tell
    view = RosterView((slots, policy), reads, required=required)
    (found,) = [one for one in roster_findings(view) if one.name == "roster-not-required"]
    assert found.level == "warning"
    assert "slots" in found.what
    assert "1 of 3 orchestrators (o2)" in found.what
    assert "required: [slots]" in found.change
    for silent in (
        RosterView((slots,), reads, required={"o1": frozenset({"slots"})}),
        RosterView((replace(slots, shadow=True),), reads, required=required),
        RosterView((policy,), reads, required=required),
    ):
        assert not [one for one in roster_findings(silent) if one.name == "roster-not-required"]


def test_one_replica_nobody_and_no_readers_are_told():
    alone = roster_findings(RosterView((member(),)))
    assert level(alone, "roster-one-replica") == "notice"
    assert level(alone, "roster-exporter") == "notice"
    assert level(alone, "roster-archiver") == "notice"
    assert level(roster_findings(RosterView()), "roster-nobody") == "notice"
    working = roster_findings(RosterView(orchestrators={"o": frozenset({"policy"})}))
    assert level(working, "roster-nobody") == "warning"
    assert level(working, "roster-missed") == "warning"


def test_a_scheduler_that_answers_too_late_is_told_once_there_is_enough_to_say_so():
    assert level(roster_findings(RosterView((member(answered=40, late=8),))), "roster-late") == "warning"
    few = roster_findings(RosterView((member(answered=4, late=4),)))
    assert not [one for one in few if one.name == "roster-late"]


def test_questions_that_nobody_reads_are_an_error_and_a_backlog_is_a_warning():
    assert level(inbox_findings([InboxState("policy", 0, 3, 9.0)]), "inbox-nobody") == "error"
    assert level(inbox_findings([InboxState("policy", 2, 30, 4.0)]), "inbox-backlog") == "warning"
    assert level(inbox_findings([InboxState("policy", 2, 3, 0.2)]), "inboxes") == "ok"


def test_a_replica_that_took_questions_and_is_not_heard_of_is_named_with_its_process():
    found = inbox_findings([InboxState("policy", 1, 0, 0.0, [InboxConsumer("web-1-4711-ab12cd", 2, 8.0)])])
    assert level(found, "inbox-stuck") == "warning"
    assert "pid 4711 on web-1" in found[0].change
    quiet = [InboxConsumer("h-1-aa", 0, 900.0), InboxConsumer("h-2-bb", 3, 0.1)]
    assert level(inbox_findings([InboxState("policy", 2, 0, 0.0, quiet)]), "inboxes") == "ok"


# ---------------------------------------------------------------- money and facts


def test_a_journal_near_its_end_that_nobody_archives_is_told():
    nearly = int(0.95 * MAX_ENTRIES)
    for entries, archived, told in ((nearly, False, True), (nearly, True, False), (500, False, False)):
        found = budget_findings([book()._replace(entries=entries, archived=archived)], NOW)
        assert ("journal-full" in {one.name for one in found}) == told


def test_the_script_keeps_as_many_entries_as_are_told_here():
    script = (Path(journal.__file__).parent / "lua/ledger.lua").read_text()
    assert f"'MAXLEN', '~', {MAX_ENTRIES}," in script


DAY = BudgetDescription("daily", "fleet", 1_000_000, 86_400, "USD")
EACH = BudgetDescription("each", "session", 1_000_000, 0, "USD")
NOW = 86_400.0 * 100 + 5


def book(*balances, kept=True, held=(), budgets=(DAY, EACH), overrides=None):
    return Book("budget", {one.name: one for one in budgets}, overrides or {}, balances, kept, list(held))


def daily(spent=0, reserved=0, window=100, **fields):
    return Balance("daily/fleet", window, 1_000_000, spent, reserved, **fields)


def test_money_that_nobody_reserved_is_told_of_and_who_meddles_with_others():
    state = book(daily(300_000))._replace(astray={"charged": 3, "unplaced": 1, "foreign": 2})
    lost, foreign = (one for one in budget_findings([state], NOW) if one.name.startswith("budget-"))
    assert (lost.level, foreign.level) == ("notice", "warning")
    assert "4 costs came without a reservation (1 of them" in lost.what
    assert "2 facts reported on another orchestrator's decisions, and were refused" in foreign.what


def test_budgets_with_room_have_nothing_to_mend():
    assert {one.level for one in budget_findings([book(daily(300_000))], NOW)} == {"ok"}


def test_a_spent_budget_and_one_nearly_spent_are_named_with_the_command_that_raises_them():
    spent = budget_findings([book(daily(900_000, 100_000))], NOW)
    assert level(spent, "budget-spent") == "warning"
    assert "1.00 USD" in spent[0].what
    assert "toolgate budget set daily/fleet" in spent[0].change
    assert level(budget_findings([book(daily(800_000, 120_000))], NOW), "budget-nearly-spent") == "warning"


def test_yesterdays_window_and_a_limit_raised_by_hand_are_no_trouble():
    assert level(budget_findings([book(daily(2_000_000, window=99))], NOW), "budgets") == "ok"
    raised = book(daily(2_000_000), overrides={"daily": 9_000_000})
    assert level(budget_findings([raised], NOW), "budgets") == "ok"


def test_spent_budgets_of_single_sessions_are_what_they_are_for():
    accounts = [Balance(f"each/session/s{n}", 0, 1_000_000, 1_000_000, 0) for n in range(40)]
    found = budget_findings([book(*accounts)], NOW)
    assert level(found, "budget-works") == "notice"
    assert len(found) == 1


def test_money_that_nobody_settles_is_an_error():
    held = [OpenReservation("ab", "o1", 5.0, False)]
    found = budget_findings([book(daily(0, 50_000), kept=False, held=held)], NOW)
    assert level(found, "budgets-unsettled") == "error"
    assert "reserved by 1 decision" in found[0].what
    assert level(budget_findings([book(kept=False)], NOW), "budgets-unkept") == "notice"
    long = budget_findings([book(held=[OpenReservation("ab", "o1", 4000.0, True)])], NOW)
    assert level(long, "budgets-held-long") == "notice"


def test_orphans_and_overruns_are_told():
    found = budget_findings([book(daily(orphans=2, overruns=3))], NOW)
    assert level(found, "budget-orphans") == level(found, "budget-overruns") == "notice"


def test_facts_that_are_not_trimmed_or_fill_the_server_are_told():
    assert level(facts_findings([FactStreamState("o", True, 60.0, 1000)], 2**20), "facts") == "ok"
    assert level(facts_findings([FactStreamState("o", True, 9000.0)]), "facts-retention") == "warning"
    assert level(facts_findings([FactStreamState("o", False, 9000.0)]), "facts") == "ok"
    assert (
        level(facts_findings([FactStreamState("o", True, 60.0, 2**20)], 2**20), "facts-memory") == "warning"
    )
    for part, found in ((0.79, "ok"), (0.81, "warning")):
        usage = FactUsage(written={1: int(part * KEEP_BYTES)})
        name = "facts-bytes" if found == "warning" else "facts"
        assert level(facts_findings([FactStreamState("o", True, 60.0)], 0, usage), name) == found


# ---------------------------------------------------------------- the frame


def test_findings_are_shown_by_subject_worst_first_with_a_summary():
    found = [
        fine("b", "b", "well"),
        notice("a", "n", "N"),
        error("b", "e", "E", "mend"),
        warning("c", "w", "W", "x"),
    ]
    assert [subject for subject, _ in group_by_subject(found)] == ["b", "c", "a"]
    assert [one.name for one in group_by_subject(found)[0][1]] == ["e", "b"]
    assert summary(found) == "1 error, 1 warning, 1 notice, 1 check fine"
    short, long = list(lines_of(found, verbose=False)), list(lines_of(found, verbose=True))
    assert not any("well" in line for line in short)
    assert any("well" in line for line in long)
    assert any("mend" in line for line in short)


def test_words_of_others_are_no_markup_and_a_narrow_terminal_keeps_the_columns():
    found = [error("plan", "p", "tools[0]: [bold]no " + "word " * 40, "say so")]
    lines = list(lines_of(found, verbose=False, width=60))
    assert any("\\[bold]no" in line for line in lines)
    assert all(line.startswith(" " * 11) for line in lines[2:-1])
    assert len(lines) > 4


async def test_a_check_cannot_change_the_server():
    sent = []

    class Server:
        async def execute(self, *command):
            sent.append(command)
            return b"x"

        async def pipeline(self, commands):
            sent.extend(commands)
            return [b"x" for _ in commands]

    looking = ReadOnlyCommands(Server())
    for command in (
        ("SET", "a", "b"),
        ("DEL", "a"),
        ("FLUSHALL",),
        ("CONFIG", "SET", "a", "b"),
        ("EVAL", "", 0),
    ):
        with pytest.raises(TransportError, match="may only read"):
            await looking.execute(*command)
        with pytest.raises(TransportError, match="may only read"):
            await looking.pipeline([("GET", "a"), command])
    assert await looking.execute("SREM", "roster", "gone") == 0
    assert await looking.pipeline([("GET", "a"), ("SREM", "r", "x"), ("GET", "b")]) == [b"x", 0, b"x"]
    assert sent == [("GET", "a"), ("GET", "b")]


async def test_a_check_that_breaks_hangs_or_may_not_look_is_a_finding_and_the_others_go_on(monkeypatch):
    monkeypatch.setattr(runner, "CHECK_S", 0.05)

    def raising(raised):
        async def run(_context):
            raise raised

        return run

    async def hanging(_context):
        await asyncio.Event().wait()

    async def well(_context):
        return [fine("s", "well", "well")]

    checks = [
        Check("a", "s", raising(KeyError("x")), frozenset()),
        Check("b", "s", raising(ConfigError("refused: this user has no permissions")), frozenset()),
        Check("c", "s", raising(ToolgateError("away")), frozenset()),
        Check("d", "s", hanging, frozenset()),
        Check("e", "s", well, frozenset()),
        Check("f", "s", raising(KeyError("no server, no check"))),
    ]
    found = {one.name: one.level for one in await run_checks(Context(), checks)}
    assert found == {
        "a-broken": "error",
        "b-not-shown": "notice",
        "c-failed": "error",
        "d-slow": "warning",
        "well": "ok",
    }


async def test_a_check_that_misses_an_extra_says_how_to_install_it():
    async def run(_context):
        raise ModuleNotFoundError("No module named 'amplifier_core.hooks'", name="amplifier_core.hooks")

    (found,) = await run_checks(Context(), [Check("plan", "plan", run, frozenset())])
    assert (found.name, found.level) == ("plan-not-installed", "error")
    assert "amplifier_core is not installed" in found.what
    assert found.change == f"run `{how_to_install('orchestrator')}`"


def test_checks_come_from_entry_points_and_one_that_cannot_be_loaded_is_told():
    group = "toolgate.checks"
    points = [
        EntryPoint("schedulers", "toolgate_schedulers.commands.doctor_checks:CHECKS", group),
        EntryPoint("gone", "toolgate_nowhere.checks:CHECKS", group),
        EntryPoint("wrong", "toolgate_bus.commands.doctor.check:Bus", group),
    ]
    checks, findings = load_checks(points)
    assert [check.name for check in checks] == ["configs", "held"]
    assert [(one.name, one.level) for one in findings] == [("check-not-loaded", "error")] * 2
    assert {check.name for check in load_checks()[0]} >= {"plan", "provider", "configs", "held"}


def test_a_budget_by_an_argument_that_the_plan_hides_is_a_warning(tmp_path):
    file = tmp_path / "cost.yaml"
    file.write_text(
        "budgets:\n"
        "  - {name: refunds, unit: EUR, amount: $.order.Total, tools: [refund], limit: 100}\n"
        "  - {name: customers, unit: calls, level: 'argument:customer.iban', tools: [refund], limit: 3}\n"
        "  - {name: sums, unit: EUR, amount: $.totals, tools: [refund], limit: 3}\n"
        "  - {name: daily, limit: 100}\n"
    )
    configs = [("cost-aware", file)]
    found = check_hidden_fields(RedactConfig(fields=("total", "IBAN")), configs)
    assert [level([one], "plan-budget-hidden") for one in found] == ["warning"] * 2
    assert "refunds of cost-aware" in found[0].what
    assert "customer.iban" in found[1].what
    assert check_hidden_fields(RedactConfig(fields=("name",)), configs) == []


WITHOUT_KERNEL = """
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "amplifier_core":
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, Absent())
from toolgate_bus.commands.doctor.check import load_checks

checks, findings = load_checks()
print(*(check.name for check in checks), *(one.what for one in findings))
"""


def test_where_only_schedulers_are_installed_every_check_is_loaded():
    words = [sys.executable, "-c", WITHOUT_KERNEL]
    ended = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30)
    assert set(ended.stdout.split()) == {one.name for one in load_checks()[0]}
