"""Models of a mount plan and of its agents' partial plans.

The module's own model (`config_model` beside its `mount`) checks its config before anything is mounted.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, field_validator
from toolgate_bus.config.check import StrictModel

KINDS: Final = ("orchestrator", "context")
LISTS: Final = ("providers", "tools", "hooks")
SELF: Final = "self"
"""Name of a child that has the parent's own plan."""

Place = tuple[Any, ...]
Name = Annotated[str, Field(min_length=1, description="its name, as in `module: tool-workspace`")]


_BY_NAME = BeforeValidator(lambda value: {"module": value} if isinstance(value, str) else value)
_MAYBE_EMPTY = BeforeValidator(lambda value: {} if value is None else value)
Config = Annotated[dict[str, Any], _MAYBE_EMPTY]


class PartialSpec(StrictModel):
    """Entry of an orchestrator or a context; another place may name its module."""

    module: Name | None = None
    source: Any = None
    config: Config = Field(default_factory=dict)
    instance_id: Any = None

    def as_mapping(self) -> dict[str, Any]:
        """Return the entry in the kernel's form."""
        return {**self.model_dump(exclude_unset=True), "config": self.config}


class ModuleSpec(PartialSpec):
    """Entry of one module to mount."""

    module: Name


Module = Annotated[ModuleSpec, _BY_NAME]
Part = Annotated[PartialSpec, _BY_NAME]
Modules = Annotated[tuple[Module, ...], BeforeValidator(lambda value: () if value is None else value)]


class SessionSection(StrictModel):
    """The `session:` section, with every key that the kernel reads."""

    orchestrator: Part | None = None
    context: Part | None = None
    orchestrator_source: Any = None
    context_source: Any = None
    raw: Any = None
    metadata: Any = None
    injection_budget_per_turn: Any = None
    injection_size_limit: Any = None

    def rest(self) -> dict[str, Any]:
        """Return the section without its orchestrator and its context."""
        return self.model_dump(exclude_unset=True, exclude=set(KINDS))


class _Mounts(StrictModel):
    name: Any = None
    description: Any = None
    session: Annotated[SessionSection, _MAYBE_EMPTY] = SessionSection()
    orchestrator: Part | None = None
    context: Part | None = None
    providers: Modules = ()
    tools: Modules = ()
    hooks: Modules = ()
    agents: "Annotated[dict[str, AgentPlan], _MAYBE_EMPTY]" = Field(default_factory=dict)

    @field_validator("agents")
    @classmethod
    def _nobody_is_self(cls, agents: dict[str, Any]) -> dict[str, Any]:
        if SELF in agents:
            raise ValueError(f"{SELF!r} always means the agent itself; choose another name")
        return agents


class AgentPlan(_Mounts):
    """Partial plan of an agent, merged over its parent's."""

    system: dict[str, Any] | str | None = None
    instruction: Any = None
    meta: Any = None


class PlanFile(_Mounts):
    """A mount plan."""

    orchestrators: Modules = ()
    contexts: Modules = ()

    def module_specs(self, kind: str) -> Sequence[ModuleSpec]:
        """Return the plan's list of orchestrators, or of contexts."""
        return self.orchestrators if kind == "orchestrator" else self.contexts


def modules_in(part: _Mounts, at: Place = ()) -> Iterator[tuple[Place, PartialSpec]]:
    """Yield each module that a plan mounts or its agents name, with its place. Lists of orchestrators and
    contexts are left out."""
    for name in LISTS:
        for index, spec in enumerate(getattr(part, name)):
            yield (*at, name, index), spec
    for kind in KINDS:
        for place, holder in ((("session", kind), part.session), ((kind,), part)):
            if (spec := getattr(holder, kind)) is not None:
                yield (*at, *place), spec
    for name, agent in part.agents.items():
        yield from modules_in(agent, (*at, "agents", name))
