"""The live trees of agents for the page, and the orders to stop that people give on it."""

from typing import Annotated, Any, Final

from pydantic import Field
from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol.agents import LiveAgent, forest, meant, stop_of
from toolgate_bus.protocol.money import shown
from toolgate_bus.transport.redis.agents import Fleet

__all__ = ["MOST", "StopAsked", "listed", "stop"]

MOST: Final = 500
"""Agents that a page is sent; the youngest trees are left out."""

Id = Annotated[str, Field(min_length=1, max_length=256)]


class StopAsked(StrictModel):
    """What a page sends to have agents stopped."""

    session: Id | None
    """With all that work for it; None is everyone."""
    now: Annotated[bool, Field(strict=True)]
    """At once; else after the tools that run."""


async def listed(fleet: Fleet) -> dict[str, Any]:
    """Every agent behind the one it works for, oldest trees first; raises TransportError."""
    living = forest(await fleet.agents())
    return {"agents": [_told(depth, one) for depth, one in living[:MOST]], "more": len(living[MOST:])}


async def stop(fleet: Fleet, asked: StopAsked, by: str) -> dict[str, Any]:
    """Give the order; gives how many turns it means to end.

    Raises ConfigError for a session that is gone, TransportError.
    """
    living = await fleet.agents()
    ids = () if asked.session is None else (asked.session,)
    order = stop_of(living, ids, now=asked.now, by=f"{by} (console)")
    await fleet.stop(order)
    return {"turns": sum(one.doing != "idle" for one in meant(order, living))}


def _told(depth: int, one: LiveAgent) -> dict[str, Any]:
    told = one.as_json()
    return {**told, "depth": depth, "spent": shown(one.cost) if one.cost else None}
