"""What a rule on order sees of the calls before: from facts alone, bounded, denied calls not among them."""

import pytest
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_schedulers.shipped.policy import order as policy_order
from toolgate_schedulers.shipped.policy.needs import CallCount, OrderMatcher, Precondition
from toolgate_schedulers.shipped.policy.order import CallHistory, new_history

pytestmark = pytest.mark.pure


def decided(id_="a", tool="run_tests", at=0.0, session="s", root="r", **arguments):
    """The fact of a call that was allowed; tool None: denied."""
    return {
        "event": "decision",
        "id": id_,
        "entry": entry(at),
        "tool_name": tool or "deploy",
        "final_tool": tool,
        "final_input": arguments,
        "session": session,
        "root_session": root,
    }


def ended(id_="a", at=1.0, event="tool:post", **more):
    """The fact of its end."""
    return {"event": event, "decision_id": id_, "entry": entry(at), **more}


def entry(at):
    """The id that the server gave at so many seconds."""
    return f"{int(at * 1000)}-0"


def judge(facts, now=2.0, unseen=False, session="s", arguments=None, **need):
    """What is said to a deploy of that session."""
    history = CallHistory(("run_*", "deploy"), need.get("same", {}).values())
    for fact in facts:
        history.read(fact)
    call = ToolSelecting(
        id="d" * 32, tool_name="deploy", session=session, root_session="r", tool_input=arguments or {}
    )
    return history.judge(Precondition(tool=("run_tests",), **need), call, now, unseen)


@pytest.mark.parametrize(
    ("facts", "need", "state"),
    [
        ([], {}, "unmet"),
        ([decided()], {}, "under way"),
        ([decided(tool=None)], {}, "unmet"),
        ([decided(), ended()], {}, "met"),
        ([decided(), ended(success=False)], {}, "unmet"),
        ([decided(), ended(event="tool:error"), ended(success=False)], {}, "unmet"),
        ([decided(), ended(event="tool:error")], {"success": None}, "met"),
        ([decided(), ended(event="tool:error")], {"success": False}, "met"),
        ([decided(), ended(event="tool:unused")], {"success": None}, "unmet"),
        ([decided(), ended()], {"within_s": 0.5}, "unmet"),
        ([decided(), ended(), decided("b")], {}, "met"),
        ([decided(), ended(success=False), decided("b")], {}, "under way"),
        ([decided(session="other"), ended()], {}, "unmet"),
        ([decided(session="other"), ended()], {"scope": "tree"}, "met"),
        ([decided(session="other", root="q"), ended()], {"scope": "tree"}, "unmet"),
        ([decided(tool="run_lint"), ended()], {}, "unmet"),
    ],
)
def test_a_need_is_met_under_way_or_unmet(facts, need, state):
    assert judge(facts, **need) == state


def test_the_same_value_is_asked_for_by_path():
    tested = [decided(branch="main"), ended()]
    pair = {"$.target": "$.branch"}
    assert judge(tested, arguments={"target": "main"}, same=pair) == "met"
    assert judge(tested, arguments={"target": "next"}, same=pair) == "unmet"
    assert judge(tested, arguments={}, same=pair) == "unmet"


def test_of_arguments_only_those_that_a_path_may_lead_to_are_kept():
    history = CallHistory(("run_*",), ("$.order.id", r"a\.b"))
    history.read(decided(**{"order": {"id": 1}, "order.id": 2, "a.b": 3, "a": 4, "text": "x" * 9000}))
    run = history._scopes["session", "s"].running["run_tests"]["a"]
    assert run.arguments == {"order": {"id": 1}, "order.id": 2, "a.b": 3}


def test_what_cannot_be_seen_counts_as_the_caller_says():
    tested = [decided(order='{"id": 1}'), ended()]
    pair = {"$.order.id": "$.order.id"}
    arguments = {"order": '{"id": 1}'}
    assert judge(tested, arguments=arguments, same=pair) == "unmet"
    assert judge(tested, arguments=arguments, same=pair, unseen=True) == "met"


def test_calls_that_ran_or_run_are_counted_and_denied_ones_are_not():
    history = CallHistory(("deploy",))
    for fact in (
        decided("a", "deploy"),
        ended("a"),
        decided("b", "deploy", at=5.0),
        decided("c", None),
        decided("d", "deploy"),
        ended("d", event="tool:unused"),
    ):
        history.read(fact)
    call = ToolSelecting(id="e", tool_name="deploy", session="s", root_session="r")
    for n, within_s, state in [(2, 60.0, "unmet"), (3, 60.0, "met"), (1, 1.0, "unmet"), (2, 1.0, "met")]:
        assert history.count(CallCount(n=n, within_s=within_s), ("deploy",), {}, call, 6.0) == state


def test_only_what_changes_something_is_told():
    history = CallHistory(("run_*",))
    assert not history.read(ended())
    assert history.read(decided())
    assert history.read(ended()) == (("session", "s"), ("tree", "r"), ("tree", "s"))
    assert not history.read(ended())


READ = Precondition(tool=("read_*",), when={"path": {"glob": "*.pem"}})
SAME = Precondition(tool=("read_*",), same={"$.path": "$.path"})
WRITES = CallCount(n=2)
RULES = [
    OrderMatcher(tools=("send",), unless_after=READ),
    OrderMatcher(tools=("share",), unless_after=SAME),
    OrderMatcher(tools=("write",), when={"path": {"glob": "/etc/*"}}, at_most=WRITES),
]


@pytest.mark.parametrize("tools", [1, 200])
def test_no_number_of_other_calls_has_one_forgotten_by_which_a_rule_goes(tools):
    history = new_history(RULES)
    (_, share, write) = RULES
    for number, (tool, path) in enumerate(
        [
            ("read_file", "key.pem"),
            *[("write", "/etc/passwd")] * 2,
            *[(f"read_{number % tools}", f"{number}.txt") for number in range(600)],
            *[("write", f"/tmp/{number}") for number in range(600)],
        ]
    ):
        history.read(decided(f"{number}", tool, path=path))
        history.read(ended(f"{number}"))
    call = ToolSelecting(id="e", tool_name="x", session="s", root_session="r", tool_input={"path": "key.pem"})
    assert history.judge(RULES[0].unless_after, call, 2.0, True) == "met"
    assert history.count(write.at_most, write.tools, write.when, call, 2.0) == "unmet"
    assert history.judge(share.unless_after, call, 2.0, True) == "met"  # more than are kept count against it
    assert history.judge(share.unless_after, call, 5000.0, True) == "unmet"


def test_a_call_counts_against_others_whose_lists_hold_its_value_and_for_none():
    tested = [decided(id=["a", "b"]), ended()]
    pair = {"$.id": "$.id"}
    for arguments in ({"id": "a"}, {"id": ["b", "c"]}, {"id": [["a"]]}):
        assert judge(tested, arguments=arguments, same=pair, unseen=True) == "met"
        assert judge(tested, arguments=arguments, same=pair) == "unmet"
    assert judge(tested, arguments={"id": "c"}, same=pair, unseen=True) == "unmet"


def test_what_counts_against_a_call_counts_in_its_whole_tree_unless_the_rule_says_otherwise():
    elsewhere = [decided(session="other"), ended()]
    assert judge(elsewhere, unseen=True) == "met"
    assert judge(elsewhere, unseen=True, scope="own-session") == "unmet"


def test_what_a_sub_agent_did_counts_against_its_root():
    assert judge([decided(session="other"), ended()], session="r", unseen=True) == "met"


@pytest.mark.parametrize(("before", "now"), [("r", "s"), ("r", ""), ("s", "r"), ("r", "other")])
def test_a_session_that_works_for_another_root_than_before_has_done_what_it_did(before, now):
    rules = [OrderMatcher(tools=("deploy",), unless_after=Precondition(tool=("run_tests",)))]
    history = new_history([*rules, OrderMatcher(tools=("deploy",), at_most=WRITES)])
    for one in (decided("a", root=before), ended("a"), decided("b", "deploy", root=before), ended("b")):
        history.read(one)
    call = ToolSelecting(id="d" * 32, tool_name="deploy", session="s", root_session=now)
    assert history.judge(rules[0].unless_after, call, 2.0, True) == "met"
    assert history.count(CallCount(n=1), ("deploy",), {}, call, 2.0) == "unmet"
    assert history.count(CallCount(n=2), ("deploy",), {}, call, 2.0) == "met"  # it is counted once
    other = call.model_copy(update={"session": "t", "root_session": "elsewhere"})
    assert history.judge(rules[0].unless_after, other, 2.0, True) == "unmet"


def test_the_oldest_is_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(policy_order, "MAX_SCOPES", 4)
    monkeypatch.setattr(policy_order, "MAX_RUNNING", 3)
    history = CallHistory(("run_*",))
    for number in range(10):
        history.read(decided(f"a{number}", session=f"s{number}", root=f"r{number}"))
    assert len(history._scopes) == 4
    assert len(history._places) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *((17, "17"), ("17", 17), ("17", "017"), ("17", " 17"), ("17", "17.0"), ("a17", "ａ17"), (1, True)),
        *(("17", '"17"'), ("17", '["17"]'), ("17", "['17']"), ('{"id": "17"}', "17"), ("17", {"id": "17"})),
        *(("/srv/a", "/srv/./a"), ("a", "./a"), ("https://h.example/a", "https://H.example/a")),
        *(("eve@evil.example", "EVE@evil.example"), ("eve@evil.example", "Eve <eve@evil.example>")),
    ],
)
def test_another_spelling_of_a_value_counts_against_a_call_and_not_for_it(one, other):
    tested = [decided(branch=one), ended()]
    pair = {"$.target": "$.branch"}
    assert judge(tested, arguments={"target": other}, same=pair, unseen=True) == "met"
    assert judge(tested, arguments={"target": other}, same=pair) == "unmet"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *((17, 18), ("17", "18"), (17, "18"), ("a17", "A17"), ("main", "next"), ("17", "17#x"), ("17", None)),
        *(('{"id": 17, "x": 1}', '{"id": 17, "x": 2}'), ("/srv/a", "/srv/b"), ("1-2-3", "1-2-4")),
        *(("ann@ok.example", "bob@ok.example"), ("https://h.example/a", "https://h.example/b")),
    ],
)
def test_another_value_counts_neither_for_a_call_nor_against_it(one, other):
    tested = [decided(branch=one), ended()]
    pair = {"$.target": "$.branch"}
    assert judge(tested, arguments={"target": other}, same=pair, unseen=True) == "unmet"


def test_a_tool_in_letters_that_mean_the_same_counts_against_a_call_and_not_for_it():
    tested = [decided(tool="ｒｕｎ_tests"), ended()]
    assert judge(tested, unseen=True) == "met"
    assert judge(tested) == "unmet"
    history = CallHistory(("deploy",))
    for fact in (decided(tool="ｄｅｐｌｏｙ"), ended()):
        history.read(fact)
    call = ToolSelecting(id="d" * 32, tool_name="deploy", session="s", root_session="r", tool_input={})
    assert history.count(CallCount(n=1), ("deploy",), {}, call, 2.0) == "unmet"
