"""Entries in the settings of each coding agent: their text, their place, and how to find them again. Pure.

`install` puts these entries beside those of others, and `uninstall` removes only these. Each client has its
own way to set a timeout, and to have a broken hook deny the call. Where a client has no such way, the command
itself denies.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from toolgate_bus.errors import ConfigError

Scope = Literal["user", "project"]
TIMEOUT_S: Final = 120
FALLBACK: Final = "|| sh -c 'echo The hook of Toolgate failed, so the call was not run. >&2; exit 2'"
"""Words after the command that deny the call if the process fails: every client takes exit code 2 for a
denial, and every shell takes these words."""
BY: Final = "?by=toolgate"
_OURS: Final = re.compile(r"toolgate_hook\.py['\"]? |toolgate-hook |\?by=toolgate")


class ClientFiles(NamedTuple):
    """Place and form of one client's hooks."""

    title: str
    user: str
    """Path of the user's settings below the home folder."""
    project: str
    """Path of a project's settings below the project's folder."""
    before: str
    after: tuple[str, ...]
    """Events after a call. `before` is the event before one."""
    prompt: str = ""
    """Event of the user's words before a turn; empty if the client's hooks cannot refuse it."""
    home: str = ""
    """Environment variable that replaces the first folder of `user`; empty if there is none."""
    grouped: bool = True
    """True if hooks stand in groups, each with a matcher of its own."""
    comments: bool = False
    """True if the client allows comments in its JSON."""
    root: Mapping[str, Any] = {}
    """Content of a new settings file."""
    notes: tuple[str, ...] = ()
    """Limits of the client that its users should know."""


CLIENTS: Final[Mapping[str, ClientFiles]] = {
    "claude": ClientFiles(
        "Claude Code",
        ".claude/settings.json",
        ".claude/settings.json",
        "PreToolUse",
        ("PostToolUse", "PostToolUseFailure", "PostToolBatch"),
        "UserPromptSubmit",
        home="CLAUDE_CONFIG_DIR",
        notes=(
            "Results are masked, replaced or withheld, from 2.1.233 on. For a failed tool the turn ends.",
            "Sub-agents ask as well, and are shown below their agent; versions before 2.1.233 did not ask.",
            "From 2.1.295 on, a hook that crashes or is late denies the call (onFailure: block).",
        ),
    ),
    "codex": ClientFiles(
        "Codex CLI",
        ".codex/hooks.json",
        ".codex/hooks.json",
        "PreToolUse",
        ("PostToolUse",),
        "UserPromptSubmit",
        home="CODEX_HOME",
        notes=(
            "A masked or withheld result is given as the words of a block. Failed tools are not ruled on.",
            "Codex runs a new or changed hook only once you have trusted it: open /hooks in Codex.",
            "Hooks need Codex 0.124 or newer; a late hook lets the call run.",
            "A failed tool sends no event, so its reservation is settled at the estimate.",
        ),
    ),
    "gemini": ClientFiles(
        "Gemini CLI",
        ".gemini/settings.json",
        ".gemini/settings.json",
        "BeforeTool",
        ("AfterTool",),
        "BeforeAgent",
        comments=True,
        notes=(
            "A masked or withheld result is given as the reason of a denial.",
            "A late hook lets the call run.",
            "Sub-agents in its process ask under the same session; remote agents do not ask.",
        ),
    ),
    "cursor": ClientFiles(
        "Cursor",
        ".cursor/hooks.json",
        ".cursor/hooks.json",
        "preToolUse",
        ("postToolUse", "postToolUseFailure"),
        "beforeSubmitPrompt",
        grouped=False,
        root={"version": 1},
        notes=(
            "Only results of MCP tools are ruled on: hooks cannot withhold those of Cursor's own tools.",
            "If a scheduler is required, a hook that crashes or is late denies the call (failClosed).",
            "It is not known whether sub-agents' calls ask: deny the tool Task if that matters.",
        ),
    ),
    "copilot": ClientFiles(
        "Copilot CLI",
        ".copilot/hooks/toolgate.json",
        ".github/hooks/toolgate.json",
        "preToolUse",
        ("postToolUse", "postToolUseFailure"),
        home="COPILOT_HOME",
        grouped=False,
        root={"version": 1},
        notes=(
            "Results are masked, replaced or withheld. Those of failed tools, and prompts, are not ruled on.",
            "A hook that crashes denies the call; a late one lets it run.",
            "Sub-agents ask as well, and are shown below their agent; in 1.0.12 and 1.0.31 they did not ask.",
        ),
    ),
}


class HookSettings(NamedTuple):
    """Settings that an entry passes to the installed hook."""

    client: str
    required: tuple[str, ...] = ()
    timeout_s: int = TIMEOUT_S
    config: str = ""
    agent: str = ""
    command: tuple[str, ...] = ()
    """Program that the client runs, with its first arguments."""
    url: str = ""
    """Address of a sidecar that the client asks by itself over HTTP; empty for a command."""
    token_env: str = ""
    """Variable of the client's environment that holds the sidecar's token."""


def find_path(client: str, scope: Scope, home: Path, project: Path, environ: Mapping[str, str]) -> Path:
    """Return the path of a client's settings file."""
    files = CLIENTS[client]
    if scope == "project":
        return project / files.project
    own = environ.get(files.home, "") if files.home else ""
    return Path(own) / files.user.partition("/")[2] if own else home / files.user


def make_entries(settings: HookSettings) -> dict[str, dict[str, Any]]:
    """Return the entry to add to the list of each event."""
    files = CLIENTS[settings.client]
    return {
        event: {"hooks": [handler]} if files.grouped else handler
        for event in filter(None, (files.before, *files.after, files.prompt))
        for handler in (_make_handler(settings, event, is_before=event == files.before),)
    }


def _make_handler(settings: HookSettings, event: str, *, is_before: bool) -> dict[str, Any]:
    client, seconds = settings.client, settings.timeout_s
    denies = is_before and bool(settings.required)
    if settings.url:
        return _make_http(settings, seconds, denies=denies)
    command = make_command(settings, seconds, denies=denies)
    if client == "gemini":
        return {"type": "command", "name": "toolgate", "command": command, "timeout": seconds * 1000}
    if client == "cursor":
        return {"command": command, "timeout": seconds, **({"failClosed": True} if denies else {})}
    if client == "copilot":
        return {"type": "command", "bash": command, "timeoutSec": seconds}
    closed = {"onFailure": "block"} if denies and client == "claude" else {}
    return {"type": "command", "command": command, "timeout": seconds, **closed}


def _make_http(settings: HookSettings, seconds: int, *, denies: bool) -> dict[str, Any]:
    if settings.client != "claude":
        raise ConfigError(f"--http: {CLIENTS[settings.client].title} can ask only by a command")
    url = f"{settings.url.rstrip('/')}/hooks/{settings.client}{BY}&timeout={seconds}"
    handler: dict[str, Any] = {"type": "http", "url": url, "timeout": seconds}
    if settings.token_env:
        handler["headers"] = {"Authorization": f"Bearer ${settings.token_env}"}
        handler["allowedEnvVars"] = [settings.token_env]
    return {**handler, "onFailure": "block"} if denies else handler


def make_command(settings: HookSettings, seconds: int, *, denies: bool) -> str:
    """Return the line that the client runs in its shell."""
    words = [*settings.command, settings.client, "--timeout", str(seconds)]
    for name in settings.required:
        words += ["--required", name]
    words += ["--config", settings.config] if settings.config else []
    words += ["--agent", settings.agent] if settings.agent else []
    line = shlex.join(words)
    if denies:
        return f"{line} {FALLBACK}"
    return f"{line} || true" if settings.client == "copilot" else line


def find_handlers(value: Any, client: str) -> Iterator[tuple[str, int, int | None]]:
    """Yield the place of each entry of Toolgate: event, index in its list, index in its group.

    The last one is None if the entry has no group, or is alone in it.
    """
    hooks = value.get("hooks") if isinstance(value, dict) else None
    for event, entries in hooks.items() if isinstance(hooks, dict) else ():
        for at, entry in enumerate(entries if isinstance(entries, list) else ()):
            inner = entry.get("hooks") if isinstance(entry, dict) and CLIENTS[client].grouped else None
            if inner is None:
                if is_ours(entry):
                    yield event, at, None
                continue
            for place, handler in enumerate(inner if isinstance(inner, list) else ()):
                if is_ours(handler):
                    yield event, at, None if len(inner) == 1 else place


def is_ours(handler: Any) -> bool:
    """Return whether `install` wrote this hook."""
    if not isinstance(handler, dict):
        return False
    told = (handler.get(name) for name in ("command", "bash", "url"))
    return any(isinstance(text, str) and _OURS.search(text) is not None for text in told)
