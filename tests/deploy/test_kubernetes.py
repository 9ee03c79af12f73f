"""The Kubernetes files: objects by their schemas, every name that they refer to, and what a pod needs."""

import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from command_lines import environment_of, files_of, parsed
from guarded_server import DEPLOY, make_acl
from kustomized import build, config_maps, containers, pod
from toolgate_bus.commands.notify.receivers import read_config
from toolgate_bus.telemetry import metrics
from toolgate_schedulers.worker import worker

ROOT = DEPLOY / "kubernetes"
BUILDS = ("base", "dev", "production", "sentinel")
VERSIONS = ("1.31", "1.34")
SECRETS = {"toolgate-redis", "toolgate-acl", "toolgate-tls", "toolgate-nodes", "toolgate-server-tls"}
"""Made by hand, as the head of each overlay says."""


@pytest.fixture(params=BUILDS, scope="module")
def built(request):
    return build(ROOT / request.param)


def of(objects, *kinds):
    return [one for one in objects if one["kind"] in kinds]


def workloads(objects):
    return of(objects, "Deployment", "StatefulSet")


def labels_of(one):
    return one["spec"]["template"]["metadata"]["labels"]


def fits(selector, labels):
    assert set(selector) <= {"matchLabels"}, selector
    return selector.get("matchLabels", {}).items() <= labels.items()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_fits_its_schema(built, version):
    for one in built:
        kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")
@pytest.mark.parametrize("name", [*BUILDS, "notify", "sidecar", "monitoring"])
def test_kubectl_builds_the_same(name):
    ran = subprocess.run(
        ["kubectl", "kustomize", str(ROOT / name)], capture_output=True, text=True, check=False
    )
    if "unknown command" in ran.stderr or "not a known" in ran.stderr:
        pytest.skip("this kubectl has no kustomize")
    assert ran.returncode == 0, ran.stderr
    plain = re.sub(
        r"\b(toolgate-(?:policy|cost-aware|agent|valkey|notify|sidecar|sentinel))-[a-z0-9]{10}\b",
        r"\1",
        ran.stdout,
    )

    def by_name(objects):
        return {(one["kind"], one["metadata"]["name"]): one for one in objects}

    assert by_name(build(ROOT / name)) == by_name(yaml.safe_load_all(plain))


def test_everything_that_is_referred_to_is_there(built):
    there = {(one["kind"], one["metadata"]["name"]) for one in built}
    for one in workloads(built):
        spec = pod(one)
        assert ("ServiceAccount", spec["serviceAccountName"]) in there
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        volumes.update(
            {claim["metadata"]["name"]: claim for claim in one["spec"].get("volumeClaimTemplates", ())}
        )
        for container in containers(one):
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes.keys()
            for variable in container["env"]:
                come_from = variable["valueFrom"]
                assert "fieldRef" in come_from or come_from["secretKeyRef"]["name"] in SECRETS
        for volume in spec["volumes"]:
            for name in config_maps(volume):
                assert ("ConfigMap", name) in there
            assert volume.get("secret", {}).get("secretName", "toolgate-tls") in SECRETS
        if one["kind"] == "StatefulSet":
            assert ("Service", one["spec"]["serviceName"]) in there
    for one in of(built, "HorizontalPodAutoscaler"):
        aim = one["spec"]["scaleTargetRef"]
        assert (aim["kind"], aim["name"]) in there


def test_every_selector_selects_somebody_and_a_workload_its_own(built):
    everybody = {one["metadata"]["name"]: labels_of(one) for one in workloads(built)}
    for one in workloads(built):
        chosen = [name for name, labels in everybody.items() if fits(one["spec"]["selector"], labels)]
        assert chosen == [one["metadata"]["name"]]
        for spread in pod(one).get("topologySpreadConstraints", ()):
            assert fits(spread["labelSelector"], labels_of(one))
    for one in of(built, "PodDisruptionBudget"):
        chosen = [name for name, labels in everybody.items() if fits(one["spec"]["selector"], labels)]
        assert chosen == [one["metadata"]["name"]]
    for one in of(built, "Service"):
        assert any(one["spec"]["selector"].items() <= labels.items() for labels in everybody.values())
    for one in of(built, "NetworkPolicy"):
        assert any(fits(one["spec"]["podSelector"], labels) for labels in everybody.values())


def test_every_named_port_is_a_port_of_those_who_are_meant(built):
    def ports(one):
        return {port["name"] for container in containers(one) for port in container.get("ports", ())}

    for one in workloads(built):
        for container in containers(one):
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                named = container.get(probe, {}).get("httpGet", {}).get("port")
                assert named is None or named in ports(one)
    for one in of(built, "Service"):
        for port in one["spec"]["ports"]:
            meant = [
                each
                for each in workloads(built)
                if one["spec"]["selector"].items() <= labels_of(each).items()
            ]
            assert all(port["targetPort"] in ports(each) for each in meant)
    for one in of(built, "NetworkPolicy"):
        meant = [each for each in workloads(built) if fits(one["spec"]["podSelector"], labels_of(each))]
        for rule in one["spec"].get("ingress", ()):
            for port in rule["ports"]:
                assert isinstance(port["port"], int) or all(port["port"] in ports(each) for each in meant)


def test_every_pod_is_confined(built):
    for one in workloads(built):
        spec = pod(one)
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in containers(one):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"].keys() == {"memory"}
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}


@pytest.mark.parametrize("overlay", ["dev", "production", "sentinel"])
def test_images_are_pinned_and_everything_stands_in_the_overlays_namespace(overlay):
    built = build(ROOT / overlay)
    (namespace,) = of(built, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert {one["metadata"]["namespace"] for one in built if one is not namespace} == {
        namespace["metadata"]["name"]
    }
    for one in workloads(built):
        for container in containers(one):
            assert re.fullmatch(r"[a-z0-9./-]+:v?\d+\.\d+\.\d+(-[a-z]+)?", container["image"])


def test_a_worker_has_time_to_finish_before_it_is_killed(built):
    for one in workloads(built):
        if "scheduler" in containers(one)[0].get("args", ()):
            assert pod(one)["terminationGracePeriodSeconds"] >= 2 * worker.DRAIN_SECONDS


def test_every_command_line_is_one_that_the_program_takes(built):
    for one in workloads(built):
        for container in containers(one):
            words = [*container.get("command", ()), *container.get("args", ())]
            if container["image"].startswith("valkey"):
                starts = ["sh", "/etc/valkey/start"]  # which tests/deploy/test_sentinel_overlay.py runs
                assert words[:2] in (["valkey-server", "/etc/valkey/valkey.conf"], starts)
                continue
            if words[0] == "sh":
                assert _file_at(built, one, words[1])
                words = words[words.index("toolgate") + 1 :]
            for path in files_of(parsed(words)):
                assert _file_at(built, one, path)
            assert {variable["name"] for variable in container["env"]} <= environment_of(words)


def _file_at(objects, workload, path, container=None):
    folder, _, name = path.rpartition("/")
    mounts = (container or containers(workload)[0])["volumeMounts"]
    (mount,) = [each for each in mounts if each["mountPath"] == folder]
    (volume,) = [each for each in pod(workload)["volumes"] if each["name"] == mount["name"]]
    (config,) = [
        one for one in of(objects, "ConfigMap") if one["metadata"]["name"] == volume["configMap"]["name"]
    ]
    return name in config["data"]


def test_each_pod_is_given_the_url_of_its_role_alone(built, tmp_path):
    make_acl(tmp_path, "redis+sentinel://valkey/fleet", ["policy", "cost-aware"])
    roles = {one.name for one in (tmp_path / "urls").iterdir()}
    nodes = {one.name for one in (tmp_path / "nodes").iterdir()}
    for one in workloads(built):
        refs = [variable["valueFrom"].get("secretKeyRef", {}) for variable in containers(one)[0]["env"]]
        assert {ref["key"] for ref in refs if ref.get("name") == "toolgate-nodes"} <= nodes
        if one["metadata"]["name"] == "sentinel":  # it needs no role
            assert all(ref.get("name") in (None, "toolgate-nodes") for ref in refs)
            continue
        (key,) = (ref["key"] for ref in refs if ref.get("name") == "toolgate-redis")
        assert key in roles
        role = one["metadata"]["name"].removeprefix("toolgate-")
        assert key == {"valkey": "health", "agent": "agent", "exporter": "exporter"}.get(
            role, f"scheduler-{role}"
        )


def test_who_tells_people_is_a_pod_like_the_others_with_a_config_that_is_right():
    """An overlay names it beside base: what it refers to is there, or made by hand."""
    built = build(ROOT / "notify")
    for one, version in product(built, VERSIONS):
        kubernetes_validate.validate(one, version, strict=True)
    (notify,) = workloads(built)
    (container,) = containers(notify)
    assert files_of(parsed(container["args"])) == ["/etc/toolgate/notify.yaml"]
    assert _file_at(built, notify, "/etc/toolgate/notify.yaml")
    (variable,) = container["env"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "toolgate-redis", "key": "notify"}
    (exporter,) = (
        one for one in workloads(build(ROOT / "base")) if one["metadata"]["name"].endswith("-exporter")
    )
    assert container["securityContext"] == containers(exporter)[0]["securityContext"]
    assert pod(notify)["serviceAccountName"] == pod(exporter)["serviceAccountName"]
    config = read_config(ROOT / "notify" / "notify.yaml")
    (mount,) = (one for one in container["volumeMounts"] if one["name"] == "webhooks")
    assert {str(one.url_file.parent) for one in config.receivers.values()} == {mount["mountPath"]}
    assert read_config(DEPLOY / "fleet" / "notify.yaml").receivers


def test_a_program_beside_a_sidecar_has_its_socket_and_no_credentials():
    """An overlay names it beside base: what it refers to is there, or made by hand."""
    built = build(ROOT / "sidecar")
    for one, version in product(built, VERSIONS):
        kubernetes_validate.validate(one, version, strict=True)
    (workload,) = workloads(built)
    program, sidecar = containers(workload)
    assert sidecar["restartPolicy"] == "Always"  # it starts before the program, and ends after it
    (exporter,) = (
        one for one in workloads(build(ROOT / "base")) if one["metadata"]["name"].endswith("-exporter")
    )
    for name in ("securityContext", "serviceAccountName", "automountServiceAccountToken"):
        assert pod(workload)[name] == pod(exporter)[name]
    for one in (program, sidecar):
        assert one["securityContext"] == containers(exporter)[0]["securityContext"]
        assert re.fullmatch(r"[a-z0-9./-]+:\d+\.\d+\.\d+", one["image"])
    assert files_of(parsed(sidecar["args"])) == ["/etc/toolgate/sidecar.yaml"]
    assert _file_at(built, workload, "/etc/toolgate/sidecar.yaml", sidecar)
    (variable,) = sidecar["env"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "toolgate-redis", "key": "agent"}

    assert not program.keys() & {"env", "envFrom"}
    (shared,) = program["volumeMounts"]
    volumes = {one["name"]: one for one in pod(workload)["volumes"]}
    assert "emptyDir" in volumes[shared["name"]]
    assert shared in sidecar["volumeMounts"]
    asks = [sidecar[kind]["exec"]["command"] for kind in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert [one[-1] for one in asks] == ["/healthz", "/readyz", "/healthz"]
    (socket,) = [word for word in sidecar["args"] if word.startswith(shared["mountPath"])]
    assert socket in program["command"][2]
    for python, asker, at, _ in asks:
        assert (python, at) == ("python", socket)
        assert _file_at(built, workload, asker, sidecar)
    for name in ("sidecar.yaml", "sidecar_health.py"):
        assert (ROOT / "sidecar" / name).read_text() == (DEPLOY / "fleet" / name).read_text()


def test_nobody_is_talked_to_but_by_a_rule():
    for overlay in ("dev", "production"):
        policies = {
            one["metadata"]["name"]: one["spec"] for one in of(build(ROOT / overlay), "NetworkPolicy")
        }
        assert policies["toolgate-nothing"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
        # Only clients of the bus reach the server, and they reach nothing else but names.
        (egress,) = policies["toolgate-bus"]["egress"]
        assert policies["toolgate-bus"]["podSelector"] == {"matchLabels": {"toolgate/bus": "client"}}
        assert len(egress["ports"]) == 1
    dev = {one["metadata"]["name"]: one["spec"] for one in of(build(ROOT / "dev"), "NetworkPolicy")}
    assert dev["valkey"]["ingress"][0]["from"] == [
        {"podSelector": {"matchLabels": {"toolgate/bus": "client"}}}
    ]
    assert all(
        "toolgate/bus" in labels_of(one)
        for one in workloads(build(ROOT / "dev"))
        if one["metadata"]["name"] != "valkey"
    )


def test_of_servers_and_sentinels_one_may_leave_and_no_node_has_two():
    built = build(ROOT / "sentinel")
    budgets = {
        one["metadata"]["name"]: one["spec"]["maxUnavailable"] for one in of(built, "PodDisruptionBudget")
    }
    for name in ("valkey", "sentinel"):
        (one,) = (each for each in of(built, "StatefulSet") if each["metadata"]["name"] == name)
        assert (one["spec"]["replicas"], budgets[name]) == (3, 1)
        apart = pod(one)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert [rule["topologyKey"] for rule in apart] == ["kubernetes.io/hostname"]
        assert all(fits(rule["labelSelector"], labels_of(one)) for rule in apart)


def test_servers_and_sentinels_reach_each_other_and_are_reached_by_clients_alone():
    built = build(ROOT / "sentinel")
    policies = [one["spec"] for one in of(built, "NetworkPolicy")]
    labels = {one["metadata"]["name"]: labels_of(one) for one in workloads(built)}

    def reached(end, way, who, whom):
        """Whether a rule on this end lets one reach the other at that one's port."""
        here, there = (labels[whom], labels[who]) if end == "from" else (labels[who], labels[whom])
        rules = [rule for one in policies if fits(one["podSelector"], here) for rule in one.get(way, ())]
        return any(
            {"protocol": "TCP", "port": whom} in rule["ports"]
            and any(
                fits(peer.get("podSelector", {"matchLabels": {"no": "pod"}}), there) for peer in rule[end]
            )
            for rule in rules
        )

    may = {
        (who, whom)
        for who, whom in product(labels, ("valkey", "sentinel"))
        if reached("from", "ingress", who, whom) and reached("to", "egress", who, whom)
    }
    clients = {name for name, one in labels.items() if "toolgate/bus" in one}
    among = {("valkey", "valkey"), ("sentinel", "valkey"), ("sentinel", "sentinel")}
    assert may == among | set(product(clients, ("valkey", "sentinel")))
    assert clients == {"toolgate-policy", "toolgate-cost-aware", "toolgate-exporter"}


def test_the_autoscaler_asks_for_a_metric_that_the_adapter_gives_and_the_exporter_has():
    adapter = yaml.safe_load((ROOT / "production" / "adapter-rules.yaml").read_text())
    (rule,) = adapter["rules"]["external"]
    scaled = {}
    for one in of(build(ROOT / "production"), "HorizontalPodAutoscaler"):
        (metric,) = one["spec"]["metrics"]
        assert metric["external"]["metric"]["name"] == rule["name"]["as"]
        scaled[one["spec"]["scaleTargetRef"]["name"]] = metric["external"]["metric"]["selector"][
            "matchLabels"
        ]
    assert scaled == {f"toolgate-{name}": {"scheduler": name} for name in ("policy", "cost-aware")}
    assert f'__name__="{rule["name"]["as"]}"' in rule["seriesQuery"]
    assert rule["name"]["as"] in metrics.table()
    for one in of(build(ROOT / "production"), "Deployment"):
        assert ("replicas" in one["spec"]) == (one["metadata"]["name"] not in scaled)


@pytest.mark.parametrize("overlay", ["production", "sentinel"])
def test_a_real_fleet_speaks_tls_with_the_files_that_it_mounts(overlay):
    (words,) = re.findall(r"T='(.*)'", (ROOT / overlay / "kustomization.yaml").read_text())
    named = dict(pair.split("=") for pair in words.split("&"))
    assert set(named) == {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}
    for one in of(build(ROOT / overlay), "Deployment"):
        (mount,) = [each for each in containers(one)[0]["volumeMounts"] if each["name"] == "tls"]
        assert {str(Path(path).parent) for path in named.values()} == {mount["mountPath"]}
    said = (ROOT / overlay / "kustomization.yaml").read_text()
    assert all(f"--from-file={Path(path).name}" in said for path in named.values())
