"""The parts of a chat, each on real objects: what is heard, Ctrl-C, prompts from a script."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core import HookResult
from toolgate_orchestrator.commands.host.plan import Plan
from toolgate_orchestrator.commands.host.terminal_approvals import NoTerminal
from toolgate_orchestrator.commands.run.chat_cli import PipedLines, TurnControl
from toolgate_orchestrator.commands.run.opening import OpenSession, RunReport
from toolgate_orchestrator.commands.run.turn_listener import TurnListener
from toolgate_orchestrator.commands.run.view import ToolRun, View

pytestmark = pytest.mark.pure


class Told(View):
    """Keeps what it is told."""

    live = True

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.begun: list[ToolRun] = []
        self.done: list[ToolRun] = []
        self.notices: list[str] = []
        self.responses = 0

    def response(self) -> None:
        self.responses += 1

    def text(self, piece: str) -> None:
        self.texts.append(piece)

    def on_call(self, run: ToolRun) -> None:
        self.begun.append(run)

    def on_result(self, run: ToolRun) -> None:
        self.done.append(run)

    def notice(self, text: str, style: str = "dim") -> None:
        self.notices.append(text)


# ---------------------------------------------------------------- what is heard


async def test_a_turn_is_heard_piece_by_piece_and_call_by_call(agent: Any, tool: Any, calls: Any) -> None:
    told, ticks = Told(), iter([1.0, 1.5])
    script = [calls("add"), {"text": "all is well"}]
    async with agent(script, tools=[tool("add", lambda arguments: 3)]) as a:
        TurnListener(told, lambda: next(ticks)).listen(a.hooks)
        await a.ask()
    assert told.texts == ["all ", "is ", "well"]
    assert told.responses == 2
    assert [(run.tool, run.seconds, run.problem) for run in told.done] == [("add", 0.5, None)]
    assert [run.id for run in told.begun] == [run.id for run in told.done]


async def test_a_tool_that_raises_or_says_that_it_failed_has_a_problem(
    agent: Any, tool: Any, calls: Any
) -> None:
    from amplifier_core import ToolResult

    def breaks(arguments: dict[str, Any]) -> Any:
        raise ValueError("no way")

    failing = tool("fail", lambda arguments: ToolResult(success=False, error={"message": "not today"}))
    told = Told()
    async with agent([calls("break", "fail"), {"text": "ok"}], tools=[tool("break", breaks), failing]) as a:
        TurnListener(told).listen(a.hooks)
        await a.ask()
    assert [run.problem for run in told.done] == ["ValueError: no way", "not today"]


async def test_a_call_that_a_hook_refuses_is_not_shown_as_run(agent: Any, tool: Any, calls: Any) -> None:
    told = Told()
    async with agent([calls("add"), {"text": "ok"}], tools=[tool("add")]) as a:
        TurnListener(told).listen(a.hooks)
        a.on("tool:pre", HookResult(action="deny", reason="no"))
        await a.ask()
    assert told.begun == told.done == []


async def test_a_result_that_a_hook_withholds_is_still_the_end_of_the_call(
    agent: Any, tool: Any, calls: Any
) -> None:
    told = Told()
    async with agent([calls("add"), {"text": "ok"}], tools=[tool("add")]) as a:
        TurnListener(told).listen(a.hooks)
        a.on("tool:post", HookResult(action="deny", reason="secret"))
        await a.ask()
    assert [run.tool for run in told.done] == ["add"]


async def test_other_spellings_of_a_text_are_heard_and_thinking_is_not() -> None:
    told = Told()
    listener = TurnListener(told)
    for data in (
        {"delta": {"type": "text_delta", "text": "a"}},
        {"block_type": "text", "text": "b"},
        {"text": "c"},
        {"delta": {"type": "thinking", "text": "hidden"}},
        {"delta": {"type": "input_json_delta", "partial_json": "{"}},
        {"delta": "odd", "text": 5},
    ):
        await listener._delta("content_block:delta", data)
    assert told.texts == ["a", "b", "c"]


async def test_what_still_runs_when_the_turn_is_over_was_stopped() -> None:
    told = Told()
    listener = TurnListener(told, lambda: 1.0)
    await listener._pre("tool:pre", {"tool_name": "slow", "tool_call_id": "c1"})
    listener.on_turn_end()
    listener.on_turn_end()
    assert [run.problem for run in told.done] == ["stopped with the turn"]


# ---------------------------------------------------------------- Ctrl-C


def control_of(agent: Any, told: Told, at_prompt: Any = lambda: None, approvals: Any = None) -> TurnControl:
    approvals = approvals or NoTerminal(lambda text: None)
    plan = Plan(agent.session.config)
    opened = OpenSession(agent.session, plan, told, approvals, RunReport(told), TurnListener(told))
    return TurnControl(opened, at_prompt)


async def test_ctrl_c_is_graceful_then_immediate_then_a_word_and_the_next_turn_is_free(agent: Any) -> None:
    told, prompt = Told(), []
    async with agent([]) as a:
        token = a.session.coordinator.cancellation
        control = control_of(a, told, lambda: prompt.append(1))
        async with control.turn():
            control.press()
            await settled(lambda: token.is_graceful)
            control.press()
            await settled(lambda: token.is_immediate)
            control.press()
        assert not token.is_cancelled
        assert [text.partition(";")[0] for text in told.notices[:2]] == ["cancelling", "stopping"]
        assert "ends the program" in told.notices[2]
        assert prompt == []
        control.press()
        assert prompt == [1]
        async with control.turn():
            assert await a.ask() == ""
        assert a.told("execution:end")[-1]["status"] == "completed"


async def test_an_open_question_ends_once_the_turn_is_cancelled_and_not_before(agent: Any) -> None:
    """Else the turn goes on with the answer: the LLM was sent one more request."""
    async with agent([]) as a:
        token, seen = a.session.coordinator.cancellation, list[bool]()
        approvals = SimpleNamespace(refuse=lambda: seen.append(token.is_cancelled))
        control = control_of(a, Told(), approvals=approvals)
        async with control.turn():
            control.press()
            assert seen == []
            await settled(lambda: seen)
    assert seen == [True]


async def test_a_press_in_the_last_moment_of_a_turn_does_not_cancel_the_next(agent: Any) -> None:
    async with agent([{"text": "hello"}]) as a:
        control = control_of(a, Told())
        async with control.turn():
            control.press()
        async with control.turn():
            assert await a.ask() == "hello"


async def settled(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)


# ---------------------------------------------------------------- prompts from a script


async def lines_of(descriptor: int) -> list[str]:
    lines, found = PipedLines(descriptor), []
    async with asyncio.timeout(30):
        while (line := await lines.next()) is not None:
            found.append(line)
    return found


async def test_each_line_of_a_pipe_is_a_prompt_as_soon_as_it_is_there() -> None:
    reader, writer = os.pipe()
    lines = PipedLines(reader)
    os.write(writer, "grüß\r\nsec".encode())
    assert await asyncio.wait_for(lines.next(), 5) == "grüß"
    waiting = asyncio.ensure_future(lines.next())
    os.write(writer, b"ond\n\n\xff")
    assert await asyncio.wait_for(waiting, 30) == "second"
    assert await asyncio.wait_for(lines.next(), 5) == ""
    os.close(writer)
    assert await asyncio.wait_for(lines.next(), 5) == "�"
    assert await asyncio.wait_for(lines.next(), 5) is None
    os.close(reader)


async def test_a_plain_file_and_the_empty_device_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "prompts").write_text("one\ntwo")
    for path, lines in ((tmp_path / "prompts", ["one", "two"]), (Path(os.devnull), [])):
        with path.open("rb") as file:
            assert await lines_of(file.fileno()) == lines
    assert await lines_of(-1) == []


async def test_an_endless_line_comes_in_parts(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * (5 << 19) + b"\nend")
    with (tmp_path / "long").open("rb") as file:
        assert [len(line) for line in await lines_of(file.fileno())] == [1 << 20, 1 << 20, 1 << 19, 3]
