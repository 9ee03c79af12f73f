"""A guard on the bus that all tests share."""

import pytest
from toolgate_orchestrator import Guard


@pytest.fixture
def guard_on(crew):
    """`guard_on(agent, …)`: a guard on the crew's bus, which ends with the test."""
    made = []

    def make(agent, **fields):
        defaults = {"required": ["alpha", "beta"], "patience_ms": 20_000}
        made.append(Guard(agent=agent, redis=crew.url, namespace=crew.namespace, **defaults | fields))
        return made[-1]

    yield make
    for one in made:
        one.close()
