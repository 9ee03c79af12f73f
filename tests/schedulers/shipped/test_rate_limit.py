"""The shipped rate-limit: which limits apply, whose calls are counted together, what the LLM is told."""

import secrets

import pytest
from toolgate_bus.config.check import check
from toolgate_bus.config.document import parse_document
from toolgate_bus.errors import ConfigError
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.state.token_buckets import MemoryBuckets
from toolgate_schedulers import Continue, ToolSelecting
from toolgate_schedulers.author.scheduler import SchedulerContext
from toolgate_schedulers.shipped.rate_limit import RateLimit, RateLimitConfig, find_limits
from toolgate_schedulers.worker.holds import StoredHolds

pytestmark = pytest.mark.pure


def config(text):
    return check(RateLimitConfig, parse_document(text.encode(), "limits.yaml").value, "limits.yaml")


async def limiter(text, name="rate-limit", shared=None):
    """The scheduler, started on buckets in memory."""
    shared = shared or make_shared_state()
    holds = StoredHolds(shared.store, name, lambda *_: None)
    made = RateLimit(config(text))
    await made.start(SchedulerContext(shared, holds, "default", "r", name))
    return made


def call(tool="search", id_=None, **fields):
    return ToolSelecting(id=id_ or secrets.token_hex(16), tool_name=tool, **fields)


async def actions(scheduler, *calls):
    """What it says of each, by first letter."""
    return "".join([(await scheduler.decide(one)).action[0] for one in calls])


async def test_every_limit_that_fits_applies_to_all_or_to_none():
    text = "limits: [{tools: '*', per: fleet, rate: 3/day}, {tools: web_*, per: fleet, rate: 1/day}]"
    scheduler = await limiter(text)
    assert await actions(scheduler, *map(call, ["web_a", "web_b", "web_a", "ls", "ls", "ls"])) == "cddccd"


async def test_a_call_that_no_limit_fits_goes_on():
    scheduler = await limiter("limits: [{tools: web_*, per: fleet, rate: 1/day}]")
    assert await actions(scheduler, call("ls"), call("ls")) == "cc"


@pytest.mark.parametrize(
    ("per", "same", "other"),
    [
        ("session", {"session": "a"}, {"session": "b"}),
        ("tree", {"session": "a", "root_session": "r"}, {"session": "a", "root_session": "q"}),
        ("tree", {"session": "r"}, {"session": "q"}),
        ("agent", {"agent": "a", "session": "x"}, {"agent": "b", "session": "x"}),
        ("tool", {"tool": "a"}, {"tool": "b"}),
        ("label:team", {"labels": {"team": "a"}}, {"labels": {"team": "b"}}),
    ],
)
async def test_calls_are_counted_together_by(per, same, other):
    scheduler = await limiter(f"limits: [{{tools: '*', per: '{per}', rate: 1/day}}]")
    assert await actions(scheduler, call(**same), call(**same), call(**other), call(**other)) == "cdcd"


async def test_the_sessions_of_a_tree_are_counted_together_unless_the_rule_says_otherwise():
    calls = [call(session="r"), call(session="child", root_session="r")]
    for per, said in (("session", "cd"), ("tree", "cd"), ("own-session", "cc")):
        scheduler = await limiter(f"limits: [{{tools: '*', per: {per}, rate: 1/day}}]")
        assert await actions(scheduler, *calls) == said


async def test_an_agent_gets_no_more_calls_by_having_others_make_them():
    below = {"agent": "scout", "lineage": ["clerk", "scout"]}
    for agents in ("", "agents: clerk, "):
        scheduler = await limiter(f"limits: [{{tools: '*', {agents}per: agent, rate: 2/day}}]")
        calls = [call(agent="clerk"), call(**below), call(**below), call(agent="clerk")]
        assert await actions(scheduler, *calls, call(agent="scout")) == "ccddc"
    denied = await scheduler.decide(call(**below))
    assert "by clerk and the agents that work for it" in denied.reason


async def test_the_whole_fleet_is_counted_together():
    scheduler = await limiter("limits: [{tools: '*', per: fleet, rate: 1/day}]")
    calls = [call("a", session="x", agent="y"), call("b", session="z", labels={"team": "t"})]
    assert await actions(scheduler, *calls) == "cd"


async def test_those_without_a_session_or_label_share_a_bucket():
    for per in ("session", "label:team"):
        scheduler = await limiter(f"limits: [{{tools: '*', per: '{per}', rate: 1/day}}]")
        assert await actions(scheduler, call("a"), call("b")) == "cd"


async def test_agents_and_labels_choose_the_calls():
    text = """
limits:
  - {tools: "*", agents: [helper-*, boss], labels: {team: b*, env: "*"}, per: fleet, rate: 1/day}
"""
    scheduler = await limiter(text)
    fits = {"agent": "helper-1", "labels": {"team": "blue", "env": "x"}}
    assert await actions(scheduler, call(**fits), call(**{**fits, "agent": "boss"})) == "cd"
    free = [{"agent": "other"}, {"labels": {"team": "red", "env": "x"}}, {"labels": {"team": "blue"}}]
    assert await actions(scheduler, *[call(**{**fits, **change}) for change in free]) == "ccc"


async def test_a_burst_may_be_smaller_or_larger_than_the_rate():
    for burst, passed in ((1, "cddddd"), (5, "cccccd")):
        scheduler = await limiter(f"limits: [{{tools: '*', per: fleet, rate: 3/day, burst: {burst}}}]")
        assert await actions(scheduler, *[call() for _ in range(6)]) == passed


async def test_replicas_of_one_name_count_together_and_other_names_apart():
    text, shared = "limits: [{tools: '*', per: fleet, rate: 3/day}]", make_shared_state()
    one, replica, other = [await limiter(text, name, shared) for name in ("one", "one", "other")]
    assert await actions(one, call(), call()) == "cc"
    assert await actions(replica, call(), call()) == "cd"
    assert await actions(other, *[call() for _ in range(4)]) == "cccd"


async def test_the_question_asked_twice_takes_one_token():
    scheduler = await limiter("limits: [{tools: '*', per: fleet, rate: 2/day}]")
    twice = call()
    assert await actions(scheduler, twice, twice, call(), call()) == "cccd"


async def test_a_replacement_takes_from_its_own_limit_and_never_twice_from_a_shared_one():
    text = """
limits:
  - {name: all, tools: "*", per: fleet, rate: 3/day}
  - {name: dear, tools: dear, per: fleet, rate: 1/day}
"""
    scheduler = await limiter(text)
    ids = [secrets.token_hex(16) for _ in range(3)]
    replaced = [one for id_ in ids for one in (call("cheap", id_), call("dear", id_, phase="verify"))]
    assert await actions(scheduler, *replaced) == "cccdcd"
    assert await actions(scheduler, call("cheap")) == "d"


@pytest.mark.parametrize(
    ("limit", "fields", "said"),
    [
        (
            "{name: searches, tools: [web_*, fetch], per: session, rate: 1/minute}",
            {"session": "s"},
            (
                "web_a was called too often: web_* or fetch may be called once per minute in this session "
                "and those of its agents together "
                "(searches). Try again in 60 seconds; until then do something else, or answer with"
            ),
        ),
        (
            "{tools: '*', per: tree, rate: 1/hour}",
            {},
            "tools may be called once per hour in this session and",
        ),
        (
            "{tools: '*', per: tree, rate: 1/hour}",
            {},
            "of its agents together (limit 1). Try again in 3600 s",
        ),
        (
            "{tools: '*', per: agent, rate: {calls: 2, seconds: 90}, burst: 1}",
            {"agent": "h"},
            "2 times in 90",
        ),
        ("{tools: '*', per: agent, rate: 1/day}", {"agent": "h"}, "once per day by h ("),
        ("{tools: '*', per: agent, rate: 1/day}", {}, "by agents without a name"),
        ("{tools: '*', per: tool, rate: 1/day}", {}, "web_a may be called once per day by all agents toge"),
        ("{tools: [a, b, c, 'w*'], per: fleet, rate: 1/day}", {}, "a or b or c or others may be called once"),
        ("{tools: '*', per: 'label:team', rate: 1/day}", {"labels": {"team": "blue"}}, "for team blue"),
        ("{tools: '*', per: 'label:team', rate: 1/day}", {}, "for calls without label team"),
        ("{tools: '*', per: fleet, rate: 1/second}", {}, "Try again in 1 second;"),
    ],
)
async def test_a_denial_says_which_limit_whose_and_when_to_try_again(limit, fields, said):
    scheduler = await limiter(f"limits: [{limit}]")
    await scheduler.decide(call("web_a", **fields))
    assert said in (await scheduler.decide(call("web_a", **fields))).reason


async def test_the_limit_that_is_short_longest_is_named():
    text = """
limits:
  - {name: short, tools: "*", per: fleet, rate: 1/minute}
  - {name: long, tools: "*", per: fleet, rate: 1/hour}
"""
    scheduler = await limiter(text)
    await scheduler.decide(call())
    assert "(long)" in (await scheduler.decide(call())).reason


@pytest.mark.parametrize(
    ("rate", "calls", "period_ms"),
    [
        ("10/minute", 10, 60_000),
        ("' 3 / second '", 3, 1000),
        ("100/hour", 100, 3_600_000),
        ("1/day", 1, 86_400_000),
        ("{calls: 7, seconds: 2.5}", 7, 2500),
    ],
)
def test_rates_are_read(rate, calls, period_ms):
    (one,) = find_limits(config(f"limits: [{{tools: '*', per: fleet, rate: {rate}}}]"), "n", call()).values()
    assert one.bucket[1:] == (calls, period_ms, calls, 1)


def test_a_limit_that_is_changed_has_other_buckets_and_one_that_moved_the_same():
    first = "{tools: a, per: fleet, rate: 1/day}"
    second = "{tools: a, per: fleet, rate: 2/day}"
    keys = [
        list(find_limits(config(f"limits: [{text}]"), "n", call("a")))
        for text in (f"{first}, {second}", second)
    ]
    assert len(set(keys[0])) == 2
    assert keys[1] == keys[0][1:]


def test_limits_that_are_the_same_count_once():
    same = "{tools: a, per: fleet, rate: 1/day}"
    assert len(find_limits(config(f"limits: [{same}, {same}]"), "n", call("a"))) == 1


async def test_whoever_is_counted_may_have_a_long_name():
    scheduler = await limiter("limits: [{tools: '*', per: session, rate: 1/day}]")
    calls = [call(session="x" * 5000), call(session="x" * 5000), call(session="x" * 5001)]
    assert await actions(scheduler, *calls) == "cdc"
    keys = list(find_limits(scheduler.config, "n", calls[0]))
    assert len(keys[0]) < 100


async def test_the_scheduler_is_only_asked_about_the_tools_that_it_limits():
    text = "limits: [{tools: [a, b_*], per: fleet, rate: 1/day}, {tools: a, per: tool, rate: 1/day}]"
    scheduler = await limiter(text)
    assert (scheduler.name, scheduler.priority, scheduler.tools) == ("rate-limit", 0, ("a", "b_*"))
    assert await scheduler.decide(call("c")) == Continue()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "limits: Field required"),
        ("limits: []", "limits: List should have at least 1 item"),
        ("limit: []", "limit: unknown key; allowed: admission, limits; did you mean limits?"),
        (
            "limits: [{tools: a, per: fleet, rate: 1/day, bursts: 2}]",
            "limits.0.bursts: unknown key; allowed: agent_targets, agents, burst, labels, name,",
        ),
        ("limits: [{per: fleet, rate: 1/day}]", "limits.0.tools: Field required"),
        ("limits: [{tools: [], per: fleet, rate: 1/day}]", "limits.0.tools: List should have at least 1"),
        ("limits: [{tools: a, rate: 1/day}]", "limits.0.per: Field required"),
        (
            "limits: [{tools: a, per: user, rate: 1/day}]",
            "limits.0.per: must be session, tree, own-session, agent, tool, fleet or label:NAME",
        ),
        ("limits: [{tools: a, per: 'label:', rate: 1/day}]", "limits.0.per: must be session, tree"),
        ("limits: [{tools: a, per: fleet}]", "limits.0.rate: Field required"),
        (
            "limits: [{tools: a, per: fleet, rate: 10/fortnight}]",
            "limits.0.rate: must be calls per second, minute",
        ),
        (
            "limits: [{tools: a, per: fleet, rate: 0/day}]",
            "limits.0.rate.calls: Input should be greater than",
        ),
        ("limits: [{tools: a, per: fleet, rate: 5}]", "limits.0.rate: Input should be a mapping"),
        ("limits: [{tools: a, per: fleet, rate: {calls: 1}}]", "limits.0.rate.seconds: Field required"),
        (
            "limits: [{tools: a, per: fleet, rate: {calls: 1, seconds: 0}}]",
            "limits.0.rate.seconds: Input should",
        ),
        (
            "limits: [{tools: a, per: fleet, rate: {calls: true, seconds: 1}}]",
            "limits.0.rate.calls: Input should",
        ),
        (
            "limits: [{tools: a, per: fleet, rate: 1/day, burst: 0}]",
            "limits.0.burst: Input should be greater",
        ),
        ("limits: [{tools: a, agents: [], per: fleet, rate: 1/day}]", "limits.0.agents: List should have"),
        (
            "limits: [{tools: a, labels: [x], per: fleet, rate: 1/day}]",
            "limits.0.labels: Input should be a mapping",
        ),
        (
            "limits: [{tools: a, labels: {x: 1}, per: fleet, rate: 1/day}]",
            "limits.0.labels.x: Input should be a",
        ),
        (
            "limits: [&a {name: n, tools: a, per: tool, rate: 1/day}, *a]",
            "limits: the name 'n' is given twice",
        ),
    ],
)
def test_a_wrong_rate_limit_is_refused_by_name(text, said):
    with pytest.raises(ConfigError) as error:
        config(text)
    assert said in str(error.value)


def test_the_largest_limit_can_be_counted():
    text = "limits: [{tools: a, per: fleet, rate: {calls: 1000000, seconds: 604800}, burst: 1000000}]"
    (one,) = find_limits(config(text), "n", call("a")).values()
    assert MemoryBuckets().pool.take("d", [one.bucket], 0).allowed


async def test_limits_that_differ_in_their_schema_alone_have_buckets_of_their_own():
    some = "{{tools: pay, per: fleet, rate: 1/hour, schema: {{required: [{}]}}}}"
    limited = await limiter(f"limits: [{some.format('a')}, {some.format('b')}]")
    calls = [call("pay", tool_input={name: 1}) for name in "abab"]
    assert await actions(limited, *calls) == "ccdd"


async def test_a_session_that_works_for_two_roots_by_turns_has_the_calls_of_one():
    limited = await limiter("limits: [{tools: pay, per: session, rate: 2/hour}]")
    calls = [call("pay", session="s", root_session=root) for root in ("a", "b", "a", "", "c")]
    assert await actions(limited, *calls, call("pay", session="t", root_session="c")) == "ccdddc"
