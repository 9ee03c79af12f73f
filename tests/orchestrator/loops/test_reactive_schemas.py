"""What the LLM is offered, what its arguments must fit, and what an error says."""

import copy
from typing import Any

import jsonschema
import pytest
from amplifier_core import ToolSpec
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.errors import ConfigError
from toolgate_bus.telemetry import metrics
from toolgate_orchestrator.decision.question.schema_check import Checker, Uncheckable
from toolgate_orchestrator.loops.reactive import LoopReactive
from toolgate_orchestrator.loops.reactive_engine.output import Goal
from toolgate_orchestrator.loops.reactive_engine.readiness import Readiness
from toolgate_orchestrator.loops.reactive_engine.schemas import OfferedTool, final_output_spec, offer, widen
from toolgate_orchestrator.loops.reactive_engine.state import Data
from toolgate_orchestrator.loops.reactive_engine.tick import accept_call, arrive, misfit
from toolgate_orchestrator.turn.values.messages import ToolCall

pytestmark = pytest.mark.pure

ADD = {
    "type": "object",
    "properties": {"x": {"type": "integer", "description": "the first"}, "y": {"type": "integer"}},
    "required": ["x", "y"],
    "additionalProperties": False,
}
ORDERS = {
    "type": "object",
    "properties": {
        "orders": {
            "type": "array",
            "items": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        },
        "extra": {"type": "object", "additionalProperties": {"$ref": "#/$defs/size"}},
    },
    "$defs": {"size": {"enum": ["s", "l"]}},
}


class Tool:
    def __init__(self, schema: dict[str, Any]) -> None:
        self.description, self.input_schema = "A tool", schema


def offered(schema: dict[str, Any]) -> OfferedTool:
    return offer({"t": Tool(schema)})["t"]


def looked_over(schema: dict[str, Any], arguments: dict[str, Any], data: Data | None = None) -> Any:
    """What is wrong with a call on arrival."""
    tools = offer({"t": Tool(schema)})
    return arrive(ToolCall("c1", "t", arguments), None, 0, tools, data or Data()).error


# ---------------------------------------------------------------- the widened schema


def test_any_property_may_be_a_reference_and_every_call_may_say_where_its_result_goes() -> None:
    parameters = offered(ADD).spec.parameters
    reference = {"type": "string", "pattern": "^†"}
    assert parameters["properties"]["y"] == {"anyOf": [{"type": "integer"}, reference]}
    assert parameters["properties"]["x"]["description"] == "the first"
    assert parameters["properties"]["_outputPath"]["pattern"].startswith("^†state")
    assert parameters["required"] == ["x", "y"]


def test_what_lies_deeper_may_be_a_reference_too() -> None:
    check = jsonschema.Draft202012Validator(offered(ORDERS).spec.parameters)
    for arguments in (
        {"orders": "†state.all"},
        {"orders": ["†state.one", {"n": 1}, {"n": "†state.n"}]},
        {"extra": {"a": "l", "b": "†state.size"}},
        {"orders": [], "_outputPath": "†state.x.y"},
    ):
        check.validate(arguments)
    for arguments in ({"orders": [{"n": "one"}]}, {"extra": {"a": "m"}}, {"_outputPath": "state.x"}):
        assert not check.is_valid(arguments)


def test_a_tools_own_schema_is_never_touched() -> None:
    schema = copy.deepcopy(ORDERS)
    tool = Tool(schema)
    offer({"t": tool})
    final_output_spec("final_output", schema)
    assert tool.input_schema is schema
    assert schema == ORDERS


def test_a_tool_that_has_an_output_path_of_its_own_keeps_it() -> None:
    own = {"type": "object", "properties": {"_outputPath": {"type": "string"}}, "required": ["_outputPath"]}
    tool = offered(own)
    assert not tool.writes
    assert "description" not in tool.spec.parameters["properties"]["_outputPath"]
    arrival = arrive(ToolCall("c1", "t", {"_outputPath": "/tmp/x"}), None, 0, {"t": tool}, Data())
    assert arrival.error is None
    assert arrival.arguments == {"_outputPath": "/tmp/x"}
    assert arrival.needs.writes is None


def test_a_tool_without_a_schema_takes_anything() -> None:
    assert looked_over({}, {"any": ["thing", "†state.x"], "_outputPath": "†state.y"}) is None


def test_a_schema_whose_own_references_would_break_is_shown_as_it_is() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"properties": {"b": {"type": "integer"}}},
            "c": {"$ref": "#/properties/a/properties/b"},
        },
    }
    tool = offered(schema)
    assert tool.spec.parameters["properties"]["a"] == schema["properties"]["a"]
    assert "_outputPath" in tool.spec.parameters["properties"]
    assert looked_over(schema, {"c": "†state.x"}) is None
    assert looked_over(schema, {"c": "three"})["message"] == "c: 'three' is not of type 'integer'"


# ---------------------------------------------------------------- errors on arrival and at launch


def test_a_wrong_literal_is_found_on_arrival_and_named() -> None:
    error = looked_over(ADD, {"x": 2, "y": "three"})
    assert error == {
        "phase": "structural",
        "type": "schema_validation",
        "message": "y: 'three' is not of type 'integer'",
    }


def test_a_wrong_literal_beside_a_reference_is_named_just_as_well() -> None:
    assert (
        looked_over(ADD, {"x": "†state.a", "y": "three"})["message"] == "y: 'three' is not of type 'integer'"
    )
    error = looked_over(ORDERS, {"orders": ["†state.o", {"n": "one"}]})
    assert error["message"] == "orders.1.n: 'one' is not of type 'integer'"


def test_everything_that_is_wrong_is_said_at_once() -> None:
    message = looked_over(ADD, {"x": "two", "z": 1})["message"]
    assert "x: 'two' is not of type 'integer'" in message
    assert "'y' is a required property" in message
    assert "'z' was unexpected" in message


def test_a_reference_may_not_stand_for_a_missing_argument() -> None:
    assert "'y' is a required property" in looked_over(ADD, {"x": "†state.a"})["message"]


def test_a_value_of_the_wrong_type_is_found_when_the_call_starts() -> None:
    assert misfit(offered(ADD).original, {"x": 1, "y": 2}) is None
    error = misfit(offered(ADD).original, {"x": 1, "y": {"n": 2}})
    assert error is not None
    assert error["message"] == "y: {'n': 2} is not of type 'integer'"


@pytest.mark.parametrize(
    "schema",
    [
        {"oneOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"type": "string"}}}]},
        {"not": {"properties": {"a": {"type": "string"}}}},
        {"if": {"properties": {"a": {"type": "integer"}}}, "else": {"required": ["b"]}},
        {"properties": {"a": {"contains": {"type": "integer"}, "type": "array"}}},
        {"properties": {"a": {"enum": [[1, 2], [3]]}}},
        {"properties": {"a": {"const": {"b": 1}}}},
        {"properties": {"a": {"uniqueItems": True}}},
    ],
)
def test_nothing_is_refused_on_arrival_that_could_fit_in_the_end(schema: dict[str, Any]) -> None:
    for value in ("†state.x", ["†state.x", "†state.x"], {"b": "†state.x"}):
        assert looked_over({"type": "object", **schema}, {"a": value}) is None or isinstance(
            value, dict | list
        )
    assert looked_over({"type": "object", **schema}, {"a": "†state.x"}) is None


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "bb"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)
schemas = st.recursive(
    st.sampled_from(
        [
            *({"type": kind} for kind in ("string", "integer", "boolean", "null", "array", "object")),
            {"enum": ["a", 1]},
            {"const": [1]},
            {"minimum": 0},
            {"maxLength": 1},
            {"uniqueItems": True},
            {"minItems": 1},
            True,
        ]
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2)}),
        st.fixed_dictionaries({"items": inner}),
        st.fixed_dictionaries({"additionalProperties": inner}),
        *(
            st.fixed_dictionaries({key: st.lists(inner, min_size=1, max_size=2)})
            for key in ("anyOf", "allOf", "oneOf", "prefixItems")
        ),
        *(st.fixed_dictionaries({key: inner}) for key in ("not", "contains", "if", "propertyNames")),
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from("ab"), schemas, max_size=2), values, st.data())
def test_whatever_fits_a_schema_fits_the_lenient_one_with_references_in_it(
    properties: Any, value: Any, data: Any
) -> None:
    schema = {"properties": properties, "type": "object"}
    arguments = {"a": value}
    if not jsonschema.Draft202012Validator(schema).is_valid(arguments):
        return
    with_references = {"a": masked(value, data.draw)}
    assert jsonschema.Draft202012Validator(widen(schema, lenient=True)).is_valid(with_references)


def masked(value: Any, draw: Any) -> Any:
    """The value with references in some places."""
    if draw(st.booleans()):
        return "†state.x"
    if isinstance(value, list):
        return [masked(item, draw) for item in value]
    if isinstance(value, dict):
        return {key: masked(item, draw) for key, item in value.items()}
    return value


# ---------------------------------------------------------------- the final output


def test_the_output_tool_takes_the_output_null_or_a_reference() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"type": "integer"}},
    }
    spec = final_output_spec("final_output", schema)
    assert isinstance(spec, ToolSpec)
    check = jsonschema.Draft202012Validator(spec.parameters)
    for output in ({"n": 1}, {"n": "†state.n"}, None, "†state.all"):
        check.validate({"output": output})
    for arguments in ({}, {"output": 1}, {"output": {"n": "one"}}):
        assert not check.is_valid(arguments)


def test_an_output_schema_that_refers_to_itself_is_told_in_words() -> None:
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    spec = final_output_spec("final_output", schema)
    assert '{"$ref": "#"}' in (spec.description or "")
    goal = Goal("final_output", schema)
    bad = ToolCall("f", "final_output", {"output": {"next": {"next": 1}}})
    output = goal.output(bad, Data(), Readiness(lambda _: False))
    assert output.error is not None
    assert output.error["message"] == "output.next.next: 1 is not of type 'object'"


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ({"type": "strin"}, r"output_schema: .*is not a JSON Schema: 'strin'"),
        ({"properties": []}, r"output_schema: .*is not a JSON Schema: \[\]"),
        ({"$ref": "#"}, "can be applied"),
        ({"$ref": "https://example.invalid/s.json"}, "must stay within"),
        ({"allOf": [{"$ref": "other.json"}]}, "must stay within"),
        ({"$ref": "#/$defs/none"}, "can be applied"),
    ],
)
def test_an_output_schema_that_cannot_be_applied_is_refused_by_name(schema: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        LoopReactive({"output_schema": schema})


def test_one_call_after_another_is_refused_with_the_reason() -> None:
    assert LoopReactive({"parallel_tools": True}).settings.parallel_tools
    with pytest.raises(ConfigError, match="starts every call as soon as"):
        LoopReactive({"parallel_tools": False})


def test_an_unknown_key_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"outputs: unknown key; allowed: .*output_schema"):
        LoopReactive({"outputs": {}})


# ---------------------------------------------------------------- hostile schemas and arguments


def bomb(levels: int) -> dict[str, Any]:
    """A schema that doubles its work with every level."""
    defs: dict[str, Any] = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)
    } | {f"d{levels}": {"type": "object"}}
    return {"$defs": defs, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    "schema",
    [
        bomb(40),
        {"$ref": "#"},
        {"$dynamicRef": "#"},
        {"properties": {"x": {"$ref": "https://example.invalid/evil.json"}}},
        {"properties": {"x": {"$ref": "file:///etc/passwd"}}},
        {"properties": {"x": {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#"}}},
        {"type": "nonsense"},
        {"properties": 5},
        {"required": 7},
    ],
)
def test_a_hostile_schema_neither_hangs_nor_fetches_nor_crashes(schema: dict[str, Any]) -> None:
    for _ in range(2):
        with pytest.raises(Uncheckable):
            Checker(schema).problems({"x": "a" * 40})
    assert misfit(offered(schema).original, {"x": "a"}) is None
    assert looked_over(schema, {"x": "†state.x"}) is None


@pytest.mark.parametrize("pattern", ["(", "(?=a)b", r"(a)\1"])
def test_a_pattern_that_the_engine_does_not_know_is_not_applied_and_counted(pattern: str) -> None:
    skipped = metrics.SKIPPED_PATTERNS.series.get((), 0)
    schema = {"properties": {"x": {"pattern": pattern, "maxLength": 9}, "y": {"pattern": "^(b+)+$"}}}
    assert Checker(schema).problems({"x": "anything", "y": "bb"}) == []
    assert len(Checker(schema).problems({"x": "a" * 10, "y": 1000 * "b" + "!"})) == 2
    assert metrics.SKIPPED_PATTERNS.series[()] == skipped + 2


@pytest.mark.filterwarnings("ignore")
def test_no_schema_makes_anything_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[Any] = []
    monkeypatch.setattr("urllib.request.urlopen", lambda *args, **_: fetched.append(args))
    with pytest.raises(Uncheckable):
        Checker({"$ref": "https://example.invalid/evil.json"}).problems({})
    assert fetched == []


def test_a_schema_too_large_to_look_over_is_not_applied() -> None:
    with pytest.raises(Uncheckable, match="too large"):
        Checker({"properties": {f"p{n}": {"type": "integer"} for n in range(20_001)}}).problems({})


def test_a_message_stays_short_whatever_the_value() -> None:
    message = looked_over(ADD, {"x": 1, "y": "z" * 1_000_000})["message"]
    assert len(message) < 400


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"x": nested(60)}, "nested more than 48 levels"),
        ("[" * 100_000, "not valid JSON"),
        ('{"x": ' + "[" * 5_000 + "]" * 5_000 + "}", "not valid JSON"),
        ({"x": list(range(30_000))}, "too large"),
        ({"x": "y" * 5_000_000}, "too large"),
        ({"y" * 5_000_000: 1}, "too large"),
        ("{bad", "not valid JSON"),
        ("[1]", "must be a JSON object"),
        (5, "must be a JSON object"),
    ],
)
def test_arguments_that_are_too_much_or_none_are_refused_and_left_out(arguments: Any, problem: str) -> None:
    call, raw = accept_call({"id": "c1", "name": "t", "arguments": arguments}, {}, "g", 1)
    assert call.arguments == {}
    assert call.group == "g"
    arrival = arrive(call, raw, 0, offer({"t": Tool(ADD)}), Data())
    assert arrival.error is not None
    assert arrival.error["type"] == "invalid_arguments"
    assert problem in arrival.error["message"]
    assert arrival.raw is not None


def test_an_id_that_is_taken_gets_a_suffix() -> None:
    taken = {"c1": 1, "c1_2": 1}
    call, _ = accept_call({"id": "c1", "name": "t"}, taken, "", 1)
    assert call.id == "c1_3"


def test_calls_beyond_all_measure_are_refused() -> None:
    arrival = arrive(ToolCall("c1", "t"), None, 256, offer({"t": Tool({})}), Data())
    assert arrival.error is not None
    assert arrival.error["type"] == "too_many_calls"


def test_references_beyond_all_measure_are_refused() -> None:
    error = looked_over({}, {"x": [f"†state.x{n}" for n in range(257)]})
    assert error["type"] == "invalid_reference"
