"""What loop-reactive makes of odd, hostile and huge input, and what it tells the LLM each time."""

import json
from typing import Any

import pytest
from amplifier_core import ChatResponse, HookResult, TextBlock, ToolCall, ToolResult
from reactive_session import INTEGER, LOOP, ask, phases, results
from toolgate_orchestrator.loops.reactive import LoopReactive

pytestmark = pytest.mark.pure


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
        assert sorted(call["n"] for call in a.tools["t"].calls) == [1, 2]
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


async def test_calls_that_only_the_provider_finds_in_its_response_are_run_too(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm([wants("c1", "t", {"n": 1}), ChatResponse(content=[TextBlock(text="<call n=2>")])])
    provider.parse_tool_calls = lambda response: [ToolCall(id="c2", name="t", arguments={"n": 2})]
    provider.answers.append([{"type": "text.delta", "text": "done"}])
    async with agent(llm=provider, tools=[tool("t")], **LOOP) as a:
        assert await ask(a) == "done"
        assert sorted(call["n"] for call in a.tools["t"].calls) == [1, 2]
        assert list(await results(a)) == ["c1", "c2"]


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


async def test_pictures_stand_behind_the_text_of_a_result(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    picture = ToolResult(success=True, output="a cat", content=[TextBlock(text="(picture)")])
    answer = [wants("c1", "t"), wants("c2", "t", {"_outputPath": "†state.cat"})]
    async with agent(llm=llm(answer), tools=[tool("t", lambda _: picture)], **LOOP) as a:
        await ask(a)
        plain, kept = await a.results()
        assert plain[0]["text"] == "a cat"
        told = {"type": "data", "data": "a cat", "_outputPath": "†state.cat"}
        assert json.loads(kept[0]["text"]) == told
        assert plain[1]["text"] == kept[1]["text"] == "(picture)"


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


async def test_of_a_long_list_or_dict_the_note_shows_the_beginning(agent: Any, tool: Any, llm: Any) -> None:
    state = {"list": list(range(100, 150)), "deep": [[[[[[["bottom"]]]]]]], **{f"k{n}": n for n in range(30)}}
    provider = llm()
    async with agent(llm=provider, tools=[tool("t")], config={"state": state}, **LOOP) as a:
        await ask(a)
        note = str(provider.requests[0].messages[-1].content)
        assert '118, 119, "… 30 more"]' in note
        assert '"…": "12 more"' in note
        assert "bottom" not in note


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
