"""Calls of the newer era that wait for their client: for its user's answer, or for data that a server asks
for.

A question to the user ends the request (`input_required`), and the client calls again with the answer. The
decision is deferred, so it outlives this process. The client keeps its token and a digest of the tool. This
module only limits how many questions are open.
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
"""Maximum number of open questions, and of calls that wait for data for a server. Beyond it the proxy gives
up the oldest one of the agent with the most."""
STATE: Final = "toolgate:"
"""Prefix of the state of Toolgate's own questions."""


class QuestionState(NamedTuple):
    """State that the client keeps while its user is asked, and returns with the answer."""

    token: str
    """Token of the decision, which seals session, agent, tool and arguments."""
    seen: str
    """Digest of the tool's description, made with the token."""
    session: str
    """Session of the proxy if the call named none, so that another proxy can resume the call."""

    def __str__(self) -> str:
        return f"{STATE}{self.token}:{self.seen}:{self.session}"


def read_state(params: Mapping[str, Any]) -> QuestionState | None:
    """Return the state of the question that a call answers; None if the question is not Toolgate's."""
    state = params.get("requestState")
    if not isinstance(state, str) or not state.startswith(STATE):
        return None
    token, _, rest = state.removeprefix(STATE).partition(":")
    seen, _, session = rest.partition(":")
    return QuestionState(token, seen, session[:MAX_ID])


def digest_tool(token: str, digest: str) -> str:
    """Return the digest of a tool for the state of this question."""
    return hashlib.sha256(f"{token} {digest}".encode()).hexdigest()[:32]


def digest_of_call(session: str, tool: str, arguments: Mapping[str, Any]) -> str:
    """Return the digest that identifies a call."""
    text = json.dumps([session, tool, arguments], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class _OpenQuestion(NamedTuple):
    """Question that waits for its user."""

    until: float
    """End of its time, by the monotonic clock."""
    session: str
    give_up: Callable[[], None]


class Questions:
    """The waiting calls of a proxy."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, _OpenQuestion] = OrderedDict()
        """Open questions, by token."""
        self._asking: TreeShares[str] = TreeShares()
        self._rounds: OrderedDict[str, tuple[Ruling, str]] = OrderedDict()
        """Rulings of calls whose servers ask for data, each with the session of its call."""
        self._going: TreeShares[str] = TreeShares()

    def open(self, token: str, seconds: float, session: str, give_up: Callable[[], None]) -> None:
        """Note that a session's user has so many seconds to answer; `give_up` ends the question earlier."""
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
        """Note that a question was answered."""
        closed = self._open.pop(token, None)
        if closed is not None:
            self._asking.remove(closed.session, token)

    def _drop_overdue(self) -> None:
        now = time.monotonic()
        for token in [token for token, one in self._open.items() if one.until <= now]:
            self.close(token)

    # ------------------------------------------------------------ requests of servers

    def keep_round(self, state: Any, digest: str, ruling: Ruling, session: str) -> None:
        """Keep the ruling of a call whose server asks for data; the call with this state runs under it."""
        key = f"{state} {digest}"
        self._fail(key)
        if len(self._rounds) >= MAX_OPEN:
            self._fail(self._going.find_oldest(session))
        self._rounds[key] = ruling, session
        self._going.add(session, key)

    def take_round(self, state: Any, digest: str) -> Ruling | None:
        """Return the ruling under which a call goes on; None if the call needs a ruling of its own."""
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
        """Report all waiting calls as failed, since the proxy ends."""
        for ruling, _ in self._rounds.values():
            ruling.fail("the proxy ended")
        self._rounds.clear()
