"""What becomes of a call that may run, as the facts that the loops write: so budgets settle, and slots are
free.

succeed ─▶ tool:post (usage, of a request to an LLM)     fail ─▶ tool:error (provider:error) release ─▶
tool:unused                                   nothing, and forgotten ─▶ as a failure, and counted
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from toolgate_bus.protocol.fact_events import LABELLED
from toolgate_bus.protocol.llm import LLM_REQUEST
from toolgate_bus.protocol.money import micro
from toolgate_bus.telemetry.definitions import OTHER
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.decision.fact_shapes import describe_place
from toolgate_orchestrator.decision.question.call import Caller
from toolgate_orchestrator.guard.gate_thread import GateThread

if TYPE_CHECKING:
    from toolgate_orchestrator.decision.gate import Gate
    from toolgate_orchestrator.guard.turns import Presences

UNREPORTED: Final = "Unreported"
"""The error of a call of which nobody told what became of it."""
Cost = Decimal | float | int | str
"""In units of the currency; as text or Decimal it is exact."""
DIGEST_LENGTH: Final = 32
"""Hexadecimal digits."""
MAX_BYTES: Final = 4_000_000
"""Of longer texts, beginning and end count, and how long they are."""
_MAX_NODES: Final = 10_000
_log = get_logger("toolgate.guard")


class CostError(ValueError):
    """A cost that is no amount of money."""


def micro_units(cost: Cost | None) -> int | None:
    """A cost in micro-units, rounded up; raises CostError for what is no amount."""
    if cost is None:
        return None
    found = micro(cost)
    if found is None:
        raise CostError(
            f"cost= is an amount of money (Decimal('0.02'), '0.02', 0.02), not {type(cost).__name__}"
        )
    return found


def money_text(cost: Cost) -> str:
    """A cost as the fact of a request to an LLM tells it: exactly, as text. Raises CostError."""
    micro_units(cost)
    return str(cost)


@dataclass(frozen=True, slots=True)
class Reports:
    """Where the facts of one guard go; usable from any thread."""

    home: GateThread
    presences: "Presences"
    cost_of: Callable[[Any], Cost | None] | None = None
    """What a result says that it cost."""

    def tell(self, event: str, at: Caller, data: Mapping[str, Any], ended: str | None = None) -> None:
        """One fact; `ended` is the id of a call that runs no longer."""
        fact = {**data, **describe_place(at.session, at.root, at.agent, at.lineage)}

        def act(gate: "Gate") -> None:
            if event in LABELLED:
                fact["labels"] = {**gate.config.labels, **at.labels}
            self.presences.note(at, fact, ended)
            gate.note(event, fact)

        self.home.do(act)

    def success(self, result: Any, cost: Cost | None) -> dict[str, Any]:
        """What the fact of a result tells: its digest, and what it cost in micro-units."""
        if cost is None and self.cost_of is not None:
            try:
                cost = self.cost_of(result)
                told = micro_units(cost)
            except Exception as error:  # noqa: BLE001 - the program's; what was reserved is charged then
                _log.error("what a result cost could not be told", error=where(error))
                told = None
        else:
            told = micro_units(cost)
        return {"success": True, **describe_result(result), **({} if told is None else {"cost": told})}

    @staticmethod
    def failure(error: BaseException | str) -> dict[str, Any]:
        """What the fact of an error tells: its type and signals, never its words."""
        if isinstance(error, str):
            return {"error": error[:100]}
        # Late: what reads errors loads much, and most tools do not fail.
        from toolgate_orchestrator.turn.values.foreign_code import name_of, theirs
        from toolgate_orchestrator.turn.values.tool_signals import signals_of

        try:
            return {"error": name_of(error), **signals_of(error)}
        except BaseException as another:
            if not theirs(another):
                raise
            return {"error": name_of(error)}


def label_of(tool: str, tools: Any) -> str:
    """A tool's name as facts tell it: an LLM may name anything."""
    return tool if tool in tools or tool == LLM_REQUEST else OTHER


# ---------------------------------------------------------------------- digests


def digest_of(result: Any) -> str | None:
    """The first half of a SHA-256, in hexadecimal; None for what is no plain value, or too large a one."""
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
    """Whether JSON can say it without running anybody's code, within bounds."""
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
    """`digest` of a result, where there is one."""
    found = digest_of(result)
    return {} if found is None else {"digest": found}
