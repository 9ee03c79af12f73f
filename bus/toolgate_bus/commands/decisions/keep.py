"""`toolgate decisions keep`: show or set how long the server keeps facts, and how many bytes of them."""

from contextlib import aclosing
from typing import Annotated, Any, Final

import typer

from toolgate_bus.commands.options import (
    JsonOption,
    NamespaceOption,
    RedisOption,
    console,
    join_bus,
    run_async,
)
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ConfigError
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.retention import read_usage, write_retention
from toolgate_bus.transport.retention import (
    MAX_BYTES,
    MAX_KEEP_S,
    MIN_BYTES,
    MIN_KEEP_S,
    FactUsage,
    Retention,
)

_MEGABYTE: Final = 2**20


def keep(
    seconds: Annotated[
        int | None,
        typer.Option(min=MIN_KEEP_S, max=MAX_KEEP_S, metavar="SECONDS", help="Keep facts for this time."),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            min=MIN_BYTES // _MEGABYTE,
            max=MAX_BYTES // _MEGABYTE,
            metavar="MB",
            help="Drop the oldest facts beyond this size, even before their time.",
        ),
    ] = None,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show or set how long the server keeps facts, and how many bytes of them.

    \b
      toolgate decisions keep                      3600 s and 1024 MB unless set
      toolgate decisions keep --seconds 600
      toolgate decisions keep --seconds 6000 --size 4096

    While a living reader (exporter, archiver, console) is behind, facts are kept
    for longer, until it has read them, at most 6000 s. The size is a bound for all agents of the
    namespace together, as they count what they write. Beyond it the oldest facts
    go first, whoever still needs them: toolgate doctor and the metric
    toolgate_facts_bytes tell before, toolgate_facts_cut_total counts it. Agents
    take a change within half a minute. Rules on order (at_most, after) know only
    what is kept: keep facts for as long as their longest within_s.

    Exit codes: 0 shown or set, 1 the bus is away, 2 an option is wrong, or this
    user may not see or set it.
    """
    with join_bus(redis, namespace, None) as settings:
        url, where = str(settings.redis), settings.namespace
        usage = run_async(lambda: _show_or_set(url, where, seconds, size))
    if as_json:
        print_json(_as_json(usage))
        return
    kept = usage.kept
    console.print(f"Facts are kept for {kept.seconds} s, and at most {kept.bytes // _MEGABYTE} MB of them.")
    console.print(f"They take {usage.bytes / _MEGABYTE:.1f} MB now.")


async def _show_or_set(url: str, namespace: str, seconds: int | None, size: int | None) -> FactUsage:
    async with aclosing(RedisCommands(url, "toolgate-decisions", connections=1)) as commands:
        usage = await read_usage(commands, namespace)
        if usage is None:
            raise ConfigError(
                "This user may not see how long facts are kept. Renew its access rules: "
                "toolgate doctor --role operator"
            )
        if seconds is None and size is None:
            return usage
        kept = Retention(seconds or usage.kept.seconds, size * _MEGABYTE if size else usage.kept.bytes)
        await write_retention(commands, namespace, kept)
        return FactUsage(kept, usage.written)


def _as_json(usage: FactUsage) -> dict[str, Any]:
    return {
        "facts_keep_s": usage.kept.seconds,
        "max_bytes": usage.kept.bytes,
        "bytes": usage.bytes,
    }
