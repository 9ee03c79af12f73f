"""Tool names as the wire allows them (letters, digits, _ and -, at most 64), and back. Pure.

A name that is fine stays as it is; any other gets a safe one, unique among the names of a request.
"""

import hashlib
import re
from collections.abc import Iterable

__all__ = ["ToolNames"]

_MAX = 64
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")
_SAFE = re.compile(rf"[a-zA-Z0-9_-]{{1,{_MAX}}}")


class ToolNames:
    """The names of one request: those of its tools and those that its messages mention."""

    def __init__(self, names: Iterable[str]) -> None:
        given = list(dict.fromkeys(names))
        self._safe = {name: name for name in given if _SAFE.fullmatch(name)}
        self._original = dict(self._safe)
        for name in given:
            if name not in self._safe:
                self._add(name)

    def safe(self, name: str) -> str:
        """How a tool is called on the wire."""
        if name not in self._safe:
            self._add(name)
        return self._safe[name]

    def original(self, name: str) -> str:
        """The tool that the LLM means; a name that nobody gave it comes back as it is."""
        return self._original.get(name, name)

    def _add(self, name: str) -> None:
        digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()
        safe = _UNSAFE.sub("_", name)[:_MAX] or "unnamed"
        length = 8
        while safe in self._original:
            safe = f"{_UNSAFE.sub('_', name)[: _MAX - 1 - length]}_{digest[:length]}"
            length += 1
        self._safe[name] = safe
        self._original[safe] = name
