"""May this call run?

    async with Gate.open(redis="redis://localhost") as gate:
        decision = await gate.decide("web_search", {"query": "…"}, ["web_search", "fetch"])

`decide` asks everyone who wants to see the call (`dispatch`), waits by the rules of
`toolgate_bus.ruling.round`, has a replacement verified, asks a person where somebody said so, and says what
is to run and why. Bad verdicts, dead schedulers and a missing server change the outcome by DESIGN §4;
they never raise. For loops of Amplifier and any other asyncio program: no amplifier_core in here.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import IN_PROCESS, Decision, ReceivedVerdict, ToolQuestion
from toolgate_bus.protocol.llm import LLM_REQUEST
from toolgate_bus.protocol.names import MAX_NAME
from toolgate_bus.server.embedded import find_running_server
from toolgate_bus.server.settings import BusSettings, check_url, read_keys
from toolgate_bus.telemetry import loggers, tracing
from toolgate_bus.telemetry.definitions import OTHER
from toolgate_bus.telemetry.logging import DECISION, about

from toolgate_orchestrator.gate.capabilities import ALL, Ability, check_abilities
from toolgate_orchestrator.gate.client import acquire, release
from toolgate_orchestrator.gate.config import ToolgateConfig, parse
from toolgate_orchestrator.gate.decision_flow import Answer, Ask, DecisionFlow
from toolgate_orchestrator.gate.deferral import PersonAnswer
from toolgate_orchestrator.gate.dispatch import LocalScheduler
from toolgate_orchestrator.gate.ids import decision_id
from toolgate_orchestrator.gate.question import arguments_of, make_plain, name_of, names_of
from toolgate_orchestrator.gate.recorder import span_of_decision
from toolgate_orchestrator.gate.ruling import DecisionState, OnHold
from toolgate_orchestrator.gate.sessions import Presence
from toolgate_orchestrator.gate.vacancy import explain_vacancy
from toolgate_orchestrator.gate.validation import Tools

_log = loggers.get_logger("toolgate.gate")

__all__ = ["IN_PROCESS", "Answer", "Ask", "Gate", "LocalScheduler"]


class Gate(DecisionFlow):
    """Rules on the tool calls of one session, or of as many as share its configuration."""

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
        """A gate for the length of a block; `fields` are those of `ToolgateConfig` and override it.

        Raises ConfigError for a field that is wrong. A server that is away is not an error.
        """
        base = config.model_dump(exclude_unset=True) if config is not None else {}
        gate = await cls.start(parse({**base, **fields}, "Gate.open"), ask=ask)
        gate.tell_if_nobody()
        try:
            yield gate
        finally:
            await gate.aclose()

    @classmethod
    async def start(cls, config: ToolgateConfig, *, ask: Ask | Literal["defer"] | None = None) -> "Gate":
        """A gate that `aclose` must end, in this task or another; raises ConfigError.

        Without an address it uses TOOLGATE_REDIS_URL or the user's running server, and where there
        is neither, in-process schedulers only.
        """
        url = config.redis or BusSettings().redis
        url = check_url(url) if url else await asyncio.to_thread(find_running_server)
        await asyncio.to_thread(loggers.load)  # a first warning must not stop all decisions for that long
        keys = read_keys(config.keys) if config.keys is not None else None
        client = await acquire(url, config.namespace, keys) if url else None
        try:
            return cls(config, client, ask)
        except BaseException:
            if client is not None:
                await release(client)
            raise

    async def explain_vacancy(self) -> str | None:
        """Why calls would run unasked now; None where somebody is asked, or they are denied."""
        return await explain_vacancy(self.config, self._client)

    def tell_if_nobody(self) -> None:
        """Log, once a bus, that nobody rules on it, where nobody must: perhaps another was meant."""
        if self._client is not None and not self.config.required:
            self._client.tell_if_nobody()

    async def aclose(self) -> None:
        """Give the bus back; the last gate of the process closes it."""
        client, self._client = self._client, None
        if client is not None:
            await release(client)

    def enter(self, presence: Presence) -> Callable[[], None]:
        """Let operators see a session and stop its turns; gives the function that ends that."""
        client = self._client
        if client is None or not presence.session:
            return lambda: None
        client.present[presence.session] = presence
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
        """Be told of every decision, right after it."""
        self._recorder.subscribers.append(callback)

    def subscribe_late(self, callback: Callable[[str, ReceivedVerdict], None]) -> None:
        """Be told of verdicts that came after their decision: decision id and verdict."""
        self._recorder.late_subscribers.append(callback)

    def wanted(self, tool_name: str, *, local: bool = False) -> bool:
        """Whether a decision on this tool would ask or record anything; False is the plain loop."""
        audience = self._audience(tool_name)
        if local or not audience.is_empty or tool_name == LLM_REQUEST:
            return local or not audience.is_empty
        config = self.config
        if config.required or config.on_bus_down == "deny" or self._recorder.is_recording:
            return True
        return self._client is not None and bool(self._client.pauses.standing)

    @property
    def is_connected(self) -> bool:
        """Whether the bus can be used right now; False too where there is none."""
        return self._client is not None and self._client.up

    def shadows(self, tool_name: str) -> frozenset[str]:
        """Who is asked about this tool, and only watches."""
        return self._audience(tool_name).shadows

    async def flush(self, timeout_s: float) -> bool:
        """Wait until the server has all facts; False where it has not after `timeout_s` seconds."""
        return self._client is None or await self._client.flush(timeout_s)

    # ------------------------------------------------------------------ the decision

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
        local: LocalScheduler | None = None,
        ask: Ask | Literal["defer"] | None = None,
        on_hold: OnHold | None = None,
        can: Collection[Ability] = ALL,
        answer: PersonAnswer | None = None,
        passes: tuple[type[BaseException], ...] = (),
    ) -> Decision:
        """Rule on one call; what may run stands in the decision, and why.

        `available_tools` with schemas lets a replacement's arguments be checked. `local` is the
        in-process scheduler, `ask` how to reach a person (default: the gate's own), `on_hold` is told
        who holds the call, and for how long. `trace` is the
        trace context (`traceparent`, `tracestate`) that this belongs to; default: the current span.
        Never raises for what others did; a cancelled caller withdraws the question.

        With `ask="defer"` nobody is asked here: the outcome is `ask`, with a token, and the same call with
        that token in `answer` goes on with the decision, in this process or another. `can` is what the
        caller can do; who answers with what it cannot denies. What `ask` raises of the types in `passes`
        ends the decision, and is raised here.
        """
        config, id_ = self.config, decision_id()
        plain = type(tool_name) is str and len(tool_name) <= MAX_NAME and tool_name.isascii()
        agent = config.agent if agent is None else agent
        root_session = root_session or session
        asking = ToolQuestion(
            id_.hex(),
            tool_name if plain else name_of(tool_name),
            dict(tool_input) if type(tool_input) is dict else arguments_of(tool_input),
            names_of(available_tools),
            self._ttl_ms,
            agent,
            {**config.labels, **labels} if labels else config.labels,
            session,
            root_session,
            parent,
            list(lineage) if lineage else [],
            tool_call_id,
            iteration,
            parallel_group_id,
            None if available_agents is None else names_of(available_agents),
            agent_target,
            tracing.filter_context(trace) if trace else {},
            len(available_tools) > packing.MAX_ENTRIES or len(available_agents or ()) > packing.MAX_ENTRIES,
        )
        if (
            labels
            or lineage
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
