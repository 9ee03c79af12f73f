"""Results in each client's form after a ruling: nothing hidden is in the answer, and the client takes it."""

import json

import jsonschema
import pytest
from client_schemas import AFTER_SCHEMAS
from hook_fixtures import load_named
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.protocol.events import MaskedPart
from toolgate_bus.ruling.results import mask_parts
from toolgate_orchestrator.calls.result_parts import describe_data
from toolgate_orchestrator.coding_agents.claude_output import make_output, withhold_output
from toolgate_orchestrator.coding_agents.event import HookDecision, MalformedEvent
from toolgate_orchestrator.coding_agents.translation import (
    CLIENTS,
    read_event,
    write_answer,
    write_end,
    write_fault,
    write_result,
)
from toolgate_orchestrator.decision.results.given_result import GivenResult, cut_mark, withhold

pytestmark = pytest.mark.pure

SECRET = "key-abc123"
WORDS = "The tool ran, but its result is withheld: not yours"
AFTER = {
    "claude": "post_tool_use",
    "codex": "post_tool_use",
    "gemini": "after_tool",
    "copilot": "post_tool_use",
}
FIELD = {
    "claude": "tool_response",
    "codex": "tool_response",
    "gemini": "tool_response",
    "copilot": "toolResult",
}
RESULTS = {
    "claude": {"stdout": f"a {SECRET} b", "stderr": SECRET, "interrupted": False, "isImage": False},
    "codex": f"a {SECRET} b",
    "gemini": {"llmContent": f"a {SECRET} b", "returnDisplay": f"a {SECRET} b"},
    "copilot": {"resultType": "success", "textResultForLlm": f"a {SECRET} b"},
}
PART = {
    "claude": "/stdout",
    "codex": "",
    "gemini": "/llmContent",
    "copilot": "/textResultForLlm",
}


def event_of(client, result):
    told = load_named(client, AFTER[client])["event"]
    return read_event(client, json.dumps({**told, FIELD[client]: result}).encode())


def masked(value, *parts):
    made = mask_parts(value, [MaskedPart(*one) for one in parts])
    return GivenResult(made.value, "masked", "masked", "kept", "policy", made.hidden)


def told(client, event, ruled):
    answer = write_result(client, event, ruled)
    jsonschema.validate(json.loads(answer), AFTER_SCHEMAS[client])
    return answer.decode()


@pytest.mark.parametrize("client", AFTER)
def test_each_ruling_on_a_result_is_answered_in_the_clients_form(client):
    event = event_of(client, RESULTS[client])
    assert event.result == RESULTS[client]
    assert write_result(client, event, GivenResult(event.result)) == b""
    said = told(client, event, masked(event.result, (PART[client], 2, 12, "a key")))
    assert "a [withheld: a key] b" in said
    assert SECRET not in said
    assert "something else" in told(client, event, GivenResult("something else", "replaced", "replaced"))
    for ruled in (withhold("denied", "not yours"), GivenResult({"other": 1}, "replaced", "replaced")):
        assert SECRET not in told(client, event, ruled)
    assert WORDS in told(client, event, withhold("denied", "not yours"))


@pytest.mark.parametrize("client", AFTER)
def test_a_text_that_begins_with_a_mark_is_given_whole(client):
    event = event_of(client, f"{SECRET}\nis a key")
    said = told(client, event, masked(event.result, ("", 0, 10, "a key")))
    assert "[withheld: a key]\\nis a key" in said


@pytest.mark.parametrize("client", AFTER)
def test_a_result_that_nobody_could_rule_on_is_withheld_where_somebody_must(client):
    event = event_of(client, RESULTS[client])
    assert write_fault(client, event, "it broke", denies=False) == b""
    answer = write_fault(client, event, "it broke", denies=True)
    jsonschema.validate(json.loads(answer), AFTER_SCHEMAS[client])
    assert b"could not rule on it: it broke" in answer
    assert SECRET.encode() not in answer


def test_where_a_client_can_do_nothing_it_is_told_nothing():
    for client, name in (("cursor", "post_tool_use"), ("copilot", "post_tool_use_failure")):
        event = read_event(client, json.dumps(load_named(client, name)["event"]).encode())
        assert not event.can_withhold
        assert write_result(client, event, withhold("denied", "no")) == b""
        assert write_fault(client, event, "it broke", denies=True) == b""


def test_cursor_takes_another_result_of_mcp_tools_alone():
    fixture = load_named("cursor", "post_tool_use")["event"]
    output = {"content": [{"type": "text", "text": SECRET}]}
    body = {**fixture, "tool_name": "MCP:read", "tool_output": json.dumps(output)}
    event = read_event("cursor", json.dumps(body).encode())
    assert (event.result, event.can_withhold) == (output, True)
    answer = json.loads(write_result("cursor", event, masked(output, ("/content/0/text", 0, 3, ""))))
    given_back = {"content": [{"type": "text", "text": "[withheld]-abc123"}]}
    assert answer == {"updated_mcp_tool_output": given_back}
    refused = json.loads(write_result("cursor", event, withhold("denied", "not yours")))
    assert refused == {"updated_mcp_tool_output": {"content": [{"type": "text", "text": WORDS}]}}


@pytest.mark.parametrize("output", ['{"a": "key-abc123", "a": 1}', '{"a": "key-abc123", "b": NaN}'])
def test_of_an_output_of_cursor_that_programs_read_differently_rules_see_the_text(output):
    fixture = load_named("cursor", "post_tool_use")["event"]
    body = {**fixture, "tool_name": "MCP:read", "tool_output": output}
    assert read_event("cursor", json.dumps(body).encode()).result == output


def test_the_words_of_a_failed_tool_of_claude_code_are_withheld_by_the_batch_alone():
    fixture = load_named("claude", "post_tool_use_failure")["event"]
    event = read_event("claude", json.dumps({**fixture, "error": f"Exit code 1\n{SECRET}"}).encode())
    assert (event.result, event.can_withhold, event.ends_turn) == (f"Exit code 1\n{SECRET}", False, True)
    assert write_result("claude", event, withhold("denied", "no")) == b""
    told_of = load_named("claude", "post_tool_batch")["event"]
    batch = read_event("claude", json.dumps(told_of).encode())
    (call,) = batch.calls
    assert (call.tool, call.call_id, call.result, call.outcome) == (
        "Bash",
        "toolu_01DUzQ",
        "Exit code 1\nnotes",
        "fail",
    )
    assert write_end("claude", batch, "") == b""
    answer = json.loads(write_end("claude", batch, "that is kept"))
    assert answer == {"continue": False, "stopReason": "that is kept"}
    with pytest.raises(MalformedEvent, match="tool_calls"):
        read_event("claude", json.dumps({**told_of, "tool_calls": {}}).encode())


READ = {
    "type": "text",
    "file": {"filePath": "/a", "content": SECRET, "numLines": 1, "startLine": 1, "totalLines": 1},
}
IMAGE = {"type": "image", "file": {"base64": "iVBO" * 99, "type": "image/png", "originalSize": 290}}


def shape(value):
    """The form of a value: its names and types."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    return [shape(one) for one in value] if isinstance(value, list) else type(value)


def test_an_output_of_claude_code_keeps_its_form_or_is_one_that_is_known():
    ruled = masked(READ, ("/file/content", 0, 3, ""))
    output = make_output("Read", READ, ruled)
    assert output == ({**READ, "file": {**READ["file"], "content": "[withheld]-abc123"}}, True)
    for part in (("/type", None, None, ""), ("/file", None, None, ""), ("", None, None, "")):
        output = make_output("Read", READ, masked(READ, part))
        assert (shape(output.value), output.is_sure) == (shape(READ), True)
        assert output.value["type"] == "text"  # one of the words that the client knows
        assert SECRET not in json.dumps(output.value) or part[0] == "/type"
    number = make_output("Read", READ, masked(READ, ("/file/numLines", None, None, "")))
    assert shape(number.value) == shape(READ)


def test_a_picture_is_given_whole_or_not_at_all():
    described = describe_data(IMAGE)
    assert "iVBO" not in json.dumps(described)
    ruled = masked(described, ("/file/type", None, None, ""))
    output = make_output("Read", IMAGE, ruled)
    assert (output.value["type"], output.is_sure) == ("text", True)
    picture = "data:image/png;base64," + "iVBO" * 99
    shown = {"stdout": picture, "stderr": SECRET, "interrupted": False, "isImage": True}
    output = make_output("Bash", shown, masked(describe_data(shown), ("/stderr", None, None, "")))
    assert output.value["isImage"] is False
    assert "base64" not in json.dumps(output.value)


def test_a_copy_of_the_output_in_a_file_is_not_named_where_the_output_is_changed():
    own = {"stdout": SECRET, "stderr": "", "interrupted": False, "persistedOutputPath": "/tmp/out"}
    output = make_output("Bash", own, masked(own, ("/stdout", None, None, "")))
    assert output == ({"stdout": "[withheld]", "stderr": "", "interrupted": False}, True)


def test_an_output_of_a_tool_that_is_not_known_ends_the_turn_if_its_form_may_be_another():
    own = {"answer": "a key-abc123 b", "kind": "found", "count": 3, "when": {"Who is it?": "ann"}}
    sure = make_output("Tomorrow", own, masked(own, ("/answer", 2, 12, "")))
    assert sure == ({**own, "answer": "a [withheld] b"}, True)
    word = make_output("Tomorrow", own, masked(own, ("/kind", None, None, "")))
    assert (shape(word.value), word.is_sure) == (shape(own), False)
    event = read_event(
        "claude",
        json.dumps(
            {**load_named("claude", "post_tool_use")["event"], "tool_name": "Tomorrow", "tool_response": own}
        ).encode(),
    )
    answer = json.loads(write_result("claude", event, withhold("denied", "not yours")))
    assert (answer["continue"], answer["stopReason"]) == (False, WORDS)
    blank = answer["hookSpecificOutput"]["updatedToolOutput"]
    assert blank == {"answer": "", "kind": "", "count": 0, "when": {}}


def test_of_a_withheld_output_no_name_is_given_that_may_be_data_or_that_a_rule_hid():
    own = {
        "found": {"k3yAbc123": 1, "the_customer_annabel_smith": {"plain": 2}},
        "status": "sk-live-abc",
        "mode": "content",
    }
    assert withhold_output("Tomorrow", own, "no").value == {
        "found": {"the_customer_annabel_smith": {"plain": 0}},
        "status": "",
        "mode": "content",
    }
    hidden = make_output("Tomorrow", own, masked(own, ("/found", None, None, "")))
    assert hidden.value == {"found": {}, "status": "", "mode": "content"}


@pytest.mark.parametrize(
    "own", ["a key-abc123", [{"type": "text", "text": "a key-abc123"}]], ids=["text", "blocks"]
)
def test_an_output_of_an_mcp_tool_is_of_the_kind_that_it_was(own):
    part = ("", 2, 12, "") if isinstance(own, str) else ("/0/text", 2, 12, "")
    assert make_output("mcp__here__read", own, masked(own, part)).value == (
        "a [withheld]" if isinstance(own, str) else [{"type": "text", "text": "a [withheld]"}]
    )
    output = make_output("mcp__here__read", own, withhold("denied", "not yours"))
    assert output == (WORDS if isinstance(own, str) else [{"type": "text", "text": WORDS}], True)
    assert shape(withhold_output("mcp__here__read", own, "no").value) == shape(own)


def test_of_a_long_output_the_part_that_was_ruled_on_is_given_in_its_form():
    own = {"stdout": "x" * 500, "stderr": SECRET, "interrupted": True, "isImage": False}
    sent = json.dumps(own, separators=(",", ":"))[:200]
    output = make_output("Bash", own, GivenResult(sent + cut_mark(400), "masked", "masked", is_cut=True))
    assert shape(output.value) == shape(own)
    assert output.value["stdout"].startswith("x" * 150)
    assert "which no rule has seen" in output.value["stdout"]
    assert (output.value["stderr"], output.value["interrupted"], output.is_sure) == ("", True, True)


def test_of_a_long_output_no_name_is_given_that_nobody_saw():
    own = {"stdout": "x" * 500, "stderr": "", "found": {SECRET: 1}}
    sent = json.dumps(own, separators=(",", ":"))[:200]
    output = make_output("Bash", own, GivenResult(sent + cut_mark(400), "masked", "masked", is_cut=True))
    assert SECRET not in json.dumps(output.value)
    assert "is withheld" in output.value["stdout"]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.just(SECRET)
    | st.just(f"a {SECRET}"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "stdout", "content", "file", "a b", SECRET]), inner, max_size=4
        )
    ),
    max_leaves=8,
)
NAMES = st.sampled_from(["Bash", "Read", "Tomorrow", "mcp__a__b"])


@given(NAMES, JSON, st.booleans())
def test_whatever_a_tool_of_claude_code_gives_nothing_that_was_hidden_is_in_the_output(tool, own, whole):
    value = {"first": SECRET, "rest": own} if not whole else own
    part = ("" if whole else "/first", None, None, "key")
    made = masked(describe_data(value), part)
    output = json.dumps(make_output(tool, value, made).value)
    assert SECRET not in output or (whole and SECRET not in texts(own))
    withheld = json.dumps(make_output(tool, value, withhold("denied", "no")).value)
    assert f'"{SECRET}"' not in withheld
    assert f"a {SECRET}" not in withheld


def texts(value):
    """All texts of a value, without its keys: those of a whole value that is hidden may stay names."""
    if isinstance(value, dict):
        return [text for one in value.values() for text in texts(one)]
    return [text for one in value for text in texts(one)] if isinstance(value, list) else [value]


PROMPT = {
    "claude": {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "hello"},
    "codex": {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "hello"},
    "gemini": {"hook_event_name": "BeforeAgent", "session_id": "s", "prompt": "hello"},
    "cursor": {"hook_event_name": "beforeSubmitPrompt", "conversation_id": "s", "prompt": "hello"},
}
REFUSED = {
    "claude": {"decision": "block", "reason": "The prompt was not sent: no"},
    "codex": {"decision": "block", "reason": "The prompt was not sent: no"},
    "gemini": {"decision": "deny", "reason": "The prompt was not sent: no"},
    "cursor": {
        "continue": False,
        "user_message": "The prompt was not sent: no",
        "userMessage": "The prompt was not sent: no",
    },
}


@pytest.mark.parametrize("client", PROMPT)
def test_the_users_words_are_refused_or_let_pass_in_the_clients_form(client):
    event = read_event(client, json.dumps(PROMPT[client]).encode())
    assert (event.kind, event.text, event.session) == ("prompt", "hello", "s")
    passed = write_answer(client, event, HookDecision("continue"))
    assert passed == (b'{"continue": true}' if client == "cursor" else b"")
    assert json.loads(write_answer(client, event, HookDecision("deny", reason="no"))) == REFUSED[client]
    assert write_fault(client, event, "it broke", denies=False) == passed
    assert b"it broke" in write_fault(client, event, "it broke", denies=True)


def test_no_other_client_has_an_event_of_the_users_words():
    assert set(CLIENTS) - set(PROMPT) == {"copilot"}
