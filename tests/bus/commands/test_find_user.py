"""Who runs a command, as records bear it."""

import os
import pwd

import pytest
from toolgate_bus.commands.options import MAX_USER, find_user

pytestmark = pytest.mark.pure
NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")


@pytest.fixture(autouse=True)
def nameless(monkeypatch):
    def find(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", find)


def test_an_id_without_a_name_is_told_as_that():
    assert find_user() == f"uid-{os.getuid()}"


@pytest.mark.parametrize(
    ("name", "told"),
    [("ann", "ann"), ("x" * 70, "x" * (MAX_USER - 1) + "…"), ("a\x1b[2Jb\n", "a\\u001b[2Jb\\u000a")],
)
def test_a_name_is_short_and_steers_nothing(monkeypatch, name, told):
    monkeypatch.setenv("LOGNAME", name)
    assert find_user() == told


def test_a_name_that_is_no_text_can_be_written_all_the_same(monkeypatch):
    monkeypatch.setitem(os.environb, b"LOGNAME", b"a\xff")
    assert find_user() == "a\\udcff"
    find_user().encode()
