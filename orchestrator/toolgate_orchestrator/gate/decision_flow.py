"""The way of one decision: who is asked, what they said, a replacement, a person, what is scarce.

    pause? ─▶ select ─▶ verify, where a modify won ─▶ a person, where somebody said so ─▶ admit ─▶ decided
                          └─▶ verify again, where others change the replacement

Here core, bus and clock meet. How a gate is opened and closed: `gate`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from toolgate_bus.protocol import packing
from toolgate_bus.protocol.delegation import TWO_AGENTS, two_agents
from toolgate_bus.protocol.events import AskUser, Decision, Failure, ToolQuestion
from toolgate_bus.protocol.llm import LLM_REQUEST
from toolgate_bus.protocol.names import MAX_LINEAGE, MAX_NAME, NO_TOOL, is_reserved_tool
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.ruling.merge import rank
from toolgate_bus.server.settings import read_keys
from toolgate_bus.telemetry import loggers, metrics, tracing
from toolgate_bus.telemetry.definitions import OTHER
from toolgate_bus.telemetry.logging import DECISION, about, hide_in_logs, where
from toolgate_bus.transport.redis.tasks import is_cancel_requested

from toolgate_orchestrator.gate.admission import admit
from toolgate_orchestrator.gate.capabilities import ALL, Ability, check_abilities
from toolgate_orchestrator.gate.client import GateClient
from toolgate_orchestrator.gate.config import ToolgateConfig
from toolgate_orchestrator.gate.deferral import PersonAnswer
from toolgate_orchestrator.gate.dispatch import Dispatcher
from toolgate_orchestrator.gate.faults import BROKEN, note_fault
from toolgate_orchestrator.gate.ids import decision_id
from toolgate_orchestrator.gate.local_scheduler import LocalScheduler
from toolgate_orchestrator.gate.one_question import one_question
from toolgate_orchestrator.gate.pauses import wait_while_paused
from toolgate_orchestrator.gate.plain_values import changed, copy_arguments
from toolgate_orchestrator.gate.question import (
    TOO_DEEP,
    UnreadableQuestion,
    arguments_of,
    is_plain,
    make_plain,
    name_of,
    names_of,
)
from toolgate_orchestrator.gate.recipients import Audience, Audiences
from toolgate_orchestrator.gate.recorder import DecisionRecorder, span_of_decision, tell
from toolgate_orchestrator.gate.redact import Redactor
from toolgate_orchestrator.gate.resumption import DeferralDesk
from toolgate_orchestrator.gate.ruling import (
    CHANGED,
    GATE_FAILED,
    UNASKED,
    DecisionState,
    OnHold,
    RulingResult,
    deny_unasked,
    final_call,
    objection,
)
from toolgate_orchestrator.gate.user_request import bound_request
from toolgate_orchestrator.gate.vacancy import explain_denial, tell_denied, tell_failing, tell_unruled
from toolgate_orchestrator.gate.validation import Tools

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
        keyring = Keyring(keys, config.namespace) if keys is not None else None
        self._redactor = redactor or Redactor(config.redact)
        if self._redactor.configured:
            hide_in_logs(self._redactor)
        self._recorder = DecisionRecorder(client, self._redactor, config)
        self._audiences = Audiences(config, keyring)
        self._asking = Dispatcher(config, client, keyring, self._redactor, self._recorder.late, self.note)
        self._desk = DeferralDesk(config, client, self._redactor, self._recorder, self.note, self._asking.end)
        self._is_told, self._line = False, ""
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
        return self.config.is_strict or (self._client is not None and self._client.directory.ever_met)

    @property
    def may_tell(self) -> bool:
        """Whether no scheduler is known, and it was not said yet that calls run without rulings."""
        return not self._is_told and (self._client is None or not self._client.directory.announced)

    async def tell_unruled(self) -> None:
        """Of a call that nobody is asked about: log why, once a process, if nobody is there to be asked."""
        if not self._is_told:
            self._is_told = True  # before anything is waited for: calls may come side by side
            try:
                self._line = await tell_unruled(self.config, self._client)
                self._is_told = bool(self._line)
            except Exception as error:  # noqa: BLE001 - a fault of ours in a line changes no ruling
                note_fault("record", error)

    @property
    def unruled_line(self) -> str:
        """What was said of calls that run without rulings, while that is so; else empty."""
        client = self._client
        return "" if client is not None and client.up and client.directory.announced else self._line

    async def _tell_denied(self, absent: Sequence[str]) -> None:
        try:
            await tell_denied(self.config, self._client, absent)
        except Exception as error:  # noqa: BLE001 - as above
            note_fault("record", error)

    def show_tools(self, tools: Tools) -> None:
        """Let operators see that an agent has these tools, before it calls any."""
        if self._client is not None:
            self._client.catalog.note(tools)

    def find_root(self, session: str, parent: str | None, root_session: str = "") -> str:
        """The session at the root, where a caller may have told only for whom one works."""
        if root_session or type(parent) is not str or not parent:
            return root_session or session
        above = self._client.present.get(parent) if self._client is not None else None
        return parent if above is None else above.root

    def note(self, event: str, data: Mapping[str, Any]) -> None:
        """A fact after the event (tool:selected, tool:post, usage …), where facts are kept."""
        self._recorder.note(event, data)

    async def decide(
        self,
        tool_name: str,
        tool_input: Mapping[str, Any],
        available_tools: Tools,
        *,
        labels: Mapping[str, str] | None = None,
        agent: str | None = None,
        session: str = "",
        root_session: str = "",
        parent: str | None = None,
        lineage: Sequence[str] = (),
        tool_call_id: str = "",
        iteration: int = 0,
        parallel_group_id: str = "",
        available_agents: Sequence[str] | None = None,
        agent_target: str | None = None,
        trace: Mapping[str, str] | None = None,
        request: str = "",
        local: LocalScheduler | None = None,
        ask: Ask | Literal["defer"] | None = None,
        on_hold: OnHold | None = None,
        can: Collection[Ability] = ALL,
        answer: PersonAnswer | None = None,
        passes: tuple[type[BaseException], ...] = (),
        is_request: bool = False,
    ) -> Decision:
        """Rule on one call; what may run stands in the decision, and why.

        `available_tools` with schemas lets a replacement's arguments be checked. `local` is the
        in-process scheduler, `ask` how to reach a person (default: the gate's own), `on_hold` is told
        who holds the call, and for how long. `trace` is the
        trace context (`traceparent`, `tracestate`) that this belongs to; default: the current span. `request`
        is what the user asked for: schedulers that ask for it alone are told, redacted.
        Never raises for what others did; a cancelled caller withdraws the question.

        With `ask="defer"` nobody is asked here: the outcome is `ask`, with a token, and the same call with
        that token in `answer` goes on with the decision, in this process or another. `can` is what the
        caller can do; who answers with what it cannot denies. What `ask` raises of the types in `passes`
        ends the decision, and is raised here. `is_request`: it is a request to an LLM, which alone may have
        the name `llm:request`.
        """
        config, id_ = self.config, decision_id()
        self.show_tools(available_tools)
        plain = type(tool_name) is str and len(tool_name) <= MAX_NAME and tool_name.isascii()
        agent = config.agent if agent is None else agent
        if not root_session:
            root_session = session if parent is None else self.find_root(session, parent)
        asking = ToolQuestion(
            id_.hex(),
            tool_name if plain else name_of(tool_name),
            copy_arguments(tool_input) if type(tool_input) is dict else arguments_of(tool_input),
            names_of(available_tools),
            self._ttl_ms,
            agent,
            {**config.labels, **labels} if labels else config.labels,
            session,
            root_session,
            parent,
            list((lineage,) if type(lineage) is str else lineage) if lineage else [],
            tool_call_id,
            iteration,
            parallel_group_id,
            None if available_agents is None else names_of(available_agents),
            agent_target,
            tracing.filter_context(trace) if trace else {},
            len(available_tools) > packing.MAX_ENTRIES or len(available_agents or ()) > packing.MAX_ENTRIES,
            request=bound_request(request) if request else "",
        )
        if (
            ((labels or lineage) and not is_plain(asking.labels, asking.lineage))
            or not (type(session) is type(root_session) is type(agent) is type(tool_call_id) is str)
            or not (type(parallel_group_id) is str and type(iteration) is int)
            or (parent is not None and type(parent) is not str)
            or (agent_target is not None and type(agent_target) is not str)
        ):
            asking = make_plain(asking)
        name = asking.tool_name
        call = DecisionState(
            id_,
            asking,
            available_tools,
            available_agents,
            (name if name in available_tools else OTHER, asking.agent),
            time.monotonic(),
            on_hold,
        )
        if can is not ALL or passes:
            reaches = "ask" in can or callable(ask or self._ask)
            call.bind(check_abilities(can), passes, reaches_person=reaches)
        call.is_request = is_request
        before = DECISION.set(asking.id)
        try:
            if tracing.is_active():
                with span_of_decision(call, parent=asking.trace if trace is not None else None) as span:
                    call.question = asking._replace(trace=tracing.headers())
                    return await self._decide(call, local, ask, answer, span)
            if asking.trace:
                with about(trace=asking.trace):
                    return await self._decide(call, local, ask, answer)
            return await self._decide(call, local, ask, answer)
        finally:
            if call.on_objection is None:  # else it is not decided, and whoever watches it ends it
                self._asking.end(call)
            DECISION.reset(before)

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
            if is_reserved_tool(call.question.tool_name) and not _is_request(call):
                ruling = RulingResult("deny", "denied", reason=f"This call was not run: {NO_TOOL}.")
            elif answer is None:
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
                elif _is_changed(call, ruling):
                    self._asking.give_back(call)
                    ruling = CHANGED
            elif ruling.why == "silent":
                await self._tell_silence(call)
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

    async def _tell_silence(self, call: DecisionState) -> None:
        """Say, once a process, why a required scheduler gave no answer, if that is known."""
        required = set(self.config.required)
        client = self._client
        if client is not None and (
            absent := [name for name in call.unasked if name not in client.directory.announced]
        ):
            await self._tell_denied(absent)
        for heard in call.heard:
            if heard.scheduler in required and isinstance(heard.verdict, Failure):
                tell_failing(heard.scheduler, heard.verdict.reason or "", required=True)

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
                await self._tell_denied(())
                return RulingResult("deny", "bus_down", reason=explain_denial(self.config, client))
            audience = Audience.NOBODY
        if local is None and not audience.required and not audience.names:
            if not audience.admitters:
                if not self._is_told:
                    await self.tell_unruled()
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
        audience = self._audience(ruling.tool_name or call.question.tool_name)
        if (denied := deny_unasked(call, audience.required, ruling.winner)) is not None:
            return replace(denied, asked_user=True)
        return await self._admit(call, ruling, audience)

    async def _admit(self, call: DecisionState, ruling: RulingResult, audience: Audience) -> RulingResult:
        """The last round of a call that is to run."""
        client = self._client
        if client is not None and client.pauses.standing:  # what is paused is given nothing
            await self._wait_while_paused(client, call)
        if ruling.winner is not None or audience.admitters:  # who answered may have proven its own word
            audience = self._audience(ruling.tool_name or call.question.tool_name)
        if audience.admitters:
            ruling = await admit(self._asking, call, ruling, audience, self.config)
        return ruling

    def _audience(self, tool: str) -> Audience:
        client = self._client
        if client is None:
            return self._audiences.of(tool, {}, 0)
        return self._audiences.of(
            tool, client.directory.announced, client.directory.version, client.directory.of_llm
        )

    async def _verify(
        self, call: DecisionState, ruling: RulingResult, local: LocalScheduler | None
    ) -> RulingResult:
        """A winning modify is a new call that nobody has judged: once more to all but its author.

        What they change of it is laid over it, and then everybody is asked, for the last time.
        """
        call.author = ruling.winner
        patience = self._patience_left(call, ruling)
        asked = ruling.replacement(call.question, int(patience * 1000) or 1)
        audience = self._audience(asked.tool_name).without(ruling.scheduler)
        if local is None and not audience.required and not audience.names:
            return ruling
        second = await self._asking.dispatch(call, asked, audience, local, patience)
        ruling = ruling.with_verification(call, second, self.config)
        modifies = second.merged.modifies
        if ruling.outcome == "deny" or not modifies:
            return ruling
        ruling = ruling.with_changes(self._asking.lay_over(call, asked, modifies), modifies)
        patience = self._patience_left(call, ruling)
        asked = ruling.replacement(call.question, int(patience * 1000) or 1, again=True)
        third = await self._asking.dispatch(call, asked, self._audience(asked.tool_name), local, patience)
        return ruling.with_verification(call, third, self.config)

    def _patience_left(self, call: DecisionState, ruling: RulingResult) -> float:
        """Seconds for which another round waits."""
        spent = time.monotonic() - call.started
        return self._patience if ruling.held else max(self._patience - spent, self._patience / 2)

    async def _ask_person(
        self, call: DecisionState, ruling: RulingResult, ask: Ask | Literal["defer"] | None
    ) -> RulingResult:
        """Somebody said `ask_user`: the person is asked about the call that would run."""
        if _is_changed(call, ruling):
            return CHANGED
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
            question = question._replace(tool_input=copy_arguments(question.tool_input))
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


def _is_changed(call: DecisionState, ruling: RulingResult) -> bool:
    """Whether what would run is not what was ruled on: of objects that others have, one was changed."""
    asked, last = call.question.tool_input, call.replaced
    if call.plain is not None and changed(call.plain, asked):
        return True
    if last is None or last.plain is None:
        return False
    return changed(last.plain, asked if ruling.tool_input is None else ruling.tool_input)


def _is_request(call: DecisionState) -> bool:
    return call.is_request and call.question.tool_name == LLM_REQUEST


def _trace(span: tracing.Span, decision: Decision) -> Decision:
    try:
        tell(span, decision)
    except Exception as error:  # noqa: BLE001 - an exporter's fault; what was ruled stands
        note_fault("span", error)
    return decision
