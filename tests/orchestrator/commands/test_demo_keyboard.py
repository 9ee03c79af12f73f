"""The keyboard at the demo's terminal: which keys count, and what is left of the terminal."""

import asyncio
import os
import pty
import termios
from collections.abc import Iterator

import pytest
from toolgate_orchestrator.commands.demo.keyboard import Keyboard


@pytest.fixture(name="ends")
def _ends() -> Iterator[tuple[int, int]]:
    """Return both ends of a terminal: the person's and the program's."""
    outer, inner = pty.openpty()
    yield outer, inner
    os.close(outer)
    os.close(inner)


async def test_only_the_keys_that_are_asked_for_count(ends: tuple[int, int]) -> None:
    outer, inner = ends
    with Keyboard(inner) as keyboard:
        pressing = asyncio.create_task(keyboard.press("yn", None))
        os.write(outer, b"\nxN")
        assert await pressing == "n"


async def test_a_person_who_presses_nothing_is_not_waited_for(ends: tuple[int, int]) -> None:
    with Keyboard(ends[1]) as keyboard:
        assert await keyboard.press("yn", 0.01) == ""
    assert await Keyboard(None).press("yn", None) == ""


async def test_keys_of_before_are_forgotten(ends: tuple[int, int]) -> None:
    outer, inner = ends
    with Keyboard(inner) as keyboard:
        os.write(outer, b"n")
        keyboard.forget_keys()
        assert await keyboard.press("yn", 0.01) == ""


def test_the_terminal_is_as_before_afterwards(ends: tuple[int, int]) -> None:
    inner = ends[1]
    before = termios.tcgetattr(inner)
    with Keyboard(inner):
        assert termios.tcgetattr(inner) != before
    assert termios.tcgetattr(inner) == before
