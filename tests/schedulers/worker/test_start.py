"""What a start costs: an author's module and a short command load what they need, and no more."""

from importlib.util import find_spec

import pytest

pytestmark = [pytest.mark.acceptance, pytest.mark.system]

KIT = "from toolgate_schedulers import Continue, scheduler"
WATCHED = ("amplifier_core", "jsonschema", "opentelemetry", "prometheus_client", "redis", "structlog", "yaml")
"""What takes long to load, and is for those who need it."""
ASIDE = ("argparse", "csv", "ctypes", "email", "importlib.metadata", "importlib.resources.abc", "zipfile")
"""What of the standard library takes long, and no command that looks once has to load."""
LOADED = """
import atexit, sys

def tell():
    sys.stderr.write("\\nloaded " + " ".join(sys.modules))

atexit.register(tell)
"""
COMMAND = LOADED + "from toolgate_bus.commands.main import main\nmain()\n"


@pytest.fixture
def loads(process):
    """`loads(code, *words)`: the modules that a program has loaded when it ends well."""

    def run(code: str, *words: str, **env: str) -> set[str]:
        ended = process("python", "-c", code, *words, env=env)
        assert ended.wait() == 0, ended.stderr
        return set(ended.stderr.rpartition("\nloaded ")[2].split())

    return run


def test_all_that_is_watched_is_installed():
    assert all(find_spec(name) for name in WATCHED)


def test_an_authors_module_loads_pydantic_and_none_of_the_bus(loads):
    there = loads(LOADED + KIT)
    assert "pydantic" in there
    assert there.isdisjoint({*WATCHED, *ASIDE, "anyio", "asyncio", "json", "rich", "typer"})


@pytest.mark.parametrize("words", [["--help"], ["scheduler", "--help"], ["scheduler", "list", "--help"]])
def test_help_loads_what_writes_it_and_nothing_of_the_bus(loads, words):
    there = loads(COMMAND, *words)
    assert "rich" in there
    assert there.isdisjoint({*WATCHED, "pydantic", "hiredis", "msgpack"})


def test_who_is_alive_is_told_without_the_servers_client_models_metrics_or_a_log(
    loads, server_url, namespace
):
    where = ("--redis", server_url, "--namespace", namespace)
    there = loads(COMMAND, "scheduler", "list", *where)
    assert "msgpack" in there
    assert there.isdisjoint({*WATCHED, *ASIDE, "anyio", "pydantic"})


def test_on_a_server_of_another_kind_the_client_comes_without_metrics(loads, own_server, namespace):
    other = own_server.url.replace("unix://", "unix://default:@")  # who has a user's name, may have more
    there = loads(COMMAND, "scheduler", "list", "--redis", other, "--namespace", namespace)
    assert "redis" in there
    assert there.isdisjoint({*WATCHED, "opentelemetry.sdk", "pydantic"} - {"redis", "opentelemetry"})
