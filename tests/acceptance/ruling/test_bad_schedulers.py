"""Whatever a scheduler does, the gate goes on: it is counted, and the other verdicts still count.

`rogue` writes by a plain Redis client what no worker of ours would send.
"""

import asyncio
import os

import msgpack
import pytest
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import Continue, Deny, Modify
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.system]

TOOLS = ["bash", "search", "fast_search"]
DENY = {"action": "deny", "reason": "no"}
CONTINUE = codec.verdict_body(Continue())


def gate_on(bus, **config):
    return Gate.open(redis=bus.url, namespace=bus.namespace, **{"patience_ms": 2000} | config)


def failures(decision):
    return {one.scheduler: one.verdict.reason for one in decision.verdicts if one.verdict.action == "failed"}


# ---------------------------------------------------------------------- its own worker tells on it


@pytest.mark.parametrize("fault", ["raise", "nonsense"])
async def test_a_scheduler_that_fails_is_counted_and_the_others_still_count(crew, counted, fault):
    async with gate_on(crew, patience_ms=600_000) as gate:  # nobody waits for one that has failed
        rules = {"alpha": {"do": fault}, "beta": {"action": "modify", "tool": "bash", "arguments": {"a": 1}}}
        decision = await gate.decide(Call("search", {"rules": rules}, TOOLS))
        assert (decision.outcome, decision.scheduler, decision.tool_input) == ("modify", "beta", {"a": 1})
        assert decision.silent == ("alpha",)
        assert list(failures(decision)) == ["alpha"]
        assert counted("toolgate_failed_open_total", scheduler="alpha", reason="failed") == 1
        rules["gamma"] = {**DENY, "after": 0.05}
        assert (await gate.decide(Call("search", {"rules": rules}, TOOLS))).outcome == "deny"
        # It is asked again, and counts again.
        again = await gate.decide(Call("search", {"rules": {"alpha": DENY}}, TOOLS))
        assert (again.outcome, again.scheduler) == ("deny", "alpha")


async def test_all_failing_leaves_the_llms_own_choice(crew):
    async with gate_on(crew, patience_ms=10_000) as gate:
        rules = {name: {"do": "raise"} for name in ("alpha", "beta", "gamma")}
        decision = await gate.decide(Call("search", {"rules": rules}, TOOLS))
    assert (decision.outcome, decision.why, decision.tool_name) == ("continue", "failed_open", "search")
    assert set(decision.silent) == {"alpha", "beta", "gamma"}


@pytest.mark.parametrize("fault", ["raise", "nonsense"])
async def test_a_required_scheduler_that_fails_denies(crew, fault):
    async with gate_on(crew, required=["alpha"], patience_ms=10_000) as gate:
        decision = await gate.decide(Call("search", {"rules": {"alpha": {"do": fault}}}, TOOLS))
    assert (decision.outcome, decision.why, decision.scheduler) == ("deny", "silent", "alpha")


# ---------------------------------------------------------------------- bad bytes


def item(of, body=CONTINUE, *, version=packing.VERSION, id_=None, phase=None):
    fields = [version, id_ or of.id, of.phase if phase is None else phase, body, None]
    return msgpack.packb([fields])


BAD_FRAMES = {
    "garbage": (lambda of: os.urandom(200) + b"\xc1", "malformed"),
    "empty": (lambda of: b"", "malformed"),
    "no frame at all": (lambda of: msgpack.packb({"hello": 1}), "malformed"),
    "truncated": (lambda of: item(of)[:-3], "malformed"),
    "unknown version": (lambda of: item(of, version=99), "version"),
    "10 MiB": (lambda of: item(of, b"x" * (10 << 20)), "flood"),
    "a body of garbage": (lambda of: item(of, b"\xc1\xff\x00"), "malformed"),
    "an unknown action": (lambda of: item(of, msgpack.packb({"action": "allow"})), "malformed"),
    "an unknown field": (lambda of: item(of, msgpack.packb({"action": "continue", "x": 1})), "malformed"),
    "a body of 70 kB": (
        lambda of: item(of, msgpack.packb({"action": "continue", "reason": "x" * 70_000})),
        "oversize",
    ),
    "1000 levels": (lambda of: item(of, b"\x81\xa1a" * 1000 + b"\xc0"), "malformed"),
    "an extension type": (
        lambda of: item(of, msgpack.packb({"action": msgpack.ExtType(5, b"x")})),
        "malformed",
    ),
    "an endless array": (lambda of: b"\xdd\xff\xff\xff\xff", "malformed"),
    "nobody's question": (lambda of: item(of, id_=os.urandom(16)), "unsolicited"),
    "another phase": (lambda of: item(of, phase=1), "unsolicited"),
}


@pytest.mark.parametrize("kind", BAD_FRAMES)
async def test_bad_bytes_are_counted_and_change_nothing(
    rogue, schedulers_with_alpha, counted, wait_until, kind
):
    make, reason = BAD_FRAMES[kind]
    bus = schedulers_with_alpha
    bad = await rogue("rogue", bus.namespace)
    async with gate_on(bus) as gate:
        rules = {"alpha": {**DENY, "after": 0.15}}
        deciding = asyncio.create_task(gate.decide(Call("search", {"rules": rules}, TOOLS)))
        _, orchestrator, question = await bad.question()
        await bad.write(orchestrator, make(question))
        await wait_until(lambda: counted("toolgate_bad_messages_total", sender="rogue", reason=reason) == 1)
        denied = await deciding
        assert (denied.outcome, denied.scheduler) == ("deny", "alpha")
        assert {one.scheduler for one in denied.verdicts} == {"alpha"}
        # It gives no answer, so it is silent: the next call waits for it to the end of patience.
        after = await gate.decide(Call("search", {}, TOOLS))
        assert (after.outcome, after.silent) == ("continue", ("rogue",))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"action": "deny"}, "malformed"),
        ({"action": "deny", "reason": 5, "x": [1]}, "malformed"),
        ({"action": "ask_user", "prompt": "?", "timeout_s": -1}, "malformed"),
        ({"action": "hold", "seconds": "long"}, "malformed"),
        ({"action": "deny", "reason": "x" * 70_000}, "oversize"),
    ],
)
async def test_what_means_to_stop_a_call_denies_though_its_words_cannot_be_read(
    rogue, schedulers_with_alpha, counted, body, reason
):
    bad = await rogue("rogue", schedulers_with_alpha.namespace)
    async with gate_on(schedulers_with_alpha, patience_ms=30_000) as gate:
        deciding = asyncio.create_task(gate.decide(Call("search", {}, TOOLS)))
        _, orchestrator, question = await bad.question()
        await bad.write(orchestrator, item(question, msgpack.packb(body)))
        decision = await deciding
    assert (decision.outcome, decision.scheduler) == ("deny", "rogue")
    assert counted("toolgate_bad_messages_total", sender="rogue", reason=reason) == 1


async def test_a_good_answer_after_a_bad_one_counts(rogue, schedulers_with_alpha, counted):
    bad = await rogue("rogue", schedulers_with_alpha.namespace)
    async with gate_on(schedulers_with_alpha, patience_ms=30_000) as gate:
        deciding = asyncio.create_task(gate.decide(Call("search", {}, TOOLS)))
        _, orchestrator, question = await bad.question()
        await bad.write(orchestrator, b"\xc1 garbage")
        await bad.write(orchestrator, item(question, codec.verdict_body(Deny(reason="really"))))
        decision = await deciding
    assert (decision.outcome, decision.scheduler, decision.reason) == ("deny", "rogue", "really")
    assert counted("toolgate_bad_messages_total", sender="rogue", reason="malformed") == 1


async def test_one_bad_item_does_not_spoil_its_frame(rogue, schedulers_with_alpha, counted):
    bad = await rogue("rogue", schedulers_with_alpha.namespace)
    async with gate_on(schedulers_with_alpha, patience_ms=30_000) as gate:
        deciding = asyncio.create_task(gate.decide(Call("search", {}, TOOLS)))
        _, orchestrator, question = await bad.question()
        good = [packing.VERSION, question.id, 0, codec.verdict_body(Deny(reason="really")), None]
        await bad.write(orchestrator, msgpack.packb([[1, 2], "?", [99, question.id, 0, b"", None], good]))
        assert (await deciding).scheduler == "rogue"
    assert counted("toolgate_bad_messages_total", sender="rogue", reason="malformed") == 2
    assert counted("toolgate_bad_messages_total", sender="rogue", reason="version") == 1


async def test_an_entry_with_other_fields_is_counted(rogue, schedulers_with_alpha, counted, wait_until):
    bad = await rogue("rogue", schedulers_with_alpha.namespace)
    async with gate_on(schedulers_with_alpha) as gate:
        deciding = asyncio.create_task(gate.decide(Call("search", {}, TOOLS)))
        _, orchestrator, _ = await bad.question()
        await bad.client.xadd(bad.keys.verdicts(orchestrator, "rogue"), {"a": "b", "c": "d", "e": "f"})
        await wait_until(lambda: counted("toolgate_bad_messages_total", sender="rogue", reason="malformed"))
        assert (await deciding).outcome == "continue"


VERDICTS = {
    "deny": Deny(reason="not mine to deny", priority=2**31 - 1),
    "modify": Modify(tool="fast_search", arguments={"evil": True}, priority=2**31 - 1),
}


@pytest.mark.parametrize("verdict", VERDICTS)
async def test_an_answer_to_a_question_that_was_put_to_someone_else_is_refused(
    rogue, schedulers_with_alpha, counted, wait_until, verdict
):
    """It is alive and heard, but was not asked about this tool; it knows the id from another's inbox."""
    bus = schedulers_with_alpha
    nosy = await rogue("nosy", bus.namespace, tools=("other_*",))
    asked = await rogue("asked", bus.namespace)
    async with gate_on(bus) as gate:
        deciding = asyncio.create_task(gate.decide(Call("search", {}, TOOLS)))
        _, orchestrator, question = await asked.question()
        await nosy.write(orchestrator, item(question, codec.verdict_body(VERDICTS[verdict])))
        await wait_until(
            lambda: counted("toolgate_bad_messages_total", sender="nosy", reason="unsolicited") == 1
        )
        await asked.write(orchestrator, item(question))
        decision = await deciding
    assert decision.outcome == "continue"
    assert "nosy" not in {one.scheduler for one in decision.verdicts}


async def test_the_author_of_a_modify_has_no_say_in_its_verification(
    rogue, schedulers_with_alpha, counted, wait_until
):
    author = await rogue("author", schedulers_with_alpha.namespace)
    async with gate_on(schedulers_with_alpha, patience_ms=30_000) as gate:
        deciding = asyncio.create_task(gate.decide(Call("search", {}, TOOLS)))
        _, orchestrator, question = await author.question()
        arguments = {"rules": {"alpha": {"action": "continue", "after": 0.4}}}
        modify = codec.verdict_body(Modify(tool="fast_search", arguments=arguments))
        await author.write(orchestrator, item(question, modify))
        verifying = {"scheduler": "alpha", "phase": "verify"}
        await wait_until(
            lambda: schedulers_with_alpha.lines("asked", decision=question.id.hex(), **verifying)
        )
        await author.write(orchestrator, item(question, codec.verdict_body(Deny(reason="no")), phase=1))
        decision = await deciding
    assert (decision.outcome, decision.scheduler) == ("modify", "author")
    assert counted("toolgate_bad_messages_total", sender="author", reason="unsolicited") == 1


async def test_a_flood_of_garbage_does_not_keep_the_others_from_being_heard(
    rogue, schedulers_with_alpha, counted
):
    bad = await rogue("rogue", schedulers_with_alpha.namespace)
    async with gate_on(schedulers_with_alpha, patience_ms=30_000) as gate:
        deciding = asyncio.create_task(gate.decide(Call("search", {"rules": {"alpha": DENY}}, TOOLS)))
        _, orchestrator, _ = await bad.question()
        assert (await deciding).outcome == "deny"
        pipe = bad.client.pipeline(transaction=False)
        for _ in range(5000):
            pipe.xadd(bad.keys.verdicts(orchestrator, "rogue"), {"frame": os.urandom(300)})
        flooding = asyncio.create_task(pipe.execute())
        for _ in range(20):
            decision = await gate.decide(Call("search", {"rules": {"alpha": DENY}}, TOOLS))
            assert (decision.outcome, decision.scheduler) == ("deny", "alpha")
        await flooding


@pytest.mark.parametrize("kind", ["string", "garbage in the roster"])
async def test_what_others_put_where_it_does_not_belong_stops_nobody(
    rogue, schedulers_with_alpha, kind, wait_until
):
    bus = schedulers_with_alpha
    bad = await rogue("rogue", bus.namespace)
    if kind != "string":
        await bad.client.sadd(bad.keys.roster, b"s:\xff:\xfe", "s:x", "?", "s:evil:1")
        await bad.client.set(bad.keys.member("s:evil:1"), b"\xc1garbage", px=5000)
    async with gate_on(bus) as gate:
        deciding = asyncio.create_task(gate.decide(Call("search", {}, TOOLS)))
        _, orchestrator, _ = await bad.question()
        await deciding
        if kind == "string":
            await bad.client.set(bad.keys.verdicts(orchestrator, "rogue"), "no stream")

        async def rules():
            decision = await gate.decide(Call("search", {"rules": {"alpha": DENY}}, TOOLS))
            return decision.outcome == "deny"

        await wait_until(rules)
        for _ in range(5):
            assert await rules()


# ---------------------------------------------------------------------- priorities


async def test_priorities_above_the_cap_are_lowered_to_it_and_counted(crew, counted):
    rules = {
        "alpha": {"action": "modify", "tool": "bash", "arguments": {"by": "alpha"}, "priority": 1_000_000},
        "beta": {"action": "modify", "tool": "fast_search", "arguments": {"by": "beta"}},
    }
    async with gate_on(crew, patience_ms=30_000) as gate:
        free = await gate.decide(Call("search", {"rules": rules}, TOOLS))
    assert free.tool_input == {"by": "alpha"}
    async with gate_on(crew, patience_ms=30_000, schedulers={"alpha": {"max_priority": 15}}) as gate:
        capped = await gate.decide(Call("search", {"rules": rules}, TOOLS))
        (alphas,) = [one for one in capped.verdicts if (one.scheduler, one.phase) == ("alpha", "select")]
        assert capped.tool_input == {"by": "beta"}
        assert (alphas.priority, alphas.capped) == (15, True)
        assert counted("toolgate_priority_capped_total", scheduler="alpha") == 1
        # What it announced of itself is capped as well.
    async with gate_on(crew, patience_ms=30_000, schedulers={"gamma": {"max_priority": 5}}) as gate:
        rules = {name: {**rules["beta"], "arguments": {"by": name}} for name in ("beta", "gamma")}
        assert (await gate.decide(Call("search", {"rules": rules}, TOOLS))).tool_input == {"by": "beta"}
        assert counted("toolgate_priority_capped_total", scheduler="gamma") >= 1
