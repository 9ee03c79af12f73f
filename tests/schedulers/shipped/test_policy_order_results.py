"""Rules on order that look at what earlier calls gave, and that add up an argument."""

import secrets
from decimal import Decimal

import pytest
from toolgate_bus.config.check import check
from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.protocol.events import Continue
from toolgate_bus.state.shared import make_shared_state
from toolgate_schedulers.shipped.policy import seen_results
from toolgate_schedulers.shipped.policy.order import read_amount
from toolgate_schedulers.shipped.policy.scheduler import Policy, PolicyConfig
from toolgate_schedulers.testing import trial

pytestmark = pytest.mark.pure

APPROVED = {
    "tools": "pay",
    "after": {"tool": "approve", "result": {"ok": True}, "same": {"$.id": "$result.id"}},
}
TAINTED = {"tools": "send", "unless_after": {"tool": "read", "result": {"$result": {"matches": "secret"}}}}


async def runs(here, tool, result, *, asked=True, success=True, session="s", arguments=None):
    """A call that runs, is asked about its result, and ends; in the order in which a gate does it."""
    id_ = secrets.token_hex(16)
    told = {"id": id_, "final_tool": tool, "final_input": arguments or {}, "session": session}
    here.tell("decision", outcome="continue", **told)
    if asked:
        about = {"phase": "result", "result": result, "success": success, "session": session}
        assert (await here.ask(tool, arguments, id=id_, **about)).action == "continue"
    here.tell("tool:post", decision_id=id_, success=success)


async def pays(here, id_, tool="pay"):
    return (await here.ask(tool, {"id": id_}, session="s")).action


async def test_a_call_may_run_after_one_that_gave_what_the_rule_wants():
    async with trial(Policy, config={"rules": [APPROVED]}) as here:
        assert await pays(here, "a") == "deny"
        await runs(here, "approve", {"ok": False, "id": "a"})
        assert await pays(here, "a") == "deny"
        await runs(here, "approve", '{"ok": true, "id": "b"}')
        assert [await pays(here, one) for one in ("a", "b", 5)] == ["deny", "continue", "deny"]
        await runs(here, "approve", {"ok": True, "id": 5})
        assert await pays(here, 5) == "continue"
        reason = (await here.ask("pay", {"id": "c"}, session="s")).reason
        assert reason.startswith("pay may run only after approve with $result.id = $.id")
        assert "(with a result that the rule requires)" in reason


@pytest.mark.parametrize(
    "result",
    [
        [{"ok": False, "id": "a"}, {"ok": True, "id": "a"}],
        {"ok": [True, False], "id": "a"},
        '{"ok": [], "id": "a"}',
        "{'ok': [True, False], 'id': 'a'}",
    ],
)
async def test_what_holds_for_some_elements_of_a_result_lets_no_call_run(result):
    async with trial(Policy, config={"rules": [APPROVED]}) as here:
        await runs(here, "approve", result)
        assert await pays(here, "a") == "deny"


async def test_what_holds_for_some_elements_forbids_a_call():
    after = {"tool": "read", "when": {"path": "*.pem"}, "result": {"kind": "secret"}}
    async with trial(Policy, config={"rules": [{"tools": "send", "unless_after": after}]}) as here:
        for path, kind in ((["a", "b"], ["secret"]), (["a.pem"], []), (["a", "b.pem"], ["page", "secret"])):
            assert await pays(here, "x", "send") == "continue"
            await runs(here, "read", {"kind": kind}, arguments={"path": path})
        assert await pays(here, "x", "send") == "deny"


async def test_an_earlier_call_counts_for_another_only_by_all_elements_of_its_arguments():
    rule = {"tools": "pay", "after": {"tool": "approve", "when": {"of": "ann"}}}
    async with trial(Policy, config={"rules": [rule]}) as here:
        for people in (["bob", "ann"], []):
            await runs(here, "approve", "ok", arguments={"of": people}, asked=False)
            assert await pays(here, "a") == "deny"
        await runs(here, "approve", "ok", arguments={"of": ["ann"]}, asked=False)
        assert await pays(here, "a") == "continue"


CONDITIONS = {
    # by name: the condition on a value, one that fits it, one that does not
    "equals": ({"equals": 1}, 1, 2),
    "in": ({"in": ["x"]}, "x", "y"),
    "glob": ({"glob": "x*"}, "xy", "y"),
    "matches": ({"matches": "rm"}, "rm -r", "ls"),
    "gt": ({"gt": 10}, 11, 10),
    "gte": ({"gte": 10}, 10, 9),
    "lt": ({"lt": 10}, 9, 10),
    "lte": ({"lte": 10}, 10, 11),
    "under": ({"under": "/srv"}, "/srv/a", "/srv/../a"),
    "base": ({"under": "/srv", "base": "/srv"}, "a", "../a"),
    "exists": ({"exists": True}, None, ...),
}


@pytest.mark.parametrize(("key", "first"), [("after", "deny"), ("unless_after", "continue")])
async def test_a_rule_on_order_is_about_what_the_calls_before_gave(key, first):
    rules = [
        {"tools": f"x_{name}", key: {"tool": name, "result": {"a": condition}}}
        for name, (condition, _, _) in CONDITIONS.items()
    ]
    then = "continue" if first == "deny" else "deny"
    async with trial(Policy, config={"rules": rules}) as here:
        for name, (_, fits, other) in CONDITIONS.items():
            await runs(here, name, {} if other is ... else {"a": other})
            assert (await here.ask(f"x_{name}", session="s")).action == first, name
            await runs(here, name, {"a": fits})
            assert (await here.ask(f"x_{name}", session="s")).action == then, name


async def test_a_result_that_nobody_saw_counts_against_the_call():
    any_approval = {"tools": "go", "after": {"tool": "approve", "result": {"ok": True}}}
    async with trial(Policy, config={"rules": [APPROVED, TAINTED, any_approval]}) as here:
        await runs(here, "approve", {"ok": True, "id": "a"}, asked=False)
        assert [await pays(here, "a", tool) for tool in ("pay", "go")] == ["deny", "deny"]
        assert await pays(here, "a", "send") == "continue"
        await runs(here, "read", "clear")
        assert await pays(here, "a", "send") == "continue"
        await runs(here, "read", "clear", asked=False)
        assert await pays(here, "a", "send") == "deny"


async def test_a_call_may_not_run_after_one_that_gave_what_the_rule_forbids():
    async with trial(Policy, config={"rules": [TAINTED]}) as here:
        await runs(here, "read", {"lines": ["a", "the secret"]}, session="t")
        assert await pays(here, "a", "send") == "continue"
        await runs(here, "read", {"lines": ["a", "the secret"]})
        assert await pays(here, "a", "send") == "deny"


async def test_another_replica_knows_what_a_call_gave():
    async with trial(Policy, config={"rules": [APPROVED, TAINTED]}) as here:
        await runs(here, "approve", {"ok": True, "id": "a"})
        await runs(here, "approve", {"ok": True, "id": ["b"]})
        await runs(here, "read", "clear")
        await here.restart()
        assert [await pays(here, one) for one in ("a", "b", "c")] == ["continue", "deny", "deny"]
        assert await pays(here, "a", "send") == "continue"


async def test_what_cannot_be_read_counts_against_the_call_until_it_can(monkeypatch):
    shared = make_shared_state()
    async with trial(Policy, config={"rules": [APPROVED]}, shared=shared) as here:
        await runs(here, "approve", {"ok": True, "id": "a"})
        await here.restart()

        async def fails(_key):
            raise TransportError("away")

        with monkeypatch.context() as broken:
            broken.setattr(type(shared.store), "get", lambda _self, key: fails(key))
            assert await pays(here, "a") == "deny"
        assert await pays(here, "a") == "continue"


async def test_a_waiting_call_goes_on_when_the_one_before_has_given_what_the_rule_wants():
    async with trial(Policy, config={"rules": [{**APPROVED, "wait_s": 60}]}) as here:
        id_ = secrets.token_hex(16)
        told = {"id": id_, "final_tool": "approve", "final_input": {}, "session": "s"}
        here.tell("decision", outcome="continue", **told)
        asked = here.pose("pay", {"id": "a"}, session="s")
        assert (await asked.next()).action == "hold"
        result = {"ok": True, "id": "a"}
        await here.ask("approve", id=id_, phase="result", result=result, session="s")
        here.tell("tool:post", decision_id=id_, success=True)
        assert await asked.final() == Continue()


async def test_a_note_that_is_too_long_is_not_written(monkeypatch):
    monkeypatch.setattr(seen_results, "MAX_NOTE", 10)
    async with trial(Policy, config={"rules": [APPROVED]}) as here:
        await runs(here, "approve", {"ok": True, "id": "a"})
        assert await pays(here, "a") == "continue"
        await here.restart()
        assert await pays(here, "a") == "deny"


# ---------------------------------------------------------------------- sums

SUM = {"tools": "pay", "at_most": {"sum": "$.amount", "n": 1000}}


async def test_an_argument_is_added_up_over_all_calls_of_a_session():
    async with trial(Policy, config={"rules": [SUM]}) as here:

        async def pay(amount, session="s"):
            verdict = await here.ask("pay", {"amount": amount} if amount != ... else {}, session=session)
            return verdict.action

        assert [await pay(one, f"s-{one}") for one in (1000, "1000.00", 1001, "1000.01")] == [
            *("continue", "continue"),
            *("deny", "deny"),
        ]
        for amount in (400, "599.99", -5000):
            await runs(here, "pay", None, asked=False, arguments={"amount": amount})
        assert [await pay(one) for one in (0.01, "0.02", 400)] == ["continue", "deny", "deny"]
        assert await pay(1000, "t") == "continue"
        assert [await pay(one) for one in (..., "many", [1], True, {"a": 1})] == ["deny"] * 5
        reason = (await here.ask("pay", {"amount": 400}, session="s")).reason
        assert reason.startswith("amount of pay may come to 1,000 in all in this session")
        assert "needs a number as amount" in (await here.ask("pay", {}, session="s")).reason


async def test_a_sum_meets_its_bound_as_it_is_written_and_nothing_above_is_lost_by_rounding():
    rule = {"tools": "pay", "at_most": {"sum": "$.amount", "n": 10.1}}
    async with trial(Policy, config={"rules": [rule]}) as here:
        await runs(here, "pay", None, asked=False, arguments={"amount": 5.05})
        for amount in ("5.0500000000000000000000000000000001", 5.06):
            assert (await here.ask("pay", {"amount": amount}, session="s")).action == "deny"
        assert (await here.ask("pay", {"amount": 5.05}, session="s")).action == "continue"
        await runs(here, "pay", None, asked=False, arguments={"amount": 10.1}, session="full")
        for amount, action in ((0, "continue"), ("1e-99999", "deny")):
            assert (await here.ask("pay", {"amount": amount}, session="full")).action == action


async def test_a_call_whose_argument_was_not_seen_fills_the_sum():
    async with trial(Policy, config={"rules": [SUM]}) as here:
        await runs(here, "pay", None, asked=False, arguments={"amount": "⟦toolgate:redacted:2⟧"})
        assert (await here.ask("pay", {"amount": 1}, session="s")).action == "deny"


async def test_calls_at_once_come_to_no_more_than_the_sum():
    async with trial(Policy, config={"rules": [SUM]}) as here:
        asked = [here.pose("pay", {"amount": 300}, session="s") for _ in range(5)]
        told = [(await one.next()).action for one in asked]
        assert told.count("continue") == 3


@pytest.mark.parametrize(
    ("value", "amount"),
    [
        *((5, "5"), ("5.10", "5.10"), (2**70, str(2**70)), (0.1, "0.1"), (-3, "0"), (" 7 ", "7")),
        *((True, None), (None, None), ("x", None), ("", None), (float("nan"), None), ([5], None)),
        *(("9" * 65, None), ("1e70", None), ("Infinity", None), ('["5"]', None)),
    ],
)
def test_an_amount_is_read_exactly_or_not_at_all(value, amount):
    assert read_amount("$.amount", {"amount": value}) == (None if amount is None else Decimal(amount))


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"at_most": {"n": 1000}}, "n: must be a whole number from 1 to 128; a higher one goes with sum"),
        ({"at_most": {"n": 1.5}}, "n: must be a whole number"),
        ({"at_most": {"n": 5, "sum": "amount"}}, "must be $.path of an argument, such as $.amount"),
        ({"after": {"tool": "a", "same": {"$result.id": "$.id"}}}, "or to $result.path"),
        ({"after": {"tool": "a", "same": {"$.id": "$results.id"}}}, "or to $result.path"),
    ],
)
def test_a_wrong_rule_is_refused(rule, said):
    with pytest.raises(ConfigError) as refused:
        check(PolicyConfig, {"rules": [{"tools": "x", **rule}]}, "rules")
    assert said in str(refused.value)
