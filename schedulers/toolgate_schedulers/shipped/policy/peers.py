"""Tell the other replicas of a policy about undecided calls that their calls may wait for.

Facts tell of a call only once it is decided, and a person may take minutes for that. So a replica leaves a
note in the store if other calls of the same response may depend on its call. A replica that would deny a
dependent call looks for the note first. There is one note for each response and rule; it expires when no
call can still wait for it.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import packing, placeholders
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.transport.ports import Store

from toolgate_schedulers.shipped.policy.needs import OrderMatcher, Precondition

MAX_NOTE: Final = 2048
_UNSEEN: Final = {placeholders.WHOLE: placeholders.MARK}


class PeerNotes:
    """Notes of one scheduler; of `rules`, those with `wait_s` and `after` count."""

    def __init__(self, store: Store, name: str, rules: Iterable[OrderMatcher]) -> None:
        self._store, self._prefix = store, f"order:{name}:"
        self._needs = [(rule, rule.after) for rule in rules if rule.wait_s and rule.after is not None]

    def concerns(self, call: ToolSelecting) -> bool:
        """Return whether other calls of the same response may wait for this call."""
        return bool(call.parallel_group_id) and any(True for _ in self._list_needs(call))

    async def tell(self, call: ToolSelecting, orchestrator: str) -> None:
        """Leave a note that this call is being decided; raise TransportError if the store does not answer."""
        note = packing.pack([call.id, call.tool_name, orchestrator])
        for need, wait_s in self._list_needs(call):
            await self._store.put(self._key(need, call), note, wait_s)

    async def find(self, call: ToolSelecting) -> Sequence[tuple[ToolSelecting, str]]:
        """Return the undecided calls of peers that this call may wait for, with their orchestrators; raise
        TransportError."""
        found = []
        for rule, need in self._needs:
            if globs.either(rule.tools, call.tool_name):
                raw = await self._store.get(self._key(need, call))
                if raw is not None and (note := _read(raw)) is not None:
                    id_, tool, orchestrator = note
                    other = {"id": id_, "tool_name": tool, "tool_input": _UNSEEN}
                    found.append((call.model_copy(update=other), orchestrator))
        return found

    def _list_needs(self, call: ToolSelecting) -> Iterator[tuple[Precondition, float]]:
        for rule, need in self._needs:
            if globs.either(need.tool, call.tool_name):
                yield need, rule.wait_s or 0.0

    def _key(self, need: Precondition, call: ToolSelecting) -> str:
        told_apart = "\0".join((call.session, call.parallel_group_id, need.model_dump_json()))
        return self._prefix + hashlib.sha256(told_apart.encode("utf-8", "replace")).hexdigest()[:32]


def _read(raw: bytes) -> tuple[str, str, str] | None:
    try:
        note = packing.unpack(raw, MAX_NOTE)
    except CodecError:
        return None
    if not isinstance(note, list) or len(note) != 3 or not all(isinstance(one, str) for one in note):
        return None
    return note[0], note[1], note[2]
