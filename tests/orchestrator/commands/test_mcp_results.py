"""What a client of MCP gets of a ruled result: nothing hidden in any copy, and always the protocol's form."""

import json

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.protocol.events import MaskedPart
from toolgate_bus.ruling.results import mask_parts
from toolgate_orchestrator.calls.result_parts import describe_data, read_cut
from toolgate_orchestrator.commands.mcp.results import (
    given_error,
    given_read,
    given_result,
    value_of,
    value_of_error,
)
from toolgate_orchestrator.decision.results.given_result import GivenResult, cut_mark, withhold

pytestmark = pytest.mark.pure

SECRET = "key-abc123"
SUM = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
NAMED = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
DATA = "iVBO" * 50
IMAGE = {"type": "image", "data": DATA, "mimeType": "image/png"}
FILE = {"type": "resource", "resource": {"uri": "note://one", "blob": DATA, "mimeType": "a/b"}}
PICTURE = {"uri": f"note://{SECRET}", "blob": DATA, "mimeType": "image/png"}


def text(words, **more):
    return {"type": "text", "text": words, **more}


def masked(result, *parts):
    """The ruling that hides these parts of it."""
    value = value_of(result)
    made = mask_parts(value, [MaskedPart(*one) for one in parts])
    return GivenResult(made.value, "masked", "masked", "kept", "policy", made.hidden)


def check(result):
    """That the official SDK takes it; gives it as it is written."""
    types.CallToolResult.model_validate(result)
    return json.dumps(result)


def test_a_result_of_which_nothing_was_hidden_is_the_servers_own_object():
    result = {"content": [text("hello"), IMAGE], "structuredContent": {"a": 1}, "_meta": {"b": 2}}
    assert given_result(result, GivenResult(value_of(result)), None) is result


def test_both_copies_and_what_is_told_beside_them_are_masked_together():
    result = {
        "content": [text(f"name: {SECRET}"), text("beside", annotations={"priority": 0.5})],
        "structuredContent": {"name": SECRET, "more": [f"{SECRET}!"]},
        "_meta": {"trace": SECRET},
        "isError": False,
    }
    seen = given_result(result, masked(result, ("/content/0/text", 6, 16, "key")), None)
    assert SECRET not in check(seen)
    assert seen["content"] == [text("name: [withheld: key]"), result["content"][1]]
    assert seen["structuredContent"] == {"name": "[withheld]", "more": ["[withheld]!"]}
    assert seen["isError"] is False


def test_data_are_told_by_type_and_size_and_are_not_given_where_anything_is_hidden():
    result = {"content": [text(SECRET), IMAGE, FILE]}
    value = value_of(result)
    assert DATA not in json.dumps(value)
    assert value["content"][1]["data"] == "[image/png, 150 bytes, not shown to rules]"
    seen = given_result(result, masked(result, ("/content/0/text", None, None, "")), None)
    assert DATA not in check(seen)
    assert [one["type"] for one in seen["content"]] == ["text", "text", "text"]
    assert "image/png, 150 bytes" in seen["content"][1]["text"]


@pytest.mark.parametrize("failed", [True, False])
def test_a_withheld_result_is_one_sentence_and_stays_a_success_or_a_failure(failed):
    result = {"content": [text(SECRET)], "structuredContent": {"a": SECRET}, "_meta": {"a": SECRET}}
    result |= {"isError": failed, "resultType": "complete"}
    seen = given_result(result, withhold("denied", "not yours", "policy"), None)
    words = "The tool ran, but its result is withheld: not yours"
    assert seen == {"content": [text(words)], "isError": failed, "resultType": "complete"}
    check(seen)


def test_a_replaced_result_is_one_text():
    for value, words in (("other", "other"), ({"a": [1]}, '{"a": [1]}')):
        seen = given_result({"content": [IMAGE]}, GivenResult(value, "replaced", "replaced"), None)
        assert seen == {"content": [text(words)]}


@pytest.mark.parametrize(
    ("schema", "structured", "part", "kept"),
    [
        (NAMED, {"name": SECRET}, ("/structuredContent/name", None, None, "key"), True),
        (SUM, {"sum": 12345}, ("/structuredContent/sum", None, None, "key"), False),
        (NAMED, {"name": SECRET}, ("/structuredContent", None, None, "key"), False),
        (
            {"$ref": "https://example.org/other"},
            {"name": SECRET},
            ("/structuredContent/name", None, None, ""),
            False,
        ),
    ],
)
def test_a_promise_of_form_is_kept_or_the_result_is_an_error(schema, structured, part, kept):
    result = {"content": [text("see there")], "structuredContent": structured}
    seen = given_result(result, masked(result, part), schema)
    assert ("structuredContent" in seen, seen.get("isError", False)) == (kept, not kept)
    check(seen)
    withheld = given_result(result, withhold("denied", "no"), schema)
    assert withheld["isError"] is True


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (("/content/0/uri", None, None, "link"), "[withheld: link]"),
        (("/content/0", None, None, "link"), "[withheld: link]"),
        (("/content/0/name", 0, 3, "link"), "[withheld: link]es"),
    ],
)
def test_a_block_that_is_no_text_becomes_one_where_it_is_changed(part, words):
    result = {"content": [{"type": "resource_link", "uri": "note://one", "name": "notes"}]}
    seen = given_result(result, masked(result, part), None)
    assert seen["content"][0]["type"] == "text"
    assert words in seen["content"][0]["text"]
    check(seen)


def test_fields_that_the_protocol_does_not_know_are_ruled_on_as_well():
    result = {"content": [], "toolResult": {"a": SECRET}, "_meta": {}}
    assert value_of(result) == {"content": [], "toolResult": {"a": SECRET}}
    seen = given_result(result, masked(result, ("/toolResult/a", None, None, "")), None)
    assert SECRET not in json.dumps(seen)


def cut(value, size):
    """The ruling of the gate on a value that is longer than may be sent."""
    whole = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    sent = whole.encode()[:size].decode(errors="ignore")
    return GivenResult(sent + cut_mark(len(whole.encode()) - size), "masked", "masked", is_cut=True)


def test_a_result_that_is_hidden_whole_is_its_mark():
    given = GivenResult("[withheld: a key]", "masked", "masked")
    assert given_result({"content": [text(SECRET)]}, given, None) == {"content": [text("[withheld: a key]")]}


def test_of_a_long_result_the_part_that_was_ruled_on_is_given_as_texts():
    result = {"content": [text("first"), text("x" * 100 + '"é\\' * 50)], "structuredContent": {"a": SECRET}}
    seen = given_result(result, cut(value_of(result), 170), None)
    check(seen)
    first, second, mark = seen["content"]
    assert first == text("first")
    assert second["text"].startswith("x" * 80)
    assert result["content"][1]["text"].startswith(second["text"])
    assert "which no rule has seen" in mark["text"]
    assert "structuredContent" not in seen
    assert given_result(result, cut(value_of(result), 170), NAMED)["isError"] is True
    backwards = {"content": [{"text": "x" * 100, "type": "text"}]}
    first, _ = given_result(backwards, cut(value_of(backwards), 70), None)["content"]
    assert (first["type"], set(first["text"])) == ("text", {"x"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('ab"\\\né🙂', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab\\", max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def begins(part, whole):
    """Whether the one is the beginning of the other."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            name in whole and begins(one, whole[name]) for name, one in part.items()
        )
    if isinstance(part, list):
        return isinstance(whole, list) and all(map(begins, part, whole)) and len(part) <= len(whole)
    if isinstance(part, str):
        return isinstance(whole, str) and whole.startswith(part)
    if isinstance(part, int) and not isinstance(part, bool):
        return str(whole).startswith(str(part))  # half a number
    return part == whole


@given(st.dictionaries(st.text("ab", max_size=3), JSON, max_size=4), st.integers(1, 60))
def test_what_is_read_of_a_value_that_was_cut_is_its_beginning(value, size):
    found, mark = read_cut(cut(value, size).value)
    assert found is None or begins(found, value)
    assert "cut off here" in mark


@given(JSON)
def test_a_value_without_data_is_told_as_it_is(value):
    assert describe_data(value) is value


PAGE = {"filePath": "/a.pdf", "base64": DATA, "originalSize": 150}
SHOWN = {"stdout": f"data:image/png;base64,{DATA}", "stderr": "", "isImage": True}


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        (IMAGE, "image/png"),
        ({**IMAGE, "mimeType": "IMAGE/JPEG"}, "IMAGE/JPEG"),
        (
            {"type": "audio", "data": DATA[:-4] + "iV==", "mimeType": "audio/L16; rate=16000"},
            "audio/L16; rate",
        ),
        (FILE, "a/b"),
        (PICTURE, "image/png"),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
            "image/png",
        ),
        ({"type": "image", "file": {"base64": DATA, "type": "image/png", "originalSize": 9}}, "image/png"),
        ({"type": "pdf", "file": PAGE}, "application/pdf"),
        (SHOWN, "image/png"),
    ],
)
def test_data_in_the_form_of_their_protocol_are_told_by_type_and_size(block, kind):
    (told,) = describe_data([block])
    assert DATA[:-4] not in json.dumps(told)
    assert f"[{kind}" in json.dumps(told)


WORDS_IN_PLACE_OF_DATA = f"a {SECRET} " + "and more words" * 20
BARE_KEY = "AKIAIOSFODNN7EXAMPLE"  # all of its letters are those of Base64


@pytest.mark.parametrize("words", [WORDS_IN_PLACE_OF_DATA, BARE_KEY, DATA[:-1], DATA + "\n", "=" * 200])
@pytest.mark.parametrize(
    "make",
    [
        lambda words: {**IMAGE, "data": words},
        lambda words: {"type": "resource", "resource": {**FILE["resource"], "blob": words}},
        lambda words: {"type": "image", "file": {"base64": words, "type": "image/png"}},
        lambda words: {"type": "pdf", "file": {**PAGE, "base64": words}},
        lambda words: {**SHOWN, "stdout": words},
        lambda words: {**SHOWN, "stdout": f"data:image/png;base64,{words}"},
    ],
)
def test_what_is_not_base64_is_a_text_that_rules_see(make, words):
    block = make(words)
    assert describe_data(block) is block


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": "hello", "uri": "note://one", "blob": DATA, "mimeType": "a/b"},
        {"type": "text", "text": "hello", "data": DATA, "mimeType": "image/png"},
        {"type": "text", "text": "hello", "isImage": True, "stdout": f"data:image/png;base64,{DATA}"},
        {"type": "text", "text": "hello", "more": {"base64": DATA, "type": "image/png"}},
        {"type": "text", "text": "hello", "source": {"type": "base64", "media_type": "a/b", "data": DATA}},
        {"uri": "note://one", "text": "hello", "blob": DATA, "mimeType": "a/b"},
        {"uri": "note://one", "blob": DATA, "mimeType": "text/plain"},
        {"uri": "note://one", "blob": DATA, "mimeType": "TEXT/html"},
        {"uri": "note://one", "blob": DATA, "mimeType": f"a/b {SECRET}" + "x" * 100},
        {"uri": "note://one", "blob": DATA},
        {"type": "image", "data": DATA},
        {**SHOWN, "stdout": f"data:text/plain;base64,{DATA}"},
        {**SHOWN, "stdout": f"{SECRET} data:image/png;base64,{DATA}"},
        {**SHOWN, "stdout": DATA},
    ],
)
def test_base64_in_another_place_or_of_a_text_is_a_text_that_rules_see(block):
    assert describe_data([block]) == [block]


@pytest.mark.parametrize("name", ["resultType", "isError"])
def test_what_is_no_kind_of_a_result_is_a_text_that_rules_see(name):
    result = {"content": [text("hello")], name: SECRET}
    assert value_of(result)[name] == SECRET
    assert name not in value_of({**result, name: {"resultType": "complete", "isError": True}[name]})
    seen = given_result(result, masked(result, (f"/{name}", None, None, "key")), None)
    assert SECRET not in json.dumps(seen)
    cut_off = given_result(result, cut(value_of(result), 30), None)
    assert SECRET not in json.dumps(cut_off)


def test_an_error_of_the_protocol_is_masked_in_words_and_data():
    value = value_of_error(f"no {SECRET}", {"uri": SECRET})
    made = mask_parts(value, [MaskedPart("/error/message", 3, 13, "key")])
    words, data = given_error(GivenResult(made.value, "masked", "masked", hidden=made.hidden))
    assert (words, data) == ("no [withheld: key]", {"uri": "[withheld]"})
    assert given_error(withhold("denied", "no")) == ("The tool ran, but its result is withheld: no", None)


BLOCKS = st.sampled_from(
    [
        text(SECRET),
        text(f"a {SECRET} b"),
        IMAGE,
        FILE,
        {"type": "resource_link", "uri": SECRET, "name": "a"},
        {"type": "resource", "resource": {"uri": "a://b", "text": SECRET}},
        "no block",
        {"type": 7},
        None,
    ]
)


@given(
    st.lists(BLOCKS, min_size=1, max_size=4),
    st.none() | JSON | st.just({"name": SECRET, "list": [SECRET]}),
    st.sampled_from([None, NAMED, SUM]),
    st.data(),
)
def test_whatever_a_server_gives_nothing_that_was_hidden_is_in_what_the_client_gets(
    blocks, copy, schema, data
):
    result = {"content": [text(SECRET), *blocks], "_meta": {"a": [SECRET]}, "isError": False}
    if copy is not None:
        result["structuredContent"] = copy
    parts = [("/content/0/text", None, None, "key")]
    if data.draw(st.booleans()):
        parts.append((f"/content/{data.draw(st.integers(0, len(blocks)))}", None, None, ""))
    seen = given_result(result, masked(result, *parts), schema)
    assert SECRET not in check(seen)
    assert DATA not in json.dumps(seen)


# ------------------------------------------------------------------ resources and prompts

HERE = {"uri": "note://one", "text": f"a note: {SECRET}", "mimeType": "text/plain"}
WORDS = {"role": "assistant", "content": text(f"say {SECRET}")}


def test_a_masked_resource_keeps_its_parts_and_loses_data_and_addresses_that_tell_more():
    result = {"contents": [HERE, PICTURE], "ttlMs": 5, "cacheScope": SECRET, "_meta": {"a": SECRET}}
    assert given_read("resources/read", {}, result, GivenResult(value_of(result))) is result
    ruled = masked(result, ("/contents/0/text", 8, 18, "key"))
    seen = given_read("resources/read", {"uri": "note://one"}, result, ruled)
    types.ReadResourceResult.model_validate(seen)
    assert seen["contents"] == [
        {"uri": "note://one", "text": "a note: [withheld: key]"},
        {"uri": "about:blank", "text": "[image/png, 150 bytes, not shown to rules]"},
    ]
    assert set(seen) == {"contents", "ttlMs"}


def test_a_masked_prompt_keeps_who_says_what():
    result = {"description": SECRET, "messages": [WORDS, {"role": "user", "content": IMAGE}]}
    seen = given_read("prompts/get", {}, result, masked(result, ("/description", None, None, "key")))
    types.GetPromptResult.model_validate(seen)
    assert seen["messages"][0] == {"role": "assistant", "content": text("say [withheld]")}
    assert DATA not in json.dumps(seen)
    assert SECRET not in json.dumps(seen)


@pytest.mark.parametrize(
    "part", [("", None, None, "k"), ("/contents", None, None, "k"), ("/contents/0", None, None, "k")]
)
def test_a_resource_that_has_lost_its_form_is_one_text(part):
    result = {"contents": [HERE]}
    seen = given_read("resources/read", {"uri": "note://one"}, result, masked(result, part))
    types.ReadResourceResult.model_validate(seen)
    (one,) = seen["contents"]
    assert "[withheld: k]" in one["text"]
    assert SECRET not in json.dumps(seen)


def test_a_withheld_resource_or_prompt_is_one_sentence():
    ruled, asked = withhold("denied", "not yours"), {"uri": "note://one"}
    (one,) = given_read("resources/read", asked, {"contents": [HERE]}, ruled)["contents"]
    assert one == {"uri": "note://one", "text": ruled.value}
    (said,) = given_read("prompts/get", {}, {"messages": [WORDS]}, ruled)["messages"]
    assert said == {"role": "user", "content": text(ruled.value)}
