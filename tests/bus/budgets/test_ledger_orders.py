"""The ledger under any order of anything: no account passes its limit, and the server keeps the same book."""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toolgate_bus.ledger.money.ledger import (
    MAX_SUM,
    Account,
    Balance,
    FallbackAccounts,
    Offer,
    SettlementResult,
    Step,
)
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.ledger.money.rules import LedgerRules
from toolgate_bus.protocol.money import MAX_AMOUNT
from toolgate_bus.transport.redis.client.connection import RedisCommands

FLEET = Account("daily/fleet", 100)
MINE = Account("each/session/s-1", 50)
CALLS = Account("often/fleet", 3, unit="calls")
ASKED = Account("asked/fleet", 4, unit="rows", at_limit="ask")
PAUSED = Account("paused/fleet", 5, unit="calls", at_limit="pause")
"""Accounts of other units; an offer has an amount for each of them."""

ids = st.sampled_from(["a", "b", "c", "d"])
who = st.sampled_from(["o", "o2", ""])
amounts = st.integers(0, 60) | st.sampled_from([MAX_AMOUNT - 1, MAX_AMOUNT])
account_sets = st.sampled_from(
    [
        [FLEET],
        [MINE],
        [FLEET, MINE],
        [FLEET._replace(limit=None)],
        [FLEET, CALLS],
        [FLEET, ASKED, PAUSED],
        [CALLS, PAUSED],
        [FLEET, MINE, ASKED],
    ]
)
units = st.fixed_dictionaries({one.key: st.integers(0, 3) for one in (CALLS, ASKED, PAUSED)})
costs = st.just({}) | st.fixed_dictionaries({"often": st.integers(0, 4), "asked": st.integers(0, 9)})
paying = st.sampled_from([(), (FLEET,), (FLEET, MINE), (FLEET, CALLS)])
otherwise = st.none() | st.builds(FallbackAccounts, amounts, paying, units)
offers = st.builds(Offer, st.sampled_from(["x", "y"]), amounts, amounts, units, st.booleans())
step = st.one_of(
    st.tuples(
        st.sampled_from(["reserve", "reserve", "preview"]),
        ids,
        st.integers(0, 1),
        st.lists(offers, min_size=1, max_size=3),
        account_sets,
        who,
    ),
    st.builds(Step, st.just("settle"), ids, st.none() | amounts, who, otherwise, costs),
    st.builds(Step, st.sampled_from(["release", "executing", "renew"]), ids, st.none(), who),
    st.tuples(st.just("orphan"), ids),
    st.tuples(st.just("claim"), ids, who, who),
    # The last is what a decision is called: events and decisions do not meet.
    st.tuples(st.just("charge"), st.sampled_from(["u1", "u2", "a"]), amounts, account_sets, units),
)
steps = st.lists(step, max_size=40)
resets = st.tuples(st.just("reset"), st.sampled_from([FLEET.key, MINE.key]))


def apply(book: LedgerRules, step: Any) -> Any:
    """Take one step in the pure book, at a time that does not matter here."""
    if isinstance(step, Step):
        return book.take(step, 1.0)
    match step:
        case ("reserve", id_, phase, offers, accounts, owner):
            return book.reserve(id_, phase, offers, accounts, owner, 1.0)
        case ("preview", id_, phase, offers, accounts, owner):
            before = (book.balances(), {name: replace(one) for name, one in book.records.items()})
            answer = book.preview(id_, phase, offers, accounts, owner, 1.0)
            assert (book.balances(), book.records) == before
            return answer
        case ("charge", id_, amount, accounts, shares):
            return book.charge(id_, amount, accounts, 1.0, shares)
        case (op, *words):
            return getattr(book, op)(*words)


@pytest.mark.pure
@given(steps)
def test_reserving_never_takes_an_account_over_its_limit(taken):
    book = LedgerRules()
    for step in taken:
        before = {each.key: each for each in book.balances()}
        answer = apply(book, step)
        for each in book.balances():
            assert 0 <= each.reserved <= MAX_SUM
            assert 0 <= each.spent <= MAX_SUM
            was = before.get(each.key, Balance(each.key, 0, None, 0, 0))
            grew = each.reserved - was.reserved
            if each.key == ASKED.key and step[0] == "reserve" and answer.is_beyond:
                continue  # with a person's agreement
            if step[0] == "reserve" and answer.status == "reserved" and grew > 0 and each.limit is not None:
                assert each.spent + each.reserved <= each.limit


@pytest.mark.pure
@given(steps)
def test_what_somebody_else_tells_of_a_decision_moves_no_money_of_it(taken):
    book = LedgerRules()
    for step in taken:
        record = book.records.get(step[1])
        owner, held = (record.owner, record.phase >= 0) if record else ("", False)
        before = book.balances()
        answer = apply(book, step)
        if isinstance(step, Step) and held and owner and step.by and step.by != owner:
            assert answer.outcome == "foreign"
            assert book.balances() == before


@pytest.mark.pure
@given(steps)
def test_once_all_is_told_nothing_is_reserved_and_every_cost_is_counted_once(taken):
    """An independent sum: what each decision cost the account, from the answers alone."""
    book, cost = LedgerRules(), dict[str, int]()
    for number, step in enumerate(taken):
        state = book.records.get(step[1])
        mine = state is not None and any(place[0] == FLEET.key for place in state.accounts)
        was = (state.state, state.amount) if state is not None else ("", 0)
        answer = apply(book, step)
        if step[0] == "settle" and answer.outcome == "charged":
            cost[f"{number}"] = step.otherwise.amount if step.cost is None else step.cost
        elif step[0] == "settle" and mine and answer.outcome in ("settled", "corrected", "late"):
            cost[step[1]] = was[1] if step.cost is None else step.cost
        elif step[0] == "release" and mine and was[0] == "orphaned" and answer.outcome == "done":
            del cost[step[1]]
        elif step[0] == "orphan" and answer and mine:
            cost[step[1]] = was[1]
        elif step[0] == "charge" and answer and any(each.key == FLEET.key for each in step[3]):
            cost[f"{number}"] = step[2]
        if sum(cost.values()) > MAX_SUM:
            return  # an account counts no further than that
    for id_ in "abcd":
        if book.records.get(id_) is None or book.records[id_].state != "orphaned":
            book.release(id_, 2.0)
    fleet = next((each for each in book.balances() if each.key == FLEET.key), None)
    assert (fleet.spent, fleet.reserved) == (sum(cost.values()), 0) if fleet else not cost


@settings(max_examples=60, deadline=None)
@given(taken=st.lists(step | resets, max_size=40))
def test_the_server_keeps_the_same_book(server_url: str, taken: list[Any]) -> None:
    asyncio.run(compare(server_url, taken))


async def compare(url: str, taken: list[Any]) -> None:
    book, commands = LedgerRules(), RedisCommands(url, "test")
    ledger = RedisLedger(commands, f"t{secrets.token_hex(6)}")
    try:
        for step in taken:
            expected, got = apply(book, step), await take(ledger, step)
            assert got == expected, step
            assert await ledger.balances() == book.balances()
            assert await ledger.astray() == book.strays
            assert sorted(each[:2] for each in await ledger.open()) == sorted(
                (name, one.owner) for name, one in book.records.items() if one.state == "reserved"
            )
    finally:
        await commands.aclose()


async def take(ledger: RedisLedger, step: Any) -> Any:
    if isinstance(step, Step):
        return (await ledger.take([step]) or [SettlementResult("done")])[0]
    run: Callable[..., Any] = getattr(ledger, step[0])
    return await run(*step[1:])
