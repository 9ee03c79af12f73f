"""Optional signatures with shared keys: HMAC-SHA256, checked before a body is decoded (DESIGN §6).

One key for each scheduler. A question's signature names its orchestrator and scheduler and covers the
decision's id, the phase and the body (`codec.signed`); a verdict's covers the digest of all that as
well, so that it fits no other decision, not even a word-for-word repeated call.
"""

import hashlib
import hmac
from collections.abc import Mapping

__all__ = ["Keyring", "digest"]


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

    def sign_question(self, orchestrator: str, scheduler: str, signed: bytes) -> bytes:
        """Signature of a question (`codec.signed`); raises KeyError without a key."""
        return self._mac(scheduler, b"question", orchestrator, signed)

    def sign_verdict(self, orchestrator: str, scheduler: str, question: bytes, body: bytes) -> bytes:
        """Signature of a verdict on the question with this digest; raises KeyError without a key."""
        return self._mac(scheduler, b"verdict", orchestrator, question + body)

    def is_question(self, orchestrator: str, scheduler: str, signed: bytes, mac: bytes | None) -> bool:
        """Whether the signature is this question's."""
        if mac is None or scheduler not in self._keys:
            return False
        return hmac.compare_digest(mac, self.sign_question(orchestrator, scheduler, signed))

    def is_verdict(
        self, orchestrator: str, scheduler: str, question: bytes, body: bytes, mac: bytes | None
    ) -> bool:
        """Whether the signature is this verdict's, for the question with this digest."""
        if mac is None or scheduler not in self._keys:
            return False
        return hmac.compare_digest(mac, self.sign_verdict(orchestrator, scheduler, question, body))

    def _mac(self, scheduler: str, kind: bytes, orchestrator: str, rest: bytes) -> bytes:
        # Names cannot hold a NUL byte (NAME_PATTERN), so the fields cannot run into each other.
        head = b"\0".join((b"toolgate-1", kind, orchestrator.encode(), scheduler.encode(), b""))
        return hmac.digest(self._keys[scheduler], head + rest, "sha256")
