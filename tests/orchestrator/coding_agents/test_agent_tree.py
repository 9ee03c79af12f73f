"""A sub-agent stands below whoever started it, as far as events told."""

import pytest
from toolgate_orchestrator.coding_agents.agent_tree import MAX_DEPTH, AgentPlace, AgentTree
from toolgate_orchestrator.coding_agents.event import HookEvent

pytestmark = pytest.mark.pure


def event(agent, above, kind="helper", client="copilot"):
    return HookEvent(
        client, "preToolUse", "before", "bash", session=agent, agent_id=agent, agent_type=kind, above=above
    )


def test_an_event_of_no_sub_agent_is_the_conversations_own():
    tree = AgentTree()
    assert tree.place(HookEvent("copilot", "preToolUse", "before", session="talk")) == AgentPlace("talk")
    claude = HookEvent("claude", "PreToolUse", "before", session="talk", agent_id="a1", agent_type="Explore")
    assert tree.place(claude) == AgentPlace("talk")


def test_each_stands_below_those_that_were_told_before_it():
    tree = AgentTree()
    assert tree.place(event("a", "talk", "planner")) == AgentPlace("talk")
    assert tree.place(event("b", "a", "coder")) == AgentPlace("talk", (("a", "planner"),))
    assert tree.place(event("c", "b")) == AgentPlace("talk", (("a", "planner"), ("b", "coder")))
    assert tree.place(event("b", "a", "coder")) == AgentPlace("talk", (("a", "planner"),))


def test_a_sub_agent_stays_one_where_an_event_leaves_out_who_started_it():
    tree = AgentTree()
    whole = event("b", "a", "coder")
    bare = HookEvent("copilot", "preToolUse", "before", "bash", session="b")
    assert tree.restore(bare) == bare  # nothing was told of it yet
    tree.place(event("a", "talk", "planner"))
    tree.place(whole)
    for told in (bare, whole, event("b", "b", ""), event("b", "b", "coder")):
        assert tree.restore(told) == whole
        assert tree.place(tree.restore(told)) == AgentPlace("talk", (("a", "planner"),))
    moved = event("b", "talk", "coder")
    assert tree.restore(moved) == moved
    assert tree.restore(bare._replace(client="claude")).above == ""


def test_two_clients_ids_are_not_each_others():
    tree = AgentTree()
    tree.place(event("a", "talk"))
    assert tree.place(event("b", "a", client="another")) == AgentPlace("a")


def test_who_stands_below_itself_ends_the_search():
    tree = AgentTree()
    tree.place(event("a", "b"))
    assert tree.place(event("b", "a")) == AgentPlace("a")
    assert tree.place(event("c", "c")) == AgentPlace("c")


def test_a_line_has_an_end_and_so_has_what_is_known():
    tree = AgentTree(limit=MAX_DEPTH + 4)
    for number in range(MAX_DEPTH + 4):
        place = tree.place(event(str(number + 1), str(number)))
    assert len(place.above) == MAX_DEPTH
    assert place.root == "3"
    tree.place(event("new", "talk"))
    assert tree.place(event("2", "1")) == AgentPlace("1")
