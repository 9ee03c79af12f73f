"""All errors that Toolgate raises on purpose, and what to do about each.

- ToolgateError
  - ConfigError      the user's file or option is wrong: say so and stop
  - NoServer         no bus to join: start one or name one
  - CallDenial       a call may not run: its words are for the LLM
  - TurnStop         an operator ends an agent's turn: end it
  - CodecError       bytes from elsewhere are bad: count, acknowledge, drop; never raise into a loop
  - TransportError   the bus did not do it: try again later
    - BusDown        there is no connection now: decide by `on_bus_down`
    - OutcomeUnknown the command may or may not have run: only repeat what is idempotent by key
    - TooFewReplicas fewer replicas than required have a write: it does not count
    - Refusal        (a ConfigError too) the server refuses, until somebody changes its settings or ours
"""

from typing import Literal

BadReason = Literal[
    "malformed", "oversize", "version", "phase", "forged", "unsolicited", "no_key", "flood", "jump"
]
"""Reasons why bytes are refused. The counters' label `reason` has these values, so the set is closed."""


class ToolgateError(Exception):
    """Base class of all errors that Toolgate raises on purpose."""


class ConfigError(ToolgateError):
    """Error in a configuration or an option. The message names the field and the values it allows."""


class NoServer(ToolgateError):  # noqa: N818 - it is a state of the world, not a fault
    """No bus is named and none is running."""


class CodecError(ToolgateError):
    """Bytes from another process that are refused. They are dropped, and counted under `reason`."""

    def __init__(self, reason: BadReason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason: BadReason = reason


class CallDenial(ToolgateError):  # noqa: N818 - a ruling, not a fault
    """Ruling that a call may not run. The message is the text for the LLM."""


class TurnStop(ToolgateError):  # noqa: N818 - somebody's wish, not a fault
    """Order of an operator that this agent's turn ends."""


class TransportError(ToolgateError):
    """The bus did not carry out a command. A later attempt may succeed."""


class BusDown(TransportError):  # noqa: N818 - it is a state of the world, not a fault
    """There is no connection to the bus at the moment."""


class OutcomeUnknown(TransportError):  # noqa: N818 - as above
    """The connection broke after the command was sent: it may have run."""


class TooFewReplicas(TransportError):  # noqa: N818 - as above
    """A write reached fewer replicas than required, or the server takes no writes because it has too few."""


class Refusal(ConfigError, TransportError):  # noqa: N818 - as above
    """The server refuses: no right, a key of another type, wrong credentials or node. The message says which.

    A command that is starting ends with it, as with any ConfigError. A running process treats it like
    a bus that is away, and goes on once somebody has fixed it.
    """
