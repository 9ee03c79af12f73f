"""Who keeps slots: whom it tells again, that has something and may not know it."""

from itertools import pairwise

import pytest
from toolgate_schedulers.shipped.slots.keeper import MAX_PAUSE_S, MEND_S, UntoldGrants

pytestmark = pytest.mark.pure


def times_told(given_s, *, step=0.5):
    """When one who has a slot for so long, and was never told of it, is told."""
    untold, told = UntoldGrants(), []
    for tick in range(int(given_s / step)):
        told += [tick * step for _ in untold.find_due(["a"], tick * step)]
    return told


def test_who_may_not_know_of_its_slot_is_told_again_and_again_and_ever_more_seldom():
    told = times_told(600)
    pauses = [later - before for before, later in pairwise(told)]
    assert told[0] == MEND_S
    assert pauses == [MEND_S * 2**number for number in range(len(pauses))]
    assert MAX_PAUSE_S / 2 < pauses[-1] <= MAX_PAUSE_S  # then it is left in peace: it runs, and knows


def test_who_was_told_is_not_told_again_and_who_has_nothing_any_more_is_forgotten():
    untold = UntoldGrants()
    untold.find_due(["a", "b"], 0.0)
    untold.note_told("a")
    assert untold.find_due(["a", "b"], MEND_S) == ["b"]
    assert untold.find_due([], MEND_S) == []
    assert untold.find_due(["a"], 2 * MEND_S) == []  # it came back, as one that was just seen
    assert untold.find_due(["a"], 3 * MEND_S) == ["a"]
