"""Reads a bundle and all its includes, as Amplifier's foundation does: the file access of `bundle`.

Files and folders are read here. `amplifier_foundation`, if installed, fetches URIs into Amplifier's own
cache. Without it, a URI becomes a layer that could not be read. Names, and paths within a named bundle
(`foundation:behaviors/…`), are looked up among the bundles read so far and in Amplifier's registry. As in
foundation, a relative path starts at the working directory.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from toolgate_bus.config.document import MAX_BYTES, parse_document
from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.commands.host.bundle import Layer

MAX_LAYERS: Final = 500
MAX_DEPTH: Final = 32
_FILES: Final = ("bundle.md", "bundle.yaml")
_ENDINGS: Final = ("", ".yaml", ".yml", ".md")
_FENCE: Final = b"---"
NO_FOUNDATION: Final = "only amplifier_foundation can fetch it: run this where that is installed"


async def read_bundle(target: str) -> list[Layer]:
    """Return the layers of a bundle, lowest first. Raise ConfigError if the bundle itself cannot be read."""
    reader = _BundleReader()
    layers = await reader.read(target, ())
    if layers[-1].unseen is not None:
        raise ConfigError(f"{target}: {layers[-1].unseen}")
    return layers


class _BundleReader:
    def __init__(self) -> None:
        self._folders: dict[str, Path] = {}
        """Folder of each bundle, by its name."""
        self._read: dict[Path, list[Layer]] = {}
        self._count = 0

    async def read(self, target: str, chain: tuple[Path, ...]) -> list[Layer]:
        """Return the layers of a bundle's includes, then of the bundle itself."""
        try:
            file = await self._find(target)
            if file in chain:
                return []  # a circle: foundation skips it, too
            if file not in self._read:
                self._read[file] = await self._read_file(file, chain)
        except ConfigError as error:
            return [Layer(target, target, unseen=str(error))]
        self._count += len(self._read[file])
        if self._count > MAX_LAYERS:
            raise ConfigError(f"more than {MAX_LAYERS} bundles")
        return self._read[file]

    async def _read_file(self, file: Path, chain: tuple[Path, ...]) -> list[Layer]:
        if len(chain) >= MAX_DEPTH:
            raise ConfigError(f"includes are nested more than {MAX_DEPTH} deep")
        content = _read_content(file)
        name = _name_of(content) or str(file)
        self._remember(name, file)
        content["agents"] = self._agents_of(content.get("agents"), file.parent)
        includes = content.get("includes")
        layers: list[Layer] = []
        for include in includes if isinstance(includes, list) else []:
            named = include.get("bundle") if isinstance(include, Mapping) else include
            if isinstance(named, str) and named:
                layers += await self.read(named, (*chain, file))
        return [*layers, Layer(name, str(file), content)]

    def _agents_of(self, section: Any, folder: Path) -> dict[str, Any]:
        """Return the agents of a bundle, including those whose files it includes by name."""
        agents = dict(section) if isinstance(section, Mapping) else {}
        included = agents.pop("include", None)
        for name in included if isinstance(included, list) else []:
            where, _, short = str(name).rpartition(":")
            file = (self._folders.get(where, folder) if where else folder) / "agents" / f"{short}.md"
            if file.is_file():
                agents.setdefault(str(name), _read_content(file))
        return agents

    def _remember(self, name: str, file: Path) -> None:
        """Note the folder of this bundle and of the bundle at the root of its folders, for later paths within
        them."""
        self._folders.setdefault(name, file.parent)
        for folder in list(file.parents)[1:MAX_DEPTH]:
            root = next((folder / one for one in _FILES if (folder / one).is_file()), None)
            if root is not None:
                self._folders.setdefault(_name_of(_read_content(root)) or str(root), folder)
            if root is not None or (folder / ".git").exists():
                return

    async def _find(self, target: str) -> Path:
        """Return the file that a target means. Raise ConfigError if there is none that can be read."""
        if target.startswith("file://"):
            root, _, fragment = target.removeprefix("file://").partition("#subdirectory=")
            return _file_at(Path(root) / fragment)
        if "://" in target or target.startswith("git+"):
            return _file_at(await _fetch(target))
        if (path := _local_path(target)) is not None:
            return _file_at(path)
        name, colon, within = target.partition(":")
        folder = self._folders.get(name) or _registered(name)
        if folder is None:
            raise ConfigError("there is no such file, and no bundle of that name is known here")
        return _file_at(folder / within if colon else folder)


def _local_path(target: str) -> Path | None:
    """Return the path that a target means; None if it does not exist or is a name."""
    path = Path(target).expanduser()
    return path if path.exists() and (path.is_absolute() or target.startswith(".") or path.suffix) else None


def _file_at(path: Path) -> Path:
    """Return the bundle's file at a path, with or without its ending. Raise ConfigError if there is none."""
    for ending in _ENDINGS:
        file = path.with_name(path.name + ending) if ending else path
        if file.is_file():
            return file.resolve()
    for name in _FILES:
        if (path / name).is_file():
            return (path / name).resolve()
    raise ConfigError(f"{path}: there is no bundle (a file, or a folder with bundle.md or bundle.yaml)")


def _read_content(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            raw = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from None
    if file.suffix == ".md":
        _, fence, rest = raw.removeprefix(b"\xef\xbb\xbf").partition(_FENCE)
        raw = rest.partition(b"\n" + _FENCE)[0] if fence else b""
    return parse_document(raw, str(file), as_amplifier=True).mapping()


def _name_of(content: Mapping[str, Any]) -> str:
    bundle = content.get("bundle")
    return str(bundle.get("name") or "") if isinstance(bundle, Mapping) else ""


async def _fetch(uri: str) -> Path:
    try:
        from amplifier_foundation.sources import SimpleSourceResolver
    except ImportError:
        raise ConfigError(NO_FOUNDATION) from None
    try:
        return Path((await SimpleSourceResolver(cache_dir=_home() / "cache").resolve(uri)).active_path)
    except Exception as error:  # noqa: BLE001 - another package's code, and the net
        raise ConfigError(f"it could not be fetched: {error}") from None


def _home() -> Path:
    return Path(os.environ.get("AMPLIFIER_HOME") or "~/.amplifier").expanduser()


def _registered(name: str) -> Path | None:
    """Return the folder of a bundle in Amplifier's registry; None if the name is unknown there."""
    try:
        known = json.loads((_home() / "registry.json").read_bytes()[: MAX_BYTES + 1]).get("bundles")
        path = Path(known[name]["local_path"])
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return None
    return path.parent if path.is_file() else path
