"""A cost-aware that looks whether the money is there, and then takes it: as budgets are often written."""

from dataclasses import replace

from toolgate_bus.ledger.money.ledger import Reservation
from toolgate_schedulers.shipped.cost_aware.scheduler import CostAware


class CheckThenAdd:
    """A ledger in which two can find the same money."""

    def __init__(self, ledger):
        self._ledger = ledger

    def __getattr__(self, name):
        return getattr(self._ledger, name)

    async def reserve(self, decision, phase, offers, accounts, owner):
        """Look first, then reserve without asking."""
        taken = {one.key: one.spent + one.reserved for one in await self._ledger.balances()}
        room = min(
            one.limit - taken.get(one.key, 0) for one in accounts if one.limit is not None and not one.unit
        )
        for offer in offers:
            if offer.amount <= room:
                free = [one._replace(limit=None) for one in accounts]
                return await self._ledger.reserve(decision, phase, [offer], free, owner)
        return Reservation("denied", short=accounts[0].key, left=max(0, room))


class Naive(CostAware):
    """The real one on that ledger."""

    def use(self, shared):
        super().use(replace(shared, ledger=CheckThenAdd(shared.ledger)))
