"""`approval`: replicas on one store hold calls, and give the answer to exactly that call."""

import asyncio

import pytest
from approval_calls import ID, RULES, call, config
from toolgate_bus.errors import BusDown, ToolgateError
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Hold, Modify
from toolgate_bus.state.shared import make_shared_state
from toolgate_schedulers.author.scheduler import SchedulerContext
from toolgate_schedulers.commands.approvals.answer import Person, answer, build_standing_rule
from toolgate_schedulers.shipped.approval import scheduler as approval_scheduler
from toolgate_schedulers.shipped.approval.config import find_rules
from toolgate_schedulers.shipped.approval.messages import STORE_AWAY
from toolgate_schedulers.shipped.approval.queue import LEASE_S, TOPIC, ApprovalQueue, news
from toolgate_schedulers.shipped.approval.records import ApprovalAnswer, StandingApproval, always_id, digest
from toolgate_schedulers.shipped.approval.scheduler import ApprovalScheduler
from toolgate_schedulers.worker.holds import ReplyTo, StoredHolds

pytestmark = pytest.mark.pure

ANNA = Person("anna", "desk")


class Fleet:
    """Replicas of one scheduler on one store; `sent` are their final answers."""

    def __init__(self, text=RULES):
        self.shared = make_shared_state()
        self.desk = ApprovalQueue(self.shared.store, self.shared.notices)
        self.sent = []
        self.holds = StoredHolds(self.shared.store, "approval", self.send)
        self.config = config(text)

    async def send(self, asked, verdict):
        self.sent.append((asked, verdict))

    def replica(self, replica="r-1", name="approval", shadow=False):
        made = ApprovalScheduler(self.config)
        made.use(SchedulerContext(self.shared, self.holds, "default", replica, name, shadow))
        return made

    async def asked(self, replica, question):
        """What a replica answers; a hold is kept, as its worker would."""
        verdict = await replica.decide(question)
        if isinstance(verdict, Hold):
            item = packing.Item(
                bytes.fromhex(question.id),
                ("select", "verify").index(question.phase),
                packing.pack(question.model_dump(exclude={"id"})),
                None,
            )
            await self.holds.keep(ReplyTo("orch", item), verdict)
        return verdict

    async def answer(self, approval, action="approve", **fields):
        mine = ApprovalAnswer(
            action=action, decision=approval.question.id, digest=approval.digest, by="anna", **fields
        )
        return await self.desk.answer(approval, mine)

    async def start_in_an_outage(self, replica, monkeypatch):
        """The server is away for a moment, and has no notices then."""
        away = [BusDown("the server is away")]

        async def read(*_):
            await asyncio.sleep(0.01)
            if away:
                raise away.pop()
            return []

        monkeypatch.setattr(self.shared.notices, "read", read)
        await replica.start(replica._context)

    async def only(self):
        """The one call that waits."""
        (one,) = await self.desk.list_waiting()
        return one.approval

    @property
    def verdicts(self):
        return [verdict for _, verdict in self.sent]


async def test_a_call_is_kept_with_its_rule_and_held_as_long_as_it_says():
    fleet = Fleet()
    verdict = await fleet.asked(fleet.replica(), call(amount=50))
    assert isinstance(verdict, Hold)
    assert verdict.seconds == 60
    assert (verdict.reason or "").startswith("a person is asked (money): toolgate approvals approve ")
    (one,) = await fleet.desk.list_waiting()
    kept = one.approval
    assert (kept.rule, kept.prompt, kept.scheduler, kept.always) == ("money", "Sure?", "approval", True)
    assert kept.question == call(amount=50)
    assert kept.digest == digest("transfer", {"amount": 50})
    assert 59 < one.seconds_left <= 60


async def test_of_two_replicas_one_gives_the_answer():
    fleet = Fleet()
    one, other = fleet.replica("r-1"), fleet.replica("r-2")
    await fleet.asked(one, call(amount=50))
    approval = await fleet.only()
    await fleet.answer(approval)
    await asyncio.gather(one.give(approval.id), other.give(approval.id))
    assert fleet.verdicts == [Continue(reason="approved by anna")]
    assert await fleet.desk.get_status(approval.id) == "given"
    assert await other.give(approval.id) is None


async def test_an_answer_is_given_without_looking_through_all_that_wait(monkeypatch):
    fleet = Fleet()
    one = fleet.replica()
    await fleet.asked(one, call(amount=50))
    approval = await fleet.only()
    await fleet.answer(approval)
    monkeypatch.delattr(type(fleet.shared.store), "keys")
    for _ in range(2):
        assert await one.give(approval.id) is None
    assert fleet.verdicts == [Continue(reason="approved by anna")]


async def test_the_first_answer_counts():
    fleet = Fleet()
    await fleet.asked(fleet.replica(), call(amount=50))
    approval = await fleet.only()
    assert (await fleet.answer(approval, "deny")).action == "deny"
    assert (await fleet.answer(approval, "approve")).action == "deny"


async def test_a_replica_that_starts_gives_what_was_answered_while_nobody_was_there(wait_until):
    fleet = Fleet()
    await fleet.asked(fleet.replica("dead"), call(amount=50))
    approval = await fleet.only()
    await fleet.shared.notices.publish(TOPIC, b"\xc1 no notice")
    await fleet.shared.notices.publish(TOPIC, packing.pack(["answered", "approval", "f" * 32]))
    await fleet.answer(approval, "edit", tool="refund", arguments={"n": 1})
    late = ApprovalScheduler(fleet.config)
    await late.start(SchedulerContext(fleet.shared, fleet.holds, "default", "late", "approval"))
    try:
        await wait_until(lambda: fleet.sent)
    finally:
        await late.stop()
    assert fleet.verdicts == [Modify(tool="refund", arguments={"n": 1}, reason="corrected by anna")]


async def test_a_question_that_comes_again_after_its_answer_is_answered_so():
    fleet = Fleet()
    await fleet.asked(fleet.replica(), call(amount=50))
    await fleet.answer(await fleet.only(), "deny", reason="no")
    again = await fleet.asked(fleet.replica("r-2"), call(amount=50))
    assert again == Deny(reason="A person was asked about this call and refused it: no (anna)")


async def test_a_call_that_is_asked_about_again_is_answered_again_though_its_answer_was_given_before():
    """A failover may forget the answer and the verdict, and keep that it was given."""
    fleet = Fleet()
    replica = fleet.replica()
    await fleet.asked(replica, call(amount=50))
    approval = await fleet.only()
    await fleet.answer(approval)
    await replica.give(approval.id)
    await fleet.shared.store.delete(f"approval:answer:{approval.id}")
    await fleet.asked(replica, call(amount=50))
    await fleet.answer(await fleet.only())
    while (again := await replica.give(approval.id)) is not None:
        assert again == LEASE_S
        await fleet.shared.store.delete(f"approval:claim:{approval.id}")  # its time is over
    assert [verdict.action for verdict in fleet.verdicts] == ["continue", "continue"]
    assert await fleet.desk.list_waiting() == []


async def test_what_is_held_and_answered_is_given_after_the_bus_was_away(wait_until, monkeypatch):
    """Its verdict was forgotten with the server, and so was the notice."""
    fleet = Fleet()
    await fleet.asked(fleet.replica("dead"), call(amount=50))
    await fleet.answer(await fleet.only())
    one = fleet.replica()
    await fleet.start_in_an_outage(one, monkeypatch)
    try:
        await wait_until(lambda: fleet.sent)
    finally:
        await one.stop()
    assert fleet.verdicts == [Continue(reason="approved by anna")]


async def test_a_call_that_a_failover_let_be_held_but_not_kept_is_at_the_desk_again(wait_until, monkeypatch):
    """It is kept before it is held: one before the failover, the other after it."""
    fleet = Fleet()
    one = fleet.replica()
    await fleet.asked(one, call(amount=50))
    kept = await fleet.only()
    await fleet.shared.store.delete(f"approval:asked:{kept.id}")
    assert (await fleet.only()).rule == ""
    read = fleet.shared.notices.read
    before = (await read(TOPIC, wait_s=0))[-1].id
    await fleet.start_in_an_outage(one, monkeypatch)
    try:
        (said,) = await wait_until(lambda: read(TOPIC, before, 0))
    finally:
        await one.stop()
    assert news(said) == ("asked", "approval", kept.id)
    assert await fleet.only() == kept


async def test_an_answer_of_which_nobody_was_told_is_given_all_the_same(wait_until, monkeypatch):
    """Who answered was killed, or lost the server, between the two; the replica sees no outage."""
    monkeypatch.setattr(approval_scheduler, "UNTOLD_S", 0.02)
    fleet = Fleet()
    one = fleet.replica()
    await one.start(one._context)
    try:
        await fleet.asked(one, call(amount=50))
        approval = await fleet.only()
        await wait_until(lambda: one._due)  # looked at, and unanswered
        await asyncio.sleep(0.05)
        assert fleet.sent == []

        async def away(*_):
            raise BusDown("the cluster is down")

        with monkeypatch.context() as patch:
            patch.setattr(fleet.shared.notices, "publish", away)
            assert (await fleet.answer(approval)).action == "approve"
        await wait_until(lambda: fleet.sent)
        await wait_until(lambda: not one._due)  # nothing is looked for any longer
    finally:
        await one.stop()
    assert fleet.verdicts == [Continue(reason="approved by anna")]


async def test_for_an_answer_to_a_call_that_waits_no_longer_nobody_looks(wait_until, monkeypatch):
    monkeypatch.setattr(approval_scheduler, "UNTOLD_S", 0.02)
    fleet = Fleet()
    one = fleet.replica()
    await fleet.asked(one, call(amount=50))
    await fleet.holds.answer(ID, Deny(reason="withdrawn"))
    assert await one.give((await fleet.desk.find_ids(""))[0]) is None


async def test_what_a_replica_that_died_had_claimed_another_one_gives():
    fleet = Fleet()
    await fleet.asked(fleet.replica(), call(amount=50))
    approval = await fleet.only()
    await fleet.answer(approval)
    assert await fleet.desk.claim(approval.id, "dead") == "first"
    peer = fleet.replica("r-2")
    assert await peer.give(approval.id) == 5.0
    assert fleet.sent == []
    await fleet.shared.store.delete(f"approval:claim:{approval.id}")  # its time ran out
    assert await peer.give(approval.id) is None
    assert [verdict.action for verdict in fleet.verdicts] == ["continue"]
    assert await fleet.desk.get_status(approval.id) == "given"


async def test_an_answer_in_select_never_goes_to_the_call_that_took_its_place():
    """The replica that gave it died before it deleted the hold: both calls are held when a peer goes on."""
    fleet = Fleet()
    await fleet.asked(fleet.replica(), call(amount=50))
    approval = await fleet.only()
    await fleet.answer(approval)
    await fleet.desk.claim(approval.id, "dead")
    await fleet.asked(fleet.replica(), call("file_a", phase="verify"))
    await fleet.shared.store.delete(f"approval:claim:{approval.id}")
    assert await fleet.replica("r-2").give(approval.id) is None
    assert [asked.item.phase for asked, _ in fleet.sent] == [0]
    assert (await fleet.only()).question.phase == "verify"


async def test_an_answer_that_the_dead_had_given_is_not_called_too_late():
    fleet = Fleet()
    await fleet.asked(fleet.replica(), call(amount=50))
    approval = await fleet.only()
    await fleet.answer(approval)
    await fleet.desk.claim(approval.id, "dead")
    assert await fleet.holds.answer(ID, Continue())
    await fleet.shared.store.delete(f"approval:claim:{approval.id}")
    peer = fleet.replica("r-2")
    await peer.give(approval.id)
    assert (len(fleet.sent), await fleet.desk.get_status(approval.id)) == (1, "given")
    await fleet.desk.close(approval.id, "gone")  # by the one that was thought dead
    assert await fleet.desk.get_status(approval.id) == "given"


async def test_where_the_server_does_not_answer_a_call_that_needs_a_person_is_denied_in_time(monkeypatch):
    fleet = Fleet()

    async def hangs(*_):
        await asyncio.Event().wait()

    monkeypatch.setattr(fleet.shared.store, "get", hangs)
    asked = call(amount=50).model_copy(update={"ttl_ms": 100})
    assert await asyncio.wait_for(fleet.replica().decide(asked), 5) == Deny(reason=STORE_AWAY)


async def test_an_answer_to_a_call_that_is_gone_is_given_to_nobody():
    fleet = Fleet()
    await fleet.asked(fleet.replica(), call(amount=50))
    approval = await fleet.only()
    await fleet.answer(approval)
    await fleet.holds.answer(ID, Deny(reason="withdrawn"))
    fleet.sent.clear()
    await fleet.replica().give(approval.id)
    assert fleet.sent == []
    assert await fleet.desk.get_status(approval.id) == "gone"


async def test_an_answer_to_a_call_that_changed_is_given_to_nobody():
    fleet = Fleet()
    await fleet.asked(fleet.replica(), call(amount=50))
    shown = await fleet.only()
    await fleet.asked(fleet.replica(), call(amount=5_000))  # the same decision, another call
    now = await fleet.only()
    await fleet.answer(shown)
    await fleet.replica().give(shown.id)
    assert fleet.sent == []
    assert await fleet.desk.get_status(shown.id) == "changed"
    assert now.id != shown.id
    assert now.question.tool_input == {"amount": 5_000}


async def test_in_verify_the_approved_call_runs_and_any_other_is_asked_about():
    fleet = Fleet()
    replica = fleet.replica()
    await fleet.asked(replica, call(amount=50))
    approval = await fleet.only()
    await fleet.answer(approval)
    await replica.give(approval.id)
    same = await fleet.asked(replica, call(amount=50, phase="verify"))
    assert same == Continue(reason="approved by anna")
    assert isinstance(await fleet.asked(replica, call(amount=51, phase="verify")), Hold)
    assert (await fleet.only()).question.phase == "verify"
    other = call("transfer", phase="verify", amount=50).model_copy(update={"agent_target": "eve"})
    assert isinstance(await fleet.asked(replica, other), Hold)


async def test_a_refusal_in_select_does_not_let_the_same_call_pass_in_verify():
    fleet = Fleet()
    await fleet.asked(fleet.replica(), call(amount=50))
    await fleet.answer(await fleet.only(), "edit", tool="transfer", arguments={"amount": 1})
    assert isinstance(await fleet.asked(fleet.replica(), call(amount=50, phase="verify")), Hold)


async def standing(fleet, approval, exactly):
    id_ = always_id(approval, approval.digest if exactly else None)
    await fleet.desk.let_pass(
        StandingApproval(
            id=id_,
            scheduler="approval",
            session="s",
            tool=approval.question.tool_name,
            rule="money",
            by="anna",
        )
    )
    return id_


async def test_always_lets_pass_the_same_tool_under_the_same_rule_in_the_same_session():
    fleet = Fleet()
    replica = fleet.replica()
    await fleet.asked(replica, call(amount=50))
    id_ = await standing(fleet, await fleet.only(), exactly=False)
    assert (await replica.decide(call(amount=70, id_="2" * 32))).action == "continue"
    for other in (
        call("file_a"),
        call(amount=50).model_copy(update={"session": "t"}),
        call(amount=50).model_copy(update={"session": ""}),
    ):
        assert (await replica.decide(other)).action == "hold"
    assert await fleet.desk.revoke(id_)
    assert (await replica.decide(call(amount=70, id_="2" * 32))).action == "hold"


async def test_always_lets_pass_what_another_scheduler_makes_of_the_very_call_that_was_answered():
    fleet = Fleet()
    replica = fleet.replica()
    await fleet.asked(replica, call(amount=50))
    approval, changed = await fleet.only(), []
    publish = fleet.shared.notices.publish

    async def hear(topic, payload):  # the answer is known from here on
        changed.append(await replica.decide(call(amount=70, phase="verify")))
        return await publish(topic, payload)

    fleet.shared.notices.publish = hear
    rule = build_standing_rule(approval, ANNA, None, exactly=False)
    await answer(fleet.desk, approval, ANNA, "approve", standing=rule)
    assert [one.action for one in changed] == ["continue"]


@pytest.mark.parametrize("before", [True, False])
async def test_always_of_one_who_came_second_lets_nothing_pass_that_did_not_before(before):
    fleet = Fleet()
    replica = fleet.replica()
    await fleet.asked(replica, call(amount=50))
    approval = await fleet.only()
    rule = build_standing_rule(approval, ANNA, None, exactly=False)
    if before:
        await fleet.desk.let_pass(rule)
    await answer(fleet.desk, approval, ANNA, "deny")
    with pytest.raises(ToolgateError, match="was refused"):
        await answer(fleet.desk, approval, ANNA, "approve", standing=rule)
    assert (await replica.decide(call(amount=70, id_="2" * 32))).action == ("continue" if before else "hold")


async def test_always_exactly_lets_pass_the_very_call():
    fleet = Fleet()
    replica = fleet.replica()
    await fleet.asked(replica, call(amount=50))
    await standing(fleet, await fleet.only(), exactly=True)
    assert (await replica.decide(call(amount=50, id_="2" * 32))).action == "continue"
    assert (await replica.decide(call(amount=51, id_="2" * 32))).action == "hold"


async def test_a_rule_that_wants_a_person_each_time_is_not_passed():
    fleet = Fleet()
    replica = fleet.replica()
    await fleet.asked(replica, call("refund"))
    await standing(fleet, await fleet.only(), exactly=False)
    assert (await replica.decide(call("refund", id_="2" * 32))).action == "hold"


GIT = """
rules:
  - {name: pushes, tools: bash, when: {command: "git push*"}, prompt: "Push?"}
  - {name: all else, tools: bash, always: false}
"""
LONG = "⟦toolgate:truncated:4" + 31 * "a" + "⟧"


async def test_a_call_that_a_rule_cannot_see_gets_nothing_of_its_standing_approval():
    fleet = Fleet(GIT)
    replica = fleet.replica()
    await fleet.asked(replica, call("bash", command="git push origin"))
    await standing(fleet, await fleet.only(), exactly=False)
    assert (await replica.decide(call("bash", id_="2" * 32, command="git push"))).action == "continue"
    hidden = call("bash", id_="3" * 32, command=LONG)
    assert (await replica.decide(hidden)).action == "hold"
    kept = await fleet.desk.approval(replica._make_approval(*find_rules(replica.config, hidden), hidden).id)
    assert (kept.rule, kept.always) == ("all else", False)
    assert "command could not be seen whole" in kept.prompt


async def test_a_call_that_needs_a_person_for_an_agent_needs_one_for_whoever_works_for_it():
    rules = "rules: [{tools: pay, agents: clerk}, {tools: pay, agents: scout, name: scouts}]"
    fleet = Fleet(rules)
    replica = fleet.replica()
    below = {"agent": "scout", "lineage": ("clerk", "scout")}
    one = call("pay").model_copy(update=below)
    assert (await fleet.asked(replica, one)).action == "hold"
    id_ = await standing(fleet, await fleet.only(), exactly=False)
    again = one.model_copy(update={"id": "2" * 32})
    assert (await replica.decide(again)).action == "hold"  # that of the scout is not that of the clerk
    assert id_


async def test_a_standing_approval_speaks_for_no_rule_by_which_the_app_asks():
    fleet = Fleet("rules: [{tools: pay, agents: clerk, via: ask_user}, {tools: pay, agents: scout}]")
    replica = fleet.replica()
    one = call("pay").model_copy(update={"agent": "scout", "lineage": ("clerk", "scout")})
    assert (await fleet.asked(replica, one)).action == "hold"
    await standing(fleet, await fleet.only(), exactly=False)
    again = one.model_copy(update={"id": "2" * 32})
    assert (await replica.decide(again)).action == "ask_user"  # that of the scout is not that of the clerk
    alone = again.model_copy(update={"lineage": ("boss", "scout")})
    assert (await replica.decide(alone)).action == "continue"


async def test_a_standing_approval_of_one_rule_is_none_of_another_that_differs_in_its_schema_alone():
    some = "{{tools: pay, schema: {{properties: {{amount: {{{}: 100}}}}, required: [amount]}}}}"
    fleet = Fleet(f"rules: [{some.format('maximum')}, {some.format('exclusiveMinimum')}]")
    replica = fleet.replica()
    await fleet.asked(replica, call("pay", amount=5))
    await standing(fleet, await fleet.only(), exactly=False)
    assert (await replica.decide(call("pay", id_="2" * 32, amount=6))).action == "continue"
    assert (await replica.decide(call("pay", id_="3" * 32, amount=5000))).action == "hold"


async def test_via_ask_user_the_app_is_asked_and_nothing_is_kept():
    fleet = Fleet()
    verdict = await fleet.replica().decide(call("app"))
    assert verdict == AskUser(
        prompt="May app run? (rule 3)",
        options=("Go", "Stop"),
        timeout_s=5,
        reason="app needs a person's approval (rule 3)",
    )
    assert await fleet.shared.store.keys("") == []


async def test_a_shadow_keeps_nobody_waiting():
    fleet = Fleet()
    assert (await fleet.replica(shadow=True).decide(call(amount=50))).action == "ask_user"
    assert await fleet.shared.store.keys("") == []


async def test_it_keeps_calls_under_the_name_that_it_runs_under():
    fleet = Fleet()
    replica = fleet.replica(name="treasury")
    await replica.decide(call(amount=50))
    assert await fleet.shared.store.keys("approval:at:") == ["approval:at:treasury"]


async def test_where_the_store_is_away_a_call_that_needs_a_person_is_denied(monkeypatch):
    fleet = Fleet()

    async def away(*_):
        raise BusDown("gone")

    monkeypatch.setattr(fleet.shared.store, "get", away)
    replica = fleet.replica()
    assert await replica.decide(call(amount=50)) == Deny(reason=STORE_AWAY)
    assert await replica.decide(call(amount=5)) == Continue()


async def test_an_answer_that_may_not_have_been_kept_says_so(monkeypatch):
    fleet = Fleet()
    await fleet.asked(fleet.replica(), call(amount=50))
    approval = await fleet.only()

    async def away(*_):
        raise BusDown("gone")

    monkeypatch.setattr(fleet.shared.store, "add", away)
    with pytest.raises(BusDown, match="may not have been stored"):
        await fleet.answer(approval)


async def test_an_answer_that_cannot_be_given_holds_up_no_other(wait_until, monkeypatch):
    fleet = Fleet()
    replica = ApprovalScheduler(fleet.config)
    ids = {}
    for n in (1, 2):
        await fleet.asked(fleet.replica(), call(amount=50 + n, id_=f"{n:032x}"))
    for one in await fleet.desk.list_waiting():
        ids[one.approval.question.id] = one.approval
    give = replica.give

    async def sometimes(id_):
        if id_ == ids[f"{1:032x}"].id:
            raise RuntimeError("a fault")
        return await give(id_)

    monkeypatch.setattr(replica, "give", sometimes)
    for approval in ids.values():
        await fleet.answer(approval)
    await replica.start(SchedulerContext(fleet.shared, fleet.holds, "default", "r-1", "approval"))
    try:
        await wait_until(lambda: fleet.sent)
    finally:
        await replica.stop()
    assert [asked.item.id.hex() for asked, _ in fleet.sent] == [f"{2:032x}"]
