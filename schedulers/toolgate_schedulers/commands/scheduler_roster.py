"""Who is alive, and what shadows disagreed on lately, read from the bus for `toolgate scheduler list`."""

from typing import TYPE_CHECKING

from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.redis.connection import RedisCommands
from toolgate_bus.transport.redis.roster import Roster, RosterView

from toolgate_schedulers.worker.bus_address import bus_url, no_bus

if TYPE_CHECKING:
    from toolgate_bus.facts.shadow_report import ShadowTotals

__all__ = ["living"]


async def living(settings: BusSettings) -> "tuple[RosterView, dict[str, ShadowTotals], float]":
    """Who is alive, what living shadows disagreed on lately, and how many seconds back that is known."""
    commands = RedisCommands(bus_url(settings), "toolgate-list", connections=1)
    try:
        view = await Roster(commands, settings.namespace).read(ages=True)
        if not any(member.shadow for member in view.members):
            return view, {}, 0.0
        return view, *await _disagreed(commands, settings.namespace)
    except ConfigError:
        raise
    except TransportError as error:
        raise no_bus(settings, error) from None
    finally:
        await commands.aclose()


async def _disagreed(commands: RedisCommands, namespace: str) -> "tuple[dict[str, ShadowTotals], float]":
    # Here: what the record holds takes longer to load than all else of this command.
    from toolgate_bus.facts.join import gathered
    from toolgate_bus.facts.reader import FactsReader
    from toolgate_bus.facts.shadow_report import shadow_totals

    facts, reach_s = await FactsReader(commands, namespace).newest()
    return shadow_totals(gathered(facts)), reach_s
