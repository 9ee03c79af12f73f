"""Common part of all loops: config, gate and running turns. A loop adds its way of running calls.

A loop made by `mount` shares one gate among its turns; one made by hand opens a gate for each turn. The
kernel does not cancel a turn whose caller was cancelled, so closing a loop ends its turns.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any, ClassVar, Final, Generic, TypeVar

import anyio
from amplifier_core import HookResult
from toolgate_bus.config.check import check
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.agents import LiveAgent
from toolgate_bus.protocol.fact_events import TOOL_SELECTED

from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.live_session import LiveSession
from toolgate_orchestrator.decision.misplaced import find_misplaced
from toolgate_orchestrator.turn.calls.repeated_failures import RepeatedFailures
from toolgate_orchestrator.turn.calls.selection import TOOL_SELECTING
from toolgate_orchestrator.turn.calls.tool_call import current_call
from toolgate_orchestrator.turn.child_names import remember_child
from toolgate_orchestrator.turn.goals.pursuit import GOAL_PROGRESS, find_pursuit
from toolgate_orchestrator.turn.hooks.completion import Completion
from toolgate_orchestrator.turn.hooks.instructions import (
    InstructedContext,
    bind_instructions,
    has_instructions,
    take_input,
)
from toolgate_orchestrator.turn.hooks.steering import STEER, STEERING_INJECTED, SteeringQueue
from toolgate_orchestrator.turn.leg_budget import BUDGET_WARNING
from toolgate_orchestrator.turn.llm.pace import RATE_LIMIT_DELAY
from toolgate_orchestrator.turn.llm.provider_pin import PROVIDER_PIN, ProviderPin
from toolgate_orchestrator.turn.llm.provider_stream import OnText
from toolgate_orchestrator.turn.llm.request import choose_provider
from toolgate_orchestrator.turn.llm.request_budget import OVERFLOW_RECOVERY, PROVIDER_BUDGET
from toolgate_orchestrator.turn.loop_config import LoopConfig, split_unknown
from toolgate_orchestrator.turn.session_tree import SessionNode, agents_of, enter_lineage
from toolgate_orchestrator.turn.turn import Turn
from toolgate_orchestrator.turn.values.messages import ToolCall
from toolgate_orchestrator.turn.values.results import Results

logger = logging.getLogger(__name__)

Config = TypeVar("Config", bound=LoopConfig)

DELEGATE_EVENTS: Final = (
    "delegate:agent_spawned",
    "delegate:agent_resumed",
    "delegate:agent_completed",
    "delegate:agent_cancelled",
    "delegate:error",
)
"""Events of tools that delegate (Amplifier's tool-delegate)."""
_TOLD: Final = ("sub_session_id", "tool_call_id", "decision_id", "status")
"""Fields of those events that go into facts. Error texts are left out: they may repeat the agent's task."""
ORCHESTRATOR_EVENTS: Final = (
    RATE_LIMIT_DELAY,
    STEERING_INJECTED,
    BUDGET_WARNING,
    GOAL_PROGRESS,
    PROVIDER_BUDGET,
    OVERFLOW_RECOVERY,
)
"""Events that every loop may emit and the kernel has no name for."""
_ENDING_S = 5.0

_AHEAD = 64
"""Maximum number of pieces that wait for a slow reader; then the turn waits with it."""


class LoopBase(Generic[Config]):
    """An orchestrator; a subclass says how the calls of one response are run."""

    name: ClassVar[str]
    config_model: ClassVar[type[LoopConfig]] = LoopConfig
    raises_provider_errors: bool = True
    streams: bool = False
    posts_errors: bool = False
    """True if tool:post follows tool:error after a tool raised."""
    error_status: ClassVar[str] = "incomplete"
    """Status in orchestrator:complete of a turn that ended with an error."""
    own_events: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: Mapping[str, Any] | Config | None = None, gate: Gate | None = None) -> None:
        read: Any = config  # its type is the loop's own model
        if not isinstance(config, self.config_model):
            read = check(self.config_model, config or {}, self.name)
        self.settings: Config = read
        self.gate = gate
        """Gate that `mount` gave this loop; None for a loop made by hand."""
        self.presence: LiveSession | None = None
        """The session as operators see it; None for a loop made by hand."""
        self.steering = SteeringQueue()
        self.pin: ProviderPin | None = None
        """Provider pin of the session; None for a loop made by hand."""
        self.completion = Completion(by_host=read.prompt_complete == "host")
        self.failures = RepeatedFailures()
        self.has_started = False
        """True if it was decided whether this session may begin."""
        self.refused_start: str | None = None
        """Reason why no turn of this session may run."""
        self._tells_gathering = True
        self._turns: set[asyncio.Task[Any] | None] = set()

    def tell_gathering(self) -> None:
        """Say once that answers are not shown piece by piece, as they are ruled on first."""
        if self.streams and self._tells_gathering:
            self._tells_gathering = False
            logger.warning(
                "%s: schedulers rule on answers (llm:request) or on what the user gets (turn:output), so "
                "each answer is shown when it is whole, not piece by piece",
                self.name,
            )

    def steer(self, message: str) -> None:
        """Send this text to the LLM with its next request (capability `session.steer`); see
        `SteeringQueue.steer`."""
        self.steering.steer(message)

    async def execute(
        self,
        prompt: str,
        context: Any,
        providers: dict[str, Any],
        tools: dict[str, Any],
        hooks: Any,
        **kwargs: Any,
    ) -> str:
        """Run one turn (the kernel's Orchestrator protocol).

        Keywords: `coordinator`, as the kernel passes it, and `request_options`, whose `provider` names the
        mounted provider to use.
        """
        task = asyncio.current_task()
        opened: list[Gate] = []

        async def open_gate() -> Gate | None:
            if self.gate is not None or self.settings.toolgate is None:
                return self.gate
            if not opened:
                opened.append(await Gate.start(self.settings.toolgate))
            return opened[0]

        self._turns.add(task)
        self.steering.clear()
        coordinator, settings, ending = kwargs.get("coordinator"), self.settings, AsyncExitStack()
        pursuit = find_pursuit(coordinator, providers, settings, self.name, settings.default_provider)
        following: str | None = prompt
        request: str | None = None
        answer, on_text = "", kwargs.get("on_text")
        try:
            bound = await self._bind(coordinator, context, providers, kwargs.get("request_options") or {})
            if bound is not None:
                context = bound
                await ending.enter_async_context(bound.running())
            while following is not None:
                turn = Turn(
                    self,
                    following,
                    context,
                    providers,
                    tools,
                    hooks,
                    open_gate,
                    coordinator=coordinator,
                    request_options=kwargs.get("request_options"),
                    on_text=on_text,
                )
                turn.pursuit, turn.user_request = pursuit, request
                answer = await turn.execute()
                following = None
                request = turn.asked
                if pursuit is not None:
                    following = await pursuit.conclude(turn.hooks, is_cancelled=turn.cancelled)
                if following is not None and on_text is not None:
                    await on_text("\n")
            return answer
        finally:
            self._turns.discard(task)
            self.steering.clear()
            await ending.aclose()  # in this task: scopes of a context may hold to theirs
            for gate in opened:
                await gate.aclose()

    async def _bind(
        self, coordinator: Any, context: Any, providers: Mapping[str, Any], options: Mapping[str, Any]
    ) -> InstructedContext | None:
        """Return the context of an execution whose requests hold instructions; None if they do not."""
        given = take_input(coordinator)
        if not has_instructions(coordinator):
            return None
        pinned = self.pin.current() if self.pin is not None else None
        default = self.settings.default_provider
        _, provider = choose_provider(providers, default, options.get("provider"), pinned)
        return await bind_instructions(coordinator, context, provider, given, self.name)

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[str, None]:
        """Run a turn as `execute` does, and yield the answer's text piece by piece as it is produced.

        It also yields the LLM's text besides tool calls. A turn that ends in an error raises it after the
        last piece. Closing the generator cancels the turn.
        """
        turn = pieces_of(lambda on_text: self.execute(*args, **kwargs, on_text=on_text))
        async with aclosing(turn) as pieces:
            async for piece in pieces:
                yield piece

    async def step(self, turn: Turn) -> str | None:
        """Make one request and run its calls; return the answer that ends the turn, or None to continue."""
        return await turn.request(self.run_calls)

    async def run_calls(self, turn: Turn, calls: Sequence[ToolCall], results: Results) -> None:
        """Run the calls of one response, and give each its result."""
        raise NotImplementedError

    async def wrap_up(self, turn: Turn) -> str:
        """Make the last request of a turn that reached max_iterations; return its answer."""
        return await turn.conclude()

    async def aclose(self) -> None:
        """End the running turns, then the gate."""
        running = {task for task in self._turns if task is not None} - {asyncio.current_task()}
        for task in running:
            task.cancel("the session was closed")
        if running:
            await asyncio.wait(running, timeout=_ENDING_S)
        if self.gate is not None:
            await self.gate.aclose()


def mount_of(
    loop_class: type[LoopBase[Any]],
) -> Callable[..., Coroutine[Any, Any, Callable[[], Awaitable[None]]]]:
    """Return the `mount` of a loop's module (entry point `amplifier.modules`)."""

    async def mount(
        coordinator: Any, config: Mapping[str, Any] | None = None
    ) -> Callable[[], Awaitable[None]]:
        """Mount the loop into a session; return the cleanup that ends its turns and its gate."""
        for place, words in find_misplaced(coordinator.config or {}):
            if place[-1] == "required" and place[0] != "agents":  # those of a sub-agent concern its session
                raise ConfigError(f"{'.'.join(map(str, place))} in the plan: {words}")
        settings = check(
            loop_class.config_model, _known_keys(loop_class, coordinator, config), loop_class.name
        )
        standing, leave = enter_lineage(coordinator, settings.toolgate)
        settings = settings.model_copy(update={"toolgate": standing.config})
        try:
            gate = None if settings.toolgate is None else await Gate.start(settings.toolgate)
        except BaseException:
            leave()
            raise
        loop = loop_class(settings, gate)
        loop.presence = _presence(coordinator, standing)
        vanish = gate.enter(loop.presence) if gate is not None else None

        async def cleanup() -> None:
            if vanish is not None:
                vanish()
            await loop.aclose()
            leave()

        try:
            await coordinator.mount("orchestrator", loop)
        except BaseException:
            await cleanup()
            raise
        loop.pin = ProviderPin(coordinator, settings.default_provider)
        coordinator.register_capability(STEER, loop.steer)
        coordinator.register_capability(PROVIDER_PIN, loop.pin)
        loop.completion.listen(coordinator.hooks)
        hear_of_delegation = _build_delegation_hook(loop, standing)
        for event in DELEGATE_EVENTS:
            coordinator.hooks.register(event, hear_of_delegation, name="toolgate-facts")
        # Events that the kernel does not know; a loop that asks about calls emits two more.
        asking = (TOOL_SELECTING, TOOL_SELECTED) if settings.toolgate is not None else ()
        contribute = coordinator.register_contributor
        contribute("observability.events", "toolgate-turn", lambda: list(ORCHESTRATOR_EVENTS))
        if own := loop.own_events or asking:
            contribute("observability.events", loop.name, lambda: list(own))
        return cleanup

    return mount


def _known_keys(
    loop_class: type[LoopBase[Any]], coordinator: Any, config: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return a loop's config as given; for a sub-agent, only the keys that the loop knows.

    A parent hands on keys of its own loop (`orchestrator_config`), which may be another loop.
    """
    given = dict(config or {})
    if not getattr(coordinator, "parent_id", None):
        return given
    known, unknown = split_unknown(loop_class.config_model, given)
    if unknown:
        logger.warning("%s of a sub-agent: ignored unknown keys: %s", loop_class.name, ", ".join(unknown))
    return known


def _presence(coordinator: Any, standing: SessionNode) -> LiveSession:
    place = standing.place
    who = LiveAgent(place.session, place.root, place.parent, standing.agents[-1], place.lineage)

    def stop(now: bool) -> None:
        token = coordinator.cancellation
        if now:
            token.request_immediate()
        else:
            token.request_graceful()

    return LiveSession(who, stop, agents_of(getattr(coordinator, "config", None)))


def _build_delegation_hook(
    loop: LoopBase[Any], standing: SessionNode
) -> Callable[[str, dict[str, Any]], Coroutine[Any, Any, HookResult]]:
    """Return a hook that records a tool's delegation events as facts, whoever wrote the tool."""

    place = standing.place
    who = {"session": place.session, "root_session": place.root, "agent": standing.agents[-1]}

    async def note(event: str, data: dict[str, Any]) -> HookResult:
        if event == DELEGATE_EVENTS[0]:
            remember_child(place.session, data)
        if loop.gate is not None:
            told = {key: data[key] for key in _TOLD if data.get(key) is not None}
            if (call := current_call()) is not None and call.decision:
                told.setdefault("decision_id", call.decision)
            loop.gate.note(event, {**told, **who, "agent_target": data.get("agent")})
        return HookResult()

    return note


async def pieces_of(run: Callable[[OnText], Awaitable[str]]) -> AsyncGenerator[str, None]:
    """Yield each piece of text as it is produced, then the answer if it was not among the pieces.

    `run` runs the turn and returns its answer. It is cancelled if the generator is closed.
    """
    tell, told = anyio.create_memory_object_stream[str](_AHEAD)

    async def turn() -> str:
        async with tell:
            return await run(tell.send)

    task = asyncio.ensure_future(turn())
    said = ""
    try:
        async with told:
            async for piece in told:
                said += piece
                yield piece
        answer = await task
        # Compare without line breaks: an answer has some between its text blocks.
        if not said.replace("\n", "").endswith(answer.replace("\n", "")):
            yield answer
    finally:
        if not task.done():
            task.cancel("nobody reads the answer any more")
            await asyncio.wait({task})
