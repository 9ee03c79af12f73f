"""Amplifier tool module `tool-folder-search`: two searches over the text files of a folder.

`search_files(pattern, folder)` reads every line of every file at each call: thorough and expensive.
`quick_search(words, within)` uses an index that is made once: cheap. Their arguments have different
names on purpose, like those of real alternatives: routing calls from one to the other needs a mapping.
Config: `root`, the folder. Files, bytes, time and results are bounded. A pattern is plain text with
`|` between alternatives, as a regular expression from the LLM could block the process for hours.
"""

import re
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolgate_orchestrator.modules.tool_base import (
    FunctionTool,
    RootConfig,
    ToolRefusal,
    in_thread,
    inside,
    root_of,
    schema,
    text_argument,
)

__amplifier_module_type__ = "tool"
config_model = RootConfig

MAX_FILES = 2_000
MAX_FILE_BYTES = 512 * 1024
MAX_LINE = 500
MAX_HITS = 50
MAX_SECONDS = 5.0
MAX_PATTERN = 200
_WORD = re.compile(r"\w+")


def search_tools(root: Path) -> list[FunctionTool]:
    """Return both searches, over the text files inside `root` (resolved already)."""
    return [
        FunctionTool(
            "search_files",
            "Search all files line by line. Slow and thorough.",
            schema(
                {"pattern": "Text to look for, upper or lower case; `|` separates alternatives"},
                {"folder": "Folder; everything if left out"},
            ),
            in_thread(_grep, root),
        ),
        FunctionTool(
            "quick_search",
            "Look words up in an index of all files. Fast.",
            schema({"words": "Words that a line must hold"}, {"within": "Folder; everything if left out"}),
            in_thread(_Index().find, root),
        ),
    ]


def _files(root: Path, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield name and lines of each text file below `folder`; skip links that lead out."""
    count = 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or not path.resolve().is_relative_to(root):
            continue
        count += 1
        if count > MAX_FILES:
            raise ToolRefusal(f"there are more than {MAX_FILES} files; name a smaller folder")
        if path.stat().st_size <= MAX_FILE_BYTES:
            text = path.read_bytes().decode(errors="replace")
            yield str(path.relative_to(root)), text.splitlines()


def _grep(root: Path, arguments: dict[str, Any]) -> list[str]:
    pattern = text_argument(arguments, "pattern", limit=MAX_PATTERN)
    folder = text_argument(arguments, "folder", ".")
    texts = [text for text in pattern.casefold().split("|") if text]
    if not texts:
        raise ToolRefusal("pattern: must name a text to look for")
    ends = time.monotonic() + MAX_SECONDS
    hits: list[str] = []
    for name, lines in _files(root, _folder(root, folder)):
        for number, line in enumerate(lines, 1):
            if time.monotonic() > ends:
                raise ToolRefusal(f"gave up after {MAX_SECONDS:g} s; name a smaller folder")
            if any(text in line[:MAX_LINE].casefold() for text in texts):
                hits.append(f"{name}:{number}: {line[:MAX_LINE]}")
                if len(hits) >= MAX_HITS:
                    return hits
    return hits


def _folder(root: Path, folder: str) -> Path:
    directory = inside(root, folder)
    if not directory.is_dir():
        raise ToolRefusal(f"there is no folder {folder!r}")
    return directory


class _Index:
    """Index of the words of all lines; made at the first question and kept."""

    _lines: dict[str, set[tuple[str, int, str]]] | None = None

    def find(self, root: Path, arguments: dict[str, Any]) -> list[str]:
        """Return the lines in `within` that hold all the `words`; at most `MAX_HITS`."""
        words, within = text_argument(arguments, "words"), text_argument(arguments, "within", ".")
        wanted = set(_WORD.findall(words.casefold()))
        if not wanted:
            raise ToolRefusal("words: name at least one word")
        prefix = str(_folder(root, within).relative_to(root))
        lines = self._build_index(root)
        found = set.intersection(*(lines.get(word, set()) for word in wanted))
        inside_folder = (hit for hit in sorted(found) if prefix == "." or hit[0].startswith(f"{prefix}/"))
        return [f"{name}:{number}: {line}" for name, number, line in inside_folder][:MAX_HITS]

    def _build_index(self, root: Path) -> dict[str, set[tuple[str, int, str]]]:
        if self._lines is None:
            lines: dict[str, set[tuple[str, int, str]]] = defaultdict(set)
            for name, text in _files(root, root):
                for number, line in enumerate(text, 1):
                    for word in _WORD.findall(line[:MAX_LINE].casefold()):
                        lines[word].add((name, number, line[:MAX_LINE]))
            self._lines = lines
        return self._lines


async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
    """Mount both searches; raise ConfigError unless `root` names a folder."""
    for tool in search_tools(root_of(config, "tool-folder-search")):
        await coordinator.mount("tools", tool, name=tool.name)
