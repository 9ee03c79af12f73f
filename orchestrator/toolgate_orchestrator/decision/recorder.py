"""The steps after a decision: count it, record it, and tell subscribers.

Facts are made off the decision's path (the bus calls back for their bytes). They hold arguments as these
left the process: redacted. Fields that the engine itself wrote (OWN) are not redacted: a pattern that fits a
decision's id, or a rule for a field called `cost`, would leave money reserved. Only values of plain types
count as the engine's. Anything else under such a name came from other code.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

from toolgate_bus.errors import CodecError
from toolgate_bus.facts import record
from toolgate_bus.facts.columnar import MAX_QUESTION, MAX_RECIPIENTS, pack_run
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import IN_PROCESS, Decision, Mask, ReceivedVerdict
from toolgate_bus.protocol.fact_events import ENDS, TOOL_ENDS, TOOL_RESULT
from toolgate_bus.protocol.names import POINTS_OF_WORDS
from toolgate_bus.telemetry import metrics, tracing
from toolgate_bus.telemetry.fact_metrics import MAX_LABEL, decides, trace_id
from toolgate_bus.telemetry.unanimous import FactRun, Group
from toolgate_bus.transport.ports import FactItem

from toolgate_orchestrator.decision.config import ToolgateConfig
from toolgate_orchestrator.decision.faults import call_guarded, note_fault
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_orchestrator.decision.link.scheduler_info import RESULT
from toolgate_orchestrator.decision.question.question import UnreadableQuestion, clip, write_question
from toolgate_orchestrator.decision.question.redact import RedactedArguments, Redactor, hide_value
from toolgate_orchestrator.decision.results.shadow_results import find_disagreeing
from toolgate_orchestrator.decision.round.decision_state import DecisionState
from toolgate_orchestrator.decision.round.open_round import count_remarks, count_rule, count_verdict
from toolgate_orchestrator.decision.ruling import RulingResult

WORDS: Final = frozenset({"arguments", "prompt", "reason"})
"""Fields of a verdict that may repeat a secret."""

OWN: Final = frozenset(
    {
        *("decision_id", "session", "root_session", "parent", "lineage", "agent", "labels", "sub_session_id"),
        *("tool", "tool_call_id", "parallel_group_id", "iteration", "source", "success", "seconds", "cost"),
        *("provider", "model", "cost_usd", "total_tokens", "input_tokens", "output_tokens"),
        *("cache_read_tokens", "cache_write_tokens", "reasoning_tokens"),
        *("loop", "status", "iterations", "trace", "now", "grants", "retry_after"),
    }
)
MAX_SCARCE: Final = 10_000
"""Number of calls that are remembered because they hold a reservation or a slot that others wait for."""
_NUMBERS: Final = frozenset((int, float, bool, type(None)))
_MAX_LENGTH: Final = 4096
_NO_ID: Final = bytes(packing.ID_BYTES)


class DecisionRecorder:
    """Counts and records the decisions of one gate, and tells subscribers of them."""

    def __init__(self, client: GateClient | None, redactor: Redactor, config: ToolgateConfig) -> None:
        self._client, self._redactor, self._config = client, redactor, config
        self.subscribers: list[Callable[[Decision], None]] = []
        self.late_subscribers: list[Callable[[str, ReceivedVerdict], None]] = []
        self._scarce: dict[str, None] = {}
        """Decisions of calls that were granted something that others wait for, until their ends are told."""

    @property
    def is_recording(self) -> bool:
        """True if facts are recorded: they are read, a scheduler rules or once ruled, or one is required.

        A scheduler that is away for a moment reads later what was decided meanwhile.
        """
        client = self._client
        return client is not None and (
            client.directory.ever_met or self._config.is_strict or client.bus.is_read
        )

    def record(self, call: DecisionState, ruling: RulingResult) -> Decision:
        """Make the decision of a ruling, record it and tell subscribers. None of that can change it."""
        now = time.monotonic()
        call.close()
        decision = ruling.decision(call, now)
        try:
            if not (ruling.why == "agreed" and self._record_unanimous(call, now)):
                self._record_in_full(call, decision)
        except Exception as error:  # noqa: BLE001 - the ruling stands, recorded or not
            note_fault("record", error)
        if call.admitted and decision.allowed and decision.grants:
            if len(self._scarce) >= MAX_SCARCE:
                del self._scarce[next(iter(self._scarce))]
            self._scarce[decision.id] = None
        if self.subscribers:
            for subscriber in tuple(self.subscribers):
                call_guarded(subscriber, decision)
        return decision

    def record_pending(self, call: DecisionState, ruling: RulingResult) -> Decision:
        """Record a decision that waits for a person while no process waits for it. It is not counted yet."""
        call.stop_reports()
        decision = ruling.decision(call, time.monotonic())
        prompt = self._redact(ruling.prompt.prompt if ruling.prompt else "", call)
        call.describe_deferral(prompt=prompt, answer_within=ruling.seconds)
        self._keep(lambda seq, at: self._decision(call, decision, _recipients_of(call), (), seq, at))
        return decision

    def _record_unanimous(self, call: DecisionState, now: float) -> bool:
        """Record the usual case in short: all said continue. Return False if there is more to tell."""
        group, client = call.agreed, self._client
        if group is None or client is None or call.question.trace:  # (its trace id may become an exemplar)
            return False
        if len(call.body) > MAX_QUESTION or len(group) > MAX_RECIPIENTS:
            return False
        client.facts = seq = client.facts + 1
        run, heard, (tool, agent) = client.run, call.heard, call.labels
        timings: Sequence[Any] = call.timings or _timings_of(group, heard)
        note = (tool, agent, now - call.started, call.id, call.body, now, seq, *timings)
        if run is None or not run.room or not (group in run.batches or client.may_interlock()):
            client.run = run = FactRun()
            run.batches[group] = metrics.agreed_batch(group, note)
            client.fact(partial(_pack, client, run))
        elif (batch := run.batches.get(group)) is not None:
            batch.notes += note
        else:
            run.batches[group] = metrics.agreed_batch(group, note)
        run.room -= 1
        return True

    def _record_in_full(self, call: DecisionState, decision: Decision) -> None:
        """Count a decision and record it with all its verdicts."""
        asked = _recipients_of(call)
        _count(call, decision, asked)
        if call.shadows is not None:
            call.shadows.record_decision(decision, call.question.agent_target, call.outgoing, call.replaced)
        disagreeing = self._compare(call)
        # A scheduler that was asked may answer, and reserve, after the decision: it must learn the end.
        if decision.verdicts or self.is_recording or any(name != IN_PROCESS for name in asked):
            self._keep(lambda seq, at: self._decision(call, decision, asked, disagreeing, seq, at))

    def late(self, call: DecisionState, heard: ReceivedVerdict) -> None:
        """Count and record a verdict that came after its decision."""
        told = heard._replace(late=not heard.shadow)
        if heard.phase == RESULT:
            self._late_on_result(call, told)
            return
        if heard.shadow:  # nobody waits for a shadow: it is never late
            metrics.count(metrics.VERDICTS, heard.scheduler, heard.verdict.action, *call.labels)
            count_rule(heard)
            count_remarks(heard)
            if call.shadows is not None:
                call.shadows.add_late(heard)
        else:
            metrics.count(metrics.LATE, heard.scheduler)
            count_remarks(heard)
        fields = {"event": "verdict", "id": call.question.id, **self.describe_verdict(call, told)}
        if heard.shadow:
            fields["tool_label"], fields["agent"] = call.labels
            if disagreeing := self._compare(call):
                fields["disagreeing"] = disagreeing
        self._keep(lambda seq, at: record.other_fact(fields, seq, at))
        for subscriber in tuple(self.late_subscribers):
            call_guarded(subscriber, call.question.id, told)

    def _late_on_result(self, call: DecisionState, told: ReceivedVerdict) -> None:
        """Count and record a verdict on a result that came too late, without any text of that."""
        if not call.given:  # it is told after the ruling: it may quote what is hidden by then
            call.keep_late(told)
            return
        hidden, results = call.hidden, call.results
        if isinstance(told.verdict, Mask) and results:  # it may quote what it would have hidden
            hidden |= results[-1 if told.again else 0].find_hidden(told.verdict)
        fields: dict[str, Any] = {"event": "verdict", "id": call.question.id}
        fields |= record.clean_verdict(self.describe_verdict(call, told), hidden)
        if told.shadow:
            fields["tool_label"], fields["agent"] = call.labels
            found = find_disagreeing((told,), results, call.hidden, call.given)
            if names := tuple(name for name in found if name not in call.disagreeing):
                call.name_shadows(names)
                fields["disagreeing"] = list(names)
        metrics.record(fields)
        self._keep(lambda seq, at: record.other_fact(fields, seq, at))

    def note(self, event: str, data: Mapping[str, Any]) -> None:
        """Count and record any other fact. Fields that are not the engine's are redacted, as arguments are.

        The end of a decided call is recorded in any case: a scheduler may have reserved for it and died.
        """
        told = {**data, "event": event}
        metrics.record(told)
        client = self._client
        if client is None or not (self.is_recording or data.get("decision_id")):
            return
        seq, at = client.facts + 1, time.time()
        body = self._plain_body({**told, "seq": seq, "at": at})
        if body is not None:
            make = partial(packing.item, _NO_ID, 0, body)
        else:
            own = own_fields(data)
            foreign = {name: value for name, value in data.items() if name not in own}
            fields = {**foreign_fields(self._redactor.redact_fact(foreign)), **own, "event": event}
            make = partial(record.other_fact, fields, seq, at)
        client.facts = seq
        _queue(client, seq, make)
        if event in ENDS:
            ended = data.get("decision_id")
            frees, table = type(ended) is str and self._scarce.pop(ended, False) is None, client.table
            if frees or table.held or (event in TOOL_ENDS and table.is_awaited(data.get("session"))):
                client.bus.hurry_facts()  # another call may wait for this end

    def note_released(self, call: DecisionState, fact: Mapping[str, Any]) -> None:
        """Count and record a result that all who were asked let pass, as `note` does, in a part of its time.

        All fields of such a fact are the gate's own, and plain: none is looked at twice.
        """
        client = self._client
        seq = client.facts + 1 if client is not None else 0
        try:
            body = packing.pack({**fact, "event": TOOL_RESULT, "seq": seq, "at": time.time()})
        except CodecError:
            body = b""
        if client is None or not body or not self._redactor.leaves_unread(body):
            self.note(TOOL_RESULT, fact)
            return
        tool, agent = call.labels
        metrics.count(metrics.RESULTS, "released", tool[:MAX_LABEL], agent[:MAX_LABEL])
        metrics.observe(metrics.RESULT_SECONDS, fact["seconds"])
        for heard in call.heard:
            metrics.count(metrics.RESULT_VERDICTS, heard.scheduler[:MAX_LABEL], "continue")
        client.facts = seq
        _queue(client, seq, partial(packing.item, _NO_ID, 0, body))

    def _plain_body(self, fields: dict[str, Any]) -> bytes | None:
        """Return the bytes of a fact if all of it may leave as it is, as most may; else None."""
        try:
            body = packing.pack(fields)
        except CodecError:
            return None
        return body if self._redactor.leaves_as_is(fields, body) else None

    def _compare(self, call: DecisionState) -> tuple[str, ...]:
        """Count and return the shadows that are now found to have changed the outcome of this call."""
        disagreeing = (
            call.shadows.take_disagreeing(self._config.schedulers) if call.shadows is not None else ()
        )
        for name in disagreeing:
            metrics.count(metrics.SHADOW_DISAGREEMENTS, name)
        return disagreeing

    def _keep(self, make: Callable[[int, float], bytes]) -> None:
        """Queue a fact, with its place in this orchestrator's sequence."""
        client = self._client
        if client is not None:
            client.facts = seq = client.facts + 1
            _queue(client, seq, partial(make, seq, time.time()))

    def _decision(
        self,
        call: DecisionState,
        decision: Decision,
        asked: Sequence[str],
        disagreeing: Sequence[str],
        seq: int,
        at: float,
    ) -> bytes:
        if not call.body:  # nobody was asked
            try:
                call.write(*write_question(call.question, self._redactor))
            except UnreadableQuestion:
                call.write(*write_question(clip(call.question), self._redactor))
        final = None
        if decision.outcome == "modify" or decision.pending:
            final = self._redactor.redact_arguments(
                decision.tool_input, call.outgoing, decision.tool_name
            ).value
        reason = self._redact(decision.reason, call)
        given = decision.tool_input if decision.allowed or decision.pending else None
        verdicts = [self.describe_verdict(call, heard, given) for heard in decision.verdicts]
        beside = {**record.beside(decision, asked, call.failed_open, disagreeing), **call.deferred}
        body = call.body
        is_kept = decision.pending or decision.outcome == "continue"
        if call.question.tool_name in POINTS_OF_WORDS and not is_kept:
            body = codec.hide_text(body, hide_value)
        return record.decision_fact(decision, body, verdicts, final, reason, seq, at, beside)

    def _redact(self, words: str | None, call: DecisionState) -> str | None:
        return words and self._redactor.text(packing.make_readable(words), call.outgoing)

    def describe_verdict(
        self, call: DecisionState, heard: ReceivedVerdict, given: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return a verdict's fields, fit to leave: a hook of this process saw unredacted values.

        Of words at a point of a turn only those that were `given` leave: others may be what a mask hides.
        """
        fields = record.verdict_fields(heard)
        if call.question.tool_name in POINTS_OF_WORDS:
            for one in (fields, fields.get("said") or {}):
                if (words := one.get("arguments")) and words != given:
                    one["arguments"] = {name: hide_value(word) for name, word in words.items()}
        if call.body and (heard.said is not None or not codec.is_plain(heard.verdict)):
            for one in (fields, fields.get("said")):
                if one and not WORDS.isdisjoint(one):
                    self._hide_words(one, call.outgoing_of(heard.phase))
        return fields

    def _hide_words(self, fields: dict[str, Any], outgoing: RedactedArguments | None) -> None:
        if "arguments" in fields:
            fields["arguments"] = self._redactor.redact_arguments(fields["arguments"], outgoing).value
        for words in ("reason", "prompt"):
            if words in fields:
                fields[words] = self._redactor.text(packing.make_readable(fields[words]), outgoing)


def _recipients_of(call: DecisionState) -> Sequence[str]:
    """Return all schedulers that were asked about a call, in any round."""
    rounds = call.asked
    return rounds[0] if len(rounds) == 1 else tuple(dict.fromkeys(chain.from_iterable(rounds)))


def _count(call: DecisionState, decision: Decision, asked: Sequence[str]) -> None:
    """Count a decision exactly as `toolgate_bus.telemetry.fact_metrics` counts it from its fact."""
    tool, agent = call.labels
    trace = trace_id(call.question.trace) if call.question.trace else None
    metrics.count(metrics.DECISIONS, decision.outcome, tool, agent)
    metrics.observe(metrics.DECISION_SECONDS, decision.latency, trace=trace)
    for name in asked:
        metrics.count(metrics.ASKED, name, tool, agent)
    for heard in decision.verdicts:
        if codec.is_plain(heard.verdict):  # the others were counted as they came
            count_verdict(call, heard)
    if decision.why == "agreed" and not call.failed_open:
        return
    if decision.scheduler is not None and decides(decision.why):
        metrics.count(metrics.DECIDED, decision.scheduler, decision.outcome)
    for name in decision.silent:
        metrics.count(metrics.SILENT, name)
    for name in decision.passed_over:
        metrics.count(metrics.PASSED_OVER, name)
    for name, reason in call.failed_open.items():
        metrics.count(metrics.FAILED_OPEN, name, reason)
    if not decision.allowed:
        outcome = "denied" if decision.outcome == "deny" else "cancelled"
        metrics.count(metrics.TOOL_CALLS, tool, agent, outcome)


def _timings_of(group: Group, heard: Sequence[ReceivedVerdict]) -> Sequence[Any]:
    """Return the seconds that each scheduler of a group took, then the revision of each."""
    if len(heard) == 1:
        return heard[0].seconds, heard[0].revision
    if [one.scheduler for one in heard] != [name for name, _ in group]:  # they came in another order
        by_name = {one.scheduler: one for one in heard}
        heard = [by_name[name] for name, _ in group]
    return [one.seconds for one in heard] + [one.revision for one in heard]


def _queue(client: GateClient, seq: int, make: Callable[[], bytes]) -> None:
    """Queue a fact that is no unanimous decision, with those that wait where readers know that."""
    run = client.run
    if run is not None and run.room and client.may_interlock():
        run.add(seq, make)
    else:
        client.run = None  # later unanimous decisions come after this fact
        client.fact(make)


def _pack(client: GateClient, run: FactRun) -> list[FactItem]:
    """Return the facts of a run, which ends now."""
    if client.run is run:
        client.run = None
    return pack_run(run)


def own_fields(fact: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a fact that are recorded as they are."""
    return {name: value for name, value in fact.items() if name in OWN and _is_plain(value)}


def foreign_fields(fact: Mapping[str, Any]) -> dict[str, Any]:
    """Return the other fields, already redacted; a value under one of the engine's names becomes a text.

    Readers refuse a fact in which such a name has another type, and the money it reports with it.
    """
    return {name: _as_text(value) if name in OWN else value for name, value in fact.items()}


def _as_text(value: Any) -> str:
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))[:_MAX_LENGTH]


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is str and len(value) <= _MAX_LENGTH and value.isascii():
        return True
    if kind in _NUMBERS:
        return kind is not int or -(2**63) <= value < 2**63
    try:  # labels, lineage, and names that are not plain English
        return (
            kind in (str, dict, list)
            and packing.within_bounds(value)
            and packing.size(value) <= 2 * _MAX_LENGTH
        )
    except CodecError:
        return False


def span_of_decision(call: DecisionState, parent: Mapping[str, str] | None) -> tracing.Span:
    """Return a span `toolgate.decide TOOL`, a child of `parent`, or of the current span if that is None.

    It holds names, ids and numbers only. A reason may repeat arguments; the record has it, redacted.
    """
    tool, agent = call.labels
    return tracing.span(
        f"toolgate.decide {tool}",
        parent=parent,
        attributes={
            "toolgate.decision.id": call.question.id,
            "toolgate.tool": call.question.tool_name,
            "gen_ai.agent.name": agent or None,
            "gen_ai.conversation.id": call.question.session or None,
            "gen_ai.tool.call.id": call.question.tool_call_id or None,
        },
    )


def tell(span: tracing.Span, decision: Decision) -> None:
    """Add the outcome to the span. A denial sets the status, with `why` as the kind of error."""
    if span is tracing.NO_SPAN:
        return
    span.set(
        {
            "toolgate.outcome": decision.outcome,
            "toolgate.why": decision.why,
            "toolgate.final_tool": decision.tool_name if decision.allowed else None,
            "toolgate.scheduler": decision.scheduler,
            "toolgate.verdicts": len(decision.verdicts),
            "toolgate.asked_user": decision.asked_user,
            "toolgate.waited_s": decision.waited or None,
        }
    )
    if decision.outcome == "deny":
        span.fail(decision.why)
