"""A real primary and two replicas, without sentinels: replicas that hang, are cut off, are promoted."""

from pathlib import Path

import redis
from free_ports import find_free_ports
from sentinel_world import SERVER, Node, until

NOBODY = 1
"""A port on which nobody is to be followed."""


class Replicated:
    """A primary and two replicas."""

    def __init__(self, directory: Path) -> None:
        first, *others = find_free_ports(3)
        lines = [f"{name} {value or chr(34) * 2}" for name, value in SERVER]
        self.primary = Node(directory, first, lines)
        self.replicas = [Node(directory, port, [*lines, f"replicaof 127.0.0.1 {first}"]) for port in others]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.primary.port}"

    def start(self) -> None:
        for node in (self.primary, *self.replicas):
            node.start()
        self.follow()

    def follow(self) -> None:
        """Have all replicas follow, and wait until they do."""
        for node in self.replicas:
            node.answer("REPLICAOF", "127.0.0.1", self.primary.port)
        until(self.has_all, 15)

    def has_all(self) -> bool:
        """Whether both replicas acknowledge what is written now."""
        with redis.Redis(port=self.primary.port, single_connection_client=True) as client:
            client.set("seen", 1)
            return client.wait(2, 200) == 2

    def cut(self) -> None:
        """Let nothing more reach the replicas."""
        for node in self.replicas:
            node.answer("REPLICAOF", "127.0.0.1", NOBODY)

    def fail_over(self) -> None:
        """kill -9 of the primary; one of the replicas is the primary then."""
        self.primary.kill()
        self.primary, *self.replicas = self.replicas
        until(lambda: self.primary.answer("REPLICAOF", "NO", "ONE"), 5)
