"""Find keys of the `toolgate:` section that stand in the wrong place of a plan or a bundle.

`required` beside the section instead of in it would let every call run. Only places where such a key is
known to have no meaning are checked; settings of foreign modules are left alone.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolgate_orchestrator.decision.config import ToolgateConfig

SECTION: Final = "toolgate"
KEYS: Final = frozenset({SECTION, *ToolgateConfig.model_fields})
KINDS: Final = ("orchestrator", "context")
SPEC: Final = frozenset({"module", "source", "config", "instance_id"})
SESSION: Final = frozenset(
    {
        *KINDS,
        *(f"{kind}_source" for kind in KINDS),
        *("raw", "metadata", "injection_budget_per_turn", "injection_size_limit"),
    }
)
"""Keys that the kernel reads below `session:`."""
LOOPS: Final = frozenset({"loop-basic", "loop-streaming", "loop-events", "loop-reactive"})
"""Ids of our loops, without `-toolgate-`. One that is missing is checked only if it has the section."""
RIGHT_PLACE: Final = "session: {{orchestrator: {{config: {{toolgate: {{{key}: …}}}}}}}}"
SECTION_PLACE: Final = "session: {orchestrator: {config: {toolgate: …}}}"

Place = tuple[Any, ...]


def find_misplaced(plan: Mapping[str, Any], at: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yield each such key's place, with the right place in words; agents of the plan are included."""
    session = _as_mapping(plan.get("session"))
    yield from _strangers(plan, at, frozenset({"agents", "name"}))
    yield from _strangers(session, (*at, "session"), SESSION)
    for place, spec in _specs(plan, session):
        if not isinstance(spec, Mapping):
            continue
        yield from _strangers(spec, (*at, *place), SPEC)
        config = _as_mapping(spec.get("config"))
        if str(spec.get("module")).replace("-toolgate-", "-") in LOOPS or SECTION in config:
            yield from _strangers(config, (*at, *place, "config"), frozenset({SECTION}))
    for name, agent in _as_mapping(plan.get("agents")).items():
        yield from find_misplaced(_as_mapping(agent), (*at, "agents", name))


def _specs(plan: Mapping[str, Any], session: Mapping[str, Any]) -> Iterator[tuple[Place, Any]]:
    """Yield every entry that may configure a loop."""
    named = session.get("orchestrator")
    yield ("session", "orchestrator"), named
    shared = plan.get("orchestrator")
    if isinstance(shared, Mapping) and isinstance(named, str):
        shared = {"module": named, **shared}
    yield ("orchestrator",), shared
    listed = plan.get("orchestrators")
    for index, spec in enumerate(listed if isinstance(listed, list) else ()):
        yield ("orchestrators", index), spec


def _strangers(mapping: Mapping[str, Any], at: Place, own: frozenset[str]) -> Iterator[tuple[Place, str]]:
    for key in mapping:
        if key in own:
            continue
        if key in KEYS:
            yield (*at, key), f"it has no effect here; {_belongs(key)}"
        elif close := difflib.get_close_matches(str(key), (SECTION, "required"), n=1, cutoff=0.8):
            yield (*at, key), f"unknown key; did you mean {close[0]}? It{_belongs(close[0])[2:]}"


def _belongs(key: str) -> str:
    right = SECTION_PLACE if key == SECTION else RIGHT_PLACE.format(key=key)
    return f"it belongs to the section of the loop: {right}"


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
