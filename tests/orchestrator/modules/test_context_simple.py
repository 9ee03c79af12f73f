"""context-simple: the budget, the events, and a history that stays as it was."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from amplifier_core import HookRegistry, HookResult, ProviderInfo
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator.modules.compaction import estimate_tokens
from toolgate_orchestrator.modules.context_simple import ContextSimple, budget_of

pytestmark = pytest.mark.pure


class Model:
    """A provider that says how large its model's window is."""

    def __init__(self, **defaults: Any) -> None:
        self.defaults = defaults

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id="m", display_name="M", defaults=self.defaults)


def message(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def test_the_budget_is_as_asked_else_what_the_model_has_room_for_else_as_configured() -> None:
    model = Model(context_window=50_000, max_output_tokens=8_000)
    assert budget_of(123, model, 999) == 123
    assert budget_of(None, model, None) == 50_000 - 8_000 - 1_000
    assert budget_of(None, model, 10_000) == 10_000
    assert budget_of(None, None, 10_000) == 10_000
    assert budget_of(None, Model(), None) == budget_of(None, object(), None) == 100_000


def test_a_provider_that_fails_to_describe_itself_does_no_harm() -> None:
    class Broken:
        def get_info(self) -> Any:
            raise RuntimeError("no network")

    assert budget_of(None, Broken(), 5_000) == 5_000
    assert budget_of(None, Model(context_window="big"), 5_000) == 5_000


async def test_what_is_sent_is_compacted_and_what_is_stored_is_not() -> None:
    context = ContextSimple({"max_tokens": 500})
    given = [message(f"{n}" * 400) for n in range(10)]
    for each in given:
        await context.add_message(each)
    sent = await context.get_messages_for_request()
    assert len(sent) < 10
    assert estimate_tokens(sent) <= 500 * 0.92
    assert [untimed(each) for each in await context.get_messages()] == given


async def test_requests_after_a_compaction_begin_with_what_was_sent_then() -> None:
    context = ContextSimple({"max_tokens": 1000})
    for n in range(10):
        await context.add_message(message(f"{n}" * 400))
    first = await context.get_messages_for_request()
    assert estimate_tokens(first) <= 1000 * 0.92 / 2
    await context.add_message(message("more"))
    assert await context.get_messages_for_request() == [*first, message("more")]
    await context.set_messages([message("new")])
    assert await context.get_messages_for_request() == [message("new")]


def thought(text: str, *calls: str) -> dict[str, Any]:
    block = {"type": "thinking", "thinking": text, "signature": text}
    asked = [{"id": call, "tool": "a", "arguments": {}} for call in calls]
    content = [block, {"type": "text", "text": "x" * 900}]
    made = {"role": "assistant", "content": content, "thinking_block": block}
    return {**made, "tool_calls": asked} if asked else made


@pytest.mark.parametrize("keeps", [True, False])
async def test_only_calls_whose_results_come_keep_a_thought_behind_a_gap_and_until_the_next_answer(
    keeps: bool,
) -> None:
    context = ContextSimple({"max_tokens": 800, "keep_history": keeps})
    talk = [message("task"), thought("one"), message("more"), thought("two"), message("last")]
    result = {"role": "tool", "tool_call_id": "c1", "content": "done"}
    for each in (*talk, thought("three", "c1"), result, message("note"), thought("four", "c2")):
        await context.add_message(each)
    await context.add_message({**result, "tool_call_id": "c2"})
    sent = [str(await context.get_messages_for_request()) for _ in range(2)]
    assert sent[0] == sent[1]
    assert [f"'{name}'" in sent[0] for name in ("one", "two", "three", "four")] == [False] * 3 + [True]
    await context.add_message(thought("five"))
    then = str(await context.get_messages_for_request())
    assert ("'four'" in then, "'five'" in then) == (False, True)


async def test_the_history_can_be_compacted_as_well() -> None:
    context = ContextSimple({"max_tokens": 500, "keep_history": False})
    await context.set_messages([message(f"{n}" * 400) for n in range(10)])
    assert await context.get_messages_for_request() == await context.get_messages()


async def test_compaction_can_be_switched_off() -> None:
    context = ContextSimple({"max_tokens": 500, "auto_compact": False})
    await context.set_messages([message("x" * 10_000)])
    assert len(await context.get_messages_for_request()) == 1
    assert len((await context.get_messages_for_request())[0]["content"]) == 10_000


async def test_compaction_tells_the_kernels_events_what_it_did() -> None:
    heard: list[tuple[str, dict[str, Any]]] = []

    async def listen(event: str, data: dict[str, Any]) -> HookResult:
        heard.append((event, data))
        return HookResult()

    hooks = HookRegistry()
    for event in ("context:pre_compact", "context:post_compact", "context:compaction"):
        hooks.register(event, listen)
    context = ContextSimple({"max_tokens": 500}, hooks)
    await context.set_messages([message("x" * 100)])
    await context.get_messages_for_request()
    assert heard == []
    await context.set_messages([message(f"{n}" * 400) for n in range(10)])
    sent = await context.get_messages_for_request()
    assert [event for event, _ in heard] == [
        "context:pre_compact",
        "context:post_compact",
        "context:compaction",
    ]
    assert heard[0][1]["message_count"] == 10
    assert heard[1][1]["message_count"] == len(sent)
    assert heard[1][1]["removed"] == 10 - len(sent)
    assert heard[1][1]["tokens"] <= heard[1][1]["budget"] < heard[0][1]["tokens"]


async def test_callers_get_copies() -> None:
    context = ContextSimple()
    await context.add_message(message("kept"))
    (await context.get_messages())[0]["content"] = "changed"
    (await context.get_messages_for_request())[0]["content"] = "changed"
    assert [untimed(each) for each in await context.get_messages()] == [message("kept")]
    await context.clear()
    assert await context.get_messages() == []


def untimed(stored: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in stored.items() if key != "metadata"}


async def test_a_stored_message_tells_when_it_came_and_the_one_that_is_sent_does_not() -> None:
    context = ContextSimple()
    told = {"timestamp": "2026-02-06T10:00:00.123+00:00", "kind": "note"}
    before = datetime.now(UTC)
    await context.add_message(message("new"))
    await context.add_message(message("old") | {"metadata": told})
    new, old = await context.get_messages()
    stamp = datetime.fromisoformat(new["metadata"]["timestamp"])
    assert timedelta(seconds=-1) < stamp - before < timedelta(seconds=5)
    assert old["metadata"] == told
    sent = await context.get_messages_for_request()
    assert sent == [message("new"), message("old") | {"metadata": {"kind": "note"}}]


async def test_a_factory_is_asked_for_the_system_prompt_of_each_request() -> None:
    context, asked = ContextSimple({"max_tokens": 500, "keep_history": False}), []

    async def prompt() -> str:
        asked.append(1)
        return f"prompt {len(asked)}"

    await context.add_message(message("stored", "system"))
    by_hook = message("by a hook", "system") | {"metadata": {"source": "hook"}}
    await context.add_message(by_hook)
    await context.add_message(message("hello"))
    await context.set_system_prompt_factory(prompt)
    for number in (1, 2):
        texts = [each["content"] for each in await context.get_messages_for_request()]
        assert texts == [f"prompt {number}", "by a hook", "hello"]
    for number in range(10):
        await context.add_message(message(f"{number}" * 400))
    for number in (3, 4):  # compacted, and the history with it
        systems = [each for each in await context.get_messages_for_request() if each["role"] == "system"]
        assert [each["content"] for each in systems] == [f"prompt {number}", "by a hook"]


async def test_a_factory_that_gives_no_text_is_an_error_that_says_so() -> None:
    async def prompt() -> Any:
        return 7

    context = ContextSimple()
    await context.set_system_prompt_factory(prompt)
    with pytest.raises(ValueError, match="gave int instead of a text"):
        await context.get_messages_for_request()


async def test_a_message_without_a_role_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a role"):
        await ContextSimple().add_message({"content": "?"})


def test_a_wrong_option_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"max_token: unknown key; .*; did you mean max_tokens"):
        ContextSimple({"max_token": 1})
    with pytest.raises(ConfigError, match="compact_threshold"):
        ContextSimple({"compact_threshold": 2})


async def test_a_long_session_keeps_within_the_models_window(agent: Any, tool: Any, calls: Any) -> None:
    turns = [*[calls("log")] * 30, {"text": "done"}]
    provider = {"turns": turns, "context_window": 6_000, "max_output_tokens": 1_000}
    plan = {"providers": [{"module": "provider-scripted", "config": provider}]}
    async with agent(tools=[tool("log", lambda _: "line " * 300)], plan=plan) as a:
        assert await a.ask() == "done"
        sizes = [sum(len(str(m.content)) for m in request.messages) // 4 for request in a.requests]
        assert max(sizes) <= 4_000
        assert len(a.requests[-1].messages) < len(await a.messages())
        assert a.names("context:pre_compact") != []
