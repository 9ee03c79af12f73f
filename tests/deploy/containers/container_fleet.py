"""A fleet of deploy/ in containers: a copy of this clone, in which `make up` is run as a person would.

It has a project, ports and a network of its own. Where something fails, the error ends with what was said.
"""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from container_engine import Engine
from free_ports import find_free_ports

ROOT = Path(__file__).parents[3]
ASKS = Path(__file__).with_name("asking_agent.py")
OPTIONS = {"plain": [], "sentinel": ["SENTINEL=1"], "cluster": ["CLUSTER=1"]}
MAKE_S = 300.0
WAIT_S = 60.0
PORTS = ("GRAFANA", "PROMETHEUS", "ALERTMANAGER", "CONSOLE")
NETWORK = "10.213.85"
LIMITS = re.compile(r"limit: \d+, window: \w+")
"""A test must not end in another hour than it began in, where nothing is spent yet."""


class ContainerFleet:
    """One fleet; `up`, `down`, and what a person does in between."""

    def __init__(self, engine: Engine, directory: Path, topology: str) -> None:
        self.engine, self.directory, self.topology = engine, directory, topology
        self.project = f"toolgate-tests-{topology}"
        self.ports = dict(zip(PORTS, find_free_ports(len(PORTS)), strict=True))
        own = {name: value for name, value in engine.env.items() if not name.startswith(("MAKE", "MFLAGS"))}
        self.env = own | {  # started by a make of its own, as a person would
            "COMPOSE_PROJECT_NAME": self.project,
            "TOOLGATE_NETWORK": NETWORK,
            **{f"TOOLGATE_PORT_{name}": str(port) for name, port in self.ports.items()},
        }
        _copy_clone(directory)
        money = directory / "deploy" / "fleet" / "cost-aware.yaml"
        money.write_text(LIMITS.sub("limit: 10000", money.read_text()))

    def _run(
        self, words: list[str], limit_s: float, *, check: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        ran = subprocess.run(
            words,
            cwd=self.directory,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        assert ran.returncode == 0 or not check, f"{words}\n{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}"
        return ran

    def make_up(self, *, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """`make up`, with what it said."""
        return self._run(["make", "up", *OPTIONS[self.topology]], MAKE_S, check=check)

    def make_down(self) -> None:
        """`make down`."""
        self._run(["make", "down"], MAKE_S)

    def fleet(self, *words: str, limit_s: float = MAKE_S) -> str:
        """What `made/fleet` prints."""
        return self._run([str(self.directory / "deploy" / "made" / "fleet"), *words], limit_s).stdout

    def command(self, service: str, *words: str) -> str:
        """What a command of a person prints."""
        return self.fleet("run", "--rm", "--no-TTY", service, *words)

    def objects(self, *words: str) -> list[Any]:
        """The objects that an operator's command prints with --json."""
        return [json.loads(line) for line in self.command("operator", *words, "--json").splitlines()]

    def containers(self) -> dict[str, str]:
        """Ids of those that run, by name without the project."""
        listed = self.engine.docker(
            "ps",
            "--filter",
            f"label=com.docker.compose.project={self.project}",
            "--format",
            "{{.Names}} {{.ID}}",
        )
        pairs = (line.split() for line in listed.splitlines())
        return {name.removeprefix(f"{self.project}-"): one for name, one in pairs}

    def docker(self, *words: str, name: str) -> str:
        """A command of docker on a container: its last word is the container's name."""
        return self.engine.docker(*words, f"{self.project}-{name}")

    def inspect(self, name: str, what: str) -> str:
        """A value of a container."""
        return self.docker("inspect", "--format", what, name=name)

    # ------------------------------------------------------------------ servers

    def cli(self, at: str, user: str, *words: str, port: int = 6379) -> str:
        """A command of a server or sentinel, in its own container; empty if that says nothing.

        The engine forgets some commands that it is given while a container starts.
        """
        folder = self.directory / "deploy" / "made"
        path = folder / "nodes" / user
        password = path.read_text() if path.exists() else (folder / "mounts" / user / "server").read_text()
        login = ["-e", f"REDISCLI_AUTH={password}", f"{self.project}-{at}-1"]
        ask = ["valkey-cli", "--no-auth-warning", "-p", str(port), "--user", user]
        try:
            return self.engine.docker("exec", *login, *ask, *words, check=False)
        except subprocess.TimeoutExpired:
            return ""

    def primary(self) -> str:
        """Who is the primary, as a sentinel says; the master of a cluster's streams; or the only server."""
        if self.topology == "plain":
            return "valkey"
        if self.topology == "sentinel":
            ask = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "fleet")
            return self.cli("sentinel-1", "client", *ask, port=26379).partition("\n")[0]
        for at in ("valkey", "node-2", "node-3"):
            slot = self.cli(at, "admin", "CLUSTER", "KEYSLOT", "{default:0}")
            for line in self.cli(at, "admin", "CLUSTER", "NODES").splitlines() if slot.isdigit() else ():
                parts = line.split()
                ranges = [one.split("-") for one in parts[8:] if one[0].isdigit()]
                if "fail" not in parts[2] and any(int(one[0]) <= int(slot) <= int(one[-1]) for one in ranges):
                    return parts[1].split(",")[1]
        raise AssertionError("no node knows who owns the streams")

    def is_whole(self) -> bool:
        """Whether another primary could be lost now."""
        if self.topology == "plain":
            return self.inspect("valkey-1", "{{.State.Health.Status}}") == "healthy"
        if self.topology == "sentinel":
            replicas = self.cli(self.primary(), "admin", "INFO", "replication")
            return replicas.count("state=online") == 2
        names = ("valkey", *(f"node-{number}" for number in range(2, 7)))
        return all(self._sees_all(name) for name in names)

    def _sees_all(self, node: str) -> bool:
        lines = self.cli(node, "admin", "CLUSTER", "NODES").splitlines()
        masters = sum("master" in line.split()[2] for line in lines)
        return len(lines) == 6 and masters == 3 and not any("fail" in line.split()[2] for line in lines)

    # ------------------------------------------------------------------ an agent that asks all the while

    @contextmanager
    def asked(self, seconds: float) -> Iterator["Asked"]:
        """An agent that asks in a container of its own, and its journal."""
        name = f"{self.project}-asker"
        self.engine.docker("rm", "--force", name, check=False)
        words = ["run", "--detach", "--name", name, "--no-deps", "--entrypoint", "python"]
        self.fleet(
            *words, "--volume", f"{ASKS}:/asking_agent.py:ro", "agent", "/asking_agent.py", str(seconds)
        )
        try:
            yield Asked(self, name)
        finally:
            self.engine.docker("rm", "--force", name, check=False)

    def spent(self, agent: str = "asker") -> tuple[int, int]:
        """(spent, reserved) of an agent, in micro-units."""
        rows = [one for one in self.objects("budget", "list") if one["whose"] == f"agent/{agent}"]
        return sum(one["spent"] for one in rows), sum(one["reserved"] for one in rows)


class Asked:
    """The journal of the agent that asks."""

    def __init__(self, fleet: ContainerFleet, name: str) -> None:
        self._fleet, self._name = fleet, name

    def lines(self) -> list[list[Any]]:
        """All so far."""
        said = self._fleet.engine.docker("logs", self._name)
        return [json.loads(line) for line in said.splitlines() if line.startswith("[")]

    def moments(self) -> list[float]:
        """When both calls of a pair were ruled on."""
        return [line[1] for line in self.lines() if line[0] == "ruled"]

    def wait_for_more(self, since: float, seconds: float = WAIT_S) -> None:
        """Wait until something was ruled on after a moment of the monotonic clock."""
        until(lambda: any(one > since for one in self.moments()), f"ruled on after {since}", seconds)

    def end(self) -> int:
        """End the agent; what the calls that ran have cost."""
        self._fleet.engine.docker("stop", self._name)
        lines = self.lines()
        assert lines[-1] == ["end"], lines[-3:]
        return sum(line[1] for line in lines if line[0] == "ran")

    def longest_gap(self, since: float) -> float:
        """Seconds without a ruling, at most, from the last before a moment on."""
        moments = self.moments()
        first = max((one for one in moments if one <= since), default=moments[0])
        after = [one for one in moments if one >= first]
        return max(later - one for one, later in pairwise(after))


def until(true: Callable[[], Any], what: str, seconds: float = WAIT_S) -> None:
    """Wait for something, with a bound."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not {what} within {seconds} s"
        time.sleep(0.2)


def _copy_clone(directory: Path) -> None:
    """What git knows of this clone, and what is new in it: no passwords of its own, no environment."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).exists() and not name.startswith("tests/"):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, directory / name, follow_symlinks=False)


@contextmanager
def container_fleet(engine: Engine, directory: Path, topology: str) -> Iterator[ContainerFleet]:
    """A fleet that is gone afterwards, its volumes too."""
    fleet = ContainerFleet(engine, directory, topology)
    remove = [
        "docker",
        "compose",
        "--project-name",
        fleet.project,
        "down",
        "--volumes",
        "--remove-orphans",
        "--timeout",
        "5",
    ]
    subprocess.run(remove, env=fleet.env, capture_output=True, timeout=MAKE_S, check=False)
    try:
        yield fleet
    finally:
        subprocess.run(remove, env=fleet.env, cwd=os.sep, capture_output=True, timeout=MAKE_S, check=False)
