"""compose.yaml: its schema, its paths, its command lines and variables; and its services as processes."""

import re
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
COMMANDS = ("operator", "doctor")
"""Run by a person, in the fleet that is there."""
OURS = (
    "policy",
    "cost-aware",
    "approval",
    "agent",
    "archivist",
    "sidecar",
    "exporter",
    "notify",
    "console",
    *COMMANDS,
)
SCHEDULERS = ("policy", "cost-aware", "approval")
LOOPS = {"agent": "agent", "archivist": "agent", "sidecar": "agent"}
"""Services that have the role of another name."""


@pytest.fixture(scope="module")
def composed():
    return yaml.safe_load(COMPOSE.read_text())


@pytest.fixture(scope="module")
def services(composed):
    return composed["services"]


def command_of(service):
    """What `toolgate` is told."""
    words = [*service.get("entrypoint", ["toolgate"]), *service.get("command", ())]
    return words[words.index("toolgate") + 1 :]


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
    for name in ("cost-aware", "agent", "archivist", "sidecar"):
        (kept,) = [volume for volume in services[name]["volumes"] if volume.endswith(f":{STATE}")]
        assert not kept.startswith(".")


def test_everything_that_is_mounted_is_there(services, composed, tmp_path):
    make_acl(tmp_path, "redis://valkey:6379/0", SCHEDULERS)
    (tmp_path / "alertmanager").mkdir()
    mounted = 0
    for name, service in services.items():
        for volume in service.get("volumes", ()):
            source, target, *mode = volume.split(":")
            assert target.startswith("/")
            if source.startswith("./"):
                assert mode == ["ro"], f"{name}: {volume}"
                place = tmp_path / source[7:] if source.startswith("./made/") else DEPLOY / source
                assert place.is_dir(), (
                    f"{name}: {volume}: a file that is mounted by itself stays what it was after an edit"
                )
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
        for file in files_of(parsed(command_of(services[name]))):
            folder, _, file_name = file.rpartition("/")
            assert f"./fleet:{folder}:ro" in services[name]["volumes"], name
            assert (DEPLOY / "fleet" / file_name).is_file(), name


def test_every_variable_is_one_that_the_program_reads_and_each_service_has_the_url_of_its_role(
    services, tmp_path
):
    make_acl(tmp_path, "redis://valkey:6379/0", SCHEDULERS)
    made = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    for name in OURS:
        environment = services[name]["environment"]
        role = f"scheduler-{name}" if name in SCHEDULERS else LOOPS.get(name, name)
        url = f"TOOLGATE_URL_{role.upper().replace('-', '_')}"
        assert url in made
        assert environment["TOOLGATE_REDIS_URL"] == f"${{{url}:?run make up}}"
        assert f"./made/mounts/{role}:/run/passwords:ro" in services[name]["volumes"]
        assert environment["TOOLGATE_REDIS_PASSWORD_FILE"] == "/run/passwords/server"
        assert environment["TOOLGATE_SENTINEL_PASSWORD_FILE"] == "/run/passwords/sentinels"
        assert "TOOLGATE_REDIS_URL" in environment_of(command_of(services[name]))


def test_our_services_are_confined_and_have_time_to_finish(services):
    for name in (*OURS, "program", "prometheus", "alertmanager", "grafana"):
        service = services[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    for name in SCHEDULERS:
        assert services[name]["stop_grace_period"] == "20s"
    for name in ("policy", "cost-aware"):
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
    assert "./fleet:/etc/toolgate:ro" in sidecar["volumes"]
    assert (DEPLOY / "fleet" / Path(asks).name).is_file()
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
                assert str(found["port"]) in services[host]["command"]
    (told,) = config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]
    (published,) = services[told.partition(":")[0]]["ports"]
    assert published.endswith(f":{told.partition(':')[2]}")
    source = (DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yaml").read_text()
    assert "http://prometheus:9090" in source
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (DEPLOY / "grafana" / "dashboards" / Path(home).name).is_file()


def test_each_image_is_built_by_one_service_and_the_others_take_that(services):
    ours = [name for name, one in services.items() if one["image"].startswith("toolgate")]
    built = [services[name]["image"] for name in ours if "build" in services[name]]
    assert len(set(built)) == len(built)
    assert set(built) == {services[name]["image"] for name in ours}
    for name in ours:
        assert services[name]["pull_policy"] == ("build" if "build" in services[name] else "never"), name


def test_whatever_has_figures_is_asked_whether_it_does_its_work(services):
    for name, service in services.items():
        if "9464" in service.get("command", ()):
            assert service["healthcheck"]["test"][1:3] == ["python", "-ISc"], name
    assert "/healthz" in services["policy"]["healthcheck"]["test"][3]


def test_nothing_takes_all_of_the_machine(services):
    for name, service in services.items():
        assert service["mem_limit"], name
        assert service["pids_limit"] <= 256, name
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}, name
    assert any(
        word.startswith("--storage.tsdb.retention.size=") for word in services["prometheus"]["command"]
    )


def test_a_person_s_commands_start_nothing_else(services):
    for name in (*COMMANDS, "admin"):
        assert services[name].keys().isdisjoint({"depends_on", "ports"})
        assert services[name]["profiles"] == ["commands"]
        assert services[name]["restart"] == "no"


def test_no_password_stands_in_a_variable(services, tmp_path):
    make_acl(tmp_path, "redis+sentinel://s1,s2,s3/fleet", SCHEDULERS)
    passwords = [
        one.read_text() for one in (tmp_path / "mounts").rglob("*") if one.suffix != ".acl" and one.is_file()
    ]
    assert len(passwords) > len(OURS)
    env = (tmp_path / "env").read_text()
    assert not any(password in env for password in passwords)
    named = {name for one in services.values() for name in one.get("environment", {})}
    assert {name for name in named if "PASSWORD" in name} == {
        "TOOLGATE_REDIS_PASSWORD_FILE",
        "TOOLGATE_SENTINEL_PASSWORD_FILE",
    }
