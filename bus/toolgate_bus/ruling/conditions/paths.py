r"""File paths, resolved by their text alone: is one under another, and one spelling for each. Pure.

This module never looks at a disk. A symbolic link, a mount or a disk that ignores case may lead a path
elsewhere than its text says; of these only the case is noticed, as "not known". A shell that expands `*`,
`{a,b}` or `$(…)` in a path reads more into it than this module does.

A path may have several readings: a tool may decode `%2e`, take `\` for a slash, or drop the dots and spaces
that Windows drops at the end of a name. The answer is known if all readings agree, else it is not.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

MAX_PATH: Final = 4096
"""Maximum number of characters of a path that is read; no system takes a longer one."""
_DRIVE: Final = re.compile(r"[A-Za-z]:(?=[/\\]|$)")
_DRIVE_RELATIVE: Final = re.compile(r"[A-Za-z]:[^/\\]")
_FILE_URL: Final = re.compile(r"file:(?://(?:localhost)?(?=/)|(?=/(?!/)))", re.IGNORECASE)
_VARIABLE: Final = re.compile(r"\$[A-Za-z_{(]")
_SHORT_NAME: Final = re.compile(r"~[0-9]")
_SIMPLE: Final = re.compile(r"/?(?:(?:[A-Za-z0-9_.-]*[A-Za-z0-9_-]|\.{1,2})(?:/+|$))+")
_ENCODED: Final = re.compile("%[0-9a-fA-F]{2}")
_OVERLONG: Final = re.compile("%c[01]|%e0%[89]|%f0%8", re.IGNORECASE)
"""Bytes that some decoders take for `.` or `/`."""
_PARAMETERS: Final = re.compile(r"(^|/)(\.\.?);[^/]*")
_NONE: Final = "\0"
_DECODINGS: Final = 3
"""Number of times that a path is decoded: a proxy and a tool may each do it once."""


def is_under(path: str, base: str, cwd: str | None = None) -> bool | None:
    """Return whether a path is a base folder or lies within it; None if that is unknown.

    A relative path is taken from `cwd`. It is unknown without one, and so is a path that begins with `~`.
    """
    root = _absolute(base, cwd)
    if root is None:
        return None
    return _unanimous(_within(reading, root, cwd) for reading in _readings(path))


def canonical_path(path: str) -> str | None:
    """Return one spelling for all texts of a path; None if the text has several readings.

    A relative path stays relative. It is the same place as an equal one while the folder stays the same.
    """
    found = {_normalize(reading) for reading in _readings(path)}
    return found.pop() if len(found) == 1 else None


def _unanimous(answers: Iterator[bool | None]) -> bool | None:
    said = set(answers)
    return said.pop() if len(said) == 1 else None


def _within(path: str, root: str, cwd: str | None) -> bool | None:
    whole = _absolute(path, cwd)
    if whole is None or (whole[:1] == "/") is not (root[:1] == "/"):
        return None
    if _starts(whole, root):
        return True
    return None if _starts(_fold(whole), _fold(root)) else False


def _starts(path: str, root: str) -> bool:
    return path == root or path.startswith(root if root.endswith("/") else f"{root}/")


def _fold(path: str) -> str:
    """Return a path as a disk that ignores case and composition compares it."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())


def _absolute(path: str, cwd: str | None) -> str | None:
    """Return a path from the root, without dots; None if it is relative to an unknown folder."""
    whole = _normalize(path)
    if whole is None or _is_rooted(whole):
        return whole
    folder = None if cwd is None else _normalize(cwd)
    if folder is None or not _is_rooted(folder):
        return None
    return _normalize(f"{folder}/{whole}")


def _is_rooted(path: str) -> bool:
    return path.startswith("/") or _DRIVE.match(path) is not None


def _normalize(path: str) -> str | None:
    """Return a path without `.`, `..` and doubled slashes; None if its beginning or a name is unknown."""
    if not path or "\0" in path or path[0] == "~" or _VARIABLE.search(path) or _DRIVE_RELATIVE.match(path):
        return None
    drive = ""
    if _DRIVE.match(path):
        drive, path = path[:2].lower(), path[2:].replace("\\", "/").lower() or "/"
        if _SHORT_NAME.search(path):
            return None
    rooted = path.startswith("/")
    names: list[str] = []
    for name in path.split("/"):
        if name in ("", "."):
            continue
        if name != "..":
            names.append(name)
        elif names and names[-1] != "..":
            names.pop()
        elif not rooted:
            names.append(name)
    return drive + "/" * rooted + "/".join(names) or "."


def _readings(path: str) -> set[str]:
    """Return the texts that a tool may take a path for. One with a NUL is accepted by no system."""
    if len(path) > MAX_PATH or "\0" in path:
        return {_NONE}
    if _SIMPLE.fullmatch(path):
        return {path}
    found = {_from_url(path)}
    for read in (_plain, _decode, _plain, str.strip, _slashes, _drop_parameters, _drop_ends):
        found |= {read(one) for one in found}
    return found


def _from_url(path: str) -> str:
    url = _FILE_URL.match(path)
    if url is None:
        return _NONE if path[:5].lower() == "file:" else path
    rest = re.split("[?#]", path[url.end() :], maxsplit=1)[0]
    return rest[1:] if _DRIVE.match(rest, 1) else rest


def _decode(path: str) -> str:
    """Return a path without percent signs; `_NONE` if a careless decoder reads other letters."""
    for _ in range(_DECODINGS):
        if "%" not in path:
            break
        if _OVERLONG.search(path):
            return _NONE
        path = unquote(path, errors="replace")
    return _NONE if _ENCODED.search(path) else path


def _slashes(path: str) -> str:
    return path.replace("\\", "/")


def _drop_parameters(path: str) -> str:
    """Return a path as servers of Java read it: `..;a` is `..`."""
    return _PARAMETERS.sub(r"\1\2", path) if ";" in path else path


def _drop_ends(path: str) -> str:
    """Return a path as Windows reads it: names end before their last dots and spaces, except `.` and `..`."""
    return "/".join(map(_drop_end, path.split("/")))


def _drop_end(name: str) -> str:
    bare = name.rstrip(" ")
    return bare if bare in ("", ".", "..") else name.rstrip(". ") or _NONE


def _plain(path: str) -> str:
    return path if path.isascii() else unicodedata.normalize("NFKC", path)
