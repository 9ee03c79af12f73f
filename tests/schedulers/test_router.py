"""The shipped router: a call goes to another tool, with its arguments mapped."""

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_schedulers import Continue, Modify, ToolSelecting
from toolgate_schedulers.config_file import check, parse_mapping
from toolgate_schedulers.router import Router, RouterConfig, route

pytestmark = pytest.mark.pure


def config(text):
    return check(RouterConfig, parse_mapping(text.encode(), "router.yaml"), "router.yaml")


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
        tool="delegate", agent_target="cheap", reason="routed from delegate to delegate"
    )
    assert routed(text, "delegate", {}, **here, available_agents=("dear",)) == Continue()
    assert routed(text, "delegate", {}, available=("delegate",), agent_target="cheap") == Continue()


async def test_the_scheduler_is_only_asked_about_what_a_route_begins_at():
    router = Router(config('routes: [{from: ["a", "b_*"], to: c}, {from: a, to: d}]'))
    assert (router.name, router.priority, router.tools) == ("router", 10, ("a", "b_*"))
    question = ToolSelecting(id="0" * 32, tool_name="a", available_tools=("d",))
    assert (await router.decide(question)).tool == "d"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "routes: Field required"),
        ("routes: []", "routes: Tuple should have at least 1 item"),
        ("route: []", "route: unknown key; allowed: routes; did you mean routes?"),
        (
            "routes: [{from: a, too: b}]",
            "routes.0.too: unknown key; allowed: agent, arguments, from, reason, to, when; did you mean to?",
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
        ("routes: [{from: a, to: b, arguments: [q]}]", "routes.0.arguments: Input should be a valid dict"),
    ],
)
def test_a_wrong_router_is_refused_by_name(text, said):
    with pytest.raises(ConfigError) as error:
        config(text)
    assert f"router.yaml: {said}" in str(error.value)
