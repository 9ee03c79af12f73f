"""`toolgate decisions`: print the decisions that match, the newest, or new ones; explain one in words."""

import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, cast

from toolgate_bus.commands.decisions.explained import MIN_WAITED_S, aftermath, explain
from toolgate_bus.commands.decisions.explained_results import describe_masks, list_result_shadows
from toolgate_bus.commands.decisions.filters import Filters
from toolgate_bus.commands.decisions.source import REMEMBERED, ServerSource, Source, decisions_in, facts_for
from toolgate_bus.commands.decisions.wait import describe_wait
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import console, err_console
from toolgate_bus.commands.table import Table
from toolgate_bus.commands.terminal import Terminal, print_json
from toolgate_bus.errors import CodecError, ConfigError, ToolgateError
from toolgate_bus.facts.join import DecisionJoiner, join_decisions
from toolgate_bus.facts.shadow_report import Disagreement, ShadowTotals, add_to_totals, disagreements
from toolgate_bus.protocol.events import OVERRULED
from toolgate_bus.protocol.fact_events import TOLD_AS_DECISION, TOOL_RESULT
from toolgate_bus.ruling.counterfactual import CHANGES
from toolgate_bus.telemetry.printable import describe_call, shorten

Fact = dict[str, Any]

_COLOURS: Final = {
    "continue": "green",
    "modify": "yellow",
    "deny": "red",
    "cancelled": "magenta",
    "pending": "cyan",
}
_RESULT_COLOURS: Final = {
    "released": "green",
    "masked": "yellow",
    "replaced": "yellow",
    "withheld": "red",
    "cancelled": "magenta",
}
_WOULD: Final = {
    "veto": "would veto",
    "reroute": "would reroute to {call}",
    "ask": "would have a person asked about {call}",
    "hold": "would hold it, and gave no final answer",
    "allow": "would have {call} run",
}
_ALWAYS: Final = ("heard", "same", "veto", "reroute", "ask")
_FIGURES: Final = {"heard": "heard on"} | {
    name: name for name in ("same", *CHANGES, "unverified", "redacted", "unreadable")
}
LISTED: Final = 10
_PARTS: Final = {
    "asked": "Asked",
    "heard": "Heard",
    "why": "Decided",
    "result": "Its result",
    "after": "Afterwards",
    "beside": "Beside it",
}
_MAX_LENGTH: Final = 100
_MAX_AGENT: Final = 40
_ID: Final = 8
"""Characters of an id that people are shown. Filters take the beginning of a session."""
_MARGIN: Final = " " * 9


def print_decision(console: Terminal, decision: Fact) -> None:
    """Print the decision on one line; below it its replacement, the deciding scheduler, and every verdict."""
    outcome = "pending" if decision["outcome"] == "ask" else str(decision["outcome"])
    colour = _COLOURS.get(outcome, "white")
    at = datetime.fromtimestamp(decision["at"], UTC).astimezone().strftime("%H:%M:%S")
    call = _call(decision["tool_name"], decision["tool_input"])
    waited = decision.get("waited") or 0.0
    told = f" + {waited:.1f} s waited" if waited >= MIN_WAITED_S else ""
    took = f"{max(0.0, decision['seconds'] - waited) * 1000:.1f} ms{told}"
    about = "  ".join((took, decision["id"][:_ID], *_asker(decision)))
    lines = [f"{at} [{colour}]{escape(f'{outcome:<9}')}[/] {call} [dim]{escape(about)}[/]"]
    if outcome == "modify" or (outcome == "pending" and decision["final_tool"] != decision["tool_name"]):
        lines.append(f"{_MARGIN}→ {_call(decision['final_tool'], decision['final_input'])}")
    if decision["reason"] or decision["why"] not in ("agreed", "modified", "denied"):
        who = f"{decision['scheduler']}: " if decision["scheduler"] else ""
        lines.append(_MARGIN + escape(who + (decision["reason"] or decision["why"])))
    lines += [_MARGIN + escape(told) for told in describe_wait(decision, time.time())]
    lines += [
        f"{_MARGIN}[dim]{escape(_verdict(verdict))}[/]"
        for verdict in decision["verdicts"]
        if isinstance(verdict, dict)
    ]
    lines += [f"{_MARGIN}[dim]{escape(str(name))}  silent[/]" for name in decision["silent"]]
    lines += [f"{_MARGIN}{line}" for line in _result_lines(decision.get("result"))]
    for line in lines:
        console.print(line, soft_wrap=True)


def print_result(console: Terminal, decision: Fact) -> None:
    """Print what became of the result of a call whose decision was printed before."""
    lines = _result_lines(decision.get("result"))
    tool = escape(shorten(str(decision["tool_name"]), _MAX_AGENT))
    for line in (f"{tool} {escape(decision['id'][:_ID])}: {lines[0]}", *lines[1:]) if lines else ():
        console.print(f"{_MARGIN}{line}", soft_wrap=True)


def _result_lines(result: object) -> list[str]:
    """Return lines about the ruling on what the call gave, with every verdict on that."""
    if not isinstance(result, dict) or not result.get("outcome"):
        return []
    outcome, who = str(result["outcome"]), result.get("scheduler")
    words = result.get("reason") or (result.get("why") if result.get("why") != "agreed" else "")
    told = f"{who}: {words}" if who and words else str(who or words or "")
    lines = [f"result [{_RESULT_COLOURS.get(outcome, 'white')}]{escape(outcome)}[/]  {escape(told)}".rstrip()]
    verdicts = result.get("verdicts")
    for verdict in verdicts if isinstance(verdicts, list) else ():
        if isinstance(verdict, dict):
            parts = describe_masks(verdict)
            lines.append(f"[dim]  {escape(_verdict(verdict))}{escape(f'  {parts}' if parts else '')}[/]")
    silent = result.get("silent")
    lines += [
        f"[dim]  {escape(str(name))}  silent[/]" for name in (silent if isinstance(silent, list) else ())
    ]
    return lines


def print_disagreements(console: Terminal, found: Sequence[Disagreement]) -> None:
    """Print the changes that each shadow would have made to the decision above."""
    for one in found:
        would = _WOULD[one.change].format(call=_call(one.tool, one.arguments))
        reason = f": {escape(one.reason)}" if one.reason else ""
        doubt = " [dim](the others were not asked about it)[/]" if not one.verified else ""
        console.print(f"{_MARGIN}[bold]{escape(one.scheduler)}[/] {would}{reason}{doubt}", soft_wrap=True)


def print_totals(console: Terminal, totals: Mapping[str, ShadowTotals]) -> None:
    """Print a line for each shadow: the changes it would have made, and the number of decisions it heard."""
    shown = [
        name for name in _FIGURES if name in _ALWAYS or any(getattr(one, name) for one in totals.values())
    ]
    heads = [_FIGURES[name] for name in shown]
    table = Table(["shadow", *heads], right=heads, cut={"shadow"}, spare=heads[:2:-1])
    for shadow, one in totals.items():
        figures = (getattr(one, name) for name in shown)
        table.add_row(escape(shadow), *(str(figure) if figure else "[dim]·[/]" for figure in figures))
    console.print(table)


def _asker(decision: Fact) -> list[str]:
    """Return agent and session of a decision, short, as far as they are known."""
    agent, session = str(decision.get("agent") or ""), str(decision.get("session") or "")
    return [short for short in (shorten(agent, _MAX_AGENT), session[:_ID]) if short]


def _call(tool: object, arguments: object) -> str:
    return escape(describe_call(tool, arguments, _MAX_LENGTH))


def _verdict(verdict: Fact) -> str:
    marks = [mark for mark in ("late", "shadow", "capped") if verdict.get(mark)]
    if problem := verdict.get("problem"):
        marks.append(OVERRULED if problem == OVERRULED else f"invalid: {problem}")
    if verdict.get("phase") in ("verify", "admit"):
        marks.append(f"{verdict['phase']}{' again' if verdict.get('again') else ''}")
    if verdict.get("fence"):
        marks.append(f"number {verdict['fence']}")
    more = f"  ({', '.join(marks)})" if marks else ""
    reason = f"  {verdict['reason']}" if verdict.get("reason") else ""
    seconds = verdict.get("seconds")
    timing = f"{seconds * 1000:.1f} ms" if isinstance(seconds, int | float) else "?"
    if verdict.get("action") == "hold":  # its `seconds` say for how long
        timing = f"for {seconds} s"
    return f"{verdict.get('scheduler')}  {verdict.get('action')}  {timing}{more}{reason}"


TAIL: Final = 10


@dataclass(frozen=True, slots=True)
class DecisionListView:
    """Choice of the decisions that are shown, and their format."""

    filters: Filters
    shadow: str | bool = False
    """Show only decisions that a shadow, or the shadow of this name, would have changed."""
    as_json: bool = False
    told: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    """Shadows and their changes that were shown already, by decision."""

    def wants(self, decision: Fact) -> bool:
        """Return whether a decision is to be shown."""
        would = not self.shadow or self._changes(decision) or self._result_shadows(decision)
        return self.filters.match(decision) and bool(would)

    def show(self, decision: Fact) -> None:
        """Print a decision. With --shadow, print it only if there is something new to say of it."""
        found = self._changes(decision) if self.shadow else []
        others = self._result_shadows(decision) if self.shadow else []
        news = {(one.scheduler, str(one.change)) for one in found} | {(name, "result") for name in others}
        news -= self.told.get(decision["id"], set())
        if self.shadow and not news:
            return
        self.told.setdefault(decision["id"], set()).update(news)
        if self.as_json:
            more = {"disagreements": [one.as_json() for one in found]} if self.shadow else {}
            print_json({**decision, **more})
        else:
            print_decision(console, decision)
            print_disagreements(console, found)
            for name in others:
                words = "would have withheld the result, or changed it"
                console.print(f"{_MARGIN}[bold]{escape(name)}[/] {words}", soft_wrap=True)

    def totals(self, totals: Mapping[str, ShadowTotals]) -> None:
        """Print the totals of shadows."""
        wanted = {name: one for name, one in sorted(totals.items()) if self.shadow in (True, name)}
        if self.as_json:
            figures = {name: one.as_json() for name, one in wanted.items()}
            print_json({"totals": figures})
        elif wanted:
            print_totals(console, wanted)
        else:
            who = f"The shadow {self.shadow} gave no" if isinstance(self.shadow, str) else "No shadow gave a"
            err_console.print(
                f"{escape(who)} verdict in the record. Start one: toolgate scheduler run NAME --shadow"
            )

    def _result_shadows(self, decision: Fact) -> list[str]:
        """Return the shadows, all or the chosen, that would have changed what became of the result."""
        names = list_result_shadows(decision.get("result"))
        return [name for name in names if self.shadow in (True, name)]

    def _changes(self, decision: Fact) -> list[Disagreement]:
        """Return the changes of all shadows, or of the chosen; none if the decision cannot be compared."""
        try:
            found = disagreements(decision)
        except CodecError:
            return []
        return [one for one in found if self.shadow in (True, one.scheduler)]


async def show_kept(listing: DecisionListView, source: Source, limit: int) -> None:
    """Show the newest `limit` decisions that match, or all that are kept (0)."""
    newest: deque[Fact] = deque(maxlen=limit or None)
    totals: dict[str, ShadowTotals] = {}
    kept = shown = 0
    async for decision in decisions_in(facts_for(source, listing.filters)):
        kept += 1
        if listing.shadow and listing.filters.match(decision):
            add_to_totals(totals, decision)
        if listing.wants(decision):
            shown += 1
            newest.append(decision) if limit else listing.show(decision)
    for decision in newest:
        listing.show(decision)
    if listing.shadow:
        listing.totals(totals)
    elif not shown and not listing.as_json:
        words = f"No decisions. {escape(source.keeps)}"
        if kept or listing.filters != Filters():
            words = f"No decision matches ({kept} were read). {escape(source.keeps)}"
        elif isinstance(source, ServerSource):
            words = "No decisions yet. `toolgate decisions --follow` waits for them."
        err_console.print(words)


async def follow(listing: DecisionListView, source: ServerSource, limit: int) -> None:
    """Show the newest decisions, then new ones; with --shadow also older ones that a shadow rules on now."""
    gathering = DecisionJoiner(REMEMBERED)
    async for fact in source.facts(listing.filters.since):
        gathering.take(fact)
    newest = deque(filter(listing.wants, gathering.decisions.values()), maxlen=limit or TAIL)
    for decision in newest:
        listing.show(decision)
    async with aclosing(cast("AsyncGenerator[Fact, None]", source.reader.follow())) as coming:
        async for fact in coming:
            made = gathering.take(fact)
            is_result = fact["event"] == TOOL_RESULT
            new = fact["event"] in TOLD_AS_DECISION or listing.shadow
            if made is None or not listing.wants(made):
                continue
            if new or (is_result and listing.filters.results):
                listing.show(made)
            elif is_result and not listing.as_json:
                print_result(console, made)


async def find_decision(source: Source, prefix: str) -> tuple[Fact, list[Mapping[str, Any]]]:
    """Return the one decision with this beginning of its id, all its verdicts, and the facts about its call.

    Raise ConfigError if there are several, ToolgateError if there is none.
    """
    facts = []
    async for fact in source.facts():
        is_own = fact["event"] == "verdict" or fact["event"] in TOLD_AS_DECISION
        key = fact.get("id") if is_own else fact.get("decision_id")
        if isinstance(key, str) and key.startswith(prefix):
            facts.append(fact)
    decisions = join_decisions(facts)
    if not decisions:
        raise ToolgateError(
            f"No decision in the record has an id that begins with {prefix}. {source.keeps} "
            "`toolgate decisions --json` shows the ids in full."
        )
    if len(decisions) > 1:
        told = [f"{one['id']} ({one['outcome']} {one['tool_name']})" for one in decisions[-LISTED:]]
        more = "" if len(decisions) <= LISTED else f", the newest {LISTED} of them"
        begun = f"{len(decisions)} decisions match; give more of the id{more}"
        raise ConfigError(f"{prefix}: {begun}: {', '.join(told)}")
    return decisions[0], aftermath(decisions[0], facts)


async def show(source: Source, prefix: str, *, as_json: bool) -> None:
    """Print the explanation of one decision."""
    decision, after = await find_decision(source, prefix)
    words = explain(decision, after, time.time())
    if as_json:
        told = {"decision": decision, "after": after, "explained": words.as_json()}
        print_json(told)
        return
    console.print(f"Decision [bold]{escape(decision['id'])}[/]", soft_wrap=True)
    for part, sentences in words.as_json().items():
        if sentences:
            console.print(f"\n[bold]{_PARTS[part]}[/]", soft_wrap=True)
        for sentence in sentences:
            console.print(f"  {escape(sentence)}", soft_wrap=True)
