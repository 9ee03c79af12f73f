r"""Claude Code's permission entries as rules of a policy: `Bash(npm run test:*)`, `Read(./.env)`, … Pure.

It follows Claude Code's reference on permissions. A rule that denies or asks may be stricter than its entry,
and its note says so. A rule that allows is never wider than its entry. An entry that no rule can say in this
way is refused with the reason.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.commands.init.draft import Action, DraftRule

MAX_ENTRY: Final = 256
"""Maximum length of an entry, in characters: its pattern has to fit into a condition."""
_ENTRY: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_.:*-]*)(?:\((.*)\))?")
_HOST: Final = re.compile(r"(?:\*\.)?[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*")
_FILE_TOOLS: Final[Mapping[str, tuple[tuple[str, tuple[str, ...]], ...]]] = {
    "Read": (("file_path", ("Read",)),),
    "Edit": (("file_path", ("Edit", "MultiEdit", "Write")), ("notebook_path", ("NotebookEdit",))),
    "Write": (("file_path", ("Write",)),),
    "MultiEdit": (("file_path", ("MultiEdit",)),),
    "NotebookEdit": (("notebook_path", ("NotebookEdit",)),),
}
"""Tools that an entry about files is about, by the argument that holds the path."""
_AGENT_TOOLS: Final = ("Agent", "Task")
_BEGINS: Final = r"(^|[;&|\n(`{]\s*)"
"""Beginning of a command in a line of a shell."""
_ENDS: Final = r"\s*($|[;&|\n)<>}])"
_ONE_COMMAND: Final = r"[^;&|<>`$(){}\n\\]*"
"""Text that ends no command and begins no other."""


class UnsayableEntry(ConfigError):  # noqa: N818 - it says what an entry is
    """Error for an entry that no rule can say; the message is the reason."""


class Places(NamedTuple):
    """Folders in which the paths of entries begin."""

    project: str
    home: str
    root: str = ""
    """Folder of paths that begin with one slash; empty if that is not certain."""


class _Condition(NamedTuple):
    """Condition of a rule, and arguments that meet it."""

    tools: tuple[str, ...]
    arguments: Mapping[str, Any]
    when: Mapping[str, Any]
    note: str = ""


def translate(action: Action, entry: str, places: Places) -> list[DraftRule]:
    """Return the rules that say an entry. Raise UnsayableEntry."""
    found = _ENTRY.fullmatch(entry)
    if found is None or len(entry) > MAX_ENTRY or not entry.isprintable():
        raise UnsayableEntry("it is not written as Tool or Tool(…), or it is too long")
    tool, inner = found[1], (found[2] or "").strip()
    is_whole = inner in ("", "*")
    said = iter([_Condition(_tools_of(tool), {}, {})]) if is_whole else _say(tool, inner, action, places)
    reason = "" if action == "allow" else f"Claude Code's settings say {action}: {entry}"
    return [
        DraftRule(
            name=f"{action} {entry}" if number == 0 else f"{action} {entry} by {one.tools[0]}",
            tools=one.tools,
            action=action,
            tool=one.tools[0].replace("*", "x"),
            arguments=one.arguments,
            when=one.when,
            reason=reason,
            note=one.note,
        )
        for number, one in enumerate(said)
    ]


def _tools_of(tool: str) -> tuple[str, ...]:
    """Return the globs of the tools that a name without arguments stands for."""
    if tool in _FILE_TOOLS:
        return tuple(name for _, names in _FILE_TOOLS[tool] for name in names)
    if tool in _AGENT_TOOLS:
        return _AGENT_TOOLS
    is_server = tool.startswith("mcp__") and tool.count("__") == 1 and not tool.endswith("*")
    return (f"{tool}__*",) if is_server else (tool,)


def _say(tool: str, inner: str, action: Action, places: Places) -> Iterator[_Condition]:
    if tool == "Bash":
        yield _say_command(inner, action)
    elif tool in _FILE_TOOLS:
        condition, example, note = _say_path(inner, action, places)
        for argument, tools in _FILE_TOOLS[tool]:
            yield _Condition(tools, {argument: example}, {argument: condition}, note)
    elif tool == "WebFetch" and inner.startswith("domain:"):
        yield _say_host(inner.removeprefix("domain:").strip(), action)
    elif tool in _AGENT_TOOLS and "*" not in inner:
        yield _Condition(_AGENT_TOOLS, {"subagent_type": inner}, {"subagent_type": {"equals": inner}})
    else:
        raise UnsayableEntry(f"Toolgate does not know which argument of {tool} it is about")


def _say_command(inner: str, action: Action) -> _Condition:
    is_beginning = inner.endswith((":*", " *"))
    stem = inner[:-2].rstrip() if is_beginning else inner
    if not stem.strip("*: "):
        return _Condition(("Bash",), {}, {})
    if action == "allow":
        body = _ONE_COMMAND.join(map(_escape, stem.split("*")))
        pattern = rf"\A{body}([ \t]{_ONE_COMMAND})?\Z" if is_beginning else rf"\A{body}\Z"
    else:
        body = ".*".join(map(_escape, stem.split("*")))
        pattern = rf"{_BEGINS}{body}(\s|{_ENDS})" if is_beginning else f"{_BEGINS}{body}{_ENDS}"
    return _Condition(("Bash",), {"command": stem.replace("*", "x")}, {"command": {"matches": pattern}})


def _say_path(inner: str, action: Action, places: Places) -> tuple[Mapping[str, Any], str, str]:
    """Return the condition of a path, a path that meets it, and a note."""
    base, rest = _find_base(inner, places)
    if set(rest) & set("?[]{}!\\"):
        raise UnsayableEntry("of the signs in a path, a rule knows only * and **")
    *folders, name = rest.rstrip("/").split("/")
    is_anchored = bool(folders) or inner.startswith(("./", "/", "~/"))
    note = ""
    if name == "**" or ("*" not in name and is_anchored and folders[-1:] != ["**"]):
        folders, below, name = ([*folders], "/x", "") if name == "**" else ([*folders, name], "", "")
    elif folders[-1:] == ["**"]:
        folders, below = folders[:-1], ""
    else:
        below, note = "", "this rule is also about folders further down" if is_anchored else ""
        if is_anchored and action == "allow":
            raise UnsayableEntry("an allow would also be about folders further down")
    if "*" in "".join(folders) or "**" in name:
        raise UnsayableEntry("a rule knows no * in the name of a folder")
    folder = "/".join([base.rstrip("/"), *folders]) or "/"
    condition = {"under": folder, "base": places.project}
    if not name:
        return condition, f"{folder.rstrip('/')}{below}" or "/", note
    body = "[^/]*".join(map(_escape, name.split("*")))
    ends = r"\Z" if action == "allow" else r"(/|\Z)"
    example = f"{folder.rstrip('/')}/{name.replace('*', 'x')}"
    return {**condition, "matches": rf"(\A|/){body}{ends}"}, example, note


def _find_base(inner: str, places: Places) -> tuple[str, str]:
    """Return the folder in which the path of an entry begins, and the rest of the path."""
    if inner.startswith("//"):
        return "/", inner[2:]
    if inner.startswith("~/"):
        return places.home, inner[2:]
    if not inner.startswith("/"):
        return places.project, inner.removeprefix("./")
    if not places.root:
        raise UnsayableEntry("it is not certain where this path begins: write // or ~/ at its beginning")
    return places.root, inner[1:]


def _say_host(host: str, action: Action) -> _Condition:
    if host == "*":
        return _Condition(("WebFetch",), {}, {})
    if _HOST.fullmatch(host) is None:
        raise UnsayableEntry("it is no name of a host")
    name = host.removeprefix("*.")
    body = (r"([a-z0-9-]+\.)+" if host != name else "") + _escape(name)
    if action == "allow":
        pattern = rf"(?i)\Ahttps?://{body}(:\d+)?([/?#]|\Z)"
    else:  # as loosely as a browser reads an address
        pattern = rf"(?i)\A\s*([a-z][a-z0-9+.-]*:)?[/\\]*([^/?#\\]*@)?{body}\.?(:\d*)?([/?#\\]|\s*\Z)"
    example = f"https://{'www.' if host != name else ''}{name}/"
    return _Condition(("WebFetch",), {"url": example}, {"url": {"matches": pattern}})


def _escape(text: str) -> str:
    """Return the pattern of a text. Blanks stay as they are, for a person who reads it."""
    return re.escape(text).replace("\\ ", " ")
