"""`toolgate init --from mcp`: a client's file of MCP servers becomes a policy, and the file with the gate in
front."""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from toolgate_bus.commands.options import command_name
from toolgate_bus.config.document import Document, read_document
from toolgate_bus.errors import ConfigError
from toolgate_bus.telemetry.printable import visible

from toolgate_orchestrator.commands.init.draft import Action, Draft, DraftRule
from toolgate_orchestrator.commands.init.start import ENFORCE, OBSERVE, Start

GATED_FILE: Final = "mcp.gated.json"
HEAD: Final = (
    "What an MCP client may do with its servers.",
    "The servers were not started, so the rules go by words in the names of tools. `toolgate decisions`",
    "shows the names that were called. Write rules for these names.",
)
GLOBS: Final[Mapping[Action, tuple[tuple[str, ...], str, str]]] = {
    "deny": (
        ("*delete*", "*destroy*", "*drop_*", "*erase*", "*purge*", "*remove*", "*revoke*", "*truncate*"),
        "delete_it",
        "tools that take something away",
    ),
    "ask": (
        (
            *(
                "*create*",
                "*deploy*",
                "*edit*",
                "*exec*",
                "*merge*",
                "*move*",
                "*pay*",
                "*publish*",
                "*push*",
            ),
            *("*run_*", "*send*", "*transfer*", "*update*", "*upload*", "*write*"),
        ),
        "write_it",
        "tools that change something",
    ),
    "allow": (("*",), "list_all", "other tools"),
}
"""Tools of a server by the action for them, with the name of one of them, and words for all."""
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def draft_from_mcp(path: Path) -> Start:
    """Return the files to write for a client's file of MCP servers. Raise ConfigError."""
    document = read_document(path)
    whole = document.mapping()
    servers: Any = whole.get("mcpServers")
    if not isinstance(servers, Mapping) or not servers:
        raise ConfigError(f"{document.where(('mcpServers',))}: mcpServers: must have a server; name its file")
    draft, gated, notes = Draft(HEAD), dict[str, Any](), list[str]()
    draft.add(
        DraftRule(
            name="changed tools",
            tools=("*",),
            action="deny",
            tool="x",
            labels={"mcp_tool_changed": "true"},
            reason="this tool is not what it was when it was first seen",
        )
    )
    names: set[str] = set()
    for written, server in servers.items():
        if not isinstance(server, Mapping):
            where = document.where(("mcpServers", written))
            raise ConfigError(f"{where}: mcpServers.{visible(written)}: must be a mapping")
        name = _name_of(written, names)
        front, why = _front(document, written, server, name)
        gated[written] = front
        if why:
            notes.append(f"{visible(written)} has no gate in {GATED_FILE}: {why}")
            draft.leave_out(f"server {written}", why)
        else:
            _add_rules(draft, name)
    texts = {
        "rules.yaml": draft.rules_text(),
        "cases.yaml": draft.cases_text(),
        GATED_FILE: json.dumps({**whole, "mcpServers": gated}, indent=2, ensure_ascii=False) + "\n",
    }
    place = (
        f"Put {GATED_FILE} in the place of {path}: its servers ask first. Once you enforce the rules, write "
        '"--required", "policy" behind "mcp" there: then calls are denied while the policy is away.'
    )
    notes = [draft.summary(), place, *notes]
    return Start(texts, (OBSERVE, ENFORCE), tuple(notes), frozenset({GATED_FILE}))


def _name_of(written: str, taken: set[str]) -> str:
    """Return a name for schedulers that no other server has."""
    base = _UNFIT.sub("-", written).strip("-")[:56] or "server"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    taken.add(name)
    return name


def _front(
    document: Document, written: str, server: Mapping[str, Any], name: str
) -> tuple[Mapping[str, Any], str]:
    """Return a server's entry with the gate in front; or the entry itself, and why it has none."""
    command, args, url = server.get("command"), server.get("args", []), server.get("url")
    if isinstance(command, str) and command:
        if not isinstance(args, list) or not all(isinstance(one, str) for one in args):
            where = document.where(("mcpServers", written, "args"))
            raise ConfigError(f"{where}: mcpServers.{visible(written)}.args: must be a list of texts")
        if Path(command).name == "toolgate" and args[:1] == ["mcp"]:
            return server, "it is `toolgate mcp` already"
        behind, kept = [command, *args], server
    elif isinstance(url, str) and url:
        if server.get("type") == "sse":
            return server, "Toolgate does not speak the transport SSE"
        if server.get("headers"):
            return server, "it sends headers: write it into a servers.yaml, with headers_env"
        behind = [url]
        kept = {key: value for key, value in server.items() if key not in ("url", "type")}
    else:
        return server, "it has neither command nor url"
    gate = {"command": shlex.split(command_name())[0], "args": ["mcp", "--name", name, "--", *behind]}
    return {**kept, **gate}, ""


def _add_rules(draft: Draft, server: str) -> None:
    for action, (globs, tool, what) in GLOBS.items():
        draft.add(
            DraftRule(
                name=f"{server}, {what}",
                tools=globs,
                action=action,
                tool=tool,
                labels={"mcp_server": server},
                reason="" if action == "allow" else f"this is one of the {what}",
            )
        )
