"""A tool that no turn calls is asked about as a call of the session that it stands in, with all above it."""

from contextlib import AsyncExitStack

import pytest
from amplifier_core import ToolResult
from gate_world import World
from toolgate_bus.facts.record import read_facts
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import Continue, Deny
from toolgate_orchestrator.decision.config import ToolgateConfig
from toolgate_orchestrator.modules.direct_calls import DirectCalls
from toolgate_orchestrator.turn.session_tree import enter_lineage


class Delegate:
    """A tool that hands work on."""

    name, description, input_schema = "delegate", "", {"type": "object"}

    async def execute(self, arguments):
        return ToolResult(success=True, output="done")


class Session:
    """What the kernel tells of a session that has that tool."""

    def __init__(self, id_, parent=None, agents=()):
        self.session_id, self.parent_id = id_, parent
        self.config = {"agents": {agent: {} for agent in agents}}
        self._tools = {"delegate": Delegate()}

    def get(self, _point):
        """The tools, by name."""
        return self._tools


def nest(levels):
    """A list in a list, and so on."""
    return [nest(levels - 1)] if levels else 1


async def no_fault():
    """Nothing speaks against a call."""


async def test_a_sub_agents_direct_call_tells_its_tree_and_whom_it_hands_work_to():
    asked = []

    def note(call):
        asked.append(call)
        return Continue()

    async with AsyncExitStack() as stack:
        world = World(stack)
        world.hub.is_read = True
        await world.scheduler("police", note)
        gate = await world.gate(agent="clerk")
        boss, clerk = Session("top"), Session("child", "top", ["helper"])
        for one, name in ((boss, "boss"), (clerk, "clerk")):
            stack.callback(enter_lineage(one, ToolgateConfig(agent=name))[1])
        await DirectCalls(clerk, no_fault, lambda: gate).wrap()
        result = await clerk.get("tools")["delegate"].execute({"agent": "helper"})
        assert result.success
        facts = [fact for item in packing.items(packing.frame(world.hub.facts)) for fact in read_facts(item)]
    (call,) = asked
    assert (call.session, call.root_session, call.parent) == ("child", "top", "top")
    assert (call.lineage, call.agent_target) == (("boss", "clerk"), "helper")
    (ended,) = [fact for fact in facts if fact["event"] == "tool:post"]
    assert (ended["root_session"], ended["lineage"]) == ("top", ["boss", "clerk"])


async def test_arguments_that_no_rule_could_look_at_run_nothing_once_anybody_rules():
    async with AsyncExitStack() as stack:
        world = World(stack)
        gates = [await world.gate()]
        session = Session("top")
        await DirectCalls(session, no_fault, lambda: gates[-1]).wrap()
        tool = session.get("tools")["delegate"]
        assert (await tool.execute("rm -rf /")).success
        await world.scheduler("police", Deny(reason="no"))
        gates.append(await world.gate())
        refused = await tool.execute("rm -rf /")
    assert not refused.success
    assert "no map of names" in refused.error["message"]


@pytest.mark.parametrize("odd", ["half an emoji \ud83d", nest(29)], ids=["half a character", "too deep"])
async def test_a_direct_call_that_no_rule_can_read_runs_nothing_once_anybody_rules(odd):
    async with AsyncExitStack() as stack:
        world = World(stack)
        gates = [await world.gate()]
        session = Session("top")
        await DirectCalls(session, no_fault, lambda: gates[-1]).wrap()
        tool = session.get("tools")["delegate"]
        assert (await tool.execute({"text": odd})).success
        await world.scheduler("police", Continue())
        gates.append(await world.gate())
        refused = await tool.execute({"text": odd})
    assert not refused.success
    assert "nobody could be asked about it" in refused.error["message"]
