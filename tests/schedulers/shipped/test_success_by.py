"""Success by a label: who a tool fails for leaves it, and the others do not."""

from itertools import count

import pytest
from test_sticky import TOOLS, call, cost_aware, heuristic, router
from toolgate_bus.errors import ConfigError
from toolgate_schedulers.shipped.score import sums
from toolgate_schedulers.shipped.score.outcomes import GUESS, OUT_S, Outcomes

pytestmark = pytest.mark.pure

BY = "label:team"
NUMBERS = count()


def of(team):
    return call("s1", labels={"team": team} if team else {})


def ran(follow, tool, team, well):
    told = {"id": f"d{next(NUMBERS)}", "outcome": "continue", "tool_name": tool, "labels": {"team": team}}
    follow({"event": "decision", **told})
    end = {"event": "tool:post" if well else "tool:error", "tool": tool, "decision_id": told["id"]}
    follow({**end, "seconds": 1.0})


def fails_for_ops(follow):
    for number in range(80):
        ran(follow, "a", "ops", number % 4 == 0)
        ran(follow, "b", "ops", True)
        for _ in range(4):
            ran(follow, "a", "dev", True)


async def chosen(scheduler, team):
    return getattr(await scheduler.decide(of(team)), "tool", None) or "a"


@pytest.mark.parametrize("make", [cost_aware, heuristic, router])
async def test_a_tool_that_fails_for_one_team_is_left_by_that_team_alone(make):
    apart, together = make(success_by=BY), make()
    for scheduler in (apart, together):
        fails_for_ops(scheduler.follow)
    assert [await chosen(apart, team) for team in ("ops", "dev")] == ["b", "a"]
    verdict = await apart.decide(of("ops"))
    assert "for ops" in verdict.reason
    assert await chosen(together, "dev") == await chosen(together, "ops")


def test_of_a_value_that_was_seen_little_all_calls_tell():
    outcomes = Outcomes([TOOLS], success_by=BY)

    def follow(fact):
        outcomes.hear(fact, 0.0)

    def success(team):
        return outcomes.performance("a", 0.0, of(team)).success

    assert success("ops") == GUESS
    for number in range(40):
        ran(follow, "a", "dev", number % 5 < 3)
    whole = outcomes.performance("a", 0.0).success
    assert success("ops") == success("") == whole
    ran(follow, "a", "ops", True)
    assert whole < success("ops") < whole + 0.1
    for _ in range(60):
        ran(follow, "a", "ops", True)
    assert success("dev") < 0.8 < 0.95 < success("ops")


def test_what_was_before_an_ejection_is_forgotten_for_each_value():
    outcomes, now = Outcomes([TOOLS], success_by=BY), 0.0

    def follow(fact):
        outcomes.hear(fact, now)

    for _ in range(20):
        ran(follow, "a", "ops", False)
    now = OUT_S
    ran(follow, "a", "dev", True)
    assert outcomes.performance("a", now, of("ops")).success >= GUESS


def test_only_the_last_values_are_remembered(monkeypatch):
    monkeypatch.setattr(sums, "MAX_VALUES", 2)
    outcomes = Outcomes([TOOLS], success_by=BY)
    for team in ("ops", "dev", "ops", "qa"):
        ran(lambda fact: outcomes.hear(fact, 0.0), "a", team, False)
    known = [outcomes.performance("a", 0.0, of(team)).of for team in ("ops", "dev", "qa")]
    assert known == ["ops", "", "qa"]


@pytest.mark.parametrize("told", [None, 7, ["x"], {"team": 7}, {"team": "x" * 10_000}])
def test_labels_of_another_form_are_remembered_nowhere(told):
    outcomes = Outcomes([TOOLS], success_by=BY)
    fact = {"event": "decision", "id": "d", "outcome": "continue", "tool_name": "a", "labels": told}
    outcomes.hear(fact, 0.0)
    outcomes.hear({"event": "tool:error", "tool": "a", "decision_id": "d"}, 0.0)
    assert not outcomes._kept["a"].tallies
    assert outcomes.performance("a", 0.0).success < GUESS


@pytest.mark.parametrize(
    ("make", "given", "words"),
    [
        (cost_aware, {"latency_weight": 0.0}, "goes with cost_weight or latency_weight"),
        (heuristic, {"strategy": "first"}, "goes with strategy: best"),
        (router, {"choose": "weight"}, "goes with choose: best"),
    ],
)
def test_it_goes_with_what_chooses(make, given, words):
    with pytest.raises(ConfigError, match=f"success_by: {words}"):
        make(success_by=BY, **given)
