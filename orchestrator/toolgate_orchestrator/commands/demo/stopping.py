"""The second act's operator: sees who is at work and stops an agent, by the commands that anybody has."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from toolgate_bus.server.settings import BusSettings

from toolgate_orchestrator.commands.host.toolgate_command import Command, run_toolgate

__all__ = ["Stopped", "stop_through_the_bus"]

LOOKS: Final = 5
"""Who is alive is told at the heartbeat: so often it is looked for."""
SHOWN: Final = 8
"""So many letters of a session's id name it."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """Who was seen, and how the order went."""

    looked: Command
    ordered: Command
    seconds: float
    """From the order to its end, the start of the command included."""


async def stop_through_the_bus(
    bus: BusSettings, session: str, looked_on: Callable[[Command], None]
) -> Stopped:
    """Look who is alive, until this session is among them, and stop it; raises TimeoutError.

    `looked_on` is told who was there before the order is given.
    """
    id_ = session[:SHOWN]
    for _ in range(LOOKS):
        looked = await run_toolgate(bus, "agents")
        if id_ in looked.output:
            break
    looked_on(looked)
    began = time.monotonic()
    ordered = await run_toolgate(bus, "agents", "stop", id_)
    return Stopped(looked, ordered, time.monotonic() - began)
