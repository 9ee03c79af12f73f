"""`toolgate policy suggest` reads what ran, in the record or in recorded runs, and writes a policy."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from toolgate_bus.config.check import check
from toolgate_bus.config.document import parse_document, read_document
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_orchestrator import Call
from toolgate_orchestrator.guard.guard import Guard
from toolgate_schedulers.commands.ran_calls import OPEN, RanCalls
from toolgate_schedulers.shipped.policy.scheduler import PolicyConfig

OWN = Path(__file__).parents[2] / "data" / "runs.jsonl"


def decision(number: int, **more: Any) -> dict[str, Any]:
    """The fact of a decision, as a reader gets it."""
    arguments = {"n": number}
    final = {"final_tool": "tool", "final_input": arguments}
    asked = {"tool_name": "tool", "tool_input": arguments, "session": "s", "outcome": "continue"}
    return {"event": "decision", "id": f"{number:032x}", **asked, **final, **more}


def end(number: int, event: str = "tool:post", **more: Any) -> dict[str, Any]:
    """The fact of a call's end."""
    return {"event": event, "decision_id": f"{number:032x}", **more}


@pytest.mark.pure
def test_only_calls_that_ran_well_count_in_the_form_in_which_they_ran() -> None:
    facts = [
        *map(decision, range(5)),
        decision(5, outcome="deny", final_tool=None, final_input=None),
        decision(6, outcome="modify", final_tool="other", final_input={"n": "changed"}, root_session="root"),
        decision(7, tool_name="llm:request", final_tool="llm:request"),
        decision(8, tool_name="turn:output", final_tool="turn:output"),
        decision(8, final_input=None, cut=True),
        end(0),
        end(1, success=False),
        end(2, "tool:error"),
        end(3, "tool:unused"),
        end(6),
        end(6),
        end(99),
    ]
    ran = RanCalls()
    seen = [call for fact in facts if (call := ran.take(fact)) is not None]
    assert seen == [("tool", {"n": 0}, "s"), ("other", {"n": "changed"}, "root")]
    assert list(ran.finish()) == [("tool", {"n": 4}, "s")], "nobody told its end"
    assert ran.unended == 1
    assert ran.left_out == {"denied": 1, "failed": 2, "not run": 1, "recorded without arguments": 1}


@pytest.mark.pure
def test_calls_whose_end_is_awaited_are_bounded() -> None:
    ran = RanCalls()
    seen = [call for number in range(OPEN + 10) if (call := ran.take(decision(number))) is not None]
    assert [call.arguments["n"] for call in seen] == [*range(10)]


@pytest.mark.acceptance
def test_recorded_runs_become_a_file_that_is_never_overwritten(
    process: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "suggested.yaml"
    first = process("toolgate", "policy", "suggest", "--runs", OWN, "--out", out)
    assert first.wait() == 0, first.stderr
    assert first.stdout == ""
    document = read_document(out)
    rules = check(PolicyConfig, document.mapping(), document).rules
    assert rules[-1].mode == "observe"
    again = process("toolgate", "policy", "suggest", "--runs", OWN, "--out", out)
    assert again.wait() == 2
    assert "exists already" in again.stderr
    told = process("toolgate", "policy", "suggest", "--runs", OWN, "--json", "--quiet")
    assert told.wait() == 0, told.stderr
    *each, total = map(json.loads, told.stdout.splitlines())
    assert [one["rule"]["name"] for one in each] == [one.name for one in rules]
    assert total["rules"] == len(rules)
    both = process("toolgate", "policy", "suggest", "--runs", OWN, "--since", "1d")
    assert both.wait() == 2


@pytest.mark.acceptance
async def test_the_record_of_a_bus_becomes_rules_for_what_ran_on_it(
    process: Callable[..., Any],
    server_url: str,
    namespace: str,
    wait_until: Callable[..., Awaitable[Any]],
    tmp_path: Path,
) -> None:
    bus = ("--redis", server_url, "--namespace", namespace)
    empty = process("toolgate", "policy", "suggest", *bus)
    assert empty.wait() == 1
    assert "no call ran" in empty.stderr
    commands = RedisCommands(server_url, "test-suggest")
    reader = FactsReader(commands, namespace)
    roster = Roster(commands, namespace)
    try:
        async with reader.stay_on_roster():

            async def is_seen() -> bool:
                return bool((await roster.read()).readers)

            await wait_until(is_seen)
            async with Guard(agent="clerk", redis=server_url, namespace=namespace) as guard:
                for number in range(12):
                    at = guard.at(f"session-{number}")
                    ruling = await guard.rule(Call("read", {"path": f"/srv/data/{number}.csv"}, at=at))
                    ruling.succeed()
                failing = await guard.rule(Call("drop", {"table": "users"}, at=at))
                failing.fail("no rights")
            stored = [fact async for fact in reader.read_stored()]
            assert sum(fact["event"] == "tool:post" for fact in stored) >= 12
    finally:
        await reader.leave()
        await commands.aclose()
    archive = tmp_path / "archive"
    for more in ((), ("--since", "10m"), ("--archive", archive)):
        if more[:1] == ("--archive",):
            kept = process("toolgate", "decisions", "archive", archive, "--once", *bus)
            assert kept.wait() == 0, kept.stderr
        made = process("toolgate", "policy", "suggest", *bus, *more)
        assert made.wait() == 0, made.stderr
        document = parse_document(made.stdout.encode(), "suggested.yaml")
        (rule, last) = check(PolicyConfig, document.mapping(), document).rules
        assert rule.when["path"].under == "/srv/data"
        assert last.action == "ask"
        assert "12 calls in 12 sessions" in made.stdout
        assert "drop" not in made.stdout
