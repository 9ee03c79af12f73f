"""cost-aware with `admission`, on a ledger in memory: when it reserves, and when it only looks."""

import pytest
from toolgate_bus.config.check import check
from toolgate_bus.protocol.packing import NEWEST, VERSION
from toolgate_bus.state.shared import make_shared_state
from toolgate_schedulers import Continue, ToolSelecting
from toolgate_schedulers.author.scheduler import asking, wire
from toolgate_schedulers.shipped.cost_aware import scheduler as module
from toolgate_schedulers.shipped.cost_aware.config import CostAwareConfig
from toolgate_schedulers.shipped.cost_aware.scheduler import NOTICE_S, CostAware

pytestmark = pytest.mark.pure

FIELDS = {
    "tools": {"dear": {"cost": 40}, "cheap": {"cost": 5}},
    "budgets": [{"name": "b", "limit": 50}],
    "admission": True,
}


class Bank:
    """One replica at work for so many seconds, and an agent that asks it in a version of the wire."""

    def __init__(self, monkeypatch, up_s, version=NEWEST, **fields):
        made = check(CostAwareConfig, {**FIELDS, **fields}, "cost.yaml")
        self.shared, self.scheduler = make_shared_state(), CostAware(made)
        self.scheduler.use(self.shared)
        self.scheduler._noticed_at = NOTICE_S
        monkeypatch.setattr(module.time, "monotonic", lambda: up_s)
        asking.set("o")
        wire.set(version)

    async def asks(self, phase, tool="dear", number=0):
        call = ToolSelecting(id=f"{number:032x}", phase=phase, tool_name=tool, available_tools=(tool,))
        return await self.scheduler.decide(call)

    @property
    def reserved(self):
        return sum(one.reserved for one in self.shared.ledger.book.balances()) // 1_000_000


async def test_it_looks_in_select_and_verify_and_reserves_in_admit(monkeypatch):
    bank = Bank(monkeypatch, NOTICE_S + 1)
    assert await bank.asks("select") == Continue()
    assert await bank.asks("verify", "cheap") == Continue()
    assert (bank.reserved, bank.shared.ledger.book.records) == (0, {})
    assert await bank.asks("admit", "cheap") == Continue()
    assert bank.reserved == 5
    assert (await bank.asks("select", number=1)).action == "continue"  # 45 are left
    assert (await bank.asks("admit", number=1)).action == "continue"
    assert (await bank.asks("select", number=2)).action == "deny"
    assert bank.reserved == 45


async def test_for_an_agent_of_the_first_version_it_reserves_in_select_as_without(monkeypatch):
    bank = Bank(monkeypatch, NOTICE_S + 1, VERSION)
    assert await bank.asks("select") == Continue()
    assert bank.reserved == 40
    assert await bank.asks("verify", "cheap") == Continue()
    assert bank.reserved == 5


async def test_who_may_not_know_yet_when_to_ask_is_reserved_for_until_it_has_asked_then(monkeypatch):
    bank = Bank(monkeypatch, NOTICE_S - 1)
    assert await bank.asks("select") == Continue()
    assert bank.reserved == 40
    assert await bank.asks("admit", "cheap") == Continue()
    assert bank.reserved == 5  # in place of what was reserved for the call that was replaced
    assert await bank.asks("select", number=1) == Continue()
    assert bank.reserved == 5
    asking.set("another")
    assert await bank.asks("select", number=2) == Continue()
    assert bank.reserved == 45


async def test_what_costs_nothing_touches_no_ledger_in_admit_either(monkeypatch):
    bank = Bank(monkeypatch, NOTICE_S + 1)
    for phase in ("select", "admit"):
        assert await bank.asks(phase, "free") == Continue()
    assert bank.shared.ledger.book.records == {}
