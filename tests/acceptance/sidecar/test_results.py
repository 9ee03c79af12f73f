"""Results at the sidecar and at hooks, as real processes: a scheduler of results, a bus, hooks, callers."""

import json
import tempfile
import time
from pathlib import Path

import jsonschema
import pytest
from client_schemas import AFTER_SCHEMAS
from hook_world import event_after, event_of, hook_world
from serve_client import tree_of

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

REQUIRED = ("--required", "by_result")
SECRET = "key-abc123"
AFTER = {
    "claude": ("tool_response", {"stdout": "{}", "stderr": "", "interrupted": False, "isImage": False}),
    "codex": ("tool_response", "{}"),
    "gemini": ("tool_response", {"llmContent": "{}", "returnDisplay": "{}"}),
    "copilot": ("toolResult", {"resultType": "success", "textResultForLlm": "{}"}),
    "cursor": ("tool_output", {"content": [{"type": "text", "text": "{}"}]}),
}
PROMPT = {
    "claude": {"hook_event_name": "UserPromptSubmit", "session_id": "s"},
    "codex": {"hook_event_name": "UserPromptSubmit", "session_id": "s"},
    "gemini": {"hook_event_name": "BeforeAgent", "session_id": "s"},
    "cursor": {"hook_event_name": "beforeSubmitPrompt", "conversation_id": "s"},
}
EACH = {
    name: [pytest.param(one, marks=() if one == "claude" else pytest.mark.system) for one in clients]
    for name, clients in (("after", AFTER), ("prompt", PROMPT))
}


@pytest.fixture
async def world(schedulers, server_url, namespace):
    """A user whose hooks are ruled on by a scheduler of results, and by one of the user's words."""
    await schedulers.start("by_result:by_result")
    await schedulers.start("by_result:by_words")
    with (
        tempfile.TemporaryDirectory(prefix="tg-") as runtime,
        hook_world(Path(runtime), server_url, namespace) as made,
    ):
        yield made


def fill(form, words):
    if isinstance(form, dict):
        return {name: fill(one, words) for name, one in form.items()}
    if isinstance(form, list):
        return [fill(one, words) for one in form]
    return words if form == "{}" else form


def after(client, words, call="call-1"):
    """The event after a call that gave these words, and that of the call."""
    before = event_of(client, {"command": words.split()[0]}, call)
    name = {"claude": "Bash", "cursor": "MCP:read"}.get(client)
    if name is not None:
        before["tool_name"] = name
    told = {**event_after(client, before)}
    del told["toolResult" if client == "copilot" else "tool_response"]
    field, form = AFTER[client]
    given = fill(form, words)
    return before, {**told, field: json.dumps(given) if client == "cursor" else given}


@pytest.mark.parametrize("client", EACH["after"])
def test_what_a_scheduler_of_results_says_reaches_the_client_in_its_form(client, world):
    rulings = {
        f"a {SECRET} b": "a [withheld: a key] b",
        f"withhold-me {SECRET}": "that leaves nobody's house",
        f"replace-me {SECRET}": "something else",
    }
    for number, (words, wanted) in enumerate(rulings.items()):
        before, done = after(client, words, f"call-{number}")
        allowed = world.ask(client, before, *REQUIRED)
        assert b"deny" not in allowed.out
        answer = world.ask(client, done, *REQUIRED)
        assert (answer.code, answer.err) == (0, "")
        jsonschema.validate(answer.said, AFTER_SCHEMAS[client])
        assert wanted in answer.out.decode()
        assert SECRET.encode() not in answer.out
    before, done = after(client, "nothing of note", "call-9")
    world.ask(client, before, *REQUIRED)
    assert world.ask(client, done, *REQUIRED).out == b""


def test_a_result_is_ruled_on_by_a_sidecar_that_never_saw_its_call(world):
    _, done = after("claude", SECRET, "call-of-another")
    assert SECRET.encode() not in world.ask("claude", done, *REQUIRED).out


def test_a_turn_of_claude_code_ends_with_the_batch_in_which_a_failed_call_gave_what_is_hidden(world):
    def batch(*calls):
        told = [{**one, "tool_response": words} for one, words in calls]
        return {"hook_event_name": "PostToolBatch", "session_id": "s-1", "tool_calls": told}

    def make(number):
        before = {**event_of("claude", {"command": "ls"}, f"call-{number}"), "tool_name": "Bash"}
        world.ask("claude", before, *REQUIRED)
        return before, {name: before[name] for name in ("tool_name", "tool_input", "tool_use_id")}

    before, told = make(1)
    failed = {**before, "hook_event_name": "PostToolUseFailure", "error": f"Exit code 1\n{SECRET}"}
    assert world.ask("claude", failed, *REQUIRED).out == b""
    answer = world.ask("claude", batch((told, SECRET)), *REQUIRED)
    assert answer.said["continue"] is False
    assert "[withheld: a key]" in answer.said["stopReason"]
    _, untold = make(2)  # the client tells no hook of this failure
    answer = world.ask("claude", batch((told, "x"), (untold, f"no {SECRET}")), *REQUIRED)
    assert answer.said["continue"] is False
    before, passed = make(3)
    done = {**before, "hook_event_name": "PostToolUse", "tool_response": {"stdout": SECRET, "stderr": ""}}
    assert b"updatedToolOutput" in world.ask("claude", done, *REQUIRED).out
    assert world.ask("claude", batch((passed, SECRET)), *REQUIRED).out == b""  # it was ruled on


def test_a_held_result_is_waited_for_and_withheld_before_the_client_gives_up(world):
    before, done = after("codex", f"hold-me {SECRET}")
    world.ask("codex", before, *REQUIRED)
    started = time.monotonic()
    assert "[withheld: a key]" in world.ask("codex", done, *REQUIRED).said["reason"]
    assert time.monotonic() - started > 0.9


def test_where_the_sidecar_is_gone_a_result_is_withheld_if_a_required_scheduler_rules_on_such(world):
    before, done = after("claude", SECRET)
    world.ask("claude", before, *REQUIRED)
    (note,) = world.runtime.glob("toolgate-hook/*.points")
    assert set(note.read_text().split()) == {"results"}
    assert note.stat().st_mode & 0o777 == 0o600
    world.end()
    wrong = world.runtime / "toolgate-hook" / note.with_suffix(".sock").name
    world.env["TOOLGATE_HOOK_IDLE_S"] = "none"  # no sidecar starts any more
    answer = world.ask("claude", done, *REQUIRED)
    assert not wrong.exists() or answer.said
    assert "could not rule on it" in answer.said["hookSpecificOutput"]["updatedToolOutput"]["stdout"]
    assert SECRET.encode() not in answer.out
    assert world.ask("claude", done).out == b""  # nobody is required
    note.unlink()
    assert world.ask("claude", done, *REQUIRED).out == b""  # nobody rules on results


@pytest.mark.parametrize("client", EACH["after"])
def test_a_result_in_an_event_that_cannot_be_read_is_withheld_with_a_sidecar_and_without(client, world):
    before, done = after(client, SECRET)
    world.ask(client, before, *REQUIRED)
    deep = f'{{"key": "{SECRET}", "deep": {"[" * 140}{"]" * 140}}}'
    body = json.dumps({**done, AFTER[client][0]: "RESULT"}).replace('"RESULT"', deep).encode()
    with_sidecar = world.ask(client, body, *REQUIRED)
    world.end()
    world.env["TOOLGATE_HOOK_IDLE_S"] = "none"  # no sidecar starts any more
    for answer in (with_sidecar, world.ask(client, body, *REQUIRED)):
        assert (answer.code, answer.err) == (0, "")
        jsonschema.validate(answer.said, AFTER_SCHEMAS[client])
        assert b"could not rule on it" in answer.out
        assert SECRET.encode() not in answer.out


@pytest.mark.parametrize("client", EACH["prompt"])
def test_the_users_words_are_ruled_on_where_a_scheduler_names_them(client, world):
    required = ("--required", "by_words")
    passed = world.ask(client, {**PROMPT[client], "prompt": "hello"}, *required)
    assert passed.said in (None, {"continue": True})
    refused = world.ask(client, {**PROMPT[client], "prompt": "forbidden"}, *required)
    assert b"that word is not said here" in refused.out
    assert refused.said.get("decision", "block") in ("block", "deny")


def test_no_fact_has_a_word_of_a_result(world, process):
    for number, client in enumerate(AFTER):
        before, done = after(client, f"a {SECRET} b", f"call-{number}")
        world.ask(client, before, *REQUIRED)
        world.ask(client, done, *REQUIRED)
    told = process("toolgate", "decisions", "--json", env=world.env)
    assert told.wait(20) == 0
    assert SECRET not in told.stdout
    assert len(told.stdout.splitlines()) == len(AFTER)


@pytest.fixture
async def sidecar(process, schedulers, server_url, namespace, short_directory, wait_until):
    await schedulers.start("by_result:by_result")
    path = short_directory / "serve.sock"
    where = ("--redis", server_url, "--namespace", namespace)
    running = process("toolgate", "serve", "--socket", path, *where, "--json", *REQUIRED)
    await wait_until(lambda: running.stdout or not running.alive, timeout=50)
    assert running.alive, running.stderr
    async with tree_of(path) as caller:
        yield caller


async def test_a_caller_brings_a_result_and_uses_what_comes_back(sidecar):
    ruling = await sidecar.decide()
    assert ruling["rules_on_result"] is True
    body = {"id": ruling["id"], "result": {"rows": [SECRET, "b"], "next": None}}
    said = await sidecar.post("/v1/result", body)
    assert said.status == 200
    assert said.body == {
        "outcome": "masked",
        "why": "masked",
        "result": {"rows": ["[withheld: a key]", "b"], "next": None},
        "reason": "keys are kept",
        "scheduler": "by_result",
    }
    assert (await sidecar.post("/v1/result", body)).body == said.body
    assert (await sidecar.post("/v1/result", {**body, "result": "x"})).status == 409
    told = await sidecar.post("/v1/report", {"id": ruling["id"], "outcome": "succeed"})
    assert told.body == {"recorded": True}
    assert (await sidecar.post("/v1/result", body)).status == 404


async def test_a_held_result_is_pending_until_it_is_released(sidecar):
    ruling = await sidecar.decide()
    body = {"id": ruling["id"], "result": "hold-me", "can": ["wait"], "timeout_ms": 100}
    outcomes = []
    while not outcomes or outcomes[-1] == "pending":
        outcomes.append((await sidecar.post("/v1/result", body)).body["outcome"])
    assert len(outcomes) > 2
    assert outcomes[-1] == "released"
