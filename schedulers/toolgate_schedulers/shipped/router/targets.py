"""Which target a route's call goes to: by weight, and the same for all calls of one kind. Pure.

Each target draws a number from a hash of the call's key; the numbers are stretched by the weights, and
the smallest comes first (an exponential race). So a target gets its share; whoever loses one keeps the
order of the others; and a weight that grows takes calls from the others without moving any among them.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field
from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.protocol.llm import LLM_REQUEST, complete_arguments
from toolgate_bus.ruling.conditions.arguments import Arguments, Literally, Name, map_arguments
from toolgate_bus.ruling.conditions.conditions import same

from toolgate_schedulers.shipped.router.health import agent_key

Weight = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False, strict=True)]
_STICKY: Final = ("decision", "session", "tree", "agent")
_LABEL: Final = "label:"
_ALLOWED: Final = f"{', '.join(_STICKY)} or label:NAME"
_BITS: Final = 64


def _check_sticky(sticky: str) -> str:
    if sticky not in _STICKY and not (sticky.startswith(_LABEL) and sticky != _LABEL):
        raise ValueError(f"must be {_ALLOWED}")
    return sticky


Sticky = Annotated[str, Field(max_length=300, description=_ALLOWED), AfterValidator(_check_sticky)]
"""Calls of the same one of these go to the same target."""


class Target(StrictModel):
    """A tool that calls may go to, and with what arguments; or an agent, by a tool that delegates."""

    to: Name
    """Its tool; the original tool may be one of the targets."""
    weight: Weight = 1
    """Its share of the calls is its part of the sum; 0 gets none."""
    arguments: Arguments | None = None
    """As in a route."""
    agent: Name | None = None
    """As in a route."""

    def available(self, call: ToolSelecting) -> bool:
        """Whether the call's session has it."""
        return self.to in call.available_tools and (
            self.agent is None or self.agent in (call.available_agents or ())
        )

    @property
    def key(self) -> str:
        """Whose failures count: the agent's, or else the tool's."""
        return self.to if self.agent is None else agent_key(self.agent)

    @property
    def display_name(self) -> str:
        """What it is called in reasons."""
        if self.to == LLM_REQUEST:
            told = [(self.arguments or {}).get(name) for name in ("provider", "model")]
            return "/".join(str(one.value) for one in told if isinstance(one, Literally)) or self.to
        return self.agent or self.to

    def arguments_for(self, call: ToolSelecting) -> dict[str, Any] | None:
        """The arguments to run it with; None keeps those of the call."""
        return None if self.arguments is None else map_arguments(self.arguments, call.tool_input)

    def changes(self, call: ToolSelecting) -> bool:
        """Whether the call would be another one there."""
        arguments = self.arguments_for(call)
        if arguments is not None and self.to == call.tool_name == LLM_REQUEST:
            arguments = complete_arguments(call.tool_input, arguments)
        return (
            self.to != call.tool_name
            or (arguments is not None and same(arguments, call.tool_input) is not True)
            or (self.agent is not None and self.agent != call.agent_target)
        )


def key_of(sticky: str, call: ToolSelecting) -> str:
    """What the choice depends on; a call that has no session (or agent …) is chosen for by itself."""
    if sticky.startswith(_LABEL):
        own = call.labels.get(sticky.removeprefix(_LABEL))
    else:
        kinds = {"session": call.session, "tree": call.root_session, "agent": call.agent}
        own = kinds.get(sticky)
    return f"{sticky}={own}" if own else f"decision={call.id}"


def rank_targets(targets: Sequence[Target], salt: str, key: str) -> list[Target]:
    """The targets that get calls at all, the one for this key first, then whoever would come after it."""
    if len(targets) == 1:
        return list(targets)
    seen: dict[tuple[str, str | None], int] = {}
    drawn: list[tuple[float, int, Target]] = []
    for target in targets:
        # Not its place in the list, so that another one in front of it moves no calls.
        own = (target.to, target.agent)
        number = seen[own] = seen.get(own, 0) + 1
        if target.weight > 0:
            drawn.append((_draw(salt, key, *own, number) / target.weight, len(drawn), target))
    return [target for *_, target in sorted(drawn, key=lambda one: one[:2])]


def _draw(*of: Any) -> float:
    """A number from the exponential distribution, always the same for the same."""
    digest = hashlib.blake2b(repr(of).encode("utf-8", "surrogatepass"), digest_size=_BITS // 8).digest()
    return -math.log((int.from_bytes(digest) + 1) / 2**_BITS)
