"""`toolgate scheduler run` and `list`: real processes on a real server."""

import json
import os
import signal
from pathlib import Path

import pytest
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance

POLICY = "rules: [{name: no cancelling, tools: cancel_reservation, action: deny}]"
TOOLS = ["cancel_reservation", "slow_tool", "fast_tool", "expensive_operation", "bash"]
HOOKS = """
from toolgate_schedulers import HookResult

async def scheduler_hook(event: str, data: dict) -> HookResult:
    if data["tool_name"] == "expensive_operation":
        # Veto expensive tool
        return HookResult(action="deny", reason="Cost limit exceeded")

    if data["tool_name"] == "slow_tool":
        # Modify to faster alternative
        return HookResult(
            action="modify",
            data={"tool": "fast_tool", "arguments": {"quick": True}}
        )

    # Allow tool
    return HookResult(action="continue")
"""


@pytest.fixture
def run(process, server_url, namespace, tmp_path):
    """`run("policy", "--config", …)`: the command on the shared server, with the test's namespace."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "hooks.py").write_text(HOOKS)

    def start(*options, url=server_url, **popen):
        where = () if url is None else ("--redis", url, "--namespace", namespace)
        return process("toolgate", "scheduler", "run", *options, *where, cwd=tmp_path, **popen)

    return start


@pytest.fixture
async def roster(server_url, namespace):
    """Who is alive in the test's namespace."""
    commands = RedisCommands(server_url, "test")

    async def alive():
        return (await Roster(commands, namespace).read()).members

    yield alive
    await commands.aclose()


def ready(running):
    """The ready lines of a `--json` process."""
    lines = running.stdout.splitlines()
    return [line for line in map(json.loads, lines) if line["event"] == "ready"]


def gone(pid):
    """Whether a process has ended (one that only waits to be reaped has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def decided(server_url, namespace, tool, arguments=None, **config):
    async with Gate.open(redis=server_url, namespace=namespace, patience_ms=10_000, **config) as gate:
        return await gate.decide(Call(tool, arguments or {}, TOOLS))


async def test_a_policy_process_rules_on_a_call_and_drains_on_sigterm(
    run, roster, wait_until, server_url, namespace
):
    policy = run("policy", "--config", "policy.yaml", "--json")
    (line,) = await wait_until(lambda: ready(policy))
    assert (line["name"], line["pid"]) == ("policy", policy.pid)
    assert [member.replica for member in await roster()] == [line["replica"]]
    denied = await decided(server_url, namespace, "cancel_reservation")
    assert (denied.outcome, denied.scheduler) == ("deny", "policy")
    assert "no cancelling" in denied.reason
    assert (await decided(server_url, namespace, "bash")).outcome == "continue"
    policy.signal(signal.SIGTERM)
    assert policy.wait() == 0
    assert await roster() == ()
    assert "Traceback" not in policy.stderr


async def test_the_seeds_sample_rules_as_a_process_of_its_own(run, wait_until, server_url, namespace):
    hook = run("hooks:scheduler_hook", "--name", "sample")
    await wait_until(
        lambda: "sample (replica" in hook.stderr and f"pid {hook.pid}" in hook.stderr, timeout=20
    )
    denied = await decided(server_url, namespace, "expensive_operation")
    assert (denied.outcome, denied.scheduler) == ("deny", "sample")
    assert "Cost limit exceeded" in denied.reason
    changed = await decided(server_url, namespace, "slow_tool", {"x": 1})
    assert (changed.outcome, changed.tool_name, changed.tool_input) == (
        "modify",
        "fast_tool",
        {"quick": True},
    )
    hook.signal(signal.SIGINT)
    assert hook.wait() == 0


@pytest.mark.system
async def test_a_plain_function_that_never_returns_does_not_keep_the_process(
    run, wait_until, server_url, namespace, tmp_path
):
    (tmp_path / "hangs.py").write_text(
        "import time, pathlib\ndef rule(call):\n    pathlib.Path('asked').touch()\n    time.sleep(3600)\n"
    )
    hangs = run("hangs:rule")
    await wait_until(lambda: "rule (replica" in hangs.stderr)
    async with Gate.open(redis=server_url, namespace=namespace, patience_ms=500) as gate:
        decision = await gate.decide(Call("bash", {}, TOOLS))
    assert (decision.outcome, decision.silent) == ("continue", ("rule",))
    assert (tmp_path / "asked").exists()
    hangs.signal(signal.SIGTERM)
    assert hangs.wait() == 0
    assert "did not return: it is left behind" in hangs.stderr


async def test_a_shadow_is_heard_and_not_obeyed(run, wait_until, server_url, namespace):
    shadow = run("policy", "--config", "policy.yaml", "--shadow")
    await wait_until(lambda: "watches (shadow)" in shadow.stderr)
    decision = await decided(server_url, namespace, "cancel_reservation")
    assert decision.outcome == "continue"


async def test_list_shows_who_is_alive_to_people_and_to_scripts(
    run, process, wait_until, server_url, namespace
):
    where = ("--redis", server_url, "--namespace", namespace)
    nobody = process("toolgate", "scheduler", "list", *where)
    assert nobody.wait() == 0
    assert (nobody.stdout, f"No scheduler is alive in namespace {namespace}" in nobody.stderr) == ("", True)
    running = run(
        "policy", "--config", "policy.yaml", "--priority=7", "--tools", "a*", "--tools", "b", "--json"
    )
    (line,) = await wait_until(lambda: ready(running))
    table = process("toolgate", "scheduler", "list", *where)
    assert table.wait() == 0
    assert table.stdout.splitlines()[1].split()[:5] == ["policy", "1", "7", "a*", "b"]
    script = process("toolgate", "scheduler", "list", "--json", *where)
    assert script.wait() == 0
    listed = json.loads(script.stdout)
    assert (listed["name"], listed["priority"], listed["tools"], listed["replicas"]) == (
        "policy",
        7,
        ["a*", "b"],
        1,
    )
    assert listed["members"][0]["replica"] == line["replica"]


async def test_replicas_are_processes_and_a_killed_one_is_started_again(run, roster, wait_until):
    parent = run("policy", "--config", "policy.yaml", "--replicas", "2", "--json")
    await wait_until(lambda: len(ready(parent)) == 2)
    first, second = (line["pid"] for line in ready(parent))
    assert len({first, second, parent.pid}) == 3
    os.kill(first, signal.SIGKILL)
    await wait_until(lambda: len(ready(parent)) == 3)
    assert "ended (killed by SIGKILL); starting it again in 0.5 s" in parent.stderr
    parent.signal(signal.SIGTERM)
    assert parent.wait() == 0
    # The killed one could not leave: it is there until its heartbeat expires.
    assert {member.pid for member in await roster()} <= {first}
    assert all(gone(line["pid"]) for line in ready(parent))


async def test_replicas_end_when_their_parent_is_killed(run, wait_until):
    parent = run("policy", "--config", "policy.yaml", "--replicas", "2", "--json")
    await wait_until(lambda: len(ready(parent)) == 2)
    parent.signal(signal.SIGKILL)
    await wait_until(lambda: all(gone(line["pid"]) for line in ready(parent)))


async def test_a_replica_whose_call_is_wrong_ends_all(run, tmp_path):
    (tmp_path / "only_once.py").write_text(
        "import os\nfrom toolgate_schedulers import Continue\n"
        "if 'TOOLGATE_DIE_WITH_PARENT' in os.environ:\n    raise ValueError('not in a replica')\n"
        "async def route(call): return Continue()\n"
    )
    parent = run("only_once:route", "--replicas", "2")
    assert parent.wait() == 2
    assert "not in a replica" in parent.stderr


async def test_a_process_may_be_told_to_die_with_its_parent(process, server_url, wait_until, tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    command = ["-m", "toolgate_bus", "scheduler", "run", "policy", "--config", "policy.yaml", "--json"]
    code = f"import subprocess, sys; subprocess.run([sys.executable, *{command!r}])"
    env = {"TOOLGATE_DIE_WITH_PARENT": "1", "TOOLGATE_REDIS_URL": server_url}
    parent = process("python", "-c", code, env=env, cwd=tmp_path)
    (line,) = await wait_until(lambda: ready(parent))
    parent.signal(signal.SIGKILL)
    await wait_until(lambda: gone(line["pid"]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("polcy",), "Did you mean policy?"),
        (("policy",), "needs a configuration: --config FILE"),
        (("policy", "--config", "gone.yaml"), "gone.yaml: cannot be read"),
        (("hooks:nothing",), "module hooks has no 'nothing'"),
        (("hooks:scheduler_hook", "--name", "no spaces"), "name: 1 to 64 letters"),
        (("hooks:scheduler_hook", "--config", "policy.yaml"), "takes no configuration"),
        (("hooks:scheduler_hook", "--keys", "keys.yaml"), "keys.yaml has no key for scheduler_hook"),
    ],
)
async def test_a_wrong_call_ends_before_any_server_is_started(run, tmp_path, options, said):
    (tmp_path / "keys.yaml").write_text(f"other: {'ab' * 32}\n")
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    wrong = run(*options, url=None, env={"XDG_RUNTIME_DIR": str(runtime)})
    assert wrong.wait() == 2
    assert said in wrong.stderr
    assert "Traceback (most recent" not in wrong.stderr
    assert list(runtime.iterdir()) == []


async def test_a_server_that_is_away_is_named_without_its_password(run):
    away = run("hooks:scheduler_hook", url="redis://user:secret@127.0.0.1:1/0")
    assert away.wait() == 1
    assert "the bus at redis://127.0.0.1:1/0 cannot be reached" in away.stderr
    assert "secret" not in away.stderr


async def test_an_author_who_cannot_start_is_quoted(run, tmp_path):
    (tmp_path / "broken.py").write_text(
        "class Broken:\n    name = 'broken'\n"
        "    async def start(self, context): raise OSError('no licence')\n"
        "    async def decide(self, call): ...\n"
    )
    broken = run("broken:Broken")
    assert broken.wait() == 1
    assert "broken could not start: OSError: no licence" in broken.stderr
    assert "broken.py" in broken.stderr
