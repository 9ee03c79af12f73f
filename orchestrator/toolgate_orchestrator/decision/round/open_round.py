"""One open question: a `Round`, the future that waits for it, and the checks of verdicts.

The bus passes items in as they come, `open_rounds` passes time. Every fault of a verdict is found here,
before the round hears it: signature, shape, priority cap, validity of a modify.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import (
    OVERRULED,
    AskUser,
    Continue,
    Deny,
    Failure,
    Mask,
    Modify,
    ReceivedVerdict,
    Replace,
    ToolQuestion,
    Verdict,
)
from toolgate_bus.protocol.json_values import same_json
from toolgate_bus.protocol.names import MAX_REASON
from toolgate_bus.protocol.signing import Keyring, digest
from toolgate_bus.ruling.counterfactual import ProposedCall
from toolgate_bus.ruling.local_table import LocalAnswer
from toolgate_bus.ruling.merge import RESTRICTIVE
from toolgate_bus.ruling.round import Round, RoundResult
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.fact_metrics import is_local, trace_id
from toolgate_bus.transport.ports import HoldPlace

from toolgate_orchestrator.decision.link.recipients import Recipients
from toolgate_orchestrator.decision.link.scheduler_info import RESULT
from toolgate_orchestrator.decision.results.outgoing_result import explain_mask
from toolgate_orchestrator.decision.round.consent import JudgedChange, agree, judge_change, judge_other_tool
from toolgate_orchestrator.decision.round.decision_state import DecisionState

GRACES: Final = 3
"""Number of times that a wait is extended because the own event loop stood still."""
MIN_GRACE_S: Final = 0.05
MAX_GRACE_S: Final = 0.25
_OF_NOTHING: Final = digest(b"")
"""Digest of a verdict that has no body: a local table gave it."""


class Judge(Protocol):
    """The parts that all questions of one gate share."""

    caps: Mapping[str, int]
    keyring: Keyring | None
    orchestrator: str
    look_at: Callable[[float], None]
    """Has the open questions ticked at this deadline at the latest."""

    def problem(self, call: DecisionState, asked: ToolQuestion, scheduler: str, modify: Modify) -> str | None:
        """Return the problem of a scheduler's modify of this question, or None."""

    def apply(self, call: DecisionState, asked: ToolQuestion, scheduler: str, modify: Modify) -> ProposedCall:
        """Return the call that a valid modify makes of this question."""

    def deny_for(
        self, call: DecisionState, asked: ToolQuestion, scheduler: str, verdict: Modify | AskUser
    ) -> Deny | None:
        """Return the denial that a verdict becomes if the caller cannot do what it wants; else None."""

    def late(self, call: DecisionState, heard: ReceivedVerdict) -> None:
        """Handle a genuine verdict that came after the end."""

    def label(self, asked: ToolQuestion, labels: Mapping[str, Sequence[str]], *, by_required: bool) -> None:
        """Take the labels that a verdict on this question, perhaps a required one, gives to its session."""

    def on_held(self, question: "OpenRound", heard: ReceivedVerdict) -> None:
        """Handle a hold that is waited for."""

    def prove(self, scheduler: str, start: str) -> None:
        """Note that a signed verdict names the start that gave it."""

    def withdraw(self, question: "OpenRound", scheduler: str) -> None:
        """Tell a scheduler that nobody waits for its answer."""

    def ask_again(self, question: "OpenRound", name: str, version: int) -> None:
        """Ask a scheduler once more, in the version that all its replicas read by now."""


class OpenRound:
    """A question that waits for verdicts in one phase."""

    body = b""
    """Question as it was written."""
    digest = b""
    told_body = b""
    """Question with the user's request, if some scheduler reads that."""
    told_digest = b""
    readers: frozenset[str] = frozenset()
    """Schedulers that were asked with the request."""
    old_body = b""
    """Question without the labels of its session, for schedulers that know no such field."""
    old_digest = b""
    unlabelled: frozenset[str] = frozenset()
    """Schedulers that were asked without these labels."""
    outages = 0
    refused_by: tuple[str, ...] = ()
    """Schedulers whose inboxes the bus would not write to."""
    closed: RoundResult | None = None
    deadline: float | None = None
    """Time at which `tick` must be called if nothing comes; None if it need not be."""
    lag = 0.0
    """Seconds that the own event loop stood still during the wait."""
    free_from = 0.0
    """Time (`time.monotonic`) before which no scheduler counts as silent: a stalled loop must read first."""
    _graces = GRACES

    def __init__(
        self,
        judge: Judge,
        call: DecisionState,
        question: ToolQuestion,
        audience: Recipients,
        round_: Round,
        asked: Sequence[str],
        future: asyncio.Future[RoundResult],
        started: float,
    ) -> None:
        self._judge, self.call, self.question, self._round = judge, call, question, round_
        self.audience, self.asked, self.future, self.started = audience, asked, future, started
        self.has_shadows = bool(audience.shadows)
        """True if shadows were asked. They may answer at any time."""
        self.phase = question.phase
        self.outgoing = call.result if question.phase == RESULT else None
        """Result that is asked about."""
        self.key = (call.id, packing.NUMBERS[question.phase, question.again])

    def body_for(self, name: str) -> bytes:
        """Return the question as it is written for this scheduler."""
        if name in self.unlabelled:
            return self.old_body
        return self.told_body if name in self.readers else self.body

    def digest_for(self, name: str) -> bytes:
        """Return the digest that this scheduler's verdict must sign, if there are keys."""
        if name in self.unlabelled:
            return self.old_digest
        return self.told_digest if name in self.readers else self.digest

    def leave_out_labels(self, names: Iterable[str]) -> None:
        """Ask these schedulers without the session's labels: they speak version 1, and would refuse them."""
        self.unlabelled = frozenset(names)
        if self.unlabelled:
            self.old_body = codec.remove_labels(self.body)

    def ask_again(self, name: str, version: int) -> None:
        """Ask a scheduler once more, unless it has answered or holds: nobody may have read the question."""
        if name in self.asked and self._round.waits_for(name):
            self._judge.ask_again(self, name, version)

    def waits_for(self, name: str) -> bool:
        """Return whether a scheduler was asked, and has neither answered nor holds the call."""
        return name in self.asked and self._round.waits_for(name) and name not in self._round.list_holding()

    def list_holds(self) -> list[HoldPlace]:
        """Return the holds that are waited for. Holds of hooks are stored nowhere, so they are left out."""
        holding = self._round.list_holding() if self.closed is None else ()
        return [HoldPlace(name, *self.key) for name in holding if name in self.asked]

    def ask_holder_again(self, name: str, version: int) -> None:
        """Ask a scheduler once more if it still holds: its stored hold of this call is lost."""
        if name in self.asked and name in self._round.list_holding():
            self._judge.ask_again(self, name, version)

    # ------------------------------------------------------------------ verdicts

    def take(self, scheduler: str, item: packing.Item, now: float) -> bool:
        """Take one verdict off the bus. A faulty one is counted and dropped.

        Return whether the round is over or has another deadline; then call `end_if_over`.
        """
        judge, audience = self._judge, self.audience
        known = codec.PLAIN_BODIES.get(item.body)
        if known is not None and judge.keyring is None and scheduler not in audience.shadows:
            # Nearly every verdict: nothing to decode, nothing that could be wrong with it.
            priority, seconds = audience.priorities.get(scheduler, 0), now - self.started
            heard = ReceivedVerdict(
                scheduler,
                codec.PLAIN_CONTINUE,
                priority,
                self.phase,
                seconds,
                False,
                False,
                None,
                False,
                b"",
                known.revision,
                None,
                self.question.again,
            )
            if not self._round.receive(heard, now):
                self._late(heard)
        elif (read := self._read(scheduler, item, now)) is not None and not self.receive(read, now):
            self._late(read)
        return self._round.deadline != self.deadline

    def answer_locally(self, scheduler: str, answer: LocalAnswer, revision: str, now: float) -> None:
        """Take the answer of a scheduler's local table, as its verdict."""
        seconds = now - self.started
        self.receive(hear_locally(self.audience, self.question, scheduler, answer, revision, seconds), now)

    def take_late(self, scheduler: str, item: packing.Item, now: float) -> bool:
        """Take a verdict after the end. Return True if it was genuine."""
        heard = self._read(scheduler, item, now)
        if heard is None:
            return False
        self._take_labels(heard)
        self._late(heard)
        return True

    def object_late(self, scheduler: str, item: packing.Item, now: float) -> bool:
        """Take a verdict after all had answered: an objection, by another replica, counts until the end."""
        if scheduler in self.audience.shadows or packing.action_of(item.body) not in RESTRICTIVE:
            return False
        heard = self._read(scheduler, item, now)
        if heard is None:
            return False
        self._take_labels(heard)
        return self._object(heard)

    def receive(self, heard: ReceivedVerdict, now: float) -> bool:
        """Take a checked verdict. Return False if it came too late to count."""
        in_time = self._round.receive(heard, now)
        if heard.verdict is codec.PLAIN_CONTINUE or codec.is_plain(heard.verdict):
            if heard.said is not None:
                self._take_labels(heard)
            return in_time
        self._take_labels(heard)
        if in_time:
            if self.phase != RESULT:  # (verdicts on results are counted with their fact)
                count_verdict(self.call, heard)
            if heard.verdict.action == "hold" and not heard.shadow:
                self._judge.on_held(self, heard)
        return in_time

    def deny(self, scheduler: str, now: float) -> None:
        """Count a verdict that the gate failed on as a denial, or as nothing if a shadow gave it."""
        if scheduler not in self.audience.shadows:
            effect = "its result is withheld" if self.phase == RESULT else "the call was not run"
            verdict = Deny(reason=f"The gate failed on the verdict of {scheduler}; {effect}.")
            self.receive(ReceivedVerdict(scheduler, verdict, 0, self.phase, now - self.started), now)

    def deny_by(self, who: str, reason: str, now: float) -> None:
        """Deny the call for somebody who was not asked, even if this round of it is over."""
        verdict, seconds = Deny(reason=reason), now - self.started
        heard = ReceivedVerdict(who, verdict, 0, self.phase, seconds, again=self.question.again)
        if not self.receive(heard, now):
            self._object(heard)
        self.end_if_over()

    def judge_verdict(
        self, scheduler: str, verdict: Verdict | Failure, body: bytes, now: float, revision: str = ""
    ) -> ReceivedVerdict:
        """Return a verdict with the priority that it counts with, and with its problem, if any."""
        judge, audience = self._judge, self.audience
        priority = verdict.priority if verdict.priority is not None else audience.priorities.get(scheduler, 0)
        cap = judge.caps.get(scheduler)
        capped = cap is not None and priority > cap
        if capped and cap is not None:
            priority = cap
        if verdict.priority is None and scheduler in audience.capped and verdict.action != "continue":
            capped = True  # its announced priority was
        problem: str | None = None
        said: Verdict | None = None
        if self.phase == RESULT or isinstance(verdict, Mask | Replace):
            verdict, said = self._judge_on_result(scheduler, verdict)
        elif type(verdict) is Modify:
            verdict, problem, said = self._judge_modify(scheduler, verdict, priority)
        elif type(verdict) is AskUser and self.phase == "admit":
            verdict = Deny(reason=f"{scheduler} wanted a person asked about a call that was to be admitted.")
        if self.call.is_bound and problem is None and isinstance(verdict, Modify | AskUser):
            denied = judge.deny_for(self.call, self.question, scheduler, verdict)
            verdict, said = (verdict, said) if denied is None else (denied, verdict)
        mark = b"" if codec.is_plain(verdict) else digest(body)
        shadow = scheduler in audience.shadows
        seconds = now - self.started
        return ReceivedVerdict(
            scheduler,
            verdict,
            priority,
            self.phase,
            seconds,
            False,
            shadow,
            problem,
            capped,
            mark,
            revision,
            said,
            self.question.again,
        )

    def _judge_on_result(
        self, scheduler: str, verdict: Verdict | Failure
    ) -> tuple[Verdict | Failure, Verdict | None]:
        """Return how a verdict on a result counts, and what was said if it counts as something else."""
        outgoing, wrong = self.outgoing, ""
        if isinstance(verdict, Mask):
            wrong = explain_mask(outgoing, verdict) if outgoing is not None else "there was no result yet"
        elif isinstance(verdict, Replace):
            if outgoing is None:
                wrong = "there was no result yet"
            elif self.question.again:
                same = (outgoing.value, self.call.replacement, outgoing.read_sent())
                if any(same_json(verdict.result, one) for one in same):
                    return Continue(reason=verdict.reason, priority=verdict.priority), verdict
                wrong = "it wanted another result than the one that others had chosen"
        elif isinstance(verdict, Modify):
            wrong = "the call had run already"
        if not wrong or not isinstance(verdict, Mask | Replace | Modify):
            return verdict, None
        words = f"The answer of {scheduler} cannot be followed: {wrong}."
        denied = Deny(reason=words, priority=verdict.priority, session_labels=verdict.session_labels)
        return denied, verdict

    def _judge_modify(self, scheduler: str, modify: Modify, priority: int) -> JudgedChange:
        """Return how a modify counts in this phase."""
        judge, call, asked, author = self._judge, self.call, self.question, self.call.author
        if self.phase == "admit":
            return JudgedChange(modify, "phase")  # nothing is replaced any more
        is_shadow = scheduler in self.audience.shadows
        required = self.audience.required.get(scheduler, False)
        if self.phase == "verify" and modify.tool != asked.tool_name and not is_shadow:
            return judge_other_tool(scheduler, modify, asked.tool_name, required=required)
        problem = judge.problem(call, asked, scheduler, modify)
        if self.phase == "select" or problem is not None or is_shadow:
            return JudgedChange(modify, problem)
        if author is not None and scheduler == author.scheduler and not asked.again:
            return agree(modify)  # hooks are asked about their own replacement, too
        outranked = author is not None and (-author.priority, author.scheduler) < (-priority, scheduler)
        return judge_change(
            scheduler,
            modify,
            judge.apply(call, asked, scheduler, modify),
            ProposedCall(asked.tool_name, asked.tool_input, asked.agent_target),
            required=required,
            again=asked.again,
            bound_by=call.own if outranked else None,
        )

    def _read(self, scheduler: str, item: packing.Item, now: float) -> ReceivedVerdict | None:
        judge = self._judge
        try:
            if judge.keyring is not None and not judge.keyring.is_verdict(
                judge.orchestrator, scheduler, self.digest_for(scheduler), item.body, item.mac, item.version
            ):
                raise CodecError("forged")
            verdict, revision, start = codec.decode_verdict(item.body, item.version)
            if start and judge.keyring is not None:
                judge.prove(scheduler, start)
        except CodecError as error:
            metrics.count(metrics.BAD_MESSAGES, scheduler, error.reason)
            action = packing.action_of(item.body)
            objects = action in RESTRICTIVE or (action == "replace" and self.phase == RESULT)
            if error.reason == "forged" or not objects:
                return None
            # It meant to stop the call, to hold it, or to hide what it gave: that much can be read.
            what = "its result" if self.phase == RESULT else "this call"
            verdict = Deny(reason=f"{scheduler} objected to {what} in words that cannot be read.")
            revision = ""
        if verdict.reason is not None and len(verdict.reason) > MAX_REASON:
            verdict = verdict.model_copy(update={"reason": verdict.reason[:MAX_REASON]})
        return self.judge_verdict(scheduler, verdict, item.body, now, revision)

    def _take_labels(self, heard: ReceivedVerdict) -> None:
        """Take the labels that a verdict gives, also where it counts as another one. Shadows give none."""
        if heard.shadow:
            return
        for one in (heard.verdict, heard.said):
            if (labels := getattr(one, "session_labels", None)) is not None:
                is_required = self.audience.required.get(heard.scheduler, False)
                self._judge.label(self.question, labels, by_required=is_required)

    def _late(self, heard: ReceivedVerdict) -> None:
        if not heard.shadow and self._object(heard):
            return
        self._judge.late(self.call, heard)
        if heard.verdict.action == "hold" and not heard.shadow and not self._is_answered(heard.scheduler):
            self._judge.withdraw(self, heard.scheduler)

    def _object(self, heard: ReceivedVerdict) -> bool:
        """Let a denial, or a mask of the result, count until the decision. Return False if it does not."""
        if heard.verdict.action == "deny":
            counts = self.call.object_to(heard)
        elif isinstance(heard.verdict, Mask) and self.outgoing is not None:
            counts = self.call.mask_late(heard, self.outgoing)
        else:
            return False
        if counts and self.phase != RESULT:
            count_verdict(self.call, heard)
        return counts

    def _is_answered(self, scheduler: str) -> bool:
        """Return whether it has answered: another replica may have, before the hold arrived."""
        heard = self.closed.heard if self.closed is not None else ()
        return any(one.scheduler == scheduler and one.verdict.action != "hold" for one in heard)

    # ------------------------------------------------------------------ time and the end

    def on_stall(self, lag: float, now: float) -> None:
        """Handle a stall of the event loop of `lag` seconds: verdicts that came meanwhile are read first."""
        self.lag += lag
        until = now + min(max(lag, MIN_GRACE_S), MAX_GRACE_S)
        if self.deadline is not None and until > self.deadline and self._graces:
            self._graces -= 1
            self.free_from = until

    def on_refusal(self, scheduler: str) -> None:
        """Note that the bus did not take the question for this scheduler."""
        self.refused_by = (*self.refused_by, scheduler)
        self._round.unreachable(scheduler)
        self.end_if_over()

    def tick(self) -> None:
        """Let time pass, to the present."""
        self._round.tick(time.monotonic())
        self.deadline = None  # the timer no longer watches it
        self.end_if_over()

    def end_if_over(self) -> None:
        """Close the round if nothing more is waited for; else have its deadline watched."""
        if self.closed is not None:
            return
        deadline = self._round.deadline
        if deadline is None:
            self.end()
        elif deadline != self.deadline:
            self.deadline = deadline
            self._judge.look_at(deadline)

    def end(self) -> RoundResult:
        """Close the round now, and return its result."""
        if self.closed is None:
            self.closed = self._round.close()
            self.deadline = None
            if not self.future.done():
                self.future.set_result(self.closed)
        return self.closed


def hear_locally(
    audience: Recipients,
    question: ToolQuestion,
    scheduler: str,
    answer: LocalAnswer,
    revision: str,
    seconds: float = 0.0,
) -> ReceivedVerdict:
    """Return the answer of a scheduler's local table as its verdict: it names no priority of its own."""
    verdict = answer.verdict
    return ReceivedVerdict(
        scheduler,
        codec.PLAIN_CONTINUE if answer.is_plain else verdict,
        audience.priorities.get(scheduler, 0),
        question.phase,
        seconds,
        capped=scheduler in audience.capped and verdict.action != "continue",
        digest=b"" if answer.is_plain else _OF_NOTHING,
        revision=revision,
        again=question.again,
    )


def count_verdict(call: DecisionState, heard: ReceivedVerdict) -> None:
    """Count a verdict that came in time. Plain continues, the usual kind, are counted with their decision."""
    action = heard.verdict.action
    metrics.count(metrics.VERDICTS, heard.scheduler, action, *call.labels)
    if action != "continue":
        count_rule(heard)
    if is_local(heard.revision):
        metrics.count(metrics.LOCAL_VERDICTS, heard.scheduler, action)
    elif action != "hold":  # an answer is still to come
        trace = trace_id(call.question.trace) if call.question.trace else None
        took = metrics.ADMISSION_SECONDS if heard.phase == "admit" else metrics.VERDICT_SECONDS
        metrics.observe(took, heard.seconds, heard.scheduler, trace=trace)
    count_remarks(heard)


def count_rule(heard: ReceivedVerdict) -> None:
    """Count the rule that a verdict names, if it does."""
    verdict = heard.verdict
    if isinstance(verdict, Deny | Modify | AskUser | Mask | Replace) and verdict.rule_name is not None:
        metrics.count_rule(heard.scheduler, verdict.rule_name, verdict.action)


def count_remarks(heard: ReceivedVerdict) -> None:
    """Count the faults of a verdict."""
    if heard.capped:
        metrics.count(metrics.PRIORITY_CAPPED, heard.scheduler)
    if heard.problem == OVERRULED:
        metrics.count(metrics.OVERRULED, heard.scheduler)
    elif heard.problem:
        metrics.count(metrics.INVALID_MODIFIES, heard.scheduler, heard.problem)
