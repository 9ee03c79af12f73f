"""`toolgate replay` over files of recorded runs: the same checks hold for each.

The project's own runs are self-written; TOOLGATE_RUNS (paths, colon-separated) adds other files.
"""

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(300)]

OWN = Path(__file__).parents[2] / "data" / "runs.jsonl"
FILES = [OWN, *(Path(path) for path in os.environ.get("TOOLGATE_RUNS", "").split(":") if path)]
over_files = pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)

Replay = Callable[..., dict[str, Any]]


@pytest.fixture(name="replay")
def _replay(process: Callable[..., Any], server_url: str, namespace: str) -> Replay:
    """Run the command on the tests' server; its JSON, after checking that it ended well."""

    def run(*options: object, **popen: Any) -> dict[str, Any]:
        bus = {"TOOLGATE_REDIS_URL": server_url, "TOOLGATE_NAMESPACE": namespace}
        running = process("toolgate", "replay", *options, "--json", env=bus, **popen)
        assert running.wait(200) == 0, running.stderr
        report: dict[str, Any] = json.loads(running.stdout)
        return report

    return run


def recorded_calls(file: Path) -> list[list[tuple[str, Any]]]:
    """Tool and arguments (as text) of every call, run by run, read without the project's code."""
    runs = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.strip():
            continue
        data = json.loads(line)
        calls = []
        for message in data.get("traj", data.get("messages")):
            if message["role"] != "assistant":
                continue
            functions = [call["function"] for call in message.get("tool_calls") or ()]
            functions += [message["function_call"]] if message.get("function_call") else []
            calls += [(function["name"], function.get("arguments")) for function in functions]
        runs.append(calls)
    return runs


def assert_each_call_once_in_order(report: dict[str, Any], file: Path) -> None:
    """Every recorded call is there once, in order, with one result; nothing else is."""
    expected = recorded_calls(file)
    assert report["violations"] == []
    assert report["totals"]["runs"] == len(expected)
    assert report["totals"]["results"] == report["totals"]["calls"] == sum(map(len, expected))
    assert [(call["run"], call["position"], call["tool"]) for call in report["calls"]] == [
        (number, position, tool)
        for number, calls in enumerate(expected, 1)
        for position, (tool, _) in enumerate(calls)
    ]
    assert all(call["result"] is not None for call in report["calls"])
    for number in range(1, len(expected) + 1):
        ids = [call["id"] for call in report["calls"] if call["run"] == number]
        assert len(set(ids)) == len(ids)


def assert_ran_as_recorded(call: dict[str, Any], recorded: Any) -> None:
    assert (call["outcome"], call["ran_tool"]) == ("run", call["tool"])
    assert call["result_source"] in ("recorded", "missing")
    if isinstance(recorded, str) and recorded.startswith("{"):
        try:
            assert call["ran_arguments"] == json.loads(_without_halves(recorded))
        except json.JSONDecodeError:
            assert call["ran_arguments"] == {"_raw": recorded}
    elif not recorded:
        assert call["ran_arguments"] == {}


def _without_halves(text: str) -> str:
    """JSON text whose halved emojis, which no wire carries, are marked as such."""
    plain = json.dumps(json.loads(text), ensure_ascii=False)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def each_call(report: dict[str, Any], file: Path) -> list[tuple[dict[str, Any], Any]]:
    return list(zip(report["calls"], [args for run in recorded_calls(file) for _, args in run], strict=True))


def written(path: Path, config: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(config))
    return path


def common_tools(file: Path) -> list[str]:
    return [
        tool for tool, _ in Counter(tool for run in recorded_calls(file) for tool, _ in run).most_common()
    ]


@over_files
def test_without_schedulers_the_loops_end_with_the_same_conversation(replay: Replay, file: Path) -> None:
    loops = ("loop-basic", "loop-events", "loop-streaming")
    basic, events, streaming = (replay(file, "--loop", loop) for loop in loops)
    assert basic["contexts"] == events["contexts"] == streaming["contexts"]
    assert len(set(basic["contexts"])) > 1
    assert not basic["violations"]


@over_files
def test_with_no_scheduler_alive_every_call_runs_with_exactly_its_recorded_arguments(
    replay: Replay, file: Path
) -> None:
    report = replay(file)
    assert_each_call_once_in_order(report, file)
    assert report["totals"]["run"] == report["totals"]["calls"]
    assert report["totals"]["ruled"] == 0
    for call, recorded in each_call(report, file):
        assert_ran_as_recorded(call, recorded)


@over_files
def test_a_policy_that_denies_one_tool_stops_exactly_its_calls_and_the_llm_is_told_why(
    replay: Replay, file: Path, tmp_path: Path
) -> None:
    denied = common_tools(file)[0]
    rule = {"tools": denied, "action": "deny", "reason": "closed for stocktaking"}
    report = replay(file, "--with", f"policy={written(tmp_path / 'policy.yaml', {'rules': [rule]})}")
    assert_each_call_once_in_order(report, file)
    assert report["totals"]["ruled"] == report["totals"]["calls"]
    for call, recorded in each_call(report, file):
        if call["tool"] == denied:
            assert (call["outcome"], call["ran_tool"], call["scheduler"]) == ("vetoed", None, "policy")
            assert "closed for stocktaking" in call["result"]
        else:
            assert_ran_as_recorded(call, recorded)


@over_files
def test_a_router_sends_exactly_one_tools_calls_to_another_with_mapped_arguments(
    replay: Replay, file: Path, tmp_path: Path
) -> None:
    tools = common_tools(file)
    source, target = tools[0], tools[-1]
    mapping = {"all": "$", "via": {"value": "router"}}
    route = {"from": source, "to": target, "arguments": mapping}
    report = replay(file, "--with", f"router={written(tmp_path / 'router.yaml', {'routes': [route]})}")
    assert_each_call_once_in_order(report, file)
    for call, recorded in each_call(report, file):
        if call["tool"] == source:
            assert (call["outcome"], call["ran_tool"], call["ruled"]) == ("rerouted", target, True)
            assert call["ran_arguments"] == {"all": call["arguments"], "via": "router"}
            assert call["result_source"] == "unrecorded"
            assert call["result"] == _as_told(call["recorded_result"])
        else:
            assert_ran_as_recorded(call, recorded)


def _as_told(text: str | None) -> str:
    """What the kernel makes of a text for the LLM: it takes control characters out."""
    return "".join(
        char for char in text or "" if char in "\t\n\r" or not ("\0" <= char < " " or "\x7f" <= char < "\xa0")
    )


@over_files
def test_living_schedulers_rule_on_every_call_where_none_is_named(
    process: Callable[..., Any],
    replay: Replay,
    wait_until: Callable[..., Any],
    server_url: str,
    namespace: str,
    file: Path,
    tmp_path: Path,
) -> None:
    config = written(tmp_path / "policy.yaml", {"default": "allow"})
    bus = {"TOOLGATE_REDIS_URL": server_url, "TOOLGATE_NAMESPACE": namespace}
    scheduler = process("toolgate", "scheduler", "run", "policy", "--config", config, "--json", env=bus)
    _until_ready(scheduler)
    report = replay(file)
    assert_each_call_once_in_order(report, file)
    assert report["totals"]["ruled"] == report["totals"]["calls"] == report["totals"]["run"]
    assert [one["scheduler"] for one in report["by_scheduler"]] == ["policy"]


def _until_ready(scheduler: Any) -> None:
    import time

    deadline = time.monotonic() + 30
    while "ready" not in scheduler.stdout:
        assert scheduler.alive, scheduler.stderr
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_rerouted_call_returns_what_was_recorded_for_that_tool_and_those_arguments(
    replay: Replay, tmp_path: Path
) -> None:
    def asks(call_id: str, tool: str, city: str) -> dict[str, Any]:
        function = {"name": tool, "arguments": json.dumps({"city": city})}
        return {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, "function": function}]}

    def answers(call_id: str, content: str) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": call_id, "content": content}

    user = {"role": "user", "content": "go"}
    first = [user, asks("a", "slow", "Ulm"), answers("a", "S"), asks("b", "fast", "Ulm"), answers("b", "F")]
    second = [user, asks("a", "slow", "Kiel"), answers("a", "K"), asks("b", "slow", "Ulm"), answers("b", "U")]
    file = tmp_path / "two.jsonl"
    file.write_text("\n".join(json.dumps({"traj": traj}) for traj in (first, second)))
    config = written(tmp_path / "router.yaml", {"routes": [{"from": "slow", "to": "fast"}]})
    report = replay(file, "--with", f"router={config}")
    told = [(call["tool"], call["result"], call["result_source"]) for call in report["calls"]]
    assert told == [
        ("slow", "F", "run"),
        ("fast", "F", "recorded"),
        ("slow", "K", "unrecorded"),
        ("slow", "F", "file"),
    ]


def test_a_target_that_no_run_ever_called_is_available_too(replay: Replay, tmp_path: Path) -> None:
    routes = [{"from": "*", "to": "somewhere_new"}]
    report = replay(OWN, "--with", f"router={written(tmp_path / 'router.yaml', {'routes': routes})}")
    assert report["violations"] == []
    assert {call["ran_tool"] for call in report["calls"]} == {"somewhere_new"}


SLOW = """
import asyncio
from toolgate_schedulers import Continue, scheduler

@scheduler(name="slow")
async def slow(call):
    await asyncio.sleep(1.0)  # longer than any wait is drawn out
    return Continue()
"""


def test_a_scheduler_that_answers_too_late_is_counted_as_late(replay: Replay, tmp_path: Path) -> None:
    (tmp_path / "slow_rules.py").write_text(SLOW)
    report = replay(OWN, "--with", "slow_rules:slow", "--patience-ms", 100, "--limit", 2, cwd=tmp_path)
    calls = report["totals"]["calls"]
    assert calls == 4
    assert report["totals"]["vetoed"] == calls
    assert {call["why"] for call in report["calls"]} == {"silent"}
    (slow,) = report["by_scheduler"]
    assert slow["scheduler"] == "slow"
    # A worker that gets to a question after its time may drop it: then it is silent, not late.
    assert slow["late"] >= 1
    assert slow["late"] + slow["silent"] == calls
    assert slow["median_ms"] > 100


def test_signed_verdicts_rule_too(replay: Replay, tmp_path: Path) -> None:
    keys = written(tmp_path / "keys.yaml", {"policy": "5ec7e7" * 11})
    config = written(tmp_path / "policy.yaml", {"default": "deny"})
    report = replay(OWN, "--with", f"policy={config}", "--keys", keys, "--limit", 1)
    assert [call["why"] for call in report["calls"]] == ["denied"]


def test_one_scheduler_twice_is_two_schedulers(replay: Replay, tmp_path: Path) -> None:
    lenient = written(tmp_path / "lenient.yaml", {"default": "allow"})
    strict = written(tmp_path / "strict.yaml", {"default": "deny"})
    report = replay(OWN, "--with", f"policy={lenient}", "--with", f"policy={strict}", "--limit", 1)
    assert {one["scheduler"] for one in report["by_scheduler"]} == {"policy", "policy-2"}
    assert {call["scheduler"] for call in report["calls"]} == {"policy-2"}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["missing.jsonl"], "missing.jsonl: cannot be read"),
        (["broken.jsonl"], "broken.jsonl: line 2: traj.0.role"),
        ([OWN, "--loop", "loop-nowhere"], "loop-nowhere"),
        ([OWN, "--with", "policy=nowhere.yaml"], "there is no file nowhere.yaml"),
        ([OWN, "--with", "policy=wrong.yaml"], "rulez: unknown key"),
        ([OWN, "--with", "=wrong.yaml"], "must be NAME=config.yaml"),
        ([OWN, "--with", "nobody"], "no scheduler 'nobody' is installed"),
    ],
)
def test_a_wrong_call_ends_with_2_and_names_what_is_wrong(
    process: Callable[..., Any], server_url: str, tmp_path: Path, arguments: list[Any], complaint: str
) -> None:
    (tmp_path / "broken.jsonl").write_text('{"traj": []}\n{"traj": [{"role": "wizard"}]}\n')
    written(tmp_path / "wrong.yaml", {"rulez": []})
    running = process("toolgate", "replay", *arguments, env={"TOOLGATE_REDIS_URL": server_url}, cwd=tmp_path)
    assert running.wait(60) == 2
    assert complaint in " ".join(running.stderr.split())
    assert running.stdout == ""


def test_without_an_address_it_brings_its_own_server_and_shows_tables(
    process: Callable[..., Any], short_directory: Path, tmp_path: Path
) -> None:
    config = written(tmp_path / "policy.yaml", {"rules": [{"tools": "delete_*", "action": "deny"}]})
    env = {"XDG_RUNTIME_DIR": str(short_directory)}
    running = process("toolgate", "replay", OWN, "--with", f"policy={config}", env=env)
    assert running.wait(60) == 0, running.stderr
    for words in ("By tool", "By scheduler", "delete_bed", "vetoed", "exactly one tool result, in order"):
        assert words in running.stdout
    assert "\x1b" not in running.stdout
    assert "Replayed 13 of 13 runs" in running.stderr
    assert not list(short_directory.rglob("*"))


async def test_an_interrupted_replay_ends_its_schedulers(
    process: Callable[..., Any], wait_until: Callable[..., Any], server_url: str, tmp_path: Path
) -> None:
    (tmp_path / "slow_rules.py").write_text(
        SLOW.replace("await", "print(__import__('os').getpid(), file=open('pid', 'w'))\n    await")
    )
    env = {"TOOLGATE_REDIS_URL": server_url}
    running = process("toolgate", "replay", OWN, "--with", "slow_rules:slow", env=env, cwd=tmp_path)
    pid_file = tmp_path / "pid"
    await wait_until(lambda: pid_file.exists() and pid_file.read_text().strip(), timeout=30)
    running.signal(signal.SIGINT)
    assert running.wait(30) == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_a_person_is_told_which_calls_did_not_run_and_why(
    process: Callable[..., Any], server_url: str, namespace: str, tmp_path: Path
) -> None:
    rules = {"rules": [{"name": "beds stay", "tools": "delete_bed", "action": "deny", "reason": "ask Anna"}]}
    routes = {"routes": [{"from": "read_sign", "to": "get_weather", "reason": "the sky is nearer"}]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    (tmp_path / "routes.yaml").write_text(yaml.safe_dump(routes))
    schedulers = ("--with", "policy=rules.yaml", "--with", "router=routes.yaml")
    bus = {"TOOLGATE_REDIS_URL": server_url, "TOOLGATE_NAMESPACE": namespace}
    running = process("toolgate", "replay", OWN, *schedulers, "--quiet", env=bus, cwd=tmp_path)
    assert running.wait(200) == 0, running.stderr
    assert running.stderr == "", "quiet: no progress"
    told = running.stdout.partition("What did not run as recorded\n")[2].partition("\n\n")[0].splitlines()
    assert len(told) == 4
    vetoed = [line for line in told if line.endswith("vetoed by policy: ask Anna (beds stay)")]
    assert len(vetoed) == 2
    assert all(line.startswith("  run ") and " delete_bed {" in line for line in vetoed)
    assert sum(line.endswith("rerouted to get_weather by router: the sky is nearer") for line in told) == 2
