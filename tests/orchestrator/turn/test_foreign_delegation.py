"""Sub-agents that another's tool makes, with a copy of their parent's plan, have names of their own."""

import asyncio
import copy
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest
from amplifier_core import AmplifierSession, HookResult, ToolResult
from four_loops import LOOPS
from toolgate_orchestrator.turn import child_names
from toolgate_orchestrator.turn.child_names import name_child, remember_child

pytestmark = pytest.mark.pure


def wants(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"id": f"c-{name}", "name": name, "arguments": arguments}]}


def plan(loop: str, agent: str, turns: list[dict[str, Any]]) -> dict[str, Any]:
    config = {"toolgate": {"agent": agent}}
    return {
        "session": {"orchestrator": {"module": loop, "config": config}, "context": "context-simple"},
        "providers": [{"module": "provider-scripted", "config": {"turns": turns}}],
        "tools": [{"module": "tool-calculator"}],
        "hooks": [],
        "agents": {"tester": {}, "self": {}},
    }


class ForeignDelegate:
    """Makes children as Amplifier's tool-delegate and its hosts do: by the parent's plan, after an event."""

    name = "delegate"
    description = "delegates"
    input_schema: ClassVar[dict[str, Any]] = {"type": "object"}

    def __init__(self, parent: Any, turns: list[dict[str, Any]], *, tells: bool = True) -> None:
        self.parent, self.turns, self.tells = parent, turns, tells
        self.questions: list[dict[str, Any]] = []
        self.spawned: list[dict[str, Any]] = []

    async def execute(self, given: dict[str, Any]) -> ToolResult:
        coordinator = self.parent.coordinator
        mine = coordinator._tool_dispatch_contexts[asyncio.current_task()]
        told = {"agent": given["agent"], "sub_session_id": f"{given['agent']}-1", **mine}
        self.spawned.append(told)
        overlay = copy.deepcopy(self.parent.config)
        overlay["providers"][0]["config"]["turns"] = self.turns
        if self.tells:
            await coordinator.hooks.emit("delegate:agent_spawned", told)
        else:
            overlay["session"]["metadata"] = {"agent_name": given["agent"]}
        async with AmplifierSession(
            overlay, session_id=f"{given['agent']}-1", parent_id=coordinator.session_id
        ) as child:

            async def hear(_: str, data: dict[str, Any]) -> HookResult:
                self.questions.append(data)
                return HookResult()

            child.coordinator.hooks.register("tool:selecting", hear, name="test")
            return ToolResult(success=True, output=await child.execute("go"))


@asynccontextmanager
async def session(loop: str, target: str, own: str = "cli", **options: Any) -> Any:
    turns = [wants("delegate", agent=target), {"text": "done"}]
    async with AmplifierSession(plan(loop, own, turns), session_id="root") as opened:
        works = [wants("calculate", expression="1 + 1"), {"text": "2"}]
        delegate = ForeignDelegate(opened, works, **options)
        await opened.coordinator.mount("tools", delegate, name="delegate")
        yield opened, delegate


@pytest.mark.parametrize("tells", [True, False], ids=["event", "plan"])
@pytest.mark.parametrize("loop", LOOPS)
async def test_a_child_with_its_parents_plan_is_ruled_on_under_its_own_name_with_the_call_that_made_it(
    loop: str, tells: bool
) -> None:
    async with session(loop, "tester", tells=tells) as (root, delegate):
        assert await root.execute("go") == "done"
    (asked,) = delegate.questions
    assert (asked["agent"], list(asked["lineage"])) == ("tester", ["cli", "tester"])
    (told,) = delegate.spawned
    assert told["tool_call_id"] == "c-delegate"
    assert told["parallel_group_id"]


async def test_a_copy_of_oneself_keeps_ones_name() -> None:
    async with session("loop-basic", "self") as (root, delegate):
        await root.execute("go")
    (asked,) = delegate.questions
    assert list(asked["lineage"]) == ["cli", "cli"]


def test_the_name_in_a_childs_own_plan_counts_first() -> None:
    remember_child("p", {"sub_session_id": "c", "agent": "told"})
    assert name_child(None, "c", "p", "planned", "parent") == "planned"
    assert name_child(None, "c", "p", "parent", "parent") == "told"
    assert name_child(None, "c", "p", "", "parent") == "told"


def test_only_the_parents_own_tool_names_a_child() -> None:
    remember_child("another", {"sub_session_id": "c2", "agent": "root"})
    assert name_child(None, "c2", "p", "cli", "cli") == "cli"
    assert name_child(None, "c2", None, "cli", "cli") == "cli"


@pytest.mark.parametrize(
    "told",
    [{}, {"sub_session_id": 1, "agent": "a"}, {"sub_session_id": "c3", "agent": ["a"]}]
    + [{"sub_session_id": "c3", "agent": name} for name in ("", "self", "x" * 257, None)],
)
def test_what_is_no_name_is_passed_over(told: dict[str, Any]) -> None:
    remember_child("p", told)
    assert name_child(None, "c3", "p", "cli", "cli") == "cli"


def test_the_oldest_names_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_names, "MAX_CHILDREN", 2)
    for child in ("o1", "o2", "o3"):
        remember_child("p", {"sub_session_id": child, "agent": child})
    assert [name_child(None, child, "p", "", "") for child in ("o1", "o3")] == ["", "o3"]
