"""`toolgate exporter` on a real server: it counts what the agents' own processes count, killed or not."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
from questions import decide as decide_on
from toolgate_bus.protocol.events import Continue, Modify
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.definitions import FLEET
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.system]

TOOLS = {name: {"type": "object"} for name in ("bash", "search", "fast_search", "write")}
DENY = {"action": "deny", "reason": "not today"}
AGREED = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
NAMES = frozenset(metric.name for metric in FLEET)


class Exporters:
    """Starts `toolgate exporter` processes and reads their pages."""

    def __init__(self, url, namespace, directory):
        self._where = ("--redis", url, "--namespace", namespace)
        self._directory = directory
        self.started = []

    async def start(self, *options):
        """The process and its URL, once it serves."""
        out = self._directory / f"exporter-{len(self.started)}.out"
        command = [
            sys.executable,
            "-m",
            "toolgate_bus",
            "exporter",
            "--port",
            "0",
            "--json",
            *self._where,
        ]
        with out.open("wb") as file:
            child = subprocess.Popen(
                [*command, *self._where, *options], stdin=subprocess.DEVNULL, stdout=file
            )
        self.started.append(child)
        for _ in range(3000):
            if text := out.read_text():
                return child, json.loads(text)["url"]
            assert child.poll() is None
            await asyncio.sleep(0.01)
        pytest.fail("the exporter did not start")

    def end(self):
        for child in self.started:
            if child.poll() is None:
                child.kill()
            child.wait()


@pytest.fixture
def exporters(server_url, namespace, tmp_path):
    made = Exporters(server_url, namespace, tmp_path)
    yield made
    made.end()


def fetch(url, accept=OPENMETRICS):
    """Status and body of a page; of which namespace its series are is left out."""
    request = urllib.request.Request(url, headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=10) as got:
            page = got.read().decode()
            bare = re.sub(r',?namespace="[^"]*"', "", page)
            return got.status, bare.replace("{,", "{").replace("{}", "")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def page(url):
    """Status and body, without holding up this process."""
    return await asyncio.to_thread(fetch, url)


def samples(text):
    """The samples of the fleet's metrics on a page, without those that are zero, of whatever namespace."""
    return {
        (
            sample.name,
            tuple(sorted(one for one in sample.labels.items() if one[0] != "namespace")),
        ): sample.value
        for family in parse(text)
        if family.name in NAMES
        for sample in family.samples
        if sample.value and not sample.name.endswith("_created")
    }


def counted_here():
    """The same of this process."""
    return samples(metrics.exposition(OPENMETRICS)[1].decode())


def growth(before):
    """What this process counted since then."""
    grown = {name: value - before.get(name, 0.0) for name, value in counted_here().items()}
    return {name: value for name, value in grown.items() if value > 1e-12}


async def exported(url, expected):
    """Wait until the exporter shows just this, or say what differs."""
    found = {}
    for _ in range(200):
        status, text = await page(url)
        found = samples(text) if status == 200 else {}
        if found == pytest.approx(expected):
            return
        await asyncio.sleep(0.05)
    differing = {
        name: (found.get(name), expected.get(name))
        for name in {*found, *expected}
        if found.get(name, 0.0) != pytest.approx(expected.get(name, 0.0))
    }
    pytest.fail(f"exporter and process differ: {differing}")


async def is_read(gate, wait_until):
    """Wait until the gate knows that somebody reads its facts."""
    await wait_until(lambda: gate._client.bus.is_read)


async def decide(gate, rules=None, tool="search", tools=TOOLS, **fields):
    return await decide_on(gate, tool, {"rules": rules or {}}, tools, agent="shop", **fields)


def notes(gate):
    """What a loop notes of turns, requests and tools."""
    who = {"agent": "shop", "session": "s"}
    gate.note("tool:post", {**who, "tool": "search", "success": True, "seconds": 0.02, "cost": 7})
    gate.note("tool:post", {**who, "tool": "search", "success": False, "seconds": 0.2})
    gate.note("tool:error", {**who, "tool": "write", "error": "KeyError", "seconds": 3.0})
    gate.note("tool:error", {**who, "tool": "write", "error": "CancelledError", "seconds": 1.0})
    gate.note("tool:unused", {**who, "tool": "bash"})
    gate.note("tool:unused", {**who, "tool": "invented", "error": "UnknownTool"})
    usage = {"provider": "p", "seconds": 1.25, "input_tokens": 10, "output_tokens": 5, "cost_usd": "0.5"}
    gate.note("usage", {**who, **usage})
    paused = {**who, "tool": "bash", "by": "ops", "pause": "p", "status": "resumed", "seconds": 0.5}
    gate.note("tool:paused", paused)
    gate.note("provider:error", {**who, "provider": "p", "seconds": 0.5, "error": "TimeoutError"})
    for status in ("completed", "cancelled", "error"):
        gate.note("turn", {**who, "loop": "loop-events", "status": status, "seconds": 12.0, "iterations": 2})


async def all_kinds_of_traffic(gate, plain):
    """Decisions of every outcome, with every remark that there is a metric for."""

    async def hooks(call):
        return [Modify(tool="write", arguments={}) if "hooks" in call.tool_input["rules"] else Continue()]

    for _ in range(70):  # enough that what all agree on is counted many at a time
        await decide(plain)
    await decide(gate)
    await decide(gate, {"alpha": DENY}, trace=TRACE)
    await decide(gate, {"alpha": {**DENY, "rule_name": "office hours"}})
    await decide(gate, {"watcher": {**DENY, "rule_name": "in rehearsal", "after": 0.4}})
    await decide(plain, trace=AGREED)  # the newest example of its bucket
    await decide(gate, tool="invented")
    await decide(gate, {"beta": {"action": "modify", "tool": "fast_search", "arguments": {"rules": {}}}})
    await decide(gate, {"beta": {"action": "modify", "tool": "rocket", "arguments": {}}})
    await decide(gate, {"alpha": {"action": "modify", "tool": "write", "arguments": {}, "priority": 99}})
    verify = {"rules": {"beta": DENY}}
    await decide(gate, {"alpha": {"action": "modify", "tool": "write", "arguments": verify}})
    elsewhere = {"rules": {"beta": {"action": "modify", "tool": "fast_search", "arguments": {}}}}
    await decide(gate, {"alpha": {"action": "modify", "tool": "write", "arguments": elsewhere}})  # overruled
    await decide(gate, {"alpha": {"do": "raise"}})
    await decide(gate, {"alpha": {"action": "ask_user", "prompt": "sure?"}})
    await decide(gate, {"watcher": DENY})
    await decide(gate, {"watcher": {**DENY, "after": 0.4}})
    await decide(gate, {"gamma": {"action": "hold", "seconds": 20, "then": {"after": 0.1, **DENY}}})
    await decide(gate, {"alpha": {**DENY, "after": 2.0}})  # late
    await decide(gate, {"hooks": 1}, local=hooks)
    await decide(gate, local=hooks)
    while not (await decide(gate, {"alpha": {"do": "hang"}})).passed_over:
        """It is silent three times that count."""
    cancelled = asyncio.create_task(decide(gate, {"beta": {"do": "hang"}}))
    await asyncio.sleep(0)
    cancelled.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await cancelled


async def results_of_all_kinds(gate):
    """Rulings on results: given, masked, replaced, withheld, and what a shadow would have done."""
    rules = [
        {},
        {"left": "mask secret"},
        {"left": "replace another"},
        {"left": "deny"},
        {"left": "hang"},
        {"right": "mask secret"},
    ]
    for each in rules:
        call = Call("search", {"rules": each}, TOOLS, at=Caller("s", agent="shop"))
        await gate.rule_on_result(call, None, "a secret")


async def test_the_exporter_counts_exactly_what_the_agents_process_counted(
    exporters, schedulers, server_url, namespace, wait_until, tmp_path
):
    _, url = await exporters.start()
    await schedulers.start("obedient:beta")
    bus = {"redis": server_url, "namespace": namespace}
    async with Gate.open(**bus, patience_ms=30_000) as plain:
        await is_read(plain, wait_until)
        before = counted_here()
        await decide(plain)
        await schedulers.start("obedient:alpha", "--concurrency", 100)
        await schedulers.start("obedient:gamma", "--concurrency", 100)
        await schedulers.start("obedient:watcher")
        await schedulers.start("obedient:Giver")
        limits = {"alpha": {"max_priority": 5}}
        async with Gate.open(**bus, patience_ms=1500, schedulers=limits) as gate:
            await wait_until(lambda: len(gate._client.directory.announced) == 5)
            await wait_until(
                lambda: gate._client.bus.read_set >= {"alpha", "beta", "gamma", "watcher", "giver"}
            )
            await all_kinds_of_traffic(gate, plain)
            await schedulers.start("result_rulers:left")
            await schedulers.start("result_rulers:right", "--shadow")
            await wait_until(lambda: len(gate._client.directory.announced) == 7)
            await wait_until(lambda: gate._client.bus.read_set >= {"left", "right"})
            await results_of_all_kinds(gate)
            notes(gate)
        (tmp_path / "rules.yaml").write_text("rules: []\n")
        await schedulers.start("policy", "--config", tmp_path / "rules.yaml", "--tools", "local_*")
        by_table = "toolgate_local_verdicts_total"
        while not any(name == by_table for name, _ in growth(before)):
            await plain.decide(Call("local_look", {}, ["local_look"]))
        late = {("toolgate_late_verdicts_total", (("scheduler", "alpha"),)): 1.0}
        await wait_until(lambda: late.items() <= growth(before).items())
    expected = growth(before)
    await exported(url, expected)
    seen = {name for name, _ in expected}
    unseen = {
        metric.query_name
        for metric in FLEET
        if metric.query_name not in seen and f"{metric.name}_count" not in seen
    }
    assert not unseen, "the traffic leaves out some of the metrics"
    hooks = (("agent", "shop"), ("scheduler", "in-process"), ("tool", "search"))
    assert expected["toolgate_asked_decisions_total", hooks] == 2
    for text in ((await page(url))[1], metrics.exposition(OPENMETRICS)[1].decode()):
        assert '# {trace_id="4bf92f3577b34da6a3ce929d0e0e4736"}' in text


async def test_decisions_are_counted_by_the_labels_that_it_is_told_over_a_restart(
    exporters, schedulers, server_url, namespace, wait_until
):
    await schedulers.start("obedient:alpha")
    options = ("--by-label", "team", "--by-label", "tier")
    child, url = await exporters.start(*options)

    def told(url, **labels):
        words = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
        return f"\ntoolgate_label_decisions_total{{{words}}} 2.0\n" in fetch(url)[1]

    async with Gate.open(redis=server_url, namespace=namespace, patience_ms=30_000) as gate:
        await is_read(gate, wait_until)
        for _ in range(2):
            await decide(gate, {"alpha": DENY}, labels={"team": "red", "of": "no interest"})
            await decide(gate, labels={"tier": "gold"})
        red = {"label": "team", "value": "red", "outcome": "deny"}
        gold = {"label": "tier", "value": "gold", "outcome": "continue"}
        await wait_until(lambda: told(url, **red) and told(url, **gold))
        child.kill()
        child.wait()
        _, url = await exporters.start(*options)
        await wait_until(lambda: told(url, **red) and told(url, **gold))
        assert "no interest" not in fetch(url)[1]


async def test_an_exporter_killed_in_mid_run_counts_nothing_twice_and_forgets_nothing(
    exporters, schedulers, server_url, namespace, wait_until
):
    child, url = await exporters.start()
    await schedulers.start("obedient:alpha")
    before = counted_here()
    highest = 0.0
    async with Gate.open(redis=server_url, namespace=namespace, patience_ms=30_000) as gate:
        await is_read(gate, wait_until)
        stop = asyncio.Event()

        async def agent():
            while not stop.is_set():
                await asyncio.gather(*(decide(gate, {"alpha": DENY} if n % 3 else {}) for n in range(10)))
                notes(gate)
                await asyncio.sleep(0.005)

        running = asyncio.create_task(agent())
        try:
            for _ in range(2):
                shown = highest
                while shown < highest + 50:
                    _, text = await page(url)
                    shown = sum(value for (name, _), value in samples(text).items() if "decisions" in name)
                highest = shown
                os.kill(child.pid, signal.SIGKILL)
                child.wait()
                child, url = await exporters.start()
                await wait_until(lambda at=url: "\ntoolgate_exporter_leads 1.0\n" in fetch(at)[1])
                _, text = await page(url)
                again = sum(value for (name, _), value in samples(text).items() if "decisions" in name)
                assert again >= highest, "a counter fell: Prometheus would add all of it once more"
        finally:
            stop.set()
            await running
    # The agent has ended as well; what it told is still counted.
    await exported(url, growth(before))
    assert "\ntoolgate_exporter_gaps_total 0.0\n" in (await page(url))[1]


async def test_of_two_one_counts_and_the_other_takes_over_when_it_ends(
    exporters, schedulers, server_url, namespace, wait_until
):
    first, url = await exporters.start()
    health = url.replace("metrics", "healthz")
    await wait_until(lambda: fetch(health)[0] == 200)
    _, other = await exporters.start()
    await schedulers.start("obedient:alpha")
    before = counted_here()
    async with Gate.open(redis=server_url, namespace=namespace, patience_ms=30_000) as gate:
        await is_read(gate, wait_until)
        for _ in range(5):
            await decide(gate, {"alpha": DENY})
    await exported(url, growth(before))
    status, words = await page(other.replace("metrics", "healthz"))
    assert (status, words) == (503, "stands by: another exporter of this namespace leads\n")
    _, text = await page(other)
    assert "\ntoolgate_exporter_leads 0.0\n" in text
    assert not samples(text)
    first.terminate()
    assert await asyncio.to_thread(first.wait, 10) == 0
    await exported(other, growth(before))


async def test_gauges_tell_who_is_alive_and_how_full_inboxes_are(
    exporters, schedulers, server_url, namespace, wait_until
):
    _, url = await exporters.start()
    (pid,) = await schedulers.start("obedient:alpha")
    async with Gate.open(redis=server_url, namespace=namespace, patience_ms=200, required=["alpha"]) as gate:
        await decide(gate)

        named = f'toolgate_scheduler_replicas{{namespace="{namespace}",scheduler="alpha"}} 1.0'
        await wait_until(lambda: named in urllib.request.urlopen(url, timeout=10).read().decode())

        def shows(*lines):
            text = fetch(url)[1]
            return all(f"\n{line}\n" in text for line in lines)

        await wait_until(
            lambda: shows(
                'toolgate_scheduler_replicas{scheduler="alpha"} 1.0',
                "toolgate_orchestrators 1.0",
                'toolgate_facts_readers{role="exporter"} 1.0',
                'toolgate_inbox_backlog{scheduler="alpha"} 0.0',
            ),
            timeout=20,
        )
        os.kill(pid, signal.SIGSTOP)
        for _ in range(3):
            await decide(gate)

        def waits():
            found = {
                (sample.name, sample.labels.get("scheduler")): sample.value
                for family in parse(fetch(url)[1])
                for sample in family.samples
            }
            late = found.get(("toolgate_inbox_lag_seconds", "alpha"), 0.0)
            undone = found.get(("toolgate_inbox_backlog", "alpha"), 0) + found.get(
                ("toolgate_inbox_pending", "alpha"), 0
            )
            return late > 0.1 and undone >= 2

        try:
            await wait_until(waits)
        finally:
            os.kill(pid, signal.SIGCONT)


def test_a_port_in_use_ends_the_exporter_with_2_and_a_word(server_url, namespace):
    taken = metrics.serve(0)
    try:
        command = [sys.executable, "-m", "toolgate_bus", "exporter", "--port", str(taken.port)]
        ended = subprocess.run(
            [*command, "--redis", server_url, "--namespace", namespace],
            capture_output=True,
            timeout=60,
            check=False,
        )
    finally:
        taken.close()
    assert ended.returncode == 2
    assert f"port {taken.port} of 127.0.0.1 is in use".encode() in ended.stderr


async def test_replicas_serve_their_metrics_each_on_a_port_of_its_own(
    schedulers, server_url, namespace, wait_until
):
    child = schedulers.run("obedient:alpha", "--replicas", 2, "--metrics-port", 0)
    await schedulers.ready(child, 2)
    said = schedulers._file(schedulers.started.index(child), "out").read_text().splitlines()
    urls = [json.loads(line)["metrics"] for line in said]
    assert len(set(urls)) == 2
    async with Gate.open(redis=server_url, namespace=namespace, patience_ms=30_000) as gate:
        await wait_until(lambda: "alpha" in gate._client.bus.read_set)
        for _ in range(20):
            await decide(gate)

    def answers(url):
        return sum(
            sample.value
            for family in parse(fetch(url)[1])
            if family.name == "toolgate_worker_answers"
            for sample in family.samples
        )

    await wait_until(lambda: sum(map(answers, urls)) == 20)
    await wait_until(
        lambda: 'event_loop_lag_seconds_count{side="scheduler"}' in fetch(urls[0])[1], timeout=10
    )
