"""The console over real HTTP: tokens, cookies, hosts, origins, sizes, server-sent events."""

import asyncio
import contextlib

import pytest
from toolgate_schedulers.commands.console.hub import MAX_CLIENTS, MAX_ROWS
from toolgate_schedulers.commands.console.rates import Rates
from toolgate_schedulers.commands.console.security_middleware import MAX_BODY

TOKEN = "a-token-of-enough-letters"
PATHS = [
    "/api/me",
    "/api/live",
    "/api/glance",
    "/api/rates",
    "/api/policies",
    "/api/budgets",
    "/api/queue",
    "/api/roster",
    "/api/revisions",
    "/api/revisions/policy/diff",
    "/api/approvals",
    "/api/nothing",
]
BOUND_S = 20
NO = {
    "scheduler": "policy",
    "action": "deny",
    "phase": "select",
    "priority": 3,
    "seconds": 0.002,
    "reason": "no",
}


async def decisions(events):
    """The next batch of decisions."""
    async with asyncio.timeout(BOUND_S):
        async for kind, data, place in events:
            if kind == "decisions":
                return data, place
    raise AssertionError("the stream ended")


async def until(events, kind, holds):
    """The first event of a kind that is as it should be."""
    async with asyncio.timeout(BOUND_S):
        async for found, data, _ in events:
            if found == kind and holds(data):
                return data
    raise AssertionError("the stream ended")


@pytest.fixture
async def told(console, teller, wait_until):
    """`await told(3, "deny")`: decisions that the console has read."""

    async def tell(count, outcome="continue", **fields):
        ids = await teller.tell(count, outcome, **fields)
        await wait_until(lambda: console.known.ring.get(ids[-1]), timeout=BOUND_S)
        return ids

    return tell


async def test_who_is_not_signed_in_sees_a_sign_in_page_and_nothing_else(console, told, namespace):
    (id_,) = await told(1, tool_name="launch")
    for cookie in ("", "toolgate-console=x", f"{console.access.cookie}=wrong", "a b;;=", "\xff=1"):
        for path in [*PATHS, f"/api/decisions/{id_}"]:
            answer = await console.ask("GET", path, cookie=cookie)
            assert (answer.status, answer.json) == (401, {"error": "sign in first"})
        for path in ("/", "/static/main.js", "/static/index.html", "/nothing"):
            answer = await console.ask("GET", path, cookie=cookie)
            assert answer.status == 401
            for told_ in (namespace, id_, "launch", "anna", TOKEN, "EventSource", "main.js"):
                assert told_ not in answer.body.decode()
    assert (await console.ask("POST", "/api/me", b"{}", x_toolgate_console="1")).status == 401


async def test_the_printed_address_signs_in_and_takes_the_token_out_of_the_address(console):
    wrong = await console.ask("GET", "/?token=wrong")
    assert wrong.status == 401
    assert "set-cookie" not in wrong.headers
    assert b"That is not the token" in wrong.body
    right = await console.ask("GET", f"/?token={TOKEN}")
    assert (right.status, right.headers["location"]) == (303, "/")
    flags = right.headers["set-cookie"].lower().split("; ")
    assert {"httponly", "samesite=strict", "path=/"} <= set(flags)
    assert TOKEN not in right.headers["set-cookie"]
    page = await console.get("/")
    assert page.status == 200
    assert b"main.js" in page.body


async def test_the_form_signs_in_under_a_name_that_can_be_changed(console):
    form = f"token={TOKEN}&user=Bert%20B".encode()
    assert (await console.ask("POST", "/sign-in", b"token=wrong&user=x")).status == 401
    assert (await console.ask("POST", "/sign-in", form, origin="http://evil.example")).status == 403
    bad = await console.ask("POST", "/sign-in", f"token={TOKEN}&user=a%0Ab".encode())
    assert bad.status == 400
    answer = await console.ask("POST", "/sign-in", form, origin="http://localhost")
    console.cookie = answer.headers["set-cookie"].partition(";")[0]
    assert (await console.get("/api/me")).json["user"] == "Bert B"
    assert (await console.publish("/api/me", {"user": "Carla"})).json == {"user": "Carla"}
    assert (await console.get("/api/me")).json["user"] == "Carla"
    assert (await console.publish("/api/me", {"user": ""})).status == 400
    assert (await console.publish("/api/sign-out", {})).status == 200
    assert (await console.get("/api/me")).status == 401


async def test_a_name_that_was_made_to_point_here_is_not_answered(console):
    for host in ("evil.example", "evil.example:8765", "localhost.evil.example"):
        for path in ("/", "/api/me", "/static/style.css", f"/?token={TOKEN}"):
            answer = await console.get(path, host=host)
            assert answer.status == 421
            assert b"--allow-host" in answer.body
    assert (await console.get("/api/me", host=f"127.0.0.1:{console.port}")).status == 200


async def test_only_the_page_itself_may_change_anything(console):
    path, body = "/api/me", {"user": "mallory"}
    for headers in (
        {"x_toolgate_console": ""},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://localhost"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ):
        assert (await console.publish(path, body, **headers)).status == 403
    assert (await console.get("/api/me")).json["user"] == "anna"
    for path in ("/api/me", "/api/approvals/ab/answer", "/api/sign-out"):
        assert (await console.ask("OPTIONS", path, cookie=console.cookie)).status in (403, 405)


async def test_requests_are_bounded(console):
    big = await console.ask(
        "POST", "/api/me", b" " * (MAX_BODY + 1), cookie=console.cookie, x_toolgate_console="1"
    )
    assert big.status == 413
    talk = await console.talk()
    talk._writer.write(
        b"POST /api/me HTTP/1.1\r\nhost: localhost\r\nx-toolgate-console: 1\r\ntransfer-encoding: chunked\r\n"
        b"cookie: " + console.cookie.encode() + b"\r\n\r\n"
    )
    with contextlib.suppress(ConnectionError):
        for _ in range(MAX_BODY // 16384 + 2):
            talk._writer.write(b"4000\r\n" + b"x" * 16384 + b"\r\n")
            await talk._writer.drain()
        talk._writer.write(b"0\r\n\r\n")
    status = await asyncio.wait_for(talk._reader.readline(), BOUND_S)
    assert b" 413 " in status
    long = await console.talk()
    long._writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * 200_000)
    assert b" 400 " in await asyncio.wait_for(long._reader.readline(), BOUND_S)
    for body in (b"", b"[]", b"{", b"\xff", b"[" * 100_000):
        answer = await console.ask("POST", "/api/me", body, cookie=console.cookie, x_toolgate_console="1")
        assert answer.status == 400


async def test_every_answer_keeps_other_pages_out(console):
    for path in ("/", "/static/main.js", "/api/me", "/healthz", "/nothing", "/?token=wrong"):
        answer = await console.get(path)
        assert answer.headers["content-security-policy"].startswith("default-src 'self'")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "server" not in answer.headers
    assert (await console.get("/api/me")).headers["cache-control"] == "no-store"


async def test_the_page_fetches_nothing_from_anywhere_else(console):
    names = ["", "static/style.css", "static/theme.js", "static/icon.svg", "static/main.js", "static/live.js"]
    names += [
        f"static/{name}.js"
        for name in (
            "agents",
            "approvals",
            "budgets",
            "chart",
            "detail",
            "dialog",
            "dom",
            "glance",
            "plots",
            "queue",
            "queue-orders",
            "rates",
            "revisions",
            "roster",
            "rules",
            "timespan",
        )
    ]
    for name in names:
        answer = await console.get(f"/{name}")
        assert answer.status == 200
        text = answer.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text
        assert "https:" not in text
        assert "@import" not in text
        assert "innerHTML" not in text
    again = await console.get(
        "/static/main.js", if_none_match=(await console.get("/static/main.js")).headers["etag"]
    )
    assert (again.status, again.body) == (304, b"")


async def test_it_says_that_it_lives_to_anybody(console):
    answer = await console.ask("GET", "/healthz", host="whoever")
    assert (answer.status, answer.body) == (200, b"ok\n")


# ---------------------------------------------------------------------- live


async def test_a_page_is_sent_the_newest_then_each_as_it_comes(console, told):
    old = await told(3)
    events = await console.live()
    first, _ = await decisions(events)
    assert first["fresh"] is True
    assert [row["id"] for row in first["rows"]] == old
    (new,) = await told(1, "deny", reason="no", scheduler="policy")
    batch, _ = await decisions(events)
    assert [(row["id"], row["outcome"], row["by"]) for row in batch["rows"]] == [(new, "deny", "policy")]
    assert (batch["fresh"], batch["skipped"], batch["total"]) == (False, 0, 4)


async def test_what_was_kept_before_the_console_started_is_there(
    console_maker, teller, server_url, namespace
):
    await teller.tell(5)
    async with console_maker(server_url, namespace) as console:
        events = await console.live()
        batch = await until(events, "decisions", lambda data: len(data["rows"]) == 5)
        assert batch["total"] == 5


async def test_a_page_is_sent_what_its_filter_wants_and_no_more(console, told):
    await told(2)
    (mine,) = await told(1, tool_name="send_mail", tool_input={"to": "Eve"})
    events = await console.live("?tool=send_*&text=eve")
    first, _ = await decisions(events)
    assert [row["id"] for row in first["rows"]] == [mine]
    await told(3)
    (later,) = await told(1, tool_name="send_mail", tool_input={"to": "eve"})
    batch, _ = await decisions(events)
    assert [row["id"] for row in batch["rows"]] == [later]
    refused = await console.get("/api/live?outcome=maybe")
    assert refused.status == 400
    assert "outcome: must be one of" in refused.json["error"]


async def test_a_page_that_comes_back_is_sent_what_it_missed(console, told):
    await told(2)
    events = await console.live()
    _, place = await decisions(events)
    console.talking[-1].close()
    missed = await told(2)
    batch, _ = await decisions(await console.live(last=place))
    assert (batch["fresh"], [row["id"] for row in batch["rows"]]) == (False, missed)


async def test_a_page_that_does_not_read_is_not_buffered_for(console, told, wait_until):
    events = await console.live()
    await decisions(events)
    (client,) = console.known.hub._clients
    # What was kept has been read: from now on pages are sent each decision.
    await wait_until(lambda: console.known.hub._state.get("bus", {}).get("reading") is False)
    for _ in range(8):  # nobody reads meanwhile
        await told(2000, reason="x" * 150, outcome="deny")
        assert len(client._rows) <= MAX_ROWS
    skipped = 0
    async with asyncio.timeout(BOUND_S):
        async for kind, data, _ in events:
            if kind == "decisions":
                skipped += data["skipped"]
                assert len(data["rows"]) <= MAX_ROWS
                if data["total"] == 16_000 and not client._rows:
                    break
    assert skipped > 10_000
    assert (await console.get("/api/rates")).json["all"]["decisions"] == 16_000


async def test_pages_beyond_a_bound_are_refused_and_those_that_left_make_room(console, wait_until):
    for _ in range(MAX_CLIENTS):
        await decisions(await console.live())
    assert (await console.get("/api/live")).status == 503
    console.talking[-2].close()
    await wait_until(lambda: len(console.known.hub) < MAX_CLIENTS, timeout=BOUND_S)
    await decisions(await console.live())


async def test_signing_out_ends_the_streams_of_that_session(console, told):
    events = await console.live()
    await decisions(events)
    await console.publish("/api/sign-out", {})
    await told(1)
    async with asyncio.timeout(BOUND_S):
        async for _ in events:
            pass


async def test_open_pages_do_not_hold_up_the_end(console):
    events = await console.live()
    await decisions(events)
    console.serving.cancel()
    async with asyncio.timeout(30):
        await asyncio.wait([console.serving])
        async for _ in events:
            pass


async def test_a_server_that_goes_away_is_told_and_comes_back(console_maker, own_durable_server, namespace):
    async with console_maker(own_durable_server.url, namespace) as console:
        events = await console.live()
        await until(events, "bus", lambda data: data["up"] and not data["reading"])
        own_durable_server.stop()
        away = await until(events, "bus", lambda data: not data["up"])
        assert away["why"]
        assert (await console.get("/api/roster")).status == 503
        own_durable_server.start()
        await until(events, "bus", lambda data: data["up"])
        assert (await console.get("/api/roster")).json["readers"]["console"] == 1


# ---------------------------------------------------------------------- what is known


async def test_a_decision_is_told_in_full_and_in_words(console, told):
    heard = [NO]
    (id_,) = await told(1, "deny", verdicts=heard, scheduler="policy", reason="no")
    found = (await console.get(f"/api/decisions/{id_}")).json
    assert found["verdicts"] == heard
    assert found["asked"] == ["policy"]
    assert "policy" in " ".join(found["explained"]["why"])
    missing = await console.get("/api/decisions/" + "0" * 32)
    assert missing.status == 404


async def test_rates_are_counted_by_scheduler_and_tool(console, told):
    heard = [NO]
    await told(3, "deny", verdicts=heard, scheduler="policy")
    await told(1, tool_name="read_file")
    for window in ("15m", "1h"):
        rates = (await console.get(f"/api/rates?window={window}")).json
        assert (rates["all"]["decisions"], rates["all"]["vetoes"]) == (4, 3)
        assert [(one["name"], one["vetoes"]) for one in rates["schedulers"]] == [("policy", 3)]
        assert {one["name"]: one["decisions"] for one in rates["tools"]} == {"write_file": 3, "read_file": 1}
    assert (await console.get("/api/rates?window=2h")).status == 400


async def test_a_fact_that_the_console_cannot_take_in_costs_it_that_fact_alone(
    console, teller, told, monkeypatch
):
    await told(1)
    events = await console.live()
    await decisions(events)
    taken = Rates.add

    def take(rates, fact, now):
        if fact.get("tool_name") == "poison":
            raise RuntimeError("cannot be taken")
        taken(rates, fact, now)

    monkeypatch.setattr(Rates, "add", take)
    await teller.tell(1, tool_name="poison")
    (later,) = await told(1)
    batch, _ = await decisions(events)
    assert [row["id"] for row in batch["rows"]] == [later]


async def test_what_others_wrote_into_the_record_breaks_nothing(console, teller, told):
    odd = [
        "verdict",
        7,
        {"scheduler": 5, "action": ["x"]},
        {"scheduler": "p", "action": "deny", "reason": {}},
    ]
    wrong = {"verdicts": odd, "silent": [3], "asked": [1, "b"], "reason": ["x"], "final_input": [1]}
    for name, value in wrong.items():
        await teller.tell(1, **{name: value})
    ids = await told(1)  # a fact of other types is dropped before it gets here
    events = await console.live()
    batch, _ = await decisions(events)
    assert [row["id"] for row in batch["rows"]] == ids
    assert (await console.get(f"/api/decisions/{ids[0]}")).status == 200
    assert (await console.get("/api/rates")).status == 200
