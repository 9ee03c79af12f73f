"""Answers the hooks of coding agents: `POST /hooks/{client}` takes an event and returns that client's answer.

    before ─▶ read_event ─▶ service.decide ─▶ write_answer    calls that may run are kept by their ids,
    after  ─▶ read_event ─▶ results.give   ─▶ write_result    if they have any, and arguments
                                 └▶ report of the decision kept
    prompt ─▶ read_event ─▶ service.decide, as `turn:input`, if any scheduler names that

A client tells a call's result by another event, from another process. The decision is kept in between,
within bounds, so that results are ruled on and reported, and budgets settle. If the client asks its user, a
call that ran was allowed by the user. `app` handles HTTP, and `coding_agents` translates for each client.
"""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs

from pydantic import ValidationError
from toolgate_bus.errors import ToolgateError
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.calls.result_parts import describe_data
from toolgate_orchestrator.coding_agents.agent_tree import AgentPlace, AgentTree
from toolgate_orchestrator.coding_agents.call_memory import CallMemory
from toolgate_orchestrator.coding_agents.event import PROBE, PROBED, HookDecision, HookEvent, MalformedEvent
from toolgate_orchestrator.coding_agents.given_text import text_of_given
from toolgate_orchestrator.coding_agents.translation import (
    find_kind,
    read_event,
    write_answer,
    write_end,
    write_fault,
    write_result,
    write_unread,
)
from toolgate_orchestrator.commands.serve.open_calls import DecidedCall
from toolgate_orchestrator.commands.serve.patience import Abandonment, Gone
from toolgate_orchestrator.commands.serve.problems import Problem
from toolgate_orchestrator.commands.serve.requests import (
    DecideRequest,
    PersonAnswerBody,
    ReportRequest,
    TurnRequest,
)
from toolgate_orchestrator.commands.serve.rulings import STOPPED
from toolgate_orchestrator.commands.serve.service import SidecarService
from toolgate_orchestrator.decision.results.given_result import GivenResult
from toolgate_orchestrator.decision.vacancy import tell

MAX_EVENT: Final = 32 * 1024 * 1024
"""Maximum size of an event in bytes; a client's event after a call holds the tool's whole result."""
MAX_KEPT: Final = 20_000
"""Maximum number of calls that were let through without a report yet; beyond it, the oldest call of the
session tree with most calls is forgotten."""
MAX_TIMEOUT_S: Final = 3600.0
UNTOLD_S: Final = 58.0
"""Seconds to answer a client that does not say when it gives up: two less than the 60 of most."""
TURN_S: Final = 120.0
"""Seconds of silence after which a session is no longer shown."""
RUNS_S: Final = 3600.0
"""Seconds after which a call without a report is no longer waited for."""
INPUT: Final = "turn:input"
"""Name under which the user's words are ruled on."""
RESULTS: Final = "results"
PROMPTS: Final = "prompts"
_FAILED: Final = "tool_failed"
_log = get_logger("toolgate.serve")


class KeptCall(NamedTuple):
    """A call that was let through, or about which the client asks its user."""

    id: str
    asked: DecideRequest
    token: str
    """Token of a question that the client asks its user; empty if it asks none."""
    since: float


class HookHandler:
    """The hooks of all coding agents that use one sidecar."""

    def __init__(
        self,
        service: SidecarService,
        *,
        denies: Callable[[], bool],
        unruled: Callable[[], str] = lambda: "",
        idle_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        note_required: Callable[[frozenset[str]], None] = lambda _: None,
    ) -> None:
        """`denies` tells whether a fault or an unreadable event denies: true if a scheduler might object.

        `note_required` is called with what a required scheduler rules on beside calls, when that is learned:
        `results`, `prompts`. A hook that cannot reach the sidecar later then withholds them.

        `unruled` is the line for the user while calls run without rulings; empty while they are ruled on.
        `idle_s` is how long the sidecar stays without requests, in seconds; 0: for ever.
        """
        self._service, self._denies, self._unruled, self._clock = service, denies, unruled, clock
        self._note_required, self._required = note_required, frozenset[str]()
        self._informed: OrderedDict[str, None] = OrderedDict()
        """Sessions whose user has seen that line."""
        self._turn_s = max(1.0, min(TURN_S, idle_s or TURN_S))
        self._calls = CallMemory[KeptCall](MAX_KEPT)
        self._settled: OrderedDict[tuple[str, ...], None] = OrderedDict()
        """Calls whose results were ruled on, and those that were denied."""
        self._ends: OrderedDict[tuple[str, ...], str] = OrderedDict()
        """Agents whose turns must end before their LLM is asked, each with the words for the user."""
        self._tree = AgentTree()

    async def answer(self, client: str, body: bytes, timeout_s: float, gone: Gone, agent: str = "") -> bytes:
        """Return the client's answer.

        Raises ConfigError for an unknown client, and Abandonment if the client left.
        """
        event: HookEvent | None = None
        try:
            event = self._tree.restore(read_event(client, body))
            if event.kind == "before" and event.tool == PROBE:
                return await self._answer_probe(client, event)
            self._learn(event)
            if event.kind == "before":
                ruling = await self._rule(event, timeout_s, gone, agent or client)
                return write_answer(client, event, ruling, self._find_notice(event, ruling))
            if event.kind == "after":
                return await self._answer_after(event, timeout_s, gone, agent or client)
            if event.kind == "batch":
                return write_end(
                    client, event, await self._end_batch(event, timeout_s, gone, agent or client)
                )
            if event.kind == "prompt":
                return write_answer(client, event, await self._rule_on_prompt(event, timeout_s, gone, agent))
            return b""
        except Abandonment:
            raise
        except MalformedEvent as error:
            event, reason = None, str(error)
        except ValidationError as error:
            told = error.errors(include_url=False, include_context=False, include_input=False)[0]
            reason = f"{'.'.join(map(str, told['loc']))}: {told['msg']}"
        except Problem as problem:
            reason = problem.detail
        except ToolgateError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - a fault of ours must let no call run
            _log.error("a hook could not be answered", client=client, error=where(error))
            reason = "the sidecar failed on it; see its log"
        kind, tool = find_kind(client, body) if event is None else (event.kind, event.tool)
        denies = self._denies_fault(kind, tool)
        if not denies and kind != "other":
            tell(f"a call of {client} ran without a ruling: {reason}")
        if event is None:
            return write_unread(client, body, reason, denies=denies)
        return write_fault(client, event, reason, denies=denies)

    def _denies_fault(self, kind: str, tool: str) -> bool:
        """Return whether a call may not run, or a result or prompt may not be given, if nobody could rule.

        `kind` and `tool` are empty if they cannot be told.
        """
        if kind in ("before", ""):
            return self._denies()
        if kind == "prompt":
            return self._service.must_rule_on(INPUT)
        return self._service.results.must_rule_on(tool) or (not tool and RESULTS in self._required)

    def _learn(self, event: HookEvent) -> None:
        """Note what required schedulers rule on beside calls."""
        found = set(self._required)
        if event.tool and RESULTS not in found and self._service.results.must_rule_on(event.tool):
            found.add(RESULTS)
        if PROMPTS not in found and self._service.must_rule_on(INPUT):
            found.add(PROMPTS)
        if len(found) > len(self._required):
            self._required = frozenset(found)
            self._note_required(self._required)

    def _find_notice(self, event: HookEvent, ruling: HookDecision) -> str:
        """Return the notice for the user, once a session, if a call runs because no scheduler is there."""
        line = self._unruled() if ruling.outcome == "continue" else ""
        if not line or event.session in self._informed:
            return ""
        self._informed[event.session] = None
        while len(self._informed) > MAX_KEPT:
            self._informed.popitem(last=False)
        return line

    @property
    def is_idle(self) -> bool:
        """True if no call runs on which a client may still report."""
        newest = self._calls.newest
        return newest is None or self._clock() - newest.since > RUNS_S

    async def _answer_probe(self, client: str, event: HookEvent) -> bytes:
        """Deny a test call, which a tool of this name must not get past either. It leaves nothing behind."""
        problem = await self._service.explain_unruled()
        if problem and self._denies():
            return write_fault(client, event, problem, denies=True)
        reason = f"{PROBED}; {problem}" if problem else PROBED
        return write_answer(client, event, HookDecision("deny", reason=reason), "")

    # ------------------------------------------------------------------ before

    async def _rule(self, event: HookEvent, timeout_s: float, gone: Gone, agent: str) -> HookDecision:
        asked = request_of(event, self._tree.place(event), timeout_s, agent)
        self._calls.meet(event)
        service = self._service
        if service.turns.get(asked.session) is None and service.find_order(asked) is None:
            service.turns.begin(turn_of(asked, "begin", self._turn_s), service.name_agent(asked))
        body = await service.decide(asked, gone)
        if body.get("stop"):
            service.release(body)  # it may have been let through just before
            await service.turn(turn_of(asked, "end", self._turn_s), gone)
            return HookDecision("deny", reason=body["reason"] if body["outcome"] == "deny" else STOPPED)
        ruling = read_decision(body)
        if ruling.outcome != "deny":
            self._keep(event, asked, body, ruling)
        else:
            self._settle(event)
        return ruling

    def _keep(
        self, event: HookEvent, asked: DecideRequest, body: Mapping[str, Any], ruling: HookDecision
    ) -> None:
        if not body.get("id"):
            return
        others = ruling.arguments if ruling.outcome != "continue" else None
        kept = KeptCall(body["id"], asked, body.get("token") or "", self._clock())
        self._calls.keep(event, kept, others)

    # ------------------------------------------------------------------ after

    async def _answer_after(self, event: HookEvent, timeout_s: float, gone: Gone, agent: str) -> bytes:
        given = await self._end(event, timeout_s, gone, agent)
        self._settle(event)
        if given is None:
            return b""
        if event.ends_turn and given.changed:
            self._ends[place_of(event)] = text_of_given(given)
            return b""
        return write_result(event.client, event, given)

    async def _end_batch(self, event: HookEvent, timeout_s: float, gone: Gone, agent: str) -> str:
        """Return the words for the user if the turn must end, so that no LLM reads what the batch gave.

        Of some failures the client tells nothing before: they are ruled on here.
        """
        words = self._ends.pop(place_of(event), "")
        for one in event.calls:
            if words or (one.call_id and place_of(one, one.call_id) in self._settled):
                continue
            given = await self._give(one, None, timeout_s, gone, agent)
            if given is not None and given.changed:
                words = text_of_given(given)
        return words

    def _settle(self, event: HookEvent) -> None:
        """Note that nothing of this call is to be ruled on any more: it was denied, or has its ruling."""
        if not event.call_id:
            return
        self._settled[place_of(event, event.call_id)] = None
        for kept in (self._settled, self._ends):
            while len(kept) > MAX_KEPT:
                kept.popitem(last=False)

    async def _end(self, event: HookEvent, timeout_s: float, gone: Gone, agent: str) -> GivenResult | None:
        """Report the end of a call. Return what its LLM may get of the result; None if nobody rules."""
        kept = self._calls.take(event)
        seconds = 0.0 if kept is None else max(0.0, self._clock() - kept.since)
        id_ = "" if kept is None else kept.id
        if kept is not None and kept.token:  # the client asked its user
            said = PersonAnswerBody(
                token=kept.token, answer="refuse" if event.outcome == "release" else "allow", by=event.client
            )
            body = await self._service.decide(kept.asked.model_copy(update={"answer": said}), _stays)
            id_ = body["id"] if body["outcome"] in ("continue", "modify") else ""
        given: GivenResult | None = None
        try:
            if (event.can_withhold or event.ends_turn) and event.outcome != "release":
                given = await self._give(event, self._service.calls.find_ruled(id_), timeout_s, gone, agent)
        finally:
            if id_:
                is_seen = given is None or not given.changed
                error = event.error if is_seen or not event.error else _FAILED
                told = ReportRequest(id=id_, outcome=event.outcome, error=error, seconds=seconds)
                with contextlib.suppress(Problem):  # a call that is no longer known; its result is ruled on
                    self._service.reports.report(told)
        return given

    async def _give(
        self, event: HookEvent, ruled: DecidedCall | None, timeout_s: float, gone: Gone, agent: str
    ) -> GivenResult | None:
        """Return a result as it may be seen; also of a call about which nobody was asked here."""
        results = self._service.results
        if not results.rules_on(event.tool):
            return None
        if ruled is not None:
            call = ruled.call
        else:
            call = self._service.make_call(request_of(event, self._tree.place(event), timeout_s, agent))
        value, success = describe_data(event.result), event.outcome == "succeed"
        return await results.give(call, ruled, value, gone, timeout_s, success=success)

    # ------------------------------------------------------------------ the user's words

    async def _rule_on_prompt(
        self, event: HookEvent, timeout_s: float, gone: Gone, agent: str
    ) -> HookDecision:
        if not self._service.rules_on_point(INPUT):
            return HookDecision("continue")
        point = event._replace(tool=INPUT, arguments={"text": event.text}, can=frozenset())
        asked = request_of(point, self._tree.place(point), timeout_s, agent or event.client)
        return read_decision(await self._service.decide(asked, gone, may_name_point=True))


def place_of(event: HookEvent, *more: str) -> tuple[str, ...]:
    """Return the agent of an event, as a key."""
    return (event.client, event.session, event.agent_id, *more)


def request_of(event: HookEvent, place: AgentPlace, timeout_s: float, agent: str) -> DecideRequest:
    """Return the call of an event. A sub-agent has its own session below that of the conversation."""
    below = event.agent_id or event.agent_type
    name = (event.agent_type or agent) if below else agent
    parents = [f"{place.root}/{id_}" for id_, _ in place.above] or [place.root]
    return DecideRequest(
        session=f"{place.root}/{below}" if below else place.root,
        root_session=place.root,
        parent=parents[-1] if below else None,
        lineage=(agent, *(kind or id_ for id_, kind in place.above), name) if below else (),
        agent=name,
        labels={"client": event.client, **({"cwd": event.cwd[:256]} if event.cwd else {})},
        tool=event.tool,
        arguments=dict(event.arguments),
        call_id=event.call_id,
        group=event.group,
        iteration=1 if event.group else 0,  # the group of a client is its turn
        can=tuple(event.can),
        timeout_ms=max(1, int(timeout_s * 1000)),
    )


def turn_of(asked: DecideRequest, do: str, lease_s: float) -> TurnRequest:
    """Return the turn of a call: clients do not report turns, so it lasts while calls come."""
    whose = asked.model_dump(include={"session", "root_session", "parent", "lineage", "agent", "labels"})
    return TurnRequest(**whose, do=do, lease_s=lease_s, status="cancelled")  # type: ignore[arg-type]  # checked there


def timeout_of(header: bytes | None, query: bytes) -> float:
    """Return the seconds to answer a hook, as the asking process or the client says.

    A client that asks over HTTP is answered two seconds before it gives up.
    """
    if header is None and not query:
        return UNTOLD_S
    try:
        if header is not None:
            return min(MAX_TIMEOUT_S, max(0.05, float(header)))
        told = parse_qs(query.decode("ascii", "replace")).get("timeout", ["60"])[0]
        return min(MAX_TIMEOUT_S, max(0.5, float(told) - 2.0))
    except ValueError:
        return 50.0


def read_decision(body: Mapping[str, Any]) -> HookDecision:
    """Return a ruling in the form for clients."""
    outcome = body["outcome"]
    reason = body.get("reason") or body.get("refusal") or ""
    if outcome == "ask":
        question = body.get("question") or {}
        return HookDecision("ask", body["tool"], body["arguments"], str(question.get("prompt") or reason))
    if outcome in ("continue", "modify"):
        return HookDecision(outcome, body["tool"], body["arguments"], reason)
    return HookDecision("deny", reason=reason)


async def _stays() -> None:
    """Wait for ever: no caller can leave."""
    await asyncio.Event().wait()
