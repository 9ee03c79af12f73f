"""`toolgate decisions export`: write decisions, or all facts, as JSON Lines. The file is whole or absent."""

import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from toolgate_bus.commands.decisions.archive_store import line_of
from toolgate_bus.commands.decisions.filters import Filters, time_of
from toolgate_bus.commands.decisions.source import Source, decisions_in, facts_for
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import err_console
from toolgate_bus.errors import ConfigError
from toolgate_bus.telemetry.printable import visible_json

Fact = dict[str, Any]

TOLD_EVERY: Final = 10_000
"""Number of lines between two progress messages."""


async def export(source: Source, filters: Filters, file: str, *, facts: bool) -> int:
    """Write the chosen facts to a file, or to stdout (`-`). Return the number of lines. Raise ConfigError."""
    count = 0
    decisions = (one async for one in decisions_in(facts_for(source, filters)) if filters.match(one))
    chosen = _facts(source, filters) if facts else decisions
    with _open_output(file) as out:
        async for one in chosen:
            out.write(visible_json(line_of(one).decode()).encode())
            count += 1
            if count % TOLD_EVERY == 0:
                err_console.print(f"{count} lines so far")
        out.flush()
    what = "facts" if facts else "decisions"
    where = "" if file == "-" else f" to {escape(file)}"
    err_console.print(f"Exported {count} {what}{where}.")
    return count


async def _facts(source: Source, filters: Filters) -> AsyncIterator[Fact]:
    async for fact in source.facts(filters.since):
        at = time_of(fact)
        after = filters.since is None or at >= filters.since
        if after and (filters.until is None or at <= filters.until):
            yield fact


@contextlib.contextmanager
def _open_output(file: str) -> Iterator[BinaryIO]:
    """Open the output. A file gets its name when it is complete."""
    if file == "-":
        yield sys.stdout.buffer
        return
    path = Path(file)
    try:
        descriptor, beside = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        Path(beside).replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            Path(beside).unlink()
        if isinstance(error, OSError):
            raise ConfigError(f"{file}: cannot be written: {error.strerror}") from None
        raise
