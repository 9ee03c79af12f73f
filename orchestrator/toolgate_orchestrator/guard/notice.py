"""What an LLM is told where another call ran than the one it made. Pure."""

from typing import Final

from toolgate_bus.errors import ConfigError
from toolgate_bus.telemetry.printable import shorten, visible

DEFAULT: Final = "Note: {tool} ran in place of {original}{why}."
SAME_TOOL: Final = "Note: {tool} ran with other arguments{why}."
MAX_REASON: Final = 500
_MAX_NAME: Final = 128


def check_notice(notice: bool | str) -> str:
    """The text for a guard's `notice=`; empty for none. Raises ConfigError for names it does not know."""
    if not notice:
        return ""
    template = DEFAULT if notice is True else notice
    try:
        template.format(tool="", original="", reason="", why="")
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"notice= is a text with {{tool}}, {{original}} and {{reason}} in it: {error!r}"
        ) from None
    return template


def notice_of(template: str, original: str, tool: str, reason: str | None) -> str:
    """That sentence; a scheduler's words in it are bounded, and stay on one line."""
    if not template:
        return ""
    words = shorten(visible(reason or ""), MAX_REASON)
    if template == DEFAULT and tool == original:
        template = SAME_TOOL
    names = [shorten(visible(name), _MAX_NAME) for name in (tool, original)]
    return template.format(tool=names[0], original=names[1], reason=words, why=f" ({words})" if words else "")
