"""`toolgate serve` as a process: who asks it over its socket, and what becomes of that, end to end."""

import asyncio
import json
import signal
import ssl
import stat
from pathlib import Path

import aiohttp
import pytest
import trustme
from serve_client import tree_of

pytestmark = pytest.mark.acceptance

TOKEN = "0123456789abcdef0123"
RULES = """
rules:
  - {tools: write, when: {path: "*.env"}, action: deny, reason: secrets stay here}
  - {tools: pay, action: ask, prompt: "Pay?"}
"""
CERTIFIED = """
rules:
  - {tools: write, agents: bob, when: {subject.properties.role: admin}, action: allow}
  - {tools: write, agents: bob, action: deny}
  - {tools: write, when: {resource.properties.status: archived}, action: deny}
  - {tools: delete, when: {soft: true}, action: allow}
  - {tools: delete, action: deny}
"""
COSTS = """
tools: {work: {cost: 1}}
budgets: [{name: all, level: fleet, limit: 100}]
"""


@pytest.fixture
def start(process, server_url, namespace, short_directory, wait_until):
    """`await start("--required", "policy")`: the process and its ready line."""

    async def started(*words, url=server_url, place=True, **env):
        where = ("--socket", short_directory / "serve.sock") if place is True else place or ()
        options = ("--redis", url) if url else ()
        running = process(
            "toolgate", "serve", *where, *options, "--namespace", namespace, "--json", *words, env=env
        )
        await wait_until(lambda: running.stdout.endswith("\n") or not running.alive, timeout=50)
        assert running.alive, running.stderr
        return running, json.loads(running.stdout)

    return started


@pytest.fixture
def rules(schedulers, tmp_path):
    """`await rules(text)`: a policy with these rules."""

    async def started(text=RULES):
        (tmp_path / "rules.yaml").write_text(text)
        await schedulers.start("policy", "--config", tmp_path / "rules.yaml")

    return started


async def test_calls_are_ruled_on_by_who_is_on_the_bus_and_the_end_is_in_good_order(start, rules):
    await rules()
    running, ready = await start("--required", "policy")
    path = ready["socket"]
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    async with tree_of(path) as caller:
        assert (await caller.get("/readyz")).status == 200
        allowed = await caller.decide("write", arguments={"path": "a"}, agent="clerk", session="s")
        assert (allowed["outcome"], allowed["arguments"]) == ("continue", {"path": "a"})
        denied = await caller.decide("write", arguments={"path": ".env"})
        assert denied["refusal"].startswith("The tool call was denied: secrets stay here")
        told = await caller.post("/v1/report", {"id": allowed["id"], "outcome": "succeed"})
        assert told.body == {"recorded": True}
        assert 'path="/v1/decide",status="200"' in (await caller.get("/metrics")).body
        running.signal(signal.SIGTERM)
        assert running.wait(20) == 0
    assert not Path(path).exists()
    assert "Traceback" not in running.stderr


async def test_who_may_ask_by_an_address_has_the_token(start, tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    _, ready = await start(place=("--http", "127.0.0.1:0", "--token-file", file))
    async with tree_of(url=ready["url"], token=TOKEN) as caller:
        assert (await caller.decide())["outcome"] == "continue"
        caller.headers = {"authorization": f"Bearer {TOKEN}x"}
        refused = await caller.post("/v1/decide", {"tool": "run"})
        assert (refused.status, refused.headers["www-authenticate"]) == (401, 'Bearer realm="toolgate"')


async def test_an_address_for_others_wants_their_certificates(start, tmp_path):
    ours, theirs, strangers = trustme.CA(), trustme.CA(), trustme.CA()
    for name, blob in (("ca", theirs.cert_pem), ("cert", None), ("key", None)):
        if blob is not None:
            blob.write_to_path(tmp_path / name)
    made = ours.issue_cert("localhost", "127.0.0.1")
    made.cert_chain_pems[0].write_to_path(tmp_path / "cert")
    made.private_key_pem.write_to_path(tmp_path / "key")
    tls = ("--tls-cert", tmp_path / "cert", "--tls-key", tmp_path / "key", "--tls-client-ca", tmp_path / "ca")
    _, ready = await start(place=("--http", "127.0.0.1:0", *tls))
    context = ssl.create_default_context()
    ours.configure_trust(context)
    for authority, is_admitted in ((None, False), (strangers, False), (theirs, True)):
        if authority is not None:
            authority.issue_cert("caller.example").configure_cert(context)
        async with tree_of(url=ready["url"], ssl=context) as caller:
            if is_admitted:
                assert (await caller.decide())["outcome"] == "continue"
            else:
                with pytest.raises((aiohttp.ClientError, OSError)):
                    await caller.decide()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--http", "0.0.0.0:0", "--token-file", "T"), "a token alone does not protect"),
        (("--http", "127.0.0.1:0"), "every user of this machine could ask"),
        (("--http", "127.0.0.1:0", "--socket", "s"), "give one of them"),
        (("--http", "nowhere"), "write HOST:PORT"),
        (("--required", "in-process"), "required"),
        (("--config", "C"), "patience_ms"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(process, tmp_path, words, said):
    (tmp_path / "T").write_text(TOKEN)
    (tmp_path / "T").chmod(0o600)
    (tmp_path / "C").write_text("patience_ms: soon\n")
    running = process("toolgate", "serve", *words, "--redis", "redis://127.0.0.1:1", cwd=tmp_path)
    assert running.wait(20) == 2
    assert said in " ".join(running.stderr.split())


async def test_without_its_server_it_denies_and_goes_on_once_that_is_back(own_server, start, wait_until):
    _, ready = await start("--namespace", "default", url=own_server.url)
    async with tree_of(ready["socket"]) as caller:
        assert (await caller.decide())["outcome"] == "continue"
        own_server.kill()

        async def denies():
            ruling = await caller.decide(timeout_ms=5000)
            return (ruling["outcome"], ruling["why"]) == ("deny", "bus_down")

        await wait_until(denies)
        assert (await caller.get("/readyz")).status == 503
        assert (await caller.get("/healthz")).status == 200
        own_server.start()

        async def rules_again():
            return (await caller.decide(timeout_ms=5000))["outcome"] == "continue"

        await wait_until(rules_again, timeout=30)


async def test_what_calls_cost_is_settled_to_the_unit(
    start, schedulers, server_url, namespace, process, tmp_path
):
    (tmp_path / "costs.yaml").write_text(COSTS)
    await schedulers.start("cost-aware", "--config", tmp_path / "costs.yaml")
    (tmp_path / "gate.yaml").write_text("patience_ms: 20000\n")  # a busy machine is nobody's silence
    _, ready = await start("--required", "cost-aware", "--config", tmp_path / "gate.yaml")
    async with tree_of(ready["socket"]) as caller:

        async def work(number):
            ruling = await caller.decide("work", session=f"s{number % 7}", arguments={"n": number})
            outcome, cost = (("succeed", {"cost_usd": "0.25"}), ("fail", {"cost": 0}), ("release", {}))[
                number % 3
            ]
            told = {"id": ruling["id"], "outcome": outcome, **cost}
            assert (await caller.post("/v1/report", told)).status == 200
            return ruling["outcome"]

        assert set(await asyncio.gather(*map(work, range(60)))) == {"continue"}
    shown = {}

    def spent():
        listed = process(
            "toolgate", "budget", "list", "--redis", server_url, "--namespace", namespace, "--json"
        )
        assert listed.wait(20) == 0, listed.stderr
        shown.update(json.loads(listed.stdout.splitlines()[0]))
        return shown["reserved"] == 0

    for _ in range(100):
        if spent():
            break
        await asyncio.sleep(0.1)
    assert (shown["reserved"], shown["spent"]) == (0, 20 * 250_000)


async def test_a_persons_answer_goes_on_with_the_same_decision(start, rules):
    await rules()
    _, ready = await start("--required", "policy")
    async with tree_of(ready["socket"]) as caller:
        call = {"tool": "pay", "arguments": {"amount": 3}, "session": "s"}
        asked = await caller.decide(**call, can=["ask"])
        assert (asked["outcome"], asked["question"]["prompt"]) == ("ask", "Pay?")
        answer = {"token": asked["token"], "answer": "allow", "by": "anna"}
        other = await caller.decide(**{**call, "arguments": {"amount": 3000}}, can=["ask"], answer=answer)
        assert other["outcome"] == "deny"
        again = await caller.decide(**call, can=["ask"])
        answer = {"token": again["token"], "answer": "allow", "by": "anna"}
        allowed = await caller.decide(**call, can=["ask"], answer=answer)
        assert (allowed["outcome"], allowed["id"]) == ("continue", again["id"])
        assert (await caller.decide(**call))["outcome"] == "deny"  # nobody to ask


async def test_an_operator_sees_and_stops_an_agent_elsewhere(
    start, process, server_url, namespace, wait_until
):
    _, ready = await start()
    where = ("--redis", server_url, "--namespace", namespace)
    async with tree_of(ready["socket"]) as caller:
        begun = {"session": "s-1", "agent": "clerk", "do": "begin"}
        assert (await caller.post("/v1/turn", begun)).body["busy"] is True
        watching = asyncio.create_task(caller.post("/v1/turn", {**begun, "do": "watch"}))

        def listed():
            running = process("toolgate", "agents", *where, "--json")
            assert running.wait(20) == 0
            return "s-1" in running.stdout and "clerk" in running.stdout

        await wait_until(listed, timeout=30)
        stopped = process("toolgate", "agents", "stop", "s-1", *where, "--json", "--wait", "0")
        assert (await asyncio.wait_for(watching, 30)).body["stop"]["now"] in (True, False)
        ruling = await caller.decide("run", session="s-1")
        assert (ruling["outcome"], ruling["stop"] is not None) == ("deny", True)
        assert (await caller.post("/v1/turn", {**begun, "do": "end"})).body["busy"] is False
        stopped.wait(20)


async def test_authzens_decisions_follow_from_the_properties_that_are_sent(start, rules):
    await rules(CERTIFIED)
    _, ready = await start("--required", "policy")
    alice, bob = {"type": "user", "id": "alice"}, {"type": "user", "id": "bob"}
    admin = {**bob, "properties": {"role": "admin"}}
    one, two = {"type": "record", "id": "record-1"}, {"type": "record", "id": "record-2"}
    active, archived = ({"properties": {"status": status}} for status in ("active", "archived"))
    asked = [
        (alice, {"name": "read"}, one, True),
        (alice, {"name": "write"}, one, True),
        (bob, {"name": "read"}, one, True),
        (bob, {"name": "write"}, one, False),
        (alice, {"name": "write"}, {**two, **archived}, False),
        (admin, {"name": "write"}, {**two, **archived}, True),
        (alice, {"name": "delete", "properties": {"soft": True}}, one, True),
        (alice, {"name": "delete", "properties": {"soft": False}}, one, False),
        (alice, {"name": "write"}, {**one, **active}, True),
    ]
    async with tree_of(ready["socket"]) as caller:
        evaluations = []
        for subject, action, resource, decision in asked:
            body = {"subject": subject, "action": action, "resource": resource, "foo": {"later": 1}}
            said = await caller.post("/access/v1/evaluation", body, headers={"x-request-id": "r-7"})
            assert (said.status, said.body["decision"], said.headers["x-request-id"]) == (
                200,
                decision,
                "r-7",
            )
            evaluations.append(body)
        said = await caller.post("/access/v1/evaluations", {"evaluations": evaluations})
        assert [one["decision"] for one in said.body["evaluations"]] == [decision for *_, decision in asked]


async def test_it_ends_by_itself_when_nothing_is_asked(start):
    running, ready = await start("--idle-exit", "1")
    async with tree_of(ready["socket"]) as caller:
        assert (await caller.decide())["outcome"] == "continue"
    assert running.wait(20) == 0
    assert not Path(ready["socket"]).exists()


async def test_two_do_not_share_a_socket(start, process, namespace, server_url):
    _, ready = await start()
    second = process(
        "toolgate", "serve", "--socket", ready["socket"], "--redis", server_url, "--namespace", namespace
    )
    assert second.wait(20) == 2
    assert "something listens on" in " ".join(second.stderr.split())


async def test_what_the_user_asked_for_goes_with_the_calls_of_a_turn_and_of_those_below_it(start, schedulers):
    await schedulers.start("listeners:Echo")
    _, ready = await start("--required", "echo")
    sub = {"session": "sub", "parent": "top", "root_session": "top"}
    async with tree_of(ready["socket"]) as caller:

        async def asked(**place):
            return (await caller.decide(**place))["reason"]

        for turn in ({"session": "top", "request": "Mail ann"}, {**sub, "request": "Mail eve"}):
            said = await caller.post("/v1/turn", {"do": "begin", **turn})
            assert said.status == 200, said
        assert await asked(session="top") == await asked(**sub) == "asked for: Mail ann"
        assert await asked(session="other") == "asked for: nothing"
        too_long = {"do": "begin", "session": "top", "request": "x" * 200_000}
        assert "request" in str((await caller.post("/v1/turn", too_long)).body)


async def test_a_file_alone_says_where_the_bus_is_and_no_variable_does(
    start, server_url, namespace, tmp_path
):
    """The settings of a project may set variables, and so would lead calls to a bus on which nobody rules."""
    file = tmp_path / "toolgate.yaml"
    file.write_text(f"redis: {server_url}\nnamespace: {namespace}\non_bus_down: deny\n")
    moved = {"TOOLGATE_REDIS_URL": "redis://127.0.0.1:1/0", "TOOLGATE_NAMESPACE": "elsewhere"}
    _, ready = await start("--config", file, url=None, **moved)
    async with tree_of(ready["socket"]) as caller:
        assert (await caller.get("/readyz")).status == 200
        assert (await caller.decide("run"))["outcome"] == "continue"
