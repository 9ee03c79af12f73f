"""The seed agent-loop, sentence by sentence, on loop-reactive in a real session.

The requirements behind the sentences, in all their cases, are in test_reactive_requirements.py.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from amplifier_core import HookResult
from amplifier_core.approval import ApprovalTimeoutError

pytestmark = pytest.mark.pure

INTEGER = {"type": "integer"}
BOUND_S = 10
REACTIVE: dict[str, Any] = {"loop": "loop-reactive"}


async def ask(a: Any) -> str:
    answer: str = await asyncio.wait_for(a.ask("reach the goal"), BOUND_S)
    return answer


async def results(a: Any) -> list[Any]:
    return [json.loads(content) for content in await a.results()]


def read(provider: Any, number: int) -> str:
    """What the LLM read in one request."""
    return "\n".join(str(message.content) for message in provider.requests[number].messages)


def wait_for(event: asyncio.Event, result: Any) -> Callable[[dict[str, Any]], Any]:
    """A tool's function that gives its result once an event is set."""

    async def run(_: dict[str, Any]) -> Any:
        await event.wait()
        return result

    return run


def sets(event: asyncio.Event, result: Any = "done") -> Callable[[dict[str, Any]], Any]:
    """A tool's function that sets an event and gives its result."""

    def run(_: dict[str, Any]) -> Any:
        event.set()
        return result

    return run


# ------------------------------------------------------------------ the execution loop


async def test_the_agent_invokes_requests_and_feeds_back_the_output_of_calls_until_a_final_output(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm(
        [wants("c1", "step", {"n": 1})],
        [wants("c2", "step", {"n": 2})],
        [wants("f", "final_output", {"output": 3})],
    )
    step = tool("step", lambda given: f"result of step {given['n']}")
    async with agent(llm=provider, tools=[step], config={"output_schema": INTEGER}, **REACTIVE) as a:
        assert await ask(a) == "3"
        assert [read(provider, n).count("result of step") for n in range(3)] == [0, 1, 2]


async def test_it_starts_with_an_initial_context_and_invokes_a_single_request_at_a_time(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm([wants("c1", "t")], [wants("c2", "t")])
    async with agent(llm=provider, tools=[tool("t")], **REACTIVE) as a:
        await a.session.coordinator.get("context").add_message({"role": "user", "content": "from before"})
        await ask(a)
        assert [message.content for message in provider.requests[0].messages][:2] == [
            "from before",
            "reach the goal",
        ]
        told = a.names("provider:request", "provider:response")
        assert told == ["provider:request", "provider:response"] * 3


async def test_the_request_streams_back_calls_as_they_are_generated_into_a_pending_queue(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    first, second = asyncio.Event(), asyncio.Event()
    provider = llm([wants("c1", "first"), first, wants("c2", "second"), second])
    tools = [tool("first", sets(first)), tool("second", sets(second))]
    async with agent(llm=provider, tools=tools, **REACTIVE) as a:
        assert await ask(a) == "done"  # the stream goes on only as the calls are taken out of it


async def test_the_inner_loop_is_triggered_by_a_new_call_and_by_a_call_that_completes(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    by_call, by_completion = asyncio.Event(), asyncio.Event()
    provider = llm(
        [
            wants("c1", "waits", {"_outputPath": "†state.a"}),  # runs until c2, the new call, has run
            wants("c2", "new"),
            wants("c3", "needs", {"x": "†state.a"}),  # runs when c1 completes; nothing is streamed then
            by_completion,
        ]
    )
    tools = [
        tool("waits", wait_for(by_call, 1)),
        tool("new", sets(by_call)),
        tool("needs", sets(by_completion)),
    ]
    async with agent(llm=provider, tools=tools, **REACTIVE) as a:
        assert await ask(a) == "done"
        assert a.tools["needs"].calls == [{"x": 1}]


async def test_the_orchestrator_finds_all_calls_that_are_currently_unblocked(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    together = asyncio.Barrier(3)

    async def meet(_: dict[str, Any]) -> None:
        await together.wait()

    waiting = [wants(f"c{n}", "meet", {"x": "†state.a"}) for n in range(3)]
    provider = llm([*waiting, wants("c9", "opens", {"_outputPath": "†state.a"})])
    async with agent(llm=provider, tools=[tool("meet", meet), tool("opens")], **REACTIVE) as a:
        await ask(a)
        assert a.tools["meet"].calls == [{"x": "done"}] * 3


async def test_all_unblocked_calls_can_be_presented_for_confirmation_and_then_executed_in_parallel(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    asked, together = asyncio.Barrier(2), asyncio.Barrier(2)

    async def confirm(event: str, data: dict[str, Any]) -> HookResult:
        await asked.wait()  # both are presented before either is confirmed
        return HookResult()

    async def meet(_: dict[str, Any]) -> str:
        await together.wait()
        return "met"

    provider = llm([wants("c1", "t"), wants("c2", "t")])
    async with agent(llm=provider, tools=[tool("t", meet)], **REACTIVE) as a:
        a.hooks.register("tool:selecting", confirm)
        await ask(a)
        assert [each["data"] for each in await results(a)] == ["met", "met"]


async def test_of_concurrent_writes_to_one_path_the_last_call_to_complete_determines_the_value(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    written = asyncio.Event()
    path = {"_outputPath": "†state.k"}
    provider = llm(
        [wants("c1", "slow", path), wants("c2", "quick", path)], [wants("c3", "t", {"x": "†state.k"})]
    )
    tools = [tool("slow", wait_for(written, "last to complete")), tool("quick", lambda _: "first"), tool("t")]
    async with agent(llm=provider, tools=tools, **REACTIVE) as a:

        async def quick_is_done(event: str, data: dict[str, Any]) -> HookResult:
            state = a.session.coordinator.get("orchestrator").data.state
            if data["tool_name"] == "quick":

                async def after_the_write() -> None:
                    while not state:
                        await asyncio.sleep(0)
                    written.set()

                a.later = asyncio.ensure_future(after_the_write())
            return HookResult()

        a.hooks.register("tool:post", quick_is_done)
        await ask(a)
        assert a.tools["t"].calls == [{"x": "last to complete"}]


async def test_as_each_call_completes_its_output_updates_the_shared_context_and_unblocks_others(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    unblocked = asyncio.Event()
    provider = llm(
        [
            wants("c1", "waits"),  # still runs when c3 starts
            wants("c2", "quick", {"_outputPath": "†state.a"}),
            wants("c3", "needs", {"x": "†state.a.id"}),
        ]
    )
    tools = [
        tool("waits", wait_for(unblocked, 0)),
        tool("quick", lambda _: {"id": 7}),
        tool("needs", sets(unblocked)),
    ]
    async with agent(llm=provider, tools=tools, **REACTIVE) as a:
        assert await ask(a) == "done"
        assert a.tools["needs"].calls == [{"x": 7}]


async def test_execution_continues_until_the_stream_is_closed_and_all_pending_calls_are_drained(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    closed = asyncio.Event()
    provider = llm(
        [
            wants("c1", "slow", {"_outputPath": "†state.a"}),
            wants("c2", "t", {"x": "†state.a"}),
            wants("c3", "t", {"x": "†state.never"}),
        ]
    )
    async with agent(llm=provider, tools=[tool("slow", wait_for(closed, 1)), tool("t")], **REACTIVE) as a:
        a.on("provider:response", lambda _: closed.set() or HookResult())
        assert await ask(a) == "done"
        assert a.tools["t"].calls == [{"x": 1}]
        assert len(await results(a)) == 3
        order = a.names("provider:request", "tool:post", "tool:error")
        assert order == ["provider:request", "tool:post", "tool:post", "tool:error", "provider:request"]


async def test_the_agent_starts_on_independent_steps_before_the_full_plan_is_known(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    both = asyncio.Barrier(3)

    async def step(_: dict[str, Any]) -> None:
        await both.wait()

    class Meets(asyncio.Event):
        async def wait(self) -> bool:  # the LLM goes on planning when both steps have begun
            await both.wait()
            return True

    provider = llm([wants("c1", "step"), wants("c2", "step"), Meets(), wants("c3", "last")])
    async with agent(llm=provider, tools=[tool("step", step), tool("last")], **REACTIVE) as a:
        assert await ask(a) == "done"
        assert a.tools["last"].calls == [{}]


# ------------------------------------------------------------------ termination and continuation


async def test_the_solution_is_inspected_once_the_inner_loop_has_completed(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    closed = asyncio.Event()
    provider = llm(
        [wants("f", "final_output", {"output": "†state.n"}), wants("c1", "t", {"_outputPath": "†state.n"})]
    )
    config = {"output_schema": INTEGER}
    async with agent(llm=provider, tools=[tool("t", wait_for(closed, 7))], config=config, **REACTIVE) as a:
        a.on("provider:response", lambda _: closed.set() or HookResult())
        assert await ask(a) == "7"


async def test_if_output_is_null_a_new_request_has_the_results_of_the_executed_calls(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm(
        [wants("c1", "t"), wants("f1", "final_output", {"output": None})],
        [wants("f2", "final_output", {"output": 1})],
    )
    config = {"output_schema": INTEGER}
    async with agent(llm=provider, tools=[tool("t", lambda _: "a finding")], config=config, **REACTIVE) as a:
        assert await ask(a) == "1"
        assert "a finding" in read(provider, 1)


async def test_if_output_is_not_null_it_conforms_to_the_schema_and_is_returned(
    agent: Any, llm: Any, wants: Any
) -> None:
    schema = {"type": "object", "properties": {"n": INTEGER}, "required": ["n"]}
    provider = llm(
        [wants("f1", "final_output", {"output": {"n": "many"}})],
        [wants("f2", "final_output", {"output": {"n": 3}})],
    )
    async with agent(llm=provider, config={"output_schema": schema}, **REACTIVE) as a:
        assert await ask(a) == '{"n": 3}'
        assert a.session.coordinator.get("orchestrator").last_output == {"n": 3}


async def test_calls_and_a_final_output_in_a_single_step_are_the_signal_to_stop(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm([wants("c1", "t"), wants("f", "final_output", {"output": 1}), wants("c2", "bad")])
    tools = [tool("t"), tool("bad", lambda _: 1 // 0)]
    async with agent(llm=provider, tools=tools, config={"output_schema": INTEGER}, **REACTIVE) as a:
        assert await ask(a) == "1"
        assert len(provider.requests) == 1
        assert [len(a.tools[name].calls) for name in ("t", "bad")] == [1, 1]


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
    async with agent(llm=provider, tools=[tool("t")], approvals=person, **REACTIVE) as a:
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
    async with agent(llm=provider, tools=[tool("pay")], approvals=person, config=config, **REACTIVE) as a:
        a.on("tool:selecting", asks)
        await ask(a)
        assert person.prompts == ['May it?\npay {"amount": 80}']
        assert a.tools["pay"].calls == runs


async def test_correction_the_user_can_modify_the_parameters_of_a_call(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    async with agent(llm=llm([wants("c1", "pay", {"amount": 80})]), tools=[tool("pay")], **REACTIVE) as a:
        a.on("tool:selecting", HookResult(action="modify", data={"arguments": {"amount": 50}}))
        await ask(a)
        assert a.tools["pay"].calls == [{"amount": 50}]


async def test_correction_the_user_can_even_replace_a_call_with_a_different_one(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    correction = {"tool": "credit", "arguments": {"points": 5}}
    tools = [tool("pay"), tool("credit")]
    async with agent(llm=llm([wants("c1", "pay", {"amount": 80})]), tools=tools, **REACTIVE) as a:
        a.on("tool:selecting", HookResult(action="modify", data=correction))
        await ask(a)
        assert (a.tools["pay"].calls, a.tools["credit"].calls) == ([], [{"points": 5}])


async def test_these_mechanisms_are_not_part_of_the_core_protocol(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    person = Person("Deny")
    async with agent(llm=llm([wants("c1", "t")]), tools=[tool("t")], approvals=person, **REACTIVE) as a:
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
    async with agent(llm=provider, tools=tools, approvals=person, **REACTIVE) as a:
        a.hooks.register("tool:selecting", automated)
        await ask(a)
        assert [len(a.tools[name].calls) for name in ("ask", "no", "yes")] == [0, 0, 1]
        assert [each["data"]["error"]["phase"] for each in (await results(a))[1:]] == ["denied", "denied"]


async def test_user_adjustments_and_feedback_can_be_leveraged(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm([wants("c1", "t", {"n": 1}), wants("c2", "u")])

    async def person(event: str, data: dict[str, Any]) -> HookResult:
        if data["tool_name"] == "u":
            return HookResult(action="deny", reason="use t for this")
        return HookResult(action="modify", data={"arguments": {"n": 2}})

    async with agent(llm=provider, tools=[tool("t"), tool("u")], **REACTIVE) as a:
        a.hooks.register("tool:selecting", person)
        await ask(a)
        assert '"corrected": {"_tool": "t", "n": 2}' in read(provider, 1)
        assert "use t for this" in read(provider, 1)


# ------------------------------------------------------------------ error handling and self-correction


async def test_when_an_error_is_caught_an_error_message_is_appended_for_the_next_iteration(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    provider = llm([wants("c1", "bad")])
    async with agent(llm=provider, tools=[tool("bad", lambda _: 1 // 0)], **REACTIVE) as a:
        assert await ask(a) == "done"
        (message,) = await results(a)
        assert (message["type"], message["kind"]) == ("data", "error")
        assert '"kind": "error"' in read(provider, 1)


async def test_an_error_message_has_the_full_serialized_call_that_failed(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    arguments = {"deep": {"list": ["†input.x", "†† y"]}, "_outputPath": "†state.a"}
    config = {"input": {"x": 1}}
    provider = llm([wants("c1", "bad", arguments)])
    async with agent(llm=provider, tools=[tool("bad", lambda _: 1 // 0)], config=config, **REACTIVE) as a:
        await ask(a)
        (message,) = await results(a)
        assert message["data"]["call"] == {"id": "c1", "_tool": "bad", **arguments}


async def test_an_error_message_has_the_reason_for_failure(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    async with agent(llm=llm([wants("c1", "bad")]), tools=[tool("bad", lambda _: [][3])], **REACTIVE) as a:
        await ask(a)
        (message,) = await results(a)
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
    async with agent(llm=llm([wants("c1", "t", arguments)]), tools=[t], config=config, **REACTIVE) as a:
        await ask(a)
        assert t.calls == []
        (message,) = await results(a)
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
    async with agent(llm=provider, tools=[tool("t", calls_the_api), tool("u")], **REACTIVE) as a:
        assert await ask(a) == "done"
        assert a.tools["u"].calls == [{}]
        error = (await results(a))[1]["data"]["error"]
        assert (error["phase"], error["type"], error["message"]) == ("runtime", "ApiDown", "503")


async def test_all_error_messages_collected_during_a_turn_are_appended_at_the_end_of_the_tick(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    failed = asyncio.Event()
    provider = llm([wants("c1", "bad"), wants("c2", "none"), wants("c3", "slow")])
    tools = [tool("bad", lambda _: 1 // 0), tool("slow", wait_for(failed, "ok"))]
    stored: list[int] = []
    async with agent(llm=provider, tools=tools, **REACTIVE) as a:

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
    async with agent(llm=provider, tools=[tool("t", lambda given: given["n"] * 2, schema)], **REACTIVE) as a:
        await ask(a)
        assert '"n": "three"' in read(provider, 1)
        assert "'three' is not of type 'integer'" in read(provider, 1)
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
    async with agent(llm=provider, tools=tools, **REACTIVE) as a:
        await ask(a)
        assert (a.tools["happy"].calls, a.tools["unhappy"].calls) == ([], [{"x": "404"}])
        assert "kind" not in (await results(a))[0]
