"""Installs Toolgate's hooks in the settings of a client and removes them, whatever others change in between.

A second install replaces the hooks. If the file did not change since the install, uninstall restores it byte
for byte, or deletes it if there was none before. If its owner changed it, uninstall removes the hooks and
whatever was created for them alone.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.commands.hook.entries import CLIENTS, HookSettings, Scope, find_path, make_entries
from toolgate_orchestrator.commands.hook.settings_file import SettingsFile, SettingsRecord
from toolgate_orchestrator.commands.hook.settings_text import JsonSettings, SettingsText, TomlSettings


class HookPlace(NamedTuple):
    """Folders in which a user's or project's clients keep their settings."""

    scope: Scope
    home: Path
    project: Path
    state: Path
    environ: Mapping[str, str]


class HookChange(NamedTuple):
    """Result of an install or uninstall."""

    path: Path
    backup: Path | None
    changed: Literal["installed", "updated", "unchanged", "removed", "restored", "absent"]


class ClientSettings:
    """Settings of one client, with or without Toolgate's hooks."""

    def __init__(self, client: str, place: HookPlace) -> None:
        """Read the file. Raise ConfigError if that is not possible."""
        self.client = client
        self._form: type[SettingsText] = JsonSettings
        path = find_path(client, place.scope, place.home, place.project, place.environ)
        if client == "codex" and not path.exists() and _has_hooks(path.with_name("config.toml")):
            self._form, path = TomlSettings, path.with_name("config.toml")
        self.file = SettingsFile(path, place.state)

    def read(self) -> Any:
        """Return the parsed settings; None if there are none. Raise ConfigError if they cannot be read."""
        return self._parse().value

    def _parse(self) -> SettingsText:
        text = self.file.text
        with self._explained():
            return self._form(text, self.client)

    def install(self, settings: HookSettings) -> HookChange:
        """Add the hooks to the settings. Raise ConfigError, with nothing changed, if that is not possible."""
        file, entries, now = self.file, make_entries(settings), self._parse()
        with self._explained():
            before, record = self._without(now)
            text = (before or b"").decode("utf-8")
            content = self._form(text, self.client).with_hooks(entries).text.encode("utf-8")
        backup = file.backup if before is not None else None
        if content == file.content:
            return HookChange(file.path, backup if record is not None else None, "unchanged")
        file.keep(before, content, record.folders if record is not None else ())  # before anything is changed
        folders = file.write(content)
        if folders:
            file.keep(before, content, folders)
        return HookChange(file.path, backup, "updated" if now.has_hooks else "installed")

    def uninstall(self) -> HookChange:
        """Remove the hooks from the settings. Raise ConfigError, with nothing changed, if that is not
        possible."""
        file, now = self.file, self._parse()
        if not now.has_hooks:
            file.forget()
            return HookChange(file.path, None, "absent")
        with self._explained():
            before, record = self._without(now)
        as_written = record is not None and file.is_as_written(record)
        if before is None:
            file.remove(record.folders if record is not None else ())
        else:
            file.write(before)
        file.forget()
        return HookChange(file.path, None, "restored" if as_written else "removed")

    def _without(self, now: SettingsText) -> tuple[bytes | None, SettingsRecord | None]:
        """Return the content without the hooks, and the record of the install.

        The content is None if no file would remain.
        """
        file, record = self.file, self.file.read_record()
        if file.content is None or not now.has_hooks:
            return file.content, None
        if record is None:
            return now.without_hooks(None).text.encode("utf-8"), None
        if file.is_as_written(record):
            return record.before, record
        if record.before is not None:
            before = self._form(record.before.decode("utf-8"), self.client)
            return now.without_hooks(before).text.encode("utf-8"), record
        left = now.without_hooks(None)
        is_empty = left.value in ({}, CLIENTS[self.client].root) and not left.comments
        return None if is_empty else left.text.encode("utf-8"), record

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Name the file in an error about its text."""
        try:
            yield
        except (ConfigError, RecursionError) as error:
            raise ConfigError(f"{self.file.path}: {error}. Nothing was changed; correct it first.") from None


def _has_hooks(path: Path) -> bool:
    """Return whether a Codex configuration has hooks of its own; its entries about trust (`state`) do not
    count."""
    try:
        hooks = TomlSettings(path.read_text("utf-8"), "codex").value.get("hooks")
    except (OSError, ConfigError, UnicodeDecodeError):
        return False
    return isinstance(hooks, dict) and bool(hooks.keys() - {"state"})
