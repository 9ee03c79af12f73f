"""A server loses its ledger: nothing that costs money runs until somebody decides; an archive gives all back.

A cost-aware scheduler in a process of its own, an agent's gate, the archiver, and `toolgate budget` as a
person types it, on a real server that is emptied, restarted without its data, or replaced by an empty one.
"""

import asyncio
import contextlib
import json
import shutil
import signal
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
import yaml
from toolgate_bus.ledger.money.ledger import Account, FallbackAccounts, Offer, Step
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance

CONFIG = {
    "tools": {"search": {"cost": 0.4}},
    "budgets": [
        {"name": "all", "limit": 1000, "window": "day"},
        {"name": "each", "level": "session", "limit": 100},
    ],
    "learn": False,
}
LOST = "The ledger was lost"


@pytest.fixture
async def fleet(own_server, schedulers_on, process, tmp_path, monkeypatch, wait_until):
    """All of it; `fleet.pay(n)` has n calls run, `fleet.toolgate(*words)` runs a command."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "cost.yaml"
    url = own_server.url
    schedulers = schedulers_on(url)
    commands = RedisCommands(url, "test")
    ledger = RedisLedger(commands, "default")
    where = {"TOOLGATE_REDIS_URL": url}

    async def toolgate(*words, code=0):
        running = process("toolgate", *words, env=where)
        assert await asyncio.to_thread(running.wait) == code, running.stderr
        return running

    async def begin(**options):
        file.write_text(yaml.safe_dump({**CONFIG, **options}))
        child = schedulers.run("cost-aware", "--config", file)
        await schedulers.ready(child)
        return child

    async with contextlib.AsyncExitStack() as stack:
        opened = Gate.open(redis=url, required=("cost-aware",), patience_ms=10_000)
        gate = await stack.enter_async_context(opened)

        async def decide(session="s"):
            return await gate.decide(Call("search", {"q": 1}, ["search"], Caller(session)))

        async def pay(many, cost=7):
            for number in range(many):
                decision = await decide(f"s{number % 3}")
                assert decision.allowed, decision.reason
                told = {"decision_id": decision.id, "tool": "search"}
                gate.note("tool:selected", told)
                gate.note("tool:post", {**told, "success": True, "cost": cost + number})

        async def books():
            return {one.key: one.spent for one in await ledger.balances()}

        async def report():
            day = datetime.now(UTC).date().isoformat()
            ran = await toolgate("report", "--archive", archive, "--day", day, "--json")
            return [json.loads(line) for line in ran.stdout.splitlines()]

        async def is_settled():
            return not await ledger.open()

        async def rules():
            """Until the gate is answered again, whatever the answer; silence, which denies, is none."""
            decision = await decide()
            return decision if decision.why == "denied" or decision.allowed else None

        archive = tmp_path / "archive"
        made = SimpleNamespace(
            server=own_server,
            commands=commands,
            ledger=ledger,
            toolgate=toolgate,
            begin=begin,
            decide=decide,
            pay=pay,
            books=books,
            rules=rules,
            report=report,
            archive=archive,
            where=where,
            settled=lambda: wait_until(is_settled),
        )
        yield made
    await commands.aclose()


async def keep(fleet):
    """Archive what there is."""
    await fleet.toolgate("decisions", "archive", fleet.archive, "--once")


async def stop(child):
    child.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(child.wait) == 0


async def until_ruled(fleet):
    """What the first answer after a fault says."""
    async with asyncio.timeout(30):
        while (decision := await fleet.rules()) is None:
            await asyncio.sleep(0.05)
    return decision


async def test_flushall_denies_until_an_archive_has_given_the_exact_sum_back(fleet, wait_until):
    await fleet.begin()
    await fleet.pay(20)
    await fleet.settled()
    before = await fleet.books()
    assert before["all/fleet"] == sum(7 + number for number in range(20))
    await keep(fleet)
    await fleet.commands.execute("FLUSHALL")
    denied = await until_ruled(fleet)
    assert (denied.outcome, denied.scheduler) == ("deny", "cost-aware")
    assert LOST in denied.reason
    assert "toolgate budget rebuild" in denied.reason
    assert "The ledger was lost" in (await fleet.toolgate("budget", "list")).stderr
    looked = await fleet.toolgate("doctor", "--json", code=1)
    (found,) = [
        one for one in map(json.loads, looked.stdout.splitlines()) if one.get("name") == "ledger-lost"
    ]
    assert found["level"] == "error"

    shown = await fleet.toolgate("budget", "rebuild", "--from", fleet.archive, "--dry-run", "--json")
    *rows, told = map(json.loads, shown.stdout.splitlines())
    assert {row["account"]: row["added"] for row in rows} == before
    assert told == {
        "book": "budget",
        "accounts": 4,
        "entries": 20,
        "until": told["until"],
        "changed": False,
        "was_lost": "missing",
    }
    assert await fleet.books() == {}
    assert not (await fleet.decide()).allowed
    await fleet.toolgate("budget", "rebuild", "--from", fleet.archive, "--by", "anna")
    assert await fleet.books() == before
    await fleet.pay(1, cost=100)  # at once, for everybody
    await fleet.settled()
    again = await fleet.toolgate("budget", "rebuild", "--from", fleet.archive)
    assert "0 accounts" in again.stdout
    after = await fleet.books()
    assert after["all/fleet"] == before["all/fleet"] + 100
    await keep(fleet)
    (row,) = await fleet.report()
    assert row["total"]["spent"] == after["all/fleet"]
    assert any("agree with its journal to the unit" in words for words in row["sources"])
    assert not any("the ledger says" in words for words in row["unknown"])
    nothing = await fleet.toolgate("budget", "accept-loss", "--by", "anna", code=2)
    assert "is not lost" in nothing.stderr


async def test_books_that_forgot_how_calls_ended_are_rebuilt_to_the_unit_and_hold_nothing_for_them(fleet):
    account, offer = Account("all/fleet", 1000), [Offer("search", 40)]
    for decision in ("settled", "lost", "open"):
        await fleet.ledger.reserve(decision, 0, offer, [account], "agent")
    await fleet.ledger.take([Step("settle", "before", 7, otherwise=FallbackAccounts(0, (account,)))])
    keys = await fleet.commands.execute("KEYS", "*")
    taken = [(key, await fleet.commands.execute("DUMP", key)) for key in keys]
    ends = [Step("settle", "settled", 30), Step("release", "open", 0)]
    await fleet.ledger.take(ends[:1])
    assert await fleet.ledger.orphan("lost")
    await keep(fleet)
    await fleet.commands.execute("FLUSHALL")
    for key, value in taken:
        await fleet.commands.execute("RESTORE", key, 0, value, "REPLACE")  # agents write meanwhile
    await fleet.ledger.lose(await fleet.ledger.name(), "behind", "fresh", (), "who remembers")
    await fleet.toolgate("budget", "rebuild", "--from", fleet.archive, "--by", "anna")
    assert [one.decision for one in await fleet.ledger.open()] == ["open"]
    assert await fleet.books() == {"all/fleet": 7 + 30 + 40}
    await fleet.ledger.take([*ends, Step("settle", "lost", 35)])
    assert await fleet.books() == {"all/fleet": 7 + 30 + 35}
    assert [one.reserved for one in await fleet.ledger.balances()] == [0]


async def test_books_rebuilt_while_no_scheduler_ran_are_charged_nothing_that_agents_write_again(fleet):
    """An agent whose server came back writes its latest facts once more; who knows how far they were read?"""
    child = await fleet.begin()
    await fleet.pay(10)
    await fleet.settled()
    before = await fleet.books()
    await keep(fleet)
    await stop(child)
    await asyncio.to_thread(fleet.server.restart)
    await fleet.toolgate("budget", "rebuild", "--from", fleet.archive, "--by", "anna")
    assert await fleet.books() == before
    await fleet.begin()
    assert LOST in (await until_ruled(fleet)).reason
    await fleet.toolgate("budget", "rebuild", "--from", fleet.archive, "--by", "anna")
    await fleet.pay(1, cost=100)
    await fleet.settled()
    assert (await fleet.books())["all/fleet"] == before["all/fleet"] + 100


@pytest.mark.system
@pytest.mark.parametrize("fault", ["restart", "empty"])
async def test_a_server_without_its_data_denies_until_somebody_accepts_the_loss(fleet, fault):
    await fleet.begin()
    await fleet.pay(5)
    await fleet.settled()
    if fault == "restart":
        await asyncio.to_thread(fleet.server.restart)
    else:
        await asyncio.to_thread(fleet.server.kill)
        shutil.rmtree(fleet.server.directory / "appendonlydir", ignore_errors=True)
        await asyncio.to_thread(fleet.server.start)
    denied = await until_ruled(fleet)
    assert LOST in denied.reason
    refused = await fleet.toolgate("budget", "accept-loss", "--by", " ", code=2)
    assert "--by: say who decides" in refused.stderr
    told = json.loads(
        (await fleet.toolgate("budget", "accept-loss", "--by", "anna", "--reason", "a test", "--json")).stdout
    )
    assert told == {
        "book": "budget",
        "decided": "accept-loss",
        "why": "missing",
        "by": "anna",
        "reason": "a test",
    }
    await fleet.pay(3)


async def test_a_scheduler_that_begins_after_the_loss_knows_of_it_and_one_may_go_on_all_the_same(fleet):
    child = await fleet.begin()
    await fleet.pay(3)
    await fleet.settled()
    await stop(child)
    await fleet.commands.execute("FLUSHALL")
    child = await fleet.begin()
    assert LOST in (await until_ruled(fleet)).reason
    await stop(child)
    await fleet.begin(on_ledger_lost="continue")
    assert (await until_ruled(fleet)).allowed
