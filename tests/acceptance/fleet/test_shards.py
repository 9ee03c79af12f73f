"""Agents spread over shards: each is ruled on, held, recorded and paid for as if there were one."""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
from collections import Counter, defaultdict

import pytest
import yaml
from shard_gates import gates_in, lies
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.fleet.shards import shards_findings
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.protocol.keys import Keys, shard_of
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import RosterView
from toolgate_bus.transport.redis.roster.shards import write_count
from toolgate_bus.transport.redis.storage.reads import find_keys
from toolgate_orchestrator import Call

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(120)]

TOOLS = ["bash", "search"]
SHARDS = (0, 1, 2)
DENY = {"action": "deny", "reason": "never"}
HOLD = {"action": "hold", "seconds": 20, "then": {"action": "continue", "after": 0.2}}
COST = {"tools": {"search": {"cost": 0.5}}, "budgets": [{"name": "all", "level": "fleet", "limit": 1000}]}


@pytest.fixture(name="commands")
async def _commands(server_url):
    made = RedisCommands(server_url, "test-shards")
    yield made
    await made.aclose()


async def ruled(gate, number, **rules):
    """One call, which alpha denies where its number is odd."""
    by_number = {"alpha": DENY} if number % 2 else {}
    decision = await gate.decide(Call("search", {"n": number, "rules": {**by_number, **rules}}, TOOLS))
    if decision.allowed:
        told = {"decision_id": decision.id, "tool": "search"}
        gate.note("tool:selected", told)
        gate.note("tool:post", {**told, "success": True, "seconds": 0.001, "cost": 300_000})
    return decision


async def test_in_each_shard_calls_are_denied_held_recorded_counted_and_paid_for(
    schedulers, monkeypatch, commands, process, tmp_path, wait_until
):
    where = ("--redis", schedulers.url, "--namespace", schedulers.namespace)
    keys = Keys(schedulers.namespace)
    await write_count(commands, keys, len(SHARDS))
    (tmp_path / "cost.yaml").write_text(yaml.safe_dump(COST))
    archive = process("toolgate", "decisions", "archive", tmp_path / "archive", *where)
    await asyncio.gather(
        schedulers.start("obedient:alpha", replicas=2),
        schedulers.start("obedient:gamma"),
        schedulers.start("cost-aware", "--config", tmp_path / "cost.yaml", replicas=2),
    )
    names = {"required": ["alpha", "gamma", "cost-aware"], "patience_ms": 10_000}
    where_gates = {"redis": schedulers.url, "namespace": schedulers.namespace}
    async with gates_in(monkeypatch, *SHARDS, **where_gates, **names) as gates:
        ruled_in = await asyncio.gather(
            *(asyncio.gather(*(ruled(gate, number) for number in range(60))) for gate in gates),
        )
        held = await asyncio.gather(*(ruled(gate, 60, gamma=HOLD) for gate in gates))
        decisions = [*held, *(one for each in ruled_in for one in each)]
        orchestrators = [lies(gate) for gate in gates]
        assert [one.outcome for each in ruled_in for one in each] == ["continue", "deny"] * 90
        assert [one.outcome for one in held] == ["continue"] * 3
        assert not any(one.silent or one.passed_over for one in decisions)
        assert {len({v.scheduler for v in one.verdicts}) for one in decisions if one.allowed} == {3}
        ledger, allowed = RedisLedger(commands, schedulers.namespace), sum(one.allowed for one in decisions)

        async def is_settled():
            (books,) = await ledger.balances()
            return (books.spent, books.reserved) == (allowed * 300_000, 0)

        await wait_until(is_settled)
    facts = await FactsReader(commands, schedulers.namespace).read_all()
    found = Counter(fact["id"] for fact in facts if fact["event"] == "decision")
    assert found == {one.id: 1 for one in decisions}
    by_writer = defaultdict(list)
    for fact in facts:
        by_writer[fact["orchestrator"]].append(fact["seq"])
    assert set(by_writer) == set(orchestrators)
    assert all(each == list(range(1, len(each) + 1)) for each in by_writer.values())
    await wait_until(lambda: read_archived(tmp_path / "archive") == found)
    archive.signal(signal.SIGTERM)
    assert await asyncio.to_thread(archive.wait, 60) == 0
    check = process("toolgate", "decisions", "archive", tmp_path / "archive", "--check", "--json")
    assert await asyncio.to_thread(check.wait, 60) == 0
    assert json.loads(check.stdout)["gaps"] == []
    assert {await find_shard(commands, schedulers.namespace, one) for one in orchestrators} == set(SHARDS)


def read_archived(directory):
    """How often each decision stands in the archive."""
    from toolgate_bus.commands.decisions.archive_reader import read_archived_facts

    try:
        return Counter(one["id"] for one in read_archived_facts(directory) if one["event"] == "decision")
    except (OSError, sqlite3.Error):
        return None


async def find_shard(commands, namespace, orchestrator):
    """In which shard all keys of an orchestrator's streams are."""
    pages = [page async for page in find_keys(commands, f"tg:{{{namespace}:*facts:{orchestrator}")]
    (key,) = {key.decode() for page in pages for key in page}
    return int(key.partition("}")[0][-1], 16)


async def test_what_a_replica_that_is_killed_was_deciding_is_taken_over_in_each_shard(
    schedulers, monkeypatch, commands
):
    await write_count(commands, Keys(schedulers.namespace), len(SHARDS))
    (killed,), _ = await asyncio.gather(*(schedulers.start("obedient:alpha") for _ in range(2)))
    where = {"redis": schedulers.url, "namespace": schedulers.namespace}
    async with gates_in(monkeypatch, *SHARDS, **where, required=["alpha"], patience_ms=20_000) as gates:
        slow = [{"alpha": {**(DENY if n % 2 else {"action": "continue"}), "after": 1.5}} for n in range(8)]
        deciding = []
        for gate in gates:
            for number, rules in enumerate(slow):
                arguments = {"n": number, "rules": rules}
                deciding.append(asyncio.create_task(gate.decide(Call("search", arguments, TOOLS))))
                await asyncio.sleep(0.002)  # an entry for each: what is asked in one tick travels as one
        while len(schedulers.lines("asked")) < len(deciding):
            await asyncio.sleep(0.01)
        had = Counter(line.decision for line in schedulers.lines("asked", pid=killed))
        os.kill(killed, signal.SIGKILL)
        decisions = await asyncio.gather(*deciding)
    assert [one.outcome for one in decisions] == ["continue", "deny"] * 12
    in_hand = [any(one.id in had for one in decisions[at : at + 8]) for at in (0, 8, 16)]
    assert in_hand == [True, True, True]  # else nothing was taken over there


async def test_while_shards_are_added_and_taken_no_call_passes_unasked(
    schedulers, monkeypatch, process, commands
):
    where = ("--redis", schedulers.url, "--namespace", schedulers.namespace)
    await asyncio.gather(schedulers.start("obedient:alpha", replicas=2), schedulers.start("obedient:beta"))
    fields = {"redis": schedulers.url, "namespace": schedulers.namespace, "patience_ms": 2000}
    decisions, over = [], asyncio.Event()

    async def ask_on(gate):
        number = 0
        while not over.is_set():
            number += 1
            decisions.append((number, await ruled(gate, number)))
            await asyncio.sleep(0.005)

    async def set_shards(count):
        child = process("toolgate", "shards", count, "--json", *where)
        assert await asyncio.to_thread(child.wait, 60) == 0, child.stderr
        return json.loads(child.stdout)

    from toolgate_orchestrator.decision.gate import Gate
    from toolgate_orchestrator.decision.link import shared_clients

    async with contextlib.AsyncExitStack() as stack:
        drawn, tasks = set(), []

        async def start_one():  # optional schedulers: who is not heard is passed over, and counted
            with monkeypatch.context() as patch:
                patch.setattr(shared_clients, "_shared", {})
                gate = await stack.enter_async_context(Gate.open(**fields))
            tasks.append(asyncio.create_task(ask_on(gate)))
            return shard_of(lies(gate))

        assert await start_one() == 0
        assert (await set_shards(3))["not_read_by"] == []
        for _ in range(8):
            drawn.add(await start_one())
        async with asyncio.timeout(30):
            while len(drawn) == 1:  # by chance
                drawn.add(await start_one())
        await asyncio.sleep(0.5)
        assert (await set_shards(1))["shards"] == 1
        assert await start_one() == 0
        child = process("toolgate", "shards", *where)
        assert await asyncio.to_thread(child.wait, 60) == 0
        assert "over 1 shard." in child.stdout
        await asyncio.sleep(0.5)
        over.set()
        await asyncio.gather(*tasks)
    assert len(decisions) > 100
    assert {one.outcome == "deny" for number, one in decisions if number % 2} == {True}
    passed = [one for _, one in decisions if one.allowed]
    assert {tuple(sorted(v.scheduler for v in one.verdicts)) for one in passed} == {("alpha", "beta")}
    assert not any(one.passed_over for _, one in decisions)


async def test_who_does_not_read_a_shard_is_silent_there_and_doctor_says_so(
    rogue, schedulers, monkeypatch, commands
):
    fields = {"redis": schedulers.url, "namespace": schedulers.namespace, "patience_ms": 200}
    old = await rogue("old", schedulers.namespace)
    over = asyncio.Event()
    beats = asyncio.create_task(old.keep_announcing(over))
    async with gates_in(monkeypatch, 2, **fields, required=["old"]) as (gate,):
        decision = await gate.decide(Call("bash", {}, TOOLS))
        assert (decision.outcome, decision.why, decision.silent) == ("deny", "silent", ("old",))
    async with gates_in(monkeypatch, 2, **fields) as (gate,):
        while not (decision := await gate.decide(Call("bash", {}, TOOLS))).passed_over:
            assert decision.why in ("unasked", "failed_open")
        assert decision.passed_over == ("old",)
    over.set()
    await beats


def test_doctor_judges_shards():
    new, old = Member("a", "r", shards=(0, 1, 2)), Member("b", "r")
    in_two = RosterView((new, old), {"0123456789abcdefs2": frozenset()})
    assert [one.name for one in shards_findings(3, in_two)] == ["shard-unread", "shards-behind"]
    assert [one.name for one in shards_findings(3, RosterView((new, old)))] == ["shards-behind"]
    assert [one.name for one in shards_findings(3, RosterView((new,)))] == ["shards"]
    assert shards_findings(1, RosterView((new, old), {"o1": frozenset()})) == []
