"""Three masters with a replica each on loopback, of the wheel's own server; all end with the world.

Slots are given out and moved, and replicas told whom to follow, by the servers' own commands. Everything is
bounded, and ended by its own process id.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from free_ports import find_free_ports
from redis.crc import key_slot
from sentinel_world import SERVER, START_S, Node, until

SLOTS = 16384
MASTERS = 3
NODE_TIMEOUT_MS = 1000
MOVE_S = 20.0
BATCH = 200
"""Keys that are moved at a time."""


class ClusterWorld:
    """3 + 3 servers."""

    def __init__(
        self,
        directory: Path,
        password: str = "",
        announced: str = "",
        tls: Path | None = None,
        *,
        full_coverage: bool = True,
    ) -> None:
        """With a password for all of them, and with an address that clients are told, or without.

        Without `full_coverage` a slot that nobody owns stops only those whose keys lie there.

        With `tls`, a directory of `make-certificates`, nobody speaks to them otherwise.
        """
        self._tls = tls
        lines = [
            *(f"{name} {value or chr(34) * 2}" for name, value in SERVER),
            *("cluster-enabled yes", f"cluster-node-timeout {NODE_TIMEOUT_MS}"),
            *("cluster-allow-replica-migration no", "cluster-replica-validity-factor 0"),
            *([] if full_coverage else ["cluster-require-full-coverage no"]),
            *([f"requirepass {password}", f"primaryauth {password}"] if password else []),
            *([f"cluster-announce-client-ipv4 {announced}"] if announced else []),
        ]
        self.nodes: dict[int, Node] = {}
        buses = find_free_ports(2 * MASTERS * 2)
        for port, bus in zip(buses[::2], buses[1::2], strict=True):
            own = [*lines, f"cluster-config-file nodes-{port}.conf", f"cluster-port {bus}"]
            self.nodes[port] = Node(directory, port, own, password, tls=tls)
            self.nodes[port].bus = bus

    @property
    def url(self) -> str:
        """What everybody connects to."""
        nodes = ",".join(f"127.0.0.1:{port}" for port in self.nodes)
        if self._tls is None:
            return f"redis+cluster://{nodes}"
        files = {"ssl_ca_certs": "ca.crt", "ssl_certfile": "client.crt", "ssl_keyfile": "client.key"}
        query = "&".join(f"{name}={quote(str(self._tls / file))}" for name, file in files.items())
        return f"rediss+cluster://{nodes}?{query}"

    def start(self) -> None:
        """Start all, and wait until they are one cluster."""
        for node in self.nodes.values():
            node.start()
        masters, replicas = list(self.nodes.values())[:MASTERS], list(self.nodes.values())[MASTERS:]
        for number, node in enumerate(masters):
            first, last = number * SLOTS // MASTERS, (number + 1) * SLOTS // MASTERS - 1
            assert node.answer("CLUSTER", "SET-CONFIG-EPOCH", number + 1) == "OK"
            assert node.answer("CLUSTER", "ADDSLOTSRANGE", first, last) == "OK"
        for node in [*masters, *replicas][1:]:
            node.answer("CLUSTER", "MEET", "127.0.0.1", masters[0].port, masters[0].bus)
        until(lambda: all(len(self.rows(node)) == len(self.nodes) for node in self.nodes.values()), START_S)
        for master, replica in zip(masters, replicas, strict=True):
            until(
                lambda a=master, b=replica: b.answer("CLUSTER", "REPLICATE", self.id_of(a)) == "OK", START_S
            )
        until(self.is_whole, START_S * 2)

    def end(self) -> None:
        """End all of them."""
        for node in self.nodes.values():
            node.kill()

    # ------------------------------------------------------------------ looking

    @staticmethod
    def rows(node: Node) -> list[dict[str, Any]]:
        """Whom a node knows, as it says."""
        said = node.answer("CLUSTER NODES") or {}
        return [{**row, "port": int(address.rpartition(":")[2])} for address, row in said.items()]

    def id_of(self, node: Node) -> str:
        """What the others call it."""
        return str(node.answer("CLUSTER", "MYID"))

    def is_whole(self) -> bool:
        """Whether all are there, say the same of every slot, and each master has a replica."""
        said = [
            (node.answer("CLUSTER INFO") or {}, node.answer("CLUSTER SLOTS"), node.answer("ROLE"))
            for node in self.nodes.values()
        ]
        if any(info.get("cluster_state") != "ok" or role is None for info, _, role in said):
            return False
        maps = {str(_owners(slots)) for _, slots, _ in said}
        followed = all(role[0] == "master" or role[3] == "connected" for _, _, role in said)
        masters = [role for _, _, role in said if role[0] == "master"]
        return len(maps) == 1 and followed and len(masters) == MASTERS and all(role[2] for role in masters)

    def owner(self, key: str) -> Node:
        """The master that most nodes name for the slot of a key."""
        slot, votes = key_slot(key.encode()), []
        for node in self.nodes.values():
            for (first, last), port in _owners(node.answer("CLUSTER SLOTS")).items() if node.runs else ():
                if first <= slot <= last:
                    votes.append(port)
        return self.nodes[max(set(votes), key=votes.count)]

    def replica_of(self, master: Node) -> Node:
        """One that follows this master."""
        name = self.id_of(master)
        rows = [row for row in self.rows(master) if row["master_id"] == name and row["connected"]]
        return self.nodes[rows[0]["port"]]

    # ------------------------------------------------------------------ faults

    def fail_over(self, key: str) -> Node:
        """Have the owner's replica take over, hand in hand; the new owner."""
        old = self.owner(key)
        new = self.replica_of(old)
        assert new.answer("CLUSTER", "FAILOVER") == "OK"
        until(lambda: (new.answer("ROLE") or [""])[0] == "master", MOVE_S)
        return new

    def kill_owner(self, key: str) -> Node:
        """kill -9 of the owner; the others have another when this returns."""
        old = self.owner(key)
        old.kill()
        until(lambda: self.owner(key) is not old, MOVE_S)
        return old

    def move_slot(self, key: str) -> Node:
        """Move the key's slot, live, key by key, to another master; the new owner."""
        slot, (old, new) = key_slot(key.encode()), self.open_move(key)
        name = self.id_of(new)
        until(lambda: not self._move_some(slot, old, new), MOVE_S)
        for node in (new, old, *self.masters):
            until(lambda one=node: one.answer("CLUSTER", "SETSLOT", slot, "NODE", name) == "OK", MOVE_S)
        return new

    def open_move(self, key: str) -> tuple[Node, Node]:
        """Have the owner of the key's slot and another master begin to move it; these two."""
        slot, old = key_slot(key.encode()), self.owner(key)
        new = next(node for node in self.masters if node is not old)
        assert new.answer("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(old)) == "OK"
        assert old.answer("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(new)) == "OK"
        return old, new

    def move_slot_whole(self, key: str) -> Node:
        """Move the key's slot to another master, all keys of it at once; the new owner."""
        slot, old = key_slot(key.encode()), self.owner(key)
        new = next(node for node in self.masters if node is not old)
        name = self.id_of(new)
        assert old.answer("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", name) == "OK"
        until(lambda: self.owner(key) is new, MOVE_S)
        return new

    @staticmethod
    def _move_some(slot: int, old: Node, new: Node) -> list[str]:
        keys: list[str] = old.answer("CLUSTER", "GETKEYSINSLOT", slot, BATCH) or []
        if keys:
            words = ("REPLACE", *(("AUTH", old.password) if old.password else ()), "KEYS", *keys)
            old.answer("MIGRATE", "127.0.0.1", new.port, "", 0, 5000, *words)
        return keys

    @property
    def masters(self) -> list[Node]:
        """Those that own slots and run."""
        return [
            node for node in self.nodes.values() if node.runs and (node.answer("ROLE") or [""])[0] == "master"
        ]

    def mend(self) -> None:
        """Start who is down, and wait until all is whole again."""
        for node in self.nodes.values():
            if not node.runs:
                node.start()
        until(self.is_whole, START_S * 2)


def _owners(slots: Any) -> dict[tuple[int, int], int]:
    """By range of slots the port of its master."""
    return {(first, last): int(master[1]) for first, last, master, *_ in sorted(slots or ())}


@contextlib.contextmanager
def cluster_world(
    password: str = "", announced: str = "", tls: Path | None = None, *, full_coverage: bool = True
) -> Iterator[ClusterWorld]:
    """One that runs, and is gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="tg-cl-"))
    world = ClusterWorld(directory, password, announced, tls, full_coverage=full_coverage)
    try:
        world.start()
        yield world
    finally:
        world.end()
        shutil.rmtree(directory, ignore_errors=True)
