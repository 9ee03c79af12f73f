"""The peers of `toolgate bench`: the same work as Toolgate's, and what is said where one is missing."""

import importlib.util
import re

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_bus.installation import how_to_install
from toolgate_bus.protocol.packing import pack
from toolgate_orchestrator.commands.bench.mix import Mix, find_fault, name_schedulers
from toolgate_orchestrator.commands.bench.peer_rules import answer, decide, read_verdict
from toolgate_orchestrator.commands.bench.peers import choose

pytestmark = pytest.mark.pure

NAMES = name_schedulers(3)


async def _ask(question: bytes, schedulers: list[str]) -> list[tuple[str, bytes]]:
    return [(name, answer(name, question)) for name in schedulers]


@pytest.mark.parametrize("count", [1, 3, 8])
async def test_a_peer_comes_to_what_is_expected(count: int) -> None:
    names = name_schedulers(count)
    for call in Mix(names).take(64):
        assert find_fault(call, await decide(_ask, names, call)) is None


async def test_a_replacement_is_verified_by_all_but_its_author() -> None:
    asked = []

    async def ask(question: bytes, schedulers: list[str]) -> list[tuple[str, bytes]]:
        asked.append(list(schedulers))
        return await _ask(question, schedulers)

    call = next(call for call in Mix(NAMES).take(8) if call.expected.outcome == "modify")
    await decide(ask, NAMES, call)
    assert asked == [NAMES, [name for name in NAMES if name != call.tool_input["by"]]]


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


@pytest.fixture(name="nothing_installed")
def _nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)


@pytest.mark.usefixtures("nothing_installed")
def test_peers_that_are_not_installed_are_left_out_and_it_is_said_how_to_get_them() -> None:
    peers, line = choose(None)
    assert peers == {}
    assert line is not None
    for words in ("nats is left out: no nats-py", "webhook is left out: no aiohttp", how_to_install("bench")):
        assert words in line


@pytest.mark.usefixtures("nothing_installed")
def test_a_peer_that_is_asked_for_has_to_be_installed() -> None:
    command = re.escape(how_to_install("bench"))
    with pytest.raises(ConfigError, match=f"--peers webhook: aiohttp is not installed. Run: {command}"):
        choose("webhook")
    assert choose("none") == ({}, None)
