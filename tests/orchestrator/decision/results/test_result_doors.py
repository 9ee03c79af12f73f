"""What a scheduler hides comes out of no door, over generated results: `make soak-results` draws more."""

import pytest
from result_siege import DOORS, besiege

CASES = 30


@pytest.mark.parametrize("door", DOORS)
async def test_no_door_gives_away_what_a_scheduler_hid(door):
    found = await besiege(CASES, seed=1, doors=[door])
    assert found.violations == []
    assert found.hidden > CASES / 4
    assert found.doors[door] > CASES / 4
