"""Seed loop-events, sentence by sentence: configuration, the loop, thinking, limits, errors.

The schedulers are in `test_seed_loop_events_schedulers.py`, what hooks inject in
`test_seed_loop_events_injections.py`.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from amplifier_core import AmplifierSession, ChatResponse, HookResult, TextBlock, ToolCall
from amplifier_core.message_models import ThinkingBlock
from toolgate_orchestrator.commands.host.plan import Plan, read_plan

pytestmark = pytest.mark.pure

# ---------------------------------------------------------------- configuration

CONFIGURATION = """
session:
  orchestrator: loop-events

orchestrators:
  - module: loop-events
    source: git+https://github.com/microsoft/amplifier-module-loop-events@main
    config:
      max_iterations: -1              # Maximum iterations (-1 = unlimited)
      default_provider: "anthropic"   # Default provider name (optional)
      extended_thinking: false        # Enable extended thinking mode (default: false)
"""
SET_ITERATION_LIMITS = """
config:
  max_iterations: 20  # Prevent infinite loops
"""
CONFIGURE_DEFAULT_PROVIDER = """
config:
  default_provider: "anthropic"  # Explicit default
"""


def provider(name: str, *texts: str, calls: int = 0) -> dict[str, Any]:
    """A plan's provider: one that asks for a tool so many times, then says the texts."""
    call = {"tool_calls": [{"name": "step"}]}
    turns = [*[call] * calls, *({"text": text} for text in texts)]
    return {"module": "provider-scripted", "instance_id": name, "config": {"turns": turns}}


def read(path: Path, block: str, *providers: Mapping[str, Any]) -> Plan:
    """The block as it stands in the seed, with nothing but providers added."""
    file = path / "plan.yaml"
    file.write_text(block + yaml.safe_dump({"providers": list(providers)}))
    return read_plan(file)


def as_part_of_a_plan(config: str) -> str:
    """A block that is only `config:`, where the page's first block has it."""
    indented = "".join(f"    {line}\n" for line in config.strip().splitlines())
    return f"session:\n  orchestrator: loop-events\norchestrators:\n  - module: loop-events\n{indented}"


async def test_the_configuration_block_runs_as_it_stands(tmp_path: Path) -> None:
    plan = read(tmp_path, CONFIGURATION, provider("other", "not me"), provider("anthropic", "hello"))
    source = "git+https://github.com/microsoft/amplifier-module-loop-events@main"
    assert plan.notices == (f"loop-events: the installed module is used, not {source}",)
    async with AmplifierSession(plan.mount) as session:
        assert session.coordinator.get("orchestrator").name == "loop-events"
        assert await session.execute("hi") == "hello"


async def test_the_iteration_limit_of_the_best_practices_prevents_infinite_loops(tmp_path: Path) -> None:
    block = as_part_of_a_plan(SET_ITERATION_LIMITS)
    plan = read(tmp_path, block, provider("p", "twenty steps so far", calls=20))
    async with AmplifierSession(plan.mount) as session:
        sent = session.coordinator.get("providers")["p"].requests = []
        assert await session.execute("go") == "twenty steps so far"
        assert len(sent) == 21


async def test_the_default_provider_of_the_best_practices_is_explicit(tmp_path: Path) -> None:
    block = as_part_of_a_plan(CONFIGURE_DEFAULT_PROVIDER)
    plan = read(tmp_path, block, provider("first", "not me"), provider("anthropic", "me"))
    async with AmplifierSession(plan.mount) as session:
        assert await session.execute("hi") == "me"


class Whole:
    """A provider as the kernel's protocol has it: `complete` and `parse_tool_calls`, nothing more."""

    name = "whole"

    def __init__(self, *responses: ChatResponse) -> None:
        self.left = list(responses)
        self.requests: list[Any] = []
        self.parsed: list[Any] = []

    async def complete(self, request: Any, **options: Any) -> ChatResponse:
        self.requests.append(request)
        return self.left.pop(0)

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        self.parsed.append(response)
        return response.tool_calls or []


def said(text: str) -> ChatResponse:
    return ChatResponse(content=[TextBlock(text=text)])


async def test_providers_supporting_extended_thinking_include_thinking_blocks_in_responses(
    agent: Any,
) -> None:
    thought = ThinkingBlock(thinking="one and one", signature="s1g")
    whole = Whole(ChatResponse(content=[thought, TextBlock(text="two")]), said("still two"))
    async with agent(config={"extended_thinking": True}) as a:
        await a.session.coordinator.mount("providers", whole, name="scripted")
        assert await a.ask() == "two"
        kept = (await a.messages())[-1]["content"][0]
        assert (kept["thinking"], kept["signature"]) == ("one and one", "s1g")
        await a.ask("sure?")
        assert whole.requests[1].messages[1].content[0].thinking == "one and one"
        thought = {"type": "thinking", "thinking": "one and one", "signature": "s1g"}
        assert a.told("content_block:end")[0]["block"] == thought


# ---------------------------------------------------------------- the loop


async def test_prompt_submit_allows_context_injection(agent: Any) -> None:
    async with agent([{"text": "ok"}]) as a:
        a.on("prompt:submit", HookResult(action="inject_context", context_injection="it is Friday"))
        await a.ask()
        assert "it is Friday" in str(a.requests[0].messages)
        assert "it is Friday" in str(await a.messages())


async def test_each_request_gets_its_messages_from_the_context(agent: Any, tool: Any, calls: Any) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")]) as a:
        context, asked = a.session.coordinator.get("context"), []

        class Watched:
            def __getattr__(self, name: str) -> Any:
                return getattr(context, name)

            async def get_messages_for_request(self, **given: Any) -> list[dict[str, Any]]:
                asked.append(given)
                messages = await context.get_messages_for_request(**given)
                return [*messages, {"role": "system", "content": "the context's own word"}]

        await a.session.coordinator.mount("context", Watched())
        await a.ask()
        assert asked == [{"provider": a.session.coordinator.get("providers")["scripted"]}] * 2
        assert all(each.messages[-1].content == "the context's own word" for each in a.requests)


async def test_the_provider_completes_and_parses_the_tool_calls(agent: Any, tool: Any) -> None:
    call = ToolCall(id="c1", name="a", arguments={"n": 1})
    whole = Whole(ChatResponse(content=[], tool_calls=[call]), said("ok"))
    async with agent(tools=[tool("a")]) as a:
        await a.session.coordinator.mount("providers", whole, name="scripted")
        assert await a.ask() == "ok"
        assert len(whole.requests) == len(whole.parsed) == 2
        assert a.tools["a"].calls == [{"n": 1}]


async def test_prompt_complete_is_emitted_before_the_final_response_is_returned(agent: Any) -> None:
    async with agent([{"text": "ok"}]) as a:
        await a.ask()
        assert [data["response"] for data in a.told("prompt:complete")] == ["ok"]


STANDARD = (
    *("execution:start", "execution:end"),
    *("provider:request", "provider:response", "provider:error"),
    *("tool:pre", "tool:post", "tool:error"),
    *("prompt:submit", "prompt:complete"),
    "orchestrator:complete",
)


@pytest.mark.parametrize("event", STANDARD)
async def test_it_emits_the_standard_event(agent: Any, tool: Any, calls: Any, event: str) -> None:
    def fail(_: dict[str, Any]) -> str:
        raise ValueError("no such file")

    turns = [calls("a", "bad"), {"error": "overloaded"}]
    async with agent(turns, tools=[tool("a"), tool("bad", fail)]) as a:
        await a.ask()
        assert event in a.names()


async def test_tool_calls_execute_sequentially_not_in_parallel(agent: Any, tool: Any, calls: Any) -> None:
    running: list[str] = []

    def alone(name: str) -> Any:
        async def answer(_: dict[str, Any]) -> str:
            running.append(name)
            assert running == [name]
            await asyncio.sleep(0)  # any other that runs has its turn
            running.remove(name)
            return name

        return answer

    async with agent([calls("b", "a", "c"), {"text": "ok"}], tools=[tool(n, alone(n)) for n in "abc"]) as a:
        await a.ask()
        assert await a.results() == ["b", "a", "c"]
        order = [data["tool_name"] for name, data in a.events if name in ("tool:pre", "tool:post")]
        assert order == ["b", "b", "a", "a", "c", "c"]


async def test_context_compaction_is_handled_automatically(agent: Any, tool: Any, calls: Any) -> None:
    session = {
        "orchestrator": "loop-events",
        "context": {"module": "context-simple", "config": {"max_tokens": 400}},
    }
    config = {"turns": [*[calls("a")] * 6, {"text": "ok"}]}
    plan = {"session": session, "providers": [{"module": "provider-scripted", "config": config}]}
    async with agent(plan=plan, tools=[tool("a", lambda _: "word " * 60)]) as a:
        assert await a.ask() == "ok"
        assert len(a.told("context:compaction")) > 0
        assert len(a.requests[-1].messages) < len(await a.messages()) - 1
        assert a.requests[-1].messages[0].content == "hello"


# ---------------------------------------------------------------- errors


async def test_a_provider_error_is_emitted_told_to_the_user_and_exits_the_loop(
    agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls("a"), {"error": "overloaded"}, {"text": "never"}], tools=[tool("a")]) as a:
        assert "overloaded" in await a.ask()
        assert a.told("provider:error")[0]["error"] == {"type": "LLMError", "msg": "overloaded"}
        assert len(a.requests) == 2


async def test_a_tool_error_is_emitted_added_as_result_and_seen_by_the_llm(
    agent: Any, tool: Any, calls: Any
) -> None:
    def fail(_: dict[str, Any]) -> str:
        raise ValueError("no such file")

    async with agent([calls("a"), {"text": "sorry"}], tools=[tool("a", fail)]) as a:
        assert await a.ask() == "sorry"
        assert a.told("tool:error")[0]["error"] == {"type": "ValueError", "msg": "no such file"}
        assert "no such file" in (await a.results())[0]
        assert "no such file" in a.requests[1].messages[-1].content


async def test_every_tool_call_gets_a_result_even_on_error(agent: Any, tool: Any, calls: Any) -> None:
    def fail(_: dict[str, Any]) -> str:
        raise RuntimeError("broken")

    deny = HookResult(action="deny", reason="no")
    turns = [calls("bad", "nowhere", "a", "a"), {"text": "ok"}]
    async with agent(turns, tools=[tool("a"), tool("bad", fail)]) as a:
        a.on("tool:pre", HookResult(), HookResult(), deny)
        await a.ask()
        results = [message for message in await a.messages() if message["role"] == "tool"]
        assert [result["tool_call_id"] for result in results] == ["c1", "c2", "c3", "c4"]
        assert all({"role", "tool_call_id", "content"} <= result.keys() for result in results)
        for result, why in zip(results, ("broken", "no tool 'nowhere'", "denied: no", "done"), strict=True):
            assert why in result["content"]


async def test_a_scheduler_that_throws_is_logged_and_ignored_and_the_others_are_heard(
    agent: Any, tool: Any, calls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(event: str, data: dict[str, Any]) -> HookResult:
        raise RuntimeError("the scheduler broke")

    async def other(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="deny", reason="still heard")

    for first, second in ((broken, other), (other, broken)):
        caplog.clear()
        async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")]) as a:
            a.hooks.register("tool:selecting", first, priority=1, name="first")
            a.hooks.register("tool:selecting", second, priority=2, name="second")
            with caplog.at_level(logging.ERROR):
                assert await a.ask() == "ok"
            assert "still heard" in (await a.results())[0]
            assert a.tools["a"].calls == []
        assert ("the scheduler broke" in caplog.text) is (first is broken)


async def test_if_all_schedulers_fail_the_llms_decision_stands(
    agent: Any, tool: Any, calls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(event: str, data: dict[str, Any]) -> HookResult:
        raise RuntimeError("the scheduler broke")

    async with agent([calls(("a", {"n": 1})), {"text": "ok"}], tools=[tool("a")]) as a:
        for name in ("one", "two"):
            a.hooks.register("tool:selecting", broken, name=name)
        assert await a.ask() == "ok"
        assert a.tools["a"].calls == [{"n": 1}]
        assert a.told("tool:selected")[0]["source"] == "llm"
        assert caplog.text.count("the scheduler broke") >= 2
