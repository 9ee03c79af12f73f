"""May this call run? The only place where core, bus and clock meet (DESIGN §2).

    async with Gate.open(redis="redis://localhost") as gate:
        decision = await gate.decide("web_search", {"query": "…"}, ["web_search", "fetch"])

`decide` asks everyone who wants to see the call, waits by the rules of `toolgate_bus.round`, has a
replacement verified, asks a person where somebody said so, and says what is to run and why. Bad
verdicts, dead schedulers and a missing server change the outcome by DESIGN §4; they never raise.
For loops of Amplifier and for any other asyncio program: amplifier_core is not imported here.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, Literal

from toolgate_bus import codec, metrics, record
from toolgate_bus.embedded import running_server
from toolgate_bus.events import (
    AskUser,
    Decision,
    Failed,
    Heard,
    Modify,
    Phase,
    ToolSelecting,
    Verdict,
)
from toolgate_bus.merge import merge, rank
from toolgate_bus.round import Closed, Round
from toolgate_bus.settings import BusSettings, read_keys
from toolgate_bus.signing import Keyring, digest

from toolgate_orchestrator.client import Announced, Client, acquire, release
from toolgate_orchestrator.config import ToolgateConfig, parse
from toolgate_orchestrator.modifies import Tools, check_modify
from toolgate_orchestrator.question import Question
from toolgate_orchestrator.redact import Redactor
from toolgate_orchestrator.ruling import Call, Plan, Ruling, final_call

__all__ = ["IN_PROCESS", "Answer", "Ask", "Gate", "LocalScheduler"]

IN_PROCESS: Final = "in-process"
"""The scheduler made of the hooks of this process."""
OTHER: Final = "other"
MAX_NAME: Final = 256

Answer = Literal["allow", "refuse", "expired", "no_approver"]
Ask = Callable[[AskUser, ToolSelecting], Awaitable[Answer]]
"""Asks a person about the call that would run, which is given unredacted."""
LocalScheduler = Callable[[ToolSelecting], Awaitable[Sequence[Verdict]]]
"""Decides in this process; it sees the call unredacted."""


class Gate:
    """Rules on the tool calls of one session, or of as many as share its configuration."""

    def __init__(self, config: ToolgateConfig, client: Client | None, ask: Ask | None = None) -> None:
        """Use `Gate.open` or `Gate.start`; this takes a client that is already started."""
        self.config = config
        self._client = client
        self._ask = ask
        self._keyring = Keyring(read_keys(config.keys)) if config.keys is not None else None
        self._redactor = Redactor(config.redact)
        self._patience = config.patience_ms / 1000
        self._required = frozenset(config.required)
        self._shadow = frozenset(config.shadow)
        self._caps = {
            name: limits.max_priority
            for name, limits in config.schedulers.items()
            if limits.max_priority is not None
        }
        self._plans: dict[str, Plan] = {}
        self._plans_version = -1
        self._seq = 0
        self._subscribers: list[Callable[[Decision], None]] = []
        self._late_subscribers: list[Callable[[str, Heard], None]] = []
        if client is not None:
            client.bus.watch(self._required)

    # ------------------------------------------------------------------ life

    @classmethod
    @asynccontextmanager
    async def open(
        cls, config: ToolgateConfig | None = None, *, ask: Ask | None = None, **fields: Any
    ) -> "AsyncIterator[Gate]":
        """A gate for the length of a block; `fields` are those of `ToolgateConfig` and override it.

        Raises ConfigError for a field that is wrong. A server that is away is not an error.
        """
        base = config.model_dump(exclude_unset=True) if config is not None else {}
        gate = await cls.start(parse({**base, **fields}, "Gate.open"), ask=ask)
        try:
            yield gate
        finally:
            await gate.aclose()

    @classmethod
    async def start(cls, config: ToolgateConfig, *, ask: Ask | None = None) -> "Gate":
        """A gate that `aclose` must end, in this task or another; raises ConfigError.

        Without an address it uses TOOLGATE_REDIS_URL or the user's running server, and where there
        is neither, in-process schedulers only.
        """
        url = config.redis or BusSettings().redis or await asyncio.to_thread(running_server)
        client = await acquire(url, config.namespace) if url else None
        try:
            return cls(config, client, ask)
        except BaseException:
            if client is not None:
                await release(client)
            raise

    async def aclose(self) -> None:
        """Give the bus back; the last gate of the process closes it."""
        client, self._client = self._client, None
        if client is not None:
            await release(client)

    def subscribe(self, callback: Callable[[Decision], None]) -> None:
        """Be told of every decision, right after it."""
        self._subscribers.append(callback)

    def subscribe_late(self, callback: Callable[[str, Heard], None]) -> None:
        """Be told of verdicts that came after their decision: decision id and verdict."""
        self._late_subscribers.append(callback)

    def wanted(self, tool_name: str, *, local: bool = False) -> bool:
        """Whether a decision on this tool would ask or record anything; False is the plain loop."""
        return local or bool(self._required) or self._recording or bool(self._plan(tool_name).names)

    @property
    def _recording(self) -> bool:
        return self._client is not None and bool(self._client.announced or self._client.bus.readers)

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
        tool_call_id: str = "",
        iteration: int = 0,
        parallel_group_id: str = "",
        available_agents: Sequence[str] | None = None,
        agent_target: str | None = None,
        trace: Mapping[str, str] | None = None,
        local: LocalScheduler | None = None,
        ask: Ask | None = None,
    ) -> Decision:
        """Rule on one call; what may run stands in the decision, and why.

        `available_tools` with schemas lets a replacement's arguments be checked. `local` is the
        in-process scheduler, `ask` how to reach a person (default: the gate's own). Never raises
        for what others did; a cancelled caller withdraws the question.
        """
        call = Call(
            id=secrets.token_bytes(16),
            tool_name=_name(tool_name),
            tool_input=dict(tool_input),
            tools=available_tools,
            agents=available_agents,
            agent_target=agent_target,
            who={
                "root_session": root_session or session,
                "session": session,
                "parent": parent,
                "agent": self.config.agent if agent is None else agent,
                "labels": {**self.config.labels, **(labels or {})},
                "tool_call_id": tool_call_id,
                "iteration": iteration,
                "parallel_group_id": parallel_group_id,
            },
            trace=dict(trace or {}),
            started=asyncio.get_running_loop().time(),
        )
        call.outgoing = self._redactor.outgoing(call.tool_input)
        try:
            ruling = await self._rule(call, local, ask or self._ask)
        except asyncio.CancelledError:
            self._conclude(call, Ruling("cancelled", "cancelled"))
            raise
        return self._conclude(call, ruling)

    async def _rule(self, call: Call, local: LocalScheduler | None, ask: Ask | None) -> Ruling:
        plan = self._plan(call.tool_name)
        if local is None and not plan.names and not self._required:
            return Ruling("continue", "unasked")
        if not await self._bus_usable(plan):
            if self._on_bus_down == "deny":
                return Ruling(
                    "deny", "bus_down", reason="The bus on which calls are ruled is away; try again later."
                )
            plan = Plan.NOBODY
        first = await self._round(call, plan, local, "select", self._patience)
        ruling = final_call(call, first, self.config)
        if ruling.outcome == "deny":
            return ruling
        if ruling.winner is not None and self.config.verify:
            ruling = await self._verify(call, ruling, local)
        if ruling.outcome != "deny" and ruling.asks:
            ruling = await self._ask_person(call, ruling, ask)
        return ruling

    async def _verify(self, call: Call, ruling: Ruling, local: LocalScheduler | None) -> Ruling:
        """A winning modify is a new call that nobody has judged: once more to all but its author."""
        author = ruling.scheduler
        changed = replace(
            call,
            tool_name=ruling.tool_name or call.tool_name,
            tool_input=ruling.tool_input or {},
            agent_target=ruling.agent_target or call.agent_target,
        )
        changed.outgoing = self._redactor.outgoing(changed.tool_input)
        plan = self._plan(changed.tool_name).without(author)
        if local is None and not plan.names:
            return ruling
        elapsed = asyncio.get_running_loop().time() - call.started
        patience = self._patience if ruling.held else max(self._patience - elapsed, self._patience / 2)
        second = await self._round(changed, plan, local, "verify", patience)
        return ruling.verified(second, self.config)

    async def _ask_person(self, call: Call, ruling: Ruling, ask: Ask | None) -> Ruling:
        """Somebody said `ask_user`: the person is asked about the call that would run."""
        prompt = min(ruling.asks, key=rank)
        answer: Answer = "no_approver"
        if ask is not None and isinstance(prompt.verdict, AskUser):
            answer = await ask(prompt.verdict, self._final_question(call, ruling))
        if answer == "allow":
            return replace(ruling, asked_user=True)
        return replace(ruling.refused(answer, prompt.scheduler), asked_user=True)

    def _final_question(self, call: Call, ruling: Ruling) -> ToolSelecting:
        fields = self._fields(call, "verify" if ruling.winner else "select", self._patience)
        fields["tool_name"] = ruling.tool_name or call.tool_name
        fields["tool_input"] = call.tool_input if ruling.tool_input is None else ruling.tool_input
        fields["agent_target"] = ruling.agent_target or call.agent_target
        return ToolSelecting.model_construct(id=call.id.hex(), **fields)

    # ------------------------------------------------------------------ one round

    async def _round(
        self, call: Call, plan: Plan, local: LocalScheduler | None, phase: Phase, patience: float
    ) -> Closed:
        client, loop = self._client, asyncio.get_running_loop()
        now = loop.time()
        awaited = dict(plan.required)
        passed_over: list[str] = []
        asked = list(plan.names)
        if client is not None:
            for name in plan.names:
                self._consider(client, name, plan, awaited, passed_over, asked, now)
        if local is not None:
            awaited[IN_PROCESS] = False
        fields = self._fields(call, phase, patience)
        question = Question(
            Round(
                awaited,
                patience=patience,
                max_hold=self.config.max_hold_s,
                now=now,
                patient=(IN_PROCESS,) if local is not None else (),
                modifies=phase == "select",
            ),
            phase=phase,
            asked=frozenset(asked),
            priorities=plan.priorities,
            caps=self._caps,
            shadows=plan.shadows,
            check=lambda name, modify: self._problem(call, name, modify),
            labels=self._labels(call),
            orchestrator=client.bus.orchestrator if client is not None else "",
            keyring=self._keyring,
            outages=client.outages if client is not None else 0,
            on_late=lambda heard: self._note_late(call, heard),
            loop=loop,
            started=now,
        )
        call.passed_over.extend(passed_over)
        key = (call.id, 0 if phase == "select" else 1)
        if client is not None and asked:
            question.digest = self._publish(client, key, fields, asked, question)
        task = None
        if local is not None:
            task = loop.create_task(self._consult(local, call, fields, question))
        question.end_if_over(now)
        try:
            closed = await question.future
        finally:
            closed = question.end(loop.time())
            if task is not None:
                task.cancel()
            if client is not None and asked:
                self._settle(client, key, question, closed, fields)
            call.heard.extend(closed.heard)
            call.silent.extend(name for name in closed.silent if name not in call.silent)
        return closed

    def _consider(
        self,
        client: Client,
        name: str,
        plan: Plan,
        awaited: dict[str, bool],
        passed_over: list[str],
        asked: list[str],
        now: float,
    ) -> None:
        """Who of the plan is waited for: not shadows, not the passed over, not who cannot be heard yet."""
        if name in plan.shadows:
            awaited.pop(name, None)
        elif awaited.get(name) is False and client.breaker.passes_over(name):
            del awaited[name]
            passed_over.append(name)
            metrics.count(metrics.PASSED_OVER, name)
            metrics.count(metrics.FAILED_OPEN, name, "passed_over")
            if not client.breaker.probe(name, now):
                asked.remove(name)
        elif name not in client.bus.reading and awaited.get(name) is False:
            del awaited[name]
            asked.remove(name)

    def _publish(
        self,
        client: Client,
        key: tuple[bytes, int],
        fields: dict[str, Any],
        asked: Sequence[str],
        question: Question,
    ) -> bytes:
        client.open[key] = question
        body = codec.question_body(fields)
        if self._keyring is None:
            item = codec.item(key[0], key[1], body)
            for name in asked:
                client.bus.ask(name, key[0], item)
            return b""
        for name in asked:
            mac = self._keyring.sign_question(client.bus.orchestrator, name, body)
            client.bus.ask(name, key[0], codec.item(key[0], key[1], body, mac))
        return digest(body)

    async def _consult(
        self, local: LocalScheduler, call: Call, fields: dict[str, Any], question: Question
    ) -> None:
        """Hear the hooks of this process: one more scheduler, whose failure is its own."""
        seen = ToolSelecting.model_construct(id=call.id.hex(), **{**fields, "tool_input": call.tool_input})
        loop = asyncio.get_running_loop()
        verdicts: Sequence[Verdict | Failed]
        try:
            verdicts = await local(seen)
        except Exception as error:  # noqa: BLE001 - somebody else's hook; the loop must go on
            verdicts = (Failed(reason=f"a hook raised {type(error).__name__}"),)
        now = loop.time()
        for verdict in verdicts:
            body = codec.verdict_body(verdict) if verdict.action != "modify" else repr(verdict).encode()
            question.receive(question.judged(IN_PROCESS, verdict, body, now), now)
        question.end_if_over(now)

    def _settle(
        self,
        client: Client,
        key: tuple[bytes, int],
        question: Question,
        closed: Closed,
        fields: dict[str, Any],
    ) -> None:
        """After a round: who was silent, who still holds, and where late verdicts belong."""
        client.open.pop(key, None)
        client.remember(key, question)
        now = asyncio.get_running_loop().time()
        outage = question.outages != client.outages or not client.bus.connected
        for name in closed.silent:
            if name == IN_PROCESS or self._denies(name):
                continue
            failed = any(one.scheduler == name and one.verdict.action == "failed" for one in closed.heard)
            metrics.count(
                metrics.FAILED_OPEN, name, "bus_down" if outage else "failed" if failed else "silent"
            )
            if not outage and not failed:
                client.breaker.silent(name, now)
        if closed.held:
            self._withdraw(client, key, closed.held, fields)

    def _withdraw(
        self, client: Client, key: tuple[bytes, int], held: Sequence[str], fields: dict[str, Any]
    ) -> None:
        body = codec.question_body({"phase": fields["phase"]})
        for name in held:
            if name != IN_PROCESS:
                mac = None
                if self._keyring is not None:
                    mac = self._keyring.sign_question(client.bus.orchestrator, name, body)
                client.bus.ask(name, key[0], codec.item(key[0], key[1], body, mac), "tool:withdrawn")

    def _denies(self, name: str) -> bool:
        return name in self._required

    # ------------------------------------------------------------------ who is asked, and what

    def _plan(self, tool: str) -> Plan:
        client = self._client
        if client is None:
            return Plan.NOBODY
        if self._plans_version != client.version:
            self._plans.clear()
            self._plans_version = client.version
        plan = self._plans.get(tool)
        if plan is None:
            if len(self._plans) > 1024:  # names come from an LLM
                self._plans.clear()
            plan = self._plans[tool] = self._make_plan(tool, client.announced)
        return plan

    def _make_plan(self, tool: str, announced: Mapping[str, Announced]) -> Plan:
        wanting = {name for name, one in announced.items() if one.wants(tool)}
        names = wanting | {name for name in self._required if name not in announced}
        if self._keyring is not None:
            for name in sorted(names):
                if not self._keyring.knows(name) and name not in self._required:
                    metrics.count(metrics.BAD_MESSAGES, name, "no_key")
            unknown = {name for name in names if not self._keyring.knows(name)}
            names -= unknown
        shadows = {
            name
            for name in names - self._required
            if name in self._shadow or (name in announced and announced[name].shadow)
        }
        required = {name: name in self._required for name in sorted(names - shadows)}
        if self._keyring is not None:
            required |= dict.fromkeys(sorted(self._required - set(announced) - names), True)
        return Plan(
            tuple(sorted(names)),
            required,
            {name: announced[name].priority for name in names if name in announced},
            frozenset(shadows),
        )

    def _fields(self, call: Call, phase: Phase, patience: float) -> dict[str, Any]:
        outgoing = call.outgoing
        return {
            **call.who,
            "phase": phase,
            "tool_name": call.tool_name,
            "tool_input": outgoing.value,
            "available_tools": call.tool_names,
            "available_agents": None if call.agents is None else list(call.agents),
            "agent_target": call.agent_target,
            "ttl_ms": max(1, round(patience * 1000)),
            "trace": call.trace,
            "truncated": outgoing.truncated,
        }

    def _labels(self, call: Call) -> tuple[str, str]:
        return (call.tool_name if call.tool_name in call.tools else OTHER, call.who["agent"])

    def _problem(self, call: Call, scheduler: str, modify: Modify) -> str | None:
        return check_modify(
            modify,
            tool_name=call.tool_name,
            tool_input=call.tool_input,
            tools=call.tools,
            limits=self.config.schedulers.get(scheduler),
            placeholders=call.outgoing.placeholders,
            agents=call.agents,
        )

    # ------------------------------------------------------------------ the bus being away

    @property
    def _on_bus_down(self) -> Literal["continue", "deny"]:
        return self.config.on_bus_down or ("deny" if self._required else "continue")

    async def _bus_usable(self, plan: Plan) -> bool:
        client = self._client
        if client is None:
            return not self._required
        if client.bus.connected or not (plan.names or self._required):
            return True
        usable = await client.reachable(self._patience)
        if not usable:
            for name in plan.names or tuple(self._required):
                metrics.count(metrics.FAILED_OPEN, name, "bus_down")
        return usable

    # ------------------------------------------------------------------ after the decision

    def _conclude(self, call: Call, ruling: Ruling) -> Decision:
        decision = ruling.decision(call, asyncio.get_running_loop().time())
        tool, agent = self._labels(call)
        metrics.count(metrics.DECISIONS, decision.outcome, tool, agent)
        metrics.observe(metrics.DECISION_SECONDS, decision.seconds)
        self._compare_shadows(decision)
        if self._recording or decision.verdicts:
            self._fact(lambda: self._decision_fact(call, decision))
        for tell in self._subscribers:
            tell(decision)
        return decision

    def _decision_fact(self, call: Call, decision: Decision) -> dict[str, Any]:
        out = call.outgoing
        final = out.value
        if decision.outcome == "modify":
            final = self._redactor.outgoing(decision.tool_input).value
        reason = self._redactor.text(decision.reason, out)
        return record.decision_fact(decision, call.who, out.value, final, reason)

    def _compare_shadows(self, decision: Decision) -> None:
        for heard in decision.verdicts:
            if heard.shadow and self._disagrees(decision, heard):
                metrics.count(metrics.SHADOW_DISAGREEMENTS, heard.scheduler)

    @staticmethod
    def _disagrees(decision: Decision, heard: Heard) -> bool:
        merged = merge((*decision.verdicts, replace(heard, shadow=False)))
        return merged.action != merge(decision.verdicts).action or (
            merged.winner is not None and merged.winner.scheduler == heard.scheduler
        )

    def _note_late(self, call: Call, heard: Heard) -> None:
        late = replace(heard, late=not heard.shadow)
        self._fact(lambda: {"event": "verdict", "id": call.id.hex(), **record.verdict_fields(late)})
        for tell in self._late_subscribers:
            tell(call.id.hex(), late)

    def note(self, event: str, data: Mapping[str, Any]) -> None:
        """A fact after the event (tool:selected, tool:post, tool:error, usage …); nothing if nobody reads.

        Values are redacted as arguments are.
        """
        if self._recording:
            out = self._redactor.outgoing(data)
            self._fact(lambda: {**out.value, "event": event})

    def _fact(self, make: Callable[[], dict[str, Any]]) -> None:
        client = self._client
        if client is None:
            return
        self._seq += 1
        seq, at = self._seq, time.time()
        client.bus.fact(lambda: record.write_fact({**make(), "seq": seq, "at": at}))


def _name(tool_name: str) -> str:
    # An LLM wrote it: it must fit the wire, whatever it is.
    return tool_name.encode("utf-8", "replace").decode()[:MAX_NAME]
