"""The seed loop-basic, sentence by sentence: the loop, its limit, its errors, its notes.

What the page says of itself and of loop-streaming alike is shown for both. Tools are in
test_seed_loop_basic_tools.py, events in test_seed_loop_basic_events.py, YAML in test_seed_plans.py.
"""

from typing import Any

import pytest
from amplifier_core import LLMError
from four_loops import LOOPS

pytestmark = pytest.mark.pure

each_loop = pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming"])
every_loop = pytest.mark.parametrize("loop", LOOPS)
all_but_reactive = pytest.mark.parametrize("loop", LOOPS[:3])

REMINDER = """\
<system-reminder source="orchestrator-loop-limit">
You have reached the maximum number of iterations for this turn.
Please provide a response to the user now, summarizing your progress
and noting what remains to be done. You can continue in the next turn
if needed.

DO NOT mention this iteration limit or reminder to the user explicitly.
Simply wrap up naturally.
</system-reminder>"""
"""The seed's example, word for word."""


# ------------------------------------------------------------------ overview and the standard loop


@all_but_reactive
async def test_it_receives_a_prompt_gets_a_completion_executes_calls_and_repeats_until_the_final_response(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    turns = [calls("look"), calls("look", "look"), {"text": "found it"}]
    async with agent(turns, tools=[tool("look", lambda _: "a clue")], loop=loop) as a:
        assert await a.ask("find it") == "found it"
        assert [[m.role for m in request.messages] for request in a.requests] == [
            ["user"],
            ["user", "assistant", "tool"],
            ["user", "assistant", "tool", "assistant", "tool", "tool"],
        ]
        assert len(a.tools["look"].calls) == 3


@each_loop
async def test_each_iteration_gets_its_messages_from_the_context(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    async with agent([calls("forget"), {"text": "ok"}], tools=[tool("forget")], loop=loop) as a:
        context = a.session.coordinator.get("context")
        await context.add_message({"role": "user", "content": "from long ago"})

        async def forget(_: dict[str, Any]) -> str:
            kept = [m for m in await context.get_messages() if m["content"] != "from long ago"]
            await context.set_messages(kept)
            return "forgotten"

        a.tools["forget"].answer = forget
        await a.ask("hello")
        assert [m.content for m in a.requests[0].messages] == ["from long ago", "hello"]
        assert [m.role for m in a.requests[1].messages] == ["user", "assistant", "tool"]


@pytest.mark.parametrize(("loop", "whole"), [("loop-basic", True), ("loop-streaming", False)])
async def test_the_provider_is_called_with_messages_and_tools(
    agent: Any, tool: Any, llm: Any, loop: str, whole: bool
) -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    async with agent(tools=[tool("read", input_schema=schema)], loop=loop, llm=llm(whole=whole)) as a:
        await a.ask("hello")
        (request,) = a.requests
        assert [(m.role, m.content) for m in request.messages] == [("user", "hello")]
        assert [(t.name, t.description, t.parameters) for t in request.tools] == [
            ("read", "The tool read", schema)
        ]


@each_loop
async def test_a_response_without_tool_calls_is_returned(agent: Any, tool: Any, loop: str) -> None:
    async with agent([{"text": "at once"}, {"text": "too far"}], tools=[tool("a")], loop=loop) as a:
        assert await a.ask() == "at once"
        assert len(a.requests) == 1
        assert a.tools["a"].calls == []


# ------------------------------------------------------------------ the iteration limit


@every_loop
async def test_at_the_limit_a_system_reminder_is_injected_and_a_final_response_requested(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    turns = [calls("step"), calls("step"), {"text": "two steps done, one remains"}]
    async with agent(turns, tools=[tool("step")], loop=loop, config={"max_iterations": 2}) as a:
        assert await a.ask() == "two steps done, one remains"
        last = a.requests[2].messages[-1]
        assert (last.role, last.content) == ("user", REMINDER)
        assert a.requests[2].tool_choice == "none"
        told = [REMINDER in [message.content for message in request.messages] for request in a.requests]
        assert told == [False, False, True]
        assert "system-reminder" not in str(await a.messages())


@every_loop
@pytest.mark.parametrize("final", ["what I have", ""])
async def test_whatever_the_agent_provides_at_the_limit_is_returned(
    agent: Any, tool: Any, calls: Any, loop: str, final: str
) -> None:
    turns = [calls("step"), {**calls("step"), "text": final}, {"text": "never"}]
    async with agent(turns, tools=[tool("step")], loop=loop, config={"max_iterations": 1}) as a:
        assert await a.ask() == final
        assert len(a.tools["step"].calls) == 1
        assert len(a.requests) == 2


@every_loop
async def test_an_iteration_limit_prevents_infinite_loops(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    endless = [calls("again")] * 100
    async with agent(endless, tools=[tool("again")], loop=loop, config={"max_iterations": 20}) as a:
        await a.ask()
        assert len(a.tools["again"].calls) == 20
        assert len(a.requests) == 21


@every_loop
async def test_a_final_response_within_the_limit_needs_no_reminder(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    turns = [calls("step"), {"text": "done"}]
    async with agent(turns, tools=[tool("step")], loop=loop, config={"max_iterations": 2}) as a:
        assert await a.ask() == "done"
        assert "system-reminder" not in str(a.requests)
        assert a.told("orchestrator:complete")[0]["status"] == "success"


@every_loop
async def test_max_iterations_is_minus_one_by_default_which_is_unlimited(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    async with agent([*[calls("step")] * 60, {"text": "done"}], tools=[tool("step")], loop=loop) as a:
        assert a.session.coordinator.get("orchestrator").settings.max_iterations == -1
        assert await a.ask() == "done"
        assert len(a.tools["step"].calls) == 60


# ------------------------------------------------------------------ extended thinking


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("config", "options"), [({}, {}), ({"extended_thinking": True}, {"extended_thinking": True})]
)
@all_but_reactive
async def test_extended_thinking_true_passes_a_flag_to_the_provider(
    agent: Any, llm: Any, loop: str, config: dict[str, Any], options: dict[str, Any], whole: bool
) -> None:
    thinking = llm(whole=whole)
    async with agent(llm=thinking, loop=loop, config=config) as a:
        await a.ask()
        assert thinking.options == [options]


@each_loop
async def test_a_provider_that_does_not_think_ignores_the_flag(agent: Any, loop: str) -> None:
    async with agent([{"text": "quick"}], loop=loop, config={"extended_thinking": True}) as a:
        assert await a.ask() == "quick"


@each_loop
async def test_thinking_blocks_of_a_provider_that_thinks_stay_in_the_conversation(
    agent: Any, llm: Any, says: Any, loop: str
) -> None:
    thinking = {"type": "thinking.delta", "text": "hm, two"}
    async with agent(llm=llm([thinking, says("2")]), loop=loop, config={"extended_thinking": True}) as a:
        assert await a.ask("1+1?") == "2"
        kinds = [block["type"] for block in (await a.messages())[-1]["content"]]
        assert kinds == ["thinking", "text"]


# ------------------------------------------------------------------ errors


@each_loop
async def test_a_provider_error_is_emitted_then_raised_and_exits_the_loop(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    turns = [calls("a"), {"error": "overloaded"}, {"text": "never"}]
    async with agent(turns, tools=[tool("a")], loop=loop) as a:
        with pytest.raises(RuntimeError, match="overloaded"):
            await a.ask()
        assert [data["error"]["msg"] for data in a.told("provider:error")] == ["overloaded"]
        assert len(a.requests) == 2
        assert a.names()[-3:] == ["provider:error", "orchestrator:complete", "execution:end"]


@each_loop
async def test_the_providers_own_exception_is_propagated_to_the_caller(agent: Any, loop: str) -> None:
    async with agent([{"error": "overloaded"}], loop=loop) as a:
        parts = a.session.coordinator
        run = parts.get("orchestrator").execute
        with pytest.raises(LLMError, match="overloaded") as raised:
            await run("hi", parts.get("context"), parts.get("providers"), {}, parts.hooks, coordinator=parts)
        assert raised.value.provider == "scripted"


@each_loop
async def test_a_tool_error_is_emitted_added_as_its_result_and_the_loop_continues(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    def fail(_: dict[str, Any]) -> Any:
        raise RuntimeError("disk full")

    async with agent([calls("write", "read"), {"text": "I see"}], loop=loop) as a:
        for each in (tool("write", fail), tool("read", lambda _: "text")):
            await a.session.coordinator.mount("tools", each, name=each.name)
        assert await a.ask() == "I see"
        assert [data["error"]["msg"] for data in a.told("tool:error")] == ["disk full"]
        assert [m.role for m in a.requests[1].messages] == ["user", "assistant", "tool", "tool"]
        assert "disk full" in a.requests[1].messages[2].content
        assert a.requests[1].messages[3].content == "text"


# ------------------------------------------------------------------ comparison and notes


async def test_loop_basic_delivers_buffered_and_loop_streaming_streams(
    agent: Any, llm: Any, says: Any
) -> None:
    pieces = {}
    for loop in ("loop-basic", "loop-streaming"):
        speaker = llm([says("one "), says("two "), says("three")])
        async with agent(llm=speaker, loop=loop) as a:
            assert await a.ask() == "one two three"
            pieces[loop] = [data["text"] for data in a.told("content_block:delta")]
            assert speaker.closed == (1 if loop == "loop-streaming" else 0)
    assert pieces == {"loop-basic": ["one two three"], "loop-streaming": ["one ", "two ", "three"]}


@each_loop
async def test_context_compaction_is_handled_by_the_context_manager(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")], loop=loop) as a:
        asked_for: list[Any] = []
        context = a.session.coordinator.get("context")

        class Compacting:
            """Shows a summary and the last two messages, and offers no `compact`."""

            add_message, get_messages = context.add_message, context.get_messages
            set_messages, clear = context.set_messages, context.clear

            async def get_messages_for_request(
                self, token_budget: int | None = None, provider: Any | None = None
            ) -> list[dict[str, Any]]:
                asked_for.append(provider)
                return [{"role": "user", "content": "a summary"}, *(await self.get_messages())[-2:]]

        await a.session.coordinator.mount("context", Compacting())
        assert await a.ask() == "ok"
        assert [m.role for m in a.requests[1].messages] == ["user", "assistant", "tool"]
        assert a.requests[1].messages[0].content == "a summary"
        assert asked_for == [a.session.coordinator.get("providers")["scripted"]] * 2
        assert len(await a.messages()) == 4


def provider(name: str, **config: Any) -> dict[str, Any]:
    """A provider of a mount plan, mounted under this name, that says its name."""
    return {
        "module": "provider-scripted",
        "instance_id": name,
        "config": {"turns": [{"text": name}], **config},
    }


@every_loop
@pytest.mark.parametrize(
    ("providers", "chosen"),
    [
        ([provider("a", priority=30), provider("b", priority=10), provider("c", priority=20)], "b"),
        ([provider("a", priority=10), provider("b", priority=10)], "a"),
        ([provider("b"), provider("a")], "b"),
        ([provider("a"), provider("b", priority=-1)], "b"),
    ],
    ids=["lowest number", "first of equals", "first mounted", "negative"],
)
async def test_a_lower_priority_number_has_higher_precedence(
    agent: Any, loop: str, providers: list[dict[str, Any]], chosen: str
) -> None:
    async with agent(loop=loop, plan={"providers": providers}) as a:
        assert await a.ask() == chosen
        assert a.told("provider:request")[0]["provider"] == chosen
