"""`toolgate notify`: turn options into a running service."""

import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.notify.config import NotifyConfig
from toolgate_bus.commands.notify.receivers import ReceiverClient, read_address, read_config, read_key
from toolgate_bus.commands.options import (
    JsonOption,
    MetricsAddressOption,
    MetricsPortOption,
    NamespaceOption,
    RedisOption,
    console,
    err_console,
    run_async,
    start_bus,
)
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ConfigError, ToolgateError
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.telemetry import definitions, metrics
from toolgate_bus.telemetry.metrics import Collector, Gauges

if TYPE_CHECKING:
    from toolgate_bus.commands.notify.service import NotifyService
    from toolgate_bus.telemetry.http import Page

NAME = "notify"
WIDTH = 24


def notify(
    config: Annotated[
        Path, typer.Option("--config", metavar="FILE", help="YAML file of receivers, routes and causes.")
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Check the config, addresses and keys, and contact nobody.")
    ] = False,
    test: Annotated[
        bool, typer.Option("--test", help="Send a sample to each receiver, and show which ones took it.")
    ] = False,
    name: Annotated[
        str,
        typer.Option(metavar="NAME", help="Processes of one name share their state; one of them works."),
    ] = NAME,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    metrics_port: MetricsPortOption = None,
    metrics_address: MetricsAddressOption = "127.0.0.1",
    json_: JsonOption = False,
) -> None:
    """Notify people of what needs them, by chat, mail or webhook.

    It reports three things: a call waits for a person, a budget is nearly spent, and
    rules were changed or a rollout was undone. Alerts of Prometheus report the rest.

    \b
      toolgate notify --config notify.yaml --check  check the file
      toolgate notify --config notify.yaml --test   send a sample to each receiver
      toolgate notify --config notify.yaml --redis redis://bus:6379

    Incidents, and notifications that are not sent yet, are kept on the server of the
    bus. A process that is restarted, or another that takes over, goes on exactly
    there. A notification keeps its id at every try, so a webhook recognizes one that
    comes twice.

    With --metrics-port, GET /healthz returns 200 while it works, else 503.

    Exit codes: 0 ended in good order, 1 a receiver took no sample, 2 the config or
    an option is wrong.
    """
    settings = read_config(config)
    receivers = open_receivers(settings, namespace)
    if check:
        _show_check(settings, json_)
    elif test:
        run_async(lambda: _send_samples(receivers, json_))
    else:
        _check_name(name)
        with start_bus(redis, namespace, None) as bus:
            run_async(lambda: _serve(settings, receivers, bus, name, metrics_port, metrics_address, json_))


def open_receivers(config: NotifyConfig, namespace: str) -> dict[str, ReceiverClient]:
    """Return what posts to each receiver, by its name. Raise ConfigError, which shows no secret."""
    return {name: _open(name, config, namespace) for name in config.receivers}


def _open(name: str, config: NotifyConfig, namespace: str) -> ReceiverClient:
    one = config.receivers[name]
    url, key = read_address(name, one), read_key(name, one)
    try:
        if one.kind == "apprise":  # both libraries take a while to load, and may be missing
            from toolgate_bus.commands.notify.apprise_service import AppriseService

            return AppriseService(url, one.timeout_s, namespace, config.console_url)
        from toolgate_bus.commands.notify.webhook import Webhook

        return Webhook(one, url, key, namespace, config.console_url)
    except ValueError as error:
        raise ConfigError(f"receivers.{name}: url {error}") from None


def _check_name(name: str) -> None:
    if not name or len(name) > 64 or not all(letter.isalnum() or letter in "_.-" for letter in name):
        raise ConfigError("--name: 1 to 64 letters, digits, _ . or -")


def _show_check(config: NotifyConfig, as_json: bool) -> None:
    for name, one in config.receivers.items():
        signs = bool(one.key_file or one.key_env)
        if as_json:
            print_json({"event": "receiver", "name": name, "kind": one.kind, "signed": signs})
        else:
            console.print(
                escape(f"{name:{WIDTH}} {one.kind}, {'signed' if signs else 'not signed'}"), soft_wrap=True
            )
    if not as_json:
        console.print(f"The config is right: {len(config.receivers)} receivers, {len(config.routes)} routes.")


async def _send_samples(receivers: dict[str, ReceiverClient], as_json: bool) -> None:
    from toolgate_bus.commands.notify.notification import make_sample

    failed = False
    for name, receiver in receivers.items():
        why = ""
        try:
            await receiver.post(make_sample(name, time.time(), secrets.token_hex(8)))
        except ToolgateError as error:
            failed, why = True, str(error)
        if as_json:
            print_json({"event": "sample", "receiver": name, "taken": not why, "why": why})
        else:
            console.print(
                escape(f"{name:{WIDTH}} {f'took nothing: {why}' if why else 'took it'}"), soft_wrap=True
            )
    if failed:
        raise typer.Exit(1)


async def _serve(
    config: NotifyConfig,
    receivers: dict[str, ReceiverClient],
    settings: BusSettings,
    name: str,
    port: int | None,
    address: str,
    as_json: bool,
) -> None:
    from toolgate_bus.commands.notify.fleet_sources import FleetSources
    from toolgate_bus.commands.notify.outbox import NotifyOutbox
    from toolgate_bus.commands.notify.service import NotifyService, lease_seconds
    from toolgate_bus.facts.lease import Lease
    from toolgate_bus.telemetry.http import serve_page
    from toolgate_bus.transport.redis.client.connection import RedisCommands

    if settings.redis is None:
        raise ConfigError("redis: no server is named")
    space = settings.namespace
    metrics.use_namespace(space)
    commands = RedisCommands(settings.redis, "toolgate-notify")
    outbox = NotifyOutbox(Lease(commands, space, f"notify:{name}", lease_seconds(config)))
    service = NotifyService(config, FleetSources(commands, space), outbox, space)
    serving = None if port is None else serve_page(port, address, _make_page(service), service.health)
    refused: ToolgateError | None = None
    try:
        _tell_ready(config, settings, serving.url if serving else None, as_json)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(service.renew)
            for one, receiver in receivers.items():
                tasks.start_soon(service.post_to, one, receiver)
            try:
                await service.run()
            except ToolgateError as error:
                refused = error
                tasks.cancel_scope.cancel()
    except anyio.get_cancelled_exc_class():
        pass  # a cancellation is the order to finish
    finally:
        with anyio.CancelScope(shield=True):
            await service.hand_over()  # what was being posted is over
            if serving is not None:
                serving.close()
            await commands.aclose()
    if refused is not None:
        raise refused


def _make_page(service: "NotifyService") -> "Page":
    """Return a function that gives the page of metrics."""
    from toolgate_bus.commands.notify.service import POSTS

    def give(accept: str) -> tuple[str, bytes]:
        own = Gauges(definitions.NOTIFICATIONS_QUEUED, dict(service.queued))
        leads = Gauges(definitions.NOTIFY_LEADS, {(): float(service.leads)})
        shown: list[Collector] = [POSTS, own, leads, metrics.BAD_MESSAGES, metrics.RECONNECTS]
        return metrics.exposition(accept, [*shown, *metrics.ABOUT_PROCESS])

    return give


def _tell_ready(config: NotifyConfig, settings: BusSettings, url: str | None, as_json: bool) -> None:
    names = list(config.receivers)
    if as_json:
        print_json(
            {
                "event": "ready",
                "namespace": settings.namespace,
                "receivers": names,
                "url": url,
                "pid": os.getpid(),
            }
        )
        return
    more = f"; metrics at {url}" if url else ""
    err_console.print(escape(f"Tells {', '.join(names)} about {settings.namespace}{more}"), soft_wrap=True)
