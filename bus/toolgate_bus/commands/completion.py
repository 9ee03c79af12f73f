"""Complete names in the shell (`toolgate --install-completion`): schedulers, outcomes, reasons.

A person waits at the keyboard. So a running server is asked for its live schedulers only briefly, and any
error means no names. Modules are imported only where they are needed.
"""

from collections.abc import Iterable
from typing import Any, Final

import typer

GROUP: Final = "toolgate.schedulers"
PATIENCE_S: Final = 0.5


def complete_installed(incomplete: str) -> list[str]:
    """Return the installed schedulers, which can be run by name."""
    from importlib.metadata import entry_points

    return _begin_with(incomplete, (point.name for point in entry_points(group=GROUP)))


def complete_scheduler(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the schedulers that are alive, and those that are installed."""
    return _begin_with(incomplete, [*_read_living(ctx.params), *complete_installed(incomplete)])


def complete_result(incomplete: str) -> list[str]:
    """Return what may become of the result of a call."""
    from toolgate_bus.commands.decisions.filters import RESULTS

    return _begin_with(incomplete, RESULTS)


def complete_outcome(incomplete: str) -> list[str]:
    """Return the possible outcomes of a decision."""
    from toolgate_bus.commands.decisions.filters import OUTCOMES

    return _begin_with(incomplete, OUTCOMES)


def complete_why(incomplete: str) -> list[str]:
    """Return the possible reasons for an outcome."""
    from toolgate_bus.commands.decisions.filters import WHYS

    return _begin_with(incomplete, WHYS)


def _begin_with(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})


def _read_living(given: dict[str, Any]) -> list[str]:
    import asyncio

    from toolgate_bus.commands.options import join_bus
    from toolgate_bus.server.settings import BusSettings
    from toolgate_bus.transport.redis.client.local_commands import open_commands
    from toolgate_bus.transport.redis.roster.roster import Roster

    async def read(settings: BusSettings) -> list[str]:
        async with (
            open_commands(str(settings.redis), "toolgate-complete", PATIENCE_S) as commands,
            asyncio.timeout(PATIENCE_S),
        ):
            return [member.name for member in (await Roster(commands, settings.namespace).read()).members]

    try:
        with join_bus(given.get("redis"), given.get("namespace") or "default", None) as settings:
            return asyncio.run(read(settings))
    except Exception:  # noqa: BLE001 - a shell waits for names, not for why there are none
        return []
