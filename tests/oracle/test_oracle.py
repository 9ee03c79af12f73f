"""No call runs that a rule is against, as the oracle reads rules and values; honest calls do; doors agree."""

from collections import Counter

import pytest
from cases import FAMILIES
from doors import DOORS, NAMES
from known import KNOWN, count_visits, is_tried, mended, sample, surprises
from siege import plan

pytestmark = [pytest.mark.pure, pytest.mark.system]
LEAST = 150
"""Cases at each door."""
SHARE = 15_000 / 200_000
"""Of the cases of a long run, those at each door at the least."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("family", FAMILIES)
async def test_what_a_rule_is_against_does_not_run_and_what_is_told_plainly_does(family):
    found = await sample(family)
    assert found.forbidden.total() > 10
    assert surprises(found) == [], [found.examples.get(one) for one in surprises(found)][:3]
    assert mended(found) == [], "python tests/oracle/run.py --mended takes these out of known.yaml"


def test_every_door_is_tried_by_hundreds_of_cases():
    counts = Counter(
        one.rpartition(" at ")[2] for family in FAMILIES for one in count_visits(family).elements()
    )
    assert set(counts) == set(DOORS)
    assert min(counts.values()) >= LEAST, counts


def test_every_door_has_its_share_of_a_long_run():
    counts: Counter[str] = Counter()
    for _, chosen in plan(7, 6_000, doors=NAMES):
        counts.update(door for _, doors in chosen for door in doors)
    assert set(counts) == set(NAMES)
    assert min(counts.values()) >= SHARE * 6_000, counts


def test_each_known_kind_is_tried():
    visited = set().union(*(count_visits(family) for family in FAMILIES))
    elsewhere = [one for one in KNOWN if one.rpartition(" at ")[2] in set(NAMES) - set(DOORS)]
    assert [one for one in KNOWN if one not in elsewhere and not is_tried(one, visited)] == []
