"""What the journal adds up to: each change once, and nothing that somebody accepted as lost."""

from itertools import count

import pytest
from toolgate_bus.ledger.money import rebuild
from toolgate_bus.ledger.money.ledger import Addition, Balance
from toolgate_bus.ledger.money.limits import BudgetDescription
from toolgate_bus.ledger.money.rebuild import DAY_S, TOLD_AGAIN_S, JournalSums, keep_of

pytestmark = pytest.mark.pure
NUMBERS = count(1)


def entry(kind, id_, amount, accounts=(("all/fleet", 0),), at=100.0, **more):
    places = [list(one) for one in accounts]
    told = {"event": "ledger", "book": "budget", "kind": kind, "id": id_, "amount": amount, "at": at}
    return {**told, "accounts": places, "entry": f"{next(NUMBERS)}-0", **more}


def summed(*entries):
    sums = JournalSums("budget")
    for one in entries:
        sums.take(one)
    return sums


def test_a_call_that_a_failover_had_written_twice_counts_once():
    twice = [
        entry("settle", "a", 7),
        entry("settle", "b", 5),
        entry("settle", "b", 5),
        entry("charge", "b", 5),
    ]
    assert summed(*twice).spent == {("all/fleet", 0): 12}
    assert summed(*twice).twice == 2


def test_an_orphan_and_its_correction_both_count_each_once():
    told = [
        entry("orphan", "a", 10),
        entry("settle", "a", -3),
        entry("orphan", "a", 10),
        entry("settle", "a", -3),
    ]
    assert summed(*told).spent == {("all/fleet", 0): 7}
    assert summed(entry("orphan", "a", 10), entry("release", "a", -10)).spent == {("all/fleet", 0): 0}


def test_a_part_goes_with_the_entry_before_it():
    part = [("each/session/s", 0)]
    told = [entry("settle", "a", 7), entry("part", "a", 2, part)]
    assert summed(*told).spent == {("all/fleet", 0): 7, ("each/session/s", 0): 2}
    again = [entry("settle", "a", 7), entry("part", "a", 2, part)]
    assert summed(*told, *again).spent == {("all/fleet", 0): 7, ("each/session/s", 0): 2}


def test_what_ended_lately_is_known_and_what_ended_before_where_it_is_open_or_was_an_orphan(monkeypatch):
    monkeypatch.setattr(rebuild, "LATEST", 4)
    told = [
        entry("settle", "old", 1, at=100.0),
        entry("settle", "open", 1, at=100.0),
        entry("orphan", "late", 3, at=100.0),
        entry("settle", "late", 1, at=100.0),
        entry("settle", "a", 7, at=100.0 + TOLD_AGAIN_S),
        entry("part", "a", 2, at=100.1 + TOLD_AGAIN_S),
        entry("orphan", "b", 3, at=100.2 + TOLD_AGAIN_S),
        entry("orphan", "c", 3, at=100.2 + TOLD_AGAIN_S),
        entry("release", "c", -3, at=100.2 + TOLD_AGAIN_S),
        entry("charge", "usage-1", 3, at=100.2 + TOLD_AGAIN_S),
    ]
    lately = {"a": "settled", "b": "orphaned", "c": "released", "usage-1": "charged"}
    assert summed(*told).endings() == {"late": "settled", **lately}
    assert summed(*told).endings(["open"]) == {"open": "settled", "late": "settled", **lately}
    assert list(summed(*told[:1], entry("settle", "ahead", 1, at=9000.0)).endings()) == ["old", "ahead"]


def test_an_account_that_was_set_to_zero_begins_there():
    told = [
        entry("settle", "a", 7),
        entry("reset", "all", -7),
        entry("settle", "b", 1),
        entry("reset", "all", -1),
    ]
    assert summed(*told).spent == {("all/fleet", 0): 0}


def test_what_somebody_accepted_as_lost_is_spent_no_more():
    accepted = entry("accept-loss", "accept-loss", 0, (), 120.0, lost="missing", since=110.0)
    told = [entry("settle", "a", 7, at=100.0), entry("settle", "b", 5, at=111.0), accepted]
    assert summed(*told, entry("settle", "c", 1, at=130.0)).spent == {("all/fleet", 0): 6}
    behind = {**accepted, "lost": "behind"}
    assert summed(*told[:2], behind).spent == {("all/fleet", 0): 12}


def test_other_books_are_passed_over_and_books_that_say_more_stay():
    other = {**entry("settle", "a", 7), "book": "budget-shadow"}
    sums = summed(other, entry("settle", "b", 5, [("all/fleet", 0), ("day/fleet", 3)]))
    books = [Balance("all/fleet", 0, None, 9, 0), Balance("day/fleet", 3, None, 1, 0)]
    assert sums.beyond(books, {}) == [Addition("day/fleet", 3, 4, 368 * DAY_S)]
    assert sums.beyond([], {})[0] == Addition("all/fleet", 0, 5, 0)


def test_an_account_that_nobody_touches_again_goes_as_it_would_have_gone():
    hourly = {"h": BudgetDescription("h", "fleet", None, 3600, "USD")}
    assert keep_of("h/fleet", 9, hourly) == 3600 + 2 * DAY_S
    assert keep_of("each/session/s", 0, {}) == 30 * DAY_S
    assert keep_of("slice/abc", 0, {}) == 30 * DAY_S
    assert keep_of("total/agent/anna", 0, {}) == 0
