"""What a scheduler hides is nowhere to be read, over generated results: `make soak-results` draws more."""

import pytest
from generated_results import leaks, make_case
from result_siege import besiege

pytestmark = pytest.mark.pure


async def test_no_hidden_text_is_in_what_is_given_in_its_copies_in_facts_or_in_logs():
    found = await besiege(500, seed=1)
    assert found.violations == []
    assert found.hidden > 200
    assert {"released", "masked", "replaced", "withheld"} <= set(found.outcomes)


def test_the_oracle_sees_a_secret_in_whatever_form_it_is_read():
    secret = 'Q"ä\\1'
    for leaked in (secret, {"a": [secret]}, {secret: 1}, '{"a": "Q\\"ä\\\\1"}', 'Q"ä\\1'.encode()):
        assert leaks(leaked, {secret}) == [secret]
    assert leaks({"a": 7123}, {"7123"}) == ["7123"]
    assert leaks("nothing", {secret}) == []


def test_a_case_is_the_same_whenever_it_is_drawn():
    assert repr(make_case(7)) == repr(make_case(7))
