"""What operators have set about how long facts are kept, and what facts take, on the server."""

from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.storage.reads import flat
from toolgate_bus.transport.retention import (
    FactUsage,
    Retention,
    decode_retention,
    decode_written,
    encode_retention,
)


async def read_usage(commands: Commands, namespace: str) -> FactUsage | None:
    """Return how long facts are kept, and what they take; None if this user may not see it."""
    keys = Keys(namespace)
    kept, written = await commands.pipeline([("GET", keys.facts_kept), ("HGETALL", keys.facts_bytes)])
    if isinstance(kept, Exception) or isinstance(written, Exception):
        return None
    return FactUsage(decode_retention(kept), decode_written(flat(written)))


async def write_retention(commands: Commands, namespace: str, kept: Retention) -> None:
    """Set how long facts are kept. Raises TransportError."""
    await commands.execute("SET", Keys(namespace).facts_kept, encode_retention(kept))
