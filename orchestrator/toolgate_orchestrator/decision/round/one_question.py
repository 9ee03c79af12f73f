"""The one question to a person, made of the prompts of all schedulers that want the person asked. Pure.

No scheduler's prompt replaces another's: each is shown under its name. Silence allows the call only if all of
them say so. The person has the longest of their times, and the options that all offer. All prompts together
are as long as one may be, so that none pushes another, or the call, out of sight. If there are too many for
that, nobody can be asked.
"""

from collections.abc import Sequence
from typing import Final

from toolgate_bus.protocol.events import AskUser, ReceivedVerdict
from toolgate_bus.ruling.merge import rank
from toolgate_bus.telemetry.printable import printable, shorten

OPTIONS: Final = ("Allow once", "Deny")
"""Options if they have fewer than two in common."""
MAX_PROMPT: Final = 2_000
"""Characters of all prompts together, as they are shown."""
MAX_ASKERS: Final = 16
_MAX_LINES: Final = 24
"""Lines of all prompts together, if there are several."""


def one_question(asks: Sequence[ReceivedVerdict]) -> AskUser | None:
    """Return the question; a single scheduler asks in its own words. None: nobody can be asked."""
    said = {(one.scheduler, one.verdict): None for one in sorted(asks, key=rank) if _asks(one)}
    verdicts = [(name, verdict) for name, verdict in said if isinstance(verdict, AskUser)]
    if not 0 < len(verdicts) <= MAX_ASKERS:
        return None
    first = verdicts[0][1]
    if len(verdicts) == 1:
        return first
    common = [option for option in first.options if all(option in one.options for _, one in verdicts)]
    reasons = [f"{name}: {one.reason}" for name, one in verdicts if one.reason]
    return AskUser(
        prompt="\n".join(_line(name, one.prompt, len(verdicts)) for name, one in verdicts),
        options=tuple(dict.fromkeys(common)) if len(set(common)) > 1 else OPTIONS,
        timeout_s=max(one.timeout_s for _, one in verdicts),
        default="allow" if all(one.default == "allow" for _, one in verdicts) else "deny",
        reason="; ".join(reasons) or None,
    )


def _asks(heard: ReceivedVerdict) -> bool:
    return isinstance(heard.verdict, AskUser)


def _line(name: str, prompt: str, askers: int) -> str:
    """Return a prompt under its scheduler's name, further lines indented, so that none passes for another."""
    lines = printable(prompt).splitlines() or [""]
    most = max(1, _MAX_LINES // askers)
    kept = lines if len(lines) <= most else [*lines[: most - 1], "…"]
    return shorten(f"{name}: " + "\n  ".join(kept), MAX_PROMPT // askers - 1)
