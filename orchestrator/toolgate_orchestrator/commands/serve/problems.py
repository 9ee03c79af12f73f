"""Errors that a caller of the sidecar gets, with the words that say what to do. Pure."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

PROBLEM_TYPE: Final = b"application/problem+json"
PLAIN_TYPE: Final = b"text/plain; charset=utf-8"
_NOTHING: Final[Mapping[str, str]] = {}


class Problem(Exception):  # noqa: N818 - it is what RFC 9457 calls it
    """An error that is sent to a caller."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] = _NOTHING) -> None:
        """`headers` are sent with it: Allow, Retry-After, WWW-Authenticate."""
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers

    def as_json(self) -> bytes:
        """Return the body as `application/problem+json`."""
        fields = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        return json.dumps(fields).encode()

    def as_text(self) -> bytes:
        """Return the words alone, as AuthZEN requires."""
        return self.detail.encode("utf-8", "replace")


def refuse_overload(words: str, seconds: int = 1) -> Problem:
    """Return the problem that the sidecar has too much to do at the moment."""
    return Problem(503, f"{words}; try again in {seconds} s", {"retry-after": str(seconds)})


def refuse_stranger() -> Problem:
    """Return the problem that the token is wrong or missing."""
    return Problem(
        401,
        "send a token of this sidecar (from its --token-file): Authorization: Bearer TOKEN",
        {"www-authenticate": 'Bearer realm="toolgate"'},
    )
