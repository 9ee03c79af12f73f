"""Labels that verdicts give to a session: who bears them, what counts, and what is unknown."""

import asyncio
from itertools import count

import pytest
from gate_world import growth
from questions import decide as decide_on
from questions import question_about
from toolgate_bus.errors import BusDown
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import Continue, Deny, Hold, Modify
from toolgate_bus.protocol.names import MAX_SESSION_LABELS
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.session_labels import MAX_ABOVE, LabelMark
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.link import session_labels as limits
from toolgate_orchestrator.decision.link.ancestry import Ancestry
from toolgate_orchestrator.decision.link.session_labels import MAX_KIN, SessionLabels

pytestmark = pytest.mark.pure

TOOLS = ["fetch", "send_mail"]
UNTRUSTED = {"source": ("untrusted",)}
READS = ("session_labels",)
SESSIONS = [f"s{number}" for number in range(MAX_KIN + 1)]
"""One more than are remembered where that is asked for."""


def give(*labels, verdict=Continue):
    """A scheduler that gives these labels for `fetch`."""

    def answer(call):
        if call.tool_name != "fetch":
            return Continue()
        fields = {"reason": "r"} if verdict is Deny else {}
        return verdict(session_labels={"source": list(labels)}, **fields)

    return answer


class Guarded:
    """A world with a scheduler that labels, and one that sees what each question bears."""

    def __init__(self, world):
        self.world, self.seen = world, []

    async def watch(self, **fields):
        def look(call):
            self.seen.append(call.session_labels)
            return Continue()

        await self.world.scheduler("watcher", look, **{"reads": READS, **fields})
        return self

    async def labels_of(self, gate, session, **place):
        """What a question of this session bears."""
        await decide_on(gate, "send_mail", {}, TOOLS, session=session, **place)
        return self.seen[-1]


@pytest.fixture
async def guarded(world):
    return await Guarded(world).watch()


async def fetch(gate, session, **place):
    return await decide_on(gate, "fetch", {}, TOOLS, session=session, **place)


@pytest.mark.parametrize("verdict", [Continue, Deny])
async def test_what_a_verdict_gives_the_next_question_bears_and_no_other_session(world, guarded, verdict):
    await world.scheduler("giver", give("untrusted", verdict=verdict))
    gate = await world.gate()
    assert await guarded.labels_of(gate, "s1") == {}
    await fetch(gate, "s1")
    assert await guarded.labels_of(gate, "s1") == UNTRUSTED
    assert await guarded.labels_of(gate, "s2") == {}


async def test_labels_only_grow_whatever_later_verdicts_say(world, guarded):
    said = [("untrusted",), ("web",), ("untrusted", "mail"), ()]

    def answer(call):
        values = said.pop(0) if call.tool_name == "fetch" else ()
        return Continue(session_labels={"source": values} if values else {} if not said else None)

    await world.scheduler("giver", answer)
    gate = await world.gate()
    bears = []
    for _ in range(4):
        await fetch(gate, "s")
        bears.append(set((await guarded.labels_of(gate, "s"))["source"]))
    assert bears == [
        {"untrusted"},
        {"untrusted", "web"},
        {"untrusted", "web", "mail"},
        {"untrusted", "web", "mail"},
    ]


async def test_a_question_bears_which_labels_required_schedulers_gave(world):
    def give_from(name):
        labels = {"trust": [name, "both"]}
        return lambda call: Continue(session_labels=labels if call.tool_name == name else None)

    def look(call):
        seen.append((call.session_labels, call.required_labels))
        return Continue()

    seen = []
    await world.scheduler("sure", give_from("sure"))
    await world.scheduler("maybe", give_from("maybe"))
    await world.scheduler("watcher", look, reads=READS)
    gate, other = await world.gate(required=["sure"]), await world.gate()
    await decide_on(gate, "maybe", {}, ["maybe", "sure"], session="s")
    await decide_on(gate, "t", {}, TOOLS, session="s")
    assert seen[-1] == ({"trust": ("both", "maybe")}, {})
    await decide_on(gate, "sure", {}, ["maybe", "sure"], session="s")
    await decide_on(other, "t", {}, TOOLS, session="below", parent="s", root_session="s")
    assert seen[-1] == ({"trust": ("both", "maybe", "sure")}, {"trust": ("both", "sure")})


async def test_an_apps_labels_and_a_sessions_are_never_one(world):
    seen = []

    def look(call):
        seen.append((call.labels, call.session_labels))
        return Continue(session_labels={"team": ["red"]})

    await world.scheduler("watcher", look, reads=READS)
    gate = await world.gate(labels={"team": "blue"})
    for _ in range(2):
        await fetch(gate, "s", labels={"source": "app"})
    app = {"team": "blue", "source": "app"}
    assert seen == [(app, {}), (app, {"team": ("red",)})]


async def test_a_shadows_labels_do_not_count(world, guarded, wait_until):
    await world.scheduler("giver", give("untrusted"), shadow=True)
    gate = await world.gate()
    heard = []
    gate.subscribe_late(lambda _, verdict: heard.append(verdict))
    decision = await fetch(gate, "s")
    heard += [one for one in decision.verdicts if one.shadow]
    await wait_until(lambda: heard)
    assert heard[0].verdict.session_labels == UNTRUSTED
    assert await guarded.labels_of(gate, "s") == {}


async def test_a_late_verdicts_labels_count(world, guarded, wait_until):
    told = asyncio.Event()

    async def late(call):
        if call.tool_name == "fetch":
            await told.wait()
            return Continue(session_labels=UNTRUSTED)
        return Continue()

    await world.scheduler("giver", late)
    gate = await world.gate(patience_ms=100)
    await fetch(gate, "s")
    told.set()

    async def labelled():
        return await guarded.labels_of(gate, "s") == UNTRUSTED

    await wait_until(labelled)


async def test_a_hold_gives_labels_with_its_final_answer(world, guarded):
    async def decide(call):
        yield Hold(seconds=5)
        yield Continue(session_labels=UNTRUSTED) if call.tool_name == "fetch" else Continue()

    await world.scheduler("giver", decide, streams=True)
    gate = await world.gate()
    await fetch(gate, "s")
    assert await guarded.labels_of(gate, "s") == UNTRUSTED


async def test_the_labels_of_a_modify_count_and_the_verification_bears_them(world):
    seen = []

    def change(call):
        if call.phase == "select":
            return Modify(tool="send_mail", arguments={}, session_labels=UNTRUSTED)
        return Continue()

    def look(call):
        seen.append((call.phase, call.session_labels))
        return Continue()

    await world.scheduler("giver", change)
    await world.scheduler("watcher", look, reads=READS)
    gate = await world.gate()
    await fetch(gate, "s")
    assert seen == [("select", {}), ("verify", UNTRUSTED)]


async def test_the_labels_of_a_modify_that_counts_as_a_denial_count(world, guarded):
    def change(call):
        return Modify(tool="send_mail", session_labels=UNTRUSTED) if call.tool_name == "fetch" else Continue()

    await world.scheduler("giver", change)
    gate = await world.gate()
    assert (await fetch(gate, "s", can=())).outcome == "deny"
    assert await guarded.labels_of(gate, "s") == UNTRUSTED


async def test_a_verdict_on_a_result_labels_the_session_before_the_result_is_given(world, guarded):
    def look(call):
        return Continue(session_labels=UNTRUSTED if call.phase == "result" else None)

    await world.scheduler("giver", look, phases=("result",))
    gate = await world.gate()
    decision = await fetch(gate, "s")
    call = Call("fetch", {}, TOOLS, Caller("s"))
    given = await gate.rule_on_result(call, decision, "a page")
    assert given.value == "a page"
    assert world.hub.labels._marks["s"] == {"source=untrusted": LabelMark()}
    assert await guarded.labels_of(gate, "s") == UNTRUSTED


# ---------------------------------------------------------------------- trees


async def test_children_in_other_processes_bear_labels_from_their_first_question(world, guarded):
    await world.scheduler("giver", give("untrusted"))
    parent, child = await world.gate(), await world.gate()
    await fetch(parent, "boss")
    assert await guarded.labels_of(child, "kid", parent="boss", root_session="boss") == UNTRUSTED
    assert await guarded.labels_of(child, "kid") == UNTRUSTED  # it told who is above it


async def test_a_childs_labels_come_back_to_its_parent_with_its_result(world, guarded):
    await world.scheduler("giver", give("untrusted"))
    parent, child = await world.gate(), await world.gate()
    assert await guarded.labels_of(parent, "boss") == {}
    delegate = await decide_on(parent, "delegate", {}, ["delegate"], session="boss", agent_target="kid")
    await fetch(child, "kid", parent="boss", root_session="boss")
    parent.note("tool:post", {"decision_id": delegate.id, "tool": "delegate", "session": "boss"})
    assert await guarded.labels_of(parent, "boss") == UNTRUSTED


async def test_a_grandchild_that_knows_only_its_parent_shares_the_labels_of_all(world, guarded):
    await world.scheduler("giver", give("untrusted"))
    one, two, three = [await world.gate() for _ in range(3)]
    await fetch(one, "root")
    assert await guarded.labels_of(two, "mid", parent="root", root_session="root") == UNTRUSTED
    assert await guarded.labels_of(three, "leaf", parent="mid") == UNTRUSTED


async def test_a_grandchild_of_an_earlier_version_hears_what_its_root_is_given_while_its_parent_waits(
    world, guarded, monkeypatch, wait_until
):
    monkeypatch.setattr(limits, "BEAT_S", 0.05)
    monkeypatch.setattr(limits, "LIVE_S", -1.0)
    await world.scheduler("giver", give("untrusted"))
    one, two, three = [await world.gate() for _ in range(3)]
    place = {"session": "mid", "parent": "root", "root_session": "root"}
    three._client.labels._store = Earlier(world.hub.labels)
    await decide_on(two, "delegate", {}, ["delegate"], agent_target="leaf", **place)
    assert await guarded.labels_of(three, "leaf", parent="mid") == {}
    await fetch(one, "root")
    monkeypatch.setattr(limits, "FRESH_S", 0.05)

    async def heard():
        return await guarded.labels_of(three, "leaf", parent="mid")

    assert await wait_until(heard, timeout=5) == UNTRUSTED


async def test_what_a_grandchild_is_given_reaches_the_root_through_its_parent(world, guarded, monkeypatch):
    monkeypatch.setattr(limits, "FRESH_S", 0.0)
    await world.scheduler("giver", give("untrusted"))
    one, two, three = [await world.gate() for _ in range(3)]
    assert await guarded.labels_of(one, "root") == {}
    assert await guarded.labels_of(two, "mid", parent="root", root_session="root") == {}
    await fetch(three, "leaf", parent="mid")
    assert await guarded.labels_of(two, "mid") == UNTRUSTED
    assert await guarded.labels_of(one, "root") == UNTRUSTED


async def test_what_a_grandchild_is_given_reaches_a_root_of_which_only_a_process_that_is_gone_knew(
    world, guarded
):
    await world.scheduler("giver", give("untrusted"))
    middle = await world.gate()
    await guarded.labels_of(middle, "mid", parent="root")
    await middle.aclose()
    lowest = await world.gate()
    await fetch(lowest, "leaf", parent="mid")
    await lowest.aclose()
    assert await guarded.labels_of(await world.gate(), "root") == UNTRUSTED


async def test_a_grandchild_bears_what_a_root_was_given_of_which_only_a_process_that_is_gone_knew(
    world, guarded
):
    await world.scheduler("giver", give("untrusted"))
    middle = await world.gate()
    await guarded.labels_of(middle, "mid", parent="root")
    await middle.aclose()
    await fetch(await world.gate(), "root")
    assert await guarded.labels_of(await world.gate(), "leaf", parent="mid") == UNTRUSTED


async def test_while_nobody_reads_labels_one_climbs_by_what_is_stored(world):
    await world.hub.labels.note({"mid": ["root"]})
    await world.scheduler("giver", give("untrusted"))
    await fetch(await world.gate(), "leaf", parent="mid")
    assert world.hub.labels._marks.keys() == {"leaf", "mid", "root"}


async def test_a_label_climbs_past_fifteen_sessions_whose_processes_are_gone_and_no_further(world, guarded):
    await world.scheduler("giver", give("untrusted"))
    for number in range(1, MAX_KIN + 1):
        gate = await world.gate()
        ask = guarded.labels_of if number < MAX_KIN else fetch
        await ask(gate, f"s{number}", parent=f"s{number - 1}")
        await gate.aclose()
    assert world.hub.labels._marks.keys() == {f"s{number}" for number in range(1, MAX_KIN + 1)}


async def test_sessions_that_each_say_that_the_other_is_above_share_their_labels(world, guarded):
    await world.scheduler("giver", give("untrusted"))
    one, two = await world.gate(), await world.gate()
    assert await guarded.labels_of(one, "a", parent="b") == {}
    await fetch(two, "b", parent="a")
    assert await guarded.labels_of(await world.gate(), "a") == UNTRUSTED


async def test_a_session_with_nobody_above_it_stores_no_kin_and_one_with_a_parent_does_so_once(
    world, guarded, away
):
    gate, _, store = away
    store.is_away = False
    for _ in range(3):
        await guarded.labels_of(gate, "alone")
    assert store.notes == 0
    for _ in range(3):
        await guarded.labels_of(gate, "kid", parent="boss")
    assert store.notes == 1
    assert world.hub.labels._above.keys() == {"kid"}


async def test_who_is_above_a_session_that_tells_it_late_is_stored_before_its_call_is_ruled_on(
    world, guarded
):
    gate = await world.gate()
    for place in ({"session": "boss"}, {"session": "kid"}, {"session": "kid", "parent": "boss"}):
        assert world.hub.labels._above == {}
        await guarded.labels_of(gate, **place)
    assert world.hub.labels._above.keys() == {"kid"}


async def test_a_store_that_was_emptied_is_told_again_who_is_above_whom(world, guarded, wait_until):
    gate = await world.gate()
    await guarded.labels_of(gate, "kid", parent="boss")
    world.hub.labels.clear()
    await wait_until(lambda: world.hub.labels._above.keys() == {"kid"}, timeout=10)


async def test_kin_that_cannot_be_stored_leave_labels_known_and_are_stored_once_they_can(
    world, guarded, wait_until
):
    gate = await world.gate()
    store, labels = world.hub.labels, gate._client.labels
    labels._store = refusing = Refusing(store)
    assert await guarded.labels_of(gate, "kid", parent="boss") == {}
    refusing.is_full = False
    await wait_until(lambda: store._above.keys() == {"kid"}, timeout=10)


async def test_a_session_is_stored_below_no_more_sessions_than_are_read(world, guarded):
    await world.hub.labels.note({"kid": [f"old{number}" for number in range(MAX_ABOVE - 1)]})
    gate = await world.gate()
    for number in range(3):
        await guarded.labels_of(gate, "kid", parent=f"new{number}")
    assert len(world.hub.labels._above["kid"]) == MAX_ABOVE


async def test_who_leaves_carries_up_what_another_process_wrote_a_moment_ago(world, guarded, monkeypatch):
    gate = await world.gate()
    monkeypatch.setattr(limits, "BEAT_S", 3600.0)
    assert await guarded.labels_of(gate, "kid", parent="boss") == {}
    await world.hub.labels.keep({"kid": {"source=untrusted": LabelMark()}})
    await gate._client.labels.aclose()
    assert world.hub.labels._marks["boss"] == {"source=untrusted": LabelMark()}


async def test_a_process_in_which_new_sessions_never_end_hears_of_a_label_with_its_next_beat(
    world, guarded, monkeypatch, wait_until
):
    monkeypatch.setattr(limits, "BEAT_S", 0.2)
    monkeypatch.setattr(limits, "FRESH_S", 3600.0)
    await world.scheduler("giver", give("untrusted"))
    one, busy = await world.gate(), await world.gate()
    new = map(str, count())

    async def known():
        await guarded.labels_of(busy, next(new))
        return await guarded.labels_of(busy, "boss")

    assert await known() == {}
    await fetch(one, "boss")
    assert await wait_until(known, timeout=5) == UNTRUSTED


async def test_a_required_reader_that_is_not_there_yet_is_told_what_was_given_a_second_ago(
    world, monkeypatch, wait_until
):
    gate = await world.gate(required=["watcher"], patience_ms=50)
    labels, question = gate._client.labels, question_about("fetch", {}, session="boss")
    monkeypatch.setattr(limits, "BEAT_S", 0.05)
    assert await labels.find(question, 5.0, reads=True) == {}
    await world.hub.labels.keep({"boss": {"source=untrusted": LabelMark()}})

    async def known():
        return await labels.find(question, 5.0, reads=True)

    assert await wait_until(known, timeout=2) == {"source": ["untrusted"]}


async def test_local_tables_are_asked_about_the_question_with_its_labels(world, guarded):
    await world.scheduler("giver", give("untrusted"))
    gate = await world.gate()
    await fetch(gate, "s")
    asked = []

    class Table:
        def answer(self, question):
            asked.append(question.session_labels)

    gate._client.tables.in_force = {"watcher": Table()}
    assert await guarded.labels_of(gate, "s") == UNTRUSTED
    assert asked == [{"source": ["untrusted"]}]


async def test_a_scheduler_of_version_one_is_asked_without_labels_and_can_read_that(world, guarded):
    await world.scheduler("giver", give("untrusted"))
    old, asked = world.hub.scheduler(), []

    class Inbox:
        def deliver(self, deliveries):
            for one in deliveries:
                (item,) = packing.items(one.frame)
                asked.append((item.version, packing.unpack(item.body)))

    old.listen(Inbox())
    await old.start(Member("old", "r1", wire=(1,), tools=("send_mail",)))
    old.want(100)
    gate = await world.gate(patience_ms=200)
    await fetch(gate, "s")
    assert await guarded.labels_of(gate, "s") == UNTRUSTED
    ((version, body),) = asked
    assert (version, body["tool_name"], "session_labels" in body) == (1, "send_mail", False)


async def test_a_call_of_no_session_has_unknown_labels(world, guarded):
    gate = await world.gate()
    assert await guarded.labels_of(gate, "") is None


# ---------------------------------------------------------------------- bounds


async def test_at_the_bound_all_labels_are_unknown(world, guarded):
    values = [f"v{number}" for number in range(MAX_SESSION_LABELS)]
    said = [values, ["one-more"]]
    await world.scheduler(
        "giver",
        lambda call: Continue(session_labels={"n": said.pop(0)}) if call.tool_name == "fetch" else Continue(),
    )
    gate, other = await world.gate(), await world.gate()
    await fetch(gate, "s")
    assert (await guarded.labels_of(gate, "s")).keys() == {"n"}
    await fetch(gate, "s")
    assert await guarded.labels_of(gate, "s") is None
    assert await guarded.labels_of(other, "s") is None


class Away:
    """A store that cannot be reached until it is told."""

    def __init__(self, store):
        self.store, self.is_away, self.reads, self.writes, self.notes = store, True, 0, 0, 0

    async def _do(self, what, *words):
        if self.is_away:
            raise BusDown("away")
        return await getattr(self.store, what)(*words)

    async def read(self, sessions):
        self.reads += 1
        return await self._do("read", sessions)

    async def keep(self, marks):
        self.writes += 1
        return await self._do("keep", marks)

    async def note(self, above):
        self.notes += 1
        return await self._do("note", above)

    async def claim(self, *words):
        return await self._do("claim", *words)


class Earlier:
    """A store as earlier versions use it: they read and write nothing of who is above whom."""

    def __init__(self, store):
        self.store = store

    def __getattr__(self, name):
        return getattr(self.store, name)

    async def read(self, sessions):
        return (await self.store.read(sessions))._replace(above={})

    async def note(self, above):
        pass


class Refusing:
    """A store that takes no kin while it is full."""

    def __init__(self, store):
        self.store, self.is_full = store, True

    def __getattr__(self, name):
        return getattr(self.store, name)

    async def note(self, above):
        if self.is_full:
            raise BusDown("full")
        await self.store.note(above)


@pytest.fixture
async def away(world):
    """A gate on a store that is away."""
    gate = await world.gate(patience_ms=100)
    labels = gate._client.labels
    labels._store = store = Away(world.hub.labels)
    return gate, labels, store


async def test_labels_that_cannot_be_read_are_unknown(world, guarded, away, wait_until):
    gate, _, store = away
    assert await guarded.labels_of(gate, "s") is None
    store.is_away = False

    async def known():
        return await guarded.labels_of(gate, "s") == {}

    await wait_until(known)


async def test_a_write_that_fails_is_counted_and_done_again(world, away, wait_until):
    gate, labels, store = away
    await world.scheduler("giver", give("untrusted"))
    failed = growth("toolgate_session_label_writes_failed_total")
    await fetch(gate, "s")
    await fetch(gate, "s")  # the first try has failed: nobody waits for the next
    assert failed() >= 1
    assert world.hub.labels._marks == {}
    assert labels._known["s"].marks == {"source=untrusted": LabelMark()}
    store.is_away = False
    await wait_until(lambda: world.hub.labels._marks.get("s"))


@pytest.mark.parametrize(
    "live_s", [limits.LIVE_S, -1.0], ids=["of one that asks", "of one that asks no more"]
)
async def test_a_store_that_was_emptied_is_told_again_what_is_known(
    world, guarded, wait_until, monkeypatch, live_s
):
    monkeypatch.setattr(limits, "LIVE_S", live_s)
    await world.scheduler("giver", give("untrusted"))
    gate = await world.gate()
    await fetch(gate, "s")
    assert await guarded.labels_of(gate, "s") == UNTRUSTED
    world.hub.labels.clear()
    await wait_until(lambda: world.hub.labels._marks.get("s"), timeout=10)


async def test_after_the_bus_was_away_all_that_is_known_is_written_again(world, wait_until):
    await world.scheduler("giver", give("untrusted"))
    gate = await world.gate()
    await fetch(gate, "s")
    world.hub.labels.clear()
    gate._client.on_connection(False)
    gate._client.on_connection(True)
    await wait_until(lambda: world.hub.labels._marks.get("s"))


async def test_without_a_reader_nothing_is_read_and_what_is_new_is_written_once(world, away):
    gate, _, store = away
    store.is_away = False
    await world.scheduler("giver", give("untrusted"))
    for _ in range(20):
        await fetch(gate, "s")
        await decide_on(gate, "send_mail", {}, TOOLS, session="s")
    assert (store.reads, store.writes) == (1, 1)  # of what an operator may have taken away before


async def test_a_reader_costs_one_read_a_session_and_a_beat_not_one_a_question(world, guarded, away):
    gate, _, store = away
    store.is_away = False
    for _ in range(50):
        await fetch(gate, "s")
    assert store.reads <= 2


async def test_where_labels_were_forgotten_that_nobody_stored_a_session_is_unknown():
    labels = SessionLabels(Away(None), Ancestry({}), most=MAX_KIN)
    try:
        for session in SESSIONS:
            labels.learn(question(session), UNTRUSTED)
        assert labels.show(question(SESSIONS[-1])) == {"source": ["untrusted"]}
        assert labels.show(question(SESSIONS[0])) is None
    finally:
        labels.close()


async def test_where_what_was_forgotten_is_stored_it_is_read_again(world):
    labels = SessionLabels(world.hub.labels, Ancestry({}), most=MAX_KIN)
    try:
        labels.follow(has_readers=True)
        for session in SESSIONS:
            labels.learn(question(session), UNTRUSTED)
            await labels.settle(question(session), 5.0)
        assert await labels.find(question(SESSIONS[0]), 5.0) == {"source": ["untrusted"]}
    finally:
        labels.close()


def question(session):
    return question_about("fetch", {}, session=session, root_session=session)


# ---------------------------------------------------------------------- operators


async def test_what_an_operator_took_away_is_gone_in_every_process_and_recorded_once(
    world, guarded, wait_until
):
    await world.scheduler("giver", give("untrusted"))
    one, two = await world.gate(), await world.gate()
    noted = []
    for gate in (one, two):
        gate._client.labels.note = lambda event, fact: noted.append((event, fact))
    await fetch(one, "s")
    assert await guarded.labels_of(two, "s") == UNTRUSTED
    await asyncio.sleep(0.01)  # of what is given and taken in one millisecond, what is given stays
    world.hub.take_label("s", "source=untrusted", "ana")

    async def gone():
        return [await guarded.labels_of(gate, "s") for gate in (one, two)] == [{}, {}]

    await wait_until(gone)
    world.hub.labels.clear()  # nor does it grow back from the memory of either
    assert await guarded.labels_of(one, "s") == {}
    assert [event for event, _ in noted] == ["agent:unlabel"]
    fact = noted[0][1]
    assert (fact["session"], fact["label"], fact["value"], fact["by"]) == ("s", "source", "untrusted", "ana")
    await fetch(one, "s")
    assert await guarded.labels_of(one, "s") == UNTRUSTED


async def test_a_label_that_is_given_again_after_it_was_taken_away_stays(world, guarded, wait_until):
    await world.scheduler("giver", give("untrusted"))
    gate = await world.gate()
    await fetch(gate, "s")
    world.hub.labels.take("s", "source=untrusted", "ana")
    await asyncio.sleep(0.01)
    await fetch(gate, "s")  # which this process does not know yet
    await wait_until(lambda: world.hub.labels._marks["s"]["source=untrusted"].times == 3, timeout=10)
    assert await guarded.labels_of(gate, "s") == UNTRUSTED
