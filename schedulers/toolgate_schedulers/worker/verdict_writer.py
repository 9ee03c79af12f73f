"""Write a verdict as bytes that its reader will take, and never one weaker than the author's.

Some verdicts cannot be sent as they are: a lone surrogate from the call's own arguments, more than 64 KiB, a
field that no reader knows. Such a verdict is sent with its words repaired; if that does not help, as the same
verdict in Toolgate's words. A replacement cannot be repaired: one that cannot be sent becomes a denial. Pure.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import (
    AskUser,
    Continue,
    Deny,
    Failure,
    Hold,
    Mask,
    MaskedPart,
    Modify,
    Replace,
    Verdict,
)
from toolgate_bus.protocol.names import MAX_REASON

MAX_PROMPT: Final = 16_384
"""Maximum number of characters of a prompt that is too long as a whole."""
_LOST: Final = "(the scheduler's own words could not be sent)"


class EncodedVerdict(NamedTuple):
    """Body of a verdict, and what was wrong with the author's verdict; None if nothing was."""

    verdict: Verdict | Failure
    """Verdict that the body contains."""
    body: bytes
    trouble: str | None = None


def write_verdict(verdict: Verdict | Failure, revision: str = "", start: str = "") -> EncodedVerdict:
    """Return the body of a verdict within the wire's bounds, whatever the author put into it.

    With a revision or a start the body is of version 2.
    """
    if codec.is_plain(verdict):  # nearly every verdict
        return EncodedVerdict(verdict, codec.verdict_body(verdict, revision, start))
    trouble: str | None = None
    for form in (_short, _repair, _ours):
        try:
            made = form(verdict)
            body = codec.verdict_body(made, revision, start)
            # Decode it as the reader will: a verdict that cannot be read would count as silence.
            codec.decode_verdict(body, packing.NEWEST if revision or start else packing.VERSION)
        except Exception as error:  # noqa: BLE001 - whatever an author may have put into it
            trouble = trouble or (str(error) if isinstance(error, CodecError) else type(error).__name__)
        else:
            return EncodedVerdict(made, body, trouble)
    raise AssertionError("our own words can be written")


def _short(verdict: Verdict | Failure) -> Verdict | Failure:
    reason = verdict.reason
    if reason is None or len(reason) <= MAX_REASON:
        return verdict
    return verdict.model_copy(update={"reason": reason[: MAX_REASON - 1] + "…"})


def _repair(verdict: Verdict | Failure) -> Verdict | Failure:
    """Return the verdict with question marks for what cannot be encoded, and its texts cut to size."""
    reason = None if verdict.reason is None else packing.make_readable(verdict.reason)
    changes: dict[str, object] = {"reason": reason}
    if isinstance(verdict, AskUser):
        changes["prompt"] = packing.make_readable(verdict.prompt)[:MAX_PROMPT]
        changes["options"] = tuple(map(packing.make_readable, verdict.options))
    if isinstance(verdict, Mask):
        changes["parts"] = tuple(
            MaskedPart(*part[:3], packing.make_readable(part[3])) for part in verdict.parts
        )
    return _short(verdict.model_copy(update=changes))


def _ours(verdict: Verdict | Failure) -> Verdict | Failure:
    """Return the same verdict without the author's words; its time limit and labels are kept.

    Labels that cannot be sent would be lost, and calls run that they are to stop: so such a call is denied.
    """
    ours = next(make(verdict) for kind, make in _OURS.items() if isinstance(verdict, kind))
    labels = getattr(verdict, "session_labels", None)
    if labels is None:
        return ours
    try:
        return ours.model_copy(update={"session_labels": Continue(session_labels=labels).session_labels})
    except ValueError:
        return Deny(reason="A scheduler gave this session labels that cannot be sent. So it was denied.")


def _strip_ask(verdict: AskUser) -> AskUser:
    return AskUser(
        prompt=f"May this call run? {_LOST}", timeout_s=_clamp_seconds(getattr(verdict, "timeout_s", None))
    )


def _clamp_seconds(seconds: object) -> float:
    fits = isinstance(seconds, int | float) and 0 < seconds <= 86_400
    return float(seconds) if fits and isinstance(seconds, int | float) else 300.0


_OURS: Final[dict[type, Callable[..., Verdict | Failure]]] = {
    Deny: lambda _: Deny(reason=f"This call was denied. {_LOST}"),
    Modify: lambda _: Deny(
        reason="A scheduler wanted to replace this call, but its replacement is too large or cannot be sent. "
        "So the call was denied."
    ),
    Mask: lambda _: Deny(
        reason="A scheduler wanted to hide parts of this result, but its answer is too large or cannot be "
        "sent. So the result is withheld."
    ),
    Replace: lambda _: Deny(
        reason="A scheduler wanted to give another result, but that is too large or cannot be sent. So the "
        "result is withheld."
    ),
    AskUser: _strip_ask,
    Hold: lambda verdict: Hold(seconds=_clamp_seconds(getattr(verdict, "seconds", None))),
    Continue: lambda _: Continue(),
    Failure: lambda _: Failure(),
}
