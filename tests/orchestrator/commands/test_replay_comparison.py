"""Two sets of schedulers compared: the figures, the record as it is read, and what is asked again."""

import json
from dataclasses import replace

import pytest
from questions import question_about
from toolgate_bus.commands.terminal import Terminal
from toolgate_bus.errors import ConfigError
from toolgate_bus.facts import record
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import Continue, Decision, Deny, Modify, ReceivedVerdict
from toolgate_bus.ruling.counterfactual import Effect, ProposedCall
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec
from toolgate_orchestrator.commands.replay.cli import fail_on, seconds_of
from toolgate_orchestrator.commands.replay.comparison import ComparedCall, Set, ToolPrices, build_comparison
from toolgate_orchestrator.commands.replay.record_replay import PassthroughRedactor
from toolgate_orchestrator.commands.replay.recorded_decisions import (
    FollowUpFact,
    RecordedDecision,
    read_record,
)
from toolgate_orchestrator.commands.replay.result_comparison import compare_results
from toolgate_orchestrator.commands.replay.view import comparison_view
from toolgate_orchestrator.commands.replay.with_schedulers import prices_of
from toolgate_orchestrator.decision.question.question import write_question
from toolgate_orchestrator.decision.results.given_result import GivenResult, withhold

pytestmark = pytest.mark.pure

CALL, OTHER = ProposedCall("search", {"q": 1}), ProposedCall("fast", {"q": 1})
RUNS, DENIED = Effect("run", CALL), Effect("deny", CALL, "policy", "no")


def one(before, after, costs=(None, None), **where):
    return ComparedCall({"run": 1, "position": 0} | where, CALL, before, after, *costs)


def comparison(*calls, **fields):
    return build_comparison(
        "a file", 1.0, Set("no scheduler", ()), Set("--against", ("policy",)), calls, **fields
    )


EVERYTHING = (
    one(RUNS, RUNS, (5, 5)),
    one(RUNS, DENIED, (5, 0)),
    one(DENIED, RUNS, (0, 5)),
    one(RUNS, Effect("run", OTHER, "router", None, verified=False), (5, 2)),
    one(RUNS, Effect("ask", CALL, "policy"), (5, 0)),
    one(RUNS, Effect("hold", CALL, "approval"), (None, 0)),
    one(DENIED, DENIED, (0, 0)),
)


def test_every_change_is_counted_once():
    totals = comparison(*EVERYTHING).totals
    assert totals == {
        "calls": 7,
        "same": 2,
        "veto": 1,
        "reroute": 1,
        "ask": 1,
        "hold": 1,
        "allow": 1,
        "differences": 5,
        "broken": 3,
        "freed": 1,
        "unverified": 1,
    }


def test_each_set_says_what_becomes_of_the_calls_under_it():
    made = comparison(*EVERYTHING)
    assert made.before.totals == {"run": 5, "rerouted": 0, "vetoed": 2, "asked": 0, "held": 0}
    assert made.after.totals == {"run": 2, "rerouted": 1, "vetoed": 4, "asked": 1, "held": 1}


def test_what_is_saved_counts_calls_whose_cost_is_known_on_both_sides():
    cost = comparison(*EVERYTHING).cost
    assert cost is not None
    assert (cost.before, cost.after, cost.saved, cost.known, cost.unknown) == (20, 12, 8, 6, 1)
    assert comparison(one(RUNS, DENIED)).cost is None
    assert comparison(one(DENIED, DENIED, (0, 0))).cost is None


def test_a_difference_is_by_the_scheduler_that_decides_now_or_does_not_any_more():
    by = {figures.name: figures.calls for figures in comparison(*EVERYTHING).by_scheduler}
    assert by == {"policy": 3, "router": 1, "approval": 1}


@pytest.mark.parametrize(
    ("words", "changed"), [(["veto"], 1), (["veto,reroute"], 2), (["any"], 5), ([], 0), ([" ask "], 1)]
)
def test_fail_on_counts_the_changes_that_it_names(words, changed):
    assert comparison(*EVERYTHING).count_changed(fail_on(words)) == changed


def test_fail_on_names_the_words_that_there_are():
    with pytest.raises(ConfigError, match=r"--fail-on vetoes: must be veto, .*, allow, withhold, .* or any"):
        fail_on(["vetoes"])


@pytest.mark.parametrize(
    ("written", "seconds"), [("90s", 90), ("30m", 1800), ("24h", 86_400), ("7d", 604_800)]
)
def test_a_length_of_time_is_read(written, seconds):
    assert seconds_of(written) == seconds


@pytest.mark.parametrize("written", ["", "1", "h", "-1h", "1.5h", "0m", "999999999d", "1 h", "²h"])
def test_what_is_no_length_of_time_is_refused(written):
    with pytest.raises(ConfigError, match="--since"):
        seconds_of(written)


FREE, MASKED = GivenResult("a"), GivenResult("b", "masked", "masked", "card", "policy", frozenset({"4111"}))
KEPT = withhold("denied", "not for you", "policy")


@pytest.mark.parametrize(
    ("before", "after", "is_same_text", "change"),
    [
        (None, None, True, None),
        (None, FREE, True, None),
        (None, MASKED, False, "mask"),
        (MASKED, MASKED, True, None),
        (MASKED, MASKED, False, "mask"),
        (MASKED, KEPT, False, "withhold"),
        (KEPT, withhold("silent", "other words", "other"), False, None),
        (KEPT, None, False, "release"),
        (MASKED, FREE, False, "release"),
        (FREE, GivenResult("c", "replaced", "replaced", None, "policy"), False, "replace"),
    ],
)
def test_a_result_changes_by_what_the_llm_gets_of_it(before, after, is_same_text, change):
    result = compare_results(before, after, is_same_text=is_same_text)
    assert result.change == change
    assert change is None or result.scheduler == "policy"
    assert "4111" not in json.dumps(result.as_json())


def test_changes_of_results_are_counted_listed_and_may_fail_the_command():
    pairs = [(None, MASKED), (KEPT, None), (None, None), (MASKED, KEPT)]
    results = [compare_results(*pair, is_same_text=pair[0] is pair[1]) for pair in pairs]
    calls = [replace(one(RUNS, RUNS), result=result) for result in (*results, None)]
    compared = comparison(*calls)
    assert compared.results == {
        "compared": 4,
        "same": 1,
        "withhold": 1,
        "mask": 1,
        "replace": 0,
        "release": 1,
    }
    assert compared.as_json()["calls"][0]["result"] == {
        "before": "released",
        "after": "masked",
        "change": "mask",
        "scheduler": "policy",
        "reason": "card",
    }
    assert [compared.count_changed(fail_on([words])) for words in ("mask", "withhold,release", "any")] == [
        1,
        2,
        3,
    ]
    console = Terminal(width=120)
    with console.capture() as capture:
        console.print(comparison_view(compared))
    text = capture.get()
    assert "released → masked by policy (card)" in text
    assert "4 results of calls that run in both: 1 the same, 1 withheld, 1 masked, 0 replaced" in text


def test_of_the_record_it_is_said_how_many_results_are_not_compared():
    console = Terminal(width=200)
    with console.capture() as capture:
        console.print(comparison_view(comparison(one(RUNS, RUNS), limits={"results_unknown": 7})))
    assert "7 results are not compared: the record holds no text of a result." in capture.get()


def test_a_comparison_is_json_and_tells_every_call():
    data = json.loads(json.dumps(comparison(*EVERYTHING, notes=["n"]).as_json()))
    assert [call["change"] for call in data["calls"]] == [
        None,
        "veto",
        "allow",
        "reroute",
        "ask",
        "hold",
        None,
    ]
    assert data["calls"][1]["before"]["outcome"] == "run"
    assert data["calls"][1]["after"] == {
        "outcome": "deny",
        "tool": None,
        "arguments": None,
        "agent": None,
        "scheduler": "policy",
        "reason": "no",
        "verified": True,
        "cost": 0,
        "waited_s": None,
    }
    assert data["calls"][3]["after"]["outcome"] == "rerouted"


def test_a_person_sees_what_cannot_be_known_and_never_markup_or_control_characters():
    nasty = Effect("deny", CALL, "[red]x", "a\x1b[31mb")
    limits = {"redacted": 2, "unreadable": 0}
    console = Terminal(width=100)
    with console.capture() as capture:
        console.print(
            comparison_view(comparison(*EVERYTHING, one(RUNS, nasty), limits=limits, notes=["so it is"]))
        )
    text = capture.get()
    assert "2 recorded calls have placeholders" in text
    assert "unreadable" not in text
    assert "1 would run as other calls about which the other schedulers were never asked" in text
    assert "so it is" in text
    assert "[red]x" in text
    assert "\x1b[31m" not in text
    assert "0.00002 before, 0.000012 after" in text


def test_prices_are_read_from_configs_that_have_some(tmp_path):
    dear, other, cheap = (tmp_path / name for name in ("a.yaml", "b.yaml", "c.yaml"))
    dear.write_text("tools: {search: {cost: 2}, fast: {latency_s: 1}}\ndefault: {cost: '0.5'}\n")
    other.write_text("tools: [search]\nrules: []\n")
    cheap.write_text("tools: {search: {cost: 1}, free: {cost: 0}}\n")
    prices = prices_of([SchedulerSpec("x", path) for path in (dear, other, cheap)] + [SchedulerSpec("y")])
    assert [prices.of(tool) for tool in ("search", "fast", "free")] == [1_000_000, 500_000, 0]
    assert ToolPrices().of("search") is None


# ---------------------------------------------------------------------- the record

HIDDEN = "⟦toolgate:redacted:0123456789ab⟧"
QUESTION = {
    "phase": "select",
    "tool_name": "search",
    "tool_input": {"key": HIDDEN},
    "session": "s",
    "labels": {"team": "docs"},
    "available_tools": ["fast", "search"],
    "ttl_ms": 500,
}


def decided(key, *verdicts, outcome="continue", why="agreed"):
    base = {"tool_name": "search", "tool_input": {}, "original_tool": "search", "original_input": {}}
    raw = record.decision_fact(
        Decision(f"{key:032x}", outcome, why, **base, verdicts=verdicts),
        packing.pack(QUESTION),
        [record.verdict_fields(heard) for heard in verdicts],
        None,
        None,
        key,
        2.0,
    )
    (item,) = packing.items(packing.frame([raw]))
    (fact,) = record.read_facts(item)
    return fact


def ran(key, **fields):
    return {"event": "tool:post", "decision_id": f"{key:032x}", "tool": "search"} | fields


def test_the_record_is_read_with_what_became_of_the_calls():
    usage = {"event": "usage", "cost_usd": 0.1, "seq": 3, "at": 1.0, "orchestrator": "o"}
    facts = [decided(1), ran(1, cost=7), usage, decided(2), ran(2, cost=9), ran(2, cost=True), decided(3)]
    read = read_record(facts)
    first, charged, second, third = read.entries
    assert isinstance(first, RecordedDecision)
    assert (first.question.tool_input, first.question.labels) == ({"key": HIDDEN}, {"team": "docs"})
    assert charged == FollowUpFact("usage", {"cost_usd": 0.1})
    assert isinstance(second, RecordedDecision)
    assert isinstance(third, RecordedDecision)
    assert (first.cost, third.cost) == (7, None)
    assert read.costs == {"search": 7}
    assert read.limits == {"cancelled": 0, "unreadable": 0, "redacted": 3}


def test_what_cannot_be_compared_is_left_out_and_counted():
    facts = [
        decided(1, outcome="cancelled", why="cancelled"),
        {**decided(2), "cut": True},
        {**decided(3), "labels": {"team": 5}},
        decided(4),
    ]
    read = read_record(facts)
    assert read.limits == {"cancelled": 1, "unreadable": 2, "redacted": 1}
    assert len(list(read.decisions)) == 1


def test_the_newest_decisions_are_taken():
    read = read_record([decided(number) for number in range(1, 6)], newest=2)
    assert [entry.question.id[-1] for entry in read.decisions] == ["4", "5"]


def test_whoever_took_a_redacted_value_to_another_tool_was_allowed_to():
    took = ReceivedVerdict("router", Modify(tool="fast"))
    may_not = ReceivedVerdict("other", Modify(tool="fast"), problem="placeholder")
    without = ReceivedVerdict("third", Modify(tool="fast", arguments={"n": 1}))
    read = read_record(
        [decided(1, took, may_not, without), decided(2, ReceivedVerdict("policy", Deny(reason="no")))]
    )
    assert read.modifiers == {"router"}
    assert read.tools == ("fast", "search")


@pytest.mark.parametrize("truncated", [True, False])
def test_a_question_that_has_travelled_is_asked_as_it_was(truncated):
    redactor = PassthroughRedactor()
    redactor.truncated = truncated
    arguments = {"key": HIDDEN, "deep": [{"more": HIDDEN}], "plain": 1}
    body, outgoing = write_question(question_about("search", arguments), redactor)
    assert packing.unpack(body)["tool_input"] == arguments
    assert packing.unpack(body)["truncated"] is truncated
    assert outgoing.placeholders == {HIDDEN: HIDDEN}


def test_verdicts_of_the_record_are_those_that_were_heard():
    heard = ReceivedVerdict("policy", Continue(), 3)
    (read,) = read_record([decided(1, heard)]).decisions
    assert [one.scheduler for one in read.ruled.verdicts] == ["policy"]
