"""TLS by the recipe in deploy/: certificates, a server that wants one of each client, our own clients."""

import shutil
import ssl
import subprocess

import pytest
import redis
from guarded_server import guarded, make_certificates
from toolgate_bus.errors import TransportError
from toolgate_bus.transport.redis.client.connection import RedisCommands, open_link
from toolgate_bus.transport.redis.client.link import pack_command

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]


@pytest.fixture
def tls(tmp_path):
    return make_certificates(tmp_path / "tls", "localhost", "127.0.0.1")


@pytest.fixture
def secured(tmp_path, tls):
    with guarded(tmp_path, "redis", ["policy"], tls) as server:
        yield server


async def test_both_our_connections_speak_tls_with_a_certificate_of_their_own(secured, wait_until):
    url = secured.url("agent")
    commands = RedisCommands(url, "test")
    assert await commands.execute("PING") in (b"PONG", "PONG", True)
    await commands.aclose()
    replies = []
    link = await open_link(url, "test", lambda reply, tag: replies.append(reply))
    for size in (10, 300_000):  # one frame of TLS, and many
        link.write(
            pack_command(("XADD", "tg:{default:0}:in:policy", "*", "event", "x", "frame", b"x" * size))
        )
        await wait_until(lambda: replies)
        assert b"-" in replies.pop()
    link.drop()


async def refusal(url: str) -> str:
    commands = RedisCommands(url, "test")
    with pytest.raises(TransportError) as refused:
        await commands.execute("PING")
    await commands.aclose()
    return str(refused.value)


async def test_a_server_of_another_authority_is_not_believed(secured, tmp_path):
    other = make_certificates(tmp_path / "other", "localhost")
    url = secured.url("agent").replace(f"{secured.tls}/ca.crt", f"{other}/ca.crt")
    assert str(other) in url
    assert "CERTIFICATE_VERIFY_FAILED" in await refusal(url)


async def test_a_server_under_another_name_is_not_believed(tmp_path):
    elsewhere = make_certificates(tmp_path / "tls", "elsewhere.example")
    with guarded(tmp_path, "redis", ["policy"], elsewhere, check_start=False) as server:
        assert "Hostname mismatch" in await refusal(server.url("agent"))


async def test_a_client_without_a_certificate_is_not_let_in(secured):
    url = secured.url("agent").partition("&")[0]
    said = await refusal(url)  # the alert, or the end of the connection, whichever is first
    assert "certificate required" in said or "reset" in said


def test_who_speaks_no_tls_is_not_let_in(secured):
    plain = secured.url("agent").replace("rediss:", "redis:").partition("?")[0]
    with redis.Redis.from_url(plain, retry=None) as client, pytest.raises(redis.exceptions.RedisError):
        client.ping()


def test_certificates_made_again_are_of_the_same_authority(tls):
    before = {one.name: one.read_bytes() for one in tls.iterdir()}
    make_certificates(tls, "localhost")
    after = {one.name: one.read_bytes() for one in tls.iterdir()}
    changed = {name for name, content in after.items() if before[name] != content}
    assert changed == {"server.crt", "server.key", "client.crt", "client.key"}
    verify = ["openssl", "verify", "-CAfile", tls / "ca.crt", tls / "server.crt", tls / "client.crt"]
    subprocess.run(verify, check=True, capture_output=True)
    assert all(
        (tls / name).stat().st_mode & 0o777 == 0o600 for name in ("ca.key", "server.key", "client.key")
    )


async def test_connections_share_what_is_read_from_files_until_one_is_renewed(
    secured, tls, tmp_path, monkeypatch
):
    made = []
    make = ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", lambda: made.append(make()) or made[-1])
    link = await open_link(secured.url("agent"), "test", lambda reply, tag: None)
    link.drop()
    commands = RedisCommands(secured.url("agent"), "test")
    assert await commands.execute("PING")
    await commands.aclose()
    assert len(made) == 1
    shutil.copytree(make_certificates(tmp_path / "other", "localhost"), tls, dirs_exist_ok=True)
    assert "CERTIFICATE_VERIFY_FAILED" in await refusal(secured.url("agent"))
