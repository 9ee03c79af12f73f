"""What people are shown is true, and stays so: calls that nobody waits for any longer, and decoys."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from approval_world import People
from toolgate_bus.commands import main as cli
from toolgate_bus.errors import ToolgateError
from toolgate_bus.server.settings import BusSettings
from toolgate_orchestrator import Call, Gate
from toolgate_schedulers.commands.approvals.answer import find
from toolgate_schedulers.commands.approvals.editor import open_approvals

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(120)]

AGENT = """
import asyncio, sys
from toolgate_orchestrator import Call, Gate

async def main(url, namespace):
    async with Gate.open(redis=url, namespace=namespace, patience_ms=20_000) as gate:
        await gate.decide(Call("pay", {"to": "eve"}, {"pay": None}))

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_call_that_nobody_waits_for_any_longer_cannot_be_approved(
    schedulers: Any, server_url: str, namespace: str, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    rules = {
        "approval": [{"tools": "pay*"}],
        "policy": [{"tools": "pay_denied", "action": "deny", "reason": "never"}],
    }
    started = []
    for name, own in rules.items():
        (tmp_path / name).write_text(json.dumps({"rules": own}))
        started.append(schedulers.run(name, "--config", tmp_path / name))
    for one in started:
        await schedulers.ready(one)
    killed = subprocess.Popen([sys.executable, "-c", AGENT, server_url, namespace])
    try:
        async with open_approvals(BusSettings(redis=server_url, namespace=namespace)) as opened:
            desk = opened.desk

            async def held(tool: str) -> Any:
                return [one for one in await desk.list_held() if one.approval.question.tool_name == tool]

            # Another scheduler denied it before the hold was heard; or it was held for too long.
            for tool, why, fields in (
                ("pay_denied", "denied", {"max_hold_s": 60.0}),
                ("pay_long", "expired", {"max_hold_s": 0.2}),
            ):
                async with Gate.open(
                    redis=server_url, namespace=namespace, patience_ms=20_000, **fields
                ) as gate:
                    late: list[str] = []
                    gate.subscribe_late(lambda _id, heard, late=late: late.append(heard.verdict.action))
                    if why == "denied":
                        started[0].send_signal(signal.SIGSTOP)  # approval reads it later
                    decision = await gate.decide(Call(tool, {}, {tool: None}))
                    assert decision.why == why
                    started[0].send_signal(signal.SIGCONT)
                    # Once its verdict is here, the hold is in the store.
                    said = [heard.verdict.action for heard in decision.verdicts]
                    await wait_until(lambda said=said, late=late: "hold" in said + late)
                    await wait_until(lambda tool=tool: none(held(tool)))
            # Its process was killed.
            (one,) = await wait_until(lambda: held("pay"))
            killed.kill()
            killed.wait()
            await wait_until(lambda: none(desk.list_waiting()))
            assert [one.gone for one in await desk.list_held()] == [True]
            with pytest.raises(ToolgateError, match="the agent that asked is gone"):
                await find(desk, one.approval.question.id)
            said = await People(server_url, namespace)("approve", one.approval.id)
            assert (said.code, "the agent that asked is gone" in said.err) == (1, True)
            assert await desk.answer_to(one.approval.id) is None
    finally:
        killed.kill()
        killed.wait()


async def none(found: Any) -> bool:
    return not await found


async def test_a_delegation_to_two_agents_runs_for_neither(server_url: str, namespace: str) -> None:
    async with Gate.open(redis=server_url, namespace=namespace) as gate:
        for arguments in ({"agent": "clerk", "agent_name": "root"}, {"agent": [1], "agent_name": "root"}):
            decision = await gate.decide(
                Call("delegate", arguments, {"delegate": None}, available_agents=["clerk", "root"])
            )
            assert decision.outcome == "deny"
            assert "both `agent` and `agent_name`" in (decision.reason or "")
        once = await gate.decide(Call("delegate", {"agent": "root"}, ["delegate"], available_agents=["root"]))
        assert once.allowed


def test_a_password_on_the_command_line_is_warned_of_and_shown_nowhere(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["toolgate", "decisions", "--redis", "redis://:hunter22@127.0.0.1:1/0"])
    with pytest.raises(SystemExit):
        cli.main()
    said = "".join(capfd.readouterr())
    assert "TOOLGATE_REDIS_PASSWORD_FILE" in said
    assert "hunter22" not in said


async def test_a_call_that_waits_for_a_person_does_not_look_like_a_hang(
    schedulers: Any,
    server_url: str,
    namespace: str,
    tmp_path: Path,
    wait_until: Callable[..., Any],
    process: Callable[..., Any],
) -> None:
    (tmp_path / "rules").write_text(json.dumps({"rules": [{"tools": "calculator", "name": "sums"}]}))
    call = {"id": "c", "name": "calculator", "arguments": {"expression": "1+1"}}
    turns = [{"tool_calls": [call]}, {"text": "Two."}]
    plan = {
        "session": {
            "orchestrator": {"module": "loop-basic", "config": {"toolgate": {"patience_ms": 20_000}}},
            "context": "context-simple",
        },
        "providers": [{"module": "provider-scripted", "config": {"turns": turns}}],
        "tools": [{"module": "tool-calculator"}],
    }
    (tmp_path / "plan.yaml").write_text(json.dumps(plan))
    await schedulers.start("approval", "--config", tmp_path / "rules")
    where = ("--plan", tmp_path / "plan.yaml", "--redis", server_url, "--namespace", namespace)
    running = process("toolgate", "run", "add", *where, "--stream", "--json")
    await wait_until(lambda: '"event": "held"' in running.stdout, timeout=30)
    await wait_until(lambda: "toolgate approvals approve" in running.stderr, timeout=30)
    told = next(json.loads(line) for line in running.stdout.splitlines() if '"held"' in line)
    assert (told["tool_name"], told["scheduler"], told["seconds"]) == ("calculator", "approval", 900)
    assert "waits    calculator for up to 15 min" in running.stderr
    async with open_approvals(BusSettings(redis=server_url, namespace=namespace)) as opened:
        by_decision = await find(opened.desk, told["decision_id"][:8])
        assert by_decision.approval.id[:8] in running.stderr
