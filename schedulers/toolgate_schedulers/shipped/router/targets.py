"""Choose the target of a route's call: by weight, and the same for all calls with one key. Pure.

Each target draws a number from a hash of the call's key. The numbers are divided by the weights, and
the smallest comes first (an exponential race). So each target gets its share. Without one target the
others keep their order. A weight that grows takes calls from the others and moves none among them.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Annotated, Any, Final

from pydantic import Field
from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.protocol.llm import LLM_REQUEST, complete_arguments
from toolgate_bus.ruling.conditions.arguments import Arguments, LiteralArgument, Name, map_arguments
from toolgate_bus.ruling.conditions.conditions import same

from toolgate_schedulers.shipped.score.outcomes import agent_key, model_key

Weight = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False, strict=True)]
_BITS: Final = 64


class Target(StrictModel):
    """Tool that calls may go to, with its arguments; or an agent, by a tool that delegates."""

    to: Name
    """Tool to run. The original tool may be one of the targets."""
    weight: Weight = 1
    """Weight; the target's share of the calls is its part of the sum. 0 gets none."""
    arguments: Arguments | None = None
    """Arguments, as in a route."""
    agent: Name | None = None
    """Agent to ask, as in a route."""

    def available(self, call: ToolSelecting) -> bool:
        """Return whether the call's session has this tool, and the agent."""
        return self.to in call.available_tools and (
            self.agent is None or self.agent in (call.available_agents or ())
        )

    @property
    def key(self) -> str:
        """Key of its outcomes: the agent's, the model's, or else the tool's."""
        if self.to == LLM_REQUEST:
            told = (self.arguments or {}).items()
            return model_key({name: one.value for name, one in told if isinstance(one, LiteralArgument)})
        return self.to if self.agent is None else agent_key(self.agent)

    @property
    def display_name(self) -> str:
        """Name in reasons."""
        if self.to == LLM_REQUEST:
            told = [(self.arguments or {}).get(name) for name in ("provider", "model")]
            return "/".join(str(one.value) for one in told if isinstance(one, LiteralArgument)) or self.to
        return self.agent or self.to

    def arguments_for(self, call: ToolSelecting) -> dict[str, Any] | None:
        """Return the arguments to run it with; None keeps those of the call."""
        return None if self.arguments is None else map_arguments(self.arguments, call.tool_input)

    def changes(self, call: ToolSelecting) -> bool:
        """Return whether the call would be another one there."""
        arguments = self.arguments_for(call)
        if arguments is not None and self.to == call.tool_name == LLM_REQUEST:
            arguments = complete_arguments(call.tool_input, arguments)
        return (
            self.to != call.tool_name
            or (arguments is not None and same(arguments, call.tool_input) is not True)
            or (self.agent is not None and self.agent != call.agent_target)
        )


def rank_targets(targets: Sequence[Target], salt: str, key: str) -> list[Target]:
    """Return the targets with a weight above 0: first the target for this key, then the next ones in turn."""
    if len(targets) == 1:
        return list(targets)
    seen: dict[tuple[str, str | None], int] = {}
    drawn: list[tuple[float, int, Target]] = []
    for target in targets:
        # Leave out its place in the list, so that a new target before it moves no calls.
        own = (target.to, target.agent)
        number = seen[own] = seen.get(own, 0) + 1
        if target.weight > 0:
            drawn.append((_draw(salt, key, *own, number) / target.weight, len(drawn), target))
    return [target for *_, target in sorted(drawn, key=lambda one: one[:2])]


def _draw(*of: Any) -> float:
    """Return a number from the exponential distribution that depends on nothing but the arguments."""
    digest = hashlib.blake2b(repr(of).encode("utf-8", "surrogatepass"), digest_size=_BITS // 8).digest()
    return -math.log((int.from_bytes(digest) + 1) / 2**_BITS)
