"""Rules of `policy` on what came before a call: every option, in a process, on a server, through gates."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from toolgate_orchestrator.gate.gate import Gate

pytestmark = pytest.mark.acceptance

MAIN, NEXT = {"branch": "main"}, {"branch": "next"}
DEPLOY = {"after": {"tool": "test", "same": {"$.branch": "$.branch"}}}
TEAM = {"scope": "label:team"}
TEST = {"tool": "test", "success": None}
ABOUT_CALLS = [
    {"name": "tests first", "tools": "deploy", **DEPLOY},
    {"name": "secrets", "tools": "mail", "unless_after": {"tool": "read", "when": {"path": "*.pem"}}},
    {"name": "few", "tools": ["pay", "refund"], "when": {"amount": {"gt": 9}}, "at_most": {"n": 2}},
    {"name": "brief", "tools": "brief", "at_most": {"n": 1, "within_s": 0.9}},
    {"name": "rescue", "tools": "rescue", "after": {"tool": "test", "success": False}, "action": "allow"},
    {"name": "any end", "tools": "clean", "after": {**TEST}},
    {"name": "fresh", "tools": "fresh", "after": {**TEST, "within_s": 0.9}},
    {"name": "of the tree", "tools": "tell", "after": {**TEST, "scope": "tree"}},
    {"name": "of the team", "tools": "team", "after": {**TEST, **TEAM}},
    {"name": "others", "tools": "other", "unless_after": {**TEST, "within_s": 600.5, **TEAM}},
    {"name": "tree total", "tools": "once", "at_most": {"n": 1, "scope": "tree"}},
    {"name": "beside", "tools": "beside", "unless_after": {"tool": "slow", "same": {"$.a": "$.b"}}},
    {"name": "rest", "tools": "rescue", "action": "deny"},
]  # fmt: skip
WAIT = [{"name": "tests first", "tools": "deploy", "wait_s": 30, **DEPLOY}]


class Agent:
    """One session's calls, at a gate."""

    def __init__(self, gate: Gate, session: str, **who: Any) -> None:
        self.gate, self.who = gate, {"session": session, **who}

    async def ask(self, tool: str, arguments: Any = None, **more: Any) -> Any:
        """The decision on a call."""
        return await self.gate.decide(tool, arguments or {}, [tool], **self.who, **more)

    async def run(self, tool: str, arguments: Any = None, success: bool = True) -> str:
        """Ask, run what may run, and tell of its end; the reason of a denial."""
        decision = await self.ask(tool, arguments)
        if decision.allowed:
            self.end(decision, success)
        return decision.reason if not decision.allowed else ""

    def end(self, decision: Any, success: bool = True) -> None:
        """Its tool has run."""
        self.gate.note(
            "tool:post", {"decision_id": decision.id, "tool": decision.tool_name, "success": success}
        )

    async def stand(self, tool: str, arguments: Any = None, **more: Any) -> tuple[asyncio.Task[Any], str]:
        """Ask for a call that waits; its decision to come, and the words that it waits with."""
        words: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        asked = asyncio.create_task(
            self.ask(tool, arguments, on_hold=lambda held: words.set_result(held.reason), **more)
        )
        return asked, await asyncio.wait_for(words, 20)


@pytest.fixture
async def policy_with(schedulers: Any, tmp_path: Path) -> AsyncIterator[Any]:
    """`await policy_with(rules, …)` starts it and opens a gate."""
    async with contextlib.AsyncExitStack() as gates:

        async def start(rules: Any, **options: Any) -> Gate:
            file = tmp_path / "policy.yaml"
            file.write_text(yaml.safe_dump({"rules": rules}))
            await schedulers.start("policy", "--config", file, **options)
            where = {"redis": schedulers.url, "namespace": schedulers.namespace}
            return await gates.enter_async_context(
                Gate.open(**where, patience_ms=20_000, required=["policy"])
            )

        yield start


async def test_a_call_is_ruled_on_by_what_came_before_it_in_its_session_tree_or_label(
    policy_with: Any,
) -> None:
    gate = await policy_with(ABOUT_CALLS)
    one = Agent(gate, "s1", root_session="r1", labels={"team": "red"})
    other = Agent(gate, "s2", root_session="r1", labels={"team": "red"})
    apart = Agent(gate, "s3", root_session="r3", labels={"team": "blue"})
    assert await one.run("deploy", MAIN) == (
        "deploy may run only after test with branch = $.branch has ended well in this session. "
        "Do that first (tests first)"
    )
    assert "Do that first" in await one.run("clean")
    assert await one.run("rescue") != ""
    assert await one.run("test", MAIN, success=False) == ""
    assert "Do that first (tests first)" in await one.run("deploy", MAIN)  # it failed
    assert await one.run("rescue") == await one.run("clean") == await one.run("fresh") == ""
    assert await one.run("test", MAIN) == ""
    assert await one.run("deploy", MAIN) == ""
    assert "Do that first" in await one.run("deploy", NEXT)  # another branch
    for tool in ("deploy", "clean"):
        assert "Do that first" in await other.run(tool, MAIN)  # another session
    assert await other.run("tell") == await other.run("team") == await apart.run("other") == ""
    assert re.search("may not run after .*within 600.5 seconds, which has run", await other.run("other"))
    assert "for the same team" in await apart.run("team")
    assert "or those of its agents" in await apart.run("tell")
    await asyncio.sleep(0.95)
    assert "within 0.9 seconds" in await one.run("fresh")

    assert await one.run("mail") == await one.run("read", {"path": "a.txt"}) == await one.run("mail") == ""
    assert await one.run("read", {"path": "key.pem"}) == ""
    assert "mail may not run after read" in await one.run("mail")

    assert await one.run("once") == ""
    assert "once may run once in this session or those of its agents, and has" in await other.run("once")
    assert await apart.run("once") == await one.run("brief") == ""
    assert "within 0.9 seconds" in await one.run("brief")
    await asyncio.sleep(0.95)
    assert await one.run("brief") == ""

    slow = await one.ask("slow", {"b": 1})
    assert "is under way" in await one.run("beside", {"a": 1})
    assert await one.run("beside", {"a": 2}) == ""
    one.end(slow)


async def test_what_was_denied_counts_for_nothing_and_what_runs_counts(policy_with: Any) -> None:
    gate = await policy_with(
        [*ABOUT_CALLS, {"tools": "pay", "when": {"amount": {"gt": 99}}, "action": "deny", "name": "much"}]
    )
    one = Agent(gate, "s")
    for _ in range(4):
        assert "(much)" in await one.run("pay", {"amount": 100})
    assert await one.run("pay", {"amount": 9}) == await one.run("pay", {"amount": 10}) == ""
    running = await one.ask("refund", {"amount": 11})
    assert "may run 2 times in this session, and has" in await one.run("pay", {"amount": 12})
    assert await one.run("pay", {"amount": 1}) == ""
    gate.note("tool:unused", {"decision_id": running.id, "tool": "refund"})
    many = await asyncio.gather(*(one.ask("pay", {"amount": 20 + number}) for number in range(8)))
    assert sum(decision.allowed for decision in many) == 1


async def test_of_many_that_replicas_are_asked_at_once_no_more_run_than_may(
    policy_with: Any, schedulers: Any, tmp_path: Path
) -> None:
    rules = [{"name": "few", "tools": "pay", "at_most": {"n": 3, "scope": "label:team"}}]
    gate = await policy_with(rules, replicas=2)
    asked = {"patience_ms": 20_000, "required": ["policy"]}
    where = {"redis": schedulers.url, "namespace": schedulers.namespace, **asked}

    async def ask(team: str, number: int) -> bool:
        one = Agent(gate, f"s{number}", labels={"team": team})
        await asyncio.sleep(number / 1000)  # a frame of its own: whichever replica is free takes it
        return bool((await one.ask("pay")).allowed)

    async def ask_many(team: str) -> int:
        return sum(await asyncio.gather(*(ask(team, number) for number in range(10))))

    assert await asyncio.gather(*map(ask_many, "abcdefgh")) == 8 * [3]
    for replica in schedulers.started:
        replica.kill()
    file = tmp_path / "policy.yaml"
    await schedulers.start("policy", "--config", file)  # it has forgotten nothing
    async with Gate.open(**where) as later:
        for team in "abcdefgh":
            words = (await Agent(later, "later", labels={"team": team}).ask("pay")).reason
            assert "pay may run 3 times for the same team, and has" in words


async def test_a_call_waits_for_one_that_is_under_way_and_is_denied_when_that_fails(policy_with: Any) -> None:
    gate = await policy_with(WAIT, replicas=2)
    one = Agent(gate, "s")
    for well in (True, False):
        test = await one.ask("test", MAIN)
        deploy, words = await one.stand("deploy", MAIN)
        assert words.startswith("waits: deploy may run only after test with branch = $.branch has ended well")
        assert "Do that first" in await one.run("deploy", NEXT)
        one.end(test, well)
        decision = await asyncio.wait_for(deploy, 20)
        assert decision.allowed is well
        await asyncio.sleep(0.05)
        if well:
            one.end(decision)
            one.who["session"] = "t"


async def test_a_call_waits_for_another_of_its_response_in_whichever_order_they_are_asked(
    policy_with: Any,
) -> None:
    gate = await policy_with(WAIT)
    for session, first in (("a", True), ("b", False)):
        one = Agent(gate, session)
        calls = [one.ask("test", MAIN, parallel_group_id="g"), one.ask("deploy", MAIN, parallel_group_id="g")]
        asked = [asyncio.create_task(call) for call in (calls if first else reversed(calls))]
        test, deploy = asked if first else asked[::-1]
        decision = await asyncio.wait_for(test, 20)
        assert not deploy.done()
        one.end(decision)
        assert (await asyncio.wait_for(deploy, 20)).allowed


async def test_a_call_waits_for_one_of_its_response_that_another_replica_was_asked_about(
    policy_with: Any, schedulers: Any, tmp_path: Path
) -> None:
    slots = tmp_path / "slots.yaml"
    slots.write_text("pools: [{name: one, tools: test}]")
    await schedulers.start("slots", "--config", slots)
    gate = await policy_with(WAIT, replicas=2)

    async def live(number: int) -> bool:
        one = Agent(gate, f"s{number}")

        async def test() -> None:
            decision = await one.ask("test", MAIN, parallel_group_id="g")
            await asyncio.sleep(0.1)
            one.end(decision)

        async def deploy() -> bool:
            await asyncio.sleep(0.01 * number)  # by then the other question has left, in a frame of its own
            return bool((await one.ask("deploy", MAIN, parallel_group_id="g")).allowed)

        return (await asyncio.gather(deploy(), test()))[0]

    assert await asyncio.gather(*map(live, range(1, 13))) == 12 * [True]


async def test_who_waits_too_long_is_told_what_for(policy_with: Any) -> None:
    gate = await policy_with([{**WAIT[0], "wait_s": 0.3}])
    one = Agent(gate, "s")
    test = await one.ask("test", MAIN)
    decision = await one.ask("deploy", MAIN)
    assert "It is under way: call this again when it has ended, and waited 0.3 s in vain" in decision.reason
    one.end(test)
    assert await one.run("deploy", MAIN) == ""


async def test_a_replica_that_starts_later_knows_what_came_before_and_answers_for_one_that_died(
    policy_with: Any, schedulers: Any, tmp_path: Path
) -> None:
    gate = await policy_with(WAIT)
    agents = [Agent(gate, f"s{number}") for number in range(4)]
    assert [await one.run("test", MAIN) for one in agents] == 4 * [""]
    tests = [await one.ask("test", NEXT) for one in agents]
    waiting = [await one.stand("deploy", NEXT) for one in agents]
    await schedulers.start("policy", "--config", tmp_path / "policy.yaml")
    schedulers.started[0].kill()
    assert [await one.run("deploy", MAIN) for one in agents] == 4 * [""]
    for one, test in zip(agents, tests, strict=True):
        one.end(test)
    for deploy, _ in waiting:
        assert (await asyncio.wait_for(deploy, 20)).allowed
