"""A guard in a process of its own: what it loads, what it says and where, what becomes of it in a fork."""

import asyncio
import json
import secrets

import pytest
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.transport.redis.client.connection import RedisCommands

pytestmark = [pytest.mark.acceptance, pytest.mark.system]

HEAVY = (
    *("amplifier_core", "anyio", "hiredis", "jsonschema", "msgpack", "opentelemetry", "orjson"),
    *("prometheus_client", "re2", "redis", "rich", "structlog", "typer", "uvloop", "yaml"),
)
"""What takes long to load, and is for who asks a gate."""
LOADED = """
import json, sys
import toolgate_orchestrator
bare = len(sys.modules)
from toolgate_orchestrator import Call, Guard, PersonAnswer
print(json.dumps([bare, sorted(name for name in sys.modules if "." not in name), len(sys.modules)]))
"""
PYDANTIC = "import json, sys, pydantic; pydantic.BaseModel; print(json.dumps(len(sys.modules)))"

TROUBLED = """
import asyncio, gc, sys
from toolgate_orchestrator import Call, Guard
from toolgate_orchestrator.guard.gate_thread import GateThread

guard = Guard(redis=sys.argv[1], namespace=sys.argv[2], agent="troubled", cost=lambda result: 1 / 0)
away = Guard(redis="redis://127.0.0.1:1", required=["nobody"], patience_ms=50)
failing = Guard(redis=sys.argv[1], namespace=sys.argv[2], required=["nobody"])
guard.run_sync(Call("t"), lambda *_: "result", denied=str)      # its cost cannot be read
guard.rule_sync(Call("t"))                                      # nobody reports it
gc.collect()
ruling = guard.rule_sync(Call("t"))
print(away.rule_sync(Call("t")).refusal, file=sys.stderr)       # the server is away
async def broken(self):
    raise RuntimeError("a fault of ours")
GateThread.open = broken
print(failing.rule_sync(Call("t")).refusal, file=sys.stderr)
guard.close()
ruling.succeed()                                                # too late
"""
FORKED = """
import json, os, sys
from toolgate_orchestrator import Call, Guard

guard = Guard(redis=sys.argv[1], namespace=sys.argv[2], required=["alpha"], patience_ms=20_000)

def call(name):
    asked = Call("t", {}, ["t"], guard.at(name, name))
    return guard.run_sync(asked, lambda *_: name, denied=lambda ruling: ruling.refusal)

first = call("before")
ruling = guard.rule_sync(Call("t", {}, ["t"], guard.at("open", "open")))
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    said = call("child")
    ruling.succeed()  # it is the parent's to report
    guard.close()
    os.write(write, said.encode())
    os._exit(0)
_, status = os.waitpid(pid, 0)
child = os.read(read, 100).decode()
after = call("after")
ruling.succeed()
print(json.dumps([status, first, child, after]))
"""


HASTY = """
import sys
from toolgate_bus.transport.redis.asking import publisher

publisher.LATEST_S = 60.0  # by itself nothing is written before the end
from toolgate_orchestrator import Call, Guard

where = {"redis": sys.argv[1], "namespace": sys.argv[2]}
guard = Guard(**where, agent=sys.argv[3], required=["alpha"], patience_ms=20_000)
guard.run_sync(Call("t", {}, ["t"]), lambda *_: "done", denied=lambda ruling: ruling.refusal)
"""
SCRAPED = """
import sys
from toolgate_orchestrator import Call, Guard

guard = Guard(redis=sys.argv[1], namespace=sys.argv[2], required=["alpha"], patience_ms=20_000)
guard.run_sync(Call("t", {}, ["t"]), lambda *_: "done", denied=lambda ruling: ruling.refusal)
print("prometheus_client" in sys.modules)
from prometheus_client import generate_latest

while b"toolgate_decisions_total{" not in generate_latest():
    guard.run_sync(Call("t", {}, ["t"]), lambda *_: "done", denied=lambda ruling: ruling.refusal)
guard.close()
"""


async def ended(process, *words, **more):
    running = process("python", "-c", *words, **more)
    assert await asyncio.to_thread(running.wait, 60) == 0, running.stderr
    return running


async def test_naming_a_guard_loads_nothing_that_only_a_gate_needs(process):
    bare, names, modules = json.loads((await ended(process, LOADED)).stdout)
    pydantic = json.loads((await ended(process, PYDANTIC)).stdout)
    assert not set(HEAVY).intersection(names)
    assert bare < pydantic / 2
    assert modules < 2 * pydantic


async def test_whatever_goes_wrong_not_a_word_goes_to_stdout(process, crew):
    running = await ended(process, TROUBLED, crew.url, f"{crew.namespace}-troubled")
    assert running.stdout == ""
    for said in (
        "tool calls run without rulings: no scheduler is alive on",
        "the cost of a result could not be read",
        "a call ended without a report",
        "tool calls are denied: nobody must rule, and 127.0.0.1:1 cannot be reached",
        "the gate failed and could not rule on it",
        "after its guard was closed is not kept",
    ):
        assert said in running.stderr, (said, running.stderr)


async def test_a_program_with_structlog_of_its_own_has_the_lines_there(process, crew):
    configured = (
        "import structlog, sys; structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))"
    )
    running = await ended(process, configured + TROUBLED, crew.url, f"{crew.namespace}-structured")
    assert running.stdout == ""
    assert "[warning  ]" in running.stderr


async def test_a_forked_process_has_a_gate_of_its_own_and_leaves_its_parents_alone(process, crew):
    running = await ended(process, FORKED, crew.url, crew.namespace)
    assert json.loads(running.stdout) == [0, "before", "child", "after"]
    assert "another process asked about the call" in running.stderr


async def test_a_program_that_ends_at_once_has_written_what_it_reported(process, crew):
    agent = f"hasty-{secrets.token_hex(4)}"
    await ended(process, HASTY, crew.url, crew.namespace, agent)
    commands = RedisCommands(crew.url, "test-guard")
    facts = await FactsReader(commands, crew.namespace).read_all()
    await commands.aclose()
    told = [one["event"] for one in facts if one.get("agent") == agent]
    told = [event for event in told if event != "verdict"]  # of who was not waited for
    assert sorted(told) == ["decision", "tool:post", "tool:selected"]


async def test_a_program_that_loads_prometheus_later_finds_its_decisions_in_the_registry(process, crew):
    assert (await ended(process, SCRAPED, crew.url, crew.namespace)).stdout == "False\n"
