"""Do the work of `toolgate scheduler try`: ask one scheduler about calls written by hand, without a bus.

The scheduler is made as in `scheduler run`, and asked as in an author's test (`toolgate_schedulers.testing`).
Several calls are asked about on the same state, one after the other.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.terminal import console
from toolgate_bus.config.check import explain
from toolgate_bus.config.document import Document
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.events import AskUser, Hold, Modify, ToolSelecting
from toolgate_bus.protocol.json_values import UnreadableJson, read_json
from toolgate_bus.telemetry.printable import visible

from toolgate_schedulers.author.scheduler import Scheduler
from toolgate_schedulers.commands.ruling_reasons import RulingReason, explain_answer
from toolgate_schedulers.testing import Answer, NoAnswerError, NotAsked, question, trial

MAX_CALL: Final = 1 << 20
SPELLINGS: Final = {"tool": "tool_name", "arguments": "tool_input"}
SAMPLE: Final = '\'{"tool": "delete_file", "arguments": {"path": "a.txt"}}\''


@dataclass(frozen=True, slots=True)
class TriedCall:
    """Call with the scheduler's answer."""

    call: ToolSelecting
    answer: Answer | None
    """Last answer; None if there was none."""
    missing: str = ""
    """Reason that there was no answer."""
    asked: bool = True
    """True if an orchestrator would ask the scheduler about this tool."""


class ReasonFinder:
    """Finder of the rule of a configuration that decided."""

    def __init__(self, spec: str, document: Document | None) -> None:
        self._spec, self._document = spec, document

    def find(self, tried: TriedCall) -> RulingReason | None:
        """Return the reason of a ruling; None if it cannot be told."""
        return explain_answer(self._spec, self._document, tried.call, tried.answer)

    def where(self, reason: RulingReason) -> str:
        """Return file and line of the rule."""
        return self._document.where(reason.place) if self._document is not None else ""


def parse_call(text: str) -> ToolSelecting:
    """Read a call from JSON: `tool`, `arguments`, and any other field of a question; raise ConfigError."""
    if len(text) > MAX_CALL:
        raise ConfigError(f"--call: longer than {MAX_CALL // 1024} KiB")
    try:
        given = read_json(text)
    except UnreadableJson as error:
        raise ConfigError(f"--call: is not JSON: {error}; write it as {SAMPLE}") from None
    if not isinstance(given, dict):
        raise ConfigError(f"--call: must be an object, as {SAMPLE}")
    fields: dict[str, Any] = {SPELLINGS.get(str(name), str(name)): value for name, value in given.items()}
    tool, arguments = fields.pop("tool_name", ""), fields.pop("tool_input", {})
    if not isinstance(tool, str) or not tool or not isinstance(arguments, Mapping):
        raise ConfigError(f"--call: must name a `tool`, and its `arguments` by name, as {SAMPLE}")
    try:
        return question(tool, arguments, **fields)
    except ValidationError as error:
        lines = (
            f"--call: {'.'.join(map(str, loc))}: {words}" for loc, words in explain(error, ToolSelecting)
        )
        raise ConfigError("\n".join(lines)) from None


async def try_calls(
    scheduler: Scheduler, calls: Sequence[ToolSelecting], timeout_s: float
) -> list[TriedCall]:
    """Ask about the calls, one after the other; each gets `timeout_s` seconds, its holds included."""
    tried = []
    async with trial(scheduler) as asker:
        for call in calls:
            fields = call.model_dump(exclude={"tool_name", "tool_input", "ttl_ms"}, exclude_unset=True)
            try:
                asked = asker.pose(call.tool_name, call.tool_input, timeout_s=timeout_s, **fields)
            except NotAsked as error:
                tried.append(TriedCall(call, None, str(error), asked=False))
                continue
            try:
                tried.append(TriedCall(call, await asked.final(timeout_s)))
            except NoAnswerError:
                asker.withdraw(asked)
                held = asked.answers[-1] if asked.answers else None
                tried.append(TriedCall(call, held, "" if held else f"no answer within {timeout_s:g} s"))
    return tried


def show(tried: TriedCall, name: str, reasons: ReasonFinder) -> None:
    """Print the call, the verdict, the reason, and changes that would allow the call."""
    call = tried.call
    arguments = json.dumps(call.tool_input, ensure_ascii=False)
    console.print(f"{escape(call.tool_name)} {escape(arguments)}", soft_wrap=True)
    word, why = _words(tried)
    console.print(f"  {escape(name)}: [bold]{word}[/]{escape(f': {why}') if why else ''}", soft_wrap=True)
    reason = reasons.find(tried)
    if reason is None:
        return
    sight = {True: ", which saw all arguments that it checks", False: f", unseen: {reason.unseen}", None: ""}
    place = f" ({reasons.where(reason)})" if reason.place else ""
    told = visible(f"{reason.rule}{place}{sight[reason.seen]}")
    console.print(f"  decided by {escape(told)}", soft_wrap=True)
    for way in reason.ways:
        console.print(f"  to allow it: {escape(visible(way))}", soft_wrap=True)


def _words(tried: TriedCall) -> tuple[str, str]:
    answer = tried.answer
    match answer:
        case None:
            return ("no answer" if tried.asked else "not asked"), tried.missing
        case Modify():
            arguments = (
                "" if answer.arguments is None else f" {json.dumps(answer.arguments, ensure_ascii=False)}"
            )
            to = f" for {answer.agent_target}" if answer.agent_target else ""
            return "modify", visible(f"{answer.tool}{arguments}{to}; {answer.reason or 'no reason given'}")
        case AskUser():
            asks = f"{answer.prompt!r}, {' or '.join(answer.options)}, within {answer.timeout_s:g} s"
            return "ask_user", visible(f"{asks}; {answer.reason or 'no reason given'}")
        case Hold():
            return "hold", visible(f"for {answer.seconds:g} s; {answer.reason or 'no reason given'}")
        case _:
            return answer.action, visible(answer.reason or "")


def as_json(tried: TriedCall, name: str, reasons: ReasonFinder) -> dict[str, Any]:
    """Return the result for scripts."""
    reason = reasons.find(tried)
    answer = tried.answer
    verdict = "none" if tried.asked else "not_asked"
    return {
        "scheduler": name,
        "tool": tried.call.tool_name,
        "arguments": tried.call.tool_input,
        "verdict": answer.action if answer else verdict,
        **({} if answer else {"reason": tried.missing}),
        **(answer.model_dump(exclude={"action"}, exclude_none=True) if answer else {}),
        **({} if reason is None else _reason_record(reason, reasons.where(reason))),
    }


def _reason_record(reason: RulingReason, where: str) -> dict[str, Any]:
    decided = {"rule": reason.rule, "where": where, "seen": reason.seen, "unseen": reason.unseen or None}
    return {"decided_by": decided, "to_allow": list(reason.ways)}
