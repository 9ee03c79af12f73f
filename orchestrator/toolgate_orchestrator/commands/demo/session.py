"""The demo's session: a real Amplifier session whose scripted LLM does the job, watched call by call."""

import secrets
from collections.abc import Iterable
from typing import Any

from amplifier_core import AmplifierSession, HookResult, ToolResult
from toolgate_bus.errors import ToolgateError
from toolgate_bus.server.settings import BusSettings

from toolgate_orchestrator.commands.demo.job import PROMPT, DemoCall, Layout, script
from toolgate_orchestrator.commands.demo.view import DemoView
from toolgate_orchestrator.commands.host.rulings import Rulings
from toolgate_orchestrator.commands.replay.provider_replay import tool_results

PATIENCE_MS = 5_000
HEAR_OUT_S = 1.0
"""A denial ends the wait for the others; to show what they said they are heard out, this long."""


async def run_demo(
    layout: Layout, bus: BusSettings, schedulers: Iterable[str], view: DemoView
) -> tuple[str, list[DemoCall]]:
    """Run the job, shown while it happens; gives the LLM's final answer and all calls.

    Raises ToolgateError where the session cannot be made.
    """
    names = tuple(schedulers)
    session = AmplifierSession(
        plan(layout, bus, names, "demo", script()), session_id=f"demo-{secrets.token_hex(4)}"
    )
    try:
        await initialize(session)
        rulings = Rulings.of(session)
        _listen(session.coordinator.hooks, rulings, names, view)
        answer = await session.execute(PROMPT)
        messages = await session.coordinator.get("context").get_messages()
    finally:
        await session.cleanup()
    results = [text for _, text in tool_results(messages)]
    decisions = rulings.decisions.values()
    calls = [
        DemoCall(decision, rulings.list_verdicts(decision.id), result)
        for decision, result in zip(decisions, results, strict=False)
    ]
    return str(answer), calls


async def initialize(session: Any) -> None:
    """Set a session up; raises ToolgateError where one of its modules did not mount."""
    try:
        await session.initialize()
    except RuntimeError as error:
        raise ToolgateError(f"the demo's session cannot be made: {error}") from error
    # The kernel goes on without a module that does not mount; the demo could not.
    mounted = {**(session.coordinator.get("providers") or {}), **(session.coordinator.get("tools") or {})}
    turns = session.config["providers"][0]["config"]["turns"]
    needed = {"scripted", *(call["name"] for turn in turns for call in turn.get("tool_calls", ()))}
    if missing := needed - set(mounted):
        raise ToolgateError(f"{', '.join(sorted(missing))} did not mount: is toolgate installed properly?")


def _listen(hooks: Any, rulings: Rulings, names: tuple[str, ...], view: DemoView) -> None:
    async def show_ruling(event: str, data: dict[str, Any]) -> HookResult:
        decision = rulings.decisions.get(str(data.get("decision_id")))
        if decision is not None:
            await rulings.hear_out(decision.id, names, HEAR_OUT_S)
            view.on_decision(decision, rulings.list_verdicts(decision.id))
        return HookResult(action="continue")

    async def show_result(event: str, data: dict[str, Any]) -> HookResult:
        result = data.get("result")
        if isinstance(result, dict):
            view.on_result(ToolResult.model_validate(result).get_serialized_output())
        return HookResult(action="continue")

    for event in ("tool:selected", "policy:violation"):
        hooks.register(event, show_ruling, name="toolgate-demo")
    hooks.register("tool:post", show_result, name="toolgate-demo")


def plan(
    layout: Layout, bus: BusSettings, names: tuple[str, ...], agent: str, turns: list[dict[str, Any]]
) -> dict[str, Any]:
    """The mount plan of an agent of the demo, which every scheduler has to answer; `turns` is its LLM."""
    toolgate = {
        "redis": bus.redis,
        "namespace": bus.namespace,
        "agent": agent,
        "required": list(names),
        "patience_ms": PATIENCE_MS,
    }
    root = {"root": str(layout.workspace)}
    return {
        "session": {
            "orchestrator": {"module": "loop-events", "config": {"max_iterations": -1, "toolgate": toolgate}},
            "context": "context-simple",
        },
        "providers": [{"module": "provider-scripted", "config": {"turns": turns}}],
        "tools": [
            {"module": "tool-workspace", "config": root},
            {"module": "tool-folder-search", "config": root},
            {"module": "tool-calculator"},
        ],
        "hooks": [],
    }
