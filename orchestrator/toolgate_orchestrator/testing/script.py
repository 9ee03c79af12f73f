"""Write the script of a model, step by step, and define the agents. Pure.

    Actor("lead", (calls(Use("search", {"query": "tea"})), says("Done.")), tools=("search",))

is an agent whose model first calls a tool, and then says its last words. A harness builds its framework's
agent from an `Actor`, with a scripted model that takes its answers from the actor's `Voice`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

INPUT_TOKENS: Final = 11
OUTPUT_TOKENS: Final = 7
"""Tokens that each request to a scripted model reports, if the framework can be told."""
PROVIDER: Final = "scripted"
MODEL: Final = "scripted-1"


class Use(NamedTuple):
    """Call of a tool by the model."""

    tool: str
    arguments: Mapping[str, Any] = {}
    id: str = ""
    """Id of the call; a `Voice` gives one to a call that has none."""


class Delegation(NamedTuple):
    """Task that the model gives to one of its actor's helpers: an agent that is a tool."""

    to: str
    task: str = "Help me."
    id: str = ""


class Handover(NamedTuple):
    """Handover of the conversation to one of the actor's successors."""

    to: str
    id: str = ""


class Speech(NamedTuple):
    """Answer of the model: calls, all at once, or words."""

    calls: tuple[Use | Delegation | Handover, ...] = ()
    words: str = ""


def calls(*said: Use | Delegation | Handover) -> Speech:
    """Return an answer that makes these calls."""
    return Speech(said)


def says(words: str) -> Speech:
    """Return an answer with these words only."""
    return Speech((), words)


LAST_WORDS: Final = says("Done.")


@dataclass(frozen=True, slots=True)
class Actor:
    """Agent to build with the means of the framework."""

    name: str
    script: tuple[Speech, ...] = (LAST_WORDS,)
    """Answers of its model; after the last one it says `LAST_WORDS`."""
    tools: tuple[str, ...] = ()
    """Names of the kit's tools that it has (`Toolbox`)."""
    helpers: tuple["Actor", ...] = ()
    """Agents that it can give tasks to; each is a tool, as the framework makes one from an agent."""
    successors: tuple["Actor", ...] = ()
    """Agents that it can hand the conversation over to, as the framework does."""
    is_gated: bool = True
    """False to build this one without the adapter, while the others have it."""
    late_tools: tuple[str, ...] = ()
    """Names of the kit's tools that are added after the adapter was put in, by any means of the framework."""
    tamper: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that another part of the agent writes over each call's own, as far behind the adapter as the
    framework lets a user put it (a middleware, a hook, a callback)."""
