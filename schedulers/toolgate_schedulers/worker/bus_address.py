"""Return the address of the bus for a command that cannot do without one."""

from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.server.settings import BusSettings, redact_url
from toolgate_bus.transport.redis.client.diagnosis import diagnose


def no_bus(settings: BusSettings, error: TransportError) -> TransportError:
    """Return the same error with the address that was tried and what to change."""
    url = bus_url(settings)
    trouble = diagnose(url, str(error.__cause__ or error), refused=isinstance(error, ConfigError))
    return type(error)(f"the bus at {redact_url(url)} {trouble.what}; {trouble.change}")


def bus_url(settings: BusSettings) -> str:
    """Return the URL of the server. Raises ConfigError if none is named."""
    if settings.redis is None:
        raise ConfigError("redis: no server is named")
    return settings.redis
