"""The shipped scheduler `loop-guard`: ends agents that run away.

It counts the calls that the LLM makes, whether they run or not: repeated calls, the calls of a turn, the
calls of a session and its agents, and the time since the first of them. Each limit is the highest number
that may run: with `calls_per_turn: 25` the 26th call is denied. `toolgate_bus.state.call_counts` defines
a turn and says which calls count. A call is counted once: a replacement (phase `verify`) counts only if
the LLM's own call was exempt. A call that names neither a session nor a root session is not counted, and
may run.

It also limits a tree of agents: its depth, the delegations of one session, and the number of all agents.
Only delegations that this scheduler lets pass count, as a refused one makes no agent.
"""

import hashlib
import json
import math
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, Field, field_validator, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol.events import Continue, Deny, ToolSelecting, Verdict
from toolgate_bus.protocol.json_values import whole
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.ruling.conditions.conditions import Glob
from toolgate_bus.state.call_counts import MAX_WINDOW, CallCounter, CallCounts, CountedCall, DelegationResult

from toolgate_schedulers.author.scheduler import SchedulerContext

Calls = Annotated[int, Field(ge=1, le=1_000_000_000, strict=True)]
_SHOWN: Final = 6
"""Maximum number of agents of a chain that a reason names."""


class SameCall(StrictModel):
    """Limit on calls of one tool with the same arguments in one turn."""

    times: Annotated[int, Field(ge=1, lt=MAX_WINDOW, strict=True)]
    """Maximum number of such calls."""
    within: Annotated[int, Field(ge=2, le=MAX_WINDOW, strict=True)] | None = None
    """Number of the turn's last calls to look at. Default: count only calls in a row, with no other call
    between."""

    @model_validator(mode="after")
    def _possible(self) -> "SameCall":
        if self.within is not None and self.within <= self.times:
            raise ValueError(f"within: must be more than times ({self.times}), or the limit never applies")
        return self


class LoopGuardConfig(StrictModel):
    """Configuration file of `loop-guard`; it needs at least one limit."""

    same_call: SameCall | None = None
    """Limit on the same call in one turn: `times` in a row, or `times` among the last `within` calls."""
    calls_per_turn: Calls | None = None
    """Maximum number of calls in one turn."""
    calls_per_session: Calls | None = None
    """Maximum number of calls of a session and its agents. With `calls_per_tree` it counts the session
    alone."""
    calls_per_tree: Calls | None = None
    """Maximum number of calls of a session and its agents together."""
    seconds_per_session: Annotated[float, Field(gt=0, le=86_400, strict=True)] | None = None
    """Seconds that a session and its agents may call tools, from the first call on, by the server's clock."""
    max_depth: Calls | None = None
    """Maximum depth of agents, including the root."""
    max_width: Calls | None = None
    """Maximum number of delegations by one session."""
    max_agents: Calls | None = None
    """Maximum number of agents in a whole tree, including the root. Each delegation makes one."""
    exempt: Annotated[tuple[Glob, ...], Field(max_length=1024)] = ()
    """Globs of tools that are neither counted nor denied, and that do not break a row."""

    @field_validator("exempt", mode="before")
    @classmethod
    def _one_or_more(cls, written: Any) -> Any:
        return [written] if isinstance(written, str) else written

    @model_validator(mode="after")
    def _says_something(self) -> "LoopGuardConfig":
        limits = [name for name in type(self).model_fields if name != "exempt"]
        if all(getattr(self, name) is None for name in limits):
            raise ValueError(f"sets no limit: give one or more of {', '.join(limits)}")
        return self

    @property
    def window(self) -> int:
        """Number of a turn's last calls that must be remembered."""
        return (self.same_call.within or 0) if self.same_call is not None else 0

    def scope(self, name: str) -> str:
        """Return the scope of the counts for this scheduler's name; changing only the limits keeps the
        counts."""
        counted = json.dumps([name, self.exempt, self.window])
        return hashlib.sha256(counted.encode("utf-8", "replace")).hexdigest()[:16]


def fingerprint_call(call: ToolSelecting) -> CountedCall:
    """Return the call as it is counted; hidden values are told apart by their placeholders."""
    called = [call.tool_name, whole(call.tool_input)]
    written = json.dumps(called, sort_keys=True, default=repr, ensure_ascii=False)
    return CountedCall(
        session=call.session or call.root_session,
        tree=call.root_session or call.session,
        call=hashlib.sha256(written.encode("utf-8", "replace")).hexdigest()[:32],
        iteration=call.iteration,
        group=call.parallel_group_id,
    )


def rule_on(config: LoopGuardConfig, call: ToolSelecting, counts: CallCounts) -> Verdict:
    """Return the verdict on a call; `counts` includes this call."""
    over = _over_time(config, counts) or _over_count(config, counts)
    if over is not None:
        return Deny(reason=f"{over} Stop calling tools, and answer now with what you have.")
    repeated = _explain_repeat(config.same_call, call.tool_name, counts)
    if repeated is not None:
        return Deny(
            reason=f"{repeated} The result will be the same: stop repeating it. Answer with what you "
            "have, or do something else. (same_call)"
        )
    return Continue()


def too_deep(config: LoopGuardConfig, call: ToolSelecting) -> Deny | None:
    """Return the denial of a delegation whose agent would be too far below the root; None for other calls."""
    is_below = bool(call.parent) or call.root_session not in ("", call.session)
    depth = max(1 + is_below, len(call.lineage))
    if call.agent_target is None or config.max_depth is None or depth < config.max_depth:
        return None
    chain = f" ({' > '.join(call.lineage[-_SHOWN:])})" if call.lineage else ""
    return _no_agent(
        f"Agents may be nested {config.max_depth} deep, the first one included, and this one is at depth "
        f"{depth}{chain} (max_depth)."
    )


def too_many(config: LoopGuardConfig, found: DelegationResult) -> Deny | None:
    """Return the denial of a delegation that exceeds `max_width` or `max_agents`; None if it was counted."""
    if found.counted:
        return None
    if config.max_width is not None and found.session >= config.max_width:
        return _no_agent(
            f"This session has delegated {found.session} times; {config.max_width} are allowed (max_width)."
        )
    return _no_agent(
        f"This task has {found.tree + 1} agents already; {config.max_agents} are allowed (max_agents)."
    )


def _no_agent(why: str) -> Deny:
    return Deny(reason=f"{why} Stop delegating: do it yourself, or answer with what you have.")


def _over_time(config: LoopGuardConfig, counts: CallCounts) -> str | None:
    limit = config.seconds_per_session
    if limit is None or counts.seconds <= limit:
        return None
    return (
        f"This session has been calling tools, with its agents, for {math.ceil(counts.seconds)} s; "
        f"{limit:g} s are allowed (seconds_per_session)."
    )


def _over_count(config: LoopGuardConfig, counts: CallCounts) -> str | None:
    tree = counts.tree, "this session and those of its agents"
    both = max(counts.tree, counts.session), tree[1]  # its root may have changed
    session = both if config.calls_per_tree is None else (counts.session, "this session")
    for option, (count, what), limit in (
        ("calls_per_tree", tree, config.calls_per_tree),
        ("calls_per_session", session, config.calls_per_session),
        ("calls_per_turn", (counts.turn, "this turn"), config.calls_per_turn),
    ):
        if limit is not None and count > limit:
            return f"This is tool call {count} of {what}; {limit} are allowed ({option})."
    return None


def _explain_repeat(same: SameCall | None, tool: str, counts: CallCounts) -> str | None:
    if same is None:
        return None
    if same.within is None:
        if counts.row <= same.times:
            return None
        return (
            f"{tool} was called {counts.row} times in a row with exactly these arguments; "
            f"{same.times} are allowed."
        )
    if counts.recent <= same.times:
        return None
    return (
        f"{tool} was called {counts.recent} times with exactly these arguments in the last "
        f"{same.within} calls; {same.times} are allowed."
    )


class LoopGuard:
    """Scheduler that a `LoopGuardConfig` configures."""

    name = "loop-guard"
    priority = 0
    tools = ("*",)
    config_model: ClassVar[type[BaseModel]] = LoopGuardConfig
    _tally: CallCounter
    _scope: str

    def __init__(self, config: LoopGuardConfig) -> None:
        self.config = config

    async def start(self, context: SchedulerContext) -> None:
        """Use the counts that all replicas of this name share."""
        self._tally = context.shared.tally
        self._scope = self.config.scope(context.name)

    async def decide(self, call: ToolSelecting) -> Verdict:
        """Count one call, and rule on it."""
        if globs.fits(self.config.exempt, call.tool_name):
            return Continue(reason="exempt")
        if not (call.session or call.root_session):
            return too_deep(self.config, call) or Continue(reason="the call names no session")
        one = fingerprint_call(call)
        counts = await self._tally.count(self._scope, call.id, one, self.config.window)
        verdict = rule_on(self.config, call, counts)
        if isinstance(verdict, Deny) or call.agent_target is None:
            return verdict
        deep, width, agents = too_deep(self.config, call), self.config.max_width, self.config.max_agents
        if deep is not None or (width is None and agents is None):
            return deep or verdict
        below = None if agents is None else agents - 1
        found = await self._tally.delegate(self._scope, call.id, one, width, below)
        return too_many(self.config, found) or verdict
