"""The calls of one agent's session at any door: ruled on, shown while they run, reported when they end.

    Call ─▶ rule ─▶ Decision ─▶ open ─▶ OpenCall ─▶ the door runs it ─▶ close
              │        └▶ denied, pending: nothing runs           tool:post, :error, :unused
              └▶ None: nobody is asked, and the LLM's choice stands

A door makes the `Call`, runs what was decided, and reports the rest in its own terms.
"""

import time
from collections.abc import Callable, Coroutine, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeVar, Unpack

from toolgate_orchestrator.calls.open_call import OpenCall, Outcome, as_text, describe_place, open_call
from toolgate_orchestrator.decision.question.call import NOBODY, Call

if TYPE_CHECKING:
    from toolgate_bus.protocol.events import Decision

    from toolgate_orchestrator.decision.gate import Ask, Gate
    from toolgate_orchestrator.decision.link.live_session import LiveSession
    from toolgate_orchestrator.decision.results.given_result import GivenResult
    from toolgate_orchestrator.decision.round.decision_state import OnHold
    from toolgate_orchestrator.decision.round.local_scheduler import LocalScheduler

Note = Callable[[str, dict[str, Any]], None]
"""Takes a fact: event name and data."""
_NOTHING: Final[Mapping[str, Any]] = {}
_NO_LABELS: Final[Mapping[str, str]] = {}
_numbers: Final = count(1)
D = TypeVar("D", "Decision", "Decision | None")


class Ways(TypedDict, total=False):
    """Ways in which a call is ruled on; see `Gate.decide`."""

    local: "LocalScheduler | None"
    ask: "Ask | Literal['defer'] | None"
    on_hold: "OnHold | None"
    passes: tuple[type[BaseException], ...]


class CallSession:
    """One agent's session, as its calls go through a gate."""

    __slots__ = ("_clock", "_gate", "_live", "_note")

    def __init__(
        self,
        gate: "Gate",
        live: "LiveSession | None" = None,
        note: Note | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a session; `live` is what operators see of its turn, `note` takes facts for the gate."""
        self._gate, self._live, self._clock = gate, live, clock
        self._note = note or gate.note

    async def rule(self, call: Call, **how: Unpack[Ways]) -> "Decision | None":
        """Rule on a call, as `Gate.rule`; return None if nobody is asked and it runs as it is."""
        rule = self._gate.rule(call, **how)
        return await (rule if self._live is None else self._show(self._live, call, rule))

    async def decide(self, call: Call, **how: Unpack[Ways]) -> "Decision":
        """Decide on a call in any case, as `Gate.decide`: for callers that report by the decision's id."""
        decide = self._gate.decide(call, **how)
        return await (decide if self._live is None else self._show(self._live, call, decide))

    async def _show(self, live: "LiveSession", call: Call, rule: Coroutine[Any, Any, D]) -> D:
        key = f"{call.id}#{next(_numbers)}"  # ids may come twice
        live.start_decision(key, call.tool)
        try:
            decision = await rule
        except BaseException:
            live.end_call(key)
            raise
        if decision is None or decision.allowed or decision.pending:
            live.end_call(key)
        else:
            live.count_denial(key)
        return decision

    def open(self, call: Call, decision: "Decision | None") -> OpenCall:
        """Let a call through: record tool:selected, and show the call as running until it is closed."""
        opened = self._make(call, decision)
        if decision is not None:
            self._note(*opened.selected())
        if self._live is not None:
            arguments = decision.tool_input if decision is not None else dict(call.arguments)
            self._live.start_call(opened.key, opened.tool, arguments)
        return opened

    async def give(
        self,
        call: Call,
        decision: "Decision | None",
        result: Any,
        *,
        success: bool = True,
        ask: "Ask | None" = None,
        on_hold: "OnHold | None" = None,
    ) -> "GivenResult":
        """Return what a call gave as the LLM, the history and hooks may see it, as `Gate.rule_on_result`.

        A door calls it after the tool has run, and gives nobody the result itself.
        """
        return await self._gate.rule_on_result(
            call, decision, result, success=success, ask=ask, on_hold=on_hold
        )

    def close(
        self,
        opened: OpenCall,
        outcome: Outcome,
        told: Mapping[str, Any] = _NOTHING,
        seconds: float | None = None,
    ) -> None:
        """Report the outcome of a call: budgets settle by it, and slots become free.

        The call took `seconds`; None: the time until now.
        """
        event, fact = opened.ended(
            outcome, self._clock() - opened.since if seconds is None else seconds, told
        )
        self._note(event, fact)
        if self._live is not None:
            self._live.add_cost(fact)
            self._live.end_call(opened.key)

    def pass_point(self, call: Call, decision: "Decision") -> None:
        """Report that a point of a turn was passed: nothing runs whose end could be reported later.

        What schedulers gave to it counts as used.
        """
        self.close(self.open(call, decision), "succeed", {"success": True}, 0.0)

    def give_back(self, call: Call, decision: "Decision") -> None:
        """Report that a call which might have run never will: nobody is there to run it."""
        self._note(*self._make(call, decision).ended("release", 0.0))

    def _make(self, call: Call, decision: "Decision | None") -> OpenCall:
        at, gate = call.at or NOBODY, self._gate
        if at.root != at.session:
            at = gate.complete(at)
        root = at.root or gate.find_root(at.session, at.parent)
        whose = describe_place(at.session, root, at.agent or gate.config.agent, at.lineage)
        labels = (
            {as_text(name): as_text(one) for name, one in (gate.config.labels | {**at.labels}).items()}
            if call.is_request
            else _NO_LABELS
        )
        return open_call(call, decision, whose, labels, f"{call.id}#{next(_numbers)}", self._clock())
