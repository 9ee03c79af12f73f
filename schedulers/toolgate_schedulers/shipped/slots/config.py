"""Configure `slots`: pools of scarce things, the order of turns, and the slots that a call needs."""

import hashlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Final

from pydantic import Field, field_validator, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.facts.validation import MAX_SIGNAL, SIGNAL
from toolgate_bus.ledger.slots.queue import (
    MAX_LEVEL,
    MAX_LIMIT,
    MAX_WEIGHT,
    MIN_WEIGHT,
    Need,
    Request,
    tell_call,
)
from toolgate_bus.protocol.events import ToolSelecting
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
    """Fair shares among the callers that use a pool."""

    by: By = "agent"
    """Property that tells callers apart: `agent`, `session`, `tree` or `label:NAME`."""
    weights: Annotated[dict[str, Weight], Field(max_length=1000)] = Field(default_factory=dict)
    """Weights by name: a caller with 8 gets twice the slot time of a caller with 4. Names may be globs."""
    default: Weight = 1.0
    """Weight of callers that are not named."""

    _checked = field_validator("by")(_check_by)


class Priority(StrictModel):
    """Classes of calls: a higher class goes first."""

    by: By
    """Property that names the class of a call: `agent`, `session`, `tree` or `label:NAME`."""
    classes: Annotated[dict[str, Level], Field(max_length=100)] = Field(default_factory=dict)
    """Classes by name; the higher goes first."""
    default: Level = 0
    """Class of callers that are not named."""
    ageing_s: Annotated[float, Field(ge=0.001, le=86_400, strict=True)] = 30.0
    """Seconds of waiting that raise a call by one class, so that no call waits for ever."""

    _checked = field_validator("by")(_check_by)


class Together(StrictModel):
    """Tools whose calls share a pool, as readers do. Every other call is in the pool alone."""

    tools: Globs
    """Tools whose calls may be in the pool together: one glob or several."""


class Adaptive(StrictModel):
    """Limit that follows the tool's own errors."""

    min: Limit = 1
    """Smallest limit that errors may lead to."""
    signals: Annotated[tuple[Signal, ...], Field(max_length=100)] = (429, "timeout")
    """Errors that halve the limit: an HTTP status, `timeout`, a code or the type of the tool's error. A
    Retry-After always does."""
    climb_s: Annotated[float, Field(ge=0, le=86_400, strict=True)] = 5.0
    """Seconds from one change until the limit may be raised by one. As many calls as the limit must have
    ended well meanwhile."""
    pause_s: Annotated[float, Field(ge=0, le=3600, strict=True)] = 30.0
    """Longest pause in seconds after a Retry-After, in which no slot is given."""

    @property
    def names(self) -> frozenset[str]:
        """Signals as facts name them."""
        return frozenset(map(str, self.signals))


class PoolConfig(CallMatcher):
    """Pool: a number of slots that the whole fleet shares."""

    name: Name
    """Name of the pool, shown to operators and in the reasons of waiting or denied calls."""
    tools: Globs
    """Tools whose calls need a slot: one glob or several."""
    limit: Limit | None = None
    """Maximum number of concurrent calls. Default: 1, or unlimited if `shared` is set."""
    key: Annotated[str, Field(min_length=3, max_length=256, pattern=r"^\$\.")] | None = None
    """Argument (`$.path`, `$.url#host`) whose values are pools of their own."""
    shared: Together | None = None
    """Readers and writers: calls to these `tools` are in the pool together, every other call is in it
    alone."""
    wait_s: Annotated[float, Field(ge=0, le=86_300, strict=True)] = 120.0
    """Longest wait for a slot in seconds. After that the call is denied. 0 means do not wait."""
    share: Share = Share()
    """Order of turns within a class: see below."""
    priority: Priority | None = None
    """Classes of calls, of which the higher goes first: see below."""
    adaptive: Adaptive | None = None
    """Adaptive limit: the tool's errors halve it, and it climbs again; see below."""

    @field_validator("key")
    def _check_key(cls, key: str | None) -> str | None:  # noqa: N805 - pydantic's own form
        if key is not None and "#" in key.removesuffix(_HOST):
            raise ValueError(f"only {_HOST}, the host of an address, may follow the path")
        return key

    @model_validator(mode="after")
    def _check_bounds(self) -> "PoolConfig":
        if self.adaptive is not None and self.adaptive.min > self.most:
            raise ValueError(f"adaptive: min is {self.adaptive.min}: must be at most the limit, {self.most}")
        return self

    @property
    def most(self) -> int:
        """Limit that holds."""
        return self.limit or (MAX_LIMIT if self.shared is not None else 1)


class SlotsConfig(StrictModel):
    """Configuration file of `slots`: a call that fits several `pools` needs a slot of each."""

    pools: Annotated[tuple[PoolConfig, ...], Field(min_length=1, max_length=1000)]
    """Pools of slots. A call that fits several needs a slot of each, and gets all or none."""

    @model_validator(mode="after")
    def _check_unique_names(self) -> "SlotsConfig":
        names = [pool.name for pool in self.pools]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"pools: the name {twice[0]!r} is given twice")
        return self


def find_pools(config: SlotsConfig, call: ToolSelecting) -> list[PoolConfig]:
    """List the pools that a call needs a slot of; a value that could not be seen fits every pool."""
    return [pool for pool in config.pools if pool.concerns(pool.tools, call) is not False]


def needs_of(pool: PoolConfig, call: ToolSelecting) -> list[Need]:
    """List the slots of a pool that a call needs: one, or one for each place that it names."""
    alone = pool.shared is not None and not globs.either(pool.shared.tools, call.tool_name)
    return [Need(f"{pool.name}{key}", pool.most, alone) for key in _keys(pool, call)]


def whose(by: str, call: ToolSelecting) -> str:
    """Return the agent, session, tree or label value that a call belongs to."""
    if by.startswith(_LABEL):
        return call.labels.get(by.removeprefix(_LABEL), "")
    return {"agent": call.agent, "session": call.session, "tree": call.root_session or call.session}[by]


def request_of(pools: Sequence[PoolConfig], call: ToolSelecting, owner: str) -> Request:
    """Return the request to the queue for a call; the first of the pools decides the call's share and
    class."""
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
    """Return the weight of a tenant; names may be globs."""
    if tenant in share.weights:
        return share.weights[tenant]
    return next(
        (weight for name, weight in share.weights.items() if fnmatchcase(tenant, name)), share.default
    )


def _keys(pool: PoolConfig, call: ToolSelecting) -> list[str]:
    """List the suffixes of the pool's name: an empty one, or a key for each value."""
    if pool.key is None:
        return [""]
    path, part, _ = pool.key.removeprefix("$.").partition(_HOST)
    found = readings(path, call.tool_input)
    value = found[0] if len(found) == 1 else UNSEEN
    texts = [
        None if one is MISSING or one is UNSEEN else (find_host if part else find_place)(one)
        for one in split_places(value)
    ]
    # Values that have no single reading share one key, so that no call evades the limit.
    return sorted({f"/{_UNSEEN}" if text is None else f"/{_short(text)}" for text in texts})


def _short(text: str) -> str:
    return text if len(text) <= MAX_KEY else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
