"""A tool that no turn calls is asked about as a call of the session that it stands in, with all above it."""

from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
from amplifier_core import ToolResult
from gate_world import World
from toolgate_bus.facts.record import read_facts
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import Continue, Deny
from toolgate_orchestrator.decision.config import ToolgateConfig
from toolgate_orchestrator.modules.direct_calls import DirectCalls
from toolgate_orchestrator.turn.calls.tool_call import enter_call
from toolgate_orchestrator.turn.session_tree import enter_lineage
from toolgate_orchestrator.turn.values.messages import ToolCall


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


class Shell:
    """A tool that costs something."""

    name, description, input_schema = "shell", "", {"type": "object"}

    def __init__(self, result):
        self.result, self.ran = result, []

    async def execute(self, arguments):
        self.ran.append(arguments)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


class Helper:
    """A tool that calls another one, or itself, by what is mounted."""

    name, description, input_schema = "helper", "", {"type": "object"}

    def __init__(self, session, calls, same):
        self.session, self.calls, self.same, self.ran = session, calls, same, 0

    async def execute(self, arguments):
        self.ran += 1
        given = arguments if self.same else {"command": "rm"}
        return await self.session.get("tools")[self.calls].execute(given) if self.ran == 1 else None


@asynccontextmanager
async def wrapped(session, rule, tools):
    """A session whose tools are wrapped, and a function that gives the facts so far."""
    async with AsyncExitStack() as stack:
        world = World(stack)
        world.hub.is_read = True
        await world.scheduler("police", rule)
        gate = await world.gate(agent="clerk")
        session._tools = tools
        stack.callback(enter_lineage(session, ToolgateConfig(agent="boss"))[1])
        await DirectCalls(session, no_fault, lambda: gate).wrap()
        yield lambda: [
            fact for item in packing.items(packing.frame(world.hub.facts)) for fact in read_facts(item)
        ]


@pytest.mark.parametrize(
    ("calls", "same"), [("shell", False), ("shell", True), ("helper", False), ("helper", True)]
)
async def test_what_a_tool_of_a_loop_calls_by_itself_is_ruled_on_and_its_own_call_is_not_asked_about_again(
    calls, same
):
    asked, session, shell = [], Session("top"), Shell("done")

    def rule(call):
        asked.append(call.tool_name)
        return Deny(reason="not here")

    helper = Helper(session, calls, same)
    async with wrapped(session, rule, {"shell": shell, "helper": helper}):
        call = ToolCall("1", "helper", {"a": 1})
        with enter_call(call):
            result = await session.get("tools")["helper"].execute(call.arguments)
    assert (asked, shell.ran, helper.ran) == ([calls], [], 1)
    assert not result.success


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (ToolResult(success=True, output={"cost_usd": "5.00"}), {"success": True, "cost": 5_000_000}),
        ({"cost_usd": 0.01}, {"success": True, "cost": 10_000}),
        (
            ToolResult(success=False, error={"message": "busy", "status": 429}),
            {"success": False, "signal": "429"},
        ),
        (TimeoutError("secret"), {"error": "TimeoutError", "signal": "timeout"}),
    ],
)
async def test_the_end_of_a_direct_call_tells_what_it_cost_and_how_it_failed(result, told):
    session = Session("top")
    async with wrapped(session, Continue(), {"shell": Shell(result)}) as read:
        with suppress(TimeoutError):
            await session.get("tools")["shell"].execute({})
        (end,) = [fact for fact in read() if fact["event"] in ("tool:post", "tool:error")]
    assert {name: end.get(name) for name in told} == told


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
    assert "must be a map of names" in refused.error["message"]


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
