"""Test a scheduler without a server: the real worker on the bus's twin in memory, and you ask.

    async with trial(Limiter, config={"calls": 1}) as limiter:
        assert await limiter.ask("web_search", {"q": "x"}) == Continue()
        assert (await limiter.ask("web_search", {"q": "x"})).action == "deny"

What you get is what an orchestrator would hear: verdicts that went over the wire and back, `Failure`
where the scheduler raised or gave none, `Silent` where nothing came in time. Merging the verdicts of
several schedulers is not done here: that is a decision, and an orchestrator's affair.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from toolgate_bus.config.document import read_document
from toolgate_bus.errors import ToolgateError
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.agents import LiveAgent, Stop
from toolgate_bus.protocol.events import Failure, Hold, ToolSelecting, Verdict
from toolgate_bus.protocol.pauses import StandingPauses
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.state.shared import MemoryFacts, make_shared_state
from toolgate_bus.state.shared_state import SharedState
from toolgate_bus.transport.memory import MemoryHub
from toolgate_bus.transport.ports import HoldPlace, Member

from toolgate_schedulers.author.forms import as_scheduler
from toolgate_schedulers.author.scheduler import Scheduler
from toolgate_schedulers.worker.loading import make
from toolgate_schedulers.worker.worker import Worker

__all__ = ["Answer", "NotAsked", "Question", "Silent", "Trial", "question", "trial"]

PATIENCE_S = 0.5
"""Seconds that `ask` waits, as an orchestrator does unless its config says otherwise."""
FINAL_S = 5.0
"""Seconds that `final` waits at most; nobody wants to sit through a hold of five minutes."""

Answer = Verdict | Failure
"""What an orchestrator may hear of a scheduler."""
Config = Mapping[str, Any] | BaseModel | Path | None


class Silent(ToolgateError, TimeoutError):  # noqa: N818 - the vocabulary's word for it
    """Nothing was heard in time: of an optional scheduler passed over, of a required one a denial."""


class NotAsked(ToolgateError, LookupError):  # noqa: N818 - it is a state of the world, not a fault
    """No orchestrator would ask this scheduler about this tool: its `tools` do not name it."""


def question(tool: str, arguments: Mapping[str, Any] | None = None, **fields: Any) -> ToolSelecting:
    """A question by hand, to give to `decide` directly; `fields` are any others of ToolSelecting."""
    return ToolSelecting(
        **{"id": secrets.token_hex(16), "tool_name": tool, "tool_input": dict(arguments or {}), **fields}
    )


class Question:
    """One question that was asked, and what was heard of it so far."""

    def __init__(self, call: ToolSelecting) -> None:
        self.call = call
        self.id = call.id
        """Its decision id: facts and holds name it."""
        self.answers: list[Answer] = []
        """Everything heard, in order."""
        self._news: asyncio.Queue[Answer] = asyncio.Queue()

    async def next(self, timeout_s: float = PATIENCE_S) -> Answer:
        """The next answer, in the order in which they came; raises Silent after so many seconds."""
        try:
            return await asyncio.wait_for(self._news.get(), timeout_s)
        except TimeoutError:
            raise Silent(f"{self.call.tool_name}: nothing was heard for {timeout_s:g} s") from None

    async def final(self, timeout_s: float = FINAL_S) -> Answer:
        """The next answer that is no Hold; raises Silent after so many seconds."""
        ends = asyncio.get_running_loop().time() + timeout_s
        while isinstance(answer := await self.next(ends - asyncio.get_running_loop().time()), Hold):
            pass
        return answer

    def add_answer(self, answer: Answer) -> None:
        """An answer came."""
        self.answers.append(answer)
        self._news.put_nowait(answer)


class Trial:
    """One replica of a scheduler at work, and its asker. Made by `trial`."""

    scheduler: Scheduler
    """The scheduler in its normal form: name, priority, tools."""

    def __init__(self, written: Any, config: Config, shared: SharedState) -> None:
        self._written, self._config = written, config
        self.shared = shared
        """What replicas share; kept over `restart`."""
        self._hub = MemoryHub()
        self._asker = self._hub.orchestrator()
        self._questions: dict[tuple[bytes, int], Question] = {}
        self._worker: Worker

    # ------------------------------------------------------------------ asking

    async def ask(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = PATIENCE_S,
        **fields: Any,
    ) -> Answer:
        """Ask, and give the first answer: a verdict (perhaps a Hold), or Failed.

        `fields` are any others of ToolSelecting, such as `session="s-1"`. Raises Silent after
        `timeout_s` seconds, NotAsked for a tool that the scheduler does not name.
        """
        return await self.pose(tool, arguments, timeout_s=timeout_s, **fields).next(timeout_s)

    def pose(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = PATIENCE_S,
        **fields: Any,
    ) -> Question:
        """Ask without waiting: for holds and their final answers, and for many questions at a time."""
        if not self.rules_on(tool):
            globs_ = " ".join(self._bus.member.tools)
            raise NotAsked(f"{self.scheduler.name} rules on {globs_}, not on {tool}")
        asked = Question(question(tool, arguments, **{"ttl_ms": round(timeout_s * 1000), **fields}))
        self._questions[_key(asked)] = asked
        left_out = {"id", "again"} if asked.call.request else {"id", "again", "request"}
        self._write(asked, "tool:selecting", asked.call.model_dump(exclude=left_out))
        return asked

    def withdraw(self, asked: Question) -> None:
        """Say that nobody waits any longer, as an orchestrator does where the call was cancelled."""
        self._write(asked, "tool:withdrawn", {"phase": asked.call.phase})

    def rules_on(self, tool: str) -> bool:
        """Whether an orchestrator would ask about this tool, by what the roster says."""
        return globs.either(self._bus.member.tools, tool)

    # ------------------------------------------------------------------ what else may happen

    async def restart(self, written: Any = None, *, kill: bool = False) -> None:
        """End the replica and start another on the same shared state.

        It is made anew from the class that the trial was given; where that was an object, give
        another. `kill` ends it as `kill -9` does: what it had in hand is taken over, and its `stop` is
        not called (tasks that it started live on: end them yourself).
        """
        if kill:
            self._bus.die()
            await self._worker.abandon()
        else:
            await self._worker.drain()
        self._written = self._written if written is None else written
        await self._start()

    async def reload(self, config: Config) -> None:
        """What SIGHUP does: the new configuration decides from now on. Raises ConfigError if it is wrong."""
        scheduler = self._make_scheduler(config)
        await self._worker.swap(scheduler, self.shared)
        self.scheduler, self._config = scheduler, config

    def tell(self, event: str, **fields: Any) -> None:
        """Tell a fact, such as `tell("tool:post", decision_id=asked.id, success=True, cost=40_000_000)`.

        Raises TypeError where the trial was given shared state whose facts are not for telling.
        """
        if not isinstance(self.shared.facts, MemoryFacts):
            raise TypeError("facts can be told to make_shared_state() only")
        self.shared.facts.tell(event, **fields)

    # ------------------------------------------------------------------ inside

    def _write(self, asked: Question, event: str, body: Mapping[str, Any]) -> None:
        id_, phase = _key(asked)
        is_old = phase in packing.KNOWN_PHASES[packing.VERSION] and not asked.call.request
        version = packing.VERSION if is_old else packing.NEWEST
        item = packing.item(id_, phase, packing.pack(body), version=version)
        self._asker.ask((self.scheduler.name,), id_, item, event)

    def _make_scheduler(self, config: Config) -> Scheduler:
        name = getattr(self._written, "__name__", type(self._written).__name__)
        read = read_document(config) if isinstance(config, Path) else config
        return as_scheduler(make(self._written, name, read, "config"))

    async def _start(self) -> None:
        self.scheduler = self._make_scheduler(self._config)
        self._bus = self._hub.scheduler()
        self._worker = Worker(self.scheduler, self._bus, shared=self.shared)
        self._asker.watch([self.scheduler.name])  # what is in hand is also heard when it leaves
        await self._worker.start()


class _Ears:
    """The asker's listener: gives every answer to its question."""

    def __init__(self, questions: Mapping[tuple[bytes, int], Question]) -> None:
        self._questions = questions

    def on_verdicts(self, frames: Sequence[tuple[str, bytes]]) -> None:
        for _, frame in frames:
            for item in packing.items(frame):
                asked = self._questions.get(item[:2]) if isinstance(item, packing.Item) else None
                if asked is not None and isinstance(item, packing.Item):
                    asked.add_answer(codec.decode_verdict(item.body, item.version).verdict)

    def on_refusal(self, scheduler: str, ids: Sequence[bytes], error: str) -> None:
        """The twin in memory refuses nothing."""

    def on_roster_change(self, members: Sequence[Member]) -> None:
        """Nothing to learn: there is but one scheduler."""

    def on_unconfirmed(self, scheduler: str, ids: Sequence[bytes]) -> None:
        """Memory takes each question."""

    def on_connection(self, up: bool) -> None:
        """The twin in memory is always there."""

    def agents(self) -> Sequence[LiveAgent]:
        """No session is behind these questions."""
        return ()

    def tools(self) -> bytes:
        """No agent has tools here."""
        return b""

    def on_stop_order(self, order: Stop) -> Sequence[str]:
        """There is nothing to stop."""
        return ()

    def on_pauses(self, found: StandingPauses) -> Sequence[str]:
        """No session is behind these questions."""
        return ()

    def holds(self) -> Sequence[HoldPlace]:
        """What is held here is kept in memory."""
        return ()

    def on_lost_holds(self, lost: Sequence[HoldPlace]) -> None:
        """Memory forgets nothing."""


def _key(asked: Question) -> tuple[bytes, int]:
    return bytes.fromhex(asked.id), packing.NUMBERS[asked.call.phase, asked.call.again]


@contextlib.asynccontextmanager
async def trial(
    written: Any, *, config: Config = None, shared: SharedState | None = None
) -> AsyncIterator[Trial]:
    """A scheduler at work: a class (made with `config`), an object, or a function.

    `config` is a mapping, or the path of a YAML file, checked as `toolgate scheduler run` does it
    (ConfigError names the field); or an instance of the config model. `shared` is the state that
    replicas share, if it is to begin with something; a fresh `make_shared_state()` otherwise.
    """
    here = Trial(written, config, shared or make_shared_state())
    here._asker.listen(_Ears(here._questions))
    await here._asker.start()
    await here._start()
    try:
        yield here
    finally:
        await here._worker.drain()
        await here._asker.aclose()
