"""Try the rules of a policy on the newest recorded decisions while they are typed; push them as a rollout.

The policy's own code rules, in a thread, and `ruling.counterfactual` finds what becomes of each call. Nobody
is asked and nothing changes until a person pushes. A trial ends after `BUDGET_S` seconds, and says how many
decisions it judged.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field, ValidationError
from toolgate_bus.config.check import StrictModel, check
from toolgate_bus.config.document import parse_document
from toolgate_bus.errors import CodecError, ConfigError
from toolgate_bus.facts.shadow_report import record_of
from toolgate_bus.protocol.events import AskUser, Deny, Hold, ReceivedVerdict, ToolSelecting, Verdict
from toolgate_bus.protocol.fact_events import TOOL_ENDS, TOOL_POST, TOOL_UNUSED
from toolgate_bus.protocol.names import NAME_PATTERN, explain_reserved
from toolgate_bus.ruling.counterfactual import (
    Change,
    ChangeCounts,
    DecisionRecord,
    actual,
    change,
    replay_decision,
)
from toolgate_bus.state.config_record import Rollout, RolloutStage
from toolgate_bus.state.config_store import ConfigStore
from toolgate_bus.state.rollout_rules import parse_condition
from toolgate_bus.telemetry.printable import shorten
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster

from toolgate_schedulers.commands.console.filters import Filter
from toolgate_schedulers.commands.console.ring import Ring
from toolgate_schedulers.commands.scheduler_configs import ConfigCommands
from toolgate_schedulers.shipped.policy.rehearsal import OrderRehearsal
from toolgate_schedulers.shipped.policy.scheduler import PolicyConfig, rule_on

POLICY: Final = "policy"
MAX_DECISIONS: Final = 1000
MAX_TEXT: Final = 64 * 1024
BUDGET_S: Final = 1.0
"""Longest time of one trial in seconds; the console does little else meanwhile."""
MAX_GROUPS: Final = 50
MAX_EXAMPLES: Final = 3
MAX_RULES: Final = 3
MAX_PROBLEM: Final = 2000
MIN_SAMPLE: Final = 20
"""Number of calls before a rollout's condition is judged, as `toolgate scheduler rollout` has it."""
_FIELDS: Final = (
    "id", "root_session", "session", "parent", "lineage", "agent", "labels", "tool_call_id", "iteration",
    "parallel_group_id", "tool_name", "tool_input", "agent_target", "truncated",
)  # fmt: skip

Fact = Mapping[str, Any]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Text = Annotated[str, Field(max_length=MAX_TEXT)]


class TrialRequest(StrictModel):
    """Rules to try."""

    scheduler: Name = POLICY
    """Scheduler in whose place the rules are tried."""
    text: Text


class PushRequest(StrictModel):
    """Rules to push, as a shadow or for a share of the sessions."""

    scheduler: Name
    text: Text
    label: Annotated[str, Field(max_length=64)] = ""
    share: Annotated[int, Field(strict=True, ge=0, le=99)]
    """Percent of the sessions that the new rules hold for; 0 is a shadow, which changes nothing."""
    undo_if: Annotated[str, Field(max_length=200)] = ""
    """Condition that undoes the rollout, such as `veto_rate > 2x`."""


class TrialCase(NamedTuple):
    """Recorded decision, ready to be judged."""

    call: ToolSelecting
    ruled: DecisionRecord
    at: float
    ended: tuple[float, bool | None] | None
    """Time of the call's end, and its success, None if it never ran; None if no end is known."""


@dataclass(slots=True)
class ChangeGroup:
    """Changes to the calls of one tool by one agent."""

    counts: ChangeCounts
    rules: Counter[str]
    examples: list[str]


class RuleTrial:
    """Trials of a policy's rules on the newest decisions of a ring; one at a time."""

    def __init__(self, ring: Ring) -> None:
        self._ring, self._trying = ring, asyncio.Lock()
        self._cases: dict[tuple[str, int, int], TrialCase | None] = {}
        """Cases of the last trial, by decision and its last change; None is one that cannot be read."""

    async def run(self, asked: TrialRequest) -> dict[str, Any]:
        """Return what the rules would have changed; raise ConfigError for wrong rules."""
        async with self._trying:
            # The ring goes on changing: the thread gets copies.
            entries = self._ring.newest(MAX_DECISIONS, Filter())
            ends = [list(self._ring.after(entry.decision["id"])) for entry in entries]
            found = [
                ((entry.decision["id"], entry.number, len(after)), _copy(entry.decision), after)
                for entry, after in zip(entries, ends, strict=True)
            ]
            return await asyncio.to_thread(self._judge, asked, found)

    def _judge(
        self, asked: TrialRequest, found: Sequence[tuple[tuple[str, int, int], Fact, Sequence[Fact]]]
    ) -> dict[str, Any]:
        until = time.monotonic() + BUDGET_S
        config = read_rules(asked.text)
        cases: list[TrialCase] = []
        known, self._cases = self._cases, {}
        for key, fact, after in found:
            case = known[key] if key in known else _read_case(fact, after)
            self._cases[key] = case
            if case is not None:
                cases.append(case)
        tally = ChangeTally(asked.scheduler)
        for case, verdict in rule_on_cases(config, cases):
            tally.add(case, verdict)
            if time.monotonic() > until:
                break
        return {**tally.as_json(), "of": len(found), "unreadable": len(found) - len(cases)}


def read_rules(text: str) -> PolicyConfig:
    """Read a policy; raise ConfigError with the line of each fault."""
    try:
        document = parse_document(text.encode("utf-8", "surrogatepass"), "line")
        return check(PolicyConfig, document.mapping(), document)
    except ConfigError as error:
        raise ConfigError(shorten(str(error), MAX_PROBLEM)) from None


def rule_on_cases(config: PolicyConfig, cases: Sequence[TrialCase]) -> Iterator[tuple[TrialCase, Verdict]]:
    """Yield the policy's verdict on each case: the newest first, or in order for rules on earlier calls."""
    if not config.order_rules:
        for case in reversed(cases):
            yield case, rule_on(config, case.call)
        return
    rehearsal = OrderRehearsal(config)
    by_id = {case.call.id: case for case in cases}
    events: list[tuple[float, int, TrialCase]] = [(case.at, 0, case) for case in cases]
    events += [(case.ended[0], 1, case) for case in cases if case.ended is not None]
    waiting: set[str] = set()
    for at, is_end, case in sorted(events, key=lambda event: event[:2]):
        for id_, verdict in rehearsal.tell(at):
            waiting.discard(id_)
            _begin(rehearsal, by_id[id_], verdict, at)
            yield by_id[id_], verdict
        if is_end and case.ended is not None:
            rehearsal.end(case.call.id, at, case.ended[1])
            continue
        verdict = rehearsal.ask(case.call, at)
        if isinstance(verdict, Hold):
            waiting.add(case.call.id)
            continue
        _begin(rehearsal, case, verdict, at)
        yield case, verdict
    for id_ in waiting:  # what they wait for did not happen while the record lasts
        yield by_id[id_], Hold(seconds=1.0, reason="waits")


def _begin(rehearsal: OrderRehearsal, case: TrialCase, verdict: Verdict, at: float) -> None:
    """Tell the rehearsal whether the call runs: as it did in the record, unless these rules deny it."""
    if isinstance(verdict, Deny) or not case.ruled.runs:
        rehearsal.end(case.call.id, at, None)
    else:
        rehearsal.begin(case.call, at)


class ChangeTally:
    """Counts of the changes that rules would have made, by tool and agent."""

    def __init__(self, scheduler: str) -> None:
        self._scheduler = scheduler
        self._counts, self._judged = ChangeCounts(), 0
        self._of: Counter[tuple[str, str]] = Counter()
        self._groups: dict[tuple[str, str], ChangeGroup] = {}
        self._heard = 0

    def add(self, case: TrialCase, verdict: Verdict) -> None:
        """Count one decision, with the verdict of the new rules in place of the scheduler's own."""
        whose = (case.call.tool_name, case.call.agent)
        self._judged += 1
        self._of[whose] += 1
        self._heard += any(one.scheduler == self._scheduler for one in case.ruled.verdicts)
        given = ReceivedVerdict(self._scheduler, verdict)
        effect = replay_decision(case.ruled, [given], without=(self._scheduler,))
        found: Change | None = change(actual(case.ruled), effect)
        self._counts.count(found)
        if found is None:
            return
        group = self._groups.setdefault(whose, ChangeGroup(ChangeCounts(), Counter(), []))
        group.counts.count(found)
        if isinstance(verdict, Deny | AskUser) and verdict.rule_name:
            group.rules[verdict.rule_name] += 1
        if len(group.examples) < MAX_EXAMPLES:
            group.examples.append(case.call.id)

    def as_json(self) -> dict[str, Any]:
        """Return the counts for the page, the most changes first."""
        busy = sorted(self._groups.items(), key=lambda item: (-_changes(item[1].counts), item[0]))
        return {
            "scheduler": self._scheduler,
            "judged": self._judged,
            "heard": self._heard,
            "counts": _as_dict(self._counts),
            "groups": [
                {
                    "tool": tool,
                    "agent": agent,
                    "of": self._of[tool, agent],
                    **_as_dict(group.counts),
                    "rules": [name for name, _ in group.rules.most_common(MAX_RULES)],
                    "examples": group.examples,
                }
                for (tool, agent), group in busy[:MAX_GROUPS]
            ],
            "more": len(busy[MAX_GROUPS:]),
        }


class RulePusher:
    """Reader of the policies on the bus, and the person's way to push one."""

    def __init__(self, commands: RedisCommands, namespace: str) -> None:
        self._commands, self._namespace = commands, namespace
        self._roster = Roster(commands, namespace)

    async def read(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return each policy among these schedulers, with its pushed text; raise TransportError."""
        found = []
        for name in dict.fromkeys((POLICY, *names)):
            store = ConfigStore(self._commands, self._namespace, name)
            try:
                record = (await store.read()).record
                active = record.config(record.active)
                if name != POLICY and (active is None or active.spec != POLICY):
                    continue
                text = (await store.text(record.active)).decode("utf-8", "replace") if active else ""
            except ConfigError:
                continue  # its page says why the record cannot be read
            shown = text if len(text) <= MAX_TEXT else ""
            found.append({"scheduler": name, "in_force": record.name(record.active), "text": shown})
        return found

    async def push(self, asked: PushRequest, by: str) -> dict[str, Any]:
        """Store the rules and begin a rollout; raise ConfigError if that is impossible, TransportError."""
        await asyncio.to_thread(read_rules, asked.text)
        parse_condition(asked.undo_if)
        if why := explain_reserved(asked.scheduler):
            raise ConfigError(f"{asked.scheduler}: is no scheduler's name: {why}")
        members = (await self._roster.read()).members
        desk = ConfigCommands(self._commands, self._namespace, asked.scheduler, None, by=f"{by} (console)")
        signs = any(one.name == asked.scheduler and one.proof is not None for one in members)
        if signs or await desk.store.is_signed():
            raise ConfigError(
                f"{asked.scheduler} takes signed configurations only, and the console has no keys: use "
                "`toolgate scheduler push --keys`"
            )
        stored = await desk.push(asked.text.encode(), asked.label, POLICY, stage=True)
        stages = (RolloutStage(asked.share, 0.0),)
        rollout = Rollout(secrets.token_hex(8), "", stages, asked.undo_if, MIN_SAMPLE, f"{by} (console)")
        await desk.begin(stored.digest, rollout)
        return {"revision": stored.revision.text, "stage": stages[0].text}


def _read_case(fact: Fact, after: Sequence[Fact]) -> TrialCase | None:
    if fact.get("outcome") not in ("continue", "modify", "deny"):
        return None  # it still waits, or nobody waited for it
    told = {name: fact[name] for name in _FIELDS if fact.get(name) is not None}
    try:
        return TrialCase(ToolSelecting(**told), record_of(fact), float(fact["at"]), _end_of(after))
    except (ValidationError, CodecError, TypeError, ValueError, KeyError):
        return None


def _end_of(after: Sequence[Fact]) -> tuple[float, bool | None] | None:
    for fact in after:
        at = fact.get("at")
        if (event := fact.get("event")) in TOOL_ENDS and isinstance(at, int | float):
            success = event == TOOL_POST and fact.get("success") is True
            return float(at), None if event == TOOL_UNUSED else success
    return None


def _copy(decision: Fact) -> Fact:
    return {**decision, "verdicts": list(decision.get("verdicts") or ())}


def _changes(counts: ChangeCounts) -> int:
    return counts.veto + counts.reroute + counts.ask + counts.hold + counts.allow


def _as_dict(counts: ChangeCounts) -> dict[str, int]:
    return {name: getattr(counts, name) for name in ("same", "veto", "reroute", "ask", "hold", "allow")}
