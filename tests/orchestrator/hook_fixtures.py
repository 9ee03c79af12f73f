"""The events and answers of each client: an event a file, how it reads, what each ruling comes to."""

import json
from pathlib import Path
from typing import Any, Final

from toolgate_orchestrator.coding_agents.event import HookDecision

FOLDER: Final = Path(__file__).parent / "fixtures" / "hooks"
FILES: Final = sorted(FOLDER.glob("*/*.json"))
DENIED, WHY, PROMPT = "secrets stay here", "a safer call", "May it?"
FAULT = "no ruling came in time"


def name(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def load_named(client: str, name: str) -> dict[str, Any]:
    """The file of one event of one client."""
    return load(FOLDER / client / f"{name}.json")


def rulings(tool: str, arguments: dict[str, Any], changed: dict[str, Any]) -> dict[str, HookDecision]:
    """What schedulers may say of a call, by the name of its answer in a file."""
    less = dict(list(arguments.items())[1:])
    return {
        "continue": HookDecision("continue", tool, arguments),
        "deny": HookDecision("deny", reason=DENIED),
        "modify": HookDecision("modify", tool, changed, WHY),
        "ask": HookDecision("ask", tool, arguments, PROMPT),
        "ask_changed": HookDecision("ask", tool, changed, PROMPT),
        "other": HookDecision("modify", "quick_search", changed, WHY),
        "less": HookDecision("modify", tool, less, WHY),
    }
