"""Merging verdicts by the rules of docs/concepts.md, over generated sets of verdicts."""

import pytest
from bus_strategies import NAMES, heards
from hypothesis import example, given
from hypothesis import strategies as st
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Failure, Hold, Modify, ReceivedVerdict
from toolgate_bus.ruling.merge import counts, merge, rank

pytestmark = pytest.mark.pure

sets = st.lists(heards(), max_size=8)
RESTRICTIVE = ["deny", "ask_user", "modify", "continue"]


def heard(scheduler, verdict, priority=0, **fields):
    return ReceivedVerdict(scheduler, verdict, priority, **fields)


def valid(all_heard):
    return [one for one in all_heard if not (one.late or one.shadow or one.problem)]


def of_each(all_heard):
    """Return each scheduler's most restrictive action by name; by docs/concepts.md, not by merge."""
    said = {}
    for one in valid(all_heard):
        said.setdefault(one.scheduler, []).append(one.verdict.action)
    return {name: min(actions, key=RESTRICTIVE.index) for name, actions in said.items()}


@given(sets, st.randoms())
def test_the_order_of_verdicts_never_matters(verdicts, random):
    shuffled = random.sample(verdicts, len(verdicts))
    assert merge(shuffled) == merge(verdicts)


@given(sets, st.lists(st.integers(0, 7), max_size=8))
def test_hearing_a_verdict_twice_changes_nothing(verdicts, again):
    twice = verdicts + [verdicts[at] for at in again if at < len(verdicts)]
    assert merge(twice) == merge(verdicts)


@given(sets, heards(st.builds(Deny, reason=st.just("no"))))
def test_a_valid_deny_wins_whatever_else_was_said_and_whatever_the_priorities(verdicts, deny):
    merged = merge([*verdicts, deny._replace(late=False, shadow=False)])
    assert merged.action == "deny"
    assert merged.winner.verdict.action == "deny"


@given(sets)
def test_nothing_but_a_valid_deny_denies(verdicts):
    denied = any(one.verdict.action == "deny" for one in valid(verdicts))
    assert (merge(verdicts).action == "deny") == denied


@given(sets)
def test_the_reason_is_that_of_the_highest_priority_deny_and_all_denies_are_kept(verdicts):
    merged = merge(verdicts)
    denies = [one for one in valid(verdicts) if one.verdict.action == "deny"]
    assert {one.scheduler for one in merged.denies} == {one.scheduler for one in denies}
    if denies:
        assert merged.winner.priority == max(one.priority for one in denies)


@given(sets)
def test_the_valid_modify_of_highest_priority_wins_ties_by_name_and_then_by_digest(verdicts):
    merged = merge(verdicts)
    standing = of_each(verdicts)
    candidates = [
        one
        for one in valid(verdicts)
        if one.verdict.action == "modify" and standing[one.scheduler] == "modify"
    ]
    if merged.action == "deny":
        return
    assert (merged.action == "modify") == bool(candidates)
    if candidates:
        best = min(candidates, key=lambda one: (-one.priority, one.scheduler, one.digest))
        won = merged.winner
        assert (won.priority, won.scheduler, won.digest) == (best.priority, best.scheduler, best.digest)


@given(sets)
def test_the_most_restrictive_answer_of_one_scheduler_counts_never_the_first(verdicts):
    merged = merge(verdicts)
    standing = of_each(verdicts)
    assert {one.scheduler for one in merged.denies} == {
        n for n, action in standing.items() if action == "deny"
    }
    assert {one.scheduler for one in merged.asks} == {
        n for n, action in standing.items() if action == "ask_user"
    }


@given(sets)
def test_late_shadow_and_invalid_verdicts_change_nothing(verdicts):
    assert merge(verdicts) == merge(valid(verdicts))


@given(sets, st.sampled_from(NAMES))
def test_continue_holds_and_failures_add_nothing(verdicts, name):
    more = [heard(name, Continue()), heard(name, Hold(seconds=1)), heard(name, Failure())]
    assert merge([*verdicts, *more]) == merge(verdicts)


@given(sets)
def test_who_wants_another_call_is_listed_by_rank_and_the_first_of_them_wins(verdicts):
    merged = merge(verdicts)
    assert list(merged.modifies) == sorted(merged.modifies, key=rank)
    if merged.action != "deny":
        assert merged.winner == next(iter(merged.modifies), None)


@given(sets)
def test_who_wants_a_person_asked_is_listed_by_rank(verdicts):
    asks = merge(verdicts).asks
    assert list(asks) == sorted(asks, key=rank)


@given(heards(st.sampled_from([Continue(), Deny(reason="no"), Hold(seconds=1), Failure()])))
@example(heard("alpha", Modify(tool="x"), problem="schema"))
def test_a_verdict_counts_unless_it_is_late_shadow_invalid_or_no_answer(one):
    answers = one.verdict.action in RESTRICTIVE
    assert counts(one) == (answers and not one.late and not one.shadow and one.problem is None)


def test_nothing_heard_is_continue():
    assert merge([]).action == "continue"
    assert merge([]).winner is None


def test_an_invalid_modify_leaves_the_next_one_to_win():
    high = heard("alpha", Modify(tool="gone"), 9, problem="unavailable_tool")
    low = heard("beta", Modify(tool="here"), 1)
    assert merge([high, low]).winner == low


def test_equal_priorities_are_decided_by_the_alphabetically_first_name():
    first = heard("alpha", Modify(tool="x"), 5, digest=b"\x02")
    second = heard("beta", Modify(tool="y"), 5, digest=b"\x01")
    assert merge([second, first]).winner == first


def test_equal_names_and_priorities_are_decided_by_the_digest():
    one = heard("alpha", Modify(tool="x"), digest=b"\x01")
    other = heard("alpha", Modify(tool="y"), digest=b"\x02")
    assert merge([other, one]).winner == one


def test_a_schedulers_question_to_a_person_stands_above_its_own_modify():
    merged = merge([heard("alpha", Modify(tool="x"), 5), heard("alpha", AskUser(prompt="?"))])
    assert merged.action == "continue"
    assert [one.scheduler for one in merged.asks] == ["alpha"]


def test_a_question_to_a_person_stands_beside_anothers_modify():
    merged = merge([heard("alpha", AskUser(prompt="?")), heard("beta", Modify(tool="x"))])
    assert (merged.action, merged.winner.scheduler, merged.asks[0].scheduler) == ("modify", "beta", "alpha")
