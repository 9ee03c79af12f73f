"""Keeps decisions that wait for a person while no process waits for them, and the claims on them.

Each has two keys in the shared store:

    deferred:ID           owner, and the data to go on; stays for a day beyond its time
    deferred:ID:answer    claim with its answer: written in one atomic step, by one claimant alone

The writer of the second key decides, and nobody else ever. It is an agent with a person's answer; or the
agent that asked, if the time is over or a scheduler objected after all; or the keeper of a budget with a
reservation for it, if the time is over and the agent is gone. The first key then names the claim, too: if a
server forgets one of the two keys, nobody goes on twice. If a server is set back behind both, the claimant
writes its claim again (the gate keeps what it claimed). Times are by the server's clock alone. The body is
the gate's; a gate believes it if it has the token that seals it.
"""

import math
from typing import Any, Final, Literal, NamedTuple, cast, get_args

from toolgate_bus.errors import CodecError, TransportError
from toolgate_bus.protocol.packing import MAX_QUESTION, pack, unpack
from toolgate_bus.transport.ports import Store

KEPT_S: Final = 86_400.0
"""Seconds that a decision and its end are known after its time."""
MAX_DEFERRAL_S: Final = 30 * 86_400.0
MAX_PERSON: Final = 128
"""Maximum number of characters of a person's name."""
MAX_KEPT: Final = MAX_QUESTION - 1024
"""Maximum size of a kept decision in bytes; the rest is for the claim."""
_PREFIX: Final = "deferred:"
_TAKEN: Final = "taken"

End = Literal["allow", "refuse", "expired", "denied"]
"""End of a waiting decision. `denied`: a scheduler objected after it was deferred and before the answer."""
_ENDS: Final[tuple[str, ...]] = get_args(End)


class Claim(NamedTuple):
    """A claim on a waiting decision, with its answer."""

    by: str
    """Orchestrator that goes on with the decision; empty if its time was over, so that it ends."""
    answer: End
    person: str = ""
    mark: str = ""
    """Mark that tells this attempt from every other: it can be repeated if its reply was lost."""


class Deferral(NamedTuple):
    """A waiting decision as it is kept."""

    owner: str
    """Orchestrator that asked. It owns the call's reservations until somebody takes the decision over."""
    body: bytes
    seconds: float
    """Seconds during which it may be answered, from when it was kept."""
    left_s: float
    """Seconds of these that are left; 0 or less means none."""


class Deferrals:
    """The waiting decisions of one namespace. Every method raises TransportError if the store fails."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def keep(self, decision: str, owner: str, body: bytes, seconds: float) -> None:
        """Keep a decision for `seconds`. Raises TransportError also if it is too long to be kept."""
        value = pack({"owner": owner, "seconds": seconds, "body": body})
        if len(value) > MAX_KEPT:
            raise TransportError(f"a kept decision has at most {MAX_KEPT} bytes, this one {len(value)}")
        await self._store.put(_PREFIX + decision, value, seconds + KEPT_S)

    async def find(self, decision: str) -> Deferral | None:
        """Return a kept decision; None if there is none, or if it is malformed."""
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
        """Claim a decision. Return the claim that stands: this one or an earlier one; None if none is kept.

        Claiming again has the same result: a claim whose reply was lost may have been taken.
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
        """Note the claim in the kept decision as well, in case the server forgets the claim itself."""
        key, fields = _PREFIX + decision, _read(kept)
        left = await self._store.seconds_left(key)
        if fields and left is not None and left != math.inf:
            await self._store.put(key, pack({**fields, _TAKEN: claim._asdict()}), left)

    async def find_claim(self, decision: str) -> Claim | None:
        """Return the claim on a decision; None if there is none."""
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
    return Claim("", "denied")  # a malformed claim: whatever it was, nobody may go on with the decision


def _mark(decision: str) -> str:
    return f"{_PREFIX}{decision}:answer"


def _read(raw: bytes | None) -> dict[Any, Any]:
    try:
        found = unpack(raw) if raw else {}
    except CodecError:
        return {}
    return found if isinstance(found, dict) else {}
