"""The `toolgate:` section of an orchestrator's config: how its calls are ruled on.

One pydantic model, unknown keys refused by name. `Gate.open` takes the same fields as keywords.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from toolgate_bus.config.check import StrictModel, check
from toolgate_bus.protocol.events import NAME_PATTERN
from toolgate_bus.protocol.names import IN_PROCESS, RESERVED_NAMES, explain_reserved
from toolgate_bus.ruling.conditions.patterns import compile_pattern
from toolgate_bus.transport.deferrals import MAX_DEFERRAL_S

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Glob = Annotated[str, Field(min_length=1, max_length=256)]
MAX_CHARS = 16_384
Chars = Annotated[int, Field(ge=16, le=65_536)]
MaxChars = Chars | Annotated[dict[Glob, Chars], Field(max_length=1024)]


class SchedulerLimits(StrictModel):
    """What one scheduler may do, whatever it says of itself."""

    max_priority: int | None = None
    """Verdicts above this priority are lowered to it, and counted."""
    can_modify: tuple[str, ...] | None = None
    """Tools that its modifies may name; without it, any tool that is available."""
    tools: tuple[str, ...] | None = None
    """Globs of the tools that it is asked about; without it, those that it asks for. A required scheduler is
    asked about every tool that these, and what it signed, do not leave out."""
    may_restore: bool = True
    """Whether redacted values go along to the tools of `can_modify`."""


class RedactConfig(StrictModel):
    """What must not leave this process: values travel as placeholders instead."""

    fields: tuple[str, ...] = ()
    """Names of arguments, at any depth, without regard to case."""
    patterns: tuple[str, ...] = ()
    """Regular expressions, in linear time; a text in which one is found is hidden as a whole."""
    max_chars: MaxChars = MAX_CHARS
    """Longer texts travel as placeholders, and `truncated` says so; 16 to 65536. Or by tool: globs, of which
    the first that fits counts (`{write_file: 65536, "*": 4096}`)."""

    @field_validator("patterns")
    @classmethod
    def _compiles(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                compile_pattern(pattern)
            except ValueError as error:
                raise ValueError(f"{pattern!r}: {error}") from None
        return patterns


class ToolgateConfig(StrictModel):
    """Where the bus is, who must answer, and how long to wait."""

    redis: str | None = None
    """URL of the bus: `redis://`, `rediss://`, `unix://`, `redis+sentinel://`, `redis+cluster://`; without
    it, `TOOLGATE_REDIS_URL`, else the user's running server."""
    namespace: Name = "default"
    """Agents and schedulers meet within one; without it, `TOOLGATE_NAMESPACE`."""
    agent: str = ""
    """Name of this agent: schedulers and metrics see it."""
    root_session: str = Field(default="", max_length=256)
    """Of an agent whose parent runs in another process: the root of its tree."""
    parent_session: str = Field(default="", max_length=256)
    """Of such an agent: the session of its parent."""
    lineage: Annotated[tuple[str, ...], Field(max_length=63)] = ()
    """Of such an agent: the names of the agents above it, from the root down."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Names and values that schedulers see, such as team or customer."""
    required: tuple[Name, ...] = ()
    """Schedulers whose silence denies. They are asked about every tool, whatever the roster says, unless
    `schedulers` narrows that, or they sign what they announce."""
    shadow: tuple[Name, ...] = ()
    """Schedulers whose verdicts are recorded and compared, never merged."""
    schedulers: dict[Name, SchedulerLimits] = Field(default_factory=dict)
    """By name, what one may do whatever it says of itself; see below."""
    patience_ms: Annotated[int, Field(ge=1, le=600_000)] = 500
    """How long verdicts are waited for, in milliseconds."""
    max_hold_s: Annotated[float, Field(gt=0, le=86_400)] = 900.0
    """How long one scheduler may hold a call, and in-process hooks may take, in seconds."""
    defer_s: Annotated[float, Field(gt=0, le=MAX_DEFERRAL_S)] | None = None
    """So long a question to a person that is deferred may be answered, in seconds; without it, as long as the
    scheduler says that wants the person asked."""
    verify: bool = True
    """Ask the others about a replacement before it runs."""
    on_bus_down: Literal["continue", "deny"] | None = None
    """What becomes of calls while the server is away: `continue` or `deny`. Without it, `deny` if any is
    required, else `continue`."""
    on_gone: Literal["continue", "deny"] = "continue"
    """What becomes of calls without an optional scheduler that vanished without leaving, for 60 s: `continue`
    (counted, reason `gone`) or `deny`."""
    keys: Path | None = None
    """YAML file, scheduler name to hexadecimal key: verdicts, and what schedulers announce, must be
    signed; without it, `TOOLGATE_KEYS`."""
    redact: RedactConfig = RedactConfig()
    """What leaves the process as a placeholder only; see below. Rules that look at such values fit if they
    deny or ask."""

    @property
    def is_strict(self) -> bool:
        """Whether a call may be denied where nobody was ever met: somebody is required, or the bus is."""
        return bool(self.required) or self.on_bus_down == "deny"

    @property
    def denies_without_bus(self) -> bool:
        """Whether calls are denied while the server is away."""
        return (self.on_bus_down or ("deny" if self.required else "continue")) == "deny"

    @field_validator("required", "shadow", "schedulers")
    @classmethod
    def _not_reserved(cls, names: Any) -> Any:
        if IN_PROCESS in names:
            raise ValueError(f"{IN_PROCESS!r} names the hooks of this process; it is always heard")
        for name in sorted(RESERVED_NAMES.intersection(names)):
            raise ValueError(f"{name!r} is no scheduler's name: {explain_reserved(name)}")
        return names


def parse(config: Any, where: str = "toolgate") -> ToolgateConfig:
    """Read the section; raises ConfigError that names each wrong field."""
    return check(ToolgateConfig, config or {}, where)
