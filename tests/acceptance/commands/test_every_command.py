"""Nothing that a stranger on the bus writes steers the terminal of who looks: every command, by its name.

The commands are counted from the app: a new one fails here until it is said how to call it. They look at
a fleet whose every name and word is an attack (`hostile_fleet.py`); what they print must be plain, visible
text, on lines of their own, in words and in JSON.
"""

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from hostile_fleet import BAD
from toolgate_bus.commands import main as cli
from toolgate_bus.commands import terminal
from toolgate_bus.telemetry.printable import visible

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120), pytest.mark.system]

BUS: Final = ("--redis", "{url}", "--namespace", "{ns}")
PLAN: Final = {
    "session": {
        "orchestrator": {"module": "loop-events", "config": {"toolgate": {"required": ["denier"]}}},
        "context": "context-simple",
    },
    "providers": [
        {
            "module": "provider-scripted",
            "config": {
                "turns": [
                    {"tool_calls": [{"id": BAD, "name": f"no{BAD}", "arguments": {BAD: BAD}}]},
                    {"text": f"The answer: {BAD}"},
                ]
            },
        }
    ],
}
ONCE: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "agents": (("agents",), ("agents", "--json")),
    "agents stop": (("agents", "stop", f"gone{BAD}", "--exact", "--wait", "0"), ("agents", "stop", "nobody")),
    "approvals list": (("approvals", "list"), ("approvals", "list", "--json")),
    "approvals show": (("approvals", "show", "{held}"), ("approvals", "show", "{held}", "--json")),
    "approvals edit": (("approvals", "edit", "{held}", "--arguments", '{{"x": "\x1b"}}', "--tool", "\x9b"),),
    "approvals approve": (
        ("approvals", "approve", "{held}", "--always", "--reason", BAD, "--as", "\x1b[2J"),
    ),
    "approvals deny": (("approvals", "deny", "{held}", "--json"), ("approvals", "deny", "{held}")),
    "approvals revoke": (("approvals", "list", "--always"), ("approvals", "revoke", "\x1b\x9b\u202e")),
    "budget list": (("budget", "list"), ("budget", "list", "--json")),
    "budget show": (("budget", "show", "session/session/\x1b\x9b"), ("budget", "show", "session", "--json")),
    "budget set": (("budget", "set", "session/session/\x1b\x9b", "3"),),
    "budget rebuild": (
        ("budget", "rebuild", "--facts", "--dry-run"),
        ("budget", "rebuild", "--from", "\x1b[2Jnone"),
    ),
    "decisions keep": (("decisions", "keep"), ("decisions", "keep", "--json")),
    "shards": (("shards",), ("shards", "--json")),
    "queue": (("queue",), ("queue", "--json")),
    "queue move": (("queue", "move", BAD), ("queue", "move", "\x9b", "--last", "--json")),
    "queue drop": (("queue", "drop", BAD, "--reason", BAD),),
    "queue drain": (("queue", "drain", BAD), ("queue", "drain", BAD, "--json")),
    "queue limit": (("queue", "limit", BAD, "2"), ("queue", "limit", BAD)),
    "agents pause": (("agents", "pause", "\x1b[2Jnone", "--by", BAD),),
    "agents resume": (("agents", "resume", "\x1b[2Jnone"),),
    "agents pauses": (("agents", "pauses"),),
    "agents labels": (("agents", "labels"), ("agents", "labels", "--json"), ("agents", "labels", BAD)),
    "agents unlabel": (
        ("agents", "unlabel", "\x1b[2Jnone", "\x9b", "--by", BAD),
        ("agents", "unlabel", f"s{BAD}", "*", "--by", BAD, "--wait", "0"),
    ),
    "budget accept-loss": (("budget", "accept-loss", "--by", BAD, "--reason", BAD),),
    "budget reset": (("budget", "reset", "session/session/\x1b\x9b"),),
    "decisions": (("decisions",), ("decisions", "--json"), ("decisions", "--tool", "\x1b*")),
    "decisions show": tuple(
        ("decisions", "show", f"{{{one}}}", *more)
        for one in ("yes", "no", "other")
        for more in ((), ("--json",))
    ),
    "decisions export": (("decisions", "export", "-"), ("decisions", "export", "-", "--facts")),
    "doctor": (("doctor", "--verbose"), ("doctor", "--verbose", "--json")),
    "report": (
        ("report", "--by", "team,agent,tool,session,scheduler"),
        ("report", "--by", "agent", "--csv"),
        ("report", "--json"),
    ),
    "replay": (("replay", "{runs}"), ("replay", "{runs}", "--json")),
    "run": (
        ("run", "go", "--plan", "{plan}"),
        ("run", "go", "--plan", "{plan}", "--stream"),
        ("run", "go", "--plan", "{plan}", "--json"),
        ("run", "go", "--plan", "{plan}", "--json", "--stream"),
    ),
    "scheduler list": (("scheduler", "list"), ("scheduler", "list", "--json")),
    "scheduler run": (("scheduler", "run", "\x1b[2Jnone\x9b"),),
    "scheduler push": (("scheduler", "push", "policy", "--config", "\x1b[2Jnone"),),
    "scheduler history": (("scheduler", "history", "denier"),),
    "scheduler diff": (("scheduler", "diff", "denier", "\x1b[2J", "\x9b"),),
    "scheduler undo": (("scheduler", "undo", "denier", "--to", "\x1b[2J"),),
    "scheduler rollout": (("scheduler", "rollout", "denier", "--to", "\x1b[2J", "--share", "10"),),
    "scheduler status": (("scheduler", "status", "denier"), ("scheduler", "status", "denier", "--json")),
    "scheduler search": (("scheduler", "search", "--schema", "\x1b[2Jnone"),),
    "scheduler check": (("scheduler", "check", "policy", "--config", "\x1b[2Jnone"),),
    "scheduler new": (("scheduler", "new", "\x1b[2J"),),
    "init": (("init", "{directory}"), ("init", "--from", "mcp", "--file", "\x1b[2Jnone\x9b")),
    "mcp": (("mcp", "--config", "\x1b[2Jnone"),),
    "hook install": (
        ("hook", "install", "\x1b[2Jnone\x9b"),
        ("hook", "install", "claude", "--required", BAD),
    ),
    "hook uninstall": (("hook", "uninstall", "\x1b[2Jnone\x9b"),),
    "hook status": (("hook", "status", "--project", "--no-probe"), ("hook", "status", "\x1b[2J\x9b")),
    "hook run": (("hook", "run", "\x1b[2Jnone\x9b"),),
    "check": (("check", "\x1b[2Jnone.py:\x9b"), ("check", "json:\x1b[2J"), ("check", "json:loads", "--json")),
    "policy test": (("policy", "test", "\x1b[2Jnone", "\x9b"),),
    "policy enforce": (("policy", "enforce", "denier", "--yes"), ("policy", "enforce", "\x1b[2J", "--yes")),
    "policy observe": (("policy", "observe", "denier", "--config", "\x1b[2Jnone", "--yes"),),
    "policy status": (("policy", "status"), ("policy", "status", "--json")),
    "policy suggest": (
        ("policy", "suggest"),
        ("policy", "suggest", "--json"),
        ("policy", "suggest", "--runs", "{runs}", "--out", "{directory}/suggested.yaml"),
    ),
    "scheduler try": (
        (
            "scheduler",
            "try",
            "heuristic",
            "--call",
            json.dumps({"tool": BAD}).replace("{", "{{").replace("}", "}}"),
        ),
    ),
}
"""By name, the command lines that end by themselves; those of a fleet get where it is."""
ON: Final[dict[str, tuple[str, ...]]] = {
    "approvals list": ("approvals", "list", "--follow"),
    "agents": ("agents", "--watch"),
    "decisions": ("decisions", "--follow"),
    "decisions archive": ("decisions", "archive", "{directory}"),
    "chat": ("chat", "--plan", "{plan}"),
    "console": ("console", "--port", "0"),
    "exporter": ("exporter", "--port", "0"),
    "serve": ("serve", "--socket", "{directory}/serve.sock"),
    "notify": ("notify", "--config", "{notify}"),
}
"""Those that go on: they are told to end once they have said something."""
TABLES: Final = (("agents",), ("approvals", "list"), ("scheduler", "list"))
"""What is shown in columns: where there is no room, cells go on below, and never in the first column."""
OF_THEIR_OWN: Final = {
    "bench",
    "demo",
}
"""They show the fleet that they start themselves, and nothing of anybody else's."""
NOT_ON_A_BUS: Final = {
    "check",
    "init",
    "hook install",
    "hook uninstall",
    "hook status",
    "hook run",
    "policy test",
    "scheduler check",
    "scheduler new",
    "scheduler search",
    "scheduler try",
}


@dataclass
class Fleet:
    """Where it is, and what the command lines need of it."""

    words: dict[str, str]

    def line(self, name: str, words: tuple[str, ...]) -> list[str]:
        """The words of a command line."""
        more = () if name in NOT_ON_A_BUS else BUS
        return [word.format(**self.words) for word in (*words, *more)]


def every_command() -> set[str]:
    """The names of all commands of the app, as one types them."""

    def leaves(name: str, command: Any) -> Iterator[str]:
        below = getattr(command, "commands", None)
        if below is None or command.invoke_without_command:
            yield name
        for word, one in (below or {}).items():
            yield from leaves(f"{name} {word}", one)

    points = cli._entry_points().items()
    return {leaf for name, where in points for leaf in leaves(name, cli._load(name, where))}


@pytest.fixture(scope="module")
def fleet(server_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    directory = tmp_path_factory.mktemp("hostile")
    plan, runs = directory / "plan.yaml", directory / "runs.jsonl"
    plan.write_text(json.dumps(PLAN))
    notify = directory / "notify.yaml"
    notify.write_text("receivers: {nobody: {url: 'http://127.0.0.1:9/'}}")
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": f"no{BAD}", "arguments": json.dumps({BAD: BAD})},
    }
    said = [
        {"role": "user", "content": BAD},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "name": f"no{BAD}", "content": BAD},
        {"role": "assistant", "content": BAD},
    ]
    runs.write_text(json.dumps({"task_id": BAD, "traj": said}) + "\n")
    script = Path(__file__).with_name("hostile_fleet.py")
    child = subprocess.Popen(
        [sys.executable, script, server_url, "hostile"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        decisions = json.loads(child.stdout.readline())
        words = dict(zip(("yes", "no", "other"), decisions, strict=True))
        more = {"plan": plan, "runs": runs, "notify": notify, "directory": directory / "archive"}
        yield Fleet(
            {"url": server_url, "ns": "hostile", **words, **{key: str(path) for key, path in more.items()}}
        )
    finally:
        child.kill()
        child.communicate()


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Everything that a command printed, called in this process; `columns` make a terminal of that width."""

    def call(words: list[str], columns: int | None = None) -> str:
        capfd.readouterr()
        monkeypatch.setenv("COLUMNS", str(columns or 900))
        for one in (terminal.console, terminal.err_console):  # which may have been made before
            monkeypatch.setattr(one, "_width", columns or 900)
            monkeypatch.setattr(one, "_force_terminal", columns is not None)
            monkeypatch.setattr(one, "_color_system", None)
        monkeypatch.setattr(sys, "argv", ["toolgate", *words])
        monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
        with pytest.raises(SystemExit):
            cli.main()
        return "".join(capfd.readouterr())

    return call


def assert_tame(text: str, line: list[str]) -> None:
    """Plain, visible characters, no line of a stranger's, and markup that was none of ours."""
    if line[0] not in ("run", "chat"):  # an answer has lines and tabs of its own
        assert "\t" not in text, line
        assert not [one for one in text.split("\n") if one.lstrip().startswith("FAKE")], line
    assert {one for one in text if not one.isprintable()} <= set("\n\t"), line
    assert text.count("[red]EVIL") == text.count("EVIL"), line
    if "--json" in line and "Error:" not in text:
        assert [json.loads(one) for one in text.split("\n") if one.startswith("{")], line


def test_every_command_is_called_here() -> None:
    assert every_command() == ONCE.keys() | ON.keys() | OF_THEIR_OWN


def wait_for(found: Callable[[], Any], line: list[str]) -> None:
    """Look every few milliseconds, with a bound."""
    until = time.monotonic() + 60
    while not found():
        assert time.monotonic() < until, line
        time.sleep(0.01)


def test_commands_that_go_on_are_not_steered_while_a_call_waits(
    fleet: Fleet, process: Callable[..., Any]
) -> None:
    env = {"COLUMNS": "900", "PYTHONUNBUFFERED": "1"}
    started = []
    for name, words in ON.items():
        line = fleet.line(name, words)
        keyboard = {"stdin": subprocess.PIPE} if name == "chat" else {}
        started.append((line, process("toolgate", *line, env=env, **keyboard)))
        if name == "chat":
            started[-1][1].popen.stdin.write(b"hello\n")
            started[-1][1].popen.stdin.close()
    for line, one in started:
        if "--watch" not in line:  # which says nothing until it ends where there is no screen
            wait_for(lambda one=one: one.stdout or one.stderr, line)
        one.signal(signal.SIGINT)
        one.wait()
        assert_tame(one.stdout + one.stderr, line)


@pytest.mark.parametrize("words", TABLES, ids=" ".join)
def test_where_a_table_has_no_room_no_line_of_it_begins_with_the_words_of_strangers(
    fleet: Fleet, said: Callable[..., str], words: tuple[str, ...]
) -> None:
    wrapped = 0
    for columns in range(40, 140, 4):
        _, *rows = said(fleet.line("", words), columns).split("\n")
        wrapped += any(one.startswith("  ") for one in rows)
        assert not [one for one in rows if one.startswith("FAKE")], columns
    assert wrapped or "approvals" not in words, "cells had room everywhere"


def test_what_strangers_write_does_not_steer_the_terminal_of_any_command(
    fleet: Fleet, said: Callable[..., str]
) -> None:
    held = json.loads(said(fleet.line("", ("approvals", "list", "--json"))).split("\n")[0])["id"]
    fleet.words["held"] = held
    shown = {}
    for name, lines in ONCE.items():
        for words in lines:
            line = fleet.line(name, words)
            text = said(line)
            assert_tame(text, line)
            shown[words] = "EVIL" in text
    # It was there to be seen.
    for words in (
        ("agents",),
        ("agents", "labels"),
        ("approvals", "list"),
        ("approvals", "show", "{held}"),
        ("decisions",),
        ("decisions", "--json"),
        ("decisions", "show", "{no}"),
        ("decisions", "export", "-"),
        ("scheduler", "list"),
        ("run", "go", "--plan", "{plan}"),
        ("run", "go", "--plan", "{plan}", "--stream"),
        ("run", "go", "--plan", "{plan}", "--json"),
        ("replay", "{runs}"),
    ):
        assert shown[words], words


def test_visible_words_of_ours_are_left_alone() -> None:
    assert visible("toolgate: 12 % of – é 漢 😀") == "toolgate: 12 % of – é 漢 😀"
