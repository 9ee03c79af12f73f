"""Whom an order of an operator means: also who began so lately that nobody has been told of it yet."""

from contextlib import aclosing

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.agents import LiveAgent, stop_of
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.agent_directory import AgentDirectory
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.live_session import LiveSession

pytestmark = pytest.mark.acceptance


async def test_who_began_since_the_last_heartbeat_is_meant_too(server_url, namespace):
    looks = []
    async with (
        Gate.open(redis=server_url, namespace=namespace) as gate,
        aclosing(RedisCommands(server_url, "test-operator", connections=1)) as commands,
    ):

        def order(living):
            if not looks:
                gate.enter(LiveSession(LiveAgent("late", "late"), lambda now: None))
            looks.append(living)
            return stop_of(living, ["late"], now=False, by="me")

        assert (await AgentDirectory(commands, namespace).address(order)).roots == ("late",)
    assert looks[0] == []


async def test_who_is_not_there_is_looked_for_no_longer_than_a_heartbeat_stands(server_url, namespace):
    looks = []

    def order(living):
        looks.append(living)
        return stop_of(living, ["nobody"], now=False, by="me")

    async with aclosing(RedisCommands(server_url, "test-operator", connections=1)) as commands:
        with pytest.raises(ConfigError, match="'nobody' is no live session"):
            await AgentDirectory(commands, namespace).address(order)
    assert len(looks) > 1
