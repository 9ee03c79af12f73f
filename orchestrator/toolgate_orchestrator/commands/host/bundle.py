"""Finds the loop that a bundle would mount, and the included bundle that names it. Pure.

A bundle's includes come first, in their order, each with its own includes; then comes the bundle itself. A
later `session.orchestrator` is merged over an earlier one. Keys that it leaves out stay, above all `source:`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from toolgate_orchestrator.modules.loop_origin import merge_spec

LOST: Final = ("orchestrators", "orchestrator", "contexts")
"""Sections of a plan that bundles do not know. Amplifier ignores them in a bundle without a message."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One of the bundles that make up a bundle."""

    name: str
    where: str
    content: Mapping[str, Any] = field(default_factory=dict)
    unseen: str | None = None
    """Reason that the bundle could not be read; None if it was read."""

    def __str__(self) -> str:
        return f"{self.name} ({self.where})" if self.name != self.where else self.where


@dataclass(frozen=True, slots=True)
class Composition:
    """Result of merging all layers."""

    layers: Sequence[Layer]
    spec: Mapping[str, Any]
    """The merged `orchestrator:` entry; empty if no layer has one."""
    named_by: Mapping[str, Layer]
    """Layer that sets `module`, and layer that sets `source`. A key is absent if no layer sets it."""
    hooks: Mapping[str, Mapping[str, Any]]
    """Config of each hook module, by its id."""
    agents: Mapping[str, Any]
    """The `orchestrator:` entry of each agent that has one."""
    decided_at: int = -1
    """Index of the layer from which module and source are settled; layers before it do not matter."""

    @property
    def unseen(self) -> list[Layer]:
        """Layers that could not be read."""
        return [layer for layer in self.layers if layer.unseen is not None]

    @property
    def is_certain(self) -> bool:
        """True if no unread layer could set another module or source."""
        last = max((index for index, layer in enumerate(self.layers) if layer.unseen is not None), default=-1)
        return last <= self.decided_at


def compose(layers: Iterable[Layer]) -> Composition:
    """Merge bundles, the first lowest."""
    layers = list(layers)
    spec: dict[str, Any] = {}
    named_by: dict[str, Layer] = {}
    hooks: dict[str, Mapping[str, Any]] = {}
    agents: dict[str, Any] = {}
    decided = {"module": -1, "source": -1}
    for index, layer in enumerate(layers):
        named = _as_mapping(layer.content.get("session")).get("orchestrator")
        if isinstance(named, str):  # a bare name replaces the whole entry
            named_by.pop("source", None)
        if named:
            spec = merge_spec(spec, named)
            said = {"module"} if isinstance(named, str) else {*_as_mapping(named)}
            named_by |= {key: layer for key in decided if key in said}
            decided |= {key: index for key in decided if key in said or isinstance(named, str)}
        for hook in _as_list(layer.content.get("hooks")):
            name = str(_as_mapping(hook).get("module"))
            hooks[name] = merge_spec(hooks.get(name), _as_mapping(_as_mapping(hook).get("config")))
        for name, agent in _as_mapping(layer.content.get("agents")).items():
            brought = _as_mapping(_as_mapping(agent).get("session")).get("orchestrator")
            if brought:
                agents[str(name)] = brought
    return Composition(layers, spec, named_by, hooks, agents, min(decided.values()))


def lost_sections(layer: Layer) -> list[str]:
    """Return the sections of a layer that have a meaning only in a plan."""
    return [name for name in LOST if name in layer.content]


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
