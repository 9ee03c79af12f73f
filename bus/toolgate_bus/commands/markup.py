"""Words of others in text with markup: they are shown, and mean nothing. Pure."""

from rich.markup import escape as escape_markup  # noqa: TID251 - made safe below

from toolgate_bus.telemetry.printable import clean, visible


def escape(text: object) -> str:
    """Words of others for a line with markup: they stay on it, and are no markup."""
    return escape_markup(visible(str(text)))


def escape_lines(text: str) -> str:
    """A text of several lines for output with markup."""
    return escape_markup(clean(text))
