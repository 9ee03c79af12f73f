"""A living policy is enforced and taken back, by what was pushed; the record says what that changes."""

import asyncio
import json
import re

import pytest
from questions import decide
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.system]

RULES = """\
mode: observe   # not yet
rules:
  - {name: no deletes, tools: "delete_*", action: deny}
  - {name: watched, tools: pay, action: deny, mode: observe}
  - {tools: pay, action: ask}
"""


async def test_what_was_pushed_is_enforced_and_taken_back_and_the_record_says_what_that_changes(
    schedulers, process, wait_until, tmp_path
):
    (tmp_path / "rules.yaml").write_text(RULES)
    bus = ("--redis", schedulers.url, "--namespace", schedulers.namespace)

    async def toolgate(*words, code=0):
        ended = process("toolgate", *words, *bus, cwd=tmp_path)
        assert await asyncio.to_thread(ended.wait) == code, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    await schedulers.start("policy", "--config", tmp_path / "rules.yaml")
    assert "nothing was pushed" in await toolgate("policy", "enforce", "--yes", code=2)
    said = await toolgate("policy", "enforce", "--config", "rules.yaml", "--yes")
    assert "Have its replicas read the file again: kill -HUP" in said
    (tmp_path / "rules.yaml").write_text(RULES)
    await toolgate("scheduler", "push", "policy", "--config", "rules.yaml")
    async with Gate.open(
        redis=schedulers.url, namespace=schedulers.namespace, required=["policy"], patience_ms=20_000
    ) as gate:

        async def outcome(tool):
            return (await decide(gate, tool, {}, ["delete_file", "pay"])).outcome

        async def is_denied():
            return await outcome("delete_file") == "deny"

        async def runs():
            return await outcome("delete_file") == "continue"

        assert await runs()
        assert await outcome("pay") == "continue"
        told = json.loads(await toolgate("policy", "enforce", "--yes", "--json"))
        assert (told["mode"], told["changed"], told["denied"], told["asked"]) == ("enforce", True, 1, 1)
        assert {one["rule"] for one in told["calls"]} == {"no deletes", "rule 3"}
        await wait_until(is_denied)
        said = await toolgate("policy", "observe", "--yes")
        assert "policy denied" in said
        assert re.search(r"^did +calls", said, re.MULTILINE)
        await wait_until(runs)
    assert "Would have denied" in await toolgate("report")
