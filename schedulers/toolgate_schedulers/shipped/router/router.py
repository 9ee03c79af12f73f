"""The shipped scheduler `router`: sends calls to other tools or agents, by weight, mapping the arguments.

The first route that fits a call and has an available target rules on it. A route with a single target
that would change nothing is passed over. If a target fails too often (`fallback`), the route's other
targets take its calls. In phase `verify` the router always continues: a replacement is not replaced
again.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, Field, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol.events import Continue, Modify, ToolSelecting, Verdict
from toolgate_bus.ruling.conditions.arguments import Arguments, Name
from toolgate_bus.ruling.conditions.conditions import Globs
from toolgate_bus.ruling.conditions.matching import CallMatcher, check_unique
from toolgate_bus.ruling.local_table import encode_table, list_concerns

from toolgate_schedulers.author.scheduler import SchedulerContext
from toolgate_schedulers.shipped.ejection_reporter import EjectionReporter
from toolgate_schedulers.shipped.facts_from_now import FactsFromNow
from toolgate_schedulers.shipped.router.health import Fallback, TargetHealth
from toolgate_schedulers.shipped.router.targets import Target, rank_targets
from toolgate_schedulers.shipped.score.exploration import Exploration, Explorer
from toolgate_schedulers.shipped.score.outcomes import Outcomes, outcome_of
from toolgate_schedulers.shipped.score.score import Option, Rating, describe, rank_keys
from toolgate_schedulers.shipped.score.sticky import DECISION, Sticky, key_of

Text = Annotated[str, Field(min_length=1, max_length=800)]


class Route(CallMatcher):
    """Route from calls to other tools, with a mapping of the arguments.

    The choice among `targets` depends on the route's name, so that canaries are independent.
    """

    from_: Globs = Field(alias="from")
    """Tools whose calls are routed: one glob or several."""
    to: Name | None = None
    """Tool that runs instead. Give either this or `targets`."""
    arguments: Arguments | None = None
    """Arguments for `to`: mapping of each argument to `$.path` in the call's own, `$` for all of them, or
    `{value: …}`. Default: the call's arguments, unchanged."""
    agent: Name | None = None
    """Agent to ask instead, for a delegation, together with `to`. It is put into the argument that names the
    agent. Applies only if the session has that agent."""
    targets: Annotated[tuple[Target, ...], Field(min_length=1, max_length=256)] | None = None
    """Several tools that share the calls by weight."""
    choose: Literal["weight", "best"] = "weight"
    """Way to choose among `targets`: by their `weight`, or the `best` one, from which a success comes soonest
    at present."""
    sticky: Sticky = DECISION
    """Property that keeps calls together: calls of the same `session`, `tree` of sessions, `agent` or
    `label:NAME` go to the same one of the `targets`. `decision` chooses for each call anew, as happens for
    calls without the property. With `choose: best` they leave a target for one whose score is at least 30 %
    better."""
    success_by: Sticky = DECISION
    """Property by which success is remembered apart: for example with `label:team`, a tool that fails for one
    team is left by this team's calls alone. Goes with `choose: best`."""
    explore: Exploration | None = None
    """Share of the calls for which another target than the best is tried, to learn of it. Default: none. Goes
    with `choose: best`."""
    fallback: Fallback | None = None
    """Rules for targets that fail too often, and for the time when all fail; see below."""
    reason: Text | None = None
    """Reason that is given for the replacement, at most 800 characters."""

    @model_validator(mode="after")
    def _consistent(self) -> "Route":
        if (self.to is None) == (self.targets is None):
            raise ValueError("to: give either to (one tool) or targets (several)")
        given = [field for field in ("arguments", "agent") if getattr(self, field) is not None]
        if self.targets is not None and given:
            raise ValueError(f"{given[0]}: goes with to; give each of the targets its own")
        if self.targets is None and "sticky" in self.model_fields_set:
            raise ValueError("sticky: goes with targets, of which one is chosen")
        if self.success_by != DECISION and self.choose != "best":
            raise ValueError("success_by: goes with choose: best")
        if self.explore is not None and self.choose != "best":
            raise ValueError("explore: goes with choose: best")
        if self.choose == "best" and self.targets is None:
            raise ValueError("choose: goes with targets, of which one is chosen")
        if self.targets is not None and not any(target.weight for target in self.targets):
            raise ValueError("targets: one must have a weight above 0")
        return self

    @cached_property
    def aims(self) -> tuple[Target, ...]:
        """Targets of the route, in either form."""
        if self.targets is not None:
            return self.targets
        return (Target(to=self.to or "", arguments=self.arguments, agent=self.agent),)

    @cached_property
    def standby(self) -> tuple[Target, ...]:
        """Target that runs when all others fail, if any."""
        if self.fallback is None or self.fallback.to is None:
            return ()
        return (Target(to=self.fallback.to, arguments=self.fallback.arguments, agent=self.fallback.agent),)

    @cached_property
    def salt(self) -> str:
        """Seed of its choices; it depends neither on the route's place in the list nor on the weights."""
        return self.name or repr((self.from_, sorted({target.to for target in self.aims})))

    def fits(self, call: ToolSelecting) -> bool:
        """Return whether the route is certainly about the call, with all values seen."""
        return self.concerns(self.from_, call, "all") is True


class RouterConfig(StrictModel):
    """Configuration file of a router: the first of the `routes` that fits counts."""

    routes: Annotated[tuple[Route, ...], Field(min_length=1, max_length=10_000), AfterValidator(check_unique)]
    """Routes in order; the first one that fits a call and has an available target counts."""


class RouteState(NamedTuple):
    """What a replica knows of a route's targets."""

    health: TargetHealth
    outcomes: Outcomes | None = None
    """How calls go; only for a route that chooses the best target."""

    @classmethod
    def of(cls, one: Route) -> "RouteState":
        """Return the state of a route at the start."""
        health = TargetHealth(one.fallback, [target.key for target in (*one.aims, *one.standby)])
        keys = dict.fromkeys(target.key for target in one.aims)
        if one.choose != "best":
            return cls(health)
        explorer = Explorer(one.explore.share) if one.explore is not None else None
        outcomes = Outcomes([keys], sticky=one.sticky, success_by=one.success_by, explorer=explorer)
        return cls(health, outcomes)


_NOTHING_KNOWN: Final = RouteState(TargetHealth(None, ()))


def route(
    config: RouterConfig, call: ToolSelecting, states: Sequence[RouteState] = (), now: float = 0.0
) -> Verdict:
    """Return the verdict on a call; `states` has one entry for each route, at the time `now`."""
    for number, one in enumerate(config.routes if call.phase == "select" else ()):
        if one.fits(call):
            verdict = _apply_route(one, call, states[number] if states else _NOTHING_KNOWN, now)
            if verdict is not None:
                return verdict
    return Continue()


def _rank_best(
    targets: Sequence[Target], call: ToolSelecting, outcomes: Outcomes, now: float
) -> list[Rating]:
    """Return the ratings of targets by the time to a success, the best first."""
    by_key = {target.key: target for target in targets}
    options = [Option(key, 0, 0, not target.changes(call)) for key, target in by_key.items()]
    return rank_keys(options, outcomes, now, 0, 1, call)


def _apply_route(one: Route, call: ToolSelecting, state: RouteState, now: float) -> Verdict | None:
    """Return the verdict of a route that fits; None passes the call on to the next route."""
    health, rated = state.health, dict[str, Rating]()
    order = rank_targets(one.aims, one.salt, key_of(one.sticky, call))
    here = [target for target in order if target.available(call)]
    if not here:
        return None
    if state.outcomes is not None:
        rated = {rating.option.key: rating for rating in _rank_best(here, call, state.outcomes, now)}
        here.sort(key=lambda target: list(rated).index(target.key))
    ready = [target for target in (*here, *one.standby) if health.usable(target.key, now)]
    chosen = next((target for target in ready if target.available(call)), None)
    if chosen is None:
        return Continue(reason=f"the call stays as it is: all its targets fail at present{_suffix_of(one)}")
    health.record_call(chosen.key, now)
    if state.outcomes is not None:
        explored = chosen.key in rated and rated[chosen.key].explored
        state.outcomes.expect(call.id, chosen.key, now, explored=explored)
    failing = "" if chosen is here[0] else f"; {here[0].display_name} fails at present"
    if chosen.changes(call):
        own = call.tool_name if chosen.agent is None else call.agent_target or call.tool_name
        reason = one.reason or f"routed from {own} to {chosen.display_name}{_suffix_of(one)}"
        if chosen.key in rated:
            reason += f"; {describe(chosen.display_name, rated[chosen.key])}"
        return Modify(
            tool=chosen.to,
            arguments=chosen.arguments_for(call),
            agent_target=chosen.agent,
            reason=reason + failing,
        )
    if len(one.aims) == 1 and not failing:
        return None
    told = f"stays at {chosen.display_name}{_suffix_of(one)}{failing}"
    if chosen.key in rated and rated[chosen.key].explored:
        told += f"; {describe(chosen.display_name, rated[chosen.key])}"
    return Continue(reason=told)


def _suffix_of(one: Route) -> str:
    return f" ({one.name})" if one.name else ""


class Router:
    """Scheduler that a `RouterConfig` configures; it is asked only about the tools that a route names in
    `from`."""

    name = "router"
    priority = 10
    config_model: ClassVar[type[BaseModel]] = RouterConfig

    def __init__(self, config: RouterConfig, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.config, self._clock = config, clock
        self.tools = tuple(dict.fromkeys(glob for one in config.routes for glob in one.from_))
        self.local_table = encode_table(list_concerns((one.from_, one) for one in config.routes), "continue")
        self._states = [RouteState.of(one) for one in config.routes]
        self._watching: dict[str, list[TargetHealth]] = {}
        for state in self._states:
            for key in state.health.tools:
                self._watching.setdefault(key, []).append(state.health)
        self._outcomes = [state.outcomes for state in self._states if state.outcomes is not None]
        self._facts: FactsFromNow | None = None
        self._reporter: EjectionReporter | None = None

    async def start(self, context: SchedulerContext) -> None:
        """Follow the results of the targets, if a route has a `fallback` or chooses the best one."""
        if self._outcomes:
            self._reporter = EjectionReporter(context)
            self._reporter.start()
        if self._watching or self._outcomes:
            self._facts = FactsFromNow(context.shared.news, self.follow)
            await self._facts.start()

    async def stop(self) -> None:
        """Read no more facts."""
        if self._facts is not None:
            await self._facts.stop()
        if self._reporter is not None:
            await self._reporter.stop()

    async def decide(self, call: ToolSelecting) -> Verdict:
        """Route one call."""
        return route(self.config, call, self._states, self._clock())

    def follow(self, fact: Mapping[str, Any]) -> None:
        """Follow how calls go; every replica hears each fact once."""
        told, now = outcome_of(fact), self._clock()
        if told is not None:
            for health in self._watching.get(told[0], ()):
                health.record_result(*told, now)
        for outcomes in self._outcomes:
            outcomes.hear(fact, now)
        if self._reporter is not None:
            self._reporter.take(self._outcomes)
