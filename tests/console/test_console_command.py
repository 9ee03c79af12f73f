"""`toolgate console` as a process: what it prints, what it refuses, how it ends, TLS."""

import json
import signal
import ssl
import urllib.error
import urllib.request

import pytest
import trustme

pytestmark = pytest.mark.acceptance
BOUND_S = 30.0
TOKEN = "a-token-of-enough-letters"


@pytest.fixture
def start(process, server_url, namespace):
    """`start("--port", 0)`: the command on the test's namespace."""
    return lambda *words, **env: process(
        "toolgate", "console", "--redis", server_url, "--namespace", namespace, *words, env=env
    )


@pytest.fixture
def ready(start, wait_until):
    """The same with `--json`, and its ready line."""

    async def run(*words, **env):
        running = start("--port", 0, "--json", *words, **env)
        await wait_until(lambda: running.stdout.endswith("\n") or not running.alive, timeout=BOUND_S)
        return running, json.loads(running.stdout)

    return run


def fetched(url, context=None):
    with urllib.request.urlopen(url, timeout=20, context=context) as answer:
        return answer.read().decode()


async def test_it_prints_the_address_that_opens_it_and_ctrl_c_ends_it_well(start, wait_until):
    running = start("--port", 0, TOOLGATE_CONSOLE_TOKEN=TOKEN)
    await wait_until(lambda: running.stderr, timeout=BOUND_S)
    assert running.stdout.startswith("The console is at http://127.0.0.1:")
    assert TOKEN not in running.stdout + running.stderr  # who gave it knows it
    url = f"{running.stdout.split()[-1]}?token={TOKEN}"
    assert "Ctrl-C" in running.stderr
    assert fetched(url.replace("?token", "healthz?token")) == "ok\n"
    streaming = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    streaming.open(url, timeout=20).close()
    with streaming.open(url.partition("?")[0] + "api/live", timeout=20) as open_page:
        assert open_page.readline().startswith(b"event:")
        running.signal(signal.SIGINT)
        assert running.wait() == 0
    assert "Traceback" not in running.stderr


async def test_each_start_makes_a_token_of_its_own(ready):
    tokens = {(await ready())[1]["url"].partition("token=")[2] for _ in range(2)}
    assert len(tokens) == 2
    assert min(map(len, tokens)) >= 32


async def test_wrong_options_are_refused_by_name(start, ready):
    _, line = await ready()
    port = line["address"].rstrip("/").rpartition(":")[2]
    for words, said in (
        (("--token", "short"), "--token: a token needs at least 16"),
        (("--user", "x" * 65), "name: must be 1 to 64"),
        (("--tls-cert", "a.pem"), "give both or neither"),
        (("--address", "no.such.host.invalid"), "--address: no.such.host.invalid"),
        (("--port", port), f"--port: cannot listen on 127.0.0.1 port {port}"),
        (("--port", 0, "--tls-cert", "none.pem", "--tls-key", "none.pem"), "--tls-cert, --tls-key: cannot"),
    ):
        running = start(*words)
        assert running.wait() == 2
        assert said in running.stderr
        assert "Traceback" not in running.stderr


async def test_beyond_this_machine_it_warns_unless_it_is_encrypted(ready, tmp_path):
    running, line = await ready("--address", "0.0.0.0", "--allow-host", "localhost")
    assert line["address"].startswith("http://localhost:")
    assert "not encrypted" in running.stderr

    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    running, line = await ready(
        "--address", "0.0.0.0", "--allow-host", "localhost", "--tls-cert", cert, "--tls-key", key
    )
    assert line["address"].startswith("https://localhost:")
    assert "not encrypted" not in running.stderr
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with urllib.request.urlopen(line["address"] + "healthz", timeout=20, context=context) as answer:
        assert answer.status == 200
    opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=context))
    with pytest.raises(urllib.error.HTTPError) as answer:
        opener.open(line["url"], timeout=20)
    assert answer.value.status == 303
    assert "Secure" in answer.value.headers["set-cookie"]
    answer.value.close()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_words):
        return None
