"""No tool has a name that the product uses for something else: its calls would go past all rules on tools."""

import asyncio
import json

import pytest
from hook_fixtures import FILES, load
from toolgate_bus.protocol.events import Continue, Deny, Modify
from toolgate_orchestrator import Call
from toolgate_orchestrator.commands.serve.hook_handler import HookHandler
from toolgate_orchestrator.commands.serve.routes import ROUTES
from toolgate_orchestrator.commands.serve.service import SidecarService

pytestmark = pytest.mark.pure

NAMES = [
    *("llm:request", "llm:bash", "turn:end", "session:start", "ｌｌｍ:request", "ｔｕｒｎ:end"),
    *("LLM:request", "Turn:end", " llm:request", "llm :request", "llm\t:request", "\ufeffturn:end"),
    *("l\u200blm:request", "llm\u00ad:request", "tu\u2060rn:end", "ｌｌｍ：request", "session\ufe55start"),
    *("\u3164llm:request", "l\u0332lm:request", "\U000e0041session:start"),
]
HONEST = ["llm_request", "billm:pay", "my:turn:end", "MCP:session:list", "llm2:ask", "turns:list", "größe:x"]
BEFORE = next(
    load(path)["event"]
    for path in FILES
    if path.parent.name == "claude" and "modify" in load(path).get("answers", ())
)


async def stays():
    """A caller that waits for its answer."""
    await asyncio.Event().wait()


@pytest.mark.parametrize("name", HONEST)
async def test_an_honest_name_is_one(world, name):
    gate = await world.gate()
    assert not gate.wanted(name)
    assert (await gate.decide(Call(name, {}, [name]))).outcome == "continue"


@pytest.fixture
async def gate(world):
    """A gate that requires a scheduler which denies each tool."""
    await world.scheduler("police", Deny(reason="no"))
    return await world.gate(required=["police"])


@pytest.mark.parametrize("name", NAMES)
async def test_a_tool_of_a_reserved_name_is_denied_in_words(gate, name):
    assert gate.wanted(name)
    decision = await gate.decide(Call(name, {"command": "rm -rf /"}, [name, "bash"]))
    assert (decision.outcome, decision.why) == ("deny", "denied")
    assert "a tool's name cannot begin with llm:, turn: or session:" in decision.reason


@pytest.mark.parametrize("name", NAMES)
async def test_no_call_is_replaced_by_one_of_such_a_name(world, name):
    change = Modify(tool=name, arguments={"command": "rm -rf /"})
    await world.scheduler(
        "police", lambda call: Continue() if call.tool_name == "read" else Deny(reason="no")
    )
    await world.scheduler("router", lambda call: change if call.tool_name == "read" else Continue())
    gate = await world.gate(required=["police"])
    decision = await gate.decide(Call("read", {}, {"read": None, name: None}))
    assert (decision.outcome, decision.tool_name) == ("continue", "read")
    assert [heard.problem for heard in decision.verdicts] == [None, "unavailable_tool"]


@pytest.mark.parametrize("name", NAMES)
async def test_it_is_denied_where_nobody_rules_as_well(world, name):
    gate = await world.gate()
    assert (await gate.decide(Call(name, {}, [name]))).outcome == "deny"


async def test_a_request_to_an_llm_is_asked_about_as_one(world):
    asked = []

    async def judge(call):
        asked.append(call.tool_name)
        return Continue()

    await world.scheduler("judge", judge, tools=("llm:*",))
    gate = await world.gate()
    assert gate.wanted("llm:request", is_request=True)
    decision = await gate.decide(Call("llm:request", {"provider": "p"}, ["llm:request"], is_request=True))
    assert (decision.outcome, asked) == ("continue", ["llm:request"])
    assert (await gate.decide(Call("llm:bash", {}, ["llm:bash"], is_request=True))).outcome == "deny"


@pytest.mark.parametrize("name", NAMES)
async def test_an_evaluation_of_such_an_action_is_no_request(gate, name):
    service = SidecarService(gate)
    asked = {
        "subject": {"type": "agent", "id": "a"},
        "action": {"name": name},
        "resource": {"type": "file", "id": "x"},
    }
    told = await ROUTES["/access/v1/evaluation"].handle(service, asked, stays)
    assert told["decision"] is False


@pytest.mark.parametrize("name", NAMES)
async def test_a_coding_agents_tool_of_such_a_name_is_no_request(gate, name):
    desk = HookHandler(SidecarService(gate), denies=lambda: True)
    answer = await desk.answer("claude", json.dumps({**BEFORE, "tool_name": name}).encode(), 5.0, stays)
    assert b'"deny"' in answer


async def test_requests_to_llms_are_ruled_on_through_the_sidecar(gate):
    service, decide = SidecarService(gate), ROUTES["/v1/decide"].handle
    asked = {"tool": "llm:request", "arguments": {"provider": "p"}}
    assert (await decide(service, asked, stays))["outcome"] == "continue"
    assert (await decide(service, {"tool": "llm:other"}, stays))["outcome"] == "deny"
