"""Two versions of the wire on one bus: nobody is passed over in silence for the version that he speaks."""

import asyncio
import os

import pytest
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import Continue, Modify
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.signing import Keyring, digest
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance

TOOLS = ["bash", "search"]
KEY = "ab" * 32
BOTH = {"wire": (1, 2)}


@pytest.fixture
def gate(server_url, namespace):
    return lambda **config: Gate.open(
        redis=server_url, namespace=namespace, **{"patience_ms": 30_000} | config
    )


def answer(item, verdict, revision="", keyring=None, orchestrator="", scheduler=""):
    """A frame with a verdict on a question, in the question's version."""
    body = codec.verdict_body(verdict, revision)
    mac = None
    if keyring is not None:
        asked = digest(item.signed)
        mac = keyring.sign_verdict(orchestrator, scheduler, asked, body, item.version)
    return packing.frame([packing.item(item.id, item.phase, body, mac, item.version)])


async def known(wait_until, gate, name):
    await wait_until(lambda: name in gate._client.directory.announced)


async def test_who_speaks_a_later_wire_only_is_named_at_once_and_counted(
    rogue, namespace, gate, counted, wait_until
):
    await rogue("later", namespace, wire=(3, 4))
    never = {"patience_ms": 600_000}
    async with gate(required=["later"], **never) as required, gate(**never) as optional:
        await known(wait_until, required, "later")
        denied = await required.decide(Call("bash", {}, TOOLS))
        ran = await optional.decide(Call("bash", {}, TOOLS))
    assert (denied.outcome, denied.why, denied.scheduler) == ("deny", "silent", "later")
    assert "later speaks versions 3 and 4 of the wire, this agent versions 1 and 2" in denied.reason
    assert ran.outcome == "continue"
    assert counted("toolgate_failed_open_total", scheduler="later", reason="incompatible") == 1


async def test_who_does_not_rule_on_replacements_is_not_asked_about_them_and_vetoes_them_if_required(
    rogue, namespace, gate, counted, wait_until
):
    strict = await rogue("strict", namespace, phases=("select",), **BOTH)
    router = await rogue("router", namespace, **BOTH)
    for required, outcome in ((["strict"], "deny"), ([], "modify")):
        async with gate(required=required) as opened:
            await known(wait_until, opened, "strict")
            await known(wait_until, opened, "router")
            deciding = asyncio.create_task(opened.decide(Call("bash", {}, TOOLS)))
            last = {}
            for one, verdict in ((strict, Continue()), (router, Modify(tool="search", arguments={}))):
                last[one], orchestrator, item = await one.question()
                await one.write(orchestrator, answer(item, verdict))
            decision = await deciding
            await strict.client.xtrim(strict.keys.inbox("strict"), 0)
            await router.client.xtrim(router.keys.inbox("router"), 0)
        assert decision.outcome == outcome
        if required:
            assert "strict does not rule on replacements (phase verify)" in decision.reason
    assert counted("toolgate_failed_open_total", scheduler="strict", reason="phase") == 1


async def test_when_a_replica_of_version_one_joins_open_questions_are_asked_again_in_it(
    rogue, namespace, gate, wait_until
):
    newer = await rogue("mixed", namespace, **BOTH)
    async with gate(required=["mixed"]) as opened:
        await known(wait_until, opened, "mixed")
        deciding = asyncio.create_task(opened.decide(Call("bash", {}, TOOLS)))
        entry, _, item = await newer.question()
        assert item.version == 2
        await newer.announce("older")  # which says nothing of versions
        await newer.wake()
        entry, orchestrator, again = await newer.question(entry)
        assert (again.version, again[:3]) == (1, item[:3])
        await newer.write(orchestrator, answer(again, Continue()))
        assert (await deciding).why == "agreed"
        deciding = asyncio.create_task(opened.decide(Call("ls", {}, TOOLS)))
        _, orchestrator, item = await newer.question(entry)
        assert item.version == 1
        await newer.write(orchestrator, answer(item, Continue()))
        assert (await deciding).why == "agreed"


async def test_a_verdict_names_the_configuration_that_gave_it(rogue, namespace, gate, wait_until):
    one = await rogue("double", namespace, **BOTH)
    async with gate(required=["double"]) as opened:
        await known(wait_until, opened, "double")
        heard, entry = [], b"0-0"
        for verdict, revision in (
            (Continue(), "v7@0123456789ab"),
            (Continue(), "v8@ba9876543210"),
            (Continue(reason="looked at"), "v7@0123456789ab"),
        ):
            deciding = asyncio.create_task(opened.decide(Call("bash", {}, TOOLS)))
            entry, orchestrator, item = await one.question(entry)
            await one.write(orchestrator, answer(item, verdict, revision))
            heard += (await deciding).verdicts
    assert [said.revision for said in heard] == ["v7@0123456789ab", "v8@ba9876543210", "v7@0123456789ab"]


async def test_a_denial_with_fields_that_nobody_knows_is_a_denial(rogue, namespace, gate, wait_until):
    one = await rogue("ahead", namespace, **BOTH)
    async with gate() as opened:
        await known(wait_until, opened, "ahead")
        deciding = asyncio.create_task(opened.decide(Call("bash", {}, TOOLS)))
        _, orchestrator, item = await one.question()
        body = packing.pack({"action": "deny", "reason": "no", "why": {"rule": 7}, "revision": 9})
        frame = packing.frame(
            [packing.item(item.id, 0, body, None, 2), packing.item(item.id, 9, b"", None, 2)]
        )
        await one.write(orchestrator, frame)
        assert (await deciding).reason == "no"


async def test_a_signed_question_written_again_as_a_withdrawal_ends_no_hold(
    schedulers, namespace, gate, server_url, rogue, tmp_path, wait_until
):
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"gamma: {KEY}\n")
    keys.chmod(0o600)
    await schedulers.start("obedient:gamma", "--keys", keys)
    writer = await rogue("writer", namespace)
    inbox = Keys(namespace).inbox("gamma")
    async with gate(keys=str(keys), schedulers={"writer": {}}) as opened:
        then = {"action": "deny", "reason": "thought about", "after": 0.5}
        rules = {"gamma": {"action": "hold", "seconds": 3, "then": then}}
        deciding = asyncio.create_task(opened.decide(Call("bash", {"rules": rules}, TOOLS)))
        await wait_until(lambda: schedulers.lines("asked"))
        for _, fields in await writer.client.xrange(inbox):
            (item,) = packing.items(fields[b"frame"])
            ring = Keyring({"gamma": bytes.fromhex(KEY)}, namespace)
            assert item.version == 2
            orchestrator = fields[b"orch"].decode()
            older = ring.sign_question(
                orchestrator, "gamma", item.signature_input
            )  # as a gate of version 1 signs
            for frame in (
                fields[b"frame"],
                packing.frame([packing.item(item.id, item.phase, item.body, older)]),
                packing.frame([packing.item(item.id, item.phase, item.body, os.urandom(32), 2)]),
            ):
                fields = {"event": "tool:withdrawn", "orch": orchestrator, "frame": frame}
                await writer.client.xadd(inbox, fields)
        assert (await deciding).reason == "thought about"


async def test_a_hold_is_answered_by_the_one_who_holds_in_the_name_of_its_configuration(
    schedulers, gate, tmp_path
):
    await schedulers.start("obedient:gamma", "--revision", "first")
    async with gate() as opened:
        then = {"action": "deny", "reason": "no", "after": 0.05}
        held = {"gamma": {"action": "hold", "seconds": 5, "then": then}}
        decision = await opened.decide(Call("bash", {"rules": held}, TOOLS))
    assert [one.verdict.action for one in decision.verdicts] == ["hold", "deny"]
    first, second = [one.revision for one in decision.verdicts]
    assert first == second
    assert first.startswith("first@")
