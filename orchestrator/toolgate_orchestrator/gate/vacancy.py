"""Why calls would run unasked on a bus, in words: nobody is there, and nothing denies them meanwhile."""

from typing import Final

from toolgate_orchestrator.gate.client import GateClient
from toolgate_orchestrator.gate.config import ToolgateConfig

NO_BUS: Final = (
    "no bus is named (`redis` in the `toolgate:` section, or TOOLGATE_REDIS_URL), and this user runs none"
)


async def explain_vacancy(config: ToolgateConfig, client: GateClient | None) -> str | None:
    """Why a call would run unasked now; None where somebody is asked, or it would be denied.

    Waits for a server that is away, as long as a decision would.
    """
    usable = client is not None and await client.reachable(config.patience_ms / 1000)
    if client is None or not usable:
        if config.denies_without_bus:
            return None
        return NO_BUS if client is None else f"the bus ({client.where}) is away, and calls run without it"
    ruling = [
        one for one in client.announced.values() if not (one.gone or one.shadow or one.name in config.shadow)
    ]
    if ruling or config.required:
        return None
    return f"nobody rules on this bus ({client.where}), and nobody is required"
