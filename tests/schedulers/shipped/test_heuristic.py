"""heuristic: the first, one after another, or any of interchangeable tools; denied is what is not there."""

from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.config.check import check
from toolgate_bus.errors import ConfigError
from toolgate_bus.state.shared import make_shared_state
from toolgate_schedulers import Continue, Deny, Modify, ToolSelecting
from toolgate_schedulers.shipped.heuristic import Heuristic, HeuristicConfig, choose, draw_number

pytestmark = pytest.mark.pure

GROUP = [{"tools": ["a", "b", "c"]}]
ALL = ("a", "b", "c", "other")


def config(**fields):
    return check(HeuristicConfig, fields, "heuristic.yaml")


def call(tool="b", number=0, available=ALL, **fields):
    return ToolSelecting(id=f"{number:032x}", tool_name=tool, available_tools=available, **fields)


def chosen(verdict, tool):
    return verdict.tool if isinstance(verdict, Modify) else tool if verdict == Continue() else None


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"strategy": "last"}, "strategy: Input should be 'first', 'round-robin', 'random' or 'best'"),
        ({"seed": "x"}, "seed: Input should be a valid integer"),
        ({"override_enabled": "no"}, "override_enabled: Input should be a valid boolean"),
        (
            {"group": []},
            "group: unknown key; allowed: explore, groups, override_enabled, seed, sticky, strategy",
        ),
        ({"groups": [{"tools": ["a", "b"]}, {"tools": ["a", "c"]}]}, "groups: a is in two groups"),
        ({"groups": [{"agents": ["a", "b"]}, {"agents": ["b", "c"]}]}, "b is in two groups: put each agent"),
        ({"groups": [{"agents": ["a"]}]}, "groups.0.agents: List should have at least 2 items"),
        ({"groups": [{"agents": ["a", "a"]}]}, "agents: must be different"),
        ({"groups": [{}]}, "give either tools or agents"),
        ({"groups": [{"tools": ["a", "b"], "agents": ["a", "b"]}]}, "give either tools or agents"),
    ],
)
def test_a_wrong_configuration_is_refused_by_field_name(fields, complaint):
    with pytest.raises(ConfigError) as refused:
        config(**fields)
    assert complaint in str(refused.value)


def test_first_is_the_first_that_is_available():
    first = config(groups=GROUP)
    assert choose(first, call("c"), 0) == Modify(tool="a", reason="first: a in place of c")
    assert choose(first, call("a"), 0) == Continue()
    assert chosen(choose(first, call("c", available=("b", "c")), 0), "c") == "b"


def test_arguments_are_mapped():
    mapped = config(groups=[{"tools": {"a": {"arguments": {"q": "$.query"}}, "b": {}}}])
    verdict = choose(mapped, call("b", tool_input={"query": "x", "page": 2}), 0)
    assert (verdict.tool, verdict.arguments) == ("a", {"q": "x"})


def test_a_tool_of_no_group_runs_as_it_was_chosen():
    assert choose(config(groups=GROUP), call("other"), 0) == Continue()


def test_what_is_not_available_is_replaced_by_its_equal_or_denied():
    first = config(groups=GROUP)
    assert chosen(choose(first, call("c", available=("b",)), 0), "c") == "b"
    assert choose(first, call("gone"), 0) == Deny(reason="There is no tool gone. Available: a, b, c, other.")
    assert choose(first, call("c", available=("other",)), 0).action == "deny"


def test_switched_off_it_only_denies_what_is_not_available():
    off = config(groups=GROUP, override_enabled=False)
    assert choose(off, call("c"), 0) == Continue()
    assert choose(off, call("c", available=("a",)), 0).action == "deny"


def test_where_nobody_says_what_is_available_nothing_is_denied():
    assert choose(config(), call("gone", available=()), 0) == Continue()
    assert choose(config(), call("gone", truncated=True), 0) == Continue()


def test_a_replacement_is_not_replaced_again():
    assert choose(config(groups=GROUP), call("c", phase="verify"), 0) == Continue()
    assert choose(config(groups=GROUP), call("gone", phase="verify"), 0).action == "deny"


@given(st.integers(), st.text(alphabet="0123456789abcdef", min_size=32, max_size=32))
def test_a_draw_depends_on_nothing_but_seed_and_decision(seed, decision):
    assert draw_number(seed, decision) == draw_number(seed, decision)


async def test_random_is_fair_and_says_the_same_when_asked_twice():
    one, other = (Heuristic(config(strategy="random", seed=3, groups=GROUP)) for _ in range(2))
    asked = [call("b", number) for number in range(3000)]
    first = [chosen(await one.decide(each), "b") for each in asked]
    assert first == [chosen(await other.decide(each), "b") for each in asked]
    assert all(900 < times < 1100 for times in Counter(first).values())
    seven = Heuristic(config(strategy="random", seed=7, groups=GROUP))
    assert first != [chosen(await seven.decide(each), "b") for each in asked]


async def test_best_is_the_tool_from_which_a_success_comes_soonest():
    best = Heuristic(config(strategy="best", groups=GROUP))
    for _ in range(20):
        for tool, seconds in (("a", 2.0), ("b", 1.5), ("c", 0.5)):
            event = "tool:error" if tool == "c" else "tool:post"
            best.follow({"event": event, "tool": tool, "seconds": seconds})
    assert await best.decide(call("b", 1)) == Continue()
    verdict = await best.decide(call("a", 2))
    assert (verdict.tool, verdict.reason) == ("b", "best (b: 1.5 s, 98 % of 20): b in place of a")


async def replicas(count, **fields):
    context = SimpleNamespace(shared=make_shared_state())
    made = [Heuristic(config(strategy="round-robin", groups=GROUP, **fields)) for _ in range(count)]
    for one in made:
        await one.start(context)
    return made


async def test_round_robin_takes_turns_over_all_replicas():
    three = await replicas(3)
    taken = [chosen(await three[number % 3].decide(call("b", number)), "b") for number in range(9)]
    assert taken == ["a", "b", "c"] * 3


async def test_a_question_asked_twice_takes_one_turn():
    one, other = await replicas(2)
    taken = [
        chosen(await each.decide(call("b", number)), "b") for number in range(3) for each in (one, other)
    ]
    assert taken == ["a", "a", "b", "b", "c", "c"]


async def test_where_there_is_no_choice_no_turn_is_taken():
    (one,) = await replicas(1)
    await one.decide(call("b", 0, available=("b",)))
    await one.decide(call("other", 1))
    assert chosen(await one.decide(call("b", 2)), "b") == "a"


# ---------------------------------------------------------------------- agents

TEAM = [{"agents": ["senior", "junior", "intern"]}, *GROUP]


def delegation(agent="junior", number=0, agents=("junior", "senior", "intern", "clerk"), **fields):
    given = {"agent": agent, "instruction": "Do it"}
    return call(
        "delegate",
        number,
        ("delegate", *ALL),
        **{"tool_input": given, "agent_target": agent, "available_agents": agents, **fields},
    )


def asked(verdict, agent):
    """Whom a delegation goes to."""
    if isinstance(verdict, Modify):
        assert (verdict.tool, verdict.arguments) == ("delegate", None)
        return verdict.agent_target
    return agent if verdict == Continue() else None


def test_a_delegation_goes_to_the_first_agent_of_the_group_that_is_available():
    first = config(groups=TEAM)
    verdict = choose(first, delegation("junior"), 0)
    assert (asked(verdict, "junior"), verdict.reason) == ("senior", "first: senior in place of junior")
    assert choose(first, delegation("senior"), 0) == Continue()
    assert asked(choose(first, delegation("intern", agents=("junior", "intern")), 0), "intern") == "junior"
    assert choose(first, delegation("clerk"), 0) == Continue()
    assert choose(first, delegation("junior", phase="verify"), 0) == Continue()


def test_an_agent_that_is_not_available_is_never_chosen_and_denied_where_no_equal_is():
    first = config(groups=TEAM)
    assert asked(choose(first, delegation("senior", agents=("intern",)), 0), "senior") == "intern"
    assert choose(first, delegation("senior", agents=("clerk",)), 0) == Deny(
        reason="There is no agent senior. Available: clerk."
    )
    assert choose(first, delegation("clerk", agents=()), 0).action == "deny"
    assert choose(first, delegation("junior", agents=None), 0) == Continue()


def test_a_call_that_delegates_nothing_is_about_tools():
    assert chosen(choose(config(groups=TEAM), call("c"), 0), "c") == "a"
    assert choose(config(groups=TEAM), call("delegate", available=("delegate",)), 0) == Continue()


async def test_round_robin_and_random_choose_among_agents_too():
    one, other = [Heuristic(config(strategy="round-robin", groups=TEAM)) for _ in range(2)]
    context = SimpleNamespace(shared=make_shared_state())
    for each in (one, other):
        await each.start(context)
    calls = [delegation("junior", number) for number in range(6)]
    taken = [asked(await (one, other)[n % 2].decide(each), "junior") for n, each in enumerate(calls)]
    assert taken == ["senior", "junior", "intern"] * 2
    assert chosen(await one.decide(call("b", 9)), "b") == "a"  # tools take turns of their own
    drawing = Heuristic(config(strategy="random", groups=TEAM))
    drawn_ = {asked(await drawing.decide(delegation("junior", n)), "junior") for n in range(40)}
    assert drawn_ == {"senior", "junior", "intern"}
