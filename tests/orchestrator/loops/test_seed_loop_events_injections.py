"""Seed loop-events, sentence by sentence: what hooks inject for the next request, with its own samples."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from amplifier_core import HookResult

pytestmark = pytest.mark.pure

Hook = Callable[[str, dict[str, Any]], Awaitable[HookResult]]


def from_prompt_submit(role: str) -> Hook:
    async def my_hook(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(
            action="inject_context",
            ephemeral=True,  # Not stored in context
            context_injection="Additional context for this turn only",
            context_injection_role=role,  # "system" or "user"
        )

    return my_hook


async def from_tool_post(event: str, data: dict[str, Any]) -> HookResult:
    return HookResult(
        action="inject_context",
        ephemeral=True,
        context_injection="Tool execution note",
        context_injection_role="system",
        append_to_last_tool_result=True,  # Append to last tool result
    )


@pytest.mark.parametrize("role", ["system", "user"])
async def test_the_sample_from_prompt_submit_appears_in_the_next_request_with_its_role(
    agent: Any, role: str
) -> None:
    async with agent([{"text": "ok"}]) as a:
        a.hooks.register("prompt:submit", from_prompt_submit(role), name="sample")
        await a.ask()
        last = a.requests[0].messages[-1]
        assert (last.role, last.content) == (role, "Additional context for this turn only")


async def test_the_sample_from_tool_post_is_appended_to_the_last_tool_result(
    agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls("a", "b"), {"text": "ok"}], tools=map(tool, "ab")) as a:
        a.hooks.register("tool:post", from_tool_post, name="sample")
        await a.ask()
        sent = [message.content for message in a.requests[1].messages if message.role == "tool"]
        assert sent == ["done", "done\n\nTool execution note\n\nTool execution note"]


async def test_an_ephemeral_injection_is_not_stored_in_the_context(agent: Any, tool: Any, calls: Any) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")]) as a:
        a.hooks.register("prompt:submit", from_prompt_submit("system"), name="prompt")
        a.hooks.register("tool:post", from_tool_post, name="post")
        await a.ask()
        assert "Additional context" in str(a.requests[0].messages)
        assert "execution note" in str(a.requests[1].messages)
        assert "Additional context" not in str(await a.messages())
        assert await a.results() == ["done"]


async def test_an_ephemeral_injection_is_cleared_after_use(agent: Any, tool: Any, calls: Any) -> None:
    async with agent([calls("a"), {"text": "ok"}, {"text": "ok"}], tools=[tool("a")]) as a:
        once = await from_prompt_submit("user")("prompt:submit", {})
        a.on("prompt:submit", once)
        await a.ask()
        await a.ask()
        assert ["Additional context" in str(each.messages) for each in a.requests] == [True, False, False]


async def test_an_ephemeral_injection_is_cleared_after_each_iteration(
    agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls("a"), calls("a"), {"text": "ok"}], tools=[tool("a")]) as a:
        notes = iter(["first note", "second note"])
        for _ in range(2):
            a.on(
                "tool:post",
                lambda _: HookResult(
                    action="inject_context", ephemeral=True, context_injection=next(notes, None)
                ),
            )
        await a.ask()
        sent = [str(request.messages) for request in a.requests]
        assert ["first note" in each for each in sent] == [False, True, False]
        assert ["second note" in each for each in sent] == [False, True, False]


@pytest.mark.parametrize(
    "event", ["prompt:submit", "provider:request", "tool:pre", "tool:post", "tool:selecting"]
)
async def test_ephemeral_injection_is_there_wherever_a_hook_is_asked(
    agent: Any, tool: Any, calls: Any, event: str
) -> None:
    async with agent([calls("a"), calls("a"), {"text": "ok"}], tools=[tool("a")]) as a:
        a.on(event, HookResult(action="inject_context", ephemeral=True, context_injection="mind this"))
        await a.ask()
        assert sum("mind this" in str(request.messages) for request in a.requests) == 1
        assert "mind this" not in str(await a.messages())
        assert len(a.tools["a"].calls) == 2
