"""acceptance/llm/test_llm_budget.py in full: 100 USD, 200 agents in 4 processes, with tools or none.

pytest tests/soak_llm.py -s          says every few seconds how far it is; some minutes in all
"""

import pytest
from llm_storm import MOST_OF_A_REQUEST, UNIT, LlmStorm
from priced_llm import PricedLlm

LIMIT = 100 * UNIT
BOUND_S = 400.0

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(2 * BOUND_S + 120)]


@pytest.mark.parametrize("tools", [True, False], ids=["tools", "no-tools"])
async def test_a_budget_of_100_usd_stops_200_agents_and_every_request_is_accounted_for(
    own_durable_server, tmp_path, tools
):
    where = (own_durable_server, tmp_path, LIMIT)
    storm = LlmStorm(*where, processes=4, sessions=50, tools=tools, kills=4, say=_say)
    try:
        async with PricedLlm() as llm:
            await storm.rage(llm, BOUND_S)
        found = await storm.audit()
    finally:
        storm.end()
    _say(str(dict(found)))
    assert storm.overspent == []
    assert LIMIT - MOST_OF_A_REQUEST < found["spent"] <= found["most"] <= LIMIT
    assert (found["processes"], found["survivors"]) == (4, 200)
    assert found["replicas"] > 0
    assert (found["calls"] > 0) == tools
    storm.check_ends()


def _say(what: str) -> None:
    print(what, flush=True)
