"""What both buses promise, in memory and on a server: the ports, from the outside."""

import asyncio
from dataclasses import replace

from toolgate_bus.facts.entries import EntryFrames
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.keys import Keys


def id_of(number):
    return number.to_bytes(16, "big")


def hexes(numbers):
    return [id_of(number).hex() for number in numbers]


async def ready(asker, *names, wait_until):
    """Until the verdicts of these can be heard."""
    await wait_until(lambda: asker.bus.read_set >= set(names))


# ------------------------------------------------------------------ questions


async def test_a_question_reaches_exactly_one_replica_of_each_scheduler_asked(buses, wait_until):
    asker = await buses.orchestrator()
    replicas = {
        name: [await buses.scheduler(name, f"r{at}") for at in range(2)]
        for name in ("cost", "router", "idle")
    }
    for number in range(20):
        for name in ("cost", "router"):
            asker.ask(name, id_of(number))
        await asyncio.sleep(0)

    def got(name):
        return sorted(one for replica in replicas[name] for one in replica.inbox.ids())

    await wait_until(lambda: len(got("cost")) >= 20 and len(got("router")) >= 20)
    asker.ask("idle", id_of(99))
    await wait_until(lambda: got("idle"))
    assert got("cost") == got("router") == hexes(range(20))
    assert got("idle") == hexes([99])


async def test_a_delivery_says_who_asks_what_and_for_the_first_time(buses, wait_until):
    asker = await buses.orchestrator()
    replica = await buses.scheduler("cost")
    asker.ask("cost", id_of(1))
    (delivery,) = await wait_until(lambda: replica.inbox.deliveries)
    assert (delivery.orchestrator, delivery.event, delivery.times) == (
        asker.bus.orchestrator,
        "tool:selecting",
        1,
    )
    assert 0 <= delivery.age < 5


async def test_questions_of_one_tick_travel_in_one_frame(buses, wait_until):
    asker = await buses.orchestrator()
    replica = await buses.scheduler("cost")
    for number in range(7):
        asker.ask("cost", id_of(number))
    await wait_until(lambda: replica.inbox.deliveries)
    (delivery,) = replica.inbox.deliveries
    assert [item.id for item in packing.items(delivery.frame)] == [id_of(number) for number in range(7)]


async def test_many_questions_of_one_tick_travel_in_order_in_frames_of_at_most_64(buses, wait_until):
    asker = await buses.orchestrator()
    replica = await buses.scheduler("cost", want=1000)
    for number in range(300):
        asker.ask("cost", id_of(number))
    await wait_until(lambda: len(replica.inbox.ids()) >= 300)
    assert replica.inbox.ids() == hexes(range(300))
    assert max(len(packing.items(one.frame)) for one in replica.inbox.deliveries) <= packing.MAX_ITEMS


async def test_a_withdrawal_is_delivered_as_one(buses, wait_until):
    asker = await buses.orchestrator()
    replica = await buses.scheduler("cost")
    asker.ask("cost", id_of(1))
    asker.ask("cost", id_of(1), "tool:withdrawn")
    await wait_until(lambda: len(replica.inbox.deliveries) == 2)
    assert [one.event for one in replica.inbox.deliveries] == ["tool:selecting", "tool:withdrawn"]


async def test_a_question_asked_before_anybody_is_there_waits_in_the_inbox(buses, wait_until):
    asker = await buses.orchestrator()
    asker.ask("cost", id_of(1))
    await asyncio.sleep(0)
    replica = await buses.scheduler("cost")
    await wait_until(lambda: replica.inbox.ids() == hexes([1]))


async def test_who_wants_nothing_gets_nothing_until_it_does(buses, wait_until):
    asker = await buses.orchestrator()
    paused, witness = await buses.scheduler("cost", want=0), await buses.scheduler("witness")
    asker.ask("cost", id_of(1))
    asker.ask("witness", id_of(2))
    await wait_until(witness.inbox.ids)
    assert paused.inbox.ids() == []
    paused.bus.want(5)
    await wait_until(lambda: paused.inbox.ids() == hexes([1]))


async def test_nobody_gets_more_than_it_wants(buses, wait_until):
    asker = await buses.orchestrator()
    replica, witness = await buses.scheduler("cost", want=0), await buses.scheduler("witness")
    for number in range(5):
        asker.ask("cost", id_of(number))
        await asyncio.sleep(0.001)  # an entry of its own for each
    replica.bus.want(2)
    await wait_until(lambda: len(replica.inbox.ids()) >= 2)
    for number in range(20):
        asker.ask("witness", id_of(number))
        await wait_until(lambda: len(witness.inbox.ids()) == number + 1)  # noqa: B023 - awaited here
    assert replica.inbox.ids() == hexes([0, 1])


# ------------------------------------------------------------------ verdicts


async def test_an_answer_that_is_written_now_is_heard_once_though_nothing_was_asked_of_this_replica(
    buses, wait_until
):
    """As a peer answers a hold of one that died; it is on the bus when the call returns."""
    asker = await buses.orchestrator(watch=["cost"])
    replica = await buses.scheduler("cost")
    await ready(asker, "cost", wait_until=wait_until)
    item = packing.item(id_of(1), 0, codec.verdict_body(codec.Deny(reason="a person said no")))
    await replica.bus.answer_now(asker.bus.orchestrator, item)
    replica.bus.answer(
        asker.bus.orchestrator, packing.item(id_of(2), 0, codec.verdict_body(codec.Continue()))
    )
    await wait_until(lambda: len(asker.ears.verdicts()) == 2)
    assert asker.ears.verdicts()[0] == ("cost", hexes([1])[0], "a person said no")


async def test_a_verdict_comes_back_under_the_name_of_who_gave_it(buses, wait_until):
    asker = await buses.orchestrator()
    for name in ("cost", "router"):
        (await buses.scheduler(name)).answers_everything(f"said by {name}")
    await ready(asker, "cost", "router", wait_until=wait_until)
    asker.ask("router", id_of(1))
    asker.ask("cost", id_of(1))
    await wait_until(lambda: len(asker.ears.verdicts()) == 2)
    assert sorted(asker.ears.verdicts()) == [
        ("cost", id_of(1).hex(), "said by cost"),
        ("router", id_of(1).hex(), "said by router"),
    ]


async def test_a_verdict_reaches_only_the_orchestrator_that_asked(buses, wait_until):
    one, other = await buses.orchestrator(), await buses.orchestrator()
    (await buses.scheduler("cost")).answers_everything()
    await ready(one, "cost", wait_until=wait_until)
    await ready(other, "cost", wait_until=wait_until)
    one.ask("cost", id_of(1))
    await wait_until(one.ears.verdicts)
    other.ask("cost", id_of(2))
    await wait_until(other.ears.verdicts)
    assert [id_ for _, id_, _ in one.ears.verdicts()] == hexes([1])
    assert [id_ for _, id_, _ in other.ears.verdicts()] == hexes([2])


async def test_answers_come_in_the_order_in_which_they_are_given(buses, wait_until):
    asker = await buses.orchestrator()
    replica = await buses.scheduler("cost")
    await ready(asker, "cost", wait_until=wait_until)
    for number in range(3):
        asker.ask("cost", id_of(number))
        await wait_until(lambda: len(replica.inbox.deliveries) == number + 1)  # noqa: B023 - awaited here
    for at in (2, 0, 1):
        replica.answer(replica.inbox.deliveries[at])
        await wait_until(lambda: id_of(at).hex() in str(asker.ears.verdicts()))  # noqa: B023 - as above
    assert [id_ for _, id_, _ in asker.ears.verdicts()] == hexes([2, 0, 1])


async def test_many_answers_of_one_tick_all_come_back(buses, wait_until):
    asker = await buses.orchestrator()
    (await buses.scheduler("cost", want=1000)).answers_everything()
    await ready(asker, "cost", wait_until=wait_until)
    for number in range(500):
        asker.ask("cost", id_of(number))
    await wait_until(lambda: len(asker.ears.verdicts()) >= 500)
    assert sorted(id_ for _, id_, _ in asker.ears.verdicts()) == hexes(range(500))


# ------------------------------------------------------------------ replicas that go


async def test_what_a_replica_did_not_decide_before_it_left_goes_to_a_peer(buses, wait_until):
    asker = await buses.orchestrator()
    leaver = await buses.scheduler("cost", "r1")
    asker.ask("cost", id_of(1))
    await wait_until(leaver.inbox.ids)
    await leaver.bus.aclose()
    peer = await buses.scheduler("cost", "r2")
    await wait_until(lambda: peer.inbox.ids() == hexes([1]))
    assert peer.inbox.deliveries[0].times == 2


async def test_what_was_decided_is_not_delivered_again(buses, wait_until):
    asker = await buses.orchestrator()
    leaver = await buses.scheduler("cost", "r1")
    await ready(asker, "cost", wait_until=wait_until)
    asker.ask("cost", id_of(1))
    await wait_until(leaver.inbox.ids)
    asker.ask("cost", id_of(2))
    await wait_until(lambda: len(leaver.inbox.deliveries) == 2)
    leaver.answer(leaver.inbox.deliveries[0])
    await wait_until(asker.ears.verdicts)
    await leaver.bus.aclose()
    peer = await buses.scheduler("cost", "r2")
    await wait_until(lambda: id_of(2).hex() in peer.inbox.ids())
    assert peer.inbox.ids() == hexes([2])


async def test_who_left_the_roster_still_reads_what_was_asked_before(buses, wait_until):
    asker = await buses.orchestrator()
    replica, _ = await buses.scheduler("cost"), await buses.scheduler("other")
    await wait_until(lambda: len(asker.ears.members) == 2)
    await replica.bus.leave()
    await wait_until(lambda: len(asker.ears.members) == 1)
    asker.ask("cost", id_of(1))
    await wait_until(lambda: replica.inbox.ids() == hexes([1]))


async def test_who_left_is_still_heard_on_what_it_has_in_hand(buses, wait_until):
    asker, replica = await buses.orchestrator(), await buses.scheduler("cost")
    await wait_until(lambda: "cost" in asker.bus.read_set)
    asker.ask("cost", id_of(1))
    await wait_until(lambda: replica.inbox.ids() == hexes([1]))
    await replica.bus.leave()
    await wait_until(lambda: not asker.ears.members)
    replica.answer(replica.inbox.deliveries[0])
    await wait_until(asker.ears.verdicts)


# ------------------------------------------------------------------ roster


async def test_the_roster_tells_who_joins_and_who_leaves(buses, wait_until):
    asker = await buses.orchestrator()
    one = await buses.scheduler("cost", "r1", priority=7, tools=("web_*",), shadow=True, pid=5, host="h")
    await wait_until(lambda: [member.replica for member in asker.ears.members] == ["r1"])
    (member,) = asker.ears.members
    assert (member.name, member.priority, member.tools, member.shadow) == ("cost", 7, ("web_*",), True)
    assert (member.pid, member.host, member.started) == (5, "h", one.member.started)
    await buses.scheduler("router", "r2")
    await wait_until(lambda: {member.name for member in asker.ears.members} == {"cost", "router"})
    await one.bus.aclose()
    await wait_until(lambda: {member.name for member in asker.ears.members} == {"router"})


async def test_the_last_scheduler_that_leaves_is_off_the_roster_at_once(buses, wait_until, monkeypatch):
    # Nobody is off it because a heartbeat expired.
    monkeypatch.setattr("toolgate_bus.transport.redis.roster.roster.EXPIRY_SECONDS", 600)
    asker = await buses.orchestrator()
    replica = await buses.scheduler("cost")
    await wait_until(lambda: asker.ears.members)
    await replica.bus.leave()
    await wait_until(lambda: not asker.ears.members)


async def test_starts_are_ordered(buses):
    starts = [(await buses.scheduler("cost", f"r{at}")).member.started for at in range(3)]
    assert starts == sorted(set(starts))


async def test_a_replica_that_says_something_new_of_itself_is_the_newest_start_at_once(buses, wait_until):
    asker = await buses.orchestrator()
    first, second = [await buses.scheduler("cost", f"r{at}", priority=1) for at in range(2)]
    told = await first.bus.announce(replace(first.member, priority=7, tools=("web_*", "bash")))
    assert (told.priority, told.tools, told.replica) == (7, ("web_*", "bash"), "r0")
    assert told.started > second.member.started

    def heard():
        return {member.replica: (member.priority, member.tools) for member in asker.ears.members}

    await wait_until(lambda: heard() == {"r0": (7, ("web_*", "bash")), "r1": (1, ("*",))})


async def test_a_scheduler_that_joins_late_is_read_without_being_asked(buses, wait_until):
    asker = await buses.orchestrator()
    assert "cost" not in asker.bus.read_set
    replica = await buses.scheduler("cost")
    replica.answers_everything()
    await wait_until(lambda: "cost" in asker.bus.read_set)
    asker.ask("cost", id_of(1))
    await wait_until(lambda: asker.ears.verdicts() == [("cost", id_of(1).hex(), None)])


async def test_a_scheduler_is_noticed_once_every_orchestrator_reads_its_verdicts(buses):
    askers = [await buses.orchestrator() for _ in range(3)]
    replicas = await asyncio.gather(*(buses.scheduler(name) for name in ("cost", "router", "policy")))
    for replica in replicas:
        assert await replica.bus.wait_until_noticed(5.0)
        assert all(replica.member.name in asker.bus.read_set for asker in askers)


async def test_without_orchestrators_there_is_nobody_to_wait_for(buses):
    replica = await buses.scheduler("cost")
    assert await replica.bus.wait_until_noticed(5.0)


async def test_who_is_alive_before_the_orchestrator_is_read_from_its_start(buses):
    await buses.scheduler("cost")
    asker = await buses.orchestrator()
    assert asker.bus.is_connected
    assert "cost" in asker.bus.read_set
    assert [member.name for member in asker.ears.members] == ["cost"]


async def test_who_is_watched_is_read_alive_or_not(buses, wait_until):
    asker = await buses.orchestrator(watch=["cost"])
    assert "cost" in asker.bus.read_set
    asker.bus.watch(["router"])
    await wait_until(lambda: asker.bus.read_set >= {"cost", "router"})


# ------------------------------------------------------------------ facts


async def test_facts_are_kept_in_the_order_in_which_they_were_told(buses, wait_until):
    asker = await buses.orchestrator()
    expected = [packing.item(id_of(number), 0, packing.pack({"seq": number})) for number in range(200)]
    for item in expected:
        asker.bus.fact(lambda item=item: item)

    async def kept():
        if buses.kind == "memory":
            return [packing.items(packing.frame([fact]))[0].id for fact in buses.hub.facts]
        key = Keys(buses.namespace).facts(asker.bus.orchestrator)
        entries = await buses.commands.execute("XRANGE", key, "-", "+")
        frames = EntryFrames()
        return [item.id for entry in entries for item in packing.items(frames.open(key, *entry))]

    async def complete():
        return len(await kept()) >= 200

    await wait_until(complete)
    assert await kept() == [id_of(number) for number in range(200)]
