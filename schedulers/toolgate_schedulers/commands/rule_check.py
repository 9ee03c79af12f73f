"""Compare a configuration with the tools of living agents, for `check`, `push`, `rollout` and `policy test`.

`ruling.rule_doubts` finds the doubts; this module reads the tools from the bus, and adds the line in the
file. Nothing is started. A bus that is away is no error: nothing is compared, and the result says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import console, err_console, join_bus, run_async
from toolgate_bus.config.check import check
from toolgate_bus.config.document import Document
from toolgate_bus.errors import ConfigError, NoServer, TransportError
from toolgate_bus.protocol.tool_sets import LivingTools
from toolgate_bus.ruling.rule_doubts import Doubt, RuleSubject, find_doubts
from toolgate_bus.telemetry.printable import visible
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.agent_directory import AgentDirectory

from toolgate_schedulers.shipped.cost_aware.config import CostAwareConfig
from toolgate_schedulers.shipped.rule_listing import CONFIGS, list_subjects
from toolgate_schedulers.worker.bus_address import bus_url

LOOK_S: Final = 5.0
"""Longest wait for the bus, in seconds."""
NO_AGENT: Final = "no agent is alive"


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """Result of a comparison."""

    doubts: Sequence[tuple[str, Doubt]] = ()
    """Doubts, each with file and line."""
    tools: int = 0
    processes: int = 0
    """Number of agent processes that reported their tools."""
    missing: str = ""
    """Reason that nothing, or not everything, could be compared."""

    @property
    def lines(self) -> list[str]:
        """Doubts in words."""
        return [
            f"{where}: {_path(one)}: {visible(one.words)}{_SILENT[one.certain]}" for where, one in self.doubts
        ]

    @property
    def certain(self) -> list[str]:
        """Doubts in words that `--strict` refuses."""
        return [line for line, (_, one) in zip(self.lines, self.doubts, strict=True) if one.certain]

    def refuse(self) -> None:
        """Raise ConfigError if any doubt is certain."""
        if self.certain:
            raise ConfigError("\n".join([*self.certain, "--strict refuses what is doubtful"]))

    def show(self, *, quiet: bool = False) -> None:
        """Print the doubts and, unless `quiet`, the parts that could not be compared."""
        for line in self.lines:
            console.print(f"[yellow]doubtful[/] {escape(line)}", soft_wrap=True)
        if quiet:
            return
        if not self.processes:
            words = "nothing could be compared with the tools of living agents"
            err_console.print(escape(f"{self.missing}: {words}"), soft_wrap=True)
        elif self.missing:
            err_console.print(escape(self.missing), soft_wrap=True)

    def as_json(self) -> dict[str, Any]:
        """Return the result for scripts; `compared` is null if no agent is alive."""
        compared = {"tools": self.tools, "processes": self.processes} if self.processes else None
        doubts = [
            {"where": where, "field": _path(one), "says": visible(one.words), "certain": one.certain}
            for where, one in self.doubts
        ]
        return {"compared": compared, "not_compared": self.missing or None, "doubts": doubts}


_SILENT: Final = {True: "", False: " (but not all living agents have reported their tools)"}


def compare(spec: str, document: Document, living: LivingTools, tools: Sequence[str] = ()) -> RuleCheck:
    """Compare with living agents; `tools`, the scheduler's own globs, count if the scheduler is not
    shipped."""
    alone = _doubts_without_agents(spec, document)
    if not living.processes:
        return RuleCheck(alone, missing="the living agents report no tools" if living.silent else NO_AGENT)
    subjects = _subjects(spec, document, tools)
    doubts = [*alone, *((document.where(one.place), one) for one in find_doubts(subjects, living))]
    missing = f"{living.silent} agent processes have reported no tools" if living.silent else ""
    return RuleCheck(doubts, len(living.tools), living.processes, missing)


async def read_living(commands: Commands, namespace: str) -> LivingTools:
    """Return the tools of living agents; raise TransportError."""
    with anyio.move_on_after(LOOK_S):
        return await AgentDirectory(commands, namespace).tools()
    raise TransportError("the bus does not answer")


def compare_at_bus(
    spec: str, document: Document, redis: str | None, namespace: str, tools: Sequence[str] = ()
) -> RuleCheck:
    """Compare with the living agents on the bus of these options; raise ConfigError for a wrong
    configuration."""
    try:
        with join_bus(redis, namespace, None) as settings:

            async def read() -> LivingTools:
                async with aclosing(RedisCommands(bus_url(settings), "toolgate-check", connections=1)) as own:
                    return await read_living(own, settings.namespace)

            living = run_async(read)
    except NoServer:
        return RuleCheck(_doubts_without_agents(spec, document), missing="no server is running")
    except TransportError as error:
        return RuleCheck(_doubts_without_agents(spec, document), missing=f"the bus is away ({error})")
    return compare(spec, document, living, tools)


def _doubts_without_agents(spec: str, document: Document) -> list[tuple[str, Doubt]]:
    """Return the doubts that need no living agent: weights that choose among nothing."""
    model = CONFIGS.get(spec)
    config = None if model is None else check(model, document.mapping(), document)
    if not isinstance(config, CostAwareConfig) or not config.idle_weights:
        return []
    field, _, words = config.idle_weights.partition(": ")
    place = (field.partition(" ")[0],)
    return [(document.where(place), Doubt(place, words))]


def _subjects(spec: str, document: Document, tools: Sequence[str]) -> Iterator[RuleSubject]:
    model = CONFIGS.get(spec)
    if model is None:
        yield RuleSubject(("tools",), tools)
        return
    for subject in list_subjects(check(model, document.mapping(), document)):
        yield replace(subject, paths=(*subject.paths, *_schema_names(document.value, subject.place[:-1])))


def _schema_names(value: Any, place: Sequence[Any]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Return the arguments that a rule's `schema` names; only the document has them."""
    for step in place:
        is_there = isinstance(value, Mapping) or (isinstance(value, list) and isinstance(step, int))
        value = (value.get(step) if isinstance(value, Mapping) else value[step]) if is_there else None
    schema = value.get("schema") if isinstance(value, Mapping) else None
    for word in ("properties", "required"):
        for name in schema.get(word) or () if isinstance(schema, Mapping) else ():
            yield (*place, "schema", word, name), str(name).replace(".", r"\.")


def _path(doubt: Doubt) -> str:
    return visible(".".join(map(str, doubt.place)))
