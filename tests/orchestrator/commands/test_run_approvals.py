"""Asking at a terminal: a pseudo-terminal plays the person."""

import asyncio
import os
import pty
from collections.abc import Iterator
from typing import Any

import pytest
from amplifier_core.approval import ApprovalTimeoutError
from hypothesis import given
from hypothesis import strategies as st
from questions import question_about
from toolgate_bus.protocol.events import AskUser, SentResult, ToolSelecting
from toolgate_bus.telemetry.printable import printable
from toolgate_orchestrator.commands.host.terminal_approvals import NoTerminal, TerminalApprovals, choose
from toolgate_orchestrator.decision.question.shown_call import question_text
from toolgate_orchestrator.turn.hooks.approvals import NoApprover

pytestmark = pytest.mark.pure

OPTIONS = ["Allow once", "Allow always", "Deny"]


class Person:
    """The other end of a terminal."""

    def __init__(self, screen: int) -> None:
        self.screen = screen

    def types(self, text: str) -> None:
        os.write(self.screen, text.encode())

    async def sees(self, text: str) -> str:
        """Read until this text was shown."""
        loop, seen = asyncio.get_running_loop(), ""
        async with asyncio.timeout(30):
            while text not in seen:
                more = loop.create_future()
                loop.add_reader(self.screen, more.set_result, None)
                await more
                loop.remove_reader(self.screen)
                seen += os.read(self.screen, 65536).decode()
        return seen


@pytest.fixture
def terminal() -> Iterator[tuple[Person, TerminalApprovals]]:
    outer, inner = pty.openpty()
    with os.fdopen(inner, "w") as screen:
        yield Person(outer), TerminalApprovals(inner, screen)
    os.close(outer)


async def asked(
    approvals: Any, prompt: str = "Delete it?", timeout_s: float = 5.0, default: Any = "deny"
) -> Any:
    return await approvals.request_approval(prompt, OPTIONS, timeout_s, default)


async def test_the_question_its_options_and_its_default_are_shown(terminal: Any) -> None:
    person, approvals = terminal
    answer = asyncio.ensure_future(asked(approvals))
    seen = await person.sees("else deny: ")
    assert "Delete it?" in seen
    assert "1) Allow once" in seen
    assert "3) Deny" in seen
    person.types("1\n")
    assert await answer == "Allow once"


async def test_an_answer_that_is_none_of_the_options_is_asked_again(terminal: Any) -> None:
    person, approvals = terminal
    answer = asyncio.ensure_future(asked(approvals))
    await person.sees("else deny: ")
    person.types("9\n")
    await person.sees("from 1 to 3: ")
    person.types("allow ALWAYS\n")
    assert await answer == "Allow always"


async def test_what_was_typed_before_the_question_does_not_answer_it(terminal: Any) -> None:
    person, approvals = terminal
    person.types("1\n")
    answer = asyncio.ensure_future(asked(approvals))
    await person.sees("else deny: ")
    person.types("3\n")
    assert await answer == "Deny"


async def test_no_answer_in_time_is_a_timeout(terminal: Any) -> None:
    _, approvals = terminal
    with pytest.raises(ApprovalTimeoutError):
        await asked(approvals, timeout_s=0.05)


async def test_two_questions_are_asked_one_after_the_other(terminal: Any) -> None:
    person, approvals = terminal
    answers = [asyncio.ensure_future(asked(approvals, name)) for name in ("first?", "second?")]
    seen = await person.sees("else deny: ")
    assert "second?" not in seen
    person.types("1\n")
    assert "second?" in await person.sees("else deny: ")
    person.types("3\n")
    assert await asyncio.gather(*answers) == ["Allow once", "Deny"]


async def test_a_cancelled_question_leaves_the_terminal_free(terminal: Any) -> None:
    person, approvals = terminal
    first = asyncio.ensure_future(asked(approvals, "first?"))
    await person.sees("else deny: ")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.ensure_future(asked(approvals, "second?"))
    await person.sees("else deny: ")
    person.types("1\n")
    assert await second == "Allow once"


async def test_a_refusal_answers_the_open_question_and_those_that_wait_with_no(terminal: Any) -> None:
    person, approvals = terminal
    answers = [
        asyncio.ensure_future(asked(approvals, name, default="allow")) for name in ("first?", "second?")
    ]
    await person.sees("else allow: ")
    approvals.refuse()
    assert await asyncio.wait_for(asyncio.gather(*answers), 5) == ["Deny", "Deny"]
    assert "second?" not in await person.sees("No.")
    third = asyncio.ensure_future(asked(approvals, "third?"))
    await person.sees("else deny: ")
    person.types("1\n")
    assert await third == "Allow once"


async def test_without_a_terminal_it_is_denied_and_said_so() -> None:
    said: list[str] = []
    with pytest.raises(NoApprover):
        await asked(NoTerminal(said.append))
    assert said == ["denied, as there is no terminal to ask on: Delete it?"]


async def test_a_session_without_a_terminal_tells_the_llm_that_nobody_could_be_asked(
    agent: Any, tool: Any, calls: Any
) -> None:
    from amplifier_core import HookResult

    said: list[str] = []
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")], approvals=NoTerminal(said.append)) as a:
        a.on("tool:selecting", HookResult(action="ask_user", approval_prompt="Really?"))
        await a.ask()
        assert a.tools["a"].calls == []
        assert a.told("policy:violation")[0]["decision"]["why"] == "no_approver"
        assert "Really?" in said[0]


def test_an_empty_line_is_the_default() -> None:
    assert choose("\n", OPTIONS, "deny") == "Deny"
    assert choose("", OPTIONS, "allow") == "Allow once"
    assert choose("\n", ["Yes", "No"], "deny") == "Deny"
    assert choose("0\n", OPTIONS, "deny") is None
    assert choose("maybe", OPTIONS, "deny") is None


@given(st.text(st.characters(codec="utf-8")))
def test_what_an_llm_wrote_cannot_steer_the_terminal(text: str) -> None:
    shown = printable(text)
    assert not any(
        (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 or c in "\u202e\u2066" for c in shown
    )
    assert len(shown) <= 4_001


def test_the_question_names_the_very_call() -> None:
    call = ToolSelecting(id="0" * 32, tool_name="pay", tool_input={"to": "Ünal", "sum": 5})
    assert question_text(AskUser(prompt="Pay?"), call) == 'Pay?\npay {"to": "Ünal", "sum": 5}'
    long = call.model_copy(update={"tool_input": {"x": "y" * 9_000}})
    assert "9009 characters in all" in question_text(AskUser(prompt="?"), long)


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (SentResult("text", b"two\nlines"), 'result: "two\\nlines"'),
        (SentResult("json", b'{"a": 1}', success=False), 'error: {"a": 1}'),
        (
            SentResult("text", b"x" * 500, is_cut=True),
            f'result (in part: 502 characters in all): "{"x" * 500}"',
        ),
    ],
)
def test_a_person_who_is_asked_about_a_result_sees_it_below_the_call(result: SentResult, shown: str) -> None:
    call = question_about("look", {"a": 1})._replace(phase="result", result=result)
    assert question_text(AskUser(prompt="Show?"), call) == f'Show?\nlook {{"a": 1}}\n{shown}'
    long = question_about("look", {"a": "y" * 9000})._replace(result=SentResult("text", b"a" * 9000 + b"z"))
    text = question_text(AskUser(prompt="p" * 9000), long)
    assert printable(text) == text
    assert text.endswith('az"')
