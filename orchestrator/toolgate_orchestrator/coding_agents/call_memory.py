"""Memory of calls that a client may run, until the client reports their end.

A client may give a call no id, and an LLM can make it give one id twice. So client, session, agent, tool, id
and arguments together identify a call. The user may change the arguments before the client runs the call.
Then the id alone identifies it, if no other call has had that id.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

from toolgate_orchestrator.coding_agents.event import HookEvent
from toolgate_orchestrator.decision.question.canonical import call_key
from toolgate_orchestrator.decision.tree_shares import TreeShares

T = TypeVar("T")
_SEVERAL: Final = ""


class CallMemory(Generic[T]):
    """Values kept for open calls. When the memory is full, the conversation with the most calls loses its
    oldest."""

    def __init__(self, most: int) -> None:
        self._most, self._number = most, 0
        self._kept: OrderedDict[int, tuple[T, str, tuple[str, ...]]] = OrderedDict()
        self._shares: TreeShares[int] = TreeShares()
        self._keys: dict[str, deque[int]] = {}
        self._bearers: OrderedDict[str, str] = OrderedDict()
        """Key of the only call that bore an id; `_SEVERAL` if other calls bore it, too. Denied calls
        count."""

    def __iter__(self) -> Iterator[T]:
        return iter([value for value, _, _ in self._kept.values()])

    @property
    def newest(self) -> T | None:
        """Value that was kept last; None if there is none."""
        return next(reversed(self._kept.values()))[0] if self._kept else None

    def meet(self, event: HookEvent) -> None:
        """Note the id of a call that is asked about, whatever the ruling."""
        if not event.call_id:
            return
        bearer, key = _bearer_of(event), key_of(event)
        self._bearers[bearer] = key if self._bearers.get(bearer, key) == key else _SEVERAL
        self._bearers.move_to_end(bearer)
        if len(self._bearers) > self._most:
            self._bearers.popitem(last=False)

    def keep(self, event: HookEvent, value: T, arguments: Mapping[str, Any] | None = None) -> list[T]:
        """Keep a value for a call that may run; return the values that were forgotten to make room.

        `arguments` are the other arguments that the call may run with.
        """
        keys = {key_of(event): None}
        if arguments is not None:
            keys[key_of(event._replace(arguments=arguments, pair=None))] = None
        if event.call_id:
            keys[_bearer_of(event)] = None
        gone = []
        if len(self._kept) >= self._most:
            gone.append(self._forget(self._shares.find_oldest(event.session)))
        self._number += 1
        self._kept[self._number] = value, event.session, tuple(keys)
        self._shares.add(event.session, self._number)
        for key in keys:
            self._keys.setdefault(key, deque()).append(self._number)
        return gone

    def take(self, event: HookEvent) -> T | None:
        """Return the value of a call and forget it; None for an unknown call.

        Of several equal calls it takes the newest: a client does not report an older one that its user
        refused.
        """
        found = self._keys.get(key_of(event))
        if not found and event.call_id:
            bearer = _bearer_of(event)
            found = self._keys.get(bearer) if self._bearers.get(bearer) else None
        return self._forget(found[-1]) if found else None

    def remove(self, value: T) -> None:
        """Forget the call with this value."""
        for number, (one, _, _) in self._kept.items():
            if one is value:
                self._forget(number)
                return

    def _forget(self, number: int) -> T:
        value, session, keys = self._kept.pop(number)
        self._shares.remove(session, number)
        for key in keys:
            queue = self._keys[key]
            queue.remove(number)
            if not queue:
                del self._keys[key]
        return value


def key_of(event: HookEvent) -> str:
    """Return the key that identifies a call."""
    arguments = event.pair if event.pair is not None else event.arguments
    return call_key(*_whose(event), arguments=arguments)


def _bearer_of(event: HookEvent) -> str:
    """Return the key of all calls that an id may stand for."""
    return call_key(*_whose(event), arguments=None)


def _whose(event: HookEvent) -> tuple[str, ...]:
    return event.client, event.session, event.agent_id, event.tool, event.call_id
