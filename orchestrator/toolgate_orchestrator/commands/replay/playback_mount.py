"""How the replay modules find the run they serve: from the session's host, or from their config.

`toolgate replay` puts a `Playback` into the session before it is initialised. In a mount plan of
one's own the modules take `{file: runs.jsonl, run: 3}` (counted from 1) and share what the first of
them made.
"""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from toolgate_bus.config.check import StrictModel, check
from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.commands.replay import recording_file
from toolgate_orchestrator.commands.replay.playback import Playback

__all__ = ["CAPABILITY", "ReplayConfig", "playback_of"]

CAPABILITY = "toolgate.playback"


class ReplayConfig(StrictModel):
    """Config of `provider-replay` and `tool-replay`; needed only where no host provides the run."""

    file: Path | None = None
    run: Annotated[int, Field(ge=1)] = 1
    also: tuple[str, ...] = ()
    """Further tools to mount (tool-replay): targets of a router that do not occur in the file."""


def parse_config(module: str, config: dict[str, Any] | None) -> ReplayConfig:
    """Read a module's config; raises ConfigError that names each wrong field."""
    return check(ReplayConfig, config or {}, module)


def playback_of(coordinator: Any, config: ReplayConfig) -> Playback:
    """The run this session plays; raises ConfigError where neither host nor config names one."""
    playback = coordinator.get_capability(CAPABILITY)
    if isinstance(playback, Playback):
        return playback
    if config.file is None:
        raise ConfigError("file: name the JSON Lines file of recorded runs to play")
    recording = recording_file.load(config.file)
    if config.run > len(recording.runs):
        raise ConfigError(f"run: {config.file} holds {len(recording.runs)} runs, there is no {config.run}")
    playback = Playback(recording, recording.runs[config.run - 1])
    coordinator.register_capability(CAPABILITY, playback)
    return playback
