"""The bus clients of this process: one for each event loop, address and namespace, shared by all gates.

They are reference-counted: the last gate that leaves closes the bus.
"""

import asyncio
from collections.abc import Mapping
from contextvars import Context

from toolgate_bus.server.settings import redact_url

from toolgate_orchestrator.decision.link.client import GateClient

_shared: dict[tuple[int, str, str], GateClient] = {}


async def acquire(url: str, namespace: str, keys: Mapping[str, bytes] | None = None) -> GateClient:
    """Return the started client of this loop for an address and namespace. Each `acquire` needs a `release`.

    With `keys` it checks signatures from its first look at the roster.
    """
    # Late: a gate with in-process schedulers only needs no server library.
    from toolgate_bus.transport.redis.asking.orchestrator import RedisOrchestratorBus

    loop = asyncio.get_running_loop()
    key = (id(loop), url, namespace)
    client = _shared.get(key)
    if client is None or client.loop is not loop:  # a loop that ended badly may have left its id behind
        client = _shared[key] = GateClient(
            RedisOrchestratorBus(url, namespace), f"{redact_url(url)}, namespace {namespace}"
        )
        client.users = 1
        client.trust(keys or {})
        # In a context of its own: it serves all sessions, and its log lines belong to none of them.
        client.starting = loop.create_task(client.start(), context=Context())
        client.starting.add_done_callback(_retrieve_exception)
    else:
        client.users += 1
    try:
        if client.starting is not None:
            await asyncio.shield(client.starting)
    except BaseException:
        await release(client)
        raise
    return client


_leaving: set[asyncio.Task[None]] = set()


def _retrieve_exception(starting: asyncio.Future[None]) -> None:
    if not starting.cancelled():
        starting.exception()  # tasks that still wait receive it; if none waits, it is no error


async def release(client: GateClient) -> None:
    """Give a client back. The last user closes it."""
    client.users -= 1
    if client.users == 0:
        for key, other in list(_shared.items()):
            if other is client:
                del _shared[key]
        # In a task of its own: if the caller is cancelled meanwhile, nothing is left open.
        leaving = client.loop.create_task(_close(client), context=Context())
        _leaving.add(leaving)
        leaving.add_done_callback(_leaving.discard)
        await asyncio.shield(leaving)


async def _close(client: GateClient) -> None:
    await client.labels.aclose()
    await client.bus.aclose()
    client.close()
