"""Nodes of a cluster as the overlay of deploy/ starts them, with their files and users, on loopback.

A gate and the schedulers of the fleet work under their roles while a master is killed and comes back. No
engine of containers is here: what is run is the command lines and files that containers are given. All speak
TLS, which is why it is the system's server; without TLS a cluster of real containers does the same.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import redis
import yaml
from free_ports import LOWEST, find_free_ports, is_free
from guarded_server import DEPLOY, binary, make_acl, make_certificates, older, required
from overlay_world import copy_text, wait_for
from test_sentinel_overlay import diagnosed, ruled, spent
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.server.guard import die_with_parent
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.timeout(300)
COMPOSE = DEPLOY / "compose.cluster.yaml"
WHOLE_S = 60.0
REPLICA_AT = 3
"""Where the first replica stands in a row of `CLUSTER SLOTS`: behind the first slot, the last, the master."""
FILES = {"ssl_ca_certs": "ca.crt", "ssl_certfile": "client.crt", "ssl_keyfile": "client.key"}


@pytest.fixture(scope="module")
def services():
    return yaml.safe_load(COMPOSE.read_text())["services"]


def nodes_of(services):
    return [name for name, one in services.items() if "/etc/valkey/cluster/start" in one.get("command", ())]


class Overlay:
    """The processes of the overlay; every name is an address of loopback with a port that is free."""

    def __init__(self, directory: Path, services) -> None:
        self.directory, self.services = directory, services
        self.ports = dict(zip(nodes_of(services), _ports(len(nodes_of(services))), strict=True))
        made = make_certificates(directory / "tls", "localhost", "127.0.0.1")
        addresses = ",".join(f"localhost:{port}" for port in self.ports.values())
        query = "&".join(f"{name}={made / file}" for name, file in FILES.items())
        url = f"rediss+cluster://{addresses}?{query}"
        make_acl(directory / "made", url, ["policy", "cost-aware"], *older("redis"))
        self._processes = {}
        programs = directory / "programs"
        programs.mkdir()
        for name, program in (
            ("valkey-server", binary("redis")),
            ("valkey-cli", shutil.which("redis-cli") or required("redis-cli")),
        ):
            (programs / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
            (programs / name).chmod(0o755)

    def url(self, role: str) -> str:
        """What that role's processes are given."""
        return (self.directory / "made" / "urls" / role).read_text()

    def _run(self, name: str, *more: str):
        service, home = self.services[name], self.directory / name
        (home / "data").mkdir(parents=True, exist_ok=True)
        copy_text(DEPLOY / "redis", home / "conf", {" /tls/": f" {self.directory / 'tls'}/"})
        mounts = self.directory / "made" / "mounts"
        environment = {
            "PATH": f"{self.directory / 'programs'}:/usr/bin:/bin",
            "PASSWORD_FILE": str(mounts / "admin" / "server"),
            "ACL": str(mounts / "server" / "server.acl"),
            "DATA": str(home / "data"),
            "TLS": str(self.directory / "tls"),
            "BIND": "127.0.0.1",
            "PORT": str(self.ports.get(name, 0)),
        }
        script = service["command"][1].replace("/etc/valkey", str(home / "conf"))
        with (home / "log").open("ab") as log:
            return subprocess.Popen(
                ["sh", script, *more],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(),
            )

    def start(self, name: str) -> None:
        """A node, as its command line says."""
        self._processes[name] = self._run(name, "localhost")

    def create(self) -> int:
        """Have the nodes become a cluster; the exit code."""
        named = [word.partition(":")[0] for word in self.services["create-cluster"]["command"][2:]]
        assert named == list(self.ports)
        making = self._run("create-cluster", *(f"127.0.0.1:{port}" for port in self.ports.values()))
        try:
            return making.wait(WHOLE_S)
        finally:
            making.kill()

    def kill(self, name: str) -> None:
        """End a node at once."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def end(self) -> None:
        """End all."""
        for name in tuple(self._processes):
            self.kill(name)

    def answer(self, name: str, *command):
        """A node's reply to its administrator; None where it gives none."""
        password = self.url("admin").partition("//admin:")[2].partition("@")[0]
        tls = {key: str(self.directory / "tls" / file) for key, file in FILES.items()}
        client = redis.Redis(
            host="localhost", port=self.ports[name], username="admin", password=password,
            socket_timeout=1.0, decode_responses=True, ssl=True, retry=None, **tls,
        )  # fmt: skip
        with client:
            try:
                return client.execute_command(*command)
            except redis.RedisError:
                return None

    def is_whole(self) -> bool:
        """Whether all nodes see all slots, and each master has its replica, of which all nodes know."""
        roles = [self.answer(name, "ROLE") for name in self.ports]
        infos = [self.answer(name, "CLUSTER INFO") for name in self.ports]
        followed = [role for role in roles if role and (role[0] != "master" or role[2])]
        known = [self.answer(name, "CLUSTER SLOTS") for name in self.ports]
        return (
            len(followed) == len(roles)
            and all(info and info["cluster_state"] == "ok" for info in infos)
            and all(rows and all(len(row) > REPLICA_AT for row in rows) for rows in known)
        )

    def master_of(self, key: str) -> str:
        """Who owns a key."""
        slot = self.answer(next(iter(self._processes)), "CLUSTER", "KEYSLOT", key)
        for name in self._processes:
            if (self.answer(name, "ROLE") or [""])[0] == "master":
                for row in self.answer(name, "CLUSTER SLOTS") or ():
                    if row[0] <= slot <= row[1]:
                        return next(one for one, port in self.ports.items() if port == int(row[2][1]))
        raise AssertionError(f"nobody owns {key}")

    def denied(self) -> list[str]:
        """What nodes refused, but that commands are not known to an older server."""
        found = []
        for name in self.ports:
            for entry in self.answer(name, "ACL", "LOG", "128") or []:
                one = entry if isinstance(entry, dict) else dict(zip(entry[::2], entry[1::2], strict=True))
                found.append(f"{name} {one['username']}: {one['context']} {one['object']} ({one['reason']})")
        return found


def _ports(count: int) -> list[int]:
    """Free ones whose cluster bus, ten thousand above, is free as well."""
    buses = [port for port in find_free_ports(10 * count) if port > LOWEST + 10_000]
    return [port - 10_000 for port in buses if is_free(port - 10_000)][:count]


@pytest.fixture
def overlay(tmp_path, services):
    world = Overlay(tmp_path, services)
    try:
        for name in world.ports:
            world.start(name)
        assert world.create() == 0, (tmp_path / "create-cluster" / "log").read_text()
        wait_for(world.is_whole, WHOLE_S)
        yield world
    finally:
        world.end()


@pytest.mark.system
@pytest.mark.acceptance
async def test_the_fleet_rules_under_its_users_and_goes_on_after_a_master_is_lost(
    overlay, process, wait_until
):
    assert overlay.create() == 0  # again changes nothing
    for name in ("policy", "cost-aware"):
        config = DEPLOY / "fleet" / f"{name}.yaml"
        words = ("scheduler", "run", name, "--config", config, "--json", "--redis")
        running = process("toolgate", *words, overlay.url(f"scheduler-{name}"), cwd=overlay.directory)
        await wait_until(lambda one=running: '"ready"' in one.stdout, timeout=60)
    async with Gate.open(
        redis=overlay.url("agent"), patience_ms=1000, required=["policy", "cost-aware"]
    ) as gate:
        outages = {"begin": await ruled(gate)}
        for key in (Keys("default").inbox("policy"), Keys("default").store_key("budget")):
            lost = overlay.master_of(key)
            overlay.kill(lost)
            outages[key] = await ruled(gate)
            overlay.start(lost)  # it comes back as it was started the first time, and follows
            wait_for(overlay.is_whole, WHOLE_S)
            assert overlay.master_of(key) != lost
            await ruled(gate)
        print(outages)
    assert spent(overlay) > 0
    assert diagnosed(overlay) == []
    # Who may search names, and read no values, is refused the look whether a slot moves: it does without.
    assert [one for one in overlay.denied() if not one.endswith(":~ (key)")] == []


def test_the_file_over_compose_fits_its_schema_and_mounts_what_is_there(services, tmp_path):
    check = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        str(COMPOSE),
    ]
    ran = subprocess.run(check, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    nodes = nodes_of(services)
    assert len(nodes) == 6
    make_acl(tmp_path / "made", f"redis+cluster://{','.join(nodes)}", ["policy", "cost-aware"])
    for service in services.values():
        for source in (one.split(":")[0] for one in service.get("volumes", ()) if one.startswith("./")):
            place = tmp_path / source[2:] if source.startswith("./made/") else DEPLOY / source
            assert place.exists(), source


def test_every_service_of_compose_waits_for_the_cluster_and_takes_its_url_from_the_same_file(services):
    base = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    ours = {name for name, one in base.items() if "valkey" in one.get("depends_on", {})}
    for name in ours:
        assert services[name] == {
            "depends_on": {"create-cluster": {"condition": "service_completed_successfully"}}
        }
    for name in nodes_of(services):
        assert services[name].get("image", base["valkey"]["image"]) == base["valkey"]["image"]
    (named,) = re.findall(r"redis\+cluster://([^\s\"]+)", (DEPLOY / "up.py").read_text())
    assert named.split(",") == nodes_of(services)


def test_a_start_or_a_creation_without_what_it_needs_says_so(tmp_path):
    scripts = DEPLOY / "redis" / "cluster"
    for words, said in (
        (["start", "a"], "REPLICA_PASSWORD"),
        (["start"], "start NAME"),
        (["create", "a:1"], "create NAME:PORT"),
        (["create", *"abcdef"], "PASSWORD_FILE"),
    ):
        environment = {"PATH": os.environ["PATH"], "DATA": str(tmp_path)}
        ran = subprocess.run(
            ["sh", scripts / words[0], *words[1:]],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode != 0
        assert said in ran.stderr
