"""Hooks on tool:selecting read as verdicts, on the kernel's real registry."""

from typing import Any

import pytest
from amplifier_core import HookRegistry, HookResult
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Modify, ToolSelecting
from toolgate_orchestrator.turn.hooks.dispatch import Hooks
from toolgate_orchestrator.turn.hooks.injections import Injections
from toolgate_orchestrator.turn.hooks.scheduler import HookScheduler, modify_in

pytestmark = pytest.mark.pure

QUESTION = ToolSelecting(id="0" * 32, tool_name="a", tool_input={"n": 1}, available_tools=("a", "b", "c"))


class Registry:
    """A registry with hooks that give fixed answers, and the scheduler they make."""

    def __init__(self, *answers: HookResult) -> None:
        self.registry = registry = HookRegistry()
        for number, answer in enumerate(answers):
            registry.register("tool:selecting", self._hook(answer), priority=number, name=f"h{number}")
        self.injections = Injections()
        self.runs = 0
        self.scheduler = HookScheduler(Hooks(registry, None, self.injections), 5.0)

    def _hook(self, answer: HookResult) -> Any:
        async def hook(event: str, data: dict[str, Any]) -> HookResult:
            self.runs += 1
            return answer

        return hook

    async def verdicts(self, **changes: Any) -> list[Any]:
        return list(await self.scheduler(QUESTION.model_copy(update=changes)))


def to(tool: str, **data: Any) -> HookResult:
    return HookResult(action="modify", data={"tool": tool, **data})


async def test_hooks_that_say_nothing_continue() -> None:
    assert await Registry(HookResult(), HookResult()).verdicts() == [Continue()]
    assert await Registry().verdicts() == [Continue()]


async def test_a_deny_keeps_its_reason_and_priority() -> None:
    answer = HookResult(action="deny", reason="no", data={"priority": 7})
    assert await Registry(HookResult(), answer).verdicts() == [Deny(reason="no", priority=7)]
    assert await Registry(HookResult(action="deny")).verdicts() == [
        Deny(reason="a hook refused without a reason")
    ]


async def test_an_ask_keeps_what_the_person_is_to_see() -> None:
    answer = HookResult(
        action="ask_user",
        approval_prompt="Sure?",
        approval_options=["Allow", "Deny"],
        approval_timeout=9.0,
        approval_default="allow",
    )
    expected = AskUser(prompt="Sure?", options=("Allow", "Deny"), timeout_s=9.0, default="allow")
    assert await Registry(answer).verdicts() == [expected]


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("inf")])
async def test_an_impossible_timeout_does_not_let_the_call_through(timeout_s: float) -> None:
    answer = HookResult(action="ask_user", approval_prompt="?", approval_timeout=timeout_s)
    (verdict,) = await Registry(answer).verdicts()
    assert isinstance(verdict, AskUser | Deny)


async def test_one_hook_is_asked_once_and_several_are_asked_for_their_own() -> None:
    alone = Registry(to("b"))
    assert await alone.verdicts() == [Modify(tool="b", arguments={"n": 1})]
    assert alone.runs == 1


async def test_a_hook_beside_the_log_is_alone_and_runs_once() -> None:
    logged = Registry(to("b"))
    logged.registry.register("tool:selecting", lambda event, data: HookResult(), name="hooks-logging")
    assert await logged.verdicts() == [Modify(tool="b", arguments={"n": 1})]
    assert logged.runs == 1
    several = Registry(to("b"), to("c", priority=1))
    assert await several.verdicts() == [Modify(tool="c", arguments={"n": 1}, priority=1)]
    assert several.runs == 4


async def test_in_verify_nothing_is_injected_once_more() -> None:
    registry = Registry(to("b"))
    assert await registry.verdicts(phase="verify") == [Modify(tool="b", arguments={"n": 1})]
    injecting = Registry(HookResult(action="inject_context", context_injection="x"))
    assert await injecting.verdicts(phase="verify") == [Continue()]
    assert not injecting.injections.has_pending
    assert await Registry(HookResult(action="deny", reason="no")).verdicts(phase="verify") == [
        Deny(reason="no")
    ]


priorities = st.lists(st.none() | st.integers(-5, 5), min_size=2, max_size=5)


@given(priorities)
async def test_the_highest_priority_wins_and_the_first_registered_among_equals(
    ranks: list[int | None],
) -> None:
    names = [f"t{number}" for number in range(len(ranks))]
    data = [{} if rank is None else {"priority": rank} for rank in ranks]
    registry = Registry(*(to(name, **each) for name, each in zip(names, data, strict=True)))
    (verdict,) = await registry.verdicts(available_tools=tuple(names))
    counted = [rank or 0 for rank in ranks]
    assert verdict.tool == names[counted.index(max(counted))]


def test_data_that_leave_the_call_as_it_is_are_no_modify() -> None:
    same: list[Any] = [
        None,
        {},
        {"tool": "a"},
        {"tool_name": "a", "tool_input": {"n": 1}},
        {"tool": 3},
        {"x": 1},
    ]
    assert [modify_in(data, QUESTION) for data in same] == [None] * len(same)


def test_a_priority_that_is_none_is_left_out() -> None:
    for odd in ("high", True, 2**40, 1.5):
        modify = modify_in({"tool": "b", "priority": odd}, QUESTION)
        assert modify is not None
        assert modify.priority is None


keys = st.sampled_from(["tool", "tool_name", "arguments", "tool_input", "priority", "reason"])
values = st.none() | st.text() | st.integers() | st.dictionaries(st.text(), st.integers())


@given(st.dictionaries(keys, values))
def test_whatever_a_hook_returns_is_read_without_raising(data: dict[str, Any]) -> None:
    modify = modify_in(data, QUESTION)
    assert modify is None or isinstance(modify, Modify)
