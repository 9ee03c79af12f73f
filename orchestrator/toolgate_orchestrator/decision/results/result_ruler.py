"""Rules on the result of a call, before anybody sees it: the phase `result`.

    result ─▶ all ─▶ withheld, by a denial, by silence of a required scheduler, or by a person
                ├──▶ masked: all masks together
                └──▶ replaced: the other result goes round to all once more ─▶ masked, or withheld

Nobody who asked for results of this tool: no question, no copy. The result waits in this process alone, as
long as a scheduler holds it, so that a person's release gives it.
"""

import hashlib
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from toolgate_bus.facts import record
from toolgate_bus.protocol.events import Deny, Mask, MaskedPart, ReceivedVerdict, Replace, SentResult
from toolgate_bus.protocol.fact_events import TOOL_RESULT
from toolgate_bus.ruling.merge import rank
from toolgate_bus.ruling.results import MaskedResult, find_replacement, hide_texts, list_masks, mask_parts
from toolgate_bus.ruling.round import RoundResult

from toolgate_orchestrator.decision.config import ToolgateConfig
from toolgate_orchestrator.decision.faults import call_guarded, note_fault
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_orchestrator.decision.link.recipients import Recipients
from toolgate_orchestrator.decision.question.question import UnreadableQuestion
from toolgate_orchestrator.decision.question.redact import Redactor
from toolgate_orchestrator.decision.recorder import DecisionRecorder
from toolgate_orchestrator.decision.results.given_result import (
    CHANGED,
    GivenResult,
    ResultWhy,
    finish,
    withhold,
)
from toolgate_orchestrator.decision.results.outgoing_result import OutgoingResult, send_result
from toolgate_orchestrator.decision.results.shadow_results import find_disagreeing
from toolgate_orchestrator.decision.round.decision_state import DecisionState
from toolgate_orchestrator.decision.round.dispatcher import Dispatcher
from toolgate_orchestrator.decision.round.wait_reports import describe_whose
from toolgate_orchestrator.decision.ruling import RulingResult, objection

AskPerson = Callable[[DecisionState, RulingResult, SentResult], Awaitable[RulingResult]]
"""Asks a person about a result, and returns the ruling with the denial, if the person refused."""
_KEY: Final = secrets.token_bytes(32)
"""Key of the digests of results of this process: equal results are found, and none can be guessed."""


class ResultRuler:
    """Rules on the results of one gate's calls."""

    def __init__(
        self,
        config: ToolgateConfig,
        client: GateClient | None,
        redactor: Redactor,
        dispatcher: Dispatcher,
        recorder: DecisionRecorder,
    ) -> None:
        self._config, self._client, self._redactor = config, client, redactor
        self._dispatcher, self._recorder = dispatcher, recorder
        self._patience = config.patience_ms / 1000
        self.subscribers: list[Callable[[str, GivenResult], None]] = []

    async def rule(
        self, call: DecisionState, result: Any, audience: Recipients, ask: AskPerson, *, success: bool
    ) -> GivenResult:
        """Return the result as it may be seen. A cancellation withdraws the question."""
        given: GivenResult | None = None
        try:
            given = _clean(call, await self._rule(call, result, audience, ask, success=success))
            call.close()  # what comes while labels are stored changes nothing any more: it is told as late
            await self._dispatcher.settle_labels(call)
            if not given.changed and call.results and not call.results[0].is_of(result):
                given = withhold("gate_failed", CHANGED)
        except UnreadableQuestion as error:
            given = withhold("gate_failed", f"nobody could be asked about it: {error}.")
        except Exception as error:  # noqa: BLE001 - a fault of ours; nobody may gain by it
            note_fault("result", error)
            given = withhold("gate_failed", "the gate failed and could not rule on it.")
        finally:
            call.close()
            self._dispatcher.end(call)
            try:
                self._record(call, given)
                for late in call.late_verdicts:
                    self._recorder.late(call, late)
            except Exception as error:  # noqa: BLE001 - the ruling stands, recorded or not
                note_fault("record", error)
        for subscriber in tuple(self.subscribers):
            call_guarded(subscriber, call.question.id, given)
        return given

    async def _rule(
        self, call: DecisionState, result: Any, audience: Recipients, ask: AskPerson, *, success: bool
    ) -> GivenResult:
        client = self._client
        if client is None or not (client.up or await client.reachable(self._patience)):
            return self._rule_without_bus(call, result, audience)
        hidden, wary = self._redactor.find_secrets(call.question.tool_input, call.question.tool_name)
        send = partial(
            send_result,
            redactor=self._redactor,
            secrets=hidden,
            limit=self._config.result_bytes,
            success=success,
            wary=wary,
        )
        first = last = send(result)
        closed = await self._ask(call, first, audience)
        if closed.agreed and not (first.cut or call.objection or call.late_masks or call.hidden):
            return _release(call, result)  # as nearly always
        if (withheld := self._find_denial(call, closed)) is not None:
            return withheld
        asks, winner = closed.merged.asks, find_replacement(closed.heard)
        if winner is not None and isinstance(winner.verdict, Replace):
            other = winner.verdict.result
            last = send(hide_texts(other, call.hidden))
            closed = await self._ask(call, last, audience, again=True, replacement=other)
            if (withheld := self._find_denial(call, closed)) is not None:
                return withheld
            asks = (*asks, *closed.merged.asks)
        if asks:
            _hide_late(call)
            masks = [one.verdict for one in list_masks(closed.heard) if isinstance(one.verdict, Mask)]
            shown = last.show_person(masks, call.hidden)
            ruled = await ask(call, RulingResult("continue", "agreed", asks=asks), shown)
            if ruled.outcome != "continue":
                return withhold(_why(ruled.why), _REFUSED.get(ruled.why, ruled.reason), ruled.scheduler)
        if (objected := objection(call)) is not None:
            return withhold("denied", objected.reason, objected.scheduler)
        _hide_late(call)
        return self._give(call, result, last, list_masks(closed.heard), winner)

    def _give(
        self,
        call: DecisionState,
        result: Any,
        last: OutgoingResult,
        masks: Sequence[ReceivedVerdict],
        winner: ReceivedVerdict | None,
    ) -> GivenResult:
        """Return what is given of a result that nobody withholds; `last` is what was asked about last."""
        for late, about in call.late_masks:
            if about is last:
                masks = (*masks, late)
        author = min(list_masks(call.heard), key=rank, default=None)
        cut, hidden = last.cut > 0, call.hidden
        if winner is author is None and not (masks or cut or hidden):
            return _release(call, result)
        parts = _find_parts(last, masks)
        made = mask_parts(last.value, parts) if parts else MaskedResult(last.value, frozenset())
        value = finish(last, hide_texts(made.value, call.hidden - made.hidden))
        if winner is not None and not cut and (first := call.results[0]).cut:  # nobody knows the whole
            value, cut = finish(first, value if isinstance(value, str) else json.dumps(value)), True
        if winner is not None:
            reason = winner.verdict.reason
            return GivenResult(value, "replaced", "replaced", reason, winner.scheduler, hidden, cut)
        if author is not None:
            reason = author.verdict.reason
            return GivenResult(value, "masked", "masked", reason, author.scheduler, hidden, cut)
        if cut:
            reason = f"only its first {self._config.result_bytes} bytes were ruled on"
            return GivenResult(value, "masked", "masked", reason, None, hidden, cut)
        return _release(call, result)

    async def _ask(
        self,
        call: DecisionState,
        outgoing: OutgoingResult,
        audience: Recipients,
        *,
        again: bool = False,
        replacement: Any = None,
    ) -> RoundResult:
        call.put_result(outgoing, replacement)
        asking = call.question._replace(
            phase="result", result=outgoing.sent, again=again, ttl_ms=self._config.patience_ms
        )
        closed = await self._dispatcher.dispatch(call, asking, audience, None, self._patience)
        if not closed.agreed and (parts := _find_parts(outgoing, list_masks(closed.heard))):
            call.hide(mask_parts(outgoing.value, parts).hidden)
        return closed

    def _find_denial(self, call: DecisionState, closed: RoundResult) -> GivenResult | None:
        merged = closed.merged
        if merged.action == "deny" and merged.winner is not None and isinstance(merged.winner.verdict, Deny):
            return withhold("denied", merged.winner.verdict.reason, merged.winner.scheduler)
        if closed.required_silent:
            name = closed.required_silent[0]
            if name in call.unasked:
                return withhold("silent", f"the required scheduler cannot rule: {call.unasked[name]}.", name)
            waited = f"waited at most {self._config.patience_ms} ms"
            reason = f"the required scheduler {name} gave no valid answer ({waited})."
            return withhold("silent", reason, name)
        if closed.expired:
            name = closed.expired[0]
            return withhold("expired", f"{name} held it and gave no answer in time.", name)
        return None

    def _rule_without_bus(self, call: DecisionState, result: Any, audience: Recipients) -> GivenResult:
        required = [name for name, denies in audience.required.items() if denies]
        if required or self._config.denies_without_bus:
            reason = "the server of those who rule on results cannot be reached."
            return withhold("bus_down", reason, required[0] if required else None)
        for name in audience.names:
            call.fail_open(name, "bus_down")
        return GivenResult(result, "released", "failed_open")

    # ------------------------------------------------------------------ the record

    def _record(self, call: DecisionState, given: GivenResult | None) -> None:
        """Record what became of a result: digest, size, verdicts and the places of masks; no text of it."""
        asked, outgoing = call.question, call.result
        outcome, why = ("cancelled", "cancelled") if given is None else (given.outcome, given.why)
        call.end_result(outcome)
        _hide_late(call)
        fact = describe_whose(asked)
        fact["tool"], fact["outcome"], fact["why"] = call.labels[0], outcome, why
        fact["seconds"] = max(0.0, time.monotonic() - call.started)
        fact["verdicts"] = [
            record.clean_verdict(record.verdict_fields(one), call.hidden) for one in call.heard
        ]
        if asked.lineage:
            fact["lineage"] = list(asked.lineage)
        if outgoing is not None:
            fact["size"] = outgoing.size
            fact["digest"] = hashlib.blake2b(outgoing.sent.data, key=_KEY, digest_size=16).hexdigest()
            if outgoing.cut:
                fact["cut"] = outgoing.cut
        if why == "agreed" and call.agreed is not None:
            self._recorder.note_released(call, fact)
            return
        if given is not None:
            fact |= {name: one for name in ("reason", "scheduler") if (one := getattr(given, name))}
        if disagreeing := find_disagreeing(call.heard, call.results, call.hidden, call.given):
            call.name_shadows(disagreeing)
            fact["disagreeing"] = list(disagreeing)
        if call.silent:
            fact["silent"] = list(call.silent)
        if call.failed_open:
            fact["failed_open"] = dict(call.failed_open)
        self._recorder.note(TOOL_RESULT, fact)


def _release(call: DecisionState, result: Any) -> GivenResult:
    """Return a result that nobody objects to, and of which nobody hides anything."""
    return GivenResult(result, "released", "failed_open" if call.failed_open else "agreed")


def _find_parts(outgoing: OutgoingResult, masks: Sequence[ReceivedVerdict]) -> list[MaskedPart]:
    """Return the parts of a result that these masks of what was sent hide."""
    verdicts = [one.verdict for one in masks]
    return outgoing.find_own([part for mask in verdicts if isinstance(mask, Mask) for part in mask.parts])


def _hide_late(call: DecisionState) -> None:
    """Note the texts that masks hide which came after their round."""
    for heard, about in call.late_masks:
        if isinstance(heard.verdict, Mask):
            call.hide(about.find_hidden(heard.verdict))


def _clean(call: DecisionState, given: GivenResult) -> GivenResult:
    """Return the same without hidden texts in words: who denies may quote what another scheduler hides."""
    _hide_late(call)
    if not call.hidden:
        return given
    reason = hide_texts(given.reason, call.hidden, may_be_cut=True)
    if given.outcome == "withheld":
        return withhold(given.why, reason, given.scheduler)
    return given._replace(reason=reason)


def _why(why: str) -> ResultWhy:
    known: dict[str, ResultWhy] = {"expired": "expired", "no_approver": "no_approver"}
    return known.get(why, "refused")


_REFUSED: Final[Mapping[str, str]] = {
    "refused": "a person was asked about it and refused it.",
    "expired": "a person was asked about it and did not answer in time.",
    "no_approver": "it needs a person's approval, and there is nobody to ask.",
}
