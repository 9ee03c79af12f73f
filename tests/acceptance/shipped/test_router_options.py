"""`router` as a process of its own, with replicas, by what a gate decides."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml
from questions import decide
from toolgate_bus.protocol.events import Decision
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance

HALVES = [{"to": "one"}, {"to": "two"}]
STICKY = ("session", "tree", "agent", "label:team")
ROUTES: dict[str, dict[str, Any]] = {
    # by the tool that it begins at: the route
    "plain": {"to": "one", "name": "first of all"},
    "mapped": {"to": "one", "arguments": {"q": "$.query", "limit": {"value": 5}}, "reason": "cheaper"},
    "delegate": {"to": "delegate", "agent": "cheap", "agent_targets": "dear"},
    "about": {
        "to": "one",
        "when": {"a": {"gt": 1}},
        "schema": {"maxProperties": 1},
        "agents": "a*",
        "labels": {"team": "ops"},
        "sessions": "s1",
    },
    "weighed": {
        "name": "canary",
        "targets": [
            {"to": "one", "weight": 9},
            {"to": "two", "arguments": {"q": {"value": 1}}},
            {"to": "delegate", "agent": "cheap", "weight": 0},
        ],
    },
    "to_an_agent": {"targets": [{"to": "delegate", "agent": "cheap"}]},
    **{f"by_{sticky}": {"targets": HALVES, "sticky": sticky} for sticky in ("decision", *STICKY)},
}
TOOLS = ["one", "two", "three", "spare", "delegate", "other"]


@pytest.fixture
def routed(schedulers: Any, tmp_path: Any) -> Callable[..., Any]:
    """`async with routed(routes, replicas=2) as gate`: a router that lives, a gate that waits for it."""

    @asynccontextmanager
    async def start(routes: dict[str, dict[str, Any]], replicas: int = 1) -> AsyncIterator[Gate]:
        file = tmp_path / "router.yaml"
        file.write_text(yaml.safe_dump({"routes": [{"from": tool, **one} for tool, one in routes.items()]}))
        await schedulers.start("router", "--config", file, replicas=replicas)
        async with Gate.open(
            redis=schedulers.url, namespace=schedulers.namespace, required=["router"], patience_ms=20_000
        ) as gate:
            yield gate

    return start


async def decided(gate: Gate, tool: str, arguments: Any = None, **call: Any) -> Decision:
    return await decide(gate, tool, arguments or {}, [tool, *TOOLS], **call)


async def goes_to(gate: Gate, tool: str, **call: Any) -> str:
    """The tool that would run."""
    return (await decided(gate, tool, **call)).tool_name


async def test_every_option_of_a_route_holds_in_every_replica(routed: Callable[..., Any]) -> None:
    async with routed(ROUTES, replicas=2) as gate:
        plain = await decided(gate, "plain", {"a": 1})
        assert (plain.tool_name, plain.tool_input) == ("one", {"a": 1})
        assert plain.reason == "routed from plain to one (first of all)"
        assert await goes_to(gate, "unrouted") == "unrouted"

        mapped = await decided(gate, "mapped", {"query": "x", "more": 1})
        assert (mapped.tool_input, mapped.reason) == ({"q": "x", "limit": 5}, "cheaper")

        agents = {"available_agents": ["cheap", "dear"]}
        delegated = await decided(gate, "delegate", agent_target="dear", **agents)
        assert (delegated.outcome, delegated.agent_target) == ("modify", "cheap")
        assert (await decided(gate, "delegate", agent_target="other", **agents)).outcome == "continue"
        to_an_agent = await decided(gate, "to_an_agent", **agents)
        assert (to_an_agent.tool_name, to_an_agent.agent_target) == ("delegate", "cheap")

        about = {"arguments": {"a": 2}, "agent": "a1", "labels": {"team": "ops"}, "session": "s1"}
        assert (await decided(gate, "about", **about)).tool_name == "one"
        others = ({"a": 1}, {"a": 2, "b": 1})
        for other in (
            *({"arguments": arguments} for arguments in others),
            *({"agent": "b"}, {"labels": {"team": "dev"}}, {"session": "s2"}),
        ):
            assert (await decided(gate, "about", **{**about, **other})).tool_name == "about", other

        weighed = await asyncio.gather(*(decided(gate, "weighed", **agents) for _ in range(300)))
        assert {(one.tool_name, bool(one.tool_input)) for one in weighed} == {("one", False), ("two", True)}
        # A tenth of 300 is expected; five is as unlikely as seventy.
        assert 4 < sum(one.tool_name == "two" for one in weighed) < 72

        for sticky in STICKY:
            for number in range(3):
                went = await asyncio.gather(
                    *(goes_to(gate, f"by_{sticky}", **stuck(number)) for _ in range(10))
                )
                assert len(set(went)) == 1, sticky
            went = await asyncio.gather(*(goes_to(gate, f"by_{sticky}", **stuck(n)) for n in range(40)))
            assert set(went) == {"one", "two"}, sticky
        went = await asyncio.gather(*(goes_to(gate, "by_decision", **stuck(0)) for _ in range(40)))
        assert set(went) == {"one", "two"}


def stuck(number: int) -> dict[str, Any]:
    """A call of the session, tree, agent and team with this number."""
    own = f"n{number}"
    return {"session": own, "root_session": own, "agent": own, "labels": {"team": own}}
