"""The fleet of deploy/ as processes: what compose.yaml starts, on a server under the access rules.

There is no engine for containers here: each service's own command line runs, its paths and addresses
those of this machine. What Kubernetes asks of a pod (its probes) is asked of them too.
"""

import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from free_ports import find_free_port
from guarded_server import DEPLOY, guarded
from kustomized import build, containers

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

SERVICES = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
LINE = re.compile(r"TOOLGATE_URL_([A-Z_]+)")


def here(word: str, port: int, files: Path) -> str:
    """A word of a command line, as it is on this machine."""
    for there, local in (("/etc/toolgate", files), ("9464", port), ("0.0.0.0", "127.0.0.1")):
        word = word.replace(there, str(local))
    return word


def asked(port: int, path: str) -> tuple[int, str]:
    """GET; the status and the page."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except OSError as error:
        return 0, str(error)


def probes(name: str) -> set[str]:
    """The paths that Kubernetes asks of a service's pods."""
    (one,) = [
        each
        for each in build(DEPLOY / "kubernetes" / "base")
        if each["kind"] == "Deployment" and each["metadata"]["name"] == f"toolgate-{name}"
    ]
    kinds = ("startupProbe", "readinessProbe", "livenessProbe")
    return {containers(one)[0][kind]["httpGet"]["path"] for kind in kinds}


async def test_a_program_without_credentials_is_ruled_on_through_the_sidecar(
    process, wait_until, tmp_path, short_directory
):
    """The sidecar's command, what says that it is healthy, and what the program runs, as they stand there."""
    shutil.copytree(DEPLOY / "fleet", tmp_path / "fleet")
    (sidecar_of_pod,) = [
        one
        for each in build(DEPLOY / "kubernetes" / "sidecar")
        for one in containers(each)
        if one["name"] == "sidecar"
    ]
    assert sidecar_of_pod["args"] == SERVICES["sidecar"]["command"]

    def local(words: list[str]) -> list[str]:
        return [
            here(word, 0, tmp_path / "fleet").replace("/run/toolgate", str(short_directory)) for word in words
        ]

    def is_well(command: list[str]) -> bool:
        asked = [sys.executable, *local(command)[1:]]
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0

    with guarded(tmp_path, "redis", ["policy", "cost-aware"]) as server:

        def start(name: str, role: str) -> Any:
            url = {"TOOLGATE_REDIS_URL": server.url(role)}
            words = SERVICES[name]["command"]
            return process(
                "toolgate", *(here(word, find_free_port(), tmp_path / "fleet") for word in words), env=url
            )

        health = SERVICES["sidecar"]["healthcheck"]["test"][1:]
        asks = [sidecar_of_pod[kind]["exec"]["command"] for kind in ("startupProbe", "readinessProbe")]
        assert not is_well(health)
        schedulers = [start(name, f"scheduler-{name}") for name in ("policy", "cost-aware")]
        for one in schedulers:
            await wait_until(lambda one=one: '"ready"' in one.stdout, timeout=60)
        url = {"TOOLGATE_REDIS_URL": server.url("agent")}
        sidecar = process("toolgate", *local(SERVICES["sidecar"]["command"]), env=url)
        await wait_until(lambda: '"ready"' in sidecar.stdout, timeout=60)
        assert all(is_well(one) for one in (health, *asks))
        (curl,) = re.findall(r"(curl .*)", SERVICES["program"]["entrypoint"][2])
        ran = subprocess.run(
            local(["/bin/sh", "-c", curl]), capture_output=True, text=True, check=True, env={}
        )
        told = json.loads(ran.stdout)
        assert (told["outcome"], told["scheduler"], told["tool"]) == ("deny", "policy", "write_file")
        sidecar.end()
        assert sidecar.popen.returncode == 0, sidecar.stderr
        assert server.denied() == []


async def test_the_services_of_the_compose_file_make_a_fleet(process, wait_until, tmp_path):
    files, work = tmp_path / "fleet", tmp_path / "work"
    shutil.copytree(DEPLOY / "fleet", files)
    work.mkdir()
    plan = (files / "agent.yaml").read_text()
    assert "{root: /tmp}" in plan
    (files / "agent.yaml").write_text(plan.replace("{root: /tmp}", f"{{root: {work}}}"))
    with guarded(tmp_path, "redis", ["policy", "cost-aware"]) as server:
        ports, running = {}, {}

        def start(name: str) -> None:
            service = SERVICES[name]
            ports[name] = find_free_port()
            (role,) = LINE.findall(service["environment"]["TOOLGATE_REDIS_URL"])
            url = {"TOOLGATE_REDIS_URL": server.url(role.lower().replace("_", "-"))}
            words = [*service.get("entrypoint", ["toolgate"]), *service.get("command", ())]
            words = words[words.index("toolgate") + 1 :]
            running[name] = process("toolgate", *(here(word, ports[name], files) for word in words), env=url)

        for name in ("policy", "cost-aware", "exporter"):
            start(name)
        for name in ("policy", "cost-aware", "exporter"):
            for path in probes(name):
                await wait_until(lambda name=name, path=path: asked(ports[name], path)[0] == 200, timeout=60)
        for name in ("policy", "cost-aware"):
            await wait_until(lambda name=name: '"ready"' in running[name].stdout, timeout=60)
        for _ in range(2):  # an agent lives for a second, again and again
            start("agent")
            assert running["agent"].wait(60) == 0, running["agent"].stderr
        told = json.loads(running["agent"].stdout)
        assert [(one["original_tool"], one["outcome"]) for one in told["decisions"]] == [
            ("write_file", "continue"),
            ("calculate", "continue"),
            ("delete_file", "deny"),
            ("write_file", "deny"),
        ]

        assert [one.name for one in work.iterdir()] == ["notes.txt"]

        def counted(line: str) -> bool:
            return any(one.startswith(line) for one in asked(ports["exporter"], "/metrics")[1].splitlines())

        await wait_until(
            lambda: counted(
                'toolgate_decisions_total{agent="clerk",namespace="default",outcome="deny",tool="delete_file"}'
                " 2.0"
            ),
            timeout=20,
        )
        await wait_until(
            lambda: counted('toolgate_inbox_lag_seconds{namespace="default",scheduler="policy"}'), timeout=20
        )
        assert "toolgate_worker_answers_total" in asked(ports["policy"], "/metrics")[1]
        start("operator")
        assert running["operator"].wait(60) == 0
        assert "cost-aware" in running["operator"].stdout
        for name in ("policy", "cost-aware", "exporter"):
            running[name].end()
            assert running[name].popen.returncode == 0, running[name].stderr
        assert server.denied() == []
