"""deploy/up.py: what it writes, and what it says without Docker, with an old one, or of ill services."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from runpy import run_path

import pytest
from guarded_server import DEPLOY

FAKE = """#!/bin/sh
case "$*" in
  "version"*) echo {engine} ;;
  "compose version"*) echo {compose} ;;
  "info"*) echo "[name=seccomp {options}]" ;;
  "inspect"*) echo '{inspected}' ;;
  *" ps "*) cat <<'END'
{states}
END
  ;;
  *" logs "*) echo "the log of $*" ;;
  *) echo "docker $*" >> {said} ;;
esac
"""
WELL = '{"Service": "policy", "State": "running", "Health": "healthy", "ExitCode": 0}'
ILL = '{"Service": "policy", "State": "restarting", "Health": "", "ExitCode": 1}'
CHECKED = [{"State": {"Health": {"Status": "unhealthy", "Log": [{"ExitCode": 1, "Output": "no answer"}]}}}]
DONE = '{"Service": "create-cluster", "State": "exited", "Health": "", "ExitCode": 0}'


@pytest.fixture
def deploy(tmp_path):
    """A copy of deploy/, and of what its links lead to."""
    shutil.copytree(DEPLOY, tmp_path / "deploy", ignore=shutil.ignore_patterns("made", "__pycache__"))
    return tmp_path / "deploy"


def up(
    deploy: Path, *words: str, engine="25.0.3", compose="2.24.5", states=WELL, options="", **environment: str
):
    """Run it, with a `docker` that writes down what it is told."""
    programs = deploy.parent / "programs"
    programs.mkdir(exist_ok=True)
    said = deploy.parent / "said"
    inspected = json.dumps(CHECKED)
    text = FAKE.format(
        engine=engine, compose=compose, states=states, said=said, options=options, inspected=inspected
    )
    (programs / "docker").write_text(text)
    (programs / "docker").chmod(0o755)
    given = {"PATH": f"{programs}:/usr/bin:/bin", **environment}
    return subprocess.run(
        [sys.executable, deploy / "up.py", *words],
        env=given,
        cwd=deploy.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def variables(deploy: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (deploy / "made" / "env").read_text().splitlines())


@pytest.mark.parametrize("topology", ["plain", "sentinel", "cluster"])
def test_it_ends_with_four_lines_and_leaves_a_script_with_the_files_of_this_fleet(deploy, topology):
    ran = up(deploy, topology)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["Grafana", "Prometheus", "Console", "Decisions"]
    assert "http://localhost:3000" in lines[0]
    assert "make down" in lines[3]
    script = (deploy / "made" / "fleet").read_text()
    others = {"sentinel", "cluster"} - {topology}
    assert (f"compose.{topology}.yaml" in script) == (topology != "plain")
    assert not any(f"compose.{other}.yaml" in script for other in others)
    subprocess.run(
        [deploy / "made" / "fleet", "stop", "agent"],
        env={"PATH": f"{deploy.parent}/programs:/usr/bin:/bin"},
        check=True,
    )
    told = (deploy.parent / "said").read_text().splitlines()
    assert "--remove-orphans" in next(line for line in told if " up " in line)
    assert told[-1].endswith(f"--env-file {deploy}/made/env stop agent")


@pytest.mark.parametrize("topology", ["plain", "sentinel", "cluster"])
def test_every_variable_that_the_files_want_is_made(deploy, topology):
    up(deploy, topology)
    names = ["compose.yaml", *([] if topology == "plain" else [f"compose.{topology}.yaml"])]
    wanted = {name for file in names for name in re.findall(r"\$\{(\w+):\?", (deploy / file).read_text())}
    assert wanted <= variables(deploy).keys()
    assert len(wanted) > 20


def test_a_file_that_changes_changes_the_mark_of_who_mounts_it_and_of_nobody_else(deploy):
    up(deploy, "plain")
    before = variables(deploy)
    with (deploy / "fleet" / "policy.yaml").open("a") as file:
        file.write("# changed\n")
    (deploy / "made" / "urls" / "agent").unlink()  # a new password
    up(deploy, "plain")
    after = variables(deploy)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"TOOLGATE_FILES_POLICY", "TOOLGATE_FILES_AGENT", "TOOLGATE_FILES_SERVER"}


def test_what_a_strict_umask_closed_is_opened_to_the_users_of_containers(deploy):
    rules = deploy / "fleet" / "policy.yaml"
    rules.chmod(0o600)
    (deploy / "prometheus").chmod(0o700)
    up(deploy, "plain")
    assert rules.stat().st_mode & 0o777 == 0o644
    assert (deploy / "prometheus").stat().st_mode & 0o777 == 0o755
    assert (deploy / "made" / "mounts").stat().st_mode & 0o777 == 0o700


def test_ports_of_the_shell_are_kept_for_the_script_and_told(deploy):
    ran = up(deploy, "plain", TOOLGATE_PORT_GRAFANA="3001", COMPOSE_PROJECT_NAME="mine")
    assert "http://localhost:3001" in ran.stdout
    assert variables(deploy)["TOOLGATE_PORT_GRAFANA"] == "3001"
    assert "--project-name mine" in (deploy / "made" / "fleet").read_text()


def test_the_group_that_may_read_passwords_is_ours_and_root_s_where_the_engine_has_no_root(deploy):
    up(deploy, "plain")
    assert variables(deploy)["TOOLGATE_GROUP"] == str(os.getgid())
    up(deploy, "plain", options="name=rootless")
    assert variables(deploy)["TOOLGATE_GROUP"] == "0"


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({"engine": "24.0.9"}, "Docker Engine is 24.0.9; this needs 25 or newer"),
        ({"compose": "2.20.3"}, "Docker Compose is 2.20.3; this needs 2.24 or newer"),
    ],
)
def test_an_engine_that_is_too_old_is_refused_by_its_version(deploy, versions, said):
    ran = up(deploy, "plain", **versions)
    assert ran.returncode == 1
    assert said in ran.stderr
    assert not (deploy / "made").exists()


def test_without_docker_it_says_what_to_install(deploy, tmp_path):
    ran = subprocess.run(
        [sys.executable, deploy / "up.py", "plain"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "docs.docker.com" in ran.stderr


def test_what_is_not_well_is_named_with_the_end_of_its_log(deploy):
    ran = up(deploy, "plain", states="\n".join([WELL, DONE, ILL]))
    assert ran.returncode == 1
    assert "policy is restarting" in ran.stderr
    assert "the log of" in ran.stderr
    assert "create-cluster" not in ran.stderr
    assert "Grafana" not in ran.stdout


def test_what_lives_and_does_not_answer_is_started_anew_once(deploy):
    ran = up(deploy, "plain", states=ILL.replace("restarting", "running").replace('""', '"unhealthy"'))
    assert ran.returncode == 1
    assert "policy is unhealthy and is started anew. Its health check said: no answer" in ran.stderr
    told = (deploy.parent / "said").read_text()
    assert told.count(" restart policy") == 1
    assert told.count(" up ") == 2


def test_versions_are_compared_as_numbers():
    numbers_of = run_path(str(DEPLOY / "up.py"))["numbers_of"]
    assert numbers_of("v2.24.6") < numbers_of("2.100.0-desktop.1")
