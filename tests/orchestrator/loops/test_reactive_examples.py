"""The worked examples of the reactive loop, inside a real AmplifierSession with a streaming provider."""

import asyncio
import json
from typing import Any

import pytest
from amplifier_core import HookResult

pytestmark = pytest.mark.pure

INTEGER = {"type": "integer"}
STRING = {"type": "string"}
ADD = {"type": "object", "properties": {"x": INTEGER, "y": INTEGER}, "required": ["x", "y"]}
END = {"type": "message.end", "finish_reason": "tool_use"}


def told(results: list[str]) -> list[dict[str, Any]]:
    """The results as the LLM reads them."""
    return [json.loads(each) for each in results]


async def result_ids(a: Any) -> list[str]:
    return [message["tool_call_id"] for message in await a.messages() if message["role"] == "tool"]


async def test_e1_fan_out_fan_in_a_forward_reference_and_an_output_in_one_request(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    compared, both, running = asyncio.Event(), asyncio.Event(), set()
    temperatures = {"Oslo": 2, "Rome": 20}

    async def fetch(arguments: dict[str, Any]) -> dict[str, Any]:
        running.add(arguments["city"])
        if len(running) == 2:
            both.set()
        await both.wait()  # neither ends before the other has begun
        return {"city": arguments["city"], "temp": temperatures[arguments["city"]]}

    def compare(arguments: dict[str, Any]) -> dict[str, Any]:
        a, b = arguments["a"], arguments["b"]
        return {
            "warmer": max(a, b, key=lambda each: each["temp"])["city"],
            "diff": abs(a["temp"] - b["temp"]),
        }

    def hear(data: dict[str, Any]) -> HookResult:
        if data["tool_call_id"] == "c1":
            compared.set()  # the stream is not closed before this
        return HookResult()

    provider = llm(
        [
            wants("c1", "compare", {"a": "†state.oslo", "b": "†state.rome", "_outputPath": "†state.cmp"}),
            wants("c2", "fetch", {"city": "Oslo", "_outputPath": "†state.oslo"}),
            wants("c3", "fetch", {"city": "Rome", "_outputPath": "†state.rome"}),
            wants(
                "f1", "final_output", {"output": {"warmer": "†state.cmp.warmer", "diff": "†state.cmp.diff"}}
            ),
            compared,
            END,
        ]
    )
    schema = {
        "type": "object",
        "properties": {"warmer": STRING, "diff": INTEGER},
        "required": ["warmer", "diff"],
    }
    tools = [
        tool("fetch", fetch, {"type": "object", "properties": {"city": STRING}}),
        tool("compare", compare, {"type": "object", "properties": {"a": {"type": "object"}, "b": {}}}),
    ]
    async with agent(llm=provider, tools=tools, loop="loop-reactive", config={"output_schema": schema}) as a:
        a.on("tool:post", hear, hear, hear)
        assert await asyncio.wait_for(a.ask(), 10) == '{"warmer": "Rome", "diff": 18}'
        assert len(provider.requests) == 1
        assert await result_ids(a) == ["c1", "c2", "c3", "f1"]
        last = (await a.messages())[-1]
        assert last == {"role": "assistant", "content": '{"warmer": "Rome", "diff": 18}'}
        assert a.session.coordinator.get("orchestrator").last_output == {"warmer": "Rome", "diff": 18}
        posts = [event["tool_call_id"] for event in a.told("tool:post")]
        assert sorted(posts[:2]) == ["c2", "c3"]
        assert posts[2:] == ["c1"]
        assert a.names("tool:post", "provider:response")[-1] == "provider:response"


async def test_e2_a_structural_error_is_corrected_in_the_next_request(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm(
        [
            wants("c1", "add", {"x": 2, "y": "three", "_outputPath": "†state.sum"}),
            wants("c2", "add", {"x": "†state.sum", "y": 10, "_outputPath": "†state.total"}),
            wants("c3", "add", {"x": 1, "y": 1, "_outputPath": "†state.ok"}),
        ],
        [
            wants("c4", "add", {"x": 2, "y": 3, "_outputPath": "†state.sum"}),
            wants("c5", "add", {"x": "†state.sum", "y": 10, "_outputPath": "†state.total"}),
            wants("f", "final_output", {"output": "†state.total"}),
        ],
    )
    add = tool("add", lambda arguments: arguments["x"] + arguments["y"], ADD)
    async with agent(llm=provider, tools=[add], loop="loop-reactive", config={"output_schema": INTEGER}) as a:
        assert await a.ask() == "15"
        assert add.calls == [{"x": 1, "y": 1}, {"x": 2, "y": 3}, {"x": 5, "y": 10}]
        assert (await result_ids(a))[:3] == ["c3", "c1", "c2"]
        c3, c1, c2 = told((await a.results())[:3])
        assert c3 == {"type": "data", "data": 2, "_outputPath": "†state.ok"}
        assert c1 == {
            "type": "data",
            "kind": "error",
            "data": {
                "call": {"id": "c1", "_tool": "add", "x": 2, "y": "three", "_outputPath": "†state.sum"},
                "error": {
                    "phase": "structural",
                    "type": "schema_validation",
                    "message": "y: 'three' is not of type 'integer'",
                },
            },
        }
        assert c2 == {
            "type": "data",
            "kind": "error",
            "data": {
                "call": {
                    "id": "c2",
                    "_tool": "add",
                    "x": "†state.sum",
                    "y": 10,
                    "_outputPath": "†state.total",
                },
                "error": {
                    "phase": "structural",
                    "type": "unresolved_reference",
                    "message": "never became available: †state.sum",
                    "blocked_by": ["c1"],
                },
            },
        }
        first, second = ([str(message.content) for message in each.messages] for each in provider.requests)
        assert not any('"kind": "error"' in content for content in first)
        assert sum('"kind": "error"' in content for content in second) == 2


async def test_e3_a_person_replaces_a_call_and_never_sees_a_blocked_one(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm(
        [
            wants("c1", "lookup", {"order": "42", "_outputPath": "†state.order"}),
            wants(
                "c2",
                "refund",
                {
                    "email": "†state.order.email",
                    "amount": "†state.order.total",
                    "_outputPath": "†state.refund",
                },
            ),
            wants("c3", "refund", {"email": "†state.nope", "amount": 1}),
        ],
        [wants("f", "final_output", {"output": "†state.refund"})],
    )
    money = {
        "type": "object",
        "properties": {"email": STRING, "amount": INTEGER},
        "required": ["email", "amount"],
    }
    tools = [
        tool("lookup", lambda _: {"email": "a@x.io", "total": 80}, {"type": "object"}),
        tool("refund", lambda _: "never", money),
        tool("store_credit", lambda given: {"credit": given["amount"], "to": given["email"]}, money),
    ]
    seen: list[tuple[str, Any]] = []

    async def reviewer(event: str, data: dict[str, Any]) -> HookResult:
        if data["phase"] == "select":
            seen.append((data["tool_name"], data["tool_input"]))
        if data["tool_name"] == "refund" and data["tool_input"]["amount"] > 50:
            corrected = {**data["tool_input"], "amount": 50}
            return HookResult(action="modify", data={"tool": "store_credit", "arguments": corrected})
        return HookResult()

    config = {"output_schema": {"type": "object"}}
    async with agent(llm=provider, tools=tools, loop="loop-reactive", config=config) as a:
        a.hooks.register("tool:selecting", reviewer, name="reviewer")
        assert json.loads(await a.ask()) == {"credit": 50, "to": "a@x.io"}
        assert seen == [("lookup", {"order": "42"}), ("refund", {"email": "a@x.io", "amount": 80})]
        assert a.tools["refund"].calls == []
        assert a.tools["store_credit"].calls == [{"email": "a@x.io", "amount": 50}]
        results = dict(zip(await result_ids(a), told(await a.results()), strict=True))
        assert results["c2"]["corrected"] == {
            "_tool": "store_credit",
            "email": "a@x.io",
            "amount": 50,
            "_outputPath": "†state.refund",
        }
        assert results["c3"]["data"]["error"]["type"] == "unresolved_reference"
        selected = [event for event in a.told("tool:selected") if event["tool_call_id"] == "c2"]
        assert [(each["tool"], each["source"], each["original_tool"]) for each in selected] == [
            ("store_credit", "scheduler", "refund")
        ]


# ---------------------------------------------------------------- E4, the small cases


async def test_e4_the_value_is_that_of_the_last_call_to_complete(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    ended = asyncio.Event()

    async def slow(_: dict[str, Any]) -> int:
        await ended.wait()
        return 1

    provider = llm(
        [
            wants("c1", "a", {"_outputPath": "†state.k"}),
            wants("c2", "b", {"_outputPath": "†state.k"}),
            wants("f", "final_output", {"output": "†state.k"}),
        ]
    )
    config = {"output_schema": INTEGER}
    async with agent(
        llm=provider, tools=[tool("a", slow), tool("b", lambda _: 2)], loop="loop-reactive", config=config
    ) as a:

        async def b_ended(event: str, data: dict[str, Any]) -> HookResult:
            if data["tool_name"] == "b":
                asyncio.get_running_loop().call_later(0.02, ended.set)
            return HookResult()

        a.hooks.register("tool:post", b_ended)
        assert await a.ask() == "1"
        writes = a.session.coordinator.get("orchestrator").data.writes
        assert [(write.path, write.call) for write in writes] == [("†state.k", "c2"), ("†state.k", "c1")]


@pytest.mark.parametrize(
    ("call", "phase", "kind"),
    [
        (("divide", {}), "runtime", "ZeroDivisionError"),
        (("divide", {"x": "†nope.k"}), "structural", "invalid_reference"),
        (("divide", {"x": "†state.k and so on"}), "structural", "invalid_reference"),
        (("divide", {"x": "†input.missing"}), "structural", "invalid_reference"),
        (("divide", {"x": "†state.missing"}), "structural", "unresolved_reference"),
        (("divide", {"_outputPath": "state.k"}), "structural", "invalid_output_path"),
        (("divide", {"_outputPath": "†state.a||†state.b"}), "structural", "invalid_output_path"),
        (("unheard_of", {}), "structural", "unknown_tool"),
        (("divide", "{bad"), "structural", "invalid_arguments"),
        (("fails", {}), "runtime", "ToolError"),
    ],
)
async def test_e4_a_failing_call_comes_back_with_its_phase_and_type(
    agent: Any, tool: Any, llm: Any, wants: Any, call: Any, phase: str, kind: str
) -> None:
    from amplifier_core import ToolResult

    tools = [
        tool("divide", lambda _: 1 // 0),
        tool("fails", lambda _: ToolResult(success=False, error={"message": "no"})),
    ]
    async with agent(llm=llm([wants("c1", *call)]), tools=tools, loop="loop-reactive") as a:
        assert await a.ask() == "done"
        (result,) = told(await a.results())
        assert (result["type"], result["kind"]) == ("data", "error")
        assert result["data"]["call"]["_tool"] == call[0]
        error = result["data"]["error"]
        assert (error["phase"], error["type"]) == (phase, kind)
        assert a.names("execution:end") == ["execution:end"]


async def test_e4_a_circle_ends_with_two_errors_that_name_each_other(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm(
        [
            wants("c1", "t", {"v": "†state.y", "_outputPath": "†state.x"}),
            wants("c2", "t", {"v": "†state.x", "_outputPath": "†state.y"}),
        ]
    )
    async with agent(llm=provider, tools=[tool("t")], loop="loop-reactive") as a:
        assert await asyncio.wait_for(a.ask(), 10) == "done"
        errors = [each["data"]["error"] for each in told(await a.results())]
        assert [(each["type"], each["blocked_by"]) for each in errors] == [
            ("unresolved_reference", ["c2"]),
            ("unresolved_reference", ["c1"]),
        ]
        assert a.tools["t"].calls == []


async def test_e4_a_person_who_says_no_denies_the_call(agent: Any, tool: Any, llm: Any, wants: Any) -> None:
    class No:
        async def request_approval(self, *_: Any) -> str:
            return "Deny"

    async with agent(
        llm=llm([wants("c1", "t", {"n": 1})]), tools=[tool("t")], loop="loop-reactive", approvals=No()
    ) as a:
        a.on("tool:selecting", HookResult(action="ask_user", approval_prompt="May it?"))
        assert await a.ask() == "done"
        (result,) = told(await a.results())
        assert result["data"]["error"]["phase"] == "denied"
        assert result["data"]["call"] == {"id": "c1", "_tool": "t", "n": 1}
        assert a.tools["t"].calls == []


async def test_e4_a_null_output_goes_on(agent: Any, llm: Any, wants: Any) -> None:
    provider = llm(
        [wants("f", "final_output", {"output": None})], [wants("f", "final_output", {"output": 7})]
    )
    async with agent(llm=provider, loop="loop-reactive", config={"output_schema": INTEGER}) as a:
        assert await a.ask() == "7"
        assert len(provider.requests) == 2


async def test_e4_an_output_that_does_not_fit_is_an_error_and_the_loop_goes_on(
    agent: Any, llm: Any, wants: Any
) -> None:
    provider = llm(
        [wants("f", "final_output", {"output": "text"})], [wants("f", "final_output", {"output": 7})]
    )
    async with agent(llm=provider, loop="loop-reactive", config={"output_schema": INTEGER}) as a:
        assert await a.ask() == "7"
        error = told(await a.results())[0]["data"]
        assert error["call"] == {"id": "f", "_tool": "final_output", "output": "text"}
        assert error["error"] == {
            "phase": "structural",
            "type": "output_schema",
            "message": "output: 'text' is not of type 'integer'",
        }


async def test_e4_two_marks_reach_the_tool_as_one(agent: Any, tool: Any, llm: Any, wants: Any) -> None:
    async with agent(
        llm=llm([wants("c1", "t", {"text": "††literal"})]), tools=[tool("t")], loop="loop-reactive"
    ) as a:
        await a.ask()
        assert a.tools["t"].calls == [{"text": "†literal"}]


async def test_e4_a_call_that_still_runs_completes_before_the_output_is_returned(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    closed = asyncio.Event()

    async def late(_: dict[str, Any]) -> str:
        await closed.wait()
        return "written"

    provider = llm(
        [wants("f", "final_output", {"output": 7}), wants("c1", "late", {"_outputPath": "†state.x"})]
    )
    config = {"output_schema": INTEGER}
    async with agent(llm=provider, tools=[tool("late", late)], loop="loop-reactive", config=config) as a:
        a.on("provider:response", lambda _: closed.set() or HookResult())
        assert await a.ask() == "7"
        assert a.session.coordinator.get("orchestrator").data.state == {"x": "written"}
        assert await result_ids(a) == ["f", "c1"]
