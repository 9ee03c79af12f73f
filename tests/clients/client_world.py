"""Starts coding agents' own programs without a terminal, in a home, a folder and a fleet of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from hook_world import HookWorld
from programs import path_of
from scripted_llm import Use

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
WAIT = "sleep 8"
"""While a sub-agent works in the background."""
RUN_S = 150.0
"""A program's start unpacks up to 500 MB."""


class Client:
    """One program: where its LLM is told to it, and how its tools are called."""

    name: ClassVar[str]
    tool: ClassVar[str]
    """It runs a command in a shell."""
    seen_as: ClassVar[str] = ""
    """What its hook calls that tool, where that is another name."""
    settings: ClassVar[str]
    """Where `toolgate hook install` writes, below the home."""
    words: ClassVar[tuple[str, ...]] = ()

    def use(self, command: str) -> Use:
        """A call of its shell."""
        return Use(self.tool, {"command": command, "description": "a step"})

    def delegate(self, prompt: str) -> list[list[Use]]:
        """Responses that have a sub-agent follow that prompt."""
        raise NotImplementedError

    def prepare(self, home: Path, url: str) -> dict[str, str]:
        """Write what it needs to know of its LLM; gives its environment."""
        raise NotImplementedError


class Claude(Client):
    """Claude Code."""

    name, tool, settings = "claude", "Bash", ".claude/settings.json"
    words = ("-p", "{prompt}", "--output-format", "json", "--allowedTools", "Bash,Agent,Task,mcp__here")

    def delegate(self, prompt):
        asks = {"description": "a part", "prompt": prompt, "subagent_type": "general-purpose"}
        return [[Use("Agent", asks)]]

    def prepare(self, home, url):
        return {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }


class Codex(Client):
    """Codex CLI."""

    name, tool, settings = "codex", "exec_command", ".codex/hooks.json"
    seen_as = "Bash"
    words = ("exec", "--skip-git-repo-check", "--json", "--dangerously-bypass-hook-trust", "{prompt}")

    def use(self, command):
        return Use(self.tool, {"cmd": command})

    def delegate(self, prompt):
        asks = {"message": prompt}
        return [[Use("spawn_agent", asks, "multi_agent_v1")], [self.use(WAIT)]]

    def prepare(self, home, url):
        lines = (
            'model = "scripted"',
            'model_provider = "scripted"',
            'approval_policy = "never"',
            'sandbox_mode = "danger-full-access"',
            "[model_providers.scripted]",
            'name = "scripted"',
            f'base_url = "{url}/v1"',
            'env_key = "SCRIPTED_KEY"',
            'wire_api = "responses"',
        )
        (home / ".codex").mkdir(exist_ok=True)
        (home / ".codex/config.toml").write_text("\n".join(lines))
        return {"SCRIPTED_KEY": "none"}


class Gemini(Client):
    """Gemini CLI."""

    name, tool, settings = "gemini", "run_shell_command", ".gemini/settings.json"
    words = ("-p", "{prompt}", "--yolo", "-m", "gemini-2.5-flash", "-o", "json")

    def delegate(self, prompt):
        return [[Use("invoke_agent", {"agent_name": "generalist", "prompt": prompt})]]

    def prepare(self, home, url):
        path = home / self.settings
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}))
        return {
            "GOOGLE_GEMINI_BASE_URL": url,
            "GEMINI_API_KEY": "none",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        }


class Copilot(Client):
    """Copilot CLI."""

    name, tool, settings = "copilot", "bash", ".copilot/hooks/toolgate.json"
    words = ("-p", "{prompt}", "--allow-all-tools")

    def delegate(self, prompt):
        asks = {"description": "a part", "prompt": prompt, "agent_type": "general-purpose", "name": "part"}
        return [[Use("task", asks)]]

    def prepare(self, home, url):
        return {
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_BASE_URL": url,
            "COPILOT_PROVIDER_TYPE": "anthropic",
            "COPILOT_PROVIDER_API_KEY": "none",
            "COPILOT_MODEL": "claude-sonnet-4.5",
        }


CLIENTS: dict[str, Client] = {one.name: one for one in (Claude(), Codex(), Gemini(), Copilot())}


class ClientWorld:
    """One user's home and folder, and the fleet that rules on what their coding agents do."""

    def __init__(self, hooks: HookWorld, base: Path) -> None:
        self.home, self.folder = base / "home", base / "work"
        for one in (self.home, self.folder):
            one.mkdir()
        dropped = ("CLAUDE", "ANTHROPIC", "OPENAI", "CODEX", "GEMINI", "GOOGLE", "COPILOT", "GITHUB", "GH_")
        mine = {name: value for name, value in hooks.env.items() if not name.startswith(dropped)}
        path = os.pathsep.join((str(BIN), os.environ["PATH"]))
        self.env = {**mine, "HOME": str(self.home), "PATH": path, "NO_COLOR": "1"}

    def toolgate(self, *words: object) -> "subprocess.CompletedProcess[str]":
        """A command of ours, as the user."""
        command = [sys.executable, "-m", "toolgate_bus", *map(str, words)]
        return self.wait_for(command, self.env, 60)

    def rows(self, *words: object) -> list[dict[str, Any]]:
        """What a command prints with --json."""
        done = self.toolgate(*words, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def run(
        self, client: Client, url: str, prompt: str, *more: str, env: Mapping[str, str] = {}
    ) -> "subprocess.CompletedProcess[str]":
        """The program from its beginning to its end; what it needs was prepared."""
        words = [word.replace("{prompt}", prompt) for word in client.words]
        return self.wait_for([str(path_of(client.name)), *words, *more], {**self.env, **env})

    def wait_for(
        self, command: Sequence[str], env: Mapping[str, str], timeout_s: float = RUN_S
    ) -> "subprocess.CompletedProcess[str]":
        """A program, in the user's folder, to its end."""
        return subprocess.run(
            command,
            cwd=self.folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
