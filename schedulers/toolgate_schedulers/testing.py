"""Test a scheduler without a server: you ask the real worker over a bus in memory.

    async with trial(Limiter, config={"calls": 1}) as limiter:
        assert await limiter.ask("web_search", {"q": "x"}) == Continue()
        assert (await limiter.ask("web_search", {"q": "x"})).action == "deny"

You get the answers that an orchestrator would get: verdicts that went over the wire and back, `Failure` if
the scheduler raised or returned no verdict, `NoAnswerError` if no answer came in time. Verdicts of several
schedulers are not merged here, as only orchestrators do that.
"""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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

__all__ = ["Answer", "NoAnswerError", "NotAsked", "Question", "Trial", "question", "trial"]

PATIENCE_S = 5.0
"""Seconds that `ask` and `final` wait: longer than a busy machine takes, shorter than a hold."""

Answer = Verdict | Failure
"""Answer that an orchestrator may get from a scheduler."""
Config = Mapping[str, Any] | BaseModel | Path | None


class NoAnswerError(ToolgateError, TimeoutError):
    """No answer came in time; an orchestrator passes over an optional scheduler and denies for a required
    one."""


class NotAsked(ToolgateError, LookupError):  # noqa: N818 - it is a state of the world, not a fault
    """No orchestrator would ask this scheduler about this tool: none of its `tools` matches."""


def question(tool: str, arguments: Mapping[str, Any] | None = None, **fields: Any) -> ToolSelecting:
    """Make a question to pass to `decide` directly; `fields` are any other fields of ToolSelecting."""
    return ToolSelecting(
        **{"id": secrets.token_hex(16), "tool_name": tool, "tool_input": dict(arguments or {}), **fields}
    )


class Question:
    """Question that was asked, with the answers so far."""

    def __init__(self, call: ToolSelecting) -> None:
        self.call = call
        self.id = call.id
        """Decision id of the question: facts and holds name it."""
        self.answers: list[Answer] = []
        """Answers so far, in order."""
        self._news: asyncio.Queue[Answer] = asyncio.Queue()

    async def next(self, timeout_s: float = PATIENCE_S) -> Answer:
        """Return the next answer, in order of arrival; raise NoAnswerError after `timeout_s` seconds."""
        try:
            return await asyncio.wait_for(self._news.get(), timeout_s)
        except TimeoutError:
            raise NoAnswerError(f"{self.call.tool_name}: nothing was heard for {timeout_s:g} s") from None

    async def final(self, timeout_s: float = PATIENCE_S) -> Answer:
        """Return the next answer that is no Hold; raise NoAnswerError after `timeout_s` seconds."""
        ends = asyncio.get_running_loop().time() + timeout_s
        while isinstance(answer := await self.next(ends - asyncio.get_running_loop().time()), Hold):
            pass
        return answer

    def add_answer(self, answer: Answer) -> None:
        """Add an answer."""
        self.answers.append(answer)
        self._news.put_nowait(answer)


class Trial:
    """Running replica of a scheduler, and its asker. Made by `trial`."""

    scheduler: Scheduler
    """Scheduler in its normal form: name, priority, tools."""

    def __init__(self, written: Any, config: Config, shared: SharedState) -> None:
        self._written, self._config = written, config
        self.shared = shared
        """State that replicas share; kept over `restart`."""
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
        """Ask, and return the first answer: a verdict (perhaps a Hold), or a Failure.

        `fields` are any other fields of ToolSelecting, such as `session="s-1"`. Raise NoAnswerError after
        `timeout_s` seconds, and NotAsked for a tool that the scheduler does not name.
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
        body = asked.call.model_dump(exclude={"id", "again"})
        if asked.call.phase == "result":
            form = "text" if isinstance(asked.call.result, str) else "json"
            body |= {"result_form": form, "result": _encode_result(asked.call.result)}
        self._write(asked, "tool:selecting", body)
        return asked

    def withdraw(self, asked: Question) -> None:
        """Withdraw a question, as an orchestrator does for a cancelled call."""
        self._write(asked, "tool:withdrawn", {"phase": asked.call.phase})

    def rules_on(self, tool: str) -> bool:
        """Return whether an orchestrator would ask about this tool, by the roster."""
        return globs.either(self._bus.member.tools, tool)

    # ------------------------------------------------------------------ what else may happen

    async def restart(self, written: Any = None, *, kill: bool = False) -> None:
        """End the replica and start another on the same shared state.

        The scheduler is made anew from the class that the trial was given; if you gave an object, give
        another one here. `kill` ends the replica as `kill -9` does: the new one takes over its open
        questions, and its `stop` is not called (end the tasks that it started yourself).
        """
        if kill:
            self._bus.die()
            await self._worker.abandon()
        else:
            await self._worker.drain()
        self._written = self._written if written is None else written
        await self._start()

    async def reload(self, config: Config) -> None:
        """Reload as SIGHUP does: the new configuration decides from now on. Raise ConfigError if it is
        wrong."""
        scheduler = self._make_scheduler(config)
        await self._worker.swap(scheduler, self.shared)
        self.scheduler, self._config = scheduler, config

    def tell(self, event: str, **fields: Any) -> None:
        """Tell a fact, such as `tell("tool:post", decision_id=asked.id, success=True, cost=40_000_000)`.

        Raise TypeError if the trial was given shared state that does not accept facts.
        """
        if not isinstance(self.shared.facts, MemoryFacts):
            raise TypeError("facts can be told to make_shared_state() only")
        self.shared.facts.tell(event, **fields)

    # ------------------------------------------------------------------ inside

    def _write(self, asked: Question, event: str, body: Mapping[str, Any]) -> None:
        id_, phase = _key(asked)
        item = packing.item(id_, phase, packing.pack(body), version=packing.NEWEST)
        self._asker.ask((self.scheduler.name,), id_, item, event)

    def _make_scheduler(self, config: Config) -> Scheduler:
        name = getattr(self._written, "__name__", type(self._written).__name__)
        read = read_document(config) if isinstance(config, Path) else config
        return as_scheduler(make(self._written, name, read, "config"))

    async def _start(self) -> None:
        self.scheduler = self._make_scheduler(self._config)
        self._bus = self._hub.scheduler()
        self._worker = Worker(self.scheduler, self._bus, shared=self.shared)
        self._asker.watch([self.scheduler.name])  # answers also arrive after it has left the roster
        await self._worker.start()


class _Ears:
    """Listener of the asker: adds every answer to its question."""

    def __init__(self, questions: Mapping[tuple[bytes, int], Question]) -> None:
        self._questions = questions

    def on_verdicts(self, frames: Sequence[tuple[str, bytes]]) -> None:
        for _, frame in frames:
            for item in packing.items(frame):
                asked = self._questions.get(item[:2]) if isinstance(item, packing.Item) else None
                if asked is not None and isinstance(item, packing.Item):
                    asked.add_answer(codec.decode_verdict(item.body, item.version).verdict)

    def on_refusal(self, scheduler: str, ids: Sequence[bytes], error: str) -> None:
        """Do nothing: the bus in memory refuses no question."""

    def on_roster_change(self, members: Sequence[Member]) -> None:
        """Do nothing: there is only one scheduler."""

    def on_unconfirmed(self, scheduler: str, ids: Sequence[bytes]) -> None:
        """Do nothing: the bus in memory takes every question."""

    def on_connection(self, up: bool) -> None:
        """Do nothing: the bus in memory is always there."""

    def agents(self) -> Sequence[LiveAgent]:
        """Return nothing: no session is behind these questions."""
        return ()

    def tools(self) -> bytes:
        """Return nothing: no agent has tools here."""
        return b""

    def on_stop_order(self, order: Stop) -> Sequence[str]:
        """Return nothing: there is nothing to stop."""
        return ()

    def on_pauses(self, found: StandingPauses) -> Sequence[str]:
        """Return nothing: no session is behind these questions."""
        return ()

    def on_labels_changed(self, sessions: Sequence[str], done: Callable[[], None]) -> None:
        """Call `done`: no session is behind these questions."""
        done()

    def holds(self) -> Sequence[HoldPlace]:
        """Return nothing: holds are kept in memory."""
        return ()

    def on_lost_holds(self, lost: Sequence[HoldPlace]) -> None:
        """Do nothing: memory loses no holds."""


def _encode_result(result: Any) -> bytes:
    return (result if isinstance(result, str) else json.dumps(result)).encode()


def _key(asked: Question) -> tuple[bytes, int]:
    return bytes.fromhex(asked.id), packing.NUMBERS[asked.call.phase, asked.call.again]


@contextlib.asynccontextmanager
async def trial(
    written: Any, *, config: Config = None, shared: SharedState | None = None
) -> AsyncIterator[Trial]:
    """Run a scheduler: a class (made with `config`), an object, or a function.

    `config` is a mapping, the path of a YAML file, or an instance of the config model. Mappings and files are
    checked as `toolgate scheduler run` does it, and ConfigError names the wrong field. `shared` is the state
    that replicas share, if it must hold something at the start; default: a fresh `make_shared_state()`.
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
