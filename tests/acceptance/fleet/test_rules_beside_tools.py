"""Rules that do not go with living agents' tools are named by `check`, `push`, `rollout`, `policy test`."""

import asyncio
import json

import pytest
from toolgate_bus.transport.redis.asking.orchestrator import RedisOrchestratorBus
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.agent_directory import AgentDirectory
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_orchestrator.guard.guard import Guard

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(180)]

SEARCH = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "kind": {"enum": ["web", "news"]}},
    "required": ["query"],
}
TOOLS = {"search": SEARCH, "send_mail": {"type": "object", "properties": {"to": {"type": "string"}}}}
WRONG = """
rules:
  - {tools: serach, action: deny}
  - tools: search
    when: {qurey: "*password*"}
    action: deny
  - {tools: [search, "send_*"], when: {kind: nwes}, action: ask}
"""
RIGHT = 'rules: [{tools: ["sear*"], when: {query: "*password*"}, action: deny}]\n'
SAID = [
    (":3", "rules.0.tools", "no living agent has a tool serach; did you mean search?"),
    (":5", "rules.1.when.qurey", "search has no argument qurey; did you mean query?"),
    (":7", "rules.2.when.kind", '"nwes" is none of the values of kind ("web", "news"); did you mean news?'),
]


@pytest.fixture
def toolgate(process, server_url, namespace, tmp_path):
    """A command of an operator, run to its end."""

    async def run(*words, code=0, url=server_url):
        where = ("--redis", url, "--namespace", namespace)
        child = process("toolgate", *map(str, words), *where, cwd=tmp_path)
        assert await asyncio.to_thread(child.wait, 60) == code, child.stdout + child.stderr
        return child

    return run


@pytest.fixture
def rules(tmp_path):
    def write(text, name="rules.yaml"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


@pytest.fixture
async def agents(server_url, namespace, wait_until):
    """Somebody who has these tools, and has called one."""
    commands = RedisCommands(server_url, "test")
    async with Gate.open(redis=server_url, namespace=namespace) as gate:
        await gate.decide(Call("search", {"query": "hunter2"}, TOOLS))

        async def are_told():
            return bool((await AgentDirectory(commands, namespace).tools()).tools)

        await wait_until(are_told)
        yield gate
    await commands.aclose()


def fields_of(said):
    return [(one["where"][-2:], one["field"], one["says"]) for one in said["doubts"]]


async def test_check_names_what_no_living_agent_has(toolgate, rules, agents):
    ended = await toolgate("scheduler", "check", "policy", "--config", rules(WRONG))
    lines = ended.stdout.splitlines()
    assert lines[-1].startswith(str(rules(WRONG))[:20]), lines
    for (where, field, words), line in zip(SAID, lines, strict=False):
        assert line.startswith("doubtful ")
        assert line.endswith(f"rules.yaml{where}: {field}: {words}")
    assert ": valid, " in lines[-1]
    ended = await toolgate("scheduler", "check", "policy", "--config", rules(WRONG), "--json")
    said = json.loads(ended.stdout)
    assert said["ok"] is True
    assert said["compared"] == {"tools": 2, "processes": 1}
    assert fields_of(said) == SAID
    assert "hunter2" not in ended.stdout


async def test_strict_refuses_what_does_not_go_and_takes_what_does(toolgate, rules, agents):
    ended = await toolgate("scheduler", "check", "policy", "--config", rules(WRONG), "--strict", code=2)
    assert "did you mean query?" in ended.stderr
    ended = await toolgate(
        "scheduler", "check", "policy", "--config", rules(WRONG), "--strict", "--json", code=2
    )
    said = json.loads(ended.stdout)
    assert said["ok"] is False
    assert fields_of(said) == SAID
    await toolgate("scheduler", "check", "policy", "--config", rules(RIGHT), "--strict")


async def test_push_names_it_and_with_strict_stores_nothing(toolgate, rules, agents):
    push = ("scheduler", "push", "policy", "--config")
    await toolgate(*push, rules(WRONG), "--strict", "--label", "v1", code=2)
    assert (await toolgate("scheduler", "history", "policy", "--json")).stdout == ""
    ended = await toolgate(*push, rules(WRONG), "--label", "v1", "--stage", "--json")
    assert fields_of(json.loads(ended.stdout)) == SAID
    rollout = ("scheduler", "rollout", "policy", "--to", "v1", "--share", "10")
    ended = await toolgate(*rollout, "--strict", code=2)
    assert "did you mean search?" in ended.stderr
    ended = await toolgate(*rollout)
    assert ended.stdout.count("doubtful v1:") == 3
    await toolgate("scheduler", "rollout", "policy", "--cancel")
    ended = await toolgate(*push, rules(RIGHT), "--strict")
    assert "doubtful" not in ended.stdout


async def test_policy_test_names_it_and_with_strict_fails(toolgate, rules, agents):
    cases = rules("cases: [{tool: search, arguments: {query: a password}, expect: deny}]\n", "cases.yaml")
    await toolgate("policy", "test", rules(RIGHT), cases, "--strict")
    wrong = rules(
        'rules: [{tools: search, when: {query: "*password*", kind: {exists: false}}, action: deny}]\n'
    )
    await toolgate("policy", "test", wrong, cases, "--strict")
    wrong = rules('rules: [{tools: [search, serach], when: {query: "*password*"}, action: deny}]\n')
    ended = await toolgate("policy", "test", wrong, cases)
    assert "no living agent has a tool serach; did you mean search?" in ended.stdout
    await toolgate("policy", "test", wrong, cases, "--strict", code=1)


async def test_without_living_agents_it_is_said_that_nothing_could_be_compared(toolgate, rules):
    check = ("scheduler", "check", "policy", "--config", rules(WRONG))
    ended = await toolgate(*check, "--strict")
    assert "no agent is alive: nothing could be compared" in ended.stderr
    said = json.loads((await toolgate(*check, "--strict", "--json")).stdout)
    assert (said["ok"], said["compared"], said["doubts"]) == (True, None, [])
    ended = await toolgate(*check, url="redis://127.0.0.1:1")
    assert "nothing could be compared" in ended.stderr
    ended = await toolgate("scheduler", "push", "policy", "--config", rules(WRONG), "--strict")
    assert "nothing could be compared" in ended.stderr


async def test_what_a_silent_agent_may_have_is_told_and_not_refused(
    toolgate, rules, agents, server_url, namespace
):
    other = GateClient(RedisOrchestratorBus(server_url, namespace))
    await other.start()
    try:
        ended = await toolgate("scheduler", "check", "policy", "--config", rules(WRONG), "--json")
        assert [one["certain"] for one in json.loads(ended.stdout)["doubts"]] == [False, True, False]
        only_tool = rules("rules: [{tools: serach, action: deny}]\n")
        ended = await toolgate("scheduler", "check", "policy", "--config", only_tool, "--strict")
        assert "not all living agents have reported their tools" in ended.stdout
    finally:
        await other.bus.aclose()
        other.close()


async def test_tools_of_functions_are_known_before_any_scheduler_rules(
    toolgate, rules, server_url, namespace, wait_until
):
    async with Guard(redis=server_url, namespace=namespace) as guard:

        @guard.tool
        async def refund(order: str, amount: int = 5000):
            return "paid"

        await refund("a1")
        commands = RedisCommands(server_url, "test")

        async def are_told():
            return "refund" in (await AgentDirectory(commands, namespace).tools()).tools

        await wait_until(are_told)
        await commands.aclose()
        wrong = rules("rules: [{tools: refund, when: {amuont: {gt: 100}}, action: deny}]\n")
        ended = await toolgate("scheduler", "check", "policy", "--config", wrong, "--strict", code=2)
        assert "refund has no argument amuont; did you mean amount?" in ended.stderr


@pytest.mark.parametrize(
    ("scheduler", "text", "says"),
    [
        ("approval", "rules: [{tools: serach}]", "a tool serach"),
        ("approval", "rules: [{tools: search, when: {qurey: x}}]", "no argument qurey"),
        ("approval", "rules: [{tools: search, schema: {required: [qurey]}}]", "no argument qurey"),
        ("rate-limit", "limits: [{tools: serach, per: fleet, rate: 1/hour}]", "a tool serach"),
        (
            "rate-limit",
            "limits: [{tools: search, when: {qurey: x}, per: fleet, rate: 1/hour}]",
            "qurey",
        ),
        ("slots", "pools: [{name: a, tools: search, key: $.qurey}]", "no argument $.qurey"),
        ("slots", "pools: [{name: a, tools: search, shared: {tools: serach}}]", "a tool serach"),
        ("router", "routes: [{from: search, to: sned_mail}]", "a tool sned_mail"),
        ("router", "routes: [{from: search, to: send_mail, arguments: {ot: $.query}}]", "no argument ot"),
        (
            "router",
            "routes: [{from: search, to: send_mail, arguments: {to: $.qurey}}]",
            "no argument $.qurey",
        ),
        ("cost-aware", "tools: {serach: {cost: 1}}", "a tool serach"),
        ("cost-aware", "alternatives: [{tools: [search, serach]}]", "a tool serach"),
        ("heuristic", "groups: [{tools: [search, serach]}]", "a tool serach"),
        ("provenance", "sinks: [{tools: send_mail, to: recipient}]", "no argument recipient"),
        ("loop-guard", "{calls_per_turn: 5, exempt: serach}", "a tool serach"),
        ("policy", "rules: [{tools: send_mail, after: {tool: serach}}]", "a tool serach"),
        (
            "policy",
            "rules: [{tools: send_mail, after: {tool: search, when: {qurey: x}}}]",
            "no argument qurey",
        ),
        ("policy", "rules: [{tools: send_mail, after: {tool: search, same: {$.to: $.qurey}}}]", "$.qurey"),
    ],
)
async def test_every_scheduler_with_rules_on_tools_is_compared(
    toolgate, rules, agents, scheduler, text, says
):
    ended = await toolgate("scheduler", "check", scheduler, "--config", rules(text), "--strict", code=2)
    assert says in ended.stderr
    assert ended.stderr.count("rules.yaml") == 1
