"""Run the scheduler `heuristic` in an agent's process, as the Amplifier hook `hooks-scheduler-heuristic`.

Its config is the scheduler's own. Without one it only denies unavailable tools and agents. `round-robin`
counts within the session, and `best` learns from the session's own calls.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from toolgate_bus.config.check import check

from toolgate_schedulers.hooks.module import SELECTING, Cleanup, Handler, answer_of, question_in, register
from toolgate_schedulers.shipped.heuristic import Heuristic, HeuristicConfig

__amplifier_module_type__ = "hook"

NAME: Final = "hooks-scheduler-heuristic"
config_model = HeuristicConfig
_LAST: Final = 2**31 - 1
"""Order of the hook after all others: from then on the tool runs."""


async def mount(coordinator: Any, config: Mapping[str, Any] | None = None) -> Cleanup:
    """Mount the hook into a session (entry point `amplifier.modules`); raise ConfigError, which names each
    wrong field."""
    scheduler = Heuristic(check(HeuristicConfig, dict(config or {}), NAME))

    async def decide_call(_event: str, data: dict[str, Any]) -> Any:
        call = question_in(data)
        return (
            None if call is None else answer_of(await scheduler.decide(call), call, data, scheduler.priority)
        )

    begun: dict[str, float] = {}

    async def begin_call(_event: str, data: dict[str, Any]) -> None:
        begun[_key(data)] = time.monotonic()

    async def end_call(event: str, data: dict[str, Any]) -> None:
        since = begun.pop(_key(data), None)
        if since is not None:
            tool = data.get("tool_name", data.get("tool"))
            scheduler.follow({"event": event, "tool": tool, "seconds": time.monotonic() - since})

    handlers: list[tuple[str, Handler, int]] = [(SELECTING, decide_call, 0)]
    if scheduler.outcomes is not None:
        handlers += [("tool:pre", begin_call, _LAST), ("tool:post", end_call, 0), ("tool:error", end_call, 0)]
    take_off = register(coordinator, NAME, handlers)

    async def cleanup() -> None:
        take_off()

    return cleanup


def _key(data: Mapping[str, Any]) -> str:
    """Return the key of a call: its id, or the tool if the loop tells no ids."""
    return str(data.get("tool_call_id") or data.get("tool_name", data.get("tool")))
