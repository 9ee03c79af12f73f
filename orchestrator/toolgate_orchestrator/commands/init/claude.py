"""`toolgate init --from claude`: Claude Code's permissions and MCP servers become a policy that observes."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolgate_bus.config.document import Document, read_document
from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.commands.init.claude_permissions import Places, UnsayableEntry, translate
from toolgate_orchestrator.commands.init.draft import Action, Draft, DraftRule, quote_glob
from toolgate_orchestrator.commands.init.start import ENFORCE, OBSERVE, NextStep, Start

PROJECT_FILES: Final = (".claude/settings.json", ".claude/settings.local.json")
SERVERS_FILE: Final = ".mcp.json"
ORDER: Final[tuple[Action, ...]] = ("deny", "ask", "allow")
"""Order in which Claude Code looks at its entries."""
HEAD: Final = (
    "What Claude Code may do, by its own permissions.",
    "Rules on Bash look at the text of a command, also behind ; & | and in $( ). A shell has other ways to",
    "say the same. Rules on Read are about that tool: Bash, Grep and Glob can read files, too.",
)
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")


class PermissionEntry(NamedTuple):
    """Entry of a settings file."""

    action: Action
    text: str
    file: str
    """Name of its file for people."""
    places: Places


def draft_from_claude(project: Path, user_settings: Path, home: Path) -> Start:
    """Return the files to write for the settings of a project and of its user. Raise ConfigError."""
    whole = project.resolve()
    places = Places(str(whole), str(home), str(whole))
    found = [(whole / name, name, places) for name in PROJECT_FILES]
    found.append((user_settings, str(user_settings), places._replace(root="")))
    read = [(read_document(path), name, own) for path, name, own in found if path.is_file()]
    entries = [entry for document, name, own in read for entry in _entries(document, name, own)]
    servers = _servers(whole / SERVERS_FILE)
    if not entries and not servers:
        looked = ", ".join([*(name for _, name, _ in found), SERVERS_FILE])
        raise ConfigError(f"Claude Code has no permissions and no MCP servers here: looked into {looked}")
    draft = Draft(HEAD, "other calls are left to Claude Code, which may still ask you")
    unique: dict[tuple[Action, str], PermissionEntry] = {}
    for entry in entries:
        unique.setdefault((entry.action, entry.text), entry)
    for action in ORDER:
        for entry in unique.values():
            if entry.action == action:
                _add(draft, entry)
    for server in servers:
        _add_server(draft, server, [entry.text for entry in entries])
    asking = NextStep("Have Claude Code ask it, from its next call on:", ("hook install claude",))
    requiring = NextStep(
        "From then on, deny calls while the policy is away:", ("hook install claude --required policy",)
    )
    files = {"rules.yaml": draft.rules_text(), "cases.yaml": draft.cases_text()}
    return Start(files, (OBSERVE, asking, ENFORCE, requiring), (draft.summary(),))


def _entries(document: Document, name: str, places: Places) -> Iterator[PermissionEntry]:
    permissions = document.mapping().get("permissions", {})
    if not isinstance(permissions, Mapping):
        raise ConfigError(f"{document.where(('permissions',))}: permissions: must be a mapping")
    for action in ORDER:
        listed: Any = permissions.get(action, [])
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            where = document.where(("permissions", action))
            raise ConfigError(f"{where}: permissions.{action}: must be a list of texts")
        for text in listed:
            yield PermissionEntry(action, text.strip(), name, places)


def _servers(path: Path) -> list[str]:
    """Return the names of the MCP servers in a file, as Claude Code writes them in names of tools."""
    if not path.is_file():
        return []
    document = read_document(path)
    servers = document.mapping().get("mcpServers", {})
    if not isinstance(servers, Mapping):
        raise ConfigError(f"{document.where(('mcpServers',))}: mcpServers: must be a mapping")
    return list(dict.fromkeys(_UNFIT.sub("_", str(name)) for name in servers))


def _add(draft: Draft, entry: PermissionEntry) -> None:
    try:
        rules = translate(entry.action, entry.text, entry.places)
    except UnsayableEntry as error:
        draft.leave_out(f"{entry.action} {entry.text} ({entry.file})", str(error))
        return
    for rule in rules:
        draft.add(rule)


def _add_server(draft: Draft, server: str, entries: list[str]) -> None:
    """Add a rule for a server that no entry names: Claude Code asks its user about such tools."""
    prefix = f"mcp__{server}"
    if any(entry == prefix or entry.startswith(f"{prefix}__") for entry in entries):
        return
    draft.add(
        DraftRule(
            name=f"ask about the server {server}",
            tools=(f"{quote_glob(prefix)}__*",),
            action="ask",
            tool=f"{prefix}__x",
            reason=f"no permission of Claude Code names the server {server}",
        )
    )
