"""What else can be measured beside Toolgate, where it is installed."""

import importlib.util
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from toolgate_bus.errors import ConfigError
from toolgate_bus.installation import how_to_install
from toolgate_bus.server.embedded import Server

from toolgate_orchestrator.commands.bench.measure import Contender
from toolgate_orchestrator.commands.bench.peer_nats import find_nats_server, open_nats
from toolgate_orchestrator.commands.bench.peer_webhook import open_webhook

Open = Callable[[Server, Sequence[str]], AbstractAsyncContextManager[Contender]]
PEERS: Final[dict[str, Open]] = {"nats": open_nats, "webhook": open_webhook}


def find_missing(peer: str) -> str | None:
    """What this peer needs and is not here; None where it can run."""
    if importlib.util.find_spec({"nats": "nats", "webhook": "aiohttp"}[peer]) is None:
        return {"nats": "nats-py", "webhook": "aiohttp"}[peer]
    if peer == "nats" and find_nats_server() is None:
        return "nats-server"
    return None


def choose(asked: str | None) -> tuple[dict[str, Open], str | None]:
    """The peers to run, and a line about those that are missing; raises ConfigError for an unknown one.

    `asked` is what `--peers` says: names with commas, `none`, or None for those that are installed.
    """
    names = [] if asked == "none" else [*PEERS] if asked is None else asked.split(",")
    if unknown := [name for name in names if name not in PEERS]:
        raise ConfigError(f"--peers: {unknown[0]!r:.50}: take {', '.join(PEERS)}, or none")
    missing = {name: lack for name in names if (lack := find_missing(name)) is not None}
    if missing and asked is not None:
        name, lack = next(iter(missing.items()))
        raise ConfigError(f"--peers {name}: {lack} is not installed. Run: {how_to_install('bench')}")
    words = "; ".join(f"{name} is left out: no {lack}" for name, lack in missing.items())
    line = f"{words} (run `{how_to_install('bench')}`)" if missing else None
    return {name: PEERS[name] for name in names if name not in missing}, line
