"""Access checks of our HTTP servers: loopback addresses, and tokens that cannot be guessed."""

import ipaddress
from typing import Final

from toolgate_bus.errors import ConfigError

MIN_TOKEN: Final = 16


def is_loopback(address: str) -> bool:
    """Return whether an address is reachable from this machine only."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def check_token(token: str, where: str, more: str = "") -> str:
    """Return the token. Raise ConfigError if it is easy to guess: `where`, the reason, then `more`."""
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"{where}: a token needs at least {MIN_TOKEN} printable ASCII characters, without spaces "
            f"(`openssl rand -hex 24`){more}"
        )
    return token
