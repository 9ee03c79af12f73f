"""What is written where while a turn runs: one terminal for both streams, or a file for the answer."""

import io
from typing import Any

import pytest
from rich.text import Text
from toolgate_bus.commands.terminal import Terminal
from toolgate_orchestrator.commands.run.live_view import LiveView
from toolgate_orchestrator.commands.run.screen import Screen, ScreenOutput
from toolgate_orchestrator.commands.run.view import ToolRun, TurnResult

pytestmark = pytest.mark.pure

RUN = ToolRun("c1", "read_file", {"path": "notes.txt"})
DONE = RUN._replace(seconds=0.012)
BEGUN = 'tool     read_file(path="notes.txt")'


class Stream(io.StringIO):
    """A stream that may be a terminal."""

    encoding = "utf-8"

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def view_on(out: Stream, notes: Any) -> LiveView:
    console = Terminal(file=notes, force_terminal=notes.isatty(), color_system=None)
    return LiveView(Screen(ScreenOutput(out), console))


@pytest.fixture
def terminal() -> tuple[LiveView, Stream]:
    """A view whose two streams are one terminal."""
    both = Stream(terminal=True)
    return view_on(both, both), both


@pytest.fixture
def files() -> tuple[LiveView, Stream, Stream]:
    """A view whose two streams are two files."""
    out, notes = Stream(terminal=False), Stream(terminal=False)
    return view_on(out, notes), out, notes


def ended(answer: str = "", status: str = "success", error: str | None = None) -> TurnResult:
    return TurnResult(answer, "s1", status, (), error)


def test_a_call_is_one_line_that_begins_when_it_does(terminal: Any) -> None:
    view, screen = terminal
    view.on_call(RUN)
    assert screen.getvalue() == BEGUN
    view.on_result(DONE)
    assert screen.getvalue() == f"{BEGUN}  ok  12 ms\n"


def test_in_a_file_a_call_is_written_when_it_is_done(files: Any) -> None:
    view, out, notes = files
    view.on_call(RUN)
    assert notes.getvalue() == ""
    view.on_result(DONE._replace(problem="there is no\nsuch file"))
    assert notes.getvalue() == f"{BEGUN}  failed: there is no such file  12 ms\n"
    assert out.getvalue() == ""


def test_calls_that_overlap_are_told_apart(terminal: Any) -> None:
    view, screen = terminal
    other = RUN._replace(id="c2", tool="list_files", arguments={})
    view.on_call(RUN)
    view.on_call(other)
    view.on_result(DONE)
    view.on_result(other._replace(seconds=2.0))
    assert screen.getvalue().splitlines() == [
        BEGUN,
        "tool     list_files()",
        f"{BEGUN}  ok  12 ms",
        "tool     list_files()  ok  2.0 s",
    ]


def test_a_note_never_lands_in_a_line_of_the_answer(terminal: Any) -> None:
    view, screen = terminal
    view.text("Let me ")
    view.on_ruling(Text("denied   delete_file"))
    view.text("see.")
    view.on_call(RUN)
    view.on_result(DONE)
    assert screen.getvalue().splitlines() == [
        "Let me ",
        "denied   delete_file",
        "see.",
        f"{BEGUN}  ok  12 ms",
    ]


def test_a_file_gets_the_answer_alone_each_response_on_its_line(files: Any) -> None:
    view, out, notes = files
    view.response()
    view.text("Let me ")
    view.on_ruling(Text("denied   delete_file"))
    view.text("see.")
    view.response()
    view.text("Done.")
    view.on_end(ended("Done."))
    assert out.getvalue() == "Let me see.\nDone.\n"
    assert notes.getvalue() == "denied   delete_file\n"


def test_an_answer_that_came_in_pieces_is_not_repeated(files: Any) -> None:
    view, out, _ = files
    view.response()
    view.text("one\n")
    view.text("two")
    view.on_end(ended("one\n\ntwo"))
    assert out.getvalue() == "one\ntwo\n"


def test_an_answer_that_was_not_streamed_is_shown_at_the_end(files: Any) -> None:
    view, out, _ = files
    view.response()
    view.text("thinking aloud")
    view.response()
    view.on_end(ended("42"))
    assert out.getvalue() == "thinking aloud\n42\n"


def test_an_error_is_one_line_beside_what_was_said(files: Any) -> None:
    view, out, notes = files
    view.text("I was about to")
    view.on_end(ended(error="the server is gone"))
    view.on_end(ended("The language model could not answer", "error"))
    assert out.getvalue() == "I was about to\n"
    assert notes.getvalue() == "Error: the server is gone\nError: The language model could not answer\n"


def test_what_an_llm_or_a_tool_wrote_is_shown_without_control_characters(terminal: Any) -> None:
    view, screen = terminal
    view.text("a\x1b")
    view.text("[31mb")
    view.on_call(ToolRun("c", "x\x1b[2J", {"k": "\x9b2J"}))
    view.on_result(ToolRun("c", "x", {}, None, "\x1b]0;gone\x07"))
    view.notice("\x1b[31mnotice")
    view.on_end(ended(error="\x1b[31mbad"))
    assert "\x1b" not in screen.getvalue()
    assert "\x9b" not in screen.getvalue()
    assert "\x07" not in screen.getvalue()


def test_long_arguments_are_cut(terminal: Any) -> None:
    view, screen = terminal
    view.on_call(ToolRun("c", "write", {f"k{number}": "x" * 500 for number in range(50)}))
    assert len(screen.getvalue()) < 150


def test_the_next_turn_begins_afresh(files: Any) -> None:
    view, out, _ = files
    view.text("same")
    view.on_end(ended("same"))
    view.on_end(ended("same"))
    assert out.getvalue() == "same\nsame\n"


def test_a_stream_that_lacks_a_character_gets_it_spelled_out() -> None:
    raw = io.BytesIO()
    out = ScreenOutput(io.TextIOWrapper(raw, encoding="ascii"))
    out.write("5 €")
    assert raw.getvalue() == b"5 \\u20ac"
