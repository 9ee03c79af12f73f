"""The user's request, as it goes with a question to the schedulers that ask for it.

It is bounded. Secrets of the call and matches of `redact` patterns are hidden in it. A question that has no
room for it goes without it. Then nothing counts as named by the user.
"""

from collections.abc import Iterable
from typing import Any, Final

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.names import MAX_REQUEST

from toolgate_orchestrator.decision.question.redact import RedactedArguments, Redactor

_MAX_LOOKED_AT: Final = 16 * MAX_REQUEST
"""Number of characters that are searched for secrets before the rest is cut."""


def bound_request(request: Any) -> str:
    """Return a caller's request as a text, no longer than is searched."""
    return str.__str__(request[:_MAX_LOOKED_AT]) if isinstance(request, str) else ""


def with_request(
    body: bytes, request: str, redactor: Redactor, hidden: Iterable[RedactedArguments | None]
) -> bytes:
    """Return the body of a question with the request in it, or unchanged if it does not fit."""
    text: str | None = packing.make_readable(request)
    for arguments in hidden:
        text = redactor.text(text, arguments)
    try:
        whole = codec.add_request(body, (text or "")[:MAX_REQUEST])
    except CodecError:
        return body
    return whole if len(whole) <= packing.MAX_QUESTION else body
