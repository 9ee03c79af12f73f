"""Fleets of deploy/ in real containers: started as a person does, lost in part, ended and started again.

One process runs all of them, in this order, since two fleets at once are too much for two cores.
"""

import json
import re
import time
import urllib.request
from collections.abc import Iterator

import pytest
from container_engine import Engine
from container_fleet import ContainerFleet, container_fleet, until

pytestmark = [
    pytest.mark.system,
    pytest.mark.acceptance,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("containers"),
]
DEAD_S = 3.0
"""A primary that says nothing for so long is called dead; what was ruled on after it, its successor had."""


@pytest.fixture(scope="module")
def plain(docker: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerFleet]:
    """A fleet with one server, started."""
    with container_fleet(docker, tmp_path_factory.mktemp("clone"), "plain") as fleet:
        fleet.lines = fleet.make_up().stdout.splitlines()  # type: ignore[attr-defined] - for one test alone
        yield fleet


def page(fleet: ContainerFleet, name: str, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{fleet.ports[name]}{path}", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def test_make_up_ends_with_where_to_look_and_the_commands_that_it_names_work(plain):
    assert [line.split()[0] for line in plain.lines] == ["Grafana", "Prometheus", "Console", "Decisions"]
    assert page(plain, "GRAFANA", "/")
    (decisions,) = re.findall(r"run --rm (operator decisions)", plain.lines[-1])
    until(lambda: "deny" in plain.command(*decisions.split()), "a decision denied")
    until(lambda: plain.objects("approvals", "list"), "a call that waits for a person")
    (held,) = plain.objects("approvals", "list")
    assert held["tool_name"] == "delete_file"
    assert {one["name"] for one in plain.objects("scheduler", "list")} == {"policy", "cost-aware", "approval"}


def test_commands_of_the_documents_work_in_the_fleet(plain):
    before = plain.containers()
    assert "checks fine" in plain.command("doctor")
    assert plain.command("admin", "-h", "valkey", "PING").strip() == "PONG"
    assert plain.containers() == before


def test_all_targets_of_prometheus_are_up_and_decisions_are_counted_there(plain):
    def targets():
        return json.loads(page(plain, "PROMETHEUS", "/api/v1/targets"))["data"]["activeTargets"]

    until(lambda: {one["health"] for one in targets()} == {"up"} and len(targets()) == 6, "all targets up")
    query = "/api/v1/query?query=sum(toolgate_decisions_total)"
    until(lambda: json.loads(page(plain, "PROMETHEUS", query))["data"]["result"], "decisions in Prometheus")


def test_passwords_are_in_no_variable_and_what_is_left_is_its_own_alone(plain):
    made = plain.directory / "deploy" / "made" / "urls"
    passwords = [re.findall(r":([^:@]+)@", one.read_text())[0] for one in made.iterdir()]
    for name in plain.containers():
        said = plain.docker("inspect", name=name)
        assert not any(password in said for password in passwords), name
    assert (
        plain.engine.docker("exec", f"{plain.project}-agent-1", "stat", "-c", "%a %u", "/state")
        == "700 10001"
    )
    assert plain.inspect("policy-1", "{{.HostConfig.Memory}} {{.HostConfig.PidsLimit}}") == "536870912 256"


def test_an_agent_that_is_told_to_end_ends_by_itself(plain):
    plain.docker("stop", name="archivist-1")
    assert plain.inspect("archivist-1", "{{.State.ExitCode}}") == "0"
    plain.docker("start", name="archivist-1")


def test_more_replicas_leave_the_others_alone(plain):
    before = plain.containers()
    plain.fleet("up", "--detach", "--wait", "--scale", "policy=3", "policy")
    after = plain.containers()
    assert after.keys() - before.keys() == {"policy-3"}
    assert {name: after[name] for name in before} == before


def test_a_file_that_was_edited_is_what_sighup_reads_and_make_up_makes_anew_whom_it_concerns(plain):
    rules = plain.directory / "deploy" / "fleet" / "policy.yaml"
    other = rules.with_name("policy.new")
    other.write_text(rules.read_text().replace("name: keep files", "name: keep each file"))
    other.replace(rules)  # as editors do
    plain.docker("kill", "--signal", "HUP", name="policy-1")
    until(lambda: "reloaded" in plain.docker("logs", name="policy-1"), "reloaded")
    read = plain.engine.docker("exec", f"{plain.project}-policy-1", "cat", "/etc/toolgate/policy.yaml")
    assert "keep each file" in read
    before = plain.containers()
    plain.make_up()
    after = plain.containers()
    anew = {name for name in after if before.get(name) != after[name]}
    waits = {"agent-1", "archivist-1"}  # they wait for the policy when they start
    assert anew - waits == {"policy-1", "policy-2"}


def test_a_wrong_file_makes_make_up_fail_and_say_what_is_wrong_with_it(plain):
    rules = plain.directory / "deploy" / "fleet" / "policy.yaml"
    right = rules.read_text()
    rules.write_text("rules: [{nonsense: 1}]\n")
    ran = plain.make_up(check=False)
    rules.write_text(right)
    assert ran.returncode != 0
    assert "policy is" in ran.stderr
    assert "nonsense: unknown key" in ran.stderr
    plain.make_up()


def test_a_program_behind_its_sidecar_prints_a_line_for_each_call(plain):
    plain.fleet("--profile", "sidecar", "up", "--detach", "--wait", "program")
    until(lambda: plain.docker("logs", name="program-1").endswith("}"), "an answer")
    assert json.loads(plain.docker("logs", name="program-1").splitlines()[0])["outcome"] == "deny"
    plain.make_up()
    assert "program-1" in plain.containers()


def test_a_server_that_is_killed_or_gets_a_new_password_forgets_nothing(plain):
    with plain.asked(300) as asked:
        until(asked.moments, "ruled on")
        since = time.monotonic()
        plain.docker("kill", name="valkey-1")
        plain.docker("start", name="valkey-1")
        asked.wait_for_more(since + DEAD_S)
        cost = asked.end()
    until(lambda: plain.spent() == (cost, 0), f"spent {cost}")
    (plain.directory / "deploy" / "made" / "urls" / "agent").unlink()
    plain.make_up()
    with plain.asked(60) as asked:
        until(asked.moments, "ruled on under the new password")
        cost += asked.end()
    until(lambda: plain.spent() == (cost, 0), f"spent {cost}")


@pytest.mark.parametrize("topology", ["sentinel", "cluster"])
def test_a_fleet_is_ruled_on_after_a_primary_was_killed_and_after_down_and_up(docker, tmp_path, topology):
    with container_fleet(docker, tmp_path, topology) as fleet:
        fleet.make_up()
        until(fleet.is_whole, "whole")
        with fleet.asked(300) as asked:
            until(asked.moments, "ruled on")
            killed, since = fleet.primary(), time.monotonic()
            fleet.docker("kill", name=f"{killed}-1")
            asked.wait_for_more(since + DEAD_S)
            assert fleet.primary() != killed
            before = fleet.containers()
            fleet.docker("start", name=f"{killed}-1")
            until(fleet.is_whole, "whole again")
            until(lambda: fleet.command("operator", "approvals", "list"), "a call that waits for a person")
            assert {name: fleet.containers()[name] for name in before} == before
            cost = asked.end()
        until(lambda: fleet.spent() == (cost, 0), f"spent {cost}")
        fleet.make_down()
        assert not fleet.containers()
        fleet.make_up()
        until(fleet.is_whole, "whole")
        assert fleet.spent() == (cost, 0)
        with fleet.asked(60) as asked:
            until(asked.moments, "ruled on")
