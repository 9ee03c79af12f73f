"""A server on loopback that answers as an LLM of a script does, and refuses what the real ones refuse.

    async with StrictServer(Messages(), [Says(calls=(("c1", "look", {}),)), Says("done")]) as server: …

What a request must fit, and how an answer is written, whole or as a stream, is the affair of its API:
`strict_messages`, `strict_responses`, `strict_chat`. What they share is here.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from openai_server import Exchange, Server

__all__ = ["Api", "Refusal", "Says", "StrictServer", "check_tools", "need", "only", "seal"]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Refusal(Exception):  # noqa: N818 - it is what the server does
    """Why a request is refused: HTTP 400."""


@dataclass(frozen=True)
class Says:
    """One answer of the LLM."""

    text: str = ""
    calls: tuple[tuple[str, str, dict[str, Any]], ...] = ()
    thinking: str = ""
    """Said where the request asks for thinking."""
    redacted: str = ""
    """Thinking that only the server can read; likewise."""


class Api(Protocol):
    """One API: what it takes, and how it answers."""

    path: str

    def check(self, body: Mapping[str, Any]) -> None:
        """Raises Refusal."""

    def whole(self, says: Says, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer in one piece."""

    def stream(self, says: Says, body: Mapping[str, Any]) -> Iterator[bytes]:
        """The answer as server-sent events."""

    def error(self, message: str) -> dict[str, Any]:
        """The body of an error."""


class StrictServer(Server):
    """Answers with the script, as long as the requests are what the API takes."""

    def __init__(self, api: Api, script: Sequence[Says | int]) -> None:
        super().__init__()
        self.api, self.script = api, list(script)
        self.refused: list[str] = []
        """Why requests were refused."""
        self.default = self.reply

    async def reply(self, exchange: Exchange) -> None:
        """Answer one request; a number in the script is a status of an error."""
        assert exchange.path == self.api.path, exchange.path
        try:
            self.api.check(exchange.body)
        except Refusal as refusal:
            self.refused.append(str(refusal))
            return await exchange.json(self.api.error(str(refusal)), 400)
        says = self.script.pop(0) if self.script else Says("There is no more.")
        if isinstance(says, int):
            return await exchange.json(self.api.error("overloaded"), says)
        if not exchange.body.get("stream"):
            return await exchange.json(self.api.whole(says, exchange.body))
        await exchange.begin()
        await exchange.send(*self.api.stream(says, exchange.body))
        await exchange.end(done=False)
        return None


def need(holds: Any, why: str) -> None:
    """Refuse unless something holds."""
    if not holds:
        raise Refusal(why)


def only(where: str, given: Mapping[str, Any], required: Iterable[str], optional: Iterable[str] = ()) -> None:
    """Refuse what has other fields."""
    for field in required:
        need(field in given, f"{where}.{field}: Field required")
    for field in set(given) - {*required, *optional}:
        need(False, f"{where}.{field}: Extra inputs are not permitted")


def check_tools(names: Sequence[Any], *, called: bool, chosen: bool) -> None:
    """Tools have names, each one its own; they are there where calls are, or one is to be chosen."""
    for name in names:
        need(isinstance(name, str) and NAME.fullmatch(name), f"tools: bad name {name!r}")
    need(len(set(names)) == len(names), "tools: Tool names must be unique.")
    need(names or not called, "tools: must be given, as the conversation holds calls")
    need(names or not chosen, "tool_choice: may only be given with tools")


def seal(text: str) -> str:
    """What only the server can make of a text, and knows again."""
    return f"seal-{hashlib.sha256(f'key {text}'.encode()).hexdigest()[:24]}"


def sse(event: str, data: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return f"event: {event}\ndata: {json.dumps(data)}\n\n".encode()
