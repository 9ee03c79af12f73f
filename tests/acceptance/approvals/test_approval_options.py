"""`approval` and `toolgate approvals`, through processes."""

import asyncio
import json
import os
import pty
import sys

import pytest
from approval_world import People
from questions import decide
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.system]

RULES = """
rules:
  - {tools: transfer, when: {amount: {lt: 10}}, action: allow}
  - {tools: transfer, name: money, agents: "tell*", labels: {env: prod}, sessions: "s-*"}
  - {tools: refund, always: false}
  - {tools: [shell, note], schema: {required: [command]}}
  - {tools: "file_*"}
  - {tools: blind, when: {q: "rm*"}, unknown: allow}
  - name: app
    tools: app
    via: ask_user
    prompt: "May this go out?"
    options: [Send it, Keep it]
    expires_s: 30
"""
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOLS = {name: {} for name in ("transfer", "refund", "app", "file_read", "file_write")} | {"shell": SCHEMA}
WHO = {"session": "s-1", "agent": "teller", "labels": {"env": "prod"}}


@pytest.fixture
def people(schedulers):
    return People(schedulers.url, schedulers.namespace)


@pytest.fixture
async def gate(schedulers, tmp_path):
    """A gate on a bus where these rules hold."""
    file = tmp_path / "approval.yaml"
    file.write_text(RULES)
    await schedulers.start("approval", "--config", file)
    where = {"redis": schedulers.url, "namespace": schedulers.namespace}
    async with Gate.open(
        **where, required=["approval"], patience_ms=30_000, redact={"fields": ["token"]}
    ) as opened:
        yield opened


def deciding(gate, tool, arguments, **who):
    return asyncio.create_task(decide(gate, tool, arguments, TOOLS, **{**WHO, **who}))


async def ended(task):
    return await asyncio.wait_for(task, 10)


async def test_always_lets_later_calls_of_the_tool_pass_in_this_session_until_revoked(gate, people):
    task = deciding(gate, "file_read", {"path": "a"})
    (one,) = await people.waiting()
    done = await people("approve", one["id"], "--always", "--reason", "only files", "--as", "anna", "--json")
    assert (await ended(task)).outcome == "continue"
    later = await ended(deciding(gate, "file_read", {"path": "b"}))
    assert later.outcome == "continue"
    assert later.verdicts[0].verdict.reason.startswith("let pass for this session by anna@")

    (rule,) = (await people("list", "--always", "--json")).json
    assert rule["id"] == done.json[0]["always_id"]
    assert (rule["tool"], rule["session"], rule["by"], rule["reason"]) == (
        "file_read",
        "s-1",
        "anna",
        "only files",
    )
    assert 86_000 < rule["seconds_left"] <= 86_400
    assert "file_read" in (await people("list", "--always")).out

    others = [
        deciding(gate, "file_read", {"path": "b"}, session="s-2"),
        deciding(gate, "file_write", {"path": "b"}),
    ]
    await people.waiting(2)
    for task in others:
        task.cancel()

    assert (await people("revoke", rule["id"][:6])).code == 0
    assert (await people("revoke", rule["id"])).code == 1
    task = deciding(gate, "file_read", {"path": "c"})
    (one,) = await people.waiting()
    # The same arguments pass, others do not.
    assert (await people("approve", one["id"], "--always", "--exactly")).code == 0
    await ended(task)
    assert (await ended(deciding(gate, "file_read", {"path": "c"}))).outcome == "continue"
    task = deciding(gate, "file_read", {"path": "d"})
    assert len(await people.waiting(1)) == 1
    task.cancel()


async def test_where_always_may_not_be_it_is_refused_and_the_call_still_waits(gate, people):
    tasks = [
        deciding(gate, "refund", {}),
        deciding(gate, "file_read", {}, session=""),
        deciding(gate, "file_write", {"token": "s3cret"}),
    ]
    waiting = await people.waiting(3)
    ids = {one["tool_name"]: one["id"] for one in waiting}
    words = {"refund": "requires a person for each call", "file_read": "names no session"}
    for tool, why in words.items():
        no = await people("approve", ids[tool], "--always")
        assert no.code == 1
        assert why in no.err
    no = await people("approve", ids["file_write"], "--always", "--exactly")
    assert no.code == 1
    assert "placeholders" in no.err
    assert "s3cret" not in (await people("show", ids["file_write"])).out
    assert (await people("approve", ids["file_write"], "--exactly")).code == 2
    assert not any(task.done() for task in tasks)
    for task in tasks:
        task.cancel()


async def test_a_correction_that_the_gate_sets_aside_is_told_and_the_call_does_not_run(gate, people):
    task = deciding(gate, "shell", {"command": "rm -r /"})
    (one,) = await people.waiting()
    done = await people("edit", one["id"], "--arguments", '{"command": 7}')
    assert done.code == 1
    assert "set aside: the arguments do not fit the tool's schema" in done.err
    assert (await ended(task)).outcome == "deny"


async def test_a_correction_that_cannot_be_right_is_refused(gate, people):
    wrong = [
        (("--arguments", "[1]"), "must be a JSON object"),
        (("--arguments", "{"), "is not JSON"),
        (("--arguments", "@nowhere.json"), "nowhere.json cannot be read"),
        (("--tool", "rocket"), "the agent has no rocket"),
        (("--tool", "file_read"), "placeholders are valid for the same tool only"),
        (("--arguments", '{"token": "⟦toolgate:redacted:0⟧"}'), "not from this call"),
        ((), "there is no terminal"),
    ]
    task = deciding(gate, "file_write", {"token": "s3cret"})
    (one,) = await people.waiting()
    for done, (_, why) in zip(
        await asyncio.gather(*(people("edit", one["id"], *words) for words, _ in wrong)), wrong, strict=True
    ):
        assert (done.code, why in done.err) == (2, True), done.err
    assert not task.done()
    task.cancel()


async def test_a_correction_may_choose_another_tool_and_keep_what_was_redacted(gate, people, tmp_path):
    task = deciding(gate, "file_write", {"token": "s3cret", "path": "a"})
    (one,) = await people.waiting()
    file = tmp_path / "arguments.json"
    file.write_text(json.dumps({**one["tool_input"], "path": "b"}))
    done = await people("edit", one["id"], "--arguments", f"@{file}", "--json")
    assert done.code == 0
    decision = await ended(task)
    assert (decision.tool_name, decision.tool_input) == ("file_write", {"token": "s3cret", "path": "b"})
    (told,) = done.json
    assert (told["became"], told["outcome"], told["final_input"]["path"]) == ("given", "modify", "b")
    assert "s3cret" not in done.out

    task = deciding(gate, "file_write", {"path": "a"})
    (one,) = await people.waiting()
    assert (await people("edit", one["id"], "--tool", "file_read")).code == 0
    decision = await ended(task)
    assert (decision.tool_name, decision.tool_input) == ("file_read", {"path": "a"})


async def test_a_call_is_corrected_in_an_editor(gate, people, tmp_path):
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import pathlib, sys\nfile = pathlib.Path(sys.argv[1])\n"
        "file.write_text(file.read_text().replace('\"a\"', '\"edited\"'))\n"
    )
    task = deciding(gate, "file_write", {"path": "a"})
    (one,) = await people.waiting()
    outer, inner = pty.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "toolgate_bus", "approvals", "edit", one["id"]),
            *("--redis", people.url, "--namespace", people.namespace),
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env={**os.environ, "EDITOR": f"{sys.executable} {editor}"},
        )
        assert await asyncio.wait_for(process.wait(), 20) == 0
    finally:
        os.close(inner)
        os.close(outer)
    assert (await ended(task)).tool_input == {"path": "edited"}


async def test_list_follow_tells_what_comes_and_what_is_answered(gate, people):
    follower = await people.start("list", "--watch", "--json")

    async def line():
        return json.loads(await asyncio.wait_for(follower.stdout.readline(), 20))

    try:
        task = deciding(gate, "file_write", {"path": "a\u202e\x1b[2J"})
        came = await line()
        assert (came["event"], came["tool_input"]) == ("waiting", {"path": "a\u202e\x1b[2J"})
        shown = await people("show", came["id"])
        assert "\\u202e" in shown.out
        assert "\x1b" not in shown.out
        assert "\x1b" not in (await people("list")).out
        assert (await people("deny", came["id"], "--as", "anna")).code == 0
        over = await line()
        assert (over["event"], over["id"], over["answer"]["action"]) == ("over", came["id"], "deny")
        assert over["answer"]["by"] == "anna"
        assert (await ended(task)).reason == "A person was asked about this call and refused it (anna)"
        answered = (await people("show", came["id"], "--json")).json[0]
        assert (answered["seconds_left"], answered["answer"]["action"]) == (None, "deny")
    finally:
        follower.terminate()
        await follower.wait()


async def test_an_id_that_means_nothing_is_said_so(gate, people):
    assert (await people("show", "ffff")).code == 1
    for wrong in ("ff", "xyz!"):
        no = await people("approve", wrong)
        assert no.code == 2
        assert "hexadecimal digits" in no.err
    assert (await people("list")).err.startswith("No call waits")
    assert (await people("list", "--always")).err.startswith("Nothing passes")
    assert (await people("list", "--always", "--follow")).code == 2


async def test_schedulers_of_other_names_and_shadows_do_not_answer_for_each_other(
    schedulers, people, tmp_path
):
    file = tmp_path / "four_eyes.yaml"
    file.write_text("rules:\n- {tools: transfer}\n")
    names = ("treasury", "security")
    for name in names:
        await schedulers.start("approval", "--name", name, "--config", file)
    await schedulers.start("approval", "--name", "rehearsal", "--shadow", "--config", file)
    where = {"redis": schedulers.url, "namespace": schedulers.namespace}
    async with Gate.open(**where, required=list(names), patience_ms=30_000) as gate:
        task = deciding(gate, "transfer", {"amount": 1})
        waiting = await people.waiting(2)
        assert sorted(one["scheduler"] for one in waiting) == sorted(names)
        assert waiting[0]["id"] != waiting[1]["id"]
        first = await people("approve", waiting[0]["id"])
        assert (first.code, "Other schedulers have still to rule" in first.out) == (0, True)
        assert not task.done()
        assert (await people("approve", waiting[1]["id"])).code == 0
        assert (await ended(task)).outcome == "continue"


async def test_without_required_a_correction_that_is_set_aside_does_not_let_the_first_call_run(
    gate, people, schedulers
):
    where = {"redis": schedulers.url, "namespace": schedulers.namespace}
    async with Gate.open(**where, patience_ms=30_000) as optional:
        task = deciding(optional, "shell", {"command": "rm -r /"})
        (one,) = await people.waiting()
        assert (await people("edit", one["id"], "--arguments", '{"command": 7}')).code == 1
        decision = await ended(task)
    assert (decision.outcome, decision.why) == ("deny", "expired")
