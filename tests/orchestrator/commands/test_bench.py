"""`toolgate bench`: its calls, its ratios, its peers, and that a wrong decision is seen."""

import importlib.util
import re

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_bus.installation import how_to_install
from toolgate_bus.protocol.packing import pack
from toolgate_orchestrator.commands.bench.measure import (
    Contender,
    Sample,
    WrongVerdictError,
    figures_of,
    median_interval,
)
from toolgate_orchestrator.commands.bench.mix import (
    SIZES,
    Answer,
    Mix,
    MixedCall,
    find_fault,
    name_schedulers,
)
from toolgate_orchestrator.commands.bench.peers import answer, choose, decide, encode, read_verdict

pytestmark = pytest.mark.pure

NAMES = name_schedulers(3)


def first(outcome: str) -> MixedCall:
    """The first call that has to come out so."""
    return next(call for call in Mix(NAMES).take(64) if call.expected.outcome == outcome)


def test_each_16th_call_is_denied_each_8th_replaced_and_no_two_are_alike() -> None:
    mix = Mix(NAMES)
    calls = [*mix.take(100), *mix.take(60)]
    outcomes = [call.expected.outcome for call in calls]
    assert (outcomes.count("deny"), outcomes.count("modify")) == (10, 20)
    assert len({repr(call.tool_input) for call in calls}) == len(calls)
    assert {call.tool_input["by"] for call in calls} == {"", *NAMES}


@pytest.mark.parametrize("size", SIZES)
def test_a_question_is_of_the_size_that_it_is_called_by(size: str) -> None:
    calls = Mix(NAMES).take(50, size)
    lengths = [len(encode(call, "select", call.tool_name, call.tool_input)) for call in calls]
    assert all(abs(length - SIZES[size]) < 32 for length in lengths)


@pytest.mark.parametrize(
    ("outcome", "change"),
    [
        ("continue", {"outcome": "deny"}),
        ("continue", {"tool_name": "another"}),
        ("continue", {"heard": 2}),
        ("modify", {"tool_input": {}}),
        ("modify", {"heard": 3}),
        ("deny", {"outcome": "continue"}),
        ("deny", {"reason": "another"}),
    ],
)
def test_an_answer_that_is_wrong_in_anything_is_a_fault(outcome: str, change: dict[str, object]) -> None:
    call = first(outcome)
    assert find_fault(call, call.expected) is None
    assert f"call {call.number} " in (find_fault(call, call.expected._replace(**change)) or "")


async def test_the_first_wrong_decision_ends_a_block_and_is_named() -> None:
    async def decide_all_alike(call: MixedCall) -> Answer:
        return Answer("continue", call.tool_name, call.tool_input, None, len(NAMES))

    side = Contender("toolgate", decide_all_alike, {}, Mix(NAMES))
    with pytest.raises(WrongVerdictError, match=r"toolgate decided wrongly: call 4 .*modify expected"):
        await side.run_block(32, 4)


def block(median_us: float, rate: float) -> Sample:
    """A block of four decisions."""
    return Sample([median_us / 1e6] * 4, 4 / rate, {"gate": 3e-5, "server": 1e-5})


def test_a_ratio_is_the_median_of_the_blocks_so_that_a_slow_moment_counts_for_both_sides() -> None:
    floor = [block(100, 10_000), block(1000, 1000), block(100, 10_000)]  # the machine was slow once
    ours = [block(200, 4000), block(2000, 400), block(250, 5000)]
    sides = figures_of({"floor": floor, "toolgate": ours}, "floor")
    assert sides["toolgate"]["ratio"] == {"median": 2.0, "rate": 0.4, "cpu": 1.0}
    assert sides["toolgate"]["interval"]["median"] == [2.0, 2.5]
    assert sides["toolgate"]["cpu_by_kind_us"] == {"gate": 7.5, "server": 2.5}
    assert "ratio" not in sides["floor"]


def test_the_interval_of_a_median_leaves_out_the_ends_once_there_are_enough_values() -> None:
    assert median_interval([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    assert median_interval([float(n) for n in range(1, 21)]) == (
        10.5,
        6.0,
        15.0,
    )  # as in tables of the sign test


@pytest.mark.parametrize("count", [1, 3, 8])
async def test_a_peer_comes_to_what_is_expected_and_verifies_with_all_but_the_author(count: int) -> None:
    names = name_schedulers(count)
    asked: list[list[str]] = []

    async def ask(question: bytes, schedulers: list[str]) -> list[tuple[str, bytes]]:
        asked.append(list(schedulers))
        return [(name, answer(name, question)) for name in schedulers]

    for call in Mix(names).take(64):
        asked.clear()
        assert find_fault(call, await decide(ask, names, call)) is None
        others = [name for name in names if name != call.tool_input["by"]]
        verified = call.expected.outcome == "modify" and others
        assert asked == ([names, others] if verified else [names])


@pytest.mark.parametrize(
    "raw",
    [b"", b"\xc1", pack([]), pack({"action": "maybe"}), pack({"action": "deny", "reason": 1})]
    + [
        pack({"action": "modify", "tool": tool, "arguments": given})
        for tool, given in (("rm", {}), ("think", 1))
    ],
)
def test_what_is_no_verdict_denies(raw: bytes) -> None:
    assert read_verdict("bench-1", raw).action == "deny"


def test_peers_that_are_not_installed_are_left_out_unless_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    peers, line = choose(None)
    assert (peers, choose("none")) == ({}, ({}, None))
    for words in (
        "nats is left out: nats-py is not",
        "webhook is left out: aiohttp is not",
        how_to_install("bench"),
    ):
        assert words in (line or "")
    command = re.escape(how_to_install("bench"))
    with pytest.raises(ConfigError, match=f"--peers webhook: aiohttp is not installed. Run: {command}"):
        choose("webhook")
    with pytest.raises(ConfigError, match=r"unknown peer 'kafka'\. Choose from nats, webhook, or none"):
        choose("nats,kafka")
