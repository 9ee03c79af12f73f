"""A decision in plain words: every reason has its own, and nothing in the record can break them."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.commands.decisions.explained import explain
from toolgate_bus.commands.decisions.rules import PROBLEMS, RULES, rule_of
from toolgate_bus.protocol.events import Outcome, Why
from toolgate_orchestrator.decision.results.given_result import ResultOutcome, ResultWhy

pytestmark = pytest.mark.pure

BASE = {
    "event": "decision",
    "id": "ab" * 16,
    "outcome": "continue",
    "why": "agreed",
    "tool_name": "search",
    "tool_input": {"q": "cats"},
    "agent": "anna",
    "session": "s-1",
    "root_session": "s-1",
    "labels": {"team": "red"},
    "verdicts": [],
    "silent": [],
    "passed_over": [],
    "scheduler": None,
    "reason": None,
    "seconds": 0.0042,
    "at": 1_763_725_917.0,
    "seq": 1,
    "final_tool": "search",
    "final_input": {"q": "cats"},
}


def verdict(scheduler, action="continue", **fields):
    return {
        "scheduler": scheduler,
        "action": action,
        "phase": "select",
        "priority": 0,
        "seconds": 0.0012,
        **fields,
    }


def told(*facts, **fields):
    return explain({**BASE, **fields}, facts)


def test_it_says_who_asked_what_and_when():
    (asked, labels) = told().asked
    assert asked == (
        'The agent anna in session s-1 wanted to call search {"q": "cats"}, at 2025-11-21 11:51:57 UTC.'
    )
    assert labels == "Its labels: team=red."


def test_it_says_what_each_scheduler_said_in_order_and_who_said_nothing():
    heard = told(
        verdicts=[
            verdict("policy", reason="fine", priority=5),
            verdict("router", "modify", tool="index", arguments={"q": "dogs"}, capped=True),
            verdict("late", "deny", reason="no", late=True),
            verdict("guard", "hold", seconds=30.0),
            verdict("person", "ask_user", prompt="Really?"),
            verdict("broken", "failed", reason="boom"),
            verdict("wild", "modify", tool="rm", problem="unavailable_tool"),
            verdict("policy", phase="verify"),
            verdict("tables", revision="v1@3f2a local", phase="verify"),
            verdict("nameless", revision=" local", phase="verify"),
        ],
        silent=["broken", "slow", "away"],
        failed_open={"away": "bus_down", "slow": "silent", "broken": "failed"},
        passed_over=["dead"],
    ).heard
    assert heard == (
        "policy (priority 5) said continue after 1.2 ms, because: fine.",
        (
            'router (priority 0) wanted another call after 1.2 ms: index {"q": "dogs"}; its own priority was '
            "higher, and is capped by the orchestrator."
        ),
        "guard (priority 0) held the call for up to 30.0 s.",
        "person (priority 0) wanted a person asked after 1.2 ms: “Really?”.",
        "broken (priority 0) could not decide, which counts as silence after 1.2 ms, because: boom.",
        (
            "wild (priority 0) wanted another call after 1.2 ms: rm, with the same arguments; that is "
            "invalid and was set aside: the agent has no such tool."
        ),
        "The others were asked about the replacement:",
        "policy (priority 0) said continue after 1.2 ms.",
        "tables (priority 0, revision v1@3f2a) said continue by its local table after 1.2 ms.",
        "nameless (priority 0) said continue by its local table after 1.2 ms.",
        "slow gave no answer in time.",
        "away gave no answer in time (bus_down).",
        "dead was not waited for: it had been silent before, and is tried again once a second.",
    )


def test_a_denial_says_which_rule_who_else_and_what_the_agent_was_told():
    why = told(
        outcome="deny",
        why="denied",
        scheduler="policy",
        reason="secrets stay here",
        verdicts=[verdict("policy", "deny", reason="secrets stay here"), verdict("b", "deny", reason="x")],
    ).why
    assert why == (
        "Denied after 4.2 ms: the call did not run.",
        "policy decided: a valid deny from any scheduler vetoes, whatever the priorities.",
        "b denied it too; the agent is told the reason of the highest priority.",
        "The agent was told: “secrets stay here”",
    )


def test_a_replacement_says_what_runs_instead_and_whose_it_was():
    why = told(
        outcome="modify",
        why="modified",
        scheduler="router",
        final_tool="index",
        final_input={"q": 1},
        asked_user=True,
        verdicts=[verdict("router", "modify", tool="index"), verdict("other", "modify", tool="x")],
    ).why
    assert why[0] == 'Replaced after 4.2 ms: index {"q": 1}.'
    assert "highest priority wins" in why[1]
    assert why[2] == "other wanted another call too, and had no higher priority."
    assert why[3].endswith("and agreed.")


@pytest.mark.parametrize("why", get_args(Why))
def test_every_reason_has_words_of_its_own(why):
    words = rule_of({**BASE, "why": why, "scheduler": "x", "silent": ["y"]})
    assert words != rule_of({**BASE, "why": "unheard-of"})
    assert "{" not in words
    assert [one for one in RULES if RULES[one] == RULES[why]] == [why]


def test_a_reason_that_a_later_version_adds_is_said_as_it_stands():
    assert rule_of({**BASE, "why": "unheard-of"}) == "The record says why: unheard-of."


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (verdict("x", "hold", seconds=3.0), "held the call and gave no answer in time"),
        (verdict("x", "ask_user", prompt="?"), "nobody answered in time"),
    ],
)
def test_a_hold_that_ran_out_and_a_person_who_did_not_answer_are_told_apart(said, words):
    decision = {**BASE, "outcome": "deny", "why": "expired", "scheduler": "x"}
    assert words in rule_of(decision, [said])


def test_a_denied_replacement_is_told_from_a_denied_call():
    decision = {**BASE, "outcome": "deny", "why": "denied", "scheduler": "x"}
    assert "replacement" in rule_of(decision, [verdict("x", "deny", reason="no", phase="verify")])
    assert "replacement" not in rule_of(decision, [verdict("x", "deny", reason="no")])


def test_every_problem_of_a_modify_that_bus_readme_names_has_words():
    invalid = {"unavailable_tool", "ambiguous_tool", "not_allowed", "schema", "placeholder", "agent", "phase"}
    assert set(PROBLEMS) == {*invalid, "overruled"}


def test_changes_of_a_replacement_are_told_round_by_round_and_so_is_who_was_overruled():
    explained = told(
        outcome="modify",
        why="modified",
        scheduler="limiter",
        final_input={"n": 1},
        verdicts=[
            verdict("limiter", "modify", tool="search"),
            verdict("masker", "modify", tool="search"),
            verdict("masker", "modify", phase="verify", tool="search", arguments={"n": 1}),
            verdict("other", "modify", phase="verify", tool="rm", problem="overruled"),
            verdict("limiter", phase="verify", again=True),
        ],
    )
    assert explained.heard[2:] == (
        "The others were asked about the replacement:",
        'masker (priority 0) wanted another call after 1.2 ms: search {"n": 1}.',
        (
            "other (priority 0) wanted another call after 1.2 ms: rm, with the same arguments; that was "
            "overruled: it is optional, and wanted another call than all required schedulers agreed to."
        ),
        "Everyone was asked again, about the replacement as others had changed it:",
        "limiter (priority 0) said continue after 1.2 ms.",
    )
    assert explained.why[2:] == ("masker changed the replacement, and it ran as changed.",)


def test_a_required_scheduler_that_does_not_agree_to_a_replacement_is_told_as_that():
    decision = {**BASE, "outcome": "deny", "why": "denied", "scheduler": "x"}
    said = verdict("x", "deny", reason="no", phase="verify", again=True, said={"action": "modify"})
    assert "does not agree" in rule_of(decision, [said])


def test_the_last_round_is_told_apart_with_what_was_given_and_the_wait_is_no_latency():
    verdicts = [
        verdict("police"),
        verdict("slots", "hold", phase="admit", seconds=90.0, reason="waits for few: place 3"),
        verdict("slots", phase="admit", seconds=2.5, fence=7),
    ]
    words = told(verdicts=verdicts, seconds=2.502, waited=2.5)
    assert words.heard[1:] == (
        "Last, schedulers that grant scarce resources were asked about the call that was about to run:",
        "slots (priority 0) held the call for up to 90.0 s, because: waits for few: place 3.",
        "slots (priority 0) said continue after 2.5 s, and gave it fencing number 7.",
    )
    assert words.why[0] == "Allowed as it was after 2.0 ms, and 2.5 s of waiting to be admitted."


def test_a_denial_in_the_last_round_says_that_what_others_gave_was_given_back():
    verdicts = [verdict("slots", "deny", phase="admit", reason="None is left.")]
    words = told(verdicts=verdicts, outcome="deny", why="denied", scheduler="slots", reason="None is left.")
    assert words.heard[1].endswith("because: None is left.")
    assert words.why[1] == "slots denied it as it was about to run: what others had granted was given back."


def test_a_pause_of_an_operator_is_told():
    words = told(fact("tool:paused", by="eve", seconds=61.0, status="resumed"))
    assert words.after[0] == "Paused by eve, it waited for 61.0 s more and was resumed."
    assert words.after[1].startswith("The record does not say (yet) whether it ran")


def fact(event, **fields):
    return {"event": event, "decision_id": BASE["id"], "tool": "search", **fields}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ([], "The record does not say (yet) whether it ran; programs with their own Gate never report that."),
        (
            [fact("tool:selected")],
            "search was selected to run; the record has no result of it yet.",
        ),
        (
            [fact("tool:selected"), fact("tool:post", seconds=1.5, success=True, cost=1200)],
            "search ran for 1.5 s with success, and cost 0.0012.",
        ),
        ([fact("tool:post", seconds=0.5, success=False)], "search ran for 500.0 ms and reported an error."),
        ([fact("tool:error", seconds=0.1, error="OSError")], "search failed after 100.0 ms (OSError)."),
        ([fact("tool:unused")], "search was not run after all."),
        (
            [{**fact("tool:post", success=True), "decision_id": "other"}],
            "The record does not say (yet) whether it ran; programs with their own Gate never report that.",
        ),
    ],
)
def test_it_says_what_ran_and_what_came_of_it(facts, words):
    assert told(*facts).after == (words,)


def test_nothing_is_said_of_running_where_nothing_was_to_run():
    assert told(fact("tool:post"), outcome="deny", why="denied").after == ()


def test_shadows_and_late_verdicts_stand_beside():
    beside = told(
        verdicts=[
            verdict("slow", "deny", reason="no", late=True),
            verdict("shade", "deny", reason="never", shadow=True),
        ]
    ).beside
    assert beside == (
        "Too late to count: slow (priority 0) said deny after 1.2 ms, because: no.",
        (
            "Beside that, as a shadow that never counts: shade (priority 0) said deny after 1.2 ms, "
            "because: never."
        ),
        "Had shade counted, it would have denied it.",
    )


def test_placeholders_and_cut_arguments_are_said():
    asked = told(tool_input={"k": "⟦toolgate:redacted:0123456789ab⟧"}, cut=True, truncated=True).asked
    assert [line.split(" ")[0] for line in asked[2:]] == ["Placeholders", "Some", "The"]


JUNK = [None, True, 7, -1e300, float("nan"), float("inf"), "", "x", [], [[]], [{}], [None, 7], {}, {"a": []}]
junk = st.sampled_from(JUNK)
PARTS = [
    "scheduler",
    "action",
    "phase",
    "priority",
    "seconds",
    "reason",
    "tool",
    "arguments",
    "late",
    "problem",
]
said = junk | st.sampled_from(["deny", "modify", "hold", "failed", "verify", True])
fields = sorted({*BASE, "failed_open", "cut", "asked_user", "final_agent", "agent_target"} - {"id"})


@given(
    st.dictionaries(st.sampled_from(fields), junk, max_size=4),
    st.lists(st.dictionaries(st.sampled_from([*PARTS, "shadow"]), said, max_size=4), max_size=4),
    st.lists(
        st.dictionaries(st.sampled_from(["seconds", "cost", "error", "tool", "success"]), junk), max_size=3
    ),
    st.sampled_from([*get_args(Outcome), 7, None]),
)
def test_whatever_stands_in_the_record_it_is_told_in_words(changed, verdicts, facts, outcome):
    decision = {**BASE, **changed, "verdicts": verdicts, "outcome": outcome}
    events = ["tool:post", "tool:error", "tool:unused", "tool:selected"]
    ran = [
        {**one, "event": events[place % 4], "decision_id": decision["id"]} for place, one in enumerate(facts)
    ]
    sentences = explain(decision, ran).sentences
    assert all(isinstance(one, str) and one for one in sentences)
    assert len(sentences) >= 3


def test_a_call_of_a_stopped_agent_is_no_schedulers_affair():
    decision = {**BASE, "outcome": "deny", "why": "denied", "scheduler": "operator"}
    assert rule_of(decision).startswith("An operator has stopped the agent")


MASK = {"masks": [["/text", 4, 12, "api key"], ["", None, None, ""]], "reason": "it has a key"}


def ruled(outcome="masked", why="masked", *verdicts, **fields):
    """What it says of a result on which schedulers ruled so."""
    return told(result={"outcome": outcome, "why": why, "verdicts": list(verdicts), **fields}).result


def test_it_says_what_became_of_the_result_and_what_was_masked_by_whom():
    assert told().result == ()
    assert ruled(
        "masked",
        "masked",
        verdict("pii", "mask", **MASK),
        verdict("judge", "replace", replaced=True, again=True),
        verdict("trial", "deny", reason="no.", shadow=True),
        size=5200,
        cut=100,
        silent=["slow"],
        disagreeing=["trial"],
    ) == (
        "The result of 5,200 bytes was given without what was masked.",
        "pii masked parts of it: api key at /text, characters 4 to 12, all of it, because: it has a key.",
        "judge gave another result when asked again, about the other result.",
        "trial withheld it (shadow: it does not count), because: no.",
        "slow gave no answer about it in time.",
        "Its last 100 bytes were cut off, as no scheduler was sent them.",
        "Had the shadow trial counted, the LLM would not have got the result so.",
    )


def test_it_says_where_a_mask_wanted_to_hide_what_is_not_there():
    said = {"action": "mask", "masks": [["/b", None, None, ""]]}
    (_, words) = ruled("withheld", "denied", verdict("pii", "deny", reason="it hides no part.", said=said))
    assert words == "pii withheld it: at /b, because: it hides no part."


@pytest.mark.parametrize("why", get_args(ResultWhy))
@pytest.mark.parametrize("outcome", get_args(ResultOutcome))
def test_each_end_of_a_result_has_words_of_its_own(outcome, why):
    (words,) = ruled(outcome, why)
    assert "ended as" not in words
    assert words.count(".") == 1


@given(st.dictionaries(st.sampled_from(["outcome", "why", "verdicts", "size", "silent"]), junk))
def test_nothing_in_the_record_of_a_result_can_break_it(result):
    told(result=result)
