"""What each way in says, and does, where nobody rules: one line a process, on the stream that people read.

`test_vacancy.py` tests the words, `test_hook_lives.py` hooks, `test_bundle_gated.py` bundles. Here whole
processes are looked at.
"""

import asyncio
import json
import subprocess

import pytest
import yaml

pytestmark = pytest.mark.acceptance

RUN, DENIED = "tool calls run without rulings: ", "tool calls are denied: "
NO_SERVER = "no server is named (`redis`, TOOLGATE_REDIS_URL), and you run none in "
CALCULATE = {"tool_calls": [{"name": "calculate", "arguments": {"expression": "6 * 7"}}]}
PROGRAM = """
import asyncio
from toolgate_orchestrator import Call, Gate, Guard

for fields in ({}, {}, {"required": ["policy"]}):
    guard = Guard(**fields)
    for _ in range(2):
        print(guard.run_sync(Call("t"), lambda *_: "ran", denied=lambda ruling: ruling.refusal))
    guard.close()

async def main():
    for fields in ({}, {"required": ["policy"]}):
        async with Gate.open(**fields) as gate:
            print((await gate.decide(Call("t", {}, ["t"]))).outcome)

asyncio.run(main())
"""


@pytest.fixture
def plan(tmp_path):
    """`plan(toolgate, **more)`: a file whose agent makes one call, and says what came of it."""

    def write(toolgate=None, **more):
        script = {"turns": [CALCULATE, {"text": "${last_result}"}]}
        section = {"config": {"toolgate": toolgate}} if toolgate else {}
        whole = {
            "session": {"orchestrator": {"module": "loop-events", **section}},
            "tools": ["tool-calculator"],
            "providers": [{"module": "provider-scripted", "config": script}],
            **more,
        }
        path = tmp_path / "plan.yaml"
        path.write_text(yaml.safe_dump(whole))
        return path

    return write


@pytest.fixture
def run(process, server_url, namespace):
    """`await run(plan, …)`: a command that has ended, with its lines about nobody."""

    async def ended(path, *words, where=namespace, command="run", prompts=None):
        begin = ["run", "what is it?"] if command == "run" else [command]
        options = ("--plan", path, "--redis", server_url, "--namespace", where)
        piped = {"stdin": subprocess.PIPE} if prompts else {}
        running = process("toolgate", *begin, *options, *words, **piped)
        if prompts:
            running.popen.stdin.write(prompts)
            running.popen.stdin.close()
        code = await asyncio.to_thread(running.wait, 60)
        return code, running, [line for line in running.stderr.splitlines() if line.startswith((RUN, DENIED))]

    return ended


async def test_a_program_without_a_server_has_one_line_for_what_runs_and_one_for_what_is_denied(
    process, short_directory
):
    env = {"XDG_RUNTIME_DIR": str(short_directory), "TOOLGATE_REDIS_URL": ""}
    running = process("python", "-c", PROGRAM, env=env)
    assert await asyncio.to_thread(running.wait, 60) == 0, running.stderr
    *ran, denied, again, gate, gate_denied = running.stdout.splitlines()
    assert (ran, gate, gate_denied) == (["ran"] * 4, "continue", "deny")
    assert denied == again
    assert NO_SERVER in denied
    assert "start it (toolgate scheduler run policy)" in denied
    where = f"{NO_SERVER}{short_directory}/toolgate; "
    lines = running.stderr.splitlines()
    assert [line.partition(" (toolgate")[0] for line in lines] == [
        f"{RUN}{where}start a scheduler",
        f"{DENIED}policy must rule, and {where}start it",
    ]


async def test_run_and_chat_say_it_once_before_the_first_turn(run, plan, server_url, namespace):
    for command in ("run", "chat"):  # whose stdin has ended
        code, running, (line,) = await run(plan(), command=command)
        assert code == 0, running.stderr
        assert line.startswith(f"{RUN}no scheduler is alive on {server_url.partition('?')[0]}")
        assert f"namespace {namespace}" in line  # others on this server may be named after it
        assert "; start a scheduler (toolgate scheduler run NAME)" in line
    code, running, lines = await run(plan(), "--quiet")
    assert (code, running.stdout, lines) == (0, "42\n", [])


async def test_run_says_once_who_is_required_and_not_alive_and_in_which_namespace_it_is(
    run, plan, schedulers, namespace
):
    await schedulers.start("obedient:alpha")
    asked = plan({"required": ["alpha"], "patience_ms": 200})
    code, running, (line,) = await run(asked, where=f"{namespace}x")
    assert code == 0
    assert running.stdout.startswith("The tool call was denied: The required scheduler cannot rule")
    assert line.startswith(f"{DENIED}alpha must rule and is not alive on ")
    assert f"namespace {namespace}x, but some are in namespace" in line
    assert line.endswith("start it (toolgate scheduler run alpha)")


async def test_what_hooks_of_the_session_deny_is_no_call_without_rulings(run, plan):
    costs = {"module": "hooks-scheduler-cost-aware", "config": {"tools": {"calculate": {"cost": 1}}}}
    code, running, lines = await run(plan(hooks=[costs]))
    assert (code, lines) == (0, []), running.stderr


async def test_a_required_scheduler_that_raises_is_named_with_its_error_to_the_user_and_not_to_the_llm(
    run, plan, schedulers, namespace
):
    await schedulers.start("unhelpful:raising")
    code, running, lines = await run(plan({"required": ["raising"]}))
    assert (code, lines) == (0, [])
    (line,) = [one for one in running.stderr.splitlines() if "could not decide" in one]
    assert line.startswith(
        "raising is required and could not decide: it raised LookupError; calls are denied"
    )
    assert "LookupError" not in running.stdout


async def test_run_and_a_script_of_chat_end_with_1_where_a_request_to_the_llm_was_denied(
    run, plan, schedulers
):
    await schedulers.start("unhelpful:miser")
    for command in ("run", "chat"):
        code, running, _ = await run(plan({"required": ["miser"]}), command=command, prompts=b"hello\n")
        assert code == 1, command
        assert "The language model was not asked: the budget is used up" in running.stdout


async def test_serve_says_it_once_when_it_starts(process, server_url, namespace, short_directory, wait_until):
    for words, told in (((), RUN), (("--required", "policy"), f"{DENIED}policy must rule and is not alive")):
        where = ("--socket", short_directory / "s", "--redis", server_url, "--namespace", namespace)
        running = process("toolgate", "serve", *where, "--json", *words)
        await wait_until(lambda running=running: running.stdout.endswith("\n"), timeout=50)
        assert json.loads(running.stdout)["event"] == "ready"
        assert running.stderr.count(told) == 1
        assert len(running.stderr.splitlines()) == 1
        running.end()


def test_mcp_without_a_client_says_so(process):
    running = process("toolgate", "mcp", "--", "cat")
    assert running.wait(60) == 2
    assert "stdin is /dev/null, but `toolgate mcp` needs the client" in running.stderr
