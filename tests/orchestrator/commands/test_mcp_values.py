"""The pure part of the proxy: what a tool says, what is a call, what is asked of a user, what a file says."""

import json

import pytest
from toolgate_bus.config.check import check
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator.commands.mcp import answers
from toolgate_orchestrator.commands.mcp.catalog import MAX_TOOL_NAME, Catalog, digest_of, read_tool
from toolgate_orchestrator.commands.mcp.config import McpConfig
from toolgate_orchestrator.commands.mcp.lines import LongLine
from toolgate_orchestrator.commands.mcp.messages import can_elicit, trace_of
from toolgate_orchestrator.commands.mcp.questions import MAX_OPEN, Questions, QuestionState, read_state

pytestmark = pytest.mark.pure

TOOL = {
    "name": "read",
    "title": "Read",
    "description": "Reads.",
    "inputSchema": {"type": "object"},
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
}


@pytest.mark.parametrize("key", [key for key in TOOL if key != "name"])
def test_whatever_a_tool_says_of_itself_is_in_its_digest(key):
    assert digest_of({**TOOL, key: {"other": 1}}) != digest_of(TOOL)
    assert digest_of({name: value for name, value in TOOL.items() if name != key}) != digest_of(TOOL)


def test_neither_order_nor_what_is_not_shown_changes_a_digest():
    assert digest_of(dict(reversed(TOOL.items()))) == digest_of({**TOOL, "_meta": {"seen": 1}})


@pytest.mark.parametrize("name", ["", "a\nb", "a\x1b[2J", "‮a", "x" * (MAX_TOOL_NAME + 1), 7, None, {}, []])
def test_a_tool_whose_name_steers_or_is_none_is_not_offered(name):
    assert read_tool("files", "", {**TOOL, "name": name}) is None


def test_what_may_run_in_the_place_of_a_call_has_not_changed_and_keeps_what_was_promised():
    catalog = Catalog()
    plain = {key: value for key, value in TOOL.items() if key != "outputSchema"}
    for own, told in (("read", TOOL), ("get", TOOL), ("say", plain), ("evil", TOOL)):
        catalog.learn([read_tool("files", "f__", {**told, "name": own})])
    assert catalog.mark("files", ["evil"]) == {"evil"}
    assert catalog.mark("files", []) == frozenset()
    assert set(catalog.offers("f__read")) == {"f__read", "f__get"}
    assert set(catalog.offers("f__evil")) == {"f__evil", "f__read", "f__get"}
    assert set(catalog.offers("f__say")) == {"f__say", "f__read", "f__get"}


@pytest.mark.parametrize(
    ("told", "can"),
    [({}, True), ({"form": {}}, True), ({"url": {}}, False), (None, False), ("yes", False)],
)
def test_a_client_can_ask_that_says_so(told, can):
    assert can_elicit({"elicitation": told}) is can
    assert not can_elicit(told if isinstance(told, str) else [told])


@pytest.mark.parametrize(
    ("responses", "answer"),
    [
        ({"toolgate": {"action": "accept"}}, "allow"),
        ({"toolgate": {"action": "accept", "content": {"x": 1}}}, "allow"),
        ({"toolgate": {"action": "decline"}}, "refuse"),
        ({"toolgate": {"action": True}}, "refuse"),
        ({"toolgate": "accept"}, "refuse"),
        ({"other": {"action": "accept"}}, "refuse"),
        ("accept", "refuse"),
        (None, "refuse"),
    ],
)
def test_only_who_accepts_has_allowed(responses, answer):
    assert answers.answer_in({"inputResponses": responses}) == answer


def test_a_state_is_read_as_it_was_written_whatever_the_session_is_called():
    for session in ("", "mcp-1", "a:b:c", "x" * 200):
        state = QuestionState("ab.cd", "0" * 32, session)
        assert read_state({"requestState": str(state)}) == state
    for other in (None, 7, "", "round one", "toolgat:x", {"toolgate:": 1}):
        assert read_state({"requestState": other}) is None


def test_who_has_the_most_open_questions_gives_up_one_where_there_are_too_many():
    questions, given_up = Questions(), []
    questions.open("honest", 60, "quiet", lambda: given_up.append("honest"))
    for number in range(MAX_OPEN + 5):
        questions.open(f"{number}", 60, "greedy", lambda number=number: given_up.append(number))
    assert given_up == [0, 1, 2, 3, 4, 5]
    questions.close("7")
    questions.open("other", 60, "another", lambda: given_up.append("other"))
    assert given_up == [0, 1, 2, 3, 4, 5]
    questions.close("other")
    questions.open("late", -1, "another", lambda: given_up.append("late"))
    questions.open("next", 60, "third", lambda: given_up.append("next"))  # in the place of one that is over
    assert given_up == [0, 1, 2, 3, 4, 5]


def test_only_a_context_in_its_form_is_taken_for_one():
    assert trace_of({"_meta": {"traceparent": 7, "tracestate": "a=1"}}) == {"tracestate": "a=1"}
    assert trace_of(None) == {}


@pytest.mark.parametrize(
    ("head", "tail", "sender"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"x', b"", (7, "method")),
        (b'{"id":"a", "result": {"x', b"", ("a", "result")),
        (b'{"jsonrpc":"2.0","result":{"id":1,"t', b'x"}},"id":9}', (9, "result")),
        (b'{"jsonrpc":"2.0","params":{"id":1', b'"}}', None),
        (b"[1, 2", b"3]", None),
        (b'{"id":' + b"9" * 30, b"", None),
    ],
)
def test_who_waits_for_a_message_that_is_too_long_is_found_by_its_ends(head, tail, sender):
    assert LongLine(head, tail, 1 << 30).sender() == sender


GOOD = {"servers": {"files": {"command": ["server"]}}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"servers": {}}, "servers"),
        ({"servers": []}, "servers"),
        ({"servers": {"files": {}}}, "give either command or url"),
        ({"servers": {"files": {"command": ["a"], "url": "http://x/"}}}, "give either command or url"),
        ({"servers": {"files": {"command": "npx server"}}}, "servers.files.command"),
        ({"servers": {"files": {"command": []}}}, "servers.files.command"),
        ({"servers": {"files": {"command": ["a"], "headers_env": {"A": "B"}}}}, "headers_env needs a url"),
        ({"servers": {"files": {"command": ["a"], "env": {"1A": "x"}}}}, "servers.files.env"),
        ({"servers": {"files": {"command": ["a"], "prefix": "a b"}}}, "servers.files.prefix"),
        ({"servers": {"files": {"command": ["a"], "arguments": []}}}, "servers.files.arguments"),
        ({"servers": {"files": {"url": "ftp://x/"}}}, "http://"),
        ({"servers": {"files": {"url": "http://u:secret@x/"}}}, "holds a password"),
        ({"servers": {"files": {"url": "http://x:99999/"}}}, "url"),
        ({"servers": {"a b": {"command": ["a"]}}}, "servers"),
        (
            {"servers": {"a": {"command": ["a"], "prefix": "x"}, "b": {"command": ["b"], "prefix": "xy"}}},
            "the prefix 'x' begins another one",
        ),
        ({"toolgate": {"requird": ["policy"]}}, "toolgate.requird"),
        ({"max_message_mb": 0}, "max_message_mb"),
        ({"call_timeout_s": "soon"}, "call_timeout_s"),
        ({"server": {}}, "server"),
    ],
)
def test_a_file_that_is_wrong_is_told_by_the_name_of_the_field(change, said):
    assert check(McpConfig, GOOD, "servers.yaml").prefix_of("files") == ""
    with pytest.raises(ConfigError) as refused:
        check(McpConfig, {**GOOD, **change}, "servers.yaml")
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_refusal_and_a_question_are_plain_results():
    asked = answers.input_required("toolgate:t", "may it?")
    assert asked["inputRequests"]["toolgate"]["params"]["message"] == "may it?"
    assert json.loads(json.dumps(asked)) == asked
    refused = answers.refusal_result("no" * 10_000, "d1", modern=True)
    assert refused["isError"] is True
    assert len(refused["content"][0]["text"]) < 5_000
    assert (refused["resultType"], refused["_meta"]) == ("complete", {"toolgate/decision": "d1"})
