"""What the user says while the agent works is in the next request, in order, once."""

from typing import Any

import pytest
from amplifier_core import HookResult
from four_loops import LOOPS
from toolgate_orchestrator.turn.hooks.steering import MAX_QUEUED, SteeringOverflow, SteeringQueue

pytestmark = pytest.mark.pure


def steer(a: Any, *texts: str) -> str:
    for text in texts:
        a.session.coordinator.get_capability("session.steer")(text)
    return "done"


def injected_of(a: Any) -> list[dict[str, Any]]:
    heard: list[dict[str, Any]] = []

    async def hear(event: str, data: dict[str, Any]) -> HookResult:
        heard.append(data)
        return HookResult()

    a.hooks.register("orchestrator:steering_injected", hear, name="test")
    return heard


def of_user(request: Any) -> list[Any]:
    return [message.content for message in request.messages if message.role == "user"]


@pytest.mark.parametrize("loop", LOOPS)
async def test_text_given_while_a_tool_runs_is_in_the_next_request_in_order_and_once(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    working = tool("work", lambda arguments: steer(a, "first", "second"))
    turns = [calls("work"), calls("rest"), {"text": "ok"}]
    async with agent(turns, tools=[working, tool("rest")], loop=loop) as a:
        heard = injected_of(a)
        assert await a.ask() == "ok"
        assert of_user(a.requests[0]) == ["hello"]
        assert of_user(a.requests[1])[:3] == ["hello", "first", "second"]
        assert [message["content"] for message in await a.messages()].count("first") == 1
        assert [message.role for message in a.requests[1].messages][:5] == [
            *("user", "assistant", "tool", "user", "user")
        ]
        assert heard == [
            {**event, "orchestrator": loop, "iteration": 2, "metadata": None}
            for event in (
                {**heard[0], "content": "first", "queued_remaining": 1},
                {**heard[1], "content": "second", "queued_remaining": 0},
            )
        ]


@pytest.mark.parametrize("loop", LOOPS)
async def test_text_given_with_the_last_answer_keeps_the_turn_going(agent: Any, loop: str) -> None:
    async with agent([{"text": "one"}, {"text": "two"}], loop=loop) as a:
        a.on("provider:response", lambda data: steer(a, "and then?") and HookResult())
        assert await a.ask() == "one\ntwo"
        assert [message["content"] for message in await a.messages() if message["role"] == "user"] == [
            "hello",
            "and then?",
        ]


async def test_text_that_comes_at_the_limit_is_in_the_last_request(agent: Any, tool: Any, calls: Any) -> None:
    working = tool("work", lambda arguments: steer(a, "hurry"))
    async with agent([calls("work"), {"text": "ok"}], tools=[working], config={"max_iterations": 1}) as a:
        await a.ask()
        assert "hurry" in of_user(a.requests[1])


async def test_text_for_one_turn_is_not_told_to_the_next(agent: Any) -> None:
    async with agent([{"text": "one"}, {"text": "two"}]) as a:
        a.on("prompt:complete", lambda data: steer(a, "too late") and HookResult())
        await a.ask()
        await a.ask("again")
        assert "too late" not in str(await a.messages())


def test_an_empty_text_is_refused_and_so_is_one_too_many() -> None:
    steering = SteeringQueue()
    for text in ("", "  ", None):
        with pytest.raises(ValueError, match="empty"):
            steering.steer(text)  # type: ignore[arg-type]
    for number in range(MAX_QUEUED):
        steering.steer(str(number))
    with pytest.raises(SteeringOverflow, match="100 texts wait"):
        steering.steer("more")
