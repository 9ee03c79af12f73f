"""What goes wrong between a caller and the sidecar, with the words that say what to do. Pure."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

PROBLEM_TYPE: Final = b"application/problem+json"
PLAIN_TYPE: Final = b"text/plain; charset=utf-8"
_NOTHING: Final[Mapping[str, str]] = {}


class Problem(Exception):  # noqa: N818 - it is what RFC 9457 calls it
    """An answer that is none."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] = _NOTHING) -> None:
        """`headers` go with it: Allow, Retry-After, WWW-Authenticate."""
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers

    def as_json(self) -> bytes:
        """The body as `application/problem+json`."""
        fields = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        return json.dumps(fields).encode()

    def as_text(self) -> bytes:
        """The words alone, which AuthZEN asks for."""
        return self.detail.encode("utf-8", "replace")


def refuse_overload(words: str, seconds: int = 1) -> Problem:
    """There is too much to do at the moment."""
    return Problem(503, f"{words}: try again in {seconds} s", {"retry-after": str(seconds)})


def refuse_stranger() -> Problem:
    """The token is wrong, or missing."""
    return Problem(
        401,
        "send the token of this sidecar: Authorization: Bearer TOKEN (its --token-file has it)",
        {"www-authenticate": 'Bearer realm="toolgate"'},
    )
