"""What `slots` is configured by: pools of what is scarce, whose turn it is, and what a call needs of them."""

import hashlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Final

from pydantic import Field, field_validator, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.facts.validation import MAX_SIGNAL, SIGNAL
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.queues.queue import (
    MAX_LEVEL,
    MAX_LIMIT,
    MAX_WEIGHT,
    MIN_WEIGHT,
    Need,
    Request,
    tell_call,
)
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.ruling.conditions.arguments import MISSING, UNSEEN, readings
from toolgate_bus.ruling.conditions.conditions import Globs
from toolgate_bus.ruling.conditions.matching import CallMatcher
from toolgate_bus.ruling.conditions.places import find_host, find_place, split_places

MAX_KEY: Final = 200
_LABEL: Final = "label:"
_WHOSE: Final = ("agent", "session", "tree")
_HOST: Final = "#host"
_UNSEEN: Final = "?"

Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]
Weight = Annotated[float, Field(ge=MIN_WEIGHT, le=MAX_WEIGHT, strict=True)]
Level = Annotated[int, Field(ge=-MAX_LEVEL, le=MAX_LEVEL, strict=True)]
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT, strict=True)]
By = Annotated[str, Field(max_length=300)]
Signal = (
    Annotated[int, Field(ge=100, le=599, strict=True)]
    | Annotated[str, Field(min_length=1, max_length=MAX_SIGNAL, pattern=rf"^{SIGNAL.pattern}$")]
)


def _check_by(by: str) -> str:
    if by not in _WHOSE and not (by.startswith(_LABEL) and len(by) > len(_LABEL)):
        raise ValueError(f"must be {', '.join(_WHOSE)} or {_LABEL}NAME")
    return by


class Share(StrictModel):
    """Whose turns are weighed against each other."""

    by: By = "agent"
    """`agent`, `session`, `tree` or `label:NAME`."""
    weights: Annotated[dict[str, Weight], Field(max_length=1000)] = Field(default_factory=dict)
    """Slot time against the others': who has 8 gets twice as much as who has 4. Names may be globs"""
    default: Weight = 1.0
    """The weight of whoever is not named"""

    _checked = field_validator("by")(_check_by)


class Priority(StrictModel):
    """Classes: the higher goes first."""

    by: By
    """What names the class of a call: `agent`, `session`, `tree` or `label:NAME`"""
    classes: Annotated[dict[str, Level], Field(max_length=100)] = Field(default_factory=dict)
    """The higher goes first"""
    default: Level = 0
    """The class of whoever is not named"""
    ageing_s: Annotated[float, Field(ge=0.001, le=86_400, strict=True)] = 30.0
    """Seconds of waiting that count as one step of a class: nobody waits for ever."""

    _checked = field_validator("by")(_check_by)


class Together(StrictModel):
    """Who may be in a pool together: readers; all others are in it alone."""

    tools: Globs
    """The calls that may be in the pool together: one glob or several"""


class Adaptive(StrictModel):
    """How far a tool's own errors let its pool go."""

    min: Limit = 1
    """Never fewer at a time"""
    signals: Annotated[tuple[Signal, ...], Field(max_length=100)] = (429, "timeout")
    """What says that it was too much: a status of HTTP, `timeout`, a code or the type of the tool's error.
    A Retry-After always does"""
    climb_s: Annotated[float, Field(ge=0, le=86_400, strict=True)] = 5.0
    """So long after a change it is raised by one, if as many calls as it allows ended well meanwhile"""
    pause_s: Annotated[float, Field(ge=0, le=3600, strict=True)] = 30.0
    """So long at most nothing is given after a Retry-After"""

    @property
    def names(self) -> frozenset[str]:
        """The signals as facts name them."""
        return frozenset(map(str, self.signals))


class PoolConfig(CallMatcher):
    """Something of which so much can be used at a time, in the whole fleet."""

    name: Name
    """Told to who waits or is denied, and to operators"""
    tools: Globs
    """The calls that need a slot: one glob or several."""
    limit: Limit | None = None
    """So many calls at a time; without it one, or as many as like where they are `shared`."""
    key: Annotated[str, Field(min_length=3, max_length=256, pattern=r"^\$\.")] | None = None
    """An argument (`$.path`, `$.url#host`): each of its values is a pool of its own."""
    shared: Together | None = None
    """Readers and writers: calls to its `tools` are in the pool together, every other call is in it alone"""
    wait_s: Annotated[float, Field(ge=0, le=86_300, strict=True)] = 120.0
    """So long a call waits for its turn; then it is denied. 0: it never waits."""
    share: Share = Share()
    """Whose turn it is within a class: see below"""
    priority: Priority | None = None
    """Who goes first: see below"""
    adaptive: Adaptive | None = None
    """The tool's own errors halve the limit, and it climbs again: see below"""

    @field_validator("key")
    def _check_key(cls, key: str | None) -> str | None:  # noqa: N805 - pydantic's own form
        if key is not None and "#" in key.removesuffix(_HOST):
            raise ValueError(f"behind the path only {_HOST} may follow: the host of an address")
        return key

    @model_validator(mode="after")
    def _check_bounds(self) -> "PoolConfig":
        if self.adaptive is not None and self.adaptive.min > self.most:
            raise ValueError(f"adaptive: min is {self.adaptive.min}, and the limit {self.most}")
        return self

    @property
    def most(self) -> int:
        """The limit that holds."""
        return self.limit or (MAX_LIMIT if self.shared is not None else 1)


class SlotsConfig(StrictModel):
    """The file of `slots`: `pools`; a call that fits several needs a slot of each."""

    pools: Annotated[tuple[PoolConfig, ...], Field(min_length=1, max_length=1000)]
    """What so many can use at a time; a call that fits several needs a slot of each, and gets all or none"""

    @model_validator(mode="after")
    def _check_unique_names(self) -> "SlotsConfig":
        names = [pool.name for pool in self.pools]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"pools: the name {twice[0]!r} is given twice")
        return self


def find_pools(config: SlotsConfig, call: ToolSelecting) -> list[PoolConfig]:
    """List the pools that a call needs a slot of; what cannot be seen fits."""
    return [pool for pool in config.pools if pool.concerns(pool.tools, call) is not False]


def needs_of(pool: PoolConfig, call: ToolSelecting) -> list[Need]:
    """List the slots of a pool that a call needs: one, or one for each place that it names."""
    alone = pool.shared is not None and not globs.either(pool.shared.tools, call.tool_name)
    return [Need(f"{pool.name}{key}", pool.most, alone) for key in _keys(pool, call)]


def whose(by: str, call: ToolSelecting) -> str:
    """To whom a call belongs."""
    if by.startswith(_LABEL):
        return call.labels.get(by.removeprefix(_LABEL), "")
    return {"agent": call.agent, "session": call.session, "tree": call.root_session or call.session}[by]


def request_of(pools: Sequence[PoolConfig], call: ToolSelecting, owner: str) -> Request:
    """What is asked of the queue for a call that needs slots of these pools; the first says whose turn."""
    share, priority = pools[0].share, pools[0].priority
    tenant = whose(share.by, call)
    return Request(
        call.id,
        tuple(need for pool in pools for need in needs_of(pool, call)),
        owner,
        tenant,
        weight_of(share, tenant),
        priority.classes.get(whose(priority.by, call), priority.default) if priority else 0,
        priority.ageing_s if priority else 30.0,
        min(pool.wait_s for pool in pools),
        tell_call(call.tool_name, call.agent, call.session),
    )


def weight_of(share: Share, tenant: str) -> float:
    """The weight of a tenant; names may be globs."""
    if tenant in share.weights:
        return share.weights[tenant]
    return next(
        (weight for name, weight in share.weights.items() if fnmatchcase(tenant, name)), share.default
    )


def _keys(pool: PoolConfig, call: ToolSelecting) -> list[str]:
    """List what stands behind the pool's name: nothing, or a key for each value."""
    if pool.key is None:
        return [""]
    path, part, _ = pool.key.removeprefix("$.").partition(_HOST)
    found = readings(path, call.tool_input)
    value = found[0] if len(found) == 1 else UNSEEN
    texts = [
        None if one is MISSING or one is UNSEEN else (find_host if part else find_place)(one)
        for one in split_places(value)
    ]
    # All that cannot be read in one way share a slot, so that none evades it.
    return sorted({f"/{_UNSEEN}" if text is None else f"/{_short(text)}" for text in texts})


def _short(text: str) -> str:
    return text if len(text) <= MAX_KEY else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
