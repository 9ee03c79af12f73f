"""Files that a command writes for a person to go on with: all of them or none, and nothing is overwritten."""

from collections.abc import Mapping
from pathlib import Path

from toolgate_bus.errors import ConfigError


def write_new_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write texts, by path in the folder, which is made if need be.

    Raises ConfigError where one is there already (nothing is written then), or cannot be written.
    """
    there = [path for path in texts if (folder / path).exists() or (folder / path).is_symlink()]
    if there:
        raise ConfigError(f"{folder / there[0]} is there already: nothing was written; name another folder")
    try:
        for path, text in texts.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with (folder / path).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ConfigError(
            f"{error.filename or folder} cannot be written: {error.strerror or error}"
        ) from None
