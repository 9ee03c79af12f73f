"""Which calls a rule is about: each condition by itself, in each scheduler whose rules have conditions."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pytest
from toolgate_schedulers.shipped.approval.scheduler import ApprovalScheduler
from toolgate_schedulers.shipped.policy.scheduler import Policy
from toolgate_schedulers.shipped.rate_limit import RateLimit
from toolgate_schedulers.shipped.router.router import Router
from toolgate_schedulers.shipped.slots.scheduler import Slots
from toolgate_schedulers.testing import Trial, trial

pytestmark = pytest.mark.pure


class Row(NamedTuple):
    """A condition, in a rule about the tool that is called like it."""

    option: str
    rule: dict[str, Any]
    fits: dict[str, Any]
    other: dict[str, Any]


def given(**arguments: Any) -> dict[str, Any]:
    return {"tool_input": arguments}


ROWS: Final = (
    Row("equals", {"when": {"a": {"equals": 1}}}, given(a=1.0), given(a=2)),
    Row("in", {"when": {"a": {"in": ["x", 2]}}}, given(a=2), given(a="3")),
    Row("glob", {"when": {"a.b": {"glob": "x*"}}}, given(a={"b": "xy"}), given(a={"b": "y"})),
    Row("matches", {"when": {"a": {"matches": r"rm\s"}}}, given(a="sudo rm -r"), given(a="arm")),
    Row("gt", {"when": {"a": {"gt": 10}}}, given(a="10.5"), given(a=10)),
    Row("gte", {"when": {"a": {"gte": 10}}}, given(a=10), given(a=9)),
    Row("lt", {"when": {"a": {"lt": 10}}}, given(a=-1), given(a=10)),
    Row("lte", {"when": {"a": {"lte": 10}}}, given(a=10), given(a=11)),
    Row("under", {"when": {"a": {"under": "/srv"}}}, given(a="/srv/x"), given(a="/srv/../x")),
    Row("base", {"when": {"a": {"under": "/srv", "base": "/srv"}}}, given(a="x"), given(a="../x")),
    Row("exists", {"when": {"a": {"exists": False}}}, given(b=1), given(a=None)),
    Row("when", {"when": {"a": "x*", "b": 1}}, given(a="xy", b=1), given(a="xy", b=2)),
    Row(
        "schema",
        {"schema": {"properties": {"a": {"type": "array", "minItems": 2}}, "required": ["a"]}},
        given(a=[1, 2]),
        given(a=[1]),
    ),
    Row("agents", {"agents": ["intern-*", "temp"]}, {"agent": "intern-7"}, {"agent": "boss"}),
    Row("labels", {"labels": {"team": "ops-*"}}, {"labels": {"team": "ops-1"}}, {"labels": {"tem": "ops-1"}}),
    Row("sessions", {"sessions": "s7"}, {"session": "s8", "root_session": "s7"}, {"session": "s9"}),
    Row("agent_targets", {"agent_targets": "root*"}, {"agent_target": "root"}, {"agent_target": "leaf"}),
)


async def verdict(here: Trial, tool: str, call: Mapping[str, Any], **more: Any) -> Any:
    """Ask about a call of a row."""
    who = {key: value for key, value in call.items() if key != "tool_input"}
    return await here.ask(tool, call.get("tool_input"), **who, **more)


async def test_a_policy_rule_is_about_the_calls_that_all_its_conditions_fit() -> None:
    rules = [{"name": f"by {row.option}", "tools": row.option, "action": "deny", **row.rule} for row in ROWS]
    async with trial(Policy, config={"rules": rules, "default": "ask"}) as here:
        for row in ROWS:
            fits = await verdict(here, row.option, row.fits)
            other = await verdict(here, row.option, row.other)
            told = (fits.action, fits.reason, other.action)
            assert told == ("deny", f"{row.option} is not allowed (by {row.option})", "ask_user")


async def test_a_route_is_about_the_calls_that_all_its_conditions_fit() -> None:
    routes = [{"name": f"by {row.option}", "from": row.option, "to": "other", **row.rule} for row in ROWS]
    async with trial(Router, config={"routes": routes}) as here:
        for row in ROWS:
            tools = {"available_tools": (row.option, "other")}
            fits = await verdict(here, row.option, row.fits, **tools)
            other = await verdict(here, row.option, row.other, **tools)
            assert (fits.action, other.action) == ("modify", "continue"), row.option
            assert f"(by {row.option})" in fits.reason


async def test_an_approval_rule_is_about_the_calls_that_all_its_conditions_fit() -> None:
    rules = [
        {"name": f"by {row.option}", "tools": row.option, "via": "ask_user", "prompt": row.option, **row.rule}
        for row in ROWS
    ]
    rules.append({"name": "by nothing", "tools": "named", "via": "ask_user"})
    async with trial(ApprovalScheduler, config={"rules": rules}) as here:
        for row in ROWS:
            fits = await verdict(here, row.option, row.fits)
            other = await verdict(here, row.option, row.other)
            assert (fits.prompt, other.action) == (row.option, "continue")
        assert "by nothing" in (await verdict(here, "named", {})).prompt


async def test_a_pool_is_about_the_calls_that_all_its_conditions_fit() -> None:
    pools = [{"name": f"by_{n}", "tools": row.option, "wait_s": 0, **row.rule} for n, row in enumerate(ROWS)]
    async with trial(Slots, config={"pools": pools}) as here:
        for row in ROWS:
            for call, actions in ((row.fits, ["continue", "deny"]), (row.other, ["continue", "continue"])):
                told = [(await verdict(here, row.option, call, phase="admit")).action for _ in actions]
                assert told == actions, row.option


async def test_a_limit_is_about_the_calls_that_all_its_conditions_fit() -> None:
    limits = [
        {"name": f"by {row.option}", "tools": row.option, "per": "fleet", "rate": "1/day", **row.rule}
        for row in ROWS
    ]
    async with trial(RateLimit, config={"limits": limits}) as here:
        for row in ROWS:
            fits = [await verdict(here, row.option, row.fits) for _ in range(2)]
            other = [await verdict(here, row.option, row.other) for _ in range(2)]
            assert [one.action for one in (*fits, *other)] == ["continue", "deny", "continue", "continue"]
            assert f"(by {row.option})" in fits[1].reason
