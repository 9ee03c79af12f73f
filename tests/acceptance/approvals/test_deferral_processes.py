"""Questions to people that outlive who asked: another process answers, and the books are exact."""

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path

import pytest
import yaml
from toolgate_bus.facts.join import join_decisions
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.transport.redis.client.connection import RedisCommands

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(120)]

LEAVER = Path(__file__).parents[1] / "agents_for_tests" / "question_leaver.py"
RULES = {"rules": [{"tools": "pay", "action": "ask", "prompt": "Pay?", "timeout_s": 60}]}
MONEY = {"tools": {"pay": {"cost": 1}}, "budgets": [{"name": "b", "limit": 1000}], "learn": False}
UNIT = 1_000_000


@pytest.fixture
async def commands(server_url):
    plain = RedisCommands(server_url, "test")
    yield plain
    await plain.aclose()


@pytest.fixture
async def ruled(schedulers, tmp_path):
    """A policy that has people asked, and a budget; gives how to start what."""

    async def start(**money):
        for name, config in (("policy", RULES), ("cost-aware", {**MONEY, **money})):
            (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(config))
            await schedulers.start(name, "--config", tmp_path / f"{name}.yaml")

    return start


@pytest.fixture
def leaver(process, server_url, namespace, tmp_path):
    """`await leaver("ask", 100)`: runs to its end; its exit code and what it printed."""

    async def run(what, *more):
        words = (what, server_url, namespace, tmp_path / "tokens.json", *more)
        ended = process("python", str(LEAVER), *map(str, words))
        code = await asyncio.to_thread(ended.wait, 90)
        return code, ended.stdout, ended.stderr

    return run


async def money(commands, namespace):
    (account,) = await RedisLedger(commands, namespace).balances()
    return account


async def record(commands, namespace):
    reader = FactsReader(commands, namespace)
    return [fact async for fact in reader.read_stored()]


@pytest.mark.parametrize("admission", [False, True])
async def test_100_questions_whose_asker_is_gone_are_each_gone_on_with_once_and_the_books_are_exact(
    ruled, leaver, commands, namespace, wait_until, admission
):
    await ruled(admission=admission)
    code, _, said = await leaver("ask", 100)
    assert code == -signal.SIGKILL, said
    pending = join_decisions(await record(commands, namespace))
    assert Counter(one["outcome"] for one in pending) == {"ask": 100}
    assert (await money(commands, namespace)).reserved == 100 * UNIT  # (who is new is reserved for early)

    await asyncio.sleep(7)  # longer than the keeper takes to find that somebody is gone
    assert (await money(commands, namespace)).orphans == 0

    code, printed, said = await leaver("answer")
    assert code == 0, said
    told = json.loads(printed)
    assert {id_ for _, id_, *_ in told} == {one["id"] for one in pending}
    assert Counter(outcome for _, _, outcome, *_ in told) == {"continue": 90, "deny": 10}

    async def settled():
        account = await money(commands, namespace)
        return account if not account.reserved else None

    account = await wait_until(settled, timeout=30)
    spent = sum(250_000 + number for number, _, outcome, *_ in told if outcome == "continue")
    assert (account.spent, account.reserved, account.orphans, account.overruns) == (spent, 0, 0, 0)
    assert await RedisLedger(commands, namespace).astray() == {}
    facts = await record(commands, namespace)
    assert Counter(fact["event"] for fact in facts if fact["event"] == "decision") == {"decision": 100}
    decided = join_decisions(facts)
    assert len(decided) == 100
    assert {one["answered_by"] for one in decided} == {f"person {number}" for number in range(100)}

    code, printed, said = await leaver("answer")  # once more: each is told that it is over
    assert code == 0, said
    assert {(outcome, why) for _, _, outcome, why, _ in json.loads(printed)} == {("deny", "void")}
    assert (await money(commands, namespace)).spent == spent


@pytest.mark.parametrize(
    ("where", "claimed"),
    [
        ("before-claim", False),
        ("after-claim", True),
        ("before-record", True),
    ],
)
async def test_who_answers_may_be_killed_anywhere_and_no_call_runs_twice_and_no_money_is_left_behind(
    ruled, leaver, commands, namespace, wait_until, where, claimed
):
    await ruled()
    assert (await leaver("ask", 3))[0] == -signal.SIGKILL
    code, _, said = await leaver("answer", where)
    assert code == -signal.SIGKILL, said
    code, printed, said = await leaver("answer")
    assert code == 0, said
    told = json.loads(printed)
    ran = [number for number, _, outcome, *_ in told if outcome == "continue"]
    # Who is killed has claimed one, or all that it had got to by then; none of them can be answered again.
    assert len(ran) < 3 if claimed else len(ran) == 3, told

    async def settled():
        account = await money(commands, namespace)
        return account if not account.reserved else None

    account = await wait_until(settled, timeout=60)
    lost = 3 - len(ran)
    assert account.orphans == lost  # perhaps it ran: that is for the estimate
    assert account.spent == lost * UNIT + sum(250_000 + number for number in ran)
    assert len({id_ for _, id_, *_ in told}) == 3


@pytest.mark.parametrize(("where", "orphans"), [("before-store", 1), ("after-store", 0)])
async def test_who_asks_may_be_killed_anywhere_and_what_was_kept_is_given_back_in_time(
    ruled, leaver, commands, namespace, wait_until, monkeypatch, where, orphans
):
    monkeypatch.setenv("TOOLGATE_TEST_DEFER_S", "2")
    await ruled()
    code, _, said = await leaver("ask", 1, where)
    assert code == -signal.SIGKILL, said

    async def over():
        account = await money(commands, namespace)
        return account if not account.reserved else None

    account = await wait_until(over, timeout=60)
    assert (account.orphans, account.spent) == (
        orphans,
        orphans * UNIT,
    )  # of what is not kept nobody can know
