"""A session, its loop and one turn of it: what a test needs to make a turn end in a certain way.

Nothing here sleeps: a turn is held at a place that tells when it is reached.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from amplifier_core import HookResult

__all__ = ["BOUND_S", "Faulty", "Held", "World"]

BOUND_S = 30.0


class Held(asyncio.Event):
    """A place where something waits until it is let go (or is cancelled); `reached` tells that it does."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()

    async def wait(self) -> Any:
        self.reached.set()
        return await super().wait()


class Faulty:
    """The session's context, in which the test can make a step fail."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.breaks: Callable[[str, Any], bool] = lambda step, message: False
        self.waits: dict[int, Held] = {}
        """By number of the message: where storing it is held, after it was stored."""
        self._stored = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def add_message(self, message: dict[str, Any]) -> None:
        self._perhaps_fail("add", message)
        await self._context.add_message(message)
        self._stored += 1
        if held := self.waits.get(self._stored):
            await held.wait()

    async def get_messages_for_request(self, *args: Any, **kwargs: Any) -> Any:
        self._perhaps_fail("get", None)
        return await self._context.get_messages_for_request(*args, **kwargs)

    def _perhaps_fail(self, step: str, message: Any) -> None:
        if self.breaks(step, message):
            raise OSError("disk full")

    def fail_at(self, step: str, number: int, role: str = "") -> None:
        """Fail at the nth such step, and only there."""
        seen = 0

        def breaks(taken: str, message: Any) -> bool:
            nonlocal seen
            hit = taken == step and (not role or message["role"] == role)
            seen += hit
            return hit and seen == number

        self.breaks = breaks


class World:
    """One session under one loop, and the turn that is to end."""

    def __init__(self, a: Any, loop: str, llm: Any, says: Any, wants: Any) -> None:
        self.a, self.loop, self.llm, self.says, self.wants = a, loop, llm, says, wants
        self.context = Faulty(a.session.coordinator.get("context"))
        self.turn: asyncio.Future[str] = asyncio.Future()
        self.lifted: list[Callable[[], None]] = []
        """What takes the hooks of the way away again."""
        self.broken: asyncio.Event | None = None

    def llm_answers(self, *answers: Sequence[Any]) -> None:
        self.llm.answers = [list(answer) for answer in answers]

    def calls(self, *names: str) -> list[Any]:
        return [self.wants(f"c{number}", name) for number, name in enumerate(names, 1)]

    def begin(self, **options: Any) -> None:
        """Start the turn in a task of the test's: the kernel runs one that it does not cancel."""
        self.turn = asyncio.ensure_future(self.started("execute", **options))

    def started(self, method: str, **options: Any) -> Any:
        get, hooks = self.a.session.coordinator.get, self.a.hooks
        loop = getattr(get("orchestrator"), method)
        coordinator = self.a.session.coordinator
        parts = (self.context, get("providers"), get("tools"), hooks)
        return loop("hello", *parts, coordinator=coordinator, **options)

    async def until(self, held: Held) -> None:
        await asyncio.wait_for(held.reached.wait(), BOUND_S)

    def hold_tool(self, name: str = "a") -> Held:
        held = Held()

        async def answer(_: dict[str, Any]) -> str:
            await held.wait()
            return "done"

        self.a.tools[name].answer = answer
        return held

    def hold_hook(self, event: str) -> Held:
        held = Held()

        async def hook(_: str, data: dict[str, Any]) -> HookResult:
            await held.wait()
            return HookResult()

        self.lifted.append(self.a.hooks.register(event, hook, name="held"))
        return held

    def break_hook(self, event: str) -> None:
        """A hook that raises whenever it is called; it must be called at least once."""
        self.broken = reached = asyncio.Event()

        async def hook(_: str, data: dict[str, Any]) -> HookResult:
            reached.set()
            raise ValueError("the hook is broken")

        self.lifted.append(self.a.hooks.register(event, hook, name="broken"))

    def limit(self, iterations: int) -> None:
        loop = self.a.session.coordinator.get("orchestrator")
        loop.settings = loop.settings.model_copy(update={"max_iterations": iterations})

    def heal(self) -> None:
        """Take away what the way put there, as an app does before the next turn."""
        for lift in self.lifted:
            lift()
        for tool in self.a.tools.values():
            tool.answer = lambda arguments: "done"
        self.limit(-1)
        self.token().reset()

    def token(self) -> Any:
        return self.a.session.coordinator.cancellation
