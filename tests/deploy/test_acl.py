"""Each role does its work under its access rules: on two kinds of server."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import aclosing
from importlib.metadata import entry_points
from pathlib import Path
from urllib.parse import urljoin

import pytest
import redis
import yaml
from guarded_server import DEPLOY, SCHEDULERS, GuardedServer, counted, fetched, guarded
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.session_labels import RedisLabelStore
from toolgate_bus.transport.session_labels import LabelMark
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

CONFIGS = {
    "policy": {
        "rules": [
            {"name": "keep", "tools": "delete_file", "action": "deny", "reason": "files are kept"},
            {
                "name": "late",
                "tools": "calculate",
                "after": {"tool": "write_file"},
                "wait_s": 30,
                "at_most": {"n": 9},
            },
        ]
    },
    "approval": {"rules": [{"name": "wide", "tools": "write_file", "when": {"path": "*public*"}}]},
    "cost-aware": {
        "default": {"cost": 1},
        "budgets": [{"name": "daily", "level": "fleet", "limit": 25}],
    },
    "router": {"routes": [{"from": "read_file", "targets": [{"to": "read_file"}, {"to": "list_files"}]}]},
    "heuristic": {"strategy": "round-robin", "groups": [{"tools": ["calculate", "calculate_again"]}]},
    "rate-limit": {"limits": [{"name": "all", "tools": "*", "per": "session", "rate": "1000/minute"}]},
    "loop-guard": {"same_call": {"times": 5, "within": 20}, "calls_per_session": 100},
    "provenance": {"sinks": [{"tools": "fetch", "to": "url"}]},
    "slots": {"pools": [{"name": "files", "tools": "write_file", "limit": 1}]},
}
OWN = """
from toolgate_schedulers import Continue, Modify


class Archivist:
    name, priority, tools = "archivist", 50, ["write_file"]

    async def start(self, context):
        self.context = context

    async def decide(self, call):
        seen = await self.context.store.keys("archivist:")
        await self.context.store.put(f"archivist:{len(seen)}", call.tool_name.encode(), 60)
        await self.context.holds.open()
        path = call.tool_input["path"]
        if path.startswith("reports/"):
            return Continue()
        return Modify(tool="write_file", arguments={**call.tool_input, "path": f"reports/{path}"})
"""
CALLS = [
    ("delete_file", {"path": "notes.txt"}),
    ("write_file", {"path": "sum.txt", "content": "42"}),
    ("write_file", {"path": "public.txt", "content": "for all"}),
    ("calculate", {"expression": "6 * 7"}),
]


def test_every_scheduler_that_is_shipped_has_its_section_and_works_under_it_here():
    shipped = {
        one.name
        for one in entry_points(group="toolgate.schedulers")
        if one.dist and one.dist.name == "toolgate-bus"
    }
    roles = (DEPLOY / "redis" / "roles").read_text()
    sections = {
        line[len("[scheduler ") : -1] for line in roles.splitlines() if line.startswith("[scheduler ")
    }
    assert sections - {"own"} == shipped, "bus/toolgate_bus/transport/redis/client/roles: a section for each"
    assert set(CONFIGS) == shipped, "CONFIGS of this file: a configuration for each"
    assert shipped <= set(SCHEDULERS)


@pytest.fixture(params=["redis", "valkey"])
def under_rules(request, tmp_path):
    with guarded(tmp_path, request.param, SCHEDULERS) as server:
        yield server


def toolgate(server: GuardedServer, role: str, *words: object, code: int = 0) -> str:
    """A command of this role, run to its end; what it said."""
    ended = subprocess.run(
        [sys.executable, "-m", "toolgate_bus", *map(str, words), "--redis", server.url(role)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == code, f"{role}: {words}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def rows(said: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in said.splitlines()]


def plan(directory: Path) -> Path:
    (directory / "work").mkdir()
    (directory / "work" / "notes.txt").write_text("keep me")
    turns = [{"tool_calls": [{"name": name, "arguments": arguments}]} for name, arguments in CALLS]
    loop = {"required": ["policy", "approval", "cost-aware"], "patience_ms": 20_000}
    words = {
        "session": {
            "orchestrator": {"module": "loop-events", "config": {"toolgate": loop}},
            "context": "context-simple",
        },
        "providers": [
            {"module": "provider-scripted", "config": {"turns": [*turns, {"text": "${last_result}"}]}}
        ],
        "tools": [
            {"module": "tool-workspace", "config": {"root": str(directory / "work")}},
            {"module": "tool-calculator"},
        ],
    }
    (directory / "plan.yaml").write_text(yaml.safe_dump(words))
    return directory / "plan.yaml"


def push_twice(server, config: Path) -> list[str]:
    """The same rules pushed, then staged with one more line and rolled out."""
    words = ("operator", "scheduler", "push", "policy", "--config", config, "--json")
    (first,) = rows(toolgate(server, *words, "--label", "v1"))
    config.write_text(config.read_text() + "# second\n")
    (second,) = rows(toolgate(server, *words, "--label", "v2", "--stage"))
    toolgate(server, "operator", "scheduler", "rollout", "policy", "--to", "v2", "--shadow", "0")
    return [str(first["digest"]), str(second["digest"])]


def check_revisions(browser, address: str, digests: list[str]) -> None:
    """The console reads record, progress, counts, replicas' words, changes and texts."""
    with browser.open(urljoin(address, "/api/revisions"), timeout=10) as answer:
        told = json.load(answer)
    assert [one for one in told["schedulers"] if "problem" in one] == []
    (policy,) = [one for one in told["schedulers"] if one["scheduler"] == "policy"]
    assert (policy["rollout"]["stage"], len(policy["history"])) == ("shadow", 2)
    assert [one["event"] for one in told["changes"]] == ["rollout:started", "config:pushed"]
    query = f"?from={digests[0]}&to={digests[1]}"
    with browser.open(urljoin(address, f"/api/revisions/policy/diff{query}"), timeout=10) as answer:
        assert "+# second" in json.load(answer)["lines"]


async def label(url):
    """What a process of agents does with the labels of a session."""
    async with aclosing(RedisCommands(url, "toolgate-test")) as commands:
        store = RedisLabelStore(commands, "default")
        assert (await store.read(["s"])).marks == {"s": {}}
        await store.keep({"s": {"source=web": LabelMark()}})
        await store.note({"below": ["s"]})
        assert (await store.read(["below"])).above == {"below": ("s",)}
        assert await store.claim("s", "source=web", 2)


async def test_every_role_does_its_work_under_its_rules(under_rules, process, wait_until, tmp_path):
    (tmp_path / "house.py").write_text(OWN)
    running = []
    for name in SCHEDULERS:
        spec = [name] if name in CONFIGS else ["house:Archivist"]
        if name in CONFIGS:
            (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(CONFIGS[name]))
            spec += ["--config", f"{name}.yaml"]
        url = {"TOOLGATE_REDIS_URL": under_rules.url(f"scheduler-{name}")}
        running.append(process("toolgate", "scheduler", "run", *spec, "--json", env=url, cwd=tmp_path))
    await wait_until(lambda: all('"ready"' in one.stdout for one in running), timeout=60)

    (tmp_path / "notify.yaml").write_text("receivers: {nobody: {url: 'http://127.0.0.1:9/'}}")
    for role, *words in (
        ("notify", "notify", "--config", tmp_path / "notify.yaml", "--json"),
        ("exporter", "exporter", "--port", 0, "--json"),
        ("console", "console", "--port", 0, "--json"),
        ("reader", "decisions", "archive", tmp_path / "record"),
        ("reader", "decisions", "--follow", "--json"),
    ):
        running.append(process("toolgate", *words, env={"TOOLGATE_REDIS_URL": under_rules.url(role)}))
    exporter, console, *_ = running[-4:]
    await wait_until(lambda: '"ready"' in exporter.stdout and '"ready"' in console.stdout, timeout=60)
    listed = {row["name"] for row in rows(toolgate(under_rules, "operator", "scheduler", "list", "--json"))}
    assert listed == set(SCHEDULERS)
    agent = process(
        "toolgate", "run", "go", "--plan", plan(tmp_path), "--json",
        env={"TOOLGATE_REDIS_URL": under_rules.url("agent")},
    )  # fmt: skip

    def waiting():
        assert agent.alive, (agent.stdout, agent.stderr, under_rules.denied())
        assert under_rules.denied() == [], agent.stderr
        return rows(toolgate(under_rules, "operator", "approvals", "list", "--json"))

    asked = await wait_until(waiting, timeout=60)
    toolgate(under_rules, "operator", "approvals", "show", asked[0]["id"])
    assert "No agent" not in toolgate(under_rules, "operator", "agents")
    words = ("scheduler", "check", "policy", "--config", tmp_path / "policy.yaml", "--json")
    (checked,) = rows(toolgate(under_rules, "operator", *words))
    assert checked["compared"]["processes"] == 1
    (paused,) = rows(toolgate(under_rules, "operator", "agents", "pause", "--all", "--json"))
    assert [len(paused[which]) for which in ("paused", "agents", "deaf")] == [1, 1, 0]
    (resumed,) = rows(toolgate(under_rules, "console", "agents", "resume", "--all", "--json"))
    assert [len(resumed[which]) for which in ("resumed", "agents", "deaf")] == [1, 1, 0]
    await label(under_rules.url("agent"))
    (label_,) = rows(toolgate(under_rules, "console", "agents", "labels", "s", "--json"))
    assert label_ == {"session": "s", "label": "source", "value": "web", "borne": True}
    (taken,) = rows(toolgate(under_rules, "operator", "agents", "unlabel", "s", "source", "--json"))
    assert taken == {"taken": {"s": ["source=web"]}, "deaf": []}
    for words in (("drain", "files"), ("limit", "files", "3"), ("limit", "files")):
        toolgate(under_rules, "operator", "queue", *words)
        toolgate(under_rules, "console", "queue", *words)
    assert [rows(toolgate(under_rules, role, "queue", "--json")) for role in ("operator", "console")]
    toolgate(under_rules, "console", "approvals", "approve", asked[0]["id"], "--always")
    await wait_until(lambda: not agent.alive or under_rules.denied(), timeout=60)
    assert not under_rules.denied()
    assert agent.wait(60) == 0, agent.stderr
    told = json.loads(agent.stdout)
    assert told["answer"] == "The tool call was denied: files are kept" or "42" in told["answer"]
    outcomes = [(one["outcome"], one["scheduler"], one["original_tool"]) for one in told["decisions"]]
    assert outcomes == [
        ("deny", "policy", "delete_file"),
        ("modify", "archivist", "write_file"),
        ("modify", "archivist", "write_file"),
        ("continue", None, "calculate"),
    ]
    assert (tmp_path / "work" / "reports" / "public.txt").read_text() == "for all"

    await wait_until(lambda: spent(under_rules) == 3_000_000)
    with under_rules.client("admin") as admin:  # an account whose time is over is taken off the list
        admin.sadd("tg:{default:ledger}:budget:accounts", "daily:0")
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    address = json.loads(console.stdout)["url"]
    browser.open(address, timeout=10).close()
    digests = push_twice(under_rules, tmp_path / "policy.yaml")
    for what in ("roster", "budgets", "approvals", "rates", "me"):
        browser.open(urljoin(address, f"/api/{what}"), timeout=10).close()
    check_revisions(browser, address, digests)
    page = json.loads(exporter.stdout)["url"]
    await wait_until(lambda: counted(page) == {"continue": 1.0, "deny": 1.0, "modify": 2.0})
    assert "toolgate_budget_spent{" in fetched(page)
    toolgate(under_rules, "operator", "budget", "show", "daily")
    toolgate(under_rules, "operator", "budget", "set", "daily", "30")
    toolgate(under_rules, "operator", "budget", "reset", "daily", "--yes")
    toolgate(under_rules, "operator", "budget", "rebuild", "--facts", "--by", "anna")
    toolgate(under_rules, "operator", "budget", "rebuild", "--from", tmp_path / "record", "--by", "anna")
    with under_rules.client("admin") as admin:
        admin.hset("tg:{default:ledger}:budget:epoch", "lost", "behind")
    toolgate(under_rules, "operator", "budget", "accept-loss", "--by", "anna")
    (always,) = rows(toolgate(under_rules, "operator", "approvals", "list", "--always", "--json"))
    toolgate(under_rules, "operator", "approvals", "revoke", always["id"])
    for reader in ("reader", "operator"):
        assert len(rows(toolgate(under_rules, reader, "decisions", "--json"))) == len(CALLS)
    held = process(
        "toolgate", "run", "go", "--plan", tmp_path / "plan.yaml", "--json",
        env={"TOOLGATE_REDIS_URL": under_rules.url("agent")},
    )  # fmt: skip
    await wait_until(
        lambda: rows(toolgate(under_rules, "operator", "approvals", "list", "--json")), timeout=60
    )
    toolgate(under_rules, "operator", "agents", "stop", "--all", "--now")
    held.wait(20)
    assert json.loads(held.stdout)["status"] == "cancelled", held.stderr
    (stands,) = rows(toolgate(under_rules, "operator", "agents", "resume", "--json"))
    toolgate(under_rules, "operator", "agents", "resume", stands["id"])
    archived = tmp_path / "record"
    await wait_until(lambda: sum(one.read_text().count('"event":') for one in archived.rglob("*.jsonl")) >= 4)
    for one in running:
        one.end()
        assert one.popen.returncode in (0, -signal.SIGTERM, 128 + signal.SIGTERM), one.stderr
    assert under_rules.denied() == []


def spent(server: GuardedServer) -> object:
    found = rows(toolgate(server, "operator", "budget", "list", "--json"))
    return found[0]["spent"] if found else None


async def test_schedulers_of_one_process_work_as_one_user_that_speaks_for_no_other(
    tmp_path, process, wait_until
):
    """One command reads all their inboxes: one rule must have all these keys."""
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(CONFIGS["policy"]))
    (tmp_path / "rate.yaml").write_text(yaml.safe_dump(CONFIGS["rate-limit"]))
    specs = ("policy", "calls=rate-limit", "--config", "policy=policy.yaml", "--config", "calls=rate.yaml")
    with guarded(tmp_path, "redis", ["policy+calls:rate-limit", "approval"]) as server:
        url = server.url("scheduler-policy+calls")
        running = process("toolgate", "scheduler", "run", *specs, "--json", "--redis", url, cwd=tmp_path)
        await wait_until(lambda: running.stdout.count('"ready"') == 2, timeout=30)
        names = ["policy", "calls"]
        async with Gate.open(redis=server.url("agent"), patience_ms=5000, required=names) as gate:
            denied = await gate.decide(Call("delete_file", {}, ["delete_file", "ls"]))
            allowed = await gate.decide(Call("ls", {}, ["delete_file", "ls"]))
        assert (denied.outcome, denied.scheduler) == ("deny", "policy")
        assert sorted(one.scheduler for one in allowed.verdicts) == sorted(names)
        assert server.denied() == []
        with (
            server.client("scheduler-policy+calls") as client,
            pytest.raises(redis.exceptions.NoPermissionError),
        ):
            client.xadd("tg:{default:0}:out:o:approval", {"event": "verdict"})


def test_an_agent_that_keeps_books_in_its_own_process_is_let_when_asked_for(tmp_path):
    url = "${TOOLGATE_REDIS_URL}"
    turns = [
        {"tool_calls": [{"name": "calculate", "arguments": {"expression": "1+1"}}]},
        {"text": "${last_result}"},
    ]
    books = {"default": {"cost": 1}, "budgets": [{"name": "all", "level": "fleet", "limit": 9}], "redis": url}
    words = {
        "session": {"orchestrator": "loop-events", "context": "context-simple"},
        "providers": [{"module": "provider-scripted", "config": {"turns": turns}}],
        "tools": [{"module": "tool-calculator"}],
        "hooks": [{"module": "hooks-scheduler-cost-aware", "config": books}],
    }
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(words))
    with guarded(tmp_path, "redis", ["policy"], None, "--agent-hooks") as server:
        ended = subprocess.run(
            [sys.executable, "-m", "toolgate_bus", "run", "go", "--plan", tmp_path / "plan.yaml"],
            env=os.environ | {"TOOLGATE_REDIS_URL": server.url("agent")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ended.returncode, ended.stdout.strip()) == (0, "2"), ended.stderr
        found = rows(toolgate(server, "operator", "budget", "list", "--book", "budget-hooks", "--json"))
        assert [one["spent"] for one in found] == [1_000_000]
        assert server.denied() == []
