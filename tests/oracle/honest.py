"""Ordinary calls under the examples of rules that the manual and the fleet show, and what these say of them.

`honest_calls.yaml` has the calls, each with what the examples said when it was written down; what is not told
there is `continue`. A call that an example treats otherwise since is in `CHANGED`, with the reason.
"""

import re
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from toolgate_bus.config.document import parse_document
from toolgate_schedulers.testing import NotAsked, trial

__all__ = ["CALLS", "CHANGED", "EXAMPLES", "Change", "ask_all", "expected"]

ROOT = Path(__file__).parents[2]


class Example(NamedTuple):
    """Where an example stands: a file, or the block of a page that has some words in it."""

    scheduler: str
    file: str
    words: str = ""

    def text(self) -> str:
        """As it is written."""
        text = (ROOT / self.file).read_text()
        if not self.words:
            return text
        blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        (found,) = (block for block in blocks if self.words in block)
        return str(found)


class Change(NamedTuple):
    """What an example says now, and why that is right."""

    now: str
    why: str


EXAMPLES: Mapping[str, Example] = {
    "fleet": Example("policy", "deploy/fleet/policy.yaml"),
    "fleet's approvals": Example("approval", "deploy/fleet/approval.yaml"),
    "coding agents": Example("policy", "docs/coding-agents.md", "# coding.yaml"),
    "sidecar": Example("policy", "docs/serve.md", "# secrets.yaml"),
    "start": Example("policy", "docs/start.md", "# rules.yaml"),
    "rehearsal": Example("policy", "docs/rehearse.md", "# new.yaml"),
    "policy": Example("policy", "docs/schedulers/policy.md", "# toolgate scheduler run"),
    "order": Example("policy", "docs/schedulers/policy.md", "few refunds"),
    "approval": Example("approval", "docs/schedulers/approval.md", "# toolgate scheduler run"),
    "provenance": Example("provenance", "docs/schedulers/provenance.md", "# toolgate scheduler run"),
    "router": Example("router", "docs/schedulers/router.md", "# toolgate scheduler run"),
}
CALLS: tuple[dict[str, Any], ...] = tuple(
    yaml.safe_load((Path(__file__).parent / "honest_calls.yaml").read_text())
)
_PORT = "443 is the port of https anyhow"
_MAILTO = "a link that writes to a trusted address sends to nobody else"
CHANGED: Mapping[tuple[str, int], Change] = {
    ("policy", 134): Change("ask_user", "a tool may read 1,000 as a thousand, or not at all"),
    ("provenance", 81): Change("continue", "an apostrophe may stand in an address"),
    ("provenance", 90): Change("continue", "a display name in quotes may hold a comma"),
    ("provenance", 217): Change("continue", _PORT),
    ("provenance", 218): Change("continue", _PORT),
    ("provenance", 225): Change("continue", _MAILTO),
    ("provenance", 226): Change("continue", _MAILTO),
}
"""By example and the call's place in the file, from 0."""


async def ask_all(name: str) -> list[str]:
    """What an example says of each call, each in a session of its own."""
    example = EXAMPLES[name]
    (entry,) = entry_points(group="toolgate.schedulers", name=example.scheduler)
    config = parse_document(example.text().encode(), name).mapping()
    said = []
    async with trial(entry.load(), config=config) as asked:
        for number, call in enumerate(CALLS):
            who = {field: call[field] for field in ("agent", "request") if field in call}
            target = call["arguments"].get("agent") if call["tool"] == "delegate" else None
            try:
                answer = await asked.ask(
                    call["tool"],
                    call["arguments"],
                    timeout_s=30,
                    session=f"s{number}",
                    available_tools=[call["tool"], *_ROUTED],
                    available_agents=["junior", "senior"],
                    agent_target=target,
                    **who,
                )
            except NotAsked:
                said.append("continue")
                continue
            said.append(f"modify: {answer.tool}" if answer.action == "modify" else answer.action)
    return said


_ROUTED = ("advanced_search", "search_onestop_flight", "search_cached", "translate_v2")


def expected(name: str) -> list[str]:
    """What an example is to say of each call."""
    first = [call.get("said", {}).get(name, "continue") for call in CALLS]
    return [CHANGED.get((name, number), Change(one, "")).now for number, one in enumerate(first)]
