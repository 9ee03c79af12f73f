"""A local table answers as its policy does and as the oracle says, whatever the rules and the call."""

import pytest
from tables import ask_many, try_many

SEED, CASES, ASKED = 3, 3000, 300


@pytest.mark.pure
def test_a_table_answers_as_a_linear_evaluation_the_policy_and_the_oracle():
    found = try_many(SEED, CASES)
    assert found.wrong == {}, found.examples
    assert min(found.answered[one] for one in ("continue", "deny", "asked")) > CASES / 20
    assert min(found.judged[one] for one in ("continue", "deny")) > CASES / 20


async def test_a_table_answers_as_a_policy_that_is_asked(server):
    found = await ask_many(server.url, SEED, ASKED)
    assert found.wrong == {}, found.examples
    assert min(found.answered[one] for one in ("continue", "deny", "asked")) > ASKED / 20
