"""Several schedulers want a person asked: one question that holds what each of them said. Pure.

Nobody answers in place of another: every prompt is shown, by scheduler; silence allows the call only if
all of them say so; the person has the longest of their times, and the options that all offer.
"""

from collections.abc import Sequence
from typing import Final

from toolgate_bus.protocol.events import AskUser, ReceivedVerdict
from toolgate_bus.ruling.merge import rank

OPTIONS: Final = ("Allow once", "Deny")
"""Where they have fewer than two options in common."""
MAX_PROMPT: Final = 2_000
"""Characters of each prompt where there are several: none may push another off the screen."""


def one_question(asks: Sequence[ReceivedVerdict]) -> AskUser | None:
    """What the person is asked; one who is alone is asked in their own words. None: nobody asks."""
    said = {(one.scheduler, one.verdict): None for one in sorted(asks, key=rank) if _asks(one)}
    verdicts = [(name, verdict) for name, verdict in said if isinstance(verdict, AskUser)]
    if not verdicts:
        return None
    first = verdicts[0][1]
    if len(verdicts) == 1:
        return first
    common = [option for option in first.options if all(option in one.options for _, one in verdicts)]
    reasons = [f"{name}: {one.reason}" for name, one in verdicts if one.reason]
    return AskUser(
        prompt="\n".join(_line(name, one.prompt) for name, one in verdicts),
        options=tuple(dict.fromkeys(common)) if len(set(common)) > 1 else OPTIONS,
        timeout_s=max(one.timeout_s for _, one in verdicts),
        default="allow" if all(one.default == "allow" for _, one in verdicts) else "deny",
        reason="; ".join(reasons) or None,
    )


def _asks(heard: ReceivedVerdict) -> bool:
    return isinstance(heard.verdict, AskUser)


def _line(name: str, prompt: str) -> str:
    """A prompt under its scheduler's name; further lines are set in: none passes for another's."""
    cut = prompt if len(prompt) <= MAX_PROMPT else prompt[:MAX_PROMPT] + "…"
    return f"{name}: " + "\n  ".join(cut.splitlines() or [""])
