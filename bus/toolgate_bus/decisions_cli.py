"""`toolgate decisions`: the record of decisions, with every verdict."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Any, cast

import typer
from rich.markup import escape

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
from toolgate_bus.facts_reader import FactsReader
from toolgate_bus.redis_link import RedisCommands
from toolgate_bus.settings import BusSettings

__all__ = ["decisions", "gathered"]

Fact = dict[str, Any]

_COLOURS = {"continue": "green", "modify": "yellow", "deny": "red", "cancelled": "magenta"}
TAIL = 10


def decisions(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with those that come.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Only the newest N (0: all; with --follow: 10).")] = 0,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what was decided, with every verdict.

    Oldest first. Arguments stand as they left the agent's process: redacted values are placeholders.
    The record keeps one hour. With --json, one object a line.
    """
    with joined_bus(redis, namespace, keys) as settings:
        run_async(lambda: _show(settings, follow, limit, as_json))


async def _show(settings: BusSettings, follow: bool, limit: int, as_json: bool) -> None:
    commands = RedisCommands(str(settings.redis), "toolgate-decisions")
    reader = FactsReader(commands, settings.namespace)
    try:
        kept = gathered(await reader.kept())
        newest = limit or (TAIL if follow else len(kept))
        for decision in kept[len(kept) - min(newest, len(kept)) :]:
            _print(decision, as_json)
        if follow:
            async with aclosing(cast("AsyncGenerator[Fact, None]", reader.follow())) as coming:
                async for fact in coming:
                    if fact["event"] == "decision":
                        _print(fact, as_json)
        elif not kept and not as_json:
            err_console.print("No decisions yet. `toolgate decisions --follow` waits for them.")
    finally:
        await reader.leave()
        await commands.aclose()


def gathered(facts: list[Fact]) -> list[Fact]:
    """The decisions among the facts, each with the verdicts that came after it."""
    found: dict[str, Fact] = {}
    for fact in facts:
        if fact["event"] == "decision":
            found[fact["id"]] = fact
        elif fact["event"] == "verdict" and fact.get("id") in found:
            kept = {name: value for name, value in fact.items() if name not in _ENVELOPE}
            found[fact["id"]]["verdicts"].append(kept)
    return list(found.values())


_ENVELOPE = frozenset({"event", "id", "seq", "at", "orchestrator"})


def _print(decision: Fact, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(decision, ensure_ascii=False, default=repr))
        return
    outcome = str(decision["outcome"])
    colour = _COLOURS.get(outcome, "white")
    at = datetime.fromtimestamp(decision["at"], UTC).astimezone().strftime("%H:%M:%S")
    console.print(
        f"{at} [{colour}]{outcome:<9}[/] {_call(decision['tool_name'], decision['tool_input'])} "
        f"[dim]{decision['seconds'] * 1000:.1f} ms  {decision['id'][:8]}[/]",
        soft_wrap=True,
    )
    if outcome == "modify":
        console.print(f"         → {_call(decision['final_tool'], decision['final_input'])}", soft_wrap=True)
    if decision["reason"] or decision["why"] not in ("agreed", "modified", "denied"):
        who = f"{decision['scheduler']}: " if decision["scheduler"] else ""
        console.print(f"         {escape(who + (decision['reason'] or decision['why']))}", soft_wrap=True)
    for verdict in decision["verdicts"]:
        console.print(f"         [dim]{escape(_verdict(verdict))}[/]", soft_wrap=True)
    for name in decision["silent"]:
        console.print(f"         [dim]{escape(str(name))}  silent[/]", soft_wrap=True)


def _call(tool: object, arguments: object) -> str:
    text = json.dumps(arguments, ensure_ascii=False, default=repr)
    return escape(f"{tool} {text if len(text) <= 100 else text[:99] + '…'}")


def _verdict(verdict: Fact) -> str:
    marks = [mark for mark in ("late", "shadow", "capped") if verdict.get(mark)]
    if verdict.get("problem"):
        marks.append(f"invalid: {verdict['problem']}")
    if verdict.get("phase") == "verify":
        marks.append("verify")
    more = f"  ({', '.join(marks)})" if marks else ""
    reason = f"  {verdict['reason']}" if verdict.get("reason") else ""
    timing = f"{verdict.get('seconds', 0) * 1000:.1f} ms"
    return f"{verdict.get('scheduler')}  {verdict.get('action')}  {timing}{more}{reason}"
