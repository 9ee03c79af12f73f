"""`replay --against` of a real run that was recorded, with who goes by the clock: slots, rules on order."""

import asyncio
import contextlib
import json
from itertools import chain

import pytest
import yaml
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.system, pytest.mark.acceptance, pytest.mark.timeout(180)]
TOOLS = ["work", "test", "deploy"]
RUNS_S = 1.2
NEAR_S = 0.9
"""Real waits end a little after the slot is free, later on a busy machine; a turn more would be `RUNS_S`."""
# One tenant: they are served as they come. Of tenants whose tags are level, milliseconds decide who is next.
DESK = {"name": "desk", "tools": "work", "limit": 1, "wait_s": 60, "share": {"by": "label:team"}}


@pytest.fixture
def toolgate(process, server_url, namespace):
    """Run a replay of the record to its end; gives what it printed."""

    async def run(name, file, *words, code=0, as_json=True):
        bus = {"TOOLGATE_REDIS_URL": server_url, "TOOLGATE_NAMESPACE": namespace}
        options = ("--against", f"{name}={file}", "--since", "30m", *words, *(["--json"] if as_json else []))
        running = process("toolgate", "replay", *options, env=bus)
        assert await asyncio.to_thread(running.wait, 100) == code, running.stderr
        return json.loads(running.stdout) if as_json else running.stdout

    return run


@pytest.fixture
def write(tmp_path):
    def written(name, config):
        (tmp_path / name).write_text(yaml.safe_dump(config))
        return tmp_path / name

    return written


@pytest.fixture
async def ready(schedulers, server_url, namespace):
    """`await ready("slots", "--config", …)`: a gate that asks this scheduler from the first call on."""
    where = {"redis": server_url, "namespace": namespace}
    async with contextlib.AsyncExitStack() as stack:

        async def start(spec, *options):
            await schedulers.start(spec, *options)
            required = [spec.rpartition(":")[2]]
            return await stack.enter_async_context(Gate.open(**where, patience_ms=20_000, required=required))

        yield start


async def work(gate, agent, times, runs_s, *, tool="work", pause_s=0.0):
    """So many calls, one after the other; gives the seconds for which each waited."""
    waited = []
    for _ in range(times):
        decision = await gate.decide(Call(tool, {}, TOOLS, Caller(agent, agent)))
        waited.append(decision.waited)
        if decision.allowed:
            await asyncio.sleep(runs_s)
            gate.note("tool:post", {"decision_id": decision.id, "tool": tool, "success": True})
        await asyncio.sleep(pause_s)
    return waited


async def test_what_waited_in_a_real_run_waits_as_long_when_it_is_replayed_with_the_same_pools(
    ready, toolgate, write
):
    config = write("slots.yaml", {"pools": [DESK]})
    gate = await ready("slots", "--config", config)
    told = await asyncio.gather(*(work(gate, agent, 3, RUNS_S) for agent in ("ada", "bob", "cleo")))
    assert sum(map(sum, told)) > 8.0  # three stand at one desk

    same = await toolgate("slots", config)
    calls = [(one["before"]["waited_s"], one["after"]["waited_s"]) for one in same["calls"]]
    assert len(calls) == 9
    assert sorted(before for before, _ in calls) == pytest.approx(
        sorted(chain.from_iterable(told)), abs=0.002
    )
    # Of agents that ask in the same millisecond, either may be the first.
    before, after = (sorted(column) for column in zip(*calls, strict=True))
    assert after == pytest.approx(before, abs=NEAR_S)
    assert same["waiting"]["seconds_after"] == pytest.approx(
        same["waiting"]["seconds_before"], abs=9 * NEAR_S
    )
    (pool,) = same["pools"]
    assert (pool["pool"], pool["calls"], pool["denied"], pool["most_in_use"]) == ("desk", 9, 0, 1)
    assert pool["busy"] > 0.9
    again = await toolgate("slots", config)
    assert (again["pools"], again["calls"]) == (same["pools"], same["calls"])

    wide = await toolgate("slots", write("wide.yaml", {"pools": [{**DESK, "limit": 3}]}))
    assert wide["waiting"]["calls_after"] == 0
    impatient = await toolgate(
        "slots", write("short.yaml", {"pools": [{**DESK, "wait_s": 0}]}), "--fail-on", "veto", code=1
    )
    assert impatient["totals"]["veto"] == impatient["pools"][0]["denied"] > 0
    shown = await toolgate("slots", config, as_json=False)
    for words in (
        "Slots, on the times of the record",
        "What would wait longest",
    ):
        assert words in shown


async def test_a_record_without_slots_tells_who_would_have_waited(ready, toolgate, write):
    gate = await ready("obedient:alpha")
    await asyncio.gather(*(work(gate, agent, 2, 0.3) for agent in ("ada", "bob")))
    tried = await toolgate("slots", write("slots.yaml", {"pools": [DESK]}))
    waiting = tried["waiting"]
    assert (waiting["calls_before"], waiting["calls_after"], waiting["seconds_before"]) == (0, 3, 0)
    assert waiting["seconds_after"] == pytest.approx(0.9, abs=3 * NEAR_S)
    assert tried["totals"]["differences"] == 0


async def test_rules_on_order_are_judged_by_what_came_before_in_the_record(ready, toolgate, write):
    gate = await ready("obedient:alpha")
    await work(gate, "ada", 1, 0.0, tool="deploy")
    await work(gate, "ada", 1, 0.3, tool="test")
    await asyncio.gather(work(gate, "ada", 1, 0.0, tool="deploy"), work(gate, "bob", 1, 0.0, tool="deploy"))
    first = {"tools": "deploy", "after": {"tool": "test"}}
    tried = await toolgate("policy", write("after.yaml", {"rules": [first]}))
    assert [(one["tool"], one["change"]) for one in tried["calls"] if one["session"] == "ada"] == [
        ("deploy", "veto"),
        ("test", None),
        ("deploy", None),
    ]
    assert tried["totals"]["veto"] == 2  # bob's has nothing before it
    (by,) = tried["by_scheduler"]
    assert by["name"] == "policy"
    near = {"tools": "deploy", "after": {"tool": "test", "within_s": 0.001}}
    assert (await toolgate("policy", write("near.yaml", {"rules": [near]})))["totals"]["veto"] >= 2
    once = {"tools": "*", "at_most": {"n": 1}}
    assert (await toolgate("policy", write("once.yaml", {"rules": [once]})))["totals"]["veto"] == 2
    wrong = write("wrong.yaml", {"rules": [{"tools": "deploy", "after": {}}]})
    assert await toolgate("policy", wrong, code=2, as_json=False) == ""


async def test_a_call_waits_for_what_ran_in_the_record(ready, toolgate, write):
    gate = await ready("obedient:alpha")
    tests = asyncio.create_task(work(gate, "ada", 1, 1.6, tool="test"))
    await asyncio.sleep(0.2)
    decision = await gate.decide(Call("deploy", {}, TOOLS, Caller("ada", "ada")))
    gate.note("tool:post", {"decision_id": decision.id, "tool": "deploy", "success": True})
    await tests
    rule = {"tools": "deploy", "after": {"tool": "test"}}
    assert (await toolgate("policy", write("now.yaml", {"rules": [rule]})))["totals"]["veto"] == 1
    tried = await toolgate("policy", write("wait.yaml", {"rules": [{**rule, "wait_s": 30}]}))
    (waited,) = [one["after"]["waited_s"] for one in tried["calls"] if one["tool"] == "deploy"]
    assert (tried["totals"]["veto"], tried["pools"]) == (0, [])
    assert waited == pytest.approx(1.4, abs=NEAR_S)
