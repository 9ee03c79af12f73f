"""What is loaded late is as if it had been there from the start."""

import json

import pytest

pytestmark = pytest.mark.acceptance

TOLD = """
import sys
from toolgate_bus.telemetry.loggers import when_loaded

there = []
when_loaded("colorsys", lambda: there.append("colorsys" in sys.modules))
when_loaded("colorsys", lambda: there.append("two watch it"))
when_loaded("sys", lambda: there.append("at once"))
when_loaded("no_such_module_anywhere", lambda: there.append("never"))
import importlib.util
importlib.util.find_spec("colorsys")  # to look for it is not to load it
print(there)
import colorsys
colorsys.rgb_to_hsv(0, 0, 0)
import importlib
importlib.reload(colorsys)
try:
    import no_such_module_anywhere
except ModuleNotFoundError:
    print(there)
"""
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
METRICS = """
import sys
from toolgate_bus.telemetry import metrics

metrics.count(metrics.DECISIONS, "deny", "late", "")
metrics.record_connection("scheduler", True)
print("prometheus_client" in sys.modules)
import prometheus_client
page = prometheus_client.generate_latest().decode()
counted = 'toolgate_decisions_total{agent="",outcome="deny",tool="late"} 1.0'
print(counted in page, 'side="scheduler"} 1.0' in page)
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

    def run(code: str) -> tuple[list[str], list[str]]:
        ended = process("python", "-c", code)
        assert ended.wait() == 0, ended.stderr
        return ended.stdout.splitlines(), ended.stderr.splitlines()

    return run


def test_a_function_is_called_once_and_when_the_module_is_there(told):
    assert told(TOLD)[0] == ["['at once']", "['at once', True, 'two watch it']"]


@pytest.mark.parametrize("first", ["", "logging.getLogger('plain').info('zero')", "import structlog"])
def test_whoever_says_the_first_line_it_looks_as_all_others_do(told, first):
    said, lines = told(LOGS.format(first=first))
    assert said == ["False"]
    one, two = map(json.loads, lines[-2:])
    assert (one["event"], one["tool"], one["decision"], one["logger"]) == ("one", "t", "d-1", "ours")
    assert (two["event"], two["decision"], two["logger"], two["level"]) == ("two", "d-2", "theirs", "info")
    assert len(lines) == 2 + ("zero" in first)


def test_what_was_counted_stands_in_a_registry_that_is_loaded_later(told):
    assert told(METRICS)[0] == ["False", "True True", "True"]


@pytest.mark.parametrize(("before", "there"), [("", "False"), ("import opentelemetry.sdk.metrics", "True")])
def test_the_clients_own_metrics_can_be_turned_on_all_the_same(told, before, there):
    assert told(REDIS.format(before=before))[0] == [there, "True"]
