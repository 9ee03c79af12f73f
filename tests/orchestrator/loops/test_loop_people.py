"""A person who is asked about calls: in a loop with hooks in process, by the app's approval system."""

import asyncio
from typing import Any

import pytest
from amplifier_core import HookResult

pytestmark = pytest.mark.pure


class Person:
    """An approval system that gives a fixed answer and remembers what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def request_approval(self, prompt: str, options: list[str], timeout: float, default: str) -> str:
        self.asked.append(prompt)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return str(self.answer)


def ask_user() -> HookResult:
    return HookResult(action="ask_user", approval_prompt="Really?", approval_timeout=2.0)


async def test_the_person_is_asked_about_the_call_that_would_run(agent: Any, tool: Any, calls: Any) -> None:
    person = Person("Allow once")
    async with agent([calls("a"), {"text": "ok"}], tools=map(tool, "ab"), approvals=person) as a:

        async def careful(event: str, data: dict[str, Any]) -> HookResult:
            return ask_user() if data["tool_name"] == "b" else HookResult()

        a.on(
            "tool:selecting",
            *[HookResult(action="modify", data={"tool": "b", "arguments": {"n": 2}})] * 2,
            priority=1,
        )
        a.hooks.register("tool:selecting", careful, priority=2)
        await a.ask()
        assert person.asked == ['Really?\nb {"n": 2}']
        assert a.tools["b"].calls == [{"n": 2}]
        assert a.names("approval:required", "approval:granted") == ["approval:required", "approval:granted"]


async def test_a_refusal_a_silence_and_nobody_to_ask_are_told_apart(
    agent: Any, tool: Any, calls: Any
) -> None:
    from amplifier_core.approval import ApprovalTimeoutError

    expected = {
        "refused": Person("Deny"),
        "expired": Person(ApprovalTimeoutError("late")),
        "no_approver": None,
    }
    for why, person in expected.items():
        async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")], approvals=person) as a:
            a.on("tool:selecting", ask_user())
            await a.ask()
            assert a.tools["a"].calls == []
            assert a.told("policy:violation")[0]["decision"]["why"] == why


async def test_a_broken_approval_system_allows_nothing(agent: Any, tool: Any, calls: Any) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")], approvals=Person(OSError("down"))) as a:
        a.on("tool:selecting", ask_user())
        assert await a.ask() == "ok"
        assert a.tools["a"].calls == []


async def test_a_person_is_asked_one_thing_at_a_time_however_many_calls_run(
    agent: Any, tool: Any, calls: Any
) -> None:
    """Calls side by side; each needs the person."""
    open_questions: list[int] = []

    class Person:
        asked = 0

        async def request_approval(self, *_: Any, **__: Any) -> str:
            self.asked += 1
            open_questions.append(1)
            await asyncio.sleep(0)
            assert open_questions == [1]
            open_questions.clear()
            return "Allow"

    person = Person()
    turn = [calls("a", "b", "c"), {"text": "done"}]
    tools = [tool(name) for name in "abc"]
    async with agent(turn, tools=tools, approvals=person, loop="loop-basic") as a:
        ask = HookResult(action="ask_user", approval_prompt="may it?", approval_options=["Allow", "Deny"])
        a.on("tool:pre", ask, ask, ask)
        assert await a.ask() == "done"
        assert person.asked == 3
        assert all(len(each.calls) == 1 for each in tools)
