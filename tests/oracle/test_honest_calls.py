"""What the shown examples of rules say of ordinary calls stays as it is, or its change is named."""

import pytest
from honest import CALLS, CHANGED, EXAMPLES, ask_all, expected

pytestmark = pytest.mark.pure


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", EXAMPLES)
async def test_an_example_says_of_ordinary_calls_what_it_said_before(name):
    said, before = await ask_all(name), expected(name)
    differing = {at: (now, was) for at, (now, was) in enumerate(zip(said, before, strict=True)) if now != was}
    assert {at: (*both, CALLS[at]) for at, both in differing.items()} == {}


def test_each_change_is_one_and_has_its_reason():
    assert len(CALLS) >= 300
    for (name, at), change in CHANGED.items():
        assert change.now != CALLS[at].get("said", {}).get(name, "continue")
        assert change.why
