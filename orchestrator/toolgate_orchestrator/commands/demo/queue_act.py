"""The third act: more calls than the tool can do at a time, of three teams, and one that is urgent.

A fourth scheduler process, `slots`, gives two slots; the calls are an own loop's, at a Gate.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.text import Text
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.telemetry.printable import visible

from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes
from toolgate_orchestrator.commands.host.toolgate_command import Command, run_toolgate
from toolgate_orchestrator.gate.gate import Gate

LIMIT: Final = 2
POOL: Final = """\
pools:
  - name: renderer
    tools: render
    limit: 2
    wait_s: 60
    share: {by: "label:team", weights: {gold: 2}, default: 1}
    priority: {by: "label:class", classes: {urgent: 1}}
"""
TEAMS: Final = ("gold", "gold", "gold", "gold", "silver", "silver", "bronze", "bronze")
KEPT_S: Final = 0.15
PATIENCE_MS: Final = 10_000
Line = Callable[..., None]


@dataclass(slots=True)
class RenderCall:
    """A call that wants one of the slots."""

    team: str
    scene: int
    urgent: bool = False
    place: str = ""
    """What it was told when it had to wait."""
    turn: int = 0
    """The number that came with its slot: the how-manieth to get one."""

    @property
    def who(self) -> str:
        """As it is shown."""
        return f"{self.team}, scene {self.scene}{' (urgent)' if self.urgent else ''}"


@dataclass(slots=True)
class QueueStory:
    """What came of the third act."""

    calls: list[RenderCall] = field(default_factory=list)
    looked: Command | None = None
    most: int = 0
    """So many ran at a time."""

    @property
    def order(self) -> list[RenderCall]:
        """Those that ran, as they did."""
        return sorted((one for one in self.calls if one.turn), key=lambda one: one.turn)


async def run_queue(directory: Path, bus: BusSettings, line: Line) -> QueueStory:
    """Have them ask, look at who waits, and let them run."""
    config = directory / "slots.yaml"
    config.write_text(POOL)
    own = BusSettings(redis=bus.redis, namespace=f"{bus.namespace}-queue")  # nobody of the other acts rules
    _open(line)
    async with (
        scheduler_processes([SchedulerSpec("slots", config)], own),
        Gate.open(
            redis=str(own.redis), namespace=own.namespace, required=["slots"], patience_ms=PATIENCE_MS
        ) as gate,
    ):
        act = _QueueAct(gate, line)
        try:
            for scene, team in enumerate(TEAMS, 1):
                await act.ask(RenderCall(team, scene))
            await act.ask(RenderCall("bronze", len(TEAMS) + 1, urgent=True))
            act.story.looked = await run_toolgate(own, "queue")
            _show_command(line, act.story.looked)
            act.may_end.set()
            await asyncio.gather(*act.running)
        finally:
            for task in act.running:
                task.cancel()
    _close(line, act.story)
    return act.story


@dataclass(slots=True)
class _QueueAct:
    gate: Gate
    line: Line
    story: QueueStory = field(default_factory=QueueStory)
    running: list[asyncio.Task[None]] = field(default_factory=list)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    _now: int = 0

    async def ask(self, call: RenderCall) -> None:
        """Ask for a slot; comes back once it has one, or waits."""
        self.story.calls.append(call)
        settled = asyncio.Event()
        self.running.append(asyncio.create_task(self._run(call, settled)))
        await settled.wait()

    async def _run(self, call: RenderCall, settled: asyncio.Event) -> None:
        def wait(held: Any) -> None:
            call.place = str(held.reason)
            self.line(f"  {call.who:<28} {visible(call.place)}")
            settled.set()

        labels = {"team": call.team, "class": "urgent" if call.urgent else "batch"}
        arguments = {"scene": call.scene}
        try:
            decision = await self.gate.decide(
                "render", arguments, ["render"], on_hold=wait, labels=labels, agent=call.team
            )
        finally:
            settled.set()
        if not decision.allowed:
            self.line(f"  {call.who:<28} denied: {visible(str(decision.reason))}")
            return
        self._now += 1
        self.story.most = max(self.story.most, self._now)
        call.turn = decision.grants.get("slots", 0)
        self.line(f"  {call.who:<28} has a slot (number {call.turn}) and runs")
        await self.may_end.wait()
        await asyncio.sleep(KEPT_S)
        self._now -= 1
        self.gate.note("tool:post", {"decision_id": decision.id, "tool": "render", "success": True})


def _open(line: Line) -> None:
    line()
    line("Act three: a queue", style="bold")
    line(
        f"A renderer can do {LIMIT} scenes at a time. Three teams want more; gold counts twice. The "
        "scheduler slots, a process of its own, has calls wait for their turn instead of denying them."
    )
    line()


def _show_command(line: Line, command: Command) -> None:
    line()
    line("Somebody in another terminal looks at who waits, and in which place:")
    line()
    line(Text.assemble(("     $ ", "dim"), (command.line, "bold")))
    for each in command.output.splitlines():
        line(f"     {visible(each)}")
    line()
    line("The first two are done, and each that ends gives its slot to the next:")
    line()


def _close(line: Line, story: QueueStory) -> None:
    turns = ", ".join(f"{one.team}{' (urgent)' if one.urgent else ''}" for one in story.order)
    ran = f"{len(story.order)} calls ran, never more than {story.most} at a time: {turns}."
    line()
    line(Text.assemble(("Summary: ", "bold"), ran))


def queue_promises(story: QueueStory | None) -> dict[str, bool]:
    """What the third act promises to show, and whether it happened."""
    order = story.order if story is not None else []
    waited = [one for one in order if one.place]
    return {
        "never more at a time than there are slots": story is not None and story.most == LIMIT,
        "calls that waited for their turn, and none denied": len(waited) == len(TEAMS) + 1 - LIMIT,
        "the urgent call before all that waited": bool(waited) and waited[0].urgent,
        "a look at who waits": story is not None and story.looked is not None and story.looked.code == 0,
    }


def queue_record(story: QueueStory) -> dict[str, Any]:
    """The third act as plain values."""
    return {
        "most_at_a_time": story.most,
        "calls": [
            {
                "team": one.team,
                "scene": one.scene,
                "urgent": one.urgent,
                "told": one.place,
                "turn": one.turn,
            }
            for one in story.calls
        ],
        "look": story.looked and {"command": story.looked.line, "output": story.looked.output},
    }
