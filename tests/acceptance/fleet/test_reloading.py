"""SIGHUP: a running scheduler reads its configuration again, and no verdict is lost."""

import asyncio
import json
import re
import signal
from collections import Counter
from pathlib import Path

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate
from toolgate_schedulers.worker.loading import load

pytestmark = pytest.mark.acceptance

TOOLS = ["bash", "search"]


def events(child, kind, schedulers):
    """The lines of one kind that a `--json` process has printed."""
    text = schedulers._file(schedulers.started.index(child), "out").read_text()
    return [line for line in map(json.loads, text.splitlines()) if line["event"] == kind]


class Asking:
    """Keeps so many decisions in flight while it is entered; keeps what came of each."""

    def __init__(self, gate, in_flight):
        self.gate, self.in_flight, self.decisions, self._stop = gate, in_flight, [], False

    async def _ask(self):
        while not self._stop:
            self.decisions.append(await self.gate.decide(Call("bash", {}, TOOLS)))
            await asyncio.sleep(0)

    async def __aenter__(self):
        self._tasks = [asyncio.create_task(self._ask()) for _ in range(self.in_flight)]
        return self

    async def __aexit__(self, *_):
        self._stop = True
        await asyncio.gather(*self._tasks)


def assert_none_was_lost(decisions, marks):
    """Every one was denied by exactly one verdict, of exactly one configuration."""
    assert {(one.outcome, len(one.verdicts), one.silent) for one in decisions} == {("deny", 1, ())}
    by = Counter(one.reason for one in decisions)
    assert set(by) == {f"{mark}={mark}" for mark in marks}, by


async def test_hundreds_of_decisions_are_in_flight_over_five_reloads(schedulers, wait_until, tmp_path):
    config = tmp_path / "marked.yaml"
    config.write_text("{mark: m0, after: 0.02}")
    child = schedulers.run("marked:Marked", "--config", config)
    await schedulers.ready(child)
    async with (
        Gate.open(
            redis=schedulers.url, namespace=schedulers.namespace, patience_ms=20_000, required=["marked"]
        ) as gate,
        Asking(gate, 40) as asking,
    ):
        for number in range(1, 6):
            await wait_until(lambda number=number: len(asking.decisions) >= 100 * number)
            config.write_text(f"{{mark: m{number}, after: 0.0{number}}}")
            child.send_signal(signal.SIGHUP)
            await wait_until(
                lambda number=number: len(events(child, "reloaded", schedulers)) == number, timeout=20
            )
        assert (await gate.decide(Call("bash", {}, TOOLS))).reason == "m5=m5"
    assert_none_was_lost(asking.decisions, [f"m{number}" for number in range(6)])


WRONG = {
    "{mark: m1, kind: odd}": "kind: Input should be 'plain' or 'fancy'",
    "{mark: m1, makr: m2}": "makr: unknown key; allowed: after, kind, mark, priority, start, tools",
    "{mark: m1, after: -1}": "after: Input should be greater than or equal to 0",
    "{mark: m1, priority: 5000000000}": "priority: must be a whole number within 32 bits",
    "mark: [": "is not YAML",
    "{mark: m1, start: badly}": "could not start: OSError: no licence",
}


async def test_a_wrong_file_is_told_by_field_and_the_old_configuration_stays(
    schedulers, wait_until, tmp_path
):
    config = tmp_path / "marked.yaml"
    config.write_text("mark: m0")
    child = schedulers.run("marked:Marked", "--config", config)
    await schedulers.ready(child)

    async def refused(said):
        before = len(events(child, "not_reloaded", schedulers))
        child.send_signal(signal.SIGHUP)
        told = await wait_until(lambda: events(child, "not_reloaded", schedulers)[before:])
        assert said in told[0]["error"]
        assert (await gate.decide(Call("bash", {}, TOOLS))).reason == "m0=m0"

    async with Gate.open(redis=schedulers.url, namespace=schedulers.namespace) as gate:
        for written, said in WRONG.items():
            config.write_text(written)
            await refused(said)
        config.unlink()
        await refused("cannot be read")
        config.write_text("{mark: m1, priority: 7, tools: [bash]}")
        child.send_signal(signal.SIGHUP)
        await wait_until(lambda: events(child, "reloaded", schedulers))
        assert (await gate.decide(Call("bash", {}, TOOLS))).reason == "m1=m1"
    child.terminate()
    assert child.wait(20) == 0
    assert schedulers.said(child).count("marked was not reloaded, its old configuration stays") == 7


@pytest.mark.parametrize("written", [one for one in WRONG if "badly" not in one])
def test_what_is_wrong_at_a_reload_is_refused_in_the_same_words_before_anything_is_joined(
    tmp_path, monkeypatch, written
):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "schedulers_for_tests")
    config = tmp_path / "marked.yaml"
    config.write_text(written)
    with pytest.raises(ConfigError, match=re.escape(WRONG[written])):
        load("marked:Marked", config=config)


async def test_all_replicas_are_reloaded_and_the_roster_says_so(schedulers, wait_until, tmp_path):
    config = tmp_path / "marked.yaml"
    config.write_text("{mark: m0, after: 0.01}")
    child = schedulers.run("marked:Marked", "--config", config, "--replicas", 2)
    await schedulers.ready(child, 2)
    commands = RedisCommands(schedulers.url, "test")

    async def roster():
        members = (await Roster(commands, schedulers.namespace).read()).members
        return [(member.priority, member.tools) for member in members]

    async with (
        Gate.open(
            redis=schedulers.url, namespace=schedulers.namespace, patience_ms=20_000, required=["marked"]
        ) as gate,
        Asking(gate, 20) as asking,
    ):
        await wait_until(lambda: len(asking.decisions) >= 100)
        config.write_text("{mark: m1, kind: odd}")
        child.send_signal(signal.SIGHUP)
        (told,) = await wait_until(lambda: events(child, "not_reloaded", schedulers))
        assert "'plain' or 'fancy'" in told["error"]
        before = len(asking.decisions)  # time in which a replica would have spoken as well
        await wait_until(lambda: len(asking.decisions) >= before + 300)
        config.write_text("{mark: m2, priority: 7, tools: [bash]}")
        child.send_signal(signal.SIGHUP)
        await wait_until(lambda: len(events(child, "reloaded", schedulers)) == 2)
        assert await roster() == [(7, ("bash",))] * 2
        before = len(asking.decisions)
        await wait_until(lambda: len(asking.decisions) >= before + 100)
    assert_none_was_lost(asking.decisions, ["m0", "m2"])
    assert len(events(child, "ready", schedulers)) == 2
    assert len(events(child, "not_reloaded", schedulers)) == 1  # told once, passed on to none
    await commands.aclose()


async def test_without_a_file_there_is_nothing_to_read_again_and_it_rules_on(schedulers, wait_until):
    child = schedulers.run("obedient:alpha")
    await schedulers.ready(child)
    child.send_signal(signal.SIGHUP)
    await wait_until(lambda: "started without --config" in schedulers.said(child))
    async with Gate.open(redis=schedulers.url, namespace=schedulers.namespace) as gate:
        rules = {"alpha": {"action": "deny", "reason": "still here"}}
        assert (await gate.decide(Call("bash", {"rules": rules}, TOOLS))).reason == "still here"


IN_A_TERMINAL = """
import os, pty, signal, sys
pid, terminal = pty.fork()
if pid == 0:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever the tests themselves were started by
    os.execv(sys.executable, [sys.executable, "-m", "toolgate_bus", "scheduler", "run", *sys.argv[1:]])
said = b""
while b"rules" not in said:
    said += os.read(terminal, 1024)
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


async def test_one_whose_terminal_was_closed_finishes_since_nobody_sees_it_any_longer(
    process, server_url, namespace, tmp_path
):
    (tmp_path / "policy.yaml").write_text("default: allow")
    where = ("--config", "policy.yaml", "--redis", server_url, "--namespace", namespace)
    running = process("python", "-c", IN_A_TERMINAL, "policy", *where, cwd=tmp_path)
    assert running.wait(30) == 0, running.stderr
    assert running.stdout.strip() == "0"
