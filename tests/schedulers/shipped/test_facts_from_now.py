"""A scheduler that starts is told what happens from then on, however much was kept."""

import asyncio

import pytest
from toolgate_bus.errors import BusDown
from toolgate_bus.state.shared import MemoryFacts
from toolgate_schedulers.shipped import facts_from_now
from toolgate_schedulers.shipped.facts_from_now import FactsFromNow

pytestmark = pytest.mark.pure


class Pages(MemoryFacts):
    """Facts in pages, as a server gives them; some readings fail."""

    page = 200

    def __init__(self):
        super().__init__()
        self.away = 0
        self.waiting = []

    async def next(self):
        """At most a page."""
        if self.away:
            self.away -= 1
            raise BusDown("away")
        self.waiting += await super().next()
        page, self.waiting = self.waiting[: self.page], self.waiting[self.page :]
        return page


async def test_what_was_kept_is_passed_over_and_what_comes_is_told(wait_until, monkeypatch):
    monkeypatch.setattr("toolgate_bus.facts.service.REST_S", 0.0)
    facts, told = Pages(), []
    for number in range(450):
        facts.tell("old", number=number)
    reading = FactsFromNow(facts, lambda fact: told.append(fact["number"]))
    await reading.start()
    facts.tell("new", number=1)
    await wait_until(lambda: told == [1])
    facts.away = 3  # the bus goes and comes back
    for number in range(2, 400):
        facts.tell("new", number=number)
    await wait_until(lambda: len(told) == 399)
    assert told == list(range(1, 400))
    await reading.stop()
    facts.tell("new", number=999)
    await asyncio.sleep(0)
    assert 999 not in told


async def test_a_server_that_is_away_does_not_keep_the_scheduler_from_starting(monkeypatch):
    monkeypatch.setattr(facts_from_now, "START_SECONDS", 0.05)
    facts = Pages()
    facts.away = 10**9
    reading = FactsFromNow(facts, lambda _fact: None)
    await reading.start()
    await reading.stop()
    await reading.stop()
