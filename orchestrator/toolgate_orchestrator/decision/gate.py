"""The gate: it decides whether a tool call may run.

    async with Gate.open(redis="redis://localhost") as gate:
        decision = await gate.decide(Call("web_search", {"query": "…"}, ["web_search", "fetch"]))

`decide` asks every scheduler that wants to see the call (`dispatch`) and waits by the rules of
`toolgate_bus.ruling.round`. It has a replacement verified, asks a person if a scheduler wants that, and
returns what is to run and why. Bad verdicts, dead schedulers and a missing server never raise: they change
the outcome, by the rules of docs/concepts.md. The gate serves loops of Amplifier and any other asyncio
program: this module does not use amplifier_core.

    stop? pause? ─▶ select ─▶ verify, where a modify won ─▶ a person, where one is asked ─▶ admit ─▶ decided
                                └─▶ verify again, where others change the replacement

The core, the bus and the clock meet in this module.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

from toolgate_bus.protocol.events import (
    IN_PROCESS,
    AskUser,
    Decision,
    Failure,
    ReceivedVerdict,
    SentResult,
    ToolQuestion,
)
from toolgate_bus.protocol.fact_events import TOOL_ENDS
from toolgate_bus.protocol.names import MAX_LINEAGE, NO_TOOL
from toolgate_bus.protocol.pauses import Pause
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.ruling.delegation import TWO_AGENTS, two_agents
from toolgate_bus.ruling.merge import rank
from toolgate_bus.ruling.results import hide_texts
from toolgate_bus.server.embedded import find_running_server
from toolgate_bus.server.settings import bus_settings, read_keys
from toolgate_bus.telemetry import metrics, tracing
from toolgate_bus.telemetry.definitions import OTHER
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.logging import DECISION, about, hide_in_logs, load_structlog, where
from toolgate_bus.transport.redis.tasks import is_cancel_requested

from toolgate_orchestrator.decision.config import ToolgateConfig, parse
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.deferral.deferred_decisions import DeferredDecisions
from toolgate_orchestrator.decision.faults import BROKEN, note_fault
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_orchestrator.decision.link.live_session import LiveSession
from toolgate_orchestrator.decision.link.pauses import deny_stopped, wait_while_paused
from toolgate_orchestrator.decision.link.recipients import MAX_CACHED, RecipientCache, Recipients
from toolgate_orchestrator.decision.link.shared_clients import acquire, release
from toolgate_orchestrator.decision.question.call import ALL, NOBODY, Call, Caller, check_abilities
from toolgate_orchestrator.decision.question.plain_values import changed, copy_arguments
from toolgate_orchestrator.decision.question.question import TOO_DEEP, UnreadableQuestion, make_question
from toolgate_orchestrator.decision.question.redact import Redactor
from toolgate_orchestrator.decision.question.validation import Tools
from toolgate_orchestrator.decision.recorder import DecisionRecorder, span_of_decision, tell
from toolgate_orchestrator.decision.results.given_result import GivenResult
from toolgate_orchestrator.decision.results.result_ruler import ResultRuler
from toolgate_orchestrator.decision.round.admission import admit
from toolgate_orchestrator.decision.round.decision_state import DecisionState, OnHold
from toolgate_orchestrator.decision.round.dispatcher import Dispatcher
from toolgate_orchestrator.decision.round.local_scheduler import LocalScheduler
from toolgate_orchestrator.decision.round.one_question import one_question
from toolgate_orchestrator.decision.ruling import (
    AGREED,
    CHANGED,
    GATE_FAILED,
    UNASKED,
    RulingResult,
    deny_unasked,
    final_call,
    objection,
)
from toolgate_orchestrator.decision.tool_offer import ToolOffer
from toolgate_orchestrator.decision.vacancy import Vacancy, tell_failing

__all__ = ["IN_PROCESS", "Answer", "Ask", "Gate", "LocalScheduler"]

_log = get_logger("toolgate.gate")

Answer = Literal["allow", "refuse", "expired", "no_approver"]
Ask = Callable[[AskUser, ToolQuestion], Awaitable[Answer]]
"""Asks a person about the call that would run. The function receives that call unredacted.

If the question is about a result, its `phase` is `result`, and `result` is what schedulers were sent of it,
without what any of them hid.
"""


@dataclass(slots=True)
class _Turns:
    """The results of one decision that are ruled on, one after the other."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    number: int = 0
    """Those that are ruled on or wait; without any, nothing is kept."""


class Gate:
    """The gate of one session, or of several that share its configuration: it rules on their tool calls.

    `Gate.open` makes one for a block, `Gate.start` one that `aclose` ends.
    """

    def __init__(
        self,
        config: ToolgateConfig,
        client: GateClient | None,
        ask: Ask | Literal["defer"] | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        """Make a gate; `Gate.open` and `Gate.start` do that with a client they connect.

        `client` is a started client, or None: then only hooks of this process rule. `ask` asks a person
        about a call, or is `defer`; None means that nobody can be asked. `redactor` replaces the one that
        `config.redact` describes. Raises ConfigError if the file of `config.keys` cannot be used.
        """
        self.config = config
        self._client = client
        self._ask = ask
        keys = read_keys(config.keys) if config.keys is not None else None
        keyring = Keyring(keys, config.namespace) if keys is not None else None
        self._redactor = redactor or Redactor(config.redact)
        if self._redactor.configured:
            hide_in_logs(self._redactor)
        self._recorder = DecisionRecorder(client, self._redactor, config)
        self._audiences = RecipientCache(config, keyring)
        self._dispatcher = Dispatcher(config, client, keyring, self._redactor, self._recorder.late, self.note)
        self._deferred = DeferredDecisions(
            config, client, self._redactor, self._recorder, self.note, self._dispatcher.end
        )
        self.vacancy = Vacancy(config, client)
        """Knows which schedulers are there to rule, and logs when there are none."""
        self._unruled: dict[str, int] = {}
        """Tools on whose results nobody rules, each with the version of the roster that says so."""
        self._results = ResultRuler(config, client, self._redactor, self._dispatcher, self._recorder)
        self._judging: dict[str, _Turns] = {}
        """Decisions of which results are being ruled on: verdicts are about a decision, so one at a time."""
        self._offer = ToolOffer(client) if client and not config.offer_denied else None
        self._shown: Tools = ()
        self._shown_count = 0
        self._patience = config.patience_ms / 1000
        self._ttl_ms = int(self._patience * 1000) or 1
        if client is not None:
            client.bus.watch(config.required)
            client.labels.note = self.note
            client.absence.anew()
            if keys is not None:
                client.trust(keys)

    # ------------------------------------------------------------------ life

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        config: ToolgateConfig | None = None,
        *,
        ask: Ask | Literal["defer"] | None = None,
        **fields: Any,
    ) -> "AsyncIterator[Gate]":
        """Open a gate for the length of a block.

        `config` is the configuration; None means the defaults. `fields` are fields of `ToolgateConfig`, and
        override it. `ask` asks a person about a call and returns an `Answer`. With `defer` a decision waits
        for the answer, which a later call brings. None means that nobody can be asked.

        Raises ConfigError for a wrong field. A server that cannot be reached is not an error. If no
        scheduler is running, the first call says so in the log.
        """
        base = config.model_dump(exclude_unset=True) if config is not None else {}
        gate = await cls.start(parse({**base, **fields}, "Gate.open"), ask=ask)
        try:
            yield gate
        finally:
            await gate.aclose()

    @classmethod
    async def start(cls, config: ToolgateConfig, *, ask: Ask | Literal["defer"] | None = None) -> "Gate":
        """Start a gate that `aclose` must end, in this task or another. Raises ConfigError.

        `config` and `ask` are as for `open`. If the configuration does not name the bus, TOOLGATE_REDIS_URL,
        TOOLGATE_NAMESPACE and TOOLGATE_KEYS do. Without an address the gate uses the user's running server.
        If there is none, only in-process schedulers rule.
        """
        named = config.namespace if "namespace" in config.model_fields_set else None
        bus = bus_settings(config.redis, named, config.keys)
        config = config.model_copy(update={"namespace": bus.namespace, "keys": bus.keys})
        url = bus.redis or await asyncio.to_thread(find_running_server)
        await asyncio.to_thread(load_structlog)  # loading it with a first warning would block all decisions
        keys = read_keys(config.keys) if config.keys is not None else None
        client = await acquire(url, config.namespace, keys) if url else None
        try:
            return cls(config, client, ask)
        except BaseException:
            if client is not None:
                await release(client)
            raise

    async def aclose(self) -> None:
        """Give the bus back. The last gate of the process closes it."""
        client, self._client = self._client, None
        self.vacancy.client = None
        if client is not None:
            await release(client)

    def enter(self, presence: LiveSession) -> Callable[[], None]:
        """Let operators see a session and stop its turns. Return the function that ends that."""
        client = self._client
        if client is None or not presence.session:
            return lambda: None
        client.present[presence.session] = presence
        if presence.parent or presence.root != presence.session:
            names = presence.names if len(presence.names) > 1 else ()
            client.pauses.ancestry.note(
                presence.session, presence.parent or presence.root, presence.root, names
            )
        presence.listen(self.note, client.bus.tell_agents)
        presence.labels = {**self.config.labels, **presence.labels}
        client.pauses.apply(presence)

        def leave() -> None:
            if client.present.get(presence.session) is presence:
                del client.present[presence.session]
                presence.set_pause(None)
                if presence.is_stopping:
                    client.bus.tell_agents()

        return leave

    def subscribe(self, callback: Callable[[Decision], None]) -> None:
        """Call `callback` with every decision, right after it was made."""
        self._recorder.subscribers.append(callback)

    def subscribe_late(self, callback: Callable[[str, ReceivedVerdict], None]) -> None:
        """Call `callback` with each verdict on a call that came too late: id of the decision, and verdict."""
        self._recorder.late_subscribers.append(callback)

    def subscribe_results(self, callback: Callable[[str, GivenResult], None]) -> None:
        """Call `callback` with each ruling on a result: decision id, and what is given."""
        self._results.subscribers.append(callback)

    def wanted(self, tool_name: str, *, local: bool = False, is_request: bool = False) -> bool:
        """Return whether a decision on this tool would ask a scheduler or record anything.

        If not, the call can run as in a plain loop. `local` is True if the process has a scheduler of its
        own, `is_request` is True for a request to an LLM, or a point of a turn.
        """
        audience = self._audience(tool_name)
        if local or audience.names or audience.required or audience.admitters:
            return True
        if is_request:
            return False
        if audience.is_reserved or self.config.is_strict or self._recorder.is_recording:
            return True  # (a reserved name is denied)
        return self._client is not None and bool(self._client.pauses.standing)

    @property
    def is_connected(self) -> bool:
        """True if the bus can be used right now; False also where there is none."""
        return self._client is not None and self._client.up

    def shadows(self, tool_name: str) -> frozenset[str]:
        """Return the shadow schedulers for this tool."""
        return self._audience(tool_name).shadows

    async def flush(self, timeout_s: float) -> bool:
        """Wait until the server has all facts. Return False if it does not within `timeout_s` seconds."""
        return self._client is None or await self._client.flush(timeout_s)

    # ------------------------------------------------------------------ what its doors ask

    @property
    def ruled(self) -> bool:
        """True if a scheduler might object to a call: one is required, or one was ever on the roster."""
        return self.config.is_strict or (self._client is not None and self._client.directory.ever_met)

    def show_tools(self, tools: Tools) -> None:
        """Let operators see that an agent has these tools, before it calls any."""
        self._shown, self._shown_count = tools, len(tools)
        if self._client is not None:
            self._client.catalog.note(tools)

    async def find_denied(self, tools: Iterable[str], at: Caller | None = None) -> frozenset[str]:
        """Return those of these tools of which a local table denies every call by this caller.

        Whoever asks an LLM does not offer them to it. None with `offer_denied`.
        """
        client = self._client
        if self._offer is None or client is None:
            return frozenset()
        await client.tables.settle(self._patience)
        if not client.tables.in_force:
            return frozenset()
        at = self.complete(at or NOBODY)
        root = at.root or self.find_root(at.session, at.parent)
        asking = make_question(Call("", at=at), self.config, self._ttl_ms, root)
        if client.labels.is_used:
            asking = client.labels.put(asking, client.labels.show(asking))
        return self._offer.find_denied(tools, asking, self._audience)

    def find_root(self, session: str, parent: str | None, root_session: str = "") -> str:
        """Return the session at the root of the tree, for a caller that may have named only its parent."""
        if root_session or self._client is None or type(session) is not str:
            return root_session or (parent if type(parent) is str and parent else session)
        return self._client.pauses.ancestry.find_root(session, parent if type(parent) is str else None)

    def complete(self, at: Caller) -> Caller:
        """Return the caller, completed by what is known of the sessions above it."""
        client = self._client
        if client is None:
            return at
        return client.pauses.ancestry.complete(at, at.agent or self.config.agent)

    def find_stop(
        self, session: str, root: str, parent: str | None = None, above: Sequence[str] = ()
    ) -> Pause | None:
        """Return the operator's stop that covers a session, or None. It stands until somebody lifts it.

        `decide` denies the calls of such a session by itself. The program that runs or shows the session's
        turns ends them.
        """
        client = self._client
        return None if client is None else client.pauses.find_stop(session, root, parent, above)

    def note_above(self, above: Sequence[str]) -> None:
        """Note that each of these sessions, listed from the root down, works for the one before it."""
        if self._client is not None:
            for parent, session in pairwise(above[1:]):
                self._client.pauses.ancestry.note(session, parent, above[0])

    async def rule(
        self,
        call: Call,
        *,
        local: LocalScheduler | None = None,
        ask: Ask | Literal["defer"] | None = None,
        on_hold: OnHold | None = None,
        passes: tuple[type[BaseException], ...] = (),
    ) -> Decision | None:
        """Rule on one call as `decide` does; return None if no scheduler is asked and the call runs as it is.

        The parameters are those of `decide`.
        """
        at = call.at
        if at is not None and at.above:
            if len(at.above) > 2:  # the root itself comes with each call
                self.note_above(at.above)
            elif (
                at.parent is None and self._client is not None
            ):  # the session of the door itself, which may be stopped
                self._client.pauses.ancestry.note(at.session, at.above[-1])
        is_asked = call.answer is not None or self._asks_about(call, local)
        if not is_asked:
            if self.vacancy.may_tell:
                await self.vacancy.tell_unruled()
            if call.tools:
                self.show_tools(call.tools)
            return None
        return await self.decide(call, local=local, ask=ask, on_hold=on_hold, passes=passes)

    def _asks_about(self, call: Call, local: LocalScheduler | None) -> bool:
        if self.wanted(call.tool, local=local is not None, is_request=call.has_own_name):
            return True
        at = call.at  # nobody rules on requests: those of a stopped agent are denied
        return (
            call.is_request and at is not None and self.find_stop(at.session, at.root, at.parent) is not None
        )

    def note(self, event: str, data: Mapping[str, Any]) -> None:
        """Record a fact after its event (tool:selected, tool:post, usage …), if facts are kept."""
        if event in TOOL_ENDS and self._client is not None and self._client.labels.is_used:
            self._client.labels.end_delegation(data.get("decision_id"))
        self._recorder.note(event, data)

    async def decide(
        self,
        call: Call,
        *,
        local: LocalScheduler | None = None,
        ask: Ask | Literal["defer"] | None = None,
        on_hold: OnHold | None = None,
        passes: tuple[type[BaseException], ...] = (),
    ) -> Decision:
        """Rule on one call. The decision holds the tool and arguments that may run, and the reason.

        `call` is the call; schemas in `call.tools` check the arguments of a replacement. `local` is the
        scheduler of this process. `ask` asks a person (default: as the gate was opened). With `defer` the
        outcome is `ask`, with a token. The same call with that token in `call.answer` then resumes the
        decision, here or in another process. `on_hold` is called for each scheduler that holds the call.

        Raises ConfigError for an unknown ability in `call.can`, and exceptions of `ask` whose types are in
        `passes`, but nothing for what schedulers or the bus do. A cancellation withdraws the question.
        """
        at = call.at or NOBODY
        is_below = at.parent or at.lineage or at.root not in ("", at.session)
        if self._client is not None and (is_below or self._client.pauses.ancestry.told):
            completed = self.complete(at)  # a caller may leave out what it told before
            if completed is not at:
                at, call = completed, call._replace(at=completed)
        if call.tools is not self._shown or len(call.tools) != self._shown_count:
            self.show_tools(call.tools)
        root = at.root or (at.session if at.parent is None else self.find_root(at.session, at.parent))
        asking = make_question(call, self.config, self._ttl_ms, root)
        name = asking.tool_name
        state = DecisionState(
            bytes.fromhex(asking.id),
            asking,
            call.tools,
            call.available_agents,
            (name if name in call.tools else OTHER, asking.agent),
            time.monotonic(),
            on_hold,
            call.is_request,
        )
        state.has_own_name = call.has_own_name
        if call.can is not ALL or passes:
            can = call.can if call.can is ALL else check_abilities(call.can)
            reaches = "ask" in can or callable(ask or self._ask)
            state.bind(can, passes, reaches_person=reaches)
        before = DECISION.set(asking.id)
        try:
            if local is None and call.answer is None and (known := self._decide_at_once(state)) is not None:
                return known
            if tracing.is_active():
                with span_of_decision(state, parent=asking.trace if call.trace else None) as span:
                    state.trace_by(tracing.headers())
                    return await self._decide(state, local, ask, call.answer, span)
            if asking.trace:
                with about(trace=asking.trace):
                    return await self._decide(state, local, ask, call.answer)
            return await self._decide(state, local, ask, call.answer)
        finally:
            if state.on_objection is None:  # else it waits for a person, and its watch ends it
                self._dispatcher.end(state)
            DECISION.reset(before)

    def rules_on_result(self, tool: str) -> bool:
        """Return whether any scheduler is asked about results of a tool. Any thread may call it."""
        client = self._client
        if client is not None and self._unruled.get(tool) == client.directory.version:
            return False
        version = client.directory.version if client is not None else 0
        audience = self._result_audience(tool)
        if audience.names or audience.required:
            return True
        if len(self._unruled) >= MAX_CACHED:
            self._unruled.clear()
        self._unruled[tool] = version
        return False

    @property
    def met_rulers_of_results(self) -> bool:
        """True if a scheduler ever asked for results, or the plan says that one rules on them."""
        planned = any(one.results for one in self.config.schedulers.values())
        return planned or (self._client is not None and bool(self._client.directory.of_results))

    def requires_ruling(self, tool: str, *, of_result: bool = False) -> bool:
        """Return whether a required scheduler is asked about calls of a tool, or about their results."""
        audience = self._result_audience(tool) if of_result else self._audience(tool)
        return any(audience.required.values())

    async def rule_on_result(
        self,
        call: Call,
        decision: Decision | None,
        result: Any,
        *,
        success: bool = True,
        ask: Ask | None = None,
        on_hold: OnHold | None = None,
    ) -> GivenResult:
        """Rule on what a call gave, before anybody sees it. Returns the result to use, perhaps the same.

        `call` is the call that was asked about, and `decision` the decision that let it through; None if
        nobody was asked. `result` is what the tool returned, or its error, with `success` False. `ask` asks a
        person (default: as the gate was opened, unless that is `defer`); `on_hold` is as for `decide`. Raises
        nothing for what schedulers or the bus do. Of several results of one decision, each waits for those
        before it.
        """
        tool = call.tool if decision is None else decision.tool_name
        audience = self._result_audience(tool)
        if not audience.names and not audience.required:
            return GivenResult(result)
        if decision is not None:
            call = call._replace(tool=tool, arguments=decision.tool_input, agent_target=decision.agent_target)
        if decision is not None and self._client is not None:
            self._client.labels.end_delegation(decision.id)
        at = call.at or NOBODY
        completed = self.complete(at)
        if completed is not at:
            at, call = completed, call._replace(at=completed)
        root = at.root or (at.session if at.parent is None else self.find_root(at.session, at.parent))
        asking = make_question(call, self.config, self._ttl_ms, root)
        if decision is not None:
            asking = asking._replace(id=decision.id)
        label = tool if tool in call.tools or call.is_request else OTHER
        state = DecisionState(
            bytes.fromhex(asking.id),
            asking,
            call.tools,
            call.available_agents,
            (label, asking.agent),
            time.monotonic(),
            on_hold,
            call.is_request,
        )
        asker = ask or (self._ask if callable(self._ask) else None)

        async def ask_person(state: DecisionState, ruling: RulingResult, shown: SentResult) -> RulingResult:
            return await self._ask_person(state, ruling, asker, shown)

        if (turns := self._judging.get(asking.id)) is None:
            turns = self._judging[asking.id] = _Turns()
        turns.number += 1
        before = DECISION.set(asking.id)
        try:
            async with turns.lock:
                return await self._results.rule(state, result, audience, ask_person, success=success)
        finally:
            DECISION.reset(before)
            turns.number -= 1
            if not turns.number:
                del self._judging[asking.id]

    def _decide_at_once(self, call: DecisionState) -> Decision | None:
        """Return the decision on a call to which all its recipients' local tables answer; else None.

        `_decide` would make the same one. Whatever is rare, may wait or may fail is left to it: this is no
        coroutine.
        """
        client, asking = self._client, call.question
        if client is None or not (client.up and client.tables.in_force):
            return None
        is_rare = client.pauses.standing or client.labels.is_used or call.agents or asking.trace
        if is_rare or len(asking.lineage) > MAX_LINEAGE or tracing.is_active():
            return None
        audience = self._audience(asking.tool_name)
        if not audience.is_simple or client.table.is_rest_due(call.started):
            return None
        for name in audience.names:
            if name not in client.tables.in_force:
                return None
        try:
            closed = self._dispatcher.answer_at_once(client, call, audience)
        except Exception:  # noqa: BLE001 - `_decide` meets it again, and says what is wrong
            return None
        if closed is None:
            return None
        return self._recorder.record(call, final_call(call, closed, self.config))

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
            stopped = None
            if client is not None and client.pauses.standing:
                stopped = await self._heed_operators(client, call)
            audience = self._audience(call.question.tool_name)
            if stopped is not None:
                ruling = stopped
            elif audience.is_reserved and not call.has_own_name:
                ruling = RulingResult("deny", "denied", reason=f"This call was not run: {NO_TOOL}.")
            elif answer is None:
                ruling = await self._rule(call, audience, local, ask or self._ask)
            else:
                ruling = await self._resume(call, answer)
            if client is not None and client.labels.is_used and not client.labels.is_settled:
                await self._dispatcher.settle_labels(call)
            if ruling.outcome == "ask":
                return _trace(span, self._deferred.wait(call, ruling))
            if ruling.outcome != "deny":
                if client is not None and client.pauses.standing:
                    stopped = await self._heed_operators(client, call)
                if stopped is not None:
                    self._dispatcher.give_back(call)
                    ruling = stopped
                elif call.objection is not None:
                    self._dispatcher.give_back(call)
                    ruling = objection(call) or ruling
                elif _is_changed(call, ruling):
                    self._dispatcher.give_back(call)
                    ruling = CHANGED
            elif ruling.why == "silent":
                await self._tell_silence(call)
            target = ruling.agent_target or call.question.agent_target
            if target and client is not None and ruling.outcome != "deny":
                client.labels.begin_delegation(call.question.id, call.question)
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
            await self.vacancy.tell_denied(absent)
        for heard in call.heard:
            if heard.scheduler in required and isinstance(heard.verdict, Failure):
                tell_failing(heard.scheduler, heard.verdict.reason or "", required=True)

    def _record_cancelled(self, call: DecisionState, span: tracing.Span) -> None:
        _trace(span, self._recorder.record(call, RulingResult("cancelled", "cancelled")))

    async def _heed_operators(self, client: GateClient, call: DecisionState) -> RulingResult | None:
        """Wait while an operator pauses this call. Return the denial if an operator stopped its agent."""
        if client.pauses.find_pause_of(call.question) is not None:
            self._dispatcher.go_on(call)
            await wait_while_paused(client.pauses, call, self.note)
        return deny_stopped(client.pauses, call.question)

    async def _rule(
        self,
        call: DecisionState,
        audience: Recipients,
        local: LocalScheduler | None,
        ask: Ask | Literal["defer"] | None,
    ) -> RulingResult:
        asking, client = call.question, self._client
        if call.agents and two_agents(asking.tool_input, call.agents):
            return RulingResult("deny", "denied", reason=f"This call was not run: {TWO_AGENTS}.")
        if len(asking.lineage) > MAX_LINEAGE:
            call.cut_lineage(MAX_LINEAGE)
            raise UnreadableQuestion(TOO_DEEP)
        is_up = client is not None and client.up
        if not is_up or not audience.names:
            await self._dispatcher.table.rest(call.started)
        if not is_up and not await self._bus_usable(call, audience):
            if self.config.denies_without_bus:
                await self.vacancy.tell_denied()
                return RulingResult("deny", "bus_down", reason=self.vacancy.explain_denial())
            audience = audience.only(self._dispatcher.find_denying(call, audience))
        if local is None and not audience.required and not audience.names:
            if not audience.admitters:
                if not self.vacancy.is_told:
                    await self.vacancy.tell_unruled()
                return UNASKED
            return await admit(self._dispatcher, call, UNASKED, audience, self.config)
        first = await self._dispatcher.dispatch(call, asking, audience, local, self._patience)
        ruling = final_call(call, first, self.config)
        if ruling.outcome != "deny" and ruling.winner is not None and self.config.verify:
            ruling = await self._verify(call, ruling, local)
        if ruling.outcome != "deny" and ruling.asks:
            ruling = objection(call) or await self._ask_person(call, ruling, ask)
        if ruling is AGREED and not audience.admitters and client is not None and not client.pauses.standing:
            return ruling  # as nearly always
        if ruling.outcome != "deny" and ruling.outcome != "ask":
            ruling = await self._admit(call, ruling, audience)
        return ruling

    async def _resume(self, call: DecisionState, answer: PersonAnswer) -> RulingResult:
        """Resume the decision that a person has answered."""
        ruling = await self._deferred.resume(call, answer)
        if ruling.outcome == "deny":
            return ruling
        audience = self._audience(ruling.tool_name or call.question.tool_name)
        if (denied := deny_unasked(call, audience.required, ruling.winner)) is not None:
            return replace(denied, asked_user=True)
        return await self._admit(call, ruling, audience)

    async def _admit(self, call: DecisionState, ruling: RulingResult, audience: Recipients) -> RulingResult:
        """Run the admission round of a call that is about to run."""
        client = self._client
        if client is not None and client.pauses.standing:  # a paused or stopped call is given nothing
            stopped = await self._heed_operators(client, call)
            if stopped is not None:
                return stopped
        if ruling.winner is not None or audience.admitters:  # an answer may have proven an announcement
            audience = self._audience(ruling.tool_name or call.question.tool_name)
        if audience.admitters:
            ruling = await admit(self._dispatcher, call, ruling, audience, self.config)
        return ruling

    def _audience(self, tool: str) -> Recipients:
        client = self._client
        if client is None:
            return self._audiences.of(tool, {}, 0)
        return self._audiences.of(
            tool, client.directory.announced, client.directory.version, client.directory.ever_named
        )

    def _result_audience(self, tool: str) -> Recipients:
        client = self._client
        if client is None:
            return self._audiences.of_results(tool, {}, 0, frozenset())
        known = client.directory
        version = known.version  # first: an announcement that comes meanwhile has a higher one
        return self._audiences.of_results(tool, known.announced, version, known.of_results, known.ever_named)

    async def _verify(
        self, call: DecisionState, ruling: RulingResult, local: LocalScheduler | None
    ) -> RulingResult:
        """Ask about the replacement that won: it is a new call that no scheduler but its author has judged.

        The changes that schedulers make to it are laid over it. Then all are asked for the last time.
        """
        call.verify(ruling.winner)
        patience = self._patience_left(call, ruling)
        asked = ruling.replacement(call.question, int(patience * 1000) or 1)
        audience = self._audience(asked.tool_name).without(ruling.scheduler)
        if local is None and not audience.required and not audience.names:
            return ruling
        second = await self._dispatcher.dispatch(call, asked, audience, local, patience)
        ruling = ruling.with_verification(call, second, self.config)
        modifies = second.merged.modifies
        if ruling.outcome == "deny" or not modifies:
            return ruling
        ruling = ruling.with_changes(self._dispatcher.lay_over(call, asked, modifies), modifies)
        patience = self._patience_left(call, ruling)
        asked = ruling.replacement(call.question, int(patience * 1000) or 1, again=True)
        third = await self._dispatcher.dispatch(call, asked, self._audience(asked.tool_name), local, patience)
        return ruling.with_verification(call, third, self.config)

    def _patience_left(self, call: DecisionState, ruling: RulingResult) -> float:
        """Return the seconds that the next round may wait."""
        spent = time.monotonic() - call.started
        return self._patience if ruling.held else max(self._patience - spent, self._patience / 2)

    async def _ask_person(
        self,
        call: DecisionState,
        ruling: RulingResult,
        ask: Ask | Literal["defer"] | None,
        result: SentResult | None = None,
    ) -> RulingResult:
        """Ask a person about the call that would run, or its result, as a scheduler answered `ask_user`."""
        if _is_changed(call, ruling):
            return CHANGED
        asker = min(ruling.asks, key=rank)
        asked = one_question(ruling.asks)
        answer: Answer = "no_approver"
        if ask == "defer" and asked is not None and call.reaches_person:
            self._dispatcher.go_on(call)
            return await self._deferred.defer(call, ruling, asked, asker.scheduler)
        if ask is not None and ask != "defer" and asked is not None:
            question = call.question
            if ruling.winner is not None:
                question = ruling.replacement(question, self._ttl_ms)
            question = question._replace(tool_input=copy_arguments(question.tool_input))
            if result is not None:
                question = question._replace(phase="result", result=result)
                asked = _clean_words(asked, call.hidden)
            call.report_waits(self.note)
            self._dispatcher.go_on(call)
            try:
                answer = await ask(asked, question)
            except BROKEN as error:  # the app's approval system; its failure is a denial
                if isinstance(error, asyncio.CancelledError) and is_cancel_requested():
                    raise
                if isinstance(error, call.passes):
                    call.interrupt_by(error)
                    raise
                metrics.count(metrics.GATE_FAULTS, "ask")
                _log.error("the person could not be asked", decision=question.id, error=where(error))
        if answer != "allow":
            ruling = ruling.with_refusal(answer, asker.scheduler)
        return replace(ruling, asked_user=ask is not None)

    # ------------------------------------------------------------------ the bus being away

    async def _bus_usable(self, call: DecisionState, audience: Recipients) -> bool:
        """Return whether the server can be reached. Count a call that runs without it (`on_bus_down`)."""
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
    """Return whether code that shares the arguments changed them since they were ruled on."""
    if call.outgoing is None and call.replaced is None:
        return False
    asked, last = call.question.tool_input, call.replaced
    if call.plain is not None and changed(call.plain, asked):
        return True
    if last is None or last.plain is None:
        return False
    return changed(last.plain, asked if ruling.tool_input is None else ruling.tool_input)


def _clean_words(asked: AskUser, hidden: frozenset[str]) -> AskUser:
    """Return a question that does not quote what others hide."""
    if not hidden:
        return asked
    words = [asked.prompt, asked.reason, *asked.options]
    prompt, reason, *options = hide_texts(words, hidden, may_be_cut=True)
    return asked.model_copy(update={"prompt": prompt, "reason": reason, "options": tuple(options)})


def _trace(span: tracing.Span, decision: Decision) -> Decision:
    try:
        tell(span, decision)
    except Exception as error:  # noqa: BLE001 - an exporter's fault; what was ruled stands
        note_fault("span", error)
    return decision
