"""How turns end, and what else they hold: whatever it was, the next request is one that the API takes."""

import asyncio
import json
from typing import Any

import pytest
from amplifier_core import HookResult, ToolResult
from four_loops import LOOPS, inject
from openai_client import forget_environment
from strict_server import Says
from wire_world import APIS, BOUND_S, open_wire

pytestmark = pytest.mark.system

LOOK = (("call_1", "look", {"at": "the door"}), ("call_2", "look", {"at": "the window"}))
PIXEL = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
ONE_EACH = [
    ("anthropic", "loop-events"),
    ("responses", "loop-streaming"),
    ("chat", "loop-basic"),
    ("own", "loop-events"),
]


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("api", APIS)
async def test_the_request_at_the_limit_is_accepted_and_forbids_calls(
    agent: Any, tool: Any, api: str, loop: str
) -> None:
    script = [Says("", LOOK, thinking="Look."), Says("So far.", LOOK, thinking="Enough."), Says("More.")]
    config = {"max_iterations": 1}
    async with open_wire(
        agent, api, loop, script, streams=True, thinks=True, tools=[tool("look")], config=config
    ) as w:
        assert await w.ask("Look around.") == "So far."
        assert w.bodies[1]["tool_choice"] in ("none", {"type": "none"})
        assert w.bodies[1]["tools"] == w.bodies[0]["tools"]
        assert await w.ask("Go on.") == "More."


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("api", APIS)
async def test_where_the_request_at_the_limit_fails_what_was_said_is_the_answer(
    agent: Any, tool: Any, api: str, loop: str
) -> None:
    script = [Says("I look.", LOOK), 500, Says("More.")]
    config = {"max_iterations": 1}
    async with open_wire(agent, api, loop, script, tools=[tool("look")], config=config, deaf=False) as w:
        assert await w.ask("Look around.") == "I look."
        assert len(w.agent.told("provider:error")) == 1
        assert (await w.agent.messages())[-1]["role"] == "assistant"
        assert await w.ask("Go on.") == "More."


@pytest.mark.parametrize("at_once", [False, True], ids=["graceful", "immediate"])
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("api", APIS)
async def test_a_cancelled_turn_is_no_obstacle_to_the_next(
    agent: Any, tool: Any, api: str, loop: str, at_once: bool
) -> None:
    may_end, began = asyncio.Event(), asyncio.Event()

    async def wait(_: dict[str, Any]) -> str:
        began.set()
        await may_end.wait()
        return "done"

    script = [Says("I look.", LOOK, thinking="Look."), Says("Yes.")]
    async with open_wire(agent, api, loop, script, thinks=True, tools=[tool("look", wait)]) as w:
        token = w.agent.session.coordinator.cancellation
        turn = asyncio.ensure_future(w.agent.ask("Look around."))
        await asyncio.wait_for(began.wait(), BOUND_S)
        if at_once:
            token.request_immediate()
        else:
            token.request_graceful()
            may_end.set()
        await asyncio.wait({turn}, timeout=BOUND_S)
        assert turn.done()
        stored = await w.agent.messages()  # loop-reactive's notes stay, as the LLM thinks
        roles = [one["role"] for one in stored if "loop_note" not in one.get("metadata", {})]
        assert roles == ["user", "assistant", "tool", "tool", "assistant"]
        token.reset()
        assert await w.ask("Are you there?") == "Yes."


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("api", APIS)
async def test_a_turn_that_failed_is_no_obstacle_to_the_next(
    agent: Any, tool: Any, api: str, loop: str
) -> None:
    script = [Says("I look.", LOOK), 500, Says("Yes.")]
    async with open_wire(agent, api, loop, script, tools=[tool("look")]) as w:
        turn = asyncio.ensure_future(w.agent.ask("Look around."))
        await asyncio.wait({turn}, timeout=BOUND_S)
        assert (turn.exception() is None) == (loop == "loop-events")
        assert (await w.agent.messages())[-1]["role"] == "assistant"
        assert await w.ask("Are you there?") == "Yes."


@pytest.mark.parametrize(("api", "loop"), ONE_EACH)
async def test_images_of_results_reach_the_llm(agent: Any, tool: Any, api: str, loop: str) -> None:
    def shoot(_: dict[str, Any]) -> ToolResult:
        image = {"type": "image", "source": PIXEL}
        return ToolResult(success=True, output="A door.", content=[image])

    script = [Says("", LOOK), Says("I see."), Says("A door.")]
    async with open_wire(agent, api, loop, script, tools=[tool("look", shoot)]) as w:
        assert await w.ask("What is there?") == "I see."
        assert json.dumps(w.bodies[1]).count(PIXEL["data"]) == 2
        assert await w.ask("Where?") == "A door."
        assert json.dumps(w.bodies[2]).count(PIXEL["data"]) == 2


@pytest.mark.parametrize("loop", LOOPS)
async def test_redacted_thinking_goes_back_as_it_came(agent: Any, tool: Any, loop: str) -> None:
    script = [Says("", LOOK, redacted="Secret."), Says("Shut."), Says("Yes.")]
    async with open_wire(
        agent, "anthropic", loop, script, streams=True, thinks=True, tools=[tool("look")]
    ) as w:
        assert await w.ask("Is it shut?") == "Shut."
        said = next(one for one in w.bodies[1]["messages"] if one["role"] == "assistant")
        assert said["content"][0]["type"] == "redacted_thinking"
        assert await w.ask("Sure?") == "Yes."


@pytest.mark.parametrize("api", APIS)
async def test_an_answer_that_says_nothing_is_no_obstacle_to_the_next(agent: Any, api: str) -> None:
    script = [Says(thinking="Nothing to say."), Says("Yes.")]
    async with open_wire(agent, api, "loop-events", script, thinks=True) as w:
        assert await w.ask("Hello?") == ""
        assert await w.ask("Are you there?") == "Yes."


@pytest.mark.parametrize("loop", LOOPS)
async def test_reminders_leave_what_was_cached_as_it_is(agent: Any, tool: Any, loop: str) -> None:
    """Up to where the cache was marked, the next request is the same."""
    script = [Says("", LOOK), Says("", (("call_3", "look", {}),)), Says("Shut."), Says("Yes.")]
    async with open_wire(agent, "anthropic", loop, script, tools=[tool("look")]) as w:

        async def remind(_: str, data: dict[str, Any]) -> HookResult:
            text = f"<system-reminder>Request {data['iteration']}</system-reminder>"
            return inject(text, ephemeral=True, context_injection_role="user")

        w.agent.hooks.register("provider:request", remind, name="clock")
        await w.ask("Is it shut?")
        await w.ask("Sure?")
        for body, following in zip(w.bodies, w.bodies[1:], strict=False):
            cached, sent = cached_part(body), flat(following)
            assert "system-reminder" not in str(cached)
            assert cached == sent[: len(cached)]
            assert (body["tools"], body.get("system")) == (following["tools"], following.get("system"))


def flat(body: Any) -> list[Any]:
    """The blocks of all messages, each with its role."""
    blocks: list[Any] = []
    for message in body["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            kept = {key: block[key] for key in block if key != "cache_control"}
            blocks += [(message["role"], kept)]
    return blocks


def cached_part(body: Any) -> list[Any]:
    """The blocks up to the last mark for the cache."""
    marks = [
        "cache_control" in block
        for message in body["messages"]
        for block in (message["content"] if isinstance(message["content"], list) else [{}])
    ]
    return flat(body)[: len(marks) - marks[::-1].index(True)]
