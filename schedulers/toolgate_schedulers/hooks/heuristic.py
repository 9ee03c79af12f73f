"""Run the scheduler `heuristic` in an agent's process, as the Amplifier hook `hooks-scheduler-heuristic`.

Its config is the scheduler's own. Without one it only denies unavailable tools and agents. `round-robin`
counts within the session.
"""

from collections.abc import Mapping
from typing import Any, Final

from toolgate_bus.config.check import check

from toolgate_schedulers.hooks.module import SELECTING, Cleanup, answer_of, question_in, register
from toolgate_schedulers.shipped.heuristic import Heuristic, HeuristicConfig

__amplifier_module_type__ = "hook"

NAME: Final = "hooks-scheduler-heuristic"
config_model = HeuristicConfig


async def mount(coordinator: Any, config: Mapping[str, Any] | None = None) -> Cleanup:
    """Mount the hook into a session (entry point `amplifier.modules`); raise ConfigError, which names each
    wrong field."""
    scheduler = Heuristic(check(HeuristicConfig, dict(config or {}), NAME))

    async def decide_call(_event: str, data: dict[str, Any]) -> Any:
        call = question_in(data)
        return (
            None if call is None else answer_of(await scheduler.decide(call), call, data, scheduler.priority)
        )

    take_off = register(coordinator, NAME, [(SELECTING, decide_call, 0)])

    async def cleanup() -> None:
        take_off()

    return cleanup
