"""`toolgate decisions show`: one decision, found by the beginning of its id, in words."""

from collections.abc import Mapping
from typing import Any, Final

from toolgate_bus.commands.decisions.explained import aftermath, explain
from toolgate_bus.commands.decisions.source import Source
from toolgate_bus.commands.options import console
from toolgate_bus.commands.terminal import escape, print_json
from toolgate_bus.errors import ConfigError, ToolgateError
from toolgate_bus.facts.join import join_decisions

Fact = dict[str, Any]

LISTED: Final = 10
_PARTS: Final = {
    "asked": "Asked",
    "heard": "Heard",
    "why": "Decided",
    "after": "Afterwards",
    "beside": "Beside it",
}


async def find_decision(source: Source, prefix: str) -> tuple[Fact, list[Mapping[str, Any]]]:
    """The one decision whose id begins so, with all its verdicts, and the facts of what became of it.

    Raises ConfigError where several do, ToolgateError where none does.
    """
    facts = []
    async for fact in source.facts():
        key = fact.get("id") if fact["event"] in ("decision", "verdict") else fact.get("decision_id")
        if isinstance(key, str) and key.startswith(prefix):
            facts.append(fact)
    decisions = join_decisions(facts)
    if not decisions:
        raise ToolgateError(
            f"No decision is kept whose id begins with {prefix}. {source.keeps} "
            "`toolgate decisions --json` shows the ids in full."
        )
    if len(decisions) > 1:
        told = [f"{one['id']} ({one['outcome']} {one['tool_name']})" for one in decisions[-LISTED:]]
        more = "" if len(decisions) <= LISTED else f", the newest {LISTED} of them"
        begun = f"{len(decisions)} decisions begin so; give more of the id{more}"
        raise ConfigError(f"{prefix}: {begun}: {', '.join(told)}")
    return decisions[0], aftermath(decisions[0], facts)


async def show(source: Source, prefix: str, *, as_json: bool) -> None:
    """Print it."""
    decision, after = await find_decision(source, prefix)
    words = explain(decision, after)
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
