"""Names of the Redis keys (DESIGN §5): pure, so that both sides and the ACL files agree.

`{…}` is the Cluster hash tag. One writer a stream wherever possible: the key names the sender.
"""

from typing import Final

SHARD: Final = "0"
"""The only shard for now; the key layout leaves room for more."""


class Keys:
    """All key names of one namespace."""

    __slots__ = ("_ledger", "_ns", "_shard")

    def __init__(self, namespace: str, shard: str = SHARD) -> None:
        self._shard = f"tg:{{{namespace}:{shard}}}"
        self._ns = f"tg:{{{namespace}}}"
        self._ledger = f"tg:{{{namespace}:ledger}}"

    def inbox(self, scheduler: str) -> str:
        """Questions for a scheduler; written by orchestrators, read by its consumer group."""
        return f"{self._shard}:in:{scheduler}"

    def verdicts(self, orchestrator: str, scheduler: str) -> str:
        """Verdicts of one scheduler for one orchestrator."""
        return f"{self._shard}:out:{orchestrator}:{scheduler}"

    def wake(self, orchestrator: str) -> str:
        """Makes an orchestrator's blocked read return, so that it looks at the roster again."""
        return f"{self._shard}:wake:{orchestrator}"

    def control(self, orchestrator: str) -> str:
        """Orders of operators to one orchestrator process."""
        return f"{self._shard}:ctl:{orchestrator}"

    def facts(self, orchestrator: str) -> str:
        """What happened in one orchestrator process."""
        return f"{self._shard}:facts:{orchestrator}"

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
    """A key in the slot of the streams of the namespace of this one; None for a key of another kind."""
    tag = key.partition("{")[2].partition("}")[0]
    namespace = tag.partition(":")[0]
    return f"tg:{{{namespace}:{SHARD}}}" if namespace and key.startswith("tg:{") else None
