"""The exporter's count is that of one pass over the facts, whenever and however often it is killed."""

import asyncio
import re
from datetime import UTC, datetime
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.commands.exporter import service
from toolgate_bus.commands.exporter.fleet import FleetCounts, Savings
from toolgate_bus.commands.exporter.gauges import budget_gauges, pause_gauges
from toolgate_bus.commands.exporter.service import Exporter, ExporterCheckpoint
from toolgate_bus.errors import BusDown, TransportError
from toolgate_bus.fleet.books import Book
from toolgate_bus.ledger.money.calendar import CalendarWindow
from toolgate_bus.ledger.money.ledger import Balance
from toolgate_bus.ledger.money.limits import BudgetDescription
from toolgate_bus.protocol.pauses import Pause, StandingPauses
from toolgate_bus.telemetry import definitions, metrics

pytestmark = pytest.mark.pure


def facts_of(writer, numbers):
    """Facts of one orchestrator, of several kinds."""
    for number in numbers:
        fact = {"orchestrator": writer, "seq": number, "at": 1.5, "agent": "a"}
        kind = number % 3
        if kind == 0:
            yield {**fact, "event": "tool:post", "tool": f"t{number % 4}", "seconds": 0.5, "cost": 4}
        elif kind == 1:
            yield {**fact, "event": "usage", "provider": "p", "input_tokens": 3, "cost_usd": 0.5}
        else:
            decision = {"outcome": "deny", "why": "denied", "scheduler": "s", "seconds": 0.25, "asked": ["s"]}
            yield {**fact, **decision, "event": "decision", "tool_name": "t", "available_tools": ["t"]}


def shown(counts):
    """Every sample of a count."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for collector in counts.collectors()
        for family in collector.collect()
        for sample in family.samples
    }


def one_pass(facts):
    counts = FleetCounts()
    for fact in facts:
        counts.take(fact)
    return shown(counts)


class Server:
    """Facts streams and checkpoints, in memory; a crash loses nothing here."""

    def __init__(self, facts):
        self.facts = facts
        self.leader = self.led = None
        self.state = None
        self.down = False

    def exporter(self, name):
        return Exporter(_Facts(self), _Lease(self, name), _NoGauges())


class _Facts:
    PAGE = 2

    def __init__(self, server):
        self._server, self._read = server, 0

    def stand_by(self):
        pass

    async def next(self):
        if self._server.down:
            raise BusDown("away")
        page = self._server.facts[self._read : self._read + self.PAGE]
        self._read += len(page)
        return page

    @property
    def positions(self):
        writers = {fact["orchestrator"] for fact in self._server.facts}
        return {"read": str(self._read), **dict.fromkeys(writers, "0-1")}

    def resume(self, positions, numbers=None):
        self._read = int(positions.get("read", "0"))

    async def rewind(self):
        pass


class _Lease:
    renewed_at = float("-inf")

    def __init__(self, server, name):
        self._server, self._name = server, name

    async def take(self):
        if self._server.down:
            raise BusDown("away")
        if self._server.leader in (None, self._name):
            self._server.leader = self._server.led = self._name
        return self._server.leader == self._name

    async def read(self, name):
        assert name == "state"
        return self._server.state

    async def keep(self, *writes):
        if self._server.led != self._name:
            return False
        self._server.leader = self._name
        for verb, name, value in writes:
            assert (verb, name) == ("SET", "state")
            self._server.state = value
        return True

    async def leave(self):
        self._server.leader = None


class _NoGauges:
    async def read(self, positions):
        return []


def samples(exporter):
    """What a scrape of an exporter shows of the fleet."""
    text = exporter._shown
    return {} if text is None else shown(FleetCounts.read(text))


streams = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), max_size=12)
acts = st.lists(st.sampled_from(["step"] * 6 + ["kill"] * 2 + ["keep", "hand over", "outage"]), max_size=30)


@given(streams, acts)
def test_no_series_of_kills_outages_and_successors_changes_the_count(writes, does):
    facts, last = [], {}
    for writer, number in writes:  # a writer may write a fact twice, and may lose one
        first = max(1, last.get(writer, 0) - 1)
        facts += facts_of(writer, range(first, first + number))
        last[writer] = max(last.get(writer, 0), first + number - 1)
    server = Server(facts)

    async def run():
        exporter, before, made = server.exporter("0"), {}, 0
        for act in [*does, "end"]:
            if act == "end":
                for _ in range(2 * len(facts) + 2):
                    await exporter.step()
                await exporter.keep()
            elif act == "step":
                await exporter.step()
            elif act == "keep":
                await exporter.keep()
            elif act == "outage":
                server.down = True
                try:
                    await exporter.step()
                except TransportError as error:
                    await exporter.on_disconnect(error)
                server.down = False
            else:
                if act == "hand over":
                    await exporter.leave()
                made += 1
                server.leader = None  # the lease of one that was killed runs out
                exporter = server.exporter(str(made))
            now = samples(exporter)
            if now:
                # Prometheus takes a counter that falls for one that began anew.
                assert all(now.get(name, 0) >= value for name, value in before.items())
                before = now
        return before

    assert asyncio.run(run()) == pytest.approx(one_pass(facts))


def unlabelled(page):
    """A page without the label that says on which bus this process was: other tests may have been on one."""
    return re.sub(rb'namespace="[^"]*",?', b"", page).replace(b"{}", b"")


async def test_a_second_exporter_stands_by_shows_nothing_of_the_fleet_and_takes_over():
    server = Server(list(facts_of("o", range(1, 9))))
    first, second = server.exporter("1"), server.exporter("2")
    while await first.step() and first._facts._read < 8:
        pass
    await first.keep()
    assert not await second.step()
    assert second.health() == (False, "stands by: another exporter of this namespace leads")
    kind, page = second.page("")
    assert kind.startswith("text/plain")
    assert b"toolgate_exporter_leads 0.0" in unlabelled(page)
    assert b"toolgate_decisions" not in page
    assert first.health()[0]
    assert b"toolgate_exporter_leads 1.0" in unlabelled(first.page("")[1])
    server.leader = None
    assert await second.step()
    assert samples(second) == one_pass(server.facts)


async def test_one_that_comes_back_to_find_another_in_its_place_shows_nothing_old():
    server = Server(list(facts_of("o", range(1, 9))))
    first, second = server.exporter("1"), server.exporter("2")
    await first.step()
    await first.on_disconnect(BusDown("away"))
    assert b"toolgate_decisions_total" in first.page("")[1]
    server.leader = None
    await second.step()
    assert not await first.step()
    assert b"toolgate_decisions_total" not in first.page("")[1]


async def test_one_that_lost_the_lead_without_knowing_writes_nothing():
    server = Server(list(facts_of("o", range(1, 9))))
    slow = server.exporter("slow")
    await slow.step()
    server.leader = None
    other = server.exporter("other")
    for _ in range(4):
        await other.step()
    await other.keep()
    kept = server.state
    assert not await slow.keep()
    assert server.state == kept


async def test_the_lease_is_renewed_while_a_long_backlog_is_counted(monkeypatch):
    monkeypatch.setattr(service, "KEEP_EVERY_S", 0.0)
    monkeypatch.setattr(service, "AT_ONCE", 1)
    server = Server(list(facts_of("o", range(1, 3))))
    slow, other = server.exporter("slow"), server.exporter("other")
    assert await slow.step()
    counts, led = slow._counts, []

    def take(fact):
        led.append(server.leader)
        server.leader = None  # each fact takes longer than the lease
        return True

    server.facts += facts_of("o", range(3, 7))
    monkeypatch.setattr(counts, "take", take)
    assert await slow.step()
    assert led == ["slow", "slow"]
    assert not await other.step()


async def test_a_server_that_lost_everything_does_not_make_a_living_exporter_forget():
    server = Server(list(facts_of("o", range(1, 7))))
    exporter = server.exporter("1")
    for _ in range(3):
        await exporter.step()
    await exporter.keep()
    before = samples(exporter)
    server.state = server.leader = None
    server.down = True
    with pytest.raises(TransportError) as raised:
        await exporter.step()
    await exporter.on_disconnect(raised.value)
    assert exporter.health() == (False, "the bus cannot be reached; waiting for it")
    assert b'toolgate_bus_connected{side="exporter"} 0.0' in unlabelled(exporter.page("")[1])
    server.down = False
    assert await exporter.step()
    assert samples(exporter) == before


class _Refused:
    async def read(self, positions):
        raise TransportError("NOPERM this user has no permissions to run the 'xinfo' command")


async def test_gauges_that_may_not_be_read_leave_the_counters_as_they_are():
    server = Server(list(facts_of("o", range(1, 3))))
    exporter = Exporter(_Facts(server), _Lease(server, "1"), _Refused())
    assert await exporter.step()
    assert samples(exporter) == one_pass(server.facts)


# ---------------------------------------------------------------------- the count itself


def test_a_missing_number_is_a_gap_and_one_that_comes_twice_is_none():
    counts = FleetCounts()
    taken = [counts.take(fact) for number in (5, 6, 6, 9, 8) for fact in facts_of("o", [number])]
    # What was forged with a high number hides nothing below it: 8 was not counted before.
    assert taken == [True, True, False, True, True]
    assert (counts.facts, counts.gaps) == (4, 2)


def test_what_is_kept_is_read_back_whole():
    counts = FleetCounts()
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    for fact in facts_of("o", range(1, 30)):
        counts.take({**fact, "trace": trace})
    again = FleetCounts.read(counts.text())
    assert again.text() == counts.text()
    assert shown(again) == shown(counts)
    assert '"examples":{"toolgate_decision_seconds":[[[],8,"0af765' in counts.text()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 7}', '{"version": 1}', "null", "x" * 50])
def test_what_is_no_count_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        FleetCounts.read(text)


@pytest.mark.parametrize("raw", [b"", b"junk", b"x\x9c\x03\x00\x00\x00\x00\x01"])
def test_what_was_never_kept_is_refused(raw):
    with pytest.raises(ValueError, match=r"."):
        ExporterCheckpoint.from_bytes(raw)


def test_series_beyond_the_cap_are_counted_together_and_closed_labels_stay(monkeypatch):
    monkeypatch.setattr(metrics, "MAX_SERIES", 3)
    counts = FleetCounts()
    for number in range(1, 11):
        counts.take(
            {"orchestrator": "o", "seq": number, "event": "tool:post", "tool": f"t{number}", "agent": "a"}
        )
    found = {labels: value for (name, labels), value in shown(counts).items() if "tool_calls" in name}
    assert sum(found.values()) == 10
    assert found[("agent", "other"), ("outcome", "ok"), ("tool", "other")] == 7
    assert len(found) == 4


def test_models_are_counted_over_a_restart_and_beyond_the_cap_together(monkeypatch):
    monkeypatch.setattr(metrics, "MAX_SERIES", 3)
    counts = FleetCounts()
    for number in range(1, 11):
        fact = {"orchestrator": "o", "seq": number, "event": "usage", "model": f"m{number}", "cost_usd": 0.5}
        counts.take({**fact, "input_tokens": 2})
        counts = FleetCounts.read(counts.text())
    costs = {labels: value for (name, labels), value in shown(counts).items() if "model_cost" in name}
    assert costs == {
        (("model", m),): cost for m, cost in (("m1", 0.5), ("m2", 0.5), ("m3", 0.5), ("other", 3.5))
    }
    tokens = {labels: value for (name, labels), value in shown(counts).items() if "model_tokens" in name}
    assert tokens[("kind", "input"), ("model", "other")] == 14


def saved(*facts):
    savings = Savings()
    for event, fields in facts:
        savings.take({"event": event, **fields})
    return savings.total


def replaced(asked, run):
    return "tool:selected", {"tool": run, "original_tool": asked, "source": "scheduler"}


def cost(tool, amount):
    return "tool:post", {"tool": tool, "cost": amount}


def test_a_replacement_saves_the_difference_of_mean_costs():
    assert saved(cost("dear", 10), cost("dear", 20), cost("cheap", 5), replaced("dear", "cheap")) == 10


def test_a_replacement_waits_for_a_mean_that_is_not_known_yet():
    assert (
        saved(replaced("dear", "cheap"), replaced("dear", "cheap"), cost("cheap", 5), cost("dear", 15)) == 20
    )


@pytest.mark.parametrize(
    "facts",
    [
        [cost("a", 5), cost("b", 9), replaced("a", "b")],
        [cost("a", 5), ("tool:selected", {"tool": "a", "original_tool": None, "source": "llm"})],
        [cost("a", 5), replaced("a", "a")],
        [cost("a", True), cost("b", -1), replaced("a", "b")],
    ],
)
def test_what_saves_nothing_adds_nothing(facts):
    assert saved(*facts) == 0


# ---------------------------------------------------------------------- budgets


def gauges(budgets, balances, overrides=None, now=7200.0):
    read = budget_gauges([Book("budget", {one.name: one for one in budgets}, overrides or {}, balances)], now)
    return {gauge.metric: dict(gauge.series) for gauge in read}


def test_a_fleets_budget_shows_its_limit_before_anything_was_spent():
    found = gauges([BudgetDescription("daily", "fleet", 5_000_000, 0, "USD")], [])
    assert found[definitions.BUDGET_LIMIT] == {("budget", "daily", "fleet", ""): 5.0}
    assert found[definitions.BUDGET_SPENT] == {("budget", "daily", "fleet", ""): 0.0}
    assert found[definitions.BUDGET_USED] == {("budget", "daily", "fleet"): 0.0}


def test_a_window_ends_where_the_next_one_begins_and_that_for_all_time_never():
    new_year = datetime(2026, 12, 31, 23, 30, tzinfo=UTC).timestamp()
    budgets = [
        BudgetDescription("hourly", "fleet", 1, 3600, ""),
        BudgetDescription(
            "monthly", "label:team", 1, 32 * 86_400, "", CalendarWindow("month", "Europe/London")
        ),
        BudgetDescription("once", "fleet", 1, 0, ""),
    ]
    ends = gauges(budgets, [], now=new_year)[definitions.BUDGET_ENDS]
    assert ends == {
        ("budget", "hourly", "fleet"): new_year + 1800,
        ("budget", "monthly", "label:team"): new_year + 1800,
        ("budget", "once", "fleet"): inf,
    }


def test_agents_are_shown_apart_and_sessions_summed_and_the_fullest_account_tells_the_ratio():
    budgets = [
        BudgetDescription("each", "agent", 1_000_000, 0, ""),
        BudgetDescription("run", "session", 2_000_000, 0, ""),
    ]
    balances = [
        Balance("each/agent/anna", 0, 1_000_000, 250_000, 500_000),
        Balance("each/agent/ben", 0, 1_000_000, 100_000, 0),
        Balance("run/session/s1", 0, 2_000_000, 1_000_000, 0),
        Balance("run/session/s2", 0, 2_000_000, 500_000, 250_000),
    ]
    found = gauges(budgets, balances)
    assert found[definitions.BUDGET_SPENT] == {
        ("budget", "each", "agent", "anna"): 0.25,
        ("budget", "each", "agent", "ben"): 0.1,
        ("budget", "run", "session", ""): 1.5,
    }
    assert found[definitions.BUDGET_LIMIT]["budget", "run", "session", ""] == 4.0
    assert found[definitions.BUDGET_USED] == {
        ("budget", "each", "agent"): 0.75,
        ("budget", "run", "session"): 0.5,
    }


def test_a_window_that_is_over_is_left_out_and_a_limit_set_by_hand_holds():
    hourly = BudgetDescription("hourly", "fleet", 1_000_000, 3600, "")
    balances = [
        Balance("hourly/fleet", 1, 1_000_000, 900_000, 0),
        Balance("hourly/fleet", 2, 1_000_000, 100_000, 0),
    ]
    found = gauges([hourly], balances, {"hourly": 200_000})
    assert found[definitions.BUDGET_SPENT] == {("budget", "hourly", "fleet", ""): 0.1}
    assert found[definitions.BUDGET_USED] == {("budget", "hourly", "fleet"): 0.5}


def test_beyond_a_hundred_accounts_those_that_used_least_are_other():
    budget = BudgetDescription("each", "agent", None, 0, "")
    balances = [Balance(f"each/agent/a{number}", 0, None, number, 0) for number in range(150)]
    found = gauges([budget], balances)
    spent = found[definitions.BUDGET_SPENT]
    assert len(spent) == 101
    assert sum(spent.values()) == pytest.approx(sum(range(150)) / 1e6)
    assert definitions.BUDGET_LIMIT not in {
        metric for metric, series in gauges([budget], balances).items() if series
    }


@pytest.mark.parametrize(
    ("since", "number", "oldest"), [((), 0, 0.0), ((4_000, 1_000), 2, 9.0), ((12_000,), 1, 0.0)]
)
def test_pauses_are_counted_and_told_since_when_the_oldest_stands(since, number, oldest):
    standing = tuple(Pause(str(at), everyone=True, since_ms=at) for at in since)
    shown = {one.metric.name: one.series for one in pause_gauges(StandingPauses(1, 10_000, standing))}
    assert shown == {"toolgate_pauses": {(): number}, "toolgate_oldest_pause_seconds": {(): oldest}}
