"""One call on its way through the gate: what was asked about it, and what was heard so far."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from toolgate_bus.protocol.events import Phase, ReceivedVerdict, ToolQuestion
from toolgate_bus.ruling.counterfactual import ProposedCall
from toolgate_bus.ruling.round import RoundResult
from toolgate_bus.telemetry.unanimous import Group

from toolgate_orchestrator.decision.question.call import ALL, Ability
from toolgate_orchestrator.decision.question.redact import RedactedArguments
from toolgate_orchestrator.decision.question.validation import Tools
from toolgate_orchestrator.decision.round.shadow_log import ShadowLog
from toolgate_orchestrator.decision.round.wait_reports import Note, WaitReporter

if TYPE_CHECKING:
    from toolgate_orchestrator.decision.round.open_round import OpenRound


class HeldCall(NamedTuple):
    """A call that waits for somebody's answer."""

    decision: str
    """The decision's id; people may answer by its first digits."""
    tool: str
    phase: Phase
    scheduler: str
    """Who holds it; `operator` where it is paused."""
    reason: str | None
    seconds: float | None
    """So long it waits from now on at the most; then it is denied, or goes on where it was paused. None:
    until somebody resumes it."""
    paused: bool = False
    """Whether an operator has paused it: nobody is to answer."""


OnHold = Callable[[HeldCall], None]
"""Told of each hold that is waited for, once; must not block."""


def holders(heard: Iterable[ReceivedVerdict]) -> list[str]:
    """Whose last word in a round is a hold, waited for or not: once it is over they hold in vain.

    A shadow's hold is its own affair: nobody waits for it, ever.
    """
    last = {one.scheduler: one.verdict.action for one in heard if not one.shadow}
    return [name for name, action in last.items() if action == "hold"]


class DecisionState:
    """One call on its way through the gate: its question, and what was heard about it so far."""

    body: bytes = b""
    """The question as it was written; empty until it was."""
    outgoing: RedactedArguments | None = None
    """The arguments as they travelled; None where nothing was kept back."""
    replaced: RedactedArguments | None = None
    """Those of the replacement, likewise."""
    author: ReceivedVerdict | None = None
    """The modify whose replacement is verified."""
    heard: tuple[ReceivedVerdict, ...] = ()
    asked: tuple[Sequence[str], ...] = ()
    """Who was asked, round by round; `in-process` among them."""
    shadows: ShadowLog | None = None
    """What shadows say about it, where any were asked."""
    agreed: Group | None = None
    """Everyone who was asked, where all of them said continue and there is nothing to remark on."""
    silent: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()
    failed_open: Mapping[str, str] = MappingProxyType({})
    """Optional schedulers that the decision was made without, and why."""
    rounds: tuple["OpenRound", ...] = ()
    """The questions that were put about it and have ended."""
    goes_on: bool = False
    """Whether it waits for something after a round: those are kept where a denial still finds them."""
    admitted: tuple["OpenRound", ...] = ()
    """The questions in which something was given to it, until it is given back."""
    waited: float = 0.0
    """Seconds for which it waited to be admitted."""
    unasked: Mapping[str, str] = MappingProxyType({})
    """Required schedulers that could not be asked, and why, in words."""
    objection: ReceivedVerdict | None = None
    """The first denial that came after its round, and before the decision."""
    waits: WaitReporter | None = None
    """Tells that it waits, once it did."""
    is_over: bool = False
    """Whether it is decided: no verdict changes anything any more."""
    can: frozenset[Ability] = ALL
    """What its caller can do."""
    is_bound: bool = False
    """Whether that is not all."""
    reaches_person: bool = True
    """Whether a person can be asked, by the caller or by others."""
    is_request: bool
    """Whether it is a request to an LLM, and no call of a tool."""
    passes: tuple[type[BaseException], ...] = ()
    """What may be raised while a person is asked, and ends the decision."""
    interrupt: BaseException | None = None
    """What was raised so."""
    on_objection: Callable[[ReceivedVerdict], None] | None = None
    """Told of a denial that comes while it waits for a person whom nobody waits for."""
    deferred: Mapping[str, Any] = MappingProxyType({})
    """Of one that went on with a person's answer: what the record says of that."""

    def __init__(
        self,
        id: bytes,  # noqa: A002 - the wire's word
        question: ToolQuestion,
        tools: Tools,
        agents: Sequence[str] | None,
        labels: tuple[str, str],
        started: float,
        on_hold: OnHold | None = None,
        is_request: bool = False,
    ) -> None:
        """All `tools`, perhaps with their schemas, and agents, of which the question names as many as fit.

        `labels` are tool and agent for metrics, `started` is monotonic, in seconds.

        `on_hold` is who wants to know that somebody holds the call.
        """
        self.id, self.question, self.tools, self.agents = id, question, tools, agents
        self.labels, self.started, self.on_hold = labels, started, on_hold
        self.is_request = is_request

    @property
    def own(self) -> ProposedCall:
        """The LLM's own call."""
        asked = self.question
        return ProposedCall(asked.tool_name, asked.tool_input, asked.agent_target)

    @property
    def placeholders(self) -> Mapping[str, Any]:
        """What stands for what in the question."""
        return {} if self.outgoing is None else self.outgoing.placeholders

    @property
    def plain(self) -> Mapping[str, Any] | None:
        """Its arguments as they were ruled on, where they are no JSON."""
        return None if self.outgoing is None else self.outgoing.plain

    def plain_of(self, phase: Phase) -> Mapping[str, Any] | None:
        """Return the same of the arguments that were asked about in a phase."""
        outgoing = self.outgoing_of(phase)
        return None if outgoing is None else outgoing.plain

    def placeholders_of(self, phase: Phase) -> Mapping[str, Any]:
        """What stands for what in the question of a phase."""
        if phase == "select":
            return self.placeholders
        return {} if self.replaced is None else self.replaced.placeholders

    def outgoing_of(self, phase: Phase) -> RedactedArguments | None:
        """The arguments as they travelled in a phase."""
        return self.outgoing if phase == "select" or self.replaced is None else self.replaced

    # ----------------------------------------------------------- what happens to it (written here alone)

    def trace_by(self, trace: dict[str, str]) -> None:
        """Put its question into this span."""
        self.question = self.question._replace(trace=trace)

    def cut_lineage(self, most: int) -> None:
        """Keep the last `most` agents of its lineage, as a question can name no more."""
        self.question = self.question._replace(lineage=self.question.lineage[-most:])

    def put_to(self, asked: Sequence[str], *, shadowed: bool = False) -> None:
        """Record the schedulers asked in a round; `shadowed`: some of them only watch."""
        self.asked += (asked,)
        if shadowed and self.shadows is None:
            self.shadows = ShadowLog()

    def end_round(
        self, question: "OpenRound", closed: RoundResult, agreed: Group | None, *, gives: bool
    ) -> None:
        """Record a round that is over. `agreed` is everyone if all agreed; `gives`: it may have given."""
        self.heard += closed.heard
        self.rounds += (question,)
        if gives:
            self.admitted += (question,)
        if agreed is not None:
            self.agreed = agreed
        if closed.silent:
            self.silent += tuple(name for name in closed.silent if name not in self.silent)

    def keep_rounds(self) -> None:
        """Keep its rounds: it waits for something, and whoever was asked may still deny it."""
        self.goes_on = True

    def forget_rounds(self) -> None:
        """Forget its rounds, which name it: else only the collector could free both."""
        self.rounds = ()

    def take_admitted(self) -> tuple["OpenRound", ...]:
        """Return the rounds in which something was given to it, which is given back now."""
        given, self.admitted = self.admitted, ()
        return given

    def pass_over(self, name: str, reason: str) -> None:
        """Record an optional scheduler that is asked and not waited for, and why."""
        self.passed_over += (name,)
        self.fail_open(name, reason)

    def write_replacement(self, outgoing: RedactedArguments | None) -> None:
        """Record how the arguments of its replacement travel."""
        self.replaced = outgoing

    def write(self, body: bytes, outgoing: RedactedArguments | None) -> None:
        """Record the body of its question, and how its arguments travel."""
        self.body, self.outgoing = body, outgoing

    def verify(self, author: ReceivedVerdict | None) -> None:
        """Record the modify whose replacement is asked about from now on."""
        self.author = author

    def interrupt_by(self, error: BaseException) -> None:
        """Record the error by which the function that asks a person leaves."""
        self.interrupt = error

    def leave_out(self, seconds: float) -> None:
        """Leave the seconds of a pause out of its time."""
        self.started += seconds

    def end_admission(self, seconds: float) -> None:
        """Record the seconds that it waited to be admitted."""
        self.agreed, self.waited = None, seconds

    def describe_deferral(self, **told: Any) -> None:
        """Set the fields that the record has about its wait for a person."""
        self.deferred = told

    def adopt(
        self,
        question: ToolQuestion,
        body: bytes,
        outgoing: RedactedArguments,
        verdicts: Sequence[ReceivedVerdict],
        asked: Sequence[str],
        failed_open: Mapping[str, str],
        started: float,
    ) -> None:
        """Become an earlier decision, with all that was heard of it."""
        self.id, self.question, self.started = bytes.fromhex(question.id), question, started
        self.body, self.outgoing = body, outgoing
        self.heard, self.asked, self.failed_open = tuple(verdicts), (asked,), failed_open
        if any(one.shadow for one in verdicts):
            self.shadows = ShadowLog()

    def adopt_silence(self, silent: Sequence[str], passed_over: Sequence[str]) -> None:
        """Take over who gave no answer to the earlier decision, or was not waited for."""
        self.silent, self.passed_over = tuple(silent), tuple(passed_over)

    def take_over(self, before: "DecisionState") -> None:
        """Take over the rounds of another call: who denies it, now or later, denies this."""
        for question in before.rounds:
            question.call = self
        self.rounds, self.goes_on, self.objection = before.rounds, before.goes_on, before.objection
        if self.objection is not None:
            self.heard += (self.objection,)
        before.rounds, before.goes_on = (), False

    def listen_to_objections(self, told: Callable[[ReceivedVerdict], None] | None) -> None:
        """Set the function to tell of a denial while it waits for a person; None for nobody."""
        self.on_objection = told

    def stop_reports(self) -> None:
        """Stop telling that it waits."""
        if self.waits is not None:
            self.waits.stop()

    def close(self) -> None:
        """Mark it as decided."""
        self.is_over = True
        if self.waits is not None:
            self.waits.stop()

    def restart_clock(self, seconds: float, now: float) -> None:
        """Set its start so that deciding it has taken this many seconds until `now`."""
        self.started = now - seconds

    def fail_open(self, name: str, reason: str) -> None:
        """The decision is made without an optional scheduler; the first reason stands."""
        if name not in self.failed_open:
            self.failed_open = {**self.failed_open, name: reason}

    def report_waits(self, note: Note) -> None:
        """It waits for somebody: from now on that is told, now and then."""
        if self.waits is None:
            self.waits = WaitReporter(self.question, note)

    def object_to(self, heard: ReceivedVerdict) -> bool:
        """Have a denial count that came after its round; False where all is decided."""
        if self.is_over:
            return False
        self.heard += (heard,)
        self.objection = self.objection or heard
        if self.on_objection is not None:
            self.on_objection(heard)
        return True

    def bind(
        self, can: frozenset[Ability], passes: tuple[type[BaseException], ...], *, reaches_person: bool
    ) -> None:
        """Say what its caller can do, whether anybody can be asked, and what may be raised by who asks."""
        self.can, self.is_bound, self.passes = can, can != ALL, passes
        self.reaches_person = reaches_person

    def leave_unasked(self, name: str, words: str) -> None:
        """A required scheduler cannot be asked; the first words stand."""
        if name not in self.unasked:
            self.unasked = {**self.unasked, name: words}
