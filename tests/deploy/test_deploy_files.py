"""Every file in deploy/ is looked at by some check: a new one is given its own here, or nobody would."""

import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
TESTS = Path(__file__).parents[1]
CHECKS = {
    "README.md": "test_docs.py",
    "up.py": "deploy/test_up.py",
    "compose.yaml": "deploy/test_compose.py",
    "compose.sentinel.yaml": "deploy/test_compose_overlays.py",
    "compose.cluster.yaml": "deploy/test_compose_overlays.py",
    "Dockerfile": "deploy/test_dockerfile.py",
    "Dockerfile.dockerignore": "deploy/test_dockerfile.py",
    "fleet/*": "deploy/test_fleet.py",
    "kubernetes/*": "deploy/test_kubernetes.py",
    "kubernetes/monitoring/*": "deploy/test_monitoring.py",
    "redis/make_acl.py": "deploy/test_make_acl.py",
    "redis/roles": "deploy/test_acl.py",
    "redis/role_file.py": "deploy/test_acl.py",
    "redis/valkey.conf": "deploy/test_acl.py",
    "redis/kustomization.yaml": "deploy/test_kubernetes.py",
    "redis/make-certificates": "deploy/test_tls.py",
    "redis/sentinel/*": "deploy/test_sentinel_overlay.py",
    "redis/cluster/*": "deploy/test_cluster_overlay.py",
    "prometheus/*": "deploy/test_prometheus*.py",
    "prometheus/alertmanager.yml": "deploy/test_alertmanager.py",
    "prometheus/generate.py": "deploy/test_monitoring.py",
    "grafana/*": "deploy/test_dashboards.py",
    "grafana/kustomization.yaml": "deploy/test_monitoring.py",
}


def files():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "."],
        cwd=DEPLOY,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0 and listed.stdout:
        return sorted(listed.stdout.splitlines())
    found = (one for one in DEPLOY.rglob("*") if one.is_file() and "__pycache__" not in one.parts)
    return sorted(str(one.relative_to(DEPLOY)) for one in found if one.relative_to(DEPLOY).parts[0] != "made")


@pytest.mark.parametrize("name", files())
def test_every_file_in_deploy_has_a_check(name):
    assert any(fnmatch(name, pattern) for pattern in CHECKS), f"deploy/{name}: nothing checks it"


@pytest.mark.parametrize("pattern", CHECKS)
def test_every_check_is_there_and_reads_what_it_checks(pattern):
    assert any(fnmatch(name, pattern) for name in files()), f"{pattern}: there is no such file"
    assert list(TESTS.glob(CHECKS[pattern])), f"{CHECKS[pattern]}: there is no such test"
