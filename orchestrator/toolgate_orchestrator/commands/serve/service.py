"""Handles a sidecar's requests: asks the gate, keeps calls that wait for a report, writes the facts.

    decide ─▶ gate.decide, as long as the caller waits ─▶ ruling ─▶ result: what of it may be used
                    │ held, and the caller can wait           └───▶ report: tool:post, :error, :unused
                    ▼                                               (nobody reports: the ledger's orphan)
                 pending ─▶ wait ─▶ ruling

`app` handles HTTP. No method raises anything but `Problem` for what a caller did.
"""

import asyncio
import contextlib
import functools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeVar

from toolgate_bus.protocol.events import Decision
from toolgate_bus.protocol.fact_events import TURN
from toolgate_bus.protocol.llm import LLM_REQUEST
from toolgate_bus.protocol.names import OPERATOR, POINTS
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.calls.call_session import CallSession
from toolgate_orchestrator.calls.open_call import describe_place
from toolgate_orchestrator.calls.turn_fact import describe_turn
from toolgate_orchestrator.commands.serve.held_calls import PendingCall, PendingCalls
from toolgate_orchestrator.commands.serve.open_calls import (
    DecidedCall,
    OpenCalls,
    OtherReport,
    UnknownCall,
    tree_of,
)
from toolgate_orchestrator.commands.serve.patience import Abandonment, Gone, Patience
from toolgate_orchestrator.commands.serve.problems import refuse_overload
from toolgate_orchestrator.commands.serve.report_handler import ReportHandler
from toolgate_orchestrator.commands.serve.requests import (
    DecideRequest,
    PlaceBody,
    ResultRequest,
    TurnRequest,
    WaitRequest,
)
from toolgate_orchestrator.commands.serve.result_handler import ResultHandler
from toolgate_orchestrator.commands.serve.rulings import (
    ENDING,
    STOPPED,
    TOO_LATE,
    body_of_question,
    body_of_ruling,
    denial_body,
)
from toolgate_orchestrator.commands.serve.turns import OpenTurn, OpenTurns, turn_body
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.pauses import explain_stop
from toolgate_orchestrator.decision.question.call import ALL, Ability, Call, Caller, UnnamedTools
from toolgate_orchestrator.decision.round.decision_state import HeldCall

SWEEP_S: Final = 1.0
MAX_WAITING: Final = 1024
"""Requests of one caller that are answered at once: half of all, so that others get in."""
Body = Mapping[str, Any]
_WORDS: Final = {"late": TOO_LATE, "ending": ENDING, "stopped": STOPPED}
_WHY: Final = {"late": "expired", "ending": "gate_failed", "stopped": "cancelled"}
_log = get_logger("toolgate.serve")
Outcome = TypeVar("Outcome")


class SidecarService:
    """The gate of a sidecar, for all its callers."""

    def __init__(self, gate: Gate, clock: Callable[[], float] = time.monotonic) -> None:
        """`gate` must be started; its owner ends it."""
        self._gate, self._clock = gate, clock
        self.calls = OpenCalls()
        self.turns = OpenTurns(gate.enter, clock, self._end_unheard)
        self.is_ending = False
        self._open: set[Patience] = set()
        self._quiet = asyncio.Event()
        self._pending = PendingCalls(self._drop, clock)
        self.results = ResultHandler(gate, self.calls, clock, self._wait)
        self.reports = ReportHandler(
            gate, self.calls, self.turns, self.name_agent, clock, self.results.forget
        )
        self._waiting: Counter[str] = Counter()

    @property
    def is_ready(self) -> bool:
        """True if calls are ruled on as they should be: the bus is there, and the sidecar is not ending."""
        return not self.is_ending and self._gate.is_connected

    async def explain_unruled(self) -> str:
        """Return why a call would not be ruled on now; empty if it would be. Records nothing."""
        return await self._gate.vacancy.explain_unruled()

    def rules_on_point(self, name: str) -> bool:
        """Return whether any scheduler rules on a point of a turn or a session."""
        return self._gate.wanted(name, is_request=True)

    def must_rule_on(self, tool: str) -> bool:
        """Return whether a required scheduler is asked about calls of a tool, or about a point."""
        return self._gate.requires_ruling(tool)

    @property
    def is_idle(self) -> bool:
        """True if no turn runs here, and no call is held."""
        return not len(self.turns) and not len(self._pending)

    # ------------------------------------------------------------------ decisions

    async def decide(self, asked: DecideRequest, gone: Gone, *, may_name_point: bool = False) -> Body:
        """Return the ruling on one call. Raises Abandonment (gone) if the caller has gone.

        `may_name_point`: by `llm:request`, or by the name of a point, the caller means that, and no tool.
        """
        caller = tree_of(asked)
        if self._waiting[caller] >= MAX_WAITING:
            raise refuse_overload(f"the sidecar is answering {MAX_WAITING} requests of this caller already")
        self._waiting[caller] += 1
        try:
            return await self._decide(asked, gone, may_name_point=may_name_point)
        finally:
            self._waiting[caller] -= 1
            if not self._waiting[caller]:
                del self._waiting[caller]

    async def _decide(self, asked: DecideRequest, gone: Gone, *, may_name_point: bool) -> Body:
        turn = self.turns.get(asked.session)
        if turn is not None and turn.stop is not None and turn.presence.stopped is None:
            return {**denial_body(asked.tool, asked.arguments, "cancelled", STOPPED), "stop": turn.stop}
        call = self.make_call(asked, may_name_point=may_name_point)
        holder: list[str] = []
        work = self._rule(call, turn, holder)
        task = asyncio.get_running_loop().create_task(work) if "wait" in asked.can else None
        try:
            decision = await self._wait(
                work if task is None else asyncio.shield(task), gone, asked.timeout_ms / 1000, turn
            )
        except Abandonment as abandoned:
            if task is not None and abandoned.why == "late":
                return self._set_aside(PendingCall(asked, call, task, holder))
            if task is not None:
                task.cancel()
            if abandoned.why == "gone":
                raise
            return self._deny(asked, abandoned.why, holder)
        except asyncio.CancelledError:
            if task is not None:
                task.cancel()
            raise
        return self._answer(asked, call, decision, turn)

    async def wait(self, asked: WaitRequest, gone: Gone) -> Body:
        """Wait again for a call that was pending."""
        held = self._pending.take(asked.token)
        turn = self.turns.get(held.asked.session)
        try:
            decision = await self._wait(asyncio.shield(held.task), gone, asked.timeout_ms / 1000, turn)
        except Abandonment as abandoned:
            if abandoned.why in ("late", "gone"):  # a caller that lost its connection may come back
                aside = self._set_aside(held, asked.token)
                if abandoned.why == "gone":
                    raise
                return aside
            held.task.cancel()
            return self._deny(held.asked, abandoned.why, held.holder)
        except asyncio.CancelledError:
            held.task.cancel()
            raise
        return self._answer(held.asked, held.call, decision, turn)

    async def _wait(
        self, work: Awaitable[Outcome], gone: Gone, seconds: float, turn: OpenTurn | None
    ) -> Outcome:
        patience = Patience(gone, seconds)
        self._open.add(patience)
        if turn is not None:
            turn.on_stop.add(patience.end)
        try:
            return await patience.wait_for(work)
        finally:
            self._close(patience)
            if turn is not None:
                turn.on_stop.discard(patience.end)

    def _close(self, patience: Patience) -> None:
        self._open.discard(patience)
        if self.is_ending and not self._open:
            self._quiet.set()

    async def _rule(self, call: Call, turn: OpenTurn | None, holder: list[str]) -> Decision:
        def on_hold(held: HeldCall) -> None:
            holder[:] = [held.scheduler]

        ask: Literal["defer"] | None = "defer" if "ask" in call.can else None
        return await self._session(turn).decide(call, ask=ask, on_hold=on_hold)

    def _session(self, turn: OpenTurn | None) -> CallSession:
        return CallSession(self._gate, None if turn is None else turn.presence, clock=self._clock)

    def make_call(self, asked: DecideRequest, *, may_name_point: bool = False) -> Call:
        """Return the call that a request is about."""
        agent, answer = self.name_agent(asked), asked.answer
        is_request = may_name_point and asked.tool == LLM_REQUEST
        is_point = may_name_point and asked.tool in POINTS
        return Call(
            asked.tool,
            asked.arguments,
            (asked.tool,) if is_point else self._tools_of(asked),
            Caller(asked.session, agent, asked.root_session, asked.parent, asked.lineage, asked.labels),
            asked.call_id,
            asked.group,
            asked.iteration,
            abilities_of(asked),
            None if answer is None else PersonAnswer(answer.token, answer.answer, answer.by),
            asked.available_agents,
            asked.agent_target,
            asked.trace or {},
            self.turns.find_request(asked.root_session, asked.parent, asked.session),
            is_request=is_request,
            is_point=is_point,
        )

    def find_order(self, asked: PlaceBody) -> dict[str, Any] | None:
        """Return an operator's order to end this session, in the form for callers; None if there is none."""
        root = self._gate.find_root(asked.session, asked.parent, asked.root_session)
        stop = self._gate.find_stop(asked.session, root, asked.parent)
        return None if stop is None else {"now": stop.now, "by": stop.by}

    def _tools_of(self, asked: DecideRequest) -> Any:
        """Return the names or schemas of the tools."""
        if isinstance(asked.tools, dict):
            return {name: schema or {} for name, schema in asked.tools.items()}
        return UnnamedTools((asked.tool,)) if asked.tools is None else asked.tools

    def name_agent(self, asked: PlaceBody) -> str:
        """Return the agent's name."""
        return self._gate.config.agent if asked.agent is None else asked.agent

    def _answer(self, asked: DecideRequest, call: Call, decision: Decision, turn: OpenTurn | None) -> Body:
        body = body_of_ruling(decision)
        if decision.allowed and not call.is_point and self.results.rules_on(decision.tool_name):
            body["rules_on_result"] = True
        if decision.allowed and call.is_point:
            self._session(turn).pass_point(call, decision)
        elif decision.allowed:
            opened = self._session(turn).open(call, decision)
            if isinstance(call.tools, dict):  # schemas are not needed any longer
                call = call._replace(tools=tuple(call.tools))
            self.calls.add(decision.id, opened, DecidedCall(call, decision))
        order = turn.stop if turn is not None else None
        if order is None and decision.scheduler == OPERATOR:
            order = self.find_order(asked)
        if order is not None:
            body["stop"] = order
        return body

    def _deny(self, asked: DecideRequest, why: str, holder: list[str]) -> Body:
        words = _WORDS[why]
        if why == "late" and holder:
            words = f"The call was held by {holder[0]}, and not answered in time; it was not run."
        turn = self.turns.get(asked.session)
        if why == "stopped" and turn is not None and turn.presence.stopped is not None:
            words = explain_stop(turn.presence.stopped)
        body = denial_body(asked.tool, asked.arguments, _WHY[why], words)
        if turn is not None:
            turn.presence.count_denial("")
            body["stop"] = turn.stop
        return body

    def _set_aside(self, call: PendingCall, token: str = "") -> Body:
        token = self._pending.add(call, token)
        words = f"held by {call.holder[0]}" if call.holder else "not decided yet"
        return body_of_question(call.asked.tool, call.asked.arguments, token, words)

    async def rule_on_result(self, asked: ResultRequest, gone: Gone) -> Body:
        """Return the ruling on what a call gave. Raises Abandonment (gone) if the caller has gone."""
        opened = self.calls.find(asked.id)
        return await self.results.rule(
            asked, gone, None if opened is None else self.turns.get(opened.session)
        )

    def release(self, body: Body) -> None:
        """Release a call whose caller has gone before it learned of the ruling: nothing runs."""
        try:
            call = self.calls.close(body.get("id", ""), "release")
        except (UnknownCall, OtherReport):
            return
        if call is not None:
            self._session(self.turns.get(call.session)).close(call, "release")

    # ------------------------------------------------------------------ turns

    async def turn(self, asked: TurnRequest, gone: Gone) -> Body:
        """Begin, end or watch a turn."""
        session = asked.session
        if asked.do == "begin":
            root = self._gate.find_root(session, asked.parent, asked.root_session)
            placed = asked.model_copy(update={"root_session": root})
            return turn_body(session, self.turns.begin(placed, self.name_agent(asked)))
        if asked.do == "end":
            turn = self.turns.end(session)
            if turn is not None:
                self._tell_end(turn, asked.status, asked.iterations)
            return turn_body(session, None)
        turn = self.turns.get(session)
        if turn is not None and turn.stop is None:
            turn.changed.clear()  # a stop that was lifted may have set it
            patience = Patience(gone, asked.timeout_ms / 1000)
            self._open.add(patience)
            try:
                await patience.wait_for(turn.changed.wait())
            except Abandonment as abandoned:
                if abandoned.why == "gone":
                    raise
            finally:
                self._close(patience)
            turn = self.turns.get(session)
        return turn_body(session, turn)

    def _tell_end(self, turn: OpenTurn, status: str, iterations: int) -> None:
        who, seconds = turn.who, self._clock() - turn.since
        fact = describe_turn("serve", status, iterations, seconds, who.parent, who.lineage)
        whose = describe_place(who.session, who.root, who.agent, who.lineage)
        self._gate.note(TURN, {**whose, "labels": self._gate.config.labels, **fact})

    # ------------------------------------------------------------------ life

    async def sweep(self) -> None:
        """End what nobody waits for any longer, now and then, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                self.sweep_once(self._clock())
            except Exception as error:  # noqa: BLE001 - a fault of ours must not end the sweeping
                _log.error("what is over could not be ended", error=where(error))

    def sweep_once(self, now: float) -> None:
        """End turns whose lease is over, and calls whose callers did not come back."""
        for session in self.turns.find_overdue(now):
            self._end_unheard(session)
        self._pending.sweep(now)
        self.results.sweep(now)

    def _end_unheard(self, session: str) -> None:
        """End a turn of a silent session, or one that makes room for another."""
        turn = self.turns.end(session)
        if turn is not None:
            self._tell_end(turn, "incomplete", 0)

    def _drop(self, call: Call, decision: Decision) -> None:
        """Release a call that was let through, as its caller did not come back."""
        self._session(None).give_back(call, decision)

    async def end(self, grace_s: float) -> None:
        """Take nothing new; let open requests be answered for `grace_s` seconds, then deny them."""
        self.is_ending = True
        if self._open:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._quiet.wait()
        for patience in tuple(self._open):
            patience.end("ending")
        self._pending.close()
        self.results.close()
        self.turns.close()


def abilities_of(asked: DecideRequest) -> frozenset[Ability]:
    """Return the abilities of a caller for the gate: without tools it can run no other one."""
    return _abilities_of(asked.can, has_tools=asked.tools is not None)


@functools.lru_cache(maxsize=256)
def _abilities_of(words: tuple[str, ...], *, has_tools: bool) -> frozenset[Ability]:
    can = {one for one in ALL if one in words}
    return frozenset(can if has_tools else can - {"tool"})
