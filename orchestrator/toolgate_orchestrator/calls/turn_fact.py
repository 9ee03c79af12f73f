"""The fact of a turn that has ended, as loops, guards and sidecars tell it. Pure."""

from collections.abc import Sequence
from typing import Any


def describe_turn(
    loop: str,
    status: str,
    iterations: int,
    seconds: float,
    parent: str | None = None,
    lineage: Sequence[str] = (),
    trace: str | None = None,
) -> dict[str, Any]:
    """Return the fields of the fact; the turn took `seconds`, and `trace` is its traceparent."""
    told: dict[str, Any] = {"loop": loop, "status": status, "iterations": iterations, "seconds": seconds}
    if parent:
        told |= {"parent": parent, "lineage": list(lineage)}
    return told | ({"trace": trace} if trace else {})
