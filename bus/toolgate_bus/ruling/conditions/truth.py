"""True, False, or None: not known. What comes of several of them. Pure."""

from collections.abc import Iterable

__all__ = ["Truth", "any_of", "consensus_of", "every", "opposite"]

Truth = bool | None


def every(truths: Iterable[Truth]) -> Truth:
    """Whether all are true; False as soon as one is false."""
    whole: Truth = True
    for one in truths:
        if one is False:
            return False
        if one is None:
            whole = None
    return whole


def any_of(truths: Iterable[Truth]) -> Truth:
    """Whether one is true."""
    return opposite(every(map(opposite, truths)))


def opposite(truth: Truth) -> Truth:
    """What is true becomes false; what is not known stays so."""
    return None if truth is None else not truth


def consensus_of(truths: Iterable[Truth]) -> Truth:
    """What all of them say; None where they differ."""
    said = set(truths)
    return said.pop() if len(said) == 1 else None
