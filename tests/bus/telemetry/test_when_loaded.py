"""What is loaded late is as if it had been there from the start."""

import json

import pytest

pytestmark = pytest.mark.acceptance

LOGS = """
import logging, sys
from toolgate_bus.telemetry.logging import about, configure_logging
from toolgate_bus.telemetry.loggers import get_logger

ours = get_logger("ours")
configure_logging("INFO", "json")
print("structlog" in sys.modules)
{first}
with about(decision="d-1"):
    ours.info("one", tool="t")
import structlog
theirs = structlog.get_logger("theirs")
with about(decision="d-2"):
    theirs.info("two")
theirs.debug("not shown")
"""
AUTHORS = """
import sys
from toolgate_bus.telemetry.logging import configure_logging
from toolgate_schedulers.worker.loading import load

configure_logging("INFO", "json")
load("author:rule")
print("structlog" in sys.modules)
"""
AUTHOR = """
import structlog
from toolgate_schedulers import Continue, scheduler

structlog.get_logger("author").info("loaded", by="structlog")

@scheduler(name="rule")
async def rule(call):
    return Continue()
"""
LASTS = """
import asyncio, sys
from toolgate_bus.commands import options
from toolgate_bus.telemetry.logging import configure_logging

async def main():
    while "structlog" not in sys.modules:
        await asyncio.sleep(0.01)

options.SETTLED_S = 0.01
configure_logging("INFO", "json")
options.run_async(main)
print("structlog" in sys.modules)
"""
METRICS = """
import sys
{before}
from toolgate_bus.telemetry import metrics

metrics.count(metrics.DECISIONS, "deny", "late", "")
metrics.record_connection("scheduler", True)
metrics.join_registry()
print("prometheus_client" in sys.modules)
import prometheus_client
{after}
page = prometheus_client.generate_latest().decode()
counted = 'toolgate_decisions_total{{agent="",outcome="deny",tool="late"}} 1.0'
print(counted in page, 'side="scheduler"}} 1.0' in page)
print(counted in metrics.exposition("")[1].decode())
"""
REDIS = """
import sys
{before}
from toolgate_bus.transport.redis.client import connection as redis_link
print("opentelemetry.sdk.metrics" in sys.modules)
import opentelemetry.sdk.metrics as metrics
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry import metrics as api
api.set_meter_provider(metrics.MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False))
from redis.observability import OTelConfig, get_observability_instance
get_observability_instance().init(OTelConfig())
print(get_observability_instance().is_enabled())
"""


@pytest.fixture
def told(process):
    """`told(code)`: what a program prints, and what it logs."""

    def run(code: str, **popen: object) -> tuple[list[str], list[str]]:
        ended = process("python", "-c", code, **popen)
        assert ended.wait() == 0, ended.stderr
        return ended.stdout.splitlines(), ended.stderr.splitlines()

    return run


@pytest.mark.parametrize("first", ["", "logging.getLogger('plain').info('zero')", "import structlog"])
def test_whoever_says_the_first_line_it_looks_as_all_others_do(told, first):
    said, lines = told(LOGS.format(first=first))
    assert said == ["False"]
    one, two = map(json.loads, lines[-2:])
    assert (one["event"], one["tool"], one["decision"], one["logger"]) == ("one", "t", "d-1", "ours")
    assert (two["event"], two["decision"], two["logger"], two["level"]) == ("two", "d-2", "theirs", "info")
    assert len(lines) == 2 + ("zero" in first)


def test_what_an_author_logs_by_structlog_looks_so_from_the_first_line_on(told, tmp_path):
    (tmp_path / "author.py").write_text(AUTHOR)
    said, (line,) = told(AUTHORS, cwd=tmp_path)
    told_of = json.loads(line)
    assert said == ["True"]
    assert (told_of["event"], told_of["by"], told_of["logger"]) == ("loaded", "structlog", "author")


def test_a_command_that_lasts_has_loaded_what_formats_its_first_line(told):
    assert told(LASTS) == (["True"], [])


@pytest.mark.parametrize(
    ("before", "after"), [("import prometheus_client", ""), ("", "metrics.join_registry()")]
)
def test_what_was_counted_stands_in_the_registry_before_the_next_heartbeat_is_over(told, before, after):
    said = told(METRICS.format(before=before, after=after))[0]
    assert said == [str(bool(before)), "True True", "True"]


@pytest.mark.parametrize(("before", "there"), [("", "False"), ("import opentelemetry.sdk.metrics", "True")])
def test_the_clients_own_metrics_can_be_turned_on_all_the_same(told, before, there):
    assert told(REDIS.format(before=before))[0] == [there, "True"]
