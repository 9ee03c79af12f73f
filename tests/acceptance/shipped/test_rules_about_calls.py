"""Which calls a rule is about: each condition by itself, in each scheduler whose rules have conditions."""

from typing import Any

import pytest
import yaml
from rules_about_calls import ROWS
from toolgate_bus.protocol.events import AskUser
from toolgate_orchestrator.gate.gate import Gate

pytestmark = pytest.mark.acceptance


@pytest.fixture
def ruled_by(schedulers: Any, tmp_path: Any) -> Any:
    """`async with await ruled_by("router", config) as gate`: it lives, and has to answer."""

    async def start(scheduler: str, config: dict[str, Any], **more: Any) -> Any:
        file = tmp_path / "config.yaml"
        file.write_text(yaml.safe_dump(config))
        await schedulers.start(scheduler, "--config", file)
        where = {"redis": schedulers.url, "namespace": schedulers.namespace}
        return Gate.open(**where, required=[scheduler], patience_ms=20_000, **more)

    return start


async def test_a_route_is_about_the_calls_that_all_its_conditions_fit(ruled_by: Any) -> None:
    routes = [{"name": f"by {row.option}", "from": row.option, "to": "other", **row.rule} for row in ROWS]
    async with await ruled_by("router", {"routes": routes}) as gate:
        for row in ROWS:
            tools = [row.option, "other"]
            fits = await gate.decide(row.option, available_tools=tools, **{"tool_input": {}, **row.fits})
            other = await gate.decide(row.option, available_tools=tools, **{"tool_input": {}, **row.other})
            assert (fits.tool_name, other.tool_name) == ("other", row.option), row.option


async def test_an_approval_rule_is_about_the_calls_that_all_its_conditions_fit(ruled_by: Any) -> None:
    rules = [
        {"name": f"by {row.option}", "tools": row.option, "via": "ask_user", "prompt": row.option, **row.rule}
        for row in ROWS
    ]
    rules.append({"name": "by nothing", "tools": "named", "via": "ask_user"})
    asked: list[str] = []

    async def person(question: AskUser, _call: Any) -> str:
        asked.append(question.prompt)
        return "allow"

    async with await ruled_by("approval", {"rules": rules}, ask=person) as gate:
        for row in ROWS:
            for call, prompts in ((row.fits, [row.option]), (row.other, [])):
                asked.clear()
                decision = await gate.decide(row.option, available_tools=[], **{"tool_input": {}, **call})
                assert (decision.outcome, asked) == ("continue", prompts), row.option
        await gate.decide("named", {}, ["named"])
        assert "by nothing" in asked[-1]


async def test_a_pool_is_about_the_calls_that_all_its_conditions_fit(ruled_by: Any) -> None:
    pools = [{"name": f"by_{n}", "tools": row.option, "wait_s": 0, **row.rule} for n, row in enumerate(ROWS)]
    async with await ruled_by("slots", {"pools": pools}) as gate:
        for row in ROWS:
            for call, outcomes in ((row.fits, ["continue", "deny"]), (row.other, ["continue", "continue"])):
                asked = {"tool_input": {}, "available_tools": [], **call}
                told = [(await gate.decide(row.option, **asked)).outcome for _ in outcomes]
                assert told == outcomes, row.option
