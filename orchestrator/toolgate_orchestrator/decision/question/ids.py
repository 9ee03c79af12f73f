"""Decision ids: 128 random bits each, from the system's source, fetched many at a time."""

import os
from typing import Final

ID_BYTES: Final = 16
_FETCH: Final = 256 * ID_BYTES
_pool: list[bytes] = []


def decision_id() -> bytes:
    """Sixteen random bytes that were given to nobody before."""
    if not _pool:
        drawn = os.urandom(_FETCH)
        _pool.extend(drawn[at : at + ID_BYTES] for at in range(0, _FETCH, ID_BYTES))
    return _pool.pop()


def _empty() -> None:
    _pool.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_empty)  # a forked child must not repeat its parent's ids
