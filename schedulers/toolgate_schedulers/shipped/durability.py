"""Configure `durability`: a write counts only once enough replicas of the server have it.

A scheduler logs at its start whether the server can do this. The store itself waits for the replicas.
"""

from typing import Annotated, Final

from pydantic import Field
from toolgate_bus.config.check import StrictModel
from toolgate_bus.errors import TooFewReplicas
from toolgate_bus.ledger.money.ledger import Ledger
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Durability, Store

MAX_REPLICAS: Final = 16
MIN_TIMEOUT_MS: Final = 5
MAX_TIMEOUT_MS: Final = 2000
"""Largest `timeout_ms`: below the patience that agents usually have, and below the time limit of a
command."""
DURABILITY: Final = "durability"
"""Rule that a denial names if too few replicas have the write."""
_log = get_logger("toolgate.durability")


class DurabilityConfig(StrictModel):
    """Number of replicas that must have a write before it counts."""

    replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS, strict=True)]
    """Number of replicas. Give all of them if a failover must lose nothing: any one may be promoted."""
    timeout_ms: Annotated[int, Field(ge=MIN_TIMEOUT_MS, le=MAX_TIMEOUT_MS, strict=True)] = 100
    """Milliseconds the replicas have; keep this below the agents' patience. If too few have the write by
    then, the call is denied."""

    @property
    def value(self) -> Durability:
        """Durability that the store is asked for."""
        return Durability(self.replicas, self.timeout_ms)


def count_replicas(config: DurabilityConfig | None) -> int:
    """Return the number of replicas that the roster shows; 0 without `durability`."""
    return config.replicas if config is not None else 0


async def tell_replicas(scheduler: str, shared: Ledger | Store) -> None:
    """Log a warning if too few replicas follow; raise Refusal if the server forbids waiting for them."""
    try:
        await shared.check_replicas()
    except TooFewReplicas as error:
        _log.warning(
            "durability: calls are denied until enough replicas follow", scheduler=scheduler, error=str(error)
        )
