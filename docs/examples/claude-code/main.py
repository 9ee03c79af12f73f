"""Install the hook in a project of its own, and call it as Claude Code does: python main.py"""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

RULES = Path(__file__).with_name("rules.yaml")
CALLS = [
    ("Bash", {"command": "git status"}),
    ("Bash", {"command": "rm -rf build"}),
    ("Bash", {"command": "git push"}),
]
TOOLGATE = [sys.executable, "-m", "toolgate_bus"]
END_S = 30
"""Longest time that the hook's sidecar may take to end, in seconds."""


@contextmanager
def scheduler(*words):
    """Run `toolgate scheduler run …` beside this program, from the moment that it rules."""
    command = [*TOOLGATE, "scheduler", "run", *words, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        if not process.stdout.readline():  # it prints a line once it rules
            sys.exit(process.stderr.read())
        try:
            yield
        finally:
            process.terminate()
            process.communicate()


@contextmanager
def own_folders():
    """Give a project to write to, and keep your own settings and sidecars out of it."""
    with tempfile.TemporaryDirectory(prefix="tg-", ignore_cleanup_errors=True) as folder:
        for name in ("TOOLGATE_REDIS_URL", "TOOLGATE_NAMESPACE", "TOOLGATE_KEYS"):
            os.environ.pop(name, None)
        os.environ |= {"XDG_RUNTIME_DIR": folder, "XDG_STATE_HOME": folder, "TOOLGATE_HOOK_IDLE_S": "1"}
        project = Path(folder, "project")
        project.mkdir()
        yield project
        until = time.monotonic() + END_S
        while list(Path(folder).glob("toolgate-hook/*.sock")) and time.monotonic() < until:
            time.sleep(0.1)  # it ends a second after the last call


def ask_hook(project, event, tool, arguments, number, **more):
    """Run the hook of the project's settings for an event, and return its answer."""
    settings = json.loads((project / ".claude" / "settings.json").read_text())
    command = settings["hooks"][event][0]["hooks"][0]["command"]
    told = {
        "hook_event_name": event,
        "session_id": "session-1",
        "cwd": str(project),
        "tool_name": tool,
        "tool_input": arguments,
        "tool_use_id": f"call-{number}",
        **more,
    }
    ended = subprocess.run(["/bin/sh", "-c", command], input=json.dumps(told), capture_output=True, text=True)
    return json.loads(ended.stdout or "{}").get("hookSpecificOutput", {})


def main():
    """Run it once, from the first process to the last."""
    hook = [*TOOLGATE, "hook"]
    with own_folders() as project, scheduler("policy", "--config", RULES):
        install = ["install", "claude", "--required", "policy", "--project"]
        subprocess.run([*hook, *install], cwd=project, check=True, stdout=subprocess.DEVNULL)
        for number, (tool, arguments) in enumerate(CALLS):
            print(tool, json.dumps(arguments))
            answer = ask_hook(project, "PreToolUse", tool, arguments, number)
            decision = answer.get("permissionDecision", "no objection")
            print(f"    {decision}: {answer.get('permissionDecisionReason', 'Claude Code goes on')}")
            if decision != "deny":  # it runs, and Claude Code tells the hook so
                ask_hook(project, "PostToolUse", tool, arguments, number, tool_response={"stdout": ""})


if __name__ == "__main__":
    main()
