"""The living agents, as their processes report them, and the order to stop. Pure.

An orchestrator's process writes the state of its sessions at every heartbeat at which it changed (key
`agents:ORCH`). Operators read it and write orders (stream `ctl:ORCH`). Others write both, so both are decoded
within the wire's bounds.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from toolgate_bus.errors import CodecError, ConfigError
from toolgate_bus.protocol.packing import MAX_STRING, make_readable, pack, unpack
from toolgate_bus.protocol.tool_sets import is_digest

MAX_AGENTS_COUNT: Final = 2000
"""Maximum number of sessions that one process reports; beyond it the newest are left out."""
MAX_AGENTS: Final = 1 << 21
MAX_ORDER: Final = 64 * 1024
MAX_NAMES: Final = 1024
"""Maximum number of sessions and trees that one order names."""
_TEXT: Final = 256
_OLDEST: Final = 1e10
"""Maximum age of a session, in seconds."""
_PAGE: Final = 50
_TEXTS: Final = ("session", "root", "agent", "doing", "paused", "stopped")
"""Fields of an agent that are texts."""


@dataclass(frozen=True, slots=True)
class LiveAgent:
    """One session and its current activity."""

    session: str
    root: str = ""
    parent: str | None = None
    agent: str = ""
    lineage: tuple[str, ...] = ()
    doing: str = "idle"
    """Current activity: `idle`, `llm`, `deciding TOOL`, `tool TOOL`, `delegating AGENT`, `stopping`."""
    turns: int = 0
    calls: int = 0
    vetoes: int = 0
    cost: int = 0
    """Cost of its tools and its LLM so far, in micro-units."""
    age: float = 0.0
    """Seconds since its session began, by its own clock."""
    paused: str = ""
    """Id of the pause that makes its next calls wait; empty if there is none."""
    stopped: str = ""
    """Id of the stop that denies its calls; empty if there is none."""
    orchestrator: str = ""
    """Id of the process that runs it."""

    def as_json(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return {**asdict(self), "lineage": list(self.lineage)}


@dataclass(frozen=True, slots=True)
class Stop:
    """Order to end turns."""

    sessions: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    """Roots of trees, all of whose sessions are meant."""
    everyone: bool = False
    now: bool = False
    """True ends the turns at once; False after the running tools."""
    by: str = ""
    """Name of the person who gave the order."""
    id: str = ""
    """Id of the order, which processes name when they have carried it out; the same in each repetition."""

    def means(self, session: str, root: str, above: Iterable[str] = ()) -> bool:
        """Return whether the order means a session: by itself, its root, or a session above it."""
        names = {*self.sessions, *self.roots} - {""}  # a session without an id is nobody's
        return self.everyone or not names.isdisjoint((session, root, *above))


def name_session(session: str) -> str:
    """Return the name by which operators know a session: its id, made exact and short enough for the wire.

    The name of an id with more than 256 characters, or that UTF-8 cannot hold, is its beginning and a digest.
    """
    if len(session) <= _TEXT and (session.isascii() or _is_utf8(session)):
        return session
    digest = hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{make_readable(session[: _TEXT - len(digest) - 1])}~{digest}"


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= one <= "\udfff" for one in text)


def encode_agents(agents: Sequence[LiveAgent], obeyed: Sequence[bytes] = (), tools: str = "") -> bytes:
    """Return the value of `agents:ORCH`: pages of agents, without the newest if there are too many.

    `obeyed` are the orders that were carried out, from `StopOrderLog`. `tools` is the digest of the set of
    their tools (`tool_sets`).
    """
    told = [
        {name: getattr(one, name) for name in _TOLD} | {"lineage": list(one.lineage)}
        for one in agents[:MAX_AGENTS_COUNT]
    ]
    pages = [pack(told[at : at + _PAGE]) for at in range(0, len(told), _PAGE)]
    named = {"tools": tools} if tools else {}
    return pack({"pages": pages, "all": len(agents), "obeyed": list(obeyed), **named})


def decode_agents(orchestrator: str, raw: bytes) -> list[LiveAgent]:
    """Read the agents that an orchestrator reports. Malformed ones are left out."""
    entries: list[Any] = []
    try:
        found = unpack(raw, MAX_AGENTS)
        pages = found.get("pages") if isinstance(found, dict) else None
        for page in pages[: MAX_AGENTS_COUNT // _PAGE] if isinstance(pages, list) else ():
            told = unpack(page, MAX_AGENTS) if isinstance(page, bytes) else ()
            entries += told if isinstance(told, list) else ()
    except CodecError:
        pass  # the pages before it count
    agents = (_agent(orchestrator, one) for one in entries)
    return [one for one in agents if one is not None]


def find_tool_digest(raw: bytes) -> str:
    """Return the digest of the tools that a process announces; empty if it announces none."""
    try:
        found = unpack(raw, MAX_AGENTS)
    except CodecError:
        return ""
    digest = found.get("tools") if isinstance(found, dict) else None
    return digest if isinstance(digest, str) and is_digest(digest) else ""


_TOLD: Final = tuple(field.name for field in fields(LiveAgent) if field.name != "orchestrator")


def encode_stop(stop: Stop) -> bytes:
    """Return an order as bytes."""
    return pack({**asdict(stop), "sessions": list(stop.sessions), "roots": list(stop.roots)})


def decode_stop(raw: bytes) -> Stop | None:
    """Read an order from bytes; None if it is malformed."""
    try:
        found = unpack(raw, MAX_ORDER)
    except CodecError:
        return None
    if not isinstance(found, dict):
        return None
    sessions, roots = (_texts(found.get(name)) for name in ("sessions", "roots"))
    by, id_ = found.get("by"), found.get("id")
    return Stop(
        sessions,
        roots,
        found.get("everyone") is True,
        found.get("now") is True,
        by[:_TEXT] if isinstance(by, str) else "",
        id_[:_TEXT] if isinstance(id_, str) else "",
    )


def stop_of(living: Sequence[LiveAgent], ids: Iterable[str], *, now: bool, by: str, order: str = "") -> Stop:
    """Return the order to stop these sessions and all that work for them; without ids, everyone.

    An id is a session's, or its first letters; a root's id means its tree. `order` is the order's own id,
    which processes name when they have carried it out. Raises ConfigError for an id that matches no session,
    or several.
    """
    sessions: list[str] = []
    roots: list[str] = []
    for id_ in ids:
        one = _session_of(living, id_)
        (roots if any(each.root == one for each in living) else sessions).append(one)
    if not sessions and not roots:
        return Stop((), (), True, now, by, order)
    known = {one.session: one for one in living}
    heads = [
        one for one in living if one.parent in known and known[one.parent].orchestrator != one.orchestrator
    ]
    # Sessions below these that lead other processes, which may not know who is above their own.
    whom = {*sessions, *roots}
    led = (one.session for one in heads if one.root not in roots and whom.intersection(_above(one, known)))
    named = list(dict.fromkeys((*sessions, *led)))
    if len(named) > MAX_NAMES or len(roots) > MAX_NAMES:
        raise ConfigError(f"an order can name {MAX_NAMES} sessions; name their roots, or stop --all")
    return Stop(tuple(named), tuple(roots), False, now, by, order)


def select_targets(order: Stop, living: Sequence[LiveAgent]) -> list[LiveAgent]:
    """Return the living agents that an order means."""
    known = {one.session: one for one in living}
    return [one for one in living if order.means(one.session, one.root, _above(one, known))]


def _session_of(living: Sequence[LiveAgent], id_: str) -> str:
    # A root may be gone while other sessions of its tree are alive.
    known = {name for one in living for name in (one.session, one.root) if name}
    found = {name for name in known if name.startswith(id_)}
    if id_ in found:
        return id_
    if len(found) != 1 or not id_:
        several = (
            f"means several: {', '.join(map(repr, sorted(found)[:8]))}" if found else "is no live session"
        )
        raise ConfigError(f"{id_!r} {several}; `toolgate agents` lists them")
    return found.pop()


def _above(one: LiveAgent, known: Mapping[str, LiveAgent]) -> Iterator[str]:
    """Yield the sessions above one, as far as they are known."""
    seen: set[str] = set()
    parent = one.parent
    while parent is not None and parent not in seen:
        seen.add(parent)
        yield parent
        parent = known[parent].parent if parent in known else None


def forest(agents: Iterable[LiveAgent]) -> list[tuple[int, LiveAgent]]:
    """Return every agent with its depth, each behind the one it works for, the oldest trees first."""
    known = {one.session: one for one in agents}
    below: dict[str | None, list[LiveAgent]] = {}
    for one in sorted(known.values(), key=lambda one: (-one.age, one.session)):
        below.setdefault(one.parent if one.parent in known else None, []).append(one)
    ordered: list[tuple[int, LiveAgent]] = []
    waiting = [(0, one) for one in reversed(below.pop(None, []))]
    while waiting:
        depth, one = waiting.pop()
        ordered.append((depth, one))
        waiting += [(depth + 1, child) for child in reversed(below.pop(one.session, []))]
    ordered += [
        (0, one) for rest in below.values() for one in rest
    ]  # sessions that are each other's parents are listed all the same
    return ordered


def _agent(orchestrator: str, told: Any) -> LiveAgent | None:
    if not isinstance(told, Mapping) or not isinstance(told.get("session"), str):
        return None
    known: dict[str, Any] = {"orchestrator": orchestrator, "lineage": _texts(told.get("lineage"))}
    for field in fields(LiveAgent):
        value = told.get(field.name)
        if field.name in _TEXTS and isinstance(value, str):
            known[field.name] = value[:_TEXT]
        elif field.name == "parent" and isinstance(value, str):
            known["parent"] = value[:_TEXT]
        elif field.name in ("turns", "calls", "vetoes", "cost") and type(value) is int and 0 <= value < 2**63:
            known[field.name] = value
        elif field.name == "age" and isinstance(value, int | float) and 0 <= value <= _OLDEST:
            known["age"] = float(value)
    return LiveAgent(**known)


def _texts(value: Any) -> tuple[str, ...]:
    texts = value if isinstance(value, list) else ()
    return tuple(one for one in texts[:MAX_NAMES] if isinstance(one, str) and len(one) <= MAX_STRING)
