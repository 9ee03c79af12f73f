"""Questions to the judge of a goal, and the parsing of its answers: reached? stuck, and why? Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolgate_orchestrator.turn.goals.config import GoalConfig
from toolgate_orchestrator.turn.goals.rules import MAX_REASON

EVALUATOR: Final = """\
You judge whether a goal has been reached. You have no tools. You are shown the goal, and the record of an
assistant's work towards it. Long results and arguments are shown with their middle left out, marked
"...[N chars truncated]..."; older messages may be missing. Do not guess at what you cannot see: if it
decides the matter, say that it could not be seen.

Answer in exactly two lines.
Line 1: YES or NO, and nothing else.
Line 2: one sentence that says why."""

_VERDICTS: Final = """\
Answer in exactly two lines.
Line 1: one of these words, and nothing else:
RESOLVABLE - more work can bring it about
TIME-LOCKED - it needs time to pass that cannot pass within this session
STRUCTURE-LOCKED - it demands of every one of a set what one of them cannot do
HISTORY-LOCKED - it demands something of what has already happened
Line 2: one sentence that says why."""

_STALLS: Final = {
    "idle": "The assistant used no tool in any of these turns.",
    "busy": "The assistant used tools in these turns, and yet the same kept missing.",
}
_STALL: Final = """\
You judge whether work towards a goal is stuck for good. You have no tools. You are shown the goal and why it
was not reached, turn by turn. {activity} Reasons that are alike prove nothing: there may be progress.

"""
LOCKS: Final = {
    "time-locked": "it needs time to pass that cannot pass within this session",
    "structure-locked": "it demands of every one of a set what one of them cannot do",
    "history-locked": "it demands something of what has already happened",
}
"""Meaning of each verdict that a run is stuck."""

_SUMMARIES: Final = {
    "stalled": "The run made no progress any more. Name the one thing that blocked it; if the goal cannot be "
    "reached as it is put, say so.",
    "cap_hit": "The run used its turns up before the goal was seen to be reached. Say what remains to be "
    "done, and never that the goal was reached.",
    "error": "The run ended because the judge failed. Say only what failed.",
}
_SUMMARY: Final = """\
Write one line for a developer who watched an agent pursue a goal and saw every turn. {ending}
One sentence in the present tense, at most 120 characters, without quotation marks. Do not repeat the goal or
tell the story of the run."""


def evaluation(condition: str, transcript: str, *, cut: bool) -> str:
    """Return the question whether a goal is reached."""
    older = " (older messages left out)" if cut else ""
    return f"GOAL:\n{condition}\n\nRECORD{older}:\n{transcript}\n\nHas the goal been reached?"


def read_evaluation(answer: str) -> tuple[bool, str]:
    """Return whether the goal is reached, and why. Raise ValueError for an answer of another form."""
    word, reason = _two_lines(answer)
    if word not in ("YES", "NO"):
        raise ValueError(f"the judge answered neither YES nor NO: {word[:80]!r}")
    return word == "YES", reason


def stall_question(condition: str, why: str, reasons: Sequence[str]) -> tuple[str, str]:
    """Return the system and user text of the question whether a run is stuck."""
    listed = "\n".join(f"{number}. {reason}" for number, reason in enumerate(reasons, 1))
    user = f"GOAL:\n{condition}\n\nWHY IT WAS NOT REACHED, turn by turn:\n{listed}\n\nIs the work stuck?"
    return _STALL.format(activity=_STALLS[why]) + _VERDICTS, user


def read_stall(answer: str) -> tuple[str, str]:
    """Return the verdict, `resolvable` or one of `LOCKS`, and the reason. Raise ValueError for another
    answer."""
    word, reason = _two_lines(answer)
    verdict = word.lower()
    if verdict not in (*LOCKS, "resolvable"):
        raise ValueError(f"the judge gave no known verdict: {word[:80]!r}")
    return verdict, reason


def last_chance(goal: Mapping[str, Any], why: str, verdict: str, reason: str, config: GoalConfig) -> str:
    """Return the message that the agent gets once before a stuck run is ended."""
    turns = goal["no_tool_turns"] if why == "idle" else config.goal_busy_stall_window
    what = "you have used no tool" if why == "idle" else "the same has been missing, whatever you did"
    return (
        f"The goal is: {goal['condition']}\n\n"
        f"For {turns} turns {what}: {reason}\n"
        f"A judge takes the goal to be {verdict}: {LOCKS[verdict]}.\n\n"
        "Go about it in a different way, or say plainly that the goal cannot be reached as it is put, and "
        "why. Do not repeat what you have said."
    )


def summary_question(
    goal: Mapping[str, Any], state: str, error: str | None, config: GoalConfig
) -> tuple[str, str]:
    """Return the system and user text for the last line of a run."""
    reasons, limit = goal["reasons"], config.goal_summary_max_reasons
    latest = reasons[-limit:] if limit > 0 else reasons
    lines = [f"{number}. {reason}" for number, reason in enumerate(latest, 1)]
    if left_out := len(reasons) - len(latest):
        lines.insert(0, f"(the first {left_out} are left out)")
    told = f"THE JUDGE FAILED WITH:\n{error}" if error else "WHY IT WAS NOT REACHED:\n" + "\n".join(lines)
    user = (
        f"GOAL:\n{goal['condition']}\n\nSENT BACK: {goal['continuations']} times\n{told}\n\nWrite the line."
    )
    return _SUMMARY.format(ending=_SUMMARIES[state]), user


def plain_summary(goal: Mapping[str, Any], state: str) -> str:
    """Return the last line of a run for which no LLM wrote a better one."""
    return {
        "stalled": f"no progress seen after {goal['turns_used']} turns",
        "cap_hit": "not seen to be reached within its turns",
        "error": "the judge failed",
        "unanswered": "its turn had no answer",
    }[state]


def _two_lines(answer: str) -> tuple[str, str]:
    lines = [line.strip() for line in answer.splitlines() if line.strip()]
    if not lines:
        raise ValueError("the judge gave an empty answer")
    return lines[0].strip("*.: ").upper(), (lines[1] if len(lines) > 1 else "no reason was given")[
        :MAX_REASON
    ]
