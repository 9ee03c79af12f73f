"""Adds Toolgate's entries to a client's settings and removes them, whatever others change in between.

A second install replaces the entries. If the file did not change since the install, uninstall restores it
byte for byte, or deletes it if there was none before. If its owner changed it, uninstall removes the entries
and whatever was created for them alone.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.commands.hook.entries import (
    CLIENTS,
    HookSettings,
    Scope,
    find_handlers,
    find_path,
    make_entries,
)
from toolgate_orchestrator.commands.hook.json_text import JsonNode, JsonText
from toolgate_orchestrator.commands.hook.settings_file import SettingsFile, SettingsRecord, make_record
from toolgate_orchestrator.commands.hook.toml_block import BEGIN, add_block, read_toml, remove_block


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
    """Settings of one client, with or without Toolgate's entries."""

    def __init__(self, client: str, place: HookPlace) -> None:
        """Read the settings. Raise ConfigError if they cannot be read."""
        self.client, self.files = client, CLIENTS[client]
        path = find_path(client, place.scope, place.home, place.project, place.environ)
        self.is_toml = False
        if client == "codex":
            toml = path.with_name("config.toml")
            self.is_toml = not path.exists() and _has_hooks(toml)
            path = toml if self.is_toml else path
        self.file = SettingsFile(path, place.state)

    def read(self) -> Any:
        """Return the parsed settings; None if there are none."""
        if self.file.content is None or not self.file.text.strip():
            return None
        return self._explain(
            lambda: read_toml(self.file.text) if self.is_toml else self._parse(self.file.text).root.value
        )

    def _parse(self, text: str) -> JsonText:
        return JsonText(text, comments=self.files.comments)

    def _explain(self, work: Any) -> Any:
        try:
            return work()
        except ConfigError as error:
            raise ConfigError(f"{self.file.path}: {error}. Nothing was changed; correct it first.") from None

    @property
    def is_installed(self) -> bool:
        """True if Toolgate's entries are in the settings. Raises ConfigError if they cannot be read."""
        if self.is_toml:
            return BEGIN in self.file.text
        return next(find_handlers(self.read(), self.client), None) is not None

    # ------------------------------------------------------------------ changes

    def install(self, settings: HookSettings) -> HookChange:
        """Add the entries to the settings. Raise ConfigError, with nothing changed, if that is not
        possible."""
        file, was = self.file, self.is_installed
        before, record = self._explain(self._without)
        text = (before or b"").decode("utf-8")
        after, created, inner = self._explain(lambda: self._with(text, make_entries(settings)))
        content = after.encode("utf-8")
        if content == file.content:
            return HookChange(
                file.path, file.backup if record and record.before is not None else None, "unchanged"
            )
        folders = record.folders if record is not None else ()
        kept = make_record(before, content, created=created, inner=inner, folders=folders)
        file.keep(kept)  # before anything is changed
        made = file.write(content)
        if made:
            file.keep(kept._replace(folders=made))
        backup = file.backup if before is not None else None
        return HookChange(file.path, backup, "updated" if was else "installed")

    def uninstall(self) -> HookChange:
        """Remove the entries from the settings. Raise ConfigError, with nothing changed, if that is not
        possible."""
        file = self.file
        record = file.read_record()
        if file.content is None or not self.is_installed:
            file.forget()
            return HookChange(file.path, None, "absent")
        as_written = record is not None and file.is_as_written(record)
        before, _ = self._explain(self._without)
        if before is None:
            file.remove(record.folders if record is not None else ())
        else:
            file.write(before)
        file.forget()
        return HookChange(file.path, None, "restored" if as_written else "removed")

    def _without(self) -> tuple[bytes | None, SettingsRecord | None]:
        """Return the content without the entries, and the record of the install.

        The content is None if no file would remain.
        """
        file, record = self.file, self.file.read_record()
        if file.content is None:
            return None, None
        if record is not None and file.is_as_written(record):
            return record.before, record
        if not self.is_installed:
            return file.content, None
        text = remove_block(file.text) if self.is_toml else self._remove(file.text, record)
        made = record is not None and record.before is None
        left = text.strip() if self.is_toml else self._parse(text).root.value if text.strip() else None
        if made and (not left or left == dict(self.files.root)):
            return None, record
        return text.encode("utf-8"), record

    def _with(
        self, text: str, entries: Mapping[str, dict[str, Any]]
    ) -> tuple[str, tuple[str, ...], dict[str, str]]:
        """Return the text with the entries, the names that were created, and the former text of empty
        containers."""
        if self.is_toml:
            return add_block(text, entries), (), {}
        created: list[str] = []
        inner: dict[str, str] = {}
        if not text.strip():
            text, created = "{}\n", [""]
            for key, value in self.files.root.items():
                parsed = self._parse(text)
                text = parsed.insert(parsed.root, value, key)
        parsed = self._parse(text)
        if not isinstance(parsed.root.value, dict):
            raise ConfigError("it is not a JSON object")
        if parsed.root.get("hooks") is None:
            text = self._insert(parsed, parsed.root, "", {}, "hooks", inner)
            created.append("hooks")
        for event, entry in entries.items():
            parsed = self._parse(text)
            hooks = parsed.root.get("hooks")
            if hooks is None or not isinstance(hooks.value, dict):
                raise ConfigError("its `hooks` is not an object")
            if hooks.get(event) is None:
                text = self._insert(parsed, hooks, "hooks", [], event, inner)
                created.append(f"hooks/{event}")
                parsed = self._parse(text)
            listed = parsed.root.find("hooks", event)
            if listed is None or not isinstance(listed.value, list):
                raise ConfigError(f"its `hooks.{event}` is not a list")
            text = self._insert(parsed, listed, f"hooks/{event}", entry, None, inner)
        return text, tuple(created), inner

    def _insert(
        self, parsed: JsonText, node: JsonNode, name: str, value: Any, key: str | None, inner: dict[str, str]
    ) -> str:
        if not node.children:
            inner.setdefault(name, parsed.text[node.start + 1 : node.end - 1])
        return parsed.insert(node, value, key)

    def _remove(self, text: str, record: SettingsRecord | None) -> str:
        """Return the text without the entries and the names created for them.

        Without a record, every name that becomes empty is removed.
        """
        inner = record.inner if record is not None else {}
        events: list[str] = []
        while True:
            parsed = self._parse(text)
            place = next(find_handlers(parsed.root.value, self.client), None)
            if place is None:
                break
            event, at, within = place
            listed = parsed.root.find("hooks", event)
            if listed is None:
                break
            events.append(event)
            if within is None:
                text = parsed.remove(listed, at, inner.get(f"hooks/{event}"))
            else:
                group = listed.children[at].get("hooks")
                text = parsed.remove(group, within) if group is not None else text
        for path in [*(f"hooks/{event}" for event in events), "hooks"]:
            if record is not None and path not in record.created:
                continue
            *above, key = path.split("/")
            parsed = self._parse(text)
            holder = parsed.root.find(*above)
            node = holder.get(key) if holder is not None else None
            if holder is not None and node is not None and not node.children:
                index = [name for name, _ in holder.keys].index(key)
                text = parsed.remove(holder, index, inner.get("/".join(above)))
        return text


def _has_hooks(path: Path) -> bool:
    """Return whether a Codex configuration has hooks of its own; its entries about trust (`state`) do not
    count."""
    try:
        hooks = read_toml(path.read_text("utf-8")).get("hooks")
    except (OSError, ConfigError, UnicodeDecodeError):
        return False
    return isinstance(hooks, dict) and bool(hooks.keys() - {"state"})
