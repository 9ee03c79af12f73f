"""`toolgate policy status` says whether the rules are in force, by its exit code as well."""

import json

import pytest
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(60)]


async def test_rules_are_in_force_where_a_scheduler_and_each_gate_have_them(
    schedulers, process, server_url, namespace, tmp_path
):
    status = ("toolgate", "policy", "status", "--redis", server_url, "--namespace", namespace)
    nobody = process(*status)
    assert nobody.wait() == 1
    assert "No scheduler is alive here" in nobody.stdout
    (tmp_path / "rules.yaml").write_text("rules: [{tools: 'delete_*', action: deny}]\n")
    await schedulers.start("policy", "--config", tmp_path / "rules.yaml")
    async with Gate.open(redis=server_url, namespace=namespace) as gate:
        assert not (await gate.decide(Call("delete_file", {}, ["delete_file"]))).allowed
        everywhere = process(*status, "--wait", "20", "--json")
        assert everywhere.wait() == 0
        (one,) = map(json.loads, everywhere.stdout.splitlines())
        assert (one["scheduler"], one["gates_by_table"], one["old_table_at"]) == ("policy", 1, [])
