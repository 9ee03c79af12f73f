"""Optional signatures with shared keys: HMAC-SHA256, checked before a body is decoded.

Each scheduler has one key. A signature covers first the namespace and the kind of the message, then the rest,
each part with its length: a message signed in one place, or as one kind, is not valid as another. A
question's covers the decision's id, the phase and the body (`packing.bytes_to_sign`). A verdict's covers the
digest of all that as well, so it fits no other decision, not even a word-for-word repeated call.

A signature begins with a byte that names its scheme (`SCHEME`). Older releases had none, and signed without
the namespace. Their signatures are refused, and `names_other_scheme` tells them from forgeries.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final, Literal

Kind = Literal["question", "verdict", "withdrawn", "heartbeat", "config", "deferral"]
"""Kind of a signed message. A signature of one kind is not valid for another."""
SCHEME: Final = b"\x02"
"""First byte of a signature made with this scheme."""
SIZE: Final = 33
OTHER_SCHEME: Final = (
    "signed as another release of Toolgate signs (stop the whole fleet, bring it to one release, start it)"
)
"""Text about a signature of another release."""


_MAX_SIGNERS: Final = 1024
_BLOCK: Final = 64
"""Size of a block of SHA-256, in bytes."""
_INNER: Final = bytes(one ^ 0x36 for one in range(256))
_OUTER: Final = bytes(one ^ 0x5C for one in range(256))
"""Tables that make the two hashes of a key different, as HMAC (RFC 2104) requires."""


def digest(message: bytes) -> bytes:
    """Return SHA-256 of a verdict's body, or of the bytes that a question's signature covers; 32 bytes."""
    return hashlib.sha256(message).digest()


def make_signature(
    key: bytes, namespace: str, kind: Kind, *parts: bytes, names: tuple[str, ...] = ()
) -> bytes:
    """Return the signature of a message of this kind in this namespace. `names` are the first parts."""
    return _Signer(key, namespace, kind, names).sign(parts)


class _Signer:
    """Signs messages with the same beginning: the only place that makes a signature.

    HMAC hashes the key, then the message, in two hashes. The hashes of the key and the first parts are kept,
    and copied for each signature: with the whole HMAC a signed decision takes 5 % more time.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes, namespace: str, kind: Kind, names: tuple[str, ...]) -> None:
        block = (key if len(key) <= _BLOCK else digest(key)).ljust(_BLOCK, b"\0")
        self._inner = hashlib.sha256(block.translate(_INNER))
        self._outer = hashlib.sha256(block.translate(_OUTER))
        for one in (namespace, kind, *names):
            part = one.encode()
            self._inner.update(len(part).to_bytes(4, "big") + part)

    def sign(self, parts: tuple[bytes, ...]) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        for part in parts:
            inner.update(len(part).to_bytes(4, "big") + part)
        outer.update(inner.digest())
        return SCHEME + outer.digest()


def names_other_scheme(mac: Any) -> bool:
    """Return whether a signature looks like another release's. It proves nothing: use it for texts only."""
    return isinstance(mac, bytes) and (len(mac) == SIZE - 1 or (len(mac) == SIZE and mac[:1] != SCHEME))


class Keyring:
    """Shared keys by scheduler name, for use in one namespace."""

    __slots__ = ("_keys", "_namespace", "_signers")

    def __init__(self, keys: Mapping[str, bytes], namespace: str) -> None:
        self._keys, self._namespace = dict(keys), namespace
        self._signers: dict[tuple[Kind, tuple[str, ...]], _Signer] = {}

    def knows(self, scheduler: str) -> bool:
        """Return whether there is a key for this scheduler."""
        return scheduler in self._keys

    def sign(self, kind: Kind, names: tuple[str, ...], *parts: bytes) -> bytes:
        """Sign with the key of the scheduler that is the first of the names. Raises KeyError without one."""
        signer = self._signers.get((kind, names))
        if signer is None:
            signer = _Signer(self._keys[names[0]], self._namespace, kind, names)
            if len(self._signers) >= _MAX_SIGNERS:  # strangers choose some of the names
                self._signers.clear()
            self._signers[kind, names] = signer
        return signer.sign(parts)

    def is_genuine(self, kind: Kind, names: tuple[str, ...], mac: bytes | None, *parts: bytes) -> bool:
        """Return whether the signature is the one of these parts."""
        if mac is None or names[0] not in self._keys:
            return False
        return hmac.compare_digest(mac, self.sign(kind, names, *parts))

    def sign_question(self, orchestrator: str, scheduler: str, signed: bytes, version: int = 1) -> bytes:
        """Sign a question (`packing.bytes_to_sign`). Raises KeyError without a key."""
        return self.sign("question", (scheduler, orchestrator, chr(version)), signed)

    def sign_withdrawn(self, orchestrator: str, scheduler: str, signed: bytes, version: int = 1) -> bytes:
        """Sign a withdrawal. Raises KeyError without a key."""
        return self.sign("withdrawn", (scheduler, orchestrator, chr(version)), signed)

    def sign_verdict(
        self, orchestrator: str, scheduler: str, question: bytes, body: bytes, version: int = 1
    ) -> bytes:
        """Sign a verdict on the question with this digest. Raises KeyError without a key."""
        return self.sign("verdict", (scheduler, orchestrator, chr(version)), question, body)

    def sign_heartbeat(self, scheduler: str, replica: str, told: bytes) -> bytes:
        """Sign a replica's heartbeat on the roster. Raises KeyError without a key."""
        return self.sign("heartbeat", (scheduler, replica), told)

    def is_question(
        self, orchestrator: str, scheduler: str, signed: bytes, mac: bytes | None, version: int = 1
    ) -> bool:
        """Return whether the signature is this question's."""
        return self.is_genuine("question", (scheduler, orchestrator, chr(version)), mac, signed)

    def is_withdrawn(
        self, orchestrator: str, scheduler: str, signed: bytes, mac: bytes | None, version: int = 1
    ) -> bool:
        """Return whether the signature is this withdrawal's."""
        return self.is_genuine("withdrawn", (scheduler, orchestrator, chr(version)), mac, signed)

    def is_verdict(
        self,
        orchestrator: str,
        scheduler: str,
        question: bytes,
        body: bytes,
        mac: bytes | None,
        version: int = 1,
    ) -> bool:
        """Return whether the signature is this verdict's, for the question with this digest."""
        return self.is_genuine("verdict", (scheduler, orchestrator, chr(version)), mac, question, body)

    def is_heartbeat(self, scheduler: str, replica: str, told: bytes, mac: bytes | None) -> bool:
        """Return whether the signature is this replica's, for this heartbeat."""
        return self.is_genuine("heartbeat", (scheduler, replica), mac, told)
