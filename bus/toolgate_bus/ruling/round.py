"""One question to several schedulers, as a state machine: values in, values out, time an argument.

Each expected scheduler is in one state:

    waiting --final answer--> answered          (continue, deny, modify, ask_user)
       |----hold-----------> held --final answer--> answered
       |                      `----it runs out----> expired     a denial, required or not
       |----patience ends--> silent             a denial if required, else as if `continue`
       `----failed, or the bus refused the question--> silent, at once

Time passes in `tick` alone. An answer is judged by what was known when it was handed in, not by the time at
which it was read: every answer counts that comes before `tick` has ended a wait. Restrictive answers (deny,
ask_user, hold) count until the round is closed, even from a scheduler that was given up or is not waited for;
its continue or modify is late by then.

The round is over when a deny counts, a hold ran out, a required scheduler is silent, or no scheduler is
waited for. A deny by a scheduler that rejects a changed replacement waits for the other answers, so that the
reasons of all who reject it are known. So does a deny of a result, as its reason may quote what others mask.
After `close` every answer is late. `deadline`: when to call `tick`. Clocks, timers, the choice of schedulers,
and the validity of a modify are elsewhere.
"""

from collections.abc import Iterable, Mapping, Set
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from toolgate_bus.protocol.codec import PLAIN_CONTINUE, is_plain
from toolgate_bus.protocol.events import OVERRULED, Continue, Hold, Modify, ReceivedVerdict
from toolgate_bus.ruling.merge import NOTHING, RESTRICTIVE, MergeResult, merge

State = Literal["waiting", "held", "answered", "expired", "silent"]
_AWAITED: Final = frozenset(("waiting", "held"))


class RoundResult(NamedTuple):
    """End of a round."""

    merged: MergeResult
    """Ruling of the verdicts that counted; a denial by silence or expiry stands beside it."""
    silent: tuple[str, ...]
    required_silent: tuple[str, ...]
    expired: tuple[str, ...]
    unfinished: tuple[str, ...]
    """Schedulers that hold or were not heard when the round ended early: their answers come too late."""
    heard: tuple[ReceivedVerdict, ...]
    held: tuple[str, ...] = ()
    """Schedulers that still hold: they are told that nobody waits any longer."""
    was_held: bool = False
    """True if any scheduler answered `hold`."""
    agreed: bool = False
    """True if every awaited scheduler said a plain continue, and nothing else was heard."""

    @property
    def denied(self) -> bool:
        """True if the call must not run."""
        return self.merged.action == "deny" or bool(self.required_silent) or bool(self.expired)


class _HoldState:
    __slots__ = ("seen", "since", "until")

    def __init__(self, since: float, until: float) -> None:
        self.since, self.until = since, until
        self.seen: set[bytes] = set()


class Round:
    """The wait for one question. `required` maps each expected scheduler to whether its silence denies."""

    _denied = False
    _disagreed = False
    _closed = False
    _troubled = False
    _was_held = False
    _hold_heard = False
    _plain = True
    _worded = False
    _holds: Mapping[str, _HoldState] = MappingProxyType({})
    _failed: Set[str] = frozenset()

    def __init__(
        self,
        required: Mapping[str, bool],
        *,
        patience: float,
        max_hold: float,
        now: float,
        patient: Iterable[str] = (),
    ) -> None:
        """Begin to wait at `now`; `patient` schedulers are waited for as if they had held at once."""
        self._required = required
        self._max_hold = max_hold
        self._patience_ends = now + patience
        self._state: dict[str, State] = dict.fromkeys(required, "waiting")
        self._open = len(required)
        self._heard: list[ReceivedVerdict] = []
        for name in patient:
            if name in self._state:
                self._holds = {**self._holds, name: _HoldState(now, now + max_hold)}
                self._state[name] = "held"
        self.deadline = self._find_deadline()
        """Time at which `tick` must be called if nothing comes; None when the round is over."""

    @property
    def over(self) -> bool:
        """True if no further answer is waited for."""
        return self.deadline is None

    def receive(self, heard: ReceivedVerdict, now: float) -> bool:
        """Take one verdict. Return False if it is late and changes nothing. A hold lasts from `now` on.

        After `close` all are late. Before it, those of a scheduler that was given up are, except that a
        `RESTRICTIVE` one (deny, ask_user, hold) is taken until the round is closed.
        """
        name = heard.scheduler
        state = self._state.get(name)
        if (
            type(heard.verdict) is Continue
            and state == "waiting"
            and not heard.shadow
            and not (self._holds or self._failed or self._closed or self._disagreed)
        ):
            # Nearly every verdict comes here: the code below would have the same result.
            self._heard.append(heard)
            if heard.verdict is not PLAIN_CONTINUE and not is_plain(heard.verdict):
                self._worded = True
            self._state[name] = "answered"
            self._open -= 1
            if not self._open:
                self.deadline = None
            return True
        counts = self._receive(heard, state, now)
        self.deadline = self._find_deadline()
        return counts

    def _receive(self, heard: ReceivedVerdict, state: State | None, now: float) -> bool:
        """Take any other verdict; `state` is its scheduler's."""
        name = heard.scheduler
        self._plain = False
        action = heard.verdict.action
        given_up = state in ("silent", "expired")
        if self._closed or (given_up and action not in RESTRICTIVE):
            return False
        self._heard.append(heard)
        if heard.shadow:
            return True
        if action == "deny" and not (heard.late or heard.problem):
            if heard.phase == "result" or (heard.again and type(heard.said) is Modify):
                self._disagreed = True
            else:
                self._denied = True
        if given_up and (state == "expired" or self._denies(name)):
            return True  # a denial by time stays one, whatever comes afterwards
        if isinstance(heard.verdict, Hold):
            self._hold_heard = True
            self._hold(name, heard.digest, heard.verdict.seconds, now)
        elif action == "failed" or (heard.problem and self._denies(name)):
            # Not a valid answer: it does not satisfy a required scheduler, but a better one may be here.
            if state != "answered":
                self._failed = self._failed | {name}
                self._end(name, "answered")
        else:
            self._failed = self._failed - {name}
            if state != "answered":
                self._end(name, "answered")
        self._judge_failures()
        self._judge_disagreement()
        return True

    def waits_for(self, name: str) -> bool:
        """Return whether this scheduler has not answered yet, and may."""
        return not self._closed and self._state.get(name) == "waiting"

    def list_holding(self) -> list[str]:
        """Return the schedulers that hold, and are still waited for."""
        if self._closed or not self._holds:
            return []
        return [name for name in self._holds if self._state.get(name) == "held"]

    def unreachable(self, name: str) -> None:
        """Count a scheduler as silent at once: the question did not reach it."""
        if self._state.get(name) == "waiting":
            self._end(name, "silent")
            self._judge_silence(name)
            self._judge_disagreement()
            self.deadline = self._find_deadline()

    def tick(self, now: float) -> None:
        """Let time pass up to `now`."""
        if self._closed:
            return
        if now >= self._patience_ends and self._open:
            for name, state in self._state.items():
                if state == "waiting":
                    self._end(name, "silent")
                    self._judge_silence(name)
            self._judge_disagreement()
        if self._holds:
            for name, holding in list(self._holds.items()):
                if now >= holding.until:
                    self._end(name, "expired")
                    self._denied = True
        self.deadline = self._find_deadline()

    def close(self) -> RoundResult:
        """End the round and return its result. Later answers are late, and count as no silence."""
        self._closed = True
        heard = tuple(self._heard)
        if self._plain and not self._open and not self._troubled:
            return RoundResult(NOTHING, (), (), (), (), heard, (), False, not self._worded)
        merged = merge(heard)
        if not (self._troubled or self._failed or self._holds or self._hold_heard):  # all answered, or wait
            waiting = tuple([name for name, state in self._state.items() if state == "waiting"])
            return RoundResult(merged, (), (), (), waiting, heard)
        by_state: dict[State, list[str]] = {}
        for name, state in self._state.items():
            by_state.setdefault(state, []).append(name)
        silent = (*by_state.get("silent", ()), *sorted(self._failed & self._required.keys()))
        held = tuple(by_state.get("held", ()))
        return RoundResult(
            merged=merged,
            silent=silent,
            required_silent=tuple(name for name in silent if self._denies(name)),
            expired=(*by_state.get("expired", ()), *self._find_unresolved_holds()),
            unfinished=(*by_state.get("waiting", ()), *held),
            heard=heard,
            held=held,
            was_held=self._was_held,
        )

    def _find_deadline(self) -> float | None:
        if self._denied or self._open == 0:
            return None
        if not self._holds:
            return self._patience_ends
        times = [holding.until for holding in self._holds.values()]
        if "waiting" in self._state.values():
            times.append(self._patience_ends)
        return min(times)

    def _find_unresolved_holds(self) -> list[str]:
        """Return schedulers that held, and then gave no valid answer: as if their hold had run out."""
        if not self._hold_heard:
            return []
        own = [heard for heard in self._heard if not heard.shadow and heard.scheduler in self._state]
        held = {heard.scheduler for heard in own if heard.verdict.action == "hold"}
        answers = [heard for heard in own if heard.verdict.action not in ("hold", "failed")]
        valid = {heard.scheduler for heard in answers if heard.problem in (None, "", OVERRULED)}
        return [name for name in sorted(held - valid) if self._state[name] == "answered"]

    def _denies(self, name: str) -> bool:
        return self._required.get(name, False)

    def _hold(self, name: str, digest: bytes, seconds: float, now: float) -> None:
        state = self._state.get(name)
        if state == "answered":
            return
        if name not in self._holds:
            self._holds = {**self._holds, name: _HoldState(now, now)}
        holding = self._holds[name]
        if digest not in holding.seen:  # the same hold, delivered twice, does not move the wait
            holding.seen.add(digest)
            holding.until = min(max(holding.until, now + seconds), holding.since + self._max_hold)
        if state not in _AWAITED:
            self._open += 1
        self._state[name] = "held"
        self._was_held = True

    def _end(self, name: str, state: State) -> None:
        if self._state.get(name) in _AWAITED:
            self._open -= 1
        self._state[name] = state
        if name in self._holds:
            self._holds = {other: holding for other, holding in self._holds.items() if other != name}
        self._troubled = self._troubled or state != "answered"

    def _judge_silence(self, name: str) -> None:
        if self._denies(name):
            self._denied = True

    def _judge_disagreement(self) -> None:
        # No hold is waited for: the call is denied whatever follows it.
        if self._disagreed and "waiting" not in self._state.values():
            self._denied = True

    def _judge_failures(self) -> None:
        # A failed required scheduler denies once no other is waited for: a replica may still answer.
        if self._open == 0 and any(self._denies(name) for name in self._failed):
            self._denied = True
