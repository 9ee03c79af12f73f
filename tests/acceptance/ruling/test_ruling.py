"""The rules of docs/concepts.md, one by one, on a real server: each verdict comes from its own process."""

import asyncio
import os
import signal

import pytest
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance

TOOLS = ["bash", "search", "fast_search", "write"]
DENY = {"action": "deny", "reason": "not today"}
HANG = {"do": "hang"}


def modify(tool, arguments=None, **fields):
    return {"action": "modify", "tool": tool, "arguments": arguments or {}, **fields}


def ask(prompt="sure?"):
    return {"action": "ask_user", "prompt": prompt}


@pytest.fixture
def gate(crew):
    """`async with gate(patience_ms=…)`: a gate on the bus where alpha, beta and gamma are alive."""
    return lambda **config: Gate.open(
        redis=crew.url, namespace=crew.namespace, **{"patience_ms": 30_000} | config
    )


async def ruled(gate, rules, tool="search", tools=TOOLS, **config):
    """One decision on a call that carries these rules."""
    async with gate(**config) as opened:
        return await opened.decide(Call(tool, {"rules": rules}, tools))


def heard(decision, scheduler, phase="select"):
    """What one scheduler's verdict in a decision was."""
    return [v for v in decision.verdicts if (v.scheduler, v.phase) == (scheduler, phase)]


async def test_everyone_who_agrees_lets_the_llms_own_choice_run(gate, crew):
    decision = await ruled(gate, {})
    assert (decision.outcome, decision.why) == ("continue", "agreed")
    assert (decision.tool_name, decision.tool_input) == ("search", {"rules": {}})
    assert {one.scheduler for one in decision.verdicts} >= {"alpha", "beta", "gamma"}
    pids = {line.pid for line in crew.lines("decided", decision=decision.id)}
    assert pids <= {child.pid for child in crew.started} - {os.getpid()}
    assert len(pids) >= 3


# ---------------------------------------------------------------------- 1. deny wins


async def test_any_deny_wins_over_any_modify_of_higher_priority(gate):
    # The modifies are there first: the deny comes when they have long been heard.
    rules = {
        "alpha": {**DENY, "after": 0.1, "priority": -1000},
        "beta": modify("fast_search", priority=1000),
        "gamma": modify("write", priority=2000),
    }
    decision = await ruled(gate, rules)
    assert (decision.outcome, decision.why, decision.scheduler) == ("deny", "denied", "alpha")
    assert decision.reason == "not today"
    assert not decision.allowed


async def test_a_deny_ends_the_wait_at_once(gate):
    decision = await ruled(gate, {"alpha": DENY, "beta": HANG, "gamma": HANG}, patience_ms=600_000)
    assert (decision.outcome, decision.scheduler) == ("deny", "alpha")


# ---------------------------------------------------------------------- 2. then modify


@pytest.mark.parametrize("late", ["beta", "gamma"])
async def test_of_two_modifies_the_higher_priority_wins_and_runs_with_its_arguments(gate, late):
    rules = {"beta": modify("write", {"by": "beta"}), "gamma": modify("fast_search", {"by": "gamma"})}
    rules[late]["after"] = 0.1  # whoever answers first has no advantage
    decision = await ruled(gate, rules)
    assert (decision.outcome, decision.why, decision.scheduler) == ("modify", "modified", "gamma")
    assert (decision.tool_name, decision.tool_input) == ("fast_search", {"by": "gamma"})
    assert (decision.original_tool, decision.original_input) == ("search", {"rules": rules})


async def test_at_the_same_priority_the_alphabetically_first_wins(gate):
    rules = {"alpha": modify("write", priority=7), "beta": modify("fast_search", priority=7)}
    decision = await ruled(gate, rules)
    assert (decision.scheduler, decision.tool_name) == ("alpha", "write")


INVALID = {
    "unavailable_tool": modify("launch_rocket"),
    "not_allowed": modify("bash"),
    "schema": modify("write", {"path": 7}),
}


@pytest.mark.parametrize("problem", INVALID)
async def test_an_invalid_modify_is_set_aside_and_counted_and_the_next_one_wins(gate, counted, problem):
    tools = {name: {"type": "object"} for name in TOOLS}
    tools["write"] = {"type": "object", "properties": {"path": {"type": "string"}}}
    rules = {"gamma": INVALID[problem], "alpha": modify("fast_search", {"by": "alpha"})}
    limits = {"gamma": {"can_modify": ["write", "fast_search", "launch_rocket"]}}
    decision = await ruled(gate, rules, tools=tools, schedulers=limits)
    assert (decision.scheduler, decision.tool_input) == ("alpha", {"by": "alpha"})
    assert heard(decision, "gamma")[0].problem == problem
    assert counted("toolgate_invalid_modifies_total", scheduler="gamma", reason=problem) == 1


async def test_a_modify_with_a_placeholder_it_may_not_use_is_set_aside(gate, counted, crew):
    async with gate(redact={"fields": ["token"]}) as opened:
        # It keeps arguments that it never saw, for another tool.
        rules = {"gamma": {"action": "modify", "tool": "write"}, "alpha": modify("fast_search", {"q": "x"})}
        decision = await opened.decide(Call("search", {"token": "s3cret", "rules": rules}, TOOLS))
    assert (decision.scheduler, decision.tool_input) == ("alpha", {"q": "x"})
    assert counted("toolgate_invalid_modifies_total", scheduler="gamma", reason="placeholder") == 1


async def test_a_modify_that_keeps_the_tool_gets_the_redacted_arguments_back(gate):
    async with gate(redact={"fields": ["token"]}) as opened:
        rules = {"gamma": {"action": "modify", "tool": "search"}}
        decision = await opened.decide(Call("search", {"token": "s3cret", "rules": rules}, TOOLS))
    assert (decision.outcome, decision.tool_input["token"]) == ("modify", "s3cret")


async def test_if_every_modify_is_invalid_the_llms_own_choice_runs(gate):
    decision = await ruled(gate, {"gamma": INVALID["unavailable_tool"]})
    assert (decision.outcome, decision.tool_name) == ("continue", "search")


# ---------------------------------------------------------------------- 3. verify


async def test_a_winning_modify_goes_round_once_more_to_everyone_but_its_author(gate, crew):
    decision = await ruled(gate, {"gamma": modify("fast_search", {"rules": {}})})
    assert (decision.outcome, decision.tool_name) == ("modify", "fast_search")
    asked = [line for line in crew.lines("asked", decision=decision.id) if line.scheduler != "watcher"]
    second = {line.scheduler: line.tool for line in asked if line.phase == "verify"}
    assert second["alpha"] == second["beta"] == "fast_search"
    assert "gamma" not in second
    assert {line.tool for line in asked if line.phase == "select"} == {"search"}


async def test_a_deny_of_the_replacement_vetoes(gate):
    rules = {"gamma": modify("write", {"rules": {"alpha": DENY}})}
    decision = await ruled(gate, rules)
    assert (decision.outcome, decision.why, decision.scheduler) == ("deny", "denied", "alpha")
    assert heard(decision, "alpha")[0].verdict.action == "continue"
    assert heard(decision, "alpha", "verify")[0].verdict.action == "deny"


async def test_a_further_modify_of_the_replacement_does_not_count(gate):
    rules = {"gamma": modify("write", {"rules": {"alpha": modify("bash", priority=9999)}})}
    decision = await ruled(gate, rules)
    assert (decision.outcome, decision.scheduler, decision.tool_name) == ("modify", "gamma", "write")


@pytest.mark.parametrize("routed", [False, True], ids=["", "routed"])
@pytest.mark.parametrize("who", [("alpha", "beta"), ("beta", "alpha")], ids="-".join)
async def test_two_who_change_different_arguments_have_both_changes_in_what_runs(gate, crew, who, routed):
    limit, mask = {"limit": 10}, {"text": "***"}
    changes = zip(who, (limit, mask), strict=True)
    rules = {name: {"do": "set", "arguments": change} for name, change in changes}
    call = {"text": "SSN", "limit": 500, "rules": rules}
    asked = {**call, "rules": {**rules, "gamma": modify("fast_search", call)}} if routed else call
    async with gate(required=list(who)) as opened:
        decision = await opened.decide(Call("search", asked, TOOLS))
    assert (decision.outcome, decision.tool_name) == ("modify", "fast_search" if routed else "search")
    assert decision.tool_input == {**call, **limit, **mask}
    last = {one.scheduler for one in decision.verdicts if one.again}
    assert last >= {"alpha", "beta", "gamma"}


async def test_a_required_scheduler_that_wants_another_tool_than_was_chosen_denies(gate):
    rules = {"gamma": modify("write", {"rules": {"alpha": modify("bash")}})}
    decision = await ruled(gate, rules, required=["alpha"])
    assert (decision.outcome, decision.why, decision.scheduler) == ("deny", "denied", "alpha")


async def test_verify_can_be_turned_off(gate):
    rules = {"gamma": modify("write", {"rules": {"alpha": DENY}})}
    decision = await ruled(gate, rules, verify=False)
    assert (decision.outcome, decision.tool_name) == ("modify", "write")


# ---------------------------------------------------------------------- 4. then a person


async def asked_person(gate, rules, answer):
    """The decision, and what the person was shown."""
    shown = []

    async def person(question, call):
        shown.append((question.prompt, call.tool_name, call.tool_input))
        return answer

    async with gate() as opened:
        decision = await opened.decide(
            Call("search", {"rules": rules}, TOOLS), ask=person if answer else None
        )
    return decision, shown


async def test_the_person_is_asked_about_the_call_that_would_run(gate):
    rules = {"alpha": ask("search the web?"), "gamma": modify("write", {"path": "a"})}
    decision, shown = await asked_person(gate, rules, "allow")
    assert shown == [("search the web?", "write", {"path": "a"})]
    assert (decision.outcome, decision.tool_name, decision.tool_input) == ("modify", "write", {"path": "a"})
    assert decision.asked_user


async def test_whoever_wants_a_person_asked_about_the_replacement_is_heard(gate):
    rules = {"gamma": modify("write", {"rules": {"beta": ask("overwrite?")}})}
    decision, shown = await asked_person(gate, rules, "refuse")
    assert [(prompt, tool) for prompt, tool, _ in shown] == [("overwrite?", "write")]
    assert (decision.outcome, decision.why) == ("deny", "refused")


async def test_nobody_is_asked_about_a_call_that_is_denied_anyway(gate):
    decision, shown = await asked_person(gate, {"alpha": ask(), "beta": {**DENY, "after": 0.05}}, "allow")
    assert (decision.outcome, shown) == ("deny", [])


@pytest.mark.parametrize(
    ("answer", "why"), [("refuse", "refused"), ("expired", "expired"), (None, "no_approver")]
)
async def test_refused_expired_and_nobody_there_are_denials_told_apart(gate, answer, why):
    decision, _ = await asked_person(gate, {"beta": ask()}, answer)
    assert (decision.outcome, decision.why, decision.scheduler) == ("deny", why, "beta")
    assert decision.reason


# ---------------------------------------------------------------------- silence


async def test_a_required_scheduler_that_is_dead_denies(gate):
    decision = await ruled(gate, {}, required=["auditor"], patience_ms=300)
    assert (decision.outcome, decision.why, decision.scheduler) == ("deny", "silent", "auditor")
    assert decision.seconds > 0.25
    assert "auditor" in decision.reason


async def test_a_required_scheduler_that_is_killed_denies_from_the_next_call_on(
    schedulers, server_url, namespace
):
    child = schedulers.run("obedient:alpha")
    await schedulers.ready(child)
    async with Gate.open(
        redis=server_url, namespace=namespace, required=["alpha"], patience_ms=2000
    ) as opened:
        assert (await opened.decide(Call("search", {}, TOOLS))).outcome == "continue"
        child.send_signal(signal.SIGKILL)
        child.wait()
        decision = await opened.decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.why) == ("deny", "silent")


async def test_a_required_scheduler_that_hangs_denies_at_the_end_of_patience(gate):
    decision = await ruled(gate, {"alpha": HANG}, required=["alpha"], patience_ms=300)
    assert (decision.outcome, decision.why, decision.scheduler) == ("deny", "silent", "alpha")


async def test_an_optional_one_that_hangs_is_passed_over_at_the_end_of_patience_and_counted(gate, counted):
    decision = await ruled(gate, {"alpha": HANG, "beta": modify("write")}, patience_ms=1500)
    assert (decision.outcome, decision.scheduler) == ("modify", "beta")
    assert decision.silent == ("alpha",)
    assert decision.seconds > 0.25
    assert counted("toolgate_failed_open_total", scheduler="alpha", reason="silent") == 1
    open_call = await ruled(gate, {"alpha": HANG}, patience_ms=300)
    assert (open_call.outcome, open_call.why) == ("continue", "failed_open")


async def test_after_three_silences_it_is_not_waited_for_until_it_answers_again(gate, counted, wait_until):
    async with gate(patience_ms=400) as opened:
        hangs = {"rules": {"alpha": HANG}}
        silences = 0  # a silence while the gate's own process had no turn is not counted against it
        while not (passed := await opened.decide(Call("search", hangs, TOOLS))).passed_over:
            assert passed.silent == ("alpha",)
            silences += 1
        assert silences >= 3
        assert (passed.passed_over, passed.silent) == (("alpha",), ())
        assert counted("toolgate_passed_over_total", scheduler="alpha") == 1
        assert counted("toolgate_failed_open_total", scheduler="alpha", reason="passed_over") == 1

        async def waited_for():
            decision = await opened.decide(Call("search", {}, TOOLS))
            return heard(decision, "alpha") and not decision.passed_over

        # It is probed once a second, and its first answer counts it in again.
        await wait_until(waited_for, timeout=30)


async def test_a_late_answer_changes_nothing_and_is_recorded_as_late(gate, counted, wait_until):
    late = []
    async with gate(patience_ms=300) as opened:
        opened.subscribe_late(lambda decision, verdict: late.append((decision, verdict)))
        decision = await opened.decide(Call("search", {"rules": {"alpha": {**DENY, "after": 0.6}}}, TOOLS))
        assert (decision.outcome, decision.silent) == ("continue", ("alpha",))
        ((id_, verdict),) = await wait_until(lambda: late)
    assert (id_, verdict.scheduler, verdict.verdict.action) == (decision.id, "alpha", "deny")
    assert verdict.late
    assert counted("toolgate_late_verdicts_total", scheduler="alpha") == 1


# ---------------------------------------------------------------------- holds


def hold(seconds, after=0.0, **then):
    return {"action": "hold", "seconds": seconds, "then": {"after": after, **then}}


@pytest.mark.parametrize(("final", "outcome"), [(DENY, "deny"), ({"action": "continue"}, "continue")])
async def test_a_hold_moves_the_wait_until_the_final_answer(gate, final, outcome):
    decision = await ruled(gate, {"gamma": hold(20, 2.0, **final)}, patience_ms=1500)
    assert (decision.outcome, decision.silent) == (outcome, ())
    assert decision.seconds > 1.9
    assert [one.verdict.action for one in heard(decision, "gamma")] == ["hold", final["action"]]


async def test_a_hold_moves_the_wait_for_its_scheduler_alone(gate):
    rules = {"alpha": HANG, "gamma": hold(600, 600, action="continue")}
    decision = await ruled(gate, rules, required=["alpha"], patience_ms=300)
    assert (decision.outcome, decision.why, decision.scheduler) == ("deny", "silent", "alpha")


async def test_a_hold_that_runs_out_denies_though_its_scheduler_is_optional(gate):
    decision = await ruled(gate, {"gamma": hold(0.4, 30, action="continue")}, patience_ms=3000)
    assert (decision.outcome, decision.why, decision.scheduler) == ("deny", "expired", "gamma")
    assert decision.seconds > 0.35


async def test_no_hold_lasts_longer_than_max_hold_s(gate):
    rules = {"gamma": hold(3600, 30, action="continue")}
    decision = await ruled(gate, rules, patience_ms=3000, max_hold_s=0.5)
    assert (decision.outcome, decision.why) == ("deny", "expired")
    assert decision.seconds > 0.45


async def test_after_a_hold_the_replacement_is_verified_with_one_fresh_patience(gate):
    final = modify("write", {"rules": {"alpha": {**DENY, "after": 0.2}}})
    decision = await ruled(gate, {"gamma": hold(20, 2.5, **final)}, patience_ms=2000)
    assert (decision.outcome, decision.scheduler) == ("deny", "alpha")


async def test_cancelling_the_turn_withdraws_the_hold(gate, crew, counted, wait_until):
    async with gate() as opened:
        deciding = asyncio.create_task(
            opened.decide(Call("search", {"rules": {"gamma": hold(60, 60, action="continue")}}, TOOLS))
        )
        known = set(crew.lines("decided", scheduler="gamma"))
        (line,) = await wait_until(lambda: set(crew.lines("decided", scheduler="gamma")) - known)
        held = {"scheduler": "gamma", "action": "hold", "tool": "search", "agent": ""}
        await wait_until(lambda: counted("toolgate_verdicts_total", **held))
        deciding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deciding
        await wait_until(lambda: crew.lines("withdrawn", decision=line.decision))


# ---------------------------------------------------------------------- shadow


async def test_a_shadow_is_recorded_and_compared_and_never_merged(gate, counted, wait_until):
    late = []
    rules = {"alpha": {"action": "continue", "after": 0.1}}
    async with gate(shadow=["gamma"]) as opened:
        opened.subscribe_late(lambda _id, verdict: late.append(verdict))
        decision = await opened.decide(Call("search", {"rules": {**rules, "gamma": DENY}}, TOOLS))
        assert (decision.outcome, decision.why) == ("continue", "agreed")
        (shadow,) = heard(decision, "gamma")
        assert (shadow.shadow, shadow.verdict.action) == (True, "deny")
        assert counted("toolgate_shadow_disagreements_total", scheduler="gamma") == 1
        # One that nobody waits for is recorded when it comes.
        slow = {"gamma": {**DENY, "after": 0.3}}
        second = await opened.decide(Call("search", {"rules": slow}, TOOLS))
        assert (second.outcome, heard(second, "gamma")) == ("continue", [])
        (verdict,) = await wait_until(lambda: [one for one in late if one.scheduler == "gamma"])
        assert (verdict.shadow, verdict.late) == (True, False)


async def test_a_scheduler_may_call_itself_a_shadow(gate):
    decision = await ruled(gate, {"alpha": {"action": "continue", "after": 0.1}, "watcher": DENY})
    assert decision.outcome == "continue"
    assert all(one.shadow for one in heard(decision, "watcher"))


async def test_a_required_scheduler_cannot_excuse_itself_by_calling_itself_a_shadow(gate):
    decision = await ruled(gate, {"watcher": HANG}, required=["watcher"], patience_ms=300)
    assert (decision.outcome, decision.why, decision.scheduler) == ("deny", "silent", "watcher")


# ---------------------------------------------------------------------- selectors


async def test_a_scheduler_is_asked_only_about_the_tools_it_names(schedulers, server_url, namespace):
    await schedulers.start("obedient:alpha", "--tools", "web_*", "--tools", "bash")
    async with Gate.open(redis=server_url, namespace=namespace, patience_ms=600_000) as opened:
        for tool in ("web_search", "bash", "search"):
            decision = await opened.decide(Call(tool, {"rules": {"alpha": DENY}}, [tool]))
            assert (tool, decision.outcome) == (tool, "continue" if tool == "search" else "deny")
    assert [line.tool for line in schedulers.lines("asked")] == ["web_search", "bash"]
