"""A bundle that inherits another's loop, gated by one line of includes: a real scheduler rules on it."""

import pytest
import yaml
from bundle_session import AMPLIFIER, bundle_plan, bundle_session, write_foreign_loop
from toolgate_orchestrator.commands.host.bundle import compose
from toolgate_orchestrator.commands.host.bundle_files import read_bundle

pytestmark = pytest.mark.acceptance

RULES = {"rules": [{"name": "sums", "tools": "calculate", "action": "deny", "reason": "no sums here"}]}
CALLS = {"tool_calls": [{"name": "calculate", "arguments": {"expression": "6 * 7"}}]}


@pytest.mark.parametrize("last", ["behaviors/toolgate.yaml", "bundle.yaml"])
async def test_a_bundle_with_the_one_line_is_ruled_on(schedulers, tmp_path, last):
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    await schedulers.start("policy", "--config", tmp_path / "rules.yaml")
    foreign = write_foreign_loop(tmp_path, "loop-inherited")
    base = {"session": {"orchestrator": {"module": "loop-streaming", "source": str(foreign)}}}
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(base))
    section = {"redis": schedulers.url, "namespace": schedulers.namespace, "required": ["policy"]}
    mine = {
        "includes": [f"file://{tmp_path / 'base.yaml'}", f"file://{AMPLIFIER / last}"],
        "session": {"orchestrator": {"config": {"toolgate": section}}},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(mine))
    whole = compose(await read_bundle(str(tmp_path / "mine.yaml")))
    hooks = [{"module": name, "config": config} for name, config in whole.hooks.items()]
    plan = bundle_plan(whole.spec, hooks=hooks)
    plan["providers"][0]["config"]["turns"] = [CALLS, {"text": "${last_result}"}]
    plan["tools"] = [{"module": "tool-calculator"}]
    async with bundle_session(plan) as session:
        assert await session.execute("what is it?") == "The tool call was denied: no sums here (sums)"
