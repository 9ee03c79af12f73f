"""Rules of goal pursuit: the judge's transcript, the signs of a stuck run, and the progress report. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolgate_orchestrator.turn.goals.config import GoalConfig

SCHEMA_VERSION: Final = 1
"""Version of the payload of orchestrator:goal_progress."""
MAX_TURNS: Final = 100
"""Maximum number of turns of a goal without a cap of its own."""
MAX_REASON: Final = 2_000
"""Maximum number of characters kept of a judge's reason."""

_WORDS: Final = re.compile(r"[a-z0-9]+")
_MIN_CLIP: Final = 60

State = dict[str, Any]
"""The goal as the host keeps it: condition, turns_used, cap, last_reason, reasons, continuations, …"""


def read_goal(session_state: Any) -> State | None:
    """Return the goal that is set, with defaults for what the host left out; None if there is none."""
    goal = session_state.get("goal") if isinstance(session_state, Mapping) else None
    if not isinstance(goal, dict) or not isinstance(goal.get("condition"), str) or not goal["condition"]:
        return None
    defaults: State = {"turns_used": 0, "reasons": [], "continuations": 0, "no_tool_turns": 0}
    for key, value in {**defaults, "escalated": False, "last_reason": None, "cap": None}.items():
        goal.setdefault(key, value)
    return goal


def cap_of(goal: Mapping[str, Any]) -> int:
    """Return the maximum number of turns of a goal."""
    cap = goal.get("cap")
    return cap if isinstance(cap, int) and not isinstance(cap, bool) and cap > 0 else MAX_TURNS


def find_stall(goal: Mapping[str, Any], config: GoalConfig) -> str | None:
    """Return why a run looks stuck; None if it does not.

    `idle` means that no tool is used any more, `busy` that each turn lacks the same.
    """
    if goal["no_tool_turns"] >= config.goal_stall_threshold:
        return "idle"
    window, reasons = config.goal_busy_stall_window, goal["reasons"]
    if window < 2 or len(reasons) < window:
        return None
    first, *others = (frozenset(_WORDS.findall(reason.lower())) for reason in reasons[-window:])
    least = config.goal_busy_stall_min_overlap
    return "busy" if all(_overlap(first, other) >= least for other in others) else None


def stalled_reasons(goal: Mapping[str, Any], why: str, config: GoalConfig) -> list[str]:
    """Return the reasons of the turns in which a run looks stuck."""
    count = goal["no_tool_turns"] if why == "idle" else config.goal_busy_stall_window
    return list(goal["reasons"][-count:])


def progress(goal: Mapping[str, Any], orchestrator: str, state: str, **told: Any) -> dict[str, Any]:
    """Return the payload of orchestrator:goal_progress."""
    reasons = list(goal["reasons"])
    return {
        "orchestrator": orchestrator,
        "state": state,
        "turn": goal["turns_used"],
        "continuations": goal["continuations"],
        "cap": goal.get("cap") or None,
        "reason": told.get("reason"),
        "reasons": join_repeats(reasons),
        "stall_detail": told.get("stall_detail"),
        "stall_verdict": told.get("stall_verdict"),
        "summary": told.get("summary"),
        "distinct_blockers": len({_plain(reason) for reason in reasons}),
        "condition": goal["condition"],
        "schema_version": SCHEMA_VERSION,
    }


def join_repeats(reasons: Sequence[str]) -> list[str]:
    """Join neighbours that differ only in case and spaces, and add the number of repeats."""
    runs: list[tuple[str, int]] = []
    for reason in reasons:
        if runs and _plain(runs[-1][0]) == _plain(reason):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((reason, 1))
    return [text if times == 1 else f"{text} (repeated {times}x)" for text, times in runs]


def transcript_of(messages: Sequence[Mapping[str, Any]], config: GoalConfig) -> tuple[str, bool]:
    """Return the judge's transcript of a conversation, and whether older messages were left out."""
    latest = messages[-config.goal_max_transcript_messages :]
    cut = len(latest) < len(messages)
    texts = [text for message in latest if (text := _read(message, config.goal_tool_content_clip_chars))]
    budget, kept, used = config.goal_transcript_char_budget, list[str](), 0
    for text in reversed(texts):
        used += len(text) + 2
        if 0 < budget < used and kept:
            cut = True
            break
        kept.append(text)
    return "\n\n".join(reversed(kept)), cut


def clip_middle(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters with its beginning and end; 0 or less means no limit."""
    if limit <= 0 or len(text) <= limit:
        return text
    keep = limit - len(f"\n...[{len(text)} chars truncated]...\n")
    if keep < _MIN_CLIP:
        return text[:limit]
    head = keep // 2
    tail = keep - head
    return f"{text[:head]}\n...[{len(text) - keep} chars truncated]...\n{text[-tail:]}"


def _read(message: Mapping[str, Any], clip: int) -> str:
    """Return one message as text for the judge, without thinking."""
    role, content = str(message.get("role", "unknown")), message.get("content")
    is_one = not isinstance(content, list) and content is not None
    parts = [clip_middle(_say(content), clip) if role == "tool" else _say(content)] if is_one else []
    blocks = [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []
    for block in blocks:
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            parts.append(clip_middle(block["text"], clip) if role == "tool" else block["text"])
        elif block.get("type") == "tool_call":
            parts.append(_read_call(block.get("name"), block.get("input"), clip))
        elif block.get("type") == "tool_result":
            parts.append(clip_middle(_say(block.get("output", block.get("content", ""))), clip))
    if not any(block.get("type") == "tool_call" for block in blocks):
        listed = message.get("tool_calls")
        for call in listed if isinstance(listed, list) else ():
            if isinstance(call, Mapping):
                name = call.get("tool") or call.get("name")
                parts.append(_read_call(name, call.get("arguments"), clip))
    text = "\n".join(part for part in parts if part)
    return f"{role}: {text}" if text else ""


def _read_call(name: Any, arguments: Any, clip: int) -> str:
    said = clip_middle(_say(arguments), clip) if arguments else ""
    return f"[called tool: {name or '?'}{f' args: {said}' if said else ''}]"


def _say(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the share of words that two texts have in common."""
    both = one | other
    return len(one & other) / len(both) if both else 1.0


def _plain(reason: str) -> str:
    return " ".join(reason.split()).lower()
