"""Agent and scheduler from the built wheel, each in an environment of its own, over TLS, under access rules.

Server, schedulers and exporter are restarted in mid-run, some without a word, and an agent is killed: what
was decided stands in the record, what was spent in the books, and what was refused did not happen.
"""

import json
import signal
from collections import Counter
from pathlib import Path

import pytest
import yaml
from guarded_server import counted, guarded, make_certificates
from own_environments import environments, missing, run

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(400)]

CALLS = 60
UNIT = 1_000_000
POLICY = {
    "rules": [{"name": "keep", "tools": "delete_file", "action": "deny", "reason": "files are kept"}],
}
BUDGETS = {
    "default": {"cost": 1},
    "budgets": [{"name": "all", "level": "fleet", "limit": 100_000}],
    "learn": False,
}


def plan(directory: Path, calls: int) -> Path:
    """An agent that writes so many files, and tries to delete one."""
    (directory / "work").mkdir(parents=True)
    names = [("write_file", {"path": f"{number}.txt", "content": "42"}) for number in range(calls)]
    names.insert(2, ("delete_file", {"path": "0.txt"}))
    turns = [{"tool_calls": [{"name": name, "arguments": arguments}]} for name, arguments in names]
    loop = {
        "max_iterations": calls + 5,
        "toolgate": {"required": ["policy", "cost-aware"], "patience_ms": 20_000},
    }
    words = {
        "session": {"orchestrator": {"module": "loop-events", "config": loop}, "context": "context-simple"},
        "providers": [
            {"module": "provider-scripted", "config": {"turns": [*turns, {"text": "done"}], "pace_s": 0.02}}
        ],
        "tools": [{"module": "tool-workspace", "config": {"root": str(directory / "work")}}],
    }
    (directory / "plan.yaml").write_text(yaml.safe_dump(words))
    return directory / "plan.yaml"


async def test_nothing_is_lost_when_each_part_is_restarted_in_mid_run(
    process, wait_until, tmp_path, shared_directory
):
    tls = make_certificates(tmp_path / "tls", "localhost")
    scheduler, agent = environments(shared_directory)
    assert missing(scheduler, "amplifier_core")
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(POLICY))
    (tmp_path / "cost-aware.yaml").write_text(yaml.safe_dump(BUDGETS))
    with guarded(tmp_path, "redis", ["policy", "cost-aware"], tls) as server:

        def start(bin_directory, role, *words):
            url = {"TOOLGATE_REDIS_URL": server.url(role), "PYTHONPATH": ""}
            return process(bin_directory / "toolgate", *words, env=url, cwd=tmp_path)

        def ruling(name):
            config = f"{name}.yaml"
            return start(
                scheduler, f"scheduler-{name}", "scheduler", "run", name, "--config", config, "--json"
            )

        def ready(one):
            return wait_until(lambda: '"ready"' in one.stdout, timeout=60)

        def asked(*words, role="operator"):
            said = run(scheduler / "toolgate", *words, "--redis", server.url(role), "--json", cwd=tmp_path)
            return [json.loads(line) for line in said.splitlines()]

        def files(directory):
            return sorted(one.name for one in (directory / "work").iterdir())

        running = {name: ruling(name) for name in ("policy", "cost-aware")}
        for one in running.values():
            await ready(one)

        exporter = start(scheduler, "exporter", "exporter", "--port", "0", "--json")
        await ready(exporter)
        first, second = tmp_path / "first", tmp_path / "second"
        told = start(agent, "agent", "run", "go", "--plan", plan(first, CALLS), "--json")
        await wait_until(lambda: len(files(first)) >= 5, timeout=60)
        replaced, running["policy"] = running["policy"], ruling("policy")
        await ready(running["policy"])
        replaced.signal(signal.SIGTERM)
        assert replaced.wait(30) == 0, replaced.stderr

        await wait_until(lambda: len(files(first)) >= 15, timeout=60)
        running["cost-aware"].signal(signal.SIGKILL)
        running["cost-aware"].wait(30)
        running["cost-aware"] = ruling("cost-aware")
        await ready(running["cost-aware"])

        await wait_until(lambda: len(files(first)) >= 20, timeout=60)
        exporter.signal(signal.SIGKILL)
        exporter.wait(30)
        exporter = start(scheduler, "exporter", "exporter", "--port", "0", "--json")
        await ready(exporter)

        await wait_until(lambda: len(files(first)) >= 25, timeout=60)
        server.kill()
        server.start()
        assert told.wait(120) == 0, told.stderr
        decided = json.loads(told.stdout)["decisions"]
        assert len(decided) == CALLS + 1
        outcomes = Counter(one["outcome"] for one in decided)
        # While there was no server the required schedulers were silent: those calls did not run.
        assert len(files(first)) == outcomes["continue"] >= 30
        assert decided[2]["outcome"] == "deny"
        assert decided[2]["scheduler"] == "policy"

        killed = start(agent, "agent", "run", "go", "--plan", plan(second, CALLS), "--json")
        await wait_until(lambda: len(files(second)) >= 8, timeout=60)
        killed.signal(signal.SIGKILL)
        killed.wait(30)

        # The record: every decision of the first, in order; of the second all but those of its last moment.
        record = asked("decisions")
        by_agent = Counter(one["orchestrator"] for one in record)
        assert max(by_agent.values()) == CALLS + 1
        whole = by_agent.most_common(1)[0][0]
        assert [one["outcome"] for one in record if one["orchestrator"] == whole] == [
            one["outcome"] for one in decided
        ]
        kept = sum(one["outcome"] == "continue" for one in record if one["orchestrator"] != whole)
        assert len(files(second)) - kept in (-1, 0, 1)

        # The exporter, killed in between, counts what stands in the record.
        page = json.loads(exporter.stdout)["url"]
        await wait_until(lambda: counted(page) == Counter(one["outcome"] for one in record), timeout=60)

        # The books: each call that ran is paid once; what the killed agent held is paid at its estimate.
        ran = outcomes["continue"] + max(kept, len(files(second)))

        def settled():
            (book,) = asked("budget", "list")
            return book if book["reserved"] == 0 else None

        book = await wait_until(settled, timeout=60)
        assert book["spent"] // UNIT - ran in (0, 1), (book, outcomes, kept, files(second))
        for one in (*running.values(), exporter):
            one.end()
            assert one.popen.returncode == 0, one.stderr
        assert server.denied() == []
