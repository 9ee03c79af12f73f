"""List the tools, arguments and conditions that the configurations of shipped schedulers name.

All have one form (`RuleSubject`), so that one place compares them with the tools of living agents.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import singledispatch
from itertools import chain
from typing import Any, Final

from pydantic import BaseModel
from toolgate_bus.ruling.conditions.arguments import LiteralArgument
from toolgate_bus.ruling.conditions.matching import CallMatcher
from toolgate_bus.ruling.conditions.result_paths import names_result
from toolgate_bus.ruling.rule_doubts import Place, RuleSubject

from toolgate_schedulers.shipped.alternatives import AlternativeGroup
from toolgate_schedulers.shipped.approval.config import ApprovalConfig
from toolgate_schedulers.shipped.cost_aware.config import CostAwareConfig
from toolgate_schedulers.shipped.heuristic import HeuristicConfig
from toolgate_schedulers.shipped.loop_guard import LoopGuardConfig
from toolgate_schedulers.shipped.policy.needs import OrderMatcher, Precondition
from toolgate_schedulers.shipped.policy.rules import PolicyConfig
from toolgate_schedulers.shipped.provenance import ProvenanceConfig
from toolgate_schedulers.shipped.rate_limit import RateLimitConfig
from toolgate_schedulers.shipped.router.router import Route, RouterConfig
from toolgate_schedulers.shipped.slots.config import SlotsConfig

CONFIGS: Final[Mapping[str, type[BaseModel]]] = {
    "approval": ApprovalConfig,
    "cost-aware": CostAwareConfig,
    "heuristic": HeuristicConfig,
    "loop-guard": LoopGuardConfig,
    "policy": PolicyConfig,
    "provenance": ProvenanceConfig,
    "rate-limit": RateLimitConfig,
    "router": RouterConfig,
    "slots": SlotsConfig,
}
"""Model of each shipped scheduler's configuration, by name."""


@singledispatch
def list_subjects(config: Any) -> Iterable[RuleSubject]:
    """List the subjects of a configuration; none if it is of no shipped scheduler."""
    return ()


@list_subjects.register
def _(config: PolicyConfig) -> Iterator[RuleSubject]:
    for number, rule in enumerate(config.rules):
        if rule.on == "call":
            yield from _of_ordered(rule, ("rules", number))
        elif rule.on == "result":  # what a tool gives has no schema that agents report
            for name, when in (("when", rule.when), ("unless", rule.unless)):
                own = {path: one for path, one in when.items() if not names_result(path)}
                at = ("rules", number)
                yield RuleSubject((*at, "tools"), rule.tools, own, (*at, name), is_listed=name == "when")


@list_subjects.register
def _(config: ApprovalConfig) -> Iterator[RuleSubject]:
    for number, rule in enumerate(config.rules):
        yield _of_matcher(rule, rule.tools, ("rules", number))


@list_subjects.register
def _(config: RateLimitConfig) -> Iterator[RuleSubject]:
    for number, limit in enumerate(config.limits):
        yield _of_matcher(limit, limit.tools, ("limits", number))


@list_subjects.register
def _(config: SlotsConfig) -> Iterator[RuleSubject]:
    for number, pool in enumerate(config.pools):
        at = ("pools", number)
        key = [((*at, "key"), pool.key.partition("#")[0])] if pool.key is not None else []
        yield _of_matcher(pool, pool.tools, at, key)
        if pool.shared is not None:
            yield RuleSubject((*at, "shared", "tools"), pool.shared.tools)


@list_subjects.register
def _(config: RouterConfig) -> Iterator[RuleSubject]:
    for number, route in enumerate(config.routes):
        yield from _of_route(route, ("routes", number))


@list_subjects.register
def _(config: CostAwareConfig) -> Iterator[RuleSubject]:
    yield from _of_names(config.tools, ("tools",))
    yield from _of_groups(config.alternatives, "alternatives")


@list_subjects.register
def _(config: HeuristicConfig) -> Iterable[RuleSubject]:
    return _of_groups(config.groups, "groups")


@list_subjects.register
def _(config: ProvenanceConfig) -> Iterator[RuleSubject]:
    for number, sink in enumerate(config.sinks or ()):
        at = ("sinks", number)
        paths = [((*at, "to"), path) for path in sink.to]
        yield RuleSubject((*at, "tools"), sink.tools, paths=paths)
    if config.outside:
        yield RuleSubject(("outside",), config.outside)
    yield from _of_names(config.annotations, ("annotations",))


@list_subjects.register
def _(config: LoopGuardConfig) -> Iterator[RuleSubject]:
    if config.exempt:
        yield RuleSubject(("exempt",), config.exempt)


def _of_matcher(
    matcher: CallMatcher,
    tools: Sequence[str],
    at: Place,
    paths: Sequence[tuple[Place, str]] = (),
    tools_at: str = "tools",
) -> RuleSubject:
    return RuleSubject((*at, tools_at), tools, matcher.when, (*at, "when"), paths)


def _of_ordered(rule: OrderMatcher, at: Place) -> Iterator[RuleSubject]:
    needs: list[tuple[str, Precondition]] = []
    for name, need in (("after", rule.after), ("unless_after", rule.unless_after)):
        if need is not None:
            needs.append((name, need))
    own = [((*at, name, "same", path), path) for name, need in needs for path in need.same]
    if rule.at_most is not None and rule.at_most.sum is not None:
        own.append(((*at, "at_most", "sum"), rule.at_most.sum))
    yield _of_matcher(rule, rule.tools, at, own)
    for name, need in needs:
        inner = (*at, name)
        other = [((*inner, "same", mine), path) for mine, path in need.same.items() if not names_result(path)]
        yield RuleSubject((*inner, "tool"), need.tool, need.when, (*inner, "when"), other)


def _of_route(route: Route, at: Place) -> Iterator[RuleSubject]:
    targets: list[tuple[Place, str, Mapping[str, Any] | None]] = []
    if route.to is not None:
        targets.append((at, route.to, route.arguments))
    for number, target in enumerate(route.targets or ()):
        targets.append(((*at, "targets", number), target.to, target.arguments))
    if route.fallback is not None and route.fallback.to is not None:
        targets.append(((*at, "fallback"), route.fallback.to, route.fallback.arguments))
    sources = chain.from_iterable(
        _of_sources(arguments, (*place, "arguments")) for place, _, arguments in targets
    )
    yield _of_matcher(route, route.from_, at, list(sources), "from")
    for place, to, arguments in targets:
        names = [((*place, "arguments", name), _quote(name)) for name in arguments or ()]
        yield RuleSubject((*place, "to"), (_escape(to),), paths=names)


def _of_groups(groups: Sequence[AlternativeGroup], name: str) -> Iterator[RuleSubject]:
    for number, group in enumerate(groups):
        tools = group.tools or {}
        for tool, member in tools.items():
            at = (name, number, "tools", tool)
            own = [((*at, "arguments", one), _quote(one)) for one in member.arguments or ()]
            yield RuleSubject(at, (_escape(tool),), paths=own)
            others = [_escape(one) for one in tools if one != tool]
            sources = list(_of_sources(member.arguments, (*at, "arguments")))
            yield RuleSubject(at, others, paths=sources, is_listed=False)


def _of_sources(arguments: Mapping[str, Any] | None, at: Place) -> Iterator[tuple[Place, str]]:
    """List the paths that a replacement's arguments come from."""
    for name, written in (arguments or {}).items():
        for source in written if isinstance(written, tuple) else (written,):
            if not isinstance(source, LiteralArgument) and source != "$":
                yield (*at, name), source


def _of_names(names: Iterable[str], at: Place) -> Iterator[RuleSubject]:
    for name in names:
        yield RuleSubject((*at, name), (_escape(name),))


def _escape(name: str) -> str:
    """Return the glob that matches this name alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _quote(name: str) -> str:
    r"""Return the path of the argument of this name, with its dots escaped."""
    return name.replace(".", r"\.")
