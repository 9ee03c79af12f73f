"""Calls of the newer era that wait for their client: for its user's answer, or for what a server asked for.

A question to the user ends the request (`input_required`), and the client calls again with the answer. The
decision is put off as every question of a gate can be, so that it outlives this process; what the client
keeps of it is the token, and by what the tool is known again. Here is only how many are open.
"""

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from toolgate_orchestrator.commands.mcp.messages import MAX_ID
from toolgate_orchestrator.decision.tree_shares import TreeShares
from toolgate_orchestrator.guard.ruling import Ruling

MAX_OPEN: Final = 1_000
"""Questions that wait at a time, and calls that wait for what a server asked for; beyond it the oldest of
the agent with the most of them is given up."""
STATE: Final = "toolgate:"
"""With this begins the state of a question of ours."""


class QuestionState(NamedTuple):
    """What the client keeps while its user is asked, and gives back with the answer."""

    token: str
    """Of the decision: it seals session, agent, tool and arguments."""
    seen: str
    """By what the tool is known again, and what it said of itself."""
    session: str
    """The proxy's, where the call named none: another one goes on with it after this one has ended."""

    def __str__(self) -> str:
        return f"{STATE}{self.token}:{self.seen}:{self.session}"


def read_state(params: Mapping[str, Any]) -> QuestionState | None:
    """The state of our own question that a call answers; None where it answers none of ours."""
    state = params.get("requestState")
    if not isinstance(state, str) or not state.startswith(STATE):
        return None
    token, _, rest = state.removeprefix(STATE).partition(":")
    seen, _, session = rest.partition(":")
    return QuestionState(token, seen, session[:MAX_ID])


def digest_tool(token: str, digest: str) -> str:
    """By what a tool with this digest is known again, in the state of this question."""
    return hashlib.sha256(f"{token} {digest}".encode()).hexdigest()[:32]


def digest_of_call(session: str, tool: str, arguments: Mapping[str, Any]) -> str:
    """By which a call is known again."""
    text = json.dumps([session, tool, arguments], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class _OpenQuestion(NamedTuple):
    """A question that waits for its user."""

    until: float
    """The end of its time, by the monotonic clock."""
    session: str
    give_up: Callable[[], None]


class Questions:
    """All calls of a proxy that wait."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, _OpenQuestion] = OrderedDict()
        """By token."""
        self._asking: TreeShares[str] = TreeShares()
        self._rounds: OrderedDict[str, tuple[Ruling, str]] = OrderedDict()
        """With the session whose call it is."""
        self._going: TreeShares[str] = TreeShares()

    def open(self, token: str, seconds: float, session: str, give_up: Callable[[], None]) -> None:
        """A question is put to the user of a session, who has so long; `give_up` ends it before."""
        self.close(token)
        if len(self._open) >= MAX_OPEN:
            self._drop_overdue()
        if len(self._open) >= MAX_OPEN:
            oldest = self._asking.find_oldest(session)
            given_up = self._open[oldest]
            self.close(oldest)
            given_up.give_up()
        self._open[token] = _OpenQuestion(time.monotonic() + seconds, session, give_up)
        self._asking.add(session, token)

    def close(self, token: str) -> None:
        """It is answered."""
        closed = self._open.pop(token, None)
        if closed is not None:
            self._asking.remove(closed.session, token)

    def _drop_overdue(self) -> None:
        now = time.monotonic()
        for token in [token for token, one in self._open.items() if one.until <= now]:
            self.close(token)

    # ------------------------------------------------------------ a server asks for something

    def keep_round(self, state: Any, digest: str, ruling: Ruling, session: str) -> None:
        """A server has asked for something: the next call with its state goes on under this ruling."""
        key = f"{state} {digest}"
        self._fail(key)
        if len(self._rounds) >= MAX_OPEN:
            self._fail(self._going.find_oldest(session))
        self._rounds[key] = ruling, session
        self._going.add(session, key)

    def take_round(self, state: Any, digest: str) -> Ruling | None:
        """The ruling under which a call goes on; None for one that is to be ruled on."""
        found = self._rounds.pop(key := f"{state} {digest}", None)
        if found is None:
            return None
        self._going.remove(found[1], key)
        return found[0]

    def _fail(self, key: str) -> None:
        found = self._rounds.pop(key, None)
        if found is not None:
            self._going.remove(found[1], key)
            found[0].fail("nobody answered what the server asked for")

    def end(self) -> None:
        """The proxy ends."""
        for ruling, _ in self._rounds.values():
            ruling.fail("the proxy ended")
        self._rounds.clear()
