"""What a shadow and `replay --against` say is what really happens when the same scheduler is switched on.

The same files as in test_replay.py; TOOLGATE_RUNS (paths, colon-separated) adds others.
"""

import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from toolgate_bus.protocol.events import Continue
from toolgate_orchestrator import Call, Caller, Gate

pytestmark = [pytest.mark.system, pytest.mark.acceptance, pytest.mark.timeout(300)]

OWN = Path(__file__).parents[2] / "data" / "runs.jsonl"
FILES = [OWN, *(Path(path) for path in os.environ.get("TOOLGATE_RUNS", "").split(":") if path)]
over_files = pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)

TOTALS = ("run", "rerouted", "vetoed")
Toolgate = Callable[..., Any]


@pytest.fixture(name="toolgate")
def _toolgate(process: Callable[..., Any], server_url: str, namespace: str) -> Toolgate:
    """Run a command on the tests' server to its end; gives what it printed as JSON."""

    def run(*words: object, code: int = 0, **popen: Any) -> Any:
        bus = {"TOOLGATE_REDIS_URL": server_url, "TOOLGATE_NAMESPACE": namespace}
        running = process("toolgate", *words, "--json", env=bus, **popen)
        assert running.wait(200) == code, running.stderr
        lines = [json.loads(line) for line in running.stdout.splitlines()]
        return lines[0] if words[0] == "replay" else lines

    return run


def common_tools(file: Path) -> list[str]:
    """The tools of a file, those with the most calls first; read without the project's code."""
    runs = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    messages = [message for run in runs for message in run.get("traj", run.get("messages"))]
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    return [name for name, _ in Counter(call["function"]["name"] for call in calls).most_common()]


@pytest.fixture(name="configs")
def _configs(tmp_path: Path, file: Path) -> dict[str, Path]:
    """A policy that denies and asks, a router, budgets; each has something to say about every file."""
    first, second, *_, last = common_tools(file)
    rules = [
        {"tools": first, "action": "deny", "reason": "closed for stocktaking"},
        {"tools": last, "action": "ask", "reason": "somebody should look"},
    ]
    mapping = {"all": "$", "via": {"value": "router"}}
    routes = [{"from": second, "to": first, "arguments": mapping}]
    budgets = [{"name": "each", "level": "session", "limit": 0.35}, {"name": "all", "limit": 1.5}]
    costs = {"default": {"cost": 0.1}, "tools": {first: {"cost": 0.15}}, "budgets": budgets}
    return _written(tmp_path, {"policy": {"rules": rules}, "router": {"routes": routes}, "cost-aware": costs})


@pytest.fixture(name="others")
def _others(tmp_path: Path, file: Path) -> dict[str, Path]:
    """The other shipped schedulers, and a router that draws by session."""
    first, second, *_, last = common_tools(file)
    groups = [{"tools": [second, first]}]
    limits = [
        {"tools": "*", "per": "session", "rate": "2/day"},
        {"tools": first, "per": "fleet", "rate": "4/day"},
    ]
    canary = [{"from": "*", "targets": [{"to": first}, {"to": second}], "sticky": "session"}]
    held = [{"tools": last}, {"tools": second, "via": "ask_user"}]
    written = {
        "heuristic": {"strategy": "round-robin", "groups": groups},
        "rate-limit": {"limits": limits},
        "loop-guard": {"same_call": {"times": 1}, "calls_per_session": 3},
        "provenance": {"sinks": [{"tools": [first, second], "words": ["never said"]}], "action": "deny"},
        "approval": {"rules": held},
        "router": {"routes": canary},
    }
    return _written(tmp_path, written)


def _written(folder: Path, configs: dict[str, Any]) -> dict[str, Path]:
    for name, config in configs.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    return {name: folder / f"{name}.yaml" for name in configs}


def ran(call: dict[str, Any]) -> tuple[Any, ...]:
    """What became of a call when a scheduler was switched on."""
    if call["outcome"] == "vetoed":
        return ({"no_approver": "ask", "expired": "hold"}.get(call["why"], "deny"), None, None)
    return (call["outcome"], call["ran_tool"], call["ran_arguments"])


def would(effect: dict[str, Any]) -> tuple[Any, ...]:
    """The same as a comparison tells it."""
    if effect["outcome"] in ("run", "rerouted"):
        return (effect["outcome"], effect["tool"], effect["arguments"])
    return (effect["outcome"], None, None)


SHADOWS = ("policy", "router")
"""Not cost-aware: a shadow is not waited for, so which of two calls in a row is over budget may differ."""
CHANGES = {"veto": "deny", "ask": "ask", "reroute": "rerouted"}


# ---------------------------------------------------------------------- two sets on a file


@over_files
@pytest.mark.parametrize("names", [("cost-aware",), ("policy", "router")], ids="+".join)
def test_what_against_says_is_what_happens_when_the_set_is_switched_on(
    toolgate: Toolgate, configs: dict[str, Path], file: Path, names: tuple[str, ...]
) -> None:
    agree(toolgate, file, [f"{name}={configs[name]}" for name in names])


@pytest.mark.parametrize("file", [OWN])
@pytest.mark.parametrize(
    "name", ["heuristic", "rate-limit", "loop-guard", "provenance", "approval", "router"]
)
def test_so_it_is_for_every_shipped_scheduler(
    toolgate: Toolgate, others: dict[str, Path], file: Path, name: str
) -> None:
    # Two seconds for each call that is held: nobody is there to answer.
    agree(toolgate, file, [f"{name}={others[name]}"])


def agree(toolgate: Toolgate, file: Path, set_: list[str]) -> None:
    """Switched on, and compared with nobody: the same becomes of each call."""
    on = toolgate("replay", file, *(word for one in set_ for word in ("--with", one)))
    other = toolgate("replay", file, *(word for one in set_ for word in ("--against", one)))
    assert {key: other["after"]["totals"][key] for key in TOTALS} == {
        key: on["totals"][key] for key in TOTALS
    }
    assert [ran(one) for one in on["calls"]] == [would(one["after"]) for one in other["calls"]]
    assert [(one["run"], one["position"]) for one in on["calls"]] == [
        (one["run"], one["position"]) for one in other["calls"]
    ]
    # Before them nobody ruled: everything is different that they do.
    assert other["before"]["totals"]["run"] == other["totals"]["calls"] == len(on["calls"])
    assert other["totals"]["differences"] == on["totals"]["vetoed"] + on["totals"]["rerouted"] > 0
    assert other["totals"]["broken"] == on["totals"]["vetoed"]
    assert other["violations"] == []


@pytest.mark.parametrize("file", [OWN])
def test_the_same_set_on_both_sides_makes_no_difference(
    toolgate: Toolgate, configs: dict[str, Path], file: Path
) -> None:
    policy = f"policy={configs['policy']}"
    report = toolgate("replay", file, "--with", policy, "--against", policy, "--fail-on", "any")
    assert report["totals"]["differences"] == 0
    assert report["before"]["totals"] == report["after"]["totals"]
    assert report["after"]["totals"]["vetoed"] > 0


@pytest.mark.parametrize("file", [OWN])
def test_what_is_switched_off_is_allowed_and_costs_what_configs_say(
    toolgate: Toolgate, configs: dict[str, Path], file: Path, tmp_path: Path
) -> None:
    first, second, *_ = common_tools(file)
    prices = {"tools": {first: {"cost": 0.5}, second: {"cost": "0.25"}}, "default": {"cost": 0}}
    costs = tmp_path / "costs.yaml"
    costs.write_text(yaml.safe_dump({**prices, "budgets": [{"name": "all", "limit": None}]}))
    on, off = f"policy={configs['policy']}", f"cost-aware={costs}"
    report = toolgate("replay", file, "--with", on, "--against", off)
    calls = Counter(one["tool"] for one in report["calls"])
    assert report["totals"]["freed"] == report["totals"]["allow"] == report["before"]["totals"]["vetoed"]
    assert report["totals"]["broken"] == 0
    dearer = calls[first] * 500_000
    assert report["cost"]["saved"] == -dearer
    assert report["cost"]["after"] == dearer + calls[second] * 250_000
    assert report["cost"]["unknown"] == 0
    (by,) = report["by_scheduler"]
    assert (by["name"], by["allow"], by["saved"]) == ("policy", report["totals"]["allow"], -dearer)


def test_rules_on_results_are_compared_on_recorded_results_and_counted_on_the_record(
    toolgate: Toolgate, tmp_path: Path
) -> None:
    key = "AKIAIOSFODNN7EXAMPLE"
    told = {"plain": "all is well", "key": f"it is {key}", "both": f"payroll {key}"}
    calls = [
        {"id": name, "type": "function", "function": {"name": "read", "arguments": json.dumps({"n": name})}}
        for name in told
    ]
    results = [{"role": "tool", "tool_call_id": name, "content": text} for name, text in told.items()]
    run = [{"role": "user", "content": "Go"}, {"role": "assistant", "tool_calls": calls}, *results]
    file = tmp_path / "runs.jsonl"
    file.write_text(json.dumps({"traj": [*run, {"role": "assistant", "content": "Done."}]}))
    about = {"on": "result", "tools": "read"}
    hides = {**about, "mask": "api keys"}
    keeps = {**about, "when": {"$result": "payroll*"}, "action": "deny", "reason": "not that"}
    old, new = (f"policy={tmp_path / name}" for name in ("old.yaml", "new.yaml"))
    (tmp_path / "old.yaml").write_text(yaml.safe_dump({"rules": [hides]}))
    (tmp_path / "new.yaml").write_text(yaml.safe_dump({"rules": [keeps]}))

    report = toolgate("replay", file, "--with", old, "--against", new, "--fail-on", "release", code=1)
    changes = {one["id"]: one["result"] and one["result"]["change"] for one in report["calls"]}
    assert changes == {"plain": None, "key": "release", "both": "withhold"}
    assert report["results"] == {
        "compared": 3,
        "same": 1,
        "withhold": 1,
        "mask": 0,
        "replace": 0,
        "release": 1,
    }
    assert report["totals"]["differences"] == 0
    assert report["calls"][2]["result"]["reason"] == "not that (rule 1)"
    same = toolgate("replay", file, "--with", old, "--against", old, "--fail-on", "any")
    assert same["results"]["same"] == 3

    toolgate("replay", file, "--with", old, "--namespace", "recorded")
    tried = toolgate(
        "replay", "--against", new, "--since", "1h", "--namespace", "recorded", "--fail-on", "any"
    )
    assert (tried["results"]["compared"], tried["limits"]["results_unknown"]) == (0, 3)
    assert key not in json.dumps([report, same, tried])


# ---------------------------------------------------------------------- shadows, and the record


@pytest.fixture(name="watched")
async def _watched(
    toolgate: Toolgate,
    process: Callable[..., Any],
    wait_until: Callable[..., Awaitable[Any]],
    configs: dict[str, Path],
    server_url: str,
    namespace: str,
    file: Path,
) -> dict[str, Any]:
    """The replay of a file while policy and router are alive as shadows."""
    bus = {"TOOLGATE_REDIS_URL": server_url, "TOOLGATE_NAMESPACE": namespace}
    run = ("toolgate", "scheduler", "run")
    shadows = [
        process(*run, name, "--config", configs[name], "--shadow", "--json", env=bus) for name in SHADOWS
    ]
    await wait_until(lambda: all("ready" in one.stdout for one in shadows), timeout=30)
    report: dict[str, Any] = toolgate("replay", file)
    assert report["totals"]["run"] == report["totals"]["calls"]  # a shadow changes nothing
    return report


@over_files
async def test_the_numbers_of_shadows_and_of_the_record_are_those_of_the_schedulers_switched_on(
    toolgate: Toolgate, configs: dict[str, Path], watched: dict[str, Any], file: Path
) -> None:
    *decisions, last = toolgate("decisions", "--shadow")
    listed = {one["name"]: one["shadow_totals"] for one in toolgate("scheduler", "list")}
    calls = len(watched["calls"])
    for name, config in configs.items():
        on = toolgate("replay", file, "--with", f"{name}={config}")
        changed = {key_of(one): ran(one) for one in on["calls"] if ran(one)[0] != "run"}

        tried = toolgate("replay", "--against", f"{name}={config}", "--since", "1h")
        assert tried["totals"]["calls"] == calls
        assert {
            (f"replay-{one['session'].split('-')[1]}", one["id"]): would(one["after"])
            for one in tried["calls"]
            if one["change"]
        } == changed
        assert {key: tried["after"]["totals"][key] for key in TOTALS} == {
            key: on["totals"][key] for key in TOTALS
        }
        if name not in SHADOWS:
            continue

        told = {
            key_of_question(decision): one
            for decision in decisions
            for one in decision["disagreements"]
            if one["scheduler"] == name
        }
        assert {key: CHANGES[one["change"]] for key, one in told.items()} == {
            key: what for key, (what, _, _) in changed.items()
        }
        for key, one in told.items():
            if one["change"] == "reroute":
                assert (one["tool"], one["arguments"]) == changed[key][1:]

        totals = last["totals"][name]
        assert (totals["heard"], totals["unreadable"]) == (on["totals"]["ruled"], 0)
        assert totals["same"] == on["totals"]["ruled"] - len(changed)
        assert totals["reroute"] == on["totals"]["rerouted"]
        assert totals["veto"] + totals["ask"] == on["totals"]["vetoed"]
        if calls < 400:  # what `scheduler list` looks at
            assert listed[name] == totals


def key_of(call: dict[str, Any]) -> tuple[str, str]:
    """Which call it is, in every session that plays its run."""
    return (f"replay-{call['run']}", call["id"])


def key_of_question(decision: dict[str, Any]) -> tuple[str, str]:
    return (f"replay-{decision['session'].split('-')[1]}", decision["tool_call_id"])


@pytest.mark.parametrize("file", [OWN])
async def test_what_a_shadow_would_have_changed_is_shown_to_people(
    watched: dict[str, Any], process: Callable[..., Any], server_url: str, namespace: str, file: Path
) -> None:
    bus = {"TOOLGATE_REDIS_URL": server_url, "TOOLGATE_NAMESPACE": namespace}
    assert watched["totals"]["calls"]

    def shown(*words: str) -> str:
        running = process("toolgate", *words, env=bus)
        assert running.wait(30) == 0, running.stderr
        return str(running.stdout)

    both = shown("decisions", "--shadow")
    assert "would veto: closed for stocktaking" in both
    assert "would reroute to" in both
    assert "would have a person asked about" in both
    assert both.splitlines()[-3].split()[:6] == ["shadow", "heard", "on", "same", "veto", "reroute"]
    only = shown("decisions", "--shadow", "--scheduler", "router", "--limit", "1")
    assert only.count("would ") == 1
    assert "policy  " not in only.splitlines()[-1]
    table = shown("scheduler", "list")
    assert "shadow, would have changed" in " ".join(table.split())


# ---------------------------------------------------------------------- the record of living schedulers

TOOLS = {name: {"type": "object"} for name in ("search", "fast", "write")}


async def test_on_the_record_what_others_said_stands_and_the_new_one_takes_its_namesakes_place(
    schedulers: Any, toolgate: Toolgate, tmp_path: Path, server_url: str, namespace: str
) -> None:
    def written(name: str, config: dict[str, Any]) -> Path:
        (tmp_path / name).write_text(yaml.safe_dump(config))
        return tmp_path / name

    old = written("old.yaml", {"rules": [{"tools": "write", "action": "deny", "reason": "old"}]})
    new = written("new.yaml", {"rules": [{"tools": "fast", "action": "deny", "reason": "new"}]})
    routes = written("routes.yaml", {"routes": [{"from": "search", "to": "fast"}]})
    await schedulers.start("policy", "--config", old)
    await schedulers.start("router", "--config", routes)
    async with Gate.open(
        redis=server_url,
        namespace=namespace,
        required=["policy", "router"],
        redact={"fields": ["key"]},
        schedulers={"router": {"can_modify": ["fast"]}},
    ) as gate:
        for tool, arguments in (("search", {"key": "s3cret"}), ("write", {}), ("fast", {"n": 1})):
            await gate.decide(Call(tool, arguments, TOOLS, Caller("s"), id=tool))

    tried = toolgate("replay", "--against", f"policy={new}", "--since", "24h")
    assert {one["tool"]: (one["change"], one["after"]["scheduler"]) for one in tried["calls"]} == {
        # The router's replacement was put before the new policy, too.
        "search": ("veto", "policy"),
        "write": ("allow", None),
        "fast": ("veto", "policy"),
    }
    assert tried["limits"]["redacted"] == 1
    assert (tried["before"]["schedulers"], tried["after"]["schedulers"]) == (["policy", "router"], ["policy"])
    assert "keeps 60 min" in tried["notes"][0]
    assert "s3cret" not in json.dumps(tried)

    alone = toolgate("replay", "--against", f"policy={new}", "--since", "30m", "--alone")
    assert {one["tool"]: one["change"] for one in alone["calls"]} == {
        "search": "reroute",  # the LLM's own choice: nobody routes
        "write": "allow",
        "fast": "veto",
    }
    assert alone["notes"] == []

    router = toolgate("replay", "--against", f"router={routes}", "--since", "30m", "--fail-on", "any")
    assert router["totals"]["differences"] == 0

    code = 1
    failing = toolgate(
        "replay", "--against", f"policy={new}", "--since", "30m", "--fail-on", "veto", code=code
    )
    assert failing["totals"]["veto"] == 2
    assert (
        toolgate("replay", "--against", f"policy={new}", "--since", "30m", "--limit", "1")["totals"]["calls"]
        == 1
    )


async def test_the_living_are_not_asked_again(
    schedulers: Any, toolgate: Toolgate, tmp_path: Path, server_url: str, namespace: str
) -> None:
    await schedulers.start("obedient:alpha")
    async with Gate.open(redis=server_url, namespace=namespace, required=["alpha"]) as gate:
        decision = await gate.decide(Call("search", {}, TOOLS))
    assert decision.verdicts[0].verdict == Continue()
    (tmp_path / "deny.yaml").write_text("default: deny\n")
    tried = toolgate("replay", "--against", f"policy={tmp_path / 'deny.yaml'}", "--since", "5m")
    assert tried["totals"]["veto"] == 1
    assert len(schedulers.lines("asked", scheduler="alpha")) == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--since", "1h"], "--since needs something to compare with: --against"),
        ([], "name a FILE.jsonl"),
        (["--against", "policy=p.yaml"], "--since 1h"),
        ([OWN, "--against", "policy=p.yaml", "--since", "1h"], "instead of a file"),
        (["--against", "policy=p.yaml", "--since", "soon"], "--since soon: must be a length of time"),
        (["--against", "policy=p.yaml", "--since", "1h", "--with", "policy=p.yaml"], "--with needs a FILE"),
        (["--against", "policy=nowhere.yaml", "--since", "1h"], "--against policy=nowhere.yaml: there is no"),
        ([OWN, "--against", "policy=wrong.yaml"], "rulez: unknown key"),
        (
            [OWN, "--against", "policy=p.yaml", "--fail-on", "vetos"],
            "must be veto, reroute, ask, hold, allow",
        ),
        ([OWN, "--fail-on", "veto"], "--fail-on needs something to compare with"),
        ([OWN, "--against", "policy=p.yaml", "--alone"], "--alone needs --since"),
        (["--against", "policy=p.yaml", "--since", "1h", "--tool", "x"], "--tool needs a FILE"),
    ],
)
def test_a_wrong_call_ends_with_2_and_says_what_to_do(
    process: Callable[..., Any], server_url: str, tmp_path: Path, words: list[Any], complaint: str
) -> None:
    (tmp_path / "p.yaml").write_text("default: allow\n")
    (tmp_path / "wrong.yaml").write_text("rulez: []\n")
    running = process("toolgate", "replay", *words, env={"TOOLGATE_REDIS_URL": server_url}, cwd=tmp_path)
    assert running.wait(60) == 2
    assert complaint in " ".join(running.stderr.split())
    assert running.stdout == ""


@pytest.mark.parametrize("file", [OWN])
def test_a_person_is_shown_tables_and_what_is_different(
    process: Callable[..., Any], configs: dict[str, Path], server_url: str, file: Path
) -> None:
    set_ = [word for name in ("policy", "router") for word in ("--against", f"{name}={configs[name]}")]
    running = process("toolgate", "replay", file, *set_, env={"TOOLGATE_REDIS_URL": server_url})
    assert running.wait(60) == 0, running.stderr
    for words in (
        "before: no scheduler",
        "after:  --against: policy, router",
        "By tool",
        "makes the difference",
    ):
        assert words in running.stdout
    assert "runs → vetoed by policy (closed for stocktaking" in running.stdout
    assert "2 asked about" in running.stdout
    assert "ran and would not any more" in running.stdout
    assert "Replayed 13 of 13 runs" in running.stderr
