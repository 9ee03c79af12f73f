"""Find the pending calls of one request that may start: a state machine without a clock, a task or the data.

    arrived ─▶ pending ── ready() ──▶ running ── finished(ok) ──▶ done | failed
                  └── leftover(): will never start, with the references that are missing

A call is ready when, for every reference r of its arguments,

  1. no call that was streamed before it and writes to r (overlapping paths) is pending or running;
     nor is one that was streamed after it running, if r did not exist when the call arrived;
  2. if calls before it write to r, at least one call that writes to r has succeeded;
  3. r exists.

A call of a sequence is ready only if every call that was streamed before it has succeeded, too.

Rule 1 prevents reading a stale value while a new one is being made. A call does not wait for calls
streamed later unless they run already (they may wait for this one), so only rule 3 applies to a call
that was streamed before its producers. A call without anything to wait for is ready at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from toolgate_orchestrator.loops.reactive_engine.references import Path, Reference, overlap


class Needs(NamedTuple):
    """References that one call reads, and the path that it writes."""

    id: str
    reads: tuple[Reference, ...] = ()
    writes: Path | None = None
    in_order: bool = False
    """True if every call that was streamed before it must succeed first."""


class BlockedCall(NamedTuple):
    """Call that will never start."""

    id: str
    missing: tuple[Reference, ...]
    """References that are missing; none if a call before it in a sequence blocks it."""
    blocked_by: tuple[str, ...]
    """Calls that should have written them, in stream order."""


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
    """References that did not exist when the call arrived."""
    status: _Is = _Is.PENDING


@dataclass(slots=True)
class Readiness:
    """Calls of one request."""

    _has: Callable[[Reference], bool]
    """Function that tells whether a reference can be read now."""
    _calls: dict[str, _CallState] = field(default_factory=dict)
    _writers: list[_CallState] = field(default_factory=list)

    def add_call(self, call: Needs, *, failed: bool = False) -> None:
        """Add a call of the stream; `failed` if it is known not to run. Ids are unique."""
        if call.id in self._calls:
            raise ValueError(f"there are two calls {call.id!r} in one request")
        new = frozenset(each for each in call.reads if not self._has(each))
        entry = _CallState(len(self._calls), call, new, _Is.FAILED if failed else _Is.PENDING)
        self._calls[call.id] = entry
        if call.writes is not None:
            self._writers.append(entry)

    def ready(self) -> list[str]:
        """Return all pending calls that may start now; they count as running from here on."""
        found = []
        for entry in self._calls.values():
            if entry.status is _Is.PENDING and not self._missing(entry) and not self._before(entry):
                entry.status = _Is.RUNNING
                found.append(entry.needs.id)
        return found

    def finish_call(self, call_id: str, ok: bool) -> None:
        """Note the end of a running call; `ok` if its result was written to its place."""
        entry = self._calls[call_id]
        if entry.status is not _Is.RUNNING:
            raise ValueError(f"call {call_id!r} is not running")
        entry.status = _Is.DONE if ok else _Is.FAILED

    @property
    def has_running(self) -> bool:
        """True if any call runs."""
        return any(entry.status is _Is.RUNNING for entry in self._calls.values())

    def leftover(self) -> list[BlockedCall]:
        """Return the pending calls in stream order; after the end of the stream, and if no call runs, they
        never start."""
        blocked = []
        for entry in self._calls.values():
            if entry.status is _Is.PENDING:
                missing = self._missing(entry)
                by = self.blockers(missing) if missing else self._before(entry)
                blocked.append(BlockedCall(entry.needs.id, missing, by))
        return blocked

    def blockers(self, references: Sequence[Reference]) -> tuple[str, ...]:
        """Return the calls that should have written these references and did not, in stream order."""
        kept = [
            entry.needs.id
            for entry in self._writers
            if entry.status is not _Is.DONE and any(_writes(entry, reference) for reference in references)
        ]
        return tuple(kept)

    def _before(self, entry: _CallState) -> tuple[str, ...]:
        """Return the calls before a call of a sequence that have not succeeded, in stream order."""
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
