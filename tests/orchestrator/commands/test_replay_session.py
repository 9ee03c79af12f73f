"""A recorded run through a real session, and a check that would notice if the loop went wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from amplifier_core import AmplifierSession
from amplifier_core.testing import MockCoordinator
from toolgate_bus.errors import ConfigError
from toolgate_bus.facts.recorded_message import RecordedRun
from toolgate_bus.facts.recording import RunArchive, arguments_key, read_run
from toolgate_bus.facts.recording_file import load
from toolgate_bus.protocol.events import Continue, Decision, ReceivedVerdict
from toolgate_orchestrator.commands.host.rulings import Rulings
from toolgate_orchestrator.commands.replay import provider_replay, tool_replay
from toolgate_orchestrator.commands.replay.playback import Playback
from toolgate_orchestrator.commands.replay.provider_replay import tool_results
from toolgate_orchestrator.commands.replay.report import milliseconds, report_on
from toolgate_orchestrator.commands.replay.session import (
    ReplayedRun,
    ReplayOptions,
    call_faults,
    check_loop,
    collect_calls,
    replay_run,
)
from toolgate_orchestrator.commands.replay.with_schedulers import specs_of, targets_of
from toolgate_orchestrator.decision.results.given_result import GivenResult, withhold

OWN = Path(__file__).parents[2] / "data" / "runs.jsonl"


@pytest.fixture(name="options")
def _options(server_url: str, namespace: str) -> ReplayOptions:
    return ReplayOptions(toolgate={"redis": server_url, "namespace": namespace})


async def test_every_own_run_goes_through_the_real_loop_without_a_fault(options: ReplayOptions) -> None:
    recording = load(OWN)
    runs = [await replay_run(recording, run, options) for run in recording.runs]
    assert [fault for run in runs for fault in run.faults] == []
    for run in runs:
        for one in run.calls:
            assert (one.outcome, one.ran_tool) == ("run", one.call.tool)
            assert one.ran_arguments is not None
            assert arguments_key(one.ran_arguments) == arguments_key(one.call.arguments)


async def test_the_context_holds_the_whole_conversation_as_recorded(server_url: str, namespace: str) -> None:
    loop = {"module": "loop-events", "config": {"toolgate": {"redis": server_url, "namespace": namespace}}}
    config = {"file": str(OWN), "run": 2}
    plan = {
        "session": {"orchestrator": loop, "context": "context-simple"},
        "providers": [{"module": "provider-replay", "config": config}],
        "tools": [{"module": "tool-replay", "config": config}],
    }
    async with AmplifierSession(plan, session_id="replay-by-plan") as session:
        assert await session.execute("Water the roses and the beans.") == ""
        messages = await session.coordinator.get("context").get_messages()
    assert [message["role"] for message in messages] == [
        "user",
        *("assistant", "tool") * 3,
        "assistant",
    ]
    assert [text for _, text in tool_results(messages)] == ["watered", "watered, tank is low", "gone"]


async def test_system_messages_and_earlier_prompts_are_in_the_first_request(
    options: ReplayOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[tuple[str, Any]]] = []
    complete = provider_replay.ReplayProvider.complete

    async def watched(self: Any, request: Any, **kwargs: Any) -> Any:
        seen.append([(message.role, message.content) for message in request.messages])
        return await complete(self, request, **kwargs)

    monkeypatch.setattr(provider_replay.ReplayProvider, "complete", watched)
    recording = load(OWN)
    await replay_run(recording, recording.runs[3], options)
    assert seen[0] == [
        ("system", "You look after a garden."),
        ("system", "Answer in Japanese."),
        ("user", "こんにちは"),
        ("user", "天気は？[image_url]"),
    ]


@pytest.mark.parametrize("module", [provider_replay, tool_replay])
@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({}, "name the JSON Lines file"),
        ({"file": str(OWN), "run": 99}, "holds 13 runs"),
        ({"file": str(OWN), "run": 0}, "run: "),
        ({"path": str(OWN)}, "path: "),
    ],
)
async def test_a_wrong_module_config_is_refused_by_name(
    module: Any, config: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        await module.mount(MockCoordinator(), config)


def test_a_loop_that_is_not_installed_is_refused_with_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"there are: .*loop-events"):
        check_loop("loop-nowhere")


# What follows breaks things on purpose: each fault must be noticed.


def told_so(playback: Playback) -> None:
    playback.hear([("a", "A"), ("b", "B")])


def served(playback: Playback) -> None:
    playback.serve("x", {"p": 1})
    playback.serve("x", {"p": 2})


def broken_playback() -> Playback:
    def call(call_id: str, p: int) -> dict[str, Any]:
        return {"id": call_id, "function": {"name": "x", "arguments": {"p": p}}}

    traj = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call("a", 1), call("b", 2)]},
        {"role": "tool", "tool_call_id": "a", "content": "A"},
        {"role": "tool", "tool_call_id": "b", "content": "B"},
    ]
    run = read_run(1, "", RecordedRun.model_validate({"traj": traj}).traj)
    return Playback(RunArchive("", (run,)), run)


def ruled(call_id: str, decision: Decision) -> Rulings:
    rulings = Rulings()
    rulings.decisions[decision.id] = decision
    rulings._of_call[call_id] = [decision.id]
    return rulings


def faults(playback: Playback, rulings: Rulings) -> str:
    return "\n".join(call_faults(playback, collect_calls(playback, rulings)))


def decision(outcome: Any, tool: str = "x", p: int = 1, reason: str | None = None) -> Decision:
    return Decision(
        "d", outcome, "denied" if outcome == "deny" else "modified", tool, {"p": p}, "x", {"p": 1}, reason
    )


pure = pytest.mark.pure


@pure
def test_a_flawless_run_has_no_faults() -> None:
    playback = broken_playback()
    playback.say()
    served(playback)
    told_so(playback)
    assert faults(playback, Rulings()) == ""


@pure
@pytest.mark.parametrize(
    ("steps", "fault"),
    [
        ([], "call 0 (x) was never made"),
        (["say"], "has 0 results instead of one"),
        (["say", served, lambda playback: playback.hear([("b", "B"), ("a", "A")])], "out of order"),
        (
            ["say", served, lambda playback: playback.hear([("a", "A"), ("b", "B"), ("a", "A")])],
            "has 2 results",
        ),
        (["say", told_so], "did not run although nothing denied it"),
        (
            ["say", served, lambda playback: playback.hear([("a", "A"), ("b", "X")])],
            "the LLM was told another",
        ),
        (["say", lambda playback: playback.serve("x", {"p": 3}), told_so], "other arguments than decided"),
        (["say", lambda playback: playback.serve("y", {"p": 1}), told_so], "ran as y"),
    ],
)
def test_whatever_a_loop_does_wrong_is_noticed(
    steps: list[str | Callable[[Playback], Any]], fault: str
) -> None:
    playback = broken_playback()
    for step in steps:
        if callable(step):
            step(playback)
        else:
            playback.say()
    assert fault in faults(playback, Rulings())


@pure
def test_a_denied_call_that_ran_all_the_same_is_noticed() -> None:
    playback = broken_playback()
    playback.say()
    served(playback)
    playback.hear([("a", "denied: because"), ("b", "B")])
    assert "ran although it was denied" in faults(playback, ruled("a", decision("deny", reason="because")))


@pure
def test_a_denial_whose_reason_the_llm_never_hears_is_noticed() -> None:
    playback = broken_playback()
    playback.say()
    playback.begin_call("b", "x", {"p": 2})
    playback.serve("x", {"p": 2})
    playback.hear([("a", "no"), ("b", "B")])
    rulings = ruled("a", decision("deny", reason="because"))
    assert faults(playback, rulings) == "call 0 (x) was denied, and the LLM was not told why"


@pure
def test_a_replacement_that_did_not_take_effect_is_noticed() -> None:
    playback = broken_playback()
    playback.say()
    served(playback)
    told_so(playback)
    assert "other arguments than decided" in faults(playback, ruled("a", decision("modify", tool="y", p=9)))


@pure
@pytest.mark.parametrize(
    ("given", "told", "fault"),
    [
        (
            GivenResult("[withheld]", "masked", "masked", None, "pii", frozenset({"hidden A"})),
            "[withheld]",
            "",
        ),
        (
            GivenResult("[withheld]", "masked", "masked", None, "pii", frozenset({"hidden A"})),
            "a hidden A",
            "told the LLM what a scheduler had hidden",
        ),
        (withhold("denied", "not for you", "pii"), "its result is withheld: not for you", "was not told why"),
        (withhold("denied", "not for you", "pii"), withhold("denied", "not for you").value, ""),
        (GivenResult("A"), "X", "the LLM was told another"),
    ],
)
def test_what_schedulers_let_the_llm_see_of_a_result_is_no_fault_and_anything_else_is(
    given: GivenResult, told: str, fault: str
) -> None:
    playback = broken_playback()
    playback.say()
    served(playback)
    playback.hear([("a", told), ("b", "B")])
    rulings = ruled("a", decision("continue"))
    rulings.results["d"] = given
    found = faults(playback, rulings)
    assert fault in found
    assert bool(fault) == bool(found)
    first, second = collect_calls(playback, rulings)
    assert (first.given, second.given) == (given, None)
    run = ReplayedRun(playback.run, (first, second), (), True, "")
    totals = report_on("", "", 1.0, [run], {}).totals
    assert totals["results_ruled"] == 1
    assert totals["results_withheld"] == (given.outcome == "withheld")


@pure
def test_late_verdicts_are_told_from_those_nobody_waited_for() -> None:
    playback = broken_playback()
    playback.say()
    served(playback)
    told_so(playback)
    missed = Decision("d", "continue", "failed_open", "x", {"p": 1}, "x", {"p": 1}, silent=("slow", "gone"))
    rulings = ruled("a", missed)
    rulings.late["d"] = [
        ReceivedVerdict("slow", Continue(), 0, late=True),
        ReceivedVerdict("unneeded", Continue(), 0, late=True),
    ]
    first, _ = collect_calls(playback, rulings)
    assert first.late == {"slow"}
    assert [heard.scheduler for heard in first.all_verdicts] == ["slow", "unneeded"]


@pure
def test_quantiles_are_nearest_ranks_in_milliseconds() -> None:
    assert milliseconds([], 0.5) is None
    assert milliseconds([0.003, 0.001, 0.002], 0.5) == 2.0
    assert milliseconds([n / 1000 for n in range(1, 201)], 0.99) == 198.0


@pure
def test_a_report_of_nothing_is_all_zeros() -> None:
    report = report_on("f", "loop-events", 0.0, [], {})
    assert set(report.totals.values()) == {0}
    assert report.by_tool == report.by_scheduler == report.calls == []


@pure
def test_targets_are_what_configs_name_anywhere(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("routes: &r [{from: a, to: b}, {to: [c, d]}]\nagain: *r\ndeep: {target: e, to: 3}\n")
    assert targets_of(specs_of([f"router={config}", "policy"])) == ("b", "c", "d", "e")


@pure
@pytest.mark.parametrize("option", ["", "=x.yaml", "policy=", "policy=/no/such/file"])
def test_a_with_option_that_names_nothing_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match="--with"):
        specs_of([option])


async def test_arguments_too_deep_large_or_odd_for_any_wire_run_exactly_as_recorded(
    options: ReplayOptions,
) -> None:
    deep: dict[str, Any] = {}
    for _ in range(80):
        deep = {"deeper": deep}
    odd = [{"n": 2**70}, {"n": -(2**63)}, {"n": 1e308}, deep, {"s": "x" * 300_000}, {"": 1}, {"tool": "y"}]
    calls = [{"id": "c", "function": {"name": "x", "arguments": arguments}} for arguments in odd]
    traj = [{"role": "user", "content": "go"}, {"role": "assistant", "content": None, "tool_calls": calls}]
    run = read_run(1, "", RecordedRun.model_validate({"traj": traj}).traj)
    replayed = await replay_run(RunArchive("", (run,)), run, options)
    assert replayed.faults == ()
    assert [one.ran_arguments for one in replayed.calls] == odd
