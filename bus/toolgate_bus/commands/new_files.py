"""Write files of a person: new ones, which overwrite nothing, and one that is replaced as a whole."""

import os
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path

from toolgate_bus.errors import ConfigError


def write_new_files(folder: Path, texts: Mapping[str, str], *, private: Collection[str] = ()) -> None:
    """Write texts, given by their path in the folder. Make the folder if it is missing.

    Nobody else can read the files in `private`. Raise ConfigError if one of the files exists (then nothing is
    written), or cannot be written.
    """
    there = [path for path in texts if (folder / path).exists() or (folder / path).is_symlink()]
    if there:
        raise ConfigError(f"{folder / there[0]} exists already: nothing was written; name another folder")
    try:
        for path, text in texts.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            flags, mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if path in private else 0o666
            with os.fdopen(os.open(folder / path, flags, mode), "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ConfigError(
            f"{error.filename or folder} cannot be written: {error.strerror or error}"
        ) from None


def replace_file(path: Path, content: bytes, mode: int | None) -> None:
    """Replace a file in one step; `mode` None means the mode of a new file. Raise OSError.

    With a mode, the file is closed to other users from its first byte, because it may hold secrets.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(beside, flags, 0o666 if mode is None else 0o600), "wb") as file:
            file.write(content)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
