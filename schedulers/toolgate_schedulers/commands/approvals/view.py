"""Show approvals: tables, one call in full, JSON.

An LLM wrote the arguments. Every character that could control a terminal, or that is invisible, is
spelled out (`\\u202e`), and a call in full is never cut.
"""

import json
from collections.abc import Iterable
from typing import Any

from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.table import Table
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.telemetry.printable import format_duration, shorten, visible

from toolgate_schedulers.shipped.approval.queue import WaitingCall
from toolgate_schedulers.shipped.approval.records import Approval, ApprovalAnswer, StandingApproval

SHORT = 8
WIDTH = 100


def short(id_: str) -> str:
    """Return the part of an id that people are shown."""
    return id_[:SHORT]


def one_line(call: ToolSelecting) -> str:
    """Return the call on one line, cut if it is long."""
    text = f"{call.tool_name} {json.dumps(call.tool_input, ensure_ascii=False, default=repr)}"
    return visible(shorten(text, WIDTH))


def age(one: WaitingCall) -> float | None:
    """Return the seconds since the call was held; None if that is not known."""
    known = one.approval.expires_s
    return max(0.0, known - one.seconds_left) if known else None


def asker(call: ToolSelecting) -> str:
    """Return agent and session of a call."""
    return visible(" · ".join(word for word in (call.agent, call.session) if word) or "?")


def table(waiting: Iterable[WaitingCall]) -> Table:
    """Return the table of waiting calls."""
    columns = ("id", "call", "asked by", "rule", "age", "left")
    made = Table(columns, wrap={"call"}, cut={"asked by", "rule"}, spare=("rule", "age"), header="dim")
    for one in waiting:
        old, call = age(one), one.approval.question
        made.add_row(
            escape(short(one.approval.id)),
            escape(one_line(call)),
            escape(asker(call)),
            escape(one.approval.rule),
            "" if old is None else format_duration(old),
            format_duration(one.seconds_left),
        )
    return made


def always_table(standing: Iterable[tuple[StandingApproval, float]]) -> Table:
    """Return the table of standing approvals."""
    columns = ("id", "tool", "arguments", "session", "rule", "by", "left")
    made = Table(columns, cut={"tool", "session", "rule", "by"}, spare=("rule", "by"), header="dim")
    for one, left in standing:
        made.add_row(
            escape(short(one.id)),
            escape(one.tool),
            escape(f"only {short(one.digest)}") if one.digest else "any",
            escape(one.session),
            escape(one.rule),
            escape(f"{one.by}@{one.host}"),
            format_duration(left),
        )
    return made


def full(approval: Approval, left: float | None, answer: ApprovalAnswer | None) -> list[str]:
    """Return the lines that show one call in full."""
    call = approval.question
    rows = {
        "id": approval.id,
        "tool": call.tool_name,
        "agent asked": call.agent_target,
        "question": approval.prompt,
        "rule": f"{approval.rule} ({approval.scheduler})",
        "agent": call.agent,
        "session": call.session,
        "root session": call.root_session if call.root_session != call.session else "",
        "labels": ", ".join(f"{name}={value}" for name, value in sorted(call.labels.items())),
        "phase": "verify: another scheduler's replacement" if call.phase == "verify" else "",
        "decision": call.id,
        "digest": f"sha256 {approval.digest}",
        "left": "" if left is None else format_duration(left),
    }
    lines = [f"{name:<12} {visible(str(value))}" for name, value in rows.items() if value]
    if left is not None and (old := age(WaitingCall(approval, left))) is not None:
        lines.append(f"{'age':<12} {format_duration(old)}")
    if answer is not None:
        lines.append(f"{'answer':<12} {answer.action} by {visible(f'{answer.by}@{answer.host}')}")
    if call.truncated:
        lines.append("The arguments were too long to be sent in full: you do not see all of the call.")
    arguments = json.dumps(call.tool_input, ensure_ascii=False, indent=2, default=repr)
    return [*lines, "arguments", *(f"  {visible(line)}" for line in arguments.split("\n"))]


def as_fields(
    approval: Approval, left: float | None = None, answer: ApprovalAnswer | None = None
) -> dict[str, Any]:
    """Return the fields of a call for `--json`."""
    call = approval.question
    fields: dict[str, Any] = {
        "id": approval.id,
        "scheduler": approval.scheduler,
        "rule": approval.rule,
        "prompt": approval.prompt,
        "decision": call.id,
        "phase": call.phase,
        "digest": approval.digest,
        "tool_name": call.tool_name,
        "tool_input": call.tool_input,
        "agent_target": call.agent_target,
        "agent": call.agent,
        "session": call.session,
        "root_session": call.root_session,
        "labels": call.labels,
        "truncated": call.truncated,
        "always": approval.always,
        "seconds_left": left,
        "age": None if left is None else age(WaitingCall(approval, left)),
    }
    return fields | ({"answer": answer.model_dump(exclude_none=True)} if answer is not None else {})
