"""Budgets never overspend and never leak, whoever dies: the books agree with what really ran."""

import pytest
from budget_storm import Storm

pytestmark = [pytest.mark.system, pytest.mark.acceptance, pytest.mark.timeout(240)]

RAGE_S = 4.0


@pytest.fixture
def storm(own_durable_server, tmp_path):
    """`storm(spec)`: a run on a server of its own; its processes end with the test."""
    made = []

    def make(spec="cost-aware", **fields):
        made.append(Storm(own_durable_server, tmp_path, spec, **fields))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.mark.parametrize("admission", [False, True])
async def test_what_is_spent_is_what_the_tools_that_ran_have_cost_and_no_limit_is_ever_passed(
    storm, admission
):
    one = storm(orchestrators=6, admission=admission)
    await one.rage(RAGE_S)
    found = await one.audit()
    assert one.overspent == []
    assert one.samples > 100
    assert found["settled"] > 200
    for what in ("agents", "replicas", "connections", "repeated", "servers", "raised"):
        assert found[what] > 0, f"this storm had no {what}: {found}"


async def test_the_same_storm_on_a_ledger_that_checks_and_then_adds_goes_red(storm):
    """The samples show it: several find the same money."""
    one = storm("naive_budget:Naive", orchestrators=5)
    await one.rage(RAGE_S / 2)
    assert one.overspent != []
