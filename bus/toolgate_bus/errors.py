"""All errors that Toolgate raises on purpose, and what to do about each.

- ToolgateError
  - ConfigError      the user's file or option is wrong; say so and stop
  - NoServer         there is no bus to join; start one or name one
  - CallDenial       a call may not run; the message is for the LLM
  - TurnStop         an operator ends an agent's turn; end it
  - CodecError       bytes from another process are invalid; count, acknowledge and drop them; end no loop
  - TransportError   the bus did not carry out a command; try again later
    - BusDown        there is no connection to the bus; decide by `on_bus_down`
    - OutcomeUnknown the command may or may not have run; repeat it only if it is idempotent by key
    - TooFewReplicas fewer replicas than required have a write; it does not count
    - Refusal        (a ConfigError too) the server refuses, until somebody changes its settings or ours
"""

from typing import Literal

BadReason = Literal[
    "malformed", "oversize", "version", "phase", "forged", "unsolicited", "no_key", "flood", "jump"
]
"""Reasons for which bytes are refused. They are the values of the counters' label `reason`: a closed set."""


class ToolgateError(Exception):
    """Base class of all errors that Toolgate raises on purpose."""


class ConfigError(ToolgateError):
    """Error in a configuration or an option. The message names the field and the values it allows."""


class NoServer(ToolgateError):  # noqa: N818 - it is a state of the world, not a fault
    """Error because no server is named and none is running."""


class CodecError(ToolgateError):
    """Error in bytes from another process. They are dropped, and counted under `reason`."""

    def __init__(self, reason: BadReason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason: BadReason = reason


class CallDenial(ToolgateError):  # noqa: N818 - a ruling, not a fault
    """Decision that a call may not run. The message is the text for the LLM."""


class TurnStop(ToolgateError):  # noqa: N818 - somebody's wish, not a fault
    """Order of an operator to end this agent's turn."""


class TransportError(ToolgateError):
    """Error because the bus did not carry out a command. A later attempt may succeed."""


class BusDown(TransportError):  # noqa: N818 - it is a state of the world, not a fault
    """Error because there is no connection to the bus at the moment."""


class OutcomeUnknown(TransportError):  # noqa: N818 - as above
    """Error because the connection broke after a command was sent. The command may have run."""


class TooFewReplicas(TransportError):  # noqa: N818 - as above
    """Error because a write reached too few replicas, or the server refuses writes because it has too few."""


class Refusal(ConfigError, TransportError):  # noqa: N818 - as above
    """Refusal by the server: missing right, key of another type, wrong credentials, or wrong node.

    The message says which. A command that is starting ends with this error, as with any ConfigError.
    A running process treats it like a bus that is away, and goes on once somebody has fixed it.
    """
