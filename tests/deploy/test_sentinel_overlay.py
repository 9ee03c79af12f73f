"""Servers and sentinels as the overlays of deploy/ start them, with their files and users, on loopback.

A gate and the schedulers of the fleet work under their roles while the primary is handed over and killed. No
engine of containers and no cluster are here: what is run is the command lines and files that they are given.
"""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import time

import pytest
import redis
import yaml
from guarded_server import DEPLOY, make_acl
from overlay_world import compose_parts, kubernetes_parts, overlay_world
from sentinel_world import until
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.timeout(300)
OVERLAYS = {"compose": compose_parts, "kubernetes": kubernetes_parts}
GOES_ON_S = 40.0
"""Three seconds until a primary is called down, an election, a failover, and new connections: nine to
fourteen seconds where five times as many processes want to run as there are cores."""
WHOLE_S = 60.0
"""Sentinels look at replicas every ten seconds, and hold back from a demoted one."""


@pytest.fixture(params=OVERLAYS)
def overlay(request, tmp_path):
    with overlay_world(tmp_path / "world", OVERLAYS[request.param]()) as world:
        yield world


@pytest.fixture
def fleet(overlay, process, wait_until):
    """Starts the fleet's schedulers, each as the user of its role."""

    async def start():
        for name in ("policy", "cost-aware"):
            config = DEPLOY / "fleet" / f"{name}.yaml"
            words = ("scheduler", "run", name, "--config", config, "--json", "--redis")
            running = process("toolgate", *words, overlay.url(f"scheduler-{name}"), cwd=overlay.directory)
            await wait_until(lambda one=running: '"ready"' in one.stdout or has_ended(one), timeout=60)

    return start


def has_ended(running):
    """Raises where it is over, with what it said."""
    assert running.alive, running.stderr
    return False


async def ruled(gate, seconds=GOES_ON_S):
    """Ask until both rule again: nothing else may run meanwhile. How long it took, in seconds."""
    began = time.monotonic()
    while True:
        allowed = await gate.decide(Call("calculate", {"expression": "1+1"}, ["calculate"]))
        denied = await gate.decide(Call("delete_file", {}, ["calculate", "delete_file"]))
        assert denied.outcome != "continue"
        if len(allowed.verdicts) == 2 and allowed.outcome == "continue" and denied.why == "denied":
            return round(time.monotonic() - began, 2)
        await asyncio.sleep(0.01)
        assert time.monotonic() - began < seconds, (allowed, denied)


@pytest.mark.system
@pytest.mark.acceptance
@pytest.mark.parametrize("overlay", ["kubernetes"], indirect=True)  # that of Compose fails over in containers
async def test_the_fleet_rules_under_its_users_and_goes_on_after_each_failover(overlay, fleet):
    await fleet()
    names = ["policy", "cost-aware"]
    async with Gate.open(redis=overlay.url("agent"), patience_ms=1000, required=names) as gate:
        outages = {"begin": await ruled(gate)}
        for how in ("COORDINATED", "") if overlay.kind == "valkey" else ("",):
            before = overlay.primary
            await asyncio.to_thread(overlay.fail_over, *filter(None, [how]))
            outages[how or "plain"] = await ruled(gate)
            assert overlay.primary != before
            await asyncio.to_thread(until, overlay.is_whole, WHOLE_S)
        killed = overlay.primary
        overlay.kill(killed)
        outages["kill"] = await ruled(gate)
        assert overlay.primary != killed
        overlay.start(killed)  # it comes back as it is started the first time, and follows
        await asyncio.to_thread(until, overlay.is_whole, WHOLE_S)
        assert overlay.primary != killed
        await ruled(gate)
        print(outages, {"TLS": overlay.tls})
    assert spent(overlay) > 0
    assert diagnosed(overlay) == []
    assert overlay.denied() == []


def run_as(overlay, role, *words):
    """A command of this role, run to its end; the objects that it printed."""
    environment = os.environ | {"TOOLGATE_REDIS_URL": overlay.url(role)}
    command = [sys.executable, "-m", "toolgate_bus", *words, "--json"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def spent(overlay):
    """What stands in the books, as an operator sees it."""
    return sum(one["spent"] + one["reserved"] for one in run_as(overlay, "operator", "budget", "list"))


def diagnosed(overlay):
    """The errors and warnings of the doctor; but how late answers were in an outage is how busy this is."""
    found = run_as(overlay, "doctor", "doctor")
    assert found  # notices, at least
    told = [one for one in found if one["level"] in ("error", "warning")]
    return [one for one in told if one["name"] != "roster-late"]


@pytest.mark.system
def test_a_user_of_a_sentinel_learns_who_is_the_primary_and_no_more(overlay):
    (sentinel, *_), primary = overlay.of("sentinel"), overlay.primary
    found = overlay.answer(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "fleet", user="client")
    assert found == ["localhost", str(overlay.ports[primary])]
    for user, *command in (
        ("client", "SENTINEL", "FAILOVER", "fleet"),
        ("client", "SENTINEL", "REMOVE", "fleet"),
        ("client", "SENTINEL", "SET", "fleet", "quorum", "1"),
        ("client", "SENTINEL", "MASTERS"),
        ("client", "PUBLISH", "+switch-master", "fleet localhost 1 localhost 2"),
        ("client", "PUBLISH", "__sentinel__:hello", "x"),
        ("client", "SHUTDOWN"),
        ("client", "ACL", "LIST"),
        ("peer", "SENTINEL", "SET", "fleet", "quorum", "1"),
        ("peer", "SENTINEL", "FAILOVER", "fleet"),
        ("peer", "PUBLISH", "+switch-master", "fleet localhost 1 localhost 2"),
    ):
        with pytest.raises(redis.exceptions.NoPermissionError):
            overlay.answer(sentinel, *command, user=user)
    for user, *command in (
        ("replica", "GET", "house"),
        ("replica", "REPLICAOF", "NO", "ONE"),
        ("sentinel", "GET", "house"),
        ("sentinel", "SET", "house", "x"),
        ("sentinel", "CONFIG", "SET", "maxmemory", "1"),
        ("sentinel", "FLUSHALL"),
        ("sentinel", "ACL", "LIST"),
        ("sentinel", "SHUTDOWN"),
        ("sentinel", "SUBSCRIBE", "news"),
    ):
        with pytest.raises(redis.exceptions.NoPermissionError):
            overlay.answer(primary, *command, user=user)
    told = overlay.denied()
    assert any(one.startswith(f"{sentinel} client:") for one in told)
    assert any(one.startswith(f"{primary} sentinel:") for one in told)
    open_to_anybody = redis.Redis(port=overlay.ports[sentinel]) if not overlay.tls else None
    if open_to_anybody is not None:
        with open_to_anybody as client, pytest.raises(redis.exceptions.AuthenticationError):
            client.execute_command("SENTINEL", "MASTERS")


COMPOSE = DEPLOY / "compose.sentinel.yaml"


@pytest.fixture(scope="module")
def services():
    return yaml.safe_load(COMPOSE.read_text())["services"]


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
    sentinels = ",".join(part.name for part in compose_parts() if part.kind == "sentinel")
    make_acl(tmp_path / "made", f"redis+sentinel://{sentinels}/fleet", ["policy", "cost-aware"])
    for part in compose_parts():
        for source in part.mounts.values():
            assert (tmp_path / source if source.startswith("made/") else DEPLOY / source).exists(), source


def test_every_service_of_compose_waits_for_sentinels_and_takes_its_url_from_the_same_file(services):
    base = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    ours = {name for name, one in base.items() if "valkey" in one.get("depends_on", {})}
    assert ours <= services.keys()
    for name in ours:
        assert services[name].keys() == {"depends_on"}
        assert services[name]["depends_on"].keys() <= services.keys()
    for part in compose_parts():
        assert services[part.name].get("image", base["valkey"]["image"]) == base["valkey"]["image"]
    assert "volumes" not in services["valkey"]  # it goes on with the data that it had alone
    (named,) = re.findall(r"redis\+sentinel://(\S+)/fleet", (DEPLOY / "up.py").read_text())
    assert named.split(",") == [part.name for part in compose_parts() if part.kind == "sentinel"]


def test_a_start_without_a_password_or_a_kind_says_so(tmp_path):
    script = DEPLOY / "redis" / "sentinel" / "start"
    for words, said in (
        (["server", "a", "a:1"], "REPLICA_PASSWORD"),
        (["other", "a", "a:1"], "other"),
        ([], "start server"),
    ):
        environment = {"PATH": os.environ["PATH"], "DATA": str(tmp_path)}
        ran = subprocess.run(
            ["sh", script, *words], env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode != 0
        assert said in ran.stderr


def test_the_certificates_of_the_overlay_are_for_all_names_that_pods_have():
    said = (DEPLOY / "kubernetes" / "sentinel" / "kustomization.yaml").read_text()
    (loop,) = re.findall(r"made/tls (\$\(.*\))", said)
    ran = subprocess.run(["sh", "-c", f"echo {loop}"], capture_output=True, text=True, check=True)
    (sentinels,) = re.findall(r"S=(\S+)", said)
    parts = kubernetes_parts()
    assert sorted(shlex.split(ran.stdout)) == sorted(f"{part.name}.{part.name[:-2]}" for part in parts)
    assert sentinels.split(",") == [f"{part.name}.sentinel" for part in parts if part.kind == "sentinel"]
