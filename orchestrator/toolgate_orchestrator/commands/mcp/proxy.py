"""Runs the proxy for one client on stdin and stdout, or for clients over HTTP, until they or the servers
end."""

import asyncio
import contextlib
import ipaddress
import logging
import os
import secrets
from collections.abc import AsyncIterator
from typing import Final

import typer
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import err_console
from toolgate_bus.errors import ConfigError
from toolgate_bus.telemetry.printable import clean, shorten

from toolgate_orchestrator.commands.mcp import sdk
from toolgate_orchestrator.commands.mcp.config import McpConfig
from toolgate_orchestrator.commands.mcp.pins import Pins
from toolgate_orchestrator.commands.mcp.questions import Questions
from toolgate_orchestrator.commands.mcp.session import LAST_WORDS_S, ProxySession
from toolgate_orchestrator.guard.guard import Guard

_TALKATIVE: Final = ("mcp", "httpx2", "httpcore2")


@contextlib.asynccontextmanager
async def _open(config: McpConfig) -> AsyncIterator[tuple[Guard, Questions]]:
    """Open the gate and the waiting calls for the life of the proxy."""
    for name in _TALKATIVE:  # they log whole messages
        logging.getLogger(name).setLevel(logging.CRITICAL)
    questions = Questions()
    guard = Guard(config.toolgate, notice=config.notice)
    async with guard:
        try:
            yield guard, questions
        finally:
            questions.end()


async def serve_stdio(config: McpConfig, pins: Pins) -> None:
    """Serve the client that started the proxy. Exit with code 1 if the servers end first."""
    from toolgate_orchestrator.commands.mcp.stdio_front import open_stdio

    async with _open(config) as (guard, questions):
        session = ProxySession(config, guard, pins, questions, f"mcp-{secrets.token_hex(8)}")
        async with open_stdio(config.max_message) as streams:
            dispatcher = sdk.make_dispatcher(streams)
            session.front = dispatcher
            living = asyncio.create_task(session.live(), name="mcp-session")
            serving = asyncio.create_task(
                dispatcher.run(session.on_request, session.on_notify), name="mcp-client"
            )
            try:
                await asyncio.wait([serving, living], return_when=asyncio.FIRST_COMPLETED)
                if not serving.done():
                    await session.drain(LAST_WORDS_S)
            finally:
                for task in (serving, living):
                    task.cancel()
                await asyncio.wait([serving, living])
    if session.problem is not None:
        _tell_end(session.problem)


def _tell_end(problem: BaseException) -> None:
    """Report on stderr why the session ended, and exit with the code for it."""
    if isinstance(problem, ConfigError):
        raise problem
    said = (
        str(problem)
        if isinstance(problem, sdk.MCPError)
        else f"the servers have ended: {type(problem).__name__}"
    )
    err_console.print(f"[red]{escape(shorten(clean(said), 500))}[/]", soft_wrap=True)
    raise typer.Exit(1)


async def serve_http(
    config: McpConfig, pins: Pins, address: str, port: int, names: tuple[str, ...], token: str | None
) -> None:
    """Serve clients over HTTP until told to end."""
    from toolgate_bus.commands.http_access import is_loopback
    from toolgate_bus.commands.http_server import bind_socket

    from toolgate_orchestrator.commands.mcp.http_access import PATH
    from toolgate_orchestrator.commands.mcp.http_front import Sessions, serve_http

    with bind_socket(address, port, ("--address", "--http")) as bound:
        place = bound.getsockname()
        shown = f"[{place[0]}]" if ":" in place[0] else place[0]
        hosts = _hosts(address, place[0], place[1], names)
        if not is_loopback(address):
            err_console.print(
                "[yellow]Messages and the token are not encrypted: put a proxy with TLS in front.[/]",
                soft_wrap=True,
            )

        def up() -> None:
            err_console.print(
                escape(f"Serving MCP at http://{shown}:{place[1]}{PATH} (pid {os.getpid()})"),
                soft_wrap=True,
            )

        async with _open(config) as (guard, questions):
            sessions = Sessions(
                lambda name, shared: ProxySession(
                    config, guard, pins, questions, f"mcp-{name[:64]}", shared=shared
                )
            )
            await serve_http(sessions, bound, hosts, token, config.max_message, up)


def _hosts(address: str, bound: str, port: int, names: tuple[str, ...]) -> list[str]:
    """Return the allowed values of the Host header: addresses that nobody else can point elsewhere."""
    own = {address, bound, "127.0.0.1", "localhost", "[::1]", *names}
    shown = {f"[{one}]" if _is_v6(one) else one for one in own}
    return sorted({*shown, *(f"{one}:{port}" for one in shown)})


def _is_v6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False
