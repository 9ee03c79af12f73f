"""Servers and sentinels as an overlay of deploy/ starts them, on loopback: its command lines, files, users.

What differs is where they listen: every name becomes `localhost` with a port that is free, every folder one
of the test's own. `start_all` is bounded; all end by their process ids. With TLS they are the system's Redis,
since the wheel's server was built without it.
"""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import redis
import yaml
from free_ports import find_free_ports
from guarded_server import DEPLOY, binary, make_acl, make_certificates, older
from kustomized import build, config_maps, containers, pod
from sentinel_world import FAILOVER_S, START_S, until
from toolgate_bus.server.guard import die_with_parent

SERVICE = "fleet"
SCHEDULERS = ("policy", "cost-aware")
Mounts = dict[str, str]


@dataclass(frozen=True)
class Part:
    """One container: what it runs, with what in its environment, and what is mounted where."""

    name: str
    command: list[str]
    environment: Mapping[str, str]
    """Name to file in `made`."""
    mounts: Mounts
    """Path in the container to file or folder in `deploy`; those of `made` begin with `made/`."""

    @property
    def kind(self) -> str:
        """`server` or `sentinel`."""
        return self.command[2]


def compose_parts() -> list[Part]:
    """Those of compose.sentinel.yaml, over compose.yaml."""
    base = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    services = yaml.safe_load((DEPLOY / "compose.sentinel.yaml").read_text())["services"]
    found = []
    for name, service in services.items():
        if "command" in service:
            mounts = [*base.get(name, {}).get("volumes", ()), *service.get("volumes", ())]
            paths = {
                target: source[2:]
                for source, target, *_ in (one.split(":") for one in mounts)
                if source[0] == "."
            }
            found.append(Part(name, service["command"], {}, paths))
    return found


def kubernetes_parts() -> list[Part]:
    """Those of the pods of kubernetes/sentinel."""
    objects = build(DEPLOY / "kubernetes" / "sentinel")
    files = {one["metadata"]["name"]: _files_of(one) for one in objects if one["kind"] == "ConfigMap"}
    found = []
    for one in objects:
        if one["kind"] == "StatefulSet":
            (container,) = containers(one)
            found += [_pod_part(one, container, files, number) for number in range(one["spec"]["replicas"])]
    return found


def _pod_part(one: Any, container: Any, files: Mapping[str, Mounts], number: int) -> Part:
    name = f"{one['metadata']['name']}-{number}"
    environment = {}
    for variable in container["env"]:
        come_from = variable["valueFrom"]
        if "secretKeyRef" in come_from:
            folder = "nodes" if come_from["secretKeyRef"]["name"] == "toolgate-nodes" else "urls"
            environment[variable["name"]] = f"{folder}/{come_from['secretKeyRef']['key']}"
    volumes = {volume["name"]: volume for volume in pod(one)["volumes"]}
    mounts: Mounts = {}
    for mount in container["volumeMounts"]:
        volume = volumes.get(mount["name"], {})
        if "configMap" in volume or "projected" in volume:
            held = {name: path for one in config_maps(volume) for name, path in files[one].items()}
        elif volume.get("secret", {}).get("secretName") == "toolgate-acl":
            held = {"server.acl": "made/users.acl", "sentinel.acl": "made/sentinel.acl"}
        else:
            held = {}
        mounts |= {f"{mount['mountPath']}/{file}": source for file, source in held.items()}
    words = [word.replace("$(POD)", name) for word in container["args"]]
    return Part(name, words, environment, mounts)


def _files_of(config: Any) -> Mounts:
    """Where each file of a ConfigMap stands in `deploy`: told by what is in it."""
    there = [path for path in DEPLOY.rglob("*") if path.is_file()]
    return {
        name: str(
            next(path for path in there if path.name == name and path.read_text() == text).relative_to(DEPLOY)
        )
        for name, text in config["data"].items()
    }


class OverlayWorld:
    """The processes of an overlay, and the URLs of the roles."""

    def __init__(self, directory: Path, parts: list[Part]) -> None:
        self.directory, self.parts = directory, {part.name: part for part in parts}
        self.ports = dict(zip(self.parts, find_free_ports(len(parts)), strict=True))
        self.tls = any(mount.endswith("/tls.conf") for part in parts for mount in part.mounts)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        query = f"?{self._make_certificates()}" if self.tls else ""
        sentinels = ",".join(
            f"localhost:{self.ports[part.name]}" for part in parts if part.kind == "sentinel"
        )
        scheme = "rediss" if self.tls else "redis"
        self.kind = "redis" if self.tls else "valkey"
        url = f"{scheme}+sentinel://{sentinels}/{SERVICE}{query}"
        make_acl(directory / "made", url, SCHEDULERS, *older(self.kind))
        programs = directory / "programs"
        programs.mkdir()
        for name, option in (("valkey-server", ""), ("valkey-sentinel", " --sentinel")):
            (programs / name).write_text(f'#!/bin/sh\nexec {binary(self.kind)} "$@"{option}\n')
            (programs / name).chmod(0o755)

    def _make_certificates(self) -> str:
        made = make_certificates(self.directory / "tls", "localhost")
        files = {"ssl_ca_certs": "ca.crt", "ssl_certfile": "client.crt", "ssl_keyfile": "client.key"}
        return urlencode({name: str(made / file) for name, file in files.items()}, quote_via=quote, safe="/")

    def url(self, role: str) -> str:
        """What that role's processes are given."""
        return (self.directory / "made" / "urls" / role).read_text()

    def of(self, kind: str) -> list[str]:
        """The names of all servers, or of all sentinels."""
        return [name for name, part in self.parts.items() if part.kind == kind]

    # ------------------------------------------------------------------ processes

    def start(self, name: str) -> None:
        """Run its command line, with its files mounted."""
        part, home = self.parts[name], self.directory / name
        conf = self._mount(part, home)
        (home / "data").mkdir(exist_ok=True)
        words = [word.replace("/etc/valkey", str(conf)) for word in part.command]
        words[-2:] = ["localhost", f"localhost:{self.ports[self._named(words[-1])]}"]
        environment = {
            key: (self.directory / "made" / file).read_text() for key, file in part.environment.items()
        } | {
            "PATH": f"{self.directory / 'programs'}:/usr/bin:/bin",
            "TLS": str(self.directory / "tls"),
            "ACL": str(home / "acl" / f"{part.kind}.acl"),
            "DATA": str(home / "data"),
            "BIND": "127.0.0.1",
            "PORT": str(self.ports[name]),
        }
        with (home / "log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                words,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(),
            )

    def _named(self, address: str) -> str:
        """Who has this address: `valkey:6379` is the service, `valkey-0.valkey:6379` the pod."""
        return address.partition(":")[0].partition(".")[0]

    def _mount(self, part: Part, home: Path) -> Path:
        for target, source in part.mounts.items():
            origin = self.directory / source if source.startswith("made/") else DEPLOY / source
            place = home / target.replace("/etc/valkey-acl", "acl").replace("/etc/valkey", "conf")
            copy_text(origin, place, {" /tls/": f" {self.directory / 'tls'}/"})
        return home / "conf"

    def start_all(self) -> None:
        """Start all, and wait until any of them could fail over."""
        for name in self.parts:
            self.start(name)
        until(self.is_whole, START_S * 2)

    def kill(self, name: str) -> None:
        """End it at once."""
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def end(self) -> None:
        """End all of them."""
        for name in tuple(self._processes):
            self.kill(name)

    # ------------------------------------------------------------------ questions

    def answer(self, name: str, *command: Any, user: str = "") -> Any:
        """Its reply to its administrator, or to another user; None where it gives none."""
        user = user or ("admin" if self.parts[name].kind == "server" else "sentinel-admin")
        files = {"ssl_ca_certs": "ca.crt", "ssl_certfile": "client.crt", "ssl_keyfile": "client.key"}
        tls = {key: str(self.directory / "tls" / file) for key, file in files.items()} if self.tls else {}
        client = redis.Redis(
            host="localhost",
            port=self.ports[name],
            username=user.removeprefix("sentinel-"),
            password=self._password(user),
            socket_timeout=1.0,
            decode_responses=True,
            ssl=self.tls,
            retry=None,
            **tls,
        )
        with client:
            try:
                return client.execute_command(*command)
            except redis.exceptions.NoPermissionError:
                raise
            except redis.RedisError:
                return None

    def _password(self, user: str) -> str:
        own = self.directory / "made" / "nodes" / user
        if own.exists():
            return own.read_text()
        return self.url(user).partition(f"//{user}:")[2].partition("@")[0]

    def is_whole(self) -> bool:
        """Whether all servers follow one primary that all sentinels know, and it could fail over."""
        primary = self.primary
        roles = [self.answer(name, "ROLE") for name in self.of("server")]
        if primary is None or any(role is None for role in roles):
            return False
        follow = sorted("master" if role[0] == "master" else str(role[3]) for role in roles)
        return follow == ["connected", "connected", "master"] and all(
            self._can_fail_over(name) for name in self.of("sentinel")
        )

    def _can_fail_over(self, sentinel: str) -> bool:
        said = self._fields(self.answer(sentinel, "SENTINEL", "MASTER", SERVICE))
        replicas = self.answer(sentinel, "SENTINEL", "REPLICAS", SERVICE) or []
        rows = [self._fields(one) for one in replicas]
        alive = [row for row in rows if row["flags"] == "slave" and row["master-link-status"] == "ok"]
        return said.get("num-other-sentinels") == "2" and said["flags"] == "master" and len(alive) == 2

    @staticmethod
    def _fields(said: Any) -> dict[str, str]:
        if isinstance(said, dict):
            return said
        return dict(zip(said[::2], said[1::2], strict=True)) if said else {}

    @property
    def primary(self) -> str | None:
        """The server that all sentinels name, if they agree."""
        asked = [
            self.answer(name, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE) for name in self.of("sentinel")
        ]
        said = {tuple(one) if one else None for one in asked}
        (one, *others) = said
        if others or one is None:
            return None
        return next((name for name, port in self.ports.items() if str(port) == one[1]), None)

    def fail_over(self, *how: str) -> None:
        """Have a sentinel fail over by command, and wait for another primary."""
        before, sentinel = self.primary, self.of("sentinel")[0]
        until(lambda: self.answer(sentinel, "SENTINEL", "FAILOVER", SERVICE, *how), FAILOVER_S)
        until(lambda: self.primary not in (before, None), FAILOVER_S)

    def denied(self) -> list[str]:
        """What servers and sentinels refused: `where user: command or key`."""
        found = []
        for name in self.parts:
            for entry in self.answer(name, "ACL", "LOG", "128") or []:
                one = self._fields(entry)
                found.append(f"{name} {one['username']}: {one['context']} {one['object']} ({one['reason']})")
        return found

    def logs(self) -> str:
        """The end of what each wrote."""
        texts = {name: (self.directory / name / "log").read_text(errors="replace") for name in self.parts}
        return "\n".join(f"--- {name}\n{text[-1500:]}" for name, text in texts.items())


@contextmanager
def overlay_world(directory: Path, parts: list[Part]) -> Iterator[OverlayWorld]:
    """One that runs, and is gone afterwards."""
    world = OverlayWorld(directory, parts)
    try:
        try:
            world.start_all()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{world.logs()}\n{world.denied()}") from None
        yield world
    finally:
        world.end()
        shutil.rmtree(directory, ignore_errors=True)


def copy_text(origin: Path, place: Path, changed: Mapping[str, str]) -> None:
    """Copy a file, or the files of a folder, with some words for others."""
    files = (
        [origin]
        if origin.is_file()
        else [one for one in origin.rglob("*") if one.is_file() and one.suffix != ".pyc"]
    )
    for file in files:
        to = place if file == origin else place / file.relative_to(origin)
        to.parent.mkdir(parents=True, exist_ok=True)
        text = file.read_text()
        for was, will_be in changed.items():
            text = text.replace(was, will_be)
        to.write_text(text)


def wait_for(true: Callable[[], Any], seconds: float = FAILOVER_S) -> float:
    """Wait for something; how long it took, in seconds."""
    began = time.monotonic()
    until(true, seconds)
    return round(time.monotonic() - began, 2)
