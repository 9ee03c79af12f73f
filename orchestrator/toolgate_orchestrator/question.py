"""One open question: a `Round`, the future that waits for it, and what verdicts are checked against.

The bus hands in items as they come; a timer hands in time. Everything that may be wrong with a
verdict is found here, before the round hears it: signature, shape, priority cap, validity of a modify.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

from toolgate_bus import codec, metrics
from toolgate_bus.errors import CodecError
from toolgate_bus.events import Failed, Heard, Modify, Phase, Verdict
from toolgate_bus.round import Closed, Round
from toolgate_bus.signing import Keyring, digest

__all__ = ["Question"]

MAX_REASON = 1024

Check = Callable[[str, Modify], str | None]
"""Gives what is wrong with a scheduler's modify, or None."""


class Question:
    """A question that waits for verdicts in one phase."""

    __slots__ = (
        "_caps",
        "_check",
        "_deadline",
        "_keyring",
        "_labels",
        "_loop",
        "_on_late",
        "_orchestrator",
        "_priorities",
        "_round",
        "_shadows",
        "_started",
        "_timer",
        "asked",
        "closed",
        "digest",
        "future",
        "outages",
        "phase",
    )

    def __init__(
        self,
        round_: Round,
        *,
        phase: Phase,
        asked: frozenset[str],
        priorities: Mapping[str, int],
        caps: Mapping[str, int],
        shadows: frozenset[str],
        check: Check,
        labels: tuple[str, str],
        orchestrator: str,
        keyring: Keyring | None,
        outages: int,
        on_late: Callable[[Heard], None],
        loop: asyncio.AbstractEventLoop,
        started: float,
    ) -> None:
        self._round, self.phase, self.asked = round_, phase, asked
        self._priorities, self._caps, self._shadows = priorities, caps, shadows
        self._check, self._labels, self._on_late = check, labels, on_late
        self._orchestrator, self._keyring, self.digest = orchestrator, keyring, b""
        self.outages = outages
        self._loop, self._started = loop, started
        self.future: asyncio.Future[Closed] = loop.create_future()
        self.closed: Closed | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: float | None = None
        self._arm()

    # ------------------------------------------------------------------ verdicts

    def take(self, scheduler: str, item: codec.Item, now: float) -> None:
        """One verdict off the bus; anything wrong with it is counted and dropped."""
        heard = self._read(scheduler, item, now)
        if heard is not None and not self.receive(heard, now):
            self._late(heard)

    def take_late(self, scheduler: str, item: codec.Item, now: float) -> bool:
        """One verdict after the end; True if it was genuine."""
        heard = self._read(scheduler, item, now)
        if heard is None:
            return False
        self._late(heard)
        return True

    def receive(self, heard: Heard, now: float) -> bool:
        """One verdict, checked; False when it came too late to count."""
        counted = self._round.receive(heard, now)
        if counted:
            tool, agent = self._labels
            metrics.count(metrics.VERDICTS, heard.scheduler, heard.verdict.action, tool, agent)
            metrics.observe(metrics.VERDICT_SECONDS, heard.seconds, heard.scheduler)
        return counted

    def judged(self, scheduler: str, verdict: Verdict | Failed, body: bytes, now: float) -> Heard:
        """A verdict with the priority it counts with, and what is wrong with it."""
        priority = verdict.priority if verdict.priority is not None else self._priorities.get(scheduler, 0)
        cap = self._caps.get(scheduler)
        capped = cap is not None and priority > cap
        if capped and cap is not None:
            priority = cap
            metrics.count(metrics.PRIORITY_CAPPED, scheduler)
        problem = None
        if isinstance(verdict, Modify) and self.phase == "select":
            problem = self._check(scheduler, verdict)
            if problem is not None:
                metrics.count(metrics.INVALID_MODIFIES, scheduler, problem)
        return Heard(
            scheduler,
            verdict,
            priority,
            self.phase,
            now - self._started,
            False,
            scheduler in self._shadows,
            problem,
            capped,
            b"" if verdict.action == "continue" else digest(body),
        )

    def _read(self, scheduler: str, item: codec.Item, now: float) -> Heard | None:
        try:
            if self._keyring is not None and not self._keyring.is_verdict(
                self._orchestrator, scheduler, self.digest, item.body, item.mac
            ):
                raise CodecError("forged")
            verdict = codec.verdict(item.body)
        except CodecError as error:
            metrics.count(metrics.BAD_MESSAGES, scheduler, error.reason)
            return None
        if verdict.reason is not None and len(verdict.reason) > MAX_REASON:
            verdict = verdict.model_copy(update={"reason": verdict.reason[:MAX_REASON]})
        return self.judged(scheduler, verdict, item.body, now)

    def _late(self, heard: Heard) -> None:
        if not heard.shadow:
            metrics.count(metrics.LATE, heard.scheduler)
        self._on_late(heard)

    # ------------------------------------------------------------------ time and the end

    def refused(self, scheduler: str, now: float) -> None:
        """The bus would not take the question for this scheduler."""
        self._round.unreachable(scheduler, now)
        self.end_if_over(now)

    def end_if_over(self, now: float) -> None:
        """Close the round once nothing more is waited for, or look again at the next deadline."""
        if self.closed is not None:
            return
        if self._round.over:
            self.end(now)
        else:
            self._arm()

    def end(self, now: float) -> Closed:
        """Close the round now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.closed is None:
            self.closed = self._round.close(now)
            if not self.future.done():
                self.future.set_result(self.closed)
        return self.closed

    def _arm(self) -> None:
        deadline = self._round.deadline
        if self._timer is not None:
            if deadline == self._deadline:
                return
            self._timer.cancel()
            self._timer = None
        self._deadline = deadline
        if deadline is not None:
            # Not call_at: uvloop's own clock has a resolution of a millisecond.
            self._timer = self._loop.call_later(max(0.0, deadline - time.monotonic()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = time.monotonic()
        self._round.tick(now)
        self.end_if_over(now)
