"""Find whether a plan's `orchestrator:` entry would mount one of Toolgate's loops, or a foreign one.

If the session's resolver follows `source:`, that decides; otherwise the entry points of the installed
distributions do. If two of them offer the same id, the order of a directory decides: then no loop is certain.
"""

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import PurePosixPath
from typing import Any, Final

GROUP: Final = "amplifier.modules"
OWN_LOOPS: Final = (
    "loop-toolgate-basic",
    "loop-toolgate-streaming",
    "loop-toolgate-events",
    "loop-toolgate-reactive",
)
"""Ids that no other package offers, and names of the packages that a `source:` can give."""
GUARD: Final = "hooks-toolgate-required"
RULING_HOOKS: Final = ("hooks-scheduler-", "hooks-toolgate-cost-aware", "hooks-toolgate-heuristic")
"""Beginnings of the ids of modules that rule in the agent's process; other hooks may only listen."""
CHANGE_LOOP: Final = (
    'under session.orchestrator write `module: loop-toolgate-streaming` and `source: ""`, or include the '
    "behavior toolgate last"
)
_OURS: Final = "toolgate_orchestrator."


def merge_spec(lower: Any, upper: Any) -> dict[str, Any]:
    """Merge one `orchestrator:` entry over another, as bundles are composed: missing keys are inherited."""
    if not isinstance(upper, Mapping):
        return _as_mapping(lower) if upper is None else _as_mapping(upper)
    merged = _as_mapping(lower)
    for key, value in upper.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge_spec(merged[key], value) if both else value
    return merged


def explain_foreign_loop(
    spec: Mapping[str, Any], *, by_source: bool, points: Iterable[EntryPoint] | None = None
) -> str | None:
    """Return the reason that an entry would not certainly mount one of Toolgate's loops; None if it would.

    `by_source` is True if the session has a resolver that follows `source:`.
    """
    module, source = str(spec.get("module") or ""), spec.get("source")
    if by_source and source:
        if isinstance(source, str) and package_of(source) in OWN_LOOPS:
            return None
        return f"{module} comes from {source}"
    found = entry_points(group=GROUP) if points is None else points
    offers = [point for point in found if point.name == module]
    names = sorted({point.dist.name if point.dist is not None else point.value for point in offers})
    if len(names) > 1:
        return f"{module} is offered by {' and by '.join(names)}: which of them mounts is a matter of chance"
    if offers and offers[0].value.startswith(_OURS):
        return None
    return f"{module} is {names[0]}'s" if names else f"{module} is not one of the modules installed here"


def package_of(source: str) -> str:
    """Return the last folder that a source names: of its `#subdirectory=`, else of its path."""
    _, _, fragment = source.partition("#subdirectory=")
    return PurePosixPath((fragment or source).partition("&")[0].partition("#")[0].rstrip("/")).name


def _as_mapping(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"module": value}
    return dict(value) if isinstance(value, Mapping) else {}
