"""What a caller cannot do is a denial of who wanted it: nothing is set aside so that the original runs."""

import asyncio
from contextlib import AsyncExitStack
from itertools import combinations

import pytest
from gate_world import World, growth
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.errors import ConfigError
from toolgate_bus.facts import record
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Modify
from toolgate_bus.ruling.counterfactual import ProposedCall
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.question.call import ALL, UnnamedTools
from toolgate_orchestrator.decision.question.inability import find_missing

pytestmark = pytest.mark.pure

TOOLS = ["bash", "search", "write"]
WITHOUT = {"tool": ALL - {"tool"}, "arguments": ALL - {"arguments"}, "ask": ALL - {"ask"}}
WANTS = {
    "tool": Modify(tool="write", reason="it is quicker"),
    "arguments": Modify(tool="search", arguments={"q": 2}),
    "ask": AskUser(prompt="May it?"),
}


async def agree(asked, question):
    return "allow"


@pytest.mark.parametrize("ability", sorted(ALL))
async def test_what_cannot_be_done_is_denied_in_words_that_say_who_wanted_what(world, ability):
    said = WANTS[ability]
    await world.scheduler("router", said)
    decision = await (await world.gate()).decide(Call("search", {"q": 1}, TOOLS, can=WITHOUT[ability]))
    assert (decision.outcome, decision.why, decision.scheduler) == ("deny", "denied", "router")
    wanted = {"tool": "write", "arguments": "other arguments", "ask": "May it?"}[ability]
    assert "router wanted" in decision.reason
    assert wanted in decision.reason
    (heard,) = decision.verdicts
    assert heard.said == said
    assert isinstance(heard.verdict, Deny)


@pytest.mark.parametrize(
    ("lacks", "wants"), [("tool", "arguments"), ("arguments", "tool"), ("ask", "arguments")]
)
async def test_what_can_be_done_is_done(world, lacks, wants):
    await world.scheduler("router", WANTS[wants])
    decision = await (await world.gate()).decide(Call("search", {"q": 1}, TOOLS, can=WITHOUT[lacks]))
    assert decision.outcome == "modify"


async def test_a_modify_that_changes_nothing_needs_nothing(world):
    await world.scheduler("router", Modify(tool="search", arguments={"q": 1}))
    decision = await (await world.gate()).decide(Call("search", {"q": 1}, TOOLS, can=()))
    assert decision.allowed


@pytest.mark.parametrize("ask", [None, "defer"])
async def test_who_cannot_ask_can_put_no_question_off_either(world, ask):
    await world.scheduler("police", WANTS["ask"])
    decision = await (await world.gate()).decide(Call("search", {}, TOOLS, can=("tool",)), ask=ask)
    assert (decision.outcome, decision.why) == ("deny", "denied")


async def test_where_somebody_else_asks_the_caller_need_not_be_able_to(world):
    await world.scheduler("police", WANTS["ask"])
    decision = await (await world.gate(ask=agree)).decide(Call("search", {}, TOOLS, can=WITHOUT["ask"]))
    assert (decision.outcome, decision.asked_user) == ("continue", True)


async def test_it_denies_though_a_modify_that_can_be_followed_has_the_higher_priority(world):
    await world.scheduler("a", WANTS["arguments"], priority=9)
    await world.scheduler("b", WANTS["tool"], priority=1)
    decision = await (await world.gate()).decide(Call("search", {"q": 1}, TOOLS, can=WITHOUT["tool"]))
    assert (decision.outcome, decision.scheduler) == ("deny", "b")


async def test_a_modify_that_is_invalid_is_set_aside_as_ever(world):
    await world.scheduler("router", Modify(tool="rocket"))
    decision = await (await world.gate()).decide(Call("search", {}, TOOLS, can=()))
    assert (decision.outcome, decision.verdicts[0].problem) == ("continue", "unavailable_tool")


async def test_whoever_names_no_tools_and_can_run_no_other_is_denied_where_one_is_wanted(world):
    await world.scheduler("router", Modify(tool="rocket"))
    decision = await (await world.gate()).decide(
        Call("search", {}, UnnamedTools(("search",)), can=WITHOUT["tool"])
    )
    assert (decision.outcome, decision.scheduler) == ("deny", "router")


async def test_a_shadow_that_wants_what_cannot_be_done_would_have_denied(world):
    await world.scheduler("router", WANTS["tool"])
    gate = await world.gate(shadow=["router"])
    came = asyncio.get_running_loop().create_future()
    gate.subscribe_late(lambda id_, heard: came.set_result(heard))
    disagrees = growth("toolgate_shadow_disagreements_total", scheduler="router")
    decision = await gate.decide(Call("search", {}, TOOLS, can=WITHOUT["tool"]))
    assert decision.outcome == "continue"
    heard = await asyncio.wait_for(came, 30)
    assert (type(heard.verdict), heard.said, disagrees()) == (Deny, WANTS["tool"], 1)


async def test_the_record_keeps_what_was_said_beside_what_it_counts_as(world):
    await world.scheduler("router", WANTS["tool"])
    decision = await (await world.gate()).decide(Call("search", {}, TOOLS, can=()))
    fields = record.verdict_fields(decision.verdicts[0])
    assert (fields["action"], fields["said"]["action"], fields["said"]["tool"]) == ("deny", "modify", "write")
    assert record.read_verdict(fields).said == WANTS["tool"]


async def test_an_ability_that_there_is_not_is_said_at_once(world):
    with pytest.raises(ConfigError, match="'fly'"):
        await (await world.gate()).decide(Call("search", {}, TOOLS, can=("fly",)))


verdicts = st.lists(
    st.one_of(
        st.just(Continue()),
        st.builds(Deny, reason=st.just("no")),
        st.builds(Modify, tool=st.sampled_from(TOOLS), arguments=st.sampled_from([None, {"q": 1}, {"q": 2}])),
        st.just(WANTS["ask"]),
    ),
    min_size=1,
    max_size=3,
)
abilities = st.sampled_from([frozenset(some) for n in range(4) for some in combinations(sorted(ALL), n)])


def denies(verdict, can):
    """Whether a verdict denies for who can do no more than that: the rule, said once more."""
    if isinstance(verdict, Modify):
        changes = (verdict.tool != "search", verdict.arguments not in (None, {"q": 1}))
        return (changes[0] and "tool" not in can) or (changes[1] and "arguments" not in can)
    return isinstance(verdict, Deny) or (isinstance(verdict, AskUser) and "ask" not in can)


@given(verdicts, abilities)
async def test_a_call_is_denied_exactly_where_one_of_them_denies_for_this_caller(said, can):
    async with AsyncExitStack() as stack:
        world = World(stack)
        for place, verdict in enumerate(said):
            answer = lambda call, one=verdict: one if call.phase == "select" else Continue()  # noqa: E731
            await world.scheduler(f"s{place}", answer, priority=place)
        ask = agree if "ask" in can else None
        decision = await (await world.gate(ask=ask)).decide(Call("search", {"q": 1}, TOOLS, can=can))
    assert (decision.outcome == "deny") == any(denies(verdict, can) for verdict in said)
    if not decision.allowed:
        return
    final = ProposedCall(decision.tool_name, decision.tool_input)
    assert find_missing(can, ProposedCall("search", {"q": 1}), final) == []
