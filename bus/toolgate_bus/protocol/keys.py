"""Names of the Redis keys: pure, so that both sides and the ACL files agree.

`{…}` is the Cluster hash tag. One writer a stream wherever possible: the key names the sender.
Streams lie in shards. That of an orchestrator is told by its name, and what is written for it or by it lies
there; a scheduler has an inbox in each.
"""

import re
from typing import Final

MAX_SHARDS: Final = 16
"""The first is 0; a shard's name is one hexadecimal digit."""
SHARED_GROUP: Final = "toolgate:shared"
"""Consumer group, on each inbox, of processes that run several schedulers; no scheduler may be named so."""
_SHARDED: Final = re.compile(r"[0-9a-f]{16}s([1-9a-f])")
_LENGTH: Final = 18


def name_orchestrator(random: str, shard: int) -> str:
    """The name of an orchestrator that lies in that shard; `random` is 16 hexadecimal digits."""
    return f"{random}s{shard:x}" if shard else random


def shard_of(orchestrator: str) -> int:
    """The shard in which the streams of an orchestrator lie; 0 for each name that says no other."""
    found = _SHARDED.fullmatch(orchestrator) if len(orchestrator) == _LENGTH else None
    return int(found[1], 16) if found else 0


class Keys:
    """All key names of one namespace; `shard` is where inboxes are looked for."""

    __slots__ = ("_first", "_ledger", "_ns", "_own", "_shards")

    def __init__(self, namespace: str, shard: int = 0) -> None:
        self._shards = tuple(f"tg:{{{namespace}:{number:x}}}" for number in range(MAX_SHARDS))
        self._first, self._own = self._shards[0], self._shards[shard]
        self._ns = f"tg:{{{namespace}}}"
        self._ledger = f"tg:{{{namespace}:ledger}}"

    def inbox(self, scheduler: str) -> str:
        """Questions for a scheduler; written by orchestrators, read by its consumer group."""
        return f"{self._own}:in:{scheduler}"

    def verdicts(self, orchestrator: str, scheduler: str) -> str:
        """Verdicts of one scheduler for one orchestrator."""
        return f"{self._of(orchestrator)}:out:{orchestrator}:{scheduler}"

    def wake(self, orchestrator: str) -> str:
        """Makes an orchestrator's blocked read return, so that it looks at the roster again."""
        return f"{self._of(orchestrator)}:wake:{orchestrator}"

    def control(self, orchestrator: str) -> str:
        """Orders of operators to one orchestrator process."""
        return f"{self._of(orchestrator)}:ctl:{orchestrator}"

    def facts(self, orchestrator: str) -> str:
        """What happened in one orchestrator process."""
        return f"{self._of(orchestrator)}:facts:{orchestrator}"

    def _of(self, orchestrator: str) -> str:
        return self._first if len(orchestrator) != _LENGTH else self._shards[shard_of(orchestrator)]

    @property
    def shards(self) -> str:
        """Over how many shards new orchestrators spread, as operators set it."""
        return f"{self._ns}:shards"

    @property
    def shards_used(self) -> str:
        """Hash: for each shard but the first, when an orchestrator there last said that it is alive."""
        return f"{self._ns}:roster-shards"

    @property
    def roster(self) -> str:
        """Version 1's set of everyone who may be alive, as `kind:…` members."""
        return f"{self._ns}:roster"

    def roster_of(self, kind: str, minute: int) -> str:
        """Set of those of one kind (`schedulers` …) who were alive in this minute of the server; expires."""
        return f"{self._ns}:roster:{kind}:{minute}"

    def member(self, member: str) -> str:
        """Heartbeat of one roster member; expires."""
        return f"{self._ns}:roster:{member}"

    def agents(self, orchestrator: str) -> str:
        """The live sessions of one orchestrator process; expires."""
        return f"{self._ns}:agents:{orchestrator}"

    def tools(self, digest: str) -> str:
        """The set of tools that has this digest, written by any process that announces it; expires."""
        return f"{self._ns}:tools:{digest}"

    @property
    def pauses(self) -> str:
        """Hash of what operators have paused, a field each, and when that was last changed."""
        return self.store_key("pauses")

    @property
    def starts(self) -> str:
        """Counter that orders starts in the namespace."""
        return f"{self._ns}:roster-starts"

    @property
    def writers(self) -> str:
        """Sorted set of the orchestrators whose facts are kept, by server time of the last beat."""
        return f"{self._ns}:roster-facts"

    def hold(self, scheduler: str, decision: bytes, phase: int) -> str:
        """What a scheduler keeps of a call that it holds; phase 0 is select, 1 is verify."""
        return self.store_key(f"{hold_prefix(scheduler)}{decision.hex()}:{phase}")

    def store_key(self, key: str) -> str:
        """One key of the shared store, in the ledger's slot."""
        return f"{self._ledger}:{key}"


def hold_prefix(scheduler: str) -> str:
    """How the holds of a scheduler begin in the shared store."""
    return f"hold:{scheduler}:"


def streams_near(key: str) -> str | None:
    """A key in the slot of streams of the namespace of this one: of its shard, or of the first.

    None for a key of another kind.
    """
    tag = key.partition("{")[2].partition("}")[0]
    namespace, _, part = tag.partition(":")
    shard = part if len(part) == 1 else "0"
    return f"tg:{{{namespace}:{shard}}}" if namespace and key.startswith("tg:{") else None
