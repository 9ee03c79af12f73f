"""The facts of a call have the same fields at every door: who asks, what was let through, how it ended."""

import pytest
from doors import DOORS
from meanings import Rule, RuleList
from python_doors import GateDoor
from readings import Call, Who
from station import Station

pytestmark = pytest.mark.pure

RULES = RuleList("policy", (Rule("deny", ("pay",)),))
CALL = Call("bash", {"command": "ls -l"}, Who(session="s-9"), {"properties": {"command": {"type": "string"}}})
ABOUT = {"tool", "tool_call_id", "decision_id", "session", "root_session", "agent"}
SELECTED = {*ABOUT, "tool_name", "source", "original_tool", "parallel_group_id", "iteration"}
ENDED = {*ABOUT, "seconds", "success"}
OF_ANY = {"event", "seq", "at", "orchestrator", "entry"}
DIGEST = {"digest"}
"""Told where the result passes through our hands."""


@pytest.mark.parametrize("name", sorted(set(DOORS) - {GateDoor.name}))
async def test_a_call_is_told_alike_at_every_door(name: str) -> None:
    async with Station.open(RULES) as station:
        async with DOORS[name].open(station) as door:
            outcome = await station.attempt(door.make, CALL)
        assert outcome.received is not None, outcome.fault
        told = {one["event"]: one for one in await station.read_facts()}
    selected, ended = told["tool:selected"], told["tool:post"]
    assert set(selected) - OF_ANY == SELECTED
    assert set(ended) - OF_ANY - DIGEST == ENDED
    same = ABOUT - {"tool_call_id"}
    assert {field: selected[field] for field in same} == {field: ended[field] for field in same}
    assert (ended["success"], ended["agent"], ended["session"]) == (True, "clerk", ended["root_session"])
