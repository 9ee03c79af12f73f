"""Whoever names a wrong server is told what answers there instead, and what to change."""

import asyncio
import ssl

import pytest
import trustme
from toolgate_bus.errors import BusDown, ConfigError, TransportError
from toolgate_bus.transport.redis.client.connection import RedisCommands, open_link
from toolgate_bus.transport.redis.client.diagnosis import diagnose

HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
SSH = b"SSH-2.0-OpenSSH_9.6\r\n"


@pytest.fixture
async def serve():
    """`serve(words, ssl)`: the port of a server that says these words to whatever comes, and ends."""
    servers = []

    async def start(words: bytes, context: ssl.SSLContext | None = None) -> int:
        async def answer(reader, writer):
            await reader.read(1)
            writer.write(words)
            writer.close()

        servers.append(await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context))
        return servers[-1].sockets[0].getsockname()[1]

    yield start
    for server in servers:
        server.close()


async def said(url):
    """What an ordinary command and a link say of a server."""
    told = []
    commands = RedisCommands(url, "test")
    try:
        with pytest.raises(TransportError) as refused:
            await commands.execute("PING")
        told.append(str(refused.value))
    finally:
        await commands.aclose()
    with pytest.raises((BusDown, ConfigError)) as refused:
        await open_link(url, "test", lambda reply, tag: None)
    return [*told, str(refused.value)]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (HTTP, "is not Redis: an HTTP server answers there; start the server, or name the right one"),
        (SSH, "is not Redis: an SSH server answers there"),
        (b"220 mail ESMTP\r\n", "is not Redis: a mail or file server (SMTP, FTP) answers there"),
        (b"E\x00", "is not Redis: what answers there begins with 'E'"),
        (
            b"\x15\x03\x03\x00\x02\x02\x28",
            "is not Redis without TLS: TLS is wanted there; name it as rediss://",
        ),
        (b"", "closes the connection at once: "),
    ],
)
async def test_what_answers_instead_of_redis_is_named(serve, words, what):
    port = await serve(words)
    for told in await said(f"redis://127.0.0.1:{port}/0"):
        assert told.startswith(f"127.0.0.1:{port} {what}")


async def test_a_port_where_nothing_listens_is_named(unused_tcp_port):
    for told in await said(f"redis://127.0.0.1:{unused_tcp_port}/0"):
        assert told.startswith(f"127.0.0.1:{unused_tcp_port} cannot be reached: nothing listens there; start")
    for told in await said("unix:///nowhere/at/all.sock"):
        assert told.startswith("/nowhere/at/all.sock cannot be reached: ")
    for told in await said("unix:///nowhere/toolgate/s.sock"):
        assert told.startswith("/nowhere/toolgate/s.sock cannot be reached; the embedded server has ended.")


async def test_a_server_that_wants_tls_or_speaks_none_is_named(serve):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    port = await serve(b"", context)
    for told in await said(f"redis://127.0.0.1:{port}/0"):
        assert "rediss://" in told
    port = await serve(HTTP)
    for told in await said(f"rediss://127.0.0.1:{port}/0"):
        assert told == f"127.0.0.1:{port} speaks no TLS; name it as redis://…, without TLS"


async def test_a_server_that_wants_a_password_or_another_one_is_named(own_server):
    commands = RedisCommands(own_server.url, "test")
    await commands.execute("CONFIG", "SET", "requirepass", "s3cret")
    await commands.aclose()
    for told in await said(own_server.url):
        assert "wants a password: " in told
        assert "TOOLGATE_REDIS_PASSWORD_FILE=FILE" in told
    for told in await said(f"{own_server.url}&password=wr0ng"):
        assert "refuses these credentials: " in told
        assert "wr0ng" not in told


async def test_a_server_that_has_answered_once_is_not_taken_for_another(own_server):
    commands = RedisCommands(own_server.url, "test")
    await commands.execute("PING")
    own_server.kill()
    with pytest.raises(TransportError) as gone:
        await commands.execute("PING")
    await commands.aclose()
    assert "start the server" not in str(gone.value)


@pytest.mark.pure
def test_no_trouble_quotes_the_url():
    for text in ("x", "timed out", "LOADING", 'got "H" as reply', "certificate verify failed"):
        for refused in (False, True):
            assert "s3cret" not in str(diagnose("redis://u:s3cret@h/0", text, refused=refused))
