"""Calls of the newer era that wait for their client: for its user's answer, or for what a server asked for.

A question to the user ends the request (`input_required`), and the client calls again with the answer. The
decision is put off as every question of a gate can be, so that it outlives this process; what the client
keeps of it is the token, and by what the tool is known again. Here is only how many are open.
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
"""Questions that wait at a time, and calls that wait for what a server asked for; beyond it nobody can be
asked."""
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


class Questions:
    """All calls of a proxy that wait."""

    def __init__(self) -> None:
        self._open: dict[str, float] = {}
        """By token, until when a question is open, by the monotonic clock."""
        self._rounds: OrderedDict[str, Ruling] = OrderedDict()

    @property
    def is_full(self) -> bool:
        """Whether no more can wait."""
        if len(self._open) < MAX_OPEN:
            return False
        now = time.monotonic()
        self._open = {token: end for token, end in self._open.items() if end > now}
        return len(self._open) >= MAX_OPEN

    def open(self, token: str, seconds: float) -> None:
        """A question is put to a user, who has so long."""
        self._open[token] = time.monotonic() + seconds

    def close(self, token: str) -> None:
        """It is answered."""
        self._open.pop(token, None)

    # ------------------------------------------------------------ a server asks for something

    def keep_round(self, state: Any, digest: str, ruling: Ruling) -> None:
        """A server has asked for something: the next call with its state goes on under this ruling."""
        before = self._rounds.pop(key := f"{state} {digest}", None)
        if before is not None:
            before.fail("nobody answered what the server asked for")
        self._rounds[key] = ruling
        while len(self._rounds) > MAX_OPEN:
            self._rounds.popitem(last=False)[1].fail("nobody answered what the server asked for")

    def take_round(self, state: Any, digest: str) -> Ruling | None:
        """The ruling under which a call goes on; None for one that is to be ruled on."""
        return self._rounds.pop(f"{state} {digest}", None)

    def end(self) -> None:
        """The proxy ends."""
        for ruling in self._rounds.values():
            ruling.fail("the proxy ended")
        self._rounds.clear()
