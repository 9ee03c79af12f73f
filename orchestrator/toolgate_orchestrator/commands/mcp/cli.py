"""`toolgate mcp`: options become a configuration here, and the proxy runs.

stdout belongs to the protocol, so all messages of the command go to stderr.
"""

import os
import re
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import typer
from toolgate_bus.commands.options import (
    KeysOption,
    MetricsAddressOption,
    MetricsPortOption,
    NamespaceOption,
    RedisOption,
    run_async,
    serve_metrics,
    start_bus,
)
from toolgate_bus.config.check import check
from toolgate_bus.config.document import read_document
from toolgate_bus.errors import ConfigError
from toolgate_bus.server.settings import BusSettings

from toolgate_orchestrator.commands.mcp.config import McpConfig, McpServer, check_url
from toolgate_orchestrator.commands.mcp.pins import Pins, default_pins

_UNFIT: Final = re.compile(r"[^a-z0-9_-]+")


def mcp(
    ctx: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- CMD… | URL]", help="The MCP server: a command to start it, or its URL."),
    ] = None,
    agent: Annotated[str, typer.Option(metavar="NAME", help="Agent name for schedulers.")] = "",
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML file: several servers, and the gate's settings.")
    ] = None,
    required: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Deny calls while this scheduler is silent. May be repeated."),
    ] = None,
    name: Annotated[
        str,
        typer.Option(metavar="NAME", help="Server name for schedulers (default: taken from CMD or URL)."),
    ] = "",
    http: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", min=0, max=65535, help="Serve clients over HTTP on this port (0: any free port)."
        ),
    ] = None,
    address: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Listen on this address; a public one needs a token."),
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Host name that HTTP clients may use. May be repeated."),
    ] = None,
    pin: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File that keeps the tools' descriptions as first seen."),
    ] = None,
    accept: Annotated[bool, typer.Option("--accept", help="Accept the tools' current descriptions.")] = False,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    metrics_port: MetricsPortOption = None,
    metrics_address: MetricsAddressOption = "127.0.0.1",
) -> None:
    """Put a gate in front of MCP servers: schedulers rule on every tool call.

    \b
      toolgate mcp --agent claude -- uvx mcp-server-git
      toolgate mcp --agent claude --required policy -- uvx mcp-server-git
      toolgate mcp --config servers.yaml
      toolgate mcp --http 8900 https://mcp.example/mcp

    In the configuration of an MCP client, replace the server's own command by the first line. The client then
    starts the proxy, and the proxy starts the server. A denied call becomes an error that the LLM reads. If a
    call needs a person, the client asks its user, if it can.

    A FILE for several servers, which gives their tools the server's name as a prefix:

    \b
      servers:
        git:
          command:
            - uvx
            - mcp-server-git
        far:
          url: https://mcp.example/mcp
          headers_env: {Authorization: FAR_TOKEN}
      toolgate:
        agent: claude
        required:
          - policy

    If a tool's description or schema changes after it was first seen, its calls bear the label
    mcp_tool_changed. Use --accept to accept the change.

    Over HTTP, clients need TOOLGATE_MCP_TOKEN as their bearer token if that variable is set.

    Exit codes: 0 the client has ended, 1 the server has ended, 2 an option or the configuration is wrong,
    130 Ctrl-C.
    """
    laid = _read(config, tuple(command or ()), name)
    token = _token(http, address)
    pins = Pins(pin or laid.pin or default_pins(), accept=accept)
    pins.check()
    space = namespace
    told = ctx.get_parameter_source("namespace")
    if "namespace" in laid.toolgate.model_fields_set and told is not None and told.name == "DEFAULT":
        space = laid.toolgate.namespace
    with (
        serve_metrics(metrics_port, metrics_address, "orchestrator"),
        start_bus(redis or laid.toolgate.redis, space, keys or laid.toolgate.keys) as bus,
    ):
        laid = _on_bus(laid, bus, agent, tuple(required or ()))
        from toolgate_orchestrator.commands.mcp import proxy  # the SDK takes a while to load

        if http is None:
            run_async(lambda: proxy.serve_stdio(laid, pins))
        else:
            names = tuple(allow_host or ())
            run_async(lambda: proxy.serve_http(laid, pins, address, http, names, token))


def _read(config: Path | None, command: tuple[str, ...], name: str) -> McpConfig:
    """Return the configuration from a file or from the command line. Raise ConfigError."""
    if (config is None) == (not command):
        raise ConfigError(
            "name the server: toolgate mcp -- CMD…, or toolgate mcp URL, or --config FILE for several"
        )
    if config is not None:
        document = read_document(config)
        return check(McpConfig, document.mapping(), document)
    is_url = len(command) == 1 and command[0].startswith(("http://", "https://"))
    if is_url:
        try:
            check_url(command[0])
        except ValueError as error:
            raise ConfigError(f"{error}") from None
        return _single(name or _name_of(urlsplit(command[0]).hostname or ""), {"url": command[0]})
    return _single(name or _name_of(Path(command[0]).name), {"command": command})


def _single(name: str, server: dict[str, Any]) -> McpConfig:
    return check(McpConfig, {"servers": {name: McpServer.model_validate(server)}}, "toolgate mcp")


def _name_of(text: str) -> str:
    return _UNFIT.sub("-", text.lower()).strip("-_")[:64] or "server"


def _token(http: int | None, address: str) -> str | None:
    """Return the token that HTTP clients need; None if they need none. Raise ConfigError if one is
    missing."""
    token = os.environ.get("TOOLGATE_MCP_TOKEN", "")
    if http is None:
        return None
    from toolgate_bus.commands.http_access import check_token, is_loopback

    if token:
        return check_token(token, "TOOLGATE_MCP_TOKEN")
    if not is_loopback(address):
        raise ConfigError("--address: others can reach it; set TOOLGATE_MCP_TOKEN, which clients must send")
    return None


def _on_bus(laid: McpConfig, bus: BusSettings, agent: str, required: tuple[str, ...]) -> McpConfig:
    """Return the configuration with the gate's options laid over it."""
    told: dict[str, Any] = {"redis": bus.redis, "namespace": bus.namespace}
    if bus.keys is not None:
        told["keys"] = bus.keys
    if agent:
        told["agent"] = agent
    if required:
        told["required"] = tuple(dict.fromkeys((*laid.toolgate.required, *required)))
    base = laid.toolgate.model_dump(exclude_unset=True)
    toolgate = check(type(laid.toolgate), {**base, **told}, "toolgate mcp")
    return laid.model_copy(update={"toolgate": toolgate})
