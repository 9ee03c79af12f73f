"""Who may talk to what listens over HTTP: addresses that are this machine alone, and tokens."""

import ipaddress
from typing import Final

from toolgate_bus.errors import ConfigError

MIN_TOKEN: Final = 16


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def check_token(token: str, where: str, more: str = "") -> str:
    """A token that cannot be guessed; raises ConfigError, which begins with `where` and ends with `more`."""
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"{where}: at least {MIN_TOKEN} printable ASCII characters without spaces "
            f"(`openssl rand -hex 24`){more}"
        )
    return token
