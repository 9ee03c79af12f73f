"""What `redact` names reaches the tools, and is found nowhere else.

Everything is switched on: schedulers of all kinds, one of which tells all it sees, a shadow, the exporter,
the archiver, the console, webhooks, traces, logs at DEBUG. Then all that any of them wrote is searched.
"""

import json
import logging
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from secrets_planted import REDACT, Planted
from secrets_world import SCHEDULERS, World
from toolgate_bus.server.guard import ServerProcess
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate
from trace_collector import Collected, collector

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(400)]

HOLD_ARGUMENTS = (
    *("MONITOR", "AOF", "RDB", "keys", "archive", "export", "console: decisions"),
    *("decisions as JSON: stdout", "gossip:gossip: stderr", "gossip:onlooker: stderr"),
)
"""Where arguments stand, and would stand in clear."""
READ = {
    **dict.fromkeys(HOLD_ARGUMENTS, b"vault"),
    **dict.fromkeys(("console: live", "traces", "metrics of exporter", "decisions: stdout"), b"vault"),
    "agent: stderr": b"vault_fails",
    "agent: stdout": b"done",
    "webhooks": b"transfer of ",
}
"""What stands in a place if it was read at all."""


@pytest.fixture
def collected() -> Iterator[Collected]:
    with collector() as collected:
        yield collected


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A key for each scheduler."""
    file = tmp_path / "keys.yaml"
    names = [spec.rpartition(":")[2] for spec in SCHEDULERS]
    file.write_text(yaml.safe_dump({name: secrets.token_hex(32) for name in names}))
    return file


async def lived(world: World, wait_until: Any, **gate: Any) -> World:
    """A day in the life of a fleet, and all that it wrote."""
    await world.start(wait_until)
    with world.monitor(), world.page() as page:
        await world.run(wait_until)
        await from_a_program(world, gate)
        last = re.compile(rb'"tool": ?"a_program"')
        await wait_until(lambda: last.search(page), timeout=30)
        # Who reads facts finds a new writer within two seconds, each by itself.
        await wait_until(lambda: b"a_program" in world.read_archive(), timeout=30)
        await world.gather()
    return world


async def from_a_program(world: World, config: dict[str, Any]) -> None:
    """A program that has a gate, and a loop of its own, tells its facts without care."""
    arguments, plant = world.planted.usual("of a program"), world.planted
    async with Gate.open(redis=world.server.url, required=["gossip"], patience_ms=30_000, **config) as gate:
        decision = await gate.decide(Call("a_program", arguments, ["a_program"], Caller("its own")))
        assert decision.why == "agreed"
        assert decision.tool_input == arguments
        told = {
            "error": f"not with {plant.key('a fact')}",
            "result": {"password": plant.word("a result kept")},
        }
        gate.note("tool:post", {"decision_id": decision.id, "tool": "a_program", **told})


def kept(world: World) -> dict[str, list[Any]]:
    """What the tools were given."""
    found: dict[str, list[Any]] = {}
    for line in world.kept.read_text().splitlines():
        name, arguments = json.loads(line)
        found.setdefault(name, []).append(arguments)
    return found


async def test_secrets_reach_the_tools_and_are_found_nowhere_else(
    process: Any,
    own_durable_server: ServerProcess,
    tmp_path: Path,
    collected: Collected,
    keys: Path,
    wait_until: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    planted = Planted()
    with caplog.at_level(logging.DEBUG):
        world = World(process, own_durable_server, tmp_path, collected, planted, redact=REDACT, keys=keys)
        await lived(world, wait_until, redact=REDACT, keys=keys)
    world.written["logs of the program"] = caplog.text.encode()
    for number, key in enumerate(yaml.safe_load(keys.read_text()).values()):
        planted.by_name[f"signing key {number}"] = key
    planted.by_name["console's token"] = world.said("console")["url"].partition("token=")[2]
    del world.written["console: stdout"]  # it is there to tell the token

    for place, name in READ.items():
        assert name in world.written[place], f"{place} was not read"
    found = {place: planted.found_in(content) for place, content in world.written.items()}
    # What a hook in the agent's process says is told to whoever sits at its terminal, as it was said.
    assert found.pop("agent: stderr") == {"denied by a hook: named", "denied by a hook: in a text"}
    assert {place: names for place, names in found.items() if names} == {}
    assert len(planted.by_name) > 50

    session = b"".join(one.read_bytes() for one in world.sessions.iterdir())
    assert "in a long text" in planted.found_in(session), "hooks-logging hides fields of its own, no patterns"

    told = world.logged("gossip:gossip")
    assert "in tells" in next(line["exception"] for line in told if "exception" in line)
    asked = [line for line in told if line["logger"].startswith("gossip.")]
    assert len(asked) > 30
    assert all(line.keys() >= {"decision", "trace_id", "span_id"} for line in asked)
    ran = [line for line in world.logged("agent") if "vault" in line["logger"] or "failed" in line["event"]]
    assert len(ran) > 5
    assert all(line.keys() >= {"decision", "session", "trace_id", "span_id"} for line in ran)

    given = kept(world)
    assert planted.found_in(json.dumps(given, ensure_ascii=False).encode()) >= {"an argument", "nested"}
    (everywhere,) = [one for one in given["vault"] if one["label"] == "everywhere"]
    assert everywhere == world.arguments("vault")
    for tool in ("transfer", "cheap", "limited", "vault_fails"):
        sent = world.arguments("pricey" if tool == "cheap" else tool)
        assert given[tool] == [sent]
    sent = world.arguments("route_me")
    assert given["vault_b"] == [{"pw": sent["password"], "link": sent["text"]}]
    assert [one["label"] for one in given["vault"]] == ["everywhere", "of a child"]
    assert len(given["again"]) == 2
    assert not given.keys() & {"forbidden", "gossip_denies", "gossip_raises", "hook_denies"}


async def test_without_redact_the_same_search_finds_them_everywhere(
    process: Any, own_durable_server: ServerProcess, tmp_path: Path, collected: Collected, wait_until: Any
) -> None:
    planted = Planted()
    world = World(process, own_durable_server, tmp_path, collected, planted, redact={}, keys=None)
    await lived(world, wait_until)
    never_asked = ("a result", "a result kept", "a fact", "what the LLM says", "of a provider")
    asked = planted.by_name.keys() - {*never_asked}
    in_logs = asked - {"in a long text"}  # what stands in the middle of a long value is cut
    for place in HOLD_ARGUMENTS:
        expected = in_logs if place.endswith("stderr") else asked
        assert expected - planted.found_in(world.written[place]) == set(), place
    assert planted.found_in(world.written["console: live"])
    for place, content in world.written.items():
        if place.startswith("metrics") or place in ("traces", "webhooks"):
            assert planted.found_in(content) == set(), f"{place} holds arguments"
