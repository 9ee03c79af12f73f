"""The `toolgate:` section of an orchestrator's configuration: who rules on its calls, and how.

It is one pydantic model that refuses unknown keys by name. `Gate.open` takes the same fields as keywords.
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
    """Limits on what one scheduler may do, whatever it announces."""

    max_priority: int | None = None
    """Highest priority its verdicts may have. Higher ones are lowered to it, and counted."""
    can_modify: tuple[str, ...] | None = None
    """Tools that its `modify` verdicts may name. Default: any tool that is available."""
    tools: tuple[str, ...] | None = None
    """Globs of the tools that it is asked about. Default: the tools that it asks for. A required scheduler is
    asked about every tool, except those that these globs, or its signed announcement, leave out."""
    results: bool | None = None
    """Whether it is asked about results of calls. Default: if it asks for them. A required scheduler without
    whose answer no result is given needs this only if the agent may start before it."""
    may_restore: bool = True
    """Whether redacted values are restored for the tools of `can_modify`."""


class RedactConfig(StrictModel):
    """Values that must not leave this process: they travel as placeholders instead."""

    fields: tuple[str, ...] = ()
    """Names of arguments to hide, at any depth. Case does not matter."""
    patterns: tuple[str, ...] = ()
    """Regular expressions, matched in linear time. A text in which one is found is hidden as a whole."""
    max_chars: MaxChars = MAX_CHARS
    """Longest text in characters, 16 to 65536. A longer text travels as a placeholder, and `truncated` says
    so. It may differ by tool: the first glob that fits counts (`{write_file: 65536, "*": 4096}`)."""

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
    """The configuration of one gate: where the bus is, who must answer, how long to wait, what to hide.

    The name of a time ends in its unit: ms or s. `parse` raises ConfigError, which names each wrong field.
    """

    redis: str | None = None
    """URL of the bus: `redis://`, `rediss://`, `unix://`, `redis+sentinel://` or `redis+cluster://`. Default:
    `TOOLGATE_REDIS_URL`, else the user's running server."""
    namespace: Name = "default"
    """Namespace in which agents and schedulers meet. Default: `TOOLGATE_NAMESPACE`, else `default`."""
    agent: str = ""
    """Name of this agent, as schedulers and metrics see it."""
    root_session: str = Field(default="", max_length=256)
    """Id of the root session, for an agent whose parent runs in another process."""
    parent_session: str = Field(default="", max_length=256)
    """Id of the parent's session, for an agent whose parent runs in another process."""
    lineage: Annotated[tuple[str, ...], Field(max_length=63)] = ()
    """Names of the agents above this one, from the root down, if its parent runs in another process."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Names and values that schedulers see, such as team or customer."""
    required: tuple[Name, ...] = ()
    """Schedulers without whose answer no call runs. They are asked about every tool, even if they are not on
    the roster. `schedulers`, or what they announce and sign, can narrow that."""
    shadow: tuple[Name, ...] = ()
    """Schedulers whose verdicts are recorded and compared, but never count."""
    schedulers: dict[Name, SchedulerLimits] = Field(default_factory=dict)
    """Limits by scheduler name: what that scheduler may do, whatever it announces; see below."""
    patience_ms: Annotated[int, Field(ge=1, le=600_000)] = 500
    """Longest wait for verdicts, in milliseconds."""
    max_hold_s: Annotated[float, Field(gt=0, le=86_400)] = 900.0
    """Longest time that a scheduler may hold a call, and that in-process hooks may take, in seconds."""
    result_bytes: Annotated[int, Field(ge=1024, le=196_608)] = 65_536
    """Most bytes of a result that are sent to schedulers. If any scheduler rules on it, the LLM gets no more
    of a longer one."""
    defer_s: Annotated[float, Field(gt=0, le=MAX_DEFERRAL_S)] | None = None
    """Seconds in which a person may answer a deferred question. Default: those that the scheduler gives."""
    verify: bool = True
    """Whether the other schedulers are asked about a replacement before it runs."""
    on_bus_down: Literal["continue", "deny"] | None = None
    """What happens to calls while the server cannot be reached: `continue` or `deny`. Default: `deny` if a
    scheduler is required, else `continue`."""
    on_gone: Literal["continue", "deny"] = "continue"
    """What happens to calls for 60 s after an optional scheduler vanished without leaving: `continue`
    (counted, reason `gone`) or `deny`."""
    offer_denied: bool = False
    """Whether the LLM is also offered a tool if a scheduler's local table denies every call of it."""
    keys: Path | None = None
    """YAML file with a hexadecimal key for each scheduler name. With it, verdicts and what schedulers
    announce must be signed. Default: `TOOLGATE_KEYS`."""
    redact: RedactConfig = RedactConfig()
    """Values that leave the process as placeholders only; see below. A rule that reads such a value fits if
    it denies or asks."""

    @property
    def is_strict(self) -> bool:
        """True if calls may be denied though no scheduler was ever met: one is required, or the bus is."""
        return bool(self.required) or self.on_bus_down == "deny"

    @property
    def denies_without_bus(self) -> bool:
        """True if calls are denied while the server cannot be reached."""
        return (self.on_bus_down or ("deny" if self.required else "continue")) == "deny"

    @field_validator("required", "shadow", "schedulers")
    @classmethod
    def _not_reserved(cls, names: Any) -> Any:
        if IN_PROCESS in names:
            raise ValueError(f"{IN_PROCESS!r} stands for the hooks of this process, which are always asked")
        for name in sorted(RESERVED_NAMES.intersection(names)):
            raise ValueError(f"{name!r} is not a scheduler's name: {explain_reserved(name)}")
        return names


def parse(config: Any, where: str = "toolgate") -> ToolgateConfig:
    """Read the section. Raise ConfigError, which names each wrong field."""
    return check(ToolgateConfig, config or {}, where)
