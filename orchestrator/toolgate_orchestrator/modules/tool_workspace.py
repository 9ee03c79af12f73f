"""Amplifier tool module `tool-workspace`: files in one folder. Config: `root`, the folder.

The tools are `list_files`, `read_file`, `write_file` and `delete_file`. Nothing outside the root is read,
written or named, for any path and any symbolic link; sizes are bounded for reading and writing.
"""

import os
from itertools import islice
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

MAX_BYTES = 256 * 1024
MAX_ENTRIES = 500


def workspace_tools(root: Path) -> list[FunctionTool]:
    """Return the four tools, working inside `root` (resolved already)."""
    path = {"path": "File, relative to the workspace"}
    return [
        FunctionTool(
            "list_files",
            "List a folder.",
            schema({}, {"folder": "Folder; the workspace if left out"}),
            in_thread(_list, root),
        ),
        FunctionTool("read_file", "Read a text file.", schema(path), in_thread(_read, root)),
        FunctionTool(
            "write_file",
            "Write a text file, replacing what is there.",
            schema({**path, "content": "The whole new text"}),
            in_thread(_write, root),
        ),
        FunctionTool("delete_file", "Delete a file for good.", schema(path), in_thread(_delete, root)),
    ]


def _list(root: Path, arguments: dict[str, Any]) -> list[str]:
    folder = text_argument(arguments, "folder", ".")
    directory = inside(root, folder)
    if not directory.is_dir():
        raise ToolRefusal(f"there is no folder {folder!r}")
    with os.scandir(directory) as entries:
        names = sorted(
            entry.name + ("/" if entry.is_dir() else "") for entry in islice(entries, MAX_ENTRIES + 1)
        )
    if len(names) > MAX_ENTRIES:
        raise ToolRefusal(f"{folder!r} holds more than {MAX_ENTRIES} files")
    return names


def _file(root: Path, arguments: dict[str, Any]) -> tuple[str, Path]:
    """Return the path as the LLM wrote it, and its file."""
    path = text_argument(arguments, "path")
    file = inside(root, path)
    if not file.is_file():
        raise ToolRefusal(f"there is no file {path!r}")
    return path, file


def _read(root: Path, arguments: dict[str, Any]) -> str:
    path, file = _file(root, arguments)
    with file.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ToolRefusal(f"{path!r} is larger than {MAX_BYTES // 1024} KiB")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ToolRefusal(f"{path!r} is not a text file") from None


def _write(root: Path, arguments: dict[str, Any]) -> str:
    path, content = text_argument(arguments, "path"), text_argument(arguments, "content", limit=MAX_BYTES)
    file = inside(root, path)
    data = content.encode(errors="replace")
    if len(data) > MAX_BYTES:
        raise ToolRefusal(f"the content is larger than {MAX_BYTES // 1024} KiB")
    if file == root or file.is_dir():
        raise ToolRefusal(f"{path!r} is a folder")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return f"wrote {len(data)} bytes to {path}"


def _delete(root: Path, arguments: dict[str, Any]) -> str:
    path, _ = _file(root, arguments)
    # Delete a link itself, not its target.
    (root / path).unlink()
    return f"deleted {path}"


async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
    """Mount the four tools; raise ConfigError unless `root` names a folder."""
    for tool in workspace_tools(root_of(config, "tool-workspace")):
        await coordinator.mount("tools", tool, name=tool.name)
