"""What hooks inject: ephemeral into the next request only, stored never between a call and its result."""

from typing import Any

import pytest
from amplifier_core import HookResult
from four_loops import LOOPS

pytestmark = pytest.mark.pure


def inject(text: str, **fields: Any) -> HookResult:
    return HookResult(action="inject_context", context_injection=text, **fields)


def ephemeral(text: str, **fields: Any) -> HookResult:
    return inject(text, ephemeral=True, **fields)


async def test_an_ephemeral_injection_of_the_prompt_is_in_the_first_request_only(
    agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")]) as a:
        a.on("prompt:submit", ephemeral("today is Friday", context_injection_role="user"))
        await a.ask()
        assert [m.content for m in a.requests[0].messages] == ["hello", "today is Friday"]
        assert "Friday" not in str(a.requests[1].messages)
        assert "Friday" not in str(await a.messages())


async def test_an_ephemeral_note_on_a_result_is_appended_to_it_in_the_next_request_only(
    agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls("a"), calls("a"), {"text": "ok"}], tools=[tool("a")]) as a:
        a.on("tool:post", ephemeral("(stale)", append_to_last_tool_result=True))
        await a.ask()
        assert a.requests[1].messages[-1].role == "tool"
        assert a.requests[1].messages[-1].content == "done\n\n(stale)"
        assert "(stale)" not in str(a.requests[2].messages)
        assert await a.results() == ["done", "done"]


@pytest.mark.parametrize("loop", LOOPS)
async def test_what_is_in_one_request_only_is_marked_and_behind_all_that_is_sent_again(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")], loop=loop) as a:
        note = ephemeral("todo: 3 left", context_injection_role="user")
        a.on("provider:request", note, note)
        await a.ask()
        first, second = ([m.model_dump() for m in request.messages] for request in a.requests)
        marks = [(message.get("metadata") or {}).get("ephemeral", False) for message in first]
        assert marks == sorted(marks)
        assert marks.count(False) == 1
        assert second[:1] == first[:1]
        marks = [(message.get("metadata") or {}).get("ephemeral", False) for message in second]
        assert marks == sorted(marks)
        assert marks.count(False) == 3


async def test_a_note_for_the_last_result_becomes_a_message_where_there_is_no_result(agent: Any) -> None:
    async with agent([{"text": "ok"}]) as a:
        a.on("prompt:submit", ephemeral("note", append_to_last_tool_result=True))
        await a.ask()
        assert [(m.role, m.content) for m in a.requests[0].messages] == [
            ("user", "hello"),
            ("system", "note"),
        ]


async def test_an_injection_on_provider_request_is_in_that_very_request(
    agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")]) as a:
        a.on("provider:request", ephemeral("todo: 3 left"), inject("stored note"))
        await a.ask()
        assert a.requests[0].messages[-1].content == "todo: 3 left"
        assert a.requests[1].messages[-1].content == "stored note"
        assert "todo" not in str(a.requests[1].messages)


async def test_a_stored_injection_waits_until_all_calls_have_their_results(
    agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls("a", "a", "a"), {"text": "ok"}], tools=[tool("a")]) as a:
        a.on("tool:pre", inject("from pre"))
        a.on("tool:post", inject("from post"))
        a.on("tool:selecting", inject("from selecting"))
        await a.ask()
        roles = [message["role"] for message in await a.messages()]
        assert roles == ["user", "assistant", *["tool"] * 3, *["system"] * 3, "assistant"]
        texts = [message["content"] for message in await a.messages() if message["role"] == "system"]
        assert texts == ["from selecting", "from pre", "from post"]
        marked = (await a.messages())[5]["metadata"]
        assert (marked["source"], marked["event"]) == ("hook", "tool:selecting")


async def test_several_hooks_injections_are_each_kept_with_their_own_role(agent: Any) -> None:
    async with agent([{"text": "ok"}]) as a:
        a.on("prompt:submit", ephemeral("one", context_injection_role="user"))
        a.on("prompt:submit", ephemeral("two"))
        a.on("prompt:submit", inject("three"))
        await a.ask()
        sent = [(m.role, m.content) for m in a.requests[0].messages]
        assert sent == [("system", "three"), ("user", "hello"), ("user", "one"), ("system", "two")]


async def test_an_injection_too_large_for_the_session_does_not_end_the_turn(agent: Any) -> None:
    plan = {
        "session": {"orchestrator": "loop-events", "context": "context-simple", "injection_size_limit": 5},
        "providers": [{"module": "provider-scripted", "config": {"turns": [{"text": "ok"}]}}],
    }
    async with agent(plan=plan) as a:
        a.on("prompt:submit", inject("far too long"))
        assert await a.ask() == "ok"
        assert "far too long" not in str(await a.messages())


async def test_the_injection_budget_of_a_turn_is_fresh_in_each_turn(agent: Any) -> None:
    async with agent([{"text": "one"}, {"text": "two"}]) as a:
        for _ in range(2):
            a.on("prompt:submit", inject("x" * 40), inject("x" * 40))
        spent = []
        for _ in range(2):
            await a.ask()
            spent.append(a.session.coordinator._current_turn_injections)
        assert spent[0] == spent[1] > 0


async def test_an_injection_is_not_carried_over_into_the_next_turn(agent: Any, tool: Any, calls: Any) -> None:
    async with agent([{"text": "one"}, {"text": "two"}]) as a:
        a.on("provider:response", ephemeral("too late"))
        await a.ask()
        await a.ask()
        assert "too late" not in str(a.requests[1].messages)


async def test_a_hooks_message_is_shown_to_the_user(agent: Any) -> None:
    shown: list[tuple[str, str]] = []

    class Display:
        def show_message(self, message: str, level: str, source: str = "hook") -> None:
            shown.append((message, level))

    async with agent([{"text": "ok"}], display_system=Display()) as a:
        a.on("prompt:submit", ephemeral("3 issues", user_message="Linted.", user_message_level="warning"))
        await a.ask()
        assert shown == [("Linted.", "warning")]
