"""`toolgate serve`: connects options with sockets, gate and service."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from toolgate_bus.commands.http_server import bind_socket
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import (
    KeysOption,
    NamespaceOption,
    RedisOption,
    err_console,
    run_async,
    start_bus,
)
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.config.document import read_document
from toolgate_bus.errors import ConfigError
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.telemetry import metrics, tracing

from toolgate_orchestrator.commands.serve.access import AccessTokens, TlsFiles, read_tokens
from toolgate_orchestrator.commands.serve.app import SidecarApp
from toolgate_orchestrator.commands.serve.hook_handler import HookHandler
from toolgate_orchestrator.commands.serve.pages import make_pages
from toolgate_orchestrator.commands.serve.place import (
    HttpAddress,
    check_address,
    check_tls,
    find_socket,
    open_socket,
    parse_address,
)
from toolgate_orchestrator.commands.serve.server import make_server
from toolgate_orchestrator.commands.serve.server import serve as serve_http
from toolgate_orchestrator.commands.serve.service import SidecarService
from toolgate_orchestrator.decision.config import ToolgateConfig, parse
from toolgate_orchestrator.decision.gate import Gate

GRACE_S: Final = 5.0
SECTION: Final = "toolgate"
UNIX_URL: Final = "http://localhost"
"""URL of the sidecar for callers on the socket, which ignore the host."""


def serve(
    ctx: typer.Context,
    socket_: Annotated[
        Path | None,
        typer.Option("--socket", metavar="PATH", help="Listen on this Unix socket (default: your own)."),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Listen here instead of on a socket; port 0: a free one."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Callers' tokens, one per line; only you may read it (chmod 600)."),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TLS certificate; the sidecar then serves https.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Private key of the certificate.")
    ] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CA that signs callers' certificates (mutual TLS).")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="YAML file with the keys of `toolgate:` in a plan. Options override it."
        ),
    ] = None,
    required: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Deny calls while this scheduler is silent. May be repeated."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Agent name for callers that send none.")
    ] = None,
    idle_exit: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="Exit after this long without a request; 0: never."),
    ] = 0.0,
    keep_open: Annotated[
        int | None,
        typer.Option(metavar="FD", hidden=True, help="Descriptor of a lock, held while this process lives."),
    ] = None,
    grace: Annotated[
        float,
        typer.Option(min=0, max=600, help="Seconds for open calls to finish at the end; then deny them."),
    ] = GRACE_S,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line once it is ready.")] = False,
) -> None:
    """Rule on the calls of any program, over HTTP on this machine.

    Callers POST a call to /v1/decide, run what the answer says, and report
    the result to /v1/report. Only this process needs the server of the bus
    and its credentials. It also implements AuthZEN 1.0.

    \b
      toolgate serve --required policy            on your own socket (0600)
      toolgate serve --http 127.0.0.1:8181 --token-file token
      curl --unix-socket SOCKET localhost/v1/decide --json '{"tool": "bash"}'

    An address that other machines can reach needs mutual TLS. While the bus
    is away, the sidecar stays and denies calls, unless the configuration says
    on_bus_down: continue. After SIGTERM or Ctrl-C it takes no new call, and
    open calls have --grace seconds to finish.

    Exit codes: 0 ended normally, 2 an option is wrong or the socket or port is taken.
    """
    if socket_ is not None and http is not None:
        raise ConfigError("--socket, --http: give one of them, not both")
    tls = check_tls(tls_cert, tls_key, tls_client_ca)
    tokens = read_tokens(token_file) if token_file is not None else ()
    address = parse_address(http) if http is not None else None
    if address is not None:
        check_address(address, tls, has_token=bool(tokens))
    elif tls is not None:
        raise ConfigError("--tls-cert: TLS needs --http; only you can connect to the socket anyway")
    own = read_config(config)
    if not _is_option(ctx, "redis"):
        redis = own.get("redis", redis)
    if not _is_option(ctx, "namespace"):
        namespace = own.get("namespace", namespace)
    if not _is_option(ctx, "keys") and own.get("keys"):
        keys = Path(own["keys"])
    own |= {"required": required} if required else {}
    own |= {"agent": agent} if agent is not None else {}
    if keep_open is not None:  # a hook started it and named who must answer: no one else denies by being away
        own = {"on_bus_down": None, **own}
    parse({**own, "namespace": namespace}, SECTION)  # before anything is started
    with (
        tracing.configure("toolgate-serve"),
        start_bus(redis, namespace, keys) as settings,
        _bind(address, socket_, settings.namespace) as (bound, url, path),
    ):
        gate_config = complete(own, settings)
        place = _ServePlace(bound, url, path, tls, AccessTokens(tokens), grace, idle_exit, as_json)
        place.serves_hooks = keep_open is not None
        run_async(lambda: _run(gate_config, place))


def _is_option(ctx: typer.Context, name: str) -> bool:
    """Return whether the value was given as an option; an environment variable does not override the file."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def read_config(path: Path | None) -> dict[str, Any]:
    """Return the keys of `toolgate:` in a file, at its top or below that name. Raises ConfigError."""
    if path is None:
        return {}
    fields = read_document(path).mapping()
    if SECTION in fields and (beside := next((key for key in fields if key != SECTION), None)) is not None:
        raise ConfigError(f"{path}: {beside}: it stands beside `{SECTION}:`; move it into that section")
    section = fields.get(SECTION, fields)
    if not isinstance(section, dict):
        raise ConfigError(f"{path}: {SECTION}: must be a mapping (key: value)")
    parse(section, str(path))
    return dict(section)


def complete(own: dict[str, Any], settings: BusSettings) -> ToolgateConfig:
    """Complete a configuration with the bus's address; by default calls are denied while it is away."""
    where = {"redis": settings.redis, "namespace": settings.namespace}
    keys = {"keys": settings.keys} if settings.keys is not None else {}
    return parse({"on_bus_down": "deny", **own, **where, **keys}, SECTION)


@contextlib.contextmanager
def _bind(
    address: HttpAddress | None, path: Path | None, namespace: str
) -> Iterator[tuple[socket.socket, HttpAddress | None, Path | None]]:
    if address is not None:
        with bind_socket(address.host, address.port, ("--http", "--http")) as bound:
            yield bound, address._replace(port=bound.getsockname()[1]), None
        return
    path = find_socket(namespace) if path is None else path.absolute()
    with open_socket(path) as bound:
        yield bound, None, path


class _ServePlace:
    """The place at which a sidecar serves, and its callers' tokens."""

    def __init__(
        self,
        bound: socket.socket,
        address: HttpAddress | None,
        path: Path | None,
        tls: TlsFiles | None,
        tokens: AccessTokens,
        grace_s: float,
        idle_s: float,
        as_json: bool,
    ) -> None:
        self.bound, self.tls, self.tokens, self.grace_s = bound, tls, tokens, grace_s
        self.idle_s = idle_s
        self._path, self._as_json = path, as_json
        self.serves_hooks = False
        """True if a hook of a coding agent started this sidecar, and looks for its notes."""
        self.url = UNIX_URL if address is None else address.url(tls=tls is not None)

    def note_required(self, points: frozenset[str]) -> None:
        """Note beside the socket what required schedulers rule on, for hooks that find no sidecar later."""
        if self._path is None or not self.serves_hooks:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        try:
            with os.fdopen(os.open(self._path.with_suffix(".points"), flags, 0o600), "w") as opened:
                opened.write(" ".join(sorted(points)))
        except OSError as error:
            err_console.print(f"{escape(str(error))}: a hook without a sidecar will give results unruled")

    def ready(self) -> None:
        """Print where the sidecar listens."""
        if self._as_json:
            where = {"socket": str(self._path)} if self._path is not None else {}
            print_json({"event": "ready", "url": self.url, **where, "pid": os.getpid()})
        elif self._path is not None:
            err_console.print(f"Toolgate rules on calls at {escape(str(self._path))}", soft_wrap=True)
        else:
            err_console.print(f"Toolgate rules on calls at {escape(self.url)}", soft_wrap=True)


async def _run(config: ToolgateConfig, place: _ServePlace) -> None:
    metrics.use_namespace(config.namespace)
    gate = await Gate.start(config)
    try:
        await gate.vacancy.tell()
        service = SidecarService(gate)
        pages = make_pages(service, place.url, version("toolgate-bus"))
        hooks = HookHandler(
            service,
            denies=lambda: gate.ruled,
            unruled=lambda: gate.vacancy.line,
            idle_s=place.idle_s,
            note_required=place.note_required,
        )
        app = SidecarApp(service, place.tokens, pages, hooks)
        sweeping = asyncio.create_task(service.sweep(), name="toolgate-serve-sweep")
        try:
            server = make_server(app, place.tls)
            await serve_http(
                server,
                place.bound,
                place.ready,
                lambda: service.end(place.grace_s),
                lambda: app.wait_idle(place.idle_s),
            )
        finally:
            sweeping.cancel()
    finally:
        await gate.aclose()
