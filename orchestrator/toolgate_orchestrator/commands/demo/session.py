"""The demo's session: a real Amplifier session whose scripted LLM does the job, shown call by call."""

import secrets
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from amplifier_core import AmplifierSession, HookResult
from toolgate_bus.errors import ToolgateError
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.protocol.events import Decision
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.redis.client.connection import RedisCommands

from toolgate_orchestrator.commands.demo.job import LIMIT, PROMPT, Layout, script
from toolgate_orchestrator.commands.demo.view import DemoView
from toolgate_orchestrator.commands.host.rulings import Rulings, verdict_record
from toolgate_orchestrator.commands.host.scheduler_processes import RunningScheduler
from toolgate_orchestrator.commands.replay.provider_replay import tool_results
from toolgate_orchestrator.modules.tool_base import FunctionTool, schema

PATIENCE_MS: Final = 5_000
"""Each scheduler is required: on a busy machine the demo waits for it rather than denying."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Result of the demo: the agent's answer, its calls, and its spending."""

    answer: str
    calls: tuple[tuple[Decision, str], ...]
    """Decision on each call, with the text that the LLM got."""
    spent: int
    """Amount spent and reserved, in millionths of the currency."""

    def promises(self) -> dict[str, bool]:
        """Return each promise of the demo, and whether it was kept."""
        decisions = [decision for decision, _ in self.calls]
        denials = {one.scheduler for one in decisions if not one.allowed}
        return {
            "run": any(one.outcome == "continue" for one in decisions),
            "replacement": any(one.outcome == "modify" for one in decisions),
            "budget": "cost-aware" in denials and 0 < self.spent <= LIMIT,
            "denial": "policy" in denials,
            "person": any(one.asked_user for one in decisions),
        }


async def run_demo(layout: Layout, bus: BusSettings, names: Sequence[str], view: DemoView) -> DemoResult:
    """Run the job and show it as it happens. Raise ToolgateError if the session cannot be made."""
    plan, session_id = _plan(layout, bus, names), f"demo-{secrets.token_hex(4)}"
    session = AmplifierSession(plan, session_id=session_id, approval_system=view)
    async with aclosing(RedisCommands(str(bus.redis), "toolgate-demo", connections=1)) as commands:
        ledger = RedisLedger(commands, bus.namespace)
        try:
            await _initialize(session)
            rulings = Rulings.of(session)
            _listen(session.coordinator.hooks, rulings, ledger, view)
            answer = str(await session.execute(PROMPT))
            messages = await session.coordinator.get("context").get_messages()
        finally:
            await session.cleanup()
        spent = await _spent(ledger)
    results = [text for _, text in tool_results(messages)]
    calls = tuple(zip(rulings.decisions.values(), results, strict=False))
    return DemoResult(answer, calls, spent)


async def _initialize(session: Any) -> None:
    try:
        await session.initialize()
    except RuntimeError as error:
        raise ToolgateError(f"the demo's session cannot be made: {error}") from error
    # These two would reach the outside world; here they only say so.
    for tool in (
        _tool("credit_check", "{company} pays late, but it pays.", company="Its name"),
        _tool("send_mail", "sent to {to}", to="The address", text="The text"),
    ):
        await session.coordinator.mount("tools", tool, name=tool.name)


def _tool(name: str, result: str, **arguments: str) -> FunctionTool:
    async def work(given: dict[str, Any]) -> str:
        return result.format(**given)

    return FunctionTool(name, name.replace("_", " "), schema(arguments), work)


def _listen(hooks: Any, rulings: Rulings, ledger: RedisLedger, view: DemoView) -> None:
    async def show_call(event: str, data: dict[str, Any]) -> HookResult:
        block = data["block"]
        if block["type"] == "tool_call":
            await view.show_call(block["name"], block["input"])
        return HookResult(action="continue")

    async def show_decision(event: str, data: dict[str, Any]) -> HookResult:
        decision = rulings.decisions.get(str(data.get("decision_id")))
        if decision is not None:
            await view.show_decision(decision, await _spent(ledger), LIMIT)
        return HookResult(action="continue")

    hooks.register("content_block:end", show_call, name="toolgate-demo")
    for event in ("tool:selected", "policy:violation"):
        hooks.register(event, show_decision, name="toolgate-demo")


async def _spent(ledger: RedisLedger) -> int:
    return sum(one.spent + one.reserved for one in await ledger.balances())


def _plan(layout: Layout, bus: BusSettings, names: Sequence[str]) -> dict[str, Any]:
    """Return the mount plan of the agent; it requires an answer of every scheduler for each call."""
    toolgate = {
        "redis": bus.redis,
        "namespace": bus.namespace,
        "agent": "clerk",
        "required": list(names),
        "patience_ms": PATIENCE_MS,
    }
    return {
        "session": {
            "orchestrator": {"module": "loop-events", "config": {"max_iterations": -1, "toolgate": toolgate}},
            "context": "context-simple",
        },
        "providers": [{"module": "provider-scripted", "config": {"turns": script()}}],
        "tools": [{"module": "tool-workspace", "config": {"root": str(layout.workspace)}}],
        "hooks": [],
    }


def demo_record(result: DemoResult, schedulers: Sequence[RunningScheduler]) -> dict[str, Any]:
    """Return everything as one JSON object."""
    promised = result.promises()
    return {
        "ok": all(promised.values()),
        "promised": promised,
        "schedulers": [{"name": one.name, "pid": one.pid} for one in schedulers],
        "calls": [_call_record(decision, told) for decision, told in result.calls],
        "budget": {"limit": LIMIT, "spent": result.spent},
        "answer": result.answer,
    }


def _call_record(decision: Decision, told: str) -> dict[str, Any]:
    return {
        "tool": decision.original_tool,
        "arguments": decision.original_input,
        "outcome": decision.outcome,
        "why": decision.why,
        "reason": decision.reason,
        "scheduler": decision.scheduler,
        "asked_user": decision.asked_user,
        "ran_tool": decision.tool_name if decision.allowed else None,
        "ran_arguments": decision.tool_input if decision.allowed else None,
        "result": told,
        "decision_ms": round(decision.seconds * 1000, 3),
        "verdicts": [verdict_record(heard) for heard in decision.verdicts],
    }
