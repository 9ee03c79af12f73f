"""What is shown of a call that waited to be admitted: `decisions`, `decisions show`, replay of the record."""

import asyncio

import pytest
from agent_trees import Commands
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

POOLS = "pools: [{name: few, tools: search, limit: 1, wait_s: 60}, {name: one, tools: late, wait_s: 0}]"
RULES = "rules: [{tools: delete, action: deny, reason: nothing is deleted}]"
TOOLS = ["search", "delete", "late"]
HELD_S = 0.3


@pytest.fixture
def write(tmp_path):
    """`write(name, text)`: a configuration."""

    def written(name, text):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return written


async def decide_some(schedulers):
    """One that waited, one for which nothing was left, and one that others denied before."""
    where = {"redis": schedulers.url, "namespace": schedulers.namespace}
    async with Gate.open(**where, patience_ms=20_000, required=["slots", "policy"]) as gate:
        first = await gate.decide(Call("search", {"q": 1}, TOOLS))
        held = asyncio.Event()
        waiting = asyncio.create_task(
            gate.decide(Call("search", {"q": 2}, TOOLS), on_hold=lambda _: held.set()),
        )
        await held.wait()
        await asyncio.sleep(HELD_S)
        gate.note("tool:post", {"decision_id": first.id, "tool": "search", "success": True})
        waited = await waiting
        assert (await gate.decide(Call("late", {}, TOOLS))).allowed
        return (
            waited,
            await gate.decide(Call("late", {}, TOOLS)),
            await gate.decide(Call("delete", {}, TOOLS)),
        )


async def test_a_call_that_waited_is_shown_and_replayed_with_its_last_round(schedulers, write):
    await schedulers.start("slots", "--config", write("slots.yaml", POOLS))
    await schedulers.start("policy", "--config", write("policy.yaml", RULES))
    waited, denied, _ = await decide_some(schedulers)
    toolgate = Commands(schedulers.url, schedulers.namespace)
    (shown,) = await toolgate.json("decisions", "show", waited.id)
    decision, words = shown["decision"], shown["explained"]
    assert decision["waited"] >= HELD_S
    last = [one for one in decision["verdicts"] if one["phase"] == "admit"]
    assert [(one["action"], one.get("fence")) for one in last] == [("hold", None), ("continue", 2)]
    assert last[0]["reason"] == "waits for few: place 1"
    assert "Last, schedulers that grant scarce resources were asked" in words["heard"][-3]
    assert words["heard"][-1].endswith("and gave it fencing number 2.")
    assert words["why"][0].endswith("ms of waiting to be admitted.")
    _, listed, _ = await toolgate("decisions")
    assert f"ms + {waited.waited:.1f} s waited  {waited.id[:8]}" in listed
    assert "(admit, number 2)" in listed
    (shown,) = await toolgate.json("decisions", "show", denied.id)
    assert shown["explained"]["why"][1].startswith("slots denied it as it was about to run")

    async def replay(name, text):
        words = ("--since", "1h", "--against", f"{name}={write(f'{name}-2.yaml', text)}")
        (report,) = await toolgate.json("replay", *words, "--quiet")
        return {key: report["totals"][key] for key in ("same", "veto", "allow")}

    # What slots said stands where others are tried; alone among the calls, each finds a slot.
    assert await replay("policy", RULES) == {"same": 5, "veto": 0, "allow": 0}
    assert await replay("policy", "rules: [{tools: search, action: deny}]") == {
        "same": 2,
        "veto": 2,
        "allow": 1,
    }
    assert await replay("slots", POOLS) == {"same": 4, "veto": 0, "allow": 1}
