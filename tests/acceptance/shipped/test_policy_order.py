"""Rules of `policy` on what came before a call, in replicas, on a real server, through gates."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from questions import decide
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance

MAIN, NEXT = {"branch": "main"}, {"branch": "next"}
DEPLOY = {"after": {"tool": "test", "same": {"$.branch": "$.branch"}}}
WAIT = [{"name": "tests first", "tools": "deploy", "wait_s": 30, **DEPLOY}]


class Agent:
    """One session's calls, at a gate."""

    def __init__(self, gate: Gate, session: str, **who: Any) -> None:
        self.gate, self.who = gate, {"session": session, **who}

    async def ask(self, tool: str, arguments: Any = None, **more: Any) -> Any:
        """The decision on a call."""
        return await decide(self.gate, tool, arguments or {}, [tool], **self.who, **more)

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


async def test_only_calls_that_a_rule_on_order_concerns_are_asked_and_they_count(policy_with: Any) -> None:
    secret = {"tool": "read", "when": {"path": {"under": "/secret"}}}
    gate = await policy_with([{"name": "no leak", "tools": "send", "unless_after": secret}])
    clean, tainted = Agent(gate, "s-clean"), Agent(gate, "s-tainted")
    async with asyncio.timeout(20):  # until the gate has read the table
        while not is_local(await clean.ask("look")):
            pass
    assert is_local(await clean.ask("read", {"path": "/srv/a"}))
    assert await clean.run("send") == ""
    asked = await tainted.ask("read", {"path": "/secret/a"})
    assert not is_local(asked)
    tainted.end(asked)
    assert "no leak" in await tainted.run("send")


def is_local(decision: Any) -> bool:
    """Whether a local table gave the only verdict."""
    return [one.revision.endswith(" local") for one in decision.verdicts] == [True]


async def test_what_a_gate_has_just_told_counts(policy_with: Any) -> None:
    rules = [
        {"name": "tests first", "tools": "deploy", **DEPLOY},
        {"name": "not beside", "tools": "mail", "unless_after": {"tool": "read"}},
    ]
    gate = await policy_with(rules)
    for number in range(5):
        one = Agent(gate, f"s{number}")
        assert "Do that first (tests first)" in await one.run("deploy", MAIN)
        assert await one.run("test", MAIN) == await one.run("deploy", MAIN) == ""
        reading = await one.ask("read")
        assert "is under way" in await one.run("mail")
        one.end(reading)


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
            assert "pay may run 3 times for the same team, and it has" in words


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
