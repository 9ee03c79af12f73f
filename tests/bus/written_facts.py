"""Facts that tests write and read again, by their numbers."""

from toolgate_bus.facts import record
from toolgate_bus.facts.reader import FactsReader


async def facts_of(commands, namespace):
    """The numbers of all that the server has, in their order."""
    return [fact["n"] for fact in await FactsReader(commands, namespace).read_all()]


def numbered(number):
    """What makes the fact of this number."""
    return lambda: record.other_fact({"event": "test", "n": number}, number, 0.0)
