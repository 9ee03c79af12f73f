"""`toolgate decisions --follow --shadow`: what a shadow would have changed, when it says so."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from toolgate_orchestrator import Call, Gate

pytestmark = pytest.mark.acceptance

DENY = {"action": "deny", "reason": "no"}


async def test_a_decision_is_shown_once_its_shadow_has_spoken(
    schedulers: Any,
    process: Callable[..., Any],
    wait_until: Callable[..., Awaitable[Any]],
    counted: Any,
    server_url: str,
    namespace: str,
) -> None:
    await schedulers.start("obedient:watcher")
    bus = ("--redis", server_url, "--namespace", namespace)
    following = process("toolgate", "decisions", "--follow", "--shadow", "--json", *bus)

    def shown() -> list[dict[str, Any]]:
        return [json.loads(line) for line in following.stdout.splitlines() if line.endswith("}")]

    async with Gate.open(redis=server_url, namespace=namespace) as gate:
        for rule in ({"action": "continue"}, DENY, {**DENY, "after": 0.3}):
            await gate.decide(Call("search", {"rules": {"watcher": rule}}, ["search"], id=str(rule)))
        await wait_until(lambda: len(shown()) == 2)
    assert [one["tool_call_id"] for one in shown()] == [str(DENY), str({**DENY, "after": 0.3})]
    for one in shown():
        assert one["outcome"] == "continue"
        (disagreement,) = one["disagreements"]
        assert (disagreement["scheduler"], disagreement["change"]) == ("watcher", "veto")
    assert counted("toolgate_shadow_disagreements_total", scheduler="watcher") == 2
