"""What a user may do is told for each role, however it can be tried, and nothing is changed by trying."""

import pytest
import redis.asyncio as redis
from doctor_for_tests import diagnosed, started
from guarded_server import guarded
from toolgate_bus.commands.doctor.rights import rights_findings
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.redis.client.rights import ROLES, RightResult, rights_of

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

USERS = {
    "orchestrator": "agent",
    "scheduler:policy": "scheduler-policy",
    "scheduler:cost-aware": "scheduler-cost-aware",
    "reader": "reader",
    "archiver": "reader",
    "exporter": "exporter",
    "console": "console",
    "operator": "operator",
}
KEYS = Keys("default")


@pytest.mark.parametrize(("kind", "roles"), [("redis", [*USERS]), ("valkey", ["operator"])])
async def test_the_users_of_the_deployment_may_do_what_their_roles_must(kind, roles, tmp_path):
    with guarded(tmp_path, kind, ["policy", "cost-aware"]) as server:
        for role in roles:
            user = USERS[role]
            asked = await diagnosed(server.url("doctor"), "--role", role, "--user", user)
            assert "dry run" in asked.one("rights", "ok")["what"]
            assert asked.of("error") == []
        for role in ("orchestrator", "operator"):
            own = await diagnosed(server.url(USERS[role]), "--role", role)
            assert "trying" in own.one("rights", "ok")["what"]
            assert "stand on the roster" in own.one("rights-untried", "notice")["what"]
            assert own.of("error") == []
        # its own name says which scheduler it is
        own = await diagnosed(server.url("scheduler-policy"), "--role", "scheduler")
        assert "scheduler:policy" in own.one("rights", "ok")["what"]
        # who is another is told what it lacks
        other = await diagnosed(server.url("doctor"), "--role", "orchestrator", "--user", "scheduler-policy")
        assert other.code == 1
        assert "ask schedulers (XADD)" in other.one("right-missing", "error")["what"]
        unknown = await diagnosed(server.url("doctor"), "--role", "orchestrator", "--user", "nobody")
        assert unknown.one("user-unknown", "error")["change"]


async def test_the_user_doctor_may_look_at_everything_of_a_fleet_with_budgets(tmp_path, process, wait_until):
    with guarded(tmp_path, "redis", ["cost-aware"]) as server:
        (tmp_path / "budgets.yaml").write_text("budgets: [{name: daily, level: fleet, limit: 5}]")
        url = server.url("scheduler-cost-aware")
        await started(process, wait_until, url, "cost-aware", "--config", tmp_path / "budgets.yaml")
        found = await diagnosed(server.url("doctor"))
        assert found.of("warning", "error") == []
        assert not [one for one in found.findings if one["name"].endswith("-not-shown")]
        assert {"server-version", "server-persistence", "inboxes", "budgets", "facts", "held"} <= {
            *found.of("ok")
        }
        # an agent may not read how old a heartbeat is; that does not make the scheduler dead
        seen = await diagnosed(server.url("agent"), "--role", "orchestrator")
        assert "cost-aware" in seen.one("roster-one-replica", "notice")["what"]
        listing = process("toolgate", "scheduler", "list", env={"TOOLGATE_REDIS_URL": server.url("agent")})
        assert listing.wait(30) == 2
        assert "gives this user no right" in listing.stderr


@pytest.mark.parametrize(
    ("rules", "how"),
    [
        (("+@all",), "dry run"),
        (("+@all", "-acl"), "transaction"),
        (("+@all", "-acl", "-multi"), "trying"),
    ],
)
async def test_a_user_that_lacks_a_right_is_told_which_rule_gives_it(rules, how, own_server):
    async with redis.from_url(own_server.url) as client:
        every = ("reset", "on", ">secret", "~*", "&*", *rules)
        await client.execute_command("ACL", "SETUSER", "well", *every)
        await client.execute_command("ACL", "SETUSER", "lame", *every, "-xadd", "-pexpire")
        url = own_server.url.replace("unix://", "unix://{}:secret@")
        well = await diagnosed(url.format("well"), "--role", "orchestrator")
        assert how in well.one("rights", "ok")["what"]
        lame = await diagnosed(url.format("lame"), "--role", "orchestrator")
        wrong = lame.one("right-missing", "error")
        assert lame.code == 1
        assert "lame may not ask schedulers (XADD)" in wrong["what"]
        rule = wrong["change"].partition("'")[2].partition("'")[0]
        assert rule == "(%W~tg:{default:[0-9a-f]}:in:* +xadd)"
        for _ in range(5):  # what it says mends it; a long list is cut
            missing = [one for one in lame.findings if one["name"] == "right-missing"]
            for one in missing:
                if rule := one["change"].partition("'")[2].partition("'")[0]:
                    await client.execute_command("ACL", "SETUSER", "lame", rule)
            if not missing:
                break
            lame = await diagnosed(url.format("lame"), "--role", "orchestrator")
        assert lame.of("error") == well.of("error")


@pytest.mark.parametrize("rules", [(), ("-acl",), ("-acl", "-multi")])
async def test_trying_changes_nothing_on_the_server(rules, own_server):
    async with redis.from_url(own_server.url) as client:
        # everything that the rights are about is there
        await client.xgroup_create(KEYS.inbox("policy"), "policy", "0", mkstream=True)
        await client.pexpire(KEYS.inbox("policy"), 600_000)
        await client.sadd(KEYS.roster, "s:gone:x")
        await client.zadd(KEYS.writers, {"o1": 1})
        await client.set(KEYS.starts, 3)
        await client.execute_command("ACL", "SETUSER", "tried", "on", ">secret", "~*", "&*", "+@all", *rules)
        url = own_server.url.replace("unix://", "unix://tried:secret@")
        before = await _all(client)
        for role in ("orchestrator", "scheduler:policy", "exporter", "operator"):
            assert (await diagnosed(url, "--role", role)).one("rights", "ok")
        assert await _all(client) == before
        persistence = await client.info("persistence")
        assert persistence["rdb_changes_since_last_save"] == 5


async def _all(client):
    found = {}
    async for key in client.scan_iter():
        expires = await client.pttl(key) > 0
        found[key] = (await client.dump(key), expires)
    return found


@pytest.mark.pure
def test_every_role_tries_something_and_a_long_list_is_cut():
    for role in ROLES:
        rights = rights_of(role, "default", "policy", "nobody-1")
        assert len(rights) > 5
        assert all(right.command and right.rule for right in rights)
        denied = rights_findings(role, "me", [RightResult(right, False) for right in rights], "dry run")
        assert {one.level for one in denied} == {"error"}
        assert len(denied) == 7
        assert f"{len(rights) - 6} commands more" in denied[-1].what
