"""One budget stops the bill of a fleet's LLM, whoever dies, and each agent says why it ends."""

import pytest
from llm_storm import MOST_OF_A_REQUEST, UNIT, LlmStorm
from priced_llm import PricedLlm

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(240)]

LIMIT = 10 * UNIT


@pytest.mark.parametrize("tools", [True, False], ids=["with tools", "without any tool"])
async def test_a_fleet_never_spends_more_than_its_budget_and_its_books_agree_with_the_llm(
    own_durable_server, tmp_path, tools
):
    storm = LlmStorm(own_durable_server, tmp_path, LIMIT, tools=tools, kills=1)
    try:
        async with PricedLlm() as llm:
            await storm.rage(llm, 120)
        found = await storm.audit()
    finally:
        storm.end()
    print(found)
    assert storm.overspent == []
    # Where the keeper of the book is killed, nobody settles for some seconds, and what is reserved denies.
    assert LIMIT - MOST_OF_A_REQUEST < found["most"] <= LIMIT
    assert LIMIT / 2 < found["spent"] <= found["most"]
    assert found["samples"] > 50
    assert found["processes"] == found["replicas"] == 1
    assert found["survivors"] == storm.processes * storm.sessions
    assert (found["calls"] > 20) == tools
    storm.check_ends()
