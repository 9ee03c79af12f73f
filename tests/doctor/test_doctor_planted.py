"""Each trouble is planted for real, and the command names it and says what mends it."""

import asyncio
import os
import signal
from contextlib import asynccontextmanager

import pytest
import redis.asyncio as redis
import yaml
from doctor_for_tests import diagnosed, plan_of, run_doctor, started
from free_ports import find_free_port
from guarded_server import guarded, make_certificates
from questions import decide as decide_on
from toolgate_bus.protocol.keys import Keys
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(180)]

POLICY = {"rules": [{"name": "keep", "tools": "delete_file", "action": "deny", "reason": "files are kept"}]}
BUDGETS = {
    "default": {"cost": 1},
    "learn": False,
    "budgets": [{"name": "daily", "level": "fleet", "limit": 3}],
}
APPROVAL = {"rules": [{"name": "wide", "tools": "write_file", "expires_s": 12}]}
KEYS = Keys("default")


@pytest.fixture
def scheduler(process, wait_until, own_durable_server, tmp_path):
    """`await scheduler("policy", POLICY, …)`: real ones on a server of the test's own."""

    async def start(spec, config, *options):
        file = tmp_path / f"{spec}.yaml"
        file.write_text(yaml.safe_dump(config))
        return await started(process, wait_until, own_durable_server.url, spec, "--config", file, *options)

    return start


@pytest.fixture
async def client(own_durable_server):
    """A plain client of that server."""
    async with redis.from_url(own_durable_server.url) as one:
        yield one


@asynccontextmanager
async def gate_on(server, **fields):
    async with Gate.open(redis=server.url, patience_ms=20_000, **fields) as gate:
        yield gate


async def decide(gate, tool="calculate", **fields):
    return await decide_on(gate, tool, {"expression": "6 * 7"}, [tool], session="s-1", **fields)


def plan(tmp_path, toolgate, **parts):
    file = tmp_path / "plan.yaml"
    file.write_text(plan_of(toolgate, **parts))
    return file


# ---------------------------------------------------------------- the server


async def test_a_server_that_evicts_is_an_error(own_durable_server, client):
    assert (await diagnosed(own_durable_server.url)).code == 0
    await client.config_set("maxmemory-policy", "allkeys-lru")
    found = await diagnosed(own_durable_server.url)
    wrong = found.one("server-eviction", "error")
    assert found.code == 1
    assert "allkeys-lru" in wrong["what"]
    assert "maxmemory-policy noeviction" in wrong["change"]


async def test_budgets_on_a_server_that_keeps_nothing_are_a_warning(own_durable_server, client, scheduler):
    await scheduler("cost-aware", BUDGETS)
    assert (await diagnosed(own_durable_server.url)).one("server-persistence", "ok")
    await client.config_set("appendonly", "no")
    found = await diagnosed(own_durable_server.url)
    assert "appendonly yes" in found.one("server-persistence", "warning")["change"]
    assert found.code == 0
    assert (await diagnosed(own_durable_server.url, "--strict")).code == 1


async def test_a_server_that_can_only_be_read_is_an_error(own_durable_server, client):
    await client.execute_command("REPLICAOF", "127.0.0.1", str(find_free_port()))
    found = await diagnosed(own_durable_server.url)
    assert "127.0.0.1" in found.one("server-replica", "error")["change"]


async def test_a_server_that_hangs_is_one_finding_and_does_not_hang_the_doctor(own_durable_server, tmp_path):
    os.kill(own_durable_server.pid, signal.SIGSTOP)
    try:
        config = plan(tmp_path, {"required": ["policy"]})
        found = await diagnosed(own_durable_server.url, "--plan", config)
    finally:
        os.kill(own_durable_server.pid, signal.SIGCONT)
    assert found.one("server-hangs", "error")["change"]
    assert found.one("plan-read")  # what needs no server was looked at
    assert found.of("error") == ["server-hangs"]
    assert found.code == 1


async def test_a_wrong_address_is_named_and_a_malformed_one(tmp_path):
    found = await diagnosed(f"redis://127.0.0.1:{find_free_port()}/0")
    assert "--redis" in found.one("server-unreachable", "error")["change"]
    found = await diagnosed("http://localhost:6379")
    assert "redis://host:6379/0" in found.one("server-settings", "error")["what"]
    assert found.code == 1


async def test_wrong_passwords_and_wrong_tls_are_told_apart(tmp_path):
    tls = make_certificates(tmp_path / "tls", "localhost")
    with guarded(tmp_path, "redis", ["policy"], tls) as server:
        url = server.url("doctor")
        assert (await diagnosed(url)).one("server-reached", "ok")
        user, _, rest = url.removeprefix("rediss://").partition("@")
        guess = f"rediss://{user.partition(':')[0]}:guess@{rest}"
        wrong = (await diagnosed(guess)).one("server-credentials", "error")
        assert "guess" not in wrong["what"] + wrong["change"]
        plain = url.partition("?")[0].replace("rediss://", "redis://")
        assert "rediss://" in (await diagnosed(plain)).one("server-closed", "error")["change"]
        without = url.partition("?")[0]
        assert "ssl_ca_certs" in (await diagnosed(without)).one("server-tls-authority", "error")["change"]
        other = url.replace("@localhost:", "@127.0.0.1:")
        assert (await diagnosed(other)).one("server-tls-name", "error")["change"]
    with guarded(tmp_path, "valkey", ["policy"]) as server:
        spoken = server.url("doctor").replace("redis://", "rediss://")
        assert "redis://" in (await diagnosed(spoken)).one("server-hangs", "error")["change"]


# ---------------------------------------------------------------- the plan


async def test_a_required_scheduler_that_is_missing_or_misspelt_is_named(
    own_durable_server, scheduler, tmp_path
):
    await scheduler("policy", POLICY)
    file = plan(tmp_path, {"required": ["policy", "cost-aware", "polcy"]})
    found = await diagnosed(own_durable_server.url, "--plan", file)
    missing = [one for one in found.findings if one["name"] == "plan-required-missing"]
    assert [one["what"].split(" ")[0] for one in missing] == ["cost-aware", "polcy"]
    assert "toolgate scheduler run cost-aware" in missing[0]["change"]
    assert "policy is meant" in missing[1]["change"]
    assert found.one("plan-required", "ok")["what"].startswith("policy")
    assert found.code == 1


async def test_cost_aware_and_approval_that_are_alive_and_not_required_are_warned_of(
    own_durable_server, scheduler, tmp_path
):
    await scheduler("cost-aware", BUDGETS)
    await scheduler("approval", APPROVAL)
    found = await diagnosed(own_durable_server.url, "--plan", plan(tmp_path, {}))
    told = [one for one in found.findings if one["name"] == "plan-not-required"]
    assert [(one["level"], one["what"].split(" ")[0]) for one in told] == [
        ("warning", "approval"),
        ("warning", "cost-aware"),
    ]
    assert all("required: [" in one["change"] for one in told)
    meant = plan(tmp_path, {"required": ["cost-aware"], "shadow": ["approval"]})
    found = await diagnosed(own_durable_server.url, "--plan", meant)
    assert "plan-not-required" not in found.of("warning")


async def test_a_shadow_that_the_plan_requires_is_told_to_rule(own_durable_server, scheduler, tmp_path):
    await scheduler("policy", POLICY, "--shadow")
    found = await diagnosed(own_durable_server.url, "--plan", plan(tmp_path, {"required": ["policy"]}))
    assert "--shadow" in found.one("plan-required-shadow", "warning")["change"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (plan_of({"redact": {"patterns": ["("]}}), "redact.patterns: '(': not a regular"),
        (plan_of({"patiense_ms": 5}), "patiense_ms"),
        (plan_of({}, providers=[{"module": "provider-openai-compatible", "config": {}}]), "name the model"),
        (plan_of({}, tools=[{"module": "tool-nowhere"}]), "tool-nowhere"),
        ("session: {orchestrator: loop-events", "is not YAML"),
    ],
)
async def test_a_bad_plan_is_named_by_its_field_without_any_server(content, told, tmp_path):
    (tmp_path / "plan.yaml").write_text(content)
    found = await diagnosed(None, "--plan", tmp_path / "plan.yaml")
    assert any(told in one["what"] and one["change"] for one in found.findings if one["level"] == "error"), (
        found
    )
    assert found.one("server-none", "notice")
    assert found.code == 1


async def test_a_keys_file_without_a_key_and_an_unreachable_llm_are_errors(
    own_durable_server, scheduler, tmp_path
):
    await scheduler("policy", POLICY)
    (tmp_path / "keys").write_text(f"other: {'ab' * 16}\n")
    url = f"http://127.0.0.1:{find_free_port()}/v1"
    provider = {"module": "provider-openai-compatible", "config": {"model": "m", "base_url": url}}
    file = plan(tmp_path, {"keys": str(tmp_path / "keys")}, providers=[provider])
    found = await diagnosed(own_durable_server.url, "--plan", file)
    assert "policy" in found.one("plan-keys-missing", "error")["what"]
    assert "base_url" in found.one("provider-unreachable", "error")["change"]


async def test_a_bad_scheduler_config_is_named_by_its_field(tmp_path):
    (tmp_path / "policy.yaml").write_text("rules: [{tools: a, action: forbid}]")
    (tmp_path / "good.yaml").write_text(yaml.safe_dump(BUDGETS))
    words = ("--config", f"policy={tmp_path}/policy.yaml", "--config", f"cost-aware={tmp_path}/good.yaml")
    found = await diagnosed(None, *words)
    assert "rules.0.action" in found.one("config-wrong", "error")["what"]
    assert "cost-aware" in found.one("config-read", "ok")["what"]
    assert found.code == 1
    hides = plan(tmp_path, {"redact": {"fields": ["Card"]}})
    (tmp_path / "policy.yaml").write_text(
        "rules: [{tools: a, action: deny, when: {order.card: 1}}, {name: free, tools: b, action: ask}]"
    )
    found = await diagnosed(None, "--plan", hides, *words)
    (told,) = (one["what"] for one in found.findings if one["name"] == "plan-rule-hidden")
    assert told.startswith("rule 1 of policy")
    assert "looks at order.card" in told
    code, _, err = await run_doctor("--config", "policy.yaml")
    assert (code, "NAME=FILE" in err) == (2, True)


# ---------------------------------------------------------------- the fleet


async def test_replicas_that_disagree_on_their_priority_are_named(own_durable_server, scheduler):
    old = await scheduler("policy", POLICY, "--priority", 5)
    await scheduler("policy", POLICY, "--priority", 9)
    found = await diagnosed(own_durable_server.url)
    wrong = found.one("roster-disagree", "warning")
    assert "priority 5 and 9" in wrong["what"]
    assert f"pid {old.pid} on" in wrong["change"]


async def test_slots_that_agents_do_not_require_are_named_and_those_that_they_require_are_not(
    own_durable_server, scheduler
):
    running = await scheduler("slots", {"pools": [{"name": "one", "tools": "calculate"}]})
    async with Gate.open(redis=own_durable_server.url, agent="free", patience_ms=3000) as gate:
        assert (await decide(gate)).allowed
        told = (await diagnosed(own_durable_server.url)).one("roster-not-required", "warning")
        assert told["what"].startswith("slots grants scarce resources, but 1 of 1 orchestrator")
        assert "required: [slots]" in told["change"]
        running.signal(signal.SIGKILL)  # what is warned of: nobody counts any more
        assert all([(await decide(gate)).allowed for _ in range(3)])
    await scheduler("slots", {"pools": [{"name": "one", "tools": "calculate", "wait_s": 0}]})
    async with gate_on(own_durable_server, required=["slots"]) as gate:
        await decide(gate)
        assert "roster-not-required" not in (await diagnosed(own_durable_server.url)).of("warning")


async def test_a_stopped_replica_and_the_questions_it_leaves_are_named(
    own_durable_server, scheduler, client, wait_until
):
    # It only observes, and so has no local table: it is asked about each call.
    policy = await scheduler("policy", {**POLICY, "mode": "observe"})
    async with gate_on(own_durable_server, required=["policy"]) as gate:
        assert (await decide(gate)).outcome == "continue"
        policy.signal(signal.SIGSTOP)
        try:
            asking = [asyncio.ensure_future(decide(gate, tool_call_id=f"c{n}")) for n in range(3)]
            await wait_until(lambda: client.xlen(KEYS.inbox("policy")))
            # off the roster, as its heartbeats are missing; its questions wait
            await wait_until(lambda: _expired(client))
            late = asyncio.ensure_future(decide(gate, tool_call_id="late"))
            await wait_until(lambda: _undelivered(client))
            found = await diagnosed(own_durable_server.url)
        finally:
            policy.signal(signal.SIGCONT)
        assert "toolgate scheduler run policy" in found.one("inbox-nobody", "error")["change"]
        assert "policy" in found.one("roster-missed", "warning")["what"]
        assert found.code == 1
        await asyncio.gather(*asking, late)


async def _expired(client):
    return not [key async for key in client.scan_iter(match=f"{KEYS.member('s:policy')}:*")]


async def _undelivered(client):
    (group,) = await client.xinfo_groups(KEYS.inbox("policy"))
    return group["lag"]


# ---------------------------------------------------------------- money, and calls that wait


async def test_a_spent_budget_is_named_with_the_command_that_raises_it(
    own_durable_server, scheduler, wait_until
):
    await scheduler("cost-aware", BUDGETS)
    async with gate_on(own_durable_server, required=["cost-aware"]) as gate:
        for _ in range(3):
            decision = await decide(gate)
            assert decision.outcome == "continue"
            told = {"decision_id": decision.id, "tool": "calculate"}
            gate.note("tool:selected", told)
            gate.note("tool:post", {**told, "success": True, "seconds": 0.1, "cost": 1_000_000})
        assert (await decide(gate)).outcome == "deny"
        found = await diagnosed(own_durable_server.url)
    wrong = found.one("budget-spent", "warning")
    assert "daily/fleet" in wrong["what"]
    assert "toolgate budget set daily/fleet" in wrong["change"]


async def test_a_reservation_that_nobody_settles_is_an_error(
    own_durable_server, scheduler, client, wait_until
):
    treasurer = await scheduler("cost-aware", BUDGETS)
    async with gate_on(own_durable_server, required=["cost-aware"]) as gate:
        assert (await decide(gate)).outcome == "continue"
        held = await diagnosed(own_durable_server.url)
        assert "budgets-unsettled" not in held.of("error")
        treasurer.signal(signal.SIGKILL)
        await wait_until(lambda: _no_keeper(client))
        found = await diagnosed(own_durable_server.url)
    wrong = found.one("budgets-unsettled", "error")
    assert "reserved by 1 decision" in wrong["what"]
    assert "toolgate scheduler run cost-aware" in wrong["change"]


async def _no_keeper(client):
    return not await client.exists(KEYS.store_key("budget:keeper"))


async def test_a_call_that_waits_long_for_a_person_is_named_and_one_that_nobody_holds_any_more(
    own_durable_server, scheduler, client, wait_until
):
    approval = await scheduler("approval", APPROVAL)
    async with gate_on(own_durable_server, required=["approval"]) as gate:
        asking = asyncio.ensure_future(decide(gate, "write_file"))
        prefix = f"{KEYS.store_key('hold:approval')}:*"

        async def half_over():
            left = [await client.pttl(key) async for key in client.scan_iter(match=prefix)]
            return left and left[0] - 5000 <= 6000  # a hold is kept five seconds longer than it lasts

        await wait_until(half_over, timeout=40)
        found = await diagnosed(own_durable_server.url)
        assert "toolgate approvals" in found.one("held-long", "warning")["change"]
        approval.signal(signal.SIGKILL)
        await wait_until(lambda: _gone(client))
        found = await diagnosed(own_durable_server.url)
        assert "toolgate scheduler run approval" in found.one("held-abandoned", "error")["change"]
        asking.cancel()
        await asyncio.wait([asking])


async def _gone(client):
    return not [key async for key in client.scan_iter(match=f"{KEYS.member('s:approval')}:*")]


# ---------------------------------------------------------------- a bundle


def bundle(tmp_path, name, **content):
    file = tmp_path / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"bundle": {"name": name}, **content}))
    return file


async def test_a_bundle_is_told_which_loop_it_mounts_and_who_would_rule_on_the_bus_that_it_names(
    own_durable_server, scheduler, tmp_path
):
    await scheduler("policy", POLICY)
    section = {"redis": own_durable_server.url, "required": ["policy", "treasury"]}
    spec = {"module": "loop-toolgate-events", "source": "", "config": {"toolgate": section}}
    found = await diagnosed(None, "--bundle", bundle(tmp_path, "ours", session={"orchestrator": spec}))
    assert "the installed loop-toolgate-events, mounts" in found.one("bundle-loop", "notice")["what"]
    assert found.one("plan-required", "ok")["what"].startswith("policy")
    assert found.one("plan-required-missing", "error")["what"].startswith("treasury")
    assert found.one("bundle-unguarded", "warning")
    assert found.code == 1


async def test_a_bundle_that_inherits_anothers_source_is_an_error(tmp_path):
    foreign = {"module": "loop-streaming", "source": "git+https://forge.example/loop-streaming@main"}
    base = bundle(tmp_path, "base", session={"orchestrator": foreign})
    mine = {"module": "loop-events", "config": {"toolgate": {"required": ["policy"]}}}
    file = bundle(tmp_path, "mine", session={"orchestrator": mine}, includes=[{"bundle": f"file://{base}"}])
    found = await diagnosed(None, "--bundle", file)
    assert f"by base ({base})" in found.one("bundle-loop", "error")["what"]
    assert found.code == 1
    assert (await run_doctor("--bundle", tmp_path / "nowhere.yaml"))[0] == 1
