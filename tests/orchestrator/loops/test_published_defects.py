"""What the published orchestrators get wrong, and what bites a loop in the kernel: not so with ours.

Each test is one defect, run under every loop that it could be in: events, the limit, requests, what
the LLM is told, the interface. What hooks say is in `test_published_defects_hooks.py`, the ends of
turns in `test_ways_out.py`.
"""

import asyncio
import inspect
from importlib.metadata import entry_points
from typing import Any

import pytest
from amplifier_core import ChatResponse, HookRegistry, LLMError, TextBlock, ToolCall, ToolResult
from four_loops import LOOPS, Recording, order_of, run_by_hand, sent_results

pytestmark = pytest.mark.pure


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    """Each of the four, one after another."""
    return str(request.param)


# ---------------------------------------------------------------- events

WHOLE_TURN = [
    "execution:start",
    "prompt:submit",
    "provider:request",
    "provider:response",
    "tool:pre",
    "tool:post",
    "provider:request",
    "provider:response",
    "prompt:complete",
    "orchestrator:complete",
    "execution:end",
]


async def test_a_turn_is_told_from_execution_start_to_execution_end(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")], loop=loop) as a:
        await a.ask()
        told = a.names(*WHOLE_TURN)
        if loop == "loop-reactive":  # its calls run while the response comes in
            assert sorted(told) == sorted(WHOLE_TURN)
            assert told.index("tool:post") < len(told) - 1 - told[::-1].index("provider:request")
            told = [each for each in told if not each.startswith("tool:")]
        assert told == [each for each in WHOLE_TURN if each in told]


async def test_no_event_is_emitted_under_a_name_of_its_own(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    def fail(_: dict[str, Any]) -> str:
        raise ValueError("no such file")

    blocks = {f"content_block:{part}" for part in ("start", "delta", "end")}
    selection = {"tool:selecting", "tool:selected", "policy:violation"}
    documented = {*WHOLE_TURN, *blocks, *selection, "tool:error", "provider:error"}
    turns = [calls("a", "bad"), {"text": "ok"}, {"error": "overloaded"}]
    async with agent(turns, tools=[tool("a"), tool("bad", fail)], loop=loop) as a:
        hooks = Recording(a.hooks)
        await run_by_hand(a, hooks)
        if loop == "loop-events":
            await run_by_hand(a, hooks)
        else:
            with pytest.raises(LLMError):
                await run_by_hand(a, hooks)
        assert set(hooks.emitted) <= documented
        assert {"tool:error", "provider:error"} <= set(hooks.emitted)


async def test_nothing_is_emitted_that_nobody_listens_to(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")], loop=loop, deaf=True) as a:

        class Counting(Recording):
            def list_handlers(self, event: str | None = None) -> Any:
                return self.registry.list_handlers(event)

        hooks = Counting(a.hooks)
        assert await run_by_hand(a, hooks) == "ok"
        assert hooks.emitted == []


async def test_a_failure_of_the_llm_is_no_success(agent: Any, loop: str) -> None:
    async with agent([{"error": "overloaded"}], loop=loop) as a:
        if loop == "loop-events":
            assert "overloaded" in await run_by_hand(a)
        else:
            with pytest.raises(LLMError, match="overloaded"):
                await run_by_hand(a)
        status = "error" if loop == "loop-streaming" else "incomplete"
        assert [data["status"] for data in a.told("orchestrator:complete")] == [status]
        assert [data["status"] for data in a.told("execution:end")] == ["error"]
        assert len(a.told("provider:error")) == 1


async def test_usage_response_and_result_reach_hooks_as_json_objects(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    turns = [{**calls("a"), "usage": usage}, {"text": "ok"}]
    async with agent(turns, tools=[tool("a", lambda _: {"sum": 2})], loop=loop) as a:
        await a.ask()
        response, post = a.told("provider:response")[0], a.told("tool:post")[0]
        assert {key: response["usage"][key] for key in usage} == usage
        assert response["response"]["tool_calls"][0]["name"] == "a"
        assert post["result"] == post["tool_result"] == {"success": True, "output": {"sum": 2}, "error": None}
        assert a.told("content_block:end")[0]["usage"]["total_tokens"] == 7


@pytest.mark.parametrize("rounds", [0, 1, 3])
async def test_the_turn_count_is_the_number_of_requests(
    agent: Any, tool: Any, calls: Any, loop: str, rounds: int
) -> None:
    async with agent([*[calls("a")] * rounds, {"text": "ok"}], tools=[tool("a")], loop=loop) as a:
        await a.ask()
        assert a.told("orchestrator:complete")[0]["turn_count"] == len(a.requests) == rounds + 1


# ---------------------------------------------------------------- the limit


async def test_at_the_limit_the_answer_is_text_told_in_full_and_incomplete(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    long = "so far " * 100
    turns = [calls("a"), calls("a"), calls("a", text=long)]
    async with agent(turns, tools=[tool("a")], loop=loop, config={"max_iterations": 2}) as a:
        assert await a.ask() == long
        done = a.told("prompt:complete")[0]
        assert (done["response_preview"], done["length"]) == (long[:200], len(long))
        assert len(a.told("provider:response")) == len(a.told("provider:request")) == 3
        complete = a.told("orchestrator:complete")[0]
        assert (complete["status"], complete["turn_count"]) == ("incomplete", 3)
        assert order_of(await a.messages()) == ["user", *["assistant", "tool"] * 2, "assistant"]
        assert "tool_calls" not in (await a.messages())[-1]
        assert len(a.tools["a"].calls) == 2


# ---------------------------------------------------------------- what reaches the provider, and which


@pytest.mark.parametrize("whole", [True, False])
async def test_extended_thinking_reaches_the_provider(agent: Any, llm: Any, loop: str, whole: bool) -> None:
    provider = llm(whole=whole)
    async with agent(llm=provider, loop=loop, config={"extended_thinking": True}) as a:
        await a.ask()
        assert provider.options == [{"extended_thinking": True}]


async def test_the_default_provider_is_the_one_that_answers(
    agent: Any, llm: Any, says: Any, loop: str
) -> None:
    plan_default = {"default_provider": "llm"}
    async with agent([{"text": "the other"}], loop=loop, config=plan_default) as a:
        await a.session.coordinator.mount("providers", llm([says("the default")]), name="llm")
        assert await a.ask() == "the default"
        assert a.told("provider:request")[0]["provider"] == "llm"


async def test_a_provider_with_the_protocols_members_and_no_more_will_do(
    agent: Any, tool: Any, loop: str
) -> None:
    class Minimal:
        name = "minimal"

        def __init__(self) -> None:
            call = ToolCall(id="c1", name="a", arguments={})
            self.left = [
                ChatResponse(content=[], tool_calls=[call]),
                ChatResponse(content=[TextBlock(text="ok")]),
            ]

        def get_info(self) -> None:
            return None

        async def list_models(self) -> list[Any]:
            return []

        async def complete(self, request: Any, **kwargs: Any) -> ChatResponse:
            return self.left.pop(0)

        def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
            return response.tool_calls or []

    async with agent(tools=[tool("a")], loop=loop) as a:
        await a.session.coordinator.mount("providers", Minimal(), name="scripted")
        assert await a.ask() == "ok"
        assert len(a.tools["a"].calls) == 1


async def test_a_tool_call_out_of_a_stream_is_executed(
    agent: Any, llm: Any, tool: Any, says: Any, wants: Any, loop: str
) -> None:
    provider = llm([says("let me see"), wants("c1", "a", {"n": 1})], [says("ok")])
    async with agent(llm=provider, tools=[tool("a")], loop=loop) as a:
        assert await a.ask() == "ok"
        assert a.tools["a"].calls == [{"n": 1}]
        assert provider.closed == (0 if loop == "loop-basic" else 2)


@pytest.mark.parametrize("arguments", [{}, None, "", "{}"], ids=repr)
async def test_a_call_without_arguments_runs(
    agent: Any, llm: Any, tool: Any, says: Any, wants: Any, loop: str, arguments: Any
) -> None:
    class Raw(llm):
        """Where it cannot stream: gives the call as it is, as a provider may that parses nothing."""

        async def complete(self, request: Any, **options: Any) -> ChatResponse:
            self._asked(request, options)
            return ChatResponse(content=[TextBlock(text="ok")])

        def parse_tool_calls(self, response: Any) -> list[Any]:
            return [{"id": "c1", "name": "a", "arguments": arguments}] if len(self.requests) == 1 else []

    for whole in (True, False):
        provider = Raw([wants("c1", "a") | {"arguments": arguments}], [says("ok")], whole=whole)
        async with agent(llm=provider, tools=[tool("a")], loop=loop) as a:
            assert await a.ask() == "ok"
            assert a.tools["a"].calls == [{}]
            assert await a.results() == ["done"]


# ---------------------------------------------------------------- what the LLM is told of a tool's output

OUTPUTS = [
    {"b": 1, "a": [1, None, True]},
    "ünïcode\ttext\n\u2028",
    0.1 + 0.2,
    {"big": 12345678901234567890, "small": 5e-324, "exact": 1e16},
    {"1": "a", "timestamp": "mine"},
    '{"looks": "like JSON"}',
]


@pytest.mark.parametrize("deaf", [True, False], ids=["no hooks", "hooks"])
@pytest.mark.parametrize("output", OUTPUTS, ids=repr)
async def test_the_output_of_a_tool_reaches_the_llm_as_the_tool_wrote_it(
    agent: Any, tool: Any, calls: Any, loop: str, output: Any, deaf: bool
) -> None:
    result = ToolResult(success=True, output=output)
    turns = [calls("a"), {"text": "ok"}]
    async with agent(turns, tools=[tool("a", lambda _: result)], loop=loop, deaf=deaf) as a:
        await a.ask()
        (stored,) = await a.results()
        assert sent_results(a.requests[1]) == [stored]
        assert stored == result.get_serialized_output()


@pytest.mark.parametrize("with_coordinator", [True, False])
async def test_a_context_that_has_the_protocols_five_methods_and_no_more_will_do(
    agent: Any, tool: Any, calls: Any, loop: str, with_coordinator: bool
) -> None:
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

    async with agent([calls("a", "a"), {"text": "ok"}], tools=[tool("a")], loop=loop) as a:
        context = Minimal()
        await a.session.coordinator.mount("context", context)
        assert await (a.ask() if with_coordinator else run_by_hand(a)) == "ok"
        assert order_of(context.kept) == ["user", "assistant", "tool", "tool", "assistant"]


# ---------------------------------------------------------------- the interface


async def test_execute_takes_further_keywords(agent: Any, loop: str) -> None:
    async with agent([{"text": "ok"}], loop=loop) as a:
        execute = a.session.coordinator.get("orchestrator").execute
        kinds = [parameter.kind for parameter in inspect.signature(execute).parameters.values()]
        assert inspect.Parameter.VAR_KEYWORD in kinds
        assert await run_by_hand(a, something_of_tomorrow=1) == "ok"


async def test_a_cancelled_task_leaves_no_call_without_a_result_and_is_told(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    runs = asyncio.Event()

    async def hang(_: dict[str, Any]) -> str:
        runs.set()
        await asyncio.Event().wait()
        return "never"

    async with agent([calls("a", "a")], tools=[tool("a", hang)], loop=loop) as a:
        turn = asyncio.ensure_future(run_by_hand(a))
        await asyncio.wait_for(runs.wait(), 10)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        _, response, *results, last = await a.messages()
        assert last["role"] == "assistant"
        # The reactive loop runs a call while others are still on their way: those never came.
        asked = [call["id"] for call in response["tool_calls"]]
        assert asked if loop == "loop-reactive" else len(asked) == 2
        assert [result["tool_call_id"] for result in results] == asked
        assert a.names("orchestrator:complete", "execution:end") == ["orchestrator:complete", "execution:end"]


async def test_each_loop_is_what_the_session_mounts_under_its_name(agent: Any, loop: str) -> None:
    async with agent([{"text": "ok"}], loop=loop) as a:
        assert a.session.coordinator.get("orchestrator").name == loop
        assert isinstance(HookRegistry(), type(a.hooks))


def test_these_are_all_our_loops() -> None:
    ours = [
        each.name for each in entry_points(group="amplifier.modules") if each.value.startswith("toolgate_")
    ]
    own = {name.replace("loop-", "loop-toolgate-") for name in LOOPS}
    assert {name for name in ours if name.startswith("loop-")} == {*LOOPS, *own}
