"""Every call has exactly one result, whatever the LLM, the tool or the hooks do."""

import asyncio
import json
from decimal import Decimal
from typing import Any

import pytest
from amplifier_core import ChatResponse, HookResult, TextBlock, ToolResult
from toolgate_orchestrator.turn.values.messages import calls_in

pytestmark = pytest.mark.pure


def shape(messages: list[dict[str, Any]]) -> list[str]:
    """Roles, with the call ids of results."""
    return [f"tool:{m['tool_call_id']}" if m["role"] == "tool" else m["role"] for m in messages]


async def test_a_tool_that_raises_gives_a_result_and_a_tool_error(agent: Any, tool: Any, calls: Any) -> None:
    def fail(_: dict[str, Any]) -> Any:
        raise ValueError("no such file")

    async with agent([calls("a", "b"), {"text": "ok"}], tools=[tool("a", fail), tool("b")]) as a:
        assert await a.ask() == "ok"
        assert await a.results() == ["Error: ValueError: no such file", "done"]
        error = a.told("tool:error")[0]
        assert error["error"] == {"type": "ValueError", "msg": "no such file"}
        assert (error["tool_name"], error["tool_call_id"]) == ("a", "c1")
        assert a.told("tool:pre")[0]["parallel_group_id"] == error["parallel_group_id"]


async def test_an_unknown_tool_is_told_which_tools_there_are(agent: Any, tool: Any, calls: Any) -> None:
    async with agent([calls("nope"), {"text": "ok"}], tools=[tool("a"), tool("b")]) as a:
        assert await a.ask() == "ok"
        assert "'nope'; there are: a, b" in (await a.results())[0]
        assert a.told("tool:error")[0]["error"]["type"] == "UnknownTool"


async def test_a_tool_that_says_it_failed_is_a_result_like_any_other(
    agent: Any, tool: Any, calls: Any
) -> None:
    failed = ToolResult(success=False, error={"message": "quota"})
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a", lambda _: failed)]) as a:
        await a.ask()
        assert await a.results() == ["quota"]
        assert a.told("tool:post")[0]["result"]["success"] is False


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ({"b": 1, "a": [1, 2]}, '{"b": 1, "a": [1, 2]}'),
        ("ünïcode\ttext\n", "ünïcode\ttext\n"),
        (["x", None], '["x", null]'),
        (None, "Success"),
        ({"price": Decimal("9.90")}, '{"price": "9.90"}'),
        (float("nan"), "nan"),
        ({"n": float("inf")}, '{"n": Infinity}'),
        ({1: "int key"}, '{"1": "int key"}'),
        ({"t": (1, 2)}, '{"t": [1, 2]}'),
        ("half \ud800 a pair", "half  a pair"),
        ({"o": object}, None),
    ],
    ids=str,
)
async def test_the_llm_gets_the_tools_own_serialization_with_or_without_hooks(
    agent: Any, tool: Any, calls: Any, output: Any, text: str | None
) -> None:
    for deaf in (True, False):
        result = ToolResult(success=True, output=output)
        async with agent(
            [calls("a"), {"text": "ok"}], tools=[tool("a", lambda _, r=result: r)], deaf=deaf
        ) as a:
            assert await a.ask() == "ok"
            (stored,) = await a.results()
            assert stored == (result.get_serialized_output() if text is not None else stored)
            assert stored == text or text is None


@pytest.mark.parametrize("output", [list(range(200_000)), ["x" * 3_500_000]], ids=["values", "characters"])
async def test_a_large_result_of_which_hooks_get_the_beginning_is_told_whole(
    agent: Any, tool: Any, calls: Any, output: Any
) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a", lambda _: output)]) as a:
        await a.ask()
        assert await a.results() == [json.dumps(output)]
        (told,) = a.told("tool:post")
        assert told["result"]["output"][:100] == output[:100]


async def test_a_hook_that_changes_the_result_changes_what_the_llm_is_told(
    agent: Any, tool: Any, calls: Any
) -> None:
    changes: list[Any] = [
        {"result": {"modified": True}},
        {"result": "short"},
        {"result": {"success": True, "output": [1], "error": None}},
    ]
    for change, expected in zip(changes, ['{"modified": true}', "short", "[1]"], strict=True):
        async with agent([calls("a"), {"text": "ok"}], tools=[tool("a", lambda _: "x" * 99)]) as a:
            a.on("tool:post", HookResult(action="modify", data=change))
            await a.ask()
            assert await a.results() == [expected]


async def test_a_hook_on_tool_pre_can_deny_and_change(agent: Any, tool: Any, calls: Any) -> None:
    async with agent([calls("a", ("a", {"n": 1})), {"text": "ok"}], tools=[tool("a")]) as a:
        deny = HookResult(action="deny", reason="read only")
        a.on(
            "tool:pre", deny, lambda data: HookResult(action="modify", data={**data, "tool_input": {"n": 2}})
        )
        await a.ask()
        assert a.tools["a"].calls == [{"n": 2}]
        assert ["read only" in result for result in await a.results()] == [True, False]


async def test_tool_pre_is_honoured_without_a_coordinator(tool: Any) -> None:
    from amplifier_core import HookRegistry
    from amplifier_core.testing import MockContextManager
    from toolgate_orchestrator.loops.events import LoopEvents
    from toolgate_orchestrator.modules.provider_scripted import ProviderScripted

    turns = [{"tool_calls": [{"name": "a"}, {"name": "a"}]}, {"text": "ok"}]
    answers = [HookResult(action="deny", reason="no"), HookResult(action="ask_user", approval_prompt="?")]

    async def hook(event: str, data: dict[str, Any]) -> HookResult:
        return answers.pop(0)

    hooks, context, spy = HookRegistry(), MockContextManager(), tool("a")
    hooks.register("tool:pre", hook)
    await LoopEvents({}).execute("hi", context, {"p": ProviderScripted({"turns": turns})}, {"a": spy}, hooks)
    assert spy.calls == []
    results = [message["content"] for message in context.messages if message["role"] == "tool"]
    assert ["no" in results[0], "nobody is there to ask" in results[1]] == [True, True]


async def test_an_assistant_message_is_stored_with_its_calls_in_both_places_where_providers_look(
    agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls(("a", {"n": 1}), text="let me see"), {"text": "ok"}], tools=[tool("a")]) as a:
        await a.ask()
        stored = (await a.messages())[1]
        assert stored["tool_calls"] == [{"id": "c1", "tool": "a", "arguments": {"n": 1}}]
        assert stored["content"] == [
            {"type": "text", "text": "let me see"},
            {"type": "tool_call", "id": "c1", "name": "a", "input": {"n": 1}},
        ]
        assert shape(await a.messages()) == ["user", "assistant", "tool:c1", "assistant"]
        sent = a.requests[1].messages
        assert [message.role for message in sent] == ["user", "assistant", "tool"]
        assert (sent[2].tool_call_id, sent[2].name) == ("c1", "a")


async def test_a_tool_that_scribbles_on_its_arguments_does_not_change_the_conversation(
    agent: Any, tool: Any, calls: Any
) -> None:
    def scribble(arguments: dict[str, Any]) -> str:
        arguments["list"].append("oops")
        return "done"

    async with agent([calls(("a", {"list": []})), {"text": "ok"}], tools=[tool("a", scribble)]) as a:
        await a.ask()
        assert (await a.messages())[1]["tool_calls"][0]["arguments"] == {"list": []}


async def test_a_tool_that_cancels_itself_does_not_end_the_turn(agent: Any, tool: Any, calls: Any) -> None:
    async def suicidal(_: dict[str, Any]) -> str:
        raise asyncio.CancelledError

    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a", suicidal)]) as a:
        assert await a.ask() == "ok"
        assert "cancelled itself" in (await a.results())[0]


async def test_tools_that_answer_plainly_or_synchronously_are_understood(agent: Any, calls: Any) -> None:
    class Plain:
        name = "plain"
        description = "no ToolResult, no coroutine"

        def execute(self, arguments: dict[str, Any]) -> Any:
            return {"n": 1}

    async with agent([calls("plain"), {"text": "ok"}]) as a:
        await a.session.coordinator.mount("tools", Plain(), name="plain")
        assert await a.ask() == "ok"
        assert await a.results() == ['{"n": 1}']


def test_arguments_in_any_form_become_an_object_or_a_named_problem() -> None:
    def arguments(raw: Any) -> Any:
        (call,) = calls_in([{"id": "x", "name": "t", "arguments": raw}])
        return call.problem or call.arguments

    assert arguments(None) == arguments("") == arguments({}) == arguments("{}") == {}
    assert arguments('{"a": 1}') == {"a": 1}
    assert "not valid JSON" in arguments("{bad")
    assert "not valid JSON" in arguments("[" * 100_000)
    assert "must be a JSON object, not list" in arguments([1])
    assert "must be a JSON object, not int" in arguments("5")


def test_ids_are_made_where_they_are_missing_and_made_unique_where_they_repeat() -> None:
    raw: list[dict[str, Any]] = [{"id": i, "name": "t", "arguments": {}} for i in ("a", "a", None, "", "a")]
    ids = [call.id for call in calls_in(raw)]
    assert len(set(ids)) == 5
    assert ids[0] == "a"


async def test_bad_calls_never_crash_and_have_their_results(agent: Any, tool: Any) -> None:
    class Odd:
        name = "odd"

        def __init__(self) -> None:
            bad = [
                {"id": "1", "name": "a", "arguments": "{bad"},
                {"id": "1", "name": "a", "arguments": None},
                {"id": None, "name": None, "arguments": {}},
                {"name": "a", "arguments": [1]},
            ]
            self.left = [bad, []]

        async def complete(self, request: Any, **kwargs: Any) -> ChatResponse:
            return ChatResponse(content=[TextBlock(text="x")])

        def parse_tool_calls(self, response: Any) -> list[Any]:
            return self.left.pop(0)

    async with agent(tools=[tool("a")]) as a:
        await a.session.coordinator.mount("providers", Odd(), name="scripted")
        assert await a.ask() == "x"
        messages = await a.messages()
        ids = [call["id"] for call in messages[1]["tool_calls"]]
        assert shape(messages) == ["user", "assistant", *(f"tool:{each}" for each in ids), "assistant"]
        assert len(set(ids)) == 4
        assert a.tools["a"].calls == [{}]


async def test_a_provider_that_cancels_itself_has_failed(agent: Any) -> None:
    class Suicidal:
        name = "bad"

        async def complete(self, request: Any, **kwargs: Any) -> ChatResponse:
            raise asyncio.CancelledError

    async with agent() as a:
        await a.session.coordinator.mount("providers", Suicidal(), name="scripted")
        assert "cancelled its own request" in await a.ask()
        assert a.told("execution:end")[0]["status"] == "error"


async def test_a_provider_whose_calls_cannot_be_parsed_has_failed(agent: Any) -> None:
    class Unparsable:
        name = "bad"

        async def complete(self, request: Any, **kwargs: Any) -> ChatResponse:
            return ChatResponse(content=[TextBlock(text="x")])

        def parse_tool_calls(self, response: Any) -> list[Any]:
            raise ValueError("tool call is cut off")

    async with agent() as a:
        await a.session.coordinator.mount("providers", Unparsable(), name="scripted")
        assert "cut off" in await a.ask()
        assert a.told("provider:error")[0]["error"]["type"] == "ValueError"
        assert shape(await a.messages()) == ["user", "assistant"]
