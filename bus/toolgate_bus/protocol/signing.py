"""Optional signatures with shared keys: HMAC-SHA256, checked before a body is decoded.

One key for each scheduler. Whatever is signed says first what kind of message it is, in which version,
and between which orchestrator and scheduler. A question's signature covers the decision's id, the phase
and the body (`packing.bytes_to_sign`); a verdict's covers the digest of all that as well, so it fits no other
decision, not even a word-for-word repeated call. Version 1 knew questions and verdicts only, and signed a
withdrawal as a question: what tells them apart there is the withdrawal's body (`codec.check_withdrawal`).
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final, Literal

Kind = Literal["question", "verdict", "withdrawn", "heartbeat", "control", "fact"]
"""What a message is. A signature of one kind is none of any other."""
_HEADS: Final = {1: b"toolgate-1", 2: b"toolgate-2"}


def digest(message: bytes) -> bytes:
    """SHA-256 of a verdict's body, or of what a question's signature covers; 32 bytes."""
    return hashlib.sha256(message).digest()


class Keyring:
    """Shared keys by scheduler name."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = dict(keys)

    def knows(self, scheduler: str) -> bool:
        """Whether there is a key for this scheduler."""
        return scheduler in self._keys

    def sign(self, kind: Kind, orchestrator: str, scheduler: str, message: bytes, version: int = 2) -> bytes:
        """Signature of a message of this kind; raises KeyError without a key.

        Whoever is no party to it is left empty: a heartbeat has no orchestrator.
        """
        # Names cannot hold a NUL byte (NAME_PATTERN), so the fields cannot run into each other.
        head = b"\0".join((_HEADS[version], kind.encode(), orchestrator.encode(), scheduler.encode(), b""))
        return hmac.digest(self._keys[scheduler], head + message, "sha256")

    def is_genuine(
        self,
        kind: Kind,
        orchestrator: str,
        scheduler: str,
        message: bytes,
        mac: bytes | None,
        version: int = 2,
    ) -> bool:
        """Whether the signature is this message's."""
        if mac is None or scheduler not in self._keys:
            return False
        return hmac.compare_digest(mac, self.sign(kind, orchestrator, scheduler, message, version))

    def sign_question(self, orchestrator: str, scheduler: str, signed: bytes, version: int = 1) -> bytes:
        """Signature of a question (`packing.bytes_to_sign`); raises KeyError without a key."""
        return self.sign("question", orchestrator, scheduler, signed, version)

    def sign_withdrawn(self, orchestrator: str, scheduler: str, signed: bytes, version: int = 1) -> bytes:
        """Signature of a withdrawal; in version 1 that is a question's."""
        return self.sign(
            "question" if version == 1 else "withdrawn", orchestrator, scheduler, signed, version
        )

    def sign_verdict(
        self, orchestrator: str, scheduler: str, question: bytes, body: bytes, version: int = 1
    ) -> bytes:
        """Signature of a verdict on the question with this digest; raises KeyError without a key."""
        return self.sign("verdict", orchestrator, scheduler, question + body, version)

    def sign_heartbeat(self, scheduler: str, replica: str, told: bytes) -> bytes:
        """Signature of what a replica says of itself on the roster; raises KeyError without a key."""
        return self.sign("heartbeat", "", scheduler, replica.encode() + b"\0" + told)

    def is_question(
        self, orchestrator: str, scheduler: str, signed: bytes, mac: bytes | None, version: int = 1
    ) -> bool:
        """Whether the signature is this question's."""
        return self.is_genuine("question", orchestrator, scheduler, signed, mac, version)

    def is_withdrawn(
        self, orchestrator: str, scheduler: str, signed: bytes, mac: bytes | None, version: int = 1
    ) -> bool:
        """Whether the signature is this withdrawal's."""
        kind: Kind = "question" if version == 1 else "withdrawn"
        return self.is_genuine(kind, orchestrator, scheduler, signed, mac, version)

    def is_verdict(
        self,
        orchestrator: str,
        scheduler: str,
        question: bytes,
        body: bytes,
        mac: bytes | None,
        version: int = 1,
    ) -> bool:
        """Whether the signature is this verdict's, for the question with this digest."""
        return self.is_genuine("verdict", orchestrator, scheduler, question + body, mac, version)

    def is_heartbeat(self, scheduler: str, replica: str, told: bytes, mac: bytes | None) -> bool:
        """Whether the signature is this replica's, of what it says of itself."""
        return self.is_genuine("heartbeat", "", scheduler, replica.encode() + b"\0" + told, mac)
