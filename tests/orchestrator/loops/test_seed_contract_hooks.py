"""The seed orchestrator-contract, sentence by sentence: what the actions of a HookResult do."""

from typing import Any

import pytest
from amplifier_core import HookResult
from four_loops import LOOPS

pytestmark = pytest.mark.pure

each_loop = pytest.mark.parametrize("loop", LOOPS)


class Approvals:
    """The app's approval system: one answer to all, and what was asked."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[tuple[str, list[str]]] = []

    async def request_approval(self, prompt: str, options: list[str], *_: Any) -> str:
        self.asked.append((prompt, list(options)))
        return self.answer


ASK = HookResult(action="ask_user", approval_prompt="Delete it all?", approval_options=["Allow", "Deny"])


@each_loop
async def test_continue_executes_the_tool_as_it_was_called(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    async with agent([calls(("rm", {"path": "x"})), {"text": "ok"}], tools=[tool("rm")], loop=loop) as a:
        a.on("tool:pre", HookResult(action="continue"))
        await a.ask()
        assert a.tools["rm"].calls == [{"path": "x"}]


@each_loop
async def test_deny_does_not_execute_the_tool_and_tells_the_reason(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    async with agent([calls("rm", "ls"), {"text": "ok"}], loop=loop) as a:
        rm, ls = tool("rm"), tool("ls", lambda _: "a.txt")
        for each in (rm, ls):
            await a.session.coordinator.mount("tools", each, name=each.name)

        def rule(data: dict[str, Any]) -> HookResult:
            if data["tool_name"] == "rm":
                return HookResult(action="deny", reason="read-only today")
            return HookResult()

        a.on("tool:pre", rule, rule)
        assert await a.ask() == "ok"
        assert (rm.calls, len(ls.calls)) == ([], 1)
        results = {m["tool_call_id"]: m["content"] for m in await a.messages() if m["role"] == "tool"}
        assert "read-only today" in results["c1"]
        assert "a.txt" in results["c2"]
        assert "read-only today" in str(a.requests[1].messages)
        assert [data["tool_name"] for data in a.told("tool:post")] == ["ls"]


@each_loop
async def test_modify_uses_the_modified_data(agent: Any, tool: Any, calls: Any, loop: str) -> None:
    async with agent([calls(("ls", {"path": "/etc"})), {"text": "ok"}], tools=[tool("ls")], loop=loop) as a:
        a.on(
            "tool:pre",
            lambda data: HookResult(action="modify", data={**data, "tool_input": {"path": "/tmp"}}),
        )
        await a.ask()
        assert a.tools["ls"].calls == [{"path": "/tmp"}]
        assert a.told("tool:post")[0]["tool_input"] == {"path": "/tmp"}


@each_loop
@pytest.mark.parametrize("role", ["system", "user"])
async def test_inject_context_adds_the_feedback_to_the_context_with_its_role(
    agent: Any, tool: Any, calls: Any, loop: str, role: Any
) -> None:
    async with agent([calls("ls", "ls"), {"text": "ok"}], tools=[tool("ls")], loop=loop) as a:
        feedback = HookResult(
            action="inject_context", context_injection="Mind the quota", context_injection_role=role
        )
        a.on("tool:pre", feedback)
        await a.ask()
        assert len(a.tools["ls"].calls) == 2
        messages = await a.messages()
        assert [m["role"] for m in messages] == ["user", "assistant", "tool", "tool", role, "assistant"]
        assert messages[4]["content"] == "Mind the quota"
        assert "Mind the quota" in [m.content for m in a.requests[1].messages]


@each_loop
async def test_ask_user_requests_approval_and_runs_what_is_approved(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    approvals = Approvals("Allow")
    async with agent([calls("rm"), {"text": "ok"}], tools=[tool("rm")], loop=loop, approvals=approvals) as a:
        a.on("tool:pre", ASK)
        await a.ask()
        assert approvals.asked == [("Delete it all?", ["Allow", "Deny"])]
        assert len(a.tools["rm"].calls) == 1


@each_loop
async def test_ask_user_that_is_not_approved_executes_nothing_and_tells_the_llm(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    approvals = Approvals("Deny")
    async with agent([calls("rm"), {"text": "ok"}], tools=[tool("rm")], loop=loop, approvals=approvals) as a:
        a.on("tool:pre", ASK)
        assert await a.ask() == "ok"
        assert len(approvals.asked) == 1
        assert a.tools["rm"].calls == []
        (result,) = await a.results()
        assert "denied" in result.lower()


@each_loop
async def test_ask_user_requires_an_approval_provider(agent: Any, tool: Any, calls: Any, loop: str) -> None:
    async with agent([calls("rm"), {"text": "ok"}], tools=[tool("rm")], loop=loop) as a:
        a.on("tool:pre", ASK)
        assert await a.ask() == "ok"
        assert a.tools["rm"].calls == []
        assert len(await a.results()) == 1


# ------------------------------------------------------------------ the same actions at other steps


@each_loop
async def test_modify_on_prompt_submit_changes_the_prompt(agent: Any, loop: str) -> None:
    async with agent([{"text": "ok"}], loop=loop) as a:
        a.on("prompt:submit", lambda data: HookResult(action="modify", data={**data, "prompt": "in French"}))
        await a.ask("in English")
        assert [m.content for m in a.requests[0].messages] == ["in French"]


@each_loop
async def test_modify_on_tool_post_changes_what_the_llm_is_told(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    tools = [tool("cat", lambda _: "password: hunter2")]
    async with agent([calls("cat"), {"text": "ok"}], tools=tools, loop=loop) as a:
        a.on("tool:post", lambda data: HookResult(action="modify", data={**data, "result": "password: ***"}))
        await a.ask()
        (result,) = await a.results()
        assert "password: ***" in result
        assert "hunter2" not in str(a.requests[1].messages)


@each_loop
@pytest.mark.parametrize("event", ["prompt:submit", "provider:request"])
async def test_deny_before_the_llm_is_asked_ends_the_turn_with_the_reason(
    agent: Any, loop: str, event: str
) -> None:
    async with agent([{"text": "never"}], loop=loop) as a:
        a.on(event, HookResult(action="deny", reason="office hours only"))
        assert "office hours only" in await a.ask()
        assert a.requests == []


@each_loop
async def test_deny_counts_without_a_coordinator(agent: Any, tool: Any, calls: Any, loop: str) -> None:
    async with agent([calls("rm"), {"text": "ok"}], tools=[tool("rm")], loop=loop) as a:
        names = ("orchestrator", "context", "providers", "tools")
        orchestrator, *parts = map(a.session.coordinator.get, names)
        a.on("tool:pre", HookResult(action="deny", reason="read-only today"))
        assert await orchestrator.execute("hi", *parts, a.hooks) == "ok"
        assert a.tools["rm"].calls == []
        assert "read-only today" in str(await a.results())
