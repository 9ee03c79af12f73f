"""Names of the Redis keys: pure, so that both sides and the ACL files agree.

`{…}` is the Cluster hash tag. Each stream has one writer wherever possible: the key names the sender. Streams
lie in shards. An orchestrator's name tells its shard, and streams written by it or for it lie there; a
scheduler has an inbox in each shard.
"""

import re
from typing import Final

MAX_SHARDS: Final = 16
"""Maximum number of shards. The first is 0; a shard's name is one hexadecimal digit."""
SHARED_GROUP: Final = "toolgate:shared"
"""Consumer group, on each inbox, of processes with several schedulers; no scheduler may have its name."""
_SHARDED: Final = re.compile(r"[0-9a-f]{16}s([1-9a-f])")
_LENGTH: Final = 18


def name_orchestrator(random: str, shard: int) -> str:
    """Return the name of an orchestrator in that shard; `random` is 16 hexadecimal digits."""
    return f"{random}s{shard:x}" if shard else random


def shard_of(orchestrator: str) -> int:
    """Return the shard of an orchestrator's streams; 0 for a name without a shard."""
    found = _SHARDED.fullmatch(orchestrator) if len(orchestrator) == _LENGTH else None
    return int(found[1], 16) if found else 0


class Keys:
    """All key names of one namespace; `shard` is the shard of the inboxes."""

    __slots__ = ("_first", "_ledger", "_ns", "_own", "_shards")

    def __init__(self, namespace: str, shard: int = 0) -> None:
        self._shards = tuple(f"tg:{{{namespace}:{number:x}}}" for number in range(MAX_SHARDS))
        self._first, self._own = self._shards[0], self._shards[shard]
        self._ns = f"tg:{{{namespace}}}"
        self._ledger = f"tg:{{{namespace}:ledger}}"

    def inbox(self, scheduler: str) -> str:
        """Return the key of a scheduler's questions; orchestrators write, its consumer group reads."""
        return f"{self._own}:in:{scheduler}"

    def verdicts(self, orchestrator: str, scheduler: str) -> str:
        """Return the key of one scheduler's verdicts for one orchestrator."""
        return f"{self._of(orchestrator)}:out:{orchestrator}:{scheduler}"

    def wake(self, orchestrator: str) -> str:
        """Return the key of a stream whose entries make an orchestrator read the roster again."""
        return f"{self._of(orchestrator)}:wake:{orchestrator}"

    def control(self, orchestrator: str) -> str:
        """Return the key of operators' orders to one orchestrator process."""
        return f"{self._of(orchestrator)}:ctl:{orchestrator}"

    def facts(self, orchestrator: str) -> str:
        """Return the key of the facts of one orchestrator process."""
        return f"{self._of(orchestrator)}:facts:{orchestrator}"

    def _of(self, orchestrator: str) -> str:
        return self._first if len(orchestrator) != _LENGTH else self._shards[shard_of(orchestrator)]

    @property
    def shards(self) -> str:
        """Key of the number of shards over which new orchestrators spread, as operators set it."""
        return f"{self._ns}:shards"

    @property
    def shards_used(self) -> str:
        """Key of a hash: for each shard but the first, the time of the last sign of life there."""
        return f"{self._ns}:roster-shards"

    @property
    def roster(self) -> str:
        """Key of version 1's set of everyone who may be alive, as `kind:…` members."""
        return f"{self._ns}:roster"

    def roster_of(self, kind: str, minute: int) -> str:
        """Return the key of members of one kind (`schedulers` …) in this minute of the server; expires."""
        return f"{self._ns}:roster:{kind}:{minute}"

    def member(self, member: str) -> str:
        """Return the key of one roster member's heartbeat; expires."""
        return f"{self._ns}:roster:{member}"

    def agents(self, orchestrator: str) -> str:
        """Return the key of the live sessions of one orchestrator process; expires."""
        return f"{self._ns}:agents:{orchestrator}"

    def tools(self, digest: str) -> str:
        """Return the key of the tools with this digest, written by any process with them; expires."""
        return f"{self._ns}:tools:{digest}"

    @property
    def pauses(self) -> str:
        """Key of a hash of operators' pauses, one field each, and the time of the last change."""
        return self.store_key("pauses")

    def session_labels(self, session: str) -> str:
        """Return the key of a hash of a session's labels; without a session, of the mark of them all."""
        return self.store_key(f"session-labels:{session}")

    @property
    def starts(self) -> str:
        """Key of the counter that orders starts in the namespace."""
        return f"{self._ns}:roster-starts"

    @property
    def writers(self) -> str:
        """Key of a sorted set of orchestrators whose facts are kept, by server time of the last beat."""
        return f"{self._ns}:roster-facts"

    @property
    def facts_kept(self) -> str:
        """Key of how long facts are kept, and how many bytes, as operators set it."""
        return f"{self._ns}:facts-keep"

    @property
    def facts_bytes(self) -> str:
        """Key of a hash: for each minute of the server's clock, the bytes of facts written in it."""
        return f"{self._ns}:facts-bytes"

    def hold(self, scheduler: str, decision: bytes, phase: int) -> str:
        """Return the key of the state of a call that a scheduler holds; phase 0 is select, 1 is verify."""
        return self.store_key(f"{hold_prefix(scheduler)}{decision.hex()}:{phase}")

    def store_key(self, key: str) -> str:
        """Return a key of the shared store, in the ledger's slot."""
        return f"{self._ledger}:{key}"


def hold_prefix(scheduler: str) -> str:
    """Return the prefix of a scheduler's holds in the shared store."""
    return f"hold:{scheduler}:"


def streams_near(key: str) -> str | None:
    """Return a key in the slot of streams of this key's namespace: of its shard, or of the first.

    None for a key of another kind.
    """
    tag = key.partition("{")[2].partition("}")[0]
    namespace, _, part = tag.partition(":")
    shard = part if len(part) == 1 else "0"
    return f"tg:{{{namespace}:{shard}}}" if namespace and key.startswith("tg:{") else None
