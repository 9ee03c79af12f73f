"""Who may talk to a sidecar: its tokens."""

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
    """Certificate and key of the sidecar, and who signs its callers'."""

    cert: Path
    key: Path
    client_ca: Path | None


class AccessTokens:
    """The tokens of a sidecar; none are needed where the socket, or TLS, says who calls."""

    def __init__(self, tokens: Iterable[str] = ()) -> None:
        self._digests = [_digest(token.encode()) for token in tokens]

    @property
    def is_needed(self) -> bool:
        """Whether callers must send one."""
        return bool(self._digests)

    def admits(self, authorization: bytes | None) -> bool:
        """Whether an Authorization header has one of the tokens; in a time that tells nothing about them."""
        if not self._digests:
            return True
        if authorization is None or authorization[: len(_BEARER)].lower() != _BEARER:
            return False
        found = _digest(authorization[len(_BEARER) :].strip())
        return sum([hmac.compare_digest(found, one) for one in self._digests]) > 0


def read_tokens(path: Path) -> tuple[str, ...]:
    """The tokens in a file, one a line; raises ConfigError for none, for short ones, and where others can
    read it."""
    lines = read_secret(path, "--token-file").decode("utf-8", "replace").splitlines()
    tokens = tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
    if not tokens:
        raise ConfigError(f"--token-file: {path} has no token: openssl rand -hex 24 > {path}")
    if len(tokens) > MAX_TOKENS:
        raise ConfigError(f"--token-file: {path}: at most {MAX_TOKENS} tokens, one a line")
    for number, token in enumerate(tokens, 1):
        check_token(token, f"--token-file: {path}: token {number}")
    return tokens


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
