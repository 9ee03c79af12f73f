"""What a gate keeps as facts: no secret in it, whoever spoke it."""

import pytest
from toolgate_bus.facts import record
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import Continue, Deny, Modify
from toolgate_bus.transport.memory import MemoryHub
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient

pytestmark = pytest.mark.pure

SECRET = "hunter2-canary"


@pytest.fixture
async def gate():
    """A gate that redacts passwords, on a hub where somebody reads facts."""
    hub = MemoryHub()
    hub.is_read = True
    client = GateClient(hub.orchestrator())
    await client.start()
    made = Gate(parse({"redact": {"fields": ["password"], "patterns": ["sk-[a-z0-9]+"]}}), client, None)
    made.hub = hub
    yield made
    await client.bus.aclose()


def facts(gate):
    return [record.read_facts(packing.items(packing.frame([raw]))[0])[0] for raw in gate.hub.facts]


@pytest.mark.parametrize(
    "answer",
    [
        Continue(),
        Continue(reason=f"saw {SECRET}"),
        Deny(reason=f"{SECRET} and sk-abcd are wrong"),
        Modify(tool="b", arguments={"password": SECRET, "text": "sk-abcd"}, reason=f"with {SECRET}"),
        Modify(tool="b", arguments={"other": SECRET, "argv": ["--with", f"login:{SECRET}"]}),
    ],
)
async def test_what_a_hook_of_this_process_says_is_kept_without_secrets(gate, answer):
    """It sees the call as it is, unlike schedulers on the bus; the record must not."""

    async def hook(call):
        return [answer]

    await gate.decide(Call("a", {"password": SECRET, "text": "sk-abcd"}, ["a", "b"]), local=hook)
    raw = b"".join(gate.hub.facts)
    assert b"decision" in raw
    assert SECRET.encode() not in raw
    assert b"sk-abcd" not in raw


async def test_other_facts_are_kept_without_secrets(gate):
    gate.note("tool:post", {"result": {"password": SECRET}, "text": "sk-abcd", "n": 1})
    (fact,) = facts(gate)
    assert (fact["event"], fact["n"]) == ("tool:post", 1)
    assert SECRET.encode() not in gate.hub.facts[0]
    assert b"sk-abcd" not in gate.hub.facts[0]


@pytest.mark.parametrize(
    "redact", [{"patterns": ["[0-9a-f]{32}"]}, {"fields": ["cost", "decision_id", "session", "cost_usd"]}]
)
async def test_what_the_engine_itself_wrote_is_kept_whatever_is_secret(redact):
    hub = MemoryHub()
    hub.is_read = True
    client = GateClient(hub.orchestrator())
    await client.start()
    made = Gate(parse({"redact": redact}), client, None)
    made.hub = hub
    own = {"decision_id": "0f" * 16, "session": "ab" * 16, "labels": {"job": "cd" * 16}, "tool": "a"}
    told = {**own, "cost": 5, "cost_usd": "0.25", "seconds": 0.5}
    made.note("tool:post", {**told, "words": "ef" * 16, "result": {"cost": "x"}})
    (fact,) = facts(made)
    await client.bus.aclose()
    assert fact | told == fact
    redacted = "words" if "patterns" in redact else "result"
    assert "⟦toolgate:redacted:" in str(fact[redacted])


@pytest.mark.parametrize("odd", ["\ud800", 2**70, {"deep": object()}, ["x" * 9000], "x" * 9000, b"raw"])
async def test_what_somebody_else_put_under_a_name_of_the_engine_is_kept_as_it_may_travel(gate, odd):
    gate.note("tool:post", {"decision_id": "d", "cost": 5, "session": odd})
    (fact,) = facts(gate)
    assert (fact["event"], fact["decision_id"], fact["cost"]) == ("tool:post", "d", 5)


async def test_a_fact_that_cannot_be_kept_is_still_told_of(gate):
    gate.note("odd\ud800", {"x": 1})
    (fact,) = facts(gate)
    assert fact["event"] == "unwritable"


def nest(depth):
    value = "end"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "told",
    [
        {"tool": "a", "success": True, "seconds": 0.5, "cost": 2**62, "labels": {"team": "x"}, "lineage": []},
        {"session": "naïve ⟦toolgate:redacted:x⟧", "words": "⟦toolgate:redacted:x⟧", "⟦toolgate:whole⟧": 1},
        {"cost": 2**64, "count": -(2**64), "within": {"count": 2**64}},
        {"pair": ("a", 1), "raw": b"raw", "session": ("a",), "tool": b"raw"},
        {"words": "x" * 9000, "tool": "x" * 4097, "labels": {"x": "y" * 9000}},
        {"deep": nest(29), "lineage": nest(29), "deepest": nest(28), "labels": {"a": nest(27)}},
        {"wide": [0] * 1025, "labels": [0] * 1025},
        {str(n): 0 for n in range(1025)},
        {"mixed": {7: "seven"}, "words": type("Words", (str,), {})("hello")},
    ],
)
async def test_a_fact_reads_the_same_whether_anything_is_secret_or_not(gate, told):
    open_gate = Gate(parse({}), gate._client, None)
    open_gate.note("tool:post", {**told, "decision_id": "d"})
    gate.note("tool:post", {**told, "decision_id": "d"})
    short, full = (packing.unpack(packing.items(packing.frame([raw]))[0].body) for raw in gate.hub.facts)
    for fact in (short, full):
        del fact["seq"], fact["at"]
    assert short == full
