"""A guard from wherever it is called: what is ruled, who is asked, what is reported; on a real server."""

import asyncio
import contextvars
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal

import pytest
from toolgate_bus.errors import ToolgateError
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call, CallDenial, Caller, PersonAnswer

pytestmark = [pytest.mark.acceptance]

TOOLS = {"bash": {"type": "object"}, "search": {"type": "object"}}
DENY = {"rules": {"alpha": {"action": "deny", "reason": "not here"}}}
SWAP = {"rules": {"beta": {"action": "modify", "tool": "search", "arguments": {"q": 1}, "reason": "safer"}}}
ASK = {"rules": {"alpha": {"action": "ask_user", "prompt": "Sure?"}}}
HANG = {"rules": {"alpha": {"do": "hang"}}}
ENDS = ("tool:post", "tool:error", "tool:unused")


class Interrupt(Exception):  # noqa: N818 - as such things are called
    """What a framework raises to leave, and resume later."""


class Leave(BaseException):
    """The same, of a framework that lets no `except Exception` stop it."""


@dataclass
class Payment:
    amount: int


@pytest.fixture
def told(crew):
    """`await told("agent")`: the facts of one agent, but for decisions where `only` names others."""

    async def read(agent, *only):
        commands = RedisCommands(crew.url, "test-guard")
        facts = await FactsReader(commands, crew.namespace).read_all()
        await commands.aclose()
        return [one for one in facts if one.get("agent") == agent and (not only or one["event"] in only)]

    return read


def execute(tool, arguments):
    return f"{tool} ran"


def refuse(ruling):
    return ruling.refusal


# ---------------------------------------------------------------------- what is ruled


async def test_a_call_runs_is_replaced_or_refused_and_each_end_is_told_once(guard_on, told):
    guard = guard_on("trio-of-ends", notice=True, cost=lambda result: Decimal("0.25"))
    at = guard.at("s-ends")
    run = [
        await guard.run(Call("bash", rules, TOOLS, at), execute, denied=refuse) for rules in ({}, SWAP, DENY)
    ]
    assert run == [
        "bash ran",
        "Note: search ran in place of bash (safer).\nsearch ran",
        "The tool call was denied: not here",
    ]
    assert await guard.flush()
    ends = await told("trio-of-ends", *ENDS)
    assert [(one["event"], one["tool"], one["cost"]) for one in ends] == [
        ("tool:post", "bash", 250_000),
        ("tool:post", "search", 250_000),
    ]
    assert ends[0]["digest"] != ends[1]["digest"]
    assert {one["session"] for one in ends} == {"s-ends"}


async def test_what_a_tool_raises_is_reported_by_its_type_and_raised_or_handed_on(guard_on, told):
    guard = guard_on("raisers")

    class Busy(Exception):  # noqa: N818 - a tool's own
        status_code = 429

    def fail(tool, arguments):
        raise Busy("a secret")

    call = Call("bash", {}, TOOLS)
    with pytest.raises(Busy):
        await guard.run(call, fail, denied=refuse)
    handed = await guard.run(call, fail, denied=refuse, failed=lambda error, ruling: type(error).__name__)
    assert handed == "Busy"
    await guard.flush()
    ends = await told("raisers", *ENDS)
    assert [(one["event"], one["error"], one["signal"]) for one in ends] == [
        ("tool:error", "Busy", "429")
    ] * 2
    assert "secret" not in str(ends)


async def test_a_ruling_is_reported_once_by_whichever_word_comes_first(guard_on, told):
    guard = guard_on("once")
    ruling = await guard.rule(Call("bash", {}, TOOLS))
    with ruling:
        ruling.succeed("done", cost="0.5")
        ruling.fail("too late")
    ruling.release()
    with await guard.rule(Call("bash", {}, TOOLS)):
        pass
    with pytest.raises(ZeroDivisionError), await guard.rule(Call("bash", {}, TOOLS)):
        raise ZeroDivisionError
    await guard.flush()
    ends = await told("once", *ENDS)
    assert [one["event"] for one in ends] == ["tool:post", "tool:unused", "tool:error"]
    assert Counter(one["decision_id"] for one in ends).most_common(1)[0][1] == 1


async def test_a_ruling_that_is_forgotten_is_logged_and_its_call_is_over(guard_on, told, caplog):
    guard = guard_on("forgetful")
    ruling = await guard.rule(Call("bash", {}, TOOLS))
    del ruling
    await guard.flush()
    (end,) = await told("forgetful", *ENDS)
    assert (end["event"], end["error"]) == ("tool:error", "Unreported")
    assert "a call ended without a report" in caplog.text


async def test_a_name_that_only_requests_to_an_llm_have_is_no_tools(guard_on):
    guard = guard_on("pretender")
    ruling = await guard.rule(Call("llm:request", {}, ["llm:request"]))
    assert not ruling.allowed
    assert ruling.decision is not None  # on record, as any denial
    assert "cannot begin with llm:" in ruling.refusal


async def test_a_request_to_an_llm_is_a_call_whose_end_is_its_usage(guard_on, told):
    guard = guard_on("thinker")
    await guard.run(Call("bash", {}, TOOLS), execute, denied=refuse)  # by now it knows who is there
    ruling = await guard.rule_request("openai", "large", input_tokens=10, models={"openai": "large"})
    assert ruling.allowed
    assert ruling.arguments["provider"] == "openai"
    guard.usage(provider="openai", model="large", output_tokens=3, cost_usd="0.000001", ruling=ruling)
    assert ruling.is_reported
    guard.usage(provider="openai", cost_usd=Decimal("0.5"))
    await guard.flush()
    usages = await told("thinker", "usage")
    assert [one["cost_usd"] for one in usages] == ["0.000001", "0.5"]
    assert all(one["labels"] == {} for one in usages)


@pytest.mark.parametrize(
    "call",
    [
        Call("bash", {}, TOOLS, id=5),
        Call("bash", {}, TOOLS, id="\ud800"),
        Call("bash", {}, TOOLS, group=5, iteration="x"),
        Call("bash", {}, TOOLS, iteration=2**70),
        Call("bash", {}, TOOLS, Caller(5, "numbers")),
        Call("bash", {}, TOOLS, Caller("s", "numbers", 5)),
        Call("bash", {}, TOOLS, Caller("s", "numbers", "r", None, ("\ud800", "numbers"))),
    ],
)
async def test_the_end_of_a_call_is_told_whatever_its_ids_are_and_as_the_question_says_them(
    guard_on, told, call
):
    guard = guard_on("numbers")
    ruling = await guard.rule(call)
    ruling.succeed("done")
    await guard.flush()
    about = [one for one in await told("numbers") if ruling.id in (one.get("decision_id"), one.get("id"))]
    facts = [one for one in about if one["event"] != "verdict"]  # which may come late
    assert sorted(one["event"] for one in facts) == ["decision", "tool:post", "tool:selected"]
    names = ("session", "root_session", "lineage", "tool_call_id")
    first, *others = [{name: one.get(name) or None for name in names} for one in facts]
    assert others == [first] * 2


async def test_the_end_of_a_request_is_told_whatever_stands_in_it(guard_on, told):
    guard = guard_on("requests")
    await guard.run(Call("bash", {}, TOOLS), execute, denied=refuse)  # by now it knows who is there
    at = Caller("s", "requests", labels={"team": 5, "\ud800": "a"})
    ruling = await guard.rule_request("openai", "\ud800", input_tokens=2**70, at=at, id=5, iteration="x")
    assert ruling.allowed
    ruling.fail("Timeout")
    ruling = await guard.rule_request("openai", "\ud800", input_tokens=2**70, at=at, id=5, iteration="x")
    ruling.succeed(cost="0.5")
    await guard.flush()
    failed, used = await told("requests", "usage", "provider:error")
    assert (failed["event"], used["event"], failed["model"], used["model"]) == (
        "provider:error",
        "usage",
        "?",
        "?",
    )
    assert used["labels"] == {"team": "5", "?": "a"}


async def test_the_usage_of_an_llm_settles_no_call_of_a_tool(guard_on, told):
    guard = guard_on("mistaken")
    ruling = await guard.rule(Call("bash", {}, TOOLS))
    with pytest.raises(ToolgateError, match="is no request to an LLM"):
        guard.usage(provider="openai", cost_usd="0", ruling=ruling)
    assert not ruling.is_reported
    ruling.succeed("done", cost="0.5")
    await guard.flush()
    (end,) = await told("mistaken", *ENDS)
    assert (end["event"], end["cost"]) == ("tool:post", 500_000)


# ---------------------------------------------------------------------- from wherever


def test_many_threads_and_loops_at_once_have_one_gate_and_each_its_own_ruling(guard_on):
    guard = guard_on("crowd")

    def by_thread(number):
        rules = DENY if number % 3 == 0 else {}
        return guard.run_sync(Call("bash", rules, TOOLS), lambda *_: number, denied=lambda _: "no")

    async def by_loop(numbers):
        async def one(number):
            rules = DENY if number % 3 == 0 else {}
            return await guard.run(Call("bash", rules, TOOLS), lambda *_: number, denied=lambda _: "no")

        return await asyncio.gather(*map(one, numbers))

    with ThreadPoolExecutor(8) as pool:
        loops = [pool.submit(asyncio.run, by_loop(range(20 * n, 20 * n + 20))) for n in range(2)]
        threads = list(pool.map(by_thread, range(40)))
        found = [one for loop in loops for one in loop.result()]
    expected = ["no" if number % 3 == 0 else number for number in range(40)]
    assert threads == found == expected
    assert sum(thread.name == "toolgate-guard" for thread in threading.enumerate()) >= 1


async def test_a_guard_that_is_lent_a_loop_has_no_thread_and_says_what_would_block(guard_on, crew):
    before = {thread for thread in threading.enumerate() if thread.name == "toolgate-guard"}
    async with guard_on("lodger") as guard:
        ruling = await guard.rule(Call("bash", DENY, TOOLS))
        assert not ruling.allowed
        with pytest.raises(Exception, match="await guard"):
            guard.rule_sync(Call("bash", {}, TOOLS))
        call = Call("bash", {}, TOOLS)
        assert await asyncio.to_thread(guard.run_sync, call, execute, denied=refuse) == "bash ran"
        after = {thread for thread in threading.enumerate() if thread.name == "toolgate-guard"}
        assert after <= before


async def test_who_gives_up_withdraws_the_question_and_holds_nothing(guard_on, told, wait_until):
    guard = guard_on("impatient")
    asking = asyncio.create_task(guard.rule(Call("bash", HANG, TOOLS)))
    gate = await wait_until(lambda: guard._home and guard._home.gate)
    await wait_until(lambda: gate._client.table.open)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await wait_until(lambda: not gate._client.table.open)
    await guard.flush()
    (decision,) = await told("impatient", "decision")
    assert decision["outcome"] == "cancelled"


def test_a_function_runs_with_what_the_person_agreed_to(guard_on):
    plain, parsed = {"amount": 1}, Payment(1)

    def ask(_asked, _call):
        plain["amount"] = parsed.amount = 5000
        return True

    guard = guard_on("payer", ask=ask)

    @guard.tool
    def pay(rules: dict, payment: object):
        return payment["amount"] if isinstance(payment, dict) else payment.amount

    assert pay(ASK["rules"], plain) == 1
    parsed.amount = 1
    with pytest.raises(CallDenial, match="arguments were changed"):
        pay(ASK["rules"], parsed)


def test_functions_are_each_others_replacement_and_a_denied_one_raises_what_the_llm_is_told(guard_on):
    guard = guard_on("decorator")

    @guard.tool
    def bash(rules: dict):
        return "bash"

    @guard.tool(name="search", denied=lambda ruling: None)
    async def look(q: int = 0, rules: dict | None = None):
        return f"search {q}"

    assert bash({}) == "bash"
    assert bash(SWAP["rules"]) == "search 1"
    assert asyncio.run(look(q=4)) == "search 4"
    assert asyncio.run(look(rules=DENY["rules"])) is None
    with pytest.raises(CallDenial, match="not here"):
        bash(rules=DENY["rules"])


@pytest.mark.parametrize("routed", [False, True], ids=["", "routed"])
@pytest.mark.parametrize("who", [("alpha", "beta"), ("beta", "alpha")], ids="-".join)
def test_a_function_runs_with_the_changes_of_both_who_must_answer(guard_on, who, routed):
    guard, ran = guard_on("both-agree"), []

    @guard.tool
    def search(text: str, limit: int, rules: dict):
        ran.append(("search", text, limit))

    @guard.tool
    def fast_search(text: str, limit: int, rules: dict):
        ran.append(("fast_search", text, limit))

    changes = zip(who, ({"limit": 10}, {"text": "***"}), strict=True)
    rules = {name: {"do": "set", "arguments": change} for name, change in changes}
    call = {"text": "SSN", "limit": 500, "rules": rules}
    other = {"action": "modify", "tool": "fast_search", "arguments": call}
    search("SSN", 500, {**rules, "gamma": other} if routed else rules)
    assert ran == [("fast_search" if routed else "search", "***", 10)]


# ---------------------------------------------------------------------- people


MARK = contextvars.ContextVar("mark", default="")


async def test_a_person_is_asked_in_the_task_that_made_the_call_with_all_that_it_has_at_hand(guard_on):
    seen = []

    async def ask(asked, call):
        seen.append((asked.prompt, call.tool_name, MARK.get(), asyncio.current_task()))
        return MARK.get() == "ann"

    guard = guard_on("asker", ask=ask)

    async def one(name):
        MARK.set(name)
        ruling = await guard.rule(Call("bash", ASK, TOOLS))
        with ruling:
            return ruling.allowed, asyncio.current_task()

    (ann, hers), (bob, his) = await asyncio.gather(one("ann"), one("bob"))
    assert (ann, bob) == (True, False)
    assert {entry[2:] for entry in seen} == {("ann", hers), ("bob", his)}
    assert {entry[:2] for entry in seen} == {("Sure?", "bash")}


def test_a_plain_function_asks_in_the_thread_that_made_the_call(guard_on):
    asked_in = []
    guard = guard_on("asker-sync", ask=lambda asked, call: asked_in.append(threading.get_ident()) or "refuse")
    ruling = guard.rule_sync(Call("bash", ASK, TOOLS))
    assert not ruling.allowed
    assert asked_in == [threading.get_ident()]


def test_whoever_is_asked_by_an_async_function_from_a_thread_is_asked_all_the_same(guard_on):
    async def ask(asked, call):
        await asyncio.sleep(0)
        return "allow"

    with guard_on("asker-mixed", ask=ask).rule_sync(Call("bash", ASK, TOOLS)) as ruling:
        assert ruling.allowed


@pytest.mark.parametrize("lent", [False, True])
@pytest.mark.parametrize("kind", [Interrupt, Leave])
async def test_what_a_framework_raises_to_leave_passes_through_and_the_question_is_withdrawn(
    guard_on, told, lent, kind
):
    def ask(asked, call):
        raise kind

    name = f"leaver-{lent}-{kind.__name__}"
    guard = guard_on(name, ask=ask, passes=(Interrupt,))
    if lent:
        await guard.__aenter__()
    with pytest.raises(kind):
        await guard.rule(Call("bash", ASK, TOOLS))
    assert asyncio.current_task().cancelling() == 0
    with await guard.rule(Call("bash", {}, TOOLS)) as ruling:
        assert ruling.allowed
    for _ in range(500):
        await guard.flush()
        facts = await told(name, "decision")
        if len(facts) == 2:
            break
        await asyncio.sleep(0.01)
    assert sorted(fact["outcome"] for fact in facts) == ["cancelled", "continue"]
    await guard.aclose()


async def test_what_else_the_asking_raises_is_nobody_to_ask(guard_on):
    def ask(asked, call):
        raise ValueError

    ruling = await guard_on("broken-asker", ask=ask).rule(Call("bash", ASK, TOOLS))
    assert "there is nobody to ask" in ruling.refusal


async def test_a_question_that_is_put_off_goes_on_in_another_guard_and_for_the_same_call_alone(
    guard_on, told
):
    first, second = guard_on("deferrer", ask="defer"), guard_on("deferrer")
    call = Call("bash", ASK, TOOLS, first.at("s-defer"), id="c-1")
    waits = await first.rule(call)
    assert (waits.pending, waits.allowed, waits.is_reported) == (True, False, True)
    assert waits.prompt.prompt == "Sure?"
    assert waits.refusal == "The tool call was not run yet: a person is asked about it."
    await first.aclose()

    answer = PersonAnswer(waits.token, "allow", by="ann")
    assert not (await second.rule(call._replace(arguments={**ASK, "more": 1}, answer=answer))).allowed
    with await second.rule(call._replace(answer=answer)) as ruling:
        assert (ruling.allowed, ruling.id) == (True, waits.id)
        ruling.succeed("done")
    assert not (await second.rule(call._replace(answer=answer))).allowed
    await second.flush()
    (end,) = await told("deferrer", *ENDS)
    assert (end["event"], end["decision_id"]) == ("tool:post", waits.id)


async def test_what_a_caller_cannot_do_with_an_answer_is_a_denial(guard_on):
    guard = guard_on("unable")
    ruling = await guard.rule(Call("bash", SWAP, TOOLS, can={"arguments", "ask"}))
    assert not ruling.allowed
    assert "cannot be done here" in ruling.refusal
    unnamed = await guard.rule(
        Call("bash", SWAP, can={"arguments", "ask"})
    )  # which tools there are, it does not say
    assert not unnamed.allowed
    assert "cannot be done here" in unnamed.refusal
    with await guard.rule(Call("bash", SWAP, TOOLS)) as ruling:
        assert ruling.replaced
