"""The reports of a guard's calls, from any thread: budgets settle by them, and slots become free."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal

from toolgate_bus.protocol.fact_events import LABELLED
from toolgate_bus.protocol.llm import LLM_REQUEST
from toolgate_bus.protocol.money import micro
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.calls.call_session import CallSession
from toolgate_orchestrator.calls.open_call import describe_place
from toolgate_orchestrator.decision.question.call import Caller
from toolgate_orchestrator.guard.answer import AskHow
from toolgate_orchestrator.guard.gate_thread import GateThread

if TYPE_CHECKING:
    from toolgate_orchestrator.calls.open_call import OpenCall, Outcome
    from toolgate_orchestrator.decision.gate import Gate
    from toolgate_orchestrator.guard.turns import Presences

UNREPORTED: Final = "Unreported"
"""Error of a call whose outcome nobody reported."""
FAILED: Final = "ToolError"
"""Error of a call whose error is a text that is ruled on."""
Cost = Decimal | float | int | str
"""Cost in units of the currency. A text or a Decimal is exact."""
DIGEST_LENGTH: Final = 32
"""Length in hexadecimal digits."""
MAX_BYTES: Final = 4_000_000
"""Bytes of a text that count. Of a longer one, its beginning, its end and its length count."""
_MAX_NODES: Final = 10_000
_NOTHING: Final[Mapping[str, Any]] = {}
_log = get_logger("toolgate.guard")


class CostError(ValueError):
    """A cost is not an amount of money."""


def micro_units(cost: Cost | None) -> int | None:
    """Return a cost in micro-units, rounded up. Raise CostError if it is no amount."""
    if cost is None:
        return None
    found = micro(cost)
    if found is None:
        raise CostError(
            f"cost= must be an amount of money (Decimal('0.02'), '0.02', 0.02), not {type(cost).__name__}"
        )
    return found


def money_text(cost: Cost) -> str:
    """Return a cost as the fact of an LLM request holds it: exactly, as text. Raise CostError."""
    micro_units(cost)
    return str(cost)


@dataclass(frozen=True, slots=True)
class Reports:
    """The reports of one guard; usable from any thread."""

    home: GateThread
    presences: "Presences"
    cost_of: Callable[[Any], Cost | None] | None = None
    """Returns the cost that a result reports."""
    ask: AskHow = None
    """Way to ask a person, unless a call has its own."""
    on_fault: Literal["deny", "continue"] | None = None
    """What happens to a call, and to a result, that the guard itself fails to rule on."""

    def tell(self, event: str, at: Caller, data: Mapping[str, Any]) -> None:
        """Report a fact that belongs to no call."""
        fact = {**data, **describe_place(at.session, at.root, at.agent, at.lineage)}

        def act(gate: "Gate") -> None:
            if event in LABELLED:
                fact["labels"] = {**gate.config.labels, **at.labels}
            if (live := self.presences.find(at.session)) is not None:
                live.add_cost(fact)
            gate.note(event, fact)

        self.home.do(act)

    def end(self, opened: "OpenCall", outcome: "Outcome", told: Mapping[str, Any] = _NOTHING) -> None:
        """Report the outcome of a call."""
        seconds = time.monotonic() - opened.since

        def act(gate: "Gate") -> None:
            live = self.presences.find(opened.session)
            CallSession(gate, live).close(opened, outcome, told, seconds)

        self.home.do(act)

    def succeed(
        self, opened: "OpenCall", result: Any, cost: Cost | None, *, is_ruled_on: bool = False
    ) -> None:
        """Report that a call ran, with its cost and the digest of its result.

        A result that is ruled on may hold what nobody is to guess: its own fact has a digest with a key.
        """
        if opened.tool == LLM_REQUEST:
            self.end(opened, "succeed", {} if cost is None else {"cost_usd": money_text(cost)})
            return
        told: dict[str, Any] = {"success": True, **({} if is_ruled_on else describe_result(result))}
        if (spent := self._read_cost(result, cost)) is not None:
            told["cost"] = spent
        self.end(opened, "succeed", told)

    def fail(
        self,
        opened: "OpenCall",
        error: BaseException | str,
        spent: int | None,
        *,
        is_ruled_on: bool = False,
    ) -> None:
        """Report that a call raised, with the type and signals of the error, and its cost in micro-units.

        Of an error that is ruled on nothing is told that may be its words.
        """
        told = _describe_error(error, is_ruled_on=is_ruled_on)
        if spent is not None and opened.tool != LLM_REQUEST:
            told["cost"] = spent
        self.end(opened, "fail", told)

    def _read_cost(self, result: Any, cost: Cost | None) -> int | None:
        if cost is not None or self.cost_of is None:
            return None if cost is None else micro_units(cost)
        try:
            return micro_units(self.cost_of(result))
        except Exception as error:  # noqa: BLE001 - the fault of the program; the reservation is charged then
            _log.error("the cost of a result could not be read", error=where(error))
            return None


def _describe_error(error: BaseException | str, *, is_ruled_on: bool) -> dict[str, Any]:
    if isinstance(error, str):
        return {"error": FAILED if is_ruled_on else error[:100]}
    # Late: what reads errors loads much, and most tools do not fail.
    from toolgate_orchestrator.turn.values.foreign_code import name_of, theirs
    from toolgate_orchestrator.turn.values.tool_signals import is_common, signals_of

    try:
        told = signals_of(error)
        if is_ruled_on and not is_common(told.get("signal")):
            told.pop("signal", None)
        return {"error": name_of(error), **told}
    except BaseException as another:
        if not theirs(another):
            raise
        return {"error": name_of(error)}


# ---------------------------------------------------------------------- digests


def digest_of(result: Any) -> str | None:
    """Return the first half of a SHA-256, in hexadecimal; None if it is no plain value, or too large."""
    if type(result) is str:
        return _digest(b"s", result.encode("utf-8", "surrogatepass"))
    if type(result) is bytes:
        return _digest(b"b", result)
    if not _is_plain(result):
        return None
    try:
        text = json.dumps(result, sort_keys=True, separators=(",", ":"), check_circular=False)
    except (TypeError, ValueError, RecursionError):
        return None
    return _digest(b"j", text.encode())


def _digest(kind: bytes, data: bytes) -> str:
    if len(data) > MAX_BYTES:
        data = data[: MAX_BYTES // 2] + data[-MAX_BYTES // 2 :] + b"%d" % len(data)
    return hashlib.sha256(kind + data, usedforsecurity=False).hexdigest()[:DIGEST_LENGTH]


def _is_plain(result: Any) -> bool:
    """Return whether JSON can write it, within bounds and without running other code."""
    todo, left = [result], _MAX_NODES
    while todo:
        value = todo.pop()
        left -= 1
        if left < 0:
            return False
        kind = type(value)
        if kind is dict:
            if any(type(key) is not str for key in value):
                return False
            todo += value.values()
        elif kind in (list, tuple):
            todo += value
        elif kind not in (str, int, float, bool, type(None)):
            return False
    return True


def describe_result(result: Any) -> Mapping[str, str]:
    """Return the `digest` of a result, if it has one."""
    found = digest_of(result)
    return {} if found is None else {"digest": found}
