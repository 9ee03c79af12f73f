"""A bundle that inherits another's loop, gated by one line of includes: a real scheduler rules on it."""

import secrets
from pathlib import Path

import pytest
import yaml
from bundle_session import AMPLIFIER, bundle_plan, bundle_session, write_foreign_loop
from toolgate_orchestrator.commands.host.bundle import compose
from toolgate_orchestrator.commands.host.bundle_files import read_bundle
from toolgate_orchestrator.modules.hooks_required import RefusalLoop

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


async def plan_with(folder: Path, section: dict[str, object], last: Path) -> dict[str, object]:
    """The plan of a bundle with another's loop and this section, when the host lays one more over it."""
    foreign = write_foreign_loop(folder, f"loop-{secrets.token_hex(4)}")  # a name is imported once only
    loop = {"module": "loop-streaming", "source": str(foreign), "config": {"toolgate": section}}
    (folder / "mine.yaml").write_text(yaml.safe_dump({"session": {"orchestrator": loop}}))
    over = {"includes": [f"file://{folder / 'mine.yaml'}", f"file://{last}"]}
    (folder / "over.yaml").write_text(yaml.safe_dump(over))
    whole = compose(await read_bundle(str(folder / "over.yaml")))
    hooks = [{"module": name, "config": config} for name, config in whole.hooks.items()]
    return bundle_plan(whole.spec, hooks=hooks)


async def test_a_host_that_lays_the_guard_over_all_bundles_refuses_one_that_requires_and_mounts_anothers_loop(
    tmp_path,
):
    plan = await plan_with(tmp_path, {"required": ["policy"]}, AMPLIFIER / "behaviors" / "guard.yaml")
    async with bundle_session(plan) as session:
        assert isinstance(session.coordinator.get("orchestrator"), RefusalLoop)
        with pytest.raises(RuntimeError, match="not one of Toolgate's, so that policy would not be asked"):
            await session.execute("hello")


async def test_a_host_whose_guard_only_tells_refuses_where_somebody_is_required_and_nowhere_else(tmp_path):
    guard = yaml.safe_load((AMPLIFIER / "behaviors" / "guard.yaml").read_text())
    guard["hooks"][0]["config"] = {"on_ungated": "warn"}
    (tmp_path / "guard.yaml").write_text(yaml.safe_dump(guard))
    for number, (section, refused) in enumerate([({"required": ["policy"]}, True), ({}, False)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with bundle_session(await plan_with(folder, section, tmp_path / "guard.yaml")) as session:
            assert isinstance(session.coordinator.get("orchestrator"), RefusalLoop) == refused


async def test_a_tool_that_no_turn_calls_is_ruled_on_as_well(schedulers, tmp_path):
    """As `amplifier tool invoke` calls it: a session that is made, and never executed."""
    rules = [*RULES["rules"], {"tools": "search_files", "action": "allow"}]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"rules": rules}))
    (tmp_path / "notes.txt").write_text("unpaid")
    await schedulers.start("policy", "--config", tmp_path / "rules.yaml")
    section = {"redis": schedulers.url, "namespace": schedulers.namespace, "required": ["policy"]}
    loop = {"module": "loop-toolgate-events", "source": "", "config": {"toolgate": section}}
    plan = bundle_plan(loop, hooks=[{"module": "hooks-toolgate-required"}])
    plan["tools"] = [
        {"module": "tool-calculator"},
        {"module": "tool-workspace", "config": {"root": str(tmp_path)}},
    ]
    plan["providers"][0]["config"]["turns"] = [CALLS, {"text": "${last_result}"}]
    async with bundle_session(plan) as session:
        tools = session.coordinator.get("tools")
        denied = await tools["calculate"].execute({"expression": "6 * 7"})
        assert (denied.success, denied.error) == (
            False,
            {"message": "The tool call was denied: no sums here (sums)"},
        )
        allowed = await tools["read_file"].execute({"path": "notes.txt"})
        assert (allowed.success, allowed.output) == (True, "unpaid")
        assert await session.execute("what is it?") == "The tool call was denied: no sums here (sums)"


@pytest.mark.parametrize("mode", ["deny", "warn"])
async def test_a_tool_that_no_turn_calls_does_not_run_where_the_session_would_be_refused(tmp_path, mode):
    plan = await plan_with(tmp_path, {}, AMPLIFIER / "behaviors" / "guard.yaml")
    plan["hooks"] = [{"module": "hooks-toolgate-required", "config": {"on_ungated": mode}}]
    plan["tools"] = [{"module": "tool-calculator"}]
    async with bundle_session(plan) as session:
        result = await session.coordinator.get("tools")["calculate"].execute({"expression": "6 * 7"})
        assert result.success == (mode == "warn")
        assert mode == "warn" or "not one of Toolgate's" in result.error["message"]
