"""A sidecar under everything at once: no crash, no leak, each request answered or refused clearly.

Callers with tokens and without, bodies that are too large or no JSON, clients that send byte by byte or
leave, and a server that is killed in the middle.
"""

import asyncio
import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest
from serve_client import tree_of

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(300)]

TOKEN = "0123456789abcdef0123"
CONNECTIONS = 200
REQUESTS = int(os.environ.get("TOOLGATE_STORM_REQUESTS", "2000"))
SLOW = 40
FILES_BESIDE = 16
"""The bus's connections come and go; those of callers must not stay."""
MAX_GROWTH = 96 << 20
RULES = "rules: [{tools: write, when: {n: {gt: 4}}, action: deny, reason: more than four}]\n"
KINDS = ("good", "good", "good", "good", "report", "authzen", "token", "large", "broken", "path", "leave")


def resident(pid):
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def files(pid):
    """How many files it has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def test_requests_of_every_kind_are_each_answered_and_nothing_stays(
    own_durable_server, schedulers_on, process, short_directory, tmp_path, wait_until
):
    server = own_durable_server
    (tmp_path / "rules.yaml").write_text(RULES)
    await schedulers_on(server.url, "default").start("policy", "--config", tmp_path / "rules.yaml")
    token = short_directory / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    place = ("--http", "127.0.0.1:0", "--token-file", token)
    running = process("toolgate", "serve", *place, "--redis", server.url, "--required", "policy", "--json")
    await wait_until(lambda: running.stdout.endswith("\n") or not running.alive, timeout=50)
    ready = json.loads(running.stdout)
    port = int(ready["url"].rpartition(":")[2])
    answers, wrong, chance = Counter(), [], random.Random(7)

    async with tree_of(url=ready["url"], token=TOKEN, connections=CONNECTIONS) as caller:

        async def ask(kind, number):
            call = {"tool": "write", "arguments": {"n": number % 8}, "session": f"s{number % 50}"}
            if kind == "authzen":
                entity = {"type": "t", "id": "i"}
                body = {"subject": entity, "resource": entity, "action": {"name": "write"}}
                said = await caller.post("/access/v1/evaluation", body)
                return said.status, type(said.body["decision"]) is bool
            if kind == "token":
                said = await caller.post(
                    "/v1/decide", call, headers={"authorization": "Bearer nobody-nobody"}
                )
                return said.status, said.status == 401
            if kind == "large":
                said = await caller.post("/v1/decide", b" " * (3 << 20))
                return said.status, said.status == 413
            if kind == "broken":
                said = await caller.post("/v1/decide", b'{"tool": ')
                return said.status, said.status == 400
            if kind == "path":
                said = await caller.get("/v2/decide")
                return said.status, said.status == 404
            said = await caller.post("/v1/decide", {**call, "timeout_ms": 20_000})
            ruling = said.body
            if said.status == 200 and number % 8 > 4:
                return said.status, ruling["outcome"] == "deny"
            if said.status == 200 and kind == "report" and ruling["outcome"] == "continue":
                told = {"id": ruling["id"], "outcome": "succeed", "cost": 1}
                said = await caller.post("/v1/report", told)
                return said.status, said.body["recorded"] is True
            return said.status, said.status == 200 and ruling["outcome"] in ("continue", "deny")

        async def leave(number):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            body = json.dumps({"tool": "write", "arguments": {"n": number % 8}}).encode()
            head = f"POST /v1/decide HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body[: chance.randrange(len(body) + 1)])
            await asyncio.sleep(0)
            writer.transport.abort()
            return 0, True

        async def trickle(part):
            """Some of a request, and then nothing for as long as one may stay."""
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(part)
            said = await reader.read()
            writer.close()
            return int(said.split()[1]) if said else 0

        numbers = iter(range(REQUESTS))

        async def work():
            for number in numbers:
                kind = chance.choice(KINDS)
                try:
                    status, well = await (leave(number) if kind == "leave" else ask(kind, number))
                except Exception as error:  # noqa: BLE001 - whatever it was, it was no answer
                    status, well = 0, kind == "large"  # it is told before all was sent: that may be lost
                    if not well:
                        wrong.append((kind, number, repr(error)))
                answers[kind, status] += 1
                if not well:
                    wrong.append((kind, number, status))

        await asyncio.gather(*(ask("good", number) for number in range(CONNECTIONS)))
        before = resident(running.pid)
        halves = (
            b"POST /v1/decide HTTP/1.1\r\nHost: x\r\n",
            (
                f"POST /v1/decide HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
                "Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
            ).encode(),
        )
        slow = [asyncio.create_task(trickle(halves[number % 2])) for number in range(SLOW)]
        workers = [asyncio.create_task(work()) for _ in range(CONNECTIONS)]
        await wait_until(lambda: sum(answers.values()) > REQUESTS // 2, timeout=200)
        print(f"{REQUESTS // 2} of {REQUESTS} requests are answered; its server is killed", flush=True)
        server.kill()
        await wait_until(lambda: sum(answers.values()) > REQUESTS // 2 + 500, timeout=100)
        server.start()
        await asyncio.gather(*workers)
        assert wrong == []
        assert sum(answers.values()) == REQUESTS
        assert set(await asyncio.gather(*slow)) == {408}
    await wait_until(lambda: files(running.pid) < FILES_BESIDE + 16, timeout=30)
    assert resident(running.pid) - before < MAX_GROWTH, answers
    assert running.alive
    async with tree_of(url=ready["url"], token=TOKEN) as caller:

        async def rules_again():
            return (await caller.decide("write", arguments={"n": 1}))["outcome"] == "continue"

        await wait_until(rules_again, timeout=30)
    assert "Traceback" not in running.stderr
    assert "Exception" not in running.stderr
