"""`toolgate demo` shows what it promises on one screen, and leaves nothing behind, however it ends."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from chat_person import AT_TERMINAL, CTRL_C, Person
from marked_processes import World

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120), pytest.mark.system]

ESCAPE = "\x1b"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
CALLS = 5
LINES, COLUMNS = 24, 80
PICTURE = Path(__file__).parents[3] / "docs" / "pictures" / "demo.svg"
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and parent-death signals")
SCREEN = """\
Toolgate demo: three schedulers decide on an agent's tool calls before they run
  policy     pid N Rules: keep invoices; a person confirms each mail.
  archivist  pid N Seven lines of Python: new files go into reports/.
  cost-aware pid N A budget of 0.30 EUR; a credit check costs 0.20 EUR.
  agent      pid N A scripted LLM. Task: remind Acme to pay, tidy up.

1  write_file summary.txt          REPLACED by write_file reports/summary.txt
   archivist: New files belong in reports/.
2  credit_check Acme               RUNS: all three allow it
   cost-aware: 0.20 of 0.30 EUR spent  ##########.....
3  credit_check Borealis           DENIED
   cost-aware: Over budget: credit_check would cost up to 0.20 EUR, and 0.10 EUR
      is left of the budget clerk.
4  delete_file invoices/acme.txt   DENIED
   policy: Invoices must be kept for ten years.
5  send_mail billing@acme.example  ASKS A PERSON
   policy: Send this mail? (no terminal: the demo answers)
   The demo says yes.              RUNS
"""


@pytest.fixture(name="world")
def _world(short_directory: Path) -> Iterator[World]:
    world = World(short_directory)
    yield world
    assert not world.processes()


@pytest.fixture(name="at_terminal")
def _at_terminal(process: Callable[..., Any], world: World) -> Iterator[Callable[..., Person]]:
    """`at_terminal("--step")`: the demo on a terminal of its own, of 24 lines of 80 columns."""
    screens = []

    def start(*words: str, terminal: str = "xterm-256color") -> Person:
        screen, inner = pty.openpty()
        screens.append(screen)
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        running = process(
            *("python", "-c", AT_TERMINAL, "demo", *words),
            env=world.env | {"TERM": terminal},
            start_new_session=True,
            **dict.fromkeys(("stdin", "stdout", "stderr"), inner),
        )
        os.close(inner)
        return Person(screen, running)

    yield start
    for screen in screens:
        os.close(screen)


def test_a_pipe_gets_the_whole_screen_as_plain_lines(process: Callable[..., Any], world: World) -> None:
    ended = process("toolgate", "demo", env=world.env | {"COLUMNS": "200"})
    assert ended.wait(60) == 0, ended.stderr
    shown, _, closing = ended.stdout.partition("\n\nThe demo has ended its processes")
    assert re.sub(r"pid \d+ +", "pid N ", shown) == SCREEN.rstrip()
    assert closing.count("\n  ") == 3
    _fits(ended.stdout)
    assert not ended.stderr
    assert len({ended.popen.pid, *re.findall(r"pid (\d+)", shown)}) == 5
    assert not world.files()
    assert not world.processes()


def test_the_picture_of_the_documents_shows_this_screen() -> None:
    """Where this goes red: `python docs/pictures.py demo`."""
    drawn = ElementTree.parse(PICTURE).iter("{http://www.w3.org/2000/svg}text")
    lines: dict[str, str] = {}
    for piece in drawn:
        lines[piece.attrib["y"]] = lines.get(piece.attrib["y"], "") + (piece.text or "")
    shown = [" ".join(line.split()) for line in lines.values() if line.split()]
    asked = SCREEN.replace("(no terminal: the demo answers)", "Press y or n (y after 5 s): y")
    told = re.sub(r"The demo says yes\. +", "You say yes. ", asked).replace("pid N", "pid 4101")
    assert [re.sub(r"pid \d+", "pid 4101", line) for line in shown] == [
        " ".join(line.split()) for line in told.splitlines() if line
    ]


def test_scripts_get_every_call_with_its_decision(process: Callable[..., Any], world: World) -> None:
    ended = process("toolgate", "demo", "--json", env=world.env)
    assert ended.wait(60) == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["ok"] is True
    assert set(told["promised"].values()) == {True}
    assert {one["name"] for one in told["schedulers"]} == {"policy", "archivist", "cost-aware"}
    calls = told["calls"]
    assert [(one["outcome"], one["scheduler"]) for one in calls] == [
        ("modify", "archivist"),
        ("continue", None),
        ("deny", "cost-aware"),
        ("deny", "policy"),
        ("continue", None),
    ]
    assert calls[0]["result"] == "wrote 36 bytes to reports/summary.txt"
    assert [one["asked_user"] for one in calls] == [False] * 4 + [True]
    assert all(one["reason"] in one["result"] for one in calls if one["outcome"] == "deny")
    assert told["budget"] == {"limit": 300_000, "spent": 200_000}


@pytest.mark.parametrize(("terminal", "coloured"), [("xterm-256color", True), ("dumb", False)])
def test_step_waits_for_enter_and_one_screen_holds_it_all(
    at_terminal: Callable[..., Person], terminal: str, coloured: bool
) -> None:
    person = at_terminal("--step", terminal=terminal)
    for number in range(1, CALLS + 1):
        person.sees(f"{number}  ")
        if number == CALLS:
            person.sees("Press y or n: ")
            person.types("n")
        person.sees("[Enter]")
        person.types("\n")
    assert person.ended() == 0
    assert "You say no.                     DENIED" in person.shown
    assert (ESCAPE in person.raw) is coloured
    assert ESCAPE not in COLOUR.sub("", person.raw), "nothing but colours: no cursor is moved"
    _fits(person.shown)


def _fits(shown: str) -> None:
    """All lines fit on a screen, with the shell's prompt below them."""
    lines = shown.splitlines()
    assert len(lines) < LINES
    assert max(map(len, lines)) <= COLUMNS


def test_step_needs_a_terminal(process: Callable[..., Any], world: World) -> None:
    ended = process("toolgate", "demo", "--step", env=world.env)
    assert ended.wait() == 2
    assert "--step waits for Enter: use it at a terminal" in ended.stderr


async def test_the_commands_that_the_demo_closes_with_work_as_printed(
    process: Callable[..., Any], world: World, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    runtime = world.directory / "runtime"
    runtime.mkdir(mode=0o700)
    env = {"XDG_RUNTIME_DIR": str(runtime), "PATH": "/usr/bin:/bin", "COLUMNS": "400"}
    running = process("toolgate", "demo", env=env, cwd=tmp_path)
    assert running.wait(60) == 0, running.stderr
    closing = running.stdout.partition("Try next, after  ")[2]
    activate = closing.partition(":\n")[0].replace("\n", "").replace("  ", " ")
    assert activate.endswith("/bin/activate")
    init, rules, agent = re.findall(r"^  [a-z ]+: +(.*)$", closing, re.MULTILINE)
    ruling = process("bash", "-ec", f"{activate}\n{init}\nexec {rules}", cwd=tmp_path, env=env)
    await wait_until(lambda: "rules on *" in ruling.stderr or not ruling.alive, timeout=30)
    ended = process("bash", "-ec", f"{activate}\n{agent}", cwd=tmp_path, env=env)
    assert ended.wait() == 0, ended.stderr
    assert "The notes are still there. The tool call was denied: deleting is for people" in ended.stdout
    ruling.end()


@linux_only
async def test_ctrl_c_ends_the_demo_and_leaves_nothing(
    at_terminal: Callable[..., Person], wait_until: Callable[..., Any], world: World
) -> None:
    person = at_terminal("--step")
    person.sees("[Enter]")
    person.types(CTRL_C)
    assert person.ended() == 128 + signal.SIGINT
    assert "Traceback" not in person.shown
    assert person.shown.endswith("\n"), "the shell's prompt begins a line"
    await wait_until(lambda: not world.processes() and not world.files())


@linux_only
async def test_a_demo_that_is_told_to_end_while_it_starts_leaves_nothing(
    process: Callable[..., Any], wait_until: Callable[..., Any], world: World
) -> None:
    running = process("toolgate", "demo", env=world.env, start_new_session=True)
    await wait_until(lambda: world.files(), timeout=30)
    os.killpg(running.pid, signal.SIGTERM)
    # -SIGTERM: it had not come to handle signals yet.
    assert running.wait(30) in (128 + signal.SIGTERM, -signal.SIGTERM)
    await wait_until(lambda: not world.processes() and not world.files())
    assert "Traceback" not in running.stderr


@linux_only
async def test_a_demo_that_is_killed_leaves_no_server_and_no_scheduler(
    at_terminal: Callable[..., Person], wait_until: Callable[..., Any], world: World
) -> None:
    person = at_terminal("--step")
    person.sees("[Enter]")
    person.running.signal(signal.SIGKILL)
    person.running.wait()
    await wait_until(lambda: not world.processes())
    await wait_until(lambda: not world.files())
