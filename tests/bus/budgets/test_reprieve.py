"""What is reserved for a call that waits for a person lives by its token, and moves to who answers."""

import pytest
from toolgate_bus.ledger.money.ledger import Account, Offer
from toolgate_bus.ledger.money.settlement import GRACE_S, MAX_SECONDS, SettlementWorker
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.transport.deferrals import KEPT_S, Claim, Deferrals

pytestmark = pytest.mark.pure

FLEET = Account("all/fleet", 100)


class World:
    """A call of `asker` for which 40 are reserved, kept for a person for a minute; time is moved by hand."""

    def __init__(self):
        self.shared, self.now = make_shared_state(), 0.0
        self.kept = Deferrals(self.shared.store)
        self.keeper = SettlementWorker(
            self.shared.ledger,
            self.shared.facts,
            self.shared.store,
            book="budget",
            replica="r",
            clock=lambda: self.now,
        )

    async def wait(self, seconds=60.0):
        await self.shared.ledger.reserve("d", 0, [Offer("t", 40)], [FLEET], "asker")
        await self.kept.keep("d", "asker", b"body", seconds)

    async def pass_by(self, seconds):
        """Let so long pass, in which nobody is alive who is not told of."""
        self.shared.facts.living = set()
        await self.keeper.step()
        self.now += seconds
        await self.keeper.step()

    async def tell(self, *facts):
        for fact in facts:
            self.shared.facts.tell(orchestrator="next", **fact)
        await self.keeper.step()

    @property
    def money(self):
        (account,) = self.shared.ledger.book.balances()
        return account.spent, account.reserved, account.orphans


@pytest.fixture
async def world():
    made = World()
    await made.wait()
    return made


async def answered(world, answer="allow", by="next"):
    return await world.kept.claim("d", Claim(by, answer, "ann", "m"))


ANSWERED = {"event": "tool:answered", "decision_id": "d"}


@pytest.mark.parametrize("seconds", [GRACE_S + 1, MAX_SECONDS + 1])
async def test_it_is_no_orphan_though_who_asked_is_gone(world, seconds):
    await world.pass_by(seconds)
    assert world.money == (0, 40, 0)


async def test_it_moves_to_who_answers_and_is_settled_by_them(world):
    await answered(world)
    await world.tell(ANSWERED, {"event": "tool:post", "decision_id": "d", "cost": 25})
    assert world.money == (25, 0, 0)
    assert await world.shared.ledger.astray() == {}


async def test_a_denial_that_goes_on_with_it_gives_it_back(world):
    await answered(world, "refuse")
    await world.tell(ANSWERED, {"event": "decision", "id": "d", "outcome": "deny"})
    assert world.money == (0, 0, 0)


async def test_who_only_says_that_they_answered_gets_nothing(world):
    await answered(world, by="another")
    await world.tell(ANSWERED, {"event": "tool:post", "decision_id": "d", "cost": 99})
    assert world.money == (0, 40, 0)
    assert await world.shared.ledger.astray() == {"foreign": 1}


async def test_once_its_time_is_over_it_is_given_back_and_nobody_can_answer_any_more(world):
    await world.shared.store.put("deferred:d", await world.shared.store.get("deferred:d"), KEPT_S - 1)
    await world.pass_by(GRACE_S + 1)
    assert world.money == (0, 0, 0)
    late = await answered(world)
    assert (late.answer, late.by) == ("expired", "")


async def test_who_claimed_and_died_before_a_word_leaves_an_orphan(world):
    await answered(world)
    await world.pass_by(GRACE_S + 1)  # handed over: the asker is gone
    assert world.money == (0, 40, 0)
    await world.pass_by(GRACE_S + 1)  # and so is the next
    await world.pass_by(GRACE_S + 1)
    assert world.money == (40, 0, 1)


async def test_who_refused_and_died_before_a_word_has_it_given_back(world):
    await answered(world, "refuse")
    await world.pass_by(GRACE_S + 1)
    assert world.money == (0, 0, 0)


async def test_of_two_claims_the_first_stands_for_both_and_made_again_it_is_the_same(world):
    first, second = Claim("a", "allow", "ann", "1"), Claim("b", "refuse", "bob", "2")
    assert [await world.kept.claim("d", one) for one in (first, second, first)] == [first] * 3


async def test_what_is_not_kept_is_taken_by_nobody(world):
    assert await world.kept.claim("e", Claim("a", "allow", "", "1")) is None


async def test_what_nobody_can_read_is_taken_by_nobody(world):
    await world.shared.store.put("deferred:d:answer", b"\xc1")
    assert (await answered(world)).answer == "denied"
