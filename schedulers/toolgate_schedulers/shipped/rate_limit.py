"""The shipped scheduler `rate-limit`: limits the number of calls in a time, exact across its replicas.

Every limit that fits a call applies: the call takes a token from the bucket of each, or it takes none
and is denied. A call that was let through has taken its tokens, whether it then runs or not. In
phase `verify` the replacement takes a token from each of its buckets that the decision has not taken
from before. So a replacement by a limited tool is limited as well, and a decision counts once in each
limit. A sub-agent's calls also count for each agent above it, and a session's calls for its whole
tree: nobody gets more calls by delegating.

With `admission` it is asked last instead, about the call that is about to run: a call that others deny
takes no token.

`toolgate_bus.state.token_buckets` holds the buckets.
"""

import hashlib
import math
import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final, NamedTuple

from pydantic import BaseModel, Field, field_validator, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol.events import Continue, Deny, Phase, ToolSelecting, Verdict
from toolgate_bus.protocol.names import MAX_RULE
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.ruling.conditions.conditions import Globs, any_glob
from toolgate_bus.ruling.conditions.matching import CallMatcher
from toolgate_bus.ruling.local_table import encode_table, list_concerns
from toolgate_bus.state.token_buckets import Bucket, Buckets, TakeResult

from toolgate_schedulers.author.scheduler import SchedulerContext

_UNITS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_RATE: Final = re.compile(r"\s*(\d{1,7})\s*/\s*(second|minute|hour|day)\s*")
_PER: Final = ("session", "tree", "own-session", "agent", "tool", "fleet")
_LABEL: Final = "label:"
_MAX_OWNER: Final = 200
_LAST: Final[tuple[Phase, ...]] = ("admit",)
_FIRST: Final[tuple[Phase, ...]] = ("select", "verify")

Calls = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]


class Rate(StrictModel):
    """Rate: a number of calls in a number of seconds."""

    calls: Calls
    seconds: Annotated[float, Field(ge=0.001, le=604_800, strict=True)]

    @property
    def words(self) -> str:
        """Rate in words for the LLM."""
        times = "once" if self.calls == 1 else f"{self.calls} times"
        for unit, seconds in _UNITS.items():
            if self.seconds == seconds:
                return f"{times} per {unit}"
        return f"{times} in {self.seconds:g} seconds"


class Limit(CallMatcher):
    """Limit on calls: the tools, the calls that are counted together, and the rate."""

    tools: Globs
    """Tools that are limited: one glob or several."""
    per: Annotated[str, Field(max_length=300)]
    """Calls that are counted together, see below."""
    rate: Rate
    """Calls per `second`, `minute`, `hour` or `day`, such as `10/minute`; or `{calls: 500, seconds: 900}`."""
    burst: Calls | None = None
    """Maximum number of calls at once after a pause. Default: the number of calls of the rate."""

    @field_validator("per")
    @classmethod
    def _check_per(cls, per: str) -> str:
        if per not in _PER and not (per.startswith(_LABEL) and len(per) > len(_LABEL)):
            raise ValueError(f"must be {', '.join(_PER)} or {_LABEL}NAME")
        return per

    @field_validator("rate", mode="before")
    @classmethod
    def _parse_rate(cls, rate: Any) -> Any:
        if not isinstance(rate, str):
            return rate
        found = _RATE.fullmatch(rate)
        if found is None:
            raise ValueError(
                "must be calls per second, minute, hour or day, such as 10/minute, or {calls, seconds}"
            )
        return {"calls": int(found[1]), "seconds": _UNITS[found[2]]}

    def mark(self, scheduler: str) -> str:
        """Return the prefix of its buckets under a scheduler's name; a changed limit begins with full
        buckets."""
        told_apart = f"{scheduler} {self.wording}"
        return hashlib.sha256(told_apart.encode("utf-8", "replace")).hexdigest()[:16]

    def fits(self, call: ToolSelecting) -> bool:
        """Return whether the limit is, or may be, about the call."""
        return self.concerns(self.tools, call) is not False

    def owners(self, call: ToolSelecting) -> Iterator[str]:
        """Give the owners of the buckets that the call counts in; all calls without a session, agent or label
        share one."""
        if self.per.startswith(_LABEL):
            yield call.labels.get(self.per.removeprefix(_LABEL), "")
        elif self.per == "agent":
            named = dict.fromkeys((call.agent, *call.lineage))
            yield from (one for one in named if self.agents is None or any_glob(self.agents, one))
        elif self.per == "own-session":
            yield call.session
        elif self.per == "session":  # its own as well: its root may change
            yield from dict.fromkeys((call.root_session or call.session, call.session or call.root_session))
        elif self.per == "tool":
            yield globs.plain(call.tool_name)
        else:
            yield "" if self.per == "fleet" else call.root_session or call.session


class RateLimitConfig(StrictModel):
    """Configuration file of `rate-limit`: all its `limits` apply."""

    limits: Annotated[tuple[Limit, ...], Field(min_length=1, max_length=1000)]
    admission: Annotated[bool, Field(strict=True)] = False
    """True to rule in phase `admit`, last, so that a call that others deny takes no token."""

    @model_validator(mode="after")
    def _check_unique_names(self) -> "RateLimitConfig":
        names = [limit.name for limit in self.limits if limit.name is not None]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"limits: the name {twice[0]!r} is given twice")
        return self


class AppliedLimit(NamedTuple):
    """Limit as it applies to one call."""

    bucket: Bucket
    limit: Limit
    name: str
    whose: str


def find_limits(config: RateLimitConfig, scheduler: str, call: ToolSelecting) -> dict[str, AppliedLimit]:
    """Return the limits that apply to a call, by the key of their bucket; each scheduler's name has its own
    buckets."""
    found = {}
    for number, limit in enumerate(config.limits, start=1):
        if not limit.fits(call):
            continue
        mark = limit.mark(scheduler)
        for whose in limit.owners(call):
            own = whose
            if len(own) > _MAX_OWNER:
                own = hashlib.sha256(own.encode("utf-8", "replace")).hexdigest()
            calls, period_ms = limit.rate.calls, max(1, round(limit.rate.seconds * 1000))
            bucket = Bucket(f"{mark}:{own}", calls, period_ms, limit.burst or calls)
            found[bucket.key] = AppliedLimit(bucket, limit, limit.name or f"limit {number}", whose)
    return found


def verdict_from(limits: dict[str, AppliedLimit], taken: TakeResult, call: ToolSelecting) -> Verdict:
    """Return the verdict after an attempt to take a token from the bucket of each of these limits."""
    if taken.allowed:
        return Continue()
    short = limits[taken.short]
    limited = short.limit.tools
    if short.limit.per == "tool":
        tools = call.tool_name
    elif limited[0] == "*":
        tools = "tools"
    else:
        tools = " or ".join(limited[:3]) + (" or others" if len(limited) > 3 else "")
    seconds = max(1, math.ceil(taken.wait_s))
    again = "1 second" if seconds == 1 else f"{seconds} seconds"
    return Deny(
        reason=f"{call.tool_name} was called too often: {tools} may be called {short.limit.rate.words} "
        f"{_by_whom(short, call)} ({short.name}). Try again in {again}; until then do something "
        "else, or answer with what you have.",
        rule_name=short.name[:MAX_RULE],
    )


def _by_whom(short: AppliedLimit, call: ToolSelecting) -> str:
    match short.limit.per:
        case "own-session":
            return "in this session"
        case "session" | "tree":
            return "in this session and those of its agents together"
        case "agent":
            below = "" if short.whose == call.agent else " and the agents that work for it"
            return f"by {short.whose or 'agents without a name'}{below}"
        case "tool" | "fleet":
            return "by all agents together"
        case label:
            name = label.removeprefix(_LABEL)
            has = name in call.labels
            return f"for {name} {call.labels[name]}" if has else f"for calls without label {name}"


class RateLimit:
    """Scheduler that a `RateLimitConfig` configures; it is asked only about the tools that it limits."""

    name = "rate-limit"
    priority = 0
    config_model: ClassVar[type[BaseModel]] = RateLimitConfig
    _buckets: Buckets
    _runs_as: str

    def __init__(self, config: RateLimitConfig) -> None:
        self.config = config
        self.phases = _LAST if config.admission else _FIRST
        self.tools = tuple(dict.fromkeys(glob for limit in config.limits for glob in limit.tools))
        self.local_table = encode_table(list_concerns((one.tools, one) for one in config.limits), "continue")

    async def start(self, context: SchedulerContext) -> None:
        """Use the buckets that all replicas of this name share."""
        self._buckets, self._runs_as = context.shared.buckets, context.name

    async def decide(self, call: ToolSelecting) -> Verdict:
        """Take a token from the bucket of each limit that applies, or deny."""
        limits = find_limits(self.config, self._runs_as, call)
        if not limits:
            return Continue()
        taken = await self._buckets.take(call.id, [one.bucket for one in limits.values()])
        return verdict_from(limits, taken, call)
