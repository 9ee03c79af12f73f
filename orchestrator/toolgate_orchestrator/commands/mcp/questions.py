"""Calls of the newer era that wait for their client: for its user's answer, or for what a server asked for.

A question ends the request (`input_required`); the decision goes on here, and the client calls again with
the answer and the token. It counts for the very same call alone, once, and as long as the scheduler gave
the person.
"""

import asyncio
import hashlib
import json
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from toolgate_bus.protocol.events import AskUser, ToolQuestion

from toolgate_orchestrator.commands.mcp.answers import Answer
from toolgate_orchestrator.guard.ruling import Ruling

MAX_OPEN: Final = 1_000
"""Questions that wait at a time, and calls that wait for what a server asked for; beyond it nobody can be
asked."""


class UserQuestion(NamedTuple):
    """What a client's user is to be asked."""

    ask: AskUser
    call: ToolQuestion


def digest_of_call(session: str, tool: str, arguments: Mapping[str, Any]) -> str:
    """By which a call is known again."""
    text = json.dumps([session, tool, arguments], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class CallInQuestion:
    """One call that is ruled on beside the requests about it."""

    def __init__(self, digest: str, rule: Callable[["CallInQuestion"], Awaitable[Ruling]]) -> None:
        self.digest = digest
        self._questions: asyncio.Queue[UserQuestion] = asyncio.Queue()
        self._answers: asyncio.Queue[Answer] = asyncio.Queue()
        self._task = asyncio.ensure_future(rule(self))

    async def ask(self, ask: AskUser, call: ToolQuestion) -> Answer:
        """Asked by the gate: hands the question out, and waits for the answer."""
        self._questions.put_nowait(UserQuestion(ask, call))
        try:
            return await asyncio.wait_for(self._answers.get(), ask.timeout_s)
        except TimeoutError:
            return "allow" if ask.default == "allow" else "expired"

    def answer(self, answer: Answer) -> None:
        """Say what the user said."""
        self._answers.put_nowait(answer)

    async def next(self) -> Ruling | UserQuestion:
        """The ruling, or the next question; who is cancelled meanwhile withdraws the call."""
        asked = asyncio.ensure_future(self._questions.get())
        try:
            await asyncio.wait([self._task, asked], return_when=asyncio.FIRST_COMPLETED)
            return self._task.result() if self._task.done() else asked.result()
        except asyncio.CancelledError:
            self.withdraw()
            raise
        finally:
            asked.cancel()

    def withdraw(self) -> None:
        """Nobody waits for it any more: what was granted to it is given back."""
        self._task.cancel()
        self._task.add_done_callback(_release)

    def when_done(self, then: Callable[[], None]) -> None:
        """Have something done once it is ruled on."""
        self._task.add_done_callback(lambda _: then())


def _release(done: "asyncio.Future[Ruling]") -> None:
    if not done.cancelled() and done.exception() is None:
        done.result().release()


class Questions:
    """All calls of a proxy that wait."""

    def __init__(self) -> None:
        self._open: dict[str, CallInQuestion] = {}
        self._rounds: OrderedDict[str, Ruling] = OrderedDict()

    @property
    def is_full(self) -> bool:
        """Whether no more can wait."""
        return len(self._open) >= MAX_OPEN

    def keep(self, call: CallInQuestion) -> str:
        """Let a call wait for its answer; gives the token. One that is not answered in time is dropped."""
        token = secrets.token_urlsafe(24)
        self._open[token] = call
        call.when_done(lambda: self._drop(token))
        return token

    def _drop(self, token: str) -> None:
        if (call := self._open.pop(token, None)) is not None:
            call.withdraw()

    def take(self, token: str, digest: str) -> CallInQuestion | None:
        """The call that a token names, once; None where it is another call, or none that waits."""
        call = self._open.get(token)
        if call is None or call.digest != digest:
            return None
        return self._open.pop(token)

    # ------------------------------------------------------------ a server asks for something

    def keep_round(self, state: Any, digest: str, ruling: Ruling) -> None:
        """A server has asked for something: the next call with its state goes on under this ruling."""
        self._rounds[f"{state} {digest}"] = ruling
        while len(self._rounds) > MAX_OPEN:
            self._rounds.popitem(last=False)[1].fail("nobody answered what the server asked for")

    def take_round(self, state: Any, digest: str) -> Ruling | None:
        """The ruling under which a call goes on; None for one that is to be ruled on."""
        return self._rounds.pop(f"{state} {digest}", None)

    def close(self) -> None:
        """The proxy ends."""
        for call in list(self._open.values()):
            call.withdraw()
        self._open.clear()
        for ruling in self._rounds.values():
            ruling.fail("the proxy ended")
        self._rounds.clear()
