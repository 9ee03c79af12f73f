"""One recorded run through a real loop, in an Amplifier session of its own.

The session is made of entry points, as any other: the loop under test with its `toolgate` config,
`context-simple`, `provider-replay` and `tool-replay`. What comes back is what happened to each call,
and whatever should not have happened.
"""

import hashlib
import json
import os
import secrets
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

from amplifier_core import AmplifierSession
from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.commands.host.rulings import Rulings
from toolgate_orchestrator.commands.replay.calls import ReplayedCall, call_faults, replayed_calls
from toolgate_orchestrator.commands.replay.playback import Playback
from toolgate_orchestrator.commands.replay.playback_mount import CAPABILITY
from toolgate_orchestrator.commands.replay.provider_replay import NAME, tool_results
from toolgate_orchestrator.commands.replay.recording import Recording, Run

__all__ = ["ReplayOptions", "ReplayedRun", "check_loop", "replay_run"]


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What all runs of a replay share."""

    loop: str = "loop-events"
    toolgate: dict[str, Any] = field(default_factory=dict)
    """The loop's `toolgate:` config."""
    also: tuple[str, ...] = ()
    """Tools to mount beside those of the file."""
    tag: str | None = None
    """End of the session ids, so that two replays can have the same; None makes one up."""


@dataclass(frozen=True, slots=True)
class ReplayedRun:
    """What came of one run."""

    run: Run
    calls: tuple[ReplayedCall, ...]
    faults: tuple[str, ...]
    settled: bool
    """Whether every verdict that was missed came in the end."""
    context: str
    """SHA-256 of the conversation at the end, as canonical JSON: equal for loops that do the same."""


def check_loop(name: str) -> None:
    """Raise ConfigError, with what there is instead, unless this loop is installed."""
    installed = {point.name for point in entry_points(group="amplifier.modules")}
    if name not in installed and "AMPLIFIER_MODULES" not in os.environ:
        loops = sorted(one for one in installed if "loop" in one or "orchestrat" in one)
        raise ConfigError(f"--loop {name}: no such loop is installed; there are: {', '.join(loops)}")


async def replay_run(
    recording: Recording, run: Run, options: ReplayOptions, late_s: float = 0.5
) -> ReplayedRun:
    """Play one run; raises ConfigError where its session cannot be made.

    Verdicts that were missed are waited for, at the end, for up to `late_s` seconds.
    """
    playback = Playback(recording, run)
    tag = options.tag or secrets.token_hex(4)
    session = AmplifierSession(_plan(options), session_id=f"replay-{run.number}-{tag}")
    session.coordinator.register_capability(CAPABILITY, playback)
    try:
        await _initialize(session, options.loop)
        rulings = Rulings.of(session)
        faults = await _play(session, playback)
        settled = await rulings.settle(late_s)
        context = _digest(await session.coordinator.get("context").get_messages())
    finally:
        await session.cleanup()
    calls = replayed_calls(playback, rulings)
    faults += call_faults(playback, calls)
    return ReplayedRun(run, calls, tuple(faults), settled, context)


def _digest(messages: list[dict[str, Any]]) -> str:
    text = json.dumps(messages, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _plan(options: ReplayOptions) -> dict[str, Any]:
    loop = {"module": options.loop, "config": {"max_iterations": -1, "toolgate": options.toolgate}}
    return {
        "session": {"orchestrator": loop, "context": "context-simple"},
        "providers": [{"module": "provider-replay"}],
        "tools": [{"module": "tool-replay", "config": {"also": list(options.also)}}],
        "hooks": [],
    }


async def _initialize(session: Any, loop: str) -> None:
    try:
        await session.initialize()
    except RuntimeError as error:
        raise ConfigError(f"{loop}: the session cannot be made: {error}") from error
    # The kernel goes on without a provider or tools that fail to mount; a replay cannot.
    mounted = session.coordinator.get("providers") or {}
    if NAME not in mounted or session.coordinator.get("tools") is None:
        raise ConfigError("provider-replay and tool-replay did not mount: is toolgate installed properly?")


async def _play(session: Any, playback: Playback) -> list[str]:
    """Every turn in order; gives back what the loop did that the record cannot explain."""
    context = session.coordinator.get("context")
    faults: list[str] = []
    for index, turn in enumerate(playback.run.turns):
        for spoken in turn.before:
            await context.add_message({"role": spoken.role, "content": spoken.text})
        playback.begin_turn(index)
        try:
            await session.execute(turn.prompt or "")
        except Exception as error:  # noqa: BLE001 - the loop under test may raise anything; it is a finding
            faults.append(f"turn {index + 1} raised {type(error).__name__}: {error}")
        # The last results of a turn whose LLM was not asked again are only in the context.
        playback.hear(tool_results(await context.get_messages()))
        if unsaid := playback.unsaid(index):
            faults.append(f"turn {index + 1} ended with {unsaid} recorded messages unsaid")
    return faults
