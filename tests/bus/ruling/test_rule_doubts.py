"""Rules are held against the tools that living agents have: what is misspelt, mistyped, or can never fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from toolgate_bus.protocol.tool_sets import LivingTools, narrow
from toolgate_bus.ruling.conditions.argument_schemas import find_argument, possible_truths
from toolgate_bus.ruling.conditions.conditions import Condition, condition_holds
from toolgate_bus.ruling.rule_doubts import MAX_DOUBTS, RuleSubject, find_doubts

pytestmark = pytest.mark.pure

TOOLS = {
    "search": {
        "properties": {
            "query": {"type": "string"},
            "kind": {"enum": ["web", "news", "images"]},
            "page": {"type": "integer", "minimum": 1, "maximum": 10},
            "fresh": {"type": "boolean"},
        },
        "required": ["query", "page"],
    },
    "send_mail": {
        "properties": {
            "to": {"type": "array", "items": {"type": "object", "properties": {"email": {"type": "string"}}}},
            "cc": {"type": "array", "items": {"type": "string"}},
            "body": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "order.id": {"type": "string"},
            "headers": {"type": "object"},
        }
    },
    "send_money": {"properties": {"amount": {"type": "number"}, "account": {"type": "string"}}},
    "bash": None,
}
NEVER = "this condition on {} can never hold, by the schemas of the tools"
ALWAYS = "this condition on {} always holds, by the schemas of the tools"
KINDS = '"{}" is none of the values of kind ("web", "news", "images"); did you mean news?'
AMOUT = "none of send_mail, send_money has an argument amout; did you mean amount?"


def living(*names, whole=True, **more):
    tools = {name: TOOLS[name] for name in names or TOOLS} | more
    told = {name: () if schema is None else (narrow(schema),) for name, schema in tools.items()}
    return LivingTools(told, whole, 1, 0 if whole else 1)


def doubts(tools, when=None, there=None, paths=()):
    conditions = {path: Condition.model_validate(one) for path, one in (when or {}).items()}
    globs = (tools,) if isinstance(tools, str) else tools
    one = RuleSubject(("rules", 0, "tools"), globs, conditions, ("rules", 0, "when"), paths)
    return [doubt.words for doubt in find_doubts([one], there or living("search", "send_mail", "send_money"))]


@pytest.mark.parametrize(
    ("tools", "when", "said"),
    [
        ("serach", {}, "no living agent has a tool serach; did you mean search?"),
        ("Search", {}, "no living agent has a tool Search; did you mean search?"),
        ("sned_*", {}, "no living agent has a tool sned_*; did you mean send_*?"),
        ("drop_table", {}, "no living agent has a tool drop_table"),
        ("search", {"qurey": "*secret*"}, "search has no argument qurey; did you mean query?"),
        ("send_*", {"amout": {"gt": 5}}, AMOUT),
        ("search", {"query": {"gt": 100}}, "query is a text, and gt compares numbers"),
        ("send_mail", {"headers": "*x*"}, "headers is an object, and glob reads texts"),
        ("search", {"kind": "nwes"}, KINDS.format("nwes")),
        ("search", {"kind": {"in": ["web", "new"]}}, KINDS.format("new")),
        ("search", {"page": {"equals": "3"}}, 'page is a whole number, and is never "3"'),
        ("search", {"page": {"equals": 2.5}}, "page is a whole number, and is never 2.5"),
        ("search", {"query": 5}, "query is a text, and is never 5"),
        ("search", {"page": {"gt": 10}}, NEVER.format("page")),
        ("search", {"page": {"gte": 1}}, ALWAYS.format("page")),
        ("search", {"query": {"exists": True}}, ALWAYS.format("query")),
        ("search", {"query": {"exists": False}}, NEVER.format("query")),
        ("search", {"kind": "video*"}, NEVER.format("kind")),
        ("search", {"query.text": "*"}, "search has no argument query.text"),
        ("send_mail", {"to.mail": "*@x"}, "send_mail has no argument to.mail; did you mean to.email?"),
        ("send_mail", {"cc": {"gt": 1}}, "cc is a list, and gt compares numbers"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_the_tools_is_said(tools, when, said):
    assert doubts(tools, when) == [said]


@pytest.mark.parametrize(
    ("tools", "when"),
    [
        ("*", {}),
        ("send_*", {"amount": {"gt": 100}}),  # one of those that it is about has it
        (("search", "send_mail"), {"query": "*x*"}),
        ("search", {"kind": {"in": ["web", "news"]}}),
        ("search", {"kind": {"exists": True}}),
        ("search", {"page": {"gt": 5}}),
        ("search", {"fresh": True}),
        ("send_mail", {"to.email": "*@evil.example"}),
        ("send_mail", {"to.0.email": "*@evil.example"}),
        ("send_mail", {"cc": "*@evil.example"}),
        ("send_mail", {"order.id": "4*"}),
        ("send_mail", {r"order\.id": "4*"}),
        ("send_mail", {"body": {"equals": None}}),
        ("send_mail", {"headers.from": "*"}),
        ("llm:request", {"modle": "x"}),
    ],
)
def test_what_goes_with_one_of_the_tools_is_in_no_doubt(tools, when):
    assert doubts(tools, when) == []


def test_of_a_tool_without_a_schema_no_argument_is_in_doubt():
    assert doubts("bash", {"comand": "*rm*"}, living()) == []
    assert doubts(("bash", "search"), {"comand": "*rm*"}, living()) == []


def test_without_living_agents_there_is_no_doubt():
    assert find_doubts([RuleSubject((), ("serach",))], LivingTools()) == []


def test_where_agents_are_silent_what_is_missed_is_not_certain():
    subjects = [
        RuleSubject(("a",), ("serach",)),
        RuleSubject((), ("search",), {"qurey": Condition.model_validate("x")}, ("b",)),
        RuleSubject((), ("sear*",), {"qurey": Condition.model_validate("x")}, ("c",)),
    ]
    found = find_doubts(subjects, living("search", whole=False))
    assert [(one.place, one.certain) for one in found] == [
        (("a",), False),
        (("b", "qurey"), True),  # whatever others have, this tool is known
        (("c", "qurey"), False),
    ]


def test_an_argument_that_is_looked_at_without_a_condition_is_named_too():
    assert doubts("send_mail", paths=[(("to",), "$.recipients")]) == [
        "send_mail has no argument $.recipients"
    ]
    assert doubts("send_mail", paths=[(("to",), "to.email")]) == []


def test_doubts_are_bounded():
    subjects = [RuleSubject((number,), (f"tool_{number}",)) for number in range(1000)]
    assert len(find_doubts(subjects, living())) == MAX_DOUBTS


LEAVES = {
    "text": ({"type": "string"}, st.text(max_size=3) | st.sampled_from(["5", "web"])),
    "whole": ({"type": "integer", "minimum": -3, "maximum": 3}, st.integers(-3, 3)),
    "above": ({"type": "integer", "exclusiveMinimum": 0}, st.integers(1, 5)),
    "number": ({"type": "number", "exclusiveMaximum": 2}, st.floats(-3, 1.5)),
    "truth": ({"type": "boolean"}, st.booleans()),
    "choice": ({"enum": ["web", 1, None]}, st.sampled_from(["web", 1, None])),
    "maybe": ({"anyOf": [{"type": "string"}, {"type": "null"}]}, st.none() | st.text(max_size=2)),
    "map": ({"type": "object"}, st.dictionaries(st.text(max_size=1), st.integers(), max_size=2)),
}
some = st.sampled_from(["web", "5", 1, 2.5, True, None, 0, -3, {}, "*", "w*"])
tests = st.fixed_dictionaries(
    {},
    optional={
        "equals": some,
        "in": st.lists(some, min_size=1, max_size=3),
        "glob": st.sampled_from(["*", "w*", "5"]),
        "gt": st.integers(-4, 4),
        "gte": st.integers(-4, 4),
        "lt": st.integers(-4, 4),
        "lte": st.integers(-4, 4),
        "exists": st.booleans(),
    },
)


@given(st.sampled_from(sorted(LEAVES)), tests, st.data())
def test_what_is_said_to_be_impossible_happens_to_no_value_of_the_schema(kind, written, data):
    schema, values = LEAVES[kind]
    try:
        condition = Condition.model_validate(written)
    except ValidationError:
        return
    place = find_argument("a", [narrow({"properties": {"a": schema}, "required": ["a"]})])
    truth = condition_holds(condition, data.draw(values))
    assert truth is None or truth in possible_truths(condition, place)
