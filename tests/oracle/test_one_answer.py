"""A call that no rule can read has one answer at all doors: nobody runs it where anybody might object."""

import pytest
from doors import DOORS
from meanings import RuleList
from readings import Call
from station import Station

pytestmark = pytest.mark.pure

LEVELS = 28
"""Levels below the arguments that a question may have."""
ALLOWS = RuleList("policy", (), "allow")


def nest(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


UNREADABLE = {
    "half a character": {"text": "smile \ud83d"},
    "half a character in a key": {"map": {"\udc00": 1}},
    "half a character as an argument's name": {"\ud800": 1},
    "half a character in a long text": {"text": "x" * 70_000 + "\ud83d"},
    "half a character in a list": {"list": [["a", "\ud83d"]]},
    "a list that is too deep": {"deep": nest(LEVELS + 1)},
    "a list that is far too deep": {"deep": nest(100)},
}
READABLE = {
    "a whole character": {"text": "smile \U0001f600"},
    "a list that is just not too deep": {"deep": nest(LEVELS)},
    "a long text": {"text": "x" * 70_000},
}
EACH_DOOR = pytest.mark.parametrize("name", sorted({*DOORS} - {"langchain", "pydantic-ai"}))


async def make(name, arguments, **how):
    call = Call("write_file", arguments)
    async with Station.open(ALLOWS, **how) as station, DOORS[name].open(station) as door:
        outcome = await station.attempt(door.make, call)
        await station.end()
    return outcome


@EACH_DOOR
@pytest.mark.parametrize("arguments", UNREADABLE.values(), ids=UNREADABLE)
async def test_a_call_that_no_rule_can_read_is_denied_although_every_rule_allows_it(name, arguments):
    outcome = await make(name, arguments)
    assert (outcome.received, outcome.is_asked, outcome.fault) == (None, False, "")


@EACH_DOOR
@pytest.mark.parametrize("arguments", READABLE.values(), ids=READABLE)
async def test_a_call_like_it_that_rules_can_read_runs(name, arguments):
    outcome = await make(name, arguments)
    assert (outcome.received, outcome.fault) == (("write_file", arguments), "")


@pytest.mark.system
@EACH_DOOR
@pytest.mark.parametrize("arguments", UNREADABLE.values(), ids=UNREADABLE)
async def test_where_nobody_rules_the_same_call_runs_as_it_is(name, arguments):
    outcome = await make(name, arguments, is_ruled=False)
    assert (outcome.received, outcome.fault) == (("write_file", arguments), "")
