"""The frame of the `toolgate` command: finding, loading, failing and being interrupted."""

import json
import signal
from importlib.metadata import entry_points, version
from itertools import pairwise

import pytest
from toolgate_bus.commands.main import GROUP, SUMMARIES
from toolgate_bus.commands.options import new_event_loop
from toolgate_bus.installation import how_to_install

pytestmark = [pytest.mark.acceptance, pytest.mark.system]

GREETER = """
from typing import Annotated
import typer
from toolgate_bus.commands.options import JsonOption, NamespaceOption, RedisOption
from toolgate_bus.commands.options import bus_settings, console, join_bus
from toolgate_bus.errors import ConfigError, NoServer, OutcomeUnknown

def hello(name: str, redis: RedisOption = None, namespace: NamespaceOption = "default",
          json: JsonOption = False):
    "Say hello."
    settings = bus_settings(redis, namespace, None)
    console.print(f"hello {name} in {settings.namespace} on {settings.redis}")

def broken(kind: str) -> None:
    "Fail."
    raise {"config": ConfigError, "server": NoServer, "write": OutcomeUnknown}[kind](f"[{kind}] went wrong")

def lonely() -> None:
    with join_bus(None, "default", None):
        pass

pets = typer.Typer(help="Keep pets.")

@pets.command()
def feed() -> None:
    "Feed them."
    console.print("fed")

@pets.command()
def walk() -> None:
    "Walk them."
"""
NEEDS_EXTRA = """
import sys
sys.modules["amplifier_core"] = None  # as if it were not installed
import amplifier_core
"""
NEEDS_EXTRA_LATER = """
import sys
def later():
    sys.modules["amplifier_core"] = None
    import amplifier_core
"""
BUG = "import no_such_module_anywhere\n"
LOADED = """
import sys
sys.stderr.write("loaded")
def loud():
    pass
"""


@pytest.fixture
def toolgate(process, tmp_path):
    """`toolgate(…)` runs the command beside another distribution with commands; gives the ended process."""
    site = tmp_path / "site"
    info = site / "greeter-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n")
    points = {
        "hello": "greeter:hello",
        "broken": "greeter:broken",
        "lonely": "greeter:lonely",
        "pets": "greeter:pets",
        "needy": "needs_extra:main",
        "later": "needs_extra_later:later",
        "bug": "bug:main",
        "loud": "loaded:loud",
        "demo": "greeter:feed",
    }
    lines = [f"[{GROUP}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    modules = {
        "greeter": GREETER,
        "needs_extra": NEEDS_EXTRA,
        "needs_extra_later": NEEDS_EXTRA_LATER,
        "bug": BUG,
        "loaded": LOADED,
    }
    for name, text in modules.items():
        (site / f"{name}.py").write_text(text)

    def run(*words, **env):
        ended = process(
            "toolgate", *words, env={"PYTHONPATH": str(site), "COLUMNS": "100", "TERM": "dumb"} | env
        )
        ended.wait()
        return ended

    return run


def code(ended) -> int:
    return ended.popen.returncode


def test_the_help_teaches_and_lists_every_command_without_loading_any(toolgate):
    ended = toolgate("--help")
    assert code(ended) == 0
    assert ended.stderr == ""
    for line in (
        "toolgate demo ",
        "toolgate scheduler run policy --config rules.yaml",
        "toolgate init --from claude",
    ):
        assert line in ended.stdout
    for name in ("scheduler", "replay", "hello", "loud"):
        assert f"│ {name} " in ended.stdout


def test_every_command_of_this_distribution_has_its_line_in_the_help():
    ours = {
        point.name for point in entry_points(group=GROUP) if point.dist and point.dist.name == "toolgate-bus"
    }
    assert {"demo", "run", "replay", "scheduler", "decisions", "bench"} <= ours
    assert ours <= SUMMARIES.keys()


def test_a_text_that_is_none_is_refused_before_anything_is_asked_of_a_server(toolgate):
    for words in (("queue", "limit", "\udcff", "1"), ("queue", "drop", "a", "--reason", "\udcff")):
        ended = toolgate(*words)
        assert code(ended) == 2
        assert "is not valid UTF-8" in ended.stderr


def test_the_version_is_that_of_the_distribution(toolgate):
    ended = toolgate("--version")
    assert (code(ended), ended.stdout) == (0, f"toolgate {version('toolgate-bus')}\n")


def test_a_function_becomes_a_command_with_the_common_options(toolgate):
    ended = toolgate("hello", "you", "--namespace", "blue", TOOLGATE_REDIS_URL="redis://fleet:6379/0")
    assert (code(ended), ended.stdout) == (0, "hello you in blue on redis://fleet:6379/0\n")
    shown = toolgate("hello", "-h").stdout
    assert "install-completion" not in shown
    for word in ("--redis", "TOOLGATE_REDIS_URL", "--namespace", "TOOLGATE_NAMESPACE", "--json"):
        assert word in shown


def test_a_typer_app_becomes_a_group_of_commands(toolgate):
    assert toolgate("pets", "feed").stdout == "fed\n"
    assert "install-completion" not in toolgate("pets", "--help").stdout


def test_another_distribution_cannot_take_a_name_of_ours(toolgate):
    assert toolgate("demo", "--help").stdout.count("Feed them") == 0


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["hello"],
        ["hello", "you", "--wrong"],
        ["--log-level", "loudly", "hello", "you"],
        ["--log-format", "xml", "hello", "you"],
    ],
)
def test_a_wrong_call_exits_2_and_says_so_on_stderr(toolgate, words):
    ended = toolgate(*words)
    assert (code(ended), ended.stdout) == (2, "")
    assert "Error" in ended.stderr


@pytest.mark.parametrize(("kind", "expected"), [("config", 2), ("server", 2), ("write", 1)])
def test_our_errors_are_one_line_on_stderr_and_an_exit_code(toolgate, kind, expected):
    ended = toolgate("broken", kind)
    assert (code(ended), ended.stdout, ended.stderr) == (expected, "", f"Error: [{kind}] went wrong\n")


def test_a_wrong_option_is_refused_by_name(toolgate):
    ended = toolgate("hello", "you", "--redis", "http://fleet")
    assert code(ended) == 2
    assert ended.stderr.startswith("Error: redis: not a URL of a server")


def test_a_command_that_only_joins_says_how_to_start_a_server(toolgate, short_directory):
    ended = toolgate("lonely", XDG_RUNTIME_DIR=str(short_directory))
    assert code(ended) == 2
    assert "No server is running" in ended.stderr
    assert "--redis URL" in ended.stderr
    assert list(short_directory.iterdir()) == []


@pytest.mark.parametrize("command", ["needy", "later"])
def test_a_command_whose_extra_is_missing_says_which_to_install(toolgate, command):
    ended = toolgate(command)
    assert code(ended) == 1
    first, _, rest = ended.stderr.partition(". Run: ")
    assert first == f"Error: `toolgate {command}` needs amplifier_core, which is not installed"
    assert rest.endswith(how_to_install("orchestrator").partition(" ")[2] + "\n")


def test_a_command_that_cannot_be_loaded_is_named_with_the_reason(toolgate):
    ended = toolgate("bug")
    assert code(ended) == 1
    assert "`toolgate bug`" in ended.stderr
    assert "no_such_module_anywhere" in ended.stderr


WAITS = """
import asyncio, sys
from toolgate_bus.commands.options import run_async
import typer

async def main():
    print(type(asyncio.get_running_loop()).__module__, flush=True)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        {then}

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(lambda: run_async(main))
app()
"""


@pytest.fixture
def waiting(process, wait_until):
    """A command that waits in `run_async`, and does `then` when it is cancelled."""

    async def start(then: str):
        command = process("python", "-c", WAITS.format(then=then))
        await wait_until(lambda: command.stdout.endswith("\n"))
        return command

    return start


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_the_first_signal_cancels_and_gives_the_exit_code(waiting, number, expected):
    command = await waiting("raise")
    command.signal(number)
    assert command.wait() == expected
    assert command.stdout.splitlines()[1:] == ["cancelled"]
    assert command.stderr == ""


async def test_a_main_that_takes_the_signal_as_its_call_to_finish_has_ended_well(waiting):
    command = await waiting("return")
    command.signal(signal.SIGTERM)
    assert command.wait() == 0


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("second", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
async def test_the_second_signal_ends_a_main_that_hangs_in_its_clean_up(
    waiting, wait_until, first, second, expected
):
    command = await waiting("await asyncio.sleep(60)")
    command.signal(first)
    await wait_until(lambda: command.stdout.endswith("cancelled\n"))
    command.signal(second)
    assert command.wait() == expected


LOGS = """
import logging, sys, structlog
from toolgate_bus.telemetry.logging import configure_logging
configure_logging("INFO", {form!r})
structlog.get_logger("ours").info("joined", scheduler="policy")
structlog.get_logger("ours").debug("not shown")
logging.getLogger("theirs").warning("slow by %d ms", 7, extra={{"shard": 1}})
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("theirs").exception("broke")
"""


def test_logs_are_json_lines_on_stderr_where_nobody_watches(process):
    command = process("python", "-c", LOGS.format(form=None))
    assert command.wait() == 0
    assert command.stdout == ""
    joined, slow, broke = map(json.loads, command.stderr.splitlines())
    assert (joined["event"], joined["scheduler"], joined["level"], joined["logger"]) == (
        "joined",
        "policy",
        "info",
        "ours",
    )
    assert (slow["event"], slow["level"], slow["logger"], slow["shard"]) == (
        "slow by 7 ms",
        "warning",
        "theirs",
        1,
    )
    assert "ZeroDivisionError" in broke["exception"]


def test_logs_are_words_for_a_person(process):
    command = process("python", "-c", LOGS.format(form="text"))
    assert command.wait() == 0
    assert "scheduler=policy" in command.stderr.splitlines()[0]
    assert "\x1b" not in command.stderr


@pytest.mark.parametrize("words", [("bench",), ("agents", "stop"), ("doctor",)])
def test_the_paragraphs_of_help_are_parted_where_the_terminal_ends_and_nowhere_before(process, words):
    ended = process("toolgate", *words, "--help", env={"COLUMNS": "80", "TERM": "dumb"})
    assert ended.wait() == 0
    lines = ended.stdout.partition("╭")[0].splitlines()
    for line, following in pairwise(line.rstrip() for line in lines):
        assert len(line) <= 80
        if line and following and "   " not in line + following:  # no example
            assert len(f"{line} {following.split()[0]}") > 79, line


def test_of_faults_that_nobody_catches_those_of_a_tls_given_up_half_way_are_not_told(caplog):
    loop, of_tls, closed = new_event_loop(), "Fatal error on SSL protocol", "it failed; the handler is closed"
    try:
        for message, words in ((of_tls, closed), (of_tls, "a bad record"), ("a task failed", closed)):
            loop.call_exception_handler({"message": message, "exception": RuntimeError(words)})
    finally:
        loop.close()
    assert [record.exc_info[1].args for record in caplog.records] == [("a bad record",), (closed,)]
