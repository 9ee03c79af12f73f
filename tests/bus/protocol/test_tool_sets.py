"""Sets of tools travel as they are told; what a hostile process writes is bounded, and narrowed again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.protocol.agents import encode_agents, find_tool_digest
from toolgate_bus.protocol.packing import pack
from toolgate_bus.protocol.tool_sets import (
    ANYTHING,
    MAX_SET,
    MAX_TOOLS,
    MAX_VARIANTS,
    ToolSet,
    decode_tools,
    digest_tools,
    encode_tools,
    merge_tools,
    narrow,
)

pytestmark = pytest.mark.pure

SEARCH = {
    "type": "object",
    "title": "Search",
    "description": "Searches the web with the key sk-123.",
    "properties": {
        "query": {"type": "string", "description": "what to look for", "default": "secret"},
        "kind": {"enum": ["web", "news"]},
        "page": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        "where": {"$ref": "#/$defs/Place"},
    },
    "required": ["query"],
    "$defs": {"Place": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
keywords = st.sampled_from(
    ["type", "properties", "$ref", "allOf", "anyOf", "enum", "items", "required", "const"]
)
schemas = st.recursive(
    st.just({"type": "string"}) | st.just({"$ref": "#"}) | values,
    lambda inner: st.dictionaries(keywords, inner | st.lists(inner) | st.dictionaries(st.text(), inner)),
    max_leaves=20,
)


def read(raw):
    return decode_tools(digest_tools(raw), raw)


def test_a_schema_is_narrowed_to_the_values_that_there_may_be():
    found = narrow(SEARCH)
    assert found["required"] == ["query"]
    assert found["additionalProperties"] is False
    assert found["properties"]["query"] == {"type": ["string"]}
    assert found["properties"]["kind"] == {"enum": ["web", "news"]}
    assert found["properties"]["page"]["anyOf"] == [{"type": ["integer"], "minimum": 1}, {"type": ["null"]}]
    assert found["properties"]["where"]["properties"] == {"city": {"type": ["string"]}}
    assert "sk-123" not in str(found), "descriptions stay where they are"
    assert "secret" not in str(found), "so do defaults"


@given(schemas)
def test_any_schema_is_narrowed_and_narrowed_again_it_stays_so(schema):
    found = narrow(schema)
    assert narrow(found) == found
    assert read(encode_tools(ToolSet({"t": (found,)}))) == ToolSet({"t": (found,)})


def test_a_schema_that_leads_round_in_a_circle_ends_in_anything():
    tree = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    found = narrow(tree)
    while found:
        found = found["properties"]["left"]
    assert narrow({"$ref": "#"}) == narrow({"allOf": [{"$ref": "#"}]}) == ANYTHING


def test_a_set_is_read_as_it_was_told():
    told = ToolSet({"search": (narrow(SEARCH),), "bash": ()}, whole=False)
    assert read(encode_tools(told)) == told


def test_bytes_of_another_digest_are_no_set():
    raw, other = encode_tools(ToolSet({"search": ()})), encode_tools(ToolSet({"serach": ()}))
    assert decode_tools(digest_tools(raw), other) is None


@given(values)
def test_what_is_no_set_is_none_and_raises_nothing(value):
    entries = (value, ["t", value], ["t", [value]])
    for told in (value, {"tools": value}, *({"tools": [one]} for one in entries)):
        try:
            raw = pack(told)
        except Exception:  # noqa: BLE001 - msgpack has no word for it
            continue
        found = read(raw)
        assert found is None or all(len(schemas) <= MAX_VARIANTS for schemas in found.tools.values())


def test_a_set_is_no_longer_than_is_read_and_says_that_it_is_not_whole():
    wide = narrow({"properties": {f"argument_{number}": {"type": "string"} for number in range(100)}})
    raw = encode_tools(ToolSet({f"tool_{number:04}": (wide,) for number in range(MAX_TOOLS + 5)}))
    assert len(raw) <= MAX_SET
    found = read(raw)
    assert found is not None
    assert len(found.tools) == MAX_TOOLS
    assert not found.whole
    assert found.tools["tool_0000"] == (wide,)
    assert found.tools["tool_0500"] == (), "its name is told, and no schema"


def test_sets_of_several_processes_are_merged():
    one, other = narrow({"properties": {"a": {}}}), narrow({"properties": {"b": {}}})
    found = merge_tools([ToolSet({"t": (one,), "u": ()}), ToolSet({"t": (other,), "u": (one,)})], 2, 1)
    assert found.tools == {"t": (one, other), "u": ()}
    assert (found.processes, found.silent, found.whole) == (2, 1, False)


def test_a_heartbeat_names_the_digest():
    digest = digest_tools(b"")
    assert find_tool_digest(encode_agents([], (), digest)) == digest
    assert find_tool_digest(encode_agents([])) == ""
    for wrong in ("x" * 32, digest + "0", 7, ["a"], "../../etc"):
        assert find_tool_digest(pack({"pages": [], "tools": wrong})) == ""
    assert find_tool_digest(b"\xc1") == ""
