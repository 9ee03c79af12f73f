"""Agents that a guard watches: nested or handed over they may do no more; operators see and stop them."""

import asyncio
import json
import threading

import pytest
import yaml
from toolgate_orchestrator import Call, Guard, TurnStop

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

RULES = {
    "rules": [
        {"tools": ["rm"], "agents": ["boss"], "action": "deny", "reason": "not for the boss"},
        {"tools": ["delegate"], "agent_targets": ["intern"], "action": "deny", "reason": "no intern"},
    ],
}
ROUTES = {"routes": [{"from": "delegate", "to": "delegate", "agent_targets": "senior", "agent": "junior"}]}
TOOLS = ["rm", "ls", "delegate"]


@pytest.fixture
async def guard(schedulers, tmp_path):
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(RULES))
    await schedulers.start("policy", "--config", file)
    with Guard(
        agent="boss",
        redis=schedulers.url,
        namespace=schedulers.namespace,
        required=["policy"],
        patience_ms=20_000,
    ) as made:
        yield made


@pytest.fixture
def toolgate(schedulers, process):
    """`await toolgate("agents", "--json")`: a command on this bus; gives what it printed."""

    async def run(*words):
        running = process("toolgate", *words, "--redis", schedulers.url, "--namespace", schedulers.namespace)
        code = await asyncio.to_thread(running.wait, 60)
        assert code == 0, running.stderr
        return running.stdout

    return run


def refusal(ruling):
    return ruling.refusal


async def may_remove(guard, at=None):
    """Whether this agent may call `rm`."""
    return await guard.run(Call("rm", {}, TOOLS, at), lambda *_: "removed", denied=lambda _: "denied")


async def test_what_is_denied_to_the_root_is_denied_three_deep_in_parallel_and_after_a_handoff(guard):
    """And it is not for another root, which is the proof that the rule is of the boss."""

    async def delegate(names, at):
        async def work(tool, arguments):
            below = guard.at("same-trace", names[0])
            found = [await may_remove(guard, below)]
            return found + (await delegate(names[1:], below) if names[1:] else [])

        return await guard.run(Call("delegate", {}, TOOLS, at), work, denied=refusal)

    boss, other = guard.at("s-boss"), guard.at("s-other", "other")
    chains = [delegate(["a", "b", "c"], at) for at in (boss, other) for _ in range(4)]
    assert await asyncio.gather(*chains) == [["denied"] * 3] * 4 + [["removed"] * 3] * 4

    assert await may_remove(guard, guard.hand_over(boss, "closer")) == "denied"
    assert await may_remove(guard, guard.at("s-boss", "closer")) == "denied"
    assert await may_remove(guard, guard.hand_over(boss, "fresh", lineage=False)) == "removed"


async def test_rules_see_whom_a_call_hands_work_to_and_may_name_another(guard, schedulers, tmp_path):
    file = tmp_path / "routes.yaml"
    file.write_text(yaml.safe_dump(ROUTES))
    await schedulers.start("router", "--config", file)
    agents = ["intern", "junior", "senior"]

    async def hand_work_to(**fields):
        ruling = await guard.rule(Call("delegate", at=guard.at("s-boss"), tools=TOOLS, **fields))
        ruling.release()
        return ruling.outcome, ruling.agent_target, ruling.arguments

    named = [{"arguments": {"agent": name}, "available_agents": agents} for name in agents]
    assert [await hand_work_to(**fields) for fields in named] == [
        ("deny", "intern", {"agent": "intern"}),
        ("continue", "junior", {"agent": "junior"}),
        ("modify", "junior", {"agent": "junior"}),
    ]
    said = {"arguments": {"to": "x"}, "available_agents": agents, "agent_target": "intern"}
    assert (await hand_work_to(**said))[0] == "deny"
    assert (await hand_work_to(arguments={"agent": "intern"}))[:2] == (
        "continue",
        None,
    )  # no agents are named


async def test_in_threads_that_a_tool_starts_whoever_works_there_works_for_its_agent(guard):
    def helper():
        return guard.run_sync(
            Call("rm", {}, TOOLS, guard.at("s-9", "helper")), lambda *_: "removed", denied=refusal
        )

    async def work(tool, arguments):
        return await asyncio.to_thread(helper)

    at = guard.at("s-boss")
    assert "not for the boss" in await guard.run(Call("delegate", {}, TOOLS, at), work, denied=refusal)
    assert await asyncio.to_thread(helper) == "removed"


async def test_operators_see_the_tree_and_end_it_wherever_its_agents_run(guard, toolgate, wait_until):
    """boss in a task, its helper below it, and the helper's scout in a thread."""
    began, ended = threading.Event(), []

    def scout():
        with guard.turn(guard.at("s-scout", "scout")):
            began.set()
            while True:
                guard.run_sync(Call("ls", {}, TOOLS), lambda *_: "listed", denied=refusal)

    async def helper(tool, arguments):
        with guard.turn(guard.at("s-helper", "helper")):
            try:
                await asyncio.to_thread(scout)
            except TurnStop:
                ended.append("scout")
                raise

    async def boss():
        with guard.turn(guard.at("s-boss")):
            await guard.run(Call("delegate", {}, TOOLS), helper, denied=refusal)

    running = asyncio.create_task(boss())
    await asyncio.to_thread(began.wait, 30)

    async def tree():
        found = [json.loads(line) for line in (await toolgate("agents", "--json")).splitlines()]
        return found if len(found) == 3 else None

    seen = {one["session"]: one for one in await wait_until(tree, timeout=30)}
    assert seen["s-scout"]["parent"] == "s-helper"
    assert seen["s-helper"]["parent"] == "s-boss"
    assert {one["root"] for one in seen.values()} == {"s-boss"}
    assert seen["s-scout"]["lineage"] == ["boss", "helper", "scout"]
    assert seen["s-boss"]["doing"] == "tool delegate"

    await toolgate("agents", "stop", "s-boss")
    with pytest.raises(TurnStop):
        await running
    assert ended == ["scout"]

    async def nobody():
        return not (await toolgate("agents", "--json")).strip()

    await wait_until(nobody, timeout=30)


async def test_a_stop_at_once_cancels_the_task_and_one_with_a_function_is_handed_to_it(
    guard, toolgate, wait_until
):
    async def sleeper():
        with guard.turn(guard.at("s-sleeper")):
            await asyncio.sleep(3600)

    told, may_end = [], asyncio.Event()

    async def framework():
        with guard.turn(guard.at("s-framework"), stop=told.append) as turn:
            await may_end.wait()
            return turn.stopping, await guard.run(Call("ls", {}, TOOLS), lambda *_: "", denied=refusal)

    tasks = asyncio.create_task(sleeper()), asyncio.create_task(framework())

    async def both():
        return (await toolgate("agents", "--json")).count("s-") >= 2

    await wait_until(both, timeout=30)
    stop = asyncio.create_task(toolgate("agents", "stop", "--all", "--now"))
    with pytest.raises(TurnStop):
        await tasks[0]
    assert tasks[0].cancelling() == 0
    await wait_until(lambda: told == [True], timeout=30)
    may_end.set()
    stopping, said = await tasks[1]
    assert stopping
    assert "operator stopped this agent" in said
    await stop


async def test_a_paused_session_waits_and_goes_on_when_it_is_resumed(guard, toolgate, wait_until):
    with guard.turn(guard.at("s-paused")):
        await guard.run(Call("ls", {}, TOOLS), lambda *_: "listed", denied=refusal)

        async def seen():
            return "s-paused" in await toolgate("agents", "--json")

        await wait_until(seen, timeout=30)
        await toolgate("agents", "pause", "s-paused")
        asking = asyncio.create_task(guard.run(Call("ls", {}, TOOLS), lambda *_: "listed", denied=refusal))
        done, _ = await asyncio.wait([asking], timeout=0.3)
        assert not done
        await toolgate("agents", "resume", "s-paused")
        assert await asking == "listed"


async def test_a_stop_stands_for_all_that_begin_to_work_for_a_session_until_it_is_lifted(guard, toolgate):
    assert await list_files(guard, guard.at("s-boss")) == "listed"  # its gate is open
    told = await toolgate("agents", "stop", "s-boss", "--exact")
    assert "The stop of s-boss stands" in told
    boss = guard.at("s-boss")
    helper = guard.at("s-helper", "helper", parent=boss)
    below = [boss, helper, guard.at("s-scout", "scout", parent=helper), guard.at("s-far", parent="s-boss")]
    for at in below:
        assert "operator stopped this agent" in await list_files(guard, at)
    assert await list_files(guard, guard.at("s-other")) == "listed"
    with pytest.raises(TurnStop, match="operator stopped this agent"), guard.turn(boss):
        await list_files(guard, None)
    with guard.turn(boss, stop=lambda now: None):
        assert "operator stopped this agent" in await list_files(guard, None)
    request = await guard.rule_request("openai", "large", at=boss)
    assert (request.outcome, "operator stopped this agent" in request.refusal) == ("deny", True)
    (await guard.rule_request("openai", "large", at=guard.at("s-other"))).release()
    await toolgate("agents", "resume", "s-boss")
    assert [await list_files(guard, at) for at in below] == ["listed"] * len(below)


async def test_a_stop_in_the_middle_of_a_tree_goes_by_places_that_never_asked(guard, toolgate):
    assert await list_files(guard, guard.at("s-boss")) == "listed"
    await toolgate("agents", "stop", "s-mid", "--exact")
    mid = guard.at("s-mid", "mid", parent=guard.at("s-boss"))
    lowest = guard.at("s-lowest", "lowest", parent=guard.at("s-low", "low", parent=mid))
    assert "operator stopped this agent" in await list_files(guard, lowest)
    assert await list_files(guard, guard.at("s-beside", "beside", parent=guard.at("s-boss"))) == "listed"


async def list_files(guard, at):
    return await guard.run(Call("ls", {}, TOOLS, at), lambda *_: "listed", denied=refusal)
