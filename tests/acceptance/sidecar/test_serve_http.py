"""HTTP as no library speaks it, to a real sidecar: each request has one clear answer, none is smuggled."""

import contextlib
import json
import socket

import pytest

pytestmark = pytest.mark.acceptance

CALL = json.dumps({"tool": "run"}).encode()
HEAD = b"POST /v1/decide HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
PLAIN = HEAD + b"Content-Length: %d\r\n\r\n" % len(CALL) + CALL
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"5\r\n" + CALL[:5] + b"\r\n%x;a=b\r\n" % (len(CALL) - 5) + CALL[5:] + b"\r\n0\r\nX-Late: 1\r\n\r\n"
HIDDEN = b"POST /v1/turn HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
SAID = {
    "two at once, in order": (
        PLAIN + HEAD.replace(b"/v1/decide", b"/nothing") + b"Content-Length: 0\r\n\r\n",
        [200, 404],
    ),
    "ten at once": (PLAIN * 10, [200] * 10),
    "HTTP/1.0": (PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0"), [200]),
    "in chunks": (CHUNKED + CHUNKS, [200]),
    "in chunks, without end": (
        CHUNKED + b"100000\r\n" + b" " * 0x100000 + b"\r\n100000\r\n" + b" " * 0x1000,
        [413],
    ),
    "no length of a chunk": (CHUNKED + b"zz\r\n" + CALL, [400]),
    "a length and chunks": (
        HEAD + b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % len(HIDDEN) + HIDDEN,
        [400],
    ),
    "two lengths": (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + CALL, [400]),
    "a length below nothing": (HEAD + b"Content-Length: -1\r\n\r\n" + CALL, [400]),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", [400]),
    "a head without end": (HEAD + b"X: " + b"y" * 40_000, [431]),
    "another type of content": (PLAIN.replace(b"application/json", b"text/json"), [415]),
    "no type of content": (PLAIN.replace(b"Content-Type: application/json\r\n", b""), [415]),
    "a type with words": (PLAIN.replace(b"application/json", b"Application/JSON; charset=utf-8"), [200]),
    "another method": (PLAIN.replace(b"POST", b"PUT"), [405]),
    "nothing in it": (HEAD + b"Content-Length: 0\r\n\r\n", [400]),
    "an upgrade": (
        PLAIN.replace(b"Host: x\r\n", b"Host: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n"),
        [200],
    ),
}


@pytest.fixture
async def path(process, server_url, namespace, short_directory, wait_until):
    place = short_directory / "serve.sock"
    where = ("--redis", server_url, "--namespace", namespace)
    running = process("toolgate", "serve", "--socket", place, *where, "--json")
    await wait_until(lambda: running.stdout or not running.alive, timeout=50)
    yield place
    assert running.alive
    assert "Traceback" not in running.stderr


def exchange(path, request, count):
    """So many answers, and what comes after them."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(20)
        link.connect(str(path))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before all was sent
            link.sendall(request)
        said = b""
        while len(answers_in(said)) < count and (part := link.recv(65536)):
            said += part
        link.settimeout(0.1)
        with contextlib.suppress(TimeoutError, ConnectionResetError):
            said += link.recv(65536)
    return said


def answers_in(said):
    """The whole answers, one after another: status and body."""
    found = []
    while b"\r\n\r\n" in said:
        head, _, rest = said.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        size = int(fields[b"content-length"])
        if len(rest) < size:
            break
        found.append((status, rest[:size]))
        said = rest[size:]
    return found


async def test_whatever_is_spoken_each_request_has_one_answer_with_words(path):
    for name, (request, wanted) in SAID.items():
        found = answers_in(exchange(path, request, len(wanted)))
        assert [status for status, _ in found] == wanted, (name, found)
        for status, body in found:
            told = json.loads(body)
            assert told["outcome"] == "continue" if status == 200 else told["detail"], name


async def test_a_caller_that_waits_to_be_told_to_go_on_is(path):
    """Expect: 100-continue, as curl sends with long bodies."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(20)
        link.connect(str(path))
        link.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(CALL))
        assert link.recv(100).startswith(b"HTTP/1.1 100 ")
        link.sendall(CALL)
        assert link.recv(65536).startswith(b"HTTP/1.1 200 ")
