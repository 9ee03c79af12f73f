"""One question to several schedulers, as a state machine: values in, values out, time an argument.

Each expected scheduler is in one state:

    waiting --final answer--> answered          (continue, deny, modify, ask_user)
       |----hold-----------> held --final answer--> answered
       |                      `----it runs out----> expired     a denial, required or not
       |----patience ends--> silent             a denial if required, else as if `continue`
       `----failed, or the bus refused the question--> silent, at once

Time passes in `tick` alone: an answer is judged by what was known when it was handed in, not by the
hour at which somebody came round to reading it. So whatever comes before `tick` has said that a wait
is over counts. What is restrictive (deny, ask_user, hold) counts until the round is closed, also from
a scheduler that was given up or is not waited for at all; its continue or modify is late by then.

The round is over when a deny counts, a hold ran out, a required scheduler is silent, or nobody is
left to wait for. A deny by who does not agree to a changed replacement waits for the words of the others:
all who do not agree are told. After `close` everything is late. `deadline` says when to call `tick`.
Not here: clocks, timers, who to ask, what makes a modify valid.
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
    """How a round ended."""

    merged: MergeResult
    """The ruling of the verdicts that counted; a denial by silence or expiry stands beside it."""
    silent: tuple[str, ...]
    required_silent: tuple[str, ...]
    expired: tuple[str, ...]
    unfinished: tuple[str, ...]
    """Holding or not heard yet when the round ended early: their answers will come too late."""
    heard: tuple[ReceivedVerdict, ...]
    held: tuple[str, ...] = ()
    """Who still holds: they are told that nobody waits any longer."""
    was_held: bool = False
    """Whether anybody said `hold` at all."""
    agreed: bool = False
    """Whether everyone who was waited for said a plain continue, and nothing else was heard."""

    @property
    def denied(self) -> bool:
        """Whether the call must not run."""
        return self.merged.action == "deny" or bool(self.required_silent) or bool(self.expired)


class _HoldState:
    __slots__ = ("seen", "since", "until")

    def __init__(self, since: float, until: float) -> None:
        self.since, self.until = since, until
        self.seen: set[bytes] = set()


class Round:
    """One question's wait. `required` maps each expected scheduler to whether its silence denies."""

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
        """When `tick` must be called if nothing comes; None when the round is over."""

    @property
    def over(self) -> bool:
        """Whether nothing that may still come is waited for."""
        return self.deadline is None

    def receive(self, heard: ReceivedVerdict, now: float) -> bool:
        """Take one verdict; False when it is late and changes nothing. A hold lasts from `now` on."""
        name = heard.scheduler
        state = self._state.get(name)
        if (
            type(heard.verdict) is Continue
            and state == "waiting"
            and not heard.shadow
            and not (self._holds or self._failed or self._closed or self._disagreed)
        ):
            # Nearly every verdict: nothing below could make of it anything else.
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
        """The same for any other verdict; `state` is that of its scheduler."""
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
            if heard.again and type(heard.said) is Modify:
                self._disagreed = True
            else:
                self._denied = True
        if given_up and (state == "expired" or self._denies(name)):
            return True  # a denial by time stays one, whatever is said of it afterwards
        if isinstance(heard.verdict, Hold):
            self._hold_heard = True
            self._hold(name, heard.digest, heard.verdict.seconds, now)
        elif action == "failed" or (heard.problem and self._denies(name)):
            # No valid answer: a required scheduler is not satisfied by it, but a better one may be here.
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
        """Whether this scheduler has said nothing yet, and may."""
        return not self._closed and self._state.get(name) == "waiting"

    def list_holding(self) -> list[str]:
        """Who holds, and is still waited for."""
        if self._closed or not self._holds:
            return []
        return [name for name in self._holds if self._state.get(name) == "held"]

    def unreachable(self, name: str) -> None:
        """The question did not reach this scheduler: it is silent at once."""
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
        """End the round and say how; whatever comes later is late, and nobody is silent for it."""
        self._closed = True
        heard = tuple(self._heard)
        if self._plain and not self._open and not self._troubled:
            return RoundResult(NOTHING, (), (), (), (), heard, (), False, not self._worded)
        merged = merge(heard)
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
        """Who held, and then gave no valid answer: as if the hold had run out, required or not."""
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
        # Nobody's hold is waited for: the call is denied whatever comes of it.
        if self._disagreed and "waiting" not in self._state.values():
            self._denied = True

    def _judge_failures(self) -> None:
        # A failed required scheduler denies once nobody else is waited for: a replica may still answer.
        if self._open == 0 and any(self._denies(name) for name in self._failed):
            self._denied = True
