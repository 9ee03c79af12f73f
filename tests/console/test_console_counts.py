"""What the console keeps and counts: rates, the newest decisions, what waits for a page."""

import json

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_schedulers.commands.console.filters import Filter, filter_from
from toolgate_schedulers.commands.console.hub import MAX_ROWS, Hub, PageClient
from toolgate_schedulers.commands.console.inbox import unlike
from toolgate_schedulers.commands.console.rates import HOUR_S, Rates
from toolgate_schedulers.commands.console.ring import Ring
from toolgate_schedulers.commands.console.rows import row_of

pytestmark = pytest.mark.pure
NOW = 1_000_000.0


def verdict(scheduler, action="continue", **more):
    return {
        "scheduler": scheduler,
        "action": action,
        "phase": "select",
        "priority": 0,
        "seconds": 0.001,
        **more,
    }


def decision(number=1, outcome="continue", at=NOW, **more):
    return {
        "event": "decision",
        "id": f"{number:032x}",
        "seq": number,
        "at": at,
        "outcome": outcome,
        "why": {"continue": "agreed", "deny": "denied", "modify": "modified"}[outcome],
        "tool_name": "write_file",
        "tool_input": {"path": "a.txt"},
        "seconds": 0.004,
        "verdicts": [],
        "silent": [],
        "reason": None,
        "scheduler": None,
        "final_tool": "write_file",
        "final_input": {"path": "a.txt"},
        "agent": "clerk",
        "session": "s-1",
        **more,
    }


def counted(rates, window=900, points=60, now=NOW):
    return rates.over(window, points, now)


def by_name(lines):
    return {one["name"]: one for one in lines}


# ---------------------------------------------------------------------- rates


def test_the_veto_rate_is_denied_decisions_over_decisions():
    rates = Rates()
    for number in range(10):
        rates.add(decision(number, "deny" if number < 3 else "continue"), NOW)
    rates.add(decision(11, "modify"), NOW)
    told = counted(rates)["all"]
    assert (told["decisions"], told["vetoes"], told["overrides"]) == (11, 3, 1)
    assert sum(point[0] for point in told["series"]) == 11


def test_a_schedulers_own_rate_counts_its_valid_denies_over_what_it_was_asked():
    rates = Rates()
    denying = [verdict("policy", "deny", reason="no"), verdict("router")]
    rates.add(decision(1, "deny", verdicts=denying, scheduler="policy"), NOW)
    rates.add(decision(2, verdicts=[verdict("router")]), NOW)
    rates.add(decision(3, verdicts=[verdict("shy", "deny", reason="x", shadow=True)]), NOW)
    rates.add(
        decision(4, "modify", verdicts=[verdict("router", "modify", tool="b")], scheduler="router"), NOW
    )
    told = by_name(counted(rates)["schedulers"])
    assert (told["policy"]["decisions"], told["policy"]["vetoes"]) == (1, 1)
    assert (told["router"]["decisions"], told["router"]["vetoes"], told["router"]["overrides"]) == (3, 0, 1)
    assert (told["shy"]["vetoes"], told["shy"]["shadow"]) == (0, 1)


def test_who_was_asked_is_what_the_record_says_else_who_was_heard_or_missed():
    rates = Rates()
    rates.add(decision(1, verdicts=[verdict("in-process"), verdict("a")], silent=["b"]), NOW)
    rates.add(decision(2, verdicts=[verdict("a")], asked=["a", "c"]), NOW)
    told = {name: one["decisions"] for name, one in by_name(counted(rates)["schedulers"]).items()}
    assert told == {"a": 2, "b": 1, "c": 1}
    assert by_name(counted(rates)["schedulers"])["b"]["silent"] == 1


def test_late_verdicts_are_counted_and_change_no_rate():
    rates = Rates()
    rates.add(decision(1, verdicts=[verdict("a")]), NOW)
    rates.add({"event": "verdict", "id": f"{1:032x}", "at": NOW, **verdict("b", "deny", late=True)}, NOW)
    told = by_name(counted(rates)["schedulers"])
    assert (told["b"]["late"], told["b"]["vetoes"], told["b"]["decisions"]) == (1, 0, 0)
    assert rates.total == 1


def test_decisions_fall_into_their_points_and_leave_after_an_hour():
    rates = Rates()
    rates.add(decision(1, at=NOW - 890), NOW)
    rates.add(decision(2, "deny", at=NOW - 1), NOW)
    series = counted(rates)["all"]["series"]
    assert (series[0], series[-1]) == ([1, 0, 0], [1, 1, 0])
    rates.add(decision(3, at=NOW - HOUR_S - 60), NOW)
    assert counted(rates, HOUR_S)["all"]["decisions"] == 2
    later = NOW + HOUR_S + 60
    rates.add(decision(4, at=later), later)
    assert counted(rates, HOUR_S, now=later)["all"]["decisions"] == 1
    assert rates.total == 4


def test_facts_that_come_out_of_order_and_from_clocks_that_are_ahead_are_counted():
    rates = Rates()
    for number, at in enumerate((NOW, NOW - 300, NOW - 100, NOW + 500, NOW - 300)):
        rates.add(decision(number, at=at), NOW)
    assert counted(rates)["all"]["decisions"] == 5
    assert counted(rates)["all"]["series"][-1][0] == 2


def test_decisions_a_second_are_those_of_the_last_ten():
    rates = Rates()
    for number in range(50):
        rates.add(decision(number, at=NOW - 8), NOW)
    assert rates.per_second(NOW) == 5.0
    assert rates.per_second(NOW + 20) == 0.0


def test_names_without_end_are_counted_together():
    rates = Rates()
    for number in range(500):
        rates.add(decision(number, tool_name=f"tool-{number}"), NOW)
    told = counted(rates)
    assert len(told["tools"]) <= 200
    assert by_name(told["tools"])["(other)"]["decisions"] == 300
    assert told["all"]["decisions"] == 500


# ---------------------------------------------------------------------- the newest decisions


def test_the_ring_keeps_the_newest_and_counts_on():
    ring = Ring(most=3)
    for number in range(5):
        ring.take(decision(number))
    kept = [entry.decision["seq"] for entry in ring.newest(10, Filter())]
    assert kept == [2, 3, 4]
    assert ring.number == 5
    assert ring.get(f"{0:032x}") is None


def test_the_ring_is_bounded_in_bytes_and_keeps_at_least_one():
    ring = Ring(most=100, most_bytes=25_000)
    for number in range(10):
        ring.take(decision(number, tool_input={"content": "x" * 4000}))
    assert len(ring) == 2
    ring.take(decision(11, tool_input={"content": "x" * 40_000}))
    assert [entry.decision["seq"] for entry in ring.newest(9, Filter())] == [11]


def test_a_late_verdict_changes_its_decision_under_a_new_number():
    ring = Ring()
    first, _ = ring.take(decision(1)), ring.take(decision(2))
    late = {"event": "verdict", "id": f"{1:032x}", "at": NOW, **verdict("slow", late=True)}
    changed = ring.take(late)
    assert changed.row["late"] == 1
    assert changed.number == 3 > first.number
    assert [entry.row["id"] for entry in ring.newest(9, Filter(), after=2)] == [f"{1:032x}"]
    assert [entry.decision["seq"] for entry in ring.newest(9, Filter())] == [1, 2]


def test_what_became_of_a_call_is_kept_beside_its_decision():
    ring = Ring(most=1)
    ring.take(decision(1))
    for _ in range(50):
        assert ring.take({"event": "tool:post", "decision_id": f"{1:032x}", "success": True}) is None
    assert len(ring.after(f"{1:032x}")) == 8
    ring.take({"event": "tool:post", "decision_id": f"{7:032x}", "success": True})
    assert ring.after(f"{7:032x}") == []
    ring.take(decision(2))
    assert ring.after(f"{1:032x}") == []


def test_a_row_is_short_whatever_the_decision_holds():
    long = "x" * 100_000
    hostile = decision(
        1, "deny", tool_name=long, tool_input={"a": long}, reason=long, agent=long, session=long
    )
    assert len(json.dumps(row_of(hostile))) < 2000
    assert row_of(decision(1, verdicts=[7, None, {}]))["heard"] == 1


def ruled(outcome="masked", **more):
    """What schedulers ruled on the result of the first decision."""
    mask = verdict("pii", "mask", phase="result", masks=[["/a", 0, 4, "card"]])
    told = {"event": "tool:result", "decision_id": f"{1:032x}", "seq": 9, "at": NOW, "why": outcome}
    return {**told, "tool": "write_file", "outcome": outcome, "scheduler": "pii", "verdicts": [mask], **more}


def test_a_row_says_what_became_of_the_result_and_the_page_of_the_decision_what_was_masked():
    ring = Ring()
    assert ring.take(decision(1)).row["result"] == ""
    entry = ring.take(ruled())
    assert entry.row["result"] == "result masked by pii"
    assert entry.row["heard"] == 0  # that is no verdict on the call
    assert entry.decision["result"]["verdicts"][0]["masks"] == [["/a", 0, 4, "card"]]
    assert entry.fits(filter_from({"outcome": "result"}))
    assert entry.fits(filter_from({"scheduler": "pii"}))
    assert ring.take(ruled("released")).row["result"] == ""
    assert not ring.get(f"{1:032x}").fits(filter_from({"outcome": "result"}))
    assert Ring().take(ruled()) is None


@pytest.mark.parametrize("result", [7, [], {"outcome": {}}, {"outcome": "masked", "scheduler": [1] * 999}])
def test_a_result_in_the_record_of_any_shape_breaks_no_row(result):
    assert len(row_of(decision(1, result=result))["result"]) < 400


# ---------------------------------------------------------------------- filters


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({}, True),
        ({"tool": "write_*"}, True),
        ({"tool": "write"}, False),
        ({"tool": "other"}, True),
        ({"outcome": "modify"}, True),
        ({"outcome": "deny"}, False),
        ({"outcome": "late"}, True),
        ({"outcome": "shadow"}, False),
        ({"scheduler": "router"}, True),
        ({"scheduler": "quiet"}, True),
        ({"scheduler": "policy"}, False),
        ({"agent": "clerk"}, True),
        ({"agent": "cle"}, False),
        ({"session": "s-"}, True),
        ({"session": "root"}, True),
        ({"session": "t"}, False),
        ({"text": "A.TXT cheaper"}, True),
        ({"text": "a.txt dearer"}, False),
        ({"tool": "write_*", "agent": "nobody"}, False),
    ],
)
def test_a_filter_wants_what_it_names(query, wanted):
    heard = [verdict("router", "modify", tool="other", reason="cheaper"), verdict("slow", late=True)]
    one = decision(1, "modify", verdicts=heard, silent=["quiet"], final_tool="other", root_session="root-1")
    entry = Ring().take(one)
    assert entry.fits(filter_from(query)) is wanted


def test_a_filter_that_is_wrong_is_refused_by_field():
    with pytest.raises(ConfigError, match="outcome: must be one of"):
        filter_from({"outcome": "maybe"})
    with pytest.raises(ConfigError, match="text: must be at most 200"):
        filter_from({"text": "x" * 201})


# ---------------------------------------------------------------------- pages


def test_a_slow_page_gets_the_newest_and_is_told_how_many_it_was_spared():
    ring, client = Ring(), PageClient(Filter())
    for number in range(MAX_ROWS + 50):
        client.give(ring.take(decision(number)))
    rows, skipped, _ = client.take()
    assert (len(rows), skipped) == (MAX_ROWS, 50)
    assert json.loads(rows[-1])["id"] == f"{MAX_ROWS + 49:032x}"
    assert client.take() == ([], 0, {})


def test_of_two_changes_of_one_decision_a_page_gets_the_last():
    ring, client = Ring(), PageClient(Filter())
    client.give(ring.take(decision(1)))
    client.give(ring.take({"event": "verdict", "id": f"{1:032x}", "at": NOW, **verdict("b", late=True)}))
    rows, skipped, _ = client.take()
    assert [json.loads(row)["late"] for row in rows] == [1]
    assert skipped == 0


async def said(stream, count):
    """The next events of a stream, as (event, data)."""
    found = []
    while len(found) < count:
        text = await anext(stream)
        if text.startswith(":"):
            continue
        lines = dict(line.split(": ", 1) for line in text.strip().splitlines())
        found.append((lines["event"], json.loads(lines["data"]), lines.get("id")))
    return found


async def test_a_page_that_comes_back_is_sent_what_it_missed():
    ring = Ring()
    hub = Hub(ring, "epoch")
    hub.publish([ring.take(decision(number)) for number in range(3)])
    first = hub.stream(Filter(), None, lambda: {"total": 3})
    ((event, data, place),) = await said(first, 1)
    assert (event, data["fresh"], len(data["rows"]), data["total"]) == ("decisions", True, 3, 3)
    await first.aclose()
    assert len(hub) == 0
    ring.take(decision(4))
    again = hub.stream(Filter(), place, dict)
    ((_, data, _),) = await said(again, 1)
    assert (data["fresh"], [row["id"] for row in data["rows"]]) == (False, [f"{4:032x}"])
    await again.aclose()
    for unknown in ("other-2", "epoch-x", "epoch-" + "9" * 40, "épôch-2"):
        stream = hub.stream(Filter(), unknown, dict)
        ((_, data, _),) = await said(stream, 1)
        assert (data["fresh"], len(data["rows"])) == (True, 4)
        await stream.aclose()


async def test_streams_end_when_the_console_does_and_when_the_session_does():
    hub = Hub(Ring(), "epoch")
    signed_in = [True]
    for end in (hub.close, signed_in.clear):
        hub.closed = False
        stream = hub.stream(Filter(), None, dict, lambda: bool(signed_in))
        await said(stream, 1)
        end()
        hub.tell("approvals", {"count": 1})  # wakes
        hub.tell("approvals", {"count": 2})
        async for _ in stream:
            pass
    assert len(hub) == 0


# ---------------------------------------------------------------------- corrections


def test_a_correction_is_compared_with_a_call_that_is_known():
    known = {"to": "eve", "amount": 9, "tags": ["a"], "memo": None, "more": {"deep": True}}
    assert unlike(known, known) == {}
    assert unlike(known, {**known, "amount": 9.5, "memo": "text"}) == {}
    given = {"to": "eve", "amount": "9", "tags": ["a", 2], "memo": None, "more": {"deep": 1}, "extra": 1}
    assert unlike(known, given) == {
        "amount": "is a text; it was a number",
        "tags.1": "is a number; it was a text",
        "more.deep": "is a number; it was true or false",
        "extra": "is new",
    }
    assert unlike(known, {}) == dict.fromkeys(known, "is gone")
    assert len(unlike({str(n): 1 for n in range(100)}, {})) == 20
