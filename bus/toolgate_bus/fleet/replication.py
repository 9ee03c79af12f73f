"""Read and judge whether the ledger's server has as many replicas as schedulers wait for.

The server is the one that holds the ledger, in a cluster too. Judging is pure.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from toolgate_bus.fleet.finding import Finding, error, fine, how_many, notice
from toolgate_bus.fleet.server import parse_info
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.ports import Commands, Member
from toolgate_bus.transport.redis.storage.reads import read_replication

SUBJECT: Final = "replicas"
MIN_REPLICAS: Final = "min-replicas-to-write"
MAX_LAG: Final = "min-replicas-max-lag"
_REPLICA: Final = re.compile(r"slave\d+\Z")
LAG_S: Final = 10
"""Seconds of silence after which a replica hangs or is cut off. A healthy replica reports each second."""
MAX_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class ReplicationState:
    """State of a server's replicas, as the server reports it; empty if this user may not read it."""

    info: Mapping[str, str]
    config: Mapping[str, str]
    asked: Mapping[str, int]
    """Number of replicas that each live scheduler waits for, by name. Those that wait for none are absent."""

    @property
    def followers(self) -> list[Mapping[str, str]]:
        """Replicas that reported lately, and have all but the newest writes."""
        most = self.setting(MAX_LAG) or LAG_S
        return [one for one in self.replicas if one.get("state") == "online" and _lag_of(one) <= most]

    @property
    def replicas(self) -> list[Mapping[str, str]]:
        """All connected replicas, also those that still copy the whole data."""
        told = [value for name, value in self.info.items() if _REPLICA.match(name)]
        return [dict(pair.split("=", 1) for pair in one.split(",") if "=" in pair) for one in told]

    def setting(self, name: str) -> int:
        """Return a number of the server's configuration; 0 if it is not known."""
        told = self.config.get(name, "")
        return int(told) if told.isdecimal() else 0


async def read_state(commands: Commands, namespace: str, members: Sequence[Member]) -> ReplicationState:
    """Read the state of the ledger's server, and which schedulers wait for its replicas."""
    near = Keys(namespace).store_key("budget:limits")
    info, config = await read_replication(commands, near, MIN_REPLICAS, MAX_LAG)
    asked: dict[str, int] = {}
    for one in members:
        if one.server_replicas:
            asked[one.name] = max(asked.get(one.name, 0), one.server_replicas)
    return ReplicationState(parse_info(info), config, asked)


def replication_findings(state: ReplicationState) -> list[Finding]:
    """Return errors and notices about replicas that schedulers wait for."""
    if not state.info:
        return []
    return [
        *_check_refusal(state),
        *(one for name, wanted in sorted(state.asked.items()) for one in _check_wait(state, name, wanted)),
    ]


def _check_refusal(state: ReplicationState) -> list[Finding]:
    """Judge whether the server refuses writes for lack of replicas, or takes writes even without any."""
    wanted, lag = state.setting(MIN_REPLICAS), state.setting(MAX_LAG)
    if not wanted or not lag:  # either turns it off
        if not state.asked or MIN_REPLICAS not in state.config:
            return []
        what = f"{MIN_REPLICAS} is {wanted} ({MAX_LAG} {lag}): a primary that is cut off still takes writes"
        change = f"CONFIG SET {MIN_REPLICAS} 1, and the same in its config file, on each server"
        return [notice(SUBJECT, "replicas-unrequired", what, change)]
    told = state.info.get("min_slaves_good_slaves", "")
    number = int(told) if told.isdecimal() else len(state.followers)
    if number >= wanted:
        text = f"{MIN_REPLICAS} {wanted}: {how_many(number, 'replica')} can be reached"
        return [fine(SUBJECT, "replicas-required", text)]
    what = (
        f"the server takes no writes: {MIN_REPLICAS} is {wanted}, and {_count(number)} closely enough "
        f"({MAX_LAG} {lag}): no call is ruled on, and schedulers drop off the roster"
    )
    change = f"start the replicas that are away{_tell_silent(state)}, or CONFIG SET {MIN_REPLICAS} {number}"
    return [error(SUBJECT, "replicas-refused", what, change)]


def _check_wait(state: ReplicationState, name: str, wanted: int) -> list[Finding]:
    have, known = len(state.followers), len(state.replicas)
    told = f"{name} waits for {how_many(wanted, 'replica')} (durability), and {_count(have)}"
    if have < wanted:
        what = f"{told}: calls for which it must write are denied"
        less = f"durability: {{replicas: {have}}}" if have else f"no `durability` in the config of {name}"
        change = f"start the replicas that are away{_tell_silent(state)}; or, with less safety, {less}"
        return [error(SUBJECT, "replicas-short", what, change)]
    if known > wanted:
        what = (
            f"{name} waits for {wanted} of {known} replicas (durability): a failover to another loses what "
            "only these have"
        )
        return [notice(SUBJECT, "replicas-partial", what, f"durability: {{replicas: {known}}} for {name}")]
    return [fine(SUBJECT, "replicas", told)]


def _count(number: int) -> str:
    return f"{number or 'none'} follow{'s' if number == 1 else ''}"


def _lag_of(replica: Mapping[str, str]) -> int:
    told = replica.get("lag", "")
    return int(told) if told.isdecimal() else 0


def _tell_silent(state: ReplicationState) -> str:
    """Return a text that lists the connected replicas that do not follow."""
    silent = [one for one in state.replicas if one not in state.followers][:MAX_SHOWN]
    told = ", ".join(
        f"{one.get('ip', '?')}:{one.get('port', '?')}: {one.get('state')}, silent for {_lag_of(one)} s"
        for one in silent
    )
    return f" ({told})" if told else ""
