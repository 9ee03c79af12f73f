"""Ask the nodes of a cluster who owns the slots. Judge whether they agree, and all slots have an owner."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from toolgate_bus.commands.doctor.finding import Diagnostic, error, fine, notice, warning
from toolgate_bus.errors import TransportError
from toolgate_bus.protocol.cluster_url import read_cluster_url
from toolgate_bus.protocol.host_list import Address
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.client.cluster import SLOTS, SlotOwners, watch_of
from toolgate_bus.transport.redis.client.cluster_routes import slot_of
from toolgate_bus.transport.redis.roster.shards import find_count

SUBJECT: Final = "cluster"
LOOK: Final = "see CLUSTER NODES and CLUSTER INFO there; `valkey-cli --cluster check HOST:PORT` shows more"


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Answer of each node, or the reason for none, and the slots that hold our keys."""

    answers: Mapping[Address, SlotOwners | str]
    ours: Mapping[str, int]
    """Slot of each kind of our keys: streams, roster, ledger."""


async def check_cluster(url: str, namespace: str, commands: Commands) -> list[Diagnostic]:
    """Return findings about the owners of the slots that each node names."""
    found = await watch_of(read_cluster_url(url)).ask_each()
    answers = {node: str(said) if isinstance(said, TransportError) else said for node, said in found.items()}
    keys, count = Keys(namespace), await find_count(commands, Keys(namespace))
    streams = {f"streams, shard {shard}": Keys(namespace, shard).inbox("") for shard in range(1, count)}
    own = {"streams": keys.inbox(""), **streams, "roster": keys.roster}
    tags = {**own, "ledger": keys.store_key("")}
    return cluster_findings(ClusterState(answers, {what: slot_of(key) for what, key in tags.items()}))


def cluster_findings(state: ClusterState) -> list[Diagnostic]:
    """Return errors, warnings and notices about the nodes' answers."""
    maps = {node: said for node, said in state.answers.items() if not isinstance(said, str)}
    if not maps:
        return [error(SUBJECT, "cluster-silent", "no node of the cluster says who owns the slots", LOOK)]
    views = [{slot: owners[0] for slot, owners in said.items()} for said in maps.values()]
    common = max(views, key=views.count)
    full = next(said for said, view in zip(maps.values(), views, strict=True) if view == common)
    strays = [node for node, view in zip(maps, views, strict=True) if view != common]
    return [
        *_tell_owners(state, full),
        *_tell_coverage(full),
        *_tell_replicas(full),
        *_tell_nodes(state, strays),
    ]


def _tell_owners(state: ClusterState, full: SlotOwners) -> list[Diagnostic]:
    lost = [f"{what} (slot {slot})" for what, slot in state.ours.items() if not full.get(slot)]
    if lost:
        what = f"no node owns the slot of our {', '.join(lost)}: rulings or budgets fail until a node owns it"
        return [error(SUBJECT, "cluster-ours", what, LOOK)]
    told = ", ".join(f"{what}: slot {slot}, {_name(full[slot][0])}" for what, slot in state.ours.items())
    return [fine(SUBJECT, "cluster-ours", f"slots of our keys: {told}")]


def _tell_coverage(full: SlotOwners) -> list[Diagnostic]:
    covered = sum(1 for owners in full.values() if owners)
    if covered < SLOTS:
        what = f"only {covered} of {SLOTS} slots are covered: a cluster that requires all of them serves none"
        return [error(SUBJECT, "cluster-coverage", what, "assign the others: `valkey-cli --cluster fix`")]
    return [fine(SUBJECT, "cluster-coverage", f"all {SLOTS} slots are covered")]


def _tell_replicas(full: SlotOwners) -> list[Diagnostic]:
    behind: dict[Address, set[Address]] = {}
    for owners in full.values():
        if owners:
            behind.setdefault(owners[0], set()).update(owners[1:])
    alone = [_name(master) for master, replicas in sorted(behind.items()) if not replicas]
    if alone:
        what = f"no replica follows {', '.join(alone)}: if such a master is lost, its data is lost"
        change = "add a replica: `valkey-cli --cluster add-node NEW EXISTING --cluster-replica`"
        return [warning(SUBJECT, "cluster-replicas", what, change)]
    least = min(len(replicas) for replicas in behind.values())
    return [fine(SUBJECT, "cluster-replicas", f"{len(behind)} masters, each with at least {least} replicas")]


def _tell_nodes(state: ClusterState, strays: Sequence[Address]) -> list[Diagnostic]:
    found = []
    if silent := {node: said for node, said in sorted(state.answers.items()) if isinstance(said, str)}:
        told = "; ".join(f"{_name(node)} ({said})" for node, said in silent.items())
        found.append(notice(SUBJECT, "cluster-away", f"these nodes do not answer: {told}", LOOK))
    if strays:
        who = ", ".join(_name(node) for node in sorted(strays))
        what = f"the nodes disagree on who owns the slots; these differ from most: {who}"
        found.append(warning(SUBJECT, "cluster-differs", what, LOOK))
    elif not silent:
        found.append(fine(SUBJECT, "cluster", f"all {len(state.answers)} nodes agree on every slot"))
    return found


def _name(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
