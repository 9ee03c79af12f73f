"""`toolgate_schedulers.testing`: a scheduler tried without a server hears and is heard as on the bus."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import pytest
import toolgate_schedulers.testing
from pydantic import BaseModel, Field
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.events import Continue, Deny, Failure, Hold, Modify
from toolgate_bus.state.shared import make_shared_state
from toolgate_schedulers import scheduler
from toolgate_schedulers.author.forms import as_scheduler
from toolgate_schedulers.shipped.policy.scheduler import Policy, PolicyConfig
from toolgate_schedulers.testing import NoAnswerError, NotAsked, question, trial

pytestmark = pytest.mark.pure


class Limits(BaseModel):
    calls: Annotated[int, Field(ge=0)]


class Limiter:
    """So many searches in a session; what was counted is in the shared store."""

    name = "limiter"
    tools = ("web_*",)
    config_model = Limits

    def __init__(self, config):
        self.config, self.stopped = config, False

    async def start(self, context):
        self.store = context.store

    async def decide(self, call):
        for number in range(self.config.calls):
            if await self.store.add(f"limiter:{call.session}:{number}", b"", ttl_s=3600):
                return Continue()
        return Deny(reason=f"{self.config.calls} searches are enough")

    async def stop(self):
        self.stopped = True


async def test_a_scheduler_is_tried_in_three_lines():
    async with trial(Limiter, config={"calls": 1}) as limiter:
        assert await limiter.ask("web_search", {"q": "x"}) == Continue()
        assert await limiter.ask("web_search", {"q": "x"}) == Deny(reason="1 searches are enough")


async def test_the_question_is_as_an_orchestrator_asks_it():
    asked = []

    @scheduler(name="notes")
    async def notes(call):
        asked.append(call)
        return Modify(tool="other", arguments={"deep": [1, {"k": None}]})

    async with trial(notes) as trying:
        verdict = await trying.ask("x", {"n": 1.5}, session="s-1", phase="verify", available_tools=["other"])
    assert verdict == Modify(tool="other", arguments={"deep": [1, {"k": None}]})
    (call,) = asked
    assert (call.tool_name, call.tool_input, call.session) == ("x", {"n": 1.5}, "s-1")
    assert (call.phase, call.available_tools, len(call.id)) == ("verify", ("other",), 32)


async def test_a_question_by_hand_goes_to_decide_directly():
    assert question("web_search").tool_input == {}
    store = make_shared_state().store
    limiter = Limiter(Limits(calls=1))
    limiter.store = store
    assert await limiter.decide(question("web_search", {"q": "x"}, session="a")) == Continue()
    assert (await limiter.decide(question("web_search", session="a"))).action == "deny"


@pytest.mark.parametrize(
    ("answer", "said"),
    [(ValueError("no"), "it raised ValueError"), (None, "it answered NoneType, which is no verdict")],
)
async def test_a_failure_is_heard_as_the_asker_hears_it(answer, said):
    async def fails(call):
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with trial(fails) as trying:
        assert await trying.ask("x") == Failure(reason=said)


async def test_one_that_does_not_answer_is_silent():
    async def never(call):
        await asyncio.Event().wait()

    before = time.monotonic()
    async with trial(never) as trying:
        with pytest.raises(NoAnswerError, match=r"x: nothing was heard for 0\.05 s"):
            await trying.ask("x", timeout_s=0.05)
        assert time.monotonic() - before > 0.04
        await trying.restart(never, kill=True)


async def test_nobody_asks_about_a_tool_that_it_does_not_name():
    async with trial(Limiter, config={"calls": 1}) as limiter:
        assert limiter.rules_on("web_search")
        assert not limiter.rules_on("bash")
        with pytest.raises(NotAsked, match=r"limiter rules on web_\*, not on bash"):
            await limiter.ask("bash")


class Approver:
    """Holds every call, and answers when told to."""

    name = "approver"

    async def start(self, context):
        self.holds = context.holds

    async def decide(self, call):
        return Hold(seconds=60, reason="somebody must look at it")

    async def approve(self):
        for held in await self.holds.open():
            await self.holds.answer(held.decision_id, Continue(reason="looked at"))


async def test_a_hold_and_its_final_answer_by_another_replica_after_a_restart():
    async with trial(Approver()) as trying:
        asked = trying.pose("refund", {"amount": 500})
        assert await asked.next() == Hold(seconds=60, reason="somebody must look at it")
        with pytest.raises(NoAnswerError):
            await asked.final(0.02)
        approver = Approver()
        await trying.restart(approver)
        await approver.approve()
        assert await asked.final() == Continue(reason="looked at")
        assert [one.action for one in asked.answers] == ["hold", "continue"]


async def test_one_that_holds_and_answers_by_itself_may_be_withdrawn(wait_until):
    ended = []

    async def think(call):
        yield Hold(seconds=5)
        try:
            await (asyncio.sleep(0) if call.tool_name == "quick" else asyncio.Event().wait())
        finally:
            ended.append(call.tool_name)
        yield Deny(reason="thought about it")

    async with trial(think) as trying:
        assert (await trying.pose("quick").final()).action == "deny"
        asked = trying.pose("slow")
        assert (await asked.next()).action == "hold"
        trying.withdraw(asked)
        await wait_until(lambda: ended == ["quick", "slow"])
        assert len(asked.answers) == 1


@pytest.mark.parametrize("kill", [False, True])
async def test_what_is_shared_outlives_the_replica(kill):
    async with trial(Limiter, config={"calls": 2}) as limiter:
        assert (await limiter.ask("web_search")).action == "continue"
        await limiter.restart(kill=kill)
        assert (await limiter.ask("web_search")).action == "continue"
        assert (await limiter.ask("web_search")).action == "deny"
        assert len(await limiter.shared.store.keys("limiter:")) == 2


async def test_a_replica_that_was_killed_has_its_questions_taken_over_and_answers_none(wait_until):
    class Slow:
        name = "slow"

        def __init__(self, word, go):
            self.word, self.go, self.asked, self.stopped = word, go, 0, False

        async def decide(self, call):
            self.asked += 1
            await self.go.wait()
            return Deny(reason=self.word)

        async def stop(self):
            self.stopped = True

    go, dead = asyncio.Event(), Slow("dead", asyncio.Event())
    async with trial(dead) as trying:
        asked = trying.pose("x", timeout_s=5)
        await wait_until(lambda: dead.asked)
        await trying.restart(Slow("alive", go), kill=True)
        dead.go.set()
        go.set()
        assert await asked.next() == Deny(reason="alive")
    assert not dead.stopped
    assert len(asked.answers) == 1


async def test_two_trials_may_share_state():
    shared = make_shared_state()
    async with (
        trial(Limiter, config=Limits(calls=1), shared=shared) as one,
        trial(Limiter, config=Limits(calls=1), shared=shared) as other,
    ):
        assert (await one.ask("web_search")).action == "continue"
        assert (await other.ask("web_search")).action == "deny"


async def test_a_reload_decides_from_then_on_and_a_wrong_one_changes_nothing():
    async with trial(Policy, config={"default": "allow"}) as policy:
        assert (await policy.ask("x")).action == "continue"
        with pytest.raises(ConfigError, match="config: default: Input should be 'allow', 'deny' or 'ask'"):
            await policy.reload({"default": "maybe"})
        assert (await policy.ask("x")).action == "continue"
        await policy.reload(PolicyConfig(default="deny"))
        assert (await policy.ask("x")).action == "deny"


async def test_the_configuration_is_checked_as_the_command_does_it(tmp_path: Path):
    with pytest.raises(ConfigError, match="config: call: unknown key; allowed: calls"):
        async with trial(Limiter, config={"call": 1}):
            pass
    with pytest.raises(ConfigError, match="Approver takes no configuration"):
        async with trial(Approver, config={"calls": 1}):
            pass
    file = tmp_path / "limits.yaml"
    file.write_text("calls: 0")
    async with trial(Limiter, config=file) as limiter:
        assert (await limiter.ask("web_search")).action == "deny"


async def test_facts_are_told_and_read():
    class Reads:
        name = "reads"

        async def start(self, context):
            self.facts = context.shared.facts

        async def decide(self, call):
            return Continue(reason=str([fact["tool"] for fact in await self.facts.next()]))

    async with trial(Reads()) as reads:
        reads.tell("tool:post", decision_id="0" * 32, tool="bash", success=True)
        assert (await reads.ask("x")).reason == "['bash']"


async def test_it_is_told_the_name_that_it_runs_under_and_whether_it_is_a_shadow():
    class Curious:
        async def start(self, context):
            self.told = context

        async def decide(self, call):
            return Continue(reason=f"{self.told.name} {self.told.shadow}")

    curious = Curious()
    for name, shadow in (("live", False), ("rehearsal", True)):
        async with trial(replace(as_scheduler(curious), name=name, shadow=shadow)) as trying:
            assert (await trying.ask("x")).reason == f"{name} {shadow}"


async def test_it_is_started_and_stopped():
    limiter = Limiter(Limits(calls=1))
    async with trial(limiter):
        assert not limiter.stopped
    assert limiter.stopped


async def test_hundreds_of_questions_at_a_time_are_each_answered():
    async def echo(call):
        await asyncio.sleep(0)
        return Deny(reason=str(call.tool_input["n"]))

    async with trial(echo) as trying:
        asked = [trying.pose("x", {"n": number}, timeout_s=10) for number in range(300)]
        assert [(await one.next()).reason for one in asked] == [str(number) for number in range(300)]


def test_the_front_door_is_sorted():
    names = toolgate_schedulers.testing.__all__
    assert list(names) == sorted(names)
    assert all(getattr(toolgate_schedulers.testing, name).__doc__ for name in names if name != "Answer")
