"""A sidecar's life: it starts by itself, once, is replaced when it dies, and ends when nobody asks."""

import json
import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import toolgate_hook
from hook_world import event_after, event_of, hook_world
from toolgate_orchestrator.coding_agents.translation import CLIENTS

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(300)]

REQUIRED = ("--required", "alpha")
NOWHERE = "redis://127.0.0.1:1/0"
WAIT_S = 200


@pytest.fixture
def world(crew, short_directory):
    with hook_world(short_directory, crew.url, crew.namespace) as made:
        yield made


def test_fifty_at_once_on_a_cold_start_are_answered_by_one_sidecar(world):
    seen = set()
    done = threading.Event()

    def watch():
        while not done.is_set():
            seen.update(world.processes())
            time.sleep(0.01)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        with ThreadPoolExecutor(50) as pool:
            event = event_of("claude", {"rules": {"alpha": {"action": "deny", "reason": "no"}}})
            asked = [
                pool.submit(world.ask, "claude", event, *REQUIRED, "--timeout", "250", timeout_s=WAIT_S)
                for _ in range(50)
            ]
            answers = [one.result() for one in asked]
    finally:
        done.set()
        watching.join()
    assert {(one.code, one.err) for one in answers} == {(0, "")}
    reasons = {one.said["hookSpecificOutput"]["permissionDecisionReason"] for one in answers}
    assert reasons == {"no"}
    assert len(seen) == 1


def test_one_that_is_killed_in_the_middle_is_replaced_and_the_call_is_ruled_on(world, wait_until):
    rule = {
        "gamma": {"action": "hold", "seconds": 60, "then": {"action": "deny", "reason": "no", "after": 6}}
    }
    world.ask("claude", event_of("claude", {}), *REQUIRED, timeout_s=WAIT_S)
    (first,) = world.sidecars()
    with ThreadPoolExecutor(1) as pool:
        event = event_of("claude", {"rules": rule})
        asked = pool.submit(world.ask, "claude", event, *REQUIRED, "--timeout", "250", timeout_s=WAIT_S)
        time.sleep(1.5)  # it is held by now, or not yet asked about: both must go well
        os.kill(first, signal.SIGKILL)
        answer = asked.result()
    assert (answer.code, answer.err) == (0, "")
    assert answer.said["hookSpecificOutput"]["permissionDecisionReason"] == "no"
    (second,) = world.sidecars()
    assert second != first


async def test_it_ends_when_nobody_asks_and_nothing_runs(crew, short_directory, wait_until):
    with hook_world(short_directory, crew.url, crew.namespace, idle_s=1) as world:
        event = event_of("gemini", {"command": "ls"})
        world.ask("gemini", event, *REQUIRED, timeout_s=WAIT_S)
        assert world.processes()
        time.sleep(2)
        assert world.processes()  # the call runs, and its end will be told
        world.ask("gemini", event_after("gemini", event), *REQUIRED)
        await wait_until(lambda: not world.processes(), timeout=60)
        assert not list(short_directory.glob("toolgate-hook/*.sock"))
        assert world.ask("gemini", event, *REQUIRED, timeout_s=WAIT_S).code == 0


@pytest.mark.parametrize("client", CLIENTS)
def test_without_a_server_a_required_scheduler_denies(client, short_directory):
    with hook_world(short_directory, NOWHERE, "x") as world:
        answer = world.ask(client, event_of(client, {}), *REQUIRED, timeout_s=WAIT_S)
        assert (answer.code, answer.err) == (0, "")
        assert b'"deny"' in answer.out
        assert b"cannot be reached" in answer.out


@pytest.mark.parametrize("client", ["claude", "copilot"])
def test_without_a_server_and_nobody_required_calls_go_on_and_the_user_is_told_once_a_session(
    client, short_directory
):
    with hook_world(short_directory, NOWHERE, "x") as world:
        answers = [world.ask(client, event_of(client, {}), timeout_s=WAIT_S) for _ in range(2)]
        assert {(one.code, one.err) for one in answers} == {(0, "")}
        (log,) = short_directory.glob("toolgate-hook/*.log")
        assert log.read_text().count("tool calls run without rulings") == 1
        told, again = answers[0].said, answers[1].said
        assert again is None
        if client == "claude":
            assert set(told) == {"systemMessage"}
            assert "tool calls run without rulings" in told["systemMessage"]


def test_what_nobody_could_rule_on_is_denied_once_anybody_rules_though_nobody_is_required(world):
    deep = "rm -rf /"
    for _ in range(60):
        deep = [deep]
    answer = world.ask("claude", event_of("claude", {"command": deep}), timeout_s=WAIT_S)
    assert (answer.code, answer.err) == (0, "")
    assert "nested more than" in answer.said["hookSpecificOutput"]["permissionDecisionReason"]
    assert world.ask("claude", event_of("claude", {"command": "ls"}), timeout_s=WAIT_S).said is None


@pytest.mark.parametrize("client", CLIENTS)
def test_a_sidecar_that_cannot_start_is_a_denial_where_anybody_is_required(client, short_directory):
    config = short_directory / "toolgate.yaml"
    config.write_text("patience: 7\n")
    words = ("--config", str(config), "--timeout", "250")  # it is tried more than once
    with hook_world(short_directory, NOWHERE, "x") as world:
        answer = world.ask(client, event_of(client, {}), *REQUIRED, *words, timeout_s=WAIT_S)
        assert (answer.code, answer.err) == (0, "")
        assert b'"deny"' in answer.out
        assert b"patience" in answer.out  # why, in the words of who could not start
        free = world.ask(client, event_of(client, {}), *words, timeout_s=WAIT_S)
        assert (free.code, b'"deny"' in free.out) == (0, False)
        told = free.said["systemMessage"] if client in toolgate_hook.SHOW else free.err
        assert f"its sidecar does not start: Error: {config}: patience: unknown key" in told
        assert "tool calls run without rulings" in told
        again = world.ask(client, event_of(client, {}), *words, timeout_s=WAIT_S)
        assert (again.out.decode(), again.err) == (toolgate_hook.NEUTRAL[client], "")
        assert world.ask(client, event_after(client, event_of(client, {})), *REQUIRED, *words).out == b""


@pytest.mark.parametrize("client", CLIENTS)
def test_what_calls_cost_is_settled_by_what_the_client_tells_afterwards(
    client, server_url, namespace, short_directory, process, tmp_path, wait_until
):
    config = tmp_path / "cost.yaml"
    config.write_text("tools: {bash: {cost: 0.5}}\nbudgets: [{name: all, level: fleet, limit: 1.0}]\n")
    where = {"TOOLGATE_REDIS_URL": server_url, "TOOLGATE_NAMESPACE": namespace}
    scheduler = process("toolgate", "scheduler", "run", "cost-aware", "--config", config, "--json", env=where)
    deadline = time.monotonic() + 60
    while '"ready"' not in scheduler.stdout and time.monotonic() < deadline:
        time.sleep(0.02)
    with hook_world(short_directory, server_url, namespace) as world:
        events = [event_of(client, {"command": f"ls {number}"}, f"call-{number}") for number in range(3)]
        said = [world.ask(client, one, "--required", "cost-aware", timeout_s=WAIT_S) for one in events]
        assert [b'"deny"' in one.out for one in said] == [False, False, True]
        for one in reversed(events[:2]):
            world.ask(client, event_after(client, one), "--required", "cost-aware")
        found = None
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            told = process("toolgate", "budget", "list", "--json", env=where)
            assert told.wait() == 0, told.stderr
            (found,) = map(json.loads, told.stdout.splitlines())
            if found["reserved"] == 0:
                break
        assert (found["spent"], found["reserved"]) == (1_000_000, 0)


def test_a_configuration_says_alone_where_the_bus_is(crew, short_directory, tmp_path):
    """Variables that a project sets lead a hook to no other bus, be it by an address or by a folder."""
    config = tmp_path / "toolgate.yaml"
    config.write_text(f"redis: {crew.url}\nnamespace: {crew.namespace}\n")
    denied = event_of("claude", {"rules": {"alpha": {"action": "deny", "reason": "no"}}})
    with hook_world(short_directory, NOWHERE, "elsewhere") as world:
        answer = world.ask("claude", denied, "--config", str(config), timeout_s=WAIT_S)
    assert answer.said["hookSpecificOutput"]["permissionDecisionReason"] == "no"


def test_the_sidecar_of_a_configuration_gets_no_folder_from_the_environment(monkeypatch, tmp_path):
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, env, **_: started.append(env))
    places = {"XDG_RUNTIME_DIR": str(tmp_path), "TMPDIR": str(tmp_path), "TOOLGATE_REDIS_URL": NOWHERE}
    for name, value in {**places, "TMPFILES": "kept", "PYTHONPATH": "x"}.items():
        monkeypatch.setenv(name, value)
    for words, inherits in (([], True), (["--config", "c.yaml"], False)):
        options = toolgate_hook.HookOptions(["claude", *words])
        toolgate_hook.start_sidecar(str(tmp_path / "place"), 0, options)
        env = started.pop()
        assert (places.items() <= env.items()) is inherits
        assert (env["TMPFILES"], "PYTHONPATH" in env) == ("kept", False)
        own = {name: env[name] for name in places if name in env and not inherits}
        assert own == ({} if inherits else toolgate_hook.find_folders())
