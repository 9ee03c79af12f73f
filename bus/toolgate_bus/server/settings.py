"""Check the settings of the bus, which every command and library entry takes from options or environment.

`BusSettings` holds the three common settings, `read_keys` reads the file that one of them names.
The spelling of options on a command line is in `options`.
"""

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.cluster_url import (
    CLUSTER_OPTIONS,
    CLUSTER_SCHEMES,
    is_cluster_url,
    read_cluster_url,
)
from toolgate_bus.protocol.host_list import redact_hosts_url
from toolgate_bus.protocol.names import NAME_PATTERN, explain_reserved
from toolgate_bus.protocol.sentinel_url import (
    SCHEMES,
    SENTINEL_OPTIONS,
    is_sentinel_url,
    read_sentinel_url,
)

_SCHEMES = ("redis", "rediss", "unix")
_OPTIONS = ("db", "password")
_TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_TLS_OPTIONS = (*_TLS_FILES, "ssl_cert_reqs", "ssl_check_hostname", "ssl_password")
_KNOWN = frozenset((*_OPTIONS, *_TLS_OPTIONS, *SENTINEL_OPTIONS, *CLUSTER_OPTIONS))
_MIN_KEY_BYTES = 16
_MAX_KEYS_FILE = 1 << 20
_OTHERS = stat.S_IRWXO
PASSWORD = "TOOLGATE_REDIS_PASSWORD"  # noqa: S105 - where it stands
PASSWORD_FILE = "TOOLGATE_REDIS_PASSWORD_FILE"  # noqa: S105 - as above
SENTINEL_PASSWORD = "TOOLGATE_SENTINEL_PASSWORD"  # noqa: S105 - as above
SENTINEL_PASSWORD_FILE = "TOOLGATE_SENTINEL_PASSWORD_FILE"  # noqa: S105 - as above


def check_url(url: str) -> str:
    """Return the URL, if it can name a server. Raise ConfigError, without the URL's password.

    A URL without a password gets that of TOOLGATE_REDIS_PASSWORD_FILE or TOOLGATE_REDIS_PASSWORD, if there
    is one: a command line can be read by every user of the machine. The password for sentinels themselves
    comes from TOOLGATE_SENTINEL_PASSWORD_FILE or TOOLGATE_SENTINEL_PASSWORD in the same way.
    """
    _check_encoding(url)
    if is_sentinel_url(url):
        return _check_sentinel_url(url)
    if is_cluster_url(url):
        return _check_cluster_url(url)
    try:
        parts = urlsplit(url)
        valid = parts.scheme in _SCHEMES and (parts.scheme != "unix" or parts.path.startswith("/"))
        valid = valid and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(
            "redis: not a URL of a server; it must look like redis://host:6379/0, rediss://host:6380/0 (TLS),"
            " unix:///path/to/socket, redis+sentinel://host1,host2,host3/SERVICE or redis+cluster://host1,host2"
        )
    _check_options(parts)
    return _with_password(parts, url)


def _check_encoding(url: str) -> None:
    """Raise ConfigError if the URL's address ends within its password. Show no part of the URL.

    After `/`, `?` or `#` everything is path or option. The rest of such a password would be taken for that.
    """
    behind = url.partition("://")[2]
    authority = re.split("[/?#]", behind, maxsplit=1)[0]
    path, _, query = behind[len(authority) :].partition("?")
    is_cut = "@" in path and not url.lower().startswith("unix:")
    if "@" in query and "@" not in authority:  # perhaps in an option's own password
        is_cut = is_cut or not _KNOWN.issuperset(name for name, _ in parse_qsl(query, keep_blank_values=True))
    try:
        urlsplit(url)
    except ValueError:  # its message quotes the URL
        is_cut = True
    if is_cut or "#" in behind:
        raise ConfigError(
            "redis: not a URL of a server: percent-encode the characters / ? # [ ] of its password "
            f"(%2F, %3F, %23, %5B, %5D), or put the password into a file ({PASSWORD_FILE}=FILE)"
        )


def _check_sentinel_url(url: str) -> str:
    try:
        read = read_sentinel_url(url)
    except ValueError as error:
        raise ConfigError(f"redis: {error}") from None
    parts = urlsplit(url)
    _check_options(parts)
    password = _password(SENTINEL_PASSWORD_FILE, SENTINEL_PASSWORD)
    if password and not read.sentinel_password:
        query = "&".join(filter(None, (parts.query, f"sentinel_password={quote(password, safe='')}")))
        parts = parts._replace(query=query)
    return _with_password(parts, parts.geturl())


def _check_cluster_url(url: str) -> str:
    try:
        read_cluster_url(url)
    except ValueError as error:
        raise ConfigError(f"redis: {error}") from None
    parts = urlsplit(url)
    _check_options(parts)
    return _with_password(parts, url)


def has_password(url: str) -> bool:
    """Return whether a password stands in the URL."""
    try:
        parts = urlsplit(url)
        names = {name for name, _ in parse_qsl(parts.query)}
        return bool(parts.password) or not names.isdisjoint(("password", "sentinel_password"))
    except ValueError:
        return False


def _with_password(parts: SplitResult, url: str) -> str:
    if parts.scheme == "unix" or parts.password or "password" in dict(parse_qsl(parts.query)):
        return url
    password = _password(PASSWORD_FILE, PASSWORD)
    if not password:
        return url
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{parts.username or ''}:{quote(password, safe='')}@{host}").geturl()


def _password(file: str, variable: str) -> str | None:
    """Return the password that the environment gives, in a file or by itself."""
    path = os.environ.get(file)
    if path:
        return read_secret(Path(path), file).decode("utf-8", "replace").strip()
    return os.environ.get(variable)


def read_secret(path: Path, what: str) -> bytes:
    """Return the contents of a file with a secret. Raise ConfigError if others may read or write it."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_MAX_KEYS_FILE + 1)
    except OSError as error:
        raise ConfigError(f"{what}: {path} cannot be read: {error.strerror}") from None
    if mode & _OTHERS:
        raise ConfigError(
            f"{what}: every user of this machine can read or change {path} (mode {stat.S_IMODE(mode):04o}): "
            f"chmod 600 {path}"
        )
    return text


def redact_url(url: str) -> str:
    """Return a URL that can be shown: without user, password and options."""
    if is_sentinel_url(url) or is_cluster_url(url):
        return redact_hosts_url(url)
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"unix://{parts.path}"
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


def _check_options(parts: SplitResult) -> None:
    """Refuse options that break what the bus relies on, and misspelt options."""
    tls = _TLS_OPTIONS if parts.scheme.startswith("rediss") else ()
    known = (*_own_options(parts.scheme), *tls)
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known:
            raise ConfigError(
                f"redis: {name}: a {parts.scheme}:// URL has no such option; allowed: {', '.join(known)}"
            )
        if name in _TLS_FILES and not Path(value).is_file():
            raise ConfigError(f"redis: {name}: there is no file {value}")


def _own_options(scheme: str) -> tuple[str, ...]:
    if scheme in CLUSTER_SCHEMES:
        return CLUSTER_OPTIONS
    return SENTINEL_OPTIONS if scheme in SCHEMES else _OPTIONS


def _env(name: str) -> str | None:
    """Return a variable of the environment. One that is empty counts as not set."""
    return os.environ.get(name) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class BusSettings:
    """Server, namespace and keys of a bus. A setting that is not given comes from TOOLGATE_*.

    A wrong setting raises ConfigError that names it.
    """

    redis: str | None = field(default_factory=lambda: _env("TOOLGATE_REDIS_URL"), repr=False)
    """URL of the server; None means the embedded one."""
    namespace: str = field(default_factory=lambda: _env("TOOLGATE_NAMESPACE") or "default")
    """Name that separates fleets on one server. It is a part of every key."""
    keys: Path | None = field(default_factory=lambda: Path(at) if (at := _env("TOOLGATE_KEYS")) else None)
    """YAML file that maps scheduler names to hexadecimal keys; None means that nothing is signed."""

    def __post_init__(self) -> None:
        """Check the settings, and give the URL its password."""
        faults = []
        if self.redis is not None:
            try:
                object.__setattr__(self, "redis", check_url(self.redis))
            except ConfigError as error:
                faults.append(str(error))
        if not re.fullmatch(NAME_PATTERN, self.namespace):
            faults.append(f"namespace: it must match {NAME_PATTERN}")
        if faults:
            raise ConfigError("; ".join(faults))


def bus_settings(
    redis: str | None = None, namespace: str | None = None, keys: Path | None = None
) -> BusSettings:
    """Return the settings, each from here if given, else from the environment. Raise ConfigError by name."""
    given: dict[str, Any] = {"redis": redis or None, "namespace": namespace, "keys": keys}
    return BusSettings(**{name: value for name, value in given.items() if value is not None})


def read_keys(path: Path) -> dict[str, bytes]:
    """Read the keys file, scheduler name to key. Raise ConfigError that names the file and the entry.

    Keys are written in hexadecimal, at least 16 bytes (32 digits) each. No error shows a key.
    """
    keys: dict[str, bytes] = {}
    for place, name, key in _entries(path):
        if not re.fullmatch(NAME_PATTERN, name):
            raise ConfigError(f"{place}: the name before the colon is not a scheduler's name")
        if why := explain_reserved(name):
            raise ConfigError(f"{place}: {name} cannot be a scheduler's name: {why}")
        try:
            made = bytes.fromhex(key)
        except ValueError:
            raise ConfigError(f"{path}: {name}: the key must be written in hexadecimal digits") from None
        if len(made) < _MIN_KEY_BYTES:
            raise ConfigError(
                f"{path}: {name}: the key must have at least {_MIN_KEY_BYTES} bytes (`openssl rand -hex 32`)"
            )
        keys[name] = made
    return keys


def _entries(path: Path) -> list[tuple[str, str, str]]:
    """Return place, name and key of each entry, as written. A key that is not a text becomes `?`."""
    from toolgate_bus.config.document import parse_document  # here: most processes read no keys

    document = parse_document(read_secret(path, "keys"), f"keys: {path}", secret=True)
    if document.root is None or not isinstance(document.value, dict):
        raise ConfigError(
            f"keys: {path} must map scheduler names to hexadecimal keys, one `name: key` a line"
        )
    return [
        (document.where((name,)).removeprefix("keys: "), name, key if isinstance(key, str) else "?")
        for name, key in document.value.items()
    ]
