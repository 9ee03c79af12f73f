"""Decisions that a person's answer resumes: stored, claimed in one atomic step, and continued or ended.

    decide(ask="defer")          ─▶ kept; outcome `ask`, and a token
      while this process lives   ─▶ a late denial, or the end of its time, claims it and denies
    decide(same call, answer=…)  ─▶ found, the token's own, the same call ─▶ claimed: one claim stands
                                 ─▶ what was ruled then, under the same id

A decision is counted only once it is claimed. Elsewhere are the stored form and the token (`record`), the
admission round that follows, and reservations, which the ledger's keeper hands over.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from toolgate_bus.errors import CodecError, TransportError
from toolgate_bus.protocol.events import AskUser, Decision, ReceivedVerdict, ToolQuestion
from toolgate_bus.protocol.fact_events import TOOL_ANSWERED
from toolgate_bus.ruling.counterfactual import ProposedCall
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.logging import DECISION, where
from toolgate_bus.telemetry.printable import printable, shorten
from toolgate_bus.transport.deferrals import MAX_DEFERRAL_S, MAX_PERSON, Claim, Deferral, Deferrals
from toolgate_bus.transport.memory import MemoryStore

from toolgate_orchestrator.decision.config import ToolgateConfig
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.deferral.claims import StandingClaims
from toolgate_orchestrator.decision.deferral.record import (
    SECRET_BYTES,
    DeferredDecision,
    Token,
    make_token,
    read_deferred,
    read_token,
)
from toolgate_orchestrator.decision.link.client import GateClient, OpenDeferral
from toolgate_orchestrator.decision.question.inability import find_missing
from toolgate_orchestrator.decision.question.plain_values import copy_arguments, to_plain
from toolgate_orchestrator.decision.question.question import UnreadableQuestion, write_question
from toolgate_orchestrator.decision.question.redact import BadPlaceholder, RedactedArguments, Redactor
from toolgate_orchestrator.decision.recorder import DecisionRecorder
from toolgate_orchestrator.decision.round.decision_state import DecisionState
from toolgate_orchestrator.decision.round.wait_reports import Note, describe_whose
from toolgate_orchestrator.decision.ruling import RulingResult, objection

GRACE_S: Final = 1.0
"""Seconds after its time is over until the process that asked ends a decision."""
AGAIN_S: Final = 5.0


class DeferralWatch:
    """Ends one decision that waits for a person, unless it was ended before. It hears denials until then."""

    def __init__(
        self,
        kept: Deferrals,
        orchestrator: str,
        recorder: DecisionRecorder,
        call: DecisionState,
        ruling: RulingResult,
        watched: dict[str, OpenDeferral],
        end: Callable[[DecisionState], None],
    ) -> None:
        self._kept, self._orchestrator, self._recorder = kept, orchestrator, recorder
        self._call, self._ruling, self._watched, self._release = call, ruling, watched, end
        self._took = time.monotonic() - call.started
        self._loop, self._tries = asyncio.get_running_loop(), TRIES
        self._ending: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(ruling.seconds + GRACE_S, self._begin_end)
        call.listen_to_objections(lambda _: self._begin_end())
        watched[call.question.id] = self

    def stop(self) -> None:
        """Stop watching: the decision is made, or nobody can be told any more."""
        self._timer.cancel()
        self._call.listen_to_objections(None)
        self._call.close()
        self._watched.pop(self._call.question.id, None)
        self._release(self._call)

    def hand_over(self, call: DecisionState) -> None:
        """Let this call resume the decision: a denial that came just now, or later, denies this call."""
        call.take_over(self._call)
        self.stop()

    def _begin_end(self) -> None:
        self._timer.cancel()
        self._call.listen_to_objections(None)
        self._ending = self._loop.create_task(self._end())

    async def _end(self) -> None:
        call, objected = self._call, objection(self._call)
        ruling = objected or replace(
            self._ruling.with_refusal("expired", self._ruling.scheduler or ""), asked_user=True
        )
        claim = Claim(self._orchestrator, "denied" if objected else "expired", "", secrets.token_hex(16))
        try:
            standing = await self._kept.claim(call.question.id, claim)
        except TransportError as error:
            self._tries -= 1
            if not self._tries:
                self.stop()
            elif not call.is_over:
                self._timer = self._loop.call_later(AGAIN_S, self._begin_end)
            _log.info(
                "a decision that waits for a person could not be ended yet",
                decision=call.question.id,
                error=str(error),
            )
            return
        self.stop()
        if standing == claim:
            call.restart_clock(self._took, time.monotonic())
            call.describe_deferral(answer=claim.answer, answered_by="", asker=self._orchestrator)
            try:
                self._recorder.record(call, ruling)
            except Exception as error:  # noqa: BLE001 - nobody waits for it, so it is only logged
                _log.error("the end of a decision was not recorded", error=where(error))


TRIES: Final = 4
MAX_WATCHED: Final = 10_000
"""Number of waiting decisions that the asking process ends in time. Any others are ended by an answer that
comes too late, or by the keeper of what is reserved for them."""
WAITS: Final = "This call waits for a person's approval."
_ENDED: Final[Mapping[str, str]] = {
    "allow": "allowed",
    "refuse": "refused",
    "expired": "ended, as nobody had answered in time",
    "denied": "denied, as a scheduler objected after all",
}
_log = get_logger("toolgate.gate")
_here: dict[str, StandingClaims] = {}
"""Stores for processes without a bus, by namespace. Only this process sees them."""


class DeferredDecisions:
    """Defers the decisions of one gate, and resumes those of any gate."""

    def __init__(
        self,
        config: ToolgateConfig,
        client: GateClient | None,
        redactor: Redactor,
        recorder: DecisionRecorder,
        note: Note,
        end: Callable[[DecisionState], None],
    ) -> None:
        """Make the part of one gate; `end` is called once a call that waited here for a person is decided."""
        self._config, self._client, self._redactor = config, client, redactor
        self._recorder, self._note, self._end = recorder, note, end
        self._orchestrator = client.bus.orchestrator if client is not None else ""
        self._kept = client.kept if client is not None else _find_here(config.namespace)

    # ------------------------------------------------------------------ defer

    async def defer(
        self, call: DecisionState, ruling: RulingResult, prompt: AskUser, asker: str
    ) -> RulingResult:
        """Store the ruling until a person has answered. Return a denial if that is not possible."""
        seconds = min(self._config.defer_s or prompt.timeout_s, MAX_DEFERRAL_S)
        secret = secrets.token_bytes(SECRET_BYTES)
        try:
            body = self._write(call, ruling, asker, Token(call.question.id, secret, b"").lock)
            token = make_token(secret, self._config.namespace, body, call.question)
            await self._kept.keep(call.question.id, self._orchestrator, body, seconds)
        except (UnreadableQuestion, CodecError) as error:
            return _deny(
                "no_approver", f"It needs a person's approval, but the question was not stored: {error}"
            )
        except TransportError as error:
            _log.warning(
                "a question to a person could not be stored", decision=call.question.id, error=str(error)
            )
            away = "the question was not stored: the bus is away or refused it; try again later"
            return _deny("bus_down", f"It needs a person's approval, but {away}")
        return objection(call) or replace(
            ruling,
            outcome="ask",
            why="pending",
            reason=WAITS,
            scheduler=asker,
            token=str(token),
            prompt=prompt,
            seconds=seconds,
        )

    def _write(self, call: DecisionState, ruling: RulingResult, asker: str, lock: bytes) -> bytes:
        asked, final = call.question, ruling.tool_input
        hidden = None
        if not call.body:
            call.write(*write_question(asked, self._redactor))
        if final is not None and final is not asked.tool_input:
            hidden = self._redactor.redact_arguments(final, call.outgoing, ruling.tool_name or "").value
        kept = DeferredDecision(
            lock=lock,
            session=asked.session,
            question=call.body,
            verdicts=call.heard,
            asked=tuple(dict.fromkeys(name for names in call.asked for name in names)),
            silent=call.silent,
            passed_over=call.passed_over,
            failed_open=call.failed_open,
            seconds=time.monotonic() - call.started,
            outcome=ruling.outcome,
            why=ruling.why,
            reason=self._redactor.text(ruling.reason, call.outgoing),
            scheduler=ruling.scheduler,
            asker=asker,
            final_tool=ruling.tool_name or asked.tool_name,
            final_input=hidden,
            final_agent=ruling.agent_target if ruling.winner is not None else asked.agent_target,
        )
        try:
            restored = kept.restore_final(asked.tool_input)
        except BadPlaceholder:
            restored = None
        if hidden is not None and not ProposedCall("", restored).same(ProposedCall("", final)):
            raise UnreadableQuestion("what would run holds a value that may not leave this process")
        return kept.write([self._recorder.describe_verdict(call, heard) for heard in call.heard])

    def wait(self, call: DecisionState, ruling: RulingResult) -> Decision:
        """Record that the decision waits, and end it when its time is over, unless it was ended before."""
        decision = self._recorder.record_pending(call, ruling)
        call.describe_deferral()
        watched = self._client.deferred if self._client is not None else {}
        if len(watched) < MAX_WATCHED:
            DeferralWatch(self._kept, self._orchestrator, self._recorder, call, ruling, watched, self._end)
        return decision

    # ------------------------------------------------------------------ resume

    async def resume(self, call: DecisionState, answer: PersonAnswer) -> RulingResult:
        """Take over the decision that is answered; return its ruling, or a denial if the person refuses.

        If the answer fits no decision that waits, return a denial; the call is then a decision of its own.
        """
        client = self._client
        if (
            client is not None
            and not client.up
            and not await client.reachable(self._config.patience_ms / 1000)
        ):
            return _deny("bus_down", "It waits for a person's answer, but the bus that stores it is away")
        try:
            found = await self._find(call.question, answer)
            if isinstance(found, str):
                return _deny("void", found)
            kept, deferred, token = found
            final = deferred.restore_final(call.question.tool_input)
            plain = copy_arguments(to_plain(call.question.tool_input))  # others may change them from now on
            if (missing := _find_missing(call, deferred, final)) is not None:
                return missing
            given = "expired" if kept.left_s <= 0 else answer.answer
            person = shorten(printable(answer.by).replace("\n", " "), MAX_PERSON)
            claim = Claim(self._orchestrator, given, person, secrets.token_hex(16))
            standing = await self._claim(token.id, claim)
        except TransportError as error:
            _log.warning("a person's answer could not be taken", decision=call.question.id, error=str(error))
            return _deny(
                "bus_down", "A person's answer to it could not be taken: the bus is away or refused it"
            )
        except (UnreadableQuestion, BadPlaceholder):
            return _deny("void", _CHANGED)
        if standing is None:
            return _deny("void", _UNKNOWN)
        if standing != claim:
            by = f" by {standing.person}" if standing.person else ""
            return _deny("void", f"The question that this answers is {_ENDED[standing.answer]} already{by}")
        self._adopt(call, token, kept, deferred, claim, plain)
        if given != "allow":
            return replace(
                RulingResult("deny", "denied").with_refusal(given, deferred.asker), asked_user=True
            )
        return RulingResult(
            deferred.outcome,
            deferred.why,
            deferred.reason,
            deferred.scheduler,
            winner=_find_winner(deferred) if deferred.outcome == "modify" else None,
            tool_name=deferred.final_tool,
            tool_input=final if final is not None else call.question.tool_input,
            agent_target=deferred.final_agent,
            asked_user=True,
        )

    async def _find(
        self, question: ToolQuestion, answer: PersonAnswer
    ) -> tuple[Deferral, DeferredDecision, Token] | str:
        """Return the decision that waits for this answer to this call, or words for why there is none."""
        token = read_token(answer.token)
        if token is None or answer.answer not in ("allow", "refuse", "expired") or type(answer.by) is not str:
            return "The answer that came with it is not valid: it needs a token, and allow, refuse or expired"
        kept = await self._kept.find(token.id)
        if kept is None:
            return _UNKNOWN
        deferred = read_deferred(kept.body)
        if deferred is None or deferred.lock != token.lock:
            return "The answer that came with it has a token that no question gave, or one of another release"
        if deferred.session != question.session:
            return "The answer that came with it was given to a question of another session"
        if not token.seals(self._config.namespace, kept.body, question):
            return _CHANGED
        return kept, deferred, token

    async def _claim(self, decision: str, claim: Claim) -> Claim | None:
        """Claim the decision. If a reply is lost, make the same claim again."""
        for left in reversed(range(TRIES)):
            try:
                return await self._kept.claim(decision, claim)
            except TransportError:
                if not left:
                    raise
                await asyncio.sleep(self._config.patience_ms / 1000 / TRIES)
        return None

    def _adopt(
        self,
        call: DecisionState,
        token: Token,
        kept: Deferral,
        deferred: DeferredDecision,
        claim: Claim,
        plain: dict[str, Any],
    ) -> None:
        """Turn this call into the stored decision, with every verdict that it received."""
        asked = deferred.put_in_place(call.question)
        DECISION.set(token.id)
        hidden = deferred.find_hidden(asked.tool_input)
        call.adopt(
            asked._replace(id=token.id),
            deferred.question,
            RedactedArguments(deferred.travelled, hidden, plain=plain),
            deferred.verdicts,
            deferred.asked,
            deferred.failed_open,
            time.monotonic() - deferred.seconds,
        )
        call.adopt_silence(deferred.silent, deferred.passed_over)
        call.describe_deferral(
            answer=claim.answer,
            answered_by=claim.person,
            answered_after=max(0.0, kept.seconds - kept.left_s),
            asker=kept.owner,
        )
        if self._client is not None and (watch := self._client.deferred.get(token.id)) is not None:
            watch.hand_over(call)
        self._note(TOOL_ANSWERED, {**describe_whose(call.question), **call.deferred})


_UNKNOWN: Final = (
    "The question that this answers does not wait here: it is unknown in this namespace, or was forgotten"
)
_CHANGED: Final = "It is not the call that a person was asked about: other arguments, tool or agent"


def _find_here(namespace: str) -> StandingClaims:
    if namespace not in _here:
        _here[namespace] = StandingClaims(MemoryStore())
    return _here[namespace]


def _deny(why: Any, words: str) -> RulingResult:
    return RulingResult("deny", why, reason=f"This call was not run. {words}.")


def _find_winner(deferred: DeferredDecision) -> ReceivedVerdict | None:
    modifies = (one for one in deferred.verdicts if one.verdict.action == "modify" and not one.shadow)
    return next((one for one in modifies if one.scheduler == deferred.scheduler), None)


def _find_missing(
    call: DecisionState, deferred: DeferredDecision, final: dict[str, Any] | None
) -> RulingResult | None:
    """Return a denial if the stored ruling needs an ability that the resuming caller lacks; else None."""
    if not call.is_bound or deferred.outcome != "modify":
        return None
    asked = call.question
    own = ProposedCall(asked.tool_name, asked.tool_input, asked.agent_target)
    then = ProposedCall(deferred.final_tool, final or asked.tool_input, deferred.final_agent)
    if not find_missing(call.can, own, then):
        return None
    words = f"{deferred.scheduler} wanted another call to run in its place, which cannot be done here"
    return replace(_deny("denied", words), scheduler=deferred.scheduler)
