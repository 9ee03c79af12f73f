"""Who worked for whom: the record, the traces, the metrics and what is shown agree with what ran."""

import asyncio
import json
from collections import Counter

import pytest
from agent_trees import World, delegate, says, wait_for
from toolgate_bus.telemetry.definitions import OTHER
from trace_collector import collector

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

LINEAGES = {
    "boss": (),
    "middle": ("boss", "middle"),
    "worker": ("boss", "middle", "worker"),
    "other": ("boss", "other"),
}
PARENTS = {"boss": None, "middle": "boss", "worker": "middle", "other": "boss"}
AGENTS = {
    "middle": {"providers": says([delegate("worker")], "${last_result}")},
    "worker": {"providers": says([wait_for("worker")], "worked")},
    "other": {
        "providers": says([wait_for("other"), {"name": "delete_file", "arguments": {"path": "x"}}], "ok")
    },
}
RULES = {"rules": [{"name": "keep", "tools": ["delete_file"], "action": "deny"}]}


@pytest.fixture
async def world(schedulers, process, tmp_path):
    made = World(schedulers, process, tmp_path)
    yield made
    await made.aclose()


@pytest.fixture
def collected():
    with collector() as collected:
        yield collected


def metric(text, name, **labels):
    """A sample's value in what a process serves."""
    for line in text.splitlines():
        head, _, value = line.rpartition(" ")
        if head.startswith(f"{name}{{") and all(f'{key}="{one}"' in head for key, one in labels.items()):
            return float(value)
    return 0.0


async def test_lineage_is_the_same_in_record_traces_metrics_and_what_is_shown(world, collected, wait_until):
    await world.policy(RULES)
    exporter = world._process("toolgate", "exporter", "--port", 0, *world.toolgate.where)
    await wait_until(lambda: "http://" in exporter.stdout + exporter.stderr, timeout=30)
    calls = [delegate("middle"), delegate("other")]
    run = world.run(world.plan(says(calls, "done"), AGENTS, required=["policy"]), env=collected.env)
    await wait_until(lambda: world.has("worker.began", "other.began"), timeout=30)

    # What is shown while it runs.
    async def all_seen():
        found = await world.living()
        return found if len(found) == 4 and found["worker"].doing == "tool wait" else None

    living = await wait_until(all_seen, timeout=30)
    sessions = {name: one.session for name, one in living.items()}
    shown = {one["agent"]: one for one in await world.toolgate.json("agents")}
    for name in LINEAGES:
        told = shown[name]
        assert tuple(told["lineage"]) == LINEAGES[name]
        assert (told["session"], told["root"]) == (sessions[name], sessions["boss"])
        assert told["parent"] == (sessions[PARENTS[name]] if PARENTS[name] else None)
    assert shown["middle"]["doing"] == "delegating worker"
    _, table, _ = await world.toolgate("agents")
    order = [line.split()[0] for line in table.splitlines()[1:]]
    assert order in (["boss", "middle", "worker", "other"], ["boss", "other", "middle", "worker"])
    world.go()
    assert await asyncio.to_thread(run.wait, 60) == 0, run.stderr

    # The record.
    facts = await world.facts()
    agents = {session: name for name, session in sessions.items()}
    for fact in facts:
        if "session" in fact:
            assert fact["agent"] == agents[fact["session"]]
            assert fact["root_session"] == sessions["boss"]
    decisions = [one for one in facts if one["event"] == "decision"]
    assert Counter(one["agent"] for one in decisions) == {"boss": 2, "middle": 1, "worker": 1, "other": 2}
    for one in decisions:
        assert tuple(one.get("lineage") or ()) == LINEAGES[one["agent"]]
        assert agents.get(one.get("parent")) == PARENTS[one["agent"]]
    turns = {one["agent"]: one for one in facts if one["event"] == "turn"}
    for name, one in turns.items():
        assert one["status"] == "completed"
        assert tuple(one.get("lineage") or ()) == LINEAGES[name]
        assert agents.get(one.get("parent")) == PARENTS[name]
    by_id = {one["id"]: one for one in decisions}
    for event in ("delegate:agent_spawned", "delegate:agent_completed"):
        told = [one for one in facts if one["event"] == event]
        assert {agents[one["sub_session_id"]]: one["agent"] for one in told} == {
            name: parent for name, parent in PARENTS.items() if parent
        }
        for one in told:
            assert one["agent_target"] == agents[one["sub_session_id"]]
            ruled = by_id[one["decision_id"]]
            assert (ruled["tool_call_id"], ruled["agent_target"]) == (
                one["tool_call_id"],
                one["agent_target"],
            )

    # The record, in words.
    denied = next(one for one in decisions if one["outcome"] == "deny")
    code, out, err = await world.toolgate("decisions", "show", denied["id"])
    assert code == 0, err
    assert "The agent other in session" in " ".join(out.split())
    assert "It works for others: boss > other." in " ".join(out.split())

    # The traces: who works for somebody does so within the call that delegates to it.
    spans = {span.attributes.get("gen_ai.agent.name"): span for span in collected.spans if is_turn(span)}
    by_span = {span.id: span for span in collected.spans}
    assert set(spans) == set(LINEAGES)
    assert {span.trace for span in spans.values()} == {spans["boss"].trace}
    for name, parent in PARENTS.items():
        span = spans[name]
        assert span.attributes["gen_ai.conversation.id"] == sessions[name]
        assert span.attributes.get("toolgate.lineage", "") == " > ".join(LINEAGES[name])
        assert span.attributes.get("toolgate.root_session") == (sessions["boss"] if parent else None)
        assert span.attributes.get("toolgate.parent_session") == (sessions[parent] if parent else None)
        if parent:
            call = by_span[span.parent]
            assert call.name == "execute_tool delegate"
            assert call.parent == spans[parent].id
        assert turns[name]["trace"].split("-")[1:3] == [span.trace, span.id]

    # The metrics, of the whole fleet.
    url = next(word for word in (exporter.stdout + exporter.stderr).split() if word.startswith("http://"))

    async def counted():
        text = await asyncio.to_thread(read, url)
        return text if metric(text, "toolgate_turns_total", agent="boss") else None

    text = await wait_until(counted, timeout=30)
    for name in LINEAGES:
        assert metric(text, "toolgate_turns_total", agent=name, status="completed") == 1
    asked = Counter((one["agent"], one["tool_name"], one["outcome"]) for one in decisions)
    for (agent, tool, outcome), count in asked.items():
        assert metric(text, "toolgate_decisions_total", agent=agent, tool=tool, outcome=outcome) == count
    assert sessions["boss"] not in text
    assert OTHER not in {one["tool"] for one in facts if "tool" in one}


def is_turn(span):
    return span.name.startswith("invoke_agent")


def read(url):
    from urllib.request import urlopen

    with urlopen(url, timeout=10) as answer:
        return answer.read().decode()


async def test_an_agent_of_another_process_stands_in_the_tree_of_its_root(world, wait_until):
    await world.policy(RULES)
    root = world.run(world.plan(says([wait_for("root")], "done")))

    async def there():
        return (await world.living()).get("boss")

    boss = await wait_until(there, timeout=30)
    place = {"root_session": boss.session, "parent_session": boss.session, "lineage": ["boss"]}
    plan = world.plan(
        says([delegate("worker")], "done"),
        {"worker": {"providers": says([wait_for("worker")], "done")}},
        agent="remote",
        **place,
    )
    remote = world.run(plan)
    await wait_until(lambda: world.has("worker.began"), timeout=30)

    async def all_there():
        return len(await world.living()) == 3

    await wait_until(all_there, timeout=30)
    _, out, _ = await world.toolgate("agents", "--json")
    told = [json.loads(line) for line in out.splitlines()]
    assert [tuple(one["lineage"]) for one in told] == [(), ("boss", "remote"), ("boss", "remote", "worker")]
    assert {one["root"] for one in told} == {boss.session}
    assert [one["parent"] for one in told] == [None, boss.session, told[1]["session"]]
    assert len({one["orchestrator"] for one in told}) == 2
    world.go()
    for run in (root, remote):
        assert await asyncio.to_thread(run.wait, 60) == 0, run.stderr
    turns = {one["agent"]: one for one in await world.facts() if one["event"] == "turn"}
    assert {one["root_session"] for one in turns.values()} == {boss.session}
    assert turns["worker"]["lineage"] == ["boss", "remote", "worker"]
