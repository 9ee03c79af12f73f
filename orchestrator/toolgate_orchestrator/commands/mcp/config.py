"""What `toolgate mcp --config FILE` reads: the servers behind the proxy, and how their calls are ruled on.
Pure."""

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
    """The program and its arguments; it speaks MCP on its stdin and stdout. It is given the environment of
    the proxy, but for what begins with `TOOLGATE_`."""
    env: Annotated[dict[Variable, str], Field(max_length=256)] = Field(default_factory=dict)
    """Variables that are set for it beside those."""
    cwd: Path | None = None
    """The directory that it is started in."""
    url: Annotated[str, Field(max_length=2048)] | None = None
    """In place of `command`: the address of a server that speaks MCP over HTTP."""
    headers_env: Annotated[
        dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")], Variable], Field(max_length=32)
    ] = Field(default_factory=dict)
    """Headers that go along to that address: by name, the variable of the proxy's environment that holds
    the value (`{Authorization: GITHUB_AUTHORIZATION}`)."""
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{0,64}$")] | None = None
    """Put before the names of its tools and prompts. Without it, none where it is the only server, else
    its name and two underscores."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("give either command or url")
        if self.url is not None:
            check_url(self.url)
        elif self.headers_env:
            raise ValueError("headers_env is for a url")
        return self


class McpConfig(StrictModel):
    """The whole file."""

    servers: Annotated[dict[ServerName, McpServer], Field(min_length=1, max_length=MAX_SERVERS)]
    """The servers by name; schedulers see it as the label `mcp_server`."""
    toolgate: ToolgateConfig = ToolgateConfig()
    """How calls are ruled on: the keys of [a plan's section](reference/plan.md#the-section-toolgate)."""
    cost_meta: Annotated[str, Field(max_length=256)] = ""
    """The key of a result's `_meta` under which servers say what a call cost, in units of the currency;
    without it, costs are what schedulers know of."""
    pin: Path | None = None
    """The file that keeps what tools said of themselves when they were first seen; without it, one in the
    user's state directory."""
    notice: bool = True
    """Whether the result of a call that was replaced says so to the LLM."""
    call_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 3600.0
    """How long a server may take for one request, in seconds."""
    start_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120.0
    """How long it may take for its first answer, and to say which tools it has."""
    max_message_mb: Annotated[int, Field(ge=1, le=512)] = 16
    """The longest message of either side, in MiB; a longer one becomes an error."""

    @property
    def max_message(self) -> int:
        """The same in bytes."""
        return self.max_message_mb << 20

    def prefix_of(self, name: str) -> str:
        """What is put before the names of a server's tools."""
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
                    f"servers: the prefix {one!r} begins another one: tools could not be told apart"
                )
        return self


def check_url(url: str) -> None:
    """Raise ValueError for what is no address of a server."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"url: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("url: write http://… or https://…")
    if parts.username or parts.password:
        raise ValueError("url: holds a password, which others could read; use headers_env")
