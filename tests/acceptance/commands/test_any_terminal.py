"""Commands say what they have to say to any terminal and pipe, whoever runs them."""

import asyncio
import json
import os
from contextlib import aclosing

import pytest
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call, Caller, Gate

pytestmark = [pytest.mark.system, pytest.mark.acceptance, pytest.mark.timeout(120)]

AGENT = "é → 漢 😀"
NAMELESS = """
import pwd

def find(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")

pwd.getpwuid = find
from toolgate_bus.commands.main import main
main()
"""
"""The command, on a system that has no name for its user."""
LINES = {
    "decisions": "\\u6f22",
    "decisions --json": "",
    "decisions show {id}": "",
    "agents": "",
    "agents resume": "\\u6f22",
    "agents resume --json": "",
    "agents stop --help": "",
    "scheduler list": "",
    "budget list": "",
    "approvals list": "",
    "no-such-command": "",
    "agents stop é": "",
}


@pytest.fixture
async def decided(server_url, namespace):
    """A decision in the record, of an agent with a name that not every terminal can show."""
    commands = RedisCommands(server_url, "test-any-terminal")
    await FactsReader(commands, namespace, "console").join()  # somebody reads: it is recorded
    async with aclosing(commands), Gate.open(redis=server_url, namespace=namespace) as gate:
        decision = await gate.decide(Call("bash", {"text": AGENT}, ["bash"], Caller(AGENT, AGENT)))
        assert await gate.flush(10)
        yield decision.id


@pytest.mark.parametrize("encoding", ["latin-1", "ascii:strict"])
async def test_no_command_ends_in_a_traceback_where_the_output_cannot_hold_a_letter(
    process, server_url, namespace, decided, encoding
):
    env = {"TOOLGATE_REDIS_URL": server_url, "TOOLGATE_NAMESPACE": namespace, "COLUMNS": "200"}
    stopped = process("python", "-m", "toolgate_bus", "agents", "stop", AGENT, "--exact", env=env)
    assert await asyncio.to_thread(stopped.wait, 60) == 0
    env["PYTHONIOENCODING"] = encoding
    for line, shown in LINES.items():
        running = process("python", "-m", "toolgate_bus", *line.format(id=decided[:8]).split(), env=env)
        code = await asyncio.to_thread(running.wait, 60)
        out = running.stdout
        assert (code in (0, 2), "Traceback" in running.stderr) == (True, False), (line, running.stderr)
        if encoding.startswith("ascii"):
            assert shown in out
        if "--json" in line:
            assert "漢 😀" in json.dumps([json.loads(one) for one in out.splitlines()], ensure_ascii=False)


async def test_a_user_id_without_a_name_stops_pauses_and_resumes(process, server_url, namespace):
    env = {
        "TOOLGATE_REDIS_URL": server_url,
        "TOOLGATE_NAMESPACE": namespace,
        "HOME": "/nonexistent",
        "COLUMNS": "200",
    }
    env |= dict.fromkeys(("LOGNAME", "USER", "LNAME", "USERNAME"), "")

    async def run(*words):
        running = process("python", "-c", NAMELESS, *words, env=env)
        code = await asyncio.to_thread(running.wait, 60)
        assert code == 0, running.stderr
        return running.stdout

    await run("agents", "stop", "s", "--exact")
    await run("agents", "pause", "--all")
    orders = [json.loads(one) for one in (await run("agents", "resume", "--json")).splitlines()]
    assert {one["by"] for one in orders} == {f"uid-{os.getuid()}"}
    await run("agents", "resume", *[one["id"] for one in orders])
