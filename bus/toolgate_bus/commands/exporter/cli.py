"""`toolgate exporter`: turn options into a running service."""

import os
from collections.abc import Sequence
from functools import partial
from typing import Annotated

import anyio
import typer

from toolgate_bus.commands.exporter.gauges import FleetGauges
from toolgate_bus.commands.exporter.service import LEASE_S, Exporter
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import (
    JsonOption,
    NamespaceOption,
    RedisOption,
    err_console,
    run_async,
    start_bus,
)
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ConfigError
from toolgate_bus.facts.lease import Lease
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.protocol.names import MAX_NAME
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.http import PageServer, serve_page
from toolgate_bus.telemetry.loop_lag import watch_loop_lag
from toolgate_bus.transport.redis.client.connection import RedisCommands

PORT = 9464
MAX_LABELS = 8
"""Maximum number of labels by which decisions are counted."""


def exporter(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of /metrics. 0 means any free port.")
    ] = PORT,
    address: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on. 0.0.0.0 means every interface.")
    ] = "127.0.0.1",
    by_label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Count decisions by this label of agents, too. Can be repeated."),
    ] = None,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    json_: JsonOption = False,
) -> None:
    """Serve the metrics of a whole fleet to Prometheus, from the facts on the bus.

    Agents that live for seconds and agents that were killed are counted, too.
    The counts are kept on the server of the bus, with the positions up to which
    facts were read: an exporter that is restarted goes on exactly where it was,
    and loses nothing while facts are kept (an hour).

    \b
      toolgate exporter                       http://127.0.0.1:9464/metrics
      toolgate exporter --port 0 --json       any free port; a line tells it
      toolgate exporter --address 0.0.0.0 --redis redis://bus:6379
      toolgate exporter --by-label team       veto rates of teams

    If there are several for one namespace, one counts. The others stand by, serve
    nothing of the fleet, and take over within seconds. GET /healthz returns 200 while
    facts are read, else 503 (stands by, or the server is away); /livez always 200.

    Labels are bounded: beyond 1000 series of a metric they become `other`. All
    metrics: docs/reference/metrics.md. Ctrl-C and SIGTERM keep the count.

    Exit codes: 0 ended in good order, 2 an option is wrong or the port is taken.
    """
    with start_bus(redis, namespace, None) as settings:
        run_async(lambda: _serve(settings, port, address, check_labels(by_label or ()), json_))


def check_labels(names: Sequence[str]) -> Sequence[str]:
    """Return the names of labels. Raise ConfigError for too many names, or for an invalid name."""
    if len(names) > MAX_LABELS:
        raise ConfigError(f"--by-label: give at most {MAX_LABELS} labels")
    for name in names:
        if not 0 < len(name) <= MAX_NAME:
            raise ConfigError(f"--by-label: {name[:40]!r} is not a label's name: 1 to {MAX_NAME} characters")
    return names


async def _serve(
    settings: BusSettings, port: int, address: str, by_label: Sequence[str], as_json: bool
) -> None:
    url = settings.redis
    if url is None:
        raise ConfigError("redis: no server is named")
    metrics.use_namespace(settings.namespace)
    reading = RedisCommands(url, "toolgate-exporter-facts", connections=1)
    commands = RedisCommands(url, "toolgate-exporter")
    facts = FactsReader(reading, settings.namespace, "exporter")
    lease = Lease(commands, settings.namespace, "exporter", LEASE_S)
    service = Exporter(facts, lease, FleetGauges(commands, settings.namespace), by_label)
    serving = serve_page(port, address, service.page, service.health)
    try:
        _tell_ready(serving, settings, as_json)
        async with facts.stay_on_roster(partial(watch_loop_lag, "exporter")):
            await service.run()
    except anyio.get_cancelled_exc_class():
        pass  # a cancellation is the order to finish
    finally:
        with anyio.CancelScope(shield=True):
            serving.close()
            await facts.leave()
            await reading.aclose()
            await commands.aclose()


def _tell_ready(serving: PageServer, settings: BusSettings, as_json: bool) -> None:
    if as_json:
        fields = {"port": serving.port, "url": serving.url, "namespace": settings.namespace}
        print_json({"event": "ready", **fields, "pid": os.getpid()})
        return
    err_console.print(escape(f"The metrics of {settings.namespace} are at {serving.url}"), soft_wrap=True)
