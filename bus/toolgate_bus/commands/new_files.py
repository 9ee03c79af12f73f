"""Write files as a start for a person. Files that exist are never overwritten."""

from collections.abc import Mapping
from pathlib import Path

from toolgate_bus.errors import ConfigError


def write_new_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write texts, given by their path in the folder. Make the folder if it is missing.

    Raise ConfigError if one of the files exists (then nothing is written), or cannot be written.
    """
    there = [path for path in texts if (folder / path).exists() or (folder / path).is_symlink()]
    if there:
        raise ConfigError(f"{folder / there[0]} exists already: nothing was written; name another folder")
    try:
        for path, text in texts.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with (folder / path).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ConfigError(
            f"{error.filename or folder} cannot be written: {error.strerror or error}"
        ) from None
