"""`toolgate console`: serve the page, and print the address that opens it."""

import ipaddress
import os
import secrets
import socket
import ssl
import threading
import webbrowser
from pathlib import Path
from typing import Annotated, Final

import typer
from toolgate_bus.commands import options
from toolgate_bus.commands.http_access import check_token, is_loopback
from toolgate_bus.commands.http_connection import serve_bounded
from toolgate_bus.commands.http_server import bind_socket
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import (
    NamespaceOption,
    RedisOption,
    err_console,
    find_user,
    run_async,
    start_bus,
)
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ConfigError
from toolgate_bus.server.settings import BusSettings

from toolgate_schedulers.commands.console.access import Access, check_name
from toolgate_schedulers.commands.console.app import make_app
from toolgate_schedulers.commands.console.console_state import open_state

PORT: Final = 8765
MAX_CONNECTIONS: Final = 256
Tls = tuple[Path, Path]
"""Files of certificate and key."""


def console(
    ctx: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on (0: any free port).")] = PORT,
    address: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0 for all.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            envvar="TOOLGATE_CONSOLE_TOKEN",
            help="Token that people sign in with. Default: a new one at each start.",
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name to answer under, unless sign-in gives one (default: yours)."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Host name that browsers may use; may be repeated."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate: serve https.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key.")] = None,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = False,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line when it is ready.")] = False,
) -> None:
    """Watch decisions, rates, budgets and living agents; answer the calls that wait.

    \b
      toolgate console
      toolgate console --port 0 --user anna --open
      toolgate console --address 0.0.0.0 --tls-cert cert.pem --tls-key key.pem

    Whoever opens the printed address is signed in and may approve calls, so keep it
    secret. The console serves this machine only, unless you give --address.
    Sessions end with the command.
    """
    if (tls_cert is None) != (tls_key is None):
        raise ConfigError("--tls-cert, --tls-key: give both or neither")
    tls = _check_tls(tls_cert, tls_key) if tls_cert and tls_key else None
    source = ctx.get_parameter_source("token")
    if token and source is not None and source.name == "COMMANDLINE":
        err_console.print(
            "[yellow]Every user of this machine can read --token (`ps`).[/] "
            "Set TOOLGATE_CONSOLE_TOKEN instead.",
            soft_wrap=True,
        )
    secret = (
        check_token(token, "--token", "; without it, one is made") if token else secrets.token_urlsafe(24)
    )
    who = check_name(user or find_user())
    bound = bind_socket(address, port)
    with bound, start_bus(redis, namespace, None) as settings:
        hosts = tuple(allow_host or ())
        place = _ServeOptions(bound, address, tls, hosts, secret, who, open_, as_json, told=not token)
        run_async(lambda: _serve(settings, place))


class _ServeOptions:
    """Settings for serving the page."""

    def __init__(
        self,
        bound: socket.socket,
        address: str,
        tls: Tls | None,
        hosts: tuple[str, ...],
        token: str,
        user: str,
        opens: bool,
        as_json: bool,
        *,
        told: bool,
    ) -> None:
        """Prepare to serve; `told` is True if the address shows the token, since nobody else knows it."""
        self.bound, self.tls, self._opens, self._as_json = bound, tls, opens, as_json
        self._told = told
        self.host = socket.gethostname()
        self._address = address
        port = bound.getsockname()[1]
        names = {*hosts, address} | (set() if is_loopback(address) else {self.host})
        self.access = Access(token, user, names, port=port, tls=tls is not None)
        bound_to_all = ipaddress.ip_address(bound.getsockname()[0]).is_unspecified
        name = hosts[0] if hosts else self.host if bound_to_all else address
        self._root = f"{'https' if tls else 'http'}://{f'[{name}]' if ':' in name else name}:{port}/"
        self.url = f"{self._root}?token={token}" if told else self._root
        """Address that signs in whoever opens it; if the user gave the token, the page asks for it."""

    def ready(self) -> None:
        """Print the address of the page."""
        if not is_loopback(self._address) and self.tls is None:
            err_console.print(
                f"[yellow]Traffic with {escape(self._address)} is not encrypted: anybody who can read it "
                "knows the token. Give --tls-cert and --tls-key, or put a proxy with TLS before it.[/]"
            )
        if self._as_json:
            line = {"event": "ready", "url": self.url, "address": self._root, "pid": os.getpid()}
            print_json(line)
        else:
            options.console.print(f"The console is at {escape(self.url)}", soft_wrap=True)
            who = "Whoever opens this address" if self._told else "Whoever signs in with your token"
            err_console.print(f"[dim]{who} may approve calls. Ctrl-C ends it.[/]")
        if self._opens:  # a text browser runs until the user leaves it
            threading.Thread(target=webbrowser.open, args=(self.url,), daemon=True).start()


async def _serve(settings: BusSettings, place: _ServeOptions) -> None:
    async with open_state(settings) as known:
        app = make_app(place.access, known, place.host[:64], tls=place.tls is not None)
        files = {"ssl_certfile": place.tls[0], "ssl_keyfile": place.tls[1]} if place.tls else {}
        ending = known.hub.close  # open pages have streams without end
        await serve_bounded(app, place.bound, "console-http", MAX_CONNECTIONS, place.ready, ending, **files)


def _check_tls(cert: Path, key: Path) -> Tls:
    """Return certificate and key if they fit together; raise ConfigError if not."""
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--tls-cert, --tls-key: cannot be used: {error}") from None
    return cert, key
