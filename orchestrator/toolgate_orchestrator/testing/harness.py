"""An adapter under test: how to build an agent of its framework, run it, and hear what came of it.

Write one `Harness`, and `AdapterSuite` holds the adapter to every column of the kit. A harness says nothing
of Toolgate but where it puts the adapter in: everything else is how its framework builds an agent.
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
    """A call that waits for a person, by the framework's own human-in-the-loop."""

    id: str
    """Of the call, as the model named it."""
    tool: str
    """What would run."""
    arguments: Mapping[str, Any]
    prompt: str
    """What the person is to be asked, if the framework carries it."""


@dataclass(frozen=True)
class Conversation:
    """What came of a run."""

    answer: str = ""
    """The last words; empty where it waits for a person."""
    questions: tuple[OpenQuestion, ...] = ()
    """Calls that wait for a person: the run has ended for now."""
    events: tuple[str, ...] = ()
    """Of a stream: each event in words of your own, without anything that differs between two runs of the
    same script (ids of runs, times). A gated stream is compared with one that is not."""
    history: tuple[Any, ...] = ()
    """The messages that the framework keeps, or whatever else its final state is, as values that compare;
    again without what differs between two runs."""
    state: Any = None
    """What `resume` needs; the kit only hands it back."""


@dataclass(frozen=True)
class Scene:
    """What to build and run: actors, their tools, and the guard."""

    lead: Actor
    """The agent that is run; its helpers and successors come with it."""
    toolbox: Toolbox
    """Makes the plain functions that are the tools, and keeps which ran."""
    guard: Guard | None
    """Put the adapter in with this guard; None: build the same without the adapter."""
    session: str
    """The run's id, as the framework names one (thread, session, context); where it has none,
    `with guard.turn(guard.at(scene.session, scene.lead.name))` around the run."""
    voices: Mapping[str, Voice]
    """By actor's name: ask it what its scripted model says."""
    prompt: str = "Please begin."

    def voice(self, actor: Actor) -> Voice:
        """That of this actor."""
        return self.voices[actor.name]


class Harness(ABC):
    """One framework with its adapter. Instances are made once, and keep nothing between two scenes."""

    framework: ClassVar[str]
    """As people call it."""
    packages: ClassVar[Sequence[str]]
    """The distributions whose versions count; the first is the framework's own."""
    adapter: ClassVar[str]
    """The module of the adapter."""
    cannot: ClassVar[Mapping[str, str]] = {}
    """Columns that this framework has no place for, each with the reason, as a sentence for its users."""

    @abstractmethod
    async def run(self, scene: Scene) -> Conversation:
        """Build the agents of the scene and run the lead to its end, or until a person is to answer.

        An adapter that finds the agent cannot be gated may raise here: the kit's bypasses expect it.
        """

    async def stream(self, scene: Scene) -> Conversation:
        """The same as a stream: read it to its end, and give its `events` too."""
        raise NotImplementedError

    async def resume(
        self, scene: Scene, conversation: Conversation, answers: Mapping[str, Literal["allow", "refuse"]]
    ) -> Conversation:
        """Go on with a run that waits for a person; `answers` by the id of the call, for all of them."""
        raise NotImplementedError

    def run_sync(self, scene: Scene) -> Conversation:
        """As `run`, by the framework's blocking form; called in a thread without an event loop."""
        raise NotImplementedError

    def find_gaps(self, scene: Scene) -> Sequence[str]:
        """What the adapter, or `toolgate check`, says is not gated in this agent, without running it.

        For bypasses that the adapter cannot stop by itself: saying so counts.
        """
        return ()
