"""What callers of a sidecar send is bounded, and refused by the name of the field; what it answers fits
its description."""

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.protocol.events import AskUser, Decision
from toolgate_orchestrator.commands.serve.pages import describe
from toolgate_orchestrator.commands.serve.problems import Problem
from toolgate_orchestrator.commands.serve.requests import (
    DecideRequest,
    ReportRequest,
    TurnRequest,
    UsageRequest,
    WaitRequest,
)
from toolgate_orchestrator.commands.serve.routes import PAGES, ROUTES, read_body
from toolgate_orchestrator.commands.serve.rulings import body_of_question, body_of_ruling, denial_body

pytestmark = pytest.mark.pure

MODELS = (DecideRequest, ReportRequest, TurnRequest, UsageRequest, WaitRequest)
ID = "ab" * 16
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
)


def bodies_of(model):
    """Mappings that have the model's names, with anything in them."""
    return st.dictionaries(st.sampled_from([*model.model_fields, "other"]), values, max_size=8)


@given(st.sampled_from(MODELS).flatmap(lambda model: st.tuples(st.just(model), values | bodies_of(model))))
def test_any_json_is_read_or_refused_as_a_bad_request(case):
    model, value = case
    problem = None
    try:
        read_body(model, value)
    except Problem as found:
        problem = found
    assert problem is None or (problem.status == 400 and problem.detail)


@pytest.mark.parametrize(
    ("model", "body", "words"),
    [
        (DecideRequest, {}, "tool: "),
        (DecideRequest, {"tool": "a", "argument": {}}, "argument: unknown key; allowed: "),
        (DecideRequest, {"tool": "a", "arguments": []}, "arguments: Input should be a mapping"),
        (DecideRequest, {"tool": "x" * 257}, "tool: "),
        (DecideRequest, {"tool": "a", "timeout_ms": 0}, "timeout_ms: "),
        (DecideRequest, {"tool": "a", "can": ["fly"]}, "can.0: "),
        (DecideRequest, {"tool": "a", "session": 7}, "session: "),
        (ReportRequest, {"id": "zz", "outcome": "succeed"}, "id: "),
        (ReportRequest, {"id": ID, "outcome": "done"}, "outcome: "),
        (ReportRequest, {"id": ID, "outcome": "succeed", "cost_usd": "1e999999"}, "cost_usd: not an amount"),
        (ReportRequest, {"id": ID, "outcome": "succeed", "cost_usd": -1}, "cost_usd: not an amount"),
        (ReportRequest, {"id": ID, "outcome": "succeed", "cost": 1, "cost_usd": 1}, "give one of them"),
        (UsageRequest, {"provider": "a", "input_tokens": -1}, "input_tokens: "),
        (TurnRequest, {"session": "", "do": "begin"}, "session: "),
    ],
)
def test_what_is_wrong_is_named_and_no_value_is_shown(model, body, words):
    with pytest.raises(Problem) as refused:
        read_body(model, {**body, "agent": "secret-value"} if model is DecideRequest else body)
    assert words in refused.value.detail
    assert "secret-value" not in refused.value.detail


@pytest.mark.parametrize(
    ("told", "amount"), [("0.0125", 12_500), (0.0125, 12_500), (2, 2_000_000), ("0.0000001", 1)]
)
def test_a_cost_in_dollars_counts_in_micro_units_and_never_as_less(told, amount):
    asked = read_body(ReportRequest, {"id": ID, "outcome": "succeed", "cost_usd": told})
    assert asked.amount == amount
    assert read_body(ReportRequest, {"id": ID, "outcome": "succeed", "cost": 7}).amount == 7


# ---------------------------------------------------------------------- the description


def schema_of(name):
    """The schema of a response as a validator reads it."""
    document = json.loads(json.dumps(describe("0")))
    return {"$ref": f"#/components/schemas/{name}", "components": document["components"]}


def decision(**fields):
    made = Decision(ID, "continue", "agreed", "run", {"a": 1}, "run", {"a": 1})
    return made._replace(**fields)


@pytest.mark.parametrize(
    "body",
    [
        body_of_ruling(decision()),
        body_of_ruling(decision(outcome="modify", why="modified", tool_name="other", scheduler="router")),
        body_of_ruling(decision(outcome="deny", why="denied", reason="no", scheduler="policy")),
        body_of_ruling(decision(outcome="deny", why="silent")),
        body_of_ruling(decision(outcome="ask", why="pending", token="t", prompt=AskUser(prompt="May it?"))),
        denial_body("run", {}, "expired", "late"),
        body_of_question("run", {}, "token", "held by approval"),
    ],
    ids=lambda body: body["outcome"],
)
def test_each_kind_of_ruling_fits_its_description(body):
    plain = json.loads(json.dumps(body))
    jsonschema.validate(plain, schema_of("RulingResponse"))
    assert (plain["refusal"] is not None) is (plain["outcome"] == "deny")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**plain, "outcome": "perhaps"}, schema_of("RulingResponse"))


def test_the_description_has_each_path_and_each_schema_that_it_names():
    document = json.loads(json.dumps(describe("1.2")))
    assert set(document["paths"]) == {*ROUTES, *PAGES, "/hooks/{client}"} or set(document["paths"]) == {
        *ROUTES,
        *PAGES,
    }
    named = {
        part["$ref"].rpartition("/")[2]
        for part in walk(document)
        if isinstance(part, dict) and "$ref" in part
    }
    assert named <= set(document["components"]["schemas"])
    assert {"DecideRequest", "RulingResponse", "ProblemResponse"} <= named
    described = document["components"]["schemas"]["DecideRequest"]["properties"]
    assert all("description" in one for one in described.values())
    ids = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len(ids) == len(set(ids))


def walk(value):
    """A value and all that is in it."""
    yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(inner)
