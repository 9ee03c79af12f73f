"""What the model of an agent says, step by step, and who the agents are. Pure.

    Actor("lead", (calls(Use("search", {"query": "tea"})), says("Done.")), tools=("search",))

is an agent whose model first calls a tool, and then has its last words. A harness builds its framework's
agent from an `Actor`, with a scripted model that says what the actor's `Voice` tells it to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

INPUT_TOKENS: Final = 11
OUTPUT_TOKENS: Final = 7
"""What each request to a scripted model is said to have used, where the framework can be told."""
PROVIDER: Final = "scripted"
MODEL: Final = "scripted-1"


class Use(NamedTuple):
    """The model calls a tool."""

    tool: str
    arguments: Mapping[str, Any] = {}
    id: str = ""
    """The call's id; a `Voice` gives one to a call that has none."""


class Delegation(NamedTuple):
    """The model gives a task to one of its actor's helpers: an agent that is a tool."""

    to: str
    task: str = "Help me."
    id: str = ""


class Handover(NamedTuple):
    """The model hands the conversation over to one of its actor's successors."""

    to: str
    id: str = ""


class Speech(NamedTuple):
    """One answer of the model: calls, all at once, or words."""

    calls: tuple[Use | Delegation | Handover, ...] = ()
    words: str = ""


def calls(*said: Use | Delegation | Handover) -> Speech:
    """The model makes these calls in one answer."""
    return Speech(said)


def says(words: str) -> Speech:
    """The model says this, and no more."""
    return Speech((), words)


LAST_WORDS: Final = says("Done.")


@dataclass(frozen=True, slots=True)
class Actor:
    """An agent to be built with the means of the framework."""

    name: str
    script: tuple[Speech, ...] = (LAST_WORDS,)
    """What its model says; who has said everything says `LAST_WORDS`."""
    tools: tuple[str, ...] = ()
    """The kit's tools that it has (`Toolbox`)."""
    helpers: tuple["Actor", ...] = ()
    """Agents that it can give tasks to: each a tool of it, as the framework makes a tool of an agent."""
    successors: tuple["Actor", ...] = ()
    """Agents that it can hand the conversation over to, as the framework does."""
    is_gated: bool = True
    """False: this one is built without the adapter, while the others have it."""
    late_tools: tuple[str, ...] = ()
    """The kit's tools that are added after the adapter was put in, by whatever means the framework has."""
    tamper: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that something else in the agent writes over each call's own, put as far behind the adapter
    as the framework lets its user put it (a middleware, a hook, a callback)."""
