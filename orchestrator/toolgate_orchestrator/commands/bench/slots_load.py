"""What the agents of `toolgate bench slots` fight for, and the journal that each process keeps of it. Pure.

The journal is the truth: a line at each ask, start and end of a run, written before anything else happens,
so that of a process that is killed nothing but its last moment is missing.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

TENANTS: Final = {"bronze": 1, "silver": 2, "gold": 4, "platinum": 8}
"""By name, their weights."""
PATIENCE_MS: Final = 120_000
SCHEDULER: Final = "bench-slots"
TOOL: Final = "use_slot"
WAIT_S: Final = 3600.0
URGENT_LEVEL: Final = 1000
_RECORD: Final = struct.Struct("<BBBxIIdQ")
What = Literal["ask", "start", "end", "denied"]
_WHATS: Final[tuple[What, ...]] = ("ask", "start", "end", "denied")
_NAMES: Final = tuple(TENANTS)


@dataclass(frozen=True, slots=True)
class SlotLoad:
    """One run: what there is of it, and who wants it how."""

    name: str
    agents: int
    limit: int
    """Slots of each key."""
    hold_s: float
    """How long a tool runs."""
    seconds: float
    keys: int = 1
    think_s: float = 0.0
    """How long an agent waits between two calls, on the average."""
    urgent: int = 0
    """Of the agents, those of the high class."""
    urgent_think_s: float = 0.0
    kills: bool = False
    """Whether agents' processes, replicas and the server die meanwhile."""


@dataclass(frozen=True, slots=True)
class SlotWork:
    """What one process of agents is to do."""

    url: str
    namespace: str
    journal: str
    first: int
    agents: int
    keys: int
    hold_s: float
    think_s: float
    urgent_every: int
    """Each so many an agent is of the high class; 0 is none."""
    urgent_think_s: float
    seed: int


class Moment(NamedTuple):
    """One line of a journal; the clock is the machine's monotonic one, in seconds."""

    what: What
    tenant: str
    urgent: bool
    agent: int
    key: int
    at: float
    fence: int


def write_moment(moment: Moment) -> bytes:
    """The bytes of one line."""
    what, tenant = _WHATS.index(moment.what), _NAMES.index(moment.tenant)
    return _RECORD.pack(what, tenant, moment.urgent, moment.agent, moment.key, moment.at, moment.fence)


def read_moments(raw: bytes) -> Iterator[Moment]:
    """The lines of a journal; of one that was cut off by a kill, nothing."""
    whole = len(raw) - len(raw) % _RECORD.size
    for what, tenant, urgent, agent, key, at, fence in _RECORD.iter_unpack(raw[:whole]):
        yield Moment(_WHATS[what], _NAMES[tenant], bool(urgent), agent, key, at, fence)


def tenant_of(agent: int) -> str:
    """The tenant of an agent, by its number: as many of each."""
    return _NAMES[agent % len(_NAMES)]


def config_of(load: SlotLoad) -> str:
    """The file of `slots` for a run."""
    weights = ", ".join(f"{name}: {weight}" for name, weight in TENANTS.items())
    return f"""\
pools:
  - name: bench
    tools: [{TOOL}]
    limit: {load.limit}
    key: $.key
    wait_s: {WAIT_S:g}
    share: {{by: "label:tenant", weights: {{{weights}}}}}
    priority: {{by: "label:class", classes: {{urgent: {URGENT_LEVEL}, batch: 0}}, ageing_s: 60}}
"""
