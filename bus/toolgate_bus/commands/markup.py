"""Escape text of others for output with markup, so that it is shown and has no effect. Pure."""

from rich.markup import escape as escape_markup  # noqa: TID251 - made safe below

from toolgate_bus.telemetry.printable import clean, visible


def escape(text: object) -> str:
    """Return a text of others for one line of output with markup."""
    return escape_markup(visible(str(text)))


def escape_lines(text: str) -> str:
    """Return a text of others, of several lines, for output with markup."""
    return escape_markup(clean(text))
