"""What every peer does with a call besides carrying it: encode, rule, validate, merge, verify. Pure.

The same work that Toolgate is asked for: all schedulers answer, any deny wins, else the first modify,
which goes round once more to all but its author; a verdict that is none counts as a deny.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol.packing import pack, unpack

from toolgate_orchestrator.commands.bench.mix import REPLACEMENT, TOOLS, Answer, MixedCall, reason_of, replace

Ask = Callable[[bytes, Sequence[str]], Awaitable[Sequence[tuple[str, bytes]]]]
"""Carries a question to these schedulers; gives their names and answers."""
TTL_MS: Final = 120_000
CONTINUE: Final = pack({"action": "continue"})


class PeerVerdict(NamedTuple):
    """A verdict that was read and found well formed."""

    scheduler: str
    action: str
    reason: str | None = None
    tool: str = ""
    arguments: dict[str, Any] | None = None


def encode(call: MixedCall, phase: str, tool: str, given: dict[str, Any]) -> bytes:
    """A question: the fields that Toolgate's have."""
    return pack(
        {
            "phase": phase,
            "id": f"{call.number:032x}",
            "available_tools": TOOLS,
            "available_agents": None,
            "truncated": False,
            "ttl_ms": TTL_MS,
            "trace": {},
            "agent_target": None,
            "agent": "bench",
            "labels": {},
            "parent": None,
            "parallel_group_id": "",
            "iteration": 0,
            "root_session": call.session,
            "session": call.session,
            "tool_call_id": call.tool_call_id,
            "tool_name": tool,
            "tool_input": given,
        }
    )


def answer(name: str, raw: bytes) -> bytes:
    """What the scheduler of this name says to a question."""
    given = unpack(raw)["tool_input"]
    if given["by"] != name:
        return CONTINUE
    if given["rule"] == "deny":
        return pack({"action": "deny", "reason": reason_of(name, given)})
    verdict = {"action": "modify", "tool": REPLACEMENT, "arguments": replace(given)}
    return pack({**verdict, "reason": reason_of(name, given)})


def read_verdict(scheduler: str, raw: bytes) -> PeerVerdict:
    """A verdict off the wire; one that is none is a deny."""
    try:
        fields = unpack(raw)
    except CodecError:
        return _no_verdict(scheduler)
    if type(fields) is not dict or type(fields.get("reason")) not in (str, type(None)):
        return _no_verdict(scheduler)
    action, reason = fields.get("action"), fields.get("reason")
    if action in ("continue", "deny"):
        return PeerVerdict(scheduler, action, reason)
    tool, arguments = fields.get("tool"), fields.get("arguments")
    if action == "modify" and tool in TOOLS and type(arguments) is dict:
        return PeerVerdict(scheduler, "modify", reason, tool, arguments)
    return _no_verdict(scheduler)


def _no_verdict(scheduler: str) -> PeerVerdict:
    return PeerVerdict(scheduler, "deny", f"{scheduler} gave no verdict")


def find_winner(answers: Sequence[tuple[str, bytes]]) -> PeerVerdict | None:
    """The verdict that decides, of schedulers' names and answers; None where all say continue."""
    winner = None
    for name, raw in answers:
        if raw == CONTINUE:
            continue
        one = read_verdict(name, raw)
        if one.action == "deny":
            return one
        if one.action == "modify" and winner is None:
            winner = one
    return winner


async def decide(ask: Ask, schedulers: Sequence[str], call: MixedCall) -> Answer:
    """Have all rule on a call, and on its replacement all but the author."""
    answers = await ask(encode(call, "select", call.tool_name, call.tool_input), schedulers)
    heard, winner = len(answers), find_winner(answers)
    if winner is None:
        return Answer("continue", call.tool_name, call.tool_input, None, heard)
    if winner.action == "deny":
        return Answer("deny", "", {}, winner.reason, heard)
    arguments = winner.arguments if winner.arguments is not None else call.tool_input
    others = [name for name in schedulers if name != winner.scheduler]
    if others:
        answers = await ask(encode(call, "verify", winner.tool, arguments), others)
        heard += len(answers)
        against = find_winner(answers)
        if against is not None:
            return Answer("deny", "", {}, against.reason, heard)
    return Answer("modify", winner.tool, arguments, winner.reason, heard)
