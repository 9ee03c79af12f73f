"""Let the replicas of a policy count together under `at_most`: undecided calls queue in rows on the server.

Facts tell of a call only once it is decided. An undecided call counts all calls before it in the row of its
rule and scope, whichever replica was asked about them. So of many simultaneous calls no more run than may.
A replica renews the places of its calls; the places of a replica that is gone expire.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from toolgate_bus.errors import CodecError, ToolgateError
from toolgate_bus.protocol import packing, placeholders
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.ruling.conditions.conditions import holds
from toolgate_bus.state.claims import KEPT_MS, MAX_WORDS, ClaimBoard
from toolgate_bus.telemetry.loggers import get_logger

from toolgate_schedulers.shipped.policy.needs import OrderMatcher
from toolgate_schedulers.shipped.policy.order import CallHistory, scopes_for

RENEW_S: Final = KEPT_MS / 3000
_SAID: Final = ("session", "root_session", "labels", "tool_input")
"""Fields of a call that its entry holds after tool and orchestrator, unless the entry would be too long."""
_UNSEEN: Final = {placeholders.WHOLE: placeholders.MARK}
_log = get_logger("toolgate.policy")


@dataclass(slots=True)
class _RowPlace:
    keys: tuple[str, ...]
    words: bytes
    renewed: float


class QueuePositions:
    """Places of one replica's calls. `rules` are all rules on order, of which those with `at_most` count."""

    def __init__(
        self, claims: ClaimBoard, name: str, rules: Iterable[OrderMatcher], history: CallHistory
    ) -> None:
        self._claims, self._prefix, self._history = claims, f"order:{name}:most:", history
        self._rules = tuple(
            (rule, rule.at_most.scope, rule.model_dump_json(include={"tools", "when"}))
            for rule in rules
            if rule.at_most is not None
        )
        self._places: dict[str, _RowPlace] = {}
        """Places by decision."""

    @property
    def has_rules(self) -> bool:
        """True if any rule counts calls."""
        return bool(self._rules)

    async def claim(self, call: ToolSelecting, orchestrator: str, now: float) -> bool:
        """Put a call into the rows of the rules that count it, and note the calls before it.

        False if the calls before it are not known: then it may not run.
        """
        keys = self._list_keys(call)
        if not keys:
            return True
        words = _describe(call, orchestrator, self._history)
        self._places[call.id] = _RowPlace(keys, words, now)
        try:
            before = await self._claims.claim(keys, call.id, words)
        except ToolgateError as error:
            _log.warning("who else is being decided under at_most cannot be told", error=str(error))
            return False
        for who, told in before:
            self._history.note_question(*_read(call, who, told), now)
        self._history.note_before(call.id, {who for who, _ in before})
        return True

    async def give_back(self, ids: Iterable[str]) -> None:
        """Give back the places of calls that are decided or denied."""
        for id_ in ids:
            if (place := self._places.pop(id_, None)) is not None:
                try:
                    await self._claims.give_back(place.keys, id_)
                except ToolgateError as error:  # the place expires
                    _log.info("a place in a row could not be given back", decision=id_, error=str(error))

    async def renew(self, now: float) -> None:
        """Renew the places of calls that are still being decided, and give back the others."""
        await self.give_back([id_ for id_ in self._places if not self._history.is_asked(id_)])
        for id_, place in list(self._places.items()):
            if now - place.renewed >= RENEW_S:
                place.renewed = now
                try:
                    await self._claims.renew(place.keys, id_, place.words)
                except ToolgateError as error:
                    _log.info("a place in a row could not be renewed", decision=id_, error=str(error))

    def _list_keys(self, call: ToolSelecting) -> tuple[str, ...]:
        found = set()
        for rule, scope, words in self._rules:
            if globs.either(rule.tools, call.tool_name) and holds(rule.when, call.tool_input) is not False:
                row = "\0".join((words, *scopes_for(scope, call, against=True)[0]))
                found.add(hashlib.sha256(row.encode("utf-8", "replace")).hexdigest()[:32])
        return tuple(self._prefix + digest for digest in sorted(found))


def _describe(call: ToolSelecting, orchestrator: str, history: CallHistory) -> bytes:
    """Return the data by which another replica counts the call."""
    labels, needed = history.describe(call)
    told: list[Any] = [call.tool_name, orchestrator, call.session, call.root_session, labels, needed]
    words = packing.pack(told)
    return words if len(words) <= MAX_WORDS else packing.pack([call.tool_name, orchestrator])


def _read(call: ToolSelecting, who: str, words: bytes) -> tuple[ToolSelecting, str]:
    """Return the call of an entry and its orchestrator; an entry that is short or malformed counts as like
    this call."""
    try:
        told = packing.unpack(words, MAX_WORDS)
    except CodecError:
        told = None
    seen: dict[str, Any] = {"id": who, "tool_input": _UNSEEN}
    if not isinstance(told, list) or not all(isinstance(one, str) for one in told[:4]) or len(told) < 2:
        return call.model_copy(update=seen), ""
    seen["tool_name"] = told[0]
    if len(told) == 6 and isinstance(told[4], dict) and isinstance(told[5], dict):
        seen |= dict(zip(_SAID, told[2:], strict=True))
    return call.model_copy(update=seen), told[1]
