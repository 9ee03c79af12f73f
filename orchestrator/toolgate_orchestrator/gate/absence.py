"""Who is required and not there, and who is there and never answers: what is done and told about it.

The first call after a required scheduler was last seen waits its whole patience; then it is given up, and
further calls are denied as soon as they are asked, until a heartbeat or any verdict of it. It is asked all
the same. Nothing here is done for a decision that went well.
"""

from collections.abc import Iterable
from typing import Final

from toolgate_bus.telemetry.loggers import get_logger

__all__ = ["Absence", "Failures"]

FAILURES: Final = 3
"""Calls in a row without an optional scheduler after which that is told."""
MOST: Final = 1024
_log = get_logger("toolgate.gate")


class Absence:
    """The required schedulers that one client has given up."""

    __slots__ = ("_where", "given_up")

    def __init__(self, where: str) -> None:
        """`where` is the bus, in words, without a password."""
        self._where = where
        self.given_up: set[str] = set()
        """Who was waited for in vain."""

    def give_up(self, name: str) -> None:
        """It was waited for the whole patience, and is not on the roster."""
        self.given_up.add(name)

    def seen(self, names: Iterable[str]) -> None:
        """They gave a sign of life."""
        if self.given_up:
            self.given_up.difference_update(names)

    def anew(self) -> None:
        """The bus is back, or somebody begins: everyone is waited for once more."""
        self.given_up.clear()

    def words(self, name: str, *, gone: bool) -> str:
        """What to tell of one that is not alive."""
        how = "was there and vanished without leaving" if gone else "is not alive"
        start = f"`toolgate scheduler run {name} …`"
        return f"{name} {how} on {self._where}; start it with {start}"


class Failures:
    """Optional schedulers without which one call after the other had to be decided; each is told of once."""

    __slots__ = ("_told", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        """How often each failed in a row, of those who failed lately."""
        self._told: set[str] = set()

    def failed(self, name: str, reason: str) -> None:
        """A call was decided without it."""
        if name in self._told or (name not in self.rows and len(self.rows) >= MOST):
            return
        self.rows[name] = self.rows.get(name, 0) + 1
        if self.rows[name] >= FAILURES:
            self._told.add(name)
            del self.rows[name]
            _log.warning(
                "an optional scheduler fails on each call, and calls run without it; "
                "name it under `required` if they must not",
                scheduler=name,
                reason=reason,
            )

    def answered(self, names: Iterable[str]) -> None:
        """They answered in time: what they failed before was not each call."""
        for name in names:
            self.rows.pop(name, None)
