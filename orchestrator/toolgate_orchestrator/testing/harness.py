"""Describe an adapter under test: build an agent of its framework, run it, and return the outcome.

Write one `Harness`, and `AdapterSuite` tests the adapter on every column of the kit. The only part of a
harness that knows Toolgate is the one that puts the adapter in. Everything else builds and runs an agent of
the framework.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.testing.script import Actor
from toolgate_orchestrator.testing.toolbox import Toolbox
from toolgate_orchestrator.testing.voice import Voice


class OpenQuestion(NamedTuple):
    """Call that waits for a person, in the framework's own human-in-the-loop."""

    id: str
    """Id of the call, as the model named it."""
    tool: str
    """Tool that would run."""
    arguments: Mapping[str, Any]
    prompt: str
    """Question for the person, if the framework carries it."""


@dataclass(frozen=True)
class Conversation:
    """Outcome of a run."""

    answer: str = ""
    """Last words; empty if it waits for a person."""
    questions: tuple[OpenQuestion, ...] = ()
    """Calls that wait for a person: the run has ended for now."""
    events: tuple[str, ...] = ()
    """Events of a stream, each in words of your own, without anything that differs between two runs of the
    same script (ids of runs, times). A gated stream is compared with an ungated one."""
    history: tuple[Any, ...] = ()
    """Messages that the framework keeps, or its other final state, as values that compare; again without
    anything that differs between two runs."""
    state: Any = None
    """Data for `resume`; the kit only hands them back."""


@dataclass(frozen=True)
class Scene:
    """Scene to build and run: actors, their tools, and the guard."""

    lead: Actor
    """Agent to run; its helpers and successors come with it."""
    toolbox: Toolbox
    """Toolbox that makes the plain functions for the tools, and records the calls that ran."""
    guard: Guard | None
    """Guard for the adapter; None: build the same without the adapter."""
    session: str
    """Id of the run, as the framework names one (thread, session, context). If it has none, put `with
    guard.turn(guard.at(scene.session, scene.lead.name))` around the run."""
    voices: Mapping[str, Voice]
    """Voices by actor's name: ask one for the next answer of its scripted model."""
    prompt: str = "Please begin."

    def voice(self, actor: Actor) -> Voice:
        """Return the voice of this actor."""
        return self.voices[actor.name]


class Harness(ABC):
    """Framework with its adapter. An instance is made once, and keeps nothing between two scenes."""

    framework: ClassVar[str]
    """Name of the framework, for people."""
    packages: ClassVar[Sequence[str]]
    """Distributions whose versions count; the first is the framework's own."""
    adapter: ClassVar[str]
    """Module of the adapter."""
    cannot: ClassVar[Mapping[str, str]] = {}
    """Columns that this framework cannot have, each with the reason, as a sentence for its users."""

    @abstractmethod
    async def run(self, scene: Scene) -> Conversation:
        """Build the agents of the scene and run the lead to its end, or until a person must answer.

        An adapter that finds that the agent cannot be gated may raise here: the kit's bypasses expect it.
        """

    async def stream(self, scene: Scene) -> Conversation:
        """Run the scene as a stream: read it to its end, and return its `events`, too."""
        raise NotImplementedError

    async def resume(
        self, scene: Scene, conversation: Conversation, answers: Mapping[str, Literal["allow", "refuse"]]
    ) -> Conversation:
        """Go on with a run that waits for a person; `answers` holds all answers, by the id of the call."""
        raise NotImplementedError

    def run_sync(self, scene: Scene) -> Conversation:
        """Do the same as `run` in the framework's blocking form; called in a thread without an event loop."""
        raise NotImplementedError

    def find_gaps(self, scene: Scene) -> Sequence[str]:
        """Return the gaps that the adapter, or `toolgate check`, finds in this agent without running it.

        For bypasses that the adapter cannot stop by itself, reporting a gap is enough.
        """
        return ()
