"""Several schedulers in one process: each has its own name, verdicts and failures (`scheduler run A B C`)."""

import asyncio
import json
import signal

import pytest
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance

TOOLS = ["bash", "search"]
THREE = ("obedient:alpha", "obedient:beta", "obedient:gamma")


def gate_on(bus, **config):
    return Gate.open(redis=bus.url, namespace=bus.namespace, **config)


def words(child, schedulers, kind):
    """The lines of one kind that a `--json` process has printed."""
    text = schedulers._file(schedulers.started.index(child), "out").read_text()
    return [line for line in map(json.loads, text.splitlines()) if line["event"] == kind]


def heard(decision):
    return {one.scheduler: one.verdict.action for one in decision.verdicts}


async def test_each_of_three_rules_by_its_own_name_and_none_changes_what_another_sees(schedulers, process):
    child = schedulers.run(*THREE)
    pids = await schedulers.ready(child, 3)
    assert len(set(pids)) == 1
    ready = words(child, schedulers, "ready")
    assert [line["name"] for line in ready] == ["alpha", "beta", "gamma"]
    assert len({line["replica"] for line in ready}) == 1
    async with gate_on(schedulers, patience_ms=10_000, required=["alpha", "beta", "gamma"]) as gate:
        rules = {"beta": {"action": "deny", "reason": "beta's own"}, "gamma": {"action": "continue"}}
        denied, *others = await asyncio.gather(
            gate.decide(Call("bash", {"rules": rules}, TOOLS)),
            *(gate.decide(Call("search", {"n": number}, TOOLS)) for number in range(100)),
        )
    assert (denied.reason, denied.scheduler) == ("beta's own", "beta")
    plain = {"alpha": "continue", "beta": "continue", "gamma": "continue"}
    assert all(heard(one) == plain for one in others)
    for name in plain:
        assert len(schedulers.lines("decided", scheduler=name)) == 101
    where = ("--redis", schedulers.url, "--namespace", schedulers.namespace, "--json")
    listing = process("toolgate", "scheduler", "list", *where)
    assert listing.wait(30) == 0
    lines = [json.loads(line) for line in listing.stdout.splitlines()]
    assert {(line["name"], line["members"][0]["pid"]) for line in lines} == {(one, pids[0]) for one in plain}


async def test_one_that_hangs_and_one_that_raises_hold_up_no_other(schedulers):
    await schedulers.ready(schedulers.run(*THREE, "--concurrency", 4), 3)
    rules = {"alpha": {"do": "hang"}, "beta": {"do": "raise"}, "gamma": {"action": "deny", "reason": "no"}}
    async with gate_on(schedulers, patience_ms=600_000) as gate:
        # More than alpha has room for, before and while gamma is asked.
        decisions = await asyncio.gather(
            *(gate.decide(Call("bash", {"rules": rules, "n": n}, TOOLS)) for n in range(30))
        )
        for number in range(10):
            decisions.append(await gate.decide(Call("bash", {"rules": rules, "n": number}, TOOLS)))
    assert {(one.outcome, one.scheduler) for one in decisions} == {("deny", "gamma")}


async def test_a_reload_takes_all_configurations_or_none(schedulers, wait_until, tmp_path):
    files = {name: tmp_path / f"{name}.yaml" for name in ("first", "second")}

    def write(name, mark, tool):
        files[name].write_text(f"{{mark: {mark}, tools: [{tool}]}}")

    write("first", "first0", "bash")
    write("second", "second0", "search")
    specs = [f"{name}=marked:Marked" for name in files]
    configs = [word for name, file in files.items() for word in ("--config", f"{name}={file}")]
    child = schedulers.run(*specs, *configs)
    await schedulers.ready(child, 2)

    async def marks():
        return [(await gate.decide(Call(tool, {}, TOOLS))).reason.partition("=")[0] for tool in TOOLS]

    async with gate_on(schedulers, patience_ms=10_000, required=list(files)) as gate:
        write("first", "first1", "bash")
        files["second"].write_text("makr: second1")
        child.send_signal(signal.SIGHUP)
        (told,) = await wait_until(lambda: words(child, schedulers, "not_reloaded"))
        assert (told["name"], "unknown key" in told["error"]) == ("second", True)
        assert await marks() == ["first0", "second0"]
        write("second", "second1", "search")
        child.send_signal(signal.SIGHUP)
        await wait_until(lambda: len(words(child, schedulers, "reloaded")) == 2)
        assert await marks() == ["first1", "second1"]
    child.terminate()
    assert child.wait(20) == 0


@pytest.mark.parametrize("peer", [("obedient:alpha", "obedient:beta"), ("obedient:alpha",)])
async def test_kill_9_in_the_middle_loses_nothing_while_a_peer_runs(schedulers, tmp_path, peer):
    """A peer that runs the same two takes over from it; one that runs alone was asked beside it all along."""
    await schedulers.ready(schedulers.run("obedient:alpha", "obedient:beta"), 2)
    await schedulers.ready(schedulers.run(*peer), len(peer))
    mark, names = tmp_path / "killed", ["alpha", "beta"][: len(peer)]
    room = asyncio.Semaphore(16)

    async def decide(number):
        rules = {"alpha": {"action": "deny", "reason": f"{number}", "after": 0.01}}
        if number == 100:
            rules["alpha"] = {"do": "die", "mark": str(mark)}
        async with room:
            return await gate.decide(Call("search", {"n": number, "rules": rules}, TOOLS))

    async with gate_on(schedulers, patience_ms=30_000, required=names) as gate:
        decisions = await asyncio.gather(*map(decide, range(200)))
    assert mark.exists()
    lost = [number for number, one in enumerate(decisions) if "alpha" in one.silent]
    assert lost == []
    assert [one.reason for number, one in enumerate(decisions) if number != 100] == [
        str(number) for number in range(200) if number != 100
    ]
