"""Local tables: they answer as their scheduler does, or have it asked."""

import json

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from toolgate_bus.config.check import check
from toolgate_bus.errors import CodecError, ConfigError
from toolgate_bus.protocol.events import Continue, Deny, ToolSelecting
from toolgate_bus.ruling.local_table import MAX_TABLE, LocalTable
from toolgate_schedulers.author.match_conditions import limit, read_conditions
from toolgate_schedulers.author.scheduler import Scheduler
from toolgate_schedulers.shipped.approval.config import find_rules
from toolgate_schedulers.shipped.approval.scheduler import ApprovalScheduler
from toolgate_schedulers.shipped.policy.order import new_history
from toolgate_schedulers.shipped.policy.scheduler import Policy, PolicyConfig, rule_on
from toolgate_schedulers.shipped.policy.verdicts import Past
from toolgate_schedulers.shipped.provenance import Provenance
from toolgate_schedulers.shipped.provenance import rule_on as provenance_on
from toolgate_schedulers.shipped.rate_limit import RateLimit, find_limits
from toolgate_schedulers.shipped.router.router import Router, route

pytestmark = pytest.mark.pure

TOOLS = ["send_mail", "delete_file", "delete_me", "pay", "ｐａｙ"]
GLOBS = st.lists(st.sampled_from([*TOOLS[:4], "delete_*", "*", "p?y"]), min_size=1, max_size=2)
VALUES = st.sampled_from(
    ["ann@ok.example", "eve@evil.example", "12", 12, 5.5, None, True, [], ["a", "b"], {}]
)
HIDDEN = st.sampled_from([{"$toolgate": "redacted"}, "⟦redacted⟧", '{"to": "ann@ok.example"}'])
TESTS = st.sampled_from(
    [
        "*@ok.example",
        "*evil*",
        {"gt": 10},
        {"in": ["12", "a"]},
        {"exists": True},
        {"matches": "^1"},
        {"under": "/srv"},
    ]
)
CONDITIONS = {
    "when": st.dictionaries(st.sampled_from(["to", "n", "a.b", "list"]), TESTS, max_size=2),
    "agents": st.sampled_from(["clerk", "boss", "?*"]),
    "labels": st.just({"team": "red*"}),
    "schema": st.sampled_from([{"required": ["to"]}, {"properties": {"n": {"type": "integer"}}}]),
}
SESSIONS = st.sampled_from([{"source": "untrusted"}, {"source": ["un*", "evil"], "by": "?*"}])
ON_RESULTS = st.fixed_dictionaries(
    {"on": st.just("result"), "tools": GLOBS, "action": st.sampled_from(["allow", "deny", "ask"])},
    optional={**CONDITIONS, "when_session": SESSIONS},
)
"""Rules on results: they say nothing about calls."""
RULES = st.lists(
    st.fixed_dictionaries(
        {"tools": GLOBS, "action": st.sampled_from(["allow", "deny", "deny", "ask"])},
        optional={
            **CONDITIONS,
            "when_session": SESSIONS,
            "unknown": st.sampled_from(["allow", "deny"]),
            "reason": st.sampled_from(["no", "because"]),
        },
    )
    | ON_RESULTS,
    max_size=6,
)
CALLS = st.builds(
    ToolSelecting,
    id=st.just("0" * 32),
    tool_name=st.sampled_from(TOOLS),
    tool_input=st.dictionaries(
        st.sampled_from(["to", "n", "a", "list"]),
        VALUES | HIDDEN | st.builds(lambda one: {"b": one}, VALUES),
        max_size=3,
    ),
    agent=st.sampled_from(["clerk", "", "helper"]),
    lineage=st.sampled_from([(), ("boss", "clerk"), ("boss", "helper")]),
    labels=st.sampled_from([{}, {"team": "red-1"}, {"team": "blue"}]),
    session_labels=st.sampled_from(
        [
            {},
            None,
            {"source": ("untrusted",)},
            {"source": ("house", "evil")},
            {"by": ("x",), "source": ("un",)},
        ]
    ),
)


WITH_LISTS = st.builds(
    ToolSelecting,
    id=st.just("0" * 32),
    tool_name=st.sampled_from(TOOLS),
    tool_input=st.builds(
        lambda some: {"list": some},
        st.lists(st.sampled_from([{"email": "eve@evil.example"}, {"email": None}, {}, "x"]), max_size=2),
    ),
)


def table_of(config, scheduler=Policy):
    raw = scheduler(check(scheduler.config_model, config, "rules.yaml")).local_table
    return LocalTable.read(raw) if raw else None


def test_a_rule_on_agents_is_decided_for_each_of_them_and_by_all_its_conditions():
    rules = [
        {"tools": ["pay"], "agents": ["clerk"], "answer": "deny"},
        {"tools": ["pay"], "agents": ["boss"], "labels": {"team": "red"}, "answer": "deny"},
    ]
    table = LocalTable.read(json.dumps({"rules": rules, "default": "continue"}).encode())
    calls = ("clerk", {}), ("helper", {}), ("boss", {}), ("boss", {"team": "red"}), ("clerk", {})
    answers = [
        table.answer(ToolSelecting(id="0" * 32, tool_name="pay", agent=agent, labels=labels)).verdict.action
        for agent, labels in calls
    ]
    assert answers == ["deny", "continue", "continue", "deny", "deny"]


def test_a_rule_on_an_agent_and_its_sessions_labels_is_about_both():
    rule = {"tools": ["pay"], "agents": ["clerk"], "when_session": {"source": "untrusted"}, "answer": "deny"}
    table = LocalTable.read(json.dumps({"rules": [rule], "default": "continue"}).encode())
    answers = [
        table.answer(ToolSelecting(id="0" * 32, tool_name="pay", agent=agent, session_labels=labels))
        for agent in ("clerk", "helper")
        for labels in ({}, {"source": ("untrusted",)})
    ]
    assert [one.verdict.action for one in answers] == ["continue", "deny", "continue", "continue"]


@given(RULES, st.sampled_from(["allow", "deny", "ask"]), st.lists(CALLS, min_size=1, max_size=8))
def test_a_table_answers_as_its_policy_or_has_it_asked(rules, default, calls):
    config = {"rules": rules, "default": default}
    table = table_of(config)
    for call in calls:
        answer = table.answer(call) if table is not None else None
        if answer is not None:
            assert answer.verdict == rule_on(check(PolicyConfig, config, "rules.yaml"), call)
            assert answer.is_plain is (answer.verdict == Continue())


async def decide(_call):
    return Deny(reason="asked")


@given(
    st.lists(st.fixed_dictionaries({}, optional={"tools": GLOBS, **CONDITIONS}), min_size=1, max_size=3),
    st.lists(CALLS, min_size=1, max_size=8),
)
def test_no_call_that_meets_a_condition_of_when_is_skipped(when, calls):
    own = limit(Scheduler(name="own", decide=decide), when)
    table = LocalTable.read(own.local_table)
    conditions = read_conditions("own", when)
    for call in calls:
        concerns = any(one.concerns(one.tools, call) is not False for one in conditions)
        assert (table.answer(call) is None) is concerns
        if not concerns:
            assert table.answer(call).is_plain


LIMITS = st.fixed_dictionaries(
    {"tools": GLOBS, "per": st.sampled_from(["agent", "fleet"]), "rate": st.just("1/day")},
    optional=CONDITIONS,
)
ROUTES = st.fixed_dictionaries({"from": GLOBS, "to": st.just("look")}, optional=CONDITIONS)
APPROVALS = st.fixed_dictionaries(
    {"tools": GLOBS, "action": st.sampled_from(["ask", "allow"])},
    optional={**CONDITIONS, "unknown": st.sampled_from(["allow", "deny"])},
)
SINKS = st.fixed_dictionaries(
    {"tools": GLOBS, "to": st.sampled_from(["to", ["n", "list"], "a.b", "list.email"])},
    optional={"words": st.just(["pay"]), "action": st.just("deny"), "when_session": SESSIONS},
)


def listed(key, one):
    return st.builds(lambda rules: {key: rules}, st.lists(one, min_size=1, max_size=4))


@pytest.mark.parametrize(
    ("scheduler", "configs", "is_silent"),
    [
        (Router, listed("routes", ROUTES), lambda config, call: route(config, call) == Continue()),
        (RateLimit, listed("limits", LIMITS), lambda config, call: not find_limits(config, "own", call)),
        (ApprovalScheduler, listed("rules", APPROVALS), lambda config, call: not find_rules(config, call)),
        (Provenance, listed("sinks", SINKS), lambda config, call: provenance_on(config, call) == Continue()),
    ],
    ids=["router", "rate-limit", "approval", "provenance"],
)
def test_a_shipped_scheduler_is_asked_about_what_concerns_it(scheduler, configs, is_silent):
    @given(configs, st.lists(CALLS | WITH_LISTS, min_size=1, max_size=8))
    def holds(written, calls):
        table, config = table_of(written, scheduler), check(scheduler.config_model, written, "rules.yaml")
        for call in calls:
            call = call.model_copy(update={"available_tools": (call.tool_name, "look")})
            if (answer := table.answer(call)) is not None:
                assert answer.is_plain
                assert is_silent(config, call)

    holds()


def call(tool, agent="", lineage=(), **arguments):
    return ToolSelecting(id="0" * 32, tool_name=tool, tool_input=arguments, agent=agent, lineage=lineage)


@pytest.mark.parametrize(
    ("scheduler", "config", "asked", "answered"),
    [
        (
            Router,
            {
                "routes": [
                    {"from": "read", "to": "look"},
                    {"from": "pay", "when": {"n": {"gt": 1}}, "to": "look"},
                ]
            },
            [call("read"), call("pay", n=5), call("pay", n={})],
            [call("pay", n=0)],
        ),
        (
            RateLimit,
            {
                "limits": [
                    {"tools": "read", "per": "fleet", "rate": "1/day"},
                    {"tools": "*", "agents": "boss", "per": "agent", "rate": "1/day"},
                ]
            },
            [call("read"), call("pay", "boss"), call("pay", "clerk", ("boss", "clerk"))],
            [call("pay", "clerk")],
        ),
        (
            ApprovalScheduler,
            {
                "rules": [
                    {"tools": "pay", "when": {"to": "*@ok.example"}, "action": "allow"},
                    {"tools": "pay"},
                ]
            },
            [call("pay"), call("pay", to=["a@ok.example", "a@b.example"]), call("pay", to={})],
            [call("pay", to="a@ok.example")],
        ),
        (
            Provenance,
            {"sinks": [{"tools": "send", "to": ["to", "cc"]}, {"tools": "post", "to": "list.email"}]},
            [call("send", cc="a@b.example"), call("send", to=None), call("post", list=[{}])],
            [call("send", subject="x")],
        ),
    ],
    ids=["router", "rate-limit", "approval", "provenance"],
)
def test_only_calls_that_concern_a_shipped_scheduler_are_asked(scheduler, config, asked, answered):
    table = table_of(config, scheduler)
    assert [table.answer(one) for one in asked] == [None] * len(asked)
    assert all(table.answer(one).is_plain for one in answered)


NAMES = st.sampled_from(["read", "send", "pay"])
MAY_FIT = st.sampled_from([{}, {"n": {"gt": 1}}])
"""Few tools and conditions, so that many of the generated calls depend on each other."""
ORDERED = st.one_of(
    st.builds(
        lambda kind, tools, tool, when: {"tools": tools, kind: {"tool": tool, "when": when, "success": None}},
        *(st.sampled_from(["after", "unless_after"]), NAMES, NAMES, MAY_FIT),
    ),
    st.builds(
        lambda tools, when, who: {"tools": tools, "when": when, "at_most": {"n": 1}, **who},
        *(NAMES, MAY_FIT, st.sampled_from([{}, {"agents": "boss"}])),
    ),
)
PLAIN = st.builds(
    lambda tools, action, when: {"tools": tools, "action": action, "when": when},
    *(NAMES, st.sampled_from(["allow", "deny"]), MAY_FIT),
)
FATES = st.sampled_from(["undecided", "running", "ended", "denied"])
NUMBERED = st.builds(call, NAMES, st.sampled_from(["boss", "clerk"]), n=st.sampled_from([0, 5]))


def tell(history, call, fate, at):
    """Write the facts of a call."""
    fields = {
        "session": call.session,
        "tool_name": call.tool_name,
        "labels": call.labels,
        "entry": f"{at}000-0",
    }
    tool = None if fate == "denied" else call.tool_name
    if fate != "undecided":
        decision = {"event": "decision", "id": call.id, "final_tool": tool, "final_input": call.tool_input}
        history.read({**fields, **decision})
    if fate == "ended":
        end = {"event": "tool:post", "decision_id": call.id, "success": True}
        history.read({**fields, **end})


@settings(max_examples=100)
@given(
    st.lists(ORDERED | PLAIN, min_size=1, max_size=4),
    st.sampled_from(["allow", "deny"]),
    st.lists(st.tuples(NUMBERED, FATES), min_size=2, max_size=8),
)
def test_a_policy_learns_of_every_call_that_its_rules_on_order_look_back_at(rules, default, calls):
    written = {"rules": rules, "default": default}
    try:
        config, table = check(PolicyConfig, written, "rules.yaml"), table_of(written)
    except ConfigError:  # a circle: none of these tools could ever run
        reject()
    seen_all, seen_asked = (new_history(config.order_rules) for _ in range(2))
    for at, (call, fate) in enumerate(calls, 1):
        call = call.model_copy(update={"id": f"{at:032x}", "session": "s"})
        seen_all.note_question(call, "gate", at)
        verdict = rule_on(config, call, Past(seen_all, at))
        answer = table.answer(call) if table is not None else None
        if answer is None:
            seen_asked.note_question(call, "gate", at)
            assert rule_on(config, call, Past(seen_asked, at)) == verdict
        else:
            assert answer.verdict == verdict
        if isinstance(verdict, Deny):
            seen_all.deny(call.id)
            seen_asked.deny(call.id)
            fate = "denied"
        for history in (seen_all, seen_asked):
            tell(history, call, fate, at)


def test_calls_that_a_rule_on_order_does_not_concern_are_answered():
    config = {
        "rules": [
            {"tools": "drop", "action": "deny"},
            {"tools": "read", "action": "allow", "name": "reads"},
            {"tools": "send", "unless_after": {"tool": "read", "when": {"path": {"under": "/secret"}}}},
            {"tools": "pay", "agents": "boss", "at_most": {"n": 3}},
        ]
    }
    answer = table_of(config).answer
    assert answer(call("drop")).verdict.action == "deny"
    assert answer(call("look")).is_plain
    assert answer(call("read", path="/srv/a")).verdict == Continue(reason="allowed by reads")
    assert answer(call("read", path="/secret/a")) is None  # it counts against a later send
    assert answer(call("send")) is None
    assert answer(call("pay", "clerk")) is None  # it counts, whoever makes it


@given(RULES, st.sampled_from(["allow", "deny", "ask"]), st.lists(CALLS, min_size=1, max_size=8))
def test_a_tool_whose_every_call_is_denied_has_no_call_that_may_run(rules, default, calls):
    config = {"rules": rules, "default": default}
    table = table_of(config)
    for call in calls if table is not None else ():
        if table.denies_all(call.model_copy(update={"tool_input": {}})):
            assert isinstance(rule_on(check(PolicyConfig, config, "rules.yaml"), call), Deny)


def test_only_a_tool_that_is_denied_whatever_its_arguments_is_denied_as_a_whole():
    rules = [
        {"tools": "pay", "when": {"amount": {"lt": 5}}, "action": "deny"},
        {"tools": ["pay", "drop"], "action": "deny"},
        {"tools": "move", "agent_targets": "clerk", "action": "deny"},
        {"tools": "send", "when": {"to": "*@ok.example"}, "action": "allow"},
        {"tools": "send", "action": "deny"},
        {"tools": "wipe", "action": "ask"},
        {"tools": "read", "agents": "boss", "action": "deny"},
    ]
    table = table_of({"rules": rules})
    denied = [
        tool
        for tool in ("pay", "drop", "move", "send", "wipe", "read", "look")
        if table.denies_all(call(tool))
    ]
    assert denied == ["pay", "drop"]
    assert table.denies_all(call("read", "boss"))
    assert table.denies_all(call("read", "clerk", ("boss", "clerk")))
    closed = table_of({"rules": rules, "default": "deny"})
    assert closed.denies_all(call("look"))
    assert closed.denies_all(call("move"))
    assert not closed.denies_all(call("send"))


CONFIG = {
    "rules": [
        {"tools": "delete_*", "action": "deny"},
        {"tools": "pay", "when": {"amount": {"gt": 100}}, "action": "ask"},
        {"tools": "send_mail", "when": {"to": "*@ok.example"}, "action": "allow"},
        {"tools": "send_mail", "action": "deny", "reason": "only to us", "name": "mail"},
        {"tools": "read", "agents": "boss", "action": "deny"},
    ]
}


def test_what_is_certain_is_answered_and_the_rest_is_asked():
    answer = table_of(CONFIG).answer
    assert answer(call("delete_file")).verdict == Deny(
        reason="delete_file is not allowed (rule 1)", rule_name="rule 1"
    )
    assert answer(call("look")).is_plain
    assert answer(call("pay", amount=5)).is_plain
    assert answer(call("pay", amount=500)) is None  # a person is asked
    assert answer(call("send_mail", to=["a@ok.example"])).verdict == Continue(reason="allowed by rule 3")
    assert answer(call("send_mail", to=["a@ok.example", "a@b.example"])).verdict.action == "deny"
    assert answer(call("send_mail", to="a@b.example")).verdict.reason == "only to us (mail)"
    assert answer(call("send_mail", to={"a": 1})) is None  # it cannot be compared


def test_a_call_of_an_agent_is_one_of_each_agent_above_it():
    answer = table_of(CONFIG).answer
    assert answer(call("read", "clerk")).is_plain
    denied = answer(call("read", "clerk", ("boss", "clerk"))).verdict
    assert denied.reason.endswith("(rule 5); this holds for clerk, which works for boss")


@pytest.mark.parametrize(
    "config",
    [
        {"rules": [{"tools": "pay", "action": "ask"}], "default": "ask"},
        {"rules": [{"tools": "pay", "action": "deny"}], "mode": "observe"},
        {"rules": [{"tools": f"tool_{n}_{'x' * 60}", "action": "deny"} for n in range(1000)]},
    ],
    ids=["nothing is certain", "it observes", "too large"],
)
def test_some_policies_are_asked_about_everything(config):
    assert table_of(config) is None


def test_a_rule_on_the_labels_of_a_session_is_asked_about_only_where_they_are_unknown():
    rule = {"tools": "pay", "when_session": {"source": "untrusted"}, "action": "deny"}
    answer = table_of({"rules": [rule]}).answer

    def answered(labels):
        return answer(call("pay").model_copy(update={"session_labels": labels}))

    assert answered({}).is_plain
    assert answered({"source": ("untrusted",)}).verdict.action == "deny"
    assert answered(None) is None
    assert not table_of({"rules": [rule]}).denies_all(call("pay"))


def test_a_table_compares_with_the_number_that_was_written():
    large = 2**53 + 1  # its neighbours are the next floats
    answer = table_of({"rules": [{"tools": "pay", "when": {"n": {"gt": large}}, "action": "deny"}]}).answer
    assert answer(call("pay", n=large)).is_plain
    assert answer(call("pay", n=large + 1)).verdict.action == "deny"


def test_a_rule_that_observes_has_its_policy_asked():
    config = {"rules": [{"tools": "pay", "action": "deny", "mode": "observe"}]}
    assert table_of(config).answer(call("pay")) is None


LOOKING_AHEAD = {"rules": [{"tools": ["a"], "answer": "deny", "when": {"a": {"matches": "(?=a)"}}}]}


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"[]", b"{", b'{"rules": [{}]}', b'{"default": "yes"}', b"[" * 60_000, b" " * (MAX_TABLE + 1)),
        json.dumps(LOOKING_AHEAD).encode(),
    ],
)
def test_what_is_no_table_is_refused(raw):
    with pytest.raises(CodecError):
        LocalTable.read(raw)
