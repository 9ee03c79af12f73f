"""What can go wrong, and what to do about it: the whole tree.

- ToolgateError
  - ConfigError      the user's file or option is wrong: say so and stop
  - NoServer         no bus to join: start one or name one
  - CallDenial       a call may not run: its words are for the LLM
  - TurnStop         an operator ends an agent's turn: end it
  - CodecError       bytes from elsewhere are bad: count, acknowledge, drop; never raise into a loop
  - TransportError   the bus did not do it: try again later
    - BusDown        there is no connection now: rule by `on_bus_down`
    - OutcomeUnknown the command may or may not have run: only repeat what is idempotent by key
    - TooFewReplicas the server has fewer replicas than a write is to have: it does not count
    - Refusal        (a ConfigError too) the server is there and will not, until somebody mends something
"""

from typing import Literal

BadReason = Literal[
    "malformed", "oversize", "version", "phase", "forged", "unsolicited", "no_key", "flood", "jump"
]
"""Why bytes were refused; the `reason` label of the counters, so the set is closed."""


class ToolgateError(Exception):
    """Whatever Toolgate raises on purpose."""


class ConfigError(ToolgateError):
    """A configuration or option is wrong; the message names the field and what it allows."""


class NoServer(ToolgateError):  # noqa: N818 - it is a state of the world, not a fault
    """No bus is named and none is running."""


class CodecError(ToolgateError):
    """Bytes from elsewhere that must be dropped and counted under `reason`."""

    def __init__(self, reason: BadReason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason: BadReason = reason


class CallDenial(ToolgateError):  # noqa: N818 - a ruling, not a fault
    """A call may not run; the text is what the LLM is told."""


class TurnStop(ToolgateError):  # noqa: N818 - somebody's wish, not a fault
    """An operator ends this agent's turn."""


class TransportError(ToolgateError):
    """The bus did not do what was asked; trying again later may help."""


class BusDown(TransportError):  # noqa: N818 - it is a state of the world, not a fault
    """There is no connection to the bus at the moment."""


class OutcomeUnknown(TransportError):  # noqa: N818 - as above
    """The connection broke after the command was sent: it may have run."""


class TooFewReplicas(TransportError):  # noqa: N818 - as above
    """Fewer replicas than asked for have a write, or the server takes none for want of them."""


class Refusal(ConfigError, TransportError):  # noqa: N818 - as above
    """The server will not: no right, another type, other credentials, another node; the message says which.

    A command that begins ends with it as with any ConfigError; what runs on bears it as it bears a bus that
    is away, and goes on once somebody has mended it.
    """
