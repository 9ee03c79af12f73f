"""Each client's events are read as it writes them, and every ruling is answered so that it is understood."""

import json
import socket
import time

import jsonschema
import pytest
import toolgate_hook
from client_schemas import AFTER_SCHEMAS, SCHEMAS, SILENT, UNTOLD_SCHEMAS
from hook_fixtures import FAULT, FILES, load, load_named, name, rulings
from hypothesis import assume, given
from hypothesis import strategies as st
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator.coding_agents.event import HookDecision, HookEvent, MalformedEvent
from toolgate_orchestrator.coding_agents.translation import (
    CLIENTS,
    TITLES,
    find_kind,
    read_event,
    write_answer,
    write_fault,
    write_unread,
)
from toolgate_orchestrator.commands.hook import entries

pytestmark = pytest.mark.pure

BEFORE = {
    path.parent.name: path for path in FILES if "answers" in load(path) and "modify" in load(path)["answers"]
}


def told(answer: bytes):
    return json.loads(answer) if answer else None


@pytest.mark.parametrize("path", FILES, ids=name)
def test_an_event_reads_as_its_client_means_it(path):
    fixture = load(path)
    event = read_event(path.parent.name, json.dumps(fixture["event"]).encode())
    wanted = {
        **fixture["reads"],
        **({"can": frozenset(fixture["reads"]["can"])} if "can" in fixture["reads"] else {}),
    }
    assert {key: getattr(event, key) for key in wanted} == wanted


@pytest.mark.parametrize("path", FILES, ids=name)
def test_each_ruling_is_answered_in_the_clients_form(path):
    client, fixture = path.parent.name, load(path)
    event = read_event(client, json.dumps(fixture["event"]).encode())
    said = rulings(event.tool, dict(event.arguments), fixture.get("changed", {}))
    for kind, wanted in fixture["answers"].items():
        if kind == "fault":
            assert told(write_fault(client, event, FAULT, denies=True)) == wanted
        else:
            assert told(write_answer(client, event, said[kind])) == wanted, kind


@pytest.mark.parametrize("path", FILES, ids=name)
def test_the_process_denies_by_itself_in_the_same_words(path):
    client, fixture = path.parent.name, load(path)
    body = json.dumps(fixture["event"]).encode()
    event = read_event(client, body)
    for denies in (True, False):
        alone = toolgate_hook.answer_fault(client, body, FAULT, denies=denies)
        assert told(alone.encode()) == told(write_fault(client, event, FAULT, denies=denies))


HOSTILE = {
    "no JSON": b'{"hook_event_name": "PreToolUse"',
    "not UTF-8": b'{"tool_name": "\xff"}',
    "a list": b"[]",
    "a text": b'"PreToolUse"',
    "nothing": b"",
    "no fields": b"{}",
    "deep": b'{"tool_input":' * 100_000 + b"1" + b"}" * 100_000,
    "no tool": json.dumps(
        {"hook_event_name": "PreToolUse", "session_id": "s", "sessionId": "s", "conversation_id": "s"}
    ).encode(),
    "an event of tomorrow": b'{"hook_event_name": "preToolUseAgain", "session_id": "s", "tool_name": "Bash"}',
    "an event that is none": b'{"hook_event_name": 7, "tool_name": "Bash", "toolName": "Bash"}',
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_what_cannot_be_read_is_denied_where_anybody_is_required(client, body):
    with pytest.raises(MalformedEvent) as refusal:
        read_event(client, body)
    denied = write_unread(client, body, str(refusal.value), denies=True)
    is_told = find_kind(client, body)[0] == "before"
    jsonschema.validate(json.loads(denied), (SCHEMAS if is_told else UNTOLD_SCHEMAS)[client])
    assert "was not run" in denied.decode()
    assert told(write_unread(client, body, "it broke", denies=False)) in (None, {"permission": "allow"})


def unreadable(value):
    """Values that hold this one and that an event cannot be read with, by what is wrong with them."""
    text, deep = json.dumps(value), "[" * 140 + "]" * 140
    never_ends = '[{"a":' * 9_000
    texts = {
        "too deep": f"[{text}, {deep}]",
        "much too deep": f'{{"key": {text}, "deep": {never_ends}',
        "too many digits": f"[{text}, {'9' * 5_000}]",
        "no number": f'{{"key": {text}, "no": NaN}}',
        "a key twice": f'{{"key": 1, "key": {text}}}',
        "not in UTF-8": f'[{text}, "caf\xe9"]',
        "broken off": f'{{"key": {text}, "more": "and',
    }
    return {wrong: text.encode("latin-1") for wrong, text in texts.items()}


def put(event, field, value):
    """The event with these bytes as the value of a field."""
    return json.dumps({**event, field: "VALUE"}).encode().replace(b'"VALUE"', value)


AFTER = {
    ("claude", "mcp__here__read"): ("post_tool_use", "tool_response"),
    ("claude", "Bash"): ("post_tool_use", "tool_response"),
    ("claude", "Tomorrow"): ("post_tool_use", "tool_response"),
    ("codex", "Bash"): ("post_tool_use", "tool_response"),
    ("gemini", "read_file"): ("after_tool", "tool_response"),
    ("cursor", "MCP:read"): ("post_tool_use", "tool_output"),
    ("copilot", "bash"): ("post_tool_use", "toolResult"),
}
WRONG = pytest.mark.parametrize("wrong", unreadable(""))


@WRONG
@pytest.mark.parametrize(("client", "tool"), AFTER)
def test_a_result_is_withheld_where_its_event_cannot_be_read(client, tool, wrong):
    file, field = AFTER[client, tool]
    event = {**load_named(client, file)["event"], "toolName" if client == "copilot" else "tool_name": tool}
    for hostile in ("key-abc123", '"hook_event_name": "PreToolUse"', {"hook_event_name": "PreToolUse"}):
        body = put(event, field, unreadable(hostile)[wrong])
        with pytest.raises(MalformedEvent):
            read_event(client, body)
        assert find_kind(client, body) == ("after", tool)
        answer = write_unread(client, body, "it broke", denies=True)
        jsonschema.validate(json.loads(answer), AFTER_SCHEMAS[client])
        assert b"could not rule on it: it broke" in answer
        assert b"abc123" not in answer
        assert write_unread(client, body, "it broke", denies=False) == b""


@WRONG
@pytest.mark.parametrize("client", CLIENTS)
def test_a_call_is_denied_where_its_event_cannot_be_read(client, wrong):
    event, field = load(BEFORE[client])["event"], "toolArgs" if client == "copilot" else "tool_input"
    body = put(event, field, unreadable({"hook_event_name": "PostToolUse", "toolResult": "x"})[wrong])
    answer = write_unread(client, body, "it broke", denies=True)
    cannot_tell = client == "copilot" and wrong in ("much too deep", "broken off")  # a result might follow
    jsonschema.validate(json.loads(answer), (UNTOLD_SCHEMAS if cannot_tell else SCHEMAS)[client])
    assert b"was not run" in answer


@pytest.mark.parametrize("client", ["claude", "codex", "gemini", "cursor"])
def test_a_prompt_is_not_sent_where_its_event_cannot_be_read(client):
    name = {"gemini": "BeforeAgent", "cursor": "beforeSubmitPrompt"}.get(client, "UserPromptSubmit")
    body = put({"hook_event_name": name}, "prompt", b'"caf\xe9"')
    answer = write_unread(client, body, "it broke", denies=True)
    assert b"so it was not sent: it broke" in answer
    assert told(write_unread(client, body, "it broke", denies=False)) in (None, {"continue": True})


NAMES = ["hook_event_name", "hookEventName", "tool_name", "tool_response", "toolResult", "tool", "error"]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from([*NAMES, '"', "\\", '\\"', "{[", "]}", "PreToolUse", "PostToolUse", "caf\xe9"]),
    lambda child: st.lists(child, max_size=3) | st.dictionaries(st.sampled_from(NAMES), child, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), VALUES, max_size=6), st.booleans())
def test_what_is_told_of_an_event_is_what_stands_there(event, plain):
    body = json.dumps(event, ensure_ascii=plain, indent=None if plain else 1).encode("utf-8", "replace")
    assume(len(set(json.loads(body))) == len(event))
    outline, is_whole = toolgate_hook.read_outline(body)
    assert (list(outline), is_whole) == (list(json.loads(body)), True)
    for key, value in json.loads(body).items():
        if isinstance(value, str):
            assert outline[key] == value
        elif isinstance(value, dict):
            assert list(outline[key]) == list(value)
        else:
            assert outline[key] == ([] if isinstance(value, list) else None)


def test_a_long_event_is_read_in_a_moment_and_one_of_too_many_parts_as_far_as_that_goes(monkeypatch):
    for part in (b"x", b"\\n", b"[", b"1", b" "):
        for begin in (b'{"a": "', b'{"a": '):
            started = time.process_time()
            toolgate_hook.read_outline(begin + part * ((4 << 20) // len(part)))
            assert time.process_time() - started < 5
    monkeypatch.setattr(toolgate_hook, "MAX_TOKENS", 9)
    event = {"hook_event_name": "PostToolUse", "tool_response": [[] for _ in range(9)], "tool_name": "Bash"}
    outline = toolgate_hook.read_outline(json.dumps(event).encode())
    assert outline == ({"hook_event_name": "PostToolUse", "tool_response": []}, False)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("value", [7, [], {}, True, "x" * 300], ids=str)
@pytest.mark.parametrize("field", ["tool", "session"])
def test_a_field_of_another_type_is_refused_by_its_name(client, field, value):
    fixture = load(BEFORE[client])["event"]
    names = {"tool": ("tool_name", "toolName"), "session": ("session_id", "sessionId", "conversation_id")}
    found = [key for key in names[field] if key in fixture]
    with pytest.raises(MalformedEvent, match=found[0]):
        read_event(client, json.dumps({**fixture, **dict.fromkeys(found, value)}).encode())


@pytest.mark.parametrize("client", CLIENTS)
def test_arguments_that_are_no_object_are_seen_and_cannot_be_replaced(client):
    fixture = load(BEFORE[client])["event"]
    key = "toolArgs" if client == "copilot" else "tool_input"
    event = read_event(client, json.dumps({**fixture, key: ["rm", "-rf", "/"]}).encode())
    assert event.arguments == {"input": ["rm", "-rf", "/"]}
    answer = write_answer(client, event, HookDecision("modify", event.tool, {"input": "ls"}, "safer"))
    assert b'"deny"' in answer


def test_a_client_that_there_is_not_is_named():
    with pytest.raises(ConfigError, match="claude, codex, gemini"):
        read_event("emacs", b"{}")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda child: st.lists(child, max_size=3) | st.dictionaries(st.text(max_size=5), child, max_size=3),
    max_leaves=10,
)
TEXTS = st.one_of(
    st.text(st.characters(), max_size=40), st.just(" \n"), st.just("\ud83d"), st.just("x" * 5000)
)
RULINGS = st.builds(
    HookDecision,
    st.sampled_from(["continue", "modify", "deny", "ask"]),
    st.sampled_from(["Bash", "Read"]),
    st.dictionaries(st.text(max_size=5), JSON, max_size=3) | st.just({"command": "ls"}),
    TEXTS,
)


@given(
    client=st.sampled_from(list(CLIENTS)),
    can=st.sampled_from(
        [frozenset(), frozenset({"arguments"}), frozenset({"ask"}), frozenset({"arguments", "ask"})]
    ),
    ruling=RULINGS,
)
def test_whatever_is_ruled_the_client_can_read_the_answer(client, can, ruling):
    event = HookEvent(client, "before", "before", "Bash", {"command": "ls"}, "s", can=can)
    answer = write_answer(client, event, ruling)
    if not answer:
        assert client in SILENT
        assert ruling.outcome == "continue" or (ruling.tool, ruling.arguments) == (
            event.tool,
            event.arguments,
        )
        return
    found = json.loads(answer.decode("utf-8"), parse_constant=lambda name: pytest.fail(name))
    jsonschema.validate(found, SCHEMAS[client])
    lets_run = b'"deny"' not in answer and b'"ask"' not in answer
    assert (
        not lets_run
        or (ruling.outcome in ("continue", "modify") and ruling.tool in ("Bash", ""))
        or ruling.outcome == "continue"
    )
    assert b'"ask"' not in answer or "ask" in can


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "half \ud83d"], ids=["nan", "inf", "half"])
def test_arguments_that_are_no_json_between_programs_are_a_denial(client, value):
    event = HookEvent(client, "x", "before", "Bash", {"a": 1}, "s", can=frozenset({"arguments", "ask"}))
    for outcome in ("modify", "ask"):
        answer = write_answer(client, event, HookDecision(outcome, "Bash", {"a": value}, "why"))
        assert b'"deny"' in answer


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_is_told_that_a_number_became_a_truth_value_and_not_that_it_was_written_otherwise(client):
    event = HookEvent(client, "x", "before", "Bash", {"a": 1}, "s", can=frozenset({"arguments", "ask"}))
    changed = write_answer(client, event, HookDecision("modify", "Bash", {"a": True}, "why"))
    assert b"true" in changed or b'"deny"' in changed
    same = write_answer(client, event, HookDecision("modify", "Bash", {"a": 1.0}, "why"))
    assert same == write_answer(client, event, HookDecision("continue"))


@pytest.mark.parametrize("client", CLIENTS)
def test_who_cannot_change_or_ask_does_not_run_the_call_as_it_was(client):
    event = HookEvent(client, "x", "before", "Bash", {"a": 1}, "s")
    for outcome in ("modify", "ask"):
        assert b'"deny"' in write_answer(client, event, HookDecision(outcome, "Bash", {"a": 2}, "why"))


def test_the_process_and_the_room_know_the_same_clients():
    assert list(CLIENTS) == list(toolgate_hook.BEFORE) == list(entries.CLIENTS) == list(TITLES)
    assert {client: files.title for client, files in entries.CLIENTS.items()} == TITLES


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 120\r\n\r\n",  # to most clients nothing said is a call that runs
        b'HTTP/1.1 200 OK\r\nContent-Length: 120\r\n\r\n{"hookSpecificOutput": {}',
        b"HTTP/1.1 200 OK\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"",
    ],
)
def test_an_answer_that_breaks_off_is_none(said):
    ours, sidecar = socket.socketpair()
    with ours, sidecar:
        sidecar.sendall(said)
        sidecar.shutdown(socket.SHUT_WR)
        options = toolgate_hook.HookOptions(["claude", "--required", "policy"])
        with pytest.raises(ConnectionResetError):
            toolgate_hook.exchange(ours, options, b"{}", time.monotonic() + 10)


@pytest.mark.parametrize("client", CLIENTS)
def test_an_event_that_is_named_twice_is_stopped_whichever_it_is(client):
    """The client may mean a call that is to come, or one that was."""
    body = b'{"hook_event_name": "PreToolUse", "hook_event_name": "PostToolUse", "toolName": "x"}'
    answer = toolgate_hook.answer_fault(client, body, "away", denies=True)
    jsonschema.validate(json.loads(answer), UNTOLD_SCHEMAS[client])
