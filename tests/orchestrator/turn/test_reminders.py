"""What hooks inject ephemerally: behind the prompt or before it, in one request or stored for good."""

from itertools import pairwise
from typing import Any

import pytest
from amplifier_core import HookResult
from four_loops import LOOPS

pytestmark = pytest.mark.pure


def remind(a: Any, *texts: str) -> None:
    """A hook that injects these before each request, one after another, and then the last one again."""
    left = list(texts)

    async def hook(event: str, data: dict[str, Any]) -> HookResult:
        text = left.pop(0) if len(left) > 1 else left[0]
        return HookResult(action="inject_context", context_injection=text, ephemeral=True)

    a.hooks.register("provider:request", hook, name="reminder")


def told(request: Any) -> list[str]:
    return [str(message.content) for message in request.messages]


@pytest.mark.parametrize("loop", LOOPS)
async def test_by_default_a_reminder_follows_the_prompt_and_is_not_stored(agent: Any, loop: str) -> None:
    async with agent([{"text": "ok"}], loop=loop) as a:
        remind(a, "it is Friday")
        await a.ask()
        assert told(a.requests[0])[:2] == ["hello", "it is Friday"]
        assert "Friday" not in str(await a.messages())


@pytest.mark.parametrize("loop", LOOPS)
async def test_pre_user_puts_it_before_the_prompt_of_the_turns_first_request(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    config = {"reminder_placement": "pre_user"}
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")], loop=loop, config=config) as a:
        remind(a, "it is Friday", "it is Saturday")
        await a.ask()
        assert told(a.requests[0])[:2] == ["it is Friday", "hello"]
        later = told(a.requests[1])
        assert later.index("it is Saturday") > later.index("done")
        assert "Friday" not in str(await a.messages())


@pytest.mark.parametrize("placement", ["tail", "pre_user"])
@pytest.mark.parametrize("loop", LOOPS)
async def test_persisted_reminders_leave_every_request_a_beginning_of_the_next(
    agent: Any, tool: Any, calls: Any, loop: str, placement: str
) -> None:
    config = {"ephemeral_injection_mode": "persist", "reminder_placement": placement}
    turns = [calls("a"), {"text": "one"}, calls("a"), {"text": "two"}]
    async with agent(turns, tools=[tool("a")], loop=loop, config=config) as a:
        remind(a, "it is Friday", "it is Friday", "it is Saturday")
        await a.ask()
        await a.ask("again")
        sent = [[(message.role, str(message.content)) for message in each.messages] for each in a.requests]
        notes = [message for message in sent[-1] if "loop-reactive" not in message[1]]
        if loop != "loop-reactive":  # it adds a guide to each request
            for before, after in pairwise(sent):
                assert after[: len(before)] == before
        assert ["Friday" in text for _, text in notes].count(True) == 1
        assert ["Saturday" in text for _, text in notes].count(True) == 1
        stored = await a.messages()
        first = next(index for index, message in enumerate(stored) if "Friday" in str(message))
        prompt = next(index for index, message in enumerate(stored) if message["content"] == "hello")
        assert (first < prompt) is (placement == "pre_user")
        assert stored[first]["metadata"] == {
            "ephemeral": True,
            "persisted": True,
            "reminder_placement": placement,
        }
        assert stored[first]["role"] == "user"
        assert stored[first]["content"].startswith("<system-reminders>")


async def test_the_reminder_at_the_limit_is_never_stored(agent: Any, tool: Any, calls: Any) -> None:
    config = {"ephemeral_injection_mode": "persist", "max_iterations": 1}
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")], config=config) as a:
        await a.ask()
        assert "orchestrator-loop-limit" in str(told(a.requests[1]))
        assert "orchestrator-loop-limit" not in str(await a.messages())


@pytest.mark.parametrize("config", [{"ephemeral_injection_mode": "never"}, {"reminder_placement": "first"}])
async def test_a_word_that_is_none_of_them_is_refused_by_name(agent: Any, config: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match=next(iter(config))):
        async with agent(config=config):
            pass


@pytest.mark.parametrize("loop", LOOPS)
async def test_each_injection_of_several_hooks_keeps_its_own_lifetime(agent: Any, loop: str) -> None:
    async with agent([{"text": "one"}, {"text": "two"}], loop=loop) as a:
        for name, ephemeral in (("stays", False), ("goes", True)):
            text = {"context_injection": f"this {name}", "context_injection_role": "user"}
            a.on("prompt:submit", HookResult(action="inject_context", ephemeral=ephemeral, **text), name=name)
        await a.ask()
        await a.ask("again")
        assert {"this stays", "this goes"} <= set(told(a.requests[0]))
        assert "this stays" in told(a.requests[1])
        assert "this goes" not in told(a.requests[1])
        assert "this goes" not in str(await a.messages())
