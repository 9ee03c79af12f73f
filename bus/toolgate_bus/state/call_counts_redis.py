"""Counts of calls on a Redis or Valkey server, and their twin in memory.

Counting is a script run by the server (`call_counts_script`), and may be repeated.
"""

import time

from toolgate_bus.protocol.keys import Keys
from toolgate_bus.state.call_counts import KEPT_MS, MEMO_MS, Counting, Counts, Delegated, Made, checked_window
from toolgate_bus.state.call_counts_script import COUNT, DELEGATE
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.scripts import run_script

__all__ = ["MemoryTally", "RedisTally"]


class RedisTally:
    """`Tally` on a server; `name` keeps several apart, such as those of shadows."""

    def __init__(self, commands: Commands, namespace: str, name: str = "tally") -> None:
        self._commands = commands
        self._prefix = Keys(namespace).stored(name)

    async def count(self, scope: str, decision: str, made: Made, window: int = 0) -> Counts:
        """Count a call, once for each decision; `scope` keeps those apart who count different calls."""
        words = (decision, made.session, made.tree, made.call, made.iteration, made.group)
        limits = (checked_window(window), MEMO_MS, KEPT_MS)
        said = await run_script(self._commands, COUNT, f"{self._prefix}:{scope}", *words, *limits)
        session, tree, turn, row, recent, ms = map(int, said.split())
        return Counts(session, tree, turn, row, recent, ms / 1000)

    async def delegate(
        self, scope: str, decision: str, made: Made, session: int | None, tree: int | None
    ) -> Delegated:
        """Count a delegation, once for each decision, where there are not so many yet; None has no limit."""
        of_session, of_tree = (-1 if limit is None else limit for limit in (session, tree))
        words = (decision, made.session, made.tree, of_session, of_tree, MEMO_MS, KEPT_MS)
        said = await run_script(self._commands, DELEGATE, f"{self._prefix}:{scope}", *words)
        counted, width, agents = map(int, said.split())
        return Delegated(bool(counted), width, agents)


class MemoryTally:
    """`Tally` in this process; for tests of schedulers."""

    def __init__(self) -> None:
        self.counting = Counting()

    async def count(self, scope: str, decision: str, made: Made, window: int = 0) -> Counts:
        """Count a call, once for each decision; `scope` keeps those apart who count different calls."""
        return self.counting.count(scope, decision, made, window, time.time_ns() // 1_000_000)

    async def delegate(
        self, scope: str, decision: str, made: Made, session: int | None, tree: int | None
    ) -> Delegated:
        """Count a delegation, once for each decision, where there are not so many yet; None has no limit."""
        return self.counting.delegate(scope, decision, made, session, tree)
