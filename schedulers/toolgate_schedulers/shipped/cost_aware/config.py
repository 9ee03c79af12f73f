"""The configuration of `cost-aware`: prices, budgets, equivalents, weights.

Money is written in units of the currency (`0.40`) and counted in whole micro-units, rounded up. Limits of
other units are counted in the smallest part of their unit (`protocol.money`).
"""

import re
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.errors import ConfigError
from toolgate_bus.ledger.money.calendar import MAX_ZONE, CalendarWindow, find_zone
from toolgate_bus.ledger.money.ledger import AtLimit
from toolgate_bus.ledger.money.limits import ARGUMENT
from toolgate_bus.protocol.events import NAME_PATTERN
from toolgate_bus.protocol.llm import LLM
from toolgate_bus.protocol.money import (
    CALLS,
    MAX_AMOUNT,
    REQUESTS,
    SECONDS,
    TOKENS,
    WHOLE_UNITS,
    format_amount,
    read_amount,
)
from toolgate_bus.ruling.conditions.arguments import check_path

from toolgate_schedulers.shipped.alternatives import Groups, Name, list_rivals
from toolgate_schedulers.shipped.cost_aware.amounts import Money
from toolgate_schedulers.shipped.cost_aware.llm_prices import LlmConfig
from toolgate_schedulers.shipped.durability import DurabilityConfig
from toolgate_schedulers.shipped.score.exploration import Exploration, Explorer
from toolgate_schedulers.shipped.score.outcomes import HALF_LIFE_S, Seconds
from toolgate_schedulers.shipped.score.sticky import DECISION, Sticky

HOUR: Final = 3600
DAY: Final = 86_400
_MAX_LENGTH: Final = 366 * DAY
SLICE: Final = "slice"
"""Name of the budget that a delegation gives to the agents below it."""
_MAX_PATH: Final = 128
_LEVELS: Final = ("session", "own-session", "tree", "agent", "fleet")
_WINDOWS: Final = {"hour": HOUR, "day": DAY, "total": 0, "week": -7, "month": -31}
"""Seconds by name; 0 for no end. Windows without a fixed length have their negated number of days."""
_LABEL: Final = re.compile(r"label:.{1,128}")
_OF_LLM: Final = (TOKENS, REQUESTS)
_UNITS: Final = (CALLS, SECONDS, *_OF_LLM)
"""Units that Toolgate counts by itself."""


def _window(written: Any) -> int:
    seconds = _WINDOWS.get(written) if isinstance(written, str) else written
    if type(seconds) is not int or not (0 < seconds <= _MAX_LENGTH or written in _WINDOWS):
        raise ValueError(f"must be hour, day, week, month, total, or whole seconds from 1 to {_MAX_LENGTH}")
    return seconds


Window = Annotated[int, BeforeValidator(_window, json_schema_input_type=int | str)]
"""Length in seconds; 0 is for all time; below 0, a week or month of the calendar."""


def _limit(written: Any, info: ValidationInfo) -> int | None:
    unit = str(info.data.get("unit", ""))
    amount = None if written is None else read_amount(written, unit)
    if written is not None and amount is None and unit in WHOLE_UNITS:
        raise ValueError(f"must be a whole number of {unit}, such as 100, or null")
    if written is not None and amount is None:
        raise ValueError(f"must be an amount from 0 to {format_amount(MAX_AMOUNT)}, such as 0.40, or null")
    return amount


def _argument(written: str) -> str:
    if not written.startswith("$."):
        raise ValueError("must be the path of an argument, such as $.amount")
    check_path(written.removeprefix("$."))
    return written


Limit = Annotated[int | None, BeforeValidator(_limit, json_schema_input_type=float | str | None)]
"""Limit in the smallest part of the budget's unit; None only counts."""
Glob = Annotated[str, Field(min_length=1, max_length=256)]
Weight = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]


class Price(StrictModel):
    """Expected cost and latency of a tool or agent. The default for tools is `default`."""

    cost: Money | None = None
    """Highest cost of one call, in the currency: this much is reserved for it."""
    latency_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False, strict=True)] | None = None
    """Usual duration in seconds."""


class Budget(StrictModel):
    """Limit on the money, or on another amount, that calls take in a window."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    """Name of the budget, of letters, digits, `.`, `_` and `-`."""
    unit: Annotated[str, Field(max_length=16, pattern=r"^([A-Za-z][A-Za-z0-9_-]*)?$")] = ""
    """What it counts: `calls` of tools, the `seconds` that they take, `requests` to LLMs, the `tokens` of
    these, or a unit of your own with `amount`. Default: money in the currency."""
    amount: Annotated[str, Field(max_length=1024), AfterValidator(_argument)] | None = None
    """Argument that says how much of your own `unit` a call takes, such as `$.amount`."""
    tools: Annotated[tuple[Glob, ...], Field(min_length=1, max_length=1024)] | None = None
    """Globs of the tools whose calls count. Default: all tools, and for money also requests to LLMs."""
    level: str = Field(default="fleet", description=f"{', '.join(_LEVELS)}, label:NAME or argument:PATH")
    """Callers that share it: each `session` with its agents (`tree` means the same), `own-session` alone,
    `agent` (with the agents that work for it), value of `label:NAME` or of `argument:PATH`, or the whole
    `fleet`."""
    limit: Limit = Field()
    """Most that may be spent in a window, in the unit. `null` only counts."""
    at_limit: AtLimit = "deny"
    """Effect of the limit on a call beyond it. `deny`: it is denied. `ask`: a person is asked; if they agree,
    it runs and is booked above the limit. `pause`: it waits until the limit is raised, the window turns, or
    another call gives something back."""
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
        if level.startswith(ARGUMENT) and len(level) <= len(ARGUMENT) + _MAX_PATH:
            check_path(level.removeprefix(ARGUMENT))
        elif level not in _LEVELS and not _LABEL.fullmatch(level):
            raise ValueError(f"must be {cls.model_fields['level'].description}")
        return level

    @model_validator(mode="after")
    def _check_unit(self) -> "Budget":
        if self.amount is not None and self.unit in ("", *_UNITS):
            raise ValueError("amount: goes with a unit of your own: write `unit: EUR`, `unit: rows` …")
        if self.tools is None and (self.amount is not None or self.level.startswith(ARGUMENT)):
            raise ValueError("tools: name the tools that have this argument")
        if self.unit in _OF_LLM and (self.tools is not None or self.level.startswith(ARGUMENT)):
            raise ValueError(f"unit: {self.unit} are counted for all requests to LLMs: leave `tools` out")
        return self

    @cached_property
    def is_money(self) -> bool:
        """True if it counts money."""
        return self.amount is None and self.unit not in _UNITS

    @property
    def is_for_all(self) -> bool:
        """True if it counts the money of every call, whatever its tool and arguments."""
        return self.is_money and self.tools is None


class PaidExploration(Exploration):
    """Bounds of exploration, also in money."""

    cost: Money | None = None
    """Most money that such calls may cost in a window, as expected. Default: no limit."""
    window: Annotated[int, BeforeValidator(_window, json_schema_input_type=int | str)] = Field(
        default=DAY, validate_default=False
    )
    """Window of `cost`: `hour`, `day` or a number of seconds, which move on with the time."""

    @field_validator("window")
    @classmethod
    def _check_window(cls, window: int) -> int:
        if window <= 0:
            raise ValueError("must be hour, day, or whole seconds")
        return window


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
    sticky: Sticky = DECISION
    """Property that keeps calls together: calls of the same `session`, `tree` of sessions, `agent` or
    `label:NAME` stay at one of the equivalents until another score is at least 30 % better. `decision`
    chooses for each call anew. Goes with a weight."""
    success_by: Sticky = DECISION
    """Property by which success is remembered apart: for example with `label:team`, a tool that fails for one
    team is left by this team's calls alone. Goes with a weight."""
    explore: PaidExploration | None = None
    """Calls for which another of the equivalents is tried than the best one, to learn of it: their `share`,
    and the most that they may `cost` in a `window`. Never a call that `sticky` keeps at its place. Default:
    none. Goes with a weight."""
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

    @cached_property
    def for_all(self) -> tuple[Budget, ...]:
        """Budgets that count the money of every call."""
        return tuple(one for one in self.budgets if one.is_for_all)

    @cached_property
    def counted(self) -> tuple[Budget, ...]:
        """Budgets that count something else, or the calls of some tools only."""
        return tuple(one for one in self.budgets if not one.is_for_all)

    @property
    def rivals(self) -> list[list[str]]:
        """Keys of the tools, agents and models among which it may choose, group by group."""
        models = [[f"{LLM}{name}" for name in group] for group in (self.llm.equivalents if self.llm else ())]
        return [*list_rivals(self.alternatives), *models]

    @property
    def explorer(self) -> Explorer:
        """Explorer within the configured bounds, with nothing spent."""
        bounds = self.explore
        return Explorer() if bounds is None else Explorer(bounds.share, bounds.cost, bounds.window)

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
    def _check_units(self) -> "CostAwareConfig":
        for one in self.budgets:
            if one.is_money and one.unit not in ("", self.currency):
                raise ValueError(
                    f"budgets: {one.name}: unit {one.unit} needs `amount`, the argument that says how much; "
                    f"the currency is {self.currency}"
                )
            if one.unit in _OF_LLM and self.llm is None:
                raise ValueError(
                    f"budgets: {one.name}: unit {one.unit} needs the section `llm`; it may be {{}}"
                )
            if one.at_limit == "ask" and self.admission:
                raise ValueError(
                    f"budgets: {one.name}: at_limit: ask: with `admission` nobody can be asked any more: "
                    "give deny or pause"
                )
        return self

    @model_validator(mode="after")
    def _says_something(self) -> "CostAwareConfig":
        for name in ("sticky", "success_by"):
            if getattr(self, name) != DECISION and not self.weighs:
                raise ValueError(f"{name}: goes with cost_weight or latency_weight, which choose")
        if self.explore is not None and not self.weighs:
            raise ValueError("explore: goes with cost_weight or latency_weight, which choose")
        if not self.model_fields_set:
            raise ValueError("is empty: give budgets, or alternatives with a cost_weight or latency_weight")
        return self
