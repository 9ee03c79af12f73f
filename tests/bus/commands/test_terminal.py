"""Lines on the one console: a terminal parts them at words, a file keeps whole what is to be searched."""

import io
import os
import pty
import subprocess
import sys

import pytest
from rich.text import Text
from toolgate_bus.commands.terminal import Terminal

pytestmark = pytest.mark.pure
WIDTH = 30
LINE = "  denied: this file is kept for ten years by law"


def printed(line: str | Text, *, terminal: bool, **options: object) -> list[str]:
    console = Terminal(file=io.StringIO(), width=WIDTH, force_terminal=terminal, color_system=None)
    console.print(line, **options)
    return [one.rstrip() for one in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("line", [LINE, Text(LINE)])
def test_a_terminal_parts_a_line_at_words_and_sets_the_rest_in(line: str | Text) -> None:
    assert printed(line, terminal=True, soft_wrap=True) == [
        "  denied: this file is kept",
        "    for ten years by law",
    ]


def test_prose_is_parted_wherever_it_goes() -> None:
    for terminal in (True, False):
        assert printed(LINE.strip(), terminal=terminal) == [
            "denied: this file is kept for",
            "ten years by law",
        ]


def test_a_file_keeps_whole_what_is_to_be_searched() -> None:
    assert printed(LINE, terminal=False, soft_wrap=True) == [LINE]


@pytest.mark.parametrize("blank", [" ", "\u2003", "\u00a0 "])
def test_a_line_of_nothing_but_spaces_is_printed_as_any(blank: str) -> None:
    assert "".join(printed(blank * WIDTH * 2 + "\nend", terminal=True)).endswith("end")


def test_a_word_that_is_longer_than_the_terminal_stays_whole() -> None:
    address = f"listens at http://127.0.0.1:8765/?token={'x' * WIDTH}"
    assert printed(address, terminal=True, soft_wrap=True) == [address]


WRITES_LATER = """
from toolgate_bus.commands.terminal import err_console
input()
err_console.print("nobody sees this")
"""


def test_a_terminal_that_was_closed_fails_nobody_who_writes_to_it() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", WRITES_LATER], stdin=subprocess.PIPE, stderr=theirs
    ) as child:
        os.close(theirs)
        os.close(ours)
        child.communicate(b"\n", timeout=30)
    assert child.returncode == 0
