"""One round of one question: ask all recipients, wait, and tidy up afterwards.

The in-process scheduler (hooks) is asked beside the bus. It is waited for up to `max_hold_s`, because a hook
may itself be asking a person. The result of the verdicts is made elsewhere (`ruling`).
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import (
    IN_PROCESS,
    AskUser,
    Deny,
    Failure,
    Hold,
    Modify,
    ReceivedVerdict,
    ToolQuestion,
)
from toolgate_bus.protocol.names import AGAIN
from toolgate_bus.protocol.signing import OTHER_SCHEME, Keyring, Kind, digest
from toolgate_bus.ruling.conditions.matching import AnyQuestion
from toolgate_bus.ruling.counterfactual import ProposedCall
from toolgate_bus.ruling.delegation import reroute
from toolgate_bus.ruling.merge import NOTHING, merge
from toolgate_bus.ruling.round import Round, RoundResult
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.unanimous import Group

from toolgate_orchestrator.decision.config import ToolgateConfig
from toolgate_orchestrator.decision.faults import call_guarded
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_orchestrator.decision.link.local_tables import LocalAnswers
from toolgate_orchestrator.decision.link.recipients import ExclusionReason, LocalAgreement, Recipients
from toolgate_orchestrator.decision.link.scheduler_info import ADMIT, RESULT
from toolgate_orchestrator.decision.question.inability import deny_ask, deny_change, find_missing
from toolgate_orchestrator.decision.question.plain_values import copy_arguments, to_plain
from toolgate_orchestrator.decision.question.question import UnreadableQuestion, fill_defaults, write_question
from toolgate_orchestrator.decision.question.redact import Redactor
from toolgate_orchestrator.decision.question.user_request import with_request
from toolgate_orchestrator.decision.question.validation import check_call, check_modify, final_arguments
from toolgate_orchestrator.decision.round.decision_state import DecisionState, HeldCall, holders
from toolgate_orchestrator.decision.round.local_scheduler import LocalScheduler, consult
from toolgate_orchestrator.decision.round.open_round import OpenRound, count_verdict, hear_locally
from toolgate_orchestrator.decision.round.open_rounds import OpenRounds
from toolgate_orchestrator.decision.round.overload import count_shed
from toolgate_orchestrator.decision.round.wait_reports import Note
from toolgate_orchestrator.decision.vacancy import tell_failing

MAX_WAIT_S: Final = 86_400.0
"""Longest hold in seconds while something scarce is waited for, as the scheduler that gives it says."""
_log = get_logger("toolgate.gate")
_LAST: Final = frozenset((ADMIT, RESULT))
"""Phases in which no local table answers."""
MAX_HEARD: Final = 64
"""Rounds of local tables that are kept for each audience."""
EXCUSING: Final = 0.25
"""Fraction of the patience: if the own event loop stood still for longer, nobody is blamed for silence."""


class Dispatcher:
    """Asks the questions of one gate, round by round."""

    def __init__(
        self,
        config: ToolgateConfig,
        client: GateClient | None,
        keyring: Keyring | None,
        redactor: Redactor,
        on_late: Callable[[DecisionState, ReceivedVerdict], None],
        note: Note,
    ) -> None:
        self._config, self._client, self._on_late, self._note = config, client, on_late, note
        self._redactor = redactor
        self.table = client.table if client is not None else OpenRounds(asyncio.get_running_loop())
        self.look_at: Callable[[float], None] = self.table.look_at
        self._patience = config.patience_ms / 1000
        self.keyring: Keyring | None = keyring
        self.orchestrator = client.bus.orchestrator if client is not None else ""
        self.caps: Mapping[str, int] = {
            name: limits.max_priority
            for name, limits in config.schedulers.items()
            if limits.max_priority is not None
        }

    async def dispatch(
        self,
        call: DecisionState,
        asking: ToolQuestion,
        audience: Recipients,
        local: LocalScheduler | None,
        patience: float,
    ) -> RoundResult:
        """Ask this question about a call, wait until the round is over, and return how it ended.

        If the bus went away since the first round, wait for it. Raises UnreadableQuestion.
        """
        loop, client, phase = self.table.loop, self._client, asking.phase
        if phase != "select":
            self.go_on(call)
            if client is not None and not client.up:
                await client.reachable(patience)
        if client is not None and (client.labels.is_used or audience.absent):
            # Who was never seen may be about to start, and read them.
            unseen = not audience.absent.issubset(client.directory.announced)
            labels = await client.labels.find(asking, patience if client.up else 0, reads=unseen)
            asking = client.labels.put(asking, labels)
        known, call.answers = call.answers, None
        body, sent = (call.body, None) if known is not None else self._write(call, asking, audience)
        now = time.monotonic()
        asked, awaited = audience.names, audience.required
        answers: LocalAnswers = known or {}
        if known is None and client is not None and client.tables.in_force and asked and phase not in _LAST:
            answers = self._answer_locally(client, sent, body, asked, asking, audience.shadows)
        if client is None or not client.breaker.calm or audience.absent:
            awaited, asked = self._whom(call, audience, now, answers)
        unasked = audience.unasked.get(AGAIN if asking.again else phase) if audience.unasked else None
        if unasked:
            awaited, asked = self._left_out(call, unasked, awaited, asked)
        hopeless = self._skip_given_up(client, call, audience, awaited) if audience.absent else ()
        everybody = asked == audience.names
        if local is not None:
            awaited = {**awaited, IN_PROCESS: False}
            call.put_to((IN_PROCESS,))
        if answers:
            if not everybody:
                answers = {name: answers[name] for name in asked if name in answers}
            if len(answers) < len(asked):
                asked = self._leave_out_needless(asked, answers, audience)
        call.put_to(asked, shadowed=bool(audience.shadows))
        if answers:
            asked = () if len(answers) == len(asked) else tuple(one for one in asked if one not in answers)
            tells_request = audience.readers and asking.request and _denies(answers)  # in the record
            others = asked or local is not None or audience.shadows or unasked or hopeless or tells_request
            if not others and answers.keys() >= awaited.keys():
                agreed = audience.group if everybody and not call.passed_over else None
                closed = self._close_locally(call, asking, audience, answers, agreed)
                if self.table.is_rest_due(call.started):
                    await self.table.rest(call.started)
                return closed
        if client is not None and client.overload.limits and phase == "select":
            shed = client.overload.find_full(asked, now)
            if shed:
                awaited, asked = self._left_out(call, shed, awaited, asked)
                unasked, everybody = {**(unasked or {}), **shed}, False
                count_shed(shed)
        round_ = Round(
            awaited,
            patience=patience,
            max_hold=self._config.max_hold_s if phase != ADMIT else MAX_WAIT_S,
            now=now,
            patient=(IN_PROCESS,) if local is not None else (),
        )
        question = OpenRound(self, call, asking, audience, round_, asked, loop.create_future(), now)
        question.body = body
        if audience.readers and asking.request:
            self._add_request(question)
        if asking.session_labels != {}:
            question.leave_out_labels(one for one in asked if audience.versions.get(one) == packing.VERSION)
        hooks = None
        group = asking.session if asking.parallel_group_id else None
        try:
            self.table.open[question.key] = question
            if group is not None and self.table.join_group(group, now) and client is not None:
                client.bus.hurry_facts()  # they may hold the end that it waits for
            if asked and client is not None:
                self._publish(client, question)
                if client.overload.limits:
                    client.overload.begin(question.key, asked)
            if unasked or hopeless:
                for name in (*(unasked or ()), *hopeless):
                    round_.unreachable(name)
            for name, (answer, revision) in answers.items():
                question.answer_locally(name, answer, revision, time.monotonic())
            question.end_if_over()
            if asked and client is not None:
                self.table.leaves(now)
            if local is not None:  # last, as a hook may block the loop
                hooks = loop.create_task(consult(local, question))
            if question.closed is not None:
                await self.table.rest(call.started)
            closed = await question.future
        finally:
            closed = question.closed or question.end()
            self.table.open.pop(question.key, None)  # a closed gate has forgotten it already
            if self.table.held:
                self.table.held.discard(question.key)
            if group is not None:
                self.table.leave_group(group)
            if hooks is not None:
                hooks.cancel()
            if asked and client is not None:
                self._settle(client, question, closed, patience)
            # A scheduler whose answer is on its way may have given something too.
            gives = phase == ADMIT and (not closed.denied or bool(set(closed.unfinished) - {*closed.held}))
            everybody = everybody and not call.passed_over  # (a probed scheduler was asked too)
            all_agree = closed.agreed and local is None and not audience.shadows and everybody
            call.end_round(question, closed, audience.group if all_agree else None, gives=gives)
        return closed

    def go_on(self, call: DecisionState) -> None:
        """Keep the rounds of a call that is waited for after a round: its recipients may still deny it."""
        call.keep_rounds()
        self.table.keep(call.rounds)

    def end(self, call: DecisionState) -> None:
        """Forget the rounds of a call that is decided."""
        if call.goes_on:
            self.table.forget(call.rounds)
        call.forget_rounds()

    def find_denying(self, call: DecisionState, audience: Recipients) -> tuple[str, ...]:
        """Return the schedulers whose local tables deny a call while they cannot be asked."""
        client, asking = self._client, call.question
        if client is None or not client.tables.in_force:
            return ()
        if client.labels.is_used:
            asking = client.labels.put(asking, client.labels.show(asking))
        body, sent = self._write(call, asking, audience)
        answers = self._answer_locally(client, sent, body, audience.names, asking, audience.shadows)
        return tuple(name for name, (answer, _) in answers.items() if answer.verdict.action == "deny")

    def _leave_out_needless(
        self, asked: Sequence[str], answers: LocalAnswers, audience: Recipients
    ) -> tuple[str, ...]:
        """Return the schedulers that are asked, or answer themselves, about a call that tables may deny.

        If one does, nobody waits for the others. Those that count no calls are left out (`may_miss`).
        """
        client = self._client
        if client is None or not _denies(answers):
            return tuple(asked)
        return tuple(
            name
            for name in asked
            if name in answers or name in audience.shadows or not client.tables.may_miss(name)
        )

    def answer_at_once(
        self, client: GateClient, call: DecisionState, audience: Recipients
    ) -> RoundResult | None:
        """End the round of a call if the local tables of all its recipients answer. None: `dispatch` asks.

        `dispatch` would return the same. This is no coroutine, and looks at nothing that is rare: the caller
        knows that the recipients are `is_simple`. Raises UnreadableQuestion.
        """
        asking = call.question
        _, sent = self._write(call, asking, audience)
        if sent is None:  # something was held back
            return None
        answers = client.tables.answer(audience.names, sent)
        if len(answers) < len(audience.names):
            call.answers = answers
            return None
        call.put_to(audience.names)
        return self._close_locally(call, asking, audience, answers, audience.group)

    def _close_locally(
        self,
        call: DecisionState,
        asking: ToolQuestion,
        audience: Recipients,
        answers: LocalAnswers,
        group: Group | None,
    ) -> RoundResult:
        """End a round in which local tables answer for everybody: it needs no waiting, and no state."""
        agreement = self._find_agreement(audience, asking, answers)
        if agreement is not None:
            closed, timings = agreement
            call.hear_locally(closed.heard, group, timings)
            return closed
        heard = tuple([hear_locally(audience, asking, name, *one) for name, one in answers.items()])
        for one in heard:
            if one.verdict is not codec.PLAIN_CONTINUE:  # those are counted with their decision
                count_verdict(call, one)
        call.hear_locally(heard)
        return RoundResult(merge(heard), (), (), (), (), heard)

    @staticmethod
    def _find_agreement(
        audience: Recipients, asking: ToolQuestion, answers: LocalAnswers
    ) -> LocalAgreement | None:
        """Return the round of these answers of local tables if all are plain continues.

        They take no time, so the same verdicts stand for all such calls.
        """
        for answer, _ in answers.values():
            if not answer.is_plain:
                return None
        key = (asking.phase, asking.again, *answers, *[revision for _, revision in answers.values()])
        if (found := audience.agreed_locally.get(key)) is None:
            if len(audience.agreed_locally) >= MAX_HEARD:
                audience.agreed_locally.clear()
            heard = tuple(hear_locally(audience, asking, name, *one) for name, one in answers.items())
            timings = *(one.seconds for one in heard), *(one.revision for one in heard)
            found = LocalAgreement(RoundResult(NOTHING, (), (), (), (), heard, agreed=True), timings)
            audience.agreed_locally[key] = found
        return found

    @staticmethod
    def _answer_locally(
        client: GateClient,
        sent: ToolQuestion | None,
        body: bytes,
        asked: Sequence[str],
        asking: ToolQuestion,
        shadows: frozenset[str],
    ) -> LocalAnswers:
        """Return the answers of local tables.

        A table sees what its scheduler would be sent: `sent`, or what can be read in the body.
        """
        names = asked if not shadows else tuple(name for name in asked if name not in shadows)
        read: AnyQuestion | None = sent
        if read is None:
            if client.tables.in_force.keys().isdisjoint(names):
                return {}
            number = packing.NUMBERS[asking.phase, asking.again]
            read = codec.question(packing.Item(bytes.fromhex(asking.id), number, body, None, packing.NEWEST))
        found = client.tables.answer(names, read)
        if client.up or asking.session_labels is not None:
            return found
        # What the session was given it bears, whatever else it may bear: who is denied for that is denied.
        given = client.tables.answer(names, client.labels.put_given(read, asking))
        return {**found, **{name: one for name, one in given.items() if one[0].verdict.action == "deny"}}

    def _write(
        self, call: DecisionState, asking: ToolQuestion, audience: Recipients
    ) -> tuple[bytes, ToolQuestion | None]:
        """Return the body of a question, and the question as it was sent, if nothing was held back.

        Values that were held back are kept with the call.

        Schedulers see the tool's defaults for arguments that are left out; the tool is not given them.
        Arguments that no rule can read are put to no scheduler that counts: raises UnreadableQuestion.
        """
        own, filled = asking.tool_input, fill_defaults(call.tools, asking)
        if filled is not own:
            asking = asking._replace(tool_input=filled)
        before = None if asking.phase == "select" else call.replaced or call.outgoing
        body, outgoing = write_question(asking, self._redactor, before)
        if filled is not own and outgoing is not None and outgoing.plain is not None:
            outgoing.plain = copy_arguments(to_plain(own))
        if asking.phase == "select":
            call.write(body, outgoing)
        else:
            call.write_replacement(outgoing)
        if outgoing is not None and outgoing.fault and audience.required:
            raise UnreadableQuestion(outgoing.fault)
        return body, asking if outgoing is None else None

    def _add_request(self, question: OpenRound) -> None:
        """Write the question again for schedulers that read the user's request. The record keeps it so."""
        call, body = question.call, question.body
        told = with_request(body, question.question.request, self._redactor, (call.outgoing, call.replaced))
        if told is not body:
            question.told_body, question.readers = told, question.audience.readers
            if question.phase == "select":
                call.write(told, call.outgoing)

    def _whom(
        self, call: DecisionState, audience: Recipients, now: float, answers: Collection[str]
    ) -> tuple[Mapping[str, bool], tuple[str, ...]]:
        """Return the schedulers that are waited for (and whether each is required), and those asked.

        Asked but not waited for are shadows, and probes of schedulers that are set aside. A scheduler whose
        verdicts cannot be read yet is waited for like any: soon they can be, or its silence is counted.
        """
        client = self._client
        awaited = dict(audience.required)
        asked: list[str] = []
        if client is None:
            return awaited, ()
        for name in audience.names:
            if name in answers:  # its table answers, even if it is set aside
                asked.append(name)
                continue
            if awaited.get(name) is False and client.breaker.passes_over(name, self._patience):
                del awaited[name]
                call.pass_over(name, "gone" if name in audience.absent else "passed_over")
                if not client.breaker.probe(name, self._patience, now):
                    continue
            asked.append(name)
        return awaited, tuple(asked)

    def _skip_given_up(
        self,
        client: GateClient | None,
        call: DecisionState,
        audience: Recipients,
        awaited: Mapping[str, bool],
    ) -> list[str]:
        """Return required schedulers that are not alive and were waited for before: they are asked only."""
        if client is None or not client.absence.given_up:
            return []
        given_up = [name for name in audience.absent if awaited.get(name) and name in client.absence.given_up]
        for name in given_up:
            call.leave_unasked(name, self._absent(client, name))
        return given_up

    @staticmethod
    def _absent(client: GateClient, name: str) -> str:
        return client.absence.words(name, gone=name in client.directory.announced)

    def _left_out(
        self,
        call: DecisionState,
        unasked: Mapping[str, ExclusionReason],
        awaited: Mapping[str, bool],
        asked: Sequence[str],
    ) -> tuple[Mapping[str, bool], tuple[str, ...]]:
        """Return the same without those that cannot be asked. A required one is silent at once."""
        kept = dict(awaited)
        for name, why in unasked.items():
            if kept.get(name):
                call.leave_unasked(name, why.words)
            elif kept.pop(name, None) is not None:
                call.fail_open(name, why.reason)
        return kept, tuple(name for name in asked if name not in unasked)

    # ------------------------------------------------------------------ what a question asks back

    def problem(self, call: DecisionState, asked: ToolQuestion, scheduler: str, modify: Modify) -> str | None:
        """Return the problem of a scheduler's modify of this question, or None."""
        checked = check_modify(
            modify,
            tool_name=asked.tool_name,
            tool_input=asked.tool_input,
            tools=call.tools,
            limits=self._config.schedulers.get(scheduler),
            placeholders=call.placeholders_of(asked.phase),
            agents=call.agents,
            plain=call.plain_of(asked.phase),
        )
        if checked.problem is None and asked.phase == "select" and checked.arguments is not None:
            call.keep_final(modify, checked.arguments)
        return checked.problem

    def apply(self, call: DecisionState, asked: ToolQuestion, scheduler: str, modify: Modify) -> ProposedCall:
        """Return the call that a valid modify makes of this question."""
        placeholders, limits = call.placeholders_of(asked.phase), self._config.schedulers.get(scheduler)
        plain = call.plain_of(asked.phase)
        arguments = final_arguments(modify, asked.tool_name, asked.tool_input, placeholders, limits, plain)
        agent = asked.agent_target
        return ProposedCall(modify.tool, *reroute(asked.tool_input, agent, arguments, modify.agent_target))

    def lay_over(
        self, call: DecisionState, asked: ToolQuestion, modifies: Sequence[ReceivedVerdict]
    ) -> ProposedCall:
        """Return the call that was asked about with these changes, except those that make it invalid."""
        own = ProposedCall(asked.tool_name, asked.tool_input, asked.agent_target)
        changes = [
            self.apply(call, asked, heard.scheduler, heard.verdict)
            for heard in modifies
            if isinstance(heard.verdict, Modify)
        ]
        kept: list[ProposedCall] = []
        for one in changes:
            both = own.lay_over([*kept, one])
            if check_call(both, call.tools, asked.tool_input, call.agents) is None:
                kept.append(one)
        return own.lay_over(kept) if kept else own

    def deny_for(
        self, call: DecisionState, asked: ToolQuestion, scheduler: str, verdict: Modify | AskUser
    ) -> Deny | None:
        """Return the denial that a verdict becomes if the caller cannot do what it wants; else None."""
        if isinstance(verdict, AskUser):
            return None if call.reaches_person else deny_ask(scheduler, verdict)
        final, own = self.apply(call, asked, scheduler, verdict), call.own
        return deny_change(scheduler, verdict, own.tool, find_missing(call.can, own, final))

    def late(self, call: DecisionState, heard: ReceivedVerdict) -> None:
        """Handle a genuine verdict that came after the end."""
        self._on_late(call, heard)

    def label(self, asked: ToolQuestion, labels: Mapping[str, Sequence[str]], *, by_required: bool) -> None:
        """Take the labels that a verdict on this question, perhaps a required one, gives to its session."""
        if self._client is not None:
            self._client.labels.learn(asked, labels, by_required=by_required)

    async def settle_labels(self, call: DecisionState) -> None:
        """Wait until the labels that were just given to a session are stored, `patience_ms` at most."""
        client = self._client
        if client is not None and not client.labels.is_settled:
            await client.labels.settle(call.question, self._patience)

    # ------------------------------------------------------------------ the bus

    def _publish(self, client: GateClient, question: OpenRound) -> None:
        (id_, phase), body, asked = question.key, question.body, question.asked
        versions, version = question.audience.versions, question.audience.version
        if question.question.again or question.phase == RESULT:
            # a scheduler never seen is asked in the version that has this phase
            versions, version = dict.fromkeys(asked, packing.NEWEST), packing.NEWEST
        question.outages = client.outages
        if self.keyring is not None:
            question.digest = digest(packing.bytes_to_sign(id_, phase, body))
            if question.readers:
                question.told_digest = digest(packing.bytes_to_sign(id_, phase, question.told_body))
            if question.unlabelled:
                question.old_digest = digest(packing.bytes_to_sign(id_, phase, question.old_body))
            for name in asked:
                own = question.body_for(name)
                client.ask((name,), id_, self._sign_item("question", name, question, own, versions[name]))
        elif question.readers or question.unlabelled:
            for name in asked:
                own = question.body_for(name)
                spoken = max(versions[name], packing.VERSION)
                client.ask((name,), id_, packing.pack_item((spoken, id_, phase, own, None)))
        elif version:
            client.ask(asked, id_, packing.pack_item((version, id_, phase, body, None)))
        else:
            for version in packing.VERSIONS:
                alike = tuple(name for name in asked if max(versions[name], packing.VERSION) == version)
                if alike:
                    client.ask(alike, id_, packing.pack_item((version, id_, phase, body, None)))

    def _sign_item(self, kind: Kind, name: str, question: OpenRound, body: bytes, version: int) -> bytes:
        """Return an item that asks or withdraws, signed if there are keys."""
        key, ring, mac = question.key, self.keyring, None
        if ring is not None:
            sign = ring.sign_withdrawn if kind == "withdrawn" else ring.sign_question
            mac = sign(self.orchestrator, name, packing.bytes_to_sign(*key, body), version)
        return packing.pack_item((version, *key, body, mac))

    def ask_again(self, question: OpenRound, name: str, version: int) -> None:
        """Ask a scheduler once more, in the version that all its replicas read by now."""
        if self._client is not None and name in question.asked:
            if version == packing.VERSION:  # that version has no request
                question.readers -= {name}
            item = self._sign_item("question", name, question, question.body_for(name), version)
            self._client.ask((name,), question.key[0], item)

    def _settle(self, client: GateClient, question: OpenRound, closed: RoundResult, patience: float) -> None:
        """Tidy up after a round: note silence, withdraw holds, and place late verdicts."""
        if client.overload.limits:
            self._measure(client, question, closed)
        if closed.agreed and not (question.has_shadows or question.call.passed_over or client.failures.rows):
            client.table.record_end(question, complete=True)
            return
        client.table.record_end(
            question,
            complete=not (
                closed.silent or closed.unfinished or question.has_shadows or question.call.passed_over
            ),
        )
        if client.failures.rows:
            client.failures.record_answers(
                one.scheduler for one in closed.heard if one.verdict.action != "failed"
            )
        if closed.silent:
            outage = question.outages != client.outages or not client.up
            # Silence proves nothing if less than the whole patience was given, by us or by our loop.
            fair = patience >= self._patience and question.lag <= patience * EXCUSING
            for name in closed.silent:
                if name in question.asked and not outage:
                    self._note_overload(client, name)
                if question.audience.required.get(name):
                    self._give_up(client, question, closed, name, fair=fair and not outage)
                elif name != IN_PROCESS:
                    refused = name in question.refused_by and not outage
                    excuse = "refused" if refused else "bus_down" if outage else None
                    reason = excuse or self._reason(name, question.audience, closed)
                    question.call.fail_open(name, reason)
                    if reason == "failed":
                        self._tell_failing(name, closed)
                    else:
                        client.failures.record_failure(name, reason)
                    if reason in ("silent", "gone") and fair:
                        client.breaker.silent(name, self._patience, question.started, time.monotonic())
        if not closed.agreed:
            for name in holders(closed.heard):
                self.withdraw(question, name)

    def _note_overload(self, client: GateClient, name: str) -> None:
        """Note a question that stayed unanswered. Log once if the scheduler is asked too much."""
        overload = client.overload
        table = self.table
        waiting = len(table.open)
        if overload.record_silence(name, self._patience, time.monotonic(), waiting, table.find_waiting):
            _log.warning(
                "a scheduler is overloaded: calls that it cannot answer in time are denied at once, or run "
                "without it if it is optional",
                scheduler=name,
                in_flight=len(overload.limits[name].in_flight),
            )

    def _measure(self, client: GateClient, question: OpenRound, closed: RoundResult) -> None:
        """Note how long overloaded schedulers took to answer a question."""
        seconds = {one.scheduler: one.seconds for one in closed.heard if one.verdict.action != "hold"}
        ended = client.overload.end(question.key, question.asked, seconds, self._patience, time.monotonic())
        for name in ended:
            _log.info("a scheduler is overloaded no more", scheduler=name)

    @staticmethod
    def _tell_failing(name: str, closed: RoundResult) -> None:
        """Log once why an optional scheduler could not decide."""
        for heard in closed.heard:
            if heard.scheduler == name and isinstance(heard.verdict, Failure):
                tell_failing(name, heard.verdict.reason or "", required=False)

    def on_held(self, question: OpenRound, heard: ReceivedVerdict) -> None:
        """Tell the viewer of a call that a scheduler holds it, and that the hold is waited for."""
        call = question.call
        self.table.held.add(question.key)
        if self._client is not None and self._client.overload.limits:
            self._client.overload.release(question.key, heard.scheduler)
        if self._client is not None:
            self._client.bus.hurry_facts()  # they may hold the end that it waits for
        call.report_waits(self._note)
        if call.on_hold is None or not isinstance(heard.verdict, Hold):
            return
        most = self._config.max_hold_s if heard.phase != ADMIT else MAX_WAIT_S
        seconds = min(heard.verdict.seconds, most)
        reason = heard.verdict.reason if heard.phase != RESULT else None  # it may quote what others mask
        asked = question.question
        held = HeldCall(asked.id, asked.tool_name, heard.phase, heard.scheduler, reason, seconds)
        call_guarded(call.on_hold, held)

    def prove(self, scheduler: str, start: str) -> None:
        """Note that a signed verdict names the start that gave it."""
        if self._client is not None:
            self._client.prove(scheduler, start)

    def give_back(self, call: DecisionState) -> None:
        """Tell all schedulers that gave something to a call that it will not run."""
        for question in call.take_admitted():
            for name in question.asked:
                self.withdraw(question, name)

    def withdraw(self, question: OpenRound, scheduler: str) -> None:
        """Tell a scheduler that nobody waits for its answer, so that it frees what it holds or gave."""
        client = self._client
        if client is None or scheduler not in question.asked:
            return
        body = packing.pack({"phase": question.phase})
        announced = client.directory.announced.get(scheduler)
        version = announced.version if announced is not None else question.audience.versions.get(scheduler, 0)
        item = self._sign_item("withdrawn", scheduler, question, body, version or packing.VERSION)
        client.ask((scheduler,), question.key[0], item, "tool:withdrawn")

    @staticmethod
    def _reason(name: str, audience: Recipients, closed: RoundResult) -> str:
        """Return why the decision was made without an optional scheduler that the bus had reached."""
        if any(one.scheduler == name and one.verdict.action == "failed" for one in closed.heard):
            return "failed"
        return "gone" if name in audience.absent else "silent"

    def _give_up(
        self, client: GateClient, question: OpenRound, closed: RoundResult, name: str, *, fair: bool
    ) -> None:
        """Handle the silence of a required scheduler. If it is not alive, that becomes the reason."""
        announced = client.directory.announced.get(name)
        if announced is not None and announced.signs_otherwise:
            question.call.leave_unasked(name, f"{name} is {OTHER_SCHEME}")
        if name in question.audience.absent and name not in question.refused_by:
            question.call.leave_unasked(name, self._absent(client, name))
            if fair and not any(one.scheduler == name for one in closed.heard):
                client.absence.give_up(name)


def _denies(answers: LocalAnswers) -> bool:
    return any(answer.verdict.action == "deny" for answer, _ in answers.values())
