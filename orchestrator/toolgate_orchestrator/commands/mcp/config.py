"""Configuration of `toolgate mcp --config FILE`: the servers behind the proxy, and its gate. Pure."""

from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol.events import NAME_PATTERN

from toolgate_orchestrator.decision.config import ToolgateConfig

ServerName = Annotated[str, Field(pattern=NAME_PATTERN)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
Word = Annotated[str, Field(min_length=1, max_length=65_536)]
MAX_SERVERS: Final = 32


class McpServer(StrictModel):
    """One server behind the proxy."""

    command: Annotated[tuple[Word, ...], Field(min_length=1, max_length=1024)] | None = None
    """Program and arguments of a server that speaks MCP on stdin and stdout. It gets the proxy's environment,
    without variables that begin with `TOOLGATE_`."""
    env: Annotated[dict[Variable, str], Field(max_length=256)] = Field(default_factory=dict)
    """Further environment variables for the program."""
    cwd: Path | None = None
    """Working directory of the program."""
    url: Annotated[str, Field(max_length=2048)] | None = None
    """Address of a server that speaks MCP over HTTP. Use it instead of `command`."""
    headers_env: Annotated[
        dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")], Variable], Field(max_length=32)
    ] = Field(default_factory=dict)
    """HTTP headers for `url`: the header's name, and the environment variable of the proxy that holds its
    value (`{Authorization: GITHUB_AUTHORIZATION}`)."""
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{0,64}$")] | None = None
    """Prefix of the names of the server's tools and prompts. Default: the server's name and two underscores,
    or no prefix for a single server."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("give either command or url")
        if self.url is not None:
            check_url(self.url)
        elif self.headers_env:
            raise ValueError("headers_env needs a url")
        return self


class McpConfig(StrictModel):
    """The whole file."""

    servers: Annotated[dict[ServerName, McpServer], Field(min_length=1, max_length=MAX_SERVERS)]
    """Servers by name. Schedulers see the name as the label `mcp_server`."""
    toolgate: ToolgateConfig = ToolgateConfig()
    """Settings of the gate: the keys of [a plan's section](reference/plan.md#the-section-toolgate)."""
    cost_meta: Annotated[str, Field(max_length=256)] = ""
    """Key of a result's `_meta` that holds the cost of a call, in units of the currency. Default: none, and
    only costs that schedulers know count."""
    pin: Path | None = None
    """File that keeps the tools' descriptions as first seen. Default: a file in the user's state
    directory."""
    notice: bool = True
    """Tell the LLM, in the result, that another call ran in place of its own."""
    call_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 3600.0
    """Longest wait for a server's answer to one request, in seconds."""
    start_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120.0
    """Longest wait for a server's first answer and for its list of tools, in seconds."""
    max_message_mb: Annotated[int, Field(ge=1, le=512)] = 16
    """Maximum size of a message from either side, in MiB. A longer message becomes an error."""

    @property
    def max_message(self) -> int:
        """`max_message_mb` in bytes."""
        return self.max_message_mb << 20

    def prefix_of(self, name: str) -> str:
        """Return the prefix of a server's tools."""
        told = self.servers[name].prefix
        if told is not None:
            return told
        return "" if len(self.servers) == 1 else f"{name}__"

    @model_validator(mode="after")
    def _apart(self) -> Self:
        prefixes = [self.prefix_of(name) for name in self.servers]
        for one in prefixes:
            if sum(other.startswith(one) for other in prefixes) > 1:
                raise ValueError(
                    f"servers: the prefix {one!r} begins another one, so tools would be ambiguous; change it"
                )
        return self


def check_url(url: str) -> None:
    """Raise ValueError for a text that is not the address of a server."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"url: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("url: write http://… or https://…")
    if parts.username or parts.password:
        raise ValueError("url: holds a password, which others could read; use headers_env")
