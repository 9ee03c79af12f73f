"""With `keys`, verdicts are believed only if they are signed for this very question."""

import asyncio
import os

import msgpack
import pytest
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import Continue, Deny, Modify
from toolgate_bus.protocol.signing import Keyring, digest
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance

TOOLS = ["bash", "search", "fast_search"]
SECRETS = {"alpha": "aa" * 32, "gamma": "cc" * 32, "signer": "bb" * 32}
DENY = {"action": "deny", "reason": "no"}


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """The keys file that everybody shares."""
    path = tmp_path_factory.mktemp("keys") / "keys.yaml"
    path.write_text("".join(f"{name}: {key}\n" for name, key in SECRETS.items()))
    return path


@pytest.fixture
def gate(server_url, namespace, keys):
    return lambda **config: Gate.open(
        redis=server_url, namespace=namespace, keys=keys, **{"patience_ms": 30_000} | config
    )


@pytest.fixture
async def signer(rogue, namespace):
    """A scheduler that the test plays by hand, with a key of its own."""
    return await rogue("signer", namespace)


@pytest.fixture
def signed(namespace):
    """Gives a frame with one verdict on a question, written into the item of question `to`."""

    def sign(orchestrator, question, verdict, key=SECRETS["signer"], *, to=None, speaker="signer"):
        body = codec.verdict_body(verdict)
        ring = Keyring({speaker: bytes.fromhex(key)}, namespace)
        mac = ring.sign_verdict(orchestrator, speaker, digest(question.signature_input), body)
        target = to or question
        return msgpack.packb([[packing.VERSION, target.id, target.phase, body, mac]])

    return sign


async def test_signed_processes_work_from_end_to_end(schedulers, gate, keys, counted):
    children = [schedulers.run(f"obedient:{name}", "--keys", keys) for name in ("alpha", "gamma")]
    for child in children:
        await schedulers.ready(child)
    async with gate(required=["alpha"]) as opened:
        agreed = await opened.decide(Call("search", {}, TOOLS))
        assert (agreed.outcome, agreed.why, len(agreed.verdicts)) == ("continue", "agreed", 2)
        denied = await opened.decide(Call("search", {"rules": {"alpha": DENY}}, TOOLS))
        assert (denied.outcome, denied.scheduler) == ("deny", "alpha")
        rules = {
            "gamma": {"action": "modify", "tool": "fast_search", "arguments": {"rules": {"alpha": DENY}}}
        }
        vetoed = await opened.decide(Call("search", {"rules": rules}, TOOLS))
        assert (vetoed.outcome, vetoed.scheduler) == ("deny", "alpha")
        then = {"action": "modify", "tool": "fast_search", "arguments": {"b": 2}, "after": 0.1}
        held = {"gamma": {"action": "hold", "seconds": 20, "then": then}}
        modified = await opened.decide(Call("search", {"rules": held}, TOOLS))
        assert (modified.outcome, modified.tool_input) == ("modify", {"b": 2})
    for reason in ("forged", "unsolicited", "no_key"):
        for name in ("alpha", "gamma"):
            assert counted("toolgate_bad_messages_total", sender=name, reason=reason) == 0


async def test_a_process_without_keys_is_not_believed(schedulers, gate, counted):
    await schedulers.start("obedient:alpha")
    async with gate(required=["alpha"], patience_ms=400) as opened:
        decision = await opened.decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.why) == ("deny", "silent")
    assert counted("toolgate_bad_messages_total", sender="alpha", reason="forged") == 1


async def test_a_process_with_another_key_neither_answers_nor_is_believed(
    schedulers, gate, tmp_path, counted
):
    other = tmp_path / "other.yaml"
    other.write_text(f"alpha: {'dd' * 32}\n")
    await schedulers.start("obedient:alpha", "--keys", other)
    async with gate(patience_ms=400) as opened:
        decision = await opened.decide(Call("search", {"rules": {"alpha": DENY}}, TOOLS))
    assert (decision.outcome, decision.silent) == ("continue", ("alpha",))
    assert schedulers.lines("asked") == []  # the question is a forgery to it


async def test_one_without_a_key_of_its_own_is_not_even_asked(
    signed, rogue, namespace, gate, signer, counted
):
    stranger = await rogue("stranger", namespace)
    async with gate() as opened:
        deciding = asyncio.create_task(opened.decide(Call("search", {}, TOOLS)))
        _, orchestrator, question = await signer.question()
        await signer.write(orchestrator, signed(orchestrator, question, Continue()))
        decision = await deciding
        assert (decision.outcome, decision.why) == ("continue", "agreed")
    assert await stranger.client.xlen(stranger.keys.inbox("stranger")) == 0
    assert counted("toolgate_bad_messages_total", sender="stranger", reason="no_key") >= 1


FORGERIES = {
    "no signature": lambda signed, orch, q: msgpack.packb(
        [[packing.VERSION, q.id, q.phase, codec.verdict_body(Deny(reason="x")), None]]
    ),
    "random signature": lambda signed, orch, q: msgpack.packb(
        [[packing.VERSION, q.id, q.phase, codec.verdict_body(Deny(reason="x")), os.urandom(32)]]
    ),
    "empty signature": lambda signed, orch, q: msgpack.packb(
        [[packing.VERSION, q.id, q.phase, codec.verdict_body(Deny(reason="x")), b""]]
    ),
    "another key": lambda signed, orch, q: signed(orch, q, Deny(reason="x"), "ee" * 32),
    "another scheduler's key": lambda signed, orch, q: signed(
        orch, q, Deny(reason="x"), SECRETS["alpha"], speaker="alpha"
    ),
    "another orchestrator's": lambda signed, orch, q: signed("0" * 16, q, Deny(reason="x")),
    "another question's": lambda signed, orch, q: signed(
        orch, q._replace(body=q.body + b"x"), Deny(reason="x")
    ),
    "the question's own": lambda signed, orch, q: msgpack.packb(
        [[packing.VERSION, q.id, q.phase, codec.verdict_body(Deny(reason="x")), q.mac]]
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
async def test_a_forged_verdict_is_refused_and_counted(signed, signer, gate, counted, wait_until, forgery):
    async with gate() as opened:
        deciding = asyncio.create_task(opened.decide(Call("search", {"a": 1}, TOOLS)))
        _, orchestrator, question = await signer.question()
        await signer.write(orchestrator, FORGERIES[forgery](signed, orchestrator, question))
        await wait_until(
            lambda: counted("toolgate_bad_messages_total", sender="signer", reason="forged") == 1
        )
        await signer.write(orchestrator, signed(orchestrator, question, Continue()))
        decision = await deciding
    assert (decision.outcome, decision.why) == ("continue", "agreed")


@pytest.mark.parametrize("again", ["another call", "the same call once more"])
async def test_a_replayed_verdict_is_refused_and_counted(signed, signer, gate, counted, wait_until, again):
    """A genuine `continue` for one question must not answer a later one, be it word for word the same."""
    async with gate(required=["signer"]) as opened:
        first = asyncio.create_task(opened.decide(Call("search", {"n": 1}, TOOLS)))
        entry, orchestrator, question = await signer.question()
        await signer.write(orchestrator, signed(orchestrator, question, Continue()))
        assert (await first).outcome == "continue"
        arguments = {"n": 1} if again == "the same call once more" else {"n": 2}
        second = asyncio.create_task(opened.decide(Call("search", arguments, TOOLS)))
        _, _, later = await signer.question(entry)
        await signer.write(orchestrator, signed(orchestrator, question, Continue(), to=later))
        await wait_until(
            lambda: counted("toolgate_bad_messages_total", sender="signer", reason="forged") == 1
        )
        assert not second.done()
        await signer.write(orchestrator, signed(orchestrator, later, Deny(reason="spent")))
        decision = await second
    assert (decision.outcome, decision.reason) == ("deny", "spent")


async def test_a_verdict_on_the_original_does_not_pass_for_one_on_the_replacement(
    signed, signer, schedulers, gate, keys, counted, wait_until
):
    """Played again in the verify phase, a `continue` on the LLM's own call is a forgery."""
    await schedulers.start("obedient:gamma", "--keys", keys)
    async with gate() as opened:
        rules = {"gamma": {"action": "modify", "tool": "fast_search", "arguments": {}}}
        deciding = asyncio.create_task(opened.decide(Call("search", {"rules": rules}, TOOLS)))
        entry, orchestrator, question = await signer.question()
        await signer.write(orchestrator, signed(orchestrator, question, Continue()))
        _, _, verify = await signer.question(entry)
        assert (verify.id, verify.phase) == (question.id, 1)
        await signer.write(orchestrator, signed(orchestrator, question, Continue(), to=verify))
        await wait_until(
            lambda: counted("toolgate_bad_messages_total", sender="signer", reason="forged") == 1
        )
        await signer.write(orchestrator, signed(orchestrator, verify, Deny(reason="not this one")))
        decision = await deciding
    assert (decision.outcome, decision.reason) == ("deny", "not this one")


async def test_an_answer_to_nobodys_question_is_refused_though_it_is_signed(
    signed, signer, gate, counted, wait_until
):
    async with gate() as opened:
        deciding = asyncio.create_task(opened.decide(Call("search", {}, TOOLS)))
        _, orchestrator, question = await signer.question()
        other = question._replace(id=os.urandom(16))
        await signer.write(orchestrator, signed(orchestrator, question, Deny(reason="x"), to=other))
        await wait_until(
            lambda: counted("toolgate_bad_messages_total", sender="signer", reason="unsolicited") == 1
        )
        await signer.write(orchestrator, signed(orchestrator, question, Continue()))
        assert (await deciding).outcome == "continue"


async def test_a_forged_question_is_not_answered(schedulers, rogue, namespace, keys, wait_until):
    """Without the key, nobody can make a scheduler sign a verdict."""
    await schedulers.start("obedient:alpha", "--keys", keys)
    writer = await rogue("writer", namespace)
    fields = {"phase": "select", "tool_name": "search", "ttl_ms": 5000}
    body = packing.pack(fields)
    inbox = writer.keys.inbox("alpha")
    for mac in (None, os.urandom(32)):
        frame = msgpack.packb([[packing.VERSION, os.urandom(16), 0, body, mac]])
        await writer.client.xadd(inbox, {"event": "tool:selecting", "orch": "f" * 16, "frame": frame})

    async def acknowledged():
        (group,) = await writer.client.xinfo_groups(inbox)
        return group["pending"] == 0 and group["entries-read"] == 2

    await wait_until(acknowledged)
    assert await writer.client.xlen(writer.keys.verdicts("f" * 16, "alpha")) == 0
    assert schedulers.lines("asked") == []


async def test_priorities_above_the_cap_are_lowered_with_keys_as_well(
    signed, signer, schedulers, gate, keys, counted
):
    await schedulers.start("obedient:gamma", "--keys", keys)
    async with gate(schedulers={"signer": {"max_priority": 5}}) as opened:
        rules = {"gamma": {"action": "modify", "tool": "fast_search", "arguments": {"by": "gamma"}}}
        deciding = asyncio.create_task(opened.decide(Call("search", {"rules": rules}, TOOLS)))
        entry, orchestrator, question = await signer.question()
        high = Modify(tool="bash", arguments={"by": "signer"}, priority=2**31 - 1)
        await signer.write(orchestrator, signed(orchestrator, question, high))
        _, _, verify = await signer.question(entry)
        await signer.write(orchestrator, signed(orchestrator, verify, Continue()))
        decision = await deciding
    assert decision.tool_input == {"by": "gamma"}
    assert counted("toolgate_priority_capped_total", scheduler="signer") == 1
