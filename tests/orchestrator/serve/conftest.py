"""A sidecar on the in-memory bus, for its tests."""

from contextlib import AsyncExitStack

import pytest
from asked_sidecar import Sidecar
from gate_world import World


@pytest.fixture
async def world():
    async with AsyncExitStack() as stack:
        yield World(stack)


@pytest.fixture
async def sidecar(world):
    """`await sidecar(required=["a"])`: on a gate with that configuration."""

    async def make(tokens=(), max_requests=100, **config):
        return Sidecar(await world.gate(**config), tokens, max_requests=max_requests)

    return make
