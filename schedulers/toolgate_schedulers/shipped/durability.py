"""`durability` in a scheduler's configuration: writes that count only when so many replicas have them.

It says what is asked for, and tells at the start whether the server can do it; waiting is the store's.
"""

from typing import Annotated, Final

from pydantic import Field
from toolgate_bus.budgets.ledger import Ledger
from toolgate_bus.config.check import StrictModel
from toolgate_bus.errors import TooFewReplicas
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Durability, Store

MAX_REPLICAS: Final = 16
MIN_TIMEOUT_MS: Final = 5
MAX_TIMEOUT_MS: Final = 2000
"""Less than any patience that agents have as a rule, and than a command may take."""
DURABILITY: Final = "durability"
"""The rule that a denial names for want of replicas."""
_log = get_logger("toolgate.durability")


class DurabilityConfig(StrictModel):
    """How many replicas must have a write before it counts."""

    replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS, strict=True)]
    """All that there are, where a failover is to forget nothing: any of them may be promoted."""
    timeout_ms: Annotated[int, Field(ge=MIN_TIMEOUT_MS, le=MAX_TIMEOUT_MS, strict=True)] = 100
    """How long they may take; less than agents wait for verdicts. Too few by then: the call is denied."""

    @property
    def value(self) -> Durability:
        """What the store is told."""
        return Durability(self.replicas, self.timeout_ms)


def count_replicas(config: DurabilityConfig | None) -> int:
    """How many it asks for, as the roster is told."""
    return config.replicas if config is not None else 0


async def tell_replicas(scheduler: str, shared: Ledger | Store) -> None:
    """Tell at the start whether enough replicas follow; raises Refusal where nobody may wait for them."""
    try:
        await shared.check_replicas()
    except TooFewReplicas as error:
        _log.warning(
            "durability: calls are denied until enough replicas follow", scheduler=scheduler, error=str(error)
        )
