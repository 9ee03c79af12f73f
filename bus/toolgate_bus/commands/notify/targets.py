"""Read the config of `toolgate notify`, and its receivers' addresses and keys in files and the environment.

A receiver's address and key are secrets: they are never printed, and read once, when the command starts.
"""

import base64
import binascii
import os
from pathlib import Path
from typing import Final

from toolgate_bus.commands.notify.config import NotifyConfig, check_url
from toolgate_bus.config.check import check
from toolgate_bus.config.document import read_document
from toolgate_bus.errors import ConfigError

KEY_PREFIX: Final = "whsec_"
MIN_KEY: Final = 24
"""Minimum length of a key, in bytes."""
MAX_KEY: Final = 64
MAX_SECRET_FILE: Final = 4096


class WebhookTarget:
    """Address of a receiver, and the key that signs for it. Neither shows in a repr."""

    __slots__ = ("key", "url")

    def __init__(self, url: str, key: bytes | None) -> None:
        self.url, self.key = url, key


def read_config(path: Path) -> NotifyConfig:
    """Read the config from a file. Raise ConfigError with a line for each wrong field."""
    document = read_document(path)
    return check(NotifyConfig, document.mapping(), document)


def find_targets(config: NotifyConfig) -> dict[str, WebhookTarget]:
    """Return address and key of each receiver. Raise ConfigError that names what is missing, no secret."""
    found = {}
    for name, one in config.receivers.items():
        where = f"receivers.{name}"
        url = one.url or _read_secret(f"{where}.url", one.url_file, one.url_env) or ""
        try:
            check_url(url)
        except ValueError as error:
            raise ConfigError(f"{where}: what url_file or url_env holds {error}") from None
        if one.ca_file is not None and not one.ca_file.is_file():
            raise ConfigError(f"{where}.ca_file: {one.ca_file} is no file")
        key = _read_secret(f"{where}.key", one.key_file, one.key_env)
        found[name] = WebhookTarget(url, None if key is None else _decode_key(f"{where}: its key", key))
    return found


def _read_secret(where: str, file: Path | None, variable: str | None) -> str | None:
    if variable is not None:
        if not (said := os.environ.get(variable, "").strip()):
            raise ConfigError(f"{where}_env: the variable {variable} is not set")
        return said
    if file is None:
        return None
    try:
        with file.open("rb") as opened:
            said = opened.read(MAX_SECRET_FILE).decode().strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise ConfigError(f"{where}_file: {file} cannot be read: {why}") from None
    if not said:
        raise ConfigError(f"{where}_file: {file} is empty")
    return said


def _decode_key(where: str, said: str) -> bytes:
    try:
        key = base64.b64decode(said.removeprefix(KEY_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not said.startswith(KEY_PREFIX) or not MIN_KEY <= len(key) <= MAX_KEY:
        raise ConfigError(
            f"{where} must be {KEY_PREFIX} and {MIN_KEY} to {MAX_KEY} bytes in base64: "
            f'echo "{KEY_PREFIX}$(openssl rand -base64 32)"'
        )
    return key
