"""Access to a sidecar: its tokens and TLS files."""

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from toolgate_bus.commands.http_access import check_token
from toolgate_bus.errors import ConfigError
from toolgate_bus.server.settings import read_secret

MAX_TOKENS: Final = 100
_BEARER: Final = b"bearer "


class TlsFiles(NamedTuple):
    """Certificate and key of the sidecar, and the CA that signs its callers' certificates."""

    cert: Path
    key: Path
    client_ca: Path | None


class AccessTokens:
    """The tokens of a sidecar; none are needed if the socket, or mutual TLS, identifies callers."""

    def __init__(self, tokens: Iterable[str] = ()) -> None:
        self._digests = [_digest(token.encode()) for token in tokens]

    @property
    def is_needed(self) -> bool:
        """True if callers must send a token."""
        return bool(self._digests)

    def admits(self, authorization: bytes | None) -> bool:
        """Return whether an Authorization header has one of the tokens; its time reveals nothing of them."""
        if not self._digests:
            return True
        if authorization is None or authorization[: len(_BEARER)].lower() != _BEARER:
            return False
        found = _digest(authorization[len(_BEARER) :].strip())
        return sum([hmac.compare_digest(found, one) for one in self._digests]) > 0


def read_tokens(path: Path) -> tuple[str, ...]:
    """Return the tokens in a file, one per line.

    Raises ConfigError if there is none, one is too short, or other users can read the file.
    """
    lines = read_secret(path, "--token-file").decode("utf-8", "replace").splitlines()
    tokens = tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
    if not tokens:
        raise ConfigError(f"--token-file: {path} has no token; write one: openssl rand -hex 24 > {path}")
    if len(tokens) > MAX_TOKENS:
        raise ConfigError(f"--token-file: {path}: it may have at most {MAX_TOKENS} tokens, one per line")
    for number, token in enumerate(tokens, 1):
        check_token(token, f"--token-file: {path}: token {number}")
    return tokens


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
