"""`toolgate chat` and `run --stream` at a real terminal: a process on a pseudo-terminal, and a person.

The person waits for what is shown, never for time. `slow` is a tool that waits for the test, `echo`
a provider that tells what it was asked, `stubborn` a loop of somebody else's that knows nothing of
cancellation; they are Amplifier modules of a distribution made here.
"""

import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_person import AT_TERMINAL, CTRL_C, ESCAPE, UP, Modules, Person

pytestmark = [pytest.mark.system, pytest.mark.acceptance, pytest.mark.timeout(120)]

HINT = "Ctrl-C again stops at once"
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]m")


@pytest.fixture
def modules(tmp_path: Path) -> Modules:
    return Modules(tmp_path)


@pytest.fixture
def at_terminal(
    process: Callable[..., Any], modules: Modules, server_url: str, namespace: str
) -> Iterator[Callable[..., Person]]:
    """`at_terminal("chat", …)`: the command on a terminal of its own, on the test's bus."""
    screens = []

    def start(*command: object, bus: bool = True, env: dict[str, str] | None = None) -> Person:
        screen, terminal = pty.openpty()
        screens.append(screen)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 180, 0, 0))
        where = ("--redis", server_url, "--namespace", namespace) if bus else ()
        running = process(
            sys.executable,
            *("-c", AT_TERMINAL, *command, *where),
            env={"PYTHONPATH": modules.path, "PYTHONUNBUFFERED": "", "TERM": "xterm", "NO_COLOR": ""}
            | (env or {}),
            start_new_session=True,
            **dict.fromkeys(("stdin", "stdout", "stderr"), terminal),
        )
        os.close(terminal)
        return Person(screen, running)

    yield start
    for screen in screens:
        os.close(screen)


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., Path]:
    """`plan(turns, …)`: path of a plan whose LLM says these turns, with the slow tool and a calculator."""

    def write(*turns: str, pace_s: float = 0, loop: str = "loop-events", more: str = "") -> Path:
        path = tmp_path / "plan.yaml"
        lines = "".join(f"\n      - {turn}" for turn in turns) or " []"
        path.write_text(
            f"session: {{orchestrator: {loop}}}\ntools: [tool-slow, tool-calculator]\nproviders:\n"
            f"  - module: provider-scripted\n    config:\n      pace_s: {pace_s}\n      turns:{lines}\n"
            f"  - {{module: provider-echo}}\n{more}"
        )
        return path

    return write


SLOW = '{text: "I will wait.", tool_calls: [{name: slow, arguments: {}}]}'


def test_text_is_shown_before_the_answer_is_complete(at_terminal: Any, plan: Any) -> None:
    words = " ".join(f"w{number}." for number in range(100))
    person = at_terminal("chat", "--plan", plan(f'{{text: "{words}"}}', "{text: next}", pace_s=0.1))
    person.asks("hi")
    person.sees("w3.")
    assert "w50." not in person.shown
    person.types(CTRL_C)
    person.sees("cancelled\n")
    assert "w99." not in person.shown
    person.asks("go on")
    person.sees("next\n")
    assert person.leaves() == 0


def test_ctrl_c_once_lets_the_running_tool_finish_and_ends_the_turn(
    at_terminal: Any, plan: Any, modules: Modules
) -> None:
    person = at_terminal("chat", "--plan", plan(SLOW, "{text: not this turn}"))
    person.asks("hi")
    person.sees("I will wait.")
    person.sees("tool     slow()")
    person.watches_until(lambda: modules.started)
    person.types(CTRL_C)
    person.sees("cancelling: slow finishes first; " + HINT)
    assert not modules.finished
    modules.go()
    person.sees("slow()  ok")
    person.sees("cancelled\n")
    assert modules.finished
    assert "not this turn" not in person.shown
    person.asks("and now?")
    person.sees("not this turn\n")
    assert person.leaves() == 0


@pytest.mark.parametrize("loop", ["loop-events", "loop-streaming", "loop-basic"])
def test_ctrl_c_twice_ends_the_turn_at_once_and_not_the_program(
    at_terminal: Any, plan: Any, modules: Modules, loop: str
) -> None:
    person = at_terminal("chat", "--plan", plan(SLOW, "{text: well again}", loop=loop))
    person.asks("hi")
    person.sees("tool     slow()")
    person.types(CTRL_C)
    person.sees(HINT)
    person.types(CTRL_C)
    person.sees("failed: stopped with the turn")
    person.sees("cancelled\n")
    assert not modules.finished
    person.asks("and now?")
    person.sees("well again\n")
    assert person.leaves() == 0


def test_a_loop_that_does_not_react_is_told_apart_and_its_answer_comes_at_the_end(
    at_terminal: Any, plan: Any, modules: Modules
) -> None:
    person = at_terminal("chat", "--plan", plan(loop="loop-stubborn"))
    person.sees("nothing rules on its calls")
    person.asks("hi")
    person.sees("tool     stubborn()")
    for said in (HINT, "stopping", "The turn has not ended yet. Ctrl-\\ ends the program."):
        person.types(CTRL_C)
        person.sees(said)
    modules.go()
    person.sees("stubborn()  ok")
    person.sees("heard hi\n")
    person.asks("again")
    person.sees("heard again\n")
    assert person.leaves() == 0


def test_a_dumb_terminal_will_do(at_terminal: Any, plan: Any) -> None:
    person = at_terminal("chat", "--plan", plan(), "--provider", "echo", env={"TERM": "dumb"})
    person.asks("hi")
    person.sees("1: ['hi']")
    person.asks("/quit")
    assert person.ended() == 0
    assert ESCAPE not in person.raw.partition("listening")[2]


def test_ctrl_c_at_the_prompt_clears_the_line_and_then_says_how_to_leave(at_terminal: Any, plan: Any) -> None:
    person = at_terminal("chat", "--plan", plan(), "--provider", "echo")
    person.sees(">")
    person.types("never sent")
    person.sees("never sent")
    person.types(CTRL_C)
    person.types(CTRL_C)
    person.sees("Ctrl-D or /quit leaves.")
    person.running.signal(signal.SIGINT)  # by `kill`, it means the same
    person.sees("Ctrl-D or /quit leaves.")
    person.types("sent\r")
    person.sees("1: ['sent']")
    assert person.leaves() == 0


def test_what_is_logged_is_told_in_words_unless_the_log_was_asked_for(at_terminal: Any, plan: Any) -> None:
    path = plan('{text: "first"}')
    for log, told in (
        ((), "tool calls run without rulings: 127.0.0.1:1 cannot be reached: nothing listens"),
        (("--log-level", "DEBUG"), "[debug "),
    ):
        person = at_terminal(*log, "chat", "--plan", path, "--redis", "redis://127.0.0.1:1/0", bus=False)
        person.sees(told)
        assert ("[debug " in person.shown) is bool(log)
        assert person.leaves() == 0


def test_the_conversation_goes_on_from_turn_to_turn(at_terminal: Any, plan: Any) -> None:
    person = at_terminal("chat", "--plan", plan(), "--provider", "echo")
    person.asks("first")
    person.sees("1: ['first']")
    person.asks("second")
    person.sees("2: ['second']")
    assert person.leaves() == 0


def test_the_arrow_keys_find_what_was_typed_before(at_terminal: Any, plan: Any) -> None:
    person = at_terminal("chat", "--plan", plan(), "--provider", "echo")
    person.asks("mountain")
    person.sees("1: ['mountain']")
    person.sees(">")
    person.presses_until(UP, "mountain")
    person.types("s\r")
    person.sees("2: ['mountains']")
    assert person.leaves() == 0


def test_what_is_typed_during_a_turn_is_the_next_prompt(
    at_terminal: Any, plan: Any, modules: Modules
) -> None:
    person = at_terminal("chat", "--plan", plan(SLOW, "{text: first}", "{text: second}"))
    person.asks("hi")
    person.sees("slow()")
    person.types("typed ahead\r")
    person.sees("typed ahead")
    modules.go()
    person.sees("first\n")
    person.sees("second\n")
    assert person.leaves() == 0
    assert f"{ESCAPE}[6n" not in person.raw  # its answer would be typed among the keys


def test_what_is_pasted_in_several_lines_is_one_prompt(at_terminal: Any, plan: Any) -> None:
    person = at_terminal("chat", "--plan", plan(), "--provider", "echo")
    person.sees(">")
    person.types(f"{ESCAPE}[200~one\ntwo{ESCAPE}[201~{ESCAPE}\rthree\r")
    person.sees(r"1: ['one\ntwo\nthree']")
    assert person.leaves() == 0


def test_commands_begin_with_a_slash_and_paths_are_none(at_terminal: Any, plan: Any) -> None:
    person = at_terminal("chat", "--plan", plan(), "--provider", "echo")
    person.asks("/help")
    person.sees("/quit    leave")
    person.asks("/tools")
    person.sees("slow  Waits until it is told to go on.\n")
    person.asks("/nonsense")
    person.sees("/nonsense is unknown. Commands: /help")
    person.asks("/etc/passwd is what?")
    person.sees("1: ['/etc/passwd is what?']")
    person.asks("/quit")
    assert person.ended() == 0


def test_an_error_of_a_turn_is_one_red_line_and_the_chat_goes_on(at_terminal: Any, plan: Any) -> None:
    path = plan("{error: overloaded}", "{text: better now}", loop="loop-streaming")
    person = at_terminal("chat", "--plan", path)
    person.asks("hi")
    person.sees("Error: ")
    assert "overloaded" in person.sees("\n")
    assert COLOUR.search(person.raw)
    person.asks("again")
    person.sees("better now\n")
    assert "Traceback" not in person.shown
    assert person.leaves() == 0


def test_colours_can_be_turned_off(at_terminal: Any, plan: Any) -> None:
    person = at_terminal("chat", "--plan", plan("{error: overloaded}"), env={"NO_COLOR": "1"})
    person.asks("hi")
    person.sees("overloaded")
    assert person.leaves() == 0
    assert not COLOUR.search(person.raw)


def test_what_an_llm_says_cannot_steer_the_terminal(at_terminal: Any, plan: Any) -> None:
    person = at_terminal("chat", "--plan", plan(r'{text: "a\e ]0;title\a b \e[2J c\r\nd"}'))
    person.asks("hi")
    person.sees("c\nd\n")
    assert f"{ESCAPE}[2J" not in person.raw
    assert f"{ESCAPE} ]0" not in person.raw
    assert "\a" not in person.raw
    assert person.leaves() == 0


ASKED = (
    "{tool_calls: [{name: calculate, arguments: {expression: 6*7, rules: "
    "{alpha: {action: ask_user, prompt: 'May I?', timeout_s: 60}}}}]}"
)


async def test_an_approval_is_asked_for_in_place(at_terminal: Any, plan: Any, schedulers: Any) -> None:
    await schedulers.start("obedient:alpha")
    wait = "orchestrator: {config: {toolgate: {required: [alpha], patience_ms: 20000}}}"
    path = plan(ASKED, "{text: '${last_result}'}", ASKED, "{text: '${last_result}'}", more=wait)
    person = at_terminal("chat", "--plan", path)
    person.asks("hi")
    person.sees("May I?")
    person.sees("else deny: ")
    person.types("1\n")
    person.sees("ok")
    person.sees("42\n")
    person.asks("again")
    person.sees("else deny: ")
    person.types("deny\n")
    person.sees("denied   calculate")
    person.sees("The tool call was denied")
    assert person.leaves() == 0


async def test_ctrl_c_at_an_open_approval_is_a_no(at_terminal: Any, plan: Any, schedulers: Any) -> None:
    await schedulers.start("obedient:alpha")
    wait = "orchestrator: {config: {toolgate: {required: [alpha], patience_ms: 20000}}}"
    person = at_terminal("chat", "--plan", plan(ASKED, "{text: still here}", more=wait))
    person.asks("hi")
    person.sees("else deny: ")
    person.types(CTRL_C)
    person.sees("denied   calculate")
    person.sees("cancelled\n")
    person.asks("again")
    person.sees("still here\n")
    assert person.leaves() == 0


async def test_a_ruling_is_shown_when_it_is_made(at_terminal: Any, plan: Any, schedulers: Any) -> None:
    await schedulers.start("obedient:alpha")
    deny = "{alpha: {action: deny, reason: not today}}"
    call = f"{{text: Trying., tool_calls: [{{name: slow, arguments: {{rules: {deny}}}}}]}}"
    wait = "orchestrator: {config: {toolgate: {required: [alpha], patience_ms: 20000}}}"
    person = at_terminal("run", "hi", "--plan", plan(call, "{text: Then not.}", more=wait), "--stream")
    person.sees("Trying.\n")
    person.sees("denied   slow  (alpha: not today)\n")
    person.sees("Then not.\n")
    assert person.ended() == 0


@pytest.mark.parametrize("busy", [False, True])
def test_sigterm_ends_it_with_143(at_terminal: Any, plan: Any, modules: Modules, busy: bool) -> None:
    person = at_terminal("chat", "--plan", plan(SLOW))
    person.sees(">")
    if busy:
        person.types("hi\r")
        person.watches_until(lambda: modules.started)
    person.running.signal(signal.SIGTERM)
    assert person.ended() == 143
    assert "Traceback" not in person.shown
    assert modules.cleaned
    assert not modules.finished


def test_ctrl_d_leaves_the_terminal_as_it_was_and_no_process(
    at_terminal: Any, plan: Any, modules: Modules, short_directory: Path
) -> None:
    """Also no server: without --redis the chat has started one."""
    env = {"XDG_RUNTIME_DIR": str(short_directory), "TMPDIR": str(short_directory)}
    person = at_terminal("chat", "--plan", plan("{text: hello}"), bus=False, env=env)
    before = termios.tcgetattr(person.screen)
    person.asks("hi")
    person.sees("hello\n")
    assert person.leaves() == 0
    assert termios.tcgetattr(person.screen) == before
    assert modules.cleaned
    deadline = time.monotonic() + 30
    while left := _with_environment(f"XDG_RUNTIME_DIR={short_directory}"):
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def _with_environment(setting: str) -> list[str]:
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if setting.encode() in environ.read_bytes().split(b"\0"):
                found.append(environ.parent.name)
        except OSError:  # it is gone, or another user's
            continue
    return found


SUM = '{tool_calls: [{id: c, name: calculator, arguments: {expression: "1+1"}}]}'


@pytest.mark.parametrize(("typed", "told"), [("1", "Two."), ("2", "denied   calculator")])
async def test_a_call_that_is_held_for_a_person_is_answered_at_the_agents_own_terminal(
    at_terminal: Any, plan: Any, schedulers: Any, tmp_path: Path, typed: str, told: str
) -> None:
    (tmp_path / "rules").write_text('{"rules": [{"tools": "calculator", "prompt": "May it add?"}]}')
    await schedulers.start("approval", "--config", tmp_path / "rules")
    person = at_terminal("run", "add", "--stream", "--plan", plan(SUM, "{text: Two.}"))
    person.sees("waits    calculator for up to 15 min")
    person.sees("approval holds this call for a person:")
    person.sees("else deny: ")
    assert 'calculator(expression="1+1")' in person.shown
    assert "May it add?" in person.shown
    person.types(f"{typed}\r")
    person.sees(told)


async def test_what_somebody_else_has_answered_is_no_longer_asked_about(
    at_terminal: Any,
    plan: Any,
    schedulers: Any,
    process: Any,
    tmp_path: Path,
    server_url: str,
    namespace: str,
) -> None:
    (tmp_path / "rules").write_text('{"rules": [{"tools": "calculator"}]}')
    await schedulers.start("approval", "--config", tmp_path / "rules")
    person = at_terminal("run", "add", "--stream", "--plan", plan(SUM, "{text: Two.}"))
    person.sees("else deny: ")
    [id_] = re.findall(r"approvals approve (\w+)", person.shown)
    where = ("--redis", server_url, "--namespace", namespace)
    process("toolgate", "approvals", "approve", id_, *where)
    person.sees("The question was withdrawn.")
    person.sees("Two.")
