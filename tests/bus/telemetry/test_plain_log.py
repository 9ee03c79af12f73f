"""Lines of the library where the program has not configured structlog: by `logging`, in words."""

import logging as standard
from weakref import WeakSet

import pytest
import structlog
from toolgate_bus.telemetry import log_line
from toolgate_bus.telemetry import logging as logs
from toolgate_bus.telemetry.loggers import get_logger

pytestmark = pytest.mark.pure


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch):
    """As in a program that uses no structlog, and has no secrets yet."""
    monkeypatch.setattr(log_line, "_hiding", WeakSet())
    structlog.reset_defaults()


class Secrets:
    def hide(self, text):
        return text.replace("hunter2", "…")


def test_a_line_says_what_happened_with_its_fields_and_what_it_is_about(caplog):
    with logs.about(decision="d-1", session="s-1"):
        get_logger("toolgate.test").warning("it broke", scheduler="policy", seconds=2)
    (record,) = caplog.records
    assert record.getMessage() == "it broke (decision='d-1', session='s-1', scheduler='policy', seconds=2)"
    assert (record.name, record.levelname, record.funcName) == (
        "toolgate.test",
        "WARNING",
        "test_a_line_says_what_happened_with_its_fields_and_what_it_is_about",
    )
    assert record.toolgate["scheduler"] == "policy"


def test_what_others_wrote_stays_on_its_line_and_is_bounded(caplog):
    get_logger("toolgate.test").error("said\nby \x1b[31m", words="a\nb" * 5_000)
    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    assert "\x1b" not in record.getMessage()
    assert len(record.getMessage()) < 4_000


def test_secrets_are_hidden_and_exceptions_do_not_speak_then(caplog):
    log = get_logger("toolgate.test")
    try:
        raise ValueError("hunter2")
    except ValueError:
        log.exception("open")
        secrets = Secrets()
        logs.hide_in_logs(secrets)
        log.exception("hidden", word="hunter2")
    open_, hidden = caplog.records
    assert open_.exc_info
    assert not hidden.exc_info
    assert "hunter2" not in hidden.getMessage()
    assert "ValueError at" in hidden.getMessage()


@pytest.mark.parametrize("hidden", [False, True])
def test_an_exception_that_is_handed_over_is_told_as_one_that_is_handled(caplog, hidden):
    secrets = Secrets() if hidden else None
    if secrets:
        logs.hide_in_logs(secrets)
    get_logger("toolgate.test").error("it raised", exc_info=ValueError("hunter2"))
    (record,) = caplog.records
    assert bool(record.exc_info) is not hidden
    assert record.getMessage() == ("it raised (error='ValueError')" if hidden else "it raised")


def test_a_line_that_nobody_wants_is_not_made(caplog):
    caplog.set_level(standard.WARNING, "toolgate.test")

    class Loud:
        def __str__(self):
            raise AssertionError("made")

    get_logger("toolgate.test").info("quiet", value=Loud())
    assert caplog.records == []


def test_without_any_configuration_nothing_goes_to_stdout(capsys):
    log = standard.getLogger("toolgate.alone")
    log.propagate = False
    try:
        get_logger("toolgate.alone").warning("it broke", why="so")
    finally:
        log.propagate = True
    assert capsys.readouterr() == ("", "it broke (why='so')\n")
