"""Who may see the console: tokens, sessions, hosts, origins."""

import pytest
from toolgate_bus.commands.http_access import check_token, is_loopback
from toolgate_bus.errors import ConfigError
from toolgate_bus.telemetry.printable import visible_json
from toolgate_schedulers.commands.console.access import (
    Access,
    check_name,
    host_of,
)

pytestmark = pytest.mark.pure
TOKEN = "a-token-of-enough-letters"


def access(**more):
    return Access(TOKEN, "anna", ["console.example"], port=8765, **more)


def test_only_the_token_signs_in():
    door = access()
    for wrong in ("", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é" * 30):
        assert door.sign_in(wrong) is None
    session = door.sign_in(TOKEN)
    assert session.user == "anna"
    assert door.session({door.cookie: session.key}) == session
    assert door.session({door.cookie: "x"}) is None
    assert door.session({"toolgate-console-1": session.key}) is None
    door.sign_out(session)
    assert door.session({door.cookie: session.key}) is None


def test_a_session_answers_under_the_name_that_was_given():
    door = access()
    session = door.sign_in(TOKEN, "Bert ")
    assert session.user == "Bert"
    renamed = door.rename(session, "Carla")
    assert door.session({door.cookie: session.key}) == renamed
    for bad in ("", " ", "x" * 65, "a\nb", "a\u202eb"):
        with pytest.raises(ConfigError, match="name: must be 1 to 64"):
            check_name(bad)


def test_sessions_are_bounded():
    door = access()
    first = door.sign_in(TOKEN)
    for _ in range(256):
        last = door.sign_in(TOKEN)
    assert door.session({door.cookie: first.key}) is None
    assert door.session({door.cookie: last.key}) == last


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("127.0.0.1:8765", True),
        ("localhost:8765", True),
        ("[::1]:8765", True),
        ("10.1.2.3", True),
        ("Console.Example:8765", True),
        ("evil.example:8765", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        ("localhost:x", False),
        ("me@localhost", False),
        ("localhost/x", False),
        ("[::1", False),
    ],
)
def test_a_name_that_somebody_else_may_point_here_is_not_served(host, served):
    assert access().serves(host) is served


@pytest.mark.parametrize(
    ("headers", "own"),
    [
        ({}, True),
        ({"origin": "http://localhost:8765"}, True),
        ({"origin": "http://localhost:9999"}, False),
        ({"origin": "https://localhost:8765"}, False),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
    ],
)
def test_only_its_own_pages_may_change_anything(headers, own):
    assert access().is_own("localhost:8765", headers) is own


def test_a_token_that_could_be_guessed_is_refused():
    for bad in ("short", "x" * 15, "with a space in it all", "é" * 20):
        with pytest.raises(ConfigError, match="--token: a token needs at least 16"):
            check_token(bad, "--token")
    assert check_token(TOKEN, "--token") == TOKEN


def test_names_and_addresses_of_this_machine_are_told_apart_from_others():
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "box", "")))
    assert host_of("LOCALHOST:1") == "localhost"


def test_what_cannot_be_seen_is_spelled_out_and_is_still_the_same_json():
    text = '{"a": "x\u202e\u200b\U000e0041é 漢"}'
    assert visible_json(text) == '{"a": "x\\u202e\\u200b\\udb40\\udc41é 漢"}'
