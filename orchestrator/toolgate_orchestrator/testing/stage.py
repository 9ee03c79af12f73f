"""Give checks their tools: scenes for one harness in one world, and errors for broken promises."""

import asyncio
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.testing.harness import Harness, Scene
from toolgate_orchestrator.testing.script import Actor
from toolgate_orchestrator.testing.toolbox import Toolbox
from toolgate_orchestrator.testing.voice import Voice
from toolgate_orchestrator.testing.world import World

PATIENT_S: Final = 15.0
"""Longest time in seconds that a check waits for facts; a shared machine may be slow."""


class PromiseBreak(AssertionError):  # noqa: N818 - it is named after a promise
    """An adapter breaks a promise of Toolgate; the message says what was seen."""


def expect(seen: object, wanted: object, what: str) -> None:
    """Raise PromiseBreak unless both are equal."""
    if seen != wanted:
        raise PromiseBreak(f"{what}: expected {wanted!r}, got {seen!r}")


def expect_in(part: str, whole: str, what: str) -> None:
    """Raise PromiseBreak unless the text holds the part."""
    if part not in whole:
        raise PromiseBreak(f"{what}: expected {part!r} in {whole!r}")


class Stage:
    """Stage for one harness in one world."""

    def __init__(self, harness: Harness, world: World) -> None:
        self.harness, self.world = harness, world

    @property
    def swap(self) -> tuple[str, tuple[str, str], str]:
        """Search for which another tool runs: its query, the call that runs, and a part of the model's
        result.

        If the framework cannot run another tool, it is a search that nothing changes.
        """
        if "tool" in self.harness.cannot:
            return "coffee", ("search", "coffee"), "search found coffee"
        return "a paper", ("cheap_search", "a paper"), "cheap_search found a paper"

    @contextmanager
    def guard(self, **fields: Any) -> Iterator[Guard]:
        """Open a guard on this world, and close it at the end."""
        with self.world.guard(**fields) as guard:
            yield guard

    def scene(self, lead: Actor, guard: Guard | None) -> Scene:
        """Make a scene with a session and tools of its own; without a guard it has no adapter."""
        voices = {one.name: Voice(one) for one in _all(lead)}
        return Scene(lead, Toolbox(), guard, f"kit-{secrets.token_hex(6)}", voices)

    async def facts(
        self, scene: Scene, *events: str, call: str = "", at_least: int = 1
    ) -> list[dict[str, Any]]:
        """Return the facts of this scene, or of one call; wait until `at_least` of them are written."""
        until = time.monotonic() + PATIENT_S
        while True:
            if scene.guard is not None:
                await scene.guard.flush(PATIENT_S)
            found = [one for one in await self.world.facts(scene.session) if one["event"] in events]
            found = [one for one in found if one.get("tool_call_id") == call] if call else found
            if len(found) >= at_least or time.monotonic() > until:
                return found
            await asyncio.sleep(0.05)


def _all(actor: Actor) -> Iterator[Actor]:
    yield actor
    for one in (*actor.helpers, *actor.successors):
        yield from _all(one)
