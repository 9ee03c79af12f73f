"""The scheduler in plain JavaScript speaks the wire as ours do: golden vectors, and real decisions.

Needs node and the two packages that `npm install` puts beside it. Where they are missing the tests are
skipped, unless TOOLGATE_NODE=required (as CI sets it): then they fail.
"""

import asyncio
import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest
import redis.asyncio as redis
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.redis.answering.consumer_group import CLAIM_IDLE_MS
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "schedulers" / "examples" / "javascript"
VECTORS = ROOT / "tests" / "vectors" / "wire.json"
NAME = "my-rules-js"
TOOLS = ["web_search", "advanced_search", "send_mail", "refund", "bash"]
POLICY = "rules: [{name: no deep search, tools: advanced_search, when: {q: secret}, action: deny}]"
REQUIRED = os.environ.get("TOOLGATE_NODE") == "required"


def missing():
    """What the example needs and is not there."""
    if shutil.which("node") is None:
        return "node is not installed"
    if not all((EXAMPLE / "node_modules" / name).is_dir() for name in ("redis", "@msgpack/msgpack")):
        return "its packages are not installed: npm install in schedulers/examples/javascript"
    return ""


pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.system,
    pytest.mark.skipif(bool(missing()) and not REQUIRED, reason=missing() or "all is there"),
]


@pytest.fixture
def start(process, server_url, namespace, wait_until):
    """`await start()`: the example on the shared server, once it is ready."""

    async def started(*options, url=server_url):
        assert not missing(), missing()
        where = ("--redis", url, "--namespace", namespace)
        running = process("node", EXAMPLE / "scheduler.mjs", "--json", *where, *options)
        await wait_until(lambda: running.stdout or not running.alive, timeout=30)
        assert json.loads(running.stdout)["pid"] == running.pid, running.stderr
        return running

    return started


@pytest.fixture
def gate(server_url, namespace):
    """A gate in the test's namespace."""
    return lambda **config: Gate.open(
        redis=server_url, namespace=namespace, **{"patience_ms": 30_000, **config}
    )


@pytest.fixture
async def roster(server_url, namespace):
    commands = RedisCommands(server_url, "test")

    async def alive():
        return (await Roster(commands, namespace).read()).members

    yield alive
    await commands.aclose()


def test_it_reads_and_writes_the_golden_vectors(process):
    assert not missing(), missing()
    checked = process("node", EXAMPLE / "check-vectors.mjs", VECTORS)
    assert checked.wait() == 0, checked.stderr
    done, _, total = checked.stdout.split()[:3]
    assert done == total
    assert int(total) > 60


def test_its_check_goes_red_for_a_vector_that_it_does_not_agree_with(process, tmp_path):
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))
    for vector in (vectors["verdicts"][2], vectors["questions"][1], vectors["frames"][1]):
        vector["fields" if "fields" in vector else "items"] = {} if "fields" in vector else []
    vectors["signatures"][0]["key"] = "00" * 32
    broken = tmp_path / "wire.json"
    broken.write_text(json.dumps(vectors))
    checked = process("node", EXAMPLE / "check-vectors.mjs", broken)
    assert checked.wait() == 1
    assert {line.partition(":")[0] for line in checked.stderr.splitlines()} == {
        "verdict",
        "frame",
        "signature",
        "signature of a withdrawal",
    }


async def test_it_rules_beside_a_python_scheduler(start, schedulers, server_url, namespace, tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    await start()
    await schedulers.start("policy", "--config", tmp_path / "policy.yaml")
    async with Gate.open(redis=server_url, namespace=namespace, patience_ms=30_000) as gate:
        denied = await gate.decide(Call("send_mail", {"to": "a@else.org"}, TOOLS))
        assert (denied.outcome, denied.scheduler, denied.reason) == ("deny", NAME, "mail stays in the house")
        sent = await gate.decide(Call("send_mail", {"to": "a@example.com"}, TOOLS))
        assert (sent.outcome, sorted(one.scheduler for one in sent.verdicts)) == (
            "continue",
            [NAME, "policy"],
        )
        arguments = {"q": "x", "n": 2**63, "deep": [1, 2.5, None, {"ü": "✗"}], "amount": 5_000_000_000}
        changed = await gate.decide(Call("web_search", arguments, TOOLS))
        assert (changed.outcome, changed.scheduler, changed.tool_name) == ("modify", NAME, "advanced_search")
        assert changed.tool_input == arguments
        assert [type(value) for value in changed.tool_input.values()] == [str, int, list, int]
        vetoed = await gate.decide(Call("web_search", {"q": "secret"}, TOOLS))
        assert (vetoed.outcome, vetoed.scheduler) == ("deny", "policy")
        unasked = await gate.decide(Call("bash", {}, TOOLS))
        assert [one.scheduler for one in unasked.verdicts] == ["policy"]


async def test_it_holds_and_answers_when_it_knows(start, gate):
    await start()
    async with gate(patience_ms=500) as asking:
        small, large = await asyncio.gather(
            asking.decide(Call("refund", {"amount": 20}, TOOLS)),
            asking.decide(Call("refund", {"amount": 500}, TOOLS)),
        )
    assert (small.outcome, large.outcome, large.reason) == ("continue", "deny", "more than 100 is for people")
    assert {one.verdict.action for one in small.verdicts} == {"hold", "continue"}
    assert small.seconds > 0.5


async def test_two_replicas_share_hundreds_of_questions_and_none_is_lost(start, gate, roster):
    children = [await start() for _ in range(2)]
    async with gate(required=[NAME]) as asking:

        async def decide(number):
            to = "a@else.org" if number % 2 else "a@example.com"
            return await asking.decide(Call("send_mail", {"to": to}, TOOLS))

        decisions = await asyncio.gather(*map(decide, range(400)))
        assert Counter(one.outcome for one in decisions) == {"deny": 200, "continue": 200}
        assert [one.silent for one in decisions if one.silent] == []
        # At least one verdict each: what a replica that stands still has begun, the other decides as well.
        assert all({heard.scheduler for heard in one.verdicts} == {NAME} for one in decisions)
        assert {member.pid for member in await roster()} == {child.pid for child in children}


async def test_what_a_killed_replica_left_is_taken_over(start, gate, server_url, wait_until):
    first, second = [await start() for _ in range(2)]
    async with redis.from_url(server_url) as server, gate(required=[NAME], patience_ms=30_000) as asking:

        async def reading():
            clients = await server.client_list()
            return sum("b" in one["flags"] and one["cmd"] == "xreadgroup" for one in clients) >= 2

        await wait_until(reading)
        first.signal(signal.SIGSTOP)  # its read is under way: what it is given, it never decides
        waiting = []
        for number in range(20):
            arguments = {"to": "a@else.org", "n": number}
            waiting.append(asyncio.create_task(asking.decide(Call("send_mail", arguments, TOOLS))))
            await asyncio.sleep(0.002)  # an entry for each: what is asked in one tick travels as one
        decisions = await asyncio.gather(*waiting)
        first.signal(signal.SIGKILL)
    assert {(one.outcome, one.silent) for one in decisions} == {("deny", ())}
    assert max(one.seconds for one in decisions) > CLAIM_IDLE_MS / 1000
    assert second.alive


async def test_it_signs_and_takes_only_what_is_signed(start, gate, tmp_path):
    keys, others = tmp_path / "keys.yaml", tmp_path / "others.yaml"
    keys.write_text(f"other: {'cd' * 32}\n{NAME}: {'ab' * 32}  # ours\n")
    others.write_text(f"{NAME}: {'ef' * 32}\n")
    await start("--keys", keys)
    async with gate(keys=str(keys)) as asking:
        denied = await asking.decide(Call("send_mail", {"to": "a@else.org"}, TOOLS))
        assert (denied.outcome, denied.scheduler) == ("deny", NAME)
    async with gate(keys=str(others), patience_ms=500, required=[NAME]) as asking:
        forged = await asking.decide(Call("send_mail", {"to": "a@example.com"}, TOOLS))
        assert (forged.outcome, forged.why) == ("deny", "silent")


async def test_it_leaves_at_once_and_well(start, roster):
    running = await start()
    assert [(member.name, member.priority, member.tools) for member in await roster()] == [
        (NAME, 10, ("web_*", "send_mail", "refund"))
    ]
    running.signal(signal.SIGTERM)
    assert running.wait() == 0
    assert await roster() == ()


async def test_whatever_comes_into_its_inbox_is_acknowledged_and_stops_nothing(
    start, gate, server_url, namespace, wait_until
):
    running = await start()
    keys, client = Keys(namespace), redis.from_url(server_url)
    question = packing.item(
        bytes(16), 0, packing.pack({"phase": "select", "tool_name": "web_search", "later": 1})
    )
    withdrawn = packing.item(bytes(16), 0, packing.pack({"phase": "select"}))
    entries = [
        {"event": "tool:selecting", "frame": b"\xc1"},
        {"event": "tool:selecting", "orch": "o1"},
        {"event": "tool:selecting", "orch": "../x", "frame": packing.frame([question])},
        {"event": "tool:selecting", "orch": "o1", "frame": b""},
        {"event": "tool:selecting", "orch": "o1", "frame": packing.frame([b"\x90", question])},
        {"event": "tool:withdrawn", "orch": "o1", "frame": packing.frame([withdrawn])},
        {"event": "tool:withdrawn", "orch": "o1", "frame": b"\x91\x91\x91"},
        {"orch": "o1", "frame": b"\x90"},
        {"x": b"\xff"},
    ]
    async with gate() as asking:
        for fields in entries:
            await client.xadd(keys.inbox(NAME), fields)
        denied = await asking.decide(Call("send_mail", {"to": "a@else.org"}, TOOLS))
        assert denied.outcome == "deny"

        async def settled():
            return (await client.xpending(keys.inbox(NAME), NAME))["pending"] == 0

        await wait_until(settled)
    assert (running.alive, running.stderr) == (True, "")
    assert await client.exists(keys.verdicts("o1", NAME)) == 0
    await client.aclose()


async def test_a_server_that_forgot_everything_is_joined_again(start, own_server, namespace, wait_until):
    await start(url=own_server.url)
    client = redis.from_url(own_server.url)
    async with Gate.open(redis=own_server.url, namespace=namespace, patience_ms=500) as asking:
        assert (await asking.decide(Call("send_mail", {"to": "a@else.org"}, TOOLS))).outcome == "deny"
        await client.flushall()

        async def rules_again():
            decision = await asking.decide(Call("send_mail", {"to": "a@else.org"}, TOOLS))
            await asyncio.sleep(0.01)
            return decision.outcome == "deny"

        await wait_until(rules_again)
    await client.aclose()
