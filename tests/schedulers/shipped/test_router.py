"""The shipped router: a call goes to another tool, with its arguments mapped."""

import asyncio
from types import SimpleNamespace

import pytest
from toolgate_bus.config.check import check
from toolgate_bus.config.document import parse_document
from toolgate_bus.errors import ConfigError
from toolgate_bus.state.shared import make_shared_state
from toolgate_schedulers import Continue, Modify, ToolSelecting
from toolgate_schedulers.shipped.router.router import Router, RouterConfig, RouteState, route

pytestmark = pytest.mark.pure


def config(text):
    return check(RouterConfig, parse_document(text.encode(), "router.yaml").value, "router.yaml")


def routed(
    text, tool, arguments, available=("search_onestop_flight", "advanced_search", "web_search"), **fields
):
    question = ToolSelecting(
        id="0" * 32, tool_name=tool, tool_input=arguments, available_tools=available, **fields
    )
    return route(config(text), question)


FLIGHTS = "routes: [{from: search_direct_flight, to: search_onestop_flight}]"
FLIGHT = {"origin": "SFO", "destination": "JFK", "date": "2024-05-20"}


def test_a_route_without_arguments_passes_them_on():
    assert routed(FLIGHTS, "search_direct_flight", FLIGHT) == Modify(
        tool="search_onestop_flight", reason="routed from search_direct_flight to search_onestop_flight"
    )


def test_arguments_are_mapped_by_path_whole_or_literally():
    text = """
routes:
  - from: "web_*"
    to: advanced_search
    reason: cheaper index
    arguments:
      query: $.q
      first: $.sites.0.name
      all: $
      limit: {value: 10}
      absent: $.not_there
      nothing: {value: null}
"""
    arguments = {"q": "x", "sites": [{"name": "a"}]}
    assert routed(text, "web_search", arguments) == Modify(
        tool="advanced_search",
        arguments={"query": "x", "first": "a", "all": arguments, "limit": 10, "nothing": None},
        reason="cheaper index",
    )


def test_a_route_may_empty_the_arguments():
    text = "routes: [{from: a, to: web_search, arguments: {}}]"
    assert routed(text, "a", {"x": 1}).arguments == {}


def test_the_first_route_whose_target_is_available_wins():
    text = """
routes:
  - {from: a, to: gone}
  - {from: a, to: web_search, when: {q: "long*"}}
  - {from: a, to: advanced_search}
  - {from: a, to: search_onestop_flight}
"""
    assert routed(text, "a", {"q": "longer"}).tool == "web_search"
    assert routed(text, "a", {"q": "short"}).tool == "advanced_search"
    assert routed(text, "a", {}, available=("a",)) == Continue()
    assert routed(text, "b", {}) == Continue()


def test_a_replacement_is_never_routed_again():
    assert routed(FLIGHTS, "search_direct_flight", FLIGHT, phase="verify") == Continue()


def test_a_route_to_the_tool_itself_counts_only_where_it_changes_the_arguments():
    everything = 'routes: [{from: "*", to: web_search}]'
    assert routed(everything, "web_search", {"q": "x"}) == Continue()
    limited = 'routes: [{from: "*", to: web_search, arguments: {q: $.q, limit: {value: 5}}}]'
    assert routed(limited, "web_search", {"q": "x"}).arguments == {"q": "x", "limit": 5}
    assert routed(limited, "web_search", {"q": "x", "limit": 5}) == Continue()


def test_a_delegation_may_go_to_another_agent_that_is_there():
    text = "routes: [{from: delegate, to: delegate, agent: cheap}]"
    here = {"available": ("delegate",), "agent_target": "dear"}
    assert routed(text, "delegate", {}, **here, available_agents=("cheap", "dear")) == Modify(
        tool="delegate", agent_target="cheap", reason="routed from dear to cheap"
    )
    assert routed(text, "delegate", {}, **here, available_agents=("dear",)) == Continue()
    assert routed(text, "delegate", {}, available=("delegate",), agent_target="cheap") == Continue()


CANARY = """
routes:
  - name: canary
    from: search
    targets:
      - {to: search, weight: 90}
      - {to: new_search, weight: 10, arguments: {q: $.query}}
  - {from: search, to: other}
"""
SEARCHES = ("search", "new_search", "other")


def spread(text, available=SEARCHES, of=2000):
    """Where so many calls, each of its own id, went."""
    settings = config(text)
    verdicts = [
        route(
            settings,
            ToolSelecting(
                id=f"{number:032x}", tool_name="search", tool_input={"query": "x"}, available_tools=available
            ),
        )
        for number in range(of)
    ]
    return [verdict.tool if isinstance(verdict, Modify) else "search" for verdict in verdicts], verdicts


def test_a_canary_gets_its_share_with_its_own_arguments_and_the_rest_stays():
    tools, verdicts = spread(CANARY)
    assert 0.07 < tools.count("new_search") / len(tools) < 0.13
    assert Continue(reason="stays at search (canary)") in verdicts
    assert (
        Modify(tool="new_search", arguments={"q": "x"}, reason="routed from search to new_search (canary)")
        in verdicts
    )
    assert "other" not in tools  # the choice to stay is a choice: the next route is not asked


def test_a_target_that_is_not_available_leaves_its_calls_to_the_others():
    assert set(spread(CANARY, ("search", "other"))[0]) == {"search"}
    assert set(spread(CANARY, ("new_search", "other"))[0]) == {"new_search"}
    assert set(spread(CANARY, ("other",))[0]) == {"other"}


def sent(text, failing, available=SEARCHES, tool="search", **fields):
    """The verdict on one call where these tools have failed three times at 0 s; the time is 1 s."""
    settings = config(text)
    states = [RouteState.of(one) for one in settings.routes]
    for one in states:
        for name in failing * 3:
            one.health.record_result(name, False, 0.0)
    question = ToolSelecting(
        id="0" * 32, tool_name=tool, tool_input={"query": "x"}, available_tools=available, **fields
    )
    return route(settings, question, states, 1.0)


STANDBY = """
routes:
  - from: search
    to: new_search
    reason: faster
    fallback: {after: 3, to: other, arguments: {words: $.query}}
  - {from: search, to: unused}
"""


def test_where_the_target_fails_the_standby_takes_its_calls_with_its_own_arguments():
    assert sent(STANDBY, []) == Modify(tool="new_search", reason="faster")
    assert sent(STANDBY, ["new_search"]) == Modify(
        tool="other", arguments={"words": "x"}, reason="faster; new_search fails at present"
    )


def test_the_call_stands_where_all_that_it_could_go_to_fails():
    stands = Continue(reason="the call stays as it is: all its targets fail at present")
    assert sent(STANDBY, ["new_search", "other"], (*SEARCHES, "unused")) == stands
    assert sent(STANDBY, ["new_search"], ("search", "new_search", "unused")) == stands
    assert sent(STANDBY, ["new_search"], ("search", "other")) == Continue()  # no target, no standby


def test_a_tool_may_have_a_standby_of_its_own():
    text = "routes: [{from: search, to: search, fallback: {to: other}}]"
    assert sent(text, []) == Continue()
    assert sent(text, ["search"]) == Modify(
        tool="other", reason="routed from search to other; search fails at present"
    )


def test_a_canary_that_fails_gives_its_calls_back():
    text = """
routes:
  - {from: search, targets: [{to: search, weight: 0.001}, {to: new_search}], fallback: {}}
"""
    assert sent(text, []).tool == "new_search"
    assert sent(text, ["new_search"]) == Continue(reason="stays at search; new_search fails at present")


TEAM = """
routes:
  - from: delegate
    agent_targets: senior
    to: delegate
    agent: senior
    fallback: {to: delegate, agent: junior}
  - from: delegate
    agent_targets: clerk
    targets: [{to: delegate, agent: a}, {to: delegate, agent: b}]
    fallback: {}
"""


def test_agents_that_fail_are_left_alone_each_by_itself_though_one_tool_asks_them_all():
    agents = ("senior", "junior", "a", "b")
    there = {"available": ("delegate",), "tool": "delegate", "available_agents": agents}
    assert sent(TEAM, [], **there, agent_target="senior") == Continue()
    assert sent(TEAM, ["agent senior"], **there, agent_target="senior") == Modify(
        tool="delegate", agent_target="junior", reason="routed from senior to junior; senior fails at present"
    )
    assert sent(TEAM, ["agent senior", "agent junior"], **there, agent_target="senior").action == "continue"
    assert sent(TEAM, ["delegate"], **there, agent_target="senior") == Continue()
    asked = {failing: sent(TEAM, [f"agent {failing}"], **there, agent_target="clerk") for failing in "ab"}
    assert {failing: verdict.agent_target for failing, verdict in asked.items()} == {"a": "b", "b": "a"}
    gone = {**there, "available_agents": ("senior", "a")}
    assert sent(TEAM, ["agent senior"], **gone, agent_target="senior").action == "continue"
    assert sent(TEAM, [], **gone, agent_target="clerk").agent_target == "a"


async def test_an_agent_that_failed_three_times_is_asked_again_when_it_is_well():
    shared, now = make_shared_state(), [0.0]
    router = Router(config(TEAM), clock=lambda: now[0])
    fields = {"agent_target": "senior", "available_agents": ("senior", "junior")}
    question = ToolSelecting(id="0" * 32, tool_name="delegate", available_tools=("delegate",), **fields)
    await router.start(SimpleNamespace(shared=shared))

    async def goes(to):
        async with asyncio.timeout(30):
            while getattr(await router.decide(question), "agent_target", None) != to:
                await asyncio.sleep(0)

    try:
        await goes(None)
        for _ in range(3):
            shared.facts.tell("delegate:error", agent_target="senior", agent="boss")
        await goes("junior")
        now[0] = 30.0
        await goes(None)  # one tries it
        assert (await router.decide(question)).agent_target == "junior"
        shared.facts.tell("delegate:agent_completed", agent_target="senior", agent="boss")
        await goes(None)
    finally:
        await router.stop()


async def test_the_scheduler_learns_from_the_facts_that_come_while_it_runs():
    shared, now = make_shared_state(), [0.0]
    router = Router(config(STANDBY), clock=lambda: now[0])
    question = ToolSelecting(id="0" * 32, tool_name="search", available_tools=SEARCHES)
    facts = shared.facts
    for _ in range(9):
        facts.tell("tool:error", tool="new_search")  # before it started
    await router.start(SimpleNamespace(shared=shared))
    try:
        assert (await router.decide(question)).tool == "new_search"
        facts.tell("tool:error", tool="new_search")
        facts.tell("tool:post", tool="new_search", success=False)
        facts.tell("tool:post", tool="new_search")
        facts.tell("tool:error", tool="new_search", error="ValueError")
        async with asyncio.timeout(30):
            while (await router.decide(question)).tool != "other":
                await asyncio.sleep(0)
        now[0] = 30.0
        assert (await router.decide(question)).tool == "new_search"  # one tries it
        assert (await router.decide(question)).tool == "other"
    finally:
        await router.stop()


BEST = "routes: [{from: search, targets: [{to: search}, {to: new_search}], choose: best}]"


async def test_the_best_target_is_the_one_from_which_a_success_comes_soonest():
    router, now = Router(config(BEST), clock=lambda: now[0]), [0.0]
    for _ in range(60):
        for tool, seconds in (("search", 3.0), ("new_search", 1.0)):
            now[0] += 0.1
            router.follow({"event": "tool:post", "tool": tool, "success": True, "seconds": seconds})
    question = ToolSelecting(id="0" * 32, tool_name="search", available_tools=SEARCHES)
    verdict = await router.decide(question)
    assert verdict.tool == "new_search"
    assert verdict.reason == "routed from search to new_search; new_search: 1 s, 99 % of 60"
    for _ in range(5):
        router.follow({"event": "tool:error", "tool": "new_search"})
    assert await router.decide(question) == Continue(reason="stays at search")


async def test_a_router_without_fallback_reads_no_facts():
    router = Router(config(CANARY))
    await router.start(SimpleNamespace(shared=None))
    await router.stop()


async def test_the_scheduler_is_only_asked_about_what_a_route_begins_at():
    router = Router(config('routes: [{from: ["a", "b_*"], to: c}, {from: a, to: d}]'))
    assert (router.name, router.priority, router.tools) == ("router", 10, ("a", "b_*"))
    question = ToolSelecting(id="0" * 32, tool_name="a", available_tools=("d",))
    assert (await router.decide(question)).tool == "d"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "routes: Field required"),
        ("routes: []", "routes: List should have at least 1 item"),
        ("route: []", "route: unknown key; allowed: routes; did you mean routes?"),
        (
            "routes: [{from: a, too: b}]",
            "routes.0.too: unknown key; allowed: agent, agent_targets, agents, arguments, choose, explore",
        ),
        ("routes: [{to: b}]", "routes.0.from: Field required"),
        ("routes: [{from_: a, to: b}]", "routes.0.from_: unknown key"),
        ("routes: [{from: a, to: [b]}]", "routes.0.to: Input should be a valid string"),
        (
            "routes: [{from: a, to: b, arguments: {q: query}}]",
            "routes.0.arguments: q: must be $ (all arguments), $.path",
        ),
        ("routes: [{from: a, to: b, arguments: {q: $.}}]", "routes.0.arguments: q: must be $"),
        ("routes: [{from: a, to: b, arguments: {q: {val: 1}}}]", "routes.0.arguments: q: must be $"),
        ("routes: [{from: a, to: b, arguments: [q]}]", "routes.0.arguments: Input should be a mapping"),
        ("routes: [{from: a}]", "routes.0: to: give either to (one tool) or targets (several)"),
        ("routes: [{from: a, to: b, targets: [{to: c}]}]", "routes.0: to: give either to"),
        ("routes: [{from: a, targets: []}]", "routes.0.targets: List should have at least 1 item"),
        ("routes: [{from: a, targets: [{weight: 1}]}]", "routes.0.targets.0.to: Field required"),
        (
            "routes: [{from: a, targets: [{to: b, wait: 1}]}]",
            "routes.0.targets.0.wait: unknown key; allowed: agent, arguments, to, weight; did you mean",
        ),
        (
            "routes: [{from: a, targets: [{to: b, weight: -1}]}]",
            "routes.0.targets.0.weight: Input should be greater than or equal to 0",
        ),
        (
            "routes: [{from: a, targets: [{to: b, weight: '9'}]}]",
            "routes.0.targets.0.weight: Input should be a valid number",
        ),
        (
            "routes: [{from: a, targets: [{to: b, weight: 0}]}]",
            "routes.0: targets: one must have a weight above 0",
        ),
        (
            "routes: [{from: a, targets: [{to: b}], arguments: {}}]",
            "routes.0: arguments: goes with to; give each of the targets its own",
        ),
        ("routes: [{from: a, targets: [{to: b}], agent: c}]", "routes.0: agent: goes with to"),
        ("routes: [{from: a, to: b, sticky: session}]", "routes.0: sticky: goes with targets"),
        (
            "routes: [{from: a, targets: [{to: b}], sticky: user}]",
            "routes.0.sticky: must be decision, session, tree, agent or label:NAME",
        ),
        ("routes: [{from: a, targets: [{to: b}], sticky: 'label:'}]", "routes.0.sticky: must be decision"),
        (
            "routes: [{from: a, to: b, fallback: {after: 0}}]",
            "routes.0.fallback.after: Input should be greater than or equal to 1",
        ),
        (
            "routes: [{from: a, to: b, fallback: {within: 9}}]",
            "routes.0.fallback.within: unknown key; allowed: after, agent, arguments, for_s, share, to, ",
        ),
        (
            "routes: [{from: a, to: b, fallback: {within_s: 0}}]",
            "routes.0.fallback.within_s: Input should be greater than 0",
        ),
        (
            "routes: [{from: a, to: b, fallback: {for_s: .inf}}]",
            "routes.0.fallback.for_s: Input should be",
        ),
        (
            "routes: [{from: a, to: b, fallback: {share: 50}}]",
            "routes.0.fallback.share: Input should be less than or equal to 1",
        ),
        ("routes: [{from: a, to: b, fallback: {to: [c]}}]", "routes.0.fallback.to: Input should be a valid"),
        (
            "routes: [{from: a, to: b, fallback: {to: c, arguments: {q: q}}}]",
            "routes.0.fallback.arguments: q: must be $",
        ),
        (
            "routes: [{from: a, to: b, fallback: {arguments: {}}}]",
            "routes.0.fallback: arguments: goes with to",
        ),
        ("routes: [{from: a, to: b, fallback: {agent: g}}]", "routes.0.fallback: agent: goes with to"),
        (
            "routes: [{from: a, to: b, name: x}, {from: c, to: d, name: x}]",
            "routes: 0 and 1 (from 0) have the same name, x",
        ),
        ("routes: [{from: a, to: b, name: ''}]", "routes.0.name: String should have at least 1 character"),
        ("routes: [{from: a, to: b, reason: ''}]", "routes.0.reason: String should have at least 1"),
    ],
)
def test_a_wrong_router_is_refused_by_name(text, said):
    with pytest.raises(ConfigError) as error:
        config(text)
    assert f"router.yaml: {said}" in str(error.value)
