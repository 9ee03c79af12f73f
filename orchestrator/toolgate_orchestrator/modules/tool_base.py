"""Make tools from a function and a schema, with safe paths, for the small real tools.

A tool's failure is a result, never an exception: `ToolRefusal` holds the message for the LLM. Paths are
relative to one root: absolute ones, and `..` and symbolic links that lead out are refused.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import anyio.to_thread
from amplifier_core import ToolResult
from pydantic import Field, field_validator
from toolgate_bus.config.check import StrictModel, check

Work = Callable[[dict[str, Any]], Awaitable[Any]]


class ToolRefusal(Exception):  # noqa: N818 - an answer to the LLM, not a fault of the program
    """The tool refuses or cannot do its work; the LLM is told the message."""


@dataclass(frozen=True)
class FunctionTool:
    """Amplifier tool that calls one async function with the checked input."""

    name: str
    description: str
    input_schema: dict[str, Any]
    work: Work

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the Tool protocol's name
        """Run the tool; a `ToolRefusal` or an error of the file system becomes an unsuccessful result."""
        try:
            missing = [name for name in self.input_schema["required"] if name not in input]
            if missing:
                raise ToolRefusal(f"{self.name} needs {', '.join(missing)}")
            return ToolResult(output=await self.work(input))
        except ToolRefusal as refusal:
            message = str(refusal)
        except OSError as error:
            message = f"{error.strerror or 'the file system refused'}"
        return ToolResult(success=False, output=f"Error: {message}", error={"message": message})


def schema(required: dict[str, str], optional: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a JSON schema of string properties (name to description) that allows no others."""
    named = {**required, **(optional or {})}
    return {
        "type": "object",
        "properties": {name: {"type": "string", "description": about} for name, about in named.items()},
        "required": list(required),
        "additionalProperties": False,
    }


def text_argument(arguments: dict[str, Any], name: str, default: str = "", limit: int = 4096) -> str:
    """Return a string argument; raise ToolRefusal for another type or more than `limit` characters."""
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise ToolRefusal(f"{name} must be a string")
    if len(value) > limit:
        raise ToolRefusal(f"{name} is longer than {limit} characters")
    return value


def in_thread(work: Callable[[Path, dict[str, Any]], Any], root: Path) -> Work:
    """Return the work of a tool on files below `root`, off the event loop; a cancelled call does not wait for
    it."""

    async def run(arguments: dict[str, Any]) -> Any:
        return await anyio.to_thread.run_sync(work, root, arguments, abandon_on_cancel=True)

    return run


class RootConfig(StrictModel):
    """Configuration of a tool that works in a folder."""

    root: Annotated[Path, Field(description="a folder that exists")]

    @field_validator("root")
    @classmethod
    def _is_there(cls, root: Path) -> Path:
        if not root.is_dir():
            raise ValueError("must name a folder that exists")
        return root


def root_of(config: dict[str, Any] | None, module: str) -> Path:
    """Return the folder that a tool module works in; raise ConfigError, which names the field."""
    return check(RootConfig, config or {}, module).root.resolve()


def inside(root: Path, path: str) -> Path:
    """Return the file of a relative path; raise ToolRefusal if it is, or leads, outside the root."""
    if "\0" in path or Path(path).is_absolute():
        raise ToolRefusal(f"{path!r} is not a path inside the workspace")
    try:
        resolved = (root / path).resolve()
    except (OSError, RuntimeError):
        raise ToolRefusal(f"{path!r} cannot be resolved") from None
    if not resolved.is_relative_to(root):
        raise ToolRefusal(f"{path!r} leads out of the workspace")
    return resolved
