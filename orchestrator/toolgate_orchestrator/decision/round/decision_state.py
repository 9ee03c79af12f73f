"""One call on its way through the gate: its questions, and the verdicts so far."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from toolgate_bus.protocol.events import Modify, Phase, ReceivedVerdict, ToolQuestion
from toolgate_bus.ruling.counterfactual import ProposedCall
from toolgate_bus.ruling.round import RoundResult
from toolgate_bus.telemetry.unanimous import Group

from toolgate_orchestrator.decision.link.local_tables import LocalAnswers
from toolgate_orchestrator.decision.question.call import ALL, Ability
from toolgate_orchestrator.decision.question.redact import RedactedArguments
from toolgate_orchestrator.decision.question.validation import Tools
from toolgate_orchestrator.decision.results.outgoing_result import OutgoingResult
from toolgate_orchestrator.decision.round.shadow_log import ShadowLog
from toolgate_orchestrator.decision.round.wait_reports import Note, WaitReporter

if TYPE_CHECKING:
    from toolgate_orchestrator.decision.round.open_round import OpenRound


class HeldCall(NamedTuple):
    """A call that waits for an answer."""

    decision: str
    """Id of the decision. People may answer by its first digits."""
    tool: str
    phase: Phase
    scheduler: str
    """Scheduler that holds it; `operator` if it is paused."""
    reason: str | None
    seconds: float | None
    """Seconds that it waits at most from now on. Then it is denied, or goes on if it was paused. None: until
    an operator resumes it."""
    paused: bool = False
    """True if an operator has paused it: nobody is to answer."""


OnHold = Callable[[HeldCall], None]
"""Called once for each hold that is waited for. It must not block."""


def holders(heard: Iterable[ReceivedVerdict]) -> list[str]:
    """Return the schedulers whose last verdict is a hold. Once their round is over, they hold in vain.

    Holds of shadows are left out: nobody ever waits for them.
    """
    last = {one.scheduler: one.verdict.action for one in heard if not one.shadow}
    return [name for name, action in last.items() if action == "hold"]


class DecisionState:
    """One call on its way through the gate: its question, and the verdicts on it so far."""

    body: bytes = b""
    """Question as it was written; empty until then."""
    outgoing: RedactedArguments | None = None
    """Arguments as they travelled; None if nothing was held back."""
    replaced: RedactedArguments | None = None
    """Arguments of the replacement as they travelled; None if nothing was held back."""
    author: ReceivedVerdict | None = None
    """Modify whose replacement is verified."""
    heard: tuple[ReceivedVerdict, ...] = ()
    asked: tuple[Sequence[str], ...] = ()
    """Schedulers that were asked, round by round; `in-process` is among them."""
    finals: tuple[tuple[Modify, dict[str, Any]], ...] = ()
    """Valid modifies of the LLM's own call, each with the arguments that it would run with."""
    shadows: ShadowLog | None = None
    """Verdicts of shadows, if any were asked."""
    agreed: Group | None = None
    """All that were asked, if all said continue and there is nothing to remark."""
    timings: tuple[Any, ...] = ()
    """Seconds and revisions of these verdicts, if local tables gave them (`LocalAgreement`)."""
    answers: LocalAnswers | None = None
    """Answers of local tables to the LLM's own call, whose round begins in the same turn of the loop."""
    silent: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()
    failed_open: Mapping[str, str] = MappingProxyType({})
    """Optional schedulers that the decision was made without, with the reason."""
    rounds: tuple["OpenRound", ...] = ()
    """Questions about it that have ended."""
    goes_on: bool = False
    """True if it waits for something after a round. Its rounds are kept then, as a denial still counts."""
    admitted: tuple["OpenRound", ...] = ()
    """Questions in which something was given to it, until that is given back."""
    waited: float = 0.0
    """Seconds that it waited for admission."""
    unasked: Mapping[str, str] = MappingProxyType({})
    """Required schedulers that could not be asked, with the reason in words."""
    objection: ReceivedVerdict | None = None
    """First denial that came after its round and before the decision."""
    waits: WaitReporter | None = None
    """Reporter of its wait, once it has waited."""
    is_over: bool = False
    """True once it is decided: no verdict changes anything any more."""
    can: frozenset[Ability] = ALL
    """Abilities of its caller."""
    is_bound: bool = False
    """True if its caller lacks an ability."""
    reaches_person: bool = True
    """True if a person can be asked, by the caller or by others."""
    is_request: bool
    """True if it is a request to an LLM, not a call of a tool."""
    has_own_name: bool = False
    """True if it is no tool's call: a request to an LLM, or a point of a turn."""
    passes: tuple[type[BaseException], ...] = ()
    """Exceptions that may leave the function that asks a person. They end the decision."""
    interrupt: BaseException | None = None
    """The exception that left that function."""
    result: OutgoingResult | None = None
    """Result that is asked about; None before the call has run."""
    results: tuple[OutgoingResult, ...] = ()
    """All results that were asked about: the tool's own, and the one that replaced it."""
    replacement: Any = None
    """Result that a scheduler gave in the place of the tool's, as it gave it."""
    late_verdicts: tuple[ReceivedVerdict, ...] = ()
    """Verdicts on its result that came after their round and before the ruling, and count for nothing."""
    disagreeing: tuple[str, ...] = ()
    """Shadows that are known to have disagreed about its result."""
    given: str = ""
    """What became of its result; empty before that is known."""
    hidden: frozenset[str] = frozenset()
    """Texts of its result that verdicts hid."""
    late_masks: tuple[tuple[ReceivedVerdict, OutgoingResult], ...] = ()
    """Masks that came after their round and before the ruling, each with the result that it is about."""
    on_objection: Callable[[ReceivedVerdict], None] | None = None
    """Called for a denial that comes while it waits for a person and nobody waits for it."""
    deferred: Mapping[str, Any] = MappingProxyType({})
    """Fields that the record has about a decision resumed by a person's answer."""

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
        """Make the state of one call.

        `tools` are all tools, perhaps with schemas, and `agents` all agents; the question names as many as
        fit. `labels` are tool and agent for metrics. `started` is a monotonic time in seconds. `on_hold` is
        called if a scheduler holds the call.
        """
        self.id, self.question, self.tools, self.agents = id, question, tools, agents
        self.labels, self.started, self.on_hold = labels, started, on_hold
        self.is_request = is_request

    @property
    def own(self) -> ProposedCall:
        """Call as the LLM made it."""
        asked = self.question
        return ProposedCall(asked.tool_name, asked.tool_input, asked.agent_target)

    @property
    def placeholders(self) -> Mapping[str, Any]:
        """Value of each placeholder in the question."""
        return {} if self.outgoing is None else self.outgoing.placeholders

    @property
    def plain(self) -> Mapping[str, Any] | None:
        """Arguments as they were ruled on, if their own form is not JSON."""
        return None if self.outgoing is None else self.outgoing.plain

    def plain_of(self, phase: Phase) -> Mapping[str, Any] | None:
        """Return the plain form of the arguments that were asked about in a phase."""
        outgoing = self.outgoing_of(phase)
        return None if outgoing is None else outgoing.plain

    def placeholders_of(self, phase: Phase) -> Mapping[str, Any]:
        """Return the value of each placeholder in the question of a phase."""
        if phase == "select":
            return self.placeholders
        return {} if self.replaced is None else self.replaced.placeholders

    def outgoing_of(self, phase: Phase) -> RedactedArguments | None:
        """Return the arguments as they travelled in a phase."""
        return self.outgoing if phase == "select" or self.replaced is None else self.replaced

    # ----------------------------------------------------------- what happens to it (written here alone)

    def trace_by(self, trace: dict[str, str]) -> None:
        """Put its question into this span."""
        self.question = self.question._replace(trace=trace)

    def cut_lineage(self, most: int) -> None:
        """Keep the last `most` agents of its lineage, as a question can name no more."""
        self.question = self.question._replace(lineage=self.question.lineage[-most:])

    def put_to(self, asked: Sequence[str], *, shadowed: bool = False) -> None:
        """Record the schedulers asked in a round. `shadowed` is True if some of them are shadows."""
        self.asked += (asked,)
        if shadowed and self.shadows is None:
            self.shadows = ShadowLog()

    def end_round(
        self, question: "OpenRound", closed: RoundResult, agreed: Group | None, *, gives: bool
    ) -> None:
        """Record a round that is over. `agreed` names all if all agreed; `gives`: it may have given."""
        self.heard += closed.heard
        self.rounds += (question,)
        if gives:
            self.admitted += (question,)
        if agreed is not None:
            self.agreed = agreed
        if closed.silent:
            self.silent += tuple(name for name in closed.silent if name not in self.silent)

    def hear_locally(
        self, heard: tuple[ReceivedVerdict, ...], agreed: Group | None = None, timings: tuple[Any, ...] = ()
    ) -> None:
        """Record a round in which nobody had to be asked. `agreed` names all if all said a plain continue."""
        self.heard += heard
        self.agreed, self.timings = agreed, timings

    def keep_final(self, modify: Modify, arguments: dict[str, Any]) -> None:
        """Keep the arguments that a valid modify of its own call would run with."""
        self.finals += ((modify, arguments),)

    def find_final(self, modify: Modify) -> dict[str, Any] | None:
        """Return the arguments that were kept for this modify; None without any."""
        return next((arguments for one, arguments in self.finals if one is modify), None)

    def keep_rounds(self) -> None:
        """Keep its rounds: it waits for something, and any scheduler that was asked may still deny it."""
        self.goes_on = True

    def forget_rounds(self) -> None:
        """Forget its rounds, which refer back to it: otherwise only the garbage collector could free both."""
        self.rounds = ()

    def take_admitted(self) -> tuple["OpenRound", ...]:
        """Return the rounds in which something was given to it, to be given back now."""
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

    def put_result(self, result: OutgoingResult, replacement: Any = None) -> None:
        """Record the result that is asked about from now on; `replacement` is what its author gave."""
        self.result, self.replacement = result, replacement
        self.results += (result,)

    def end_result(self, outcome: str) -> None:
        """Record what became of its result."""
        self.given = outcome

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
        """Become an earlier decision, with every verdict that it received."""
        self.id, self.question, self.started = bytes.fromhex(question.id), question, started
        self.body, self.outgoing = body, outgoing
        self.heard, self.asked, self.failed_open = tuple(verdicts), (asked,), failed_open
        if any(one.shadow for one in verdicts):
            self.shadows = ShadowLog()

    def adopt_silence(self, silent: Sequence[str], passed_over: Sequence[str]) -> None:
        """Take over the schedulers that gave no answer to the earlier decision, or were not waited for."""
        self.silent, self.passed_over = tuple(silent), tuple(passed_over)

    def take_over(self, before: "DecisionState") -> None:
        """Take over the rounds of another call: a denial of that call, now or later, denies this one."""
        for question in before.rounds:
            question.call = self
        self.rounds, self.goes_on, self.objection = before.rounds, before.goes_on, before.objection
        if self.objection is not None:
            self.heard += (self.objection,)
        before.rounds, before.goes_on = (), False

    def listen_to_objections(self, told: Callable[[ReceivedVerdict], None] | None) -> None:
        """Set the function to call for a denial while it waits for a person; None for none."""
        self.on_objection = told

    def stop_reports(self) -> None:
        """Stop reporting that it waits."""
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
        """Record that the decision is made without an optional scheduler. The first reason stands."""
        if name not in self.failed_open:
            self.failed_open = {**self.failed_open, name: reason}

    def report_waits(self, note: Note) -> None:
        """Report at intervals from now on that it waits."""
        if self.waits is None:
            self.waits = WaitReporter(self.question, note)

    def object_to(self, heard: ReceivedVerdict) -> bool:
        """Let a denial count that came after its round. Return False if the decision is made."""
        if self.is_over:
            return False
        self.heard += (heard,)
        self.objection = self.objection or heard
        if self.on_objection is not None:
            self.on_objection(heard)
        return True

    def keep_late(self, heard: ReceivedVerdict) -> None:
        """Keep a verdict until it is known what became of the result, and what of it is hidden."""
        self.late_verdicts += (heard,)

    def name_shadows(self, names: tuple[str, ...]) -> None:
        """Record shadows that would have changed what became of its result."""
        self.disagreeing += names

    def hide(self, texts: frozenset[str]) -> None:
        """Hide these texts of its result from now on, wherever they stand."""
        self.hidden |= texts

    def mask_late(self, heard: ReceivedVerdict, about: OutgoingResult) -> bool:
        """Let a mask count that came after its round. Return False if the result is ruled on."""
        if self.is_over:
            return False
        self.heard += (heard,)
        self.late_masks += ((heard, about),)
        return True

    def bind(
        self, can: frozenset[Ability], passes: tuple[type[BaseException], ...], *, reaches_person: bool
    ) -> None:
        """Set the caller's abilities, whether a person can be asked, and which exceptions may leave."""
        self.can, self.is_bound, self.passes = can, can != ALL, passes
        self.reaches_person = reaches_person

    def leave_unasked(self, name: str, words: str) -> None:
        """Record that a required scheduler cannot be asked. The first words stand."""
        if name not in self.unasked:
            self.unasked = {**self.unasked, name: words}
