"""Token buckets on a Redis or Valkey server, and their twin in memory.

Taking is one script run by the server (`token_buckets_script`), and may be repeated.
"""

import hashlib
import time
from collections.abc import Sequence

from toolgate_bus.protocol.keys import Keys
from toolgate_bus.state.token_buckets import MEMO_MS, Bucket, Pool, Taken, checked_buckets
from toolgate_bus.state.token_buckets_script import TAKE
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.scripts import run_script

__all__ = ["MemoryBuckets", "RedisBuckets"]


class RedisBuckets:
    """`Buckets` on a server; `name` keeps several apart, such as those of shadows."""

    def __init__(self, commands: Commands, namespace: str, name: str = "buckets") -> None:
        self._commands = commands
        self._prefix = Keys(namespace).stored(name)

    async def take(self, decision: str, buckets: Sequence[Bucket]) -> Taken:
        """Take from each of these buckets that has not given to this decision yet, or from none."""
        words = [word for one in checked_buckets(buckets) for word in one]
        said = await run_script(
            self._commands, TAKE, self._prefix, decision, _digest(buckets), MEMO_MS, *words
        )
        wait_ms, _, short = said.decode("utf-8", "replace").partition(":")
        return Taken(wait_ms == "0", short, int(wait_ms) / 1000)


class MemoryBuckets:
    """`Buckets` in this process; for tests of schedulers."""

    def __init__(self) -> None:
        self.pool = Pool()

    async def take(self, decision: str, buckets: Sequence[Bucket]) -> Taken:
        """Take from each of these buckets that has not given to this decision yet, or from none."""
        return self.pool.take(decision, buckets, time.time_ns() // 1_000_000)


def _digest(buckets: Sequence[Bucket]) -> str:
    """Which buckets were asked, in whatever order."""
    keys = b"".join(hashlib.sha256(key.encode("utf-8", "replace")).digest() for key in _keys(buckets))
    return hashlib.sha256(keys).hexdigest()[:32]


def _keys(buckets: Sequence[Bucket]) -> list[str]:
    return sorted(one.key for one in buckets)
