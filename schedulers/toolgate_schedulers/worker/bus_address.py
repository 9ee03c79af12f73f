"""The address of the bus, for a command that must have one, and as it may be shown."""

from urllib.parse import urlsplit

from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.protocol.cluster_url import is_cluster_url
from toolgate_bus.protocol.host_list import redact_hosts_url
from toolgate_bus.protocol.sentinel_url import is_sentinel_url
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.redis.diagnosis import diagnose


def no_bus(settings: BusSettings, error: TransportError) -> TransportError:
    """The same error, with the address that was tried."""
    url = bus_url(settings)
    trouble = diagnose(url, str(error.__cause__ or error), refused=isinstance(error, ConfigError))
    return type(error)(f"the bus at {redact_url(url)} {trouble.what}; {trouble.change}")


def bus_url(settings: BusSettings) -> str:
    """Where the bus is; raises ConfigError if nowhere."""
    if settings.redis is None:
        raise ConfigError("redis: no server is named")
    return settings.redis


def redact_url(url: str) -> str:
    """The URL without its password."""
    if is_sentinel_url(url) or is_cluster_url(url):
        return redact_hosts_url(url)
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return parts._replace(netloc=f"{parts.username or ''}:***@{parts.netloc.rpartition('@')[2]}").geturl()
