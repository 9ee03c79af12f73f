"""What people see and do at `toolgate approvals`, without a server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.errors import ConfigError, ToolgateError
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.telemetry.printable import format_duration, visible
from toolgate_schedulers.commands.approvals import correction as edits
from toolgate_schedulers.commands.approvals.answer import (
    AnswerOutcome,
    Person,
    answer,
    build_standing_rule,
    describe_outcome,
    explain_failure,
    find,
    outcome,
    resolve_outcome,
)
from toolgate_schedulers.commands.approvals.view import as_fields, full, one_line
from toolgate_schedulers.shipped.approval.queue import ApprovalQueue, WaitingCall
from toolgate_schedulers.shipped.approval.records import Approval, ApprovalAnswer

pytestmark = pytest.mark.pure

ANNA = Person("anna", "desk")
TOKEN = "⟦toolgate:redacted:00ff⟧"


def approval(arguments=None, phase="select", **fields):
    question = ToolSelecting(
        id="1" * 32,
        phase=phase,
        tool_name="pay",
        tool_input=arguments or {"to": "eve"},
        available_tools=("pay", "refund"),
        session="s",
        **fields,
    )
    return Approval(
        id="a" * 32,
        scheduler="approval",
        digest="d" * 64,
        question=question,
        rule="money",
        expires_s=60,
        always=True,
    )


# ---------------------------------------------------------------------- seeing


@given(st.text())
def test_nothing_that_steers_or_hides_is_shown(text):
    safe = visible(text)
    assert safe.isprintable()
    assert text.isprintable() <= (safe == text)


def test_letters_of_all_languages_are_shown_as_they_are():
    assert visible("Überweisung 支払い €5 😀") == "Überweisung 支払い €5 😀"
    assert visible("a\u202eb\x1b\u200b\n") == "a\\u202eb\\u001b\\u200b\\u000a"


def test_a_call_in_full_is_never_cut():
    long = "x" * 50_000
    lines = full(approval({"to": long}), 30.0, None)
    assert any(long in line for line in lines)
    assert "left         30 s" in lines
    assert "age          30 s" in lines
    assert len(one_line(approval({"to": long}).question)) == 100


def test_that_arguments_are_not_all_there_is_said():
    assert any("you do not see all" in line for line in full(approval(truncated=True), None, None))


def test_durations_are_told_in_units_that_people_read():
    assert [format_duration(s) for s in (0.4, 99, 100, 3600, 86_400)] == [
        "0 s",
        "99 s",
        "2 min",
        "60 min",
        "24 h",
    ]


def test_json_tells_the_age_only_while_it_waits():
    assert as_fields(approval(), 20.0)["age"] == 40.0
    assert as_fields(approval())["age"] is None


# ---------------------------------------------------------------------- correcting


def test_an_editor_is_given_the_call_and_gives_one_back():
    one = approval()
    assert edits.from_text(edits.as_text(one)) == ("pay", {"to": "eve"})
    for wrong in (
        "",
        "[]",
        '{"tool": "pay"}',
        '{"tool": 1, "arguments": {}}',
        '{"tool": "a", "arguments": []}',
    ):
        with pytest.raises(ConfigError, match="the call"):
            edits.from_text(wrong)


@pytest.mark.parametrize(
    "text", ["NaN", '{"a": NaN}', '{"a": Infinity}', "[" * 100_000, '{"a": 1, "a": 2}', '{"a": 1e400}']
)
def test_what_no_json_is_is_refused(text):
    with pytest.raises(ConfigError, match="is not JSON"):
        edits.read(text)


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("rocket", {}, "has no rocket; it has: pay, refund"),
        ("pay", {"to": "eve", "token": TOKEN}, "nothing is changed"),
        ("pay", {"token": "⟦toolgate:redacted:dead⟧"}, "not from this call"),
        ("pay", {"token": f"my {TOKEN}"}, "not from this call"),
        ("refund", {"token": TOKEN}, "for the same tool only"),
        ("pay", {"a": 2**64}, "cannot be sent"),
        ("pay", {"a": "\ud800"}, "cannot be sent"),
        ("pay", {"a": "x" * 70_000}, "at most"),
        ("pay", {str(n): n for n in range(2000)}, "at most"),
    ],
)
def test_a_correction_that_cannot_be_right_is_refused(tool, arguments, why):
    with pytest.raises(ToolgateError, match=why):
        edits.check(approval({"to": "eve", "token": TOKEN}), tool, arguments)


def test_a_number_corrected_to_a_truth_value_is_a_change_and_one_written_otherwise_is_none():
    edits.check(approval({"amount": 1}), "pay", {"amount": True})
    with pytest.raises(ToolgateError, match="nothing is changed"):
        edits.check(approval({"amount": 1}), "pay", {"amount": 1.0})


def test_a_correction_may_keep_placeholders_for_the_same_tool():
    edits.check(approval({"to": "eve", "token": TOKEN}), "pay", {"to": "bob", "token": TOKEN})
    edits.check(approval({"to": "eve", "token": TOKEN}), "refund", {"to": "bob"})


def test_a_replacement_is_not_corrected():
    with pytest.raises(ToolgateError, match="not corrected"):
        edits.check(approval(phase="verify"), "pay", {})


# ---------------------------------------------------------------------- answering


@pytest.fixture
def desk():
    shared = make_shared_state()
    return ApprovalQueue(shared.store, shared.notices)


async def test_the_second_answer_is_told_the_first(desk):
    await answer(desk, approval(), ANNA, "deny", "no\x1b")
    with pytest.raises(ToolgateError, match=r"refused by anna@desk \(no\\u001b\) already"):
        await answer(desk, approval(), Person("bert", ""), "approve")


async def test_an_id_must_be_one(desk):
    for wrong in ("", "abc", "../x", "g" * 8, "a" * 33):
        with pytest.raises(ConfigError, match="hexadecimal"):
            await find(desk, wrong)
    with pytest.raises(ToolgateError, match="no call begins with aaaa"):
        await find(desk, "AAAA")


async def test_two_calls_that_begin_alike_are_told_apart(desk):
    for last in "bc":
        await desk.ask(approval().model_copy(update={"id": "a" * 31 + last}))
    with pytest.raises(ToolgateError, match="2 calls begin with aaaa"):
        await find(desk, "aaaa")
    with pytest.raises(ToolgateError, match="nobody waits for aaaaaaaa any longer"):
        await find(desk, "a" * 31 + "b")


def test_always_needs_a_session_and_a_rule_that_allows_it():
    one = approval()
    assert (
        build_standing_rule(one, ANNA, None, exactly=False).id
        != build_standing_rule(one, ANNA, None, exactly=True).id
    )
    with pytest.raises(ToolgateError, match="money requires a person for each call"):
        build_standing_rule(one.model_copy(update={"always": False}), ANNA, None, exactly=False)
    with pytest.raises(ToolgateError, match="placeholders"):
        build_standing_rule(approval({"token": TOKEN}), ANNA, None, exactly=True)


# ---------------------------------------------------------------------- what came of it

RAN = {"outcome": "modify", "final_tool": "pay", "final_input": {"to": "bob"}, "verdicts": []}
GIVEN = ApprovalAnswer(action="edit", decision="1" * 32, digest="d", by="anna", host="desk")


def came(became="given", decision=None, instead=None):
    return AnswerOutcome(became, decision, instead)


def test_what_ran_is_told():
    assert explain_failure(approval(), GIVEN, came(decision=RAN)) is None
    assert (
        describe_outcome(approval(), GIVEN, came(decision=RAN)) == 'corrected by anna@desk: pay {"to": "bob"}'
    )


def test_an_answer_nobody_took_up_yet_is_kept():
    assert explain_failure(approval(), GIVEN, came(None)) is None
    assert describe_outcome(approval(), GIVEN, came(None)).startswith(
        "Stored: corrected by anna@desk. No replica of approval"
    )


def test_what_was_in_vain_is_a_failure():
    assert "too late" in explain_failure(approval(), GIVEN, came("gone"))
    assert "changed after it was shown" in explain_failure(approval(), GIVEN, came("changed"))
    denied = {**RAN, "outcome": "deny", "reason": "no money"}
    assert explain_failure(approval(), GIVEN, came(decision=denied)) == "the call still did not run: no money"
    refusal = GIVEN.model_copy(update={"action": "deny"})
    assert explain_failure(approval(), refusal, came(decision=denied)) is None


def test_a_correction_that_was_set_aside_is_a_failure_and_says_what_ran():
    aside = {**RAN, "verdicts": [{"scheduler": "approval", "problem": "schema"}]}
    words = explain_failure(approval(), GIVEN, came(decision=aside))
    assert words.startswith("the correction was set aside: the arguments do not fit the tool's schema")
    assert 'what ran instead: pay {"to": "bob"}' in words


def test_a_call_that_waits_in_its_place_is_shown():
    new = approval({"to": "mallory"}, phase="verify").model_copy(update={"id": "b" * 32})
    words = describe_outcome(approval(), GIVEN, came(instead=WaitingCall(new, 5.0)))
    assert 'pay {"to": "mallory"}' in words
    assert "toolgate approvals show bbbbbbbb" in words


@pytest.mark.parametrize(("action", "late"), [("continue", False), ("hold", True)])
async def test_only_an_answer_on_which_nothing_was_ruled_came_too_late(desk, action, late):
    """A replica may die between giving its verdict and saying so: the answer counted all the same."""
    decision = {**RAN, "why": "agreed", "verdicts": [{"scheduler": "approval", "action": action}]}

    async def recorded(_decision):
        return decision

    found = await resolve_outcome(desk, WaitingCall(approval(), 5.0), came(None), recorded)
    assert found.late is late
    given = GIVEN.model_copy(update={"action": "approve"})
    assert bool(explain_failure(approval(), given, found)) is late
    if not late:
        assert describe_outcome(approval(), given, found) == 'approved by anna@desk: pay {"to": "bob"}'


async def test_waiting_for_what_comes_ends(desk):
    async def never(_decision):
        return None

    assert await outcome(desk, approval(), never, 0.01) == AnswerOutcome(None)
    await desk.close(approval().id, "given")
    assert (await outcome(desk, approval(), never, 0.2)).became == "given"
    other = approval().model_copy(update={"id": "b" * 32})
    await desk.close(other.id, "gone")
    assert (await outcome(desk, other, never, 10)).became == "gone"
