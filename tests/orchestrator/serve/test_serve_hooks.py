"""Hooks of coding agents at a sidecar: whatever an LLM or client writes, the answer is one that is taken."""

import asyncio
import json

import jsonschema
import pytest
from client_schemas import AFTER_SCHEMAS, SCHEMAS, UNTOLD_SCHEMAS
from hook_fixtures import FILES, load, load_named
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Modify
from toolgate_orchestrator.coding_agents.event import PROBE
from toolgate_orchestrator.coding_agents.translation import CLIENTS, SHOW
from toolgate_orchestrator.commands.hook.probe import judge
from toolgate_orchestrator.commands.serve import hook_handler as hook_desk
from toolgate_orchestrator.commands.serve.hook_handler import HookHandler
from toolgate_orchestrator.commands.serve.service import SidecarService
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.pure

BEFORE = {
    path.parent.name: load(path)["event"]
    for path in FILES
    if "answers" in load(path) and "modify" in load(path)["answers"]
}
ARGUMENTS = {client: "toolArgs" if client == "copilot" else "tool_input" for client in CLIENTS}
ALL = pytest.mark.parametrize("client", CLIENTS)


async def stays():
    await asyncio.Event().wait()


def is_denied(client, answer):
    """Whether the client takes it for a denial, in its own form."""
    if not answer:
        return False
    jsonschema.validate(json.loads(answer), SCHEMAS[client])
    return b'"deny"' in answer


def deep(levels):
    value = "rm -rf /"
    for _ in range(levels):
        value = [value]
    return {"command": value}


TWICE = '{"command": "ls", "command": "rm -rf /"}'
UNSEEN = {
    "too deep for a question": json.dumps(deep(60)),
    "too deep for a parser": '{"a":' * 3000 + "1" + "}" * 3000,
    "a name twice": TWICE,
    "a name twice, in a text": json.dumps(TWICE),
    "no number": '{"n": NaN}',
    "no number, in a text": json.dumps('{"n": -Infinity}'),
}


@ALL
@pytest.mark.parametrize("arguments", UNSEEN.values(), ids=UNSEEN)
async def test_arguments_that_rules_cannot_see_as_the_client_does_are_denied_if_anybody_might_object(
    client, arguments, sidecar, world
):
    """An LLM writes arguments: by none of them does it get past who rules, required or not."""
    told = json.dumps({**BEFORE[client], ARGUMENTS[client]: "ARGUMENTS"})
    body = told.replace('"ARGUMENTS"', arguments).encode()
    alone = await sidecar()
    unruled = HookHandler(alone.service, denies=lambda: alone.gate.ruled)
    assert not is_denied(client, await unruled.answer(client, body, 5.0, stays))
    await world.scheduler("policy", Continue())
    asked = await sidecar()
    ruled = HookHandler(asked.service, denies=lambda: asked.gate.ruled)
    assert is_denied(client, await ruled.answer(client, body, 5.0, stays))


@ALL
async def test_a_call_that_nobody_rules_on_is_told_to_the_user_once_a_session_where_the_client_can(
    client, sidecar, world, fresh_lines
):
    alone = await sidecar()
    desk = HookHandler(alone.service, denies=lambda: False, unruled=lambda: alone.gate.vacancy.line)
    body = json.dumps(BEFORE[client]).encode()
    first, again = [await desk.answer(client, body, 5.0, stays) for _ in range(2)]
    (line,) = fresh_lines.values()
    if client in SHOW:
        assert json.loads(first) == {"systemMessage": line}
        jsonschema.validate(json.loads(first), SCHEMAS[client])
        assert again == b""
    else:
        assert first == again
        assert b"without rulings" not in first
    await world.scheduler("policy", Continue())
    session = {"claude": "session_id", "codex": "session_id", "gemini": "session_id"}.get(client)
    if session is not None:
        other = json.dumps({**BEFORE[client], session: "another"}).encode()
        assert await desk.answer(client, other, 5.0, stays) == b""  # it is ruled on now


@ALL
async def test_what_status_puts_to_a_hook_is_denied_and_leaves_nothing_behind(client, sidecar, world):
    asked = await sidecar()
    desk = HookHandler(asked.service, denies=lambda: False)
    key = "toolName" if client == "copilot" else "tool_name"
    probe = json.dumps({**BEFORE[client], key: PROBE}).encode()
    assert judge(await desk.answer(client, probe, 5.0, stays))[0] == "unruled"
    heard = []

    async def decide(call):
        heard.append(call.tool_name)
        return Continue()

    await world.scheduler("policy", decide)
    assert judge(await desk.answer(client, probe, 5.0, stays)) == ("answered", "")
    assert desk.is_idle
    assert asked.facts == heard == []
    await desk.answer(client, json.dumps(BEFORE[client]).encode(), 5.0, stays)
    assert not desk.is_idle


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**30, -(2**63) - 1, 1e308, "", "\x00", "\ud800", "x" * 5000, "é" * 300]),
    lambda child: st.lists(child, max_size=3) | st.dictionaries(st.text(max_size=5), child, max_size=3),
    max_leaves=6,
)


@given(data=st.data(), client=st.sampled_from(list(CLIENTS)))
def test_whatever_stands_in_the_fields_of_an_event_the_answer_is_one_that_its_client_takes(data, client):
    """Fields that are missing, of other types, huge, or of tomorrow: before a call and after one."""
    paths = [path for path in FILES if path.parent.name == client]
    event = dict(load(data.draw(st.sampled_from(paths)))["event"])
    names = st.sampled_from(sorted(event))
    for name in data.draw(st.lists(names, max_size=2)):
        event.pop(name, None)
    changed = st.dictionaries(names | st.just("of_tomorrow"), JSON, max_size=3)
    body = json.dumps({**event, **data.draw(changed)}).encode()

    async def ask():
        service = SidecarService(Gate(parse({}), None))
        return await HookHandler(service, denies=lambda: True).answer(client, body, 5.0, stays)

    answer = asyncio.run(ask())
    if answer and b'permission": "allow' not in answer:
        forms = [SCHEMAS[client], AFTER_SCHEMAS[client], UNTOLD_SCHEMAS[client]]
        jsonschema.validate(json.loads(answer), {"anyOf": forms})
        assert any(word in answer for word in (b'"deny"', b'"block"', b"withheld"))


async def test_a_conversation_that_never_tells_an_end_pushes_out_its_own_calls_alone(sidecar, monkeypatch):
    monkeypatch.setattr(hook_desk, "MAX_KEPT", 3)
    asked = await sidecar()
    desk = HookHandler(asked.service, denies=lambda: True)

    async def tell(name, session, call):
        fields = {"hook_event_name": name, "session_id": session, "tool_use_id": call}
        await desk.answer("claude", json.dumps({**BEFORE["claude"], **fields}).encode(), 5.0, stays)

    await tell("PreToolUse", "honest", "call")
    for number in range(9):
        await tell("PreToolUse", "flood", f"call-{number}")
    await tell("PostToolUse", "honest", "call")
    assert [fact["root_session"] for fact in asked.told("tool:post")] == ["honest"]


async def test_a_client_that_writes_a_number_its_own_way_tells_of_the_same_call(sidecar, world):
    """Gemini CLI tells no id: the call is known again by what it was given, and 1.0 is 1 there."""
    await world.scheduler("policy", lambda call: Modify(tool=call.tool_name, arguments={"limit": 10.0}))
    asked = await sidecar()
    desk = HookHandler(asked.service, denies=lambda: True)
    before = {**BEFORE["gemini"], "tool_input": {"limit": 1}}
    assert b"10.0" in await desk.answer("gemini", json.dumps(before).encode(), 5.0, stays)
    after = {**before, "hook_event_name": "AfterTool", "tool_input": {"limit": 10}, "tool_response": {}}
    await desk.answer("gemini", json.dumps(after).encode(), 5.0, stays)
    assert len(asked.told("tool:post")) == 1


AFTER = {
    "claude": ("post_tool_use", "tool_response", {}),
    "codex": ("post_tool_use", "tool_response", {}),
    "gemini": ("after_tool", "tool_response", {}),
    "cursor": ("post_tool_use", "tool_output", {"tool_name": "MCP:read"}),
    "copilot": ("post_tool_use", "toolResult", {}),
}
UNREADABLE = {
    "too deep": b"[" * 140 + b"]" * 140,
    "too many digits": b"9" * 5_000,
    "no number": b"NaN",
    "a key twice": b'{"a": "key-abc123", "a": 1}',
    "not in UTF-8": b'"caf\xe9"',
}


@pytest.mark.parametrize("result", UNREADABLE.values(), ids=UNREADABLE)
@ALL
async def test_a_result_that_cannot_be_read_is_withheld_where_a_required_scheduler_rules_on_such(
    client, result, sidecar, world
):
    await world.scheduler("policy", Continue(), phases=("result",))
    file, field, more = AFTER[client]
    event = {**load_named(client, file)["event"], field: "RESULT", **more}
    body = json.dumps(event).encode().replace(b'"RESULT"', b'{"text": "key-abc123", "x": ' + result + b"}")
    asked = await sidecar(required=["policy"])
    answer = await HookHandler(asked.service, denies=lambda: True).answer(client, body, 5.0, stays)
    jsonschema.validate(json.loads(answer), AFTER_SCHEMAS[client])
    assert b"its result is withheld" in answer
    assert b"abc123" not in answer
    free = await sidecar()
    assert await HookHandler(free.service, denies=lambda: True).answer(client, body, 5.0, stays) == b""


UNDRAWN = {
    "a field of that name": ("mcp__here__read", {"base64": "a key-abc123 b"}),
    "a blob without a type": ("mcp__here__read", [{"uri": "u", "blob": "a key-abc123 b"}]),
    "a picture that is none": ("mcp__here__read", [{"type": "image", "data": "a key-abc123 b"}]),
    "an output that is no picture": ("Bash", {"stdout": "a key-abc123 b", "stderr": "", "isImage": True}),
    "words behind a picture": (
        "Bash",
        {"stdout": f"data:image/png;base64,{'aGkh' * 40}\na key-abc123 b", "stderr": "", "isImage": True},
    ),
    "a file that is no picture": (
        "Read",
        {"type": "image", "file": {"type": "image/png", "base64": "a key-abc123 b"}},
    ),
}


@pytest.mark.parametrize(("tool", "result"), UNDRAWN.values(), ids=UNDRAWN)
async def test_what_only_looks_like_a_picture_is_ruled_on_as_a_text(tool, result, sidecar, world):
    seen = []

    async def withhold(call):
        seen.append(json.dumps(call.result))
        return Deny(reason="not yours")

    await world.scheduler("policy", withhold, phases=("result",))
    asked = await sidecar(required=["policy"])
    event = {**load_named("claude", "post_tool_use")["event"], "tool_name": tool, "tool_response": result}
    body = json.dumps(event).encode()
    answer = await HookHandler(asked.service, denies=lambda: True).answer("claude", body, 5.0, stays)
    assert "a key-abc123 b" in "".join(seen)
    jsonschema.validate(json.loads(answer), AFTER_SCHEMAS["claude"])
    assert b"abc123" not in answer


# ---------------------------------------------------------------------- whose end is told


def before_bash(command, id_="t1", **more):
    fields = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": id_, **more}
    return json.dumps({"hook_event_name": "PreToolUse", "session_id": "s", **fields}).encode()


def after_bash(command, id_="t1", **more):
    fields = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": id_, **more}
    told = {"hook_event_name": "PostToolUse", "session_id": "s", "tool_response": "done", **fields}
    return json.dumps(told).encode()


def by_command(**answers):
    """A scheduler that answers by the command; it continues with others."""
    return lambda call: answers.get(call.tool_input.get("command"), Continue())


@pytest.fixture
async def desk(world, sidecar):
    """`await desk(rm=Deny(…))`: hooks on a sidecar where this is answered by command."""

    async def make(**answers):
        await world.scheduler("policy", by_command(**answers))
        made = await sidecar(required=["policy"])
        return HookHandler(made.service, denies=lambda: True), made

    return make


async def test_a_denied_call_that_bears_another_ones_id_is_not_told_as_run(desk):
    hooks, sidecar = await desk(rm=Deny(reason="no"))
    assert await hooks.answer("claude", before_bash("ls"), 5.0, stays) == b""
    assert is_denied("claude", await hooks.answer("claude", before_bash("rm"), 5.0, stays))
    await hooks.answer("claude", after_bash("rm"), 5.0, stays)
    assert sidecar.told("tool:post") == []
    await hooks.answer("claude", after_bash("ls"), 5.0, stays)
    assert len(sidecar.told("tool:post")) == 1


async def test_a_question_that_the_user_refused_is_not_answered_by_the_next_call_with_its_id(desk):
    hooks, sidecar = await desk(rm=AskUser(prompt="Sure?"))
    decided = []
    sidecar.gate.subscribe(decided.append)
    assert b'"ask"' in await hooks.answer("claude", before_bash("rm"), 5.0, stays)
    assert await hooks.answer("claude", before_bash("ls"), 5.0, stays) == b""
    await hooks.answer("claude", after_bash("ls"), 5.0, stays)
    assert [one["decision_id"] for one in sidecar.told("tool:post")] == [decided[-1].id]
    assert decided[-1].tool_input == {"command": "ls"}


@pytest.mark.parametrize(("client", "id_"), [("claude", "t1"), ("copilot", "")])
async def test_of_two_questions_about_one_call_the_newer_is_answered_by_its_end(client, id_, desk):
    hooks, sidecar = await desk(rm=AskUser(prompt="Sure?"))
    decide, told = sidecar.service.decide, []

    async def note(asked, gone):
        told.append(await decide(asked, gone))
        return told[-1]

    sidecar.service.decide = note
    for _ in range(2):
        assert b'"ask"' in await hooks.answer(client, before_bash("rm", id_), 5.0, stays)
    await hooks.answer(client, after_bash("rm", id_), 5.0, stays)
    assert [one["decision_id"] for one in sidecar.told("tool:post")] == [told[1]["id"]]


async def test_a_call_that_its_user_changed_is_known_by_its_id_unless_another_bore_it(desk):
    hooks, sidecar = await desk()
    await hooks.answer("claude", before_bash("ls"), 5.0, stays)
    await hooks.answer("claude", after_bash("ls -a"), 5.0, stays)
    assert len(sidecar.told("tool:post")) == 1
    for command in ("ls", "pwd"):
        await hooks.answer("claude", before_bash(command, "t2"), 5.0, stays)
    await hooks.answer("claude", after_bash("ls -a", "t2"), 5.0, stays)
    assert len(sidecar.told("tool:post")) == 1


async def test_a_session_with_a_line_end_in_its_id_is_not_another_ones(desk):
    hooks, sidecar = await desk()
    await hooks.answer("claude", before_bash("ls", session_id="s", agent_id="a\nb"), 5.0, stays)
    await hooks.answer("claude", after_bash("ls", session_id="s\na", agent_id="b"), 5.0, stays)
    assert sidecar.told("tool:post") == []
