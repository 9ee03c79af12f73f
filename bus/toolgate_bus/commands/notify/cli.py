"""`toolgate notify`: turn options into a running service."""

import os
import secrets
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.notify.config import NotifyConfig
from toolgate_bus.commands.notify.targets import WebhookTarget, find_targets, read_config
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
from toolgate_bus.telemetry import metrics

if TYPE_CHECKING:
    from toolgate_bus.commands.notify.webhook import Webhook

NAME = "notify"
WIDTH = 24


def notify(
    config: Annotated[
        Path, typer.Option("--config", metavar="FILE", help="Receivers, routes, causes (YAML).")
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Only read the config, addresses and keys; contact nobody.")
    ] = False,
    test: Annotated[
        bool, typer.Option("--test", help="Only post a sample to every receiver, and say who took it.")
    ] = False,
    name: Annotated[
        str,
        typer.Option(metavar="NAME", help="Of several with one name one works; others have their own state."),
    ] = NAME,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    metrics_port: MetricsPortOption = None,
    metrics_address: MetricsAddressOption = "127.0.0.1",
    json_: JsonOption = False,
) -> None:
    """Tell people by webhooks what a fleet needs them for, each thing once.

    A call waits for a person, a budget is nearly spent, a required scheduler is
    gone, calls go on without a scheduler, a rollout was undone, replicas differ.

    \b
      toolgate notify --config notify.yaml --check   is the file right?
      toolgate notify --config notify.yaml --test    does everybody get it?
      toolgate notify --config notify.yaml --redis redis://bus:6379

    Incidents, and notifications that are not posted yet, are kept on the server of
    the bus: a notify that is restarted, or another that takes over, goes on exactly
    there. A notification keeps its id at every try. So a receiver recognizes one
    that is posted twice, by a process killed between the POST and its note.

    With --metrics-port, GET /healthz says 200 while it works, else 503.

    Exit codes: 0 ended in good order, 1 a receiver took no sample, 2 the config or
    an option is wrong.
    """
    settings = read_config(config)
    targets = find_targets(settings)
    if check:
        _show_check(settings, targets, json_)
    elif test:
        run_async(lambda: _send_samples(settings, targets, namespace, json_))
    else:
        _check_name(name)
        with start_bus(redis, namespace, None) as bus:
            run_async(lambda: _serve(settings, targets, bus, name, metrics_port, metrics_address, json_))


def _check_name(name: str) -> None:
    if not name or len(name) > 64 or not all(letter.isalnum() or letter in "_.-" for letter in name):
        raise ConfigError("--name: 1 to 64 letters, digits, _ . or -")


def _show_check(config: NotifyConfig, targets: dict[str, WebhookTarget], as_json: bool) -> None:
    for name, one in config.receivers.items():
        signs = targets[name].key is not None
        if as_json:
            print_json({"event": "receiver", "name": name, "kind": one.kind, "signed": signs})
        else:
            console.print(
                escape(f"{name:{WIDTH}} {one.kind}, {'signed' if signs else 'not signed'}"), soft_wrap=True
            )
    if not as_json:
        console.print(f"The config is right: {len(config.receivers)} receivers, {len(config.routes)} routes.")


async def _send_samples(
    config: NotifyConfig, targets: dict[str, WebhookTarget], namespace: str, as_json: bool
) -> None:
    from toolgate_bus.commands.notify.message import make_body, make_sample

    failed = False
    for name, webhook in _webhooks(config, targets).items():
        sample = make_sample(name, time.time(), secrets.token_hex(8))
        why = ""
        try:
            await webhook.post(
                sample.id, make_body(config.receivers[name].kind, sample, namespace, config.console_url)
            )
        except ToolgateError as error:
            failed, why = True, str(error)
        finally:
            await webhook.aclose()
        if as_json:
            print_json({"event": "sample", "receiver": name, "taken": not why, "why": why})
        else:
            console.print(
                escape(f"{name:{WIDTH}} {f'took nothing: {why}' if why else 'took it'}"), soft_wrap=True
            )
    if failed:
        raise typer.Exit(1)


def _webhooks(config: NotifyConfig, targets: dict[str, WebhookTarget]) -> "dict[str, Webhook]":
    from toolgate_bus.commands.notify.webhook import Webhook  # its library takes a while, and may be missing

    return {name: Webhook(one, targets[name]) for name, one in config.receivers.items()}


async def _serve(
    config: NotifyConfig,
    targets: dict[str, WebhookTarget],
    settings: BusSettings,
    name: str,
    port: int | None,
    address: str,
    as_json: bool,
) -> None:
    from toolgate_bus.commands.notify.outbox import NotifyOutbox
    from toolgate_bus.commands.notify.page import make_page
    from toolgate_bus.commands.notify.sender import Sender
    from toolgate_bus.commands.notify.service import NotifyService, lease_seconds
    from toolgate_bus.commands.notify.sources import FleetSources
    from toolgate_bus.facts.reader import FactsReader
    from toolgate_bus.telemetry.http import serve_page
    from toolgate_bus.transport.redis.client.connection import RedisCommands

    if settings.redis is None:
        raise ConfigError("redis: no server is named")
    webhooks, space = _webhooks(config, targets), settings.namespace
    metrics.use_namespace(space)
    me = f"{socket.gethostname()[:32]}-{os.getpid()}-{secrets.token_hex(3)}"
    reading = RedisCommands(settings.redis, "toolgate-notify-facts", connections=1)
    commands = RedisCommands(settings.redis, "toolgate-notify")
    facts = FactsReader(reading, space)
    outbox = NotifyOutbox(commands, space, name, me, lease_seconds(config))
    service = NotifyService(config, facts, FleetSources(commands, space), outbox, space)
    serving = None if port is None else serve_page(port, address, make_page(service), service.health)
    refused: ToolgateError | None = None
    try:
        _tell_ready(config, settings, serving.url if serving else None, as_json)
        async with facts.stay_on_roster(), anyio.create_task_group() as tasks:
            tasks.start_soon(service.renew)
            for one, webhook in webhooks.items():
                tasks.start_soon(Sender(one, webhook, service, config, space).run)
            try:
                await service.run()
            except ToolgateError as error:
                refused = error
                tasks.cancel_scope.cancel()
    except anyio.get_cancelled_exc_class():
        pass  # a cancellation is the order to finish
    finally:
        with anyio.CancelScope(shield=True):
            await service.leave()  # the senders have ended, with what they had begun
            if serving is not None:
                serving.close()
            await facts.leave()
            for webhook in webhooks.values():
                await webhook.aclose()
            await reading.aclose()
            await commands.aclose()
    if refused is not None:
        raise refused


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
