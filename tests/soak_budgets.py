"""The long version of budgets/test_budgets.py: eight orchestrators, as many minutes as wanted.

pytest tests/soak_budgets.py -s          TOOLGATE_SOAK_S=300 by default
"""

import os

import pytest
from budget_storm import Storm

SECONDS = float(os.environ.get("TOOLGATE_SOAK_S", "300"))

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(2 * SECONDS + 240)]


async def test_budgets_hold_for_as_long_as_the_storm_lasts(own_durable_server, tmp_path):
    storm = Storm(
        own_durable_server, tmp_path, orchestrators=8, sessions=40, restarts=max(1, int(SECONDS // 20))
    )
    try:
        await storm.rage(SECONDS)
        found = await storm.audit()
    finally:
        storm.end()
    print(found, {"samples": storm.samples, "settled after": f"{storm.settled_after:.1f} s"})
    assert storm.overspent == []
    assert found["settled"] > 5 * SECONDS
    assert found["waited"] > 0
