"""Where the bus is: what every command and library entry takes, from options or the environment.

`BusSettings` holds the three common settings, `read_keys` reads the file that one of them names.
How options are spelled on a command line is `cli_options`' affair.
"""

import os
import re
import stat
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

import yaml
from pydantic import AfterValidator, AliasChoices, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from toolgate_bus.errors import ConfigError
from toolgate_bus.names import NAME_PATTERN

__all__ = ["BusSettings", "bus_settings", "check_url", "has_password", "read_keys", "shown"]

_SCHEMES = ("redis", "rediss", "unix")
_OPTIONS = ("db", "password")
_TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_TLS_OPTIONS = (*_TLS_FILES, "ssl_cert_reqs", "ssl_check_hostname", "ssl_password")
_MIN_KEY_BYTES = 16
_MAX_KEYS_FILE = 1 << 20
_OTHERS = stat.S_IRWXO
PASSWORD = "TOOLGATE_REDIS_PASSWORD"  # noqa: S105 - where it stands
PASSWORD_FILE = "TOOLGATE_REDIS_PASSWORD_FILE"  # noqa: S105


def check_url(url: str) -> str:
    """The URL, if a server can be behind it; raises ConfigError, without the URL's password.

    One without a password gets that of TOOLGATE_REDIS_PASSWORD_FILE or TOOLGATE_REDIS_PASSWORD, if there
    is one: a command line can be read by every user of the machine.
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in _SCHEMES and (parts.scheme != "unix" or parts.path.startswith("/"))
        valid = valid and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(
            "redis: not a URL of a server; it must look like redis://host:6379/0, rediss://host:6380/0 (TLS) "
            "or unix:///path/to/socket"
        )
    _check_options(parts)
    return _with_password(parts, url)


def has_password(url: str) -> bool:
    """Whether a password stands in the URL."""
    try:
        parts = urlsplit(url)
        return bool(parts.password) or any(name == "password" for name, _ in parse_qsl(parts.query))
    except ValueError:
        return False


def _with_password(parts: SplitResult, url: str) -> str:
    if parts.scheme == "unix" or has_password(url):
        return url
    path, password = os.environ.get(PASSWORD_FILE), os.environ.get(PASSWORD)
    if path:
        password = _secret(Path(path), PASSWORD_FILE).decode("utf-8", "replace").strip()
    if not password:
        return url
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{parts.username or ''}:{quote(password, safe='')}@{host}").geturl()


def _secret(path: Path, what: str) -> bytes:
    """What a file with a secret holds; raises ConfigError where others may read it, or write it."""
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


def shown(url: str) -> str:
    """A URL without its password and its options."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"unix://{parts.path}"
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


def _check_options(parts: SplitResult) -> None:
    """Those of the client that would undo what the bus relies on are refused, and misspelt ones."""
    known = (*_OPTIONS, *_TLS_OPTIONS) if parts.scheme == "rediss" else _OPTIONS
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known:
            raise ConfigError(
                f"redis: {name}: a {parts.scheme}:// URL has no such option; it may have {', '.join(known)}"
            )
        if name in _TLS_FILES and not Path(value).is_file():
            raise ConfigError(f"redis: {name}: there is no file {value}")


def _url(url: str) -> str:
    try:
        return check_url(url)
    except ConfigError as error:
        raise ValueError(str(error).removeprefix("redis: ")) from None


class BusSettings(BaseSettings):
    """Which bus, which namespace on it, and with which keys; what is not given comes from TOOLGATE_*."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_ignore_empty=True, populate_by_name=True, hide_input_in_errors=True
    )

    redis: Annotated[str, AfterValidator(_url)] | None = Field(
        None, validation_alias=AliasChoices("redis", "TOOLGATE_REDIS_URL")
    )
    """URL of the server; None means the embedded one."""
    namespace: str = Field(
        "default", pattern=NAME_PATTERN, validation_alias=AliasChoices("namespace", "TOOLGATE_NAMESPACE")
    )
    """Separates fleets on one server; part of every key."""
    keys: Path | None = Field(None, validation_alias=AliasChoices("keys", "TOOLGATE_KEYS"))
    """YAML file, scheduler name to hexadecimal key; None means that nothing is signed."""


def bus_settings(
    redis: str | None = None, namespace: str | None = None, keys: Path | None = None
) -> BusSettings:
    """The settings, each from here if given, else from the environment; raises ConfigError by name."""
    given: dict[str, Any] = {"redis": redis or None, "namespace": namespace, "keys": keys}
    try:
        return BusSettings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        faults = (
            f"{fault['loc'][0]}: {fault['msg'].removeprefix('Value error, ')}" for fault in error.errors()
        )
        raise ConfigError("; ".join(faults)) from None


def read_keys(path: Path) -> dict[str, bytes]:
    """Read the keys file, scheduler name to key; raises ConfigError that names the file and the entry.

    Keys are written in hexadecimal, at least 16 bytes (32 digits) each. No error shows a key.
    """
    mapping = _mapping(path)
    keys: dict[str, bytes] = {}
    for name_node, key_node in mapping.value:
        name = name_node.value if isinstance(name_node, yaml.ScalarNode) else ""
        if not re.fullmatch(NAME_PATTERN, name):
            raise ConfigError(f"{path}: line {name_node.start_mark.line + 1}: this is not a scheduler's name")
        if name in keys:
            raise ConfigError(f"{path}: {name}: has two keys; leave one")
        keys[name] = _key(path, name, key_node)
    return keys


def _key(path: Path, name: str, node: yaml.Node) -> bytes:
    try:
        key = bytes.fromhex(node.value if isinstance(node, yaml.ScalarNode) else "?")
    except ValueError:
        raise ConfigError(f"{path}: {name}: the key must be written in hexadecimal digits") from None
    if len(key) < _MIN_KEY_BYTES:
        raise ConfigError(
            f"{path}: {name}: the key must have at least {_MIN_KEY_BYTES} bytes (`openssl rand -hex 32`)"
        )
    return key


def _mapping(path: Path) -> yaml.MappingNode:
    """The file as YAML nodes, not values: a key of digits alone must not be read as a number."""
    text = _secret(path, "keys")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader) if len(text) <= _MAX_KEYS_FILE else None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ConfigError(f"keys: {path} is not YAML") from None  # the parser's own words would show keys
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(
            f"keys: {path} must map scheduler names to hexadecimal keys, one `name: key` a line"
        )
    return node
