"""How a program asks a person, and what it may give as the answer."""

import asyncio
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from toolgate_bus.protocol.events import AskUser, ToolQuestion

    from toolgate_orchestrator.decision.gate import Answer, Ask


AskHow = Callable[["AskUser", "ToolQuestion"], Any] | Literal["defer"] | None
"""Now: a function, async or not, that gives an `Answer` or a bool. Later: `defer`."""
_ANSWERS: Final[tuple["Answer", ...]] = ("allow", "refuse", "expired", "no_approver")


class AskExit(Exception):  # noqa: N818 - control flow of this room
    """Who was to ask was left by what is no `Exception`: the question is withdrawn before that goes on."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error


def answer_of(said: Any) -> "Answer":
    """What such a function said, as the gate takes it: anything unknown is no."""
    if said is True:
        return "allow"
    return next((one for one in _ANSWERS if one == said), "refuse")


def as_gate_asks(how: AskHow) -> "Ask | Literal['defer'] | None":
    """The same, as a gate in this event loop takes it."""
    if how is None or how == "defer":
        return how
    function = how

    async def ask(asked: "AskUser", call: "ToolQuestion") -> "Answer":
        try:
            said = function(asked, call)
            return answer_of(await said if inspect.isawaitable(said) else said)
        except (Exception, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            raise AskExit(error) from error

    return ask
