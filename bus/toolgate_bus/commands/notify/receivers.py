"""Read the config of `toolgate notify`, and its receivers' addresses and keys in files and the environment.

A receiver's address and key are secrets: they are never printed, and read once, when the command starts.
`webhook` and `apprise_service` post to a receiver; what they have in common is here.
"""

import base64
import binascii
import os
from pathlib import Path
from typing import Final, Protocol

from toolgate_bus.commands.notify.config import NotifyConfig, Receiver
from toolgate_bus.commands.notify.notification import Notification
from toolgate_bus.config.check import check
from toolgate_bus.config.document import read_document
from toolgate_bus.errors import ConfigError, ToolgateError

KEY_PREFIX: Final = "whsec_"
MIN_KEY: Final = 24
"""Minimum length of a key, in bytes."""
MAX_KEY: Final = 64
MAX_SECRET_FILE: Final = 4096


class ReceiverRefusal(ToolgateError):  # noqa: N818 - an answer of the receiver's
    """The receiver will never take this notification."""


class ReceiverUnavailable(ToolgateError):  # noqa: N818 - a state of the receiver's
    """The receiver has not taken it, as far as is known. Try again, after `wait_s` seconds if it said so."""

    def __init__(self, words: str, wait_s: float | None = None) -> None:
        super().__init__(words)
        self.wait_s = wait_s


class ReceiverClient(Protocol):
    """Way to one receiver. No error and no log of it says the address."""

    async def post(self, one: Notification) -> None:
        """Return when the receiver has taken it. Raise ReceiverRefusal or ReceiverUnavailable."""


def read_config(path: Path) -> NotifyConfig:
    """Read the config from a file. Raise ConfigError with a line for each wrong field."""
    document = read_document(path)
    return check(NotifyConfig, document.mapping(), document)


def read_address(name: str, one: Receiver) -> str:
    """Return the address of a receiver. Raise ConfigError that names what is missing, no secret."""
    return one.url or _read_secret(f"receivers.{name}.url", one.url_file, one.url_env) or ""


def read_key(name: str, one: Receiver) -> bytes | None:
    """Return the key that signs for a receiver. Raise ConfigError that names what is wrong, no secret."""
    said = _read_secret(f"receivers.{name}.key", one.key_file, one.key_env)
    if said is None:
        return None
    try:
        key = base64.b64decode(said.removeprefix(KEY_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not said.startswith(KEY_PREFIX) or not MIN_KEY <= len(key) <= MAX_KEY:
        raise ConfigError(
            f"receivers.{name}: its key must be {KEY_PREFIX} and {MIN_KEY} to {MAX_KEY} bytes in base64: "
            f'echo "{KEY_PREFIX}$(openssl rand -base64 32)"'
        )
    return key


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
