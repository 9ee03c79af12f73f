"""A demo fleet of real processes on a server of its own: schedulers, an exporter, short-lived agents."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from free_ports import find_free_ports
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.server.embedded import private_server

HERE = Path(__file__).parent
SCHEDULERS = HERE.parent / "acceptance" / "schedulers_for_tests"
NAMESPACE = "watched"
POLICY = {
    "rules": [
        {"name": "keep", "tools": "delete", "action": "deny", "reason": "files are kept"},
        {"name": "keys", "on": "result", "tools": "notes", "mask": ["api keys"]},
        {
            "name": "drafts",
            "on": "result",
            "tools": "pay",
            "action": "deny",
            "reason": "receipts are private",
        },
    ]
}
COST_AWARE = {
    "tools": {"pay": {"cost": 0.05}},
    "learn": False,  # what is free is to stay free
    "budgets": [
        {"name": "all", "level": "fleet", "limit": 1000},
        {"name": "each", "level": "own-session", "limit": 1},
        {"name": "task", "level": "tree", "limit": 2},
        {"name": "purse", "level": "agent", "limit": 25, "window": 366 * 86_400},
        {"name": "kitty", "level": "agent", "limit": 25},
    ],
}
DURABLE = COST_AWARE | {"durability": {"replicas": 1, "timeout_ms": 20}}
"""Of a server that has none."""
DENY_ALL = {"rules": [{"name": "none", "tools": "*", "action": "deny", "reason": "by mistake"}]}
UNHEARD = {
    "receivers": {"nobody": {"url": "http://127.0.0.1:9/"}},
    "routes": [{"receivers": ["nobody"], "causes": ["change"]}],
    "retry": {"first_s": 0.5, "max_s": 2},
}
SLOTS = {
    "pools": [
        {"name": "desk", "tools": "desk", "limit": 1, "wait_s": 600},
        {"name": "till", "tools": "till", "limit": 1, "wait_s": 0},
    ]
}
Process = subprocess.Popen[bytes]


def until(
    true: Callable[[], Any], what: str, timeout: float = 100.0, otherwise: Callable[[], Any] = str
) -> Any:
    """The first true value; fails when there is none in time, saying what did not come."""
    deadline = time.monotonic() + timeout
    while not (found := true()):
        if time.monotonic() > deadline:
            pytest.fail(f"not in {timeout} s: {what} {otherwise()}")
        time.sleep(0.1)
    return found


class Fleet:
    """Its processes, by name; `ports` are of those that Prometheus scrapes."""

    def __init__(self, url: str, directory: Path, namespace: str = NAMESPACE) -> None:
        self.url, self.directory, self.namespace = url, directory, namespace
        self.server = redis.from_url(url)
        self.keys = Keys(namespace)
        names = ("exporter", "notify", "alpha-1", "alpha-2", "cost-aware", "second")
        self.ports = dict(zip(names, find_free_ports(len(names)), strict=True))
        self.processes: dict[str, Process] = {}
        self._agents = 0

    # ------------------------------------------------------------------ processes

    def scheduler(self, name: str, spec: str, *options: object, config: Any = None) -> None:
        """Start one; `ready` waits."""
        if config is not None:
            options = (*options, "--config", self._file(name, config))
        if name in self.ports:
            options = (*options, "--metrics-port", self.ports[name])
        self._toolgate(name, "scheduler", "run", spec, "--json", *options)

    def notify(self) -> None:
        """Start one, whose only receiver is nobody."""
        file = self._file("notify", UNHEARD)
        self._toolgate("notify", "notify", "--json", "--config", file, "--metrics-port", self.ports["notify"])

    def exporter(self) -> None:
        """Start one on the port that Prometheus knows."""
        self._toolgate("exporter", "exporter", "--port", self.ports["exporter"])

    def agent(self, kind: str) -> str:
        """Start one; its name."""
        self._agents += 1
        name = f"{kind}-{self._agents}"
        self._start(name, HERE / "fleet_agent.py", self.url, self.namespace, kind, self._agents)
        return name

    def agents(self, *kinds: str) -> None:
        """Start these, and wait until all have done their work."""
        for name in [self.agent(kind) for kind in kinds]:
            agent = self.processes[name]
            until(lambda agent=agent: agent.poll() is not None, f"{name} ends", 60, otherwise=self.said)
            assert agent.returncode == 0, self.said()

    def ready(self) -> None:
        """Wait until every scheduler is on the roster."""
        running = {name: child for name, child in self.processes.items() if name != "exporter"}
        for name, child in running.items():
            until(lambda name=name, child=child: self._ready(name, child), f"{name} is ready")

    def roll_out_a_mistake(self) -> None:
        """A configuration of policy that denies everything, as a shadow first: it undoes itself."""
        file = self._file("mistake", DENY_ALL)
        self._say("scheduler", "push", "policy", "--config", file, "--label", "mistake", "--stage")
        condition = ("--undo-if", "disagreement > 5%", "--min-sample", 10)
        self._say("scheduler", "rollout", "policy", "--to", "mistake", "--shadow", "10m", *condition)

    def pause(self, label: str) -> None:
        """Have agents with this label wait, until somebody resumes them."""
        self._say("agents", "pause", "--label", label)

    def ask_for_replicas(self) -> None:
        """Have the ledger wait for replicas that the server does not have."""
        self.kill("cost-aware")
        self.scheduler("cost-aware", "cost-aware", config=DURABLE)

    def kill(self, name: str) -> None:
        """As `kill -9`."""
        self.processes[name].kill()
        self.processes[name].wait()

    def stop_for_now(self, name: str) -> None:
        """SIGSTOP: it stands still, and nobody is told."""
        self.processes[name].send_signal(signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """SIGCONT."""
        self.processes[name].send_signal(signal.SIGCONT)

    def said(self) -> str:
        """What all processes wrote to stderr."""
        return "\n".join(f"{file.name}: {file.read_text()}" for file in self.directory.glob("*.err"))

    def out(self, name: str) -> str:
        """What one wrote to stdout."""
        return (self.directory / f"{name}.out").read_text()

    def end(self) -> None:
        """Kill them all."""
        for child in self.processes.values():
            child.kill()
            child.wait()
        self.server.close()

    # ------------------------------------------------------------------ what it did

    def record(self) -> list[dict[str, Any]]:
        """Every decision that is kept, as `toolgate decisions --json` tells it."""
        return [json.loads(line) for line in self._say("decisions").splitlines()]

    def reconnect(self) -> None:
        """Cut every connection to the server."""
        self.server.client_kill_filter(_type="normal", skipme=True)

    def kept_facts(self) -> list[bytes]:
        """The streams of facts in which anything stands."""
        streams = self.server.scan_iter(self.keys.facts("*"))
        return [key for key in streams if self.server.xlen(key)]

    def lose_facts(self) -> None:
        """Delete all facts that are kept, as a server does that is told to evict."""
        for key in self.kept_facts():
            self.server.xtrim(key, maxlen=0, approximate=False)

    # ------------------------------------------------------------------

    def _file(self, name: str, config: Any) -> Path:
        file = self.directory / f"{name}.yaml"
        file.write_text(yaml.safe_dump(config))
        return file

    def _say(self, *words: object) -> bytes:
        where = ("--json", "--redis", self.url, "--namespace", self.namespace)
        command = [sys.executable, "-m", "toolgate_bus", *map(str, words), *where]
        return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout

    def _toolgate(self, name: str, *words: object) -> None:
        where = ("--redis", self.url, "--namespace", self.namespace)
        self._start(name, "-m", "toolgate_bus", *words, *where)

    def _start(self, name: str, *words: object) -> None:
        with (
            (self.directory / f"{name}.out").open("wb") as out,
            (self.directory / f"{name}.err").open("ab") as err,
        ):
            self.processes[name] = subprocess.Popen(
                [sys.executable, *map(str, words)],
                cwd=SCHEDULERS,
                env=os.environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def _ready(self, name: str, child: Process) -> bool:
        assert child.poll() is None, self.said()
        return '"ready"' in self.out(name)


@contextlib.contextmanager
def running_fleet(directory: Path) -> Iterator[Fleet]:
    """Schedulers that deny, replace, watch as a shadow, keep budgets, are required; and an exporter."""
    with private_server() as server:
        fleet = Fleet(server.url, directory)
        try:
            start_all(fleet)
            yield fleet
        finally:
            fleet.end()


@contextlib.contextmanager
def running_beside(fleet: Fleet, namespace: str) -> Iterator[Fleet]:
    """Another fleet like it, on the same server."""
    directory = fleet.directory / namespace
    directory.mkdir()
    other = Fleet(fleet.url, directory, namespace)
    try:
        start_all(other)
        yield other
    finally:
        other.end()


def start_all(fleet: Fleet) -> None:
    """Start its schedulers and its exporter, and wait until all are there."""
    fleet.exporter()
    fleet.scheduler("policy", "policy", config=POLICY)
    fleet.scheduler("slots", "slots", config=SLOTS)
    fleet.scheduler("cost-aware", "cost-aware", config=COST_AWARE)
    for name in ("alpha-1", "alpha-2"):
        fleet.scheduler(name, "obedient:alpha", "--concurrency", 5000)
    fleet.scheduler("watcher", "obedient:watcher")
    fleet.scheduler("guard", "obedient:beta", "--name", "guard")
    fleet.scheduler("second", "obedient:beta", "--name", "second")
    fleet.notify()
    fleet.ready()
