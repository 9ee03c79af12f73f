"""The sides of the benchmark: no Toolgate, the shipped schedulers, and three bounds.

A scheduler is the product's own: its class, configured as its page says, asked by `decide`, told the facts.
Each has two replicas, which are asked in turn. Several at once are merged by the product's own merge. What a
side knows of the world is what a user would write down: prices and groups of alternatives.
"""

import hashlib
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from random import Random
from typing import Any

from benefit_market import LLM
from benefit_world import Ask, Side, World, request_of
from toolgate_bus.config.check import check
from toolgate_bus.protocol.events import Modify, ReceivedVerdict, ToolSelecting
from toolgate_bus.protocol.llm import LLM_REQUEST
from toolgate_bus.ruling.merge import merge
from toolgate_schedulers.shipped.cost_aware.config import CostAwareConfig
from toolgate_schedulers.shipped.cost_aware.scheduler import CostAware
from toolgate_schedulers.shipped.heuristic import Heuristic, HeuristicConfig
from toolgate_schedulers.shipped.router.router import Router, RouterConfig

REPLICAS = 2
DEFAULT = (0.6, 0.4)
"""Weights of cost and latency, as in the specification of loop-events."""


class Own:
    """No Toolgate: what the LLM wants runs."""

    def choose(self, ask: Ask, now: float) -> str | None:
        """Return the LLM's own choice."""
        return ask.own

    def hear(self, fact: Mapping[str, Any], now: float) -> None:
        """Learn nothing."""


class Cheapest(Own):
    """Bound: always the lowest price."""

    def __init__(self, world: World) -> None:
        self._tools = world.market.tools

    def choose(self, ask: Ask, now: float) -> str | None:
        """Return the cheapest one."""
        return min(ask.options, key=lambda name: self._tools[name].price)


class AtRandom(Own):
    """Bound: any."""

    def choose(self, ask: Ask, now: float) -> str | None:
        """Return any of them, drawn from the call's id."""
        return Random(ask.id).choice(ask.options)


class Oracle(Own):
    """Bound: knows each price, each fault and each queue at the moment of the call, but not the dice."""

    def __init__(self, world: World, weights: tuple[float, float]) -> None:
        self._world, self._weights = world, weights

    def choose(self, ask: Ask, now: float) -> str | None:
        """Return the one with the least money and time for a success."""
        world, (for_cost, for_time) = self._world, self._weights
        tools = {name: world.market.tools[name] for name in ask.options}
        dearest = max(tool.price for tool in tools.values()) or 1.0
        slowest = max(tool.median_s for tool in tools.values())

        def score(name: str) -> tuple[float, bool]:
            chance = max(world.chance(name), 1e-3)
            tried = chance + (1 - chance) * tools[name].pays_failures
            money = tools[name].price * tried / dearest
            seconds = (world.mean_s(name) + world.wait_s(name)) / slowest
            # A call that fails costs a further request to the LLM: about a tenth of either.
            lost = (1 - chance) * (for_cost + for_time) * 0.1
            return (for_cost * money + for_time * seconds + lost) / chance, name != ask.own

        return min(ask.options, key=score)


class Schedulers:
    """Schedulers of the product, each with its replicas."""

    def __init__(self, world: World, makers: list[Callable[[World], Any]]) -> None:
        self._teams = [[make(world) for _ in range(REPLICAS)] for make in makers]
        self._tools = tuple(
            one.name for kind, tools in world.market.mix.tools.items() for one in tools if kind != LLM
        )
        self._models = tuple(one.name for one in world.market.mix.tools[LLM])
        self._count = 0

    def choose(self, ask: Ask, now: float) -> str | None:
        """Ask every scheduler whose selectors match, and merge."""
        question = self._question(ask)
        self._count += 1
        heard = []
        for team in self._teams:
            one = team[self._count % REPLICAS]
            is_request = ask.kind == LLM
            if not any(glob.startswith("llm:") == is_request for glob in one.tools):
                continue
            verdict = result_of(one.decide(question))
            digest = hashlib.sha256(repr(verdict).encode()).digest()
            heard.append(ReceivedVerdict(one.name, verdict, one.priority, digest=digest))
        merged = merge(heard)
        if merged.action == "deny":
            return None
        if merged.action == "continue" or merged.winner is None:
            return ask.own
        winner = merged.winner.verdict
        assert isinstance(winner, Modify)
        if ask.kind != LLM:
            return winner.tool
        given = {**question.tool_input, **(winner.arguments or {})}
        return f"{given['provider']}/{given['model']}"

    def hear(self, fact: Mapping[str, Any], now: float) -> None:
        """Tell every replica."""
        for team in self._teams:
            for one in team:
                tell(one, fact)

    def _question(self, ask: Ask) -> ToolSelecting:
        is_request = ask.kind == LLM
        return ToolSelecting.model_construct(
            id=ask.id,
            session=ask.session,
            root_session=ask.session,
            agent="worker",
            labels={"tenant": ask.tenant},
            tool_name=LLM_REQUEST if is_request else ask.own,
            tool_input=request_of(ask, ask.own) if is_request else {"query": "q"},
            available_tools=(LLM_REQUEST, *self._models) if is_request else self._tools,
        )


def tell(one: Any, fact: Mapping[str, Any]) -> None:
    """Tell a scheduler a fact, in its own way."""
    if isinstance(one, CostAware):
        result_of(one.hear(fact))
    one.follow(fact)


def result_of(decides: Coroutine[Any, Any, Any]) -> Any:
    """Return what a coroutine returns that waits for nothing."""
    try:
        decides.send(None)
    except StopIteration as stopped:
        return stopped.value
    raise AssertionError("it waits for something")


def _groups(world: World) -> list[dict[str, Any]]:
    found = world.market.mix.tools.items()
    return [{"tools": [one.name for one in tools]} for kind, tools in found if kind != LLM and len(tools) > 1]


def cost_aware_config(world: World, weights: tuple[float, float] = DEFAULT) -> dict[str, Any]:
    """Return the configuration of `cost-aware`: prices, groups and weights, and no budgets."""
    tools, models = world.market.tools, [one.name for one in world.market.mix.tools[LLM]]
    # A model's price is that of a request with 6,000 tokens, of which those of the answer count four times.
    prices = {
        name: {
            "input": round(tools[name].price * 1e6 / 6000, 6),
            "output": round(tools[name].price * 4e6 / 6000, 6),
        }
        for name in models
    }
    return {
        "tools": {name: {"cost": tool.price} for name, tool in tools.items() if name not in models},
        "alternatives": _groups(world),
        "llm": {"prices": prices, "equivalents": [models] if len(models) > 1 else []},
        "cost_weight": weights[0],
        "latency_weight": weights[1],
    }


def cost_aware(world: World, weights: tuple[float, float] = DEFAULT) -> CostAware:
    """Return `cost-aware` of this world."""
    config = check(CostAwareConfig, cost_aware_config(world, weights), "cost.yaml")
    return CostAware(config, clock=lambda: world.now, ticks=lambda: world.now)


def heuristic(world: World) -> Heuristic:
    """Return `heuristic`, which knows no prices and takes the one that does its work soonest."""
    config = {"strategy": "best", "groups": _groups(world)}
    return Heuristic(check(HeuristicConfig, config, "heuristic.yaml"), clock=lambda: world.now)


def router(world: World) -> Router:
    """Return `router`, which knows no prices and takes the target that does its work soonest."""
    routes = [
        {"from": group["tools"], "targets": [{"to": name} for name in group["tools"]], "choose": "best"}
        for group in _groups(world)
    ]
    models = [one.name.partition("/") for one in world.market.mix.tools[LLM]]
    requests = [
        {"to": LLM_REQUEST, "arguments": {"provider": {"value": provider}, "model": {"value": model}}}
        for provider, _, model in models
    ]
    routes += [{"from": LLM_REQUEST, "targets": requests, "choose": "best"}] if len(requests) > 1 else []
    config = check(RouterConfig, {"routes": routes or [{"from": "nothing", "to": "nothing"}]}, "router.yaml")
    return Router(config, clock=lambda: world.now)


def side_of(name: str, weights: tuple[float, float] = DEFAULT) -> Callable[[World], Side]:
    """Return what makes a side for a world."""
    makers: dict[str, list[Callable[[World], Any]]] = {
        "cost-aware": [partial(cost_aware, weights=weights)],
        "heuristic": [heuristic],
        "router": [router],
        "all": [partial(cost_aware, weights=weights), router, heuristic],
    }
    bounds: dict[str, Callable[[World], Side]] = {
        "without": lambda _world: Own(),
        "cheapest": Cheapest,
        "random": lambda _world: AtRandom(),
        "oracle": partial(Oracle, weights=weights),
    }
    return bounds[name] if name in bounds else partial(Schedulers, makers=makers[name])


SIDES = ("without", "cost-aware", "heuristic", "router", "all", "cheapest", "random", "oracle")
"""All sides, in the order of the table."""
