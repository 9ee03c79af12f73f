"""No call runs that a rule is against, as the oracle reads rules and values; honest calls do."""

import pytest
from cases import FAMILIES
from known import KNOWN, find_kinds, mended, sample, surprises

pytestmark = pytest.mark.pure


@pytest.mark.timeout(300)
@pytest.mark.parametrize("family", FAMILIES)
async def test_what_a_rule_is_against_does_not_run_and_what_is_told_plainly_does(family):
    found = await sample(family)
    assert found.forbidden.total() > 10
    assert surprises(found) == [], [found.examples.get(one.split(": ", 1)[1]) for one in surprises(found)][:3]
    assert mended(found) == [], "python tests/oracle/run.py --mended takes these out of known.yaml"


def test_each_known_kind_is_tried():
    tried = set().union(*(find_kinds(family) for family in FAMILIES))
    assert {one.split(": ", 1)[1] for one in KNOWN} <= tried
