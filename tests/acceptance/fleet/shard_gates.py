"""Gates in shards that a test names, as if each were a process of its own that had drawn it."""

from contextlib import AsyncExitStack, asynccontextmanager

from toolgate_bus.protocol.keys import shard_of
from toolgate_bus.transport.redis.asking import orchestrator
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link import shared_clients


@asynccontextmanager
async def gates_in(monkeypatch, *shards, **fields):
    """A gate in each of these."""
    async with AsyncExitStack() as stack:
        gates = []
        for shard in shards:

            async def drawn(*_, shard=shard):
                return shard

            with monkeypatch.context() as patch:
                patch.setattr(orchestrator, "draw_shard", drawn)
                patch.setattr(shared_clients, "_shared", {})  # each has a client of its own
                gates.append(await stack.enter_async_context(Gate.open(**fields)))
        assert [shard_of(lies(gate)) for gate in gates] == list(shards)
        yield gates


def lies(gate):
    """The name of a gate's orchestrator."""
    return gate._client.bus.orchestrator
