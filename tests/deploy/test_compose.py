"""compose.yaml: its schema, its paths, its command lines and variables; and its services as processes."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from command_lines import environment_of, files_of, parsed
from guarded_server import DEPLOY, make_acl

STATE = "/state"
SOCKET = "/run/toolgate"
COMPOSE = DEPLOY / "compose.yaml"
OURS = ("policy", "cost-aware", "agent", "sidecar", "exporter", "notify", "console", "operator")
SCHEDULERS = ("policy", "cost-aware")


@pytest.fixture(scope="module")
def composed():
    return yaml.safe_load(COMPOSE.read_text())


@pytest.fixture(scope="module")
def services(composed):
    return composed["services"]


def command_of(service):
    """What `toolgate` is told."""
    if "entrypoint" in service:
        assert service["entrypoint"][:2] == ["/bin/sh", "-c"]
        return shlex.split(re.search(r"toolgate ([^;]*)", service["entrypoint"][2])[1])
    return list(service["command"])


def test_it_fits_the_schema_of_compose_files():
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


def test_what_a_process_leaves_to_the_next_is_kept_where_it_writes_it(services):
    assert f" XDG_STATE_HOME={STATE}\n" in (DEPLOY / "Dockerfile").read_text()
    for name in ("cost-aware", "agent", "sidecar"):
        (kept,) = [volume for volume in services[name]["volumes"] if volume.endswith(f":{STATE}")]
        assert not kept.startswith(".")


def test_everything_that_is_mounted_is_there(services, composed, tmp_path):
    make_acl(tmp_path, "redis://valkey:6379/0", SCHEDULERS)
    assert "mkdir -p deploy/made/alertmanager" in (DEPLOY.parent / "Makefile").read_text()
    (tmp_path / "alertmanager").mkdir()
    mounted = 0
    for name, service in services.items():
        for volume in service.get("volumes", ()):
            source, target, *mode = volume.split(":")
            assert target.startswith("/")
            if source.startswith("./"):
                assert mode == ["ro"], f"{name}: {volume}"
                place = tmp_path / source[7:] if source.startswith("./made/") else DEPLOY / source
                assert place.exists(), f"{name}: {volume}"
                mounted += 1
            else:
                assert source in composed["volumes"]
        build = service.get("build")
        if build:
            assert (DEPLOY / build["context"]).resolve() == DEPLOY.parent
            assert (DEPLOY.parent / build["dockerfile"]).is_file()
    assert mounted >= 8


def test_images_are_pinned_by_version(services):
    for name, service in services.items():
        assert re.fullmatch(r"[a-z./-]+:v?\d+\.\d+\.\d+(-[a-z]+)?", service["image"]), name


def test_every_command_line_is_one_that_the_program_takes(services):
    for name in OURS:
        mounts = [volume.split(":")[1] for volume in services[name].get("volumes", ())]
        mounts = [mount for mount in mounts if mount not in (STATE, SOCKET) and not mount.endswith(".py")]
        assert files_of(parsed(command_of(services[name]))) == mounts, name


def test_every_variable_is_one_that_the_program_reads_and_each_service_has_the_url_of_its_role(
    services, tmp_path
):
    make_acl(tmp_path, "redis://valkey:6379/0", SCHEDULERS)
    made = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    wanted = set(re.findall(r"\$\{(\w+)", COMPOSE.read_text()))
    assert wanted <= made
    for name in OURS:
        (variable,) = (pair for pair in services[name]["environment"].items() if pair[1] is not None)
        role = f"scheduler-{name}" if name in SCHEDULERS else {"sidecar": "agent"}.get(name, name)
        assert variable[1] == f"${{TOOLGATE_URL_{role.upper().replace('-', '_')}:?run make up}}"
        assert variable[0] in environment_of(command_of(services[name]))


def test_our_services_are_confined_and_have_time_to_finish(services):
    for name in (*OURS, "program", "prometheus", "alertmanager", "grafana"):
        service = services[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    for name in SCHEDULERS:
        assert services[name]["stop_grace_period"] == "20s"
        assert services[name]["deploy"]["replicas"] >= 2


def test_a_program_has_the_socket_of_its_sidecar_and_nothing_else(services, composed):
    sidecar, program = services["sidecar"], services["program"]
    assert "environment" not in program
    assert "env_file" not in program
    assert program["network_mode"] == "none"
    assert program["volumes"] == [f"sidecar-socket:{SOCKET}"]
    assert program["volumes"][0] in sidecar["volumes"]
    (socket,) = [word for word in sidecar["command"] if word.endswith(".sock")]
    assert socket.startswith(SOCKET)
    assert socket in program["entrypoint"][2]
    _, python, asks, at, path = sidecar["healthcheck"]["test"]
    assert (python, at, path) == ("python", socket, "/healthz")
    assert any(volume.endswith(f":{asks}:ro") for volume in sidecar["volumes"])
    assert program["depends_on"] == {"sidecar": {"condition": "service_healthy"}}
    said = composed["volumes"]["sidecar-socket"]["driver_opts"]["o"]
    (user,) = re.findall(r"\nUSER (\S+)", (DEPLOY / "Dockerfile").read_text())
    assert program["user"] == user  # a socket of mode 0600 is its user's
    assert "uid={},gid={},mode=0700".format(*user.split(":")) in said


def test_nothing_listens_but_on_this_machine(services):
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_prometheus_finds_the_services_by_their_names_and_ports(services):
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    for job in config["scrape_configs"]:
        for fixed in job.get("static_configs", ()):
            for target in fixed["targets"]:
                host, _, port = target.partition(":")
                assert port in services[host]["command"]
        for found in job.get("dns_sd_configs", ()):
            for host in found["names"]:
                if host != "agent":  # lives too short to be scraped
                    assert str(found["port"]) in services[host]["command"]
    (told,) = config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]
    assert [f"127.0.0.1:{told.partition(':')[2]}:9093"] == services[told.partition(":")[0]]["ports"]
    source = (DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yaml").read_text()
    assert "http://prometheus:9090" in source
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (DEPLOY / "grafana" / "dashboards" / Path(home).name).is_file()
