"""Show the calls that wait for a person, and take answers, with the code of `toolgate approvals`.

An answer is bound to the digest that the page showed. The first answer counts, wherever it is given.
"""

import asyncio
import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from toolgate_bus.errors import ConfigError, ToolgateError, TransportError
from toolgate_bus.telemetry.printable import visible_json
from toolgate_bus.transport.ports import rest_after_search

from toolgate_schedulers.commands.approvals import correction as edits
from toolgate_schedulers.commands.approvals.answer import (
    DecisionLookup,
    Person,
    answer,
    build_standing_rule,
    describe_answer,
    describe_outcome,
    explain_failure,
    find,
    outcome,
    resolve_outcome,
)
from toolgate_schedulers.commands.approvals.view import as_fields, one_line, short
from toolgate_schedulers.shipped.approval.queue import ApprovalQueue, WaitingCall
from toolgate_schedulers.shipped.approval.records import Approval

LOOK_S: Final = 2.0
"""Seconds between two looks without a notice, while calls wait or came just now: nothing announces an
expiry."""
QUIET_S: Final = 30.0
"""Seconds between two looks at other times, as each look walks through the server's keys."""
WAIT_S: Final = 0.25
"""Seconds that one read waits; it delays the end of the command."""
PAUSE_S: Final = 0.1
"""Shortest pause between two looks in seconds, as each look walks through the server's keys."""
AWAY_S: Final = 0.5
OUTCOME_S: Final = 3.0
REMEMBERED: Final = 20

ArgumentsLookup = Callable[[str], Mapping[str, Any] | None]
"""Function that returns the arguments of the newest call that ran a tool, if one is known."""

MAX_COUNT: Final = 20
MAX_DEPTH: Final = 8
_NAMES: Final = {str: "a text", bool: "true or false", dict: "an object", list: "a list", type(None): "null"}


class AnswerRequest(BaseModel):
    """Answer that a page sends about a call."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    action: Literal["approve", "deny", "edit"]
    digest: str = Field(max_length=64)
    """Digest of the call that was shown."""
    reason: str = Field("", max_length=1000)
    tool: str = Field("", max_length=256)
    arguments: str = Field("", max_length=128 * 1024)
    """Arguments in JSON as they were typed. For `edit` only."""
    always: bool = False
    """True to let later calls like it pass in its session."""
    anyway: bool = False
    """True to send a correction although it differs from the known calls."""


class CorrectionProblem(ToolgateError):  # noqa: N818 - nothing failed: the person must look again
    """A correction is wrong (`fields`), or differs from the known calls and may be wrong (`doubts`)."""

    def __init__(self, fields: Mapping[str, str], doubts: Mapping[str, str] | None = None) -> None:
        super().__init__("; ".join(f"{name}: {words}" for name, words in (doubts or fields).items()))
        self.fields, self.doubts = dict(fields), dict(doubts or {})


class ApprovalInbox:
    """Calls of one namespace that wait for a person."""

    def __init__(self, desk: ApprovalQueue, decided: DecisionLookup, known: ArgumentsLookup) -> None:
        self._desk, self._decided, self._known = desk, decided, known
        self._waiting: dict[str, WaitingCall] = {}
        self._looked = self._told = self._heard = -math.inf
        """Times of the last look, the last notice, and the last read that reached the bus."""
        self._over: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)

    async def run(self, tell: Callable[[str, Any], Any]) -> None:
        """Call `tell` whenever calls come or go, until cancelled."""
        after = "0-0"
        while True:
            try:
                came = await self._desk.news(after, WAIT_S)
                now = time.monotonic()
                self._told = now if came else self._told
                busy = self._waiting or now - self._told < QUIET_S
                if came or now - self._looked >= (LOOK_S if busy else QUIET_S):
                    await self._look(tell)
                    await asyncio.sleep(max(PAUSE_S, rest_after_search(time.monotonic() - now)))
                after = came[-1].id if came else after
                self._heard = time.monotonic()
            except TransportError:
                await asyncio.sleep(AWAY_S)

    async def list_calls(self) -> dict[str, Any]:
        """Return the calls that wait, the first to expire first, and the ends of the last ones."""
        now = time.monotonic()
        if now - self._heard > 2 * LOOK_S:  # the bus was away: ask it, or say that it still is
            found, old = await self._desk.list_waiting(), 0.0
        else:
            found, old = list(self._waiting.values()), now - self._looked
        waiting = [one._replace(seconds_left=max(0.0, one.seconds_left - old)) for one in found]
        return {
            "waiting": [as_page(one.approval, one.seconds_left) for one in waiting],
            "over": list(self._over)[::-1],
        }

    async def answer(self, id_: str, asked: AnswerRequest, who: Person) -> dict[str, Any]:
        """Give an answer, and wait for its outcome.

        Raise CorrectionProblem for a correction to look at again, ToolgateError if the answer cannot count.
        """
        one = await find(self._desk, id_)
        approval = one.approval
        if approval.digest != asked.digest:
            raise ToolgateError("the call changed after it was shown; look at it again")
        corrected = self._check_correction(approval, asked) if asked.action == "edit" else None
        reason = asked.reason or None
        always = asked.always and asked.action == "approve"
        rule = build_standing_rule(approval, who, reason, exactly=False) if always else None
        given = await answer(self._desk, approval, who, asked.action, reason, corrected, rule)
        came = await outcome(self._desk, approval, self._decided, OUTCOME_S)
        came = await resolve_outcome(self._desk, one, came, self._decided)
        wrong = explain_failure(approval, given, came)
        return {
            "done": wrong is None,
            "words": wrong or describe_outcome(approval, given, came),
            "instead": came.instead.approval.id if came.instead else None,
        }

    async def _look(self, tell: Callable[[str, Any], Any]) -> None:
        now = {one.approval.id: one for one in await self._desk.list_waiting()}
        for id_ in self._waiting.keys() - now.keys():
            approval = self._waiting[id_].approval
            given = await self._desk.answer_to(approval.id)
            nobody = "nobody answered, and nobody waits for it any longer"
            words = describe_answer(given) if given is not None else nobody
            call = one_line(approval.question)
            self._over.append({"id": approval.id, "call": call, "words": words, "at": time.time()})
        self._waiting, self._looked = now, time.monotonic()
        tell("approvals", {"count": len(now), "ids": sorted(now)})

    def _check_correction(self, approval: Approval, asked: AnswerRequest) -> tuple[str, dict[str, Any]]:
        try:
            arguments = edits.parse_object(asked.arguments, "arguments")
        except ConfigError as error:
            raise CorrectionProblem({"arguments": str(error).removeprefix("arguments: ")}) from None
        tool = asked.tool or approval.question.tool_name
        if found := edits.problem(approval, tool, arguments):
            raise CorrectionProblem({found.field or "arguments": found.words})
        call = approval.question
        known = call.tool_input if tool == call.tool_name else self._known(tool)
        if not asked.anyway and known is not None and (doubts := unlike(known, arguments)):
            raise CorrectionProblem({}, doubts)
        return tool, arguments


def as_page(approval: Approval, left: float) -> dict[str, Any]:
    """Return a waiting call in full, with its arguments exactly as they will run."""
    fields = as_fields(approval, left)
    arguments = json.dumps(fields.pop("tool_input"), ensure_ascii=False, indent=2, default=repr)
    return {
        **fields,
        "short": short(approval.id),
        "arguments": visible_json(arguments),
        "tools": list(approval.question.available_tools),
        "until": time.time() + left,
    }


def unlike(known: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, str]:
    """Return the differences to a known call (another type, gone, new) by path, at most `MAX_COUNT`.

    The tool's schema is known only to the agent's gate, which checks a correction when it arrives. Comparing
    it with the waiting call, or the newest call that ran, shows a slip while the call still waits.
    """
    found: dict[str, str] = {}
    for path, words in _differences(known, given, "", 0):
        if len(found) == MAX_COUNT:
            break
        found[path] = words
    return found


def _differences(known: Any, given: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if _kind(known) != _kind(given):
        if known is not None:
            yield path, f"is {_kind(given)}; it was {_kind(known)}"
    elif isinstance(known, Mapping) and depth < MAX_DEPTH:
        for name in known:
            where = f"{path}.{name}" if path else str(name)
            if name not in given:
                yield where, "is gone"
            else:
                yield from _differences(known[name], given[name], where, depth + 1)
        for name in given:
            if name not in known:
                yield f"{path}.{name}" if path else str(name), "is new"
    elif isinstance(known, list) and known and depth < MAX_DEPTH:
        for number, item in enumerate(given):
            yield from _differences(known[0], item, f"{path}.{number}", depth + 1)


def _kind(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "a number"
    return _NAMES.get(type(value), "something else")
