"""`toolgate chat` where stdin is not a terminal: a script's prompts, one a line."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.acceptance, pytest.mark.system]


@pytest.fixture
def chat(process: Callable[..., Any], tmp_path: Path, server_url: str, namespace: str) -> Callable[..., Any]:
    """`chat("one\\ntwo\\n", turn, …)`: a chat whose stdin is this, and whose LLM says these turns."""

    def start(prompts: str, *turns: dict[str, Any], **plan: Any) -> Any:
        provider = {"module": "provider-scripted", "config": {"turns": list(turns)}}
        mount = {"session": {"orchestrator": "loop-streaming"}, "tools": [], "providers": [provider]}
        (tmp_path / "plan.yaml").write_text(json.dumps(mount | plan))
        (tmp_path / "prompts").write_text(prompts)
        where = ("--plan", tmp_path / "plan.yaml", "--redis", server_url, "--namespace", namespace)
        with (tmp_path / "prompts").open("rb") as stdin:
            return process("toolgate", "chat", "--quiet", *where, stdin=stdin)

    return start


def test_each_line_is_answered_on_stdout_and_nothing_else_is_there(chat: Any) -> None:
    run = chat("hello\n\nonce more\n", {"text": "first"}, {"text": "second"}, {"text": "third"})
    assert run.wait() == 0, run.stderr
    assert run.stdout == "first\nsecond\n"
    assert run.stderr == ""


def test_the_conversation_goes_on_after_a_failed_turn_and_the_exit_code_tells(chat: Any) -> None:
    run = chat("hello\nagain", {"error": "overloaded"}, {"text": "better"})
    assert run.wait() == 1, run.stderr
    assert run.stdout == "better\n"
    assert "overloaded" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_script_may_leave_early(chat: Any) -> None:
    run = chat("/quit\nhello\n", {"text": "never"})
    assert run.wait() == 0, run.stderr
    assert run.stdout == ""


def test_the_answer_to_a_line_comes_before_the_next_line_is_there(
    process: Callable[..., Any], tmp_path: Path, server_url: str, namespace: str
) -> None:
    path = tmp_path / "plan.yaml"
    turns = [{"text": "first"}, {"text": "second"}]
    provider = {"module": "provider-scripted", "config": {"turns": turns}}
    path.write_text(json.dumps({"session": {"orchestrator": "loop-basic"}, "providers": [provider]}))
    as_ever = {"PYTHONUNBUFFERED": ""}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0, "env": as_ever}
    where = ("--redis", server_url, "--namespace", namespace)
    run = process("toolgate", "chat", "--quiet", "--plan", path, *where, **pipes)
    for answer in (b"first\n", b"second\n"):
        run.popen.stdin.write(b"go\n")
        assert run.popen.stdout.readline() == answer
    run.popen.stdin.close()
    assert run.wait() == 0


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        (
            {"tools": ["tool-nowhere"]},
            "plan.yaml:1: tools.0: tool-nowhere is not installed; there is tool-calculator",
        ),
        ({"orchestrator": {"config": {"max_iteration": 1}}}, "max_iteration: unknown key"),
        ({"providers": []}, "the plan mounts none"),
    ],
)
def test_what_is_wrong_with_a_plan_is_named_and_the_exit_code_is_2(
    chat: Any, plan: dict[str, Any], named: str
) -> None:
    run = chat("hello\n", {"text": "never"}, **plan)
    assert run.wait() == 2, run.stdout
    assert named in " ".join(run.stderr.split())
    assert "Traceback" not in run.stderr
    assert run.stdout == ""
