"""The way in which a program asks a person, and the answers that it may give."""

import asyncio
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from toolgate_bus.protocol.events import AskUser, ToolQuestion

    from toolgate_orchestrator.decision.gate import Answer, Ask


AskHow = Callable[["AskUser", "ToolQuestion"], Any] | Literal["defer"] | None
"""A function, async or not, that returns an `Answer` or a bool; or `defer` if the answer comes later."""
_ANSWERS: Final[tuple["Answer", ...]] = ("allow", "refuse", "expired", "no_approver")


class AskExit(Exception):  # noqa: N818 - control flow of this package
    """An exception that is no `Exception` left the function that asks; the question is withdrawn first."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error


def answer_of(said: Any) -> "Answer":
    """Return the function's answer as the gate takes it. Anything unknown is a refusal."""
    if said is True:
        return "allow"
    return next((one for one in _ANSWERS if one == said), "refuse")


def as_gate_asks(how: AskHow) -> "Ask | Literal['defer'] | None":
    """Return the same way to ask, as a gate in this event loop takes it."""
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
