"""Find the file of a session.

    session_log_template, else directory, else AMPLIFIER if the host names its working directory or the plan
    gives a `mode`, else the user's state directory

A template knows `{project}` (the working directory as one name) and `{session_id}`, and nothing else.
"""

import os
import re
from pathlib import Path
from typing import Any, Final

from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.modules.hooks_logging.file import file_name

AMPLIFIER: Final = "~/.amplifier/projects/{project}/sessions/{session_id}/events.jsonl"
"""Template of Amplifier's CLI, which keeps its sessions there and looks there for their events."""
WORKING_DIRECTORY: Final = "session.working_dir"
"""Capability by which a host of Amplifier's names its user's directory."""
_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_KNOWN: Final = frozenset(("project", "session_id"))
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


def default_directory() -> Path:
    """Return the user's state directory for sessions; raise ConfigError if the user has no home."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        base = state if state.is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        raise ConfigError("hooks-logging: directory: you have no home directory; name a directory") from None
    return base / "toolgate" / "sessions"


def check_template(template: str) -> str:
    """Return a template that can be filled; raise ValueError with the reason if it cannot."""
    fields = _FIELD.findall(template)
    if unknown := sorted(set(fields) - _KNOWN):
        raise ValueError(f"has an unknown field {{{unknown[0][:80]}}}; use {{project}} and {{session_id}}")
    if "session_id" not in fields:
        raise ValueError("has no {session_id}: sessions would share a file")
    if not template.endswith(".jsonl"):
        raise ValueError("must end in .jsonl")
    return template


def fill_template(template: str, session: str, working_directory: Any) -> Path:
    """Return the file of a session; raise ConfigError if it cannot be found.

    A session's id that could lead to another folder is replaced by a name made from it.
    """
    given = isinstance(working_directory, str | Path) and working_directory
    name = session if _NAME.fullmatch(session) else file_name(session).removesuffix(".jsonl")
    try:
        project = _name_project(Path(working_directory if given else ".").resolve())
        filled = template.replace("{project}", project).replace("{session_id}", name)
        return Path(filled).expanduser().absolute()
    except (RuntimeError, OSError, ValueError) as error:
        raise ConfigError(f"hooks-logging: session_log_template: cannot be found: {error}") from None


def _name_project(directory: Path) -> str:
    """Return a directory as one name, in the form of Amplifier's CLI."""
    name = str(directory).replace("/", "-").replace("\\", "-").replace(":", "")
    return name if name.startswith("-") else f"-{name}"
