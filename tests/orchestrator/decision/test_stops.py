"""A stop of an operator stands: whoever works for whom it means is denied, until somebody lifts it."""

import asyncio

import pytest
from questions import decide as decide_on
from structlog.testing import capture_logs
from toolgate_bus.protocol.agents import LiveAgent, name_session
from toolgate_bus.protocol.events import AskUser, Continue, Hold
from toolgate_bus.protocol.llm import LLM_REQUEST
from toolgate_bus.protocol.pauses import Pause
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.link.live_session import LiveSession
from toolgate_orchestrator.decision.link.pauses import describe_order

pytestmark = pytest.mark.pure

TOOLS = ["bash", "search"]
SAID = "An operator stopped this agent (by ops); only an operator can lift that."


def stop(*names, id="s1", **fields):  # noqa: A002 - the field's name
    return Pause(id, names, names, by="ops", stop=True, **fields)


def decide(gate, session="s", **fields):
    return decide_on(gate, "bash", {}, TOOLS, session=session, **fields)


async def outcomes(gate, *places):
    """What comes of a call from each of these places."""
    return [(await decide(gate, **place)).outcome for place in places]


@pytest.fixture
async def gate(world):
    await world.scheduler("watcher", Continue())
    return await world.gate(required=["watcher"])


async def test_a_stopped_session_is_denied_in_words_that_say_who_stopped_it(world, gate):
    world.hub.stand(stop("s"))
    decision = await decide(gate)
    assert (decision.outcome, decision.why, decision.scheduler) == ("deny", "denied", "operator")
    assert decision.reason == f"{SAID} Call no more tools: end your turn."
    assert decision.verdicts == ()  # nobody was asked
    world.hub.stand()
    assert (await decide(gate)).outcome == "continue"


async def test_the_log_tells_of_an_order_in_sentences(world, gate):
    with capture_logs() as logs:
        world.hub.stand(stop("s"), Pause("p1", everyone=True))
        await decide(gate)
    stopped, paused = (one["event"] for one in logs)
    rest = "New turns end at once, and calls are denied. To lift the stop: toolgate agents resume s1"
    assert stopped == f"An operator (ops) stopped s. {rest}"
    assert (
        paused == "An operator paused everyone. New calls wait. To end the pause: toolgate agents resume p1"
    )
    assert all(one.keys() <= {"event", "logger", "log_level"} for one in logs)
    timed = describe_order(Pause("p2", sessions=("\x1b[2J",), by="ann"), 90.0)
    assert timed.startswith("An operator (ann) paused \\u001b[2J. New calls wait for up to 90 s.")


async def test_whoever_begins_to_work_for_a_stopped_session_afterwards_is_denied(world, gate):
    world.hub.stand(stop("root"))
    below = (
        {"session": "a", "root_session": "root"},
        {"session": "b", "parent": "root"},
        {"session": "c", "parent": "b", "root_session": "root"},
        {"session": "d", "parent": "b"},  # whose root nobody told
        {"session": "e", "parent": "d"},
        {"session": "f", "parent": "root", "root_session": "another"},
        {"session": "root", "root_session": "another"},
    )
    assert await outcomes(gate, *below) == ["deny"] * len(below)
    others = (
        {"session": "other"},
        {"session": "x", "parent": "other"},
        {"session": "roo", "root_session": "ro"},
        {"session": ""},
    )
    assert await outcomes(gate, *others) == ["continue"] * len(others)


async def test_a_session_in_the_middle_takes_those_below_it_along_and_not_those_beside_it(world, gate):
    tree = (("mid", "root"), ("low", "mid"), ("lowest", "low"), ("beside", "root"))
    places = [{"session": session, "parent": above, "root_session": "root"} for session, above in tree]
    assert await outcomes(gate, *places) == ["continue"] * 4
    world.hub.stand(stop("mid"))
    assert await outcomes(gate, *places) == ["deny", "deny", "deny", "continue"]
    gate.note_above(("root", "mid", "p", "q"))  # a caller knew it, and none of these has called
    assert (await decide(gate, "new", parent="q", root_session="root")).outcome == "deny"


@pytest.mark.parametrize(
    "told", [{"parent": "top"}, {"root_session": "top"}, {"parent": "top", "root_session": "top"}]
)
@pytest.mark.parametrize(
    "later",
    [{}, {"parent": ""}, {"parent": "s"}, {"root_session": "s"}, {"parent": "s", "root_session": "s"}],
)
async def test_a_session_that_told_once_for_whom_it_works_need_not_say_so_again(world, gate, told, later):
    """Nor those who work for it: it may leave that out, or name itself."""
    assert await outcomes(gate, {"session": "s", **told}, {"session": "other"}) == ["continue"] * 2
    world.hub.stand(stop("top"))
    places = (
        {"session": "s", **later},
        {"session": "new", "parent": "s"},
        {"session": "other"},
        {"session": ""},
    )
    assert await outcomes(gate, *places) == ["deny", "deny", "continue", "continue"]
    world.hub.stand()
    assert await outcomes(gate, *places) == ["continue"] * 4


async def test_a_session_stays_below_all_whom_it_named(world, gate):
    places = ({"session": "s", "parent": "one"}, {"session": "s", "parent": "two"})
    assert await outcomes(gate, *places) == ["continue"] * 2
    world.hub.stand(stop("two"))
    assert await outcomes(gate, {"session": "s"}, {"session": "one"}) == ["deny", "continue"]
    world.hub.stand(stop("one"))
    assert await outcomes(gate, {"session": "s"}, {"session": "two"}) == ["deny", "continue"]


async def test_a_session_that_claims_to_work_for_one_of_its_own_is_below_the_same_as_before(world, gate):
    tree = (("mid", "top"), ("low", "mid"), ("lowest", "low"))
    assert (
        await outcomes(gate, *({"session": one, "parent": above} for one, above in tree)) == ["continue"] * 3
    )
    world.hub.stand(stop("top"))
    lies = [{"session": "mid", "parent": below, "root_session": below} for below in ("low", "lowest", "mid")]
    assert (
        await outcomes(gate, *lies, {"session": "mid"}, {"session": "new", "parent": "lowest"})
        == ["deny"] * 5
    )
    assert (
        await outcomes(gate, {"session": "a", "parent": "b"}, {"session": "b", "parent": "a"})
        == ["continue"] * 2
    )


async def test_a_gate_that_starts_later_knows_what_stands(world):
    world.hub.stand(stop("s"), Pause("p", ("t",), by="ops"))
    gate = await world.gate()
    assert gate.wanted("bash")  # though nobody rules
    assert (await decide(gate)).outcome == "deny"
    assert (await decide(gate, "other")).why == "unasked"


async def test_a_stop_of_everyone_means_who_names_no_session_too(world, gate):
    world.hub.stand(Pause("s1", everyone=True, stop=True))
    assert await outcomes(gate, {"session": ""}, {"session": "x"}) == ["deny", "deny"]


async def test_a_request_to_an_llm_is_denied_as_well(world, gate):
    world.hub.stand(stop("s"))
    decision = await gate.decide(
        Call(LLM_REQUEST, {"provider": "p"}, [LLM_REQUEST], Caller("s"), is_request=True)
    )
    assert (decision.outcome, decision.scheduler) == ("deny", "operator")


@pytest.mark.parametrize(
    "id_", ["*", "a?", "[a-z]", "a b", "a\n", "\x00", "x" * 300, "x" * 300 + "y", "\ud800"], ids=ascii
)
async def test_ids_mean_exactly_one_session_whatever_is_in_them(world, gate, id_):
    seen = LiveSession(LiveAgent(id_, id_), lambda now: None)
    gate.enter(seen)
    (shown,) = [one.session for one in gate._client.agents()]
    world.hub.stand(stop(shown))
    assert shown == name_session(id_)
    assert seen.tell().stopped == "s1"
    assert (await decide(gate, id_)).outcome == "deny"
    assert (await decide(gate, "kid", parent=id_)).outcome == "deny"
    others = [one for one in ("a", "ab", "x" * 301, "\ud801", f"{id_} ", id_[1:]) if one != id_]
    assert {(await decide(gate, one)).outcome for one in others} == {"continue"}


# ---------------------------------------------------------------------- what is under way


async def test_a_call_that_somebody_holds_is_denied_at_once_and_the_holder_is_told(world, wait_until):
    withdrawn = asyncio.Event()

    async def hold(call):
        yield Hold(seconds=3600)
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()

    await world.scheduler("person", hold, streams=True)
    gate, held = await world.gate(max_hold_s=3600), []
    calls = [asyncio.ensure_future(decide(gate, name, on_hold=held.append)) for name in ("s", "other")]
    await wait_until(lambda: len(held) == 2)
    world.hub.stand(stop("s"))
    decision = await asyncio.wait_for(calls[0], 30)
    assert (decision.outcome, decision.scheduler) == ("deny", "operator")
    assert decision.reason.startswith(SAID)
    await asyncio.wait_for(withdrawn.wait(), 5)
    assert not calls[1].done()
    calls[1].cancel()


@pytest.mark.parametrize("when", ["as it is given", "while another is waited for"])
async def test_what_was_given_to_a_call_that_is_stopped_is_given_back(world, when):
    async def give(call):
        given.append(call)
        if when == "as it is given":
            world.hub.stand(stop("s"))
        return Continue(fence=7)

    async def wait(call):
        yield Hold(seconds=3600)
        world.hub.stand(stop("s"))
        await asyncio.Event().wait()

    given, back = [], []
    await world.scheduler("giver", give, phases=["admit"], priority=9)
    await world.scheduler("second", wait, phases=["admit"], streams=True)
    gate = await world.gate()
    take_back = gate._dispatcher.withdraw

    def withdraw(question, scheduler):
        back.append(scheduler)
        take_back(question, scheduler)

    gate._dispatcher.withdraw = withdraw
    decision = await asyncio.wait_for(decide(gate), 5)
    assert (decision.outcome, len(given), "giver" in back) == ("deny", 1, True)


async def test_a_call_that_a_person_is_asked_about_is_denied_though_they_agree(world):
    await world.scheduler("asker", AskUser(prompt="May it?"))

    async def ask(asked, question):
        world.hub.stand(stop("s"))
        return "allow"

    gate = await world.gate(ask)
    assert (await decide(gate)).outcome == "deny"


async def test_a_call_that_waits_for_a_person_elsewhere_is_ended_and_its_answer_comes_too_late(
    world, wait_until
):
    await world.scheduler("asker", AskUser(prompt="May it?"))
    gate, decided = await world.gate(), []
    gate.subscribe(decided.append)
    pending = await decide(gate, ask="defer")
    assert pending.pending
    world.hub.stand(stop("s"))
    await wait_until(lambda: [one.outcome for one in decided if one.id == pending.id][-1:] == ["deny"])
    world.hub.stand()
    late = await decide(gate, answer=PersonAnswer(pending.token, "allow", "ann"))
    assert (late.outcome, late.why) == ("deny", "void")


async def test_a_paused_call_that_is_stopped_waits_no_longer(world, gate):
    world.hub.stand(Pause("p1", everyone=True))
    call = asyncio.ensure_future(decide(gate))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not call.done()
    world.hub.stand(Pause("p1", everyone=True), stop("s"))
    assert (await asyncio.wait_for(call, 30)).outcome == "deny"


# ---------------------------------------------------------------------- turns


class Agent:
    """A session with a turn that runs, and what it is told."""

    def __init__(self, gate, session, parent=None, root=""):
        self.told = []
        self.presence = LiveSession(LiveAgent(session, root or session, parent), self.told.append)
        self.leave = gate.enter(self.presence)


async def test_turns_that_run_are_ended_once_and_again_where_it_is_more_urgent(world, gate):
    one, kid, other = Agent(gate, "s"), Agent(gate, "kid", "s", "s"), Agent(gate, "other")
    with one.presence.turn(), kid.presence.turn(), other.presence.turn():
        world.hub.stand(stop("s"))
        world.hub.stand(stop("s"))
        assert (one.told, kid.told, other.told) == ([False], [False], [])
        world.hub.stand(stop("s", now=True))
        assert (one.told, kid.told, other.told) == ([False, True], [False, True], [])
        assert one.presence.order == {"now": True, "by": "ops"}
        world.hub.stand()
        assert one.presence.order is None
    assert one.presence.tell().stopped == ""


async def test_who_comes_later_is_shown_as_stopped_and_has_no_turn_to_end(world, gate):
    world.hub.stand(stop("s"))
    one = Agent(gate, "kid", "s", "s")
    assert (one.told, one.presence.tell().stopped, one.presence.is_stopping) == ([], "s1", True)
    with one.presence.turn():
        assert one.presence.order == {"now": False, "by": "ops"}


async def test_a_stop_function_that_raises_costs_nobody_else_the_stop(world, gate):
    def broken(now):
        raise RuntimeError("of the program's")

    bad = LiveSession(LiveAgent("bad", "s", "s"), broken)
    gate.enter(bad)
    one = Agent(gate, "s")
    with bad.turn(), one.presence.turn():
        world.hub.stand(stop("s"))
        assert one.told == [False]
    assert (await decide(gate)).outcome == "deny"


def test_the_end_of_a_call_without_a_name_does_not_end_the_turn():
    seen = LiveSession(LiveAgent("s", "s"), lambda now: None)
    with seen.turn():
        seen.end_call("")
        seen.count_denial("")
        assert seen.busy
    assert not seen.busy
