"""Which pending calls of one request may start: a state machine without a clock, a task or the data.

    arrived ─▶ pending ── ready() ──▶ running ── finished(ok) ──▶ done | failed
                  └── leftover(): will never start, and what it waited for

A call is ready when, for every reference r of its arguments,

  1. no call that was streamed before it and writes to r (overlapping paths) is pending or running;
     nor is one that was streamed after it running, where r was not there when the call arrived;
  2. where calls before it write to r, at least one call that writes to r has succeeded;
  3. r is there.

A call of a sequence is ready when, besides, every call that was streamed before it has succeeded.

Rule 1 keeps a value that is being made anew from being read stale. Calls streamed later are not
waited for unless they run already (they may wait for this one), so rule 3 alone serves a call that
was streamed before its producers. Whoever has nothing to wait for is ready at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from toolgate_orchestrator.loops.reactive_engine.references import Path, Reference, overlap


class Needs(NamedTuple):
    """What one call reads and writes."""

    id: str
    reads: tuple[Reference, ...] = ()
    writes: Path | None = None
    in_order: bool = False
    """Whether every call that was streamed before it has to succeed first."""


class BlockedCall(NamedTuple):
    """A call that will never start."""

    id: str
    missing: tuple[Reference, ...]
    """The references that kept it; none where a call before it in a sequence did."""
    blocked_by: tuple[str, ...]
    """The calls that should have written them, in stream order."""


class _Is(Enum):
    PENDING = 1
    RUNNING = 2
    DONE = 3
    FAILED = 4


@dataclass(slots=True)
class _CallState:
    order: int
    needs: Needs
    new: frozenset[Reference]
    """What it reads that was not there when it arrived."""
    status: _Is = _Is.PENDING


@dataclass(slots=True)
class Readiness:
    """The calls of one request."""

    _has: Callable[[Reference], bool]
    """Whether a reference can be read now."""
    _calls: dict[str, _CallState] = field(default_factory=dict)
    _writers: list[_CallState] = field(default_factory=list)

    def add_call(self, call: Needs, *, failed: bool = False) -> None:
        """A call came out of the stream; `failed` for one that is known not to run. Ids are unique."""
        if call.id in self._calls:
            raise ValueError(f"there are two calls {call.id!r} in one request")
        new = frozenset(each for each in call.reads if not self._has(each))
        entry = _CallState(len(self._calls), call, new, _Is.FAILED if failed else _Is.PENDING)
        self._calls[call.id] = entry
        if call.writes is not None:
            self._writers.append(entry)

    def ready(self) -> list[str]:
        """All pending calls that may start now; they count as running from here on."""
        found = []
        for entry in self._calls.values():
            if entry.status is _Is.PENDING and not self._missing(entry) and not self._before(entry):
                entry.status = _Is.RUNNING
                found.append(entry.needs.id)
        return found

    def finish_call(self, call_id: str, ok: bool) -> None:
        """A running call ended; `ok` if its result was written where it should be."""
        entry = self._calls[call_id]
        if entry.status is not _Is.RUNNING:
            raise ValueError(f"call {call_id!r} is not running")
        entry.status = _Is.DONE if ok else _Is.FAILED

    @property
    def has_running(self) -> bool:
        """Whether any call runs."""
        return any(entry.status is _Is.RUNNING for entry in self._calls.values())

    def leftover(self) -> list[BlockedCall]:
        """The pending calls in stream order; once the stream is closed and nothing runs, they never start."""
        blocked = []
        for entry in self._calls.values():
            if entry.status is _Is.PENDING:
                missing = self._missing(entry)
                by = self.blockers(missing) if missing else self._before(entry)
                blocked.append(BlockedCall(entry.needs.id, missing, by))
        return blocked

    def blockers(self, references: Sequence[Reference]) -> tuple[str, ...]:
        """The calls that should have written these references and did not, in stream order."""
        kept = [
            entry.needs.id
            for entry in self._writers
            if entry.status is not _Is.DONE and any(_writes(entry, reference) for reference in references)
        ]
        return tuple(kept)

    def _before(self, entry: _CallState) -> tuple[str, ...]:
        """The calls before one of a sequence that have not succeeded, in stream order."""
        if not entry.needs.in_order:
            return ()
        earlier = (each for each in self._calls.values() if each.order < entry.order)
        return tuple(each.needs.id for each in earlier if each.status is not _Is.DONE)

    def _missing(self, entry: _CallState) -> tuple[Reference, ...]:
        return tuple(reference for reference in entry.needs.reads if not self._available(entry, reference))

    def _available(self, entry: _CallState, reference: Reference) -> bool:
        writers = [each for each in self._writers if each is not entry and _writes(each, reference)]
        earlier = [each for each in writers if each.order < entry.order]
        if any(each.status in (_Is.PENDING, _Is.RUNNING) for each in earlier):
            return False
        if reference in entry.new and any(each.status is _Is.RUNNING for each in writers):
            return False
        if earlier and not any(each.status is _Is.DONE for each in writers):
            return False
        return self._has(reference)


def _writes(entry: _CallState, reference: Reference) -> bool:
    path = entry.needs.writes
    return reference.kind == "state" and path is not None and overlap(path, reference.path)
