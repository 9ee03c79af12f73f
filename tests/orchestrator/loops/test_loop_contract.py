"""The checklist of the orchestrator contract, for loop-events inside a real AmplifierSession."""

import asyncio
from typing import Any

import pytest
from amplifier_core import HookResult
from four_loops import LOOPS
from toolgate_orchestrator.loops.events import LoopEvents
from toolgate_orchestrator.modules.provider_scripted import ProviderScripted
from toolgate_orchestrator.turn.leg_budget import LIMIT_REMINDER

pytestmark = pytest.mark.pure

USAGE = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}


async def test_a_turn_with_a_tool_call_emits_the_standard_events_in_order(
    agent: Any, tool: Any, calls: Any
) -> None:
    turn = {**calls(("add", {"a": 1})), "usage": USAGE}
    async with agent([turn, {"text": "two"}], tools=[tool("add", lambda _: {"sum": 2})]) as a:
        assert await a.ask("one and one?") == "two"
        assert a.names() == [
            "session:start",
            "execution:start",
            "prompt:submit",
            "provider:request",
            "content_block:start",
            "content_block:end",
            "provider:response",
            "tool:selected",
            "tool:pre",
            "tool:post",
            "provider:request",
            "content_block:start",
            "content_block:delta",
            "content_block:end",
            "provider:response",
            "prompt:complete",
            "orchestrator:complete",
            "execution:end",
        ]


async def test_each_event_carries_what_any_of_the_contracts_names(agent: Any, tool: Any, calls: Any) -> None:
    turn = {**calls(("add", {"a": 1})), "usage": USAGE}
    async with agent([turn, {"text": "two"}], tools=[tool("add", lambda _: {"sum": 2})]) as a:
        await a.ask("one and one?")
        only = dict(a.events)
        assert only["execution:start"]["prompt"] == only["prompt:submit"]["prompt"] == "one and one?"
        request = a.told("provider:request")[0]
        assert (request["provider"], request["iteration"], request["model"]) == ("scripted", 1, "scripted-1")
        assert request["messages"] == [{"role": "user", "content": "one and one?"}]
        response = a.told("provider:response")[0]
        assert response["tool_calls"] is True
        assert response["usage"]["total_tokens"] == 7
        assert response["response"]["tool_calls"][0]["name"] == "add"
        pre, post = only["tool:pre"], only["tool:post"]
        for data in (pre, post):
            assert data["tool_name"] == "add"
            assert data["tool_input"] == data["input"] == {"a": 1}
            assert data["tool_call_id"] == "c1"
        assert pre["parallel_group_id"] == post["parallel_group_id"] != ""
        assert post["result"] == post["tool_result"] == {"success": True, "output": {"sum": 2}, "error": None}
        done = only["prompt:complete"]
        assert (done["response"], done["response_preview"], done["length"]) == ("two", "two", 3)
        end = only["orchestrator:complete"]
        assert (end["orchestrator"], end["turn_count"], end["status"]) == ("loop-events", 2, "success")
        assert (end["iterations"], end["tokens"]) == (2, 7)
        assert (only["execution:end"]["response"], only["execution:end"]["status"]) == ("two", "completed")


async def test_the_preview_of_a_long_answer_is_its_first_200_characters(agent: Any) -> None:
    async with agent([{"text": "x" * 1234}]) as a:
        await a.ask()
        done = a.told("prompt:complete")[0]
        assert (len(done["response_preview"]), done["length"]) == (200, 1234)


async def test_a_providers_error_is_told_to_the_user_and_ends_the_turn_without_success(agent: Any) -> None:
    async with agent([{"error": "overloaded"}]) as a:
        answer = await a.ask()
        assert "overloaded" in answer
        error = a.told("provider:error")[0]
        assert error["error"] == {"type": "LLMError", "msg": "overloaded"}
        assert (error["provider"], error["retryable"], error["status_code"]) == ("scripted", False, None)
        assert a.told("execution:end")[0]["status"] == "error"
        assert a.told("execution:end")[0]["response"] == ""
        assert a.told("orchestrator:complete")[0]["status"] == "incomplete"
        assert [name for name in a.names() if name.startswith("error:")] == []


async def test_an_error_of_the_context_ends_the_execution_once_and_is_raised(agent: Any) -> None:
    class Broken:
        async def add_message(self, message: dict[str, Any]) -> None:
            raise OSError("disk full")

    async with agent([{"text": "never"}]) as a:
        await a.session.coordinator.mount("context", Broken())
        with pytest.raises(RuntimeError, match="disk full"):
            await a.ask()
        assert [data["status"] for data in a.told("execution:end")] == ["error"]
        assert a.told("orchestrator:complete")[0]["status"] == "incomplete"


async def test_the_last_request_at_the_limit_has_the_reminder_and_tools_that_may_not_be_called(
    agent: Any, tool: Any, calls: Any
) -> None:
    turns = [calls("step"), calls("step"), {"text": "so far, two steps"}]
    async with agent(turns, tools=[tool("step")], config={"max_iterations": 2}) as a:
        assert await a.ask() == "so far, two steps"
        assert len(a.tools["step"].calls) == 2
        last = a.requests[-1]
        assert ([spec.name for spec in last.tools], last.tool_choice) == (["step"], "none")
        assert all(each.tool_choice is None for each in a.requests[:-1])
        assert last.messages[-1].content == LIMIT_REMINDER
        assert all(LIMIT_REMINDER not in str(each.messages) for each in a.requests[:-1])
        assert LIMIT_REMINDER not in str(await a.messages())
        assert a.told("orchestrator:complete")[0]["status"] == "incomplete"
        assert a.told("orchestrator:complete")[0]["turn_count"] == 3
        end = a.told("execution:end")[0]
        assert (end["response"], end["status"]) == ("so far, two steps", "completed")


async def test_calls_that_the_llm_makes_past_the_limit_are_neither_run_nor_stored(
    agent: Any, tool: Any, calls: Any
) -> None:
    turns = [calls("step"), calls("step", text="more!")]
    async with agent(turns, tools=[tool("step")], config={"max_iterations": 1}) as a:
        assert await a.ask() == "more!"
        assert len(a.tools["step"].calls) == 1
        assert "tool_calls" not in (await a.messages())[-1]


async def test_without_a_limit_a_turn_goes_on_until_the_llm_is_done(
    agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([*[calls("step")] * 30, {"text": "done"}], tools=[tool("step")]) as a:
        assert await a.ask() == "done"
        assert a.told("orchestrator:complete")[0]["turn_count"] == 31


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("configured", "expected"), [(True, {"extended_thinking": True}), (False, {})])
async def test_extended_thinking_is_passed_to_the_provider_only_when_configured(
    agent: Any, llm: Any, configured: bool, expected: dict[str, Any], whole: bool
) -> None:
    thinking = llm(whole=whole)
    async with agent(llm=thinking, config={"extended_thinking": configured}) as a:
        await a.ask()
        assert thinking.options == [expected]


async def test_the_own_events_are_contributed_to_observability(agent: Any) -> None:
    async with agent() as a:
        contributed = await a.session.coordinator.collect_contributions("observability.events")
        assert ["tool:selecting", "tool:selected"] in contributed


async def test_a_loop_made_by_hand_runs_without_mount_and_without_a_coordinator() -> None:
    from amplifier_core.testing import EventRecorder, MockContextManager

    recorder, context = EventRecorder(), MockContextManager()
    answer = await LoopEvents({}).execute(
        "hi", context, {"p": ProviderScripted({"turns": [{"text": "hello"}]})}, {}, recorder
    )
    assert answer == "hello"
    assert [message["role"] for message in context.messages] == ["user", "assistant"]
    names = [name for name, _ in recorder.events]
    assert (names[0], names[-1]) == ("execution:start", "execution:end")


async def test_the_request_can_name_a_provider_that_is_mounted() -> None:
    from amplifier_core import HookRegistry
    from amplifier_core.testing import MockContextManager

    providers = {name: ProviderScripted({"turns": [{"text": name}]}) for name in ("a", "b")}
    run = LoopEvents({"default_provider": "a"}).execute
    common: Any = (MockContextManager(), providers, {}, HookRegistry())
    assert await run("hi", *common, request_options={"provider": "b"}) == "b"
    assert await run("hi", *common) == "a"
    with pytest.raises(Exception, match="'c', which is not mounted; mounted: a, b"):
        await run("hi", *common, request_options={"provider": "c"})


async def test_a_denied_prompt_ends_the_turn_before_the_llm_is_asked(agent: Any) -> None:
    async with agent([{"text": "never"}]) as a:
        a.on("prompt:submit", HookResult(action="deny", reason="office hours"))
        assert "office hours" in await a.ask()
        assert a.requests == []
        assert await a.messages() == []
        assert a.told("orchestrator:complete")[0]["status"] == "incomplete"


async def test_a_hook_can_change_the_prompt(agent: Any) -> None:
    async with agent([{"text": "ok"}]) as a:
        a.on("prompt:submit", lambda data: HookResult(action="modify", data={**data, "prompt": "in French"}))
        await a.ask("in English")
        assert (await a.messages())[0]["content"] == "in French"


async def test_a_denied_request_ends_the_turn(agent: Any) -> None:
    async with agent([{"text": "never"}]) as a:
        a.on("provider:request", HookResult(action="deny", reason="no budget left"))
        assert "no budget left" in await a.ask()
        assert a.requests == []


async def test_turns_of_one_session_follow_one_another_in_one_conversation(agent: Any) -> None:
    async with agent([{"text": "one"}, {"text": "two"}]) as a:
        assert [await a.ask("first"), await a.ask("second")] == ["one", "two"]
        assert [message.role for message in a.requests[1].messages] == ["user", "assistant", "user"]


async def test_nothing_is_emitted_that_nobody_listens_to(agent: Any, tool: Any, calls: Any) -> None:
    async with agent([calls("step"), {"text": "done"}], tools=[tool("step")], deaf=True) as a:
        registry = a.hooks

        class Counting:
            def __init__(self) -> None:
                self.emitted: list[str] = []

            def __getattr__(self, name: str) -> Any:
                return getattr(registry, name)

            async def emit(self, event: str, data: dict[str, Any]) -> Any:
                self.emitted.append(event)
                return await registry.emit(event, data)

        loop = a.session.coordinator.get("orchestrator")
        parts = (a.session.coordinator.get(name) for name in ("context", "providers", "tools"))
        context, providers, tools = parts
        hooks = Counting()
        assert await loop.execute("hi", context, providers, tools, hooks) == "done"
        assert hooks.emitted == []


async def test_a_hook_that_registers_in_mid_turn_hears_the_rest(agent: Any, tool: Any, calls: Any) -> None:
    async with agent([calls("step"), {"text": "done"}], tools=[tool("step")], deaf=True) as a:
        heard: list[str] = []

        def note(data: dict[str, Any]) -> HookResult:
            heard.append(data["status"])
            return HookResult()

        def register(_: dict[str, Any]) -> str:
            a.on("execution:end", note)
            return "done"

        a.tools["step"].answer = register
        await a.ask()
        assert heard == ["completed"]


async def test_sessions_run_side_by_side(agent: Any, tool: Any, calls: Any) -> None:
    async def one(index: int) -> str:
        turns = [calls("step"), {"text": "${last_result}"}]
        async with agent(turns, tools=[tool("step", lambda _: f"r{index}")], session_id=f"s{index}") as a:
            return str(await a.ask())

    assert await asyncio.gather(*map(one, range(8))) == [f"r{index}" for index in range(8)]


async def test_a_context_that_has_the_protocols_five_methods_and_no_more_will_do(
    tool: Any, calls: Any
) -> None:
    from amplifier_core import HookRegistry

    class Minimal:
        def __init__(self) -> None:
            self.kept: list[dict[str, Any]] = []

        async def add_message(self, message: dict[str, Any]) -> None:
            self.kept.append(message)

        async def get_messages_for_request(
            self, token_budget: int | None = None, provider: Any | None = None
        ) -> list[dict[str, Any]]:
            return list(self.kept)

        async def get_messages(self) -> list[dict[str, Any]]:
            return list(self.kept)

        async def set_messages(self, messages: list[dict[str, Any]]) -> None:
            self.kept = list(messages)

        async def clear(self) -> None:
            self.kept = []

    context, provider = Minimal(), ProviderScripted({"turns": [calls("a"), {"text": "done"}]})
    loop = LoopEvents({})
    assert await loop.execute("hi", context, {"p": provider}, {"a": tool("a")}, HookRegistry()) == "done"
    assert [message["role"] for message in context.kept] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_turn_in_which_the_llm_says_nothing_is_incomplete_as_under_amplifiers_loops(
    agent: Any, llm: Any, tool: Any, wants: Any, loop: str
) -> None:
    silence = [{"type": "message.end"}]
    async with agent(llm=llm([wants("c1", "a")], silence, silence), tools=[tool("a")], loop=loop) as a:
        for _ in range(2):
            assert await a.ask() == ""
        assert [end["status"] for end in a.told("orchestrator:complete")] == ["incomplete"] * 2
        assert [end["status"] for end in a.told("execution:end")] == ["completed"] * 2
