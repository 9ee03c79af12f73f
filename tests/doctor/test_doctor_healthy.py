"""A fleet as the documents want it has no finding above notice, and looking at it changes nothing."""

import pytest
import redis.asyncio as redis
import yaml
from doctor_for_tests import diagnosed, plan_of, run_doctor, started
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

POLICY = {"rules": [{"name": "keep", "tools": "delete_file", "action": "deny", "reason": "files are kept"}]}
BUDGETS = {"default": {"cost": 1}, "budgets": [{"name": "daily", "level": "fleet", "limit": 100}]}


async def test_a_healthy_fleet_has_no_finding_above_notice(own_durable_server, process, wait_until, tmp_path):
    url = own_durable_server.url
    configs = []
    for name, config in (("policy", POLICY), ("cost-aware", BUDGETS)):
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(config))
        await started(process, wait_until, url, name, "--config", file, "--replicas", 2)
        configs += ["--config", f"{name}={file}"]
    exporter = process("toolgate", "exporter", "--port", 0, "--json", "--redis", url)
    process("toolgate", "decisions", "archive", tmp_path / "archive", "--redis", url)
    await wait_until(lambda: '"ready"' in exporter.stdout, timeout=30)
    loop = {"required": ["policy", "cost-aware"]}
    (tmp_path / "plan.yaml").write_text(plan_of(loop))
    async with Gate.open(redis=url, patience_ms=20_000, **loop) as gate:
        for tool in ("calculate", "delete_file"):
            decision = await gate.decide(Call(tool, {}, [tool], Caller("s-1")))
            assert decision.outcome == ("deny" if tool == "delete_file" else "continue")
        told = {"decision_id": decision.id, "tool": "calculate"}
        gate.note("tool:post", {**told, "success": True, "seconds": 0.1, "cost": 1_000})

        async def archived():
            found = await diagnosed(url)
            return "roster-archiver" in found.of("ok")

        await wait_until(archived, timeout=40)
        found = await diagnosed(
            url, "--plan", tmp_path / "plan.yaml", *configs, "--role", "operator", "--strict"
        )
    assert found.of("warning", "error") == [], found.findings
    assert found.code == 0
    # nothing was left out
    subjects = {one["subject"] for one in found.findings}
    assert subjects >= {
        "server",
        "roster",
        "rights",
        "inboxes",
        "budgets",
        "facts",
        "plan",
        "config",
        "held calls",
    }
    assert set(found.of("ok")) >= {"roster-scheduler", "plan-required", "roster-exporter", "config-read"}


async def test_looking_at_a_server_changes_nothing_there(own_server):
    async with redis.from_url(own_server.url) as client:
        await client.sadd("tg:{default}:roster", "s:policy:gone", "o:gone")
        await client.sadd("tg:{default:ledger}:budget:accounts", "daily/fleet:0")
        found = await diagnosed(own_server.url)
        assert found.one("roster-nobody", "notice")
        assert (await client.info("persistence"))["rdb_changes_since_last_save"] == 2 + 1
        assert await client.dbsize() == 2


async def test_a_person_reads_it_by_subject_with_a_summary_at_the_end(own_server):
    code, out, err = await run_doctor("--redis", own_server.url)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert "server" in lines
    assert any(line.lstrip().startswith("change:") for line in lines)
    assert "checks fine" in lines[-1]
    assert "noeviction" not in out
    _, out, _ = await run_doctor("--redis", own_server.url, "--verbose")
    assert "noeviction" in out


async def test_the_embedded_server_of_the_user_is_joined_where_it_runs(
    process, wait_until, short_directory, tmp_path
):
    env = {"XDG_RUNTIME_DIR": str(short_directory)}
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(POLICY))
    none = await diagnosed(None, env=env)
    assert none.one("server-none", "notice")
    assert none.code == 0
    running = process(
        "toolgate", "scheduler", "run", "policy", "--config", tmp_path / "policy.yaml", "--json", env=env
    )
    await wait_until(lambda: '"ready"' in running.stdout, timeout=30)
    found = await diagnosed(None, env=env)
    assert found.one("server-reached", "ok")
    assert found.one("server-persistence", "notice")
    assert "policy" in found.one("roster-one-replica")["what"]


async def test_the_server_and_namespace_that_a_plan_names_are_looked_at_unless_others_are_given(
    own_server, tmp_path
):
    (tmp_path / "plan.yaml").write_text(plan_of({"redis": own_server.url, "namespace": "prod"}))
    async with redis.from_url(own_server.url) as client:
        await client.xgroup_create("tg:{prod:0}:in:policy", "policy", "0", mkstream=True)
        await client.xadd("tg:{prod:0}:in:policy", {"a": "b"})
        found = await diagnosed(None, "--plan", tmp_path / "plan.yaml")
        assert found.one("inbox-nobody", "error")
        found = await diagnosed(None, "--plan", tmp_path / "plan.yaml", "--namespace", "other")
        assert found.one("inboxes", "ok")


@pytest.mark.parametrize(
    "words", [("--role", "king"), ("--user", "me"), ("--config", "a"), ("--role", "agent:x")]
)
async def test_a_wrong_option_ends_with_2(words):
    code, _, err = await run_doctor(*words)
    assert code == 2
    assert words[0] in err
