"""What programs read in several ways is refused at each door, by one parser and in its words."""

import asyncio
import json

import pytest
from hook_fixtures import FILES, load
from toolgate_bus.protocol.events import Continue
from toolgate_bus.protocol.json_values import (
    MAX_DEPTH,
    MAX_DIGITS,
    HalfCharacter,
    NotJson,
    UnreadableJson,
    read_json,
)
from toolgate_orchestrator.coding_agents.translation import CLIENTS
from toolgate_orchestrator.commands.mcp import sdk
from toolgate_orchestrator.commands.mcp.http_access import guard_access
from toolgate_orchestrator.commands.serve.hook_handler import HookHandler
from toolgate_orchestrator.turn.values.raw_call import plain_call

pytestmark = pytest.mark.pure

BEFORE = {
    path.parent.name: load(path)["event"]
    for path in FILES
    if "answers" in load(path) and "modify" in load(path)["answers"]
}
ARGUMENTS = {client: "toolArgs" if client == "copilot" else "tool_input" for client in CLIENTS}
UNREADABLE = {
    "a key twice": ('{"command": "ls", "command": "rm -rf /"}', "the key 'command' is given twice"),
    "a key twice within": ('{"a": [{"b": 1, "b": 2}]}', "the key 'b' is given twice"),
    "a key twice, escaped": ('{"a": 1, "\\u0061": 2}', "the key 'a' is given twice"),
    "too deep": (
        '{"command": "rm -rf /", "a":' + "[" * 3_000 + "]" * 3_000 + "}",
        f"it is nested more than {MAX_DEPTH} levels deep",
    ),
    "just too deep": (
        '{"command": "rm -rf /", "a":' + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}",
        f"it is nested more than {MAX_DEPTH} levels deep",
    ),
    "too many digits": (
        '{"command": "rm -rf /", "n": ' + "1" * 4_301 + "}",
        f"a whole number has more than {MAX_DIGITS} digits",
    ),
    "one digit too many": (
        '{"n": -' + "1" * MAX_DIGITS + "}",
        f"a whole number has more than {MAX_DIGITS} digits",
    ),
    "too large": ('{"command": "rm -rf /", "n": 1e400}', "a number is too large"),
    "no number": ('{"n": NaN}', "NaN is not a JSON value"),
    "an infinite number": ('{"n": -Infinity}', "-Infinity is not a JSON value"),
}
HALVES = ('{"command": "rm \\ud800"}', '{"\\uDfff": 1}')
EACH = pytest.mark.parametrize(("text", "words"), UNREADABLE.values(), ids=UNREADABLE)


async def stays():
    await asyncio.Event().wait()


@EACH
def test_the_parser_says_why(text, words):
    for one in (text, text.encode()):
        with pytest.raises(UnreadableJson) as found:
            read_json(one)
        assert words in str(found.value)
        assert not isinstance(found.value, NotJson)


@pytest.mark.parametrize("text", ["", "{", "[1,]", "{'a': 1}", '{"a": 01}', '"a\n"', "nul", "{} {}"])
def test_what_is_no_json_to_anybody_is_told_apart(text):
    with pytest.raises(NotJson):
        read_json(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("\ufeff{}", {}),
        (b"\xef\xbb\xbf[]", []),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ('"\\\\ud83d"', "\\ud83d"),
        ("[" * MAX_DEPTH + "]" * MAX_DEPTH, None),
        ('"' + "[" * 5_000 + '"', "[" * 5_000),
        ("1" * MAX_DIGITS, int("1" * MAX_DIGITS)),
        ("-0.5e-3", -0.0005),
        (f"[{2**70}]", [2**70]),
    ],
)
def test_the_bounds_themselves_and_odd_but_clear_texts_are_read(text, value):
    found = read_json(text)
    assert value is None or found == value


@pytest.mark.parametrize("raw", [b'"\xed\xa0\x80"', b'"\xff"', '{"a": 1}'.encode("utf-16")])
def test_bytes_that_are_no_utf_8_are_refused(raw):
    with pytest.raises(UnreadableJson, match="UTF-8"):
        read_json(raw)


def test_a_text_has_a_longest_length():
    with pytest.raises(UnreadableJson, match="longer than 4 bytes"):
        read_json("[1, 2]", limit=4)


@EACH
async def test_a_sidecar_refuses_such_a_body_with_words(sidecar, text, words):
    asked = await sidecar()
    beside = json.dumps({"subject": {"type": "a", "id": "b"}, "resource": {"type": "a", "id": "b"}})[:-1]
    action = f', "action": {{"name": "run", "properties": {text}}}}}'
    for path, body in (
        ("/v1/decide", f'{{"tool": "run", "arguments": {text}}}'),
        ("/v1/report", f'{{"id": {text}}}'),
        ("/v1/usage", f'{{"provider": {text}}}'),
        ("/v1/turn", f'{{"session": {text}}}'),
        ("/access/v1/evaluation", beside + action),
    ):
        answered = await asked.ask(path, body.encode())
        assert answered.status == 400, path
        assert words in answered.raw.decode(), path


@EACH
@pytest.mark.parametrize("as_text", [False, True], ids=["object", "text"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_is_told_that_such_a_call_is_not_run_if_anybody_might_object(
    sidecar, world, client, as_text, text, words
):
    told = json.dumps({**BEFORE[client], ARGUMENTS[client]: "ARGUMENTS"})
    body = told.replace('"ARGUMENTS"', json.dumps(text) if as_text else text).encode()
    await world.scheduler("policy", Continue())
    asked = await sidecar()
    desk = HookHandler(asked.service, denies=lambda: asked.gate.ruled)
    answer = await desk.answer(client, body, 5.0, stays)
    assert b'"deny"' in answer
    assert words.replace("'", "\\u0027") in answer.decode() or words in json.dumps(json.loads(answer))


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_text_that_begins_as_an_object_and_is_none_is_no_other_text(sidecar, world, client):
    body = json.dumps({**BEFORE[client], ARGUMENTS[client]: "\ufeff {command: 'rm -rf /'}"}).encode()
    await world.scheduler("policy", Continue())
    asked = await sidecar()
    answer = await HookHandler(asked.service, denies=lambda: asked.gate.ruled).answer(
        client, body, 5.0, stays
    )
    assert b'"deny"' in answer


async def test_what_cannot_be_read_and_runs_is_said(sidecar, fresh_lines):
    asked = await sidecar()
    desk = HookHandler(asked.service, denies=lambda: False)
    await desk.answer("claude", b'{"tool_name": "a", "tool_name": "b"}', 5.0, stays)
    (line,) = fresh_lines.values()
    assert "ran without a ruling" in line
    assert "'tool_name' is given twice" in line


DEEP = '{"deep": ' + "[" * 29 + "]" * 29 + "}"
UNRULABLE = {
    HALVES[0]: "half a character",
    HALVES[1]: "half a character",
    DEEP: "nested more than 28 levels deep",
}
EACH_UNRULABLE = pytest.mark.parametrize(("text", "words"), UNRULABLE.items(), ids=["half", "key", "deep"])


@EACH_UNRULABLE
async def test_a_call_that_no_rule_can_read_is_denied_in_the_same_words_by_each_answer_of_a_sidecar(
    sidecar, world, text, words
):
    seen = []
    await world.scheduler("policy", lambda call: seen.append(call) or Continue())
    asked, arguments = await sidecar(), json.loads(text)
    decided = await asked.ask("/v1/decide", f'{{"tool": "run", "arguments": {text}}}'.encode())
    assert (decided.status, decided.body["outcome"], decided.body["arguments"]) == (200, "deny", arguments)
    assert words in decided.body["refusal"]
    entities = '"subject": {"type": "a", "id": "b"}, "resource": {"type": "a", "id": "b"}'
    action = f'{{{entities}, "action": {{"name": "run", "properties": {text}}}}}'
    told = await asked.ask("/access/v1/evaluation", action.encode())
    assert (told.status, told.body["decision"]) == (200, False)
    assert words in told.body["context"]["reason"]
    desk = HookHandler(asked.service, denies=lambda: asked.gate.ruled)
    for client in CLIENTS:
        for written in (text, json.dumps(text)):
            body = json.dumps({**BEFORE[client], ARGUMENTS[client]: "ARGUMENTS"})
            answer = await desk.answer(client, body.replace('"ARGUMENTS"', written).encode(), 5.0, stays)
            assert b'"deny"' in answer
            assert words in answer.decode()
    assert seen == []


@EACH_UNRULABLE
async def test_where_nobody_rules_a_sidecar_lets_the_same_call_run_as_it_is(sidecar, text, words):
    asked, arguments = await sidecar(), json.loads(text)
    decided = await asked.ask("/v1/decide", f'{{"tool": "run", "arguments": {text}}}'.encode())
    assert (decided.body["outcome"], decided.body["arguments"]) == ("continue", arguments)


@pytest.mark.parametrize("text", HALVES)
def test_half_a_character_is_taken_from_a_client_of_mcp_in_a_call_alone(text):
    line = f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {{"arguments": {text}}}}}'
    message = sdk.read_message(line.encode(), halves=True)
    assert json.loads(sdk.write_message(message)) == json.loads(line)
    assert sdk.read_message(line.encode()) is None
    assert sdk.read_message(line.replace("tools/call", "tools/list").encode(), halves=True) is None
    with pytest.raises(HalfCharacter, match="half a character") as found:
        read_json(text, halves=False)
    assert found.value.value == json.loads(text)
    assert read_json('"\\ud83d\\ude00 \\\\ud800"', halves=False) == "\U0001f600 \\ud800"


async def test_what_a_tool_gave_may_end_within_a_character(sidecar):
    """An event after a call is ruled on by nobody: its outcome is taken all the same."""
    asked = await sidecar()
    desk = HookHandler(asked.service, denies=lambda: True)
    before = BEFORE["claude"]
    await desk.answer("claude", json.dumps(before).encode(), 5.0, stays)
    after = {**before, "hook_event_name": "PostToolUse", "tool_response": "cut \ud83d"}
    assert await desk.answer("claude", json.dumps(after).encode(), 5.0, stays) == b""
    assert [fact["success"] for fact in asked.told("tool:post")] == [True]


@EACH
def test_no_message_of_mcp_is_read_of_it(text, words):
    call = f'{{"name": "a", "arguments": {text}}}'
    line = f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {call}}}'
    assert sdk.read_message(line.encode()) is None
    assert sdk.read_message(line.replace(text, "{}").encode()) is not None


class FakeClient:
    """One request over HTTP, and what is answered."""

    def __init__(self, body, *fields):
        self.parts = [body[:7], body[7:]]
        self.scope = {"type": "http", "path": "/mcp", "method": "POST", "headers": list(fields)}
        self.sent, self.reached = [], b""

    async def receive(self):
        return {"type": "http.request", "body": self.parts.pop(0), "more_body": bool(self.parts)}

    async def send(self, message):
        self.sent.append(message)

    async def ask(self, token=None):
        async def speak(scope, receive, send):
            message = await receive()
            self.reached = message["body"]
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})

        await guard_access(speak, token, 1 << 20)(self.scope, self.receive, self.send)
        return self.sent[0]["status"], self.sent[1]["body"]


@EACH
async def test_over_http_it_is_refused_and_reaches_nobody(text, words):
    asked = FakeClient(f'{{"jsonrpc": "2.0", "id": 1, "params": {text}}}'.encode())
    status, body = await asked.ask()
    assert status == 400
    assert words in json.loads(body)["error"]["message"]
    assert asked.reached == b""
    fine = FakeClient(b'{"jsonrpc": "2.0"}')
    assert (await fine.ask(), fine.reached) == ((200, b"{}"), b'{"jsonrpc": "2.0"}')


RIGHT, WRONG = (b"authorization", b"Bearer right"), (b"authorization", b"Bearer wrong")


@pytest.mark.parametrize("fields", [(RIGHT, WRONG), (WRONG, RIGHT), (RIGHT, RIGHT), (WRONG,), ()])
async def test_of_two_tokens_none_counts(sidecar, fields):
    asked = FakeClient(b"{}       ", *fields)
    assert (await asked.ask("right"))[0] == 401
    assert asked.reached == b""
    served, sent = await sidecar(tokens=("right",)), []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/metrics", "headers": fields}
    await served.app(scope, asked.receive, send)
    assert sent[0]["status"] == 401


async def test_one_token_counts(sidecar):
    assert (await FakeClient(b"{}       ", RIGHT).ask("right"))[0] == 200
    served = await sidecar(tokens=("right",))
    assert (await served.ask("/metrics", method="GET", authorization="Bearer right")).status == 200


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_loop_tells_the_llm_why_its_call_is_none(name):
    text, words = UNREADABLE[name]
    call = plain_call({"id": "1", "name": "run", "arguments": text})
    assert call["arguments"] == {}
    assert f"the arguments are not valid JSON: {words}" in call["problem"]


@EACH
def test_the_openai_agents_sdk_gets_no_call_of_it(text, words):
    pytest.importorskip("agents")
    from toolgate_orchestrator.contrib.openai_agents.step import read_arguments

    assert read_arguments(text) is None
    assert read_arguments('{"a": 1}') == {"a": 1}
