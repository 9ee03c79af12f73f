"""Judge a server by what it reports of itself: version, persistence, memory, role, clock, latency. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from toolgate_bus.fleet.finding import Finding, error, fine, notice, warning

SUBJECT: Final = "server"
OLDEST: Final = {"redis": (7, 0), "valkey": (7, 2)}
SLOW_S: Final = 0.05
"""Seconds from which a round trip is too long: a tenth of the default patience, as decisions need several."""
LAGGING_S: Final = 0.1
CLOCK_OFF_S: Final = 5.0
CLOCK_WRONG_S: Final = 60.0
FULL: Final = 0.8
NOBODY_LOOKS: Final = "this user may not read the server's state (INFO)"
LOOK_AS: Final = "run doctor as a user that may: `doctor` of deploy/redis/roles, or an administrator"


@dataclass(frozen=True, slots=True)
class ServerState:
    """State of a server, as it was read; empty if this user may not read it."""

    info: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    pings_s: Sequence[float] = ()
    lags_s: Sequence[float] = ()
    """Delays of this process's own event loop, in seconds."""
    ahead_s: float = 0.0
    """Server's clock minus ours, in seconds."""
    budgets: bool = False
    """True if budgets are kept there."""
    embedded: bool = False
    clustered: bool = False
    """True if its URL names a cluster."""


def parse_info(raw: bytes | str) -> dict[str, str]:
    """Return the fields of a reply to INFO."""
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    pairs = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {name: value.strip() for name, colon, value in pairs if colon}


def server_findings(state: ServerState) -> list[Finding]:
    """Return all findings about the server itself."""
    found = [*_round_trips(state), *_clock(state)]
    if not state.info:
        return [*found, notice(SUBJECT, "server-not-shown", NOBODY_LOOKS, LOOK_AS)]
    parts: tuple[Callable[[ServerState], list[Finding]], ...] = (
        _version,
        _kind,
        _check_persistence,
        _eviction,
        _memory,
        _check_writes,
    )
    return [*(one for part in parts for one in part(state)), *found]


# ---------------------------------------------------------------- what it is


def _version(state: ServerState) -> list[Finding]:
    info = state.info
    name = "valkey" if info.get("server_name") == "valkey" or "valkey_version" in info else "redis"
    told = info.get(f"{name}_version", "")
    numbers = re.match(r"(\d+)\.(\d+)", told)
    oldest = OLDEST[name]
    wanted = f"{name.capitalize()} {oldest[0]}.{oldest[1]}"
    if not numbers:
        return [
            notice(SUBJECT, "server-version", "the server does not say its version", f"use {wanted} or newer")
        ]
    if (int(numbers[1]), int(numbers[2])) < oldest:
        what = f"this is {name.capitalize()} {told}, too old: streams and access rules need {wanted}"
        return [error(SUBJECT, "server-version", what, f"upgrade the server to {wanted} or newer")]
    return [fine(SUBJECT, "server-version", f"{name.capitalize()} {told}")]


def _kind(state: ServerState) -> list[Finding]:
    info = state.info
    mode = info.get("redis_mode") or info.get("server_mode", "standalone")
    if mode == "sentinel":
        what = "this is a Sentinel, which keeps no streams"
        return [error(SUBJECT, "server-sentinel", what, "name it as redis+sentinel://host:26379/SERVICE")]
    if info.get("role") == "slave":
        what, host = "this is a replica: it can be read, not written", info.get("master_host", "")
        primary = f"{host}:{info.get('master_port', '')}" if host else "the writable one"
        return [error(SUBJECT, "server-replica", what, f"name its primary, {primary}, in the URL")]
    if mode == "cluster" or info.get("cluster_enabled") == "1":
        if state.clustered:
            return [fine(SUBJECT, "server-cluster", "the node with our streams belongs to a cluster")]
        what = "this is one node of a cluster, and others may hold some of our keys"
        return [error(SUBJECT, "server-cluster", what, "name the cluster: redis+cluster://host:port")]
    found = [fine(SUBJECT, "server-role", "a single server, which is a primary")]
    if int(info.get("connected_slaves", "0") or 0):
        what = "it has replicas: a failover may lose writes that they have not received (docs/scale.md)"
        found.append(notice(SUBJECT, "server-replicated", what))
    return found


# ---------------------------------------------------------------- what it keeps


def _check_persistence(state: ServerState) -> list[Finding]:
    name = "server-persistence"
    if state.info.get("aof_enabled") == "1":
        how = state.config.get("appendfsync", "")
        if how == "no" and state.budgets:
            what = (
                "the system decides when to write the append-only file (appendfsync no): a crash may lose "
                "budgets"
            )
            return [
                warning(
                    SUBJECT, name, what, "CONFIG SET appendfsync everysec, and the same in its config file"
                )
            ]
        return [fine(SUBJECT, name, f"writes an append-only file{how and f' (appendfsync {how})'}")]
    snapshots = state.config.get("save")
    lost = "everything since the last snapshot" if snapshots else "everything"
    after = "a restart sets every budget back to zero, and forgets holds and standing approvals"
    if state.embedded:
        what = f"the embedded server keeps nothing: {after}"
        return [notice(SUBJECT, name, what, "for budgets that last, use your own server: --redis URL")]
    change = "CONFIG SET appendonly yes, and `appendonly yes` in its config file (deploy/redis/valkey.conf)"
    if state.budgets:
        what = f"budgets are kept here, and a restart of the server loses {lost} (appendonly no): {after}"
        return [warning(SUBJECT, name, what, change)]
    what = (
        f"a restart of the server loses {lost} (appendonly no): holds, facts, and budgets once there are any"
    )
    return [notice(SUBJECT, name, what, change)]


def _eviction(state: ServerState) -> list[Finding]:
    name, policy = "server-eviction", state.info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        what = (
            f"maxmemory-policy is {policy}: a full server silently drops questions, facts and budgets, "
            "instead of refusing writes"
        )
        change = "CONFIG SET maxmemory-policy noeviction, and the same in its config file"
        return [error(SUBJECT, name, what, change)]
    gone = int(state.info.get("evicted_keys", "0") or 0)
    if gone:
        what = f"{gone} keys were evicted since it started, under another maxmemory-policy"
        return [notice(SUBJECT, name, what, "check budgets and approvals; a restart resets the count")]
    return [fine(SUBJECT, name, "maxmemory-policy noeviction: a full server refuses writes, drops nothing")]


def _memory(state: ServerState) -> list[Finding]:
    name, used, most = "server-memory", _number(state, "used_memory"), _number(state, "maxmemory")
    if not most:
        what = "maxmemory is 0: when memory runs out, the server is killed, instead of refusing writes"
        change = (
            "CONFIG SET maxmemory 512mb (below what the machine or container has), and in its config file"
        )
        return [notice(SUBJECT, name, what, change)]
    told = f"{used // 2**20} of {most // 2**20} MiB used"
    if used >= FULL * most:
        change = "CONFIG SET maxmemory to more, or find what fills it: `redis-cli --bigkeys`"
        return [
            warning(SUBJECT, name, f"{told}: when it is full, questions and verdicts are refused", change)
        ]
    return [fine(SUBJECT, name, told)]


def _check_writes(state: ServerState) -> list[Finding]:
    broken = [
        words
        for field_, words in (
            ("aof_last_write_status", "its append-only file"),
            ("aof_last_bgrewrite_status", "a rewrite of its append-only file"),
            ("rdb_last_bgsave_status", "its snapshot"),
        )
        if state.info.get(field_, "ok") == "err"
    ]
    if not broken:
        return []
    what = f"the server could not write {' and '.join(broken)}: it may refuse all writes (MISCONF)"
    change = "check free space and permissions of its `dir`, and its log; then run BGREWRITEAOF or BGSAVE"
    return [error(SUBJECT, "server-disk", what, change)]


def _number(state: ServerState, name: str) -> int:
    text = state.info.get(name, "0")
    return int(text) if text.isdecimal() else 0


# ---------------------------------------------------------------- time


def _round_trips(state: ServerState) -> list[Finding]:
    found = []
    if state.pings_s:
        middle = median(state.pings_s)
        told = f"a round trip takes {middle * 1000:.2f} ms (median of {len(state.pings_s)})"
        found.append(
            fine(SUBJECT, "server-latency", told)
            if middle < SLOW_S
            else warning(
                SUBJECT,
                "server-latency",
                f"{told}: a decision needs several",
                "bring agents, schedulers and server into one network, or raise `patience_ms` in the plans",
            )
        )
    if state.lags_s and median(state.lags_s) >= LAGGING_S:
        what = f"the event loop of this process is {median(state.lags_s) * 1000:.0f} ms late"
        change = "this machine is overloaded: verdicts from here will be late; give it more processor time"
        found.append(notice("this machine", "machine-loop-lag", what, change))
    return found


def _clock(state: ServerState) -> list[Finding]:
    off = abs(state.ahead_s)
    if off < CLOCK_OFF_S:
        return [fine(SUBJECT, "server-clock", "its clock agrees with this machine's, to a few seconds")]
    side = "ahead of" if state.ahead_s > 0 else "behind"
    what = (
        f"its clock is {off:.0f} s {side} this machine's: hourly and daily budgets follow the server's clock"
    )
    make = warning if off >= CLOCK_WRONG_S else notice
    return [make(SUBJECT, "server-clock", what, "set both clocks by NTP (`timedatectl set-ntp true`)")]
