"""Calls that belong together stay at one alternative, and leave it for one that is clearly better."""

import pytest
from toolgate_bus.config.check import check
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_schedulers.shipped.cost_aware.config import CostAwareConfig
from toolgate_schedulers.shipped.cost_aware.scheduler import CostAware
from toolgate_schedulers.shipped.heuristic import Heuristic, HeuristicConfig
from toolgate_schedulers.shipped.router.router import Router, RouterConfig
from toolgate_schedulers.shipped.score import sticky
from toolgate_schedulers.shipped.score.outcomes import Outcomes
from toolgate_schedulers.shipped.score.score import Option, rank_keys, rank_options

pytestmark = pytest.mark.pure

TOOLS = ("a", "b")


def call(session, **fields):
    told = {"id": "0" * 32, "tool_name": "a", "available_tools": TOOLS, "session": session}
    return ToolSelecting(**told | fields)


def decision(session, tool, number=0, **fields):
    told = {"event": "decision", "id": f"d{number}", "outcome": "continue", "session": session}
    return {**told, "tool_name": "a", "final_tool": tool, **fields}


def cost_aware(**given):
    fields = {"alternatives": [{"tools": [*TOOLS]}], "latency_weight": 1.0} | given
    return CostAware(check(CostAwareConfig, fields, "cost.yaml"), ticks=lambda: 0.0)


def heuristic(**given):
    fields = {"groups": [{"tools": [*TOOLS]}], "strategy": "best"} | given
    return Heuristic(check(HeuristicConfig, fields, "heuristic.yaml"), clock=lambda: 0.0)


def router(**given):
    route = {"from": [*TOOLS], "targets": [{"to": tool} for tool in TOOLS], "choose": "best"} | given
    return Router(check(RouterConfig, {"routes": [route]}, "router.yaml"), clock=lambda: 0.0)


def lasts(scheduler, **seconds):
    for _ in range(60):
        for tool, each in seconds.items():
            scheduler.follow({"event": "tool:post", "tool": tool, "success": True, "seconds": each})


async def chosen(scheduler, session):
    verdict = await scheduler.decide(call(session))
    return getattr(verdict, "tool", None) or "a"


@pytest.mark.parametrize("make", [cost_aware, heuristic, router])
async def test_calls_of_a_session_stay_until_another_is_clearly_better(make):
    sticks, free = make(sticky="session"), make()
    for scheduler in (sticks, free):
        scheduler.follow(decision("s1", "b"))
        scheduler.follow({"event": "tool:post", "tool": "b", "decision_id": "d0", "seconds": 1.0})
        lasts(scheduler, a=1.0, b=1.2)
    assert await chosen(sticks, "s1") == "b"
    assert await chosen(sticks, "s2") == "a"
    assert await chosen(free, "s1") == "a"
    lasts(sticks, a=1.0, b=3.0)
    assert await chosen(sticks, "s1") == "a"


def test_calls_leave_a_place_that_is_ejected():
    options = [Option("a", 1, 1, False), Option("b", 1, 1, False)]
    out = options[0]._replace(performance=options[0].performance._replace(is_usable=False))
    assert rank_options(options, 1, 0, "b")[0].option.key == "b"
    assert rank_options([out, options[1]], 1, 0, "a")[0].option.key == "b"


@pytest.mark.parametrize(
    ("property_", "fields"),
    [("tree", {"root_session": "r"}), ("agent", {"agent": "w"}), ("label:team", {"labels": {"team": "ops"}})],
)
def test_what_keeps_calls_together_is_what_the_fact_of_the_decision_says(property_, fields):
    outcomes = Outcomes([TOOLS], sticky=property_)
    outcomes.hear(decision("s1", "b", **fields), 0.0)
    assert outcomes.find_place(TOOLS, call("s2", **fields)) == "b"
    assert outcomes.find_place(TOOLS, call("s1")) is None


def test_facts_without_the_property_or_with_another_form_are_remembered_nowhere():
    for told in (None, 7, ["x"], {"team": 7}, {"team": "x" * 10_000}):
        outcomes = Outcomes([TOOLS], sticky="label:team")
        outcomes.hear(decision("s1", "b", labels=told), 0.0)
        assert outcomes.find_place(TOOLS, call("s1")) is None


def test_only_the_last_places_are_remembered(monkeypatch):
    monkeypatch.setattr(sticky, "MAX_PLACES", 2)
    outcomes = Outcomes([TOOLS], sticky="session")
    for number, session in enumerate(("s1", "s2", "s1", "s3")):
        outcomes.hear(decision(session, "b", number), 0.0)
    assert [outcomes.find_place(TOOLS, call(session)) for session in ("s1", "s2", "s3")] == ["b", None, "b"]


def test_without_outcomes_nothing_sticks():
    options = [Option("a", 1, 1, True), Option("b", 9, 1, False)]
    assert rank_keys(options, None, 0.0, 1, 0, call("s1"))[0].option.key == "a"


@pytest.mark.parametrize(
    ("make", "given", "words"),
    [
        (cost_aware, {"latency_weight": 0.0}, "sticky: goes with cost_weight or latency_weight"),
        (heuristic, {"strategy": "first"}, "sticky: goes with strategy: best"),
    ],
)
def test_it_goes_with_what_chooses(make, given, words):
    with pytest.raises(ConfigError, match=words):
        make(sticky="session", **given)
