"""Reads recorded runs from a JSON Lines file. Sizes are limited, and each error names file, line and field.

Nothing is played before the whole file was read. One broken line is an error, because a report over some of
the runs would look like a report over all of them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from toolgate_bus.config.check import explain
from toolgate_bus.errors import ConfigError
from toolgate_bus.facts.recorded_message import RecordedRun, whole
from toolgate_bus.facts.recording import Run, RunArchive, read_run
from toolgate_bus.protocol.json_values import HalfCharacter, NotJson, read_json

MAX_LINE = 64 * 1024 * 1024
MAX_FAULTS = 10


def load(path: Path, limit: int | None = None) -> RunArchive:
    """Read all runs, or the first `limit`. Raise ConfigError that names each broken line and field."""
    try:
        with path.open("rb") as stream:
            runs, faults = _read(stream, str(path), limit)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if faults:
        more = ["… and more"] if len(faults) > MAX_FAULTS else []
        raise ConfigError("\n".join([*faults[:MAX_FAULTS], *more]))
    if not runs:
        raise ConfigError(f"{path}: holds no recorded run; expected one JSON object with `traj` per line")
    return RunArchive(str(path), tuple(runs))


def _read(stream: BinaryIO, source: str, limit: int | None) -> tuple[list[Run], list[str]]:
    runs: list[Run] = []
    faults: list[str] = []
    for number, line in _lines(stream):
        if len(faults) > MAX_FAULTS or (limit is not None and len(runs) >= limit):
            break
        where = f"{source}: line {number}"
        try:
            recorded = _parse(line)
        except ValidationError as error:
            faults += [
                f"{where}: {'.'.join(map(str, loc)) or 'the whole line'}: {words}"
                for loc, words in explain(error, RecordedRun)
            ]
        except ValueError as error:
            faults.append(f"{where}: {error}")
        else:
            runs.append(read_run(len(runs) + 1, recorded.name, recorded.traj))
    return runs, faults


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield all lines that are not blank, with their numbers from 1; a line beyond MAX_LINE is cut."""
    number = 0
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line.strip():
            yield number, line
        if len(line) > MAX_LINE:
            return  # what follows is the rest of this line, not a next one


def _parse(line: bytes) -> RecordedRun:
    if len(line) > MAX_LINE:
        raise ValueError(f"longer than {MAX_LINE // 2**20} MiB")
    try:
        data = read_json(line, limit=MAX_LINE, halves=False)
    except HalfCharacter as half:  # a recorder cut a text within an emoji
        data = whole(half.value)
    except NotJson as error:
        raise ValueError(f"not JSON: {error}") from None
    return RecordedRun.model_validate(data)
