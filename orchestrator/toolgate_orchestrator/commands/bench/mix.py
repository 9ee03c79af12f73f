"""Tool calls of a benchmark, and the expected decision of each. Pure; the standard library alone.

No two calls are alike. Every 16th is denied and every 8th is replaced, each time by exactly one scheduler,
which finds its name in the arguments; the others continue. Calls for `rules` are those that a policy with
rules decides: every 16th is denied, none is replaced. Other versions of Toolgate load this file by its path,
so it imports nothing of this one.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

DENY_EVERY: Final = 16
MODIFY_EVERY: Final = 8
SIZES: Final = {"small": 448, "large": 8192}
"""Bytes of a question on the wire, within 32."""
TOOLS: Final = (
    "search_mail",
    "search_files",
    "read_file",
    "get_customer",
    "send_invoice",
    "quick_search",
)
"""Available tools; all but the last are called."""
REPLACEMENT: Final = "quick_search"
SESSIONS: Final = 64
Kind = Literal["mix", "rules"]
STOP: Final = "stop"
"""Value by which a call asks for its denial by a rule; it is also the rule's name."""
_AROUND: Final = 421
"""Bytes of a question without its text."""
_WORDS: Final = "unpaid invoices of the northern region, by customer and month; "


class Answer(NamedTuple):
    """Decision on a call, by any side."""

    outcome: str
    tool_name: str
    tool_input: dict[str, Any]
    reason: str | None
    heard: int
    """Number of verdicts behind the decision, of both phases."""


class MixedCall(NamedTuple):
    """Tool call with its expected decision."""

    number: int
    tool_name: str
    tool_input: dict[str, Any]
    expected: Answer
    size: str

    @property
    def session(self) -> str:
        """Session of the call, one of 64."""
        return f"session-{self.number % SESSIONS}"

    @property
    def tool_call_id(self) -> str:
        """Id that an LLM would give the call."""
        return f"call_{self.number:08d}"


def name_schedulers(count: int) -> list[str]:
    """Return the names of this number of schedulers."""
    return [f"bench-{number}" for number in range(1, count + 1)]


class Mix:
    """Endless row of calls for these schedulers."""

    def __init__(self, schedulers: Sequence[str], kind: Kind = "mix") -> None:
        self._schedulers, self._kind = schedulers, kind
        self._number = 0

    def of(self, kind: Kind) -> "Mix":
        """Return a row of calls of this kind for the same schedulers."""
        return Mix(self._schedulers, kind)

    def take(self, count: int, size: str = "small") -> list[MixedCall]:
        """Return the next calls, their questions of this size."""
        length = SIZES[size] - _AROUND
        text = (_WORDS * (length // len(_WORDS) + 1))[:length]
        first, self._number = self._number + 1, self._number + count
        return [self._call(number, text, size) for number in range(first, self._number + 1)]

    def _call(self, number: int, text: str, size: str) -> MixedCall:
        tool = TOOLS[number % (len(TOOLS) - 1)]
        given = {
            "query": text,
            "customer": f"C-{number:08d}",
            "limit": number % 50,
            "fields": ["date", "amount"],
            "rule": "",
            "by": "",
        }
        count = len(self._schedulers)
        expected = Answer("continue", tool, given, None, count)
        if number % DENY_EVERY == DENY_EVERY - 1:
            by = self._schedulers[number // DENY_EVERY % count]
            given |= {"rule": "deny" if self._kind == "mix" else STOP, "by": by}
            expected = Answer("deny", "", {}, reason_of(by, given), 1)
        elif self._kind == "mix" and number % MODIFY_EVERY == MODIFY_EVERY // 2:
            by = self._schedulers[number // MODIFY_EVERY % count]
            given |= {"rule": "modify", "by": by}
            expected = Answer("modify", REPLACEMENT, replace(given), reason_of(by, given), 2 * count - 1)
        return MixedCall(number, tool, given, expected, size)


def reason_of(name: str, given: dict[str, Any]) -> str:
    """Return the reason that the objecting scheduler gives."""
    return f"{name}: not now ({STOP})" if given["rule"] == STOP else f"{name}: not {given['customer']}"


def replace(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the replacement, to which no scheduler objects."""
    return {**given, "limit": 5, "rule": "", "by": ""}


def to_answer(decision: Any) -> Answer:
    """Return the parts of a gate's decision that are checked; works with any version of Toolgate."""
    heard = sum(1 for one in decision.verdicts if not one.late)
    return Answer(decision.outcome, decision.tool_name, decision.tool_input, decision.reason, heard)


def find_fault(call: MixedCall, found: Answer) -> str | None:
    """Return the difference between an answer and the expected one; None if they agree."""
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


RULES: Final = """\
rules:
  - {{tools: "*", when: {{rule: stop, by: {name}}}, action: deny, name: stop, reason: "{name}: not now"}}
  - {{tools: "delete_*", action: deny}}
  - {{tools: [bash, shell], when: {{command: {{matches: "rm -rf"}}}}, action: deny}}
  - {{tools: "send_*", when: {{limit: {{gt: 1000}}}}, action: deny, reason: too much}}
  - {{tools: "send_*", when: {{to: "*@evil.example"}}, action: deny}}
  - {{tools: "read_*", when: {{path: {{matches: "[.]env$"}}}}, action: deny, reason: secret}}
  - {{tools: "search_*", when: {{query: {{matches: "password|secret key"}}}}, action: deny}}
  - {{tools: get_customer, when: {{customer: {{in: ["C-0", "C-1"]}}}}, action: deny}}
  - {{tools: "*", agents: stranger, action: deny}}
  - {{tools: [deploy, pay], action: ask}}
"""
"""Ten rules of a policy, whose local table answers all calls for `rules`."""
SCHEDULER: Final = '''\
"""A scheduler of `toolgate bench`: it objects to calls whose arguments name it."""

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
"""Source of one scheduler, as an author would write it; every version of Toolgate can run it."""
