"""`toolgate run` as a command: plans, exit codes, what goes where, and rulings by real schedulers."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.acceptance

CALCULATE = '{tool_calls: [{name: calculate, arguments: {expression: "6*7"}}]}'


@pytest.fixture
def plan(tmp_path: Path) -> Any:
    """`plan(turns, …)`: path of a plan whose LLM says these turns."""

    def write(*turns: str, more: str = "", tools: str = "[tool-calculator]") -> Path:
        path = tmp_path / "plan.yaml"
        lines = "".join(f"\n      - {turn}" for turn in turns)
        path.write_text(
            f"session: {{orchestrator: loop-events}}\ntools: {tools}\nproviders:\n"
            f"  - module: provider-scripted\n    config:\n      turns:{lines}\n{more}"
        )
        return path

    return write


@pytest.fixture
def on_bus(server_url: str, namespace: str) -> list[str]:
    return ["--redis", server_url, "--namespace", namespace]


def test_the_answer_goes_to_stdout_alone(process: Any, plan: Any, on_bus: list[str]) -> None:
    path = plan(CALCULATE, '{text: "It is ${last_result}."}')
    run = process("toolgate", "run", "What is 6*7?", "--plan", path, "--quiet", *on_bus)
    assert run.wait() == 0, run.stderr
    assert run.stdout == "It is 42.\n"
    assert run.stderr == ""


def test_json_tells_the_answer_the_status_and_the_decisions(
    process: Any, plan: Any, on_bus: list[str]
) -> None:
    run = process("toolgate", "run", "hi", "--plan", plan("{text: hello}"), "--json", "--quiet", *on_bus)
    assert run.wait() == 0, run.stderr
    told = json.loads(run.stdout)
    assert (told["answer"], told["status"], told["decisions"]) == ("hello", "success", [])
    assert told["session_id"]


@pytest.mark.parametrize("prompt", ["", " \n"])
def test_an_empty_prompt_is_refused(process: Any, prompt: str) -> None:
    run = process("toolgate", "run", prompt, "--plan", "none.yaml")
    assert run.wait() == 2
    assert "the prompt is empty" in run.stderr


def test_without_a_url_the_users_server_is_started_and_leaves_with_the_last(process: Any, plan: Any) -> None:
    run = process("toolgate", "run", "hi", "--plan", plan("{text: hello}"))
    assert run.wait() == 0, run.stderr
    assert run.stdout == "hello\n"


def test_an_error_of_the_provider_is_told_and_the_exit_code_is_1(
    process: Any, plan: Any, on_bus: list[str]
) -> None:
    run = process("toolgate", "run", "hi", "--plan", plan("{error: overloaded}"), "--quiet", *on_bus)
    assert run.wait() == 1
    assert "overloaded" in run.stdout + run.stderr
    run = process(
        "toolgate", "run", "hi", "--plan", plan("{error: overloaded}"), "--json", "--quiet", *on_bus
    )
    assert run.wait() == 1
    assert json.loads(run.stdout)["status"] == "error"


@pytest.mark.parametrize(
    ("tools", "more", "options", "named"),
    [
        ("[tool-nowhere, tool-elsewhere]", "", [], "tools.1: tool-elsewhere is not installed"),
        ("[{module: tool-calculator, config: {wrong: 1}}]", "", [], "tools.0.config.wrong: unknown key"),
        ("[]", "orchestrator: {config: {max_iteration: 1}}", [], "max_iteration: unknown key"),
        ("[]", "", ["--provider", "nix"], "'nix' is not mounted; mounted: scripted"),
        ("[]", "context: {config: {max_token: 1}}", [], "max_token: unknown key"),
        ("[]", "", ["--redis", "http://nowhere"], "redis"),
    ],
)
def test_what_is_wrong_with_a_plan_is_named_and_the_exit_code_is_2(
    process: Any, plan: Any, on_bus: list[str], tools: str, more: str, options: list[str], named: str
) -> None:
    run = process(
        "toolgate",
        "run",
        "hi",
        "--plan",
        plan("{text: x}", tools=tools, more=more),
        "--quiet",
        *on_bus,
        *options,
    )
    assert run.wait() == 2, run.stdout
    assert named in " ".join(run.stderr.split())
    assert "Traceback" not in run.stderr
    assert run.stdout == ""


def test_ctrl_c_ends_a_run_with_130(process: Any, plan: Any, on_bus: list[str], tmp_path: Path) -> None:
    path = plan(
        CALCULATE, more="orchestrator: {config: {toolgate: {required: [nobody], patience_ms: 60000}}}"
    )
    run = process("toolgate", "run", "hi", "--plan", path, "--quiet", *on_bus, env={"PYTHONUNBUFFERED": "1"})
    assert _waits_for_verdicts(run, on_bus)
    run.signal(signal.SIGINT)
    assert run.wait() == 130
    assert "Traceback" not in run.stderr


def _waits_for_verdicts(run: Any, on_bus: list[str]) -> bool:
    """Whether the run's question lies in the inbox of the required scheduler, within half a minute."""
    import time

    from redis import Redis

    client = Redis.from_url(on_bus[1])
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if any(client.scan_iter(f"tg:{{{on_bus[3]}:*}}:in:nobody")):
            client.close()
            return True
        time.sleep(0.02)
    client.close()
    pytest.fail(f"nothing was asked: {run.stderr}")


def test_a_scheduler_process_denies_and_replaces_and_the_person_reads_it_on_stderr(
    process: Any, plan: Any, on_bus: list[str], tmp_path: Path
) -> None:
    (tmp_path / "rulers.py").write_text(
        "from toolgate_schedulers import Continue, Deny, Modify, scheduler\n\n"
        '@scheduler(name="ruler")\n'
        "async def rule(call):\n"
        '    if "0" in call.tool_input["expression"]:\n'
        '        return Deny(reason="no zeroes")\n'
        '    if call.tool_input["expression"] == "6*7":\n'
        '        return Modify(tool="calculate", arguments={"expression": "6*9"}, reason="better")\n'
        "    return Continue()\n"
    )
    ruler = process("toolgate", "scheduler", "run", "rulers:rule", *on_bus, env={"PYTHONPATH": str(tmp_path)})
    path = plan(
        CALCULATE,
        '{tool_calls: [{name: calculate, arguments: {expression: "10"}}]}',
        '{text: "${last_result}"}',
        more="orchestrator: {config: {toolgate: {required: [ruler], patience_ms: 10000}}}",
    )
    run = process("toolgate", "run", "hi", "--plan", path, "--json", "--quiet", *on_bus)
    assert run.wait() == 0, run.stderr + ruler.stderr
    told = json.loads(run.stdout)
    assert "no zeroes" in told["answer"]
    assert [(one["outcome"], one["scheduler"]) for one in told["decisions"]] == [
        ("modify", "ruler"),
        ("deny", "ruler"),
    ]
    assert "modified calculate → calculate  (ruler: better)" in run.stderr
    assert "denied   calculate  (ruler: no zeroes)" in run.stderr


# ---------------------------------------------------------------- --stream

TALK_AND_CALL = f'{{text: "Let me see.", {CALCULATE.removeprefix("{")}'


@pytest.mark.parametrize("loop", ["loop-events", "loop-streaming", "loop-basic"])
def test_a_streamed_answer_goes_to_stdout_and_tool_calls_to_stderr(
    process: Any, plan: Any, on_bus: list[str], loop: str
) -> None:
    path = plan(TALK_AND_CALL, '{text: "It is ${last_result}."}')
    path.write_text(path.read_text().replace("loop-events", loop))
    run = process("toolgate", "run", "What is 6*7?", "--plan", path, "--stream", "--quiet", *on_bus)
    assert run.wait() == 0, run.stderr
    assert run.stdout == "Let me see.\nIt is 42.\n"
    assert re.fullmatch(r'tool     calculate\(expression="6\*7"\)  ok  \d+ ms\n', run.stderr), run.stderr


def test_a_streamed_run_tells_text_before_the_answer_is_complete(
    process: Any, plan: Any, on_bus: list[str]
) -> None:
    words = " ".join(f"w{number}." for number in range(200))
    path = plan(f'{{text: "{words}"}}')
    path.write_text(path.read_text().replace("config:\n", "config:\n      pace_s: 0.1\n", 1))
    as_ever = {"PYTHONUNBUFFERED": ""}
    pipe = {"stdout": subprocess.PIPE, "bufsize": 0, "env": as_ever}
    run = process("toolgate", "run", "hi", "--plan", path, "--stream", "--quiet", *on_bus, **pipe)
    told = b""
    while b"w2." not in told:
        piece = run.popen.stdout.read(64)
        assert piece, run.stderr
        told += piece
    assert b"w100." not in told
    run.signal(signal.SIGINT)
    assert run.wait() == 130
    assert "Traceback" not in run.stderr


def test_streamed_json_is_one_event_a_line_and_the_answer_the_last(
    process: Any, plan: Any, on_bus: list[str]
) -> None:
    path = plan(TALK_AND_CALL, r'{text: "It is ${last_result}\e[31m."}')
    run = process("toolgate", "run", "What is 6*7?", "--plan", path, "--stream", "--json", "--quiet", *on_bus)
    assert run.wait() == 0, run.stderr
    events = [json.loads(line) for line in run.stdout.splitlines()]
    assert [event["event"] for event in events] == [
        *["text"] * 3,
        "tool",
        "tool_result",
        *["text"] * 3,
        "answer",
    ]
    called, done = events[3:5]
    assert (called["tool"], called["arguments"]) == ("calculate", {"expression": "6*7"})
    assert (done["tool_call_id"], done["success"]) == (called["tool_call_id"], True)
    assert done["seconds"] >= 0
    assert "".join(event["text"] for event in events[5:8]) == events[-1]["answer"] == "It is 42\x1b[31m."
    assert events[-1]["status"] == "success"
    assert events[-1]["session_id"]
    assert run.stderr == ""


def test_streamed_json_tells_decisions_and_errors(
    process: Any, plan: Any, on_bus: list[str], tmp_path: Path
) -> None:
    path = plan(
        CALCULATE,
        "{error: overloaded}",
        more="orchestrator: {config: {toolgate: {required: [nobody], patience_ms: 1}}}",
    )
    run = process("toolgate", "run", "hi", "--plan", path, "--stream", "--json", "--quiet", *on_bus)
    assert run.wait() == 1, run.stderr
    events = [json.loads(line) for line in run.stdout.splitlines()]
    assert [event["event"] for event in events] == ["decision", "answer"]
    assert (events[0]["outcome"], events[0]["silent"]) == ("deny", ["nobody"])
    assert events[1]["status"] == "error"
    assert "overloaded" in events[1]["answer"]
    assert "denied   calculate" in run.stderr


def test_a_streamed_error_goes_to_stderr_and_the_exit_code_is_1(
    process: Any, plan: Any, on_bus: list[str]
) -> None:
    for loop in ("loop-events", "loop-streaming"):
        path = plan("{error: overloaded}")
        path.write_text(path.read_text().replace("loop-events", loop))
        run = process("toolgate", "run", "hi", "--plan", path, "--stream", "--quiet", *on_bus)
        assert run.wait() == 1
        assert run.stdout == ""
        assert run.stderr.startswith("Error: ")
        assert "overloaded" in run.stderr
        assert run.stderr.count("\n") == 1


def test_a_reader_that_goes_away_is_no_crash(process: Any, plan: Any, on_bus: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    path = plan("{text: one two three}")
    run = process("toolgate", "run", "hi", "--plan", path, "--stream", "--quiet", *on_bus, stdout=writer)
    os.close(writer)
    assert run.wait() == 0
    assert run.stderr == ""


@pytest.mark.parametrize(
    ("toolgate", "code"),
    [
        ({"required": ["policy"]}, 1),
        ({"on_bus_down": "deny"}, 1),
        ({"required": ["policy"], "on_bus_down": "continue"}, 0),
        ({}, 0),
    ],
)
def test_without_its_bus_a_run_whose_calls_would_all_be_denied_does_not_begin(
    process: Any, tmp_path: Path, toolgate: dict[str, Any], code: int
) -> None:
    path = tmp_path / "plan.yaml"
    provider = {"module": "provider-scripted", "config": {"turns": [{"text": "It began."}]}}
    loop = {"module": "loop-basic", "config": {"toolgate": toolgate}}
    path.write_text(
        yaml.safe_dump(
            {"session": {"orchestrator": "loop-basic"}, "orchestrators": [loop], "providers": [provider]}
        )
    )
    running = process("toolgate", "run", "Begin", "--plan", path, "--redis", "redis://127.0.0.1:1/0")
    assert running.wait() == code, running.stderr
    assert ("It began." in running.stdout) is (code == 0)
    assert "127.0.0.1:1" in running.stderr
    assert ("rule on every call, but cannot be asked" in running.stderr) is (code == 1)
