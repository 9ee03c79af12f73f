"""The configuration of `cost-aware`: prices, budgets, equivalents, weights.

Money is written in units of the currency (`0.40`) and counted in whole micro-units, rounded up.
"""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.errors import ConfigError
from toolgate_bus.ledger.money.calendar import MAX_ZONE, CalendarWindow, find_zone
from toolgate_bus.protocol.events import NAME_PATTERN
from toolgate_bus.protocol.llm import LLM

from toolgate_schedulers.shipped.alternatives import Groups, Name, list_rivals
from toolgate_schedulers.shipped.cost_aware.amounts import Money
from toolgate_schedulers.shipped.cost_aware.llm_prices import LlmConfig
from toolgate_schedulers.shipped.durability import DurabilityConfig
from toolgate_schedulers.shipped.score.outcomes import HALF_LIFE_S, Seconds

HOUR: Final = 3600
DAY: Final = 86_400
_MAX_LENGTH: Final = 366 * DAY
SLICE: Final = "slice"
"""Name of the budget that a delegation gives to the agents below it."""
_LEVELS: Final = ("session", "own-session", "tree", "agent", "fleet")
_WINDOWS: Final = {"hour": HOUR, "day": DAY, "total": 0, "week": -7, "month": -31}
"""Seconds by name; 0 for no end. Windows without a fixed length have their negated number of days."""
_LABEL: Final = re.compile(r"label:.{1,128}")


def _window(written: Any) -> int:
    seconds = _WINDOWS.get(written) if isinstance(written, str) else written
    if type(seconds) is not int or not (0 < seconds <= _MAX_LENGTH or written in _WINDOWS):
        raise ValueError(f"must be hour, day, week, month, total, or whole seconds from 1 to {_MAX_LENGTH}")
    return seconds


Window = Annotated[int, BeforeValidator(_window, json_schema_input_type=int | str)]
"""Length in seconds; 0 is for all time; below 0, a week or month of the calendar."""
Weight = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]


class Price(StrictModel):
    """Expected cost and latency of a tool or agent. The default for tools is `default`."""

    cost: Money | None = None
    """Highest cost of one call, in the currency: this much is reserved for it."""
    latency_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False, strict=True)] | None = None
    """Usual duration in seconds."""


class Budget(StrictModel):
    """Limit on the money that is spent in a window."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    """Name of the budget, of letters, digits, `.`, `_` and `-`."""
    level: str = Field(default="fleet", description=f"{', '.join(_LEVELS)} or label:NAME")
    """Callers that share it: each `session` with its agents (`tree` means the same), `own-session` alone,
    `agent` (with the agents that work for it), value of `label:NAME`, or the whole `fleet`."""
    limit: Money | None = Field()
    """Most that may be spent in a window, in the currency. `null` only counts."""
    window: Window = Field(default=0, validate_default=False)
    """Time after which the budget starts again: `hour`, `day`, `week` (on Monday), `month` or a number of
    seconds. Default: `total`, never."""
    time_zone: Annotated[str, Field(max_length=MAX_ZONE)] = "UTC"
    """Time zone in which a day, week or month begins, such as `Europe/Berlin`."""

    @property
    def calendar(self) -> CalendarWindow | None:
        """Windows of the calendar; None if the windows are seconds by the server's clock."""
        if self.window == _WINDOWS["week"]:
            return CalendarWindow("week", self.time_zone)
        if self.window == _WINDOWS["month"]:
            return CalendarWindow("month", self.time_zone)
        is_here = self.window == DAY and self.time_zone != "UTC"
        return CalendarWindow("day", self.time_zone) if is_here else None

    @property
    def window_s(self) -> int:
        """Longest window in seconds; 0 is for all time."""
        return self.window if (calendar := self.calendar) is None else calendar.max_seconds

    @field_validator("time_zone")
    @classmethod
    def _is_zone(cls, zone: str) -> str:
        try:
            find_zone(zone)
        except ConfigError:
            raise ValueError("must be the name of a time zone, such as UTC or Europe/Berlin") from None
        return zone

    @model_validator(mode="after")
    def _check_zone(self) -> "Budget":
        if self.time_zone != "UTC" and self.window not in (DAY, _WINDOWS["week"], _WINDOWS["month"]):
            raise ValueError("time_zone: goes with window: day, week or month")
        return self

    @field_validator("level")
    @classmethod
    def _check_level(cls, level: str) -> str:
        if level not in _LEVELS and not _LABEL.fullmatch(level):
            raise ValueError(f"must be {cls.model_fields['level'].description}")
        return level


class CostAwareConfig(StrictModel):
    """Configuration file of a cost-aware scheduler."""

    tools: Annotated[dict[Name, Price], Field(max_length=10_000)] = Field(default_factory=dict)
    """Mapping of each tool to its `cost` and `latency_s`."""
    agents: Annotated[dict[Name, Price], Field(max_length=10_000)] = Field(default_factory=dict)
    """The same for delegations, by the agent that is asked. `cost` is for all work of the agent. An agent
    that is not listed costs nothing until Toolgate has learned its cost."""
    default: Price = Price()
    """The same for tools that are not listed, until their cost is learned. Default: they cost nothing."""
    alternatives: Groups = ()
    """Groups of equivalents: `tools` (a list of names, or names with `arguments` as in the router) or
    `agents` (a list of names)."""
    budgets: Annotated[tuple[Budget, ...], Field(max_length=64)] = ()
    """Budgets, see below. Without any, nothing is counted and nothing is denied."""
    cost_weight: Weight = 0.0
    """Weight of the money that a success costs in the choice among equivalents, from 0 to 1. Above 0 it
    counts even while there is money left."""
    latency_weight: Weight = 0.0
    """The same for the time that a success takes."""
    half_life_s: Seconds = HALF_LIFE_S
    """Seconds after which the outcome of a call counts half. Where calls are many, newer ones replace it
    sooner."""
    learn: bool = Field(default=True, strict=True)
    """True to learn costs from the results of tools."""
    llm: LlmConfig | None = None
    """Settings for requests to LLMs: schedulers are asked about them like calls, and they are reserved for in
    the same budgets; see below."""
    charge_llm: bool = Field(default=False, strict=True)
    """True to charge the cost of LLM requests (`usage.cost_usd`) to the same budgets, in a configuration
    without `llm`."""
    on_ledger_lost: Literal["deny", "continue"] = "deny"
    """Reaction if the ledger was emptied or replaced, or lost confirmed writes. `deny` denies all that costs
    money until an operator decides (`toolgate budget rebuild`, `accept-loss`). `continue` goes on with the
    ledger as it is."""
    admission: bool = Field(default=False, strict=True)
    """True to reserve in the phase `admit`, last, for the call that is about to run. A call that others deny
    then reserves nothing. Earlier phases only check that there is enough money."""
    currency: Annotated[str, Field(max_length=16)] = "USD"
    """Name of the currency in texts."""
    durability: DurabilityConfig | None = None
    """Number of `replicas` that must have a reservation before it counts, and `timeout_ms`; see below."""

    @property
    def rivals(self) -> list[list[str]]:
        """Keys of the tools, agents and models among which it may choose, group by group."""
        models = [[f"{LLM}{name}" for name in group] for group in (self.llm.equivalents if self.llm else ())]
        return [*list_rivals(self.alternatives), *models]

    @property
    def weighs(self) -> bool:
        """True if a weight is above 0."""
        return bool(self.cost_weight or self.latency_weight)

    @property
    def idle_weights(self) -> str:
        """Words about weights that choose among nothing; empty if they choose, or if there are none."""
        given = [name for name in ("cost_weight", "latency_weight") if getattr(self, name)]
        if not self.weighs or self.rivals:
            return ""
        return (
            f"{' and '.join(given)}: choose among nothing: name tools or agents that can stand in for each "
            "other under alternatives, or models under llm.equivalents"
        )

    @property
    def chooses(self) -> bool:
        """True if its weights choose among something."""
        return self.weighs and bool(self.rivals)

    @field_validator("budgets")
    @classmethod
    def _names_once(cls, budgets: tuple[Budget, ...]) -> tuple[Budget, ...]:
        names = [budget.name for budget in budgets]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{twice[0]} is the name of two budgets: give each its own name")
        if SLICE in names:
            raise ValueError(f"{SLICE} is reserved for budgets that delegations give: choose another name")
        return budgets

    @model_validator(mode="after")
    def _says_something(self) -> "CostAwareConfig":
        if not self.model_fields_set:
            raise ValueError("is empty: give budgets, or alternatives with a cost_weight or latency_weight")
        return self
