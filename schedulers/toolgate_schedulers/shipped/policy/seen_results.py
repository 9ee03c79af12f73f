"""Tell the replicas of a policy what calls gave, as far as rules on order look at it.

Facts hold no text of a result. So the replica that is asked about a result writes down, before it answers,
what its rules see in it: whether the conditions of `result` hold, and the values that `same` compares. It
writes that into the store, under the decision. A replica that rules on a later call reads it there. What
nobody wrote, or what is gone, is unknown, and counts against the call.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from toolgate_bus.errors import CodecError, TransportError
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.ruling.conditions.arguments import MISSING, UNSEEN, readings
from toolgate_bus.ruling.conditions.conditions import Truth, every
from toolgate_bus.ruling.conditions.result_paths import RESULT, ReadableResult, names_result
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Store

from toolgate_schedulers.shipped.policy.needs import MAX_WINDOW_S, OrderMatcher, Precondition
from toolgate_schedulers.shipped.policy.order import CallHistory, SeenResult

KEPT_S: Final = MAX_WINDOW_S + 120.0
MAX_NOTE: Final = 8192
"""Most bytes that are written about one result; of a longer one nothing is known."""
MAX_READ: Final = 64
"""Most results that are read for one call: those of the calls that ended last."""
_log = get_logger("toolgate.policy")


def look_at_result(needs: Iterable[Precondition], call: ToolSelecting) -> dict[str, SeenResult]:
    """Return what preconditions see in the result of a call, by their digests. Pure."""
    result = ReadableResult(call.result, is_cut=call.result_cut)
    found: dict[str, SeenResult] = {}
    for need in needs:
        if globs.either(need.tool, call.tool_name):
            truth: Truth = every(
                result.holds_either_way(path if names_result(path) else f"{RESULT}.{path}", condition)
                for path, condition in need.result.items()
            )
            found[need.digest] = SeenResult(truth, {path: _read(result, path) for path in need.result_paths})
    return found


def _read(result: ReadableResult, path: str) -> tuple[Any, ...]:
    """Return the values at a path. Lists and maps count as unseen, so that all replicas know the same."""
    inside = result.find(path)
    if inside is None:
        return (UNSEEN,)
    return tuple(one if one is MISSING or type(one) in _SCALARS else UNSEEN for one in readings(path, inside))


_SCALARS: Final = frozenset((str, int, float, bool, type(None)))


class SeenResults:
    """Results of calls that rules on order look back at, in the store of one scheduler."""

    def __init__(self, store: Store, name: str, rules: Iterable[OrderMatcher], history: CallHistory) -> None:
        self._store, self._prefix, self._history = store, f"order:{name}:result:", history
        self._rules = [rule for rule in rules if any(need.needs_result for need in rule.needs)]
        self._needs = [need for rule in self._rules for need in rule.needs if need.needs_result]

    def concerns(self, call: ToolSelecting) -> bool:
        """Return whether what earlier calls gave decides about this call."""
        return any(globs.either(rule.tools, call.tool_name) for rule in self._rules)

    async def note(self, call: ToolSelecting) -> None:
        """Note what a call gave, before it is given to the agent."""
        seen = look_at_result(self._needs, call)
        if not seen:
            return
        self._history.note_result(call.id, seen)
        note = {digest: [one.truth, _pack(one)] for digest, one in seen.items()}
        try:
            raw = packing.pack(note)
            if len(raw) <= MAX_NOTE:
                await self._store.put(self._prefix + call.id, raw, KEPT_S)
        except (TransportError, CodecError) as error:
            _log.warning("other replicas cannot be told what a call gave", decision=call.id, error=str(error))

    async def fetch(self, call: ToolSelecting, now: float) -> None:
        """Read what the calls before this one gave, where that is not known here."""
        wanted = [id_ for need in self._list_needs(call) for id_ in self._list_unknown(need, call, now)]
        ids = list(dict.fromkeys(wanted))[:MAX_READ]
        for id_, seen in zip(ids, await asyncio.gather(*map(self._fetch_one, ids)), strict=True):
            if seen is not None:
                self._history.note_result(id_, seen)

    def _list_needs(self, call: ToolSelecting) -> Iterator[Precondition]:
        for rule in self._rules:
            if globs.either(rule.tools, call.tool_name):
                yield from (need for need in rule.needs if need.needs_result)

    def _list_unknown(self, need: Precondition, call: ToolSelecting, now: float) -> list[str]:
        return self._history.list_unknown_results(need, call, now)

    async def _fetch_one(self, id_: str) -> Mapping[str, SeenResult] | None:
        """Return what was written about a result, an empty map if nothing was; None if that is not known."""
        try:
            raw = await self._store.get(self._prefix + id_)
        except TransportError as error:
            _log.info("what a call gave cannot be read", decision=id_, error=str(error))
            return None
        return {} if raw is None else _unpack(raw)


def _pack(seen: SeenResult) -> dict[str, Any]:
    """Return the values that were seen, each in a list; an empty list is a value that was not there."""
    return {
        path: [[] if one is MISSING else [one] for one in values]
        for path, values in seen.values.items()
        if not any(one is UNSEEN for one in values)
    }


def _unpack(raw: bytes) -> Mapping[str, SeenResult]:
    try:
        note = packing.unpack(raw, MAX_NOTE)
    except CodecError:
        return {}
    found: dict[str, SeenResult] = {}
    for digest, one in note.items() if isinstance(note, dict) else ():
        if isinstance(one, list) and len(one) == 2 and one[0] in (True, False, None) and type(one[1]) is dict:
            values = {
                path: tuple(value[0] if value else MISSING for value in told)
                for path, told in one[1].items()
                if type(told) is list and all(type(value) is list for value in told)
            }
            found[digest] = SeenResult(one[0], values)
    return found
