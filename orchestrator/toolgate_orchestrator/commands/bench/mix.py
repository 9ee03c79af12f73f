"""The calls that the bench decides on, and what has to come of each. Pure; the standard library alone.

No two calls are alike. Every 16th is denied, every 8th replaced, each time by exactly one scheduler, which
finds its name in the arguments; the others have no objection. Other installs of Toolgate load this file by
its path (`gate_worker`): it may import nothing of this one.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

DENY_EVERY: Final = 16
MODIFY_EVERY: Final = 8
SIZES: Final = {"small": 448, "large": 8192}
"""Bytes of a question on the wire, as the gate writes it; a few more or less."""
TOOLS: Final = (
    "search_mail",
    "search_files",
    "read_file",
    "get_customer",
    "send_invoice",
    "quick_search",
)
"""Those that are available; all but the last are called."""
REPLACEMENT: Final = "quick_search"
SESSIONS: Final = 64
_AROUND: Final = 421
"""Bytes of a question without its text."""
_WORDS: Final = "unpaid invoices of the northern region, by customer and month; "


class Answer(NamedTuple):
    """What came of a call, on any side."""

    outcome: str
    tool_name: str
    tool_input: dict[str, Any]
    reason: str | None
    heard: int
    """Verdicts that the decision rests on, both phases together."""


class MixedCall(NamedTuple):
    """One tool call, and what has to come of it."""

    number: int
    tool_name: str
    tool_input: dict[str, Any]
    expected: Answer

    @property
    def session(self) -> str:
        """Whose call it is."""
        return f"session-{self.number % SESSIONS}"

    @property
    def tool_call_id(self) -> str:
        """How an LLM would name it."""
        return f"call_{self.number:08d}"


def name_schedulers(count: int) -> list[str]:
    """The names of so many schedulers."""
    return [f"bench-{number}" for number in range(1, count + 1)]


class Mix:
    """An endless row of calls, for so many schedulers and questions of such a size."""

    def __init__(self, schedulers: Sequence[str], size: str = "small") -> None:
        self._schedulers = schedulers
        length = SIZES[size] - _AROUND
        self._text = (_WORDS * (length // len(_WORDS) + 1))[:length]
        self._number = 0

    def take(self, count: int) -> list[MixedCall]:
        """The next calls."""
        return list(self._calls(count))

    def _calls(self, count: int) -> Iterator[MixedCall]:
        for _ in range(count):
            self._number += 1
            yield self._call(self._number)

    def _call(self, number: int) -> MixedCall:
        tool = TOOLS[number % (len(TOOLS) - 1)]
        given = {
            "query": self._text,
            "customer": f"C-{number:08d}",
            "limit": number % 50,
            "fields": ["date", "amount"],
            "rule": "",
            "by": "",
        }
        count = len(self._schedulers)
        if number % DENY_EVERY == DENY_EVERY - 1:
            by = self._schedulers[number // DENY_EVERY % count]
            given |= {"rule": "deny", "by": by}
            return MixedCall(number, tool, given, Answer("deny", "", {}, reason_of(by, given), 1))
        if number % MODIFY_EVERY == MODIFY_EVERY // 2:
            by = self._schedulers[number // MODIFY_EVERY % count]
            given |= {"rule": "modify", "by": by}
            answer = Answer("modify", REPLACEMENT, replace(given), reason_of(by, given), 2 * count - 1)
            return MixedCall(number, tool, given, answer)
        return MixedCall(number, tool, given, Answer("continue", tool, given, None, count))


def reason_of(name: str, given: dict[str, Any]) -> str:
    """What the scheduler that objects says."""
    return f"{name}: not {given['customer']}"


def replace(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the replacement: nobody objects to them."""
    return {**given, "limit": 5, "rule": "", "by": ""}


def to_answer(decision: Any) -> Answer:
    """What of a gate's decision is checked, whatever version it is of."""
    heard = sum(1 for one in decision.verdicts if not one.late)
    return Answer(decision.outcome, decision.tool_name, decision.tool_input, decision.reason, heard)


def find_fault(call: MixedCall, found: Answer) -> str | None:
    """What is wrong with an answer, None where it is as it has to be."""
    expected = call.expected
    pairs: list[tuple[str, Any, Any]] = [
        ("outcome", expected.outcome, found.outcome),
        ("reason", expected.reason, found.reason),
    ]
    if expected.outcome != "deny":  # a deny ends the wait for others, and nothing runs
        pairs += [
            ("tool that runs", expected.tool_name, found.tool_name),
            ("arguments", expected.tool_input, found.tool_input),
            ("verdicts heard", expected.heard, found.heard),
        ]
    for what, must, is_ in pairs:
        if must != is_:
            if type(must) is dict and type(is_) is dict:
                differs = [name for name in {**must, **is_} if must.get(name) != is_.get(name)]
                must, is_ = ({name: one.get(name) for name in differs} for one in (must, is_))
            return (
                f"call {call.number} ({call.tool_name}, {expected.outcome} expected): {what}: "
                f"{is_!r:.200}, not {must!r:.200}"
            )
    return None


SCHEDULER: Final = '''\
"""A scheduler of `toolgate bench`: it objects where the arguments of a call name it."""

from toolgate_schedulers import Continue, Deny, Modify, scheduler

NAME = "{name}"


@scheduler(name=NAME, tools=["*"])
async def decide(call):
    given = call.tool_input
    if given["by"] != NAME:
        return Continue()
    reason = f"{{NAME}}: not {{given['customer']}}"
    if given["rule"] == "deny":
        return Deny(reason=reason)
    replacement = {{**given, "limit": 5, "rule": "", "by": ""}}
    return Modify(tool="quick_search", arguments=replacement, reason=reason)
'''
"""The file of one scheduler, as an author would write it; every version of Toolgate can run it."""
