#!/usr/bin/env python3
"""Run a fleet in containers, by `make up`: python3 deploy/up.py plain|sentinel|cluster

It makes users and passwords (redis/make_acl.py), builds the images, starts what compose.yaml says, and
waits until all is healthy. In `made` it leaves `fleet`, which is `docker compose` with the files and
variables of this fleet, and `env`, with a mark of each file that containers mount: a container whose files
have changed is made anew. What is not healthy in the end is named, with the last lines of its log.
Needs Python 3.9, nothing else.
"""

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MADE = HERE / "made"
SERVERS = {
    "plain": "redis://valkey:6379/0",
    "sentinel": "redis+sentinel://sentinel-1,sentinel-2,sentinel-3/fleet",
    "cluster": "redis+cluster://valkey,node-2,node-3,node-4,node-5,node-6",
}
SCHEDULERS = ("policy", "cost-aware", "approval")
PORTS = {"GRAFANA": 3000, "PROMETHEUS": 9090, "ALERTMANAGER": 9093, "CONSOLE": 8765}
FOLDERS = ("fleet", "redis", "prometheus", "grafana")
"""What is mounted of this folder; it holds nothing secret."""
KEPT = (*(f"TOOLGATE_PORT_{name}" for name in PORTS), "TOOLGATE_NETWORK")
"""Variables of the shell that `made/fleet` must know later."""
ENGINE, COMPOSE = (25,), (2, 24)
"""Lowest versions: `start_interval` is of Engine 25, and Compose 2.24 is the oldest that was tried."""
WAIT_S = 120
POLL_S = 1.0
RESTARTS = 3
LOG_LINES = 8
CHECK_CHARS = 300
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def check_versions():
    """End the program where Docker is missing, does not answer, or is too old."""
    try:
        engine = asked("docker", "version", "--format", "{{.Server.Version}}")
        compose = asked("docker", "compose", "version", "--short")
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip()
        raise SystemExit(
            f"This needs Docker and its compose plugin (docs.docker.com/get-started), running: {said}"
        ) from None
    for name, version, lowest in (("Docker Engine", engine, ENGINE), ("Docker Compose", compose, COMPOSE)):
        if numbers_of(version) < lowest:
            wanted = ".".join(map(str, lowest))
            raise SystemExit(f"{name} is {version}; this needs {wanted} or newer")


def numbers_of(version):
    """Major and minor version."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def asked(*words):
    """What a command prints; raises CalledProcessError where it fails."""
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def make_users(topology):
    """Make users, passwords and access rules in `made`, and folders that are mounted."""
    words = [
        sys.executable,
        str(HERE / "redis" / "make_acl.py"),
        "--to",
        str(MADE),
        "--server",
        SERVERS[topology],
    ]
    for name in SCHEDULERS:
        words += ["--scheduler", name]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    (MADE / "alertmanager").mkdir(exist_ok=True)


def open_folders():
    """Let containers, whose processes are other users, read what they mount: a strict umask closed it."""
    for folder in FOLDERS:
        for path in (HERE / folder, *(HERE / folder).rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))


def marks():
    """A mark of each file of `fleet`, and of each folder that is mounted whole: NAME -> mark."""
    groups = {}
    for path in sorted((HERE / "fleet").iterdir()):
        groups.setdefault(path.stem, []).append(path)
    for folder in (
        *sorted((MADE / "mounts").iterdir()),
        *(HERE / one for one in FOLDERS[1:]),
    ):
        groups.setdefault(folder.name, []).extend(sorted(folder.rglob("*")))
    return {name: mark_of(paths) for name, paths in groups.items()}


def mark_of(paths):
    """A short mark of what is in these files."""
    hashed = hashlib.sha256()
    for path in paths:
        if path.is_file() and "__pycache__" not in path.parts:
            hashed.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return hashed.hexdigest()[:12]


def group():
    """The group of the files with passwords, as a container sees it."""
    rootless = "rootless" in asked("docker", "info", "--format", "{{.SecurityOptions}}")
    return 0 if rootless else os.getgid()


def write_env():
    """Add marks, group, and the variables of this shell, to the URLs in `made/env`."""
    lines = [f"TOOLGATE_GROUP={group()}"]
    lines += [
        f"TOOLGATE_FILES_{re.sub('[^A-Z0-9]', '_', name.upper())}={mark}" for name, mark in marks().items()
    ]
    lines += [f"{name}={os.environ[name]}" for name in KEPT if os.environ.get(name)]
    with (MADE / "env").open("a", encoding="utf-8") as env:
        env.write("\n".join(lines) + "\n")


def project():
    """What Compose calls this fleet."""
    return os.environ.get("COMPOSE_PROJECT_NAME") or "toolgate"


def write_fleet(topology):
    """Write `made/fleet`; the path of it."""
    over = "" if topology == "plain" else f' -f "$deploy/compose.{topology}.yaml"'
    script = MADE / "fleet"
    script.write_text(
        "#!/bin/sh\n"
        "# `docker compose` with the files and variables of the fleet that `make up` started:\n"
        "# fleet logs policy, fleet run --rm operator decisions, fleet --profile console up console\n"
        'deploy=$(cd "$(dirname "$0")/.." && pwd)\n'
        f"exec docker compose --project-name {shlex.quote(project())} "
        f'-f "$deploy/compose.yaml"{over} --env-file "$deploy/made/env" "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    return script


def say(line, to=sys.stdout):
    """Print a line, before whatever a command prints next."""
    to.write(line + "\n")
    to.flush()


def start(fleet):
    """Build and start all, and wait until it is healthy; whether it is."""
    subprocess.run([fleet, "--progress", "quiet", "build"], check=True)
    well, ill = wait_for_all(fleet), ailing(fleet)
    if ill and set(ill.values()) <= {"created", "unhealthy"}:
        # Who was waited for ended once and is well by now; or it lives and does not answer.
        stuck = [name for name, state in ill.items() if state == "unhealthy"]
        for name in stuck:
            for said in failed_checks(fleet, name):
                say(f"{name} is unhealthy and is started anew. Its health check said: {said}", sys.stderr)
        if stuck:
            subprocess.run([fleet, "--progress", "quiet", "restart", *stuck], check=False)
        well, ill = wait_for_all(fleet), ailing(fleet)
    for name, state in ill.items():
        say(f"\n{name} is {state}. The end of its log:", sys.stderr)
        log = asked(str(fleet), "logs", "--no-color", "--no-log-prefix", "--tail", str(LOG_LINES), name)
        say(ESCAPES.sub("", log), sys.stderr)
    return well and not ill


def wait_for_all(fleet):
    """Start what does not run, until all is healthy or something ends again and again; whether all is."""
    words = ["up", "--detach", "--remove-orphans", "--wait", "--wait-timeout", str(WAIT_S)]
    before = restarts()
    with subprocess.Popen([fleet, "--progress", "quiet", *words]) as waiting:
        while waiting.poll() is None:
            try:
                waiting.wait(POLL_S)
            except subprocess.TimeoutExpired:
                if any(count >= before.get(one, 0) + RESTARTS for one, count in restarts().items()):
                    waiting.terminate()
    return waiting.returncode == 0


def restarts():
    """How often each container was started anew that has ended just now: id -> number."""
    ours = f"label=com.docker.compose.project={project()}"
    ids = asked("docker", "ps", "--quiet", "--filter", ours, "--filter", "status=restarting").split()
    words = ["docker", "inspect", "--format", "{{.Id}} {{.RestartCount}}", *ids]
    # It fails for a container that is gone by now, and prints the others.
    said = subprocess.run(words, check=False, capture_output=True, text=True).stdout if ids else ""
    return {one: int(count) for one, count in map(str.split, said.splitlines())}


def ailing(fleet):
    """Services that do not run as they should: name -> state."""
    found = {}
    for line in asked(str(fleet), "ps", "--all", "--format", "json").splitlines():
        one = json.loads(line)
        state = one["Health"] if one["State"] == "running" and one["Health"] else one["State"]
        if state not in ("running", "healthy") and (state, one["ExitCode"]) != ("exited", 0):
            found[one["Service"]] = state
    return found


def failed_checks(fleet, service):
    """What the last health check of each container of a service said that is not healthy."""
    ids = asked(str(fleet), "ps", "--all", "--quiet", service).split()
    for one in json.loads(asked("docker", "inspect", *ids)):
        health = one["State"].get("Health") or {}
        if health.get("Status") == "unhealthy" and health["Log"]:
            last = health["Log"][-1]
            yield last["Output"].strip()[-CHECK_CHARS:] or f"exit code {last['ExitCode']}"


def main(arguments):
    """Start a fleet, and say where to look; ends with 1 where something is not healthy."""
    if len(arguments) != 1 or arguments[0] not in SERVERS:
        raise SystemExit(f"up.py: say which: {', '.join(SERVERS)}")
    check_versions()
    make_users(*arguments)
    open_folders()
    write_env()
    fleet = write_fleet(*arguments)
    here = os.path.relpath(fleet)
    if not start(fleet):
        raise SystemExit(f"\nNot all is well. {here} ps shows what runs; `make down` ends it.")
    port = {name: os.environ.get(f"TOOLGATE_PORT_{name}") or number for name, number in PORTS.items()}
    say(f"Grafana     http://localhost:{port['GRAFANA']}")
    say(f"Prometheus  http://localhost:{port['PROMETHEUS']}   alerts http://localhost:{port['ALERTMANAGER']}")
    say(f"Console     {here} --profile console up console    then the address in its log")
    say(f"Decisions   {here} run --rm operator decisions     `make down` ends the fleet")


if __name__ == "__main__":
    main(sys.argv[1:])
