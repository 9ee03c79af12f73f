"""Who may talk to a sidecar, and where it may listen."""

import os
import socket
import stat

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator.commands.serve.access import AccessTokens, TlsFiles, read_tokens
from toolgate_orchestrator.commands.serve.place import (
    HttpAddress,
    check_address,
    open_socket,
    parse_address,
)

pytestmark = pytest.mark.pure

TOKEN = "0123456789abcdef"
OTHER = "fedcba9876543210"


def test_each_token_of_the_file_opens_and_nothing_else_does():
    tokens = AccessTokens((TOKEN, OTHER))
    admitted = [f"Bearer {TOKEN}", f"bearer {OTHER}", f"BEARER  {OTHER} "]
    assert all(tokens.admits(one.encode()) for one in admitted)
    refused = [TOKEN, f"Basic {TOKEN}", "Bearer", "Bearer ", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}{TOKEN}"]
    assert not any(tokens.admits(one.encode()) for one in refused)
    assert not tokens.admits(None)
    assert AccessTokens(()).admits(None)


def test_tokens_are_read_from_a_file_that_only_its_user_can_read(tmp_path):
    file = tmp_path / "tokens"
    file.write_text(f"# of the clerk\n{TOKEN}\n\n  {OTHER}\n")
    file.chmod(0o600)
    assert read_tokens(file) == (TOKEN, OTHER)
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_tokens(file)
    file.chmod(0o600)
    for text, words in (
        ("# none\n", "has no token"),
        ("short\n", "at least 16"),
        (f"{TOKEN} {OTHER}\n", "without"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=words):
            read_tokens(file)


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:80", ("127.0.0.1", 80)), ("[::1]:0", ("::1", 0)), ("localhost:65535", ("localhost", 65535))],
)
def test_an_address_is_a_host_and_a_port(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["127.0.0.1", "8181", ":8181", "::1:80", "h:65536", "h:x", ""])
def test_anything_else_is_no_address(text):
    with pytest.raises(ConfigError, match="write HOST:PORT"):
        parse_address(text)


def test_others_reach_it_by_mutual_tls_alone(tmp_path):
    mutual, plain = TlsFiles(tmp_path, tmp_path, tmp_path), TlsFiles(tmp_path, tmp_path, None)
    for host in ("0.0.0.0", "::", "192.0.2.1", "sidecar.example"):
        check_address(HttpAddress(host, 1), mutual, has_token=False)
        for tls in (None, plain):
            with pytest.raises(ConfigError, match="a token alone does not protect"):
                check_address(HttpAddress(host, 1), tls, has_token=True)
    for host in ("127.0.0.1", "::1", "localhost"):
        check_address(HttpAddress(host, 1), None, has_token=True)
        with pytest.raises(ConfigError, match="every user of this machine could ask"):
            check_address(HttpAddress(host, 1), None, has_token=False)


def test_the_socket_is_its_users_alone_and_goes_with_the_sidecar(short_directory):
    path = short_directory / "new" / "s.sock"
    with open_socket(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        with pytest.raises(ConfigError, match="something listens on"), open_socket(path):
            pass
    assert not path.exists()


def test_the_socket_of_a_sidecar_that_was_killed_is_replaced_and_a_file_is_not(short_directory):
    path = short_directory / "s.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with open_socket(path):
        assert path.exists()
    path.write_text("a file")
    with pytest.raises(ConfigError, match="is not a socket"), open_socket(path):
        pass
    assert path.read_text() == "a file"


def test_the_socket_of_the_next_sidecar_is_left_alone(short_directory):
    path = short_directory / "s.sock"
    with open_socket(path):
        path.unlink()
        next_one = socket.socket(socket.AF_UNIX)
        next_one.bind(str(path))
    assert path.exists()
    next_one.close()
    assert os.fsencode(path)
