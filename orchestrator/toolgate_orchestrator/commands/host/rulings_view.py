"""How one ruled call looks to a person: the LLM's choice, each verdict and how fast, what came of it.

Plain words carry the meaning, colour only repeats it: what is shown reads the same in a file, on a
dumb terminal and on a screen.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from rich.text import Text
from toolgate_bus.protocol.events import Decision, Heard
from toolgate_bus.telemetry.printable import visible

__all__ = ["call_text", "choice_line", "outcome_line", "result_line", "verdict_lines"]

STYLES: Final = {
    "continue": "green",
    "deny": "bold red",
    "modify": "bold yellow",
    "ask_user": "magenta",
    "hold": "cyan",
}
MAX_VALUE: Final = 60
MAX_RESULT: Final = 90
INDENT: Final = "     "


def call_text(tool: str, arguments: dict[str, Any]) -> Text:
    """A call as one would write it; long values shortened."""
    text = Text(visible(tool), style="bold")
    inner = ", ".join(
        f"{name}={_short(json.dumps(value, ensure_ascii=False), MAX_VALUE)}"
        for name, value in arguments.items()
    )
    return text.append(f"({visible(inner)})", style="default not bold")


def choice_line(number: int, tool: str, arguments: dict[str, Any]) -> Text:
    """What the LLM chose."""
    return Text.assemble((f"{number:>2}  ", "dim"), "The LLM chose ", call_text(tool, arguments))


def verdict_lines(verdicts: Sequence[Heard], width: int = 10) -> list[Text]:
    """One line a verdict: who, what, how fast, why."""
    lines = []
    for heard in verdicts:
        action = heard.verdict.action
        line = Text.assemble(
            f"{INDENT}{visible(heard.scheduler):<{width}} ", (f"{action:<8}", STYLES.get(action, "red"))
        )
        line.append(f" {heard.seconds * 1000:6.1f} ms", style="dim")
        for note in _notes(heard):
            line.append(f"  {visible(note)}", style="dim")
        lines.append(line)
    return lines


def _notes(heard: Heard) -> list[str]:
    notes = [heard.verdict.reason] if heard.verdict.reason else []
    notes += ["(about the replacement)"] if heard.phase == "verify" else []
    notes += [f"(set aside: {heard.problem})"] if heard.problem else []
    notes += ["(shadow: not counted)"] if heard.shadow else []
    notes += ["(after the decision)"] if heard.late else []
    return notes


def outcome_line(decision: Decision) -> Text:
    """What came of all verdicts, and after how long."""
    line = Text(f"{INDENT}=> ")
    if not decision.allowed:
        line.append("denied", style="bold red").append(f": {visible(decision.reason or decision.why)}")
    elif decision.outcome == "modify":
        line.append("replaced", style="bold yellow").append(" by ")
        line.append_text(call_text(decision.tool_name, decision.tool_input))
    else:
        line.append("runs as chosen", style="green")
    return line.append(f"  [{decision.seconds * 1000:.1f} ms]", style="dim")


def result_line(result: str) -> Text:
    """What the LLM is told, shortened to a line."""
    return Text(f"{INDENT}   {visible(_short(result, MAX_RESULT))}", style="dim")


def _short(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."
