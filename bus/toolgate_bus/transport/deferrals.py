"""Decisions that wait for a person while no process waits for them: what is kept, and who goes on with it.

Two keys of the shared store for each:

    deferred:ID           who asked, and what is needed to go on; stays for a day beyond its time
    deferred:ID:answer    who took it, and with which answer: written by one atomic step, by one alone

Whoever wrote the second decides, and nobody else ever: an agent with a person's answer; the agent that asked,
where its time is over or somebody objected after all; or the keeper of a budget of which something is
reserved for it, where its time is over and the agent is gone. The first says so from then on, too: a server
that forgets one of the two has nobody go on twice. One that is set back behind both is told again by who
took it (the gate keeps what it claimed). Times are by the server's clock alone. What is in
the body is the gate's affair; it is believed by who has the token that seals it.
"""

import math
from typing import Any, Final, Literal, NamedTuple, cast, get_args

from toolgate_bus.errors import CodecError, TransportError
from toolgate_bus.protocol.packing import MAX_QUESTION, pack, unpack
from toolgate_bus.transport.ports import Store

KEPT_S: Final = 86_400.0
"""For so long after its time it is known that there was such a question, and what became of it."""
MAX_DEFERRAL_S: Final = 30 * 86_400.0
MAX_PERSON: Final = 128
"""Characters of a person's name."""
MAX_KEPT: Final = MAX_QUESTION - 1024
"""Bytes; the rest is for who takes it."""
_PREFIX: Final = "deferred:"
_TAKEN: Final = "taken"

End = Literal["allow", "refuse", "expired", "denied"]
"""`denied`: somebody objected after it was put off, and before it was answered."""
_ENDS: Final[tuple[str, ...]] = get_args(End)


class Claim(NamedTuple):
    """Who took a decision that waited, and with which answer."""

    by: str
    """The orchestrator that goes on with it; nobody: its time was over, and it ends with that."""
    answer: End
    person: str = ""
    mark: str = ""
    """Tells this attempt from every other, so that one whose reply was lost can be made again."""


class Deferral(NamedTuple):
    """What is kept of a decision that waits."""

    owner: str
    """The orchestrator that asked; what is reserved for the call is its own until somebody takes it over."""
    body: bytes
    seconds: float
    """So long it may be answered, from when it was kept."""
    left_s: float
    """So much of that is left; 0 or less: none."""


class Deferrals:
    """Those of one namespace. Every method raises TransportError where the store does not answer."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def keep(self, decision: str, owner: str, body: bytes, seconds: float) -> None:
        """Keep a decision for so long; raises TransportError also where it is too long to be kept."""
        value = pack({"owner": owner, "seconds": seconds, "body": body})
        if len(value) > MAX_KEPT:
            raise TransportError(f"what is to be kept has {len(value)} bytes, and {MAX_KEPT} can be")
        await self._store.put(_PREFIX + decision, value, seconds + KEPT_S)

    async def find(self, decision: str) -> Deferral | None:
        """What is kept of a decision; None where nothing is, or something that nobody can read."""
        key = _PREFIX + decision
        fields = _read(await self._store.get(key))
        left = await self._store.seconds_left(key)
        owner, body, seconds = fields.get("owner"), fields.get("body"), fields.get("seconds")
        if not isinstance(owner, str) or not isinstance(body, bytes) or left is None:
            return None
        if not isinstance(seconds, int | float) or not 0 < seconds <= MAX_DEFERRAL_S or left == math.inf:
            return None
        return Deferral(owner, body, float(seconds), left - KEPT_S)

    async def claim(self, decision: str, claim: Claim) -> Claim | None:
        """Take a decision; gives whose claim stands, which is this one or an earlier. None: nothing is kept.

        Made again, it is the same: a claim whose reply was lost may have been taken.
        """
        standing = await self.find_claim(decision)
        if standing is not None and standing != claim:
            return standing
        stays_s = MAX_DEFERRAL_S + 2 * KEPT_S
        won, kept = await self._store.lease(
            _PREFIX + decision, _mark(decision), pack(claim._asdict()), stays_s
        )
        if kept is None:
            return None
        if won:
            await self._stamp(decision, kept, claim)
        return claim if won else await self.find_claim(decision)

    async def _stamp(self, decision: str, kept: bytes, claim: Claim) -> None:
        """Have what is kept say that it is taken, in case that the claim itself is forgotten."""
        key, fields = _PREFIX + decision, _read(kept)
        left = await self._store.seconds_left(key)
        if fields and left is not None and left != math.inf:
            await self._store.put(key, pack({**fields, _TAKEN: claim._asdict()}), left)

    async def find_claim(self, decision: str) -> Claim | None:
        """Who took it; None where nobody has."""
        raw = await self._store.get(_mark(decision))
        if raw is not None:
            return _read_claim(_read(raw))
        taken = _read(await self._store.get(_PREFIX + decision)).get(_TAKEN)
        return None if taken is None else _read_claim(taken)


def _read_claim(fields: Any) -> Claim:
    if isinstance(fields, dict):
        by, answer, person = fields.get("by"), fields.get("answer"), fields.get("person")
        if isinstance(by, str) and answer in _ENDS and isinstance(person, str):
            mark = str(fields.get("mark"))[:64]
            return Claim(by[:MAX_PERSON], cast("End", answer), person[:MAX_PERSON], mark)
    return Claim("", "denied")  # something is there: whatever it is, nobody may go on with it


def _mark(decision: str) -> str:
    return f"{_PREFIX}{decision}:answer"


def _read(raw: bytes | None) -> dict[Any, Any]:
    try:
        found = unpack(raw) if raw else {}
    except CodecError:
        return {}
    return found if isinstance(found, dict) else {}
