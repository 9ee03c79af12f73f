"""Calls that a client was told may run, until it tells what became of them.

A client gives each call an id, or none, and an LLM may have it give one twice. So a call is known again by
its client, session, agent, tool, id and arguments together. A client may run it with arguments that nobody
has seen, as its user changed them: then the id alone is enough, if no other call has borne it.
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
    """What is kept of each call; where there are too many, the conversation with the most makes room."""

    def __init__(self, most: int) -> None:
        self._most, self._number = most, 0
        self._kept: OrderedDict[int, tuple[T, str, tuple[str, ...]]] = OrderedDict()
        self._shares: TreeShares[int] = TreeShares()
        self._keys: dict[str, deque[int]] = {}
        self._bearers: OrderedDict[str, str] = OrderedDict()
        """By an id, the one call that bore it; `_SEVERAL` where there were others. Denied ones count."""

    def __iter__(self) -> Iterator[T]:
        return iter([value for value, _, _ in self._kept.values()])

    @property
    def newest(self) -> T | None:
        """What was kept last."""
        return next(reversed(self._kept.values()))[0] if self._kept else None

    def meet(self, event: HookEvent) -> None:
        """Know of a call that is asked about, whatever is ruled on it."""
        if not event.call_id:
            return
        bearer, key = _bearer_of(event), key_of(event)
        self._bearers[bearer] = key if self._bearers.get(bearer, key) == key else _SEVERAL
        self._bearers.move_to_end(bearer)
        if len(self._bearers) > self._most:
            self._bearers.popitem(last=False)

    def keep(self, event: HookEvent, value: T, arguments: Mapping[str, Any] | None = None) -> list[T]:
        """Keep something of a call that may run; return what was forgotten for it.

        `arguments` are those that it may run with instead.
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
        """Return what was kept of this call, and forget it; None for one that nobody knows.

        Of calls that are alike the newest: a client tells nothing of an older one that its user refused.
        """
        found = self._keys.get(key_of(event))
        if not found and event.call_id:
            bearer = _bearer_of(event)
            found = self._keys.get(bearer) if self._bearers.get(bearer) else None
        return self._forget(found[-1]) if found else None

    def remove(self, value: T) -> None:
        """Forget this one."""
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
    """By what a call is known again."""
    arguments = event.pair if event.pair is not None else event.arguments
    return call_key(*_whose(event), arguments=arguments)


def _bearer_of(event: HookEvent) -> str:
    """By what those calls are known that one id might mean."""
    return call_key(*_whose(event), arguments=None)


def _whose(event: HookEvent) -> tuple[str, ...]:
    return event.client, event.session, event.agent_id, event.tool, event.call_id
