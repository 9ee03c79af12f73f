"""A tree of agents that would delegate for ever ends within its limits, and says why: real sessions."""

import pytest
from amplifier_core import AmplifierSession
from toolgate_orchestrator.commands.host.sub_agents import let_delegate

pytestmark = pytest.mark.acceptance

AGAIN = {"tool_calls": [{"name": "delegate", "arguments": {"agent": "worker", "instruction": "Do it"}}]}
AT_ONCE = {"tool_calls": AGAIN["tool_calls"] * 3}


@pytest.fixture
def tree(schedulers, tmp_path):
    """`await tree(limits, turns)`: the sessions of a tree in which everyone delegates, what the root heard.

    Every agent has the same script, the root too.
    """

    async def ran(limits, turns, loop="loop-events"):
        config = tmp_path / "guard.yaml"
        config.write_text(limits)
        await schedulers.start("loop-guard", "--config", config, replicas=2)
        where = {"redis": schedulers.url, "namespace": schedulers.namespace, "patience_ms": 20_000}
        toolgate = {**where, "required": ["loop-guard"], "agent": "boss"}
        script = [*turns, {"text": "I was told: ${last_result}"}]
        plan = {
            "session": {
                "orchestrator": {"module": loop, "config": {"max_iterations": -1, "toolgate": toolgate}},
                "context": "context-simple",
            },
            "providers": [{"module": "provider-scripted", "config": {"turns": script}}],
            "tools": [{"module": "tool-delegate"}],
            "agents": {"worker": {"description": "delegates"}},
        }
        lineages = []
        async with AmplifierSession(plan) as session:
            let_delegate(session, lambda child: lineages.append((child.session_id, child.parent_id)))
            answer = await session.execute("go")
            messages = await session.coordinator.get("context").get_messages()
            results = [one["content"] for one in messages if one["role"] == "tool"]
        return session.session_id, lineages, results, answer

    return ran


def depths(root, sessions):
    """How deep each session stands."""
    found = {root: 1}
    for child, parent in sessions:
        found[child] = found[parent] + 1
    return list(found.values())


async def test_a_tree_of_agents_that_delegate_for_ever_ends_and_the_roots_llm_is_told_why(tree):
    root, sessions, results, answer = await tree("{max_depth: 4, max_width: 2, max_agents: 9}", [AGAIN] * 6)
    found = depths(root, sessions)
    assert (len(found), max(found)) == (9, 4)
    assert max(sum(parent == one for _, parent in sessions) for one, _ in sessions) == 2
    assert len(results) == 6
    assert "This session has delegated 2 times; 2 are allowed (max_width). Stop delegating" in results[2]
    assert answer.startswith("I was told: ")
    assert "delegated 2 times" in answer


async def test_agents_that_delegate_to_many_at_once_are_no_more_than_the_tree_may_have(tree):
    root, sessions, results, _ = await tree("{max_agents: 12}", [AT_ONCE] * 2)
    assert len(depths(root, sessions)) == 12
    assert any("This task has 12 agents already; 12 are allowed (max_agents)" in one for one in results)


async def test_a_chain_of_agents_ends_at_its_depth_and_each_hears_of_it(tree):
    root, sessions, results, answer = await tree("{max_depth: 3}", [AGAIN])
    assert depths(root, sessions) == [1, 2, 3]
    assert "this one is at depth 3 (boss > worker > worker) (max_depth)" in answer
    assert len(results) == 1
