"""Why a server cannot be used, as a finding (`transport.redis.diagnosis`)."""

from typing import Final

from toolgate_bus.commands.doctor.finding import Diagnostic, error
from toolgate_bus.errors import ConfigError, ToolgateError
from toolgate_bus.server.settings import redact_url
from toolgate_bus.transport.redis.diagnosis import diagnose

SUBJECT: Final = "server"


def explain_failure(url: str, raised: ToolgateError | TimeoutError) -> Diagnostic:
    """The finding for what was raised when the server was asked for the first time."""
    said = "timed out" if isinstance(raised, TimeoutError) else str(raised.__cause__ or raised)
    trouble = diagnose(url, said, refused=isinstance(raised, ConfigError))
    return error(SUBJECT, f"server-{trouble.name}", f"{redact_url(url)} {trouble.what}", trouble.change)
