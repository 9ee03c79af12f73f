"""What the user asked for, as it goes with a question to those schedulers that ask for it.

It is bounded, and what is secret in the call or fits a pattern of `redact` is hidden in it. A question that
has no room for it goes without it: then nothing counts as named by the user.
"""

from collections.abc import Iterable
from typing import Any, Final

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.names import MAX_REQUEST

from toolgate_orchestrator.decision.question.redact import RedactedArguments, Redactor

_MAX_LOOKED_AT: Final = 16 * MAX_REQUEST
"""Characters that are looked through for what is secret, before the rest is cut."""


def bound_request(request: Any) -> str:
    """A request as a caller may give it: a text, no longer than it is looked at."""
    return str.__str__(request[:_MAX_LOOKED_AT]) if isinstance(request, str) else ""


def with_request(
    body: bytes, request: str, redactor: Redactor, hidden: Iterable[RedactedArguments | None]
) -> bytes:
    """The body of a question with the request in it; the same body where it does not fit."""
    text: str | None = packing.make_readable(request)
    for arguments in hidden:
        text = redactor.text(text, arguments)
    try:
        whole = codec.add_request(body, (text or "")[:MAX_REQUEST])
    except CodecError:
        return body
    return whole if len(whole) <= packing.MAX_QUESTION else body
