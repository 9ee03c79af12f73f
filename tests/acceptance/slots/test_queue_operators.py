"""`toolgate queue`: who has slots, who waits, and what an operator changes of it, on a real server."""

import asyncio

import pytest
from agent_trees import Commands
from questions import decide
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(90)]

POOLS = """
pools:
  - {name: sites, tools: "fetch*", limit: 1, key: "$.url#host", wait_s: 60, share: {by: "label:team"}}
  - {name: desk, tools: desk, limit: 2}
"""
PLACE = {"url": "https://a.org/1"}


class Fleet:
    """Calls that want slots, by the names of their agents."""

    def __init__(self, gate):
        self.gate, self.tasks = gate, {}

    async def want(self, agent, tool="fetch", arguments=PLACE, **who):
        """Ask, and come back once it waits or is decided."""
        waits = asyncio.Event()
        deciding = decide(
            self.gate,
            tool,
            arguments,
            [tool],
            agent=agent,
            on_hold=lambda _: waits.set(),
            session=f"of-{agent}",
            **who,
        )
        self.tasks[agent] = asyncio.create_task(deciding)
        await asyncio.wait(
            [self.tasks[agent], asyncio.create_task(waits.wait())], return_when="FIRST_COMPLETED"
        )

    def end(self, agent):
        decision = self.tasks[agent].result()
        self.gate.note("tool:post", {"decision_id": decision.id, "tool": "fetch", "success": True})

    async def served(self, agent):
        return (await asyncio.wait_for(self.tasks[agent], 20)).allowed

    def waiting(self):
        return [agent for agent, task in self.tasks.items() if not task.done()]


@pytest.fixture
async def fleet(schedulers, tmp_path):
    (tmp_path / "slots.yaml").write_text(POOLS)
    await schedulers.start("slots", "--config", tmp_path / "slots.yaml")
    where = {"redis": schedulers.url, "namespace": schedulers.namespace}
    async with Gate.open(**where, patience_ms=20_000, required=["slots"]) as gate:
        yield Fleet(gate)


@pytest.fixture
def toolgate(schedulers):
    return Commands(schedulers.url, schedulers.namespace)


async def shown(toolgate, pool="sites/a.org"):
    """Who has a slot of a pool, and who waits for one, by agent, in order."""
    pools = {one["name"]: one for one in await toolgate.json("queue")}
    found = pools[pool]
    return [one["agent"] for one in found["held"]], [one["agent"] for one in found["waiting"]], found


async def test_who_has_what_and_who_waits_is_shown_in_the_order_of_their_turns(fleet, toolgate):
    for agent, team in (("a", "x"), ("b", "x"), ("c", "x"), ("d", "y")):
        await fleet.want(agent, labels={"team": team})
    held, waiting, pool = await shown(toolgate)
    assert (held, waiting) == (["a"], ["d", "b", "c"])  # team y had nothing yet
    assert (pool["limit"], pool["most"], pool["held"][0]["fence"]) == (1, 1, 1)
    first = pool["waiting"][0]
    assert (first["tool"], first["session"], first["tenant"], first["why"]) == (
        "fetch",
        "of-d",
        "y",
        "its turn",
    )
    _, table, _ = await toolgate("queue")
    assert "sites/a.org: 1 of 1 in use, 3 wait" in table
    for agent in ("a", "d", "b"):
        fleet.end(agent)
        after = {"a": "d", "d": "b", "b": "c"}[agent]
        assert await fleet.served(after)
        assert fleet.waiting() == {"a": ["b", "c"], "d": ["c"], "b": []}[agent]
    assert (await shown(toolgate))[2]["average_s"] > 0


async def test_a_call_that_is_moved_is_served_first_or_last_and_one_that_is_dropped_is_told_why(
    fleet, toolgate
):
    for agent in "abcde":
        await fleet.want(agent)
    waiting = {one["agent"]: one["id"] for one in (await shown(toolgate))[2]["waiting"]}
    for words in (("move", waiting["d"]), ("move", waiting["b"], "--last")):
        code, out, err = await toolgate("queue", *words)
        assert (code, out.split()[0]) == (0, "moved"), err
    assert (await shown(toolgate))[1] == ["d", "c", "e", "b"]
    assert (await toolgate("queue", "drop", waiting["c"][:12], "--reason", "Not today."))[0] == 0
    assert not await fleet.served("c")
    reason = fleet.tasks["c"].result().reason
    assert reason == "This call waited for a slot of sites; an operator took it out of the queue: Not today."
    fleet.end("a")
    assert await fleet.served("d")
    assert fleet.waiting() == ["b", "e"]


async def test_a_call_that_is_moved_before_another_is_shown_and_served_right_before_it(fleet, toolgate):
    for agent, team in (("a", "x"), ("b", "x"), ("c", "y"), ("d", "x"), ("e", "y")):
        await fleet.want(agent, labels={"team": team})
    assert (await shown(toolgate))[1] == ["c", "b", "e", "d"]
    ids = {one["agent"]: one["id"] for one in (await shown(toolgate))[2]["waiting"]}

    async def move(agent, before):
        return await toolgate("queue", "move", ids[agent][:12], "--before", ids[before][:12])

    for agent, before, after in (("e", "b", ["c", "e", "b", "d"]), ("d", "c", ["d", "c", "e", "b"])):
        code, out, err = await move(agent, before)
        assert (code, out.split()[0]) == (0, "moved"), err
        assert (await shown(toolgate))[1] == after
    code, _, err = await move("d", "d")
    assert (code, "does not wait, or is the same" in " ".join(err.split())) == (2, True)
    served = ["a"]
    while waiting := fleet.waiting():
        fleet.end(served[-1])
        await asyncio.wait([fleet.tasks[one] for one in waiting], return_when="FIRST_COMPLETED", timeout=20)
        served += [one for one in waiting if fleet.tasks[one].done()]
    assert served.index("d") < served.index("c")
    assert served.index("e") < served.index("b")
    assert len(served) == len(set(served)) == 5
    code, _, err = await move("d", "c")
    assert (code, "no waiting call matches" in " ".join(err.split())) == (2, True)


async def test_a_drained_pool_gives_nothing_until_it_is_as_configured_and_a_limit_holds_at_once(
    fleet, toolgate
):
    assert (await toolgate("queue", "drain", "sites"))[0] == 0
    for agent in "ab":
        await fleet.want(agent)
    await fleet.want("c", arguments={"url": "https://other.org"})  # a key that nobody had used before
    assert fleet.waiting() == ["a", "b", "c"]
    assert (await shown(toolgate))[2]["waiting"][0]["why"] == "an operator: it is drained"
    assert (await toolgate("queue", "limit", "sites"))[0] == 0
    assert await fleet.served("a")
    assert await fleet.served("c")
    assert (await toolgate("queue", "limit", "desk", "1"))[0] == 0
    for agent in "fg":
        await fleet.want(agent, "desk", {})
    assert fleet.waiting() == ["b", "g"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("drop", "zz"), "no waiting call matches; `toolgate queue` lists them"),
        (("move", ""), "no waiting call matches"),
        (("move", "a", "--last", "--class", "3"), "--last and --class: give only one of them"),
        (("move", "a", "--last", "--before", "b"), "--last and --before: give only one of them"),
        (("drop", "a", "--reason", " "), "write a text of at most 300 characters"),
        (("--watch", "--json"), "cannot be combined with --json"),
    ],
)
async def test_what_cannot_be_done_is_said_in_words(toolgate, words, told):
    code, _, err = await toolgate("queue", *words)
    assert code == 2
    assert told in " ".join(err.split())


async def test_an_idle_bus_says_so_and_that_nobody_would_give_slots(toolgate):
    code, out, err = await toolgate("queue")
    assert (code, out) == (0, "")
    told = " ".join(err.split())
    assert told.startswith("Nobody has a slot or waits for one. No scheduler slots is alive on this bus")
    assert "toolgate scheduler run slots" in told
    assert await toolgate.json("queue") == []


async def test_a_limit_of_a_pool_that_nobody_has_used_or_of_a_queue_that_nobody_keeps_says_so(
    fleet, toolgate
):
    await fleet.want("a")
    for words in (("drain", "sites"), ("limit", "sites/a.org", "1")):
        assert (await toolgate("queue", *words))[::2] == (0, "")
    code, out, err = await toolgate("queue", "drain", "site")
    assert (code, out) == (0, "site: no new slots are given, until `toolgate queue limit site`\n")
    assert "Nobody has needed a slot of site yet" in err
    code, _, err = await toolgate("queue", "limit", "sites", "1", "--name", "slotz")
    assert code == 0
    assert "No scheduler slotz is alive on this bus" in err
