"""The samples of the documents run as they are printed: somebody follows them in an empty folder."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT, commands_in, output_in, outputs_in, page, sample

pytestmark = [pytest.mark.acceptance, pytest.mark.system]
READY = ("rules on", "watches (shadow)", "are ruled on at")
FIRST_SCHEDULER = "Your own scheduler, in a dozen lines"
START, REHEARSE, GUARD = page("start"), page("rehearse"), page("guard")
SERVE, AGENTS = page("serve"), page("coding-agents")


class Reader:
    """Somebody who follows a document in an empty folder, on the embedded server of this user."""

    def __init__(
        self, folder: Path, process: Callable[..., Any], wait: Callable[..., Awaitable[Any]]
    ) -> None:
        self.folder, self._process, self._wait = folder, process, wait

    def writes(self, *files: str) -> None:
        for file in files:
            (self.folder / file).write_text(sample(file).text, encoding="utf-8")

    async def starts(self, words: list[str]) -> Any:
        """A scheduler, in a terminal of its own, until it says that it rules."""
        running = self._process(*words, cwd=self.folder)
        await self._wait(lambda: any(one in running.stderr for one in READY) or not running.alive, timeout=30)
        assert running.alive, running.stderr
        return running

    def runs(self, *words: str, ends_with: int = 0) -> Any:
        """A command to its end."""
        running = self._process(*words, cwd=self.folder)
        assert running.wait(60) == ends_with, running.stderr
        return running


@pytest.fixture(name="reader")
def _reader(
    short_directory: Path, process: Callable[..., Any], wait_until: Callable[..., Awaitable[Any]]
) -> Iterator[Reader]:
    folder = short_directory / "empty"  # a sample has a socket in it
    folder.mkdir()
    yield Reader(folder, process, wait_until)
    shutil.rmtree(folder)


async def test_the_first_scheduler_of_the_readme_rules_on_a_real_program(reader: Reader) -> None:
    start, call = commands_in(FIRST_SCHEDULER)
    reader.writes("my_scheduler.py", "clerk.py")
    scheduler = await reader.starts(start)
    assert f"pid {scheduler.pid}" in scheduler.stderr
    assert reader.runs(*call).stdout == output_in(FIRST_SCHEDULER)
    assert (reader.folder / "notes.txt").exists()
    assert not (reader.folder / ".env").exists()
    assert "my-scheduler" in reader.runs("toolgate", "scheduler", "list").stdout
    assert "secrets stay here" in reader.runs("toolgate", "decisions").stdout


async def test_without_that_scheduler_the_program_writes_neither_file(reader: Reader) -> None:
    _, call = commands_in(FIRST_SCHEDULER)
    reader.writes("clerk.py")
    assert reader.runs(*call).stdout.count("my-scheduler") == 2
    assert [one.name for one in reader.folder.iterdir()] == ["clerk.py"]


async def test_the_gate_example_is_ruled_on_by_that_scheduler(reader: Reader) -> None:
    reader.writes("my_scheduler.py", "ask.py")
    await reader.starts(commands_in(FIRST_SCHEDULER)[0])
    assert reader.runs("python", "ask.py").stdout == output_in("Ask from any asyncio program", page("agents"))


async def test_the_programs_of_the_guards_page_are_ruled_on_by_that_scheduler(reader: Reader) -> None:
    reader.writes("my_scheduler.py", "guarded.py", "framework.py")
    await reader.starts(commands_in(FIRST_SCHEDULER)[0])
    for title in ("In a dozen lines", "A call, in three steps"):
        ended = [reader.runs(*command).stdout for command in commands_in(title, GUARD)]
        assert ended == outputs_in(title, GUARD)


async def test_what_a_tool_gave_is_shown_as_the_guards_page_says(reader: Reader) -> None:
    reader.writes("key_reader.py", "read_keys.py")
    start, call = commands_in("What a tool gave", GUARD)
    await reader.starts(start)
    assert reader.runs(*call).stdout == output_in("What a tool gave", GUARD)


async def test_the_sidecars_page_asks_a_real_one_by_curl(reader: Reader) -> None:
    reader.writes("secrets.yaml")
    title, authzen = "A first call", "AuthZEN"
    scheduler, sidecar, *calls = commands_in(title, SERVE)
    await reader.starts(scheduler)
    await reader.starts(sidecar)
    said = [reader.runs(*call).stdout for call in (*calls, *commands_in(authzen, SERVE))]
    shown = [*outputs_in(title, SERVE), *outputs_in(authzen, SERVE)]
    assert [re.sub(r'"id":"[0-9a-f]{32}"', '"id":"…"', one) for one in said] == [one.strip() for one in shown]


@pytest.mark.system
async def test_the_coding_agents_page_installs_a_hook_that_denies_and_takes_it_out_again(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Awaitable[Any]]
) -> None:
    """The client is a shell that runs the command of its settings, as Claude Code would."""
    monkeypatch.setenv("HOME", str(reader.folder))
    monkeypatch.setenv("TOOLGATE_HOOK_IDLE_S", "1")
    reader.writes("coding.yaml")
    pip, scheduler, install, status, uninstall = commands_in("From nothing", AGENTS)
    assert pip == [
        "python",
        "-m",
        "pip",
        "install",
        ".[serve,embedded]",
    ]  # in a clone
    await reader.starts(scheduler)
    reader.runs(*install)
    settings = reader.folder / ".claude" / "settings.json"
    hook = json.loads(settings.read_text())["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    call = {"session_id": "s", "tool_name": "Bash", "tool_input": {"command": "rm -rf /"}, "tool_use_id": "t"}
    event = json.dumps({"hook_event_name": "PreToolUse", "cwd": "/", **call})
    asked = subprocess.run(["/bin/sh", "-c", hook], input=event, text=True, capture_output=True, check=True)
    told = json.loads(asked.stdout)["hookSpecificOutput"]
    assert told["permissionDecision"] == "deny"
    assert "name what you remove" in told["permissionDecisionReason"]
    assert '"verdict": "answered"' in reader.runs(*status, "--json").stdout
    reader.runs(*uninstall)
    assert not settings.exists()
    sockets = Path(os.environ["XDG_RUNTIME_DIR"]) / "toolgate-hook"
    await wait_until(lambda: not list(sockets.glob("*.sock")), timeout=30)


async def test_the_first_plan_is_ruled_on_by_its_rules_and_denied_without_them(reader: Reader) -> None:
    reader.writes("plan.yaml", "rules.yaml")
    start, call = commands_in("The first plan", START)
    assert "policy is not alive on" in reader.runs(*call).stdout
    assert not (reader.folder / "todo.txt").exists()
    await reader.starts(start)
    assert reader.runs(*call).stdout == output_in("The first plan", START)
    assert (reader.folder / "todo.txt").read_text() == "buy tea"


def test_a_labelled_session_may_not_send_mail_as_the_page_shows(reader: Reader) -> None:
    reader.writes("labelled.py")
    (ask,) = commands_in("Labels of a session", page("write-a-scheduler"))
    assert "this session has read a page from outside" in reader.runs(*ask).stdout


def test_the_team_writes_what_its_lead_is_asked_for(reader: Reader) -> None:
    reader.writes("team.yaml")
    reader.runs("toolgate", "run", "Write it", "--plan", "team.yaml")
    assert (reader.folder / "note.txt").read_text() == "hello"


def test_rules_are_held_to_cases_as_the_page_shows(reader: Reader) -> None:
    title = "Hold rules to cases"
    reader.writes("rules.yaml", "cases.yaml", "order.yaml", "order-cases.yaml")
    reader.writes("results.yaml", "results-cases.yaml")
    ended = [reader.runs(*command).stdout for command in commands_in(title, REHEARSE)]
    assert ended == outputs_in(title, REHEARSE)


def test_recorded_runs_are_replayed_as_the_page_shows(reader: Reader) -> None:
    reader.writes("rules.yaml", "new.yaml")
    shutil.copy(ROOT / "tests" / "data" / "runs.jsonl", reader.folder / "runs.jsonl")
    (replay,) = commands_in("Replay recorded runs", REHEARSE)
    assert "Every recorded call got exactly one tool result, in order." in reader.runs(*replay).stdout


def test_rules_are_suggested_from_recorded_runs_as_the_page_shows(reader: Reader) -> None:
    shutil.copy(ROOT / "tests" / "data" / "runs.jsonl", reader.folder / "runs.jsonl")
    suggest, replay = commands_in("Rules from what ran", REHEARSE)
    reader.runs(*suggest)
    assert "mode: observe" in (reader.folder / "suggested.yaml").read_text()
    assert "Every recorded call got exactly one tool result, in order." in reader.runs(*replay).stdout


async def test_a_change_is_rehearsed_as_a_shadow_on_the_record_and_on_a_file(reader: Reader) -> None:
    reader.writes("plan.yaml", "rules.yaml", "new.yaml")
    shutil.copy(ROOT / "tests" / "data" / "runs.jsonl", reader.folder / "runs.jsonl")
    shadow, shown, record, recorded = commands_in("Compare two sets of rules", REHEARSE)
    start, call = commands_in("The first plan", START)
    await reader.starts(start)
    await reader.starts(shadow)
    reader.runs(*call)
    assert (reader.folder / "todo.txt").read_text() == "buy tea"
    for command in (shown, record):
        assert "write_file" in reader.runs(*command).stdout
    reader.runs(*recorded)


async def test_whoever_has_the_keys_of_the_page_is_believed(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.writes("keys.yaml", "my_scheduler.py", "clerk.py")
    (reader.folder / "keys.yaml").chmod(0o600)
    monkeypatch.setenv("TOOLGATE_KEYS", "keys.yaml")
    start, call = commands_in(FIRST_SCHEDULER)
    await reader.starts(start)
    assert reader.runs(*call).stdout == output_in(FIRST_SCHEDULER)
