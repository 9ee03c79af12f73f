"""The shipped loop-guard: an agent that runs away is told to stop, with the count."""

import secrets

import pytest
from toolgate_bus.config.check import check
from toolgate_bus.config.document import parse_document
from toolgate_bus.errors import ConfigError
from toolgate_bus.state.call_counts import CallCounts
from toolgate_bus.state.shared import make_shared_state
from toolgate_schedulers import Continue, ToolSelecting
from toolgate_schedulers.author.scheduler import SchedulerContext
from toolgate_schedulers.shipped.loop_guard import LoopGuard, LoopGuardConfig, fingerprint_call, rule_on
from toolgate_schedulers.worker.holds import StoredHolds

pytestmark = pytest.mark.pure

FEW = CallCounts(session=1, tree=1, turn=1, row=1, recent=1, seconds=0.0)


def config(text):
    return check(LoopGuardConfig, parse_document(text.encode(), "guard.yaml").value, "guard.yaml")


async def guard(text, name="loop-guard", shared=None):
    """The scheduler, started on a tally in memory."""
    shared = shared or make_shared_state()
    holds = StoredHolds(shared.store, name, lambda *_: None)
    scheduler = LoopGuard(config(text))
    await scheduler.start(SchedulerContext(shared, holds, "default", "r", name))
    return scheduler


def call(tool="search", iteration=1, session="s", **fields):
    group = fields.pop("group", f"g{iteration}")
    return ToolSelecting(
        **{
            "id": secrets.token_hex(16),
            "tool_name": tool,
            "session": session,
            "iteration": iteration,
            "parallel_group_id": group,
            **fields,
        }
    )


def turn(tools, **fields):
    """A call for each letter, one an iteration."""
    return [call(tool, iteration, **fields) for iteration, tool in enumerate(tools, 1)]


async def actions(scheduler, calls):
    """What it says of each, by first letter."""
    return "".join([(await scheduler.decide(one)).action[0] for one in calls])


@pytest.mark.parametrize(
    ("text", "below", "above", "said"),
    [
        (
            "calls_per_turn: 25",
            FEW._replace(turn=25),
            FEW._replace(turn=26),
            (
                "This is tool call 26 of this turn; 25 are allowed (calls_per_turn). "
                "Stop calling tools, and answer now with what you have."
            ),
        ),
        (
            "calls_per_session: 9",
            FEW._replace(tree=9),
            FEW._replace(tree=11),
            (
                "This is tool call 11 of this session and those of its agents; 9 are allowed "
                "(calls_per_session). Stop calling tools"
            ),
        ),
        (
            "{calls_per_session: 9, calls_per_tree: 20}",
            FEW._replace(session=9, tree=20),
            FEW._replace(session=11, tree=20),
            "This is tool call 11 of this session; 9 are allowed (calls_per_session). Stop calling tools",
        ),
        (
            "calls_per_tree: 9",
            FEW._replace(tree=9),
            FEW._replace(tree=10),
            "This is tool call 10 of this session and those of its agents; 9 are allowed (calls_per_tree).",
        ),
        (
            "seconds_per_session: 30",
            FEW._replace(seconds=30.0),
            FEW._replace(seconds=30.2),
            (
                "This session has been calling tools, with its agents, for 31 s; 30 s are allowed "
                "(seconds_per_session). Stop"
            ),
        ),
        (
            "same_call: {times: 3}",
            FEW._replace(row=3, recent=9),
            FEW._replace(row=4),
            (
                "search was called 4 times in a row with exactly these arguments; 3 are allowed. The result "
                "will be the same: stop repeating it. Answer with what you have, or do something else. (same"
            ),
        ),
        (
            "same_call: {times: 3, within: 10}",
            FEW._replace(row=9, recent=3),
            FEW._replace(recent=4),
            "search was called 4 times with exactly these arguments in the last 10 calls; 3 are allowed.",
        ),
    ],
)
def test_each_limit_lets_as_many_pass_and_tells_the_llm_the_count(text, below, above, said):
    assert rule_on(config(text), call(), below) == Continue()
    assert said in rule_on(config(text), call(), above).reason


def test_who_is_over_several_limits_is_told_to_answer_rather_than_to_do_something_else():
    text = "{same_call: {times: 1}, calls_per_turn: 1, seconds_per_session: 1}"
    over = CallCounts(9, 9, 9, 9, 9, 9.0)
    assert "seconds_per_session" in rule_on(config(text), call(), over).reason
    assert "calls_per_turn" in rule_on(config(text), call(), over._replace(seconds=0.0)).reason


async def test_the_same_call_in_a_row_is_denied_until_another_is_made():
    scheduler = await guard("same_call: {times: 2}")
    assert await actions(scheduler, turn("aaaabaaa")) == "ccddcccd"


async def test_other_arguments_are_another_call_in_whatever_order_they_are_written():
    scheduler = await guard("same_call: {times: 1}")
    arguments = [{"x": 1, "y": [2]}, {"y": [2], "x": 1}, {"x": 2, "y": [2]}, {"x": 2, "y": [2]}, {}]
    calls = [call(iteration=n, tool_input=each) for n, each in enumerate(arguments, 1)]
    assert await actions(scheduler, calls) == "cdcdc"


async def test_calls_that_take_turns_are_found_within_a_window():
    scheduler = await guard("same_call: {times: 2, within: 6}")
    assert await actions(scheduler, turn("abababcdefga")) == "ccccddcccccc"


async def test_a_new_turn_begins_its_own_counts_and_the_session_goes_on():
    scheduler = await guard("{calls_per_turn: 2, calls_per_session: 5, same_call: {times: 2}}")
    first, second = turn("aba", group="one"), turn("ab", group="two")
    assert await actions(scheduler, [*first, *second]) == "ccdcc"
    assert "calls_per_session" in (await scheduler.decide(call("c", 3, group="two"))).reason


async def test_sessions_of_one_tree_are_counted_together():
    scheduler = await guard("calls_per_tree: 3")
    calls = [call(session=name, root_session="r") for name in "rabc"]
    assert await actions(scheduler, [*calls, call(session="other")]) == "cccdc"


async def test_exempt_tools_are_neither_counted_nor_denied_nor_break_a_row():
    scheduler = await guard("{same_call: {times: 2}, calls_per_session: 3, exempt: [todo, log_*]}")
    tools = ["a", "todo", "a", "log_x", "a", "todo", "b", "todo"]
    assert await actions(scheduler, turn(tools)) == "ccccdcdc"


async def test_replicas_of_one_name_count_together_and_other_names_apart():
    text, shared = "calls_per_session: 3", make_shared_state()
    one, replica, other = [await guard(text, name, shared) for name in ("one", "one", "other")]
    calls = turn("abcd")
    assert await actions(one, calls[:2]) == "cc"
    assert await actions(replica, calls[2:]) == "cd"
    assert await actions(other, turn("abcd")) == "cccd"


async def test_a_question_asked_twice_is_counted_once():
    scheduler = await guard("calls_per_session: 2")
    first, *others = turn("abc")
    assert await actions(scheduler, [first, first, first, *others]) == "ccccd"


async def test_a_replacement_is_counted_only_where_the_llms_own_call_was_not():
    scheduler = await guard("{calls_per_session: 1, exempt: todo}")
    own = call("a")
    replaced = own.model_copy(update={"tool_name": "b", "phase": "verify"})
    assert await actions(scheduler, [own, replaced]) == "cc"
    exempt = call("todo", 2)
    assert (
        await actions(scheduler, [exempt, exempt.model_copy(update={"tool_name": "b", "phase": "verify"})])
        == "cd"
    )


async def test_a_call_that_names_no_session_is_not_counted():
    scheduler = await guard("calls_per_session: 1")
    assert await actions(scheduler, [call(session=""), call(session="")]) == "cc"


@pytest.mark.parametrize("kind", ["redacted", "truncated"])
def test_what_is_hidden_is_told_apart_by_its_placeholder(kind):
    first, again, other = (
        fingerprint_call(call(tool_input={"q": 1, "key": f"⟦toolgate:{kind}:{token}⟧"}))
        for token in ("ab", "ab", "cd")
    )
    assert first.call == again.call != other.call


def test_a_call_is_told_from_others_by_its_tool_and_arguments():
    assert (
        fingerprint_call(call("a", tool_input={"x": [1, "é", None]})).call
        == fingerprint_call(call("a", 7, tool_input={"x": [1, "é", None]})).call
    )
    assert fingerprint_call(call("a")).call != fingerprint_call(call("b")).call
    assert fingerprint_call(call("a", tool_input={"x": b"\xff"})).call


def test_limits_may_change_without_counting_anew_but_not_what_is_counted():
    scopes = [
        config(text).scope("loop-guard")
        for text in (
            "calls_per_turn: 1",
            "{calls_per_turn: 2, same_call: {times: 3}}",
            "{calls_per_turn: 1, exempt: a}",
            "same_call: {times: 2, within: 5}",
        )
    ]
    assert scopes[0] == scopes[1]
    assert len(set(scopes)) == 3


def test_the_scheduler_looks_at_every_tool():
    scheduler = LoopGuard(config("calls_per_turn: 1"))
    assert (scheduler.name, scheduler.priority, scheduler.tools) == ("loop-guard", 0, ("*",))


# ---------------------------------------------------------------------- trees of agents


def delegation(session="s", root="s", agent="helper", **fields):
    return call("delegate", session=session, root_session=root, agent_target=agent, **fields)


async def test_agents_may_stand_above_each_other_as_deep_as_it_says():
    scheduler = await guard("max_depth: 3")
    lineages = [(), ("boss", "clerk"), ("boss", "clerk", "clerk"), ("boss", "a", "b", "c")]
    calls = [delegation(lineage=each) for each in lineages]
    assert await actions(scheduler, calls) == "ccdd"
    assert (await scheduler.decide(calls[2])).reason == (
        "Agents may be nested 3 deep, the first one included, and this one is at depth 3 "
        "(boss > clerk > clerk) (max_depth). Stop delegating: do it yourself, or answer with what you have."
    )
    assert await actions(scheduler, [call("search", lineage=lineages[3])]) == "c"
    assert await actions(scheduler, [delegation(session="", lineage=each) for each in lineages]) == "ccdd"


@pytest.mark.parametrize("told", [{"root": "r"}, {"parent": "r"}, {"root": "r", "parent": "p"}])
async def test_who_works_for_another_is_no_root_though_nobody_is_named_above_it(told):
    scheduler = await guard("max_depth: 2")
    assert await actions(scheduler, [delegation(**told), delegation()]) == "dc"


async def test_who_names_no_session_is_counted_in_the_tree_that_it_names():
    scheduler = await guard("calls_per_tree: 2")
    calls = [call(iteration=n, session="", root_session="r") for n in range(1, 4)]
    assert await actions(scheduler, [*calls, call(session="r")]) == "ccdd"


async def test_a_session_that_works_for_two_roots_by_turns_has_the_calls_of_one():
    scheduler = await guard("calls_per_session: 2")
    calls = [call(iteration=n, root_session=root) for n, root in enumerate(("a", "b", "c", ""), 1)]
    assert await actions(scheduler, calls) == "ccdd"


async def test_a_session_may_delegate_as_often_as_it_says():
    scheduler = await guard("max_width: 2")
    calls = [delegation(iteration=n) for n in range(1, 4)]
    assert await actions(scheduler, [*calls, calls[2], call("search", 4)]) == "ccddc"
    assert (await scheduler.decide(calls[2])).reason == (
        "This session has delegated 2 times; 2 are allowed (max_width). "
        "Stop delegating: do it yourself, or answer with what you have."
    )
    assert await actions(scheduler, [delegation("child", "s", iteration=5)]) == "c"


async def test_a_tree_may_have_as_many_agents_as_it_says_and_refused_ones_are_none():
    scheduler = await guard("{max_agents: 4, max_width: 2, max_depth: 9}")
    calls = [delegation("root", "root") for _ in range(9)]
    assert await actions(scheduler, calls) == "ccddddddd"
    assert await actions(scheduler, [delegation("child", "root", lineage=["a"] * 9)]) == "d"
    assert await actions(scheduler, [delegation("child", "root"), delegation("child", "root")]) == "cd"
    told = (await scheduler.decide(delegation("other", "root"))).reason
    assert told.startswith("This task has 4 agents already; 4 are allowed (max_agents). Stop delegating")
    assert await actions(scheduler, [delegation("elsewhere", "elsewhere")]) == "c"


async def test_an_agent_that_another_limit_ends_has_not_delegated():
    scheduler, shared = await guard("{calls_per_session: 1, max_agents: 9}"), make_shared_state()
    scheduler._tally = shared.tally
    assert await actions(scheduler, [delegation(), delegation()]) == "cd"
    assert list(shared.tally.counting.delegations.values()) == [1, 1]


async def test_a_call_that_becomes_a_delegation_is_counted_as_one_and_a_redirected_one_once():
    scheduler = await guard("max_width: 1")
    own = call("search", root_session="s")
    made_one = own.model_copy(update={"tool_name": "delegate", "agent_target": "a", "phase": "verify"})
    again = made_one.model_copy(update={"agent_target": "b"})
    assert await actions(scheduler, [own, made_one, again, delegation()]) == "cccd"


LIMITS = (
    "same_call, calls_per_turn, calls_per_session, calls_per_tree, seconds_per_session, "
    "max_depth, max_width, max_agents"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", f"sets no limit: give one or more of {LIMITS}"),
        ("exempt: a", f"sets no limit: give one or more of {LIMITS}"),
        (
            "calls_per_turns: 1",
            (
                "calls_per_turns: unknown key; allowed: calls_per_session, calls_per_tree, calls_per_turn, "
                "exempt, max_agents, max_depth, max_width, same_call, seconds_per_session; "
                "did you mean calls_per_turn?"
            ),
        ),
        ("calls_per_turn: 0", "calls_per_turn: Input should be greater than or equal to 1"),
        ("calls_per_session: many", "calls_per_session: Input should be a valid integer"),
        ("calls_per_tree: 1.5", "calls_per_tree: Input should be a valid integer"),
        ("max_depth: 0", "max_depth: Input should be greater than or equal to 1"),
        ("max_width: wide", "max_width: Input should be a valid integer"),
        ("max_agents: 0", "max_agents: Input should be greater than or equal to 1"),
        ("seconds_per_session: 0", "seconds_per_session: Input should be greater than 0"),
        ("seconds_per_session: 86401", "seconds_per_session: Input should be less than or equal to 86400"),
        ("same_call: 3", "same_call: Input should be a mapping"),
        ("same_call: {}", "same_call.times: Field required"),
        ("same_call: {times: 0}", "same_call.times: Input should be greater than or equal to 1"),
        ("same_call: {times: 3, within: 3}", "same_call: within: must be more than times (3)"),
        (
            "same_call: {times: 3, within: 1001}",
            "same_call.within: Input should be less than or equal to 1000",
        ),
        ("same_call: {time: 3}", "same_call.time: unknown key; allowed: times, within; did you mean times?"),
        ("{calls_per_turn: 1, exempt: ['']}", "exempt.0: String should have at least 1 character"),
    ],
)
def test_a_wrong_loop_guard_is_refused_by_name(text, said):
    with pytest.raises(ConfigError) as error:
        config(text)
    assert said in str(error.value)
