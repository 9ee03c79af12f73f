"""Reads `NAME=config.yaml`: schedulers that a replay starts, their target tools, and prices of tools.

A target is what a config names under `to` (as the shipped router does), `target` or `targets`. A price stands
as in cost-aware: under `tools`, by name, as `cost`, or under `default`. The scheduler's own process checks
its config before anything runs.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from toolgate_bus.config.document import read_document
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.money import micro

from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec
from toolgate_orchestrator.commands.replay.comparison import ToolPrices

TARGET_KEYS = ("to", "target", "targets")


def specs_of(options: Sequence[str], option_name: str = "--with") -> list[SchedulerSpec]:
    """Return one scheduler for each option. A name used twice gets a number, as it has another config.

    Raise ConfigError that names the option that is not `NAME` or `NAME=FILE`.
    """
    specs: list[SchedulerSpec] = []
    seen: dict[str, int] = {}
    for option in options:
        spec, separator, file = option.partition("=")
        if not spec or (separator and not file):
            raise ConfigError(f"{option_name} {option}: must be NAME=config.yaml (or NAME, without a config)")
        if file and not Path(file).is_file():
            raise ConfigError(f"{option_name} {option}: there is no file {file}")
        seen[spec] = count = seen.get(spec, 0) + 1
        name = f"{spec.rpartition(':')[2].replace(':', '.')}-{count}" if count > 1 else None
        specs.append(SchedulerSpec(spec, Path(file) if file else None, name))
    return specs


def targets_of(specs: Iterable[SchedulerSpec]) -> tuple[str, ...]:
    """Return all tools that the configs name as targets. Raise ConfigError for a file that is no YAML."""
    return tuple(
        dict.fromkeys(
            name for spec in specs if spec.config for name in _targets(read_document(spec.config).value)
        )
    )


def prices_of(specs: Iterable[SchedulerSpec]) -> ToolPrices:
    """Return the prices of tools in the configs; if several name a tool, the last counts."""
    tools: dict[str, int] = {}
    default: int | None = None
    for spec in specs:
        config = read_document(spec.config).value if spec.config else None
        if not isinstance(config, dict):
            continue
        listed = config.get("tools")
        for name, price in listed.items() if isinstance(listed, dict) else ():
            if isinstance(name, str) and (cost := _cost(price)) is not None:
                tools[name] = cost
        cost = _cost(config.get("default"))
        default = default if cost is None else cost
    return ToolPrices(tools, default)


def _cost(price: Any) -> int | None:
    return micro(price.get("cost")) if isinstance(price, dict) else None


def _targets(root: Any) -> Iterator[str]:
    """Yield the strings under target keys, anywhere; a part that an alias repeats is read once."""
    waiting, seen = [root], set[int]()
    while waiting:
        value = waiting.pop()
        if not isinstance(value, (dict, list)) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            for key in TARGET_KEYS:
                named = value.get(key)
                yield from (
                    one for one in (named if isinstance(named, list) else [named]) if isinstance(one, str)
                )
        waiting += reversed(list(value.values()) if isinstance(value, dict) else value)
