"""Opens the place where a sidecar listens: a socket of its user's own, or an address of this machine.

The socket's mode (0600) and its directory's (0700) let nobody else connect, so no token is needed.
"""

import contextlib
import os
import re
import socket
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from toolgate_bus.commands.http_access import is_loopback
from toolgate_bus.errors import ConfigError
from toolgate_bus.server.embedded import find_directory

from toolgate_orchestrator.commands.serve.access import TlsFiles

MAX_PATH: Final = 100
"""Maximum length in bytes of a socket's path that works everywhere."""
BACKLOG: Final = 512
_ADDRESS: Final = re.compile(r"(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:\[\]]+)):(?P<port>\d{1,5})")


class HttpAddress(NamedTuple):
    """An address and a port."""

    host: str
    port: int

    def url(self, *, tls: bool, port: int | None = None) -> str:
        """Return the URL for callers."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if tls else 'http'}://{host}:{self.port if port is None else port}"


def parse_address(text: str) -> HttpAddress:
    """Parse HOST:PORT. Raises ConfigError."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise ConfigError(
            f"--http: {text}: write HOST:PORT, for example 127.0.0.1:8181 or [::1]:8181 (port 0: a free one)"
        )
    return HttpAddress(found["six"] or found["host"], int(found["port"]))


def check_address(address: HttpAddress, tls: TlsFiles | None, *, has_token: bool) -> None:
    """Raise ConfigError for an address that is not protected from others, or from users of this machine."""
    is_mutual = tls is not None and tls.client_ca is not None
    if not is_loopback(address.host) and not is_mutual:
        raise ConfigError(
            f"--http: other machines can reach {address.host}, and a token alone does not protect what "
            "agents are about to do: listen on 127.0.0.1, or give --tls-cert, --tls-key and --tls-client-ca"
        )
    if not has_token and not is_mutual:
        raise ConfigError(
            "--http: every user of this machine could ask: give --token-file (openssl rand -hex 24 > FILE; "
            "chmod 600 FILE), or mutual TLS, or use the socket"
        )


def check_tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> TlsFiles | None:
    """Return the files of TLS if they work together. Raises ConfigError."""
    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        raise ConfigError(
            "--tls-cert, --tls-key: give both (--tls-client-ca makes callers need certificates as well)"
        )
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(cert, key)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--tls-cert, --tls-key, --tls-client-ca: cannot be used: {error}") from None
    return TlsFiles(cert, key, client_ca)


def find_socket(namespace: str) -> Path:
    """Return the default socket of the user's sidecar for a namespace. Raises ConfigError."""
    name = "serve.sock" if namespace == "default" else f"serve.{namespace}.sock"
    return find_directory() / name


@contextlib.contextmanager
def open_socket(path: Path) -> Iterator[socket.socket]:
    """Open a Unix socket to which nobody else may connect, and remove it at the end. Raises ConfigError.

    The socket of a sidecar that was killed is replaced; one on which a process listens is left alone.
    """
    if len(os.fsencode(path)) > MAX_PATH:
        raise ConfigError(f"--socket: {path} is longer than {MAX_PATH} bytes; name a shorter path")
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700, parents=True)
    _clear(path)
    bound = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    try:
        bound.bind(str(path))
        mine = path.stat().st_ino
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise ConfigError(f"--socket: cannot listen on {path}: {error.strerror}") from None
    finally:
        os.umask(mask)
    try:
        yield bound
    finally:
        bound.close()
        with contextlib.suppress(OSError):
            if path.stat().st_ino == mine:
                path.unlink()


def _clear(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"--socket: {path}: {error.strerror}") from None
    if not stat.S_ISSOCK(found.st_mode):
        raise ConfigError(f"--socket: {path} exists and is not a socket; name another path")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            return
    raise ConfigError(f"--socket: something listens on {path} already; use it, or name another path")
