"""What hooks say takes effect, under every loop: what the published orchestrators pass over or lose.

Also what the kernel's registry does to a loop that takes its answers as they come.
"""

import json
from typing import Any

import pytest
from amplifier_core import HookResult
from amplifier_core.testing import MockCoordinator
from four_loops import ASKING, LOOPS, data_told, inject, modify, order_of, run_by_hand, sent_results

pytestmark = pytest.mark.pure


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    """Each of the four, one after another."""
    return str(request.param)


@pytest.mark.parametrize("spelling", ["tool_input", "arguments", "input"])
async def test_a_modify_on_tool_pre_changes_what_runs(
    agent: Any, tool: Any, calls: Any, loop: str, spelling: str
) -> None:
    async with agent([calls(("a", {"n": 1})), {"text": "ok"}], tools=[tool("a")], loop=loop) as a:
        a.on("tool:pre", modify(**{spelling: {"n": 2}}))
        await a.ask()
        assert a.tools["a"].calls == [{"n": 2}]
        assert a.told("tool:post")[0]["tool_input"] == {"n": 2}


async def test_a_modify_on_tool_post_changes_what_the_llm_is_told(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a", lambda _: "secret")], loop=loop) as a:
        a.on("tool:post", lambda data: modify(**{**data, "result": "[redacted]"}))
        await a.ask()
        assert await a.results() == ["[redacted]"]
        assert "secret" not in str(a.requests[1].messages)


async def test_a_modify_on_prompt_submit_changes_what_is_asked(agent: Any, loop: str) -> None:
    async with agent([{"text": "ok"}], loop=loop) as a:
        a.on("prompt:submit", modify(prompt="in French"))
        await a.ask("in English")
        assert (await a.messages())[0]["content"] == "in French"
        assert "in English" not in str(a.requests[0].messages)


@pytest.mark.parametrize("spelling", [("tool", "arguments"), ("tool_name", "tool_input")])
async def test_a_modify_on_tool_selecting_changes_the_tool_and_its_arguments(
    agent: Any, tool: Any, calls: Any, loop: str, spelling: tuple[str, str]
) -> None:
    name, arguments = spelling
    turns = [calls(("a", {"n": 1})), {"text": "ok"}]
    async with agent(turns, tools=map(tool, "ab"), loop=loop, config=ASKING) as a:
        a.on("tool:selecting", modify(**{name: "b", arguments: {"n": 2}}))
        await a.ask()
        assert (a.tools["a"].calls, a.tools["b"].calls) == ([], [{"n": 2}])


async def test_a_registry_that_answers_modify_in_so_many_words_is_understood(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    answers = {
        "prompt:submit": modify(prompt="in French"),
        "tool:pre": modify(tool_input={"n": 2}),
        "tool:post": modify(result="changed"),
    }

    class Plain:
        async def emit(self, event: str, data: dict[str, Any]) -> HookResult:
            return answers.pop(event, HookResult())

    async with agent([calls(("a", {"n": 1})), {"text": "ok"}], tools=[tool("a")], loop=loop) as a:
        assert await run_by_hand(a, Plain()) == "ok"
        assert (await a.messages())[0]["content"] == "in French"
        assert a.tools["a"].calls == [{"n": 2}]
        assert data_told(loop, (await a.results())[0]) == "changed"


async def test_a_hook_that_only_listens_changes_nothing(agent: Any, tool: Any, calls: Any, loop: str) -> None:
    """The kernel's copy of the data is another object, has more fields, and rounds numbers."""
    arguments = {"x": 0.1 + 0.2, "y": [1e16, 7.038531e-26], "z": {}}
    turns = [calls(("a", arguments)), {"text": "ok"}]
    async with agent(turns, tools=[tool("a", lambda given: given)], loop=loop, config=ASKING) as a:
        a.on("tool:selecting", HookResult())
        await a.ask()
        assert a.tools["a"].calls == [arguments]
        assert [data["source"] for data in a.told("tool:selected")] == ["llm"]
        assert json.loads((await a.results())[0]) == arguments


async def test_a_deny_counts_with_no_coordinator(agent: Any, tool: Any, calls: Any, loop: str) -> None:
    async with agent([calls("a"), {"text": "ok"}, {"text": "never"}], tools=[tool("a")], loop=loop) as a:
        a.on("tool:pre", HookResult(action="deny", reason="read only"))
        assert await run_by_hand(a) == "ok"
        assert a.tools["a"].calls == []
        assert "read only" in (await a.results())[0]
        for event in ("provider:request", "prompt:submit"):
            a.on(event, HookResult(action="deny", reason="office hours"))
            assert "office hours" in await run_by_hand(a)
        assert len(a.requests) == 2


class Person:
    """An approval system that always gives the same answer."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    async def request_approval(self, prompt: str, options: list[str], timeout: float, default: str) -> str:
        return self.answer


@pytest.mark.parametrize(("answer", "ran"), [("Allow once", 1), ("Edit", 0), ("Deny", 0)])
async def test_only_a_person_who_allows_lets_a_call_run(
    agent: Any, tool: Any, calls: Any, loop: str, answer: str, ran: int
) -> None:
    turns = [calls("a"), {"text": "ok"}]
    async with agent(turns, tools=[tool("a")], loop=loop, approvals=Person(answer)) as a:
        a.on("tool:pre", HookResult(action="ask_user", approval_prompt="Really?"))
        assert await a.ask() == "ok"
        assert len(a.tools["a"].calls) == ran


@pytest.mark.parametrize("coordinator", [None, MockCoordinator], ids=["none", "the kernel's mock"])
async def test_a_question_that_nobody_can_answer_lets_nothing_run(
    agent: Any, tool: Any, calls: Any, loop: str, coordinator: Any
) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")], loop=loop) as a:
        a.on("tool:pre", HookResult(action="ask_user", approval_prompt="Really?"))
        assert await run_by_hand(a, coordinator=coordinator and coordinator()) == "ok"
        assert a.tools["a"].calls == []


# ---------------------------------------------------------------- several hooks on one call


@pytest.mark.parametrize("high_first", [True, False])
async def test_the_highest_priority_wins_although_the_kernels_result_has_no_field_for_it(
    agent: Any, tool: Any, calls: Any, loop: str, high_first: bool
) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=map(tool, "abc"), loop=loop, config=ASKING) as a:
        low = modify(tool="b", arguments={}, priority=5), 1 + high_first
        high = modify(tool="c", arguments={}, priority=10), 2 - high_first
        for answer, order in (low, high):
            a.on("tool:selecting", *[answer] * 9, priority=order)
        await a.ask()
        assert [len(a.tools[name].calls) for name in "abc"] == [0, 0, 1]


async def test_a_veto_behind_another_hooks_modify_is_heard(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    """The kernel gives the second hook only what the first returned; it raises KeyError there."""

    async def seed_scheduler(event: str, data: dict[str, Any]) -> HookResult:
        return modify(tool="b", arguments={}) if data["tool_name"] == "a" else HookResult()

    async def veto(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="deny", reason="never b") if data["tool_name"] == "b" else HookResult()

    async with agent([calls("a"), {"text": "ok"}], tools=map(tool, "ab"), loop=loop, config=ASKING) as a:
        a.hooks.register("tool:selecting", seed_scheduler, priority=1, name="seed")
        a.hooks.register("tool:selecting", veto, priority=2, name="veto")
        await a.ask()
        assert a.tools["a"].calls == a.tools["b"].calls == []
        assert "never b" in (await a.results())[0]


async def test_a_modify_before_an_injection_is_not_lost(agent: Any, tool: Any, calls: Any, loop: str) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=map(tool, "ab"), loop=loop, config=ASKING) as a:
        a.on("tool:selecting", *[modify(tool="b", arguments={})] * 9, priority=1)
        a.on("tool:selecting", inject("mind the cost", ephemeral=True), priority=2)
        await a.ask()
        assert [len(a.tools[name].calls) for name in "ab"] == [0, 1]
        assert "mind the cost" in str(a.requests[1].messages)


# ---------------------------------------------------------------- injections


async def test_an_injection_of_the_prompt_is_in_one_request_only(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    async with agent([calls("a"), calls("a"), {"text": "ok"}], tools=[tool("a")], loop=loop) as a:
        a.on("prompt:submit", inject("today is Friday", ephemeral=True))
        await a.ask()
        assert ["Friday" in str(request.messages) for request in a.requests] == [True, False, False]
        assert "Friday" not in str(await a.messages())


@pytest.mark.parametrize("event", ["tool:post", "tool:error"])
async def test_an_injection_on_a_tools_end_is_in_the_next_request(
    agent: Any, tool: Any, calls: Any, loop: str, event: str
) -> None:
    def end(_: dict[str, Any]) -> str:
        if event == "tool:error":
            raise ValueError("no such file")
        return "done"

    async with agent([calls("a"), calls("a"), {"text": "ok"}], tools=[tool("a", end)], loop=loop) as a:
        a.on(event, inject("(stale)", ephemeral=True, append_to_last_tool_result=True))
        await a.ask()
        assert sent_results(a.requests[1])[-1].endswith("\n\n(stale)")
        assert "(stale)" not in str(a.requests[2].messages)
        assert "(stale)" not in str(await a.messages())


@pytest.mark.parametrize("with_coordinator", [True, False])
async def test_a_stored_injection_never_lands_between_a_call_and_its_result(
    agent: Any, tool: Any, calls: Any, loop: str, with_coordinator: bool
) -> None:
    def fail(_: dict[str, Any]) -> str:
        raise ValueError("no such file")

    tools = [tool("a"), tool("bad", fail)]
    async with agent([calls("a", "bad", "a"), {"text": "ok"}], tools=tools, loop=loop, config=ASKING) as a:
        for event in (
            "provider:response",
            "tool:selecting",
            "tool:selected",
            "tool:pre",
            "tool:post",
            "tool:error",
        ):
            a.on(event, inject(f"from {event}"))
        await (a.ask() if with_coordinator else run_by_hand(a))
        roles = order_of(await a.messages())
        first = roles.index("assistant")
        assert roles[first : first + 4] == ["assistant", "tool", "tool", "tool"]
        stored = [message["content"] for message in await a.messages() if message["role"] == "system"]
        assert len(stored) == 6
