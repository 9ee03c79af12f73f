"""Coding agents ask by their hooks: processes, a sidecar that comes and goes, schedulers on a real bus."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jsonschema
import pytest
import toolgate_hook
from client_schemas import SCHEMAS, SILENT, UNTOLD_SCHEMAS
from hook_fixtures import FILES, load, name
from hook_world import FILE, event_after, event_of, hook_world
from toolgate_orchestrator.coding_agents.translation import CLIENTS, read_event

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

REQUIRED = ("--required", "alpha")
RULES = {
    "deny": {"action": "deny", "reason": "secrets stay here"},
    "modify": {"action": "modify", "tool": "bash", "arguments": {"command": "echo", "rules": {}}},
    "other": {"action": "modify", "tool": "quick_search", "arguments": {}, "reason": "faster"},
    "ask": {"action": "ask_user", "prompt": "May it?"},
}
UNREADABLE = {
    "broken": b'{"hook_event_name": "PreToolUse", ',
    "empty": b"",
    "a list": b"[1]",
    "deep": b'{"tool_input":' * 50_000 + b"1" + b"}" * 50_000,
    "of other types": b'{"hook_event_name": "PreToolUse", "tool_name": 7, "toolName": [], "session_id": {}}',
    "without fields": b'{"hook_event_name": "preToolUse"}',
}


@pytest.fixture(scope="module")
def world(crew, tmp_path_factory):
    """One sidecar for all tests here; it rules by the crew."""
    with (
        tempfile.TemporaryDirectory(prefix="tg-") as runtime,
        hook_world(Path(runtime), crew.url, crew.namespace) as made,
    ):
        yield made


def call(client, rule=None, **more):
    arguments = {"command": "ls", **({"rules": {"alpha": RULES[rule]}} if rule else {}), **more}
    return event_of(client, arguments)


def check(client, answer):
    """That a client can read it; gives it."""
    assert answer.code == 0
    assert answer.err == ""
    if answer.said is None:
        assert client in SILENT
    else:
        jsonschema.validate(answer.said, SCHEMAS[client])
    return answer.said


@pytest.mark.parametrize("client", CLIENTS)
def test_each_ruling_reaches_the_client_in_its_form(client, world):
    assert check(client, world.ask(client, call(client), *REQUIRED)) in (None, {"permission": "allow"})
    for rule in RULES:
        answer = world.ask(client, call(client, rule), *REQUIRED)
        said = check(client, answer)
        can_ask = client in ("claude", "copilot")
        text = answer.out.decode()
        if rule == "modify":
            assert '"echo"' in text
            assert '"deny"' not in text
        elif rule == "ask" and can_ask:
            assert '"ask"' in text
        else:
            assert '"deny"' in text, said
            wanted = {"deny": "secrets stay here", "other": "quick_search", "ask": "May it?"}
            assert wanted[rule] in text


@pytest.mark.parametrize("path", [path for path in FILES if "fault" in load(path)["answers"]], ids=name)
def test_every_event_of_every_client_is_answered(path, world):
    client, event = path.parent.name, load(path)["event"]
    answer = world.ask(client, event, *REQUIRED)
    assert (answer.code, answer.err) == (0, "")
    kind = read_event(client, json.dumps(event).encode()).kind
    assert answer.said == ({"permission": "allow"} if client == "cursor" and kind == "before" else None)


@pytest.mark.parametrize("client", CLIENTS)
def test_what_cannot_be_read_is_denied_and_stdout_is_clean(client, world):
    for body in UNREADABLE.values():
        answer = world.ask(client, body, *REQUIRED)
        assert (answer.code, answer.err) == (0, "")
        taken = {"anyOf": [SCHEMAS[client], UNTOLD_SCHEMAS[client]]}
        jsonschema.validate(answer.said, taken)
        assert "so it was not run" in answer.out.decode()


@pytest.mark.parametrize("client", CLIENTS)
def test_ten_megabytes_are_ruled_on_like_any_other_call(client, world):
    long = "x" * 10_000_000
    assert check(client, world.ask(client, call(client, text=long), *REQUIRED)) in (
        None,
        {"permission": "allow"},
    )
    assert b"secrets stay here" in world.ask(client, call(client, "deny", text=long), *REQUIRED).out
    assert world.ask(client, {**event_after(client, call(client)), "tool_output": long}, *REQUIRED).out == b""


def test_an_event_of_nobodys_is_let_be(world):
    for event in ("SessionStart", "Stop", "UserPromptSubmit", "PermissionRequest"):
        answer = world.ask("claude", {"hook_event_name": event, "session_id": "s"}, *REQUIRED)
        assert (answer.code, answer.out, answer.err) == (0, b"", "")


def test_who_holds_a_call_for_longer_than_the_client_waits_has_it_denied_in_time(world):
    rule = {"gamma": {"action": "hold", "seconds": 60, "then": {"action": "continue", "after": 50}}}
    answer = world.ask("claude", event_of("claude", {"rules": rule}), *REQUIRED, "--timeout", "10")
    assert "gamma" in answer.said["hookSpecificOutput"]["permissionDecisionReason"]
    assert check("claude", answer)


def test_a_required_scheduler_that_is_slow_denies_and_another_is_not_waited_for(world):
    rule = {"alpha": {"action": "continue", "after": 3}}
    answer = world.ask("codex", event_of("codex", {"rules": rule}), *REQUIRED)
    assert "alpha" in check("codex", answer)["hookSpecificOutput"]["permissionDecisionReason"]


def test_one_sidecar_answers_for_all_and_only_its_user_can_ask(world):
    world.ask("claude", call("claude"), *REQUIRED)
    assert len(world.sidecars()) == 1
    folder = world.runtime / "toolgate-hook"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def agents(world, process, wanted):
    """The rows of those sessions, which are told half a second late."""
    rows, ends = {}, time.monotonic() + 10
    while not wanted <= rows.keys() and time.monotonic() < ends:
        told = process("toolgate", "agents", "--json", env=world.env)
        assert told.wait() == 0, told.stderr
        rows = {row["session"]: row for row in map(json.loads, told.stdout.splitlines())}
    return {name: (rows[name]["agent"], rows[name]["parent"], rows[name]["lineage"]) for name in wanted}


def test_a_sub_agent_is_shown_below_its_conversation(world, process):
    event = event_of("claude", {"command": "ls"}, session="talk")
    world.ask("claude", event, *REQUIRED)
    world.ask("claude", {**event, "agent_id": "a1", "agent_type": "Explore"}, *REQUIRED, "--agent", "claude")
    assert agents(world, process, {"talk", "talk/a1"}) == {
        "talk": ("claude", None, []),
        "talk/a1": ("Explore", "talk", ["claude", "Explore"]),
    }


def test_a_sub_agent_with_a_session_of_its_own_is_below_whoever_started_it(world, process):
    for session, above in (("own", None), ("a1", "own"), ("a2", "a1")):
        event = event_of("copilot", {"command": "ls"}, session=session)
        below = {"agentId": session, "agentType": f"type-{session}", "parentAgentId": above} if above else {}
        world.ask("copilot", {**event, **below}, *REQUIRED)
    assert agents(world, process, {"own", "own/a1", "own/a2"}) == {
        "own": ("copilot", None, []),
        "own/a1": ("type-a1", "own", ["copilot", "type-a1"]),
        "own/a2": ("type-a2", "own/a1", ["copilot", "type-a1", "type-a2"]),
    }


def test_an_operator_stops_an_agent_until_somebody_lifts_that(world, process):
    event = event_of("claude", {"command": "ls"}, session="endless")
    assert world.ask("claude", event, *REQUIRED).out == b""
    told = process("toolgate", "agents", "stop", "endless", "--wait", "5", env=world.env)
    assert told.wait() == 1, told.stderr  # its turn ends with its next call
    assert "still running endless" in told.stderr
    for _ in range(2):
        answer = world.ask("claude", event, *REQUIRED)
        assert "operator stopped" in answer.said["hookSpecificOutput"]["permissionDecisionReason"]
    below = world.ask("claude", {**event, "agent_id": "a1", "agent_type": "Explore"}, *REQUIRED)
    assert "operator stopped" in below.said["hookSpecificOutput"]["permissionDecisionReason"]
    assert process("toolgate", "agents", "resume", "endless", env=world.env).wait() == 0
    assert world.ask("claude", event, *REQUIRED).out == b""


WRONG = ("", "emacs", "claude --reqired x", "claude codex", "claude --timeout 0")


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_call_blocks_and_says_how_it_goes(words):
    command = [sys.executable, "-I", "-S", str(FILE), *words.split()]
    done = subprocess.run(command, input=b"{}", capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert "usage: toolgate-hook" in done.stderr.decode()


def test_the_process_loads_nothing_that_takes_long():
    code = (
        "import sys, runpy; sys.argv = ['x']\n"
        f"sys.path.insert(0, {str(FILE.parent)!r})\n"
        "import toolgate_hook\n"
        "slow = {'json', 'socket', 'subprocess', 'pathlib', 'typing', 're', 'toolgate_bus'}\n"
        "print(sorted(slow & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_client_that_never_ends_its_event_is_answered_before_it_gives_up(world):
    child = world.start("claude", *REQUIRED, "--timeout", "2")
    try:
        child.stdin.write(b'{"hook_event_name": "PreToolUse"')
        child.stdin.flush()
        said = json.loads(child.stdout.readline())
        assert child.wait(30) == 0
        assert "did not come whole" in said["hookSpecificOutput"]["permissionDecisionReason"]
    finally:
        child.kill()
        child.communicate()


def test_the_place_of_a_sidecar_is_another_for_another_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    file = tmp_path / "toolgate.yaml"
    file.write_text("patience_ms: 100\n")

    def place(*words):
        return toolgate_hook.find_place(toolgate_hook.HookOptions(["claude", *words]))

    places = [place(), place("--required", "a"), place("--required", "b"), place("--config", str(file))]
    assert place() == places[0]
    file.write_text("patience_ms: 1000\n")
    places.append(place("--config", str(file)))
    assert len(set(places)) == 5
    with pytest.raises(toolgate_hook.HookFault, match="cannot be read"):
        place("--config", str(tmp_path / "none"))


def test_a_folder_that_others_can_enter_is_not_used(world, short_directory):
    runtime = short_directory
    (runtime / "toolgate-hook").mkdir(parents=True)
    (runtime / "toolgate-hook").chmod(0o755)
    with hook_world(runtime, world.env["TOOLGATE_REDIS_URL"], "x") as made:
        answer = made.ask("gemini", call("gemini"), *REQUIRED)
        assert "closed to others" in check("gemini", answer)["reason"]
        free = made.ask("gemini", call("gemini"))
        assert (free.code, free.err) == (0, "")
        assert "nobody is required" in free.said["systemMessage"]
