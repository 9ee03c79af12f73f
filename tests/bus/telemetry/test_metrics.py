"""The one door to prometheus_client: what is counted is what is read, in both formats, over HTTP."""

import asyncio
import re
import urllib.error
import urllib.request
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain
from toolgate_bus.commands.options import run_async, serve_metrics
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol import codec
from toolgate_bus.protocol.events import ReceivedVerdict
from toolgate_bus.telemetry import definitions, metrics
from toolgate_bus.telemetry.definitions import EXPORTER, FLEET, PROCESS, Metric
from toolgate_bus.telemetry.fact_metrics import metrics_of
from toolgate_bus.telemetry.http import serve_page
from toolgate_bus.telemetry.unanimous import AT_ONCE, UnanimousDecisions

pytestmark = pytest.mark.pure

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
TRACE = "0af7651916cd43dd8448eb211c80319c"


def read(url, accept="text/plain"):
    """Status, content type and body."""
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers={"Accept": accept}), timeout=10
        ) as got:
            return got.status, got.headers["Content-Type"], got.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


@pytest.fixture
def serving():
    made = metrics.serve(0)
    yield made
    made.close()


def test_every_name_is_given_once_and_follows_the_guidelines():
    every = [*FLEET, *PROCESS, *EXPORTER]
    assert len({metric.query_name for metric in every}) == len(every)
    for metric in every:
        assert metric.name.startswith("toolgate_")
        assert metric.help.endswith(".")
        assert (metric.kind == "histogram") == bool(metric.buckets)
        assert not set(metric.labels) & {"session", "decision", "id", "call", "tool_call_id"}


def test_metrics_are_served_as_text_and_as_openmetrics(serving):
    metrics.count(metrics.DECISIONS, "deny", "served", "")
    status, kind, body = read(serving.url)
    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    assert {family.name for family in plain(body)} >= {metric.name for metric in FLEET}
    status, kind, body = read(serving.url, OPENMETRICS)
    assert (status, kind.partition(";")[0]) == (200, "application/openmetrics-text")
    (decisions,) = (family for family in openmetrics(body) if family.name == "toolgate_decisions")
    assert [one.value for one in decisions.samples if one.labels["tool"] == "served"] == [1.0]


def test_a_label_that_no_page_can_hold_is_written_as_near_as_can_be(serving):
    metrics.count(metrics.ASKED, "odd\ud800", "t", "a")
    metrics.observe(metrics.VERDICT_SECONDS, 0.1, "odd\ud800")
    for accept in (OPENMETRICS, "text/plain"):
        status, _, body = read(serving.url, accept)
        assert status == 200
        assert body.count('scheduler="odd?"') > 1


def test_no_label_steers_a_terminal_that_shows_the_page(serving):
    name = "agent\x1b]0;x\x07\x9b31m\r\u202e"
    metrics.count(metrics.ASKED, name, "t", "a")
    metrics.observe(metrics.VERDICT_SECONDS, 0.1, name)
    for accept in (OPENMETRICS, "text/plain"):
        body = read(serving.url, accept)[2]
        assert body.count('scheduler="agent') > 1
        assert [one for one in body if not one.isprintable() and one != "\n"] == []


def test_the_newest_example_of_each_bucket_shows_in_openmetrics(serving):
    older = TRACE.replace("0", "1")
    metrics.observe(metrics.VERDICT_SECONDS, 0.003, "exemplary", trace=older)
    metrics.observe(metrics.VERDICT_SECONDS, 0.004, "exemplary", trace=TRACE)
    metrics.observe(metrics.VERDICT_SECONDS, 0.3, "exemplary")
    samples = [
        sample
        for family in openmetrics(read(serving.url, OPENMETRICS)[2])
        for sample in family.samples
        if sample.name == "toolgate_verdict_seconds_bucket" and sample.labels["scheduler"] == "exemplary"
    ]
    found = {sample.labels["le"]: sample.exemplar for sample in samples if sample.exemplar}
    assert list(found) == ["0.005"]
    assert found["0.005"].labels == {"trace_id": TRACE}
    assert found["0.005"].value == 0.004
    assert "trace_id" not in read(serving.url)[2]


def test_what_is_healthy_is_asked_of_the_owner():
    well = [True, "reads"]
    serving = serve_page(0, "127.0.0.1", metrics.exposition, lambda: tuple(well))
    try:
        base = serving.url.removesuffix("metrics")
        assert read(f"{base}healthz")[::2] == (200, "reads\n")
        well[:] = [False, "stands by"]
        assert read(f"{base}healthz")[::2] == (503, "stands by\n")
        assert read(f"{base}livez")[0] == 200
        assert read(f"{base}etc/passwd")[0] == 404
    finally:
        serving.close()


def test_a_port_in_use_is_told_with_what_to_do(serving):
    with pytest.raises(ConfigError, match=rf"port {serving.port} of 127.0.0.1 is in use; give another"):
        metrics.serve(serving.port)


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1 is no address of this machine"):
        metrics.serve(0, "192.0.2.1")


HISTOGRAM = Metric("toolgate_test_seconds", "histogram", "Test.", ("who",), (0.1, 1.0, 10.0))


@given(st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 11.0, 1e6]), max_size=60))
def test_observations_noted_in_any_number_come_into_their_buckets(observed):
    kept, naive = metrics.Durations(HISTOGRAM), [0] * 4
    metrics_noted, metrics.NOTED = metrics.NOTED, 7
    try:
        for seconds in observed:
            kept.observe(seconds, ("a",))
            naive[bisect_left(HISTOGRAM.buckets, seconds)] += 1
    finally:
        metrics.NOTED = metrics_noted
    rows = kept.rows()
    if not observed:
        assert rows == {}
        return
    assert rows["a",][:-1] == naive
    assert rows["a",][-1] == pytest.approx(sum(observed))


def heard(name, seconds):
    return ReceivedVerdict(name, codec.PLAIN_CONTINUE, seconds=seconds)


@pytest.mark.parametrize("decisions", [1, AT_ONCE - 1, AT_ONCE, 3 * AT_ONCE + 5])
def test_what_all_agreed_on_counts_as_its_fact_says(decisions):
    agreed, from_facts, batch = UnanimousDecisions(), {}, None
    for number in range(decisions):
        tool = f"t{number % 2}"
        verdicts = (heard("a", 0.001), heard("b", 0.25))
        revisions = ("v1 local" if number % 3 else "v1", " local")
        note = (tool, "shop", 0.25, b"", b"", 0.0, number, 0.001, 0.25, *revisions)
        if batch is not None and len(batch.notes) == AT_ONCE * len(note):
            agreed.close(batch)
            batch = None
        if batch is None:
            batch = agreed.batch((("a", 0), ("b", 0)), note)
        else:
            batch.notes += note
        if number % 50 == 7:  # somebody reads in between, or its facts are made
            agreed.decisions()
        if number % 90 == 8:
            agreed.close(batch)
            batch = None
        fact = {
            "event": "decision",
            "outcome": "continue",
            "why": "agreed",
            "tool_name": tool,
            "agent": "shop",
            "available_tools": [tool],
            "asked": ["a", "b"],
            "seconds": 0.25,
            "verdicts": [
                {"scheduler": v.scheduler, "action": "continue", "seconds": v.seconds, "revision": revision}
                for v, revision in zip(verdicts, revisions, strict=True)
            ],
        }
        for metric, labels, amount, _ in metrics_of(fact):
            key = (metric, labels)
            from_facts[key] = from_facts.get(key, 0) + (1 if metric.kind == "histogram" else amount)
    noted = {
        (metric, labels): number
        for metric, series in (
            (definitions.DECISIONS, agreed.decisions()),
            (definitions.ASKED, _summed(agreed.questions())),
            (definitions.VERDICTS, _summed(agreed.verdicts())),
            (definitions.LOCAL_VERDICTS, agreed.local_verdicts()),
        )
        for labels, number in series
    }
    for metric, rows in (
        (definitions.DECISION_SECONDS, agreed.decision_seconds()),
        (definitions.VERDICT_SECONDS, agreed.verdict_seconds()),
    ):
        noted |= {(metric, labels): sum(row[:-1]) for labels, row in rows.items()}
    assert noted == from_facts


def _summed(pairs):
    sums = {}
    for labels, number in pairs:
        sums[labels] = sums.get(labels, 0) + number
    return sums.items()


LAG_SHOWN = re.compile(r'^toolgate_event_loop_lag_seconds_count\{(.*,)?side="here"\}', re.MULTILINE)
"""With the namespace before it, where something in this process has opened a bus."""


async def _one_look():
    before = metrics.value("toolgate_event_loop_lag_seconds_count", side="here")
    for _ in range(500):
        if metrics.value("toolgate_event_loop_lag_seconds_count", side="here") > before:
            return True
        await asyncio.sleep(0.01)
    return False


def test_a_command_serves_its_metrics_and_how_late_its_event_loop_is():
    with serve_metrics(0, "127.0.0.1", "here") as url:
        assert run_async(_one_look)
        assert LAG_SHOWN.search(read(url)[2])
    with pytest.raises(urllib.error.URLError):
        read(url)


def test_a_command_without_a_port_serves_nothing_and_measures_nothing():
    with serve_metrics(None, "127.0.0.1", "nowhere") as url:
        assert url is None
        run_async(lambda: asyncio.sleep(0.3))
    assert metrics.value("toolgate_event_loop_lag_seconds_count", side="nowhere") == 0
