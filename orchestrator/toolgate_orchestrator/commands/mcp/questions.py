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
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolgate_orchestrator.commands.mcp.messages import MAX_ID
from toolgate_orchestrator.guard.ruling import Ruling

MAX_OPEN: Final = 1_000
"""Maximum number of open questions, and of calls that wait for data for a server. Beyond it no user is
asked."""
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


class Questions:
    """The waiting calls of a proxy."""

    def __init__(self) -> None:
        self._open: dict[str, float] = {}
        """End of each open question by the monotonic clock, by token."""
        self._rounds: OrderedDict[str, Ruling] = OrderedDict()

    @property
    def is_full(self) -> bool:
        """True if no further question can be opened."""
        if len(self._open) < MAX_OPEN:
            return False
        now = time.monotonic()
        self._open = {token: end for token, end in self._open.items() if end > now}
        return len(self._open) >= MAX_OPEN

    def open(self, token: str, seconds: float) -> None:
        """Note that a user has this many seconds to answer a question."""
        self._open[token] = time.monotonic() + seconds

    def close(self, token: str) -> None:
        """Note that a question was answered."""
        self._open.pop(token, None)

    # ------------------------------------------------------------ requests of servers

    def keep_round(self, state: Any, digest: str, ruling: Ruling) -> None:
        """Keep the ruling of a call whose server asks for data. The next call with this state runs under
        it."""
        before = self._rounds.pop(key := f"{state} {digest}", None)
        if before is not None:
            before.fail("nobody answered what the server asked for")
        self._rounds[key] = ruling
        while len(self._rounds) > MAX_OPEN:
            self._rounds.popitem(last=False)[1].fail("nobody answered what the server asked for")

    def take_round(self, state: Any, digest: str) -> Ruling | None:
        """Return the ruling under which a call goes on; None if the call needs a ruling of its own."""
        return self._rounds.pop(f"{state} {digest}", None)

    def end(self) -> None:
        """Report all waiting calls as failed, since the proxy ends."""
        for ruling in self._rounds.values():
            ruling.fail("the proxy ended")
        self._rounds.clear()
