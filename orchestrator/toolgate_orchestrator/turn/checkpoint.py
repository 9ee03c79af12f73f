"""Durable checkpoints: the host saves the conversation once the results of a response are stored.

The host's capability `session.durable_checkpoint` is awaited before the next request to the LLM. If it fails,
or returns False, the turn ends: later requests would build on a history that is stored nowhere.
"""

import inspect
from typing import Any, Final

from toolgate_bus.errors import ToolgateError

CHECKPOINT: Final = "session.durable_checkpoint"
"""Capability of the host: a function without arguments, synchronous or not."""


class CheckpointFailure(ToolgateError, RuntimeError):  # noqa: N818 - named by what happened
    """The host could not save the conversation; the turn ends before another request."""


async def save_checkpoint(coordinator: Any) -> None:
    """Have the host save the conversation, if it can. Raise CheckpointFailure."""
    look_up = getattr(coordinator, "get_capability", None)
    save = look_up(CHECKPOINT) if callable(look_up) else None
    if save is None:
        return
    try:
        if not callable(save):
            raise TypeError(f"{CHECKPOINT} is not a function")
        done = save()
        if inspect.isawaitable(done):
            done = await done
        if done is False:
            raise RuntimeError("the host reported that it did not save")
    except Exception as error:
        raise CheckpointFailure(f"Durable session checkpoint failed: {error}") from error
