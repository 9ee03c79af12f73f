"""How a reactive turn ends when it does not end well, and what it makes of hostile or odd input."""

import asyncio
import json
from typing import Any

import pytest
from amplifier_core import ChatResponse, HookResult, LLMError, TextBlock, ToolCall, ToolResult
from toolgate_orchestrator.loops.reactive import LoopReactive, NoOutput
from toolgate_orchestrator.turn.turn import LIMIT_REMINDER

pytestmark = pytest.mark.pure

INTEGER = {"type": "integer"}
BOUND_S = 10
LOOP: dict[str, Any] = {"loop": "loop-reactive"}


class Gate:
    """A tool's function that says when it began and how it ended, and ends when it may."""

    def __init__(self) -> None:
        self.began, self.may_end, self.ended = asyncio.Event(), asyncio.Event(), ""

    async def __call__(self, arguments: dict[str, Any]) -> str:
        self.began.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise
        self.ended = "finished"
        return "finished"


async def ask(a: Any) -> str:
    answer: str = await asyncio.wait_for(a.ask(), BOUND_S)
    return answer


async def results(a: Any) -> dict[str, Any]:
    """By id of the call, in the order stored; and that each call of each response has exactly one."""
    messages = await a.messages()
    called = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert sorted(called) == sorted(answered)
    return {each["tool_call_id"]: json.loads(each["content"]) for each in messages if each["role"] == "tool"}


def phases(found: dict[str, Any]) -> dict[str, str]:
    return {call: each["data"]["error"]["phase"] if "kind" in each else "ok" for call, each in found.items()}


def ends(a: Any) -> list[tuple[str, str]]:
    return [(n, d["status"]) for n, d in a.events if n in ("execution:end", "orchestrator:complete")]


BROKEN = [("orchestrator:complete", "incomplete"), ("execution:end", "error")]
CANCELLED = [("orchestrator:complete", "cancelled"), ("execution:end", "cancelled")]


# ---------------------------------------------------------------- the provider fails in mid-stream


async def test_when_the_stream_breaks_off_what_runs_may_finish_and_nothing_new_begins(
    agent: Any, tool: Any, llm: Any, wants: Any, says: Any
) -> None:
    gate = Gate()
    provider = llm(
        [
            says("Let me see."),
            wants("c1", "slow", {"_outputPath": "†state.a"}),
            wants("c2", "next", {"x": "†state.a"}),
            wants("f", "final_output", {"output": 1}),
            gate.began,
            LLMError("the line went dead", retryable=True),
        ]
    )
    tools = [tool("slow", gate), tool("next")]
    async with agent(llm=provider, tools=tools, config={"output_schema": INTEGER}, **LOOP) as a:
        a.on(
            "provider:error",
            lambda _: asyncio.get_running_loop().call_soon(gate.may_end.set) and HookResult(),
        )
        with pytest.raises(Exception, match="the line went dead"):
            await ask(a)
        assert gate.ended == "finished"
        assert a.tools["next"].calls == []
        assert phases(await results(a)) == {"c1": "ok", "c2": "cancelled", "f": "cancelled"}
        assert len(a.told("provider:error")) == 1
        assert ends(a) == BROKEN
        assert a.session.coordinator.get("orchestrator").data.state == {"a": "finished"}
        texts = [message["content"] for message in await a.messages() if message["role"] == "assistant"]
        assert "".join(each for each in texts if isinstance(each, str)).count("Let me see.") == 1
        assert len(provider.requests) == 1


async def test_an_error_event_in_the_stream_is_a_provider_error(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    events = [wants("c1", "t"), {"type": "error", "error": {"type": "overloaded", "message": "too busy"}}]
    async with agent(llm=llm(events), tools=[tool("t")], **LOOP) as a:
        with pytest.raises(Exception, match="too busy"):
            await ask(a)
        await results(a)
        assert ends(a) == BROKEN


async def test_a_request_that_a_hook_denies_ends_the_turn(agent: Any, llm: Any) -> None:
    async with agent(llm=llm(), **LOOP) as a:
        a.on("provider:request", HookResult(action="deny", reason="over budget"))
        assert await ask(a) == "Operation denied: over budget"
        assert ends(a) == [("orchestrator:complete", "incomplete"), ("execution:end", "completed")]


# ---------------------------------------------------------------- cancellation


async def test_a_graceful_cancellation_lets_running_calls_finish_and_starts_no_other(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    gate, never = Gate(), asyncio.Event()
    provider = llm(
        [
            wants("c1", "slow", {"_outputPath": "†state.a"}),
            wants("c2", "next", {"x": "†state.a"}),
            gate.began,
            wants("c3", "next"),
            never,
        ]
    )
    async with agent(llm=provider, tools=[tool("slow", gate), tool("next")], **LOOP) as a:
        turn = asyncio.ensure_future(ask(a))
        await asyncio.wait_for(gate.began.wait(), BOUND_S)
        await a.session.coordinator.request_cancel(immediate=False)
        gate.may_end.set()
        never.set()
        assert await turn == ""
        assert gate.ended == "finished"
        assert a.tools["next"].calls == []
        found = await results(a)
        assert found["c1"]["data"] == "finished"
        assert set(phases(found).values()) == {"ok", "cancelled"}
        assert ends(a) == CANCELLED
        assert len(provider.requests) == 1


async def test_a_graceful_cancellation_after_the_stream_closed_starts_no_dependent(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    answer = [
        wants("c1", "stop", {"_outputPath": "†state.a"}),
        wants("c2", "next", {"x": "†state.a"}),
        wants("f", "final_output", {"output": 1}),
    ]
    async with agent(
        llm=llm(answer), tools=[tool("stop"), tool("next")], config={"output_schema": INTEGER}, **LOOP
    ) as a:

        async def stop(_: dict[str, Any]) -> str:
            while "provider:response" not in a.names():
                await asyncio.sleep(0)
            await a.session.coordinator.request_cancel(immediate=False)
            return "stopped"

        a.tools["stop"].answer = stop
        assert await ask(a) == ""
        assert phases(await results(a)) == {"c1": "ok", "c2": "cancelled", "f": "cancelled"}
        assert a.tools["next"].calls == []
        assert ends(a) == CANCELLED


async def test_an_immediate_cancellation_ends_running_calls_and_the_stream(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    gate, never = Gate(), asyncio.Event()
    provider = llm(
        [
            wants("c0", "quick"),
            wants("c1", "slow", {"_outputPath": "†state.a"}),
            wants("c2", "quick", {"x": "†state.a"}),
            never,
        ]
    )
    before = asyncio.all_tasks()
    async with agent(llm=provider, tools=[tool("slow", gate), tool("quick")], **LOOP) as a:
        turn = asyncio.ensure_future(ask(a))
        await asyncio.wait_for(gate.began.wait(), BOUND_S)
        while not a.told("tool:post"):
            await asyncio.sleep(0)
        await a.session.coordinator.request_cancel(immediate=True)
        assert await turn == ""
        assert gate.ended == "cancelled"
        assert phases(await results(a)) == {"c0": "ok", "c1": "cancelled", "c2": "cancelled"}
        assert ends(a) == CANCELLED
        assert provider.closed == 1
        assert a.session.coordinator.cancellation.running_tools == set()
        await asyncio.sleep(0)
        left = {each for each in asyncio.all_tasks() - before if not each.done()}
        assert [each for each in left if each is not asyncio.current_task()] == []


async def test_a_cancelled_task_ends_once_with_every_call_answered(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    gate = Gate()
    async with agent(
        llm=llm([wants("c1", "slow"), wants("c2", "none")]), tools=[tool("slow", gate)], **LOOP
    ) as a:
        coordinator = a.session.coordinator
        context, providers, tools, loop = map(
            coordinator.get, ("context", "providers", "tools", "orchestrator")
        )
        task = asyncio.ensure_future(
            loop.execute("hello", context, providers, tools, coordinator.hooks, coordinator=coordinator)
        )
        await asyncio.wait_for(gate.began.wait(), BOUND_S)
        while not a.told("provider:response"):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, BOUND_S)
        assert gate.ended == "cancelled"
        assert phases(await results(a)) == {"c1": "cancelled", "c2": "structural"}
        assert ends(a) == CANCELLED


async def test_a_cancelled_turn_waits_for_no_ruling(agent: Any, tool: Any, llm: Any, wants: Any) -> None:
    asked = asyncio.Event()

    async def never_decides(event: str, data: dict[str, Any]) -> HookResult:
        asked.set()
        await asyncio.Event().wait()
        return HookResult()

    async with agent(llm=llm([wants("c1", "t")]), tools=[tool("t")], **LOOP) as a:
        a.hooks.register("tool:selecting", never_decides)
        turn = asyncio.ensure_future(ask(a))
        await asyncio.wait_for(asked.wait(), BOUND_S)
        await a.session.coordinator.request_cancel(immediate=True)
        assert await turn == ""
        assert a.tools["t"].calls == []
        assert phases(await results(a)) == {"c1": "cancelled"}


async def test_a_tool_that_cancels_itself_fails_alone(agent: Any, tool: Any, llm: Any, wants: Any) -> None:
    async def gives_up(_: dict[str, Any]) -> None:
        raise asyncio.CancelledError

    tools = [tool("gives_up", gives_up), tool("t")]
    async with agent(llm=llm([wants("c1", "gives_up"), wants("c2", "t")]), tools=tools, **LOOP) as a:
        assert await ask(a) == "done"
        assert phases(await results(a)) == {"c1": "runtime", "c2": "ok"}


# ---------------------------------------------------------------- limits


async def test_at_the_limit_a_last_request_offers_the_output_alone(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm(
        [wants("c1", "t", {"_outputPath": "†state.a"})], [wants("f", "final_output", {"output": "†state.a"})]
    )
    config = {"output_schema": INTEGER, "max_iterations": 1}
    async with agent(llm=provider, tools=[tool("t", lambda _: 5)], config=config, **LOOP) as a:
        assert await ask(a) == "5"
        last = provider.requests[1]
        assert [spec.name for spec in last.tools] == ["final_output"]
        assert last.tool_choice == "required"
        assert any(LIMIT_REMINDER in str(message.content) for message in last.messages)
        assert not any(LIMIT_REMINDER in str(message["content"]) for message in await a.messages())
        assert a.told("orchestrator:complete")[0]["status"] == "incomplete"
        await results(a)


async def test_at_the_limit_a_text_is_taken_for_want_of_an_output(
    agent: Any, tool: Any, llm: Any, wants: Any, says: Any
) -> None:
    provider = llm([wants("c1", "t")], [says("I got as far as this."), wants("c2", "t")])
    config = {"output_schema": INTEGER, "max_iterations": 1}
    async with agent(llm=provider, tools=[tool("t")], config=config, **LOOP) as a:
        assert await ask(a) == "I got as far as this."
        assert a.tools["t"].calls == [{}]
        assert phases(await results(a)) == {"c1": "ok", "c2": "structural"}
        assert a.session.coordinator.get("orchestrator").last_output is None


async def test_at_the_limit_without_a_schema_the_llm_sums_up_without_tools(
    agent: Any, tool: Any, llm: Any, wants: Any, says: Any
) -> None:
    provider = llm([wants("c1", "t")], [says("So far so good.")])
    async with agent(llm=provider, tools=[tool("t")], config={"max_iterations": 1}, **LOOP) as a:
        assert await ask(a) == "So far so good."
        assert provider.requests[1].tools is None


async def test_an_llm_that_gives_neither_calls_nor_output_is_not_asked_for_ever(
    agent: Any, llm: Any, says: Any
) -> None:
    provider = llm(*[[says("Done!")]] * 20)
    async with agent(llm=provider, config={"output_schema": INTEGER}, **LOOP) as a:
        with pytest.raises(Exception, match="neither a call nor an output"):
            await ask(a)
        assert len(provider.requests) == 5
        assert ends(a) == BROKEN
    assert issubclass(NoOutput, Exception)


# ---------------------------------------------------------------- ids, names, the final response


async def test_two_calls_of_one_id_have_a_result_each(agent: Any, tool: Any, llm: Any, wants: Any) -> None:
    answer = [wants("c1", "t", {"n": 1}), wants("c1", "t", {"n": 2})]
    async with agent(llm=llm(answer), tools=[tool("t")], **LOOP) as a:
        await ask(a)
        assert sorted(call["n"] for call in a.tools["t"].calls) == [1, 2]
        assert list(await results(a)) == ["c1", "c1_2"]


async def test_calls_that_the_final_response_repeats_are_run_once(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    final = ChatResponse(
        content=[TextBlock(text="calling")],
        tool_calls=[
            ToolCall(id="c1", name="t", arguments={"n": 1}),
            ToolCall(id="c2", name="t", arguments={"n": 2}),
        ],
    )
    answer = [wants("c1", "t", {"n": 1}), final]
    async with agent(llm=llm(answer), tools=[tool("t")], **LOOP) as a:
        await ask(a)
        assert a.tools["t"].calls == [{"n": 1}, {"n": 2}]
        assert list(await results(a)) == ["c1", "c2"]


async def test_calls_may_come_as_objects(agent: Any, tool: Any, llm: Any) -> None:
    answer = [ToolCall(id="c1", name="t", arguments={"_outputPath": "†state.a"})]
    async with agent(llm=llm(answer), tools=[tool("t")], **LOOP) as a:
        await ask(a)
        assert a.tools["t"].calls == [{}]


async def test_a_tool_with_a_parameter_output_is_like_any_other(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    schema = {"type": "object", "properties": {"output": INTEGER}}
    answer = [wants("c1", "t", {"output": 3}), wants("f", "final_output", {"output": "†state.x"})]
    config = {"output_schema": INTEGER, "state": {"x": 7}}
    async with agent(llm=llm(answer), tools=[tool("t", lambda _: 0, schema)], config=config, **LOOP) as a:
        assert await ask(a) == "7"
        assert a.tools["t"].calls == [{"output": 3}]


async def test_a_tool_with_an_output_path_of_its_own_gets_it_and_writes_nothing(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    schema = {
        "type": "object",
        "properties": {"_outputPath": {"type": "string"}},
        "required": ["_outputPath"],
    }
    answer = [wants("c1", "t", {"_outputPath": "†state.x"}), wants("c2", "t", {"_outputPath": "/tmp/x"})]
    config = {"state": {"x": "out.txt"}}
    async with agent(llm=llm(answer), tools=[tool("t", lambda _: 0, schema)], config=config, **LOOP) as a:
        await ask(a)
        paths = [call["_outputPath"] for call in a.tools["t"].calls]
        assert sorted(paths) == ["/tmp/x", "out.txt"]
        assert a.session.coordinator.get("orchestrator").data.state == {"x": "out.txt"}
        assert all("_outputPath" not in each for each in (await results(a)).values())


async def test_a_mounted_tool_of_the_outputs_name_is_refused_with_the_way_out(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    answer = [wants("f", "done_with_it", {"output": 3})]
    config = {"output_schema": INTEGER}
    async with agent(llm=llm(), tools=[tool("final_output")], config=config, **LOOP) as a:
        with pytest.raises(Exception, match="output_tool: a tool named 'final_output' is mounted"):
            await ask(a)
    config["output_tool"] = "done_with_it"
    async with agent(llm=llm(answer), tools=[tool("final_output")], config=config, **LOOP) as a:
        assert await ask(a) == "3"


# ---------------------------------------------------------------- what tools and hooks put out


async def test_what_a_tool_put_out_is_never_read_as_a_reference(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    answer = [wants("c1", "web", {"_outputPath": "†state.page"}), wants("c2", "t", {"x": "†state.page"})]
    config = {"state": {"secret": "42"}}
    tools = [tool("web", lambda _: ["†state.secret", "††"]), tool("t")]
    async with agent(llm=llm(answer), tools=tools, config=config, **LOOP) as a:
        await ask(a)
        assert a.tools["t"].calls == [{"x": ["†state.secret", "††"]}]


async def test_a_tool_that_changes_its_arguments_does_not_change_the_state(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    config = {"state": {"list": [1]}}
    async with agent(
        llm=llm([wants("c1", "t", {"x": "†state.list"})]), tools=[tool("t")], config=config, **LOOP
    ) as a:
        a.tools["t"].answer = lambda given: given["x"].append(2)
        await ask(a)
        assert a.session.coordinator.get("orchestrator").data.state == {"list": [1]}


async def test_a_result_that_a_hook_changed_is_changed_for_those_who_need_it_too(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    answer = [wants("c1", "t", {"_outputPath": "†state.a"}), wants("c2", "u", {"x": "†state.a"})]
    async with agent(llm=llm(answer), tools=[tool("t", lambda _: "secret"), tool("u")], **LOOP) as a:

        async def redact(event: str, data: dict[str, Any]) -> HookResult:
            if data["tool_name"] != "t":
                return HookResult()
            return HookResult(action="modify", data={**data, "result": {"success": True, "output": "***"}})

        a.hooks.register("tool:post", redact)
        await ask(a)
        assert a.tools["u"].calls == [{"x": "***"}]
        assert (await results(a))["c1"]["data"] == "***"


async def test_a_result_that_a_hook_withholds_is_kept_from_everyone(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    answer = [wants("c1", "t", {"_outputPath": "†state.a"}), wants("c2", "u", {"x": "†state.a"})]
    async with agent(llm=llm(answer), tools=[tool("t", lambda _: "secret"), tool("u")], **LOOP) as a:
        a.on("tool:post", HookResult(action="deny", reason="private"))
        await ask(a)
        assert a.tools["u"].calls == []
        assert phases(await results(a)) == {"c1": "denied", "c2": "structural"}
        assert "secret" not in json.dumps(await a.messages())


async def test_pictures_stand_behind_the_data_message(agent: Any, tool: Any, llm: Any, wants: Any) -> None:
    picture = ToolResult(success=True, output="a cat", content=[TextBlock(text="(picture)")])
    async with agent(llm=llm([wants("c1", "t")]), tools=[tool("t", lambda _: picture)], **LOOP) as a:
        await ask(a)
        (content,) = await a.results()
        assert json.loads(content[0]["text"]) == {"type": "data", "data": "a cat"}
        assert content[1]["text"] == "(picture)"


async def test_a_stored_injection_never_lands_between_a_call_and_its_result(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    answer = [wants("c1", "t"), wants("c2", "t"), wants("c3", "none")]
    async with agent(llm=llm(answer), tools=[tool("t")], **LOOP) as a:
        for event in ("tool:pre", "tool:post", "tool:error"):
            a.on(event, HookResult(action="inject_context", context_injection=f"said on {event}"))
        await ask(a)
        roles = [message["role"] for message in await a.messages()]
        assert roles == [
            "user",
            "assistant",
            "tool",
            "tool",
            "tool",
            "system",
            "system",
            "system",
            "assistant",
        ]


# ---------------------------------------------------------------- hostile and huge


@pytest.mark.parametrize(
    "arguments",
    [
        "[" * 100_000,
        '{"x":' * 5_000 + "1" + "}" * 5_000,
        '{"x": "' + "y" * 4_100_000 + '"}',
        '{"x": ' + json.dumps(list(range(30_000))) + "}",
        '{"x": NaN, "y": 1e999, "z": ' + "9" * 400 + "}",
        '{"\\ud800": "\\udfff"}',
        "null",
        "\x00",
    ],
)
async def test_hostile_arguments_end_one_call_at_most(
    agent: Any, tool: Any, llm: Any, wants: Any, arguments: str
) -> None:
    answer = [wants("c1", "t", arguments), wants("c2", "t", {"n": 2})]
    async with agent(llm=llm(answer), tools=[tool("t")], **LOOP) as a:
        assert await ask(a) == "done"
        assert {"n": 2} in a.tools["t"].calls
        assert list(phases(await results(a)).values()).count("ok") >= 1
        assert sum(len(str(message["content"])) for message in await a.messages()) < 100_000


async def test_far_too_many_calls_are_refused_one_by_one(agent: Any, tool: Any, llm: Any, wants: Any) -> None:
    answer = [wants(f"c{n}", "t") for n in range(300)]
    async with agent(llm=llm(answer), tools=[tool("t")], deaf=True, **LOOP) as a:
        assert await ask(a) == "done"
        assert len(a.tools["t"].calls) == 256
        found = list(phases(await results(a)).values())
        assert (found.count("ok"), found.count("structural")) == (256, 44)


# ---------------------------------------------------------------- what the LLM is told with each request


async def test_the_rules_and_the_data_are_told_with_each_request_and_never_stored(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm([wants("c1", "t", {"_outputPath": "†state.found"})])
    config = {"input": {"user": "Ada"}}
    async with agent(llm=provider, tools=[tool("t", lambda _: "z" * 5_000)], config=config, **LOOP) as a:
        await ask(a)
        first, second = ([(m.role, str(m.content)) for m in each.messages] for each in provider.requests)
        assert first[-2][0] == "system"
        assert "_outputPath" in first[-2][1]
        assert first[-1] == ("user", '## Data: ¶input {"user": "Ada"}')
        assert "## Data: ¶state" in second[-1][1]
        assert "(5000 characters)" in second[-1][1]
        assert len(second[-1][1]) < 1_000
        assert not any("¶" in str(message["content"]) for message in await a.messages())


async def test_a_plain_chat_is_told_nothing(agent: Any, llm: Any) -> None:
    provider = llm()
    async with agent(llm=provider, **LOOP) as a:
        await ask(a)
        assert [message.role for message in provider.requests[0].messages] == ["user"]


async def test_however_large_the_state_the_note_stays_short(agent: Any, tool: Any, llm: Any) -> None:
    state = {f"k{n}": {f"k{m}": ["x" * 300] * 30 for m in range(30)} for n in range(30)}
    provider = llm()
    async with agent(llm=provider, tools=[tool("t")], config={"state": state}, **LOOP) as a:
        await ask(a)
        assert len(str(provider.requests[0].messages[-1].content)) < 6_100


async def test_the_state_lives_as_long_as_the_session(
    agent: Any, tool: Any, llm: Any, wants: Any, says: Any
) -> None:
    provider = llm(
        [wants("c1", "t", {"_outputPath": "†state.a"})], [says("ok")], [wants("c2", "u", {"x": "†state.a"})]
    )
    async with agent(llm=provider, tools=[tool("t", lambda _: 5), tool("u")], **LOOP) as a:
        await ask(a)
        await ask(a)
        assert a.tools["u"].calls == [{"x": 5}]


async def test_a_caller_may_give_schema_and_input_with_the_prompt(agent: Any, llm: Any, wants: Any) -> None:
    provider = llm([wants("f", "final_output", {"output": "†input.n"})])
    async with agent(llm=provider, config={"input": {"n": "no"}}, **LOOP) as a:
        coordinator = a.session.coordinator
        context, providers, tools, loop = map(
            coordinator.get, ("context", "providers", "tools", "orchestrator")
        )
        assert isinstance(loop, LoopReactive)
        answer = await loop.execute(
            "hello",
            context,
            providers,
            tools,
            coordinator.hooks,
            coordinator=coordinator,
            output_schema=INTEGER,
            input={"n": 5},
        )
        assert (answer, loop.last_output) == ("5", 5)
