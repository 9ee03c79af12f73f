"""`toolgate decisions`: the record of decisions, with every verdict; and what shadows would have changed."""

import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, cast

import typer

from toolgate_bus.cli_options import (
    JsonOption,
    KeysOption,
    NamespaceOption,
    RedisOption,
    console,
    err_console,
    joined_bus,
    run_async,
)
from toolgate_bus.decisions_view import print_decision, print_disagreements, print_totals
from toolgate_bus.disagreements import Disagreement, disagreements, shadow_totals
from toolgate_bus.errors import CodecError
from toolgate_bus.facts_reader import FactsReader
from toolgate_bus.gathered import Gathering, gathered
from toolgate_bus.redis_link import RedisCommands
from toolgate_bus.settings import BusSettings

__all__ = ["decisions"]

Fact = dict[str, Any]

TAIL: Final = 10
REMEMBERED: Final = 10_000
"""Decisions that --follow remembers: a shadow may speak after them."""


def decisions(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with those that come.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Only the newest N (0: all; with --follow: 10).")] = 0,
    shadow: Annotated[
        bool,
        typer.Option(
            "--shadow", help="Only those that a shadow would have changed; what it would have, and totals."
        ),
    ] = False,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only what this one gave a verdict on (--shadow: would change)."),
    ] = None,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what was decided, with every verdict.

    \b
      toolgate decisions --limit 20
      toolgate decisions --follow --scheduler policy
      toolgate decisions --shadow        what rehearsing schedulers would change

    Oldest first. Arguments stand as they left the agent's process: redacted values
    are placeholders. The record keeps one hour. With --json, one object a line.

    --shadow compares each decision with what it would have been, had the shadow
    counted: it would veto, reroute, have a person asked (ask), hold without a final
    answer, or allow what was denied. A replacement that the other schedulers were
    not asked about is marked: one of them might still have denied it. With --json
    each decision has its `disagreements`; the last line has the `totals` of each
    shadow over all decisions of the record (not with --follow).
    """
    wanted = _Wanted(shadow, scheduler, as_json)
    with joined_bus(redis, namespace, keys) as settings:
        run_async(lambda: _show(settings, wanted, follow, limit))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which decisions are shown, and how."""

    shadow: bool
    scheduler: str | None
    as_json: bool
    told: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    """What was shown already, by decision: shadow and change."""

    def wants(self, decision: Fact) -> bool:
        """Whether a decision is to be shown."""
        if self.shadow:
            return bool(_changes(decision, self.scheduler))
        return self.scheduler is None or any(
            isinstance(one, dict) and one.get("scheduler") == self.scheduler for one in decision["verdicts"]
        )

    def show(self, decision: Fact) -> None:
        """Print a decision that is wanted; with --shadow only if there is something new to say of it."""
        found = _changes(decision, self.scheduler) if self.shadow else []
        news = {(one.scheduler, one.change) for one in found} - self.told.get(decision["id"], set())
        if self.shadow and not news:
            return
        self.told.setdefault(decision["id"], set()).update(news)
        if self.as_json:
            more = {"disagreements": [one.as_json() for one in found]} if self.shadow else {}
            typer.echo(json.dumps({**decision, **more}, ensure_ascii=False, default=repr))
        else:
            print_decision(console, decision)
            print_disagreements(console, found)

    def totals(self, kept: Iterable[Fact]) -> None:
        """Print the totals of shadows."""
        totals = {name: one for name, one in shadow_totals(kept).items() if self.scheduler in (None, name)}
        if self.as_json:
            figures = {name: one.as_json() for name, one in totals.items()}
            typer.echo(json.dumps({"totals": figures}, ensure_ascii=False))
        elif totals:
            print_totals(console, totals)
        else:
            who = f"The shadow {self.scheduler}" if self.scheduler else "No shadow"
            err_console.print(
                f"{who} gave no verdict in the record. Start one: toolgate scheduler run NAME --shadow"
            )


async def _show(settings: BusSettings, wanted: _Wanted, follow: bool, limit: int) -> None:
    commands = RedisCommands(str(settings.redis), "toolgate-decisions")
    reader = FactsReader(commands, settings.namespace)
    try:
        facts = await reader.kept()
        kept = gathered(facts)
        shown = [one for one in kept if wanted.wants(one)]
        newest = limit or (TAIL if follow else len(shown))
        for decision in shown[len(shown) - min(newest, len(shown)) :]:
            wanted.show(decision)
        if follow:
            await _follow(reader, wanted, facts)
        elif wanted.shadow:
            wanted.totals(kept)
        elif not kept and not wanted.as_json:
            err_console.print("No decisions yet. `toolgate decisions --follow` waits for them.")
    finally:
        await reader.leave()
        await commands.aclose()


async def _follow(reader: FactsReader, wanted: _Wanted, facts: Iterable[Fact]) -> None:
    """Show decisions as they come; with --shadow also those about which a shadow speaks only now."""
    gathering = Gathering(REMEMBERED)
    for fact in facts:
        gathering.take(fact)
    async with aclosing(cast("AsyncGenerator[Fact, None]", reader.follow())) as coming:
        async for fact in coming:
            decision = gathering.take(fact)
            new = fact["event"] == "decision" or wanted.shadow
            if decision is not None and new and wanted.wants(decision):
                wanted.show(decision)


def _changes(decision: Fact, scheduler: str | None) -> list[Disagreement]:
    """What shadows, or this one, would have changed; nothing where it cannot be compared."""
    try:
        found = disagreements(decision)
    except CodecError:
        return []
    return [one for one in found if scheduler in (None, one.scheduler)]
