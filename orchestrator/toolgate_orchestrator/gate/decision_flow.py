"""The way of one decision: who is asked, what they said, a replacement, a person, what is scarce.

    pause? ─▶ select ─▶ verify, where a modify won ─▶ a person, where somebody said so ─▶ admit ─▶ decided

Here core, bus and clock meet (DESIGN §2). How a gate is opened, and what a caller hands in: `gate`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from toolgate_bus.protocol.delegation import TWO_AGENTS, two_agents
from toolgate_bus.protocol.events import AskUser, Decision, ToolQuestion
from toolgate_bus.protocol.names import MAX_LINEAGE
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.ruling.merge import rank
from toolgate_bus.server.settings import read_keys
from toolgate_bus.telemetry import loggers, metrics, tracing
from toolgate_bus.telemetry.logging import hide_in_logs, where
from toolgate_bus.transport.redis.tasks import is_cancel_requested

from toolgate_orchestrator.gate.admission import admit
from toolgate_orchestrator.gate.client import GateClient
from toolgate_orchestrator.gate.config import ToolgateConfig
from toolgate_orchestrator.gate.deferral import PersonAnswer
from toolgate_orchestrator.gate.dispatch import Dispatcher, LocalScheduler
from toolgate_orchestrator.gate.faults import BROKEN, note_fault
from toolgate_orchestrator.gate.one_question import one_question
from toolgate_orchestrator.gate.pauses import wait_while_paused
from toolgate_orchestrator.gate.question import (
    TOO_DEEP,
    UnreadableQuestion,
)
from toolgate_orchestrator.gate.recipients import Audience, Audiences
from toolgate_orchestrator.gate.recorder import DecisionRecorder, tell
from toolgate_orchestrator.gate.redact import Redactor
from toolgate_orchestrator.gate.resumption import DeferralDesk
from toolgate_orchestrator.gate.ruling import (
    GATE_FAILED,
    UNASKED,
    DecisionState,
    RulingResult,
    final_call,
    objection,
)

_log = loggers.get_logger("toolgate.gate")

Answer = Literal["allow", "refuse", "expired", "no_approver"]
Ask = Callable[[AskUser, ToolQuestion], Awaitable[Answer]]
"""Asks a person about the call that would run, which is given unredacted."""


class DecisionFlow:
    """Takes calls from question to decision; a `Gate` is one that can be opened."""

    def __init__(
        self,
        config: ToolgateConfig,
        client: GateClient | None,
        ask: Ask | Literal["defer"] | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        """A client that is started, or none: then hooks of this process alone rule."""
        self.config = config
        self._client = client
        self._ask = ask
        keys = read_keys(config.keys) if config.keys is not None else None
        keyring = Keyring(keys) if keys is not None else None
        self._redactor = redactor or Redactor(config.redact)
        if self._redactor.configured:
            hide_in_logs(self._redactor)
        self._recorder = DecisionRecorder(client, self._redactor, config.schedulers)
        self._audiences = Audiences(config, keyring)
        self._asking = Dispatcher(config, client, keyring, self._redactor, self._recorder.late, self.note)
        self._desk = DeferralDesk(config, client, self._redactor, self._recorder, self.note, self._asking.end)
        self._patience = config.patience_ms / 1000
        self._ttl_ms = int(self._patience * 1000) or 1
        if client is not None:
            client.bus.watch(config.required)
            client.absence.anew()
            if keys is not None:
                client.trust(keys)

    @property
    def ruled(self) -> bool:
        """Whether anybody might object to a call: somebody is required, or was ever on the roster."""
        return (
            bool(self.config.required)
            or self.config.on_bus_down == "deny"
            or (self._client is not None and self._client.ever_met)
        )

    def note(self, event: str, data: Mapping[str, Any]) -> None:
        """A fact after the event (tool:selected, tool:post, usage …); nothing if nobody reads."""
        self._recorder.note(event, data)

    async def _decide(
        self,
        call: DecisionState,
        local: LocalScheduler | None,
        ask: Ask | Literal["defer"] | None,
        answer: PersonAnswer | None,
        span: tracing.Span = tracing.NO_SPAN,
    ) -> Decision:
        client = self._client
        try:
            if client is not None and client.pauses.standing:
                await self._wait_while_paused(client, call)
            if answer is None:
                ruling = await self._rule(call, local, ask or self._ask)
            else:
                ruling = await self._resume(call, answer)
            if ruling.outcome == "ask":
                return _trace(span, self._desk.wait(call, ruling))
            if ruling.outcome != "deny":
                if client is not None and client.pauses.standing:
                    await self._wait_while_paused(client, call)
                if call.objection is not None:
                    self._asking.give_back(call)
                    ruling = objection(call) or ruling
        except asyncio.CancelledError:
            self._record_cancelled(call, span)
            raise
        except UnreadableQuestion as error:
            reason = f"This call was not run, as nobody could be asked about it: {error}."
            might_object = local is not None or answer is not None or self.ruled
            ruling = replace(GATE_FAILED, reason=reason) if might_object else UNASKED
        except BaseException as error:
            if error is call.interrupt:
                self._record_cancelled(call, span)
                raise
            if not isinstance(error, Exception):
                raise
            note_fault("rule", error)  # a fault of ours; nobody may gain by it
            ruling = GATE_FAILED if local is not None or answer is not None or self.ruled else UNASKED
        decision = self._recorder.record(call, ruling)
        return decision if span is tracing.NO_SPAN else _trace(span, decision)

    def _record_cancelled(self, call: DecisionState, span: tracing.Span) -> None:
        _trace(span, self._recorder.record(call, RulingResult("cancelled", "cancelled")))

    async def _wait_while_paused(self, client: GateClient, call: DecisionState) -> None:
        self._asking.go_on(call)
        await wait_while_paused(client.pauses, call, self.note)

    async def _rule(
        self, call: DecisionState, local: LocalScheduler | None, ask: Ask | Literal["defer"] | None
    ) -> RulingResult:
        asking, client = call.question, self._client
        if call.agents and two_agents(asking.tool_input, call.agents):
            return RulingResult("deny", "denied", reason=f"This call was not run: {TWO_AGENTS}.")
        if len(asking.lineage) > MAX_LINEAGE:
            call.question = asking._replace(lineage=asking.lineage[-MAX_LINEAGE:])
            raise UnreadableQuestion(TOO_DEEP)
        audience = self._audience(asking.tool_name)
        is_up = client is not None and client.up
        if not is_up or not audience.names:
            await self._asking.table.rest(call.started)
        if not is_up and not await self._bus_usable(call, audience):
            if self.config.denies_without_bus:
                return RulingResult(
                    "deny", "bus_down", reason="The bus that rules on calls is away; try again later."
                )
            audience = Audience.NOBODY
        if local is None and not audience.required and not audience.names:
            if not audience.admitters:
                return UNASKED
            return await admit(self._asking, call, UNASKED, audience, self.config)
        first = await self._asking.dispatch(call, asking, audience, local, self._patience)
        ruling = final_call(call, first, self.config)
        if ruling.outcome != "deny" and ruling.winner is not None and self.config.verify:
            ruling = await self._verify(call, ruling, local)
        if ruling.outcome != "deny" and ruling.asks:
            ruling = objection(call) or await self._ask_person(call, ruling, ask)
        if ruling.outcome != "deny" and ruling.outcome != "ask":
            ruling = await self._admit(call, ruling, audience)
        return ruling

    async def _resume(self, call: DecisionState, answer: PersonAnswer) -> RulingResult:
        """Go on with the decision that a person has answered."""
        ruling = await self._desk.resume(call, answer)
        if ruling.outcome == "deny":
            return ruling
        return await self._admit(call, ruling, self._audience(ruling.tool_name or call.question.tool_name))

    async def _admit(self, call: DecisionState, ruling: RulingResult, audience: Audience) -> RulingResult:
        """The last round of a call that is to run."""
        client = self._client
        if client is not None and client.pauses.standing:  # what is paused is given nothing
            await self._wait_while_paused(client, call)
        if ruling.winner is not None:
            audience = self._audience(ruling.tool_name or call.question.tool_name)
        if audience.admitters:
            ruling = await admit(self._asking, call, ruling, audience, self.config)
        return ruling

    def _audience(self, tool: str) -> Audience:
        client = self._client
        if client is None:
            return self._audiences.of(tool, {}, 0)
        return self._audiences.of(tool, client.announced, client.version, client.of_llm)

    async def _verify(
        self, call: DecisionState, ruling: RulingResult, local: LocalScheduler | None
    ) -> RulingResult:
        """A winning modify is a new call that nobody has judged: once more to all but its author."""
        spent = time.monotonic() - call.started
        patience = self._patience if ruling.held else max(self._patience - spent, self._patience / 2)
        changed = ruling.replacement(call.question, int(patience * 1000) or 1)
        audience = self._audience(changed.tool_name).without(ruling.scheduler)
        if local is None and not audience.required and not audience.names:
            return ruling
        second = await self._asking.dispatch(call, changed, audience, local, patience)
        return ruling.with_verification(call, second, self.config)

    async def _ask_person(
        self, call: DecisionState, ruling: RulingResult, ask: Ask | Literal["defer"] | None
    ) -> RulingResult:
        """Somebody said `ask_user`: the person is asked about the call that would run."""
        asker = min(ruling.asks, key=rank)
        asked = one_question(ruling.asks)
        answer: Answer = "no_approver"
        if ask == "defer" and asked is not None and call.reaches_person:
            self._asking.go_on(call)
            return await self._desk.defer(call, ruling, asked, asker.scheduler)
        if ask is not None and ask != "defer" and asked is not None:
            question = call.question
            if ruling.winner is not None:
                question = ruling.replacement(question, self._ttl_ms)
            call.report_waits(self.note)
            self._asking.go_on(call)
            try:
                answer = await ask(asked, question)
            except BROKEN as error:  # the app's approval system; its failure is a denial
                if isinstance(error, asyncio.CancelledError) and is_cancel_requested():
                    raise
                if isinstance(error, call.passes):
                    call.interrupt = error
                    raise
                metrics.count(metrics.GATE_FAULTS, "ask")
                _log.error("the person could not be asked", decision=question.id, error=where(error))
        if answer != "allow":
            ruling = ruling.with_refusal(answer, asker.scheduler)
        return replace(ruling, asked_user=ask is not None)

    # ------------------------------------------------------------------ the bus being away

    async def _bus_usable(self, call: DecisionState, audience: Audience) -> bool:
        client = self._client
        if client is None:
            return not self.config.denies_without_bus and not self.config.required
        if await client.reachable(self._patience):
            return True
        if not self.config.denies_without_bus:
            for name in audience.names or self.config.required or ("unknown",):
                call.fail_open(name, "bus_down")
        return False


def _trace(span: tracing.Span, decision: Decision) -> Decision:
    try:
        tell(span, decision)
    except Exception as error:  # noqa: BLE001 - an exporter's fault; what was ruled stands
        note_fault("span", error)
    return decision
