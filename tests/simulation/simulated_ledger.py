"""The ledger's twin in memory, looked at after every step. The rules are the product's."""

import time
from typing import Any

from toolgate_bus.budgets.ledger_memory import MemoryLedger


class CheckedLedger(MemoryLedger):
    """The ledger's twin, looked at after every step."""

    journal: Any = None

    async def reserve(self, decision: str, phase: int, offers: Any, accounts: Any, owner: str) -> Any:
        """As ever; noted."""
        answer = self.book.reserve(decision, phase, offers, accounts, owner, time.time())
        if answer.status == "reserved":
            self.journal.reserved[decision] = (owner, answer.amount, self.journal._now())
        self.journal.note(f"ledger: {answer.status} {answer.amount} for {decision[:8]} ({phase})")
        self.check()
        return answer

    async def take(self, steps: Any) -> Any:
        """As ever; noted."""
        found = await MemoryLedger.take(self, steps)
        self.journal.note(f"ledger: {[(step.what, step.decision[:8]) for step in steps]}")
        self.check()
        return found

    def check(self) -> None:
        """Never more spent and reserved than there is, where every call is reserved for."""
        if not self.journal.strict:
            return
        for one in self.book.balances():
            if one.limit is not None and one.spent + one.reserved > one.limit:
                self.journal.fail(f"{one.spent} spent and {one.reserved} reserved are more than {one.limit}")
