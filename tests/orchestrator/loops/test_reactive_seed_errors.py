"""The seed agent-loop on people and on errors, sentence by sentence, in a real session.

The requirements behind the sentences, in all their cases, are in test_reactive_calls.py, _outputs,
_people and _errors.
"""

import asyncio
from typing import Any

import pytest
from amplifier_core import HookResult
from amplifier_core.approval import ApprovalTimeoutError
from reactive_session import INTEGER, LOOP, ask, requests, told, wait_for

pytestmark = pytest.mark.pure


# ------------------------------------------------------------------ human in the loop


class Person:
    """Says the same to everything; remembers what was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.prompts = answer, list[str]()

    async def request_approval(self, prompt: str, *_: Any) -> str:
        self.prompts.append(prompt)
        if isinstance(self.answer, Exception):
            raise self.answer
        return str(self.answer)


def asks(_: dict[str, Any]) -> HookResult:
    return HookResult(action="ask_user", approval_prompt="May it?")


async def test_the_user_is_only_prompted_to_act_on_calls_that_are_ready_to_run(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    person = Person("Allow")
    provider = llm([wants("c1", "t", {"x": "†state.never"}), wants("c2", "t", {"x": 2})])
    async with agent(llm=provider, tools=[tool("t")], approvals=person, **LOOP) as a:
        a.on("tool:selecting", asks, asks)
        await ask(a)
        assert person.prompts == ['May it?\nt {"x": 2}']


@pytest.mark.parametrize(("answer", "runs"), [("Allow", [{"amount": 80}]), ("Deny", [])])
async def test_approval_before_an_unblocked_call_is_executed_it_is_presented_to_a_user(
    agent: Any, tool: Any, llm: Any, wants: Any, answer: str, runs: list[Any]
) -> None:
    person = Person(answer)
    provider = llm([wants("c2", "pay", {"amount": "†state.total"})])
    config = {"state": {"total": 80}}
    async with agent(llm=provider, tools=[tool("pay")], approvals=person, config=config, **LOOP) as a:
        a.on("tool:selecting", asks)
        await ask(a)
        assert person.prompts == ['May it?\npay {"amount": 80}']
        assert a.tools["pay"].calls == runs


async def test_correction_the_user_can_modify_the_parameters_of_a_call(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    async with agent(llm=llm([wants("c1", "pay", {"amount": 80})]), tools=[tool("pay")], **LOOP) as a:
        a.on("tool:selecting", HookResult(action="modify", data={"arguments": {"amount": 50}}))
        await ask(a)
        assert a.tools["pay"].calls == [{"amount": 50}]


async def test_correction_the_user_can_even_replace_a_call_with_a_different_one(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    correction = {"tool": "credit", "arguments": {"points": 5}}
    tools = [tool("pay"), tool("credit")]
    async with agent(llm=llm([wants("c1", "pay", {"amount": 80})]), tools=tools, **LOOP) as a:
        a.on("tool:selecting", HookResult(action="modify", data=correction))
        await ask(a)
        assert (a.tools["pay"].calls, a.tools["credit"].calls) == ([], [{"points": 5}])


async def test_these_mechanisms_are_not_part_of_the_core_protocol(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    person = Person("Deny")
    async with agent(llm=llm([wants("c1", "t")]), tools=[tool("t")], approvals=person, **LOOP) as a:
        assert await ask(a) == "done"
        assert person.prompts == []
        assert a.tools["t"].calls == [{}]


async def test_any_intervention_is_possible_up_to_an_automated_system_with_timeouts(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    async def automated(event: str, data: dict[str, Any]) -> HookResult:
        if data["tool_name"] == "ask":
            return asks(data)
        return HookResult(action="deny", reason="never") if data["tool_name"] == "no" else HookResult()

    person = Person(ApprovalTimeoutError("nobody answered"))
    provider = llm([wants("c1", "ask"), wants("c2", "no"), wants("c3", "yes")])
    tools = [tool(name) for name in ("ask", "no", "yes")]
    async with agent(llm=provider, tools=tools, approvals=person, **LOOP) as a:
        a.hooks.register("tool:selecting", automated)
        await ask(a)
        assert [len(a.tools[name].calls) for name in ("ask", "no", "yes")] == [0, 0, 1]
        assert [each["data"]["error"]["phase"] for each in (await told(a))[1:]] == ["denied", "denied"]


async def test_user_adjustments_and_feedback_can_be_leveraged(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm([wants("c1", "t", {"n": 1}), wants("c2", "u")])

    async def person(event: str, data: dict[str, Any]) -> HookResult:
        if data["tool_name"] == "u":
            return HookResult(action="deny", reason="use t for this")
        return HookResult(action="modify", data={"arguments": {"n": 2}})

    async with agent(llm=provider, tools=[tool("t"), tool("u")], **LOOP) as a:
        a.hooks.register("tool:selecting", person)
        await ask(a)
        assert '"corrected": {"_tool": "t", "n": 2}' in requests(a)[1]
        assert "use t for this" in requests(a)[1]


# ------------------------------------------------------------------ error handling and self-correction


async def test_when_an_error_is_caught_an_error_message_is_appended_for_the_next_iteration(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm([wants("c1", "bad")])
    async with agent(llm=provider, tools=[tool("bad", lambda _: 1 // 0)], **LOOP) as a:
        assert await ask(a) == "done"
        (message,) = await told(a)
        assert (message["type"], message["kind"]) == ("data", "error")
        assert '"kind": "error"' in requests(a)[1]


async def test_an_error_message_has_the_full_serialized_call_that_failed(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    arguments = {"deep": {"list": ["†input.x", "†† y"]}, "_outputPath": "†state.a"}
    config = {"input": {"x": 1}}
    provider = llm([wants("c1", "bad", arguments)])
    async with agent(llm=provider, tools=[tool("bad", lambda _: 1 // 0)], config=config, **LOOP) as a:
        await ask(a)
        (message,) = await told(a)
        assert message["data"]["call"] == {"id": "c1", "_tool": "bad", **arguments}


async def test_an_error_message_has_the_reason_for_failure(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    async with agent(llm=llm([wants("c1", "bad")]), tools=[tool("bad", lambda _: [][3])], **LOOP) as a:
        await ask(a)
        (message,) = await told(a)
        assert message["data"]["error"] == {
            "phase": "runtime",
            "type": "IndexError",
            "message": "list index out of range",
        }


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        pytest.param(
            {"n": 1, "other": 1}, "schema_validation", id="schema validation of a call's parameters"
        ),
        pytest.param({"n": "†state.text"}, "schema_validation", id="mismatched types"),
        pytest.param({"n": "†nowhere.at.all"}, "invalid_reference", id="invalid Variable References"),
        pytest.param(
            {"n": "†state.not.there"}, "unresolved_reference", id="references that never become valid"
        ),
    ],
)
async def test_structural_errors_are_caught_before_execution(
    agent: Any, tool: Any, llm: Any, wants: Any, arguments: Any, kind: str
) -> None:
    schema = {"type": "object", "properties": {"n": INTEGER}, "additionalProperties": False}
    config = {"state": {"text": "seven"}}
    t = tool("t", lambda _: 0, schema)
    async with agent(llm=llm([wants("c1", "t", arguments)]), tools=[t], config=config, **LOOP) as a:
        await ask(a)
        assert t.calls == []
        (message,) = await told(a)
        assert message["data"]["error"]["phase"] == "structural"
        assert message["data"]["error"]["type"] == kind


async def test_runtime_errors_are_caught_during_execution(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    class ApiDown(Exception):  # noqa: N818 - as an API would call it
        pass

    def calls_the_api(_: dict[str, Any]) -> None:
        raise ApiDown("503")

    provider = llm([wants("c1", "t"), wants("c2", "u")])
    async with agent(llm=provider, tools=[tool("t", calls_the_api), tool("u")], **LOOP) as a:
        assert await ask(a) == "done"
        assert a.tools["u"].calls == [{}]
        error = (await told(a))[1]["data"]["error"]
        assert (error["phase"], error["type"], error["message"]) == ("runtime", "ApiDown", "503")


async def test_all_error_messages_collected_during_a_turn_are_appended_at_the_end_of_the_tick(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    failed = asyncio.Event()
    provider = llm([wants("c1", "bad"), wants("c2", "none"), wants("c3", "slow")])
    tools = [tool("bad", lambda _: 1 // 0), tool("slow", wait_for(failed, "ok"))]
    stored: list[int] = []
    async with agent(llm=provider, tools=tools, **LOOP) as a:

        async def bad_failed(event: str, data: dict[str, Any]) -> HookResult:
            if data["tool_name"] == "bad":
                stored.append(len(await a.messages()))
                failed.set()
            return HookResult()

        a.hooks.register("tool:error", bad_failed)
        await ask(a)
        assert stored == [1]  # the prompt alone: an error waits for the end
        order = [message["tool_call_id"] for message in await a.messages() if message["role"] == "tool"]
        assert order == ["c3", "c1", "c2"]


async def test_on_its_next_turn_it_sees_the_failed_call_and_its_error_and_generates_a_corrected_plan(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    schema = {"type": "object", "properties": {"n": INTEGER}}
    provider = llm([wants("c1", "t", {"n": "three"})], [wants("c2", "t", {"n": 3})])
    async with agent(llm=provider, tools=[tool("t", lambda given: given["n"] * 2, schema)], **LOOP) as a:
        await ask(a)
        assert '"n": "three"' in requests(a)[1]
        assert "'three' is not of type 'integer'" in requests(a)[1]
        assert a.tools["t"].calls == [{"n": 3}]


async def test_an_activity_can_handle_its_own_errors_and_direct_the_workflow_down_an_unhappy_path(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm(
        [
            wants("c1", "fetch", {"_outputPath": "†state.page"}),
            wants("c2", "happy", {"x": "†state.page.text"}),
            wants("c3", "unhappy", {"x": "†state.page.error"}),
        ]
    )
    tools = [tool("fetch", lambda _: {"error": "404"}), tool("happy"), tool("unhappy")]
    async with agent(llm=provider, tools=tools, **LOOP) as a:
        await ask(a)
        assert (a.tools["happy"].calls, a.tools["unhappy"].calls) == ([], [{"x": "404"}])
        assert "kind" not in (await told(a))[0]
