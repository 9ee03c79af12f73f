"""Configurations on the bus and rollouts, with real commands, replicas and decisions."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest
from questions import decide
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.state.changes import read_changes
from toolgate_bus.state.notifications import RedisNotices
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180), pytest.mark.system]

TOOLS = ["bash", "search"]
SCHEDULERS = Path(__file__).parents[1] / "schedulers_for_tests"
ALLOW = "default: allow\n"
DENY = "rules: [{name: none, tools: '*', action: deny, reason: by the new}]\n"


class Desk:
    """Runs `toolgate scheduler …` as an operator would."""

    def __init__(self, url, namespace, directory):
        self.url, self.namespace, self.directory = url, namespace, directory

    async def run(self, *words, code=0, **env):
        where = ("--redis", self.url, "--namespace", self.namespace) if words[0] != "check" else ()
        command = [sys.executable, "-m", "toolgate_bus", "scheduler", *map(str, words), *where, "--json"]
        ended = await asyncio.to_thread(
            subprocess.run,
            command,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | env,
        )
        assert ended.returncode == code, ended.stdout + ended.stderr
        return [json.loads(line) for line in ended.stdout.splitlines()] or ended.stderr

    def file(self, text, name="c.yaml"):
        path = self.directory / name
        path.write_text(text)
        return path

    async def push(self, text, label, *more):
        (said,) = await self.run("push", "policy", "--config", self.file(text), "--label", label, *more)
        return said["revision"]

    async def status(self):
        return (await self.run("status", "policy"))[0]


@pytest.fixture
def desk(server_url, namespace, tmp_path):
    return Desk(server_url, namespace, tmp_path)


@pytest.fixture
async def gate(server_url, namespace):
    async with Gate.open(
        redis=server_url, namespace=namespace, patience_ms=20_000, required=["policy"]
    ) as made:
        yield made


async def start(schedulers, desk, replicas=2):
    """Processes of their own, each with the file that allows."""
    file = desk.file(ALLOW, "own.yaml")
    children = [schedulers.run("policy", "--config", file) for _ in range(replicas)]
    for child in children:
        await schedulers.ready(child)
    return children


async def ask(gate, session="s", **more):
    return await decide(gate, "bash", {}, TOOLS, session=session, **more)


async def until_all(gate, outcome, calls=30):
    """Wait until this many calls in a row have this outcome."""
    row = 0
    while row < calls:
        row = row + 1 if (await ask(gate)).outcome == outcome else 0


async def until_status(desk, wanted, seconds=20):
    until = time.monotonic() + seconds
    while not wanted(told := await desk.status()):
        assert time.monotonic() < until, told
    return told


async def test_what_is_pushed_and_undone_is_in_force_everywhere_and_no_verdict_is_lost(
    schedulers, desk, gate
):
    await start(schedulers, desk)
    decisions, stop = [], asyncio.Event()

    async def keep_asking():
        while not stop.is_set():
            decisions.append(await ask(gate))

    asking = [asyncio.create_task(keep_asking()) for _ in range(8)]
    revision = await desk.push(DENY, "v7")
    await until_all(gate, "deny")
    assert (await ask(gate)).verdicts[0].revision in (revision, f"{revision} local")
    await schedulers.ready(late := schedulers.run("policy", "--config", desk.file(ALLOW, "own.yaml")))
    late.send_signal(signal.SIGHUP)  # its own file is right, and does not win
    await until_all(gate, "deny")
    told = await until_status(desk, lambda told: len(told["replicas"]) == 3)
    await until_status(desk, lambda told: [one["revision"] for one in told["replicas"]] == [revision] * 3)
    await desk.run("undo", "policy")
    await until_all(gate, "continue")
    stop.set()
    await asyncio.gather(*asking)
    assert told["in_force"] == revision
    assert {(one.silent, len(one.verdicts)) for one in decisions} == {((), 1)}
    commands = RedisCommands(desk.url, "test")
    changes = await read_changes(RedisNotices(commands, commands, desk.namespace), wait_s=0)
    assert [(one.change.event, one.change.revision) for one in changes] == [
        ("config:pushed", revision),
        ("config:undone", "file"),
    ]
    await commands.aclose()


async def test_a_tenth_of_a_thousand_sessions_has_the_new_one_in_every_replica_and_after_a_restart(
    schedulers, desk, gate
):
    children = await start(schedulers, desk)
    revision = await desk.push(DENY, "v7", "--stage")
    await desk.run("rollout", "policy", "--to", "v7", "--share", 10, "--step", 0)
    await until_status(desk, lambda told: [one.get("trial") for one in told["replicas"]] == [revision] * 2)
    seen = defaultdict(set)

    async def each(rounds):
        for start_at in range(0, 1000, 50):
            sessions = [f"session-{number}" for number in range(start_at, start_at + 50)] * rounds
            for one, decision in zip(
                sessions, await asyncio.gather(*(ask(gate, one) for one in sessions)), strict=True
            ):
                assert decision.silent == ()
                seen[one].add(decision.verdicts[0].revision)

    await each(4)
    children[0].kill()
    children[0].wait()
    await start(schedulers, desk, 1)
    await each(4)
    assert {len(revisions) for revisions in seen.values()} == {1}
    new = sum(revisions == {revision} for revisions in seen.values())
    assert 65 <= new <= 135, new  # chance: 100, give or take 9.5; beyond this once in 5,000 runs
    child = next(one for one, revisions in seen.items() if revisions == {revision})
    assert (await ask(gate, "a-child", root_session=child)).outcome == "deny"
    await desk.run("rollout", "policy", "--cancel")
    await until_all(gate, "continue")
    assert (await until_status(desk, lambda told: "rollout" not in told))["last_rollout"]["ending"] == (
        "cancelled"
    )


async def test_a_bad_revision_undoes_itself_while_no_command_runs(schedulers, desk, gate):
    await start(schedulers, desk)
    await desk.push(DENY, "bad", "--stage")
    condition = ("--undo-if", "veto_rate > 50%", "--min-sample", 20)
    await desk.run("rollout", "policy", "--to", "bad", "--share", 50, "--step", "1h", *condition)
    decisions, until = [], time.monotonic() + 30
    while True:
        decisions += await asyncio.gather(*(ask(gate, f"s-{number}") for number in range(40)))
        assert time.monotonic() < until
        if any(one.outcome == "deny" for one in decisions) and all(
            one.outcome == "continue" for one in decisions[-40:]
        ):
            break
    assert {one.silent for one in decisions} == {()}
    told = await until_status(desk, lambda told: "last_rollout" in told)
    assert told["last_rollout"]["ending"] == "undone"
    assert "veto_rate" in told["last_rollout"]["why"]


async def test_a_shadow_rules_nothing_and_its_disagreements_undo_it(schedulers, desk, gate):
    await start(schedulers, desk)
    await desk.push(DENY, "bad", "--stage")
    condition = ("--undo-if", "disagreement > 5%", "--min-sample", 10)
    await desk.run("rollout", "policy", "--to", "bad", "--shadow", "1h", *condition)
    until = time.monotonic() + 30
    while "last_rollout" not in (told := await desk.status()):
        assert {one.outcome for one in await asyncio.gather(*(ask(gate) for _ in range(20)))} == {"continue"}
        assert time.monotonic() < until, told
    assert "disagreement" in told["last_rollout"]["why"]


async def test_a_good_revision_passes_its_stages_and_rules_on_all(schedulers, desk, gate):
    await start(schedulers, desk)
    revision = await desk.push(DENY, "v7", "--stage")
    await desk.run("rollout", "policy", "--to", "v7", "--shadow", 1, "--share", 50, "--step", 1)
    await until_all(gate, "deny")
    assert (await until_status(desk, lambda told: "rollout" not in told))["in_force"] == revision
    await desk.run("undo", "policy")
    await until_all(gate, "continue")


async def test_what_cannot_start_is_refused_and_the_next_that_can_is_rolled_out_all_the_same(
    server_url, namespace, schedulers, desk
):
    await schedulers.ready(schedulers.run("moody:Moody"))

    async def push(mood, *more):
        file = desk.file(f"mood: {mood}\n")
        env = {"PYTHONPATH": os.pathsep.join([str(SCHEDULERS), os.environ.get("PYTHONPATH", "")])}
        words = ("push", "moody", "--spec", "moody:Moody", "--config", file, "--label", mood, *more)
        await desk.run(*words, **env)

    async def status(wanted):
        until = time.monotonic() + 20
        while not wanted(told := (await desk.run("status", "moody"))[0]):
            assert time.monotonic() < until, told
        return told

    await push("ill")
    told = await status(lambda told: told["replicas"][0].get("refused"))
    assert "too ill to rule" in told["replicas"][0]["refused"]
    await push("strict", "--stage")
    await desk.run("rollout", "moody", "--to", "strict", "--share", 50, "--step", 1)
    assert (await status(lambda told: "last_rollout" in told))["last_rollout"]["ending"] == "done"
    async with Gate.open(redis=server_url, namespace=namespace, required=["moody"]) as gate:
        await until_all(gate, "deny")
        await push("ill", "--stage")
        await desk.run("rollout", "moody", "--to", "ill", "--share", 50, "--step", 1)
        told = await status(lambda told: told.get("last_rollout", {}).get("ending") == "undone")
        assert "too ill to rule" in told["last_rollout"]["why"]
        await until_all(gate, "deny")


HOSTILE = [b"", b"\xc1", b"\x80", b"x" * 600_000, b"\x81\xa4body\xc4\x01\xc1"]


async def test_whatever_stands_in_the_store_the_configuration_in_force_goes_on(schedulers, desk, gate):
    (child, _) = await start(schedulers, desk)
    await desk.push(DENY, "v7")
    await until_all(gate, "deny")
    commands = RedisCommands(desk.url, "test")
    key = Keys(desk.namespace).store_key("config:policy:record")
    good = await commands.execute("GET", key)
    for raw in HOSTILE:
        await commands.execute("SET", key, raw)
        said = await desk.run("status", "policy", code=2)
        assert "cannot be read" in str(said)
        assert (await ask(gate)).outcome == "deny"
    await commands.execute("SET", key, good)
    await desk.run("undo", "policy")
    await until_all(gate, "continue")
    assert child.poll() is None
    await commands.aclose()


async def test_with_keys_one_that_no_operator_signed_is_refused(server_url, namespace, schedulers, desk):
    keys = desk.file(f"policy: {'ab' * 32}\n", "keys.yaml")
    keys.chmod(0o600)
    own = desk.file(ALLOW, "own.yaml")
    await schedulers.ready(schedulers.run("policy", "--config", own, "--keys", keys))
    gate = Gate.open(
        redis=server_url, namespace=namespace, patience_ms=20_000, required=["policy"], keys=keys
    )
    async with gate as gate:
        await desk.push(DENY, "forged")
        said = await desk.run("status", "policy", "--keys", keys, code=2)
        assert "not signed" in said
        assert (await ask(gate)).outcome == "continue"
        await desk.run("push", "policy", "--config", desk.file(DENY), code=2, TOOLGATE_KEYS=str(keys))


async def test_a_wrong_one_is_refused_by_field_before_it_is_stored(desk):
    wrong = desk.file("rules: [{tools: bash, action: perhaps}]\n")
    said = await desk.run("check", "policy", "--config", wrong, code=2)
    assert said[0]["ok"] is False
    assert "rules.0.action" in said[0]["errors"][0]
    assert (await desk.run("check", "policy", "--config", desk.file(ALLOW)))[0]["ok"] is True
