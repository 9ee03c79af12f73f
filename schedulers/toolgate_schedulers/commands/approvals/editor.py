"""Connect `toolgate approvals` to the server, the facts and the editor."""

import os
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import anyio
from toolgate_bus.errors import ConfigError, ToolgateError
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.state.shared import connect_shared_state
from toolgate_bus.transport.redis.client.connection import RedisCommands

from toolgate_schedulers.commands.approvals.answer import DecisionLookup, Fact
from toolgate_schedulers.shipped.approval.queue import ApprovalQueue

SEARCH_S: Final = 3.0


class DeskSession(NamedTuple):
    """Desk of one namespace, for the time that a command runs."""

    desk: ApprovalQueue
    commands: RedisCommands
    namespace: str


@asynccontextmanager
async def open_approvals(settings: BusSettings) -> AsyncIterator[DeskSession]:
    """Open the desk on a server."""
    url = str(settings.redis)
    commands = RedisCommands(url, "toolgate-approvals")
    shared = connect_shared_state(url, commands, settings.namespace)
    try:
        alive = FactsReader(commands, settings.namespace).alive
        yield DeskSession(ApprovalQueue(shared.store, shared.notices, alive), commands, settings.namespace)
    finally:
        await shared.aclose()
        await commands.aclose()


async def decisions_from_now(opened: DeskSession) -> DecisionLookup:
    """Return a function that finds decisions told from now on."""
    reader = FactsReader(opened.commands, opened.namespace)
    now = f"{await reader.now_ms() - 1}-0"
    reader.resume(dict.fromkeys(await reader.writers(), now))
    found: dict[str, Fact] = {}

    async def find_decision(decision: str) -> Fact | None:
        if decision not in found:
            found.update({fact["id"]: fact for fact in await reader.next() if fact["event"] == "decision"})
        return found.get(decision)

    return find_decision


async def find_past_decision(opened: DeskSession, decision: str) -> Fact | None:
    """Return the decision with this id, if a search of `SEARCH_S` seconds finds it in the record."""
    reader = FactsReader(opened.commands, opened.namespace)
    with anyio.move_on_after(SEARCH_S):
        async for fact in reader.read_stored():
            if fact["event"] == "decision" and fact.get("id") == decision:
                return fact
    return None


async def in_editor(text: str) -> str:
    """Let the person edit a text; raise ConfigError if there is no terminal or editor."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("edit: give --arguments or --tool: there is no terminal to open $EDITOR on")
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory(prefix="toolgate-") as directory:
        file = Path(directory) / "call.json"
        file.write_text(text, encoding="utf-8")
        try:
            process = await anyio.open_process([*editor, str(file)], stdin=None, stdout=None, stderr=None)
        except OSError as error:
            raise ConfigError(f"EDITOR: {editor[0]} cannot be started: {error.strerror}") from None
        if await process.wait() != 0:
            raise ToolgateError(f"{editor[0]} ended with {process.returncode}: the call still waits")
        return file.read_text(encoding="utf-8")
