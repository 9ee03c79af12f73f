"""A Docker engine for the tests: the one that runs here, or one that is unpacked, started and taken away.

The second needs root, Debian, and this machine's sources of it. Its packages are unpacked in a folder that is
kept; nothing is installed. Its data, sockets and processes are its own. When it ends, so do its containers,
and the bridges and rules of the firewall that it made are gone. One such engine runs at a time.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from debian_packages import NotHereError, download_packages

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolgate" / "containers"
"""Kept from one run to the next: packages of the engine, and the root file system of the base images."""
NEW = ("docker.io", "docker-cli", "docker-compose", "docker-buildx", "containerd")
"""From a release that has Compose 2."""
OLD = ("runc", "iptables", "libip4tc2", "libip6tc2", "libxtables12", "libnftnl11", "libmnl0",
       "libnetfilter-conntrack3", "libnfnetlink0")  # fmt: skip
"""From a release whose C library is not newer than this machine's."""
START_S = 30.0
LIMIT_S = 60.0


class Engine:
    """How to reach an engine: the environment for `docker`, and whether images can be pulled."""

    def __init__(self, env: Mapping[str, str], *, ours: bool) -> None:
        self.env, self.ours = dict(env), ours

    def docker(self, *words: str, limit_s: float = LIMIT_S, check: bool = True, text: str = "") -> str:
        """Run `docker`; its output, or AssertionError with what it said."""
        ran = subprocess.run(
            ["docker", *words],
            env=self.env,
            input=text,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        assert ran.returncode == 0 or not check, f"docker {' '.join(words)}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout.strip()


@contextmanager
def engine() -> Iterator[Engine]:
    """An engine; raises NotHereError with the reason where there can be none."""
    running = _running()
    if running is not None:
        yield running
        return
    if os.geteuid() != 0:
        raise NotHereError("no Docker engine with Compose 2 runs here, and only root can start one")
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        programs = _unpacked(CACHE / "engine")
        folder = Path(tempfile.mkdtemp(prefix="toolgate-engine-"))
        before = {tool: _rules(tool, programs) for tool in ("iptables", "ip6tables")}
        forwards = {path: path.read_text() for path in FORWARDS if path.exists()}
        links = _bridges()
        env = _environment(programs, folder)
        try:
            with _daemon(env, folder):
                yield Engine(env, ours=True)
        finally:
            for bridge in _bridges() - links:
                subprocess.run(["ip", "link", "delete", bridge], check=False, capture_output=True)
            for tool, rules in before.items():
                _take_out(tool, programs, rules)
            for path, text in forwards.items():
                path.write_text(text)
            _unmount(folder)
            # Gigabytes, at the end of a test that may have no minute left.
            words = ["sh", "-c", 'rm -rf "$1" >/dev/null 2>&1 &', "sh", str(folder)]
            subprocess.run(words, check=False, start_new_session=True)


def _running() -> Engine | None:
    """The engine of this machine, if there is one with Compose."""
    if shutil.which("docker") is None:
        return None
    for words in (["docker", "version", "--format", "{{.Server.Version}}"], ["docker", "compose", "version"]):
        if subprocess.run(words, capture_output=True, timeout=LIMIT_S, check=False).returncode:
            return None
    return Engine(os.environ, ours=False)


FORWARDS = (
    Path("/proc/sys/net/ipv4/ip_forward"),
    Path("/proc/sys/net/ipv6/conf/all/forwarding"),
    Path("/proc/sys/net/ipv6/conf/default/forwarding"),
)


# ------------------------------------------------------------------ its programs


def _unpacked(folder: Path) -> Path:
    """The folder with its programs, made once."""
    if (folder / "done").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    files = download_packages(NEW, "trixie", CACHE) + download_packages(OLD, "bookworm", CACHE)
    folder.mkdir()
    for file in files:
        subprocess.run(["dpkg-deb", "-x", file, folder], check=True)
        file.unlink()
    programs = folder / "programs"
    programs.mkdir()
    for found in {one.name: one for one in (*folder.glob("usr/bin/*"), *folder.glob("usr/sbin/*"))}.values():
        (programs / found.name).symlink_to(found)
    for kind in ("nft", "legacy"):
        library = next(folder.glob("usr/lib/*/xtables"))
        for tool in ("iptables", "ip6tables"):
            for ending in ("", "-save"):
                link = programs / f"{tool}-{kind}{ending}"
                link.unlink(missing_ok=True)
                link.write_text(
                    f"#!/bin/sh\nexport LD_LIBRARY_PATH={library.parent} XTABLES_LIBDIR={library}\n"
                    f'exec {folder}/usr/sbin/xtables-{kind}-multi {tool}{ending} "$@"\n'
                )
                link.chmod(0o755)
    kind = next((one for one in ("nft", "legacy") if _works(programs / f"iptables-{one}")), None)
    if kind is None:
        raise NotHereError("this machine's kernel takes no rules from iptables")
    for tool in ("iptables", "ip6tables", "iptables-save", "ip6tables-save"):
        first, _, ending = tool.partition("-")
        (programs / tool).unlink(missing_ok=True)
        (programs / tool).symlink_to(f"{first}-{kind}{'-' * bool(ending)}{ending}")
    plugins = folder / "config" / "cli-plugins"
    plugins.mkdir(parents=True)
    for plugin in folder.glob("usr/libexec/docker/cli-plugins/*"):
        (plugins / plugin.name).symlink_to(plugin)
    (folder / "done").touch()
    return folder


def _works(iptables: Path) -> bool:
    return subprocess.run([iptables, "-t", "nat", "-S"], capture_output=True, check=False).returncode == 0


def _environment(programs: Path, folder: Path) -> dict[str, str]:
    """For the daemon and for who speaks to it."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("DOCKER_")}
    return kept | {
        "PATH": f"{programs / 'programs'}:{os.environ['PATH']}:/usr/sbin:/sbin",
        "DOCKER_HOST": f"unix://{folder}/docker.sock",
        "DOCKER_CONFIG": str(programs / "config"),
    }


# ------------------------------------------------------------------ its life


@contextmanager
def _daemon(env: Mapping[str, str], folder: Path) -> Iterator[None]:
    words = ["dockerd", "-H", f"unix://{folder}/docker.sock", "--data-root", f"{folder}/data"]
    words += ["--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid", "--shutdown-timeout", "5"]
    with (folder / "log").open("ab") as log:
        daemon = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_S
        asks = ["docker", "version", "--format", "{{.Server.Version}}"]
        while subprocess.run(asks, env=env, capture_output=True, check=False).returncode:
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise NotHereError(
                    f"Docker's engine does not start here: {(folder / 'log').read_text()[-600:]}"
                )
            time.sleep(0.1)
        yield
    finally:
        if daemon.poll() is None:
            _end_containers(env)
            daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def _end_containers(env: Mapping[str, str]) -> None:
    listed = subprocess.run(["docker", "ps", "-aq"], env=env, capture_output=True, text=True, check=False)
    if listed.stdout.split():
        words = ["docker", "rm", "--force", "--volumes", *listed.stdout.split()]
        subprocess.run(words, env=env, capture_output=True, timeout=LIMIT_S, check=False)


def _bridges() -> set[str]:
    said = subprocess.run(
        ["ip", "-j", "link", "show", "type", "bridge"], capture_output=True, text=True, check=False
    )
    return {one["ifname"] for one in json.loads(said.stdout or "[]") if "ifname" in one}


def _rules(tool: str, programs: Path) -> list[tuple[str, str]]:
    """(table, line) of each rule, chain and policy."""
    ran = subprocess.run(
        [programs / "programs" / f"{tool}-save"], capture_output=True, text=True, check=False
    )
    table, found = "", []
    for line in ran.stdout.splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(("-A ", ":")):
            found.append((table, re.sub(r" \[\d+:\d+\]$", "", line)))
    return found


def _take_out(tool: str, programs: Path, before: list[tuple[str, str]]) -> None:
    """Remove rules and chains that were not there before, and give chains the policy that they had."""
    iptables = str(programs / "programs" / tool)
    new = [one for one in _rules(tool, programs) if one not in before]
    policies = {(table, line.split()[0]): line.split()[1] for table, line in before if line[0] == ":"}

    def change(table: str, *words: str) -> None:
        subprocess.run([iptables, "-t", table, *words], capture_output=True, check=False)

    for table, line in new:
        if line.startswith("-A "):
            subprocess.run(
                ["sh", "-c", f"{iptables} -t {table} -D {line[3:]}"], capture_output=True, check=False
            )
    for table, line in new:
        if line.startswith(":"):
            chain, policy = line.split()[:2]
            if policy == "-":
                change(table, "-X", chain[1:])
            else:
                change(table, "-P", chain[1:], policies.get((table, chain), "ACCEPT"))


def _unmount(folder: Path) -> None:
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in sorted((one for one in mounted if one.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", place], capture_output=True, check=False)
