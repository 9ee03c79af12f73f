"""`toolgate demo` shows what it promises and leaves nothing behind, however it ends."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from marked_processes import World

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

ESCAPE = "\x1b"
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and parent-death signals")


@pytest.fixture(name="world")
def _world(short_directory: Path) -> Iterator[World]:
    world = World(short_directory)
    yield world
    assert not world.processes()


@dataclass(frozen=True)
class Run:
    """A demo that went to its end by itself, and left nothing."""

    pid: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def demo() -> Callable[..., Run]:
    """`demo(*words)`: a run that several tests look at."""

    @cache
    def run(*words: str) -> Run:
        with tempfile.TemporaryDirectory(prefix="tg-") as directory:
            world = World(Path(directory))
            child = subprocess.Popen(
                [sys.executable, "-m", "toolgate_bus", "demo", *words],
                env=os.environ | world.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            out, err = (said.decode() for said in child.communicate(timeout=60))
            assert child.returncode == 0, err
            assert not world.files()
            assert not world.processes()
        return Run(child.pid, out, err)

    return run


def test_the_demo_keeps_its_promises(demo: Callable[..., Run]) -> None:
    running = demo("--json")
    told = json.loads(running.stdout)
    assert told["ok"] is True
    pids = {one["pid"] for one in told["schedulers"]}
    assert len(pids) == 3
    assert running.pid not in pids
    outcomes = [call["outcome"] for call in told["calls"]]
    assert {"continue", "modify", "deny"} <= set(outcomes)
    denied = next(call for call in told["calls"] if call["outcome"] == "deny")
    assert denied["reason"] in denied["result"]
    assert denied["ran_tool"] is None
    assert any(
        call["ran_tool"] not in (None, call["tool"]) and call["ran_arguments"] != call["arguments"]
        for call in told["calls"]
    )
    assert all(len({heard["scheduler"] for heard in call["verdicts"]}) == 3 for call in told["calls"])
    assert "450.40 EUR" in told["answer"]


def test_the_second_act_routes_vetoes_and_stops_agents(demo: Callable[..., Run]) -> None:
    running = demo("--json")
    told = json.loads(running.stdout)
    calls, stop = told["team"]["calls"], told["team"]["stop"]

    first = calls[0]
    assert (first["agents"], first["arguments"]["agent"]) == (["lead"], "senior")
    assert (first["outcome"], first["scheduler"]) == ("modify", "router")
    assert first["ran_arguments"]["agent"] == "junior"
    assert ["lead", "junior"] in [call["agents"] for call in calls]

    denied = [call for call in calls if call["outcome"] == "deny"]
    assert [(call["agents"], call["scheduler"]) for call in denied] == [
        (["lead", "senior", "cleaner"], "policy")
    ]
    assert "as for lead, for whom cleaner works" in denied[0]["reason"]
    assert denied[0]["reason"] in denied[0]["result"]

    watched = [call for call in calls if call["agents"] == ["lead", "watcher"]]
    assert 3 <= len(watched) < 500, "it was to be stopped long before its script ends"
    assert all(call["result"] for call in watched), "every call has its result"
    assert (stop["code"], stop["status"]) == (0, "cancelled")
    assert stop["command"].startswith("toolgate agents stop ")
    [asked] = [call for call in calls if call["arguments"].get("agent") == "watcher"]
    assert "was stopped before it was done" in asked["result"]
    assert "watcher was stopped" in told["team"]["answer"]
    assert all(len({heard["scheduler"] for heard in call["verdicts"]}) == 3 for call in calls)
    assert not running.stderr


def test_the_third_act_has_calls_wait_for_their_turn_and_the_urgent_one_go_first(
    demo: Callable[..., Run],
) -> None:
    queue = json.loads(demo("--json").stdout)["queue"]
    calls = queue["calls"]
    assert (len(calls), queue["most_at_a_time"]) == (9, 2)
    assert [one["turn"] for one in calls if not one["told"]] == [1, 2]
    assert [one["turn"] for one in calls if one["urgent"]] == [3]
    assert sorted(one["turn"] for one in calls) == list(range(1, 10))
    assert "renderer: 2 of 2 in use, 7 wait" in queue["look"]["output"]


def test_the_demo_tells_a_person_what_happened_in_plain_words(demo: Callable[..., Run]) -> None:
    shown = demo().stdout
    for word in (
        "continue",
        "deny",
        "modify",
        "quick_search",
        "The LLM's answer",
        "What to try next",
        "Summary",
        "Act two",
        "lead > junior chose quick_search",
        "lead > senior > cleaner chose delete_file",
        "as for lead, for whom cleaner works",
        "$ toolgate agents stop ",
        "The lead's answer",
        "Act three",
        "waits for renderer: place 1",
        "$ toolgate queue",
        "9 calls ran, never more than 2 at a time",
    ):
        assert word in shown
    # Who is there, as the command shows it, then the order, then what the lead is told of it.
    order = [
        "delegating watcher",
        "$ toolgate agents stop",
        "\n     stopped ",
        "lead is answered: the agent watcher",
    ]
    assert order == sorted(order, key=shown.index)
    assert len(set(re.findall(r"(?:policy|router|archivist) +pid (\d+)", shown))) == 3
    assert ESCAPE not in shown


def test_the_numbers_of_the_demo_agree_with_each_other(demo: Callable[..., Run]) -> None:
    first, _, second = demo().stdout.partition("Act three")[0].partition("Act two")
    numbers = [
        [int(one) for one in re.findall(r"^ *(\d+)  .* chose ", act, re.MULTILINE)] for act in (first, second)
    ]
    assert numbers[0] == [1, 2, 3, 4, 5]
    assert f"Summary: {len(numbers[0])} calls: " in first
    assert f"{len(re.findall(r' ms(?:  .*)?$', first, re.MULTILINE))} verdicts" in first
    assert "LLM is a script" in first
    unseen = re.search(r"Calls (\d+) to (\d+) were watcher's meanwhile", second)
    shown = numbers[1][-1]
    last = int(unseen[2]) if unseen else shown
    assert numbers[1] == list(range(1, shown + 1))
    assert unseen is None or int(unseen[1]) == shown + 1
    watched = second.count("lead > watcher chose ") + last - shown
    assert f"Summary: {last} calls of 5 agents" in second
    assert f"ended watcher after {watched} calls" in second


@pytest.mark.system
async def test_the_commands_that_the_demo_closes_with_work_as_printed(
    process: Callable[..., Any], world: World, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    runtime = world.directory / "runtime"
    runtime.mkdir(mode=0o700)
    env = {"XDG_RUNTIME_DIR": str(runtime), "PATH": "/usr/bin:/bin"}
    running = process("toolgate", "demo", env=env, cwd=tmp_path)
    assert running.wait(60) == 0, running.stderr
    closing = running.stdout.partition("What to try next")[2].splitlines()[1:]
    there = next(number for number, line in enumerate(closing) if not line.startswith("  "))
    ours, theirs = closing[:there], closing[there + 1 :]
    assert "activate" in ours[0]
    rules = process(
        "bash",
        "-ec",
        "\n".join(ours).replace("toolgate scheduler run", "exec toolgate scheduler run"),
        cwd=tmp_path,
        env=env,
    )
    await wait_until(lambda: "rules on *" in rules.stderr or not rules.alive, timeout=30)
    assert "4 cases: 4 as expected" in rules.stdout, rules.stderr
    agent = process("bash", "-ec", "\n".join(theirs), cwd=tmp_path, env=env)
    assert agent.wait() == 0, agent.stderr
    assert "The notes are still there. The tool call was denied: deleting is for people" in agent.stdout
    assert "deny      delete_file" in agent.stdout
    rules.end()


@pytest.mark.system
@pytest.mark.parametrize(("terminal", "coloured"), [("xterm-256color", True), ("dumb", False)])
def test_colours_are_for_terminals_that_have_them(world: World, terminal: str, coloured: bool) -> None:
    shown = _on_a_terminal(world, terminal)
    assert "The LLM's answer" in shown
    assert (ESCAPE in shown) is coloured


def _on_a_terminal(world: World, terminal: str) -> str:
    """Run the demo on a pseudo-terminal; what it wrote there."""
    ours, theirs = pty.openpty()
    env = {**os.environ, **world.env, "TERM": terminal}
    del env["NO_COLOR"]
    child = subprocess.Popen(
        [sys.executable, "-m", "toolgate_bus", "demo"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        written += part
    os.close(ours)
    assert child.wait(60) == 0
    return written.decode()


# From before the server is there to the middle of the second act, where a command runs beside it.
INT, TERM = (signal.SIGINT, 130), (signal.SIGTERM, 143)
"""The two are heard by one function: each moment has one of them."""
MOMENTS = [
    (None, *INT),
    ("archivist  pid", *TERM),
    ("The LLM chose list_files", *INT),
    ("The LLM chose write_file", *TERM),
    ("lead > junior chose", *TERM),
    ("somebody in another terminal", *INT),
]


@pytest.mark.system
@linux_only
@pytest.mark.parametrize(("moment", "number", "code"), MOMENTS)
async def test_a_demo_that_is_interrupted_leaves_nothing(
    process: Callable[..., Any],
    wait_until: Callable[..., Any],
    world: World,
    moment: str | None,
    number: signal.Signals,
    code: int,
) -> None:
    running = process("toolgate", "demo", env=world.env | {"PYTHONUNBUFFERED": "1"}, start_new_session=True)
    if moment is None:
        await wait_until(lambda: world.files(), timeout=30)
    else:
        await wait_until(lambda: moment in running.stdout or not running.alive, timeout=30)
    # As a terminal does it: to the whole foreground group.
    os.killpg(running.pid, number)
    ended = running.wait(30)
    # -number: it had not come to handle signals yet. 0: the job was over by then.
    assert ended in (code, 0, -number)
    # Its guard cleans up behind it, within a moment.
    await wait_until(lambda: not world.processes() and not world.files(), timeout=15)
    assert "Traceback" not in running.stderr


@linux_only
async def test_a_demo_that_is_killed_leaves_no_server_and_no_scheduler(
    process: Callable[..., Any], wait_until: Callable[..., Any], world: World
) -> None:
    running = process("toolgate", "demo", env=world.env | {"PYTHONUNBUFFERED": "1"})
    await wait_until(lambda: "The LLM chose list_files" in running.stdout or not running.alive, timeout=30)
    assert running.alive, "it was over before it could be killed"
    running.signal(signal.SIGKILL)
    running.wait(10)
    await wait_until(lambda: not world.processes(), timeout=15)
    await wait_until(lambda: not world.files(), timeout=5)
